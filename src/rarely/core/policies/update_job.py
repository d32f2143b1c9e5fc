"""An update in three steps: a policy prepares it, anything may run it, and the policy adopts what came of it.

    job      what an update learns from, as it stood at the *cut*: a value that can be pickled, without Z
    result   the next learner and, where features change, the Z of the rounds before the cut

The policy goes on deciding between the cut and the adoption. `digest` names the cut: a policy whose learner, lives
or rewards are others at that point refuses the result.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rarely.core.covariance import Covariance
from rarely.core.inputs.history import History
from rarely.core.policies.learner import FitResult, Learner, ScaledLearner
from rarely.core.policies.maker import CovarianceMaker
from rarely.core.saving import archive
from rarely.core.training.deadline import limited
from rarely.core.training.progress import TRAINED, Progress, watching

_MOVING = ("seen", "seen_rounds", "seen_mean", "seen_squares", "center", "spread", "follows")
"""What contexts change in a learner between updates."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a policy stood when an update was prepared."""

    round: int
    version: int
    updates: int
    """Updates on record."""
    arrived: int
    """Rewards that were in, logged ones included,"""
    samples: int
    """those to learn from,"""
    missing: int
    """and rounds without one."""
    log_det: float
    form: str
    """Of Z."""
    due: str
    """Why the batch had ended; "" where it had not."""
    lives: tuple[tuple[int, str], ...] = ()
    """Of the policy, as `History.lives_before` has them."""
    digest: str = ""
    """Of learner, lives and rewards; "" where the update is made at once."""


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What `UpdateJob.run` gives, for `Policy.adopt`.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand())
    >>> policy.observe(policy.select([[1.0], [2.0]]), 1.0)
    >>> result = policy.prepare_update().run()
    >>> result.accepted, policy.adopt(result).version
    (True, 1)
    """

    cut: Cut
    fit: FitResult
    basis: Learner | None = None
    """With whose features Z is built again."""
    covariance: Covariance | None = None
    """Z of the rounds before the cut with those features, not frozen yet."""

    @property
    def accepted(self) -> bool:
        """Whether the training succeeded; the policy records a failed one and keeps its version."""
        return not self.fit.reason

    @property
    def reason(self) -> str:
        """Why the training was rejected; empty when it was not."""
        return self.fit.reason


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """An update that can run in another thread, process or machine.

    A job is a value: it can be pickled, and running it changes neither the job nor the policy. It holds the learner and
    the rewards, not the covariance.

    Examples
    --------
    >>> from rarely import LinUCB, OnDemand
    >>> policy = LinUCB(dim=1, schedule=OnDemand())
    >>> policy.observe(policy.select([[[1.0], [2.0]]] * 5), [1.0] * 5)
    >>> result = policy.prepare_update().run()
    >>> decision = policy.select([[1.0], [2.0]])
    >>> policy.adopt(result).version, decision.version
    (1, 0)
    """

    cut: Cut
    learner: Learner
    history: History
    maker: CovarianceMaker
    ahead: int
    """Rounds that the next batch is expected to last."""

    def run(self, progress: Progress | None = None, *, seconds: float | None = None) -> UpdateResult:
        """Train the next version.

        Parameters
        ----------
        progress
            Called with a fraction from 0 to 1 and a phase, "training", "covariance" or "done"; it may raise.
        seconds
            Time that the training may take; see `Policy.update`.

        Returns
        -------
        UpdateResult
            For `Policy.adopt`; it can be pickled too.
        """
        with watching(progress) as phase:
            phase(0.0, "training")
            with limited(seconds) as budget:
                fit = self.learner.learn(self.history)
            if budget is not None:
                fit = replace(fit, report=replace(fit.report, early=budget.describe()))
            basis = None if fit.reason else self._basis(fit)
            covariance = None
            if basis is not None:
                phase(TRAINED, "covariance")
                rows = self.history.remembered()
                covariance = self.maker.of(basis.features, basis.widths, *rows, self.ahead)
            phase(1.0, "done")
        return UpdateResult(self.cut, fit, basis, covariance)

    def _basis(self, fit: FitResult) -> Learner | None:
        """With whose features Z must be built again; None where the features that it has stand."""
        if self.history.forgetting is not None:
            return fit.learner
        if fit.basis is None and self.cut.digest and isinstance(self.learner, ScaledLearner) and self.learner.follows:
            # The scale will have followed the rounds that are decided meanwhile, and their Z with it.
            assert isinstance(fit.learner, ScaledLearner)
            return self.learner.at_scale_of(fit.learner)
        return fit.basis


def with_digest(job: UpdateJob, settings: dict[str, Any], learned: int) -> UpdateJob:
    """The job of a policy with these settings, whose last update had so many rewards; its cut is named."""
    cut = replace(job.cut, lives=job.history.lives_before(job.history.total))
    digest = digest_of(settings, job.learner, job.history, cut, learned)
    history, needs = job.history, job.learner.needs(job.history)
    if needs is not None and history.forgetting is None and not job.learner.rebuilds:
        history = history.without(~needs)
    return replace(job, cut=replace(cut, digest=digest), history=history.for_learning())


def digest_of(settings: dict[str, Any], learner: Learner, history: History, cut: Cut, learned: int) -> str:
    """The name of a cut: equal where learner, lives and the rewards since the last update are the same."""
    numbers, arrays = learner.state()
    header = {
        "settings": settings,
        "place": (history.logged, cut.round, cut.version, cut.updates, cut.arrived),
        "lives": cut.lives,
        "learner": {name: value for name, value in numbers.items() if name not in _MOVING},
    }
    digest = hashlib.blake2b(json.dumps(header, sort_keys=True, default=archive.plain).encode(), digest_size=16)
    fixed = {name: array for name, array in arrays.items() if name not in _MOVING}
    rows, values = history.arrivals_between(learned, cut.arrived)
    for name, array in sorted((fixed | {"rows": rows, "values": values}).items()):
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
