"""Rounds that other processes decide: what they need of a policy, and what its update needs of them.

    VersionFunction   one version as a function of contexts and random numbers, for many rounds in any order
    LiveCopy          a copy of a policy that decides round by round and keeps no history, only its own Z
    OfferedArms       what such rounds leave for an update to know of all arms that were offered, chosen or not
    UpdateFromSums    an update from a sample of the rounds, and from sums over all of them that workers make

What workers compute is a `RewardTask` or a `FeatureTask`: values that can be pickled, whose results may be added up in
any order that is always the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from rarely._core.choice.random_stream import RandomPlace
from rarely._core.choice.rules import sample_arms
from rarely._core.covariance import Covariance
from rarely._core.covariance.factory import UNLIMITED
from rarely._core.errors import InvalidInput
from rarely._core.growable_array import changed
from rarely._core.inputs.contexts import ContextReader, RoundContexts
from rarely._core.inputs.forgetting import Forgetting
from rarely._core.inputs.scaling import Moments
from rarely._core.inputs.worth import Worth, with_worth
from rarely._core.policies.covariance_change import adapted
from rarely._core.policies.learner import Learner, RewardTask
from rarely._core.policies.policy import Policy
from rarely._core.policies.replay import put_back, state_of
from rarely._core.policies.select import decide, rounds_at_once, score
from rarely._core.policies.state import ArmStats, PolicyState, UpdateRecord, Version
from rarely._core.policies.update import UpdateResult
from rarely._core.saving.fields import Fields
from rarely._core.types import Array, BoolArray, Decision, IntArray, forwarded


def alone(policy: Policy) -> PolicyState:
    """Return the state of a policy whose copies may decide apart from each other; refuse one that counts across all."""
    state = state_of(policy)
    if state.ledger is not None:
        raise InvalidInput(
            "fleets and campaigns cannot keep to a ceiling or to shares, because their deciders do not know what the "
            "others spend and show; let one process, or a Study, decide, or give each decider's policy.under a part."
        )
    return state


@dataclass(slots=True)
class OfferedArms:
    """What an update asks about the arms that were offered in some rounds, chosen or not."""

    stats: ArmStats = field(default_factory=ArmStats)  # how well they were known
    most: int = 0  # the most arms of a round
    moments: Moments | None = None  # mean and spread of their contexts; None where the learner fits no scale to them

    @classmethod
    def start(cls, dim: int | None) -> OfferedArms:
        """Return the values before any round; `dim` is that of contexts whose moments are wanted, else None."""
        return cls(moments=None if dim is None else Moments(dim))

    def add(self, contexts: Array, rounds: int, most: int, stats: ArmStats) -> None:
        """Add the contexts of all arms of some rounds; `stats` are those of all rounds, these included."""
        self.stats, self.most = stats, max(self.most, most)
        if self.moments is not None:
            self.moments = self.moments.after(contexts, rounds)

    def describe(self) -> dict[str, Any]:
        """Return the values as JSON, for `from_description`."""
        moments = {} if self.moments is None else vars(self.moments)
        seen = {name: np.asarray(value).tolist() for name, value in moments.items()}
        return {"stats": self.stats.describe(), "arms": self.most, "moments": seen}

    @classmethod
    def from_description(cls, described: dict[str, Any]) -> OfferedArms:
        """Return the values that `describe` described."""
        with Fields("offered", described, {}) as saved:
            seen, stats, most = saved.value("moments"), saved.of("stats", ArmStats), saved.whole("arms")
        return cls(stats, most, Moments.described(seen) if seen else None)


class DecidedRounds(NamedTuple):
    """The arms of n rounds, what was thought of each chosen one, and its context, (n, d)."""

    arms: IntArray
    probabilities: Array
    means: Array
    bonuses: Array
    contexts: Array


@dataclass(frozen=True)
class VersionFunction:
    """One version of a policy with frozen bonuses: a function of contexts and random numbers, which can be pickled."""

    number: int  # the version's
    version: Version
    reader: ContextReader

    @classmethod
    def of(cls, policy: Policy) -> VersionFunction:
        """Return the version in use; refuse one whose scale each round of contexts still changes."""
        state = alone(policy)
        if state.current.learner.follows:
            raise InvalidInput(
                "a campaign needs a policy whose scale of contexts is settled, because blocks are decided apart from "
                "each other: start with from_log, with a pilot of at least 16 rounds and an update, or give "
                "context_scale."
            )
        return cls(state.clock.version, replace(state.current, within_batch="frozen"), state.reader)

    draws = forwarded("version.rule.draws", "Whether it needs a random number for each round.")

    def offered(self) -> OfferedArms:
        """Return what is known of offered arms before the first round."""
        learner = self.version.learner
        return OfferedArms.start(None if learner.moments is None else learner.dim)

    def decide(self, contexts: Any, uniforms: Array, offered: OfferedArms) -> DecidedRounds:
        """Decide n rounds with as many numbers from [0, 1), if it draws, and add the arms to those offered."""
        version, rounds, parts = self.version, self.reader.read(contexts, None), list[DecidedRounds]()
        with np.errstate(all="ignore"):
            for part in rounds.parts(partial(rounds_at_once, version, rounds.arms)):
                scored, count = score(version, part), len(part)
                probabilities = scored.probabilities(version.rule)
                arms = sample_arms(probabilities, uniforms[:count]) if self.draws else probabilities.argmax(axis=1)
                uniforms, stats = uniforms[count:], offered.stats
                picked = np.arange(count), arms
                thoughts = probabilities[picked], scored.means[picked], scored.bonuses[picked]
                parts.append(DecidedRounds(arms, *thoughts, part.rows[part.row_of(arms)]))
                if scored.candidates:
                    disjoint = stats.disjoint and part.disjoint(count, packed=version.learner.sparse is not None)
                    stats = stats.merge(scored.variances, scored.priors, arms, disjoint=disjoint, unit=scored.unit)
                offered.add(part.rows, count, rounds.arms, stats)
        return DecidedRounds(*map(np.concatenate, zip(*parts, strict=True)))


class LiveRound(NamedTuple):
    """One round as a `LiveCopy` would decide it; `LiveCopy.accept` makes it so."""

    decision: Decision
    rows: Array  # (k, d): contexts of the available arms
    present: BoolArray  # (K,): which arms are available
    row: int  # which of `rows` was chosen
    stats: ArmStats  # how well its arms were known
    after: PolicyState


class LiveCopy:
    """A copy of a policy that decides round by round, and adds its choices to its own Z alone.

    It keeps the history with which it began: what it decides is on record elsewhere.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy, self._history = policy, alone(policy).history
        self.decided = 0  # rounds that were accepted

    def decide(self, contexts: Any, mask: Any, uniforms: Array, worth: Any = None) -> LiveRound:
        """Decide one round with one number from [0, 1), which is used if the policy draws."""
        reader = state_of(self.policy).reader
        rounds = reader.read(contexts, mask)
        rounds = rounds if worth is None else with_worth(rounds, worth)
        return self._decide(rounds, uniforms, reader.after(contexts, rounds))

    def decide_again(self, rows: Array, present: BoolArray, uniforms: Array, worth: Worth | None = None) -> LiveRound:
        """Decide a round by what a record holds of it: contexts of the available arms, and which these are."""
        rounds = RoundContexts(rows[None], present[None], len(present), True, bool(present.all()), True, worth)
        return self._decide(rounds, uniforms, state_of(self.policy).reader)

    def _decide(self, rounds: RoundContexts, uniforms: Array, reader: ContextReader) -> LiveRound:
        state, given = state_of(self.policy), RandomPlace(None, uniforms)
        before = replace(state, history=self._history, arm_stats=ArmStats(), random=given)
        after, decision = decide(before, rounds, reader, self.policy._factory, self.policy._scratch, "")
        after = replace(after, random=state.random)
        part = rounds.part(0, lambda: 1)
        row = int(part.row_of(np.array([decision.arm]))[0])
        return LiveRound(decision, part.rows, part.present[0], row, after.arm_stats, after)

    def accept(self, decided: LiveRound) -> None:
        """Continue after a round."""
        put_back(self.policy, decided.after)
        self.decided += 1


