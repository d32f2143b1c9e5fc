"""The update after a campaign: rewards joined by id, sums over all rounds, the next version.

    night    a folder of decisions, with its place among the policy's rounds
    work     the files of one update, in the folder of its last night
      ids, came    ids of rounds, and rewards, in buckets by a hash of the id: a record batch is a bucket
      joined       the rewards of a bucket in the order of their rounds, and what was set aside: see KINDS
      sums         over rewards: XᵀX, Xᵀr, rᵀr of a linear part, and the rows that the network trains on
      z            Σ φφᵀ over all rounds, by the features that the update asks for

A sum has one order, whoever makes it: a leaf is a block, a fixed range of rounds, and a fixed binary tree over the
numbers of the leaves adds them up. A task makes a whole subtree, and the driver the rest. So the bits do not depend on
the number of workers, on which of them fail, or on when their results come.

A late reward waits for a later update that is given its night again: the files of earlier updates say what was learned.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rarely import InvalidInput, NothingToLearn, Policy, UpdateResult
from rarely.cluster.campaign import Campaign, Commit, Url, committing, contexts_of, moments_of, read_block
from rarely.cluster.files import Folder, Rows, as_parquet, pyarrow, unpacked
from rarely.extend import Array, Arrays, Described, Dual, Forgetting, IntArray, Learner, LearnerAround
from rarely.extend.additions import TUNED_ROWS, LinearPart, SelfTunedLearner
from rarely.extend.provisional import (
    UNLIMITED,
    ArmStats,
    LinearLearner,
    Moments,
    NetworkLearner,
    PolicyState,
    RewardSums,
    SparseDiagonal,
    adapted,
    changed,
    put_back,
    split_mix,
    state_of,
    training_rows,
)

SUBTREE = 16
"""Leaves that one task sums."""
BUCKET = 2**21
"""Rounds or rewards that one task takes into memory."""
FOUND_TOGETHER = 8192
"""Rewards in a row group, in the order of rounds."""
KINDS = ("joined", "duplicate", "conflicting", "invalid", "unknown", "repeated")
JOINED, DUPLICATE, CONFLICTING, INVALID, UNKNOWN, REPEATED = range(6)
Scale = Callable[[Array], Array] | None
KEPT = ("arm", "version", "probability", "mean", "bonus")


@dataclass(frozen=True)
class UpdateReport(Described):
    """What a nightly update found and did.

    Examples
    --------
    >>> [name for name in UpdateReport.__dataclass_fields__][4:8]
    ['joined', 'late', 'duplicate', 'conflicting']
    """

    number: int
    """Of the policy's updates, from 1."""
    version: int
    """The version that decided the rounds."""
    rounds: int
    """Rounds decided since the last update,"""
    rewards: int
    """and rows of the files of rewards:"""
    joined: int
    """learned from in this update, those of earlier nights included,"""
    late: int
    """which are these;"""
    duplicate: int
    """known already, with the same value;"""
    conflicting: int
    """another value for a round, all of which are set aside;"""
    invalid: int
    """not a finite number;"""
    unknown: int
    """with the id of no decision, or of several."""
    repeated: int
    """Rounds whose id another one has too: no reward can be told to be theirs, so they stay open;"""
    open: int
    """rounds of the policy without a reward."""
    mean: float
    """Mean reward of the rounds decided since the last update, and its standard error."""
    error: float
    record: dict[str, Any]
    """What the update did: an `UpdateRecord`."""


@dataclass(frozen=True)
class Work:
    """The files of an update."""

    folder: Folder
    name: str
    buckets: int

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

    def joined(self) -> list[str]:
        """Return the paths of the rewards of each bucket."""
        return [f"{self.folder.path}/{self.file('joined', bucket)}" for bucket in range(self.buckets)]

    def rewards(self, start: int, stop: int) -> Array:
        """Return the rewards that the rounds of a range got in this update, NaN for none."""
        within, found = [("position", ">=", start), ("position", "<", stop)], np.full(stop - start, np.nan)
        read, columns = pyarrow("parquet").read_table, ["position", "reward"]
        places, values = read(self.joined(), filesystem=self.folder.system, columns=columns, filters=within).columns
        found[places.to_numpy() - start] = values.to_numpy()
        return found


