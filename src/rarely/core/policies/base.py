"""The flow that every policy shares: select, observe, due, update.

    select    contexts → means and factors → bonuses under the frozen Z (or the running one) → arms → running Z
    observe   rewards, late, out of order, or never
    due       whether the schedule has ended the batch
    update    learn from the rewards that are in, freeze the next version

Everything that a policy knows is one `PolicyState`. A call computes the next state and ends by assigning it, so a
call that raises or is interrupted has changed nothing. `select`, `observe` and `update` are for one thread at a
time: a second one gets `PolicyBusy`. The others read one state and may be called meanwhile.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from rarely.core.choice.confidence_radius import Beta, radius_at
from rarely.core.choice.random_stream import Seeded
from rarely.core.choice.rules import ChoiceRule
from rarely.core.covariance import Kind, Sketch
from rarely.core.errors import InvalidContexts, InvalidInput, check_choice
from rarely.core.inputs.contexts import ContextReader, RoundContexts
from rarely.core.inputs.forgetting import Forgetting, check_forgetting
from rarely.core.inputs.history import History
from rarely.core.inputs.rewards import read_log
from rarely.core.policies.clock import BatchClock
from rarely.core.policies.deciding import decide, rounds_at_once
from rarely.core.policies.exclusive import alone
from rarely.core.policies.frozen import FrozenPolicy
from rarely.core.policies.learner import Learner
from rarely.core.policies.logged import log_update
from rarely.core.policies.maker import CovarianceMaker
from rarely.core.policies.presentation import policy_table
from rarely.core.policies.saved_state import content_of, restored_state
from rarely.core.policies.scored_arms import Scores, concatenated
from rarely.core.policies.settings import decoded
from rarely.core.policies.state import PolicyState
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.policies.updating import start_from_log, update
from rarely.core.policies.upkeep import Upkeep
from rarely.core.saving import archive
from rarely.core.saving.fields import Fields
from rarely.core.schedules import Budget, Schedule, schedule_from
from rarely.core.training.progress import Progress
from rarely.core.types import Array, Arrays, Decision

Ties = Literal["lowest", "random"]
WithinBatch = Literal["frozen", "running"]
_CHANGES = ("select", "observe", "update", "adopt", "extend_budget")
"""Methods that change a policy."""


class Policy(Upkeep, ABC):
    """A contextual bandit whose policy is frozen between updates, of which there are few."""

    def __init__(
        self,
        learner: Learner,
        *,
        schedule: Schedule,
        covariance: Kind | Sketch,
        ridge: float,
        beta: Beta,
        chooser: ChoiceRule,
        seed: Seeded,
        memory_limit: int,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch = "frozen",
        maker: Callable[..., CovarianceMaker] = CovarianceMaker,
    ) -> None:
        if not isinstance(schedule, Schedule):
            raise InvalidInput(f"schedule must be a Schedule, such as FixedGrid(horizon, batches); got {schedule!r}.")
        check_forgetting(forgetting)
        check_choice("within_batch", within_batch, WithinBatch)
        clock = BatchClock(Budget.around(schedule), rescues=within_batch == "running")
        self._maker = maker(covariance, ridge, memory_limit, clock.budget.horizon)
        self._beta: Beta = beta
        self._seed, self._scratch = seed.setting, seed.generator
        empty = self._maker.empty(learner.widths, clock.rounds_ahead(0, 0))
        radius = radius_at(beta, learner.version_stats(1, empty))
        self._state = PolicyState(
            FrozenPolicy(learner, empty, radius, float(ridge), chooser, within_batch == "running"),
            clock,
            History(learner.dim, forgetting),
            seed.generator.bit_generator.state,
            ContextReader(learner.dim, learner.fits_scale),
        )
        self._begin_life()

    def _begin_life(self) -> None:
        self._life = secrets.token_hex(8)
        self._caller: dict[str, list[int]] = {}

    @classmethod
    def from_log(cls, contexts: Any, rewards: Any, *, dim: int | None = None, **settings: Any) -> Self:
        """A policy whose version 0 is already trained on (n, d) logged contexts and their rewards.

        `settings` are the constructor's, and `dim` the log's if it is given. The log counts in Z, with features at the
        initial weights, and in the history, before round 1; the schedule counts from round 1 on. The training is
        the first record of `updates`, with version 0 and round 0.
        """
        rows, values = read_log(contexts, rewards)
        if dim not in (None, rows.shape[1]):
            raise InvalidContexts(f"logged contexts must have shape (n, {dim}), because dim={dim}; got {rows.shape}.")
        make: Any = cls
        policy: Self = make(dim=rows.shape[1], **settings)
        state = start_from_log(policy._state, policy._maker, policy._beta, rows, values)
        policy._state = replace(state, reader=state.reader.after_log(contexts))
        return policy

    # --- identity

    def _repr_html_(self) -> str:
        budget = self._state.clock.budget
        most = "no limit" if budget.batches is None else f"at most {budget.batches}"
        planned = budget.ahead(self.round) or "when the schedule ends the batch"
        coming = "none, the budget is spent" if budget.spent(self.version) else planned
        facts = [
            ("version", f"{self.version} ({most} versions)"),
            ("rounds decided", f"{self.round}"),
            ("rewards missing", f"{self.missing}"),
            ("next update", "due now" if self.due else coming),
            ("covariance", self.covariance),
        ]
        return policy_table(type(self).__name__, facts, self.updates)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name, as scikit-learn's estimators have them; `deep` changes nothing.

        Examples
        --------
        >>> from rarely import LinUCB
        >>> LinUCB(dim=2, beta=0.5).get_params()["beta"]
        0.5
        """
        given = self.settings()
        if "beta" in given:
            given["beta"] = self._beta  # a function has no description
        return dict(zip(given, decoded(**given), strict=True))

    def set_params(self, **params: Any) -> Self:
        """Change arguments of a policy that has not decided yet; returns the policy.

        Raises
        ------
        InvalidInput
            If a name is none of the constructor's, or if a round was decided or a log was learned.
        """
        with self._alone():
            if self.round or self.updates:
                raise InvalidInput(
                    f"set_params changes a policy before its first round; this one has decided {self.round} rounds "
                    f"and has {len(self.updates)} updates on record. Make a new policy with the arguments you want."
                )
            known = self.get_params()
            if unknown := sorted(params.keys() - known.keys()):
                raise InvalidInput(f"{unknown[0]} is no argument of {type(self).__name__}: {', '.join(sorted(known))}.")
            make: Any = type(self)
            fresh = make(**known | params)
            kept = {name: self.__dict__[name] for name in ("_caller", "_life")}
            self.__dict__ = fresh.__dict__ | kept
        return self

    def __sklearn_clone__(self) -> Self:
        """A policy with the same arguments and no history, for `sklearn.base.clone`."""
        make: Any = type(self)
        clone: Self = make(**self.get_params())
        return clone

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as JSON, the seed included: `type(policy)(**policy.settings())` starts anew.

        A `beta` that is a function cannot be JSON: give it again beside the others.
        """

    def fingerprint(self) -> str:
        """A SHA-256 over settings and state: equal for equal policies, in every process and after every file.

        The lives of the policy (see `Decision.life`) are no part of it, nor are the names of the loops that trained.
        """
        header, arrays = self._content()
        header["updates"] = [{k: v for k, v in update.items() if k != "loops"} for update in header["updates"]]
        header["history"] = {name: value for name, value in header["history"].items() if name != "lives"}
        digest = hashlib.sha256(json.dumps(header, sort_keys=True, default=archive.plain).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __copy__(self) -> Self:
        # A shallow copy would write into the rows of the original.
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        """For `pickle` and `copy`: all but the caller and the life, which the copy begins anew."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_caller", "_life")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_life()

    def _alone(self) -> AbstractContextManager[None]:
        """A call that changes the policy, refused at once while another one is under way."""
        return alone(self, self._caller, [getattr(Policy, name) for name in _CHANGES])

    # --- deciding

    def score(self, contexts: Any, mask: Any = None) -> Scores:
        """Means and bonuses under the frozen version: pure, no round."""
        state = self._state
        rounds = state.reader.read(contexts, mask)
        parts = rounds.parts(lambda: rounds_at_once(state.frozen, rounds))
        assessed = [state.frozen.facing(part).assess(part) for part in parts]
        return Scores(_joined([a.means for a in assessed], rounds), _joined([a.bonuses for a in assessed], rounds))

    def probabilities(self, contexts: Any, mask: Any = None) -> Array:
        """The probability of every arm under the frozen version, (K,) or (n, K), 0 where no arm is: pure, no round."""
        state = self._state
        rounds = state.reader.read(contexts, mask)
        parts = rounds.parts(lambda: rounds_at_once(state.frozen, rounds))
        chances = [state.frozen.facing(part).assess(part).probabilities(state.frozen.rule) for part in parts]
        return _joined(chances, rounds)

    def select(self, contexts: Any, mask: Any = None, *, until_due: bool = False) -> Decision:
        """Decide one round, or n under the frozen version.

        `contexts` is (K, d), (n, K, d) or a list of (K_i, d); `mask` says which arms are there. With
        `until_due` the rounds up to and including the one that ends the batch are decided, and no more.
        """
        with self._alone():
            before = self._state
            rounds = before.reader.read(contexts, mask)
            reader = before.reader.after(contexts, rounds)
            after, decision = decide(
                before, rounds, reader, self._maker, self._scratch, life=self._life, until_due=until_due
            )
            self._state = after
        return decision

    # --- learning

    def observe(
        self, decision: Decision | None = None, rewards: Any = None, *, rounds: Any = None, ids: Any = None
    ) -> None:
        """Tell rewards: of a decision, whole or sliced; now, later, in any order.

        A decision is compared with the one on record, and refused if this policy did not make it or has lost it
        in a crash. Where the decision itself is not at hand, `ids=` takes what `decision.id` gave, which is as safe and
        survives a restart. `rounds=` takes bare round numbers: nothing is compared, and after a crash the number of
        a lost decision belongs to a later one, so use it only where that cannot happen.
        """
        if decision is not None and not isinstance(decision, Decision):
            raise InvalidInput(
                f"observe takes the decision that select gave, and its rewards; got {type(decision).__name__}. For "
                "decisions that are not at hand: observe(ids=decision_ids, rewards=…), or observe(rounds=…, rewards=…)."
            )
        if sum(given is not None for given in (decision, rounds, ids)) != 1:
            raise InvalidInput("observe takes one of decision, rounds= and ids=, and the rewards that belong to it.")
        with self._alone():
            state = self._state
            if decision is not None:
                history = state.history.with_rewards_of(decision, rewards)
            elif ids is not None:
                history = state.history.with_rewards_by_id(ids, rewards)
            else:
                history = state.history.with_rewards(rounds, rewards)
            self._state = replace(state, history=history)

    def update(self, *, force: bool = False, progress: Progress | None = None) -> UpdateRecord:
        """Learn from the rewards that are in, and freeze the next version; refused beyond the budget.

        A training that made things worse is rejected: no version is spent, the frozen policy stays, the
        record says why, and the schedule starts afresh from here. The same holds, with a `NothingToLearnWarning`, where
        an update is due and no reward came since the last; an update that is not due is then refused. With `force` it
        takes place: the bonuses then know the rounds since, and a policy that tunes itself judges its candidates by
        further held-out rewards.

        `progress` is called with a fraction from 0 to 1, which never falls, and a phase: "training", "covariance" or
        "done". It may raise, as an interrupt does: then nothing has changed. To go on deciding meanwhile, see
        `prepare_update`.
        """
        with self._alone():
            after, record = update(self._state, self._maker, self._beta, force=force, progress=progress)
            log_update(type(self).__name__, record)
            self._state = after
        return record

    # --- saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write every number of the state to one file, at any moment; `rarely.load` brings it back.

        The file takes the place of an earlier one in one step, and is on the disk when `save` returns: after a crash
        there is the old file or the new one, whole. A new file gets the mode 0666 less the umask, and a file that
        exists keeps its own; a symbolic link stays, and the file that it leads to is replaced. While it is written, a
        temporary file `.rarely-….part` lies beside it, which the next save removes if the process was killed.
        """
        schedule_from(self.schedule.describe())  # a schedule that `load` does not know is refused now
        archive.write(path, *self._content())

    def _content(self) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a saved policy."""
        numbers, arrays = content_of(self._state)
        return {"policy": type(self).__name__, "settings": self.settings()} | numbers, arrays

    def _restore(self, saved: Fields, seed: Any) -> None:
        """Take over a saved state; this policy is new, and made with the saved settings."""
        state, generator = restored_state(self._state, saved, self._beta)
        self._seed, self._scratch, self._state = seed, generator, state


def _joined(parts: list[Array], rounds: RoundContexts) -> Array:
    joined = concatenated(parts)
    return joined[0] if rounds.single else joined
