"""The paper's two synthetic problems.

    cosine      r = cos(3xᵀθ*) + ξ,   θ* ~ U[0, 1]^d scaled to norm 1,   d = 10, K = 4
    quadratic   r = xᵀAᵀAx + ξ,       A_ij ~ N(0, 1),                    d = 4,  K = 10

Contexts are U[0, 1]^d for every arm. ξ ~ N(0, 0.25) is read as variance 0.25; as a standard deviation
it is `noise=0.25`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rarely.extend import Array
from rarely.extend.checks import InvalidInput, check_whole
from rarely.worlds.protocol import World

VARIANCE_READING, DEVIATION_READING = 0.5, 0.25  # the standard deviation of N(0, 0.25), in both readings


@dataclass(frozen=True)
class _Synthetic(World):
    """Contexts U[0, 1]^d and Gaussian noise."""

    dim: int
    arms: int
    noise: float = VARIANCE_READING  # the standard deviation of ξ

    def __post_init__(self) -> None:
        check_whole("dim", self.dim, 1)
        check_whole("arms", self.arms, 1)
        if not 0 <= self.noise < np.inf:
            raise InvalidInput(f"noise is a standard deviation, finite and not negative; got {self.noise!r}.")


@dataclass(frozen=True)
class Cosine(_Synthetic):
    """Rewards cos(3xᵀθ*) + ξ.

    Examples
    --------
    >>> Cosine().rounds(seed=1, count=2).means.shape
    (2, 4)
    """

    dim: int = 10
    arms: int = 4

    def secret(self, generator: np.random.Generator) -> Array:
        theta = generator.random(self.dim)
        return np.asarray(theta / np.linalg.norm(theta))

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> tuple[Array, Array, float]:
        contexts = generator.random((self.arms, self.dim))
        return contexts, np.cos(3 * contexts @ secret), generator.normal(0, self.noise)


@dataclass(frozen=True)
class Quadratic(_Synthetic):
    """Rewards xᵀAᵀAx + ξ.

    Examples
    --------
    >>> from rarely.worlds import Quadratic
    >>> Quadratic(dim=3, arms=2).rounds(seed=0, count=5).contexts.shape
    (5, 2, 3)
    """

    dim: int = 4
    arms: int = 10

    def secret(self, generator: np.random.Generator) -> Array:
        return generator.normal(size=(self.dim, self.dim))

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> tuple[Array, Array, float]:
        contexts = generator.random((self.arms, self.dim))
        return contexts, np.square(contexts @ secret.T).sum(axis=1), generator.normal(0, self.noise)
