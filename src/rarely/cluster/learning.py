"""The update after a campaign: rewards joined by id, sums over all rounds, the next version.

    night    a folder of decisions, with its place among the policy's rounds
    join     rewards to rounds, in groups of blocks: _joined-….parquet        new, duplicate, conflicting, invalid
    sums     over the rewards: XᵀX, Xᵀr, rᵀr of a linear part, and the rows that the network trains on: _sums-….npz
    Z        Σ φφᵀ over all rounds, by the features that the update asks for: _z-….npz

A sum has one order, whoever makes it: a leaf is a block, a fixed range of rounds, and a fixed binary tree over the
numbers of the leaves adds them up. A task makes a whole subtree, and the driver the rest. So the bits do not depend on
the number of workers, on which of them fail, or on when their results come.

A late reward waits for a later update that is given its night again: the files of earlier updates say what was learned.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from rarely._core.covariance.diagonal import SparseDiagonal
from rarely._core.covariance.dual import Dual
from rarely._core.covariance.factory import UNLIMITED
from rarely._core.errors import InvalidInput
from rarely._core.growable_array import changed
from rarely._core.inputs.forgetting import Forgetting
from rarely._core.inputs.history import RewardSums
from rarely._core.inputs.scaling import Moments
from rarely._core.policies.covariance_change import adapted
from rarely._core.policies.learner import Learner
from rarely._core.policies.linear import LinearLearner
from rarely._core.policies.neural_learner import TRAINING_ROWS, LinearPart, NeuralLearner
from rarely._core.policies.policy import Policy
from rarely._core.policies.replay import put_back, state_of
from rarely._core.policies.state import ArmStats, PolicyState
from rarely._core.policies.update import UpdateResult
from rarely._core.training.tuning import training_rows
from rarely._core.types import Array, Arrays, Described, IntArray
from rarely.cluster.campaign import Campaign, Pool, Url, contexts_of, moments_of, read_block
from rarely.cluster.files import Folder, Rows, packed, pyarrow, unpacked

SUBTREE = 16
"""Leaves that one task sums."""
GROUP = 4 * SUBTREE
"""Blocks whose ids are looked up together, in a table in memory."""
LOOKED_UP = 2**22
"""Rewards that are looked up at a time."""
NEW, DUPLICATE, CONFLICTING, INVALID = range(4)
KINDS = ("joined", "duplicate", "conflicting", "invalid")
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
    """with the id of no decision."""
    open: int
    """Rounds of the policy without a reward."""
    mean: float
    """Mean reward of the rounds decided since the last update, and its standard error."""
    error: float
    record: dict[str, Any]
    """What the update did: an `UpdateRecord`."""


@dataclass(frozen=True)
class Night:
    """A folder of decisions and the place of its rounds."""

    folder: Folder
    campaign: Campaign
    base: int
    """Rounds of the policy before its first."""
    earlier: tuple[str, ...]
    """What the files of earlier updates are called; none where the policy has not taken in its rounds yet."""
    work: str = ""
    """What the files of this update are called."""

    def groups(self) -> range:
        """Return the first block of each group."""
        return range(0, self.campaign.blocks, GROUP)

    def joined(self, first: int, work: str = "") -> str:
        """Return the file of the rewards of a group."""
        return f"_joined-{work or self.work}-{first:08d}.parquet"

    def subtrees(self, kind: str) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield the file and the blocks of each subtree."""
        for first in range(0, self.campaign.blocks, SUBTREE):
            yield f"_{kind}-{self.work}-{first:08d}.npz", (first, min(first + SUBTREE, self.campaign.blocks))

    def results(self, kind: str) -> Iterator[Arrays]:
        """Yield what the subtrees came to, in order."""
        return (unpacked(self.folder.read(name)) for name, _ in self.subtrees(kind))

    def rewards(self, first: int, start: int, stop: int, work: str = "") -> tuple[IntArray, Array]:
        """Return the rounds of a range, in the group of block `first`, that got a reward, rising, and these."""
        within = [("position", ">=", start), ("position", "<", stop), ("kind", "==", NEW)]
        path = f"{self.folder.path}/{self.joined(first, work)}"
        table = pyarrow("parquet").read_table(path, filesystem=self.folder.system, filters=within)
        return table.column("position").to_numpy(), table.column("reward").to_numpy()


