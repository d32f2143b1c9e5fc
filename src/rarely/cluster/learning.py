"""The update after a campaign: rewards joined by id, sums over all rounds, the next version.

    night    a folder of decisions, with its place among the policy's rounds
    work     the files of one update, in the folder of its last night
      ids, rewards   those of rounds, and those that came, in buckets by a hash of the id: a record batch is a bucket
      joined         the rewards of a bucket in the order of their rounds, and what was set aside: see OUTCOMES
      sums           over rewards: XᵀX, Xᵀr, rᵀr of a linear part, and the rows that the network trains on
      z              Σ φφᵀ over all rounds, by the features that the update asks for

A sum has one order, whoever makes it: a leaf is a block, a fixed range of rounds, and a fixed binary tree over the
numbers of the leaves adds them up. A task makes a whole subtree, and the driver the rest. So the bits do not depend on
the number of workers, on which of them fail, or on when their results come.

A late reward waits for a later update that is given its night again: the files of earlier updates say what was learned.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely import FramePolicy, Policy
from rarely.cluster.campaign import (
    Campaign,
    Commit,
    Url,
    committing,
    contexts_of,
    lineage,
    offered_in,
    parts_of,
    read_block,
)
from rarely.cluster.files import Folder, Rows, as_parquet, readable, unpacked
from rarely.errors import InvalidInput, NothingToLearn
from rarely.extend import Array, Arrays, Described, IntArray
from rarely.extend.provisional import FeatureTask, RewardSums, RewardTask, UpdateFromSums, split_mix
from rarely.logs.tables import pyarrow

SUBTREE = 16  # leaves that one task sums
SAMPLED = ["context", "arm", "version", "probability", "mean", "bonus"]  #: What a history keeps, in its order.
BUCKET = 2**21  # rounds or rewards that one task takes into memory
MOST_BUCKETS = 2**16  # of 10¹¹ rounds
JOINED_GROUP = 8192  # rewards in a row group of a joined bucket, in the order of rounds
OUTCOMES = ("joined", "duplicate", "conflicting", "invalid", "unknown", "repeated")
"""What became of a reward; the last is of rounds, whose id another round has too."""
JOINED, DUPLICATE, CONFLICTING, INVALID, UNKNOWN, REPEATED = range(6)
NOWHERE = -1  # the place of a reward that belongs to no round


@dataclass(frozen=True)
class UpdateReport(Described):
    """What a nightly update found and did.

    Examples
    --------
    >>> [name for name in UpdateReport.__dataclass_fields__][4:8]
    ['joined', 'late', 'duplicate', 'conflicting']
    """

    number: int  #: Which of the policy's updates it was, from 1.
    version: int  #: The version that decided the rounds.
    rounds: int  #: Rounds decided since the last update.
    rewards: int  #: Rows of the files of rewards.
    joined: int  #: Rewards that this update learned from, those of earlier nights included.
    late: int  #: Rewards that it learned from and that are of earlier nights.
    duplicate: int  #: Rewards that repeat a value that was known already.
    conflicting: int  #: Rewards that differ from another of the same round; all of these are set aside.
    invalid: int  #: Rewards that are not finite numbers.
    unknown: int  #: Rewards with the id of no decision, or of several.
    repeated: int  #: Rounds whose id another one has too: no reward can be told to be theirs, so they stay open.
    open: int  #: Rounds of the policy without a reward.
    mean: float  #: Mean reward of the rounds decided since the last update.
    error: float  #: The standard error of that mean.
    record: dict[str, Any]  #: What the update did: an `UpdateRecord`.


def update(
    policy: Policy | FramePolicy,
    decisions: Url | Sequence[Url],
    rewards: Url,
    *,
    id: str = "id",
    reward: str = "reward",
    jobs: int | None = None,
    address: str | None = None,
) -> UpdateReport:
    """Learn from a night's decisions and the rewards so far, let the policy go to its next version, and report.

    The policy afterwards has taken in every round of `decisions` and every reward that has arrived, as if it had
    decided them itself with frozen bonuses: the same weights and Z. Its history keeps a sample of them. Save it: until
    then the same call makes the same update again. The report is in each folder too, by the policy that learned, so
    that another one that learns from the same nights neither loses nor repeats a reward; what was set aside is in
    _aside-….parquet of the last. Raises `NothingToLearn` without a new reward, `InvalidInput` for a night of another
    policy, and `FolderBusy` while another update has the last of these nights.

    Parameters
    ----------
    policy
        It learned from all earlier nights, and decided the newest ones.
    decisions
        Folders of `decide` or `join`, in the order in which they were decided. Give earlier nights again for as long as
        their rewards may come late.
    rewards
        A Parquet file or a folder of them, in any order; rows that were learned from before may still be there.
    id, reward
        Their columns.
    jobs, address
        As in `decide`.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet
    >>> from rarely import LinUCB, OnDemand
    >>> from rarely.cluster import decide
    >>> here, policy = tempfile.mkdtemp(), LinUCB(dim=1, schedule=OnDemand())
    >>> people = pa.table({"id": ["a", "b"], "contexts": [[1.0, 2.0], [4.0, 3.0]]})
    >>> pa.parquet.write_table(people, f"{here}/people.parquet")
    >>> _ = decide(policy, f"{here}/people.parquet", f"{here}/night", jobs=1)
    >>> pa.parquet.write_table(pa.table({"id": ["b", "c"], "reward": [1.0, 0.0]}), f"{here}/rewards.parquet")
    >>> report = update(policy, f"{here}/night", f"{here}/rewards.parquet", jobs=1)
    >>> report.joined, report.unknown, report.open, policy.version
    (1, 1, 1, 1)
    """
    policy, _ = parts_of(policy)
    urls = [decisions] if isinstance(decisions, str | os.PathLike) else list(decisions)
    with UpdateFromSums(policy) as coming:
        rows, version = Rows.at(rewards, (id, reward)), policy.version
        if not len(rows):
            raise NothingToLearn(f"{os.fspath(rewards)} must have at least one reward to learn from; it has none.")
        nights = nights_of(policy, [Folder.at(url) for url in urls])
        fresh = [night for night in nights if not night.earlier]
        work = Work.of(policy, nights, rows)
        forest, count = Forest(work, nights), sum(night.campaign.rounds for night in fresh)
        with work.folder.alone(), committing(jobs, address) as commit:
            counts = join_rewards(commit, nights, work, rows, (id, reward), policy.round)
            if not counts["joined"]:
                found = ", ".join(f"{counts[name]} {name}" for name in ("rewards", *OUTCOMES[1:]) if counts[name])
                raise NothingToLearn(f"no reward is new: {found}. What is set aside is in {work.aside}.")
            offered = (offered_in(night.folder, b) for night in fresh for b in range(night.campaign.blocks))
            task = coming.expect(offered, count, counts["joined"])
            commit(work.folder, partial(_sum_rewards, work, task), forest.calls("sums", nights))
            total = None if task.scale is None else forest.total("sums", nights)
            features = coming.learn(*_sample(task, forest, nights), total)
            commit(work.folder, partial(_sum_features, work, features), forest.calls("z", fresh))
            total = forest.total("z", fresh) if fresh else None
            record = coming.adopt(total, sum(int(part["rounds"]) for part in forest.parts("z", fresh)))
            mean, error = _mean_reward(part["rewards"] for part in forest.parts("sums", fresh))
            number = {"number": len(policy.updates), "version": version, "rounds": count, "open": record.missing}
            report = UpdateReport(**number, **counts, mean=mean, error=error, record=asdict(record))
            place = {"home": work.folder.path, "work": work.name, "buckets": work.buckets, "report": asdict(report)}
            for night in nights:
                night.folder.write_json(update_file(policy, report.number), place | {"base": night.base})
            work.folder.tidy(("_ids-", "_rewards-"))
    return report


def tree_sum(parts: Iterable[Any], add: Callable[[Any, Any], Any] = np.add) -> Any:
    """Return the sum by a binary tree over the places of the parts; of subtrees of 2^k it is that of their leaves.

    >>> tree_sum(["a", "b", "c"], lambda left, right: f"({left}{right})")
    '((ab)c)'
    """
    waiting = list[tuple[int, Any]]()  # whole subtrees with their heights, falling: few, however many parts there are
    for part in parts:
        height = 0
        while waiting and waiting[-1][0] == height:
            part, height = add(waiting.pop()[1], part), height + 1
        waiting.append((height, part))
    return reduce(lambda right, left: add(left, right), (part for _, part in reversed(waiting)))


@dataclass(frozen=True)
class Forest:
    """The trees of some nights, and the files of their subtrees: one for each `SUBTREE` blocks of a night."""

    work: Work
    nights: Sequence[Night]

    def calls(self, kind: str, nights: Sequence[Night]) -> Iterator[tuple[str, tuple[Night, int, int]]]:
        """Yield the file and the blocks of each subtree of some of the nights."""
        every = ((night, *blocks) for night in self.nights for blocks in night.blocks(SUBTREE))
        for number, (night, first, stop) in enumerate(every):
            if night in nights:
                yield self.work.file(kind, number), (night, first, stop)

    def parts(self, kind: str, nights: Sequence[Night]) -> Iterator[Arrays]:
        """Yield what the subtrees have come to, in order."""
        return (unpacked(self.work.folder.read(name)) for name, _ in self.calls(kind, nights))

    def total(self, kind: str, nights: Sequence[Night]) -> Array:
        """Return the sum of all leaves: the tree of each night, one night after another."""
        trees = (tree_sum(part["sum"] for part in self.parts(kind, [night])) for night in nights)
        return np.asarray(reduce(np.add, trees))


def _sum_rewards(work: Work, task: RewardTask, night: Night, first: int, stop: int) -> str:
    """Sum over the rewards of a subtree, and keep some of its rows."""
    start, end = night.range(first, stop)
    rewards = work.rewards(start, end)
    places = start + np.flatnonzero(~np.isnan(rewards))
    rewards = rewards[places - start]
    kept, leaves, samples = task.kept(task.logged + places), [], []
    for b in range(first, stop):
        table, (begin, end) = night.read(b, SAMPLED), night.range(b, b + 1)
        inside = slice(*np.searchsorted(places, (begin, end)))
        contexts = contexts_of(table)
        leaves.append(task.sums(contexts[places[inside] - begin], rewards[inside]))
        some = places[kept[slice(*np.searchsorted(kept, (inside.start, inside.stop)))]] - begin
        samples.append((contexts[some], *(table.column(name).to_numpy()[some] for name in SAMPLED[1:])))
    arrays = {"sum": tree_sum(leaves), "rows": task.logged + places, "rewards": rewards, "kept": kept}
    arrays |= zip(SAMPLED, map(np.concatenate, zip(*samples, strict=True)), strict=True)
    return work.folder.started(partial(np.savez, **arrays))


def _sum_features(work: Work, task: FeatureTask, night: Night, first: int, stop: int) -> str:
    """Sum φφᵀ over the rounds of a subtree."""
    leaves, counts = [], 0
    for b in range(first, stop):
        leaf, count = task.sums(contexts_of(night.read(b, ["context"])), night.range(b, b + 1)[0])
        leaves.append(leaf)
        counts += count
    return work.folder.started(partial(np.savez, sum=tree_sum(leaves), rounds=counts))


def _sample(
    task: RewardTask, forest: Forest, nights: Sequence[Night]
) -> tuple[IntArray, tuple[Array, ...], Iterator[Array]]:
    """Return the rows to keep of all that the subtrees have kept, their columns, and all other rewards, read again."""
    samples = [
        (part["rows"][part["kept"]], *(part[name] for name in SAMPLED), part["rewards"][part["kept"]])
        for part in forest.parts("sums", nights)
    ]
    columns = [np.concatenate(column) for column in zip(*samples, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    order = order[task.kept(columns[0][order])]
    rows, *others = (column[order] for column in columns)
    dropped = (part["rewards"][~np.isin(part["rows"], rows)] for part in forest.parts("sums", nights))
    return rows, tuple(others), dropped


def _mean_reward(parts: Iterable[Array]) -> tuple[float, float]:
    """Return the mean of all rewards, and its standard error; NaN without two of them."""
    sums = reduce(RewardSums.merge, parts, RewardSums())
    if sums.count < 2:
        return float("nan"), float("nan")
    return sums.mean, (sums.squares / (sums.count - 1) / sums.count) ** 0.5


# --- rewards join the rounds that they belong to


@dataclass(frozen=True)
class Work:
    """The files of an update, which the same call finds again, and no other."""

    folder: Folder
    name: str
    buckets: int

    @classmethod
    def of(cls, policy: Policy, nights: Sequence[Night], rewards: Rows) -> Work:
        """Return the files of the policy's next update, on these nights and rewards."""
        places = [(night.folder.path, night.base, asdict(night.campaign)) for night in nights]
        whole = json.dumps([policy.fingerprint(), places, rewards.files])
        name = f"{len(policy.updates) + 1:06d}-{hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()}"
        rows = max(sum(night.campaign.rounds for night in nights), len(rewards))
        return cls(nights[-1].folder, name, -(-rows // BUCKET))

    @classmethod
    def of_update(cls, folder: Folder, said: dict[str, Any]) -> Work:
        """Return the files of an earlier update, by what it says in a folder of decisions."""
        home, name, buckets = str(said["home"]), str(said["work"]), index(said["buckets"])
        if not re.fullmatch(r"\d{6}-[0-9a-f]{12}", name) or not 0 < buckets <= MOST_BUCKETS:
            raise ValueError(name, buckets)
        return cls(Folder(folder.system, home), name, buckets)

    def file(self, kind: str, number: int) -> str:
        """Return the name of a file."""
        return f"_{kind}-{self.name}-{number:08d}"

    def bucket(self, kind: str, number: int) -> Any:
        """Return a bucket's rows of all files of a kind, in their order."""
        batches = []
        for name in self.folder.names(f"_{kind}-{self.name}-"):
            with self.folder.system.open_input_file(f"{self.folder.path}/{name}") as file:
                batches.append(pyarrow("ipc").open_file(file).get_batch(number))
        return pyarrow().Table.from_batches(batches).combine_chunks()

    def write_buckets(self, table: Any) -> str:
        """Write a table whose record batches are buckets by its ids, and return its temporary name."""
        (batch,), ids = table.combine_chunks().to_batches(), table.column("id")
        if self.buckets == 1:
            which = np.zeros(len(table), np.uint64)
        elif pyarrow("types").is_integer(ids.type):
            which = split_mix(ids.fill_null(0).to_numpy()) % np.uint64(self.buckets)
        else:
            which = np.array([zlib.crc32(str(one).encode()) for one in ids.to_pylist()], np.uint64) % self.buckets
        which = which.astype(np.uint16)  # which NumPy sorts in linear time
        order = np.argsort(which, kind="stable")

        def write(stream: Any) -> None:
            with pyarrow("ipc").new_file(stream, batch.schema) as writer:
                for part in np.split(order, np.searchsorted(which[order], np.arange(1, self.buckets))):
                    writer.write_batch(batch.take(pyarrow().array(part)))

        return self.folder.started(write)

    @property
    def aside(self) -> str:
        """The path of the rewards that are set aside."""
        return f"{self.folder.path}/_aside-{self.name}.parquet"

    def read_joined(self, columns: Sequence[str], filters: Any) -> Any:
        """Return the rows of all joined buckets that the filters let through."""
        read = partial(pyarrow("parquet").read_table, page_checksum_verification=True)
        with readable(self.joined_paths()[0]):
            return read(self.joined_paths(), filesystem=self.folder.system, columns=columns, filters=filters)

    def joined_paths(self) -> list[str]:
        """Return the paths of the joined buckets."""
        return [f"{self.folder.path}/{self.file('joined', bucket)}" for bucket in range(self.buckets)]

    def rewards(self, start: int, stop: int) -> Array:
        """Return the rewards that the rounds of a range got in this update, NaN for none."""
        rewards, within = np.full(stop - start, np.nan), [("position", ">=", start), ("position", "<", stop)]
        positions, values = self.read_joined(["position", "reward"], within).columns
        rewards[positions.to_numpy() - start] = values.to_numpy()
        return rewards


@dataclass(frozen=True)
class Night:
    """A folder of decisions and the place of its rounds."""

    folder: Folder
    campaign: Campaign
    base: int  # rounds of the policy before its first
    earlier: tuple[Work, ...]  # updates that it was part of; none where the policy has not taken in its rounds yet

    def read(self, block: int, columns: Sequence[str]) -> Any:
        """Return columns of a block, which must have as many decisions, on as many numbers, as the campaign says."""
        table, (start, end) = read_block(self.folder, block, columns), self.range(block, block + 1)
        dims = {table.schema.field(name).type.list_size for name in table.column_names if name == "context"}
        if len(table) != end - start or not dims <= {self.campaign.dim}:
            raise InvalidInput(
                f"block {block} of {self.folder.path} needs {end - start} decisions on {self.campaign.dim} numbers; "
                f"it has {len(table)}{''.join(f' on {dim}' for dim in dims)}."
            )
        return table

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last block, exclusive, of each `size` blocks."""
        for first in range(0, self.campaign.blocks, size):
            yield first, min(first + size, self.campaign.blocks)

    def range(self, first: int, stop: int) -> tuple[int, int]:
        """Return the rounds of some blocks among those of the policy."""
        ends = (min(block * self.campaign.block, self.campaign.rounds) for block in (first, stop))
        start, end = (self.base + end for end in ends)
        return start, end


def update_file(policy: Policy, number: int) -> str:
    """Return the name of what a folder of decisions says of an update of the policy.

    Another policy that learned from the same decisions has a file of its own, and what it learned is not learned here.
    """
    return f"_update-{number:06d}-{lineage(policy, number)}.json"


def nights_of(policy: Policy, folders: Sequence[Folder]) -> list[Night]:
    """Return the nights with their places: as earlier updates have them, or behind all rounds so far."""
    nights, base, number = list[Night](), policy.round, len(policy.updates) + 1
    line = [lineage(policy, updates) for updates in range(number)]
    if len({folder.path for folder in folders}) < len(folders):
        raise InvalidInput("a folder of decisions must be given once; one is given again.")
    for folder in folders:
        campaign, names = Campaign.read(folder), set(folder.names())
        missing = next((b for b in range(campaign.blocks) if f"block-{b:08d}.parquet" not in names), None)
        if missing is not None:
            raise InvalidInput(f"{folder.path} must be decided whole; block {missing} is missing. Call decide again.")
        other = ""
        if campaign.version > policy.version or campaign.dim != policy.dim:
            other = f"version {campaign.version} on {campaign.dim} numbers, and the policy has version {policy.version}"
            other += f" and {policy.dim} numbers."
        elif not set(campaign.policies) <= set(line):
            other = "one with other settings, or that has learned from other rewards. Give it to that policy."
        if other:
            raise InvalidInput(f"{folder.path} must be decided by this policy: it has decisions of {other}")
        files = (update_file(policy, earlier) for earlier in range(1, number))
        updates = [folder.read_json(name) for name in files if name in names]
        with readable(f"{folder.path}/_update-….json", "what an update has written"):
            works = tuple(Work.of_update(folder, one) for one in updates)
            nights.append(Night(folder, campaign, index(updates[0]["base"]) if updates else base, works))
        base += 0 if updates else campaign.rounds
    return nights


def join_rewards(
    commit: Commit, nights: Sequence[Night], work: Work, rewards: Rows, columns: tuple[str, str], before: int
) -> dict[str, int]:
    """Join rewards to rounds, write those that are set aside, and return how many there are of each outcome.

    `columns` are those of ids and of rewards. Rewards of the first rounds, `before`, are late.
    """
    groups = [(night, *some) for night in nights for some in night.blocks(max(1, BUCKET // night.campaign.block))]
    ranges = [(start, min(start + BUCKET, len(rewards))) for start in range(0, len(rewards), BUCKET)]
    ids = read_block(nights[0].folder, 0, ["id"]).column(0).type
    stages: dict[str, tuple[Callable[..., str], Sequence[Any]]] = {
        "ids": (partial(_write_ids, work, ids), groups),
        "rewards": (partial(_write_rewards, work, rewards, columns, ids), ranges),
        "joined": (partial(_join, work, before), [(bucket,) for bucket in range(work.buckets)]),
    }
    for kind, (task, calls) in stages.items():
        commit(work.folder, task, ((work.file(kind, number), args) for number, args in enumerate(calls)))
    counts = Counter(dict.fromkeys((*OUTCOMES, "late", "rewards"), 0))
    for path in work.joined_paths():
        schema = pyarrow("parquet").read_schema(path, filesystem=work.folder.system)
        counts.update(json.loads(schema.metadata[b"rarely"]))
    if any(counts[outcome] for outcome in OUTCOMES[CONFLICTING:]):
        table = work.read_joined(["id", "reward", "outcome"], [("outcome", ">=", CONFLICTING)])
        why = pyarrow().array(np.array(OUTCOMES)[table.column("outcome").to_numpy()])
        aside = table.drop(["outcome"]).append_column("why", why)
        work.folder.commit(work.folder.started(as_parquet(aside)), os.path.basename(work.aside))
    return dict(counts)


def _write_ids(work: Work, kind: Any, night: Night, first: int, stop: int) -> str:
    """Write the ids of rounds, of this type, in buckets, with the rewards learned before, NaN for none."""
    columns, (start, end) = (
        [night.read(b, ["id"]).column("id") for b in range(first, stop)],
        night.range(first, stop),
    )
    if any(column.type != kind or column.null_count for column in columns):
        raise InvalidInput(f"{night.folder.path} must have ids, {kind}, in blocks {first} to {stop - 1}.")
    ids = pyarrow().chunked_array(chunk for column in columns for chunk in column.chunks)
    learned = reduce(np.fmax, (each.rewards(start, end) for each in night.earlier), np.full(end - start, np.nan))
    table = pyarrow().table({"id": ids, "position": np.arange(start, end), "learned": learned})
    return work.write_buckets(table)


def _write_rewards(work: Work, rows: Rows, columns: tuple[str, str], kind: Any, start: int, stop: int) -> str:
    """Write rewards, whose ids have the type of those decided, in buckets."""
    batches = [batch for _, batch in rows.batches(start, stop, columns)]
    table = pyarrow().Table.from_batches(batches).select(columns)
    try:
        table = table.rename_columns(["id", "reward"])
        table = table.cast(pyarrow().schema({"id": kind, "reward": "float64"}))
    except pyarrow().ArrowException as error:
        raise InvalidInput(f"rewards must be numbers, and their ids {kind} like those decided: {error}") from None
    return work.write_buckets(table)


def _join(work: Work, before: int, bucket: int) -> str:
    """Find the rounds that the rewards of a bucket belong to; those of the first rounds, `before`, are late."""
    rounds, rewards, pa = work.bucket("ids", bucket), work.bucket("rewards", bucket), pyarrow()
    both = rounds.column("id").chunks + rewards.column("id").chunks
    ids, count = pa.chunked_array(both, rounds.schema.field("id").type).combine_chunks(), len(rounds)
    encoded = ids.dictionary_encode()  # one look at every id finds the round of each reward, and ids that repeat
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    # Which of several decisions a reward belongs to cannot be known, and a guess would credit the wrong arm.
    single = np.bincount(codes[:count], minlength=1)[codes[:count]] == 1
    place_of = np.full(len(encoded.dictionary) + 1, NOWHERE)
    place_of[codes[:count][single]] = np.flatnonzero(single)
    places, values = place_of[codes[count:]], rewards.column("reward").to_numpy()
    outcomes, joined = outcomes_of(places, values, rounds.column("learned").to_numpy())

    aside = np.flatnonzero(outcomes >= CONFLICTING)
    rows = np.concatenate([count + joined, count + aside, np.flatnonzero(~single)])
    used, position = np.arange(len(rows)) < len(joined), np.full(len(rows), NOWHERE)
    position[used] = rounds.column("position").to_numpy()[places[joined]]
    columns = {
        "id": ids.take(pa.array(rows, mask=used)),  # of those alone that are set aside
        "position": position,
        "reward": np.append(np.full(count, np.nan), values)[rows],
        "outcome": np.append(np.full(count, REPEATED, np.int8), outcomes)[rows],
    }
    counts = dict(zip(OUTCOMES, np.bincount(outcomes, minlength=len(OUTCOMES)).tolist(), strict=True))
    late = int(np.count_nonzero(position[used] < before))
    counts |= {"repeated": int(np.count_nonzero(~single)), "rewards": len(rewards), "late": late}
    table = pa.table(columns).replace_schema_metadata({"rarely": json.dumps(counts)})
    return work.folder.started(as_parquet(table, JOINED_GROUP))


def outcomes_of(places: IntArray, values: Array, learned: Array) -> tuple[NDArray[np.int8], IntArray]:
    """Return what becomes of each reward, and those to learn from in the order of their rounds.

    `places` are those of the rewards' rounds in `learned`, or NOWHERE; that is the reward of each round that an earlier
    update learned from, NaN for none.
    """
    valid = np.isfinite(values) & (places >= 0)
    outcomes = np.where(places < 0, UNKNOWN, INVALID).astype(np.int8)
    which, of, new = np.flatnonzero(valid), places[valid], np.isnan(learned)
    first = np.full(len(learned), NOWHERE)
    first[of[::-1]] = which[::-1]  # the last assignment stays
    differs = values[which] != np.where(new, np.append(values, np.nan)[first], learned)[of]
    clashes = np.zeros(len(learned), np.bool_)
    clashes[of[differs]] = True
    wrong, fresh = np.where(new[of], clashes[of], differs), new[of] & (first[of] == which)
    outcomes[valid] = np.where(wrong, CONFLICTING, np.where(fresh, JOINED, DUPLICATE))
    return outcomes, first[new & ~clashes & (first >= 0)]
