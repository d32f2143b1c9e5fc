"""TrainNN of many replicas at once: the steps, attempts and refusals of `rarely._core.training`, in tensors.

    R   replicas, each with n_r samples                 x  (R, N, d)   contexts, 0 beyond n_r
    θ   (W, v) of shapes (R, m, d) and (R, m)           y  (R, N)      rewards in units of u, 0 beyond n_r

    ℒ/m = Σ (u_i − y_i)²/2 + λ‖θ − θ_0‖²/2,     u(x) = Σ_j v_j max(0, w_j·x)

Steps in float32 with few columns are taken by `descend.cu`, which keeps weights and gradients in registers; with many
columns of which samples differ in few, as one-hot contexts do, by `descend_sparse.cu`; otherwise, in float64 and on a
processor by batched products, which on a GPU are recorded once as a graph.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rarely.extend.provisional import ATTEMPTS, CONVERGED, MAX_ITERATIONS, SHRINK, STABLE, refusal

WARPS, REGISTERS, MOST_SAMPLES = 8, 208, 7
"""Warps of a block of the kernel, numbers that a lane can hold beside its addresses, samples that a warp takes."""
SPARSE_WARPS, SPARSE, SHARED = 32, 0.2, 227 * 1024
"""Warps of a block of the sparse kernel, the share of columns up to which it pays, and a block's bytes of memory."""
GRAPH_STEPS = 10  # steps in one graph of products


class Theta(NamedTuple):
    """The weights of all replicas, or a vector of the same shapes."""

    first: Tensor
    last: Tensor

    def of(self, who: Tensor) -> Theta:
        """Return those of some replicas."""
        return Theta(self.first[who], self.last[who])

    def to(self, dtype: torch.dtype) -> Theta:
        return Theta(self.first.to(dtype), self.last.to(dtype))

    def squared_norms(self) -> Tensor:
        return self.first.square().sum((1, 2)) + self.last.square().sum(1)


class Samples(NamedTuple):
    """What the replicas learn from."""

    x: Tensor
    y: Tensor
    counts: Tensor

    def present(self) -> Tensor:
        """Return 1 for a sample and 0 beyond the last one, (R, N)."""
        return (torch.arange(self.y.shape[1], device=self.y.device) < self.counts[:, None]).to(self.y.dtype)


class Outcome(NamedTuple):
    """The trainings of all replicas."""

    weights: Theta
    accepted: Tensor
    attempts: Tensor
    reasons: list[str]  # why a training is refused; "" where it is accepted
    direction: Theta  # the start of the next estimate of the curvature; zeros where Φ is 0


def train(
    samples: Samples, initial: Theta, direction: Theta, *, steps: int, ridge: float, hidden: int, precision: torch.dtype
) -> Outcome:
    """Take J steps from θ_0; accept those of each replica whose loss is at most its initial one.

    A replica whose loss did not fall is trained again with a smaller step, as `gradient_descent.train` does. Steps are
    taken in `precision`, the curvature is that of the samples as they come.
    """
    curvature, direction = top_curvature(samples, initial.to(samples.x.dtype), direction.to(samples.x.dtype))
    step = STABLE / (curvature + ridge)
    single = Samples(samples.x.to(precision), samples.y.to(precision), samples.counts)
    start = initial.to(precision)
    before = losses(single, start, start, ridge)
    floor = torch.finfo(precision).eps ** 2 * hidden * samples.counts.clamp(min=1) * (curvature + ridge)
    allowed = before * (1 + 1e-9) + floor
    weights, attempts = Theta(*(part.clone() for part in start)), torch.ones_like(samples.counts)
    left, after = torch.arange(len(step), device=step.device), before.clone()
    for attempt in range(1, ATTEMPTS + 1):
        part = Samples(*(each[left] for each in single)) if len(left) < len(step) else single
        reached = descend(part, start.of(left), step[left].to(precision), steps, ridge)
        after[left] = losses(part, reached, start.of(left), ridge)
        for whole, new in zip(weights, reached, strict=True):
            whole[left] = new
        attempts[left] = attempt
        left = left[~(after[left] <= allowed[left])]
        if not len(left):
            break
        step[left] *= SHRINK if attempt < ATTEMPTS else 1.0
    reasons = [""] * len(step)
    for r in left.tolist():
        reasons[r] = refusal(ATTEMPTS, float(step[r]) / hidden, float(before[r]), float(after[r]))
    accepted = after <= allowed
    return Outcome(weights.to(torch.float64), accepted, attempts, reasons, direction)


def losses(samples: Samples, weights: Theta, initial: Theta, ridge: float) -> Tensor:
    """Return ℒ/m of each replica in float64."""
    u = (torch.relu(samples.x @ weights.first.mT) @ weights.last[..., None])[..., 0]
    residuals = (u - samples.y) * samples.present()
    moved = Theta(weights.first - initial.first, weights.last - initial.last).squared_norms()
    return residuals.double().square().sum(1) / 2 + ridge * moved.double() / 2


