"""A ridge regression on all rewards ever seen, to which a network adds what it learns from some of them.

    A   matrix   (d, d)   Σ x xᵀ over all rewards        n   learned   how many there are
    b   moment   (d,)     Σ r x                          S   square    Σ r²
    κ   ridge             c = (A + κI)⁻¹ b

Sums take in a reward once, so their cost does not grow with the past, and none of it is lost: the part of rewards that
is linear in the context is learned from all of them. κ is chosen at each update by generalised cross-validation (Golub,
Heath and Wahba, 1979), which the sums alone decide: with A = U diag(a) Uᵀ and g = Uᵀb

    residual(κ) = S − 2 Σ g²/(a + κ) + Σ a·g²/(a + κ)²        degrees(κ) = Σ a/(a + κ)

    κ = argmin residual(κ)/(n − degrees(κ))²

The network is trained on what this leaves, which may be noise alone. So its prediction f counts by the share b that
held-out rewards ask for, less three standard errors: b = b̂ − 3√(Σ(e − b̂f)²f²)/Σ f² from 0 to 1, b̂ = Σ e·f/Σ f² and
e = r − cᵀx. Three, because the same rewards chose f among 24 candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rarely.core.covariance.cholesky import is_symmetric
from rarely.core.inputs.history import History
from rarely.core.inputs.scaling import Affine, ContextScale
from rarely.core.model.shared_row import SharedRow
from rarely.core.saving.fields import CLOSE, Fields
from rarely.core.types import Array, Arrays

MOST = 2000
"""Numbers in a scaled context up to which d² sums are kept."""
RIDGES = np.geomspace(1e-2, 1e4, 25)
DOUBTS = 3.0
"""Standard errors that are taken off the network's share."""
BLOCK = 4096
"""Contexts that are summed at a time."""


@dataclass(frozen=True)
class LinearPart:
    """A value, of which each update makes the next."""

    scale: ContextScale
    """That of the contexts when the sums began; a later one changes the network alone."""
    matrix: Array
    moment: Array
    square: float
    learned: int
    ridge: float
    coefficients: Array
    share: float = 1.0
    """b: how much of the network's prediction counts."""

    @classmethod
    def start(cls, scale: ContextScale) -> LinearPart:
        """Before any reward."""
        d = scale.affine.scaled_dim
        fixed = ContextScale(scale.affine, clips=scale.clips)
        return cls(fixed, np.zeros((d, d)), np.zeros(d), 0.0, 0, float(RIDGES[0]), np.zeros(d))

    def __call__(self, contexts: Array) -> Array:
        """Its part of the mean rewards, (n,)."""
        return self.of_scaled(self.scale(contexts))

    def has_scale(self, scale: ContextScale) -> bool:
        """Whether contexts on this scale are on its own: always where the scale was given."""
        return scale.affine is self.scale.affine and scale.clips == self.scale.clips

    def of_scaled(self, contexts: Array) -> Array:
        """The same of contexts that are scaled already."""
        return np.asarray(contexts @ self.coefficients)

    def of_shared(self, contexts: SharedRow) -> Array:
        """The same of contexts that share their row."""
        return contexts.image(self.coefficients[None])[:, 0]

    def learn(self, history: History) -> LinearPart | None:
        """With the rewards that came since; None where the sums overflow."""
        # Before the first sums, a history may have dropped some rewards for a limit of its own.
        contexts, rewards = history.arrived_since(self.learned) if self.learned else history.observed()
        matrix, moment = self.matrix.copy(), self.moment.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(rewards), BLOCK):
                x, r = self.scale(contexts[start : start + BLOCK]), rewards[start : start + BLOCK]
                matrix += x.T @ x
                moment += x.T @ r
            square = self.square + float(rewards @ rewards)
        if not (np.isfinite(square) and np.isfinite(matrix).all() and np.isfinite(moment).all()):
            return None
        after = replace(self, matrix=matrix, moment=moment, square=square, learned=history.arrived)
        return after._solved()

    def _solved(self) -> LinearPart:
        values, vectors = np.linalg.eigh(self.matrix)
        values, image = np.maximum(values, 0.0), vectors.T @ self.moment
        kept = values + RIDGES[:, None]
        residuals = self.square - 2 * (image**2 / kept).sum(axis=1) + (values * image**2 / kept**2).sum(axis=1)
        left = np.maximum(self.learned - (values / kept).sum(axis=1), 1.0)
        best = int(np.argmin(np.maximum(residuals, 0.0) / left**2))
        coefficients = vectors @ (image / kept[best])
        return replace(self, ridge=float(RIDGES[best]), coefficients=np.asarray(coefficients))

    def with_share(self, residuals: Array, predictions: Array) -> LinearPart:
        """With the network's share, given held-out e and f; 0 without any."""
        squares = float(predictions @ predictions)
        if not squares > 0:
            return replace(self, share=0.0)
        share = float(residuals @ predictions) / squares
        doubt = float(np.linalg.norm((residuals - share * predictions) * predictions)) / squares
        return replace(self, share=min(max(share - DOUBTS * doubt, 0.0), 1.0))

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Numbers and arrays, for `restored`."""
        numbers = {"square": self.square, "learned": self.learned, "ridge": self.ridge, "share": self.share}
        arrays = {"matrix": self.matrix, "moment": self.moment, "coefficients": self.coefficients}
        affine = self.scale.affine
        return numbers | {"clips": self.scale.clips}, arrays | {"center": affine.center, "spread": affine.spread}

    @classmethod
    def restored(cls, saved: Fields, scale: ContextScale, history: History) -> LinearPart:
        """The saved value; `scale` is that of the learner, which has the same shape."""
        affine, d = scale.affine, scale.affine.scaled_dim
        with saved:
            center = saved.array("center", (affine.dim,))
            spread = saved.array("spread", (affine.dim,), above=0)
            if scale.fits:
                affine = Affine(center, spread, affine.constant)
            same = np.array_equal(center, affine.center) and np.array_equal(spread, affine.spread)
            saved.require(same, "center and spread must be those of the settings, because the scale is not fitted")
            part = cls(
                ContextScale(affine, clips=saved.flag("clips")),
                saved.array("matrix", (d, d)),
                saved.array("moment", (d,)),
                saved.number("square", least=0),
                saved.whole("learned", most=history.arrived),
                saved.number("ridge", above=0),
                saved.array("coefficients", (d,)),
                saved.number("share", least=0, most=1),
            )
            regular = part.matrix + part.ridge * np.eye(d)
            saved.require(is_symmetric(regular), "matrix must be symmetric with a diagonal of at least 0")
            size = np.abs(regular) @ np.abs(part.coefficients) + np.abs(part.moment)
            near = np.abs(regular @ part.coefficients - part.moment) <= CLOSE * size.max()
            saved.require(bool(near.all()), "coefficients must solve (matrix + ridge·I)·coefficients = moment")
        return part
