"""The arithmetic of policies that choose by evidence, of many runs in one call on a device.

    R  runs     n  rewards or rounds, padded to the most of any run     c  candidates     P  columns of a packed feature

Each run is played by the core's own code in a thread of its own (`rarely_lab.gpu.together`). What takes time it asks of
`ARITHMETIC`, which here gathers the calls of all runs: Gram matrices, Cholesky factors of the judging rewards at each
ridge in place of one eigen decomposition, means, and the factor L of each run's Z. All of it is in float64, so arms are
those of the core but for rounds in which two arms are nearly tied, which are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from rarely.extend import Array, Candidates, Factors, Proposal
from rarely.extend import provisional as core
from rarely.extend.provisional import MOST, NAMES, Grams, KernelDual, System, Views
from rarely_lab.gpu.together import compute, run_together

LINEAR, NETWORK, PRODUCTS, CONSTANT, LEARNED, COLUMNS = range(len(NAMES))
Pair = tuple[Array, Array]
AT_ONCE = 2**30  # bytes of matrices that are factored together
SMALL = 64  # rounds up to which the processor factors what has no rounds before it


class Packed(NamedTuple):
    """Features of several runs, (R, n, P): [x·√w | u | z | s | signals | learned | clock], and zeros beyond."""

    rows: Tensor
    dim: int

    def products(self, other: Packed) -> Tensor:
        """Return the weighted kernels between features, (R, n, n'), as `rarely._core.model.kernels.products` does."""
        d = self.dim
        (x, u, z, s, signals, clock), (y, v, a, columns, others, times) = (
            rows.split((d, d + 1, d + 1, d, 4, 2), dim=-1) for rows in (self.rows, other.rows)
        )
        cosine = u @ v.mT
        out = x @ y.mT
        out += torch.square(cosine) * signals[..., 1:2] * others[..., None, :, 1]
        out += signals[..., 2:3] * others[..., None, :, 2]
        out += _tangent(u, v, cosine) * (signals[..., :1] * others[..., None, :, 0] / 2)
        if bool(signals[..., 3].any()):
            out += _tangent(z, a, z @ a.mT) * (signals[..., 3:] * others[..., None, :, 3] / 2)
        if bool(s.any()):
            out += _shared(s, columns)
        if bool(clock[..., 0].any()):
            out *= torch.exp(-(clock[..., :1] - times[..., None, :, 0]).abs())
        return out * (clock[..., 1:] == times[..., None, :, 1])


def dim_of(factors: Factors) -> int:
    """Return d of the contexts of these features."""
    return int(factors.inputs[1].shape[1]) - 1


def packed(factors: Factors) -> Array:
    """Return the features of one run as rows of `Packed`."""
    (x, u, z, s, clock), (size, signals, learned, *_), dim = factors.inputs, factors.signals, dim_of(factors)
    out = np.zeros((len(u), 4 * dim + 8))
    if x.shape[1]:
        np.multiply(x, size, out=out[:, :dim])
    out[:, dim : 2 * dim + 1] = u
    if z.shape[1]:
        out[:, 2 * dim + 1 : 3 * dim + 2] = z
        out[:, 4 * dim + 5 : 4 * dim + 6] = learned
    if s.shape[1]:
        out[:, 3 * dim + 2 : 4 * dim + 2] = s
    out[:, 4 * dim + 2 : 4 * dim + 5], out[:, 4 * dim + 6 :] = signals, clock
    return out


def _shared(s: Tensor, others: Tensor) -> Tensor:
    """Return the kernel of columns, (R, n, n')."""
    sums, more = s.abs().sum(-1), others.abs().sum(-1)
    return (sums[..., None] + more[..., None, :] - torch.cdist(s, others, p=1.0)) / 2


def _tangent(a: Tensor, b: Tensor, cosine: Tensor) -> Tensor:
    """Return the tangent kernel of unit vectors, whose products are known, over half its gain."""
    close = cosine.abs() > 1 - core.CLOSE
    cosine = cosine.clamp(-1.0, 1.0)
    kept = 1 - torch.arccos(cosine) / math.pi
    bent = (cosine * kept + (1 - cosine.square()).sqrt() / math.pi).clamp(max=1.0)
    out = cosine * kept + bent
    r, i, j = close.nonzero(as_tuple=True)
    if len(r):
        # Where the angle is small, arccos would lose half of its digits: see `rarely._core.model.tangent_kernel`.
        opposed = cosine[close] < 0
        short = (a[r, i] - torch.where(opposed, -1.0, 1.0)[:, None] * b[r, j]).square().sum(-1) / 2
        angle = 2 * torch.arcsin((short / 2).sqrt())
        square = angle.square()
        bend = angle * square * (1 / 3 - square * (1 / 30 - square * (1 / 840 - square / 45360))) / math.pi
        kept = torch.where(opposed, angle / math.pi, 1 - angle / math.pi)
        covariance = torch.where(opposed, bend, 1 - short + bend)
        out[close] = torch.where(opposed, short - 1, 1 - short) * kept + covariance
    return out


class _Grams(Grams):
    """The kernels among the judging rewards of one run, on the device."""

    def __init__(self, views: Views, wanted: Sequence[int], divisors: Array, times: Array) -> None:
        self.given, self.wanted, self.times = (views, wanted, divisors, times), list(wanted), times
        self.on_device: Tensor = compute("grams", views, divisors)

    def misfits(
        self, weights: Array, memory: core.Memory, trust: Array, target: Array, ridges: Array, *walk: Any
    ) -> Pair:
        asked = weights, memory, trust, target, ridges
        return compute("misfits", self, *asked) or Grams(*self.given).misfits(*asked)


class _System(System):
    """The equations for the coefficients of one run's mean, on the device."""

    def solved(self, target: Array, noise: Array) -> Pair:
        return compute("solved", self.points, self.scale, target, noise) or super().solved(target, noise)


class _Arithmetic(core.Arithmetic):
    """What a run asks for; where a matrix is not positive definite to rounding, the core's own code mends it."""

    grams, system = _Grams, _System
    mean = partial(compute, "mean")

    def __init__(self, device: Device) -> None:
        self.device = device

    def dual(self, form: Callable[..., Any]) -> Callable[..., Any]:
        return partial(DeviceDual, self.device)

    def slopes(self, *asked: Any) -> Array:
        found = compute("slopes", *asked)
        return super().slopes(*asked) if found is None else found


class DeviceDual(KernelDual, by_name=False):
    """The t×t form with its factor on the device: one call for all candidates of a block of rounds.

    L    factor of λI + K, of the first rounds    S  L⁻¹k, (t, c)    C  k(x, x') − SᵀS of the candidates, (c, c)

    L⁻¹ is kept, because a product takes a tenth of the time of solving with L.
    """

    def __init__(self, device: Device, *settings: Any) -> None:
        super().__init__(*settings)
        self.device, self.place = device, Place(device)
        self.waiting: list[tuple[Tensor | None, Array, Factors]] = []
        """Rounds that are not on the device yet: S, their corner of L, their features."""
        self._solved: Tensor | None = None  # S of the candidates that were measured last, whose number is `_measured`
        self._measured = 0

    def fork(self) -> Self:
        other = super().fork()
        other.waiting = list(self.waiting)
        return other

    def block(self) -> int:
        return MOST if not self.rounds else super().block()

    def measure(self, factors: Factors, *, running: bool = False) -> Candidates:
        rows = self.rounds if running else self.frozen_rounds
        if not rows:
            return super().measure(factors, running=running)
        left, inner, self._solved = compute("measured", self, factors, rows)
        self._measured += 1
        norms = factors.squared_norms
        core.announce_rounding(left, norms)
        known = np.vstack((inner, np.arange(len(norms)), np.full(len(norms), self._measured)))
        return Candidates(factors, np.maximum(left, 0.0) / self.ridge, known, norms / self.ridge)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        if one.solved is None or others.solved is None:
            return super().cross(one, others)
        return np.asarray(one.solved[others.solved[-2].astype(np.int64), 0] / self.ridge)

    def propose(self, chosen: Candidates) -> Proposal:
        factors, solved, growth = chosen.factors, None, None
        kept: tuple[Tensor | None, Array | None] = None, None
        if self.rounds >= MOST:
            return super().propose(chosen)
        self.limit.check_rounds(self.kind, self.rounds + len(factors))
        if self.rounds:
            if chosen.solved is None or chosen.solved[-1, 0] != self._measured:
                chosen = self.measure(factors, running=True)
            assert self._solved is not None
            assert chosen.solved is not None
            places = chosen.solved[-2].astype(np.int64)
            corner, solved = chosen.solved[places], self._solved[:, places]
        elif len(factors) > SMALL:
            growth = compute("factored", self, factors)
        if growth is None:
            corner = corner if self.rounds else self.inner(factors, factors)
            corner.flat[:: len(factors) + 1] += self.ridge
            lower, jitters = core.cholesky(corner, factors.squared_norms + self.ridge)
            self._factor.jitters += jitters
            growth, kept = 2 * np.log(lower.diagonal()) - math.log(self.ridge), (solved, lower)
        return Proposal(factors, self.log_det + growth.cumsum(), kept)

    def accept(self, proposal: Proposal, count: int) -> None:
        if not count or proposal.kept is None:
            return
        (solved, lower), factors = proposal.kept, proposal.factors[:count]
        if lower is not None:
            solved = None if solved is None else solved[: self.rounds, :count]
            self.waiting.append((solved, lower[:count, :count], factors))
        self.past.append(factors)
        self.rounds += count
        self.log_det = float(proposal.log_dets[count - 1])


class Place:
    """Where on the device a factor is, for as long as a form refers to it."""

    def __init__(self, device: Device) -> None:
        self._free, self.number = device.free, device.take()

    def __del__(self) -> None:
        self._free.append(self.number)


class Device:
    """Tensors of all runs, and what is computed for several of them."""

    def __init__(self, runs: int, rounds: int, name: str) -> None:
        self.name, self.rounds = torch.device(name), min(rounds, MOST)
        self.inverses = torch.eye(self.rounds, dtype=torch.float64, device=self.name).repeat(2 * runs, 1, 1)
        """L⁻¹ of each Z, the identity beyond its rounds."""
        self.past = torch.zeros((2 * runs, self.rounds, 0), dtype=torch.float64, device=self.name)
        """Packed features of the rounds in each Z."""
        self.free = list(range(2 * runs))
        self._points: WeakKeyDictionary[Factors, Tensor] = WeakKeyDictionary()
        """Packed features that are asked for again and again."""

    def take(self) -> int:
        """Return a free place; a run needs two while a version gives way to the next."""
        if not self.free:
            count = len(self.inverses)
            self.inverses, self.past = (torch.cat((part, part)) for part in (self.inverses, self.past))
            self.free += range(count, 2 * count)
        return self.free.pop()

    def play(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """Return the results of works that ask for heavy arithmetic, done together."""
        served = (self.mean, self.measured, self.factored, self.grams, self.misfits, self.slopes, self.solved)
        functions: dict[str, Any] = {function.__name__: partial(_in_parts, function) for function in served}
        return run_together([partial(_with_arithmetic, _Arithmetic(self), work) for work in works], functions)

    # --- tensors

    def put(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.float64)).to(self.name)

    def padded(self, arrays: Sequence[Array], fill: float = 0.0) -> Tensor:
        """Return arrays of different lengths as one tensor."""
        out = np.full((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]), fill)
        for row, array in zip(out, arrays, strict=True):
            row[: len(array)] = array
        return self.put(out)

    def packed(self, many: Sequence[Factors]) -> Packed:
        return Packed(self.padded([packed(each) for each in many]), dim_of(many[0]))

    def points(self, many: Sequence[Factors]) -> Packed:
        """Return what `packed` does, of features that are kept on the device."""
        for each in many:
            if each not in self._points:
                self._points[each] = self.put(packed(each))
        parts = [self._points[each] for each in many]
        return Packed(torch.nn.utils.rnn.pad_sequence(parts, batch_first=True), dim_of(many[0]))

    def inside(self, counts: Iterable[int], most: int) -> Tensor:
        """Return which rows each run has, (R, most)."""
        return torch.arange(most, device=self.name) < torch.tensor(list(counts), device=self.name)[:, None]

    # --- deciding

    def mean(self, calls: Any) -> list[Array]:
        """Compute `kernels.weighted_sum` of points, coefficients and features."""
        points, coefficients, factors = zip(*calls, strict=True)
        cross = self.points(points).products(self.packed(factors))
        means = (self.padded(coefficients)[:, None] @ cross)[:, 0].cpu().numpy()
        return [mean[: len(each)] for mean, each in zip(means, factors, strict=True)]

    def measured(self, calls: Any) -> list[tuple[Array, Array, Tensor]]:
        """Return of each call ‖φ‖² − ‖S‖² by as many rounds as asked for, C by all rounds, and S."""
        duals, factors, rows = zip(*calls, strict=True)
        new = self.packed(factors)
        for dual in duals:
            self._append(dual, new.dim)
        most, places = max(dual.rounds for dual in duals), [dual.place.number for dual in duals]
        among = Packed(self.past[places, :most], new.dim).products(new)
        inside = self.inside((dual.rounds for dual in duals), most)[..., None]
        solved = self.inverses[places, :most, :most] @ (among * inside)
        solved = torch.where(inside, solved, 0.0)
        inner = new.products(new)
        scored = solved.square() * self.inside(rows, most)[..., None]
        left = (inner.diagonal(dim1=1, dim2=2) - scored.sum(1)).cpu().numpy()
        inner = (inner - solved.mT @ solved).cpu().numpy()
        return [
            (left[i, : len(each)], inner[i, : len(each), : len(each)], solved[i, :, : len(each)])
            for i, each in enumerate(factors)
        ]

    def _append(self, dual: DeviceDual, dim: int) -> None:
        """Put the rounds that a form accepted on the device."""
        self._make_room(dim)
        inverse, past = self.inverses[dual.place.number], self.past[dual.place.number]
        end = dual.rounds - sum(len(lower) for _, lower, _ in dual.waiting)
        for solved, lower, factors in dual.waiting:
            here, own = slice(end, end + len(lower)), self._inverted(self.put(lower))
            if solved is not None:
                inverse[here, :end] = -own @ (solved.mT @ inverse[:end, :end])
            inverse[here, here], past[here] = own, self.put(packed(factors))
            end += len(lower)
        dual.waiting = []

    def _make_room(self, dim: int) -> None:
        if not self.past.shape[2]:
            self.past = self.past.new_zeros((*self.past.shape[:2], 4 * dim + 8))

    def factored(self, calls: Any) -> list[Array | None]:
        """Factor λI + K of the first rounds of each Z, and return by how much each round makes log det Z grow."""
        duals, factors = zip(*calls, strict=True)
        counts, places = [len(each) for each in factors], [dual.place.number for dual in duals]
        rows, most = self.packed(factors), max(counts)
        ridges = np.array([dual.ridge for dual in duals])
        self._make_room(rows.dim)
        lower, good = self._cholesky(rows.products(rows), self.put(ridges)[:, None].expand(-1, most), counts)
        self.inverses[places, :most, :most], self.past[places, :most] = self._inverted(lower), rows.rows
        logs = 2 * lower.diagonal(dim1=1, dim2=2).log().cpu().numpy()
        return [
            log[:count] - math.log(ridge) if fine else None
            for log, count, ridge, fine in zip(logs, counts, ridges, good, strict=True)
        ]

    # --- learning

    def grams(self, calls: Any) -> list[Tensor]:
        """Return the kernels of each run, each over its divisor, (kernels, n, n)."""
        views, divisors = zip(*calls, strict=True)
        whole = self._kernels(views) / self.padded(divisors)[..., None, None]
        return [each[:, : len(view.x), : len(view.x)] for each, view in zip(whole, views, strict=True)]

    def _kernels(self, views: Sequence[Views]) -> Tensor:
        """Return linear, network, products, constant, learned and columns of each run, (R, 6, n, n)."""
        x, u, norms, c = (self.padded([part(view) for view in views]) for part in _PARTS)
        lengths = norms[:, :, None] * norms[:, None]
        cosine, constant = u @ u.mT, torch.ones_like(lengths)
        made = [x @ x.mT, _tangent(u, u, cosine) * lengths / 2, (cosine * lengths).square() / 2, constant]
        z, norms = (self.padded([part(view.u if view.z is None else view.z) for view in views]) for part in _SIDES)
        made += [_tangent(z, z, z @ z.mT) * norms[:, :, None] * norms[:, None] / 2, _shared(c, c)]
        return torch.stack(made, 1)

    def _summed(self, grams: Tensor, weights: Any, memories: Any, times: Sequence[Array]) -> Tensor:
        """Return the weighted sums of kernels, times the factors of time, (R, n, n)."""
        out = torch.einsum("rc,rcij->rij", self.put(np.stack(weights)), grams)
        for one, memory, when in zip(out, memories, times, strict=True):
            if memory:
                one[: len(when), : len(when)] *= self.put(memory(when, when))
        return out

    def misfits(self, calls: Any) -> list[Pair | None]:
        """Compute `Grams.misfits` by a Cholesky factor for each ridge."""
        owners, weights, memories, trusts, targets, ridges = zip(*calls, strict=True)
        counts, most = [len(target) for target in targets], max(len(target) for target in targets)
        wanted = [[w if kernel in one.wanted else 0.0 for kernel, w in enumerate(weight)]
                  for one, weight in zip(owners, weights, strict=True)]  # fmt: skip
        grams = torch.zeros((len(calls), len(NAMES), most, most), dtype=torch.float64, device=self.name)
        for room, owner, count in zip(grams, owners, counts, strict=True):
            room[:, :count, :count] = owner.on_device
        root = self.padded([np.sqrt(trust) for trust in trusts])
        gram = self._summed(grams, wanted, memories, [one.times for one in owners]) * root[:, None] * root[..., None]
        at = self.padded(ridges, 1.0)
        tried = at.shape[1]
        noise = at[..., None].expand(-1, -1, most).flatten(0, 1)
        lower, good = self._cholesky(gram.repeat_interleave(tried, 0), noise, np.repeat(counts, tried))
        right = (root * self.padded(targets)).repeat_interleave(tried, 0)[..., None]
        squares = torch.linalg.solve_triangular(lower, right, upper=False).square().sum((1, 2))
        logs = lower.diagonal(dim1=1, dim2=2).log().sum(1)
        both = torch.stack((squares, logs)).unflatten(1, (len(calls), tried)).cpu().numpy()
        found: list[Pair | None] = []
        for i, (trust, ridge) in enumerate(zip(trusts, ridges, strict=True)):
            fit, log = both[:, i, : len(ridge)]
            variance = (fit + 1) / (len(trust) + 1)
            lost = 0.5 * len(trust) * np.log(variance) + log - 0.5 * np.log(trust).sum()
            found.append((lost, variance) if good[i * tried : i * tried + len(ridge)].all() else None)
        return found

    def slopes(self, calls: Any) -> list[Array | None]:
        """Compute `Arithmetic.slopes`."""
        views, units, metrics, weights, memories, times, targets, noises = zip(*calls, strict=True)
        counts, most = [len(view.x) for view in views], max(len(view.x) for view in views)
        weight = self.put(np.stack(weights))[..., None, None]
        gram = self._summed(self._kernels(views), weights, memories, times)
        noise = self.put(noises)[:, None].expand(-1, most)
        lower, good = self._cholesky(gram, noise, counts)
        right = self.padded(targets)[..., None]
        a = torch.cholesky_solve(right, lower)[..., 0]
        x, u, norms, _ = (self.padded([part(view) for view in views]) for part in _PARTS)
        z, lengths = (self.padded([part(view.u if view.z is None else view.z) for view in views]) for part in _SIDES)
        stretch = self.put([
            np.divide(each.sizes, each.rates, out=np.zeros(len(each.rates)), where=each.rates > 0) for each in units
        ])  # fmt: skip
        roots = self.put([np.eye(x.shape[-1]) if metric is None else metric for metric in metrics])
        inner = (u @ u.mT) * norms[:, None] * norms[..., None]
        out = weight[:, LINEAR] * (a[:, None] @ x) * stretch[:, None]
        out = out + weight[:, NETWORK] * _slopes(u, norms, a)
        out = out + weight[:, PRODUCTS] * ((inner * a[:, None]) @ (u * norms[..., None]))[..., :-1]
        out = out + weight[:, LEARNED] * (_slopes(z, lengths, a) @ roots.mT)
        out = out * self.inside(counts, most)[..., None]
        found = (out.mT @ out).cpu().numpy()
        return [one if fine else None for one, fine in zip(found, good, strict=True)]

    def solved(self, calls: Any) -> list[Pair | None]:
        """Compute `System.solved`."""
        points, scales, targets, noises = zip(*calls, strict=True)
        rows, counts = self.points(points), [len(target) for target in targets]
        gram = rows.products(rows) * self.put(scales)[:, None, None]
        lower, good = self._cholesky(gram, self.padded(noises), counts)
        inverse = self._inverted(lower)
        coefficients = (inverse.mT @ (inverse @ self.padded(targets)[..., None]))[..., 0]
        residuals = coefficients / inverse.square().sum(1)
        both = torch.stack((coefficients, residuals), 1).cpu().numpy()
        return [tuple(one[:, :count]) if fine else None for one, count, fine in zip(both, counts, good, strict=True)]

    def _inverted(self, lower: Tensor) -> Tensor:
        whole = torch.eye(lower.shape[-1], dtype=torch.float64, device=self.name).expand_as(lower)
        return torch.linalg.solve_triangular(lower, whole, upper=False)

    def _cholesky(self, matrices: Tensor, noise: Tensor, counts: Any) -> tuple[Tensor, Any]:
        """Return the lower factors of matrices + noise, the identity beyond the rows of each, and which exist."""
        inside = self.inside(counts, matrices.shape[1])
        matrices = matrices * inside[..., None] * inside[:, None]
        matrices.diagonal(dim1=1, dim2=2).add_(torch.where(inside, noise, 1.0))
        before = matrices.diagonal(dim1=1, dim2=2)
        lower, info = torch.linalg.cholesky_ex(matrices)
        pivots = lower.diagonal(dim1=1, dim2=2).square() > core.EPSILON * before
        return lower, ((info == 0) & pivots.all(1)).cpu().numpy()