@dataclass(frozen=True)
class Night:
    """A folder of decisions and the place of its rounds."""

    folder: Folder
    campaign: Campaign
    base: int
    """Rounds of the policy before its first."""
    earlier: tuple[Work, ...]
    """Updates that it was part of; none where the policy has not taken in its rounds yet."""

    def blocks(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last block, exclusive, of each `size` blocks."""
        for first in range(0, self.campaign.blocks, size):
            yield first, min(first + size, self.campaign.blocks)

    def range(self, first: int, stop: int) -> tuple[int, int]:
        """Return the rounds of some blocks among those of the policy."""
        ends = (min(block * self.campaign.block, self.campaign.rounds) for block in (first, stop))
        start, end = (self.base + end for end in ends)
        return start, end


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


def update(
    policy: Policy,
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
    then the same call makes the same update again. The report is in each folder too, and what was set aside in
    _aside-….parquet of the last. Raises `NothingToLearn` without a new reward.

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
    check_supported(policy)
    state, came = state_of(policy), Rows.at(rewards, (id, reward))
    if not len(came):
        raise NothingToLearn(f"{os.fspath(rewards)} must have at least one reward to learn from; it has none.")
    urls = [decisions] if isinstance(decisions, str | os.PathLike) else list(decisions)
    nights = _nights(policy, [Folder.at(url) for url in urls])
    work = _work(policy, nights, came)
    with committing(jobs, address) as commit:
        counts = _joined(commit, nights, work, came, (id, reward), policy.round)
        update = _Update(policy, nights, work, counts["joined"])
        sums = partial(_sums, work, update.scale, update.most, update.logged)
        commit(work.folder, sums, update.subtrees("sums", nights))
        try:
            before = update.with_rewards()
            put_back(policy, before)
            result = update.with_basis(policy.prepare_update().run())
            commit(work.folder, update.features(result), update.subtrees("z", update.fresh))
            after, result = update.with_rounds(before, result)
            put_back(policy, after)
            record = policy.adopt(result)
            counts |= {"number": len(policy.updates), "version": result.cut.version, "open": result.cut.missing}
            mean, error = update.mean_reward()
            report = UpdateReport(**counts, rounds=update.rounds, mean=mean, error=error, record=asdict(record))
            place = {"home": work.folder.path, "work": work.name, "buckets": work.buckets, "report": asdict(report)}
            for night in nights:
                written = json.dumps(place | {"base": night.base})
                night.folder.write(f"_update-{report.number:06d}.json", written.encode())
        except BaseException:
            put_back(policy, state)
            raise
    work.folder.tidy(("_ids-", "_came-"))
    return report


def check_supported(policy: Policy) -> None:
    """Refuse a policy whose update needs every round in one place."""
    state, learner = state_of(policy), state_of(policy).current.learner
    sized = policy._factory.empty(learner.widths, arms=state.most_arms, rows=UNLIMITED)
    network = _network_of(learner)
    trains = network is not None and network.training_rows is not None
    if not (trains or isinstance(learner, LinearLearner)) or isinstance(sized, Dual | SparseDiagonal):
        raise InvalidInput(
            "an update from many blocks takes LinUCB, LinTS and networks that train on a sample, Training(rows=10_000) "
            f"say, with a Z whose size is fixed, not the dual form or sparse rows; got {type(policy).__name__}."
        )
    if state.history.forgetting is not None and not learner.chooses_memory:
        raise InvalidInput("an update from many blocks takes a policy that remembers all rounds, without forgetting.")


def _network_of(learner: Learner) -> NetworkLearner | None:
    """Return the network inside a learner, if it has one."""
    inner = learner.innermost if isinstance(learner, LearnerAround) else learner
    return inner if isinstance(inner, NetworkLearner) else None


def _nights(policy: Policy, folders: Sequence[Folder]) -> list[Night]:
    """Return the nights with their places: as earlier updates have them, or behind all rounds so far."""
    nights, base, number = list[Night](), policy.round, len(policy.updates) + 1
    for folder in folders:
        campaign, names = Campaign.read(folder), set(folder.names())
        if missing := [b for b in range(campaign.blocks) if f"block-{b:08d}.parquet" not in names]:
            raise InvalidInput(
                f"{folder.path} must be decided whole; block {missing[0]} is missing. Call decide again."
            )
        if campaign.version > policy.version or campaign.dim != policy.dim:
            raise InvalidInput(
                f"{folder.path} must be decided by this policy: it has decisions of version {campaign.version} on "
                f"{campaign.dim} numbers, and the policy has version {policy.version} and {policy.dim} numbers."
            )
        updates = (f"_update-{earlier:06d}.json" for earlier in range(1, number))
        known = [json.loads(folder.read(name)) for name in updates if name in names]
        works = tuple(Work(Folder(folder.system, k["home"]), k["work"], k["buckets"]) for k in known)
        nights.append(Night(folder, campaign, known[0]["base"] if known else base, works))
        base += 0 if known else campaign.rounds
    return nights


def _work(policy: Policy, nights: Sequence[Night], came: Rows) -> Work:
    """Return the files of this update, which the same call finds again, and no other."""
    places = [(night.folder.path, night.base, asdict(night.campaign)) for night in nights]
    whole = json.dumps([policy.fingerprint(), places, came.files, came.changed()])
    name = f"{len(policy.updates) + 1:06d}-{hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()}"
    rows = max(sum(night.campaign.rounds for night in nights), len(came))
    return Work(nights[-1].folder, name, -(-rows // BUCKET))


def _joined(
    commit: Commit, nights: Sequence[Night], work: Work, came: Rows, columns: tuple[str, str], before: int
) -> dict[str, Any]:
    """Join the rewards to rounds, write those that are set aside, and return how many there are of each kind."""
    parquet, kind = pyarrow("parquet"), read_block(nights[0].folder, 0, ["id"]).column(0).type
    groups = [(night, *some) for night in nights for some in night.blocks(max(1, BUCKET // night.campaign.block))]
    commit(work.folder, partial(_ids, work), ((work.file("ids", i), group) for i, group in enumerate(groups)))
    ranges = [(start, min(start + BUCKET, len(came))) for start in range(0, len(came), BUCKET)]
    task = partial(_came, work, came, columns, kind)
    commit(work.folder, task, ((work.file("came", i), part) for i, part in enumerate(ranges)))
    buckets = range(work.buckets)
    commit(work.folder, partial(_join, work, before), ((work.file("joined", bucket), (bucket,)) for bucket in buckets))
    counts = Counter(dict.fromkeys((*KINDS, "late", "rewards"), 0))
    for path in work.joined():
        counts.update(json.loads(parquet.read_schema(path, filesystem=work.folder.system).metadata[b"rarely"]))
    if any(counts[kind] for kind in KINDS[CONFLICTING:]):
        known, unusable = ["id", "reward", "kind"], [("kind", ">=", CONFLICTING)]
        table = parquet.read_table(work.joined(), filesystem=work.folder.system, columns=known, filters=unusable)
        why = pyarrow().array(np.array(KINDS)[table.column("kind").to_numpy()])
        aside = table.drop(["kind"]).append_column("why", why)
        work.folder.commit(work.folder.started(as_parquet(aside)), f"_aside-{work.name}.parquet")
    return dict(counts)


def in_buckets(work: Work, table: Any) -> Callable[[Any], None]:
    """Return how a table is written whose record batches are buckets by the ids, for `Folder.started`."""
    (batch,), ids = table.combine_chunks().to_batches(), table.column("id")
    if work.buckets == 1:
        which = np.zeros(len(table), np.uint64)
    elif pyarrow("types").is_integer(ids.type):
        which = split_mix(ids.fill_null(0).to_numpy()) % np.uint64(work.buckets)
    else:
        which = np.array([zlib.crc32(str(one).encode()) for one in ids.to_pylist()], np.uint64) % work.buckets
    which = which.astype(np.uint16)  # which NumPy sorts in linear time; 2¹⁶ buckets are 10¹¹ rounds
    order = np.argsort(which, kind="stable")

    def write(stream: Any) -> None:
        with pyarrow("ipc").new_file(stream, batch.schema) as writer:
            for part in np.split(order, np.searchsorted(which[order], np.arange(1, work.buckets))):
                writer.write_batch(batch.take(pyarrow().array(part)))

    return write


def _ids(home: Work, night: Night, first: int, stop: int) -> str:
    """Write the ids of rounds in buckets, with the rewards that were learned from before, NaN for none."""
    ids = pyarrow().concat_tables(read_block(night.folder, b, ["id"]) for b in range(first, stop)).column("id")
    if ids.null_count:
        raise InvalidInput(f"every decision needs an id, so that its reward finds it; {night.folder.path} has none.")
    start, end = night.range(first, stop)
    known = reduce(np.fmax, (work.rewards(start, end) for work in night.earlier), np.full(end - start, np.nan))
    table = pyarrow().table({"id": ids, "position": np.arange(start, end), "known": known})
    return home.folder.started(in_buckets(home, table))


def _came(work: Work, rows: Rows, columns: tuple[str, str], type: Any, start: int, stop: int) -> str:
    """Write rewards in buckets; `type` is that of the ids."""
    table = pyarrow().Table.from_batches(list(rows.batches(start, stop, columns))).select(columns)
    try:
        table = table.rename_columns(["id", "reward"])
        table = table.cast(pyarrow().schema({"id": type, "reward": "float64"}))
    except pyarrow().ArrowInvalid as error:
        raise InvalidInput(f"rewards must be numbers, and their ids {type} like those decided: {error}") from None
    return work.folder.started(in_buckets(work, table))


def _join(work: Work, before: int, bucket: int) -> str:
    """Find the rounds that the rewards of a bucket belong to; of the first rounds, `before`, they are late."""
    rounds, came, pa = work.bucket("ids", bucket), work.bucket("came", bucket), pyarrow()
    ids = pa.chunked_array(rounds.column("id").chunks + came.column("id").chunks, rounds.schema.field("id").type)
    ids, count = ids.combine_chunks(), len(rounds)
    each = ids.dictionary_encode()  # one look at every id finds the round of each reward, and ids that came twice
    codes, none = each.indices.fill_null(len(each.dictionary)).to_numpy(), -1
    # Which of several decisions a reward belongs to cannot be known, and a guess would credit the wrong arm.
    single = np.bincount(codes[:count], minlength=1)[codes[:count]] == 1
    place_of = np.full(len(each.dictionary) + 1, none)
    place_of[codes[:count][single]] = np.flatnonzero(single)
    places, values = place_of[codes[count:]], came.column("reward").to_numpy()
    kinds, joined = kinds_of(places, values, rounds.column("known").to_numpy())

    rows = np.concatenate([count + joined, count + np.flatnonzero(kinds >= CONFLICTING), np.flatnonzero(~single)])
    used, position = np.arange(len(rows)) < len(joined), np.full(len(rows), none)
    position[used] = rounds.column("position").to_numpy()[places[joined]]
    columns = {
        "id": ids.take(pa.array(rows, mask=used)),  # of those alone that are set aside
        "position": position,
        "reward": np.append(np.full(count, np.nan), values)[rows],
        "kind": np.append(np.full(count, REPEATED, np.int8), kinds)[rows],
    }
    found = dict(zip(KINDS, np.bincount(kinds, minlength=len(KINDS)).tolist(), strict=True))
    found |= {"repeated": int(np.count_nonzero(~single)), "rewards": len(came)}
    facts = {"rarely": json.dumps({**found, "late": int(np.count_nonzero(position[used] < before))})}
    return work.folder.started(as_parquet(pa.table(columns).replace_schema_metadata(facts), FOUND_TOGETHER))


def kinds_of(places: IntArray, values: Array, known: Array) -> tuple[NDArray[np.int8], IntArray]:
    """Return what each reward is, and those to learn from in the order of their rounds.

    `places` are those of the rewards' rounds in `known`, −1 for none: what was learned before, NaN for nothing.
    """
    valid = np.isfinite(values) & (places >= 0)
    kinds = np.where(places < 0, UNKNOWN, INVALID).astype(np.int8)
    which, of, new = np.flatnonzero(valid), places[valid], np.isnan(known)
    first = np.full(len(known), -1)
    first[of[::-1]] = which[::-1]  # the last assignment stays
    differs = values[which] != np.where(new, np.append(values, np.nan)[first], known)[of]
    clashes = np.zeros(len(known), np.bool_)
    clashes[of[differs]] = True
    wrong, fresh = np.where(new[of], clashes[of], differs), new[of] & (first[of] == which)
    kinds[valid] = np.where(wrong, CONFLICTING, np.where(fresh, JOINED, DUPLICATE))
    return kinds, first[new & ~clashes & (first >= 0)]


def kept_rows(rows: IntArray, most: int) -> IntArray:
    """Return which of these rising rows an update may ask for: a training's sample, and the latest.

    What it keeps of the parts contains what it keeps of the whole.
    """
    latest = np.arange(max(0, len(rows) - min(most, TUNED_ROWS)), len(rows))
    return np.union1d(training_rows(rows, most), latest)


def _sums(work: Work, scale: Scale, most: int, logged: int, night: Night, first: int, stop: int) -> str:
    """Sum over the rewards of a subtree, and keep some of its rows; `scale` is None without a linear part."""
    start, end = night.range(first, stop)
    values = work.rewards(start, end)
    places = start + np.flatnonzero(~np.isnan(values))
    values = values[places - start]
    kept, leaves, parts = kept_rows(logged + places, most), [], []
    for b in range(first, stop):
        table, ends = read_block(night.folder, b, ["context", *KEPT]), night.range(b, b + 1)
        own = slice(*np.searchsorted(places, ends))
        contexts, rewards, here = contexts_of(table), values[own], places[own] - ends[0]
        learned = contexts if len(here) == len(table) else contexts[here]
        x = learned[:, :0] if scale is None else scale(learned)
        leaves.append(np.concatenate([(x.T @ x).ravel(), x.T @ rewards, [rewards @ rewards]]))
        some = places[kept[slice(*np.searchsorted(kept, (own.start, own.stop)))]] - ends[0]
        parts.append((contexts[some], *(table.column(name).to_numpy()[some] for name in KEPT)))
    arrays = {"sum": tree_sum(leaves), "rows": logged + places, "rewards": values, "kept": kept}
    arrays |= zip(("context", *KEPT), map(np.concatenate, zip(*parts, strict=True)), strict=True)
    return work.folder.started(partial(np.savez, **arrays))


def _features(
    work: Work, learner: Learner, z: Any, memory: Forgetting | None, latest: int, night: Night, first: int, stop: int
) -> str:
    """Sum φφᵀ over the rounds of a subtree, in the form of Z; `latest` is the last round of all."""
    leaves, step, remembered = [], z.block(), 0
    for b in range(first, stop):
        contexts, parts = contexts_of(read_block(night.folder, b, ["context"])), list[Any]()
        ages = latest - np.arange(*night.range(b, b + 1), dtype=np.float64)
        for start in range(0, len(contexts), step):
            part = slice(start, start + step)
            factors = learner.features(contexts[part])
            weights = None if memory is None else memory.weights(ages[part])
            remembered += len(factors) if weights is None else int(np.count_nonzero(weights))
            parts.append(z.contribution(factors.weighted(weights)))
            parts = [parts[0] + parts[1]] if len(parts) > 1 else parts
        leaves.append(parts[0])
    return work.folder.started(partial(np.savez, sum=tree_sum(leaves), rounds=remembered))


class _Update:
    """What the driver knows of an update in progress."""

    def __init__(self, policy: Policy, nights: Sequence[Night], work: Work, joined: int) -> None:
        self.state, self.nights, self.work, self.factory = state_of(policy), nights, work, policy._factory
        self.fresh = [night for night in nights if not night.earlier]
        self.rounds = sum(night.campaign.rounds for night in self.fresh)
        self.logged, self.arrived = self.state.history.logged, self.state.history.arrived + joined
        self._take_in_facts()
        learner, self.linear = self.learner, None
        self.scale: Scale = None
        network = _network_of(learner)
        if network is not None:
            self.most = network.training_rows or 0
            ready = network.with_fitted_scale().scale
            if isinstance(learner, SelfTunedLearner) and learner.has_linear(
                self.state.history.forgetting, ready, self.arrived
            ):
                self.linear = learner.linear or LinearPart.start(ready).learn(self.state.history)
            self.scale = None if self.linear is None else self.linear.scale
        elif isinstance(learner, LinearLearner):
            self.scale, self.most = learner.scale, 64

    def _take_in_facts(self) -> None:
        """Add what the metadata of new blocks say: contexts that were offered, and how well arms were known."""
        learner, stats, arms = self.state.current.learner, self.state.arm_stats, self.state.most_arms
        moments = moments_of(learner)
        for night in self.fresh:
            for b in range(night.campaign.blocks):
                facts = json.loads(read_block(night.folder, b, []).schema.metadata[b"rarely"])
                arms, seen = max(arms, facts["arms"]), facts["moments"]
                stats = stats.plus(ArmStats(**facts["stats"]))
                if moments is not None and seen:
                    moments = moments.merge(Moments.of(**seen))
        if moments is not None:
            learner = learner.with_moments(moments)
        self.learner, self.stats, self.arms = learner, stats, arms

    def subtrees(self, kind: str, nights: Sequence[Night]) -> Iterator[tuple[str, tuple[Night, int, int]]]:
        """Yield the file and the blocks of each subtree."""
        for number, (night, first, stop) in enumerate((n, *some) for n in self.nights for some in n.blocks(SUBTREE)):
            if night in nights:
                yield self.work.file(kind, number), (night, first, stop)

    def _parts(self, nights: Sequence[Night], kind: str = "sums") -> Iterator[Arrays]:
        """Yield what the subtrees came to, in order."""
        return (unpacked(self.work.folder.read(name)) for name, _ in self.subtrees(kind, nights))

    def _sum(self, nights: Sequence[Night], kind: str) -> Array:
        """Return the sum of all leaves: the tree of each night, one night after another."""
        trees = (tree_sum(part["sum"] for part in self._parts([night], kind)) for night in nights)
        return np.asarray(reduce(np.add, trees))

    def with_rewards(self) -> PolicyState:
        """Return the state after all rounds and rewards, but for Z."""
        parts = [
            (part["rows"][part["kept"]], *(part[name] for name in ("context", *KEPT)), part["rewards"][part["kept"]])
            for part in self._parts(self.nights)
        ]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        order = order[kept_rows(columns[0][order], self.most)]
        rows, *others = (column[order] for column in columns)
        dropped = (part["rewards"][~np.isin(part["rows"], rows)] for part in self._parts(self.nights))
        history = self.state.history.with_sample(self.rounds, rows, tuple(others), dropped)
        return replace(
            self.state,
            history=history,
            current=self.state.current.with_learner(self._with_sums(history.arrived)),
            arm_stats=self.stats,
            most_arms=self.arms,
            learned=history.arrived - len(rows),
        )

    def _with_sums(self, arrived: int) -> Learner:
        if self.scale is None:
            return self.learner
        total = self._sum(self.nights, "sums")
        size = int(np.sqrt(len(total)))  # d² + d + 1 numbers
        matrix, moment, square = total[: size**2].reshape(size, size), total[size**2 : -1], float(total[-1])
        if isinstance(self.learner, LinearLearner):
            return self.learner.with_sums(matrix, moment, arrived)
        assert self.linear is not None
        linear = replace(
            self.linear,
            matrix=self.linear.matrix + matrix,
            moment=self.linear.moment + moment,
            square=self.linear.square + square,
            learned=arrived,
        )
        return changed(self.learner, linear=linear)

    def with_basis(self, result: UpdateResult) -> UpdateResult:
        """Return the result with the features of another path, where all rounds are here to rebuild Z from.

        The policy's own history has dropped most of them, so that it would not ask for it.
        """
        before, after, history = self.state.current.learner, result.fit.learner, self.state.history
        whole = result.basis is None and not result.reason and len(history) == history.total
        old, new = _network_of(before), _network_of(after)
        if whole and old is not None and new is not None:
            return result if new.network.skip == old.network.skip else replace(result, basis=after)
        return result

    def features(self, result: UpdateResult) -> Callable[..., str]:
        """Return what sums up the features that Z asks for."""
        learner, memory = result.basis or self.learner, None if result.memory is None else result.memory.forgetting
        empty = self.factory.empty(learner.widths, arms=self.arms, rows=UNLIMITED)
        return partial(_features, self.work, learner, empty, memory, self.state.history.rounds + self.rounds - 1)

    def with_rounds(self, state: PolicyState, result: UpdateResult) -> tuple[PolicyState, UpdateResult]:
        """Return the state with these rounds in Z, and the result with its own Z where features change."""
        factory = self.factory
        sized = factory.sized(state.current.covariance, self.arms)
        current, clock = adapted(state.current, sized, state.clock, factory, state.history.contexts[-64:])
        covariance: Any = current.covariance
        weights: Array | None = None
        if result.basis is not None:
            covariance = factory.empty(result.basis.widths, arms=self.arms, rows=UNLIMITED)
            old, contexts = self.state.history, self.state.history.contexts
            if result.memory is not None and result.memory.forgetting is not None:
                weights = result.memory.forgetting.weights((state.history.total - 1 - old.rows).astype(np.float64))
                contexts, weights = contexts[weights > 0], weights[weights > 0]
            factory.add(covariance, result.basis.features, contexts, weights)
        if self.fresh:
            remembered = (
                self.rounds if weights is None else int(sum(part["rounds"] for part in self._parts(self.fresh, "z")))
            )
            covariance = covariance.with_contributions(self._sum(self.fresh, "z"), remembered)
        arrived = state.history.arrived
        samples = arrived if weights is None else result.cut.samples
        result = replace(result, cut=replace(result.cut, samples=samples, missing=state.history.total - arrived))
        if result.basis is None:
            current = current.with_covariance(covariance)
        else:
            result = replace(result, covariance=covariance)
        return replace(state, current=current, clock=clock), result

    def mean_reward(self) -> tuple[float, float]:
        """Return the mean reward of the new rounds, and its standard error; NaN without any."""
        sums = RewardSums()
        for part in self._parts(self.fresh):
            sums = sums.merge(part["rewards"])
        if sums.count < 2:
            return float("nan"), float("nan")
        return sums.mean, (sums.squares / (sums.count - 1) / sums.count) ** 0.5