def top_curvature(samples: Samples, initial: Theta, start: Theta) -> tuple[Tensor, Theta]:
    """Return λ_max(ΦᵀΦ) at θ_0 and its eigenvector, by the power iteration of `Objective.top_curvature`.

    A replica that has converged waits for the others, so each takes as many iterations as it would alone.
    """
    x, present = samples.x, samples.present()
    h = x @ initial.first.mT
    units, signals = torch.relu(h), (h > 0) * initial.last[:, None]

    def back(slopes: Tensor) -> Theta:
        slopes = slopes * present
        return Theta((signals * slopes[..., None]).mT @ x, (slopes[:, None] @ units)[:, 0])

    ripple = 1 + 0.1 * torch.cos(torch.arange(x.shape[1], device=x.device, dtype=x.dtype))
    fresh = (start.squared_norms() == 0)[:, None]
    first = back(ripple.expand(len(x), -1))
    vector = Theta(torch.where(fresh[..., None], first.first, start.first), torch.where(fresh, first.last, start.last))
    value = x.new_zeros(len(x))
    moving = torch.ones(len(x), dtype=torch.bool, device=x.device)
    for _ in range(MAX_ITERATIONS):
        length = vector.squared_norms().sqrt()
        moving = moving & (length > 0) & length.isfinite()
        unit = Theta(vector.first / length[:, None, None], vector.last / length[:, None])
        slopes = ((x @ unit.first.mT) * signals).sum(-1) + (units @ unit.last[..., None])[..., 0]
        estimate, image = (slopes * present).square().sum(1), back(slopes)
        converged = (estimate - value).abs() <= CONVERGED * estimate
        vector = Theta(
            torch.where(moving[:, None, None], image.first, vector.first),
            torch.where(moving[:, None], image.last, vector.last),
        )
        value = torch.where(moving, estimate, value)
        moving = moving & ~converged
        if not bool(moving.any()):
            break
    return value.double(), vector


def descend(samples: Samples, start: Theta, step: Tensor, steps: int, ridge: float) -> Theta:
    """Take J steps from `start`, which is θ_0, a step size for each replica."""
    if samples.x.is_cuda and samples.x.dtype == torch.float32:
        (_, rows, dim), hidden = samples.x.shape, start.last.shape[1]
        if samples_at_once(dim, hidden) > 1:
            return _by_kernel(samples, start, step, steps, ridge)
        if _sparse_memory(rows, dim, hidden) <= SHARED and (entries := entries_of(samples)) is not None:
            return _by_sparse_kernel(samples, entries, start, step, steps, ridge)
    return _by_products(samples, start, step, steps, ridge)


def _by_products(samples: Samples, start: Theta, step: Tensor, steps: int, ridge: float) -> Theta:
    x, y, present = samples.x, samples.y, samples.present()
    w, v = start.first.clone(), start.last.clone()

    def advance() -> None:
        h = x @ w.mT
        units = torch.relu(h)
        e = ((units @ v[..., None])[..., 0] - y) * present
        to_last = (e[:, None] @ units)[:, 0]
        to_first = (torch.where(h > 0, e[..., None], 0.0).mT @ x) * v[..., None]
        w.sub_(step[:, None, None] * (to_first + ridge * (w - start.first)))
        v.sub_(step[:, None] * (to_last + ridge * (v - start.last)))

    if not x.is_cuda or steps < 2 * GRAPH_STEPS:
        for _ in range(steps):
            advance()
        return Theta(w, v)
    side = torch.cuda.Stream()  # a graph is recorded beside the stream in use, after one step that warms up
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        advance()
    torch.cuda.current_stream().wait_stream(side)
    graph, (more, rest) = torch.cuda.CUDAGraph(), divmod(steps - 1, GRAPH_STEPS)
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_STEPS):
            advance()
    for _ in range(more):
        graph.replay()
    for _ in range(rest):
        advance()
    return Theta(w, v)


def _by_kernel(samples: Samples, start: Theta, step: Tensor, steps: int, ridge: float) -> Theta:
    cupy: Any = import_module("cupy")
    extra = -samples.x.shape[2] % 4  # the kernel reads four columns at a time
    x, w0 = (torch.nn.functional.pad(each, (0, extra)).contiguous() for each in (samples.x, start.first))
    y, v0, step = samples.y.contiguous(), start.last.contiguous(), step.contiguous()
    replicas, rows, dim = x.shape
    kernel, shared = _kernel(dim, v0.shape[1])
    w, v, counts = torch.empty_like(w0), torch.empty_like(v0), samples.counts.to(torch.int32)
    arguments = [cupy.from_dlpack(each) for each in (x, y, w0, v0, w, v, counts, step)]
    with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
        numbers = (np.int32(rows), np.int32(steps), np.float32(ridge))
        kernel((replicas,), (32 * WARPS,), (*arguments, *numbers), shared_mem=shared)
    return Theta(w[..., : dim - extra] if extra else w, v)


