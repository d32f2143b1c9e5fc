"""Whether the parts of a saved policy belong to one another: each may be whole, and still another policy's.

    records   say which version decided which round, when the batch began, and with which radius
    history   has a row for every round, logged ones too, and for every reward that was learned from
    Z         has a feature for every row that counts, and its log det falls inside a batch only by rounding

A relation that does not hold is a `SnapshotError`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rarely.core.choice.confidence_radius import Beta
from rarely.core.covariance import FORMS
from rarely.core.inputs.history import History
from rarely.core.policies.clock import BatchClock
from rarely.core.policies.event import PolicyEvent
from rarely.core.policies.frozen import FrozenPolicy
from rarely.core.policies.update_record import UpdateRecord
from rarely.core.saving.fields import CLOSE, Fields, is_close

RECORDED = "as the last record says"


class Parts(NamedTuple):
    """What was read, each part checked by itself."""

    frozen: FrozenPolicy
    clock: BatchClock
    history: History
    updates: tuple[UpdateRecord, ...]
    learned: int
    lost: int | None = None
    """Rounds that are not in Z, as the file says; formats 1 and 2 do not."""
    events: tuple[PolicyEvent, ...] = ()

    @property
    def reformed(self) -> bool:
        """Whether Z took another form in this batch, by which its log det may have changed."""
        return any(event.kind == "covariance" and event.round >= self.clock.base_round for event in self.events)

    @property
    def trained(self) -> bool:
        """Whether an update or a log made the version in use."""
        return self.clock.version > 0 or self.history.logged > 0

    @property
    def accepted(self) -> list[UpdateRecord]:
        """The records of updates, and of a log, that made a version."""
        return [record for record in self.updates if record.accepted]

    @property
    def may_fall(self) -> bool:
        """Whether log det may fall inside a batch: where Z is built again, because the scale follows the contexts, and
        where a jitter raised it, which a later factor of the same matrix may not need."""
        rebuilt = self.frozen.learner.fits_scale and not self.trained
        return rebuilt or self.frozen.covariance.jitters > 0

    @property
    def slack(self) -> float:
        """By how much log det may fall otherwise: by rounding, and in a sketch by as much as it may be wrong."""
        covariance = self.frozen.covariance
        bound = covariance.error_bound
        return CLOSE * (1 + abs(covariance.log_det)) + (0.0 if bound is None else bound.log_det)


def check_agreement(saved: Fields, parts: Parts, beta: Beta, start: float) -> None:
    """Refuse parts of different policies; `start` is the radius of a new one with this β."""
    _check_records(saved, parts)
    _check_versions(saved, parts)
    _check_learned(saved, parts)
    _check_clock(saved, parts)
    _check_due(saved, parts)
    _check_radius(saved, parts, beta, start)
    _check_covariance(saved, parts)


def _check_records(saved: Fields, parts: Parts) -> None:
    """Records count versions, rounds and rewards as updates do."""
    history, updates = parts.history, parts.updates
    versions, rounds, begins, samples, missing = (
        np.array([getattr(record, name) for record in updates], np.int64)
        for name in ("version", "round", "begins", "samples", "missing")
    )
    accepted = np.array([record.accepted for record in updates], np.bool_)
    unexplained = np.array([not record.reason for record in updates], np.bool_)
    formed = np.array([record.covariance in FORMS for record in updates], np.bool_)
    # A log's record is the first, of version 0; every other that was accepted has a version above 0.
    of_log = bool(updates) and updates[0].accepted and updates[0].version == 0
    known = history.logged + rounds - missing
    whole = history.forgetting is None and not history.dropped
    for name, holds, sentence in (
        ("version", versions == np.cumsum(accepted) - of_log, "as many as were accepted by then"),
        ("reason", unexplained == accepted, "empty where an update was accepted, and only there"),
        ("round", (np.diff(rounds, prepend=0) >= 0) & (rounds <= history.rounds), f"rising up to {history.rounds}"),
        ("adopted", (begins >= rounds) & (begins <= np.append(rounds, history.rounds)[1:]), "after its round"),
        ("missing", missing <= rounds, "at most the rounds decided by then"),
        ("samples", (samples == known) if whole else (samples <= known), "the rewards then in"),
        ("covariance", formed, f"one of {', '.join(FORMS)}"),
    ):
        if not holds.all():
            saved.require(False, f"updates.{int(np.argmin(holds))}.{name} must be {sentence}")
    first = not of_log or (history.logged > 0 and updates[0].round == 0)
    saved.require(first, "updates.0.version must be above 0, because version 0 was not trained on a log")


def _check_versions(saved: Fields, parts: Parts) -> None:
    """Every round was decided by the version that was in use."""
    begins = [record.begins for record in parts.accepted if record.version]
    history = parts.history
    rounds = history.rows[history.rows >= history.logged] - history.logged
    expected = np.searchsorted(begins, rounds, side="right")
    same = np.array_equal(history.versions[len(history) - len(rounds) :], expected)
    saved.require(same, "history.versions must be those that were in use, as updates say")


def _check_learned(saved: Fields, parts: Parts) -> None:
    """The last accepted update had so many rewards; without a record of it, a log may have had its own."""
    history, least, most = parts.history, 0, parts.history.logged
    if parts.accepted:
        last = parts.accepted[-1]
        least, most = last.samples, history.logged + last.round - last.missing
    most = min(most, history.arrived)
    inside = least <= parts.learned <= most
    saved.require(inside, f"learned must be from {least} to {most}, as the last update learned; it is {parts.learned}")


def _check_clock(saved: Fields, parts: Parts) -> None:
    """The batch began with the last update, accepted or not."""
    clock, last = parts.clock, parts.updates[-1:]
    for name, value, expected in (
        ("version", clock.version, last[0].version if last else 0),
        ("base_round", clock.base_round, last[0].round if last else 0),
    ):
        saved.require(value == expected, f"{name} must be {expected}, as updates say; it is {value}")
    if parts.reformed:
        return
    if last:
        saved.require_close("base_log_det", clock.base_log_det, last[0].log_det, RECORDED)
    elif not parts.trained:  # version 0.1.0 left no record of a log
        saved.require_close("base_log_det", clock.base_log_det, 0.0, "before any update")


def _check_due(saved: Fields, parts: Parts) -> None:
    """The batch has ended if the schedule says so."""
    log_det = parts.frozen.covariance.log_det
    highest = math.inf if parts.may_fall else log_det + parts.slack
    must, may = parts.clock.due_bounds(parts.history.rounds, log_det, highest)
    saved.require(parts.clock.due or not must, "due must be true, because settings.schedule has ended the batch")
    saved.require(may or not parts.clock.due, "due must be false, because settings.schedule has not ended the batch")


def _check_radius(saved: Fields, parts: Parts, beta: Beta, start: float) -> None:
    """β was worked out at the last update, or when the policy was made."""
    radius, last = parts.frozen.radius, parts.updates[-1:]
    if isinstance(beta, float | int):
        saved.require_close("radius", radius, beta, "as settings.beta says")
    if last:
        saved.require_close("radius", radius, last[0].beta, RECORDED)
    elif not parts.trained and not callable(beta):
        saved.require_close("radius", radius, start, "as in a new policy")


def _check_covariance(saved: Fields, parts: Parts) -> None:
    """Z has the features of all rows that count; it was frozen, if at all, at the last accepted update."""
    covariance, clock = parts.frozen.covariance, parts.clock
    if not parts.history.dropped:
        rows = _rows_that_count(parts)
        saved.require(covariance.rounds == rows, f"covariance must hold {rows} rounds; it holds {covariance.rounds}")
    if parts.lost is not None:
        rows = parts.history.total - parts.lost
        saved.require(covariance.rounds == rows, f"covariance must hold {rows} rounds; it holds {covariance.rounds}")
    frozen, running = covariance.frozen_log_det, covariance.log_det
    slack = parts.slack
    if not parts.trained:
        saved.require_close("covariance.frozen_log_det", frozen, 0.0, "before any update")
    if parts.may_fall or parts.reformed:
        return
    saved.require(frozen <= running + slack, "covariance.frozen_log_det must be at most covariance.log_det")
    saved.require(clock.base_log_det <= running + slack, "base_log_det must be at most covariance.log_det")
    last = parts.updates[-1] if parts.updates else None
    if last is None or not last.accepted:
        saved.require(frozen - slack <= clock.base_log_det, "base_log_det must be covariance.frozen_log_det or more")
    elif last.begins > last.round:  # the rounds in between are in the frozen matrix too
        saved.require(clock.base_log_det <= frozen + slack, "base_log_det must be at most covariance.frozen_log_det")
    else:
        same = is_close(frozen, clock.base_log_det)
        saved.require(same, "covariance.frozen_log_det must be base_log_det after an accepted update")


def _rows_that_count(parts: Parts) -> int:
    """All rows or, where some are forgotten, those that the last accepted update remembered and all since."""
    history = parts.history
    if history.forgetting is None:
        return len(history)
    begin = history.logged + max((record.round for record in parts.accepted), default=0)
    remembered = history.forgetting.weights(np.arange(begin - 1.0, -1.0, -1.0)) > 0
    return int(remembered.sum()) + len(history) - begin