def tree_sum(parts: Sequence[Any], add: Callable[[Any, Any], Any] = np.add) -> Any:
    """Return the sum by a binary tree over the places of the parts; of subtrees of 2^k it is that of their leaves.

    >>> tree_sum(["a", "b", "c"], lambda left, right: f"({left}{right})")
    '((ab)c)'
    """
    while len(parts) > 1:
        pairs = zip(parts[::2], [*parts[1::2], None], strict=False)
        parts = [left if right is None else add(left, right) for left, right in pairs]
    return parts[0]


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
    _aside-….parquet of the last. Raises `InvalidInput` if two rounds have one id, and `NothingToLearn` without a new
    reward.

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
    urls = [decisions] if isinstance(decisions, str | os.PathLike) else list(decisions)
    nights = _nights(policy, [Folder.at(url) for url in urls], came)
    with Pool(jobs, address) as pool:
        for night in nights:
            groups = ((night.joined(first), (first,)) for first in night.groups())
            pool.commit(night.folder, _Join(night, came, id, reward), groups)
        counts = _set_aside(nights, came, id, reward)
        update = _Update(policy, nights, counts["joined"])
        for night in nights:
            pool.commit(night.folder, _Sums(night, update.scale, update.most, update.logged), night.subtrees("sums"))
        try:
            put_back(policy, update.with_rewards())
            result = update.with_basis(policy.prepare_update().run())
            for night in update.fresh:
                pool.commit(night.folder, update.features(result, night), night.subtrees("z"))
            after, result = update.with_rounds(result)
            put_back(policy, after)
            record = policy.adopt(result)
            counts |= {"number": len(policy.updates), "version": result.cut.version, "open": result.cut.missing}
            mean, error = update.mean_reward()
            report = UpdateReport(**counts, rounds=update.rounds, mean=mean, error=error, record=asdict(record))
            for night in nights:
                place = {"base": night.base, "work": night.work, "report": asdict(report)}
                night.folder.write(f"_update-{report.number:06d}.json", json.dumps(place).encode())
                night.folder.tidy()
        except BaseException:
            put_back(policy, state)
            raise
    return report


def check_supported(policy: Policy) -> None:
    """Refuse a policy whose update needs every round in one place."""
    state, learner = state_of(policy), state_of(policy).frozen.learner
    sized = policy._factory.empty(learner.widths, arms=state.most_arms, rows=UNLIMITED)
    trains = isinstance(learner, NeuralLearner) and learner.training_rows is not None
    if not (trains or isinstance(learner, LinearLearner)) or isinstance(sized, Dual | SparseDiagonal):
        raise InvalidInput(
            "an update from many blocks takes LinUCB, LinTS and networks that train on a sample, Training(rows=10_000) "
            f"say, with a Z whose size is fixed, not the dual form or sparse rows; got {type(policy).__name__}."
        )
    if state.history.forgetting is not None and not learner.chooses_memory:
        raise InvalidInput("an update from many blocks takes a policy that remembers all rounds, without forgetting.")


def _nights(policy: Policy, folders: Sequence[Folder], came: Rows) -> list[Night]:
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
        nights.append(Night(folder, campaign, known[0]["base"] if known else base, tuple(k["work"] for k in known)))
        base += 0 if known else campaign.rounds
    places = [(night.folder.path, night.base, asdict(night.campaign)) for night in nights]
    whole = json.dumps([policy.fingerprint(), places, came.files])
    work = f"{number:06d}-{hashlib.blake2b(whole.encode(), digest_size=6).hexdigest()}"
    return [replace(night, work=work) for night in nights]


