"""The update after a campaign: rewards joined by id, sums over all rounds, the next version.

    sums   over rewards: XᵀX, Xᵀr, rᵀr of a linear part, and the rows that the network trains on
    z      Σ φφᵀ over all rounds, by the features that the update asks for

A sum has one order, whoever makes it: a leaf is a block, a fixed range of rounds, and a fixed binary tree over the
numbers of the leaves adds them up. A task makes a whole subtree, and the driver the rest. So the bits do not depend on
the number of workers, on which of them fail, or on when their results come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from rarely import Policy
from rarely.cluster.campaign import Url, committing, contexts_of, offered_in
from rarely.cluster.files import Folder, Rows, unpacked
from rarely.cluster.reward_join import OUTCOMES, Night, Work, join_rewards, nights_of, update_file
from rarely.errors import NothingToLearn
from rarely.extend import Array, Arrays, Described, IntArray
from rarely.extend.provisional import FeatureTask, RewardSums, RewardTask, UpdateFromSums

SUBTREE = 16
"""Leaves that one task sums."""
SAMPLED = ["context", "arm", "version", "probability", "mean", "bonus"]
"""Columns of the rounds that a history keeps, in its order."""


@dataclass(frozen=True)
class UpdateReport(Described):
    """What a nightly update found and did.

    Examples
    --------
    >>> [name for name in UpdateReport.__dataclass_fields__][4:8]
    ['joined', 'late', 'duplicate', 'conflicting']
    """

    number: int
    """Which of the policy's updates it was, from 1."""
    version: int
    """The version that decided the rounds."""
    rounds: int
    """Rounds decided since the last update."""
    rewards: int
    """Rows of the files of rewards."""
    joined: int
    """Rewards that this update learned from, those of earlier nights included."""
    late: int
    """Rewards that it learned from and that are of earlier nights."""
    duplicate: int
    """Rewards that repeat a value that was known already."""
    conflicting: int
    """Rewards that differ from another of the same round; all of these are set aside."""
    invalid: int
    """Rewards that are not finite numbers."""
    unknown: int
    """Rewards with the id of no decision, or of several."""
    repeated: int
    """Rounds whose id another one has too: no reward can be told to be theirs, so they stay open."""
    open: int
    """Rounds of the policy without a reward."""
    mean: float
    """Mean reward of the rounds decided since the last update."""
    error: float
    """The standard error of that mean."""
    record: dict[str, Any]
    """What the update did: an `UpdateRecord`."""


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
