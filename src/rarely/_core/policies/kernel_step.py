"""The room in which a compiled step scores the arms of a round by kernels: the t×t form in one call of C.

    k   (t, K)   kernels between past features and those of the arms       mean   αᵀk       v   (‖φ‖² − |L⁻¹k|²)/λ

C makes features, k, means, L⁻¹k and variances (`native/steps.c`, `native/evidence.c`); Z takes in the chosen arm as on
the plain way, to which its features and its column of L⁻¹k are handed over.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rarely._core.covariance import Candidates, Covariance, Dual
from rarely._core.growable_array import address
from rarely._core.model import kernels
from rarely._core.model.features import Factors
from rarely._core.model.kernels import KernelForm
from rarely._core.native import linalg
from rarely._core.native.loader import DualTask
from rarely._core.types import Array

SIDE = ("x", "u", "z", "clocks", "x_lengths", "u_lengths", "z_lengths")
NONE = np.zeros((1, 1))


class KernelRoom:
    """What C is told of a version, of past rounds and of where to write."""

    def __init__(self, form: KernelForm, dim: int, covariance: Dual) -> None:
        self.form = form
        self._past: Any = None
        self._panels: Any = None
        units, raw, learned = form.units, form.roots[0] > 0, form.metric is not None
        self.task: Any = DualTask(raw=dim * raw, centred=dim + 1, learned=(dim + 1) * learned)
        self._widths = (dim * raw, dim + 1, (dim + 1) * learned, 2, 1, 3, 1)
        self._held = {
            "center": units.center, "rates": units.rates, "sizes": units.sizes, "roots": form.roots,
            **({"metric": form.metric} if form.metric is not None else {}),
            **({"coefficients": form.coefficients} if len(form.coefficients) else {}),
        }  # fmt: skip
        self._held = {name: np.ascontiguousarray(array, np.float64) for name, array in self._held.items()}
        for name, array in self._held.items():
            setattr(self.task, name, address(array))
        task = self.task
        task.most = kernels.CLIP / math.sqrt(dim) if units.clips else math.inf
        (task.time, task.side), task.predicted = form.clock, len(form.coefficients)
        task.reward_center, task.reward_scale = form.center, form.spread
        self._points: list[Array] = []
        if form.points is not None and not _begins_with(covariance, form.points):
            self._points, task.points_count = arrays_of(form.points), len(form.points)
            self._point_to("points", self._points)
        self._arms, self._rows = 0, 0
        self._room: dict[str, Array] = {}

    def _point_to(self, side: str, arrays: Sequence[Array]) -> None:
        for name, array in zip(SIDE, arrays, strict=True):
            setattr(self.task, f"{side}_{name}", address(array) if array.size else None)

    def prepare(self, covariance: Dual, arms: int, *, running: bool) -> None:
        """Tell C of the past rounds, and make room for what it writes."""
        task, rows = self.task, covariance.rounds if running else covariance.frozen_rounds
        past = covariance.past.buffers
        if past[1] is not self._past:
            self._past = past[1]
            self._point_to("past", past[:7])
        if covariance.panels is not self._panels:
            self._panels = panels = covariance.panels
            task.left = places = ctypes.addressof(panels.addresses)
            task.inverse = places + len(panels.left) * ctypes.sizeof(ctypes.c_void_p)
        task.past_count = rows
        if arms != self._arms or rows > self._rows:
            self._arms, self._rows = arms, max(rows, 2 * self._rows, 64)
            task.width, task.blocks = linalg.blocks_of(arms)
            lanes = 8 * task.width * task.blocks or task.blocks
            self._room = {name: np.zeros((arms, w)) for name, w in zip(SIDE, self._widths, strict=True)}
            self._room |= {"norms": np.empty(arms), "solution": np.empty(self._rows * lanes)}
            self._room["k"] = np.empty(max(1, task.points_count * arms))
            for name, array in self._room.items():
                setattr(task, name, address(array if array.size else NONE))

    def chosen(self, row: int, ridge: float, rows: int) -> Candidates:
        """Return the features of an arm, measured."""
        room, task = self._room, self.task
        x, u, z, clocks, *lengths = (room[name][row : row + 1].copy() for name in SIDE)
        norms = room["norms"][row : row + 1].copy()
        factors = Factors((x, u, z, clocks), (*lengths, np.zeros((1, 1))), norms)
        lanes = 8 * task.width * task.blocks
        if lanes:
            solved = room["solution"][: rows * lanes].reshape(rows, lanes)[:, row : row + 1].copy()
        else:
            solved = room["solution"][row * rows : (row + 1) * rows, None].copy()
        return Candidates(factors, (norms - np.square(solved).sum()) / ridge, solved, norms / ridge)


def arrays_of(features: Factors) -> list[Array]:
    """Return the arrays of features in the order of `SIDE`."""
    return [np.ascontiguousarray(array) for array in (*features.inputs, *features.signals[:3])]


def _begins_with(covariance: Dual, points: Factors) -> bool:
    """Return whether the first past features are these, bit for bit."""
    if covariance.frozen_rounds < len(points):
        return False
    first = covariance.past.part(0, len(points))
    pairs = zip((*first.inputs, *first.signals), (*points.inputs, *points.signals), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def by_kernels(covariance: Covariance) -> bool:
    """Return whether Z is the t×t form of the kernels that C knows, which measures as that form does."""
    own = type(covariance).measure is Dual.measure
    return own and isinstance(covariance, Dual) and covariance.inner is kernels.products
