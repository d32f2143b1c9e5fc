"""What every form of Z promises, compared with the dense matrix.

φ   vectors   (n, q)  features written out, or the part of them that the form holds
Z   matrix    (q, q)  λI + Σφφᵀ, or what an approximation puts in its place
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rarely.errors import InvalidInput
from rarely.extend import Array, Covariance, Factors, Widths
from rarely.testing.promises import check_all, ensure, ensure_close, ensure_equal, ensure_raises, names_of, through_json

Make = Callable[[Widths, float], Covariance]
Vectors = Callable[[Factors], Array]
Matrix = Callable[[Array, float], Array]


def _whole_matrix(vectors: Array, ridge: float) -> Array:
    return np.asarray(ridge * np.eye(vectors.shape[1]) + vectors.T @ vectors)


def check_covariance(
    make: Make,
    *,
    vectors: Vectors = Factors.vectors,
    matrix: Matrix = _whole_matrix,
    seed: int = 0,
    examples: int = 5,
    only: str | None = None,
) -> None:
    """Check that a form of Z keeps its promises, against the dense matrix; raise `AssertionError` for a broken one.

    Parameters
    ----------
    make
        Returns an empty form, given the widths of the features' layers, (out, in) each, and λ.
    vectors
        Of an approximation: the part of n features that it holds, as an array (n, q). Else all of them.
    matrix
        Of an approximation: the (q, q) matrix that it stands for, given (t, q) features and λ. Else λI + Σφφᵀ.
    seed, examples, only
        From which widths, λ and rounds are drawn, how often, and one of `COVARIANCE_PROMISES`; None checks all of them.

    Examples
    --------
    >>> from rarely.extend import Dual, Limit
    >>> from rarely.testing import check_covariance
    >>> check_covariance(lambda widths, ridge: Dual(widths, ridge, Limit(widths)), examples=1)
    """
    for example in range(seed, seed + examples):
        rng = np.random.default_rng(example)
        hidden, dim, layers = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 4))
        middle = tuple((hidden, hidden) for _ in range(layers - 2))
        widths = ((1, dim),) if layers == 1 else ((hidden, dim), *middle, (1, hidden))
        case = _Promises(make, vectors, matrix, example, widths, float(10 ** rng.uniform(-3, 1)))
        where = f" (widths={widths}, ridge={case.ridge:.3g}, seed={example})"
        check_all(case, type(case._form()).__name__, only, where)


class _Beside:
    """A form, the features that it holds, and a generator of more."""

    def __init__(self, case: _Promises) -> None:
        self.case, self.form, self.frozen = case, case._form(), 0
        self.rng = np.random.default_rng((case.seed, 1))
        self.past = case.vectors(self.draw(1))[:0]

    def draw(self, count: int) -> Factors:
        """Return features as a network might have them: one layer is often silent."""
        widths, rng = self.case.widths, self.rng
        inputs = tuple(rng.normal(size=(count, i)) / np.sqrt(i) for _, i in widths)
        signals = tuple(rng.normal(size=(count, o)) * (rng.random((count, o)) < 0.7) for o, _ in widths)
        return Factors(inputs, signals)

    def accept(self, rounds: int | Factors, keep: int | None = None, when: str = "") -> None:
        """Accept rounds, all or the first of them, and compare the log det after each."""
        factors = self.draw(rounds) if isinstance(rounds, int) else rounds
        keep, start = len(factors) if keep is None else keep, len(self.past)
        proposal = self.form.propose(self.form.measure(factors))
        self.form.accept(proposal, keep)
        self.past = np.vstack((self.past, self.case.vectors(factors[:keep])))
        truth = np.array([self.log_det(start + i + 1) for i in range(keep)])
        ensure_close(proposal.log_dets[:keep], truth, f"log_dets {when}", rtol=1e-8, atol=1e-8)

    def freeze(self) -> None:
        self.form.freeze()
        self.frozen = len(self.past)

    def cross(self, one: Factors, others: Factors, rounds: int) -> Array:
        """Return φᵀZ⁻¹φ' of n features with n' others after that many rounds, (n, n')."""
        z, vectors = self.case.matrix(self.past[:rounds], self.case.ridge), self.case.vectors
        return np.asarray(vectors(one) @ np.linalg.solve(z, vectors(others).T))

    def log_det(self, rounds: int) -> float:
        """Return log det Z − log det λI after that many rounds."""
        z = self.case.matrix(self.past[:rounds], self.case.ridge)
        return float(np.linalg.slogdet(z)[1] - len(z) * np.log(self.case.ridge))

    def compare(self, when: str) -> None:
        """Compare both matrices with the dense ones."""
        candidates, counts = self.draw(4), (self.frozen, len(self.past))
        truth = [np.diagonal(self.cross(candidates, candidates, rounds)) for rounds in counts]
        variances, atol = _variances(self.form, candidates), 1e-9 / self.case.ridge
        ensure_close(variances, np.array(truth), f"φᵀZ⁻¹φ under both matrices {when}", rtol=1e-6, atol=atol)
        log_dets = self.form.frozen_log_det, self.form.log_det
        ensure_close(log_dets, tuple(map(self.log_det, counts)), f"both log dets {when}", rtol=1e-8, atol=1e-8)
        ensure_equal(self.form.rounds, len(self.past), f"rounds {when}")


def _accepted(form: Covariance, factors: Factors) -> Array:
    """Let a form accept rounds, and return log det after each."""
    proposal = form.propose(form.measure(factors))
    form.accept(proposal, len(factors))
    return proposal.log_dets


def _variances(form: Covariance, factors: Factors) -> Array:
    """Return φᵀZ⁻¹φ of n features under the frozen matrix and the running one, (2, n)."""
    return np.array([form.measure(factors, running=running).variances for running in (False, True)])


@dataclass(frozen=True)
class _Promises:
    """A way to make a form, the matrix it stands for, and a seed for rounds."""

    make: Make
    vectors: Vectors
    matrix: Matrix
    seed: int
    widths: Widths
    ridge: float

    def _form(self) -> Covariance:
        return self.make(self.widths, self.ridge)

    def _lived(self, *counts: int, running: int = 0) -> _Beside:
        """Return a form that has accepted blocks of rounds, was frozen, and has accepted another one."""
        lived = _Beside(self)
        for count in counts:
            lived.accept(count)
        lived.freeze()
        lived.accept(running)
        return lived

    def starts_as_the_prior(self) -> None:
        """Before any data, φᵀZ⁻¹φ is ‖φ‖²/λ, log det is 0 and the unit of bonuses is 1."""
        form, factors = self._form(), _Beside(self).draw(4)
        truth = np.square(self.vectors(factors)).sum(axis=1) / self.ridge
        ensure_close(_variances(form, factors), np.array([truth, truth]), "φᵀZ⁻¹φ under both matrices")
        ensure_equal((form.frozen_unit, form.running_unit), (1.0, 1.0), "units")
        ensure_equal((form.rounds, form.log_det, form.frozen_log_det), (0, 0.0, 0.0), "rounds and log dets")

    def is_the_dense_matrix_batch_after_batch(self) -> None:
        """Both matrices are the dense ones, for blocks of any size of which any number of rounds is kept."""
        one = _Beside(self)
        for batch in range(int(one.rng.integers(1, 5))):
            for block in range(int(one.rng.integers(0, 4))):
                count = int(one.rng.integers(1, 8))
                keep = int(one.rng.integers(0, count + 1))
                when = f"after block {block} of batch {batch}, {keep} of {count} rounds kept"
                one.accept(count, keep, when)
                one.compare(when)
            one.freeze()
            one.compare(f"frozen after batch {batch}")
            ensure_equal(one.form.frozen_log_det, one.form.log_det, "frozen_log_det after freeze")

    def is_the_dense_matrix_after_many_rounds(self) -> None:
        """Both matrices are the dense ones with more rounds than parameters, too."""
        self._lived(60, 1, 100, running=30).compare("after 191 rounds")

    def accepting_leaves_the_frozen_matrix_alone(self) -> None:
        """Accepted rounds change nothing under the frozen matrix until `freeze`, and lower φᵀZ⁻¹φ afterwards."""
        one = self._lived(5)
        form, candidates = one.form, one.draw(3)
        before, log_det = form.measure(candidates).variances.copy(), form.frozen_log_det
        for block in range(12):
            one.accept(3)
            ensure_equal(form.measure(candidates).variances, before, f"φᵀZ⁻¹φ under the frozen matrix, block {block}")
            ensure_equal(form.frozen_log_det, log_det, f"frozen_log_det, block {block}")
        form.freeze()
        after = form.measure(candidates).variances
        some = np.square(self.vectors(candidates)).sum(axis=1) > 0
        ensure(after[some] < before[some], f"φᵀZ⁻¹φ must fall with 36 more rounds; it was {before} and is {after}")

    def rounds_added_at_once_are_those_proposed(self) -> None:
        """`add` makes the matrices that `propose` and `accept` make."""
        one = _Beside(self)
        for count in (5, 30):
            one.form.add(factors := one.draw(count))
            one.past = np.vstack((one.past, self.vectors(factors)))
            one.freeze()
            one.accept(1)
            one.compare(f"after {count} rounds were added at once, and one accepted")

    def proposing_changes_nothing(self) -> None:
        """Rounds that are proposed and not accepted, or none of which is accepted, leave both matrices as they were."""
        one = self._lived(2, running=2)
        form, candidates = one.form, one.draw(3)
        before, numbers = _variances(form, candidates), (form.rounds, form.frozen_log_det, form.log_det)
        form.propose(form.measure(one.draw(5)))
        form.accept(form.propose(form.measure(one.draw(2))), 0)
        after = _variances(form, candidates)
        ensure_equal(after[0], before[0], "φᵀZ⁻¹φ under the frozen matrix")
        # A form may tidy up its running matrix, which changes the last digits.
        ensure_close(after[1], before[1], "φᵀZ⁻¹φ under the running matrix")
        ensure_close(form.log_det, numbers[2], "log_det")
        ensure_equal((form.rounds, form.frozen_log_det), numbers[:2], "rounds and frozen_log_det")
        one.accept(3, when="of later rounds")

    def a_dropped_fork_leaves_the_original_alone(self) -> None:
        """What happens to a fork changes nothing in the original, which has the future it had without the fork."""
        one = self._lived(5)
        form, candidates = one.form, one.draw(3)
        before, log_det, fork = form.measure(candidates).variances.copy(), form.log_det, form.fork()
        for _ in range(6):
            _accepted(fork, one.draw(4))
            fork.freeze()
        ensure_equal(form.measure(candidates).variances, before, "φᵀZ⁻¹φ of the original")
        ensure_equal((form.log_det, form.rounds), (log_det, 5), "log_det and rounds of the original")
        one.accept(2, when="of the original's next rounds")
        one.compare("of the original afterwards")

    def a_fork_is_the_original(self) -> None:
        """A fork has the matrices of the original, and grows as the original would."""
        one = self._lived(6, running=2)
        form, later, fork = one.form, one.draw(3), one.form.fork()
        ensure_equal(_accepted(fork, later), _accepted(form.fork(), later), "log_dets of two forks")
        one.accept(later)
        candidates = one.draw(3)
        ensure_close(_variances(fork, candidates), _variances(form, candidates), "φᵀZ⁻¹φ under both matrices")

    def a_restored_form_has_the_same_future(self) -> None:
        """`read` of what `state` gave makes the same form, bit for bit, now and after further rounds."""
        one, again = self._lived(5, 40, running=3), self._form()
        form, candidates, later = one.form, one.draw(3), one.draw(30)
        with through_json(form, "covariance") as saved:
            again.read(saved)
        for when in ("at once", "after 30 more rounds"):
            for name in ("rounds", "log_det", "frozen_log_det", "jitters"):
                ensure_equal(getattr(again, name), getattr(form, name), f"{name} {when}")
            ensure_equal(_variances(again, candidates), _variances(form, candidates), f"φᵀZ⁻¹φ {when}")
            for each in (form, again):
                _accepted(each, later)
                each.freeze()

    def candidates_are_measured_one_by_one(self) -> None:
        """φᵀZ⁻¹φ of a candidate does not depend on those it is measured with, and `block` is at least 1."""
        one = self._lived(9, running=2)
        form, candidates = one.form, one.draw(5)
        singly = np.hstack([_variances(form, candidates[[i]]) for i in range(5)])
        ensure_close(singly, _variances(form, candidates), "φᵀZ⁻¹φ one by one")
        ensure(singly >= 0, f"φᵀZ⁻¹φ must not be negative; got {singly}")
        for running in (False, True):
            together = form.measure(candidates, running=running)
            ensure_equal(together[[3, 1]].variances, together.variances[[3, 1]], "variances of a slice")
        ensure(form.block() >= 1, f"block() is {form.block()}")

    def cross_terms_exist_exactly_where_rounds_add_their_features(self) -> None:
        """`cross` is φᵀZ⁻¹φ' under the running matrix where `additive` is set, and refused elsewhere."""
        one = self._lived(3, running=2)
        form, candidates = one.form, one.draw(5)
        measured = form.measure(candidates, running=True)
        if form.additive:
            truth = one.cross(candidates[[0]], candidates[1:], 5)[0]
            ensure_close(form.cross(measured[[0]], measured[1:]), truth, "cross", rtol=1e-6, atol=1e-9 / self.ridge)
        else:
            with ensure_raises(InvalidInput, "cross of a form that is not additive"):
                form.cross(measured[[0]], measured[1:])


COVARIANCE_PROMISES = names_of(_Promises)
"""The names of the promises that `check_covariance` checks."""
