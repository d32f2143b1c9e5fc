"""Rounds that make trouble for rounding, each a function of (rng, n, p) that gives n vectors of p numbers."""

from __future__ import annotations

import numpy as np


def scattered(rng, n, p):
    return rng.normal(size=(n, p))


def repeated(rng, n, p):
    """Three vectors, again and again."""
    return rng.normal(size=(3, p))[rng.integers(0, 3, n)]


def nearly_repeated(rng, n, p):
    """The same with differences of any size from 1e-10 to 0.1."""
    return repeated(rng, n, p) + 10.0 ** rng.uniform(-10, -1, (n, 1)) * rng.normal(size=(n, p))


def thin(rng, n, p):
    """Directions with spreads from 1 to 1e-9."""
    axes = np.linalg.qr(rng.normal(size=(p, p)))[0]
    return (rng.normal(size=(n, p)) * np.logspace(0, -9, p)) @ axes


def alike_at_first(rng, n, p):
    """The first half nearly constant, then scattered: early differences are poor combinations for later rounds."""
    first = (np.arange(n) < n // 2)[:, None]
    spread = np.where(first, 10.0 ** rng.uniform(-8, -2), 1.0)
    return first * rng.normal(size=p) + spread * rng.normal(size=(n, p))


def of_all_sizes(rng, n, p):
    return rng.normal(size=(n, p)) * 10.0 ** rng.uniform(-6, 2, (n, 1))


HARD = (scattered, repeated, nearly_repeated, thin, alike_at_first, of_all_sizes)
