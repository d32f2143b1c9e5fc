"""A policy that follows a record: rounds whose arms are known already, and states that are put back.

A study keeps its decisions in a database and the policy in memory. After a restart, or behind another process, the
policy makes the recorded rounds again with the recorded arms: features, Z, log det, due and the generator's place are
then those of the process that decided.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rarely._core.choice.rules import ArmScores, ChoiceRule, MixedRule
from rarely._core.growable_array import changed, shallow
from rarely._core.policies.compiled_step import CompiledStep
from rarely._core.policies.monitor import OVERDUE, say_overdue
from rarely._core.policies.policy import Policy
from rarely._core.policies.state import PolicyState
from rarely._core.types import Array, Arrays, IntArray


@dataclass(slots=True)
class Script(ChoiceRule):
    """A rule that chooses the given arms, one round after another, and draws as the true rule would."""

    arms: IntArray
    draws: bool
    ignore_running_bonuses: bool = False
    quick: bool = True  # whether C may decide: only what the true rule had decided in C gets the same bits there
    instead: ChoiceRule | None = None  # the true rule
    done: int = 0

    @property
    def compiled(self) -> str:  # type: ignore[override]
        return "given" if self.quick else ""

    def probabilities(self, scores: ArmScores) -> Array:
        out = np.zeros(scores.means.shape)
        out[np.arange(len(out)), self.take(len(out))] = 1.0
        return out

    @property
    def next(self) -> int:
        """The arm of the next round."""
        return int(self.arms[self.done])

    def take(self, rounds: int) -> IntArray:
        """Return the arms of the next rounds."""
        self.done += rounds
        return self.arms[self.done - rounds : self.done]


def state_of(policy: Policy) -> PolicyState:
    """Return all that the policy knows now: a value, which later calls leave as it is."""
    return policy._state


def put_back(policy: Policy, state: PolicyState) -> None:
    """Return to a state that the policy had; what it has decided and observed since is forgotten."""
    policy._state = state


def content_at(policy: Policy, state: PolicyState) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of the policy as it was in an earlier state, while it may decide in another thread."""
    other = shallow(policy)
    other._state = state
    return other._content()


def rule_of(policy: Policy) -> ChoiceRule:
    """Return how the policy turns scores into arms."""
    return policy._state.current.rule


def set_rule(policy: Policy, rule: ChoiceRule) -> None:
    """Let the policy choose by another rule from now on, which is neither a setting nor saved."""
    policy._state = replace(policy._state, current=replace(policy._state.current, rule=rule))


def set_life(policy: Policy, life: str) -> None:
    """Give the policy's decisions a life that its processes share; see `Decision.life`."""
    policy._life = life


def _is_compiled(rule: ChoiceRule) -> bool:
    return bool((rule.rule if isinstance(rule, MixedRule) else rule).compiled)


def alike(policy: Policy, rule: ChoiceRule) -> bool:
    """Return whether rounds one by one and in a block get the same bits by a rule: where C decides them."""
    return policy._step is not None and CompiledStep().possible(replace(policy._state.current, rule=rule))


def warn_of_present(policy: Policy) -> None:
    """Warn if an update is overdue now, after the rounds that were followed: `follow` is silent."""
    clock, rounds = policy._state.clock, policy.round
    if clock.due_round and rounds >= clock.due_round + OVERDUE:
        say_overdue(clock, rounds)


def follow(
    policy: Policy,
    contexts: Any,
    mask: Any,
    arms: IntArray,
    propensities: Array,
    worth: Any = None,
    user: Any = None,
    *,
    ignore_running_bonuses: bool = False,
) -> None:
    """Replay n rounds that were decided already, with the arms and propensities on record.

    The state afterwards is that of `select` on the same contexts, bit for bit in one environment, if `select`
    chooses these arms. Under another version, or in another environment, it is the state with the recorded arms.
    Rounds that another version has decided may `ignore_running_bonuses`: their bonuses are then those of the Z before
    them, which takes a fraction of the time.
    """
    before = policy._state
    rule = before.current.rule
    try:
        set_rule(policy, Script(arms, rule.draws, ignore_running_bonuses, _is_compiled(rule), rule))
        # Not `select`, which warns of updates that are overdue: these rounds are past.
        with policy._single_caller():
            after, _ = policy._decide(contexts, mask, worth, user)
        done = slice(len(before.history), None)
        assessments = np.column_stack([propensities, after.history.means[done], after.history.bonuses[done]])
        # The rows that were just written hold the script's propensities, 1; they are written again.
        rows, version = after.history.contexts[done].copy(), before.clock.version
        history = before.history.with_rounds(rows, arms, version, assessments, policy._life)
        policy._state = replace(after, history=history, current=replace(after.current, rule=rule))
    except BaseException:
        policy._state = before
        raise


def forget(policy: Policy, rounds: Collection[int]) -> None:
    """Drop rounds from what the policy learns from: the next version does not know them.

    The version in use stays as it is, with what it has learned of them. An update is due as before.
    """
    state = policy._state
    history, gone = state.history, [state.history.logged + round - 1 for round in rounds]
    kept = history.erased(np.array(gone, np.int64), state.learned)
    if kept is not history:
        learner = state.current.learner.without_rows(np.array(gone, np.int64))
        state = replace(state, history=kept, current=changed(state.current, learner=learner))
    if state.ledger is not None:
        state = replace(state, ledger=state.ledger.without({*rounds}, history.rounds))
    policy._state = state