@dataclass(frozen=True)
class _Join:
    """Finds the rounds of a group that rewards belong to."""

    night: Night
    came: Rows
    id: str
    reward: str

    def __call__(self, first: int) -> str:
        pa, night = pyarrow(), self.night
        start, stop = first * night.campaign.block, min(first + GROUP, night.campaign.blocks)
        ids = pa.concat_tables(read_block(night.folder, b, ["id"]) for b in range(first, stop)).column(0)
        check_unique(ids, night.folder.path)
        known = np.full(len(ids), np.nan)
        for work in night.earlier:
            places, values = night.rewards(first, start, start + len(ids), work)
            known[places - start] = values
        none = np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)
        places, values, rows = map(np.concatenate, zip(none, *self._found(ids.combine_chunks()), strict=True))
        order = np.lexsort((rows, places))
        places, values = places[order], values[order]
        kinds = kinds_of(places, values, known)
        table = pa.table({"position": places + start, "reward": values, "kind": kinds, "row": rows[order]})
        write = partial(pyarrow("parquet").write_table, table, row_group_size=night.campaign.block)
        return night.folder.started(write)

    def _found(self, ids: Any) -> Iterator[tuple[IntArray, Array, IntArray]]:
        """Yield place among the ids, value and row of the rewards that belong to one of them."""
        compute, row = pyarrow("compute"), 0
        for table in self.came.tables([self.id, self.reward], LOOKED_UP):
            try:
                named = table.column(self.id).cast(ids.type)
                values = table.column(self.reward).cast("float64").to_numpy()
            except pyarrow().ArrowInvalid as error:
                raise InvalidInput(
                    f"rewards must be numbers, and their ids {ids.type} like those decided: {error}"
                ) from None
            places = compute.index_in(named, value_set=ids).fill_null(-1).to_numpy()
            here = np.flatnonzero(places >= 0)
            yield places[here].astype(np.int64), np.asarray(values[here], np.float64), here + row
            row += len(table)


def check_unique(ids: Any, where: str) -> None:
    """Refuse decisions two of which have the same id, or one has none."""
    counts = pyarrow("compute").value_counts(ids)
    twice = counts.filter(pyarrow("compute").greater(counts.field("counts"), 1))
    if len(twice) or ids.null_count:
        one = "no id" if ids.null_count else f"{twice[0]['values'].as_py()!r} twice"
        raise InvalidInput(f"every decision needs an id of its own, so that its reward finds it; {where} has {one}.")


def kinds_of(places: IntArray, values: Array, known: Array) -> IntArray:
    """Return what each reward is, given sorted places and the rewards that were learned from before, NaN for none."""
    valid = np.isfinite(values)
    kinds, places, values = np.full(len(places), INVALID), places[valid], values[valid]
    _, starts, which = np.unique(places, return_index=True, return_inverse=True)
    before, first = known[places], starts[which] == np.arange(len(places))
    differs = values != np.where(np.isnan(before), values[starts[which]], before)
    clashes = np.isin(places, places[differs])
    fresh = np.where(clashes, CONFLICTING, np.where(first, NEW, DUPLICATE))
    kinds[valid] = np.where(np.isnan(before), fresh, np.where(differs, CONFLICTING, DUPLICATE))
    return kinds