@dataclass(frozen=True)
class FeatureTask:
    """What workers make of rounds: Σ φφᵀ in the form of Z."""

    learner: Learner
    empty: Covariance  # a Z without rounds, of the form to which the sums are added
    forgetting: Forgetting | None
    latest: int  # the last round of all, from which ages are counted

    def sums(self, contexts: Array, first: int) -> tuple[Array, int]:
        """Return the sum over the chosen contexts of consecutive rounds, and how many of these count in it."""
        ages = self.latest - np.arange(first, first + len(contexts), dtype=np.float64)
        step, total, counted = self.empty.block(), None, 0
        with np.errstate(all="ignore"):
            for start in range(0, len(contexts), step):
                part = slice(start, start + step)
                factors = self.learner.features(contexts[part])
                weights = None if self.forgetting is None else self.forgetting.weights(ages[part])
                counted += len(factors) if weights is None else int(np.count_nonzero(weights))
                added = self.empty.contribution(factors.weighted(weights))
                total = added if total is None else total + added
        return np.asarray(total), counted


class UpdateFromSums:
    """An update of a policy from rounds that were decided elsewhere.

    Its three steps take what workers have made, and return what they make next:

        expect   offered arms, and counts of rounds and rewards   →  a `RewardTask`
        learn    a sample of rounds with rewards, and sums        →  a `FeatureTask`
        adopt    sums of features                                 →  the `UpdateRecord`

    The policy then has the weights and the Z that it would have if it had decided these rounds itself, with frozen
    bonuses, and a sample of them for a history. Used in a `with` block, it returns the policy to its state before if
    the block fails.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy, self._before, self._factory = policy, state_of(policy), policy._factory
        learner, history = self._before.current.learner, self._before.history
        sized, grows = self._empty(learner, self._before.most_arms), learner.for_blocks() is learner
        if learner.reward_task(history, 0) is None or (grows and not sized.takes_sums):
            raise InvalidInput(
                "an update from many blocks takes LinUCB, LinTS, the default, and networks whose training on a sample "
                "is named, Training(steps=200, rows=10_000) say, with a Z that is a sum over rounds, such as 'primal' "
                f"or 'diagonal' of contexts that are not sparse; got {type(policy).__name__} with {sized.kind!r}."
            )
        if history.forgetting is not None and not learner.chooses_memory:
            raise InvalidInput(
                "an update from many blocks takes a policy that remembers all rounds, without forgetting."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is not None:
            put_back(self._policy, self._before)

    def _empty(self, learner: Learner, arms: int) -> Covariance:
        return self._factory.empty(learner.widths, arms=arms, rows=UNLIMITED)

    def expect(self, offered: Iterable[OfferedArms], rounds: int, rewards: int) -> RewardTask:
        """Take in what is known of the arms of so many new rounds; so many rewards are new, of any rounds."""
        stats, arms = self._before.arm_stats, self._before.most_arms
        learner = self._before.current.learner.for_blocks()
        moments = learner.moments
        for each in offered:
            stats, arms = stats.plus(each.stats), max(arms, each.most)
            if moments is not None and each.moments is not None:
                moments = moments.merge(each.moments)
        learner = learner if moments is None else learner.with_moments(moments)
        self._stats, self._arms, self._learner, self._rounds = stats, arms, learner, rounds
        task = learner.reward_task(self._before.history, rewards)
        assert task is not None  # or the policy was refused
        return task

    def learn(
        self, rows: IntArray, columns: tuple[Array, ...], dropped: Iterable[Array], total: Array | None
    ) -> FeatureTask:
        """Train the next version, from a sample of the rewards and from the sums over all of them.

        `rows` are those of the sample in the history, rising, and `columns` their contexts, arms, versions,
        probabilities, means, bonuses and rewards; `dropped` are all other rewards in the order of their rounds, and
        `total` is the sum of `RewardTask.sums`, where it has a scale.
        """
        before, learner = self._before, self._learner
        history = before.history.with_sample(self._rounds, rows, columns, dropped)
        if total is not None:
            learner = learner.with_reward_sums(total, before.history, history.arrived)
        current, learned = changed(before.current, learner=learner), history.arrived - len(rows)
        seen: dict[str, Any] = {"arm_stats": self._stats, "most_arms": self._arms}
        self._state = replace(before, history=history, current=current, learned=learned, **seen)
        put_back(self._policy, self._state)
        self._result = self._with_basis(self._policy.prepare_update().run())
        basis, latest = self._result.basis or self._learner, before.history.rounds + self._rounds - 1
        return FeatureTask(basis, self._empty(basis, self._arms), self._forgetting, latest)

    def _with_basis(self, result: UpdateResult) -> UpdateResult:
        """Return the result with the features of another path, where all rounds are here to rebuild Z from.

        The policy's own history has dropped most of them, so that it would not ask for it.
        """
        after, history = result.fit.learner, self._before.history
        whole = result.basis is None and not result.reason and len(history) == history.total
        if not whole or after.shares_features(self._before.current.learner):
            return result
        return replace(result, basis=after)

    @property
    def _forgetting(self) -> Forgetting | None:
        """How a Z that is rebuilt weighs its rounds; one that only grows takes each whole."""
        return None if self._result.basis is None else self._result.forgetting

    def adopt(self, total: Array | None, counted: int) -> UpdateRecord:
        """Let the policy go to its next version; `total` and `counted` are those of all new rounds, None without."""
        state, result, factory = self._state, self._result, self._factory
        sized = factory.sized(state.current.covariance, self._arms)
        current, clock = adapted(state.current, sized, state.clock, factory, state.history.contexts)
        covariance = current.covariance if result.basis is None else self._rebuilt(result.basis)
        if total is not None:
            covariance = covariance.with_contributions(total, counted)
        samples = state.history.arrived if self._forgetting is None else result.cut.samples
        missing = state.history.total - state.history.arrived
        result = replace(result, cut=replace(result.cut, samples=samples, missing=missing))
        if result.basis is None:
            current = changed(current, covariance=covariance)
        else:
            result = replace(result, covariance=covariance)
        put_back(self._policy, replace(state, current=current, clock=clock))
        return self._policy.adopt(result)

    def _rebuilt(self, basis: Learner) -> Covariance:
        """Return Z of the policy's own rounds, those before the new ones, by other features."""
        covariance, history = self._empty(basis, self._arms), self._before.history.with_forgetting(self._forgetting)
        history = changed(history, total=self._state.history.total)  # ages are those after the new rounds
        self._factory.add(covariance, basis.features, *history.remembered()[1:])
        return covariance
