"""Where a policy stands: what can be read off its state at any moment."""

from __future__ import annotations

from rarely.core.covariance import Covariance, ErrorBound
from rarely.core.inputs.history import History
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.learner import Learner
from rarely.core.policies.presentation import policy_table
from rarely.core.policies.state import PolicyState
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.schedules import Schedule


class Standing:
    """What a policy says about itself."""

    _state: PolicyState

    def __repr__(self) -> str:
        stands = f"version {self.version}, round {self.round}, {self.missing} rewards missing"
        return f"<{type(self).__name__}: {stands}{', due' if self.due else ''}>"

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

    @property
    def dim(self) -> int:
        """Numbers in a context."""
        return self._learner.dim

    @property
    def schedule(self) -> Schedule:
        """The schedule, under its budget."""
        return self._state.clock.budget

    @property
    def version(self) -> int:
        """The frozen policy in use, 0 … B−1."""
        return self._state.clock.version

    @property
    def versions_left(self) -> int | None:
        """Versions that may follow the one in use; None where the schedule sets no limit."""
        return self._state.clock.versions_left

    @property
    def round(self) -> int:
        """Rounds decided so far; the next decision is round + 1."""
        return self._state.history.rounds

    @property
    def due(self) -> bool:
        """Whether the schedule has ended the batch; stays so until `update`."""
        return self._state.clock.due

    @property
    def log_det(self) -> float:
        """log det Z_t − log det λI of the running Z."""
        return self._covariance.log_det

    @property
    def beta(self) -> float:
        """The radius of the version in use."""
        return self._state.frozen.radius

    @property
    def covariance(self) -> str:
        """The form of Z in use."""
        return self._covariance.kind

    @property
    def error_bound(self) -> ErrorBound | None:
        """How far bonuses² and log det can be from those of the full Z; None where no bound is known.

        A sketch works it out when asked, in about the time of an update of its matrix.
        """
        return self._covariance.error_bound

    @property
    def jitters(self) -> int:
        """How often rounding had to be mended; see `JitterWarning`."""
        return self._covariance.jitters

    @property
    def missing(self) -> int:
        """Rounds whose rewards are not in."""
        return self._state.history.missing

    @property
    def history(self) -> History:
        """Chosen contexts, arms, versions and rewards, as they stand now."""
        return self._state.history

    @property
    def updates(self) -> tuple[UpdateRecord, ...]:
        """What is on record about each update, rejected ones too; first about version 0, if a log trained it."""
        return self._state.updates

    @property
    def events(self) -> tuple[PolicyEvent, ...]:
        """What changed the policy besides decisions, rewards and updates: its budget, the form of its Z, its memory."""
        return self._state.events

    @property
    def _learner(self) -> Learner:
        return self._state.frozen.learner

    @property
    def _covariance(self) -> Covariance:
        return self._state.frozen.covariance