def _set_aside(nights: Sequence[Night], came: Rows, id: str, reward: str) -> dict[str, Any]:
    """Return how many rewards there are of each kind, and write those that are set aside."""
    unknown = len(KINDS)
    kinds, owners, late = np.full(len(came), unknown, np.int8), np.zeros(len(came), np.int8), 0
    for night in nights:
        for first in night.groups():
            path = f"{night.folder.path}/{night.joined(first)}"
            table = pyarrow("parquet").read_table(path, columns=["kind", "row"], filesystem=night.folder.system)
            rows, found = table.column("row").to_numpy(), table.column("kind").to_numpy()
            kinds[rows], owners[rows] = found, owners[rows] + 1
            late += int(np.count_nonzero(found == NEW)) if night.earlier else 0
    names, folder, parts, done = np.array([*KINDS, "unknown"]), nights[-1].folder, list[Any](), 0
    for table in came.tables([id, reward], LOOKED_UP):
        here = slice(done, done := done + len(table))
        if len(twice := np.flatnonzero(owners[here] > 1)):
            one = table.column(id)[int(twice[0])].as_py()
            raise InvalidInput(f"every decision needs an id of its own, also among nights; {one!r} was decided twice.")
        aside = np.flatnonzero(kinds[here] >= CONFLICTING)
        parts.append(table.take(aside).append_column("why", pyarrow().array(names[kinds[here][aside]])))
    if parts and sum(map(len, parts)):
        write = partial(pyarrow("parquet").write_table, pyarrow().concat_tables(parts))
        folder.commit(folder.started(write), f"_aside-{nights[-1].work}.parquet")
    counts = np.bincount(kinds, minlength=unknown + 1).tolist()
    return dict(zip(names.tolist(), counts, strict=True)) | {"late": late, "rewards": len(came)}


def kept_rows(rows: IntArray, most: int) -> IntArray:
    """Return which of these rising rows an update may ask for: a training's sample, and the latest.

    What it keeps of the parts contains what it keeps of the whole.
    """
    latest = np.arange(max(0, len(rows) - min(most, TRAINING_ROWS)), len(rows))
    return np.union1d(training_rows(rows, most), latest)


@dataclass(frozen=True)
class _Sums:
    """Sums over the rewards of a subtree, and the rows that are kept of it."""

    night: Night
    scale: Callable[[Array], Array] | None
    """Of the contexts in the linear part; None where there is none."""
    most: int
    logged: int

    def __call__(self, first: int, stop: int) -> str:
        night, leaves, parts = self.night, [], []
        for b in range(first, stop):
            table, start = read_block(night.folder, b), b * night.campaign.block
            places, rewards = night.rewards(first - first % GROUP, start, start + len(table))
            here = places - start
            contexts = contexts_of(table)[here]
            x = contexts[:, :0] if self.scale is None else self.scale(contexts)
            leaves.append(np.concatenate([(x.T @ x).ravel(), x.T @ rewards, [rewards @ rewards]]))
            known = (table.column(name).to_numpy()[here] for name in KEPT)
            parts.append((self.logged + night.base + places, rewards, contexts, *known))
        rows, rewards, *columns = map(np.concatenate, zip(*parts, strict=True))
        kept = kept_rows(rows, self.most)
        arrays = {"sum": tree_sum(leaves), "rows": rows, "rewards": rewards, "kept": kept}
        arrays |= {name: column[kept] for name, column in zip(("context", *KEPT), columns, strict=True)}
        return night.folder.started(packed(arrays))


@dataclass(frozen=True)
class _Features:
    """Σ φφᵀ over the rounds of a subtree, in the form of Z."""

    night: Night
    learner: Learner
    covariance: Any
    memory: Forgetting | None
    age: int
    """Rounds since the first one of the night."""

    def __call__(self, first: int, stop: int) -> str:
        leaves, step, remembered = [], self.covariance.block(), 0
        for b in range(first, stop):
            contexts, parts = contexts_of(read_block(self.night.folder, b, ["context"])), list[Any]()
            ages = self.age - b * self.night.campaign.block - np.arange(len(contexts), dtype=np.float64)
            for start in range(0, len(contexts), step):
                part = slice(start, start + step)
                factors = self.learner.features(contexts[part])
                weights = None if self.memory is None else self.memory.weights(ages[part])
                remembered += len(factors) if weights is None else int(np.count_nonzero(weights))
                parts.append(self.covariance.contribution(factors.weighted(weights)))
                parts = [parts[0] + parts[1]] if len(parts) > 1 else parts
            leaves.append(parts[0])
        return self.night.folder.started(packed({"sum": tree_sum(leaves), "rounds": np.array(remembered)}))