class Entries(NamedTuple):
    """Samples as a row that all of a replica share, and the entries in which each differs from it.

    base                   (R, d)  the shared row
    by_row, by_column      (E, 2)  column, or sample, and bits of the float32 difference, by replica and row or column
    row_ends, column_ends  (R, N), (R, d)  where the entries of each sample, or column, end
    """

    base: Tensor
    by_row: Tensor
    row_ends: Tensor
    by_column: Tensor
    column_ends: Tensor


def entries_of(samples: Samples) -> Entries | None:
    """Return where samples differ from the commoner of each column's extremes; None if that is in too many columns."""
    x, present = samples.x, samples.present()[..., None].bool()
    filled = torch.where(present, x, x[:, :1])  # a replica has a sample
    extremes = filled.amin(1), filled.amax(1)
    common = [((x == each[:, None]) & present).sum(1) for each in extremes]
    base = torch.where(common[0] >= common[1], *extremes)
    apart = (x != base[:, None]) & present
    if int(apart.sum()) > SPARSE * x.shape[2] * int(samples.counts.sum()):
        return None
    bits = (x - base[:, None]).view(torch.int32)

    def listed(which: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        places = which.nonzero(as_tuple=True)
        pairs = torch.stack((places[2].to(torch.int32), values[places]), 1)
        return pairs.contiguous(), which.sum(2).flatten().cumsum(0).to(torch.int32)

    return Entries(base.contiguous(), *listed(apart, bits), *listed(apart.mT, bits.mT))


def _by_sparse_kernel(
    samples: Samples, entries: Entries, start: Theta, step: Tensor, steps: int, ridge: float
) -> Theta:
    cupy: Any = import_module("cupy")
    (replicas, rows, dim), hidden = samples.x.shape, start.last.shape[1]
    extra = -hidden % 32
    w0 = torch.nn.functional.pad(start.first.mT, (0, extra)).contiguous()
    v0 = torch.nn.functional.pad(start.last, (0, extra)).contiguous()
    w, v, counts = torch.empty_like(w0), torch.empty_like(v0), samples.counts.to(torch.int32)
    lists = (entries.by_row, entries.row_ends, entries.by_column, entries.column_ends, entries.base)
    every = (*lists, samples.y.contiguous(), w0, v0, w, v, counts, step.contiguous())
    kernel, shared = _sparse_kernel(dim, hidden), _sparse_memory(rows, dim, hidden)
    with cupy.cuda.Stream.from_external(torch.cuda.current_stream()):
        numbers = (np.int32(rows), np.int32(steps), np.float32(ridge))
        arguments = (*(cupy.from_dlpack(each) for each in every), *numbers)
        kernel((replicas,), (32 * SPARSE_WARPS,), arguments, shared_mem=shared)
    return Theta(w[..., :hidden].mT.contiguous(), v[:, :hidden].contiguous())


def _sparse_memory(rows: int, dim: int, hidden: int) -> int:
    """Return the bytes of shared memory of the sparse kernel: W, sums of units, and residuals with active units."""
    units = -(-hidden // 32)
    return 4 * (32 * units * (dim + 2 + 2 * SPARSE_WARPS) + rows * (1 + units))


def samples_at_once(dim: int, hidden: int) -> int:
    """Return how many samples a warp of the kernel takes together: sums, samples and activations fill its registers.

    >>> samples_at_once(12, 200), samples_at_once(236, 100)
    (6, 0)
    """
    columns, units = -(-dim // 4) * 4, -(-hidden // 32)
    return max(0, min(MOST_SAMPLES, (REGISTERS - columns * units) // (columns + units)))


@cache
def _kernel(dim: int, hidden: int) -> tuple[Any, int]:
    """Return the kernel compiled for these widths, and its bytes of shared memory."""
    units = -(-hidden // 32)
    shared = 4 * 32 * units * (dim * (WARPS + 1) + 1)
    kernel = _compiled("descend", D=dim, M=hidden, U=units, WARPS=WARPS, SAMPLES=samples_at_once(dim, hidden))
    kernel.max_dynamic_shared_size_bytes = shared
    return kernel, shared


@cache
def _sparse_kernel(dim: int, hidden: int) -> Any:
    kernel = _compiled("descend_sparse", D=dim, U=-(-hidden // 32), WARPS=SPARSE_WARPS)
    kernel.max_dynamic_shared_size_bytes = SHARED
    return kernel


def _compiled(name: str, **constants: int) -> Any:
    cupy: Any = import_module("cupy")
    options = ("--std=c++17", *(f"-D{key}={value}" for key, value in constants.items()))
    source = Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8")
    return cupy.RawModule(code=source, options=options).get_function(name)
