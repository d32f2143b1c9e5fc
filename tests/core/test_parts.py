"""Fields of the user's schedules, rules, learners and maps of contexts: back from a file as they were, or refused."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

import rarely
from rarely import Affine, ComposedPolicy, InvalidInput, LinUCB, OnDemand, Schedule, SnapshotError
from rarely._core.inputs.scaling import MAPS
from rarely._core.saving import archive
from rarely.extend import UNWATCHED, ChoiceRule, ContextMap, Factors, FitResult, Learner

CONTEXTS = np.random.default_rng(0).normal(size=(12, 3, 2))


@dataclass(frozen=True, eq=False)
class Turned(ContextMap):
    """Contexts times a matrix."""

    matrix: Any
    powers: tuple[int, ...] = (1,)
    dim = 2

    @property
    def scaled_dim(self) -> int:
        return 2 * len(self.powers)

    def __call__(self, contexts: Any) -> Any:
        return np.hstack([(contexts @ self.matrix) ** power for power in self.powers])


@dataclass(frozen=True, eq=False)
class Fitted(Learner):
    """A ridge estimate on any map, with fields of every kind."""

    map: ContextMap
    coefficients: Any = None
    counts: Any = field(default_factory=lambda: np.zeros(2, np.int64))
    levels: tuple[float | None, ...] = ()
    power: float | None = None
    label: str = "x"

    @property
    def dim(self) -> int:
        return self.map.dim

    @property
    def widths(self) -> Any:
        return ((1, self.map.scaled_dim),)

    def assess(self, contexts: Any) -> Any:
        x = self.map(contexts if self.power is None else np.abs(contexts) ** self.power)
        theta = np.zeros(x.shape[1]) if self.coefficients is None else self.coefficients
        return x @ theta + sum(self.levels), Factors((x,), (np.ones((len(x), 1)),))

    def learn(self, history: Any, watch: Any = UNWATCHED) -> Any:
        _, contexts, rewards, _ = history.samples()
        x = self.map(contexts)
        theta = np.linalg.solve(np.eye(x.shape[1]) + x.T @ x, x.T @ rewards)
        return FitResult(replace(self, coefficients=theta, counts=self.counts + len(rewards)))


@dataclass(frozen=True, eq=False)
class Weighed(ChoiceRule):
    """Each arm by its weight."""

    weights: Any = field(default_factory=lambda: np.ones(3))

    def probabilities(self, scores: Any) -> Any:
        weights = np.where(np.isnan(scores.means), 0.0, self.weights * 1.0)
        return weights / weights.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Delayed(Schedule):
    """Another schedule."""

    inner: Schedule
    after: tuple[int, ...] = ()
    horizon: int | None = None
    batches: int | None = None

    def first_due(self, round: int, growth: Any) -> int | None:
        return self.inner.first_due(round, growth)

    def lookahead(self, round: int, growth: float, rounds_in_batch: int) -> int:
        return self.inner.lookahead(round, growth, rounds_in_batch)


MATRIX = np.array([[0.5, 2.0], [-1.0, 0.3]])
POLICIES: dict[str, Any] = {
    "map": lambda: LinUCB(context_scale=Turned(MATRIX, (1, 2)), dim=2, schedule=OnDemand(), seed=0),
    "rule": lambda: LinUCB(2, OnDemand(), exploration=Weighed(np.array([5.0, 1.0, 1.0])), seed=0),
    "schedule": lambda: LinUCB(2, Delayed(OnDemand(), (3, 4)), seed=0),
    "learner": lambda: ComposedPolicy(Fitted(Turned(MATRIX), levels=(0.5, 2.0), power=0.5), OnDemand(), seed=0),
    "whole numbers": lambda: ComposedPolicy(Fitted(Affine.identity(2), counts=np.array([3, 2**60])), OnDemand()),
}


@pytest.mark.parametrize("kind", POLICIES)
def test_fields_come_back_from_a_file_as_they_were(kind, tmp_path):
    policy = POLICIES[kind]()
    for _ in range(2):
        policy.save(tmp_path / "policy")
        again = rarely.load(tmp_path / "policy")
        assert again.fingerprint() == policy.fingerprint()
        assert again.settings() == policy.settings()
        np.testing.assert_array_equal(again.score(CONTEXTS).means, policy.score(CONTEXTS).means)
        np.testing.assert_array_equal(again.probabilities(CONTEXTS), policy.probabilities(CONTEXTS))
        decision = policy.select(CONTEXTS)
        policy.observe(decision, CONTEXTS[np.arange(12), decision.arm, 0])
        policy.update()


class Bare(ChoiceRule):
    """Not a dataclass."""

    def probabilities(self, scores: Any) -> Any:
        return np.where(np.isnan(scores.means), 0.0, 1 / 3)


REFUSED: dict[str, Any] = {
    "Weighed.weights": lambda: LinUCB(2, OnDemand(), exploration=Weighed(np.exp)),
    "Fitted.label": lambda: ComposedPolicy(Fitted(Affine.identity(2), label={"a": 1}), OnDemand()),
    "Turned.powers": lambda: LinUCB(2, OnDemand(), context_scale=Turned(MATRIX, ({1},))),
    "Bare": lambda: LinUCB(2, OnDemand(), exploration=Bare()),
}


@pytest.mark.parametrize("named", REFUSED)
def test_a_field_that_a_file_cannot_hold_is_refused_when_it_is_saved(named, tmp_path):
    """It would come back with its default: another policy, in silence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidInput, match=rf"{named} must be"):
            REFUSED[named]().save(tmp_path / "policy")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", ["map", "learner"])
def test_a_map_that_is_not_imported_is_named(kind, tmp_path, monkeypatch):
    POLICIES[kind]().save(tmp_path / "policy")
    monkeypatch.delitem(MAPS, "Turned")
    with pytest.raises(SnapshotError, match="map of contexts of kind 'Turned', which is not imported here"):
        rarely.load(tmp_path / "policy")


@pytest.mark.parametrize("value", [{"part": "Learner"}, {"array": [1], "dtype": "O", "shape": [1]}, {"part": [1]}, [7]])
def test_a_forged_field_is_a_typed_error(value, tmp_path):
    POLICIES["learner"]().save(tmp_path / "policy")
    header, arrays, _ = archive.read(tmp_path / "policy")
    header["settings"]["learner"]["map"] = value
    archive.write(tmp_path / "policy", header, arrays)
    with pytest.raises(SnapshotError):
        rarely.load(tmp_path / "policy")
