"""Sketches as version 0.1 saved them, written here with dense matrices, become those of today."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import Sketch, SnapshotError, SnapshotWarning
from rarely.core.covariance import Limit, Sketched
from rarely.core.covariance.growing_cholesky import GrowingCholesky
from rarely.core.covariance.protocol import EXACT
from rarely.core.model.features import Factors


def factors_of(vectors):
    return Factors((vectors,), (np.ones((len(vectors), 1)),))


class Old:
    """Rounds (t, p), of which some are points and the first `cut` belong to the frozen matrix."""

    def __init__(self, rounds, kept, cut, ridge, size, absorbed):
        self.rounds, self.cut, self.ridge, self.size = rounds, cut, ridge, size
        self.points, self.lost = rounds[kept], np.flatnonzero(~kept)
        k, self.known = len(self.points), np.cumsum(kept)
        self.frozen = int(kept[:cut].sum())
        self.gram = self.points @ self.points.T
        self.basis = np.linalg.inv(np.linalg.cholesky(self.gram)) if k else np.empty((0, 0))
        self.basis = np.tril(self.basis)
        self.coordinates = np.zeros((len(rounds), size))
        self.coordinates[:, :k] = rounds @ self.points.T @ self.basis.T
        self.coordinates[np.arange(size) >= self.known[:, None]] = 0.0
        self.absorbed = absorbed or len(rounds) - cut > size

    def sketched(self, count):
        """λI + Σ(Pφ)(Pφ)ᵀ of the first rounds, P by an orthonormal basis of the points of the time."""
        out = self.ridge * np.eye(self.rounds.shape[1])
        for phi, known in zip(self.rounds[:count], self.known, strict=False):
            span = np.linalg.qr(self.points[:known].T)[0]
            out += np.outer(span @ (span.T @ phi), span @ (span.T @ phi))
        return out

    def full(self):
        return self.ridge * np.eye(self.rounds.shape[1]) + self.rounds.T @ self.rounds

    def inner(self):
        z, pending = self.coordinates, self.coordinates[self.cut :]
        before = self.ridge * np.eye(self.size) + z[: self.cut].T @ z[: self.cut]
        frozen, frozen_log_det = GrowingCholesky.of(before)
        arrays = {"matrix": before, "running": frozen.packed()}
        if self.absorbed:
            arrays["matrix"] = before + pending.T @ pending
            arrays |= {"running": GrowingCholesky.of(arrays["matrix"])[0].packed(), "frozen": frozen.packed()}
            pending = pending[:0]
        arrays["pending"], arrays["solved"] = pending, frozen.solve(pending.T, self.size).T
        bordered = np.eye(len(pending)) + arrays["solved"] @ arrays["solved"].T
        arrays["factor"] = GrowingCholesky.of(bordered)[0].packed() if len(pending) else np.empty(0)
        whole = self.ridge * np.eye(self.size) + z.T @ z
        prior = self.size * np.log(self.ridge)
        log_dets = {"log_det": np.linalg.slogdet(whole)[1] - prior, "frozen_log_det": frozen_log_det - prior}
        return {"rounds": len(z), "jitters": 0, "pending_jitters": 0} | log_dets, arrays

    def remainders(self):
        phi, z = self.rounds[self.lost], self.coordinates[self.lost]
        left = phi - z[:, : len(self.points)] @ self.basis @ self.points
        squares = np.maximum((phi**2).sum(1) - (z**2).sum(1), 0.0)
        done = len(phi) // self.size * self.size
        closed = sum(np.linalg.norm(left[i : i + self.size], 2) ** 2 for i in range(0, done, self.size))
        numbers = {"count": len(phi), "total": float(squares.sum()), "closed": float(closed)}
        arrays = {"input0": phi[done:], "signal0": np.ones((len(phi) - done, 1)), "squares": squares[done:]}
        return numbers, arrays | {"points": self.known[self.lost][done:]}

    def state(self):
        (inner, inner_arrays), (lost, lost_arrays) = self.inner(), self.remainders()
        k = len(self.points)
        half, basis = np.zeros((2, k, self.size))
        half[:, :k], basis[:, :k] = np.tril(self.gram) - np.diag(np.diagonal(self.gram) / 2), self.basis
        arrays = {"input0": self.points, "signal0": np.ones((k, 1)), "products": half, "basis": basis}
        arrays |= {f"inner.{name}": array for name, array in inner_arrays.items()}
        arrays |= {f"lost.{name}": array for name, array in lost_arrays.items()}
        return {"frozen": self.frozen, "inner": inner, "lost": lost}, arrays

    def converted(self):
        form = empty(self)
        form.restore(*self.state())
        return form


def empty(old):
    widths = ((1, old.rounds.shape[1]),)
    return Sketched(widths, old.ridge, Limit(widths, sketch=Sketch(old.size)))


def check_bound(form, old):
    """The full Z is within the converted bound of the converted Z~, whatever rounding made of that."""
    sketched, full = dense(form), old.full()
    half = np.linalg.inv(np.linalg.cholesky(sketched))
    ratios = np.linalg.eigvalsh(half @ full @ half.T)
    assert max(ratios[-1], 1 / ratios[0]) <= form.error_bound.ratio * (1 + 1e-6)
    log_dets = [np.linalg.slogdet(z)[1] for z in (sketched, full)]
    assert abs(log_dets[1] - log_dets[0]) <= form.error_bound.log_det + 1e-6 * (1 + abs(log_dets[1]))


def dense(form):
    """λI + Φ_SᵀWΦ_S as it is held, in fractions: a large W would lose digits in the product."""
    points, weights = fractions(form._dictionary._points.view.vectors()), fractions(form._running._weights)
    product = points.T @ weights @ points if len(points) else np.zeros((points.shape[1],) * 2)
    return form.ridge * np.eye(points.shape[1]) + product.astype(np.float64)


def fractions(array):
    return np.array([Fraction(value) for value in array.flat], object).reshape(array.shape)


@st.composite
def olds(draw):
    p, size = draw(st.integers(1, 12)), draw(st.integers(2, 16))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    rounds = rng.normal(size=(draw(st.integers(0, 40)), p)) * 10 ** draw(st.floats(-1, 1))
    kept = rng.random(len(rounds)) < draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    kept[np.flatnonzero(kept)[min(p, size) :]] = False
    if draw(st.booleans()):
        rounds, kept = rounds[kept], kept[kept]
    cut = draw(st.integers(0, len(rounds)))
    return Old(rounds, kept, cut, 10 ** draw(st.floats(-2, 1)), size, draw(st.booleans()))


@given(olds(), st.integers(0, 10**6))
def test_an_old_sketch_has_the_same_matrices_and_learns_on(old, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SnapshotWarning)
        form = old.converted()
    p, rng = old.rounds.shape[1], np.random.default_rng(seed)
    well = np.linalg.cond(old.gram) < 1e6 if len(old.points) else True
    close = {"rel": 1e-8, "abs": 1e-8} if well else {"rel": 1e-3, "abs": 1e-3}
    for value, count in ((form.log_det, len(old.rounds)), (form.frozen_log_det, old.cut)):
        truth = np.linalg.slogdet(old.sketched(count))[1] - p * np.log(old.ridge)
        assert value == pytest.approx(truth, **close)
    candidates = rng.normal(size=(5, p))
    truth = np.einsum("ij,jk,ik->i", candidates, np.linalg.inv(old.sketched(old.cut)), candidates)
    found = form.measure(factors_of(candidates)).variances
    np.testing.assert_allclose(found, truth, rtol=1e-7 if well else 1e-3)
    assert (form.rounds, form.points) == (len(old.rounds), len(old.points))
    check_bound(form, old)
    if not len(old.lost):
        assert form.error_bound == EXACT

    numbers, arrays = form.state()
    again = empty(old)
    again.restore(numbers, arrays)
    np.testing.assert_array_equal(again.measure(factors_of(candidates)).variances, found)
    assert again.error_bound == form.error_bound

    more = rng.normal(size=(7, p))
    form.accept(form.propose(form.measure(factors_of(more))), 7)
    form.freeze()
    old.rounds = np.vstack((old.rounds, more))
    inverse = np.linalg.inv(old.full())
    truth = np.einsum("ij,jk,ik->i", candidates, inverse, candidates)
    ratios = form.measure(factors_of(candidates)).variances / truth
    ratio = form.error_bound.ratio * (1 + 1e-6)
    assert ratios.max() <= ratio
    assert ratios.min() >= 1 / ratio


@pytest.mark.parametrize(
    ("closeness", "ridge", "announced"),
    [(1e-3, 1e-4, False), (1e-4, 1e-4, True), (1e-6, 1e-4, True), (1e-4, 1.0, False), (1e-6, 1.0, True)],
)
def test_nearly_dependent_points_are_announced_and_within_the_bound(closeness, ridge, announced):
    rng = np.random.default_rng(0)
    rounds = rng.normal(size=(40, 6))
    rounds[1:4] = rounds[0] + closeness * rounds[1:4]
    old = Old(rounds, np.arange(40) < 5, 30, ridge, 8, absorbed=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        form = old.converted()
    assert [warning.category for warning in caught] == [SnapshotWarning] * announced
    check_bound(form, old)
    # A policy compares them with those of its last update.
    before = old.inner()[0]
    again = empty(old)
    again.restore(*form.state())
    assert (again.log_det, again.frozen_log_det) == (before["log_det"], before["frozen_log_det"])


def test_an_old_sketch_whose_parts_do_not_fit_is_refused():
    rng = np.random.default_rng(0)
    old = Old(rng.normal(size=(18, 6)), np.arange(18) < 4, 15, 0.5, 8, absorbed=True)
    numbers, arrays = old.state()
    changes = {
        "basis": (1.01 * arrays["basis"], "orthonormal"),
        "products": (1.01 * arrays["products"], "products must be those"),
        "input0": (1.01 * arrays["input0"], "products must be those"),
        "inner.matrix": (arrays["inner.matrix"] + np.eye(8), "factor of matrix"),
        "lost.points": (arrays["lost.points"] + 5, r"lost\.points"),
        "lost.squares": (arrays["lost.squares"] + 50, "sum of squares"),
    }
    for name, (value, sentence) in changes.items():
        with pytest.raises(SnapshotError, match=sentence):
            empty(old).restore(numbers, arrays | {name: value})
    with pytest.raises(SnapshotError, match="a point or lost"):
        empty(old).restore(numbers | {"lost": numbers["lost"] | {"count": 15}}, arrays)
    with pytest.raises(SnapshotError, match=r"covariance\.colour"):
        empty(old).restore(numbers | {"colour": 1}, arrays)


@given(st.integers(0, 10**6), st.floats(-10, 0), st.floats(-6, 1))
def test_a_sketch_of_today_is_never_refused(seed, closeness, ridge):
    """However nearly dependent its points are, and wherever it stands in a batch."""
    rng = np.random.default_rng(seed)
    p, size = int(rng.integers(1, 30)), int(rng.integers(2, 24))
    old = Old(np.empty((0, p)), np.zeros(0, bool), 0, 10**ridge, size, absorbed=False)
    form, base = empty(old), rng.normal(size=(3, p))
    for _ in range(8):
        near = base[rng.integers(3, size=6)] * rng.normal(size=(6, 1)) + 10**closeness * rng.normal(size=(6, p))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            form.accept(form.propose(form.measure(factors_of(near))), int(rng.integers(7)))
            again = empty(old)
            again.restore(*form.state())
            np.testing.assert_array_equal(
                again.measure(factors_of(base)).variances, form.measure(factors_of(base)).variances
            )
        assert (again.log_det, again.error_bound) == (form.log_det, form.error_bound)
        if rng.random() < 0.5:
            form.freeze()


def test_a_sketch_of_today_whose_parts_do_not_fit_is_refused():
    rng = np.random.default_rng(0)
    old = Old(rng.normal(size=(18, 6)), np.arange(18) < 4, 15, 0.5, 8, absorbed=True)
    numbers, arrays = old.converted().state()
    changes = {
        "points.products": (1.01 * arrays["points.products"], "products must be those"),
        "points.pivots": (np.zeros_like(arrays["points.pivots"]), "different points"),
        "points.basis": (1.01 * arrays["points.basis"], "orthonormal"),
        "running.weights": (1.01 * arrays["running.weights"], "log_det must be"),
        "running.factor": (1.01 * arrays["running.factor"], "log_det"),
        "running.pending": (np.ones((1, 8)), "3 to 4 points|beyond the 4 points"),
        "frozen.factor": (1.01 * arrays["frozen.factor"], "frozen_log_det"),
        "lost.weights": (np.ones_like(arrays["lost.weights"]), "beyond the 4 points"),
        "lost.rounding": (arrays["lost.squares"] + 1, "part of squares"),
    }
    for name, (value, sentence) in changes.items():
        with pytest.raises(SnapshotError, match=sentence):
            empty(old).restore(numbers, arrays | {name: value})
    for name, wrong in (("log_det", 0.01), ("frozen_log_det", 0.01), ("frozen_points", 9), ("frozen_rows", 9)):
        with pytest.raises(SnapshotError, match=name if "log" in name else "frozen"):
            empty(old).restore(numbers | {name: numbers[name] + wrong}, arrays)