_PARTS: tuple[Callable[[Views], Array], ...] = (
    attrgetter("x"),
    attrgetter("u.unit"),
    attrgetter("u.norms"),
    attrgetter("c"),
)
_SIDES: tuple[Callable[[Any], Array], ...] = (attrgetter("unit"), attrgetter("norms"))


def _slopes(u: Tensor, norms: Tensor, coefficients: Tensor) -> Tensor:
    """Return the gradients of Σ coefficients·τ(·, u) at every u, without that of the constant, (R, n, d)."""
    cosine = (u @ u.mT).clamp(-1.0, 1.0)
    sine, angle = (1 - cosine.square()).clamp(min=core.EDGE**2).sqrt(), math.pi - torch.arccos(cosine)
    value = (2 * cosine * angle + sine) / (2 * math.pi)
    slope = torch.where(cosine > 1 - core.EDGE, 0.0, (2 * angle + cosine / sine) / (2 * math.pi))
    scaled = (coefficients * norms)[:, None]
    along = (scaled * (value - slope * cosine)).sum(-1, keepdim=True)
    return (along * u + (scaled * slope) @ u)[..., :-1]


def _in_parts(function: Callable[[Any], list[Any]], calls: list[Any]) -> list[Any]:
    """Make calls of which each takes some matrices, as many at a time as fit."""
    most = max(_numbers(call) for call in calls)
    count = max(1, AT_ONCE // (8 * most))
    return [found for start in range(0, len(calls), count) for found in function(calls[start : start + count])]


def _numbers(call: tuple[Any, ...]) -> int:
    """Return about how many numbers a call makes on the device."""
    lengths = [each.rounds if isinstance(each, DeviceDual) else len(each) for each in call if hasattr(each, "__len__")]
    return 6 * max([*lengths, core.JUDGED]) ** 2


def _with_arithmetic(arithmetic: core.Arithmetic, work: Callable[[], Any]) -> Any:
    core.ARITHMETIC.set(arithmetic)  # of this thread
    return work()
