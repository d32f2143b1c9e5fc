"""ComposedPolicy: a policy made of parts, each of which may be the user's own."""

from __future__ import annotations

from rarely._core.choice.confidence_radius import Beta
from rarely._core.choice.random_stream import Seed
from rarely._core.choice.rules import ChoiceRule, Mixture, UpperConfidence
from rarely._core.covariance import Kind
from rarely._core.errors import InvalidInput, shown
from rarely._core.inputs.forgetting import Forgetting
from rarely._core.policies.learner import Learner
from rarely._core.policies.options import Limits, limits_from
from rarely._core.policies.policy import Policy
from rarely._core.policies.state import WithinBatch
from rarely._core.schedules import EveryRound, Schedule


class ComposedPolicy(Policy):
    """A policy of parts: a learner, a form of Z, a rule and a schedule, the package's or your own.

    Parameters
    ----------
    learner
        A `Learner` before any reward, whose fields are numbers, texts, arrays, maps of contexts, None or tuples: a file
        names its class and holds them.
    schedule
        When updates are due; after every round if it is left out.
    covariance, ridge, beta
        The name of a form of Z, λ of Z_1 = λI, and β in bonus = β·√(φᵀZ⁻¹φ).
    exploration
        A `ChoiceRule` in the place of upper confidence bounds, or a `Mixture` over them.
    forgetting, within_batch, seed, limits
        As in `LinUCB`.
    dim
        d; the learner knows it, and it must be the same if it is given.

    Examples
    --------
    >>> import numpy as np
    >>> from dataclasses import dataclass
    >>> from rarely import ComposedPolicy
    >>> from rarely.extend import Factors, FitResult, Learner
    >>> @dataclass(frozen=True)
    ... class Curious(Learner):
    ...     '''Expects 0 of every context, so that only bonuses count.'''
    ...     dim: int = 2
    ...     widths = ((1, 2),)
    ...     def assess(self, contexts):
    ...         return np.zeros(len(contexts)), Factors((contexts,), (np.ones((len(contexts), 1)),))
    ...     def learn(self, history, watch=None):
    ...         return FitResult(self)
    >>> policy = ComposedPolicy(Curious(), covariance="primal", beta=0.5)
    >>> decision = policy.select([[1.0, 0.0], [0.0, 2.0]])
    >>> decision.arm, decision.bonuses
    (1, array([0.5, 1. ]))
    """

    def __init__(
        self,
        learner: Learner,
        schedule: Schedule | None = None,
        *,
        covariance: Kind = "auto",
        ridge: float = 1.0,
        beta: Beta = 1.0,
        exploration: ChoiceRule | Mixture | None = None,
        forgetting: Forgetting | None = None,
        within_batch: WithinBatch = "frozen",
        seed: Seed = None,
        limits: Limits | None = None,
        dim: int | None = None,
    ) -> None:
        if not isinstance(learner, Learner):
            raise InvalidInput(f"learner must be a Learner before any reward; got {shown(learner)}.")
        if dim not in (None, learner.dim):
            raise InvalidInput(f"dim must be left out, or the learner's, {learner.dim}; got {shown(dim)}.")
        settings = {
            "learner": learner, "dim": learner.dim, "schedule": EveryRound() if schedule is None else schedule,
            "covariance": covariance, "ridge": ridge, "beta": beta, "exploration": exploration,
            "forgetting": forgetting, "within_batch": within_batch,
        }  # fmt: skip
        super().__init__(learner, settings, UpperConfidence(), limits=limits_from(limits, self), seed=seed)
