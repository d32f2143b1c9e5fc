"""The policy in memory: decides new rounds, and makes recorded ones again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from rarely.core.covariance import Recorded
from rarely.core.policies import deferral
from rarely.core.policies.base import Policy
from rarely.core.policies.playback import follow, put_back, rule_of, set_rule, state_of
from rarely.core.policies.state import PolicyState
from rarely.core.types import Array, Decision
from rarely.study.decisions import Record, record_of
from rarely.study.errors import BrokenStudy
from rarely.study.events import Event
from rarely.study.requests import Question, block_of
from rarely.study.settings import StudySettings
from rarely.study.trial import rule_of_stage, stage_at


class LivePolicy:
    """A policy under the rules of a study's stages."""

    def __init__(self, policy: Policy, settings: StudySettings) -> None:
        self.policy, self._settings = policy, settings
        self._own = rule_of(policy)

    @property
    def state(self) -> PolicyState:
        """All that it knows, for `put_back`."""
        return state_of(self.policy)

    def put_back(self, state: PolicyState) -> None:
        """Return to an earlier state."""
        put_back(self.policy, state)

    def may_wait(self, arms: int) -> bool:
        """Whether rounds of at most so many arms may be recorded later; see `core.policies.deferral`."""
        return deferral.may_wait(self.policy, arms)

    def defer(self, arms: int) -> bool:
        """Let the running Z and log det wait for rounds of at most so many arms; whether they do."""
        return deferral.defer(self.policy, arms)

    @property
    def backlog(self) -> deferral.Backlog | None:
        """The rounds that wait, which another thread may record."""
        return deferral.backlog_of(self.policy)

    def record(self, backlog: deferral.Backlog, done: Recorded, due: bool) -> None:
        """Take over what was recorded of a backlog; what another state has left behind is dropped."""
        deferral.record(self.policy, backlog, done, due)

    def settle(self) -> None:
        """Bring the running Z, log det and `due` up to date."""
        deferral.settle(self.policy)

    def bare(self) -> Policy:
        """The policy with its own rule, as it is trained and saved."""
        set_rule(self.policy, self._own)
        return self.policy

    def blocks(self, questions: Sequence[Question]) -> Iterator[tuple[int, list[Question]]]:
        """The questions in parts of one stage each, with the number of the stage."""
        rest, round = list(questions), self.policy.round + 1
        while rest:
            stage, left = stage_at(self._settings.stages, round)
            part = rest if left is None else rest[:left]
            yield stage, part
            rest, round = rest[len(part) :], round + len(part)

    def decide(self, stage: int, questions: Sequence[Question]) -> tuple[Decision, bool]:
        """Decide rounds of one stage, and say whether each took a uniform number."""
        drew = self._enter(stage)
        return self.policy.select(*block_of(questions, self._settings)), drew

    def probabilities(self, stage: int, questions: Sequence[Question]) -> Array:
        """(n, K): what this policy would draw from; nothing is changed."""
        self._enter(stage)
        return np.atleast_2d(self.policy.probabilities(*block_of(questions, self._settings)))

    def follow(self, events: Iterable[Event]) -> None:
        """Make the recorded decisions among these events again."""
        self.follow_records(record_of(event, self._settings.arms) for event in events if event.kind == "decide")

    def follow_records(self, records: Iterable[Record]) -> None:
        """The same for decisions that were read already."""
        for _, block in groupby(records, lambda record: record.block):
            self._follow(list(block))

    def _follow(self, block: list[Record]) -> None:
        first = block[0].answer
        assert self.backlog is None, "rounds wait, and those of others could change the form of Z: settle first"
        if first.round != self.policy.round + 1:
            raise BrokenStudy(
                f"event {first.seq} is round {first.round}, and the policy has made {self.policy.round}: the snapshot "
                "does not belong to this record. Use a backup."
            )
        self._enter(stage_at(self._settings.stages, first.round)[0])
        contexts, mask = block_of([record.question for record in block], self._settings)
        arms = np.array([record.answer.index for record in block], np.int64)
        chances = np.array([record.answer.probability for record in block])
        follow(self.policy, contexts, mask, arms, chances)

    def _enter(self, stage: int) -> bool:
        rule = rule_of_stage(self._settings.stages[stage], self._own, self._settings.arms)
        if rule_of(self.policy) != rule:
            set_rule(self.policy, rule)
        return rule.draws
