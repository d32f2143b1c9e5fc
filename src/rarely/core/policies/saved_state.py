"""The state of a policy as numbers and arrays, and back; each part reads and checks its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from rarely.core.choice.confidence_radius import Beta
from rarely.core.choice.random_stream import read_generator
from rarely.core.inputs.contexts import ContextReader
from rarely.core.policies.agreement import Parts, check_agreement
from rarely.core.policies.event import read_events
from rarely.core.policies.form_change import EXACT
from rarely.core.policies.offered import Offered
from rarely.core.policies.state import PolicyState
from rarely.core.policies.update_record import read_records
from rarely.core.saving.fields import Fields
from rarely.core.types import Arrays


def content_of(state: PolicyState) -> tuple[dict[str, Any], Arrays]:
    """Numbers and arrays, for `restored_state`."""
    learner_numbers, learner_arrays = state.frozen.learner.state()
    covariance_numbers, covariance_arrays = state.frozen.covariance.state()
    history_numbers, history_arrays = state.history.state()
    numbers = {
        "generator": state.random,
        "version": state.clock.version,
        "due": state.clock.due,
        "base_round": state.clock.base_round,
        "base_log_det": state.clock.base_log_det,
        "radius": state.frozen.radius,
        "unit": state.frozen.unit,
        "next_unit": state.frozen.next_unit,
        "updates": [record.describe() for record in state.updates],
        "learned": state.learned,
        "lost": state.lost,
        "extra_versions": state.clock.budget.extra,
        "events": [event.describe() for event in state.events],
        "offered": state.offered.describe(),
        "reader": state.reader.describe(),
        "learner": learner_numbers,
        "covariance": covariance_numbers,
        "history": history_numbers,
    }
    arrays = {f"learner.{k}": v for k, v in learner_arrays.items()}
    arrays |= {f"covariance.{k}": v for k, v in covariance_arrays.items()}
    arrays |= {f"history.{k}": v for k, v in history_arrays.items()}
    return numbers, arrays


def restored_state(new: PolicyState, saved: Fields, beta: Beta) -> tuple[PolicyState, np.random.Generator]:
    """The saved state and its generator; `new` is the state of a policy made with the saved settings."""
    frozen, start = new.frozen, new.frozen.radius
    dim, fits_scale = frozen.learner.dim, frozen.learner.fits_scale
    history = new.history.restored(saved.inner("history"))
    extra = saved.whole("extra_versions") if saved.since(3, "extra_versions") else 0
    clock = new.clock.restored(saved, history.rounds, extra)
    updates = read_records(saved, dim)
    # Version 0.1 did not keep how many rewards the last update had.
    accepted = [history.logged, *(record.samples for record in updates if record.accepted)]
    learned = saved.whole("learned") if saved.since(2, "learned") else accepted[-1]
    reader = ContextReader(dim, fits_scale)
    if saved.since(2, "reader"):
        reader = ContextReader.restored(dim, fits_scale, saved.inner("reader"))
    trained = clock.version > 0 or history.logged > 0
    learner = frozen.learner.restored(saved.inner("learner"), history, trained=trained)
    events = read_events(saved, history.rounds, clock.version)
    lost = saved.whole("lost", most=history.total) if saved.since(3, "lost") else None
    frozen.covariance.restore(*saved.part("covariance"))
    # Files from before they were kept lack the units, and decide as they did.
    unit, later = (saved.number(name, above=0) if name in saved else 1.0 for name in ("unit", "next_unit"))
    saved.require(unit == later == 1 or frozen.covariance.kind not in EXACT, "unit must be 1 where Z is exact")
    frozen = replace(frozen, learner=learner, radius=saved.number("radius", least=0), unit=unit, next_unit=later)
    check_agreement(saved, Parts(frozen, clock, history, updates, learned, lost, events), beta, start)
    generator = read_generator(saved)
    random = generator.bit_generator.state
    offered = Offered()
    if saved.since(2, "offered"):
        offered = Offered.restored(saved.inner("offered"), history.rounds - clock.base_round)
    lost = history.total - frozen.covariance.rounds
    return PolicyState(frozen, clock, history, random, reader, updates, offered, learned, events, lost), generator