class _Update:
    """What the driver knows of an update in progress."""

    def __init__(self, policy: Policy, nights: Sequence[Night], joined: int) -> None:
        self.state, self.nights, self.factory = state_of(policy), nights, policy._factory
        self.fresh = [night for night in nights if not night.earlier]
        self.rounds = sum(night.campaign.rounds for night in self.fresh)
        self.logged, self.arrived = self.state.history.logged, self.state.history.arrived + joined
        self._take_in_facts()
        learner, self.linear = self.learner, None
        self.scale: Callable[[Array], Array] | None = None
        if isinstance(learner, NeuralLearner):
            self.most = learner.training_rows or 0
            ready = learner.with_fitted_scale().scale
            if learner.has_linear(self.state.history.forgetting, ready, self.arrived):
                self.linear = learner.linear or LinearPart.start(ready).learn(self.state.history)
            self.scale = None if self.linear is None else self.linear.scale
        elif isinstance(learner, LinearLearner):
            self.scale, self.most = learner.scale, 64

    def _take_in_facts(self) -> None:
        """Add what the metadata of new blocks say: contexts that were offered, and how well arms were known."""
        learner, stats, arms = self.state.frozen.learner, self.state.arm_stats, self.state.most_arms
        moments = moments_of(learner)
        for night in self.fresh:
            for b in range(night.campaign.blocks):
                facts = json.loads(read_block(night.folder, b, []).schema.metadata[b"rarely"])
                arms, seen = max(arms, facts["arms"]), facts["moments"]
                stats = stats.plus(ArmStats(**facts["stats"]))
                if moments is not None and seen:
                    moments = moments.also(Moments.of(**seen))
        if moments is not None:
            learner = changed(learner, scale=changed(learner.scale, moments=moments))  # type: ignore[attr-defined]
        self.learner, self.stats, self.arms = learner, stats, arms

    def _sum(self, nights: Sequence[Night], kind: str) -> Array:
        """Return the sum of all leaves: the tree of each night, one night after another."""
        return np.asarray(reduce(np.add, (tree_sum([part["sum"] for part in night.results(kind)]) for night in nights)))

    def _parts(self, nights: Sequence[Night], kind: str = "sums") -> Iterator[Arrays]:
        return (part for night in nights for part in night.results(kind))

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
            frozen=self.state.frozen.with_learner(self._with_sums(history.arrived)),
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
        before, after, history = self.state.frozen.learner, result.fit.learner, self.state.history
        whole = result.basis is None and not result.reason and len(history) == history.total
        if whole and isinstance(before, NeuralLearner) and isinstance(after, NeuralLearner):
            return result if after.network.skip == before.network.skip else replace(result, basis=after)
        return result

    def features(self, result: UpdateResult, night: Night) -> _Features:
        """Return what sums up the features of a night that Z asks for."""
        learner, memory = result.basis or self.learner, None if result.memory is None else result.memory.forgetting
        empty = self.factory.empty(learner.widths, arms=self.arms, rows=UNLIMITED)
        return _Features(night, learner, empty, memory, self.state.history.rounds + self.rounds - 1 - night.base)

    def with_rounds(self, result: UpdateResult) -> tuple[PolicyState, UpdateResult]:
        """Return the state with these rounds in Z, and the result with its own Z where features change."""
        state, factory = self.with_rewards(), self.factory
        sized = factory.sized(state.frozen.covariance, self.arms)
        frozen, clock = adapted(state.frozen, sized, state.clock, factory, state.history.contexts[-64:])
        covariance: Any = frozen.covariance
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
            frozen = frozen.with_covariance(covariance)
        else:
            result = replace(result, covariance=covariance)
        return replace(state, frozen=frozen, clock=clock), result

    def mean_reward(self) -> tuple[float, float]:
        """Return the mean reward of the new rounds, and its standard error; NaN without any."""
        sums = RewardSums()
        for part in self._parts(self.fresh):
            sums = sums.also(part["rewards"])
        if sums.count < 2:
            return float("nan"), float("nan")
        return sums.mean, (sums.squares / (sums.count - 1) / sums.count) ** 0.5
