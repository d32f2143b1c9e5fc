"""Features of a foreign network: one group of numbers per layer, in the cheapest of four forms.

    pair        ∂u/∂W = δaᵀ            a (in), δ (out)       a layer that sees one position; its bias is an input of 1
    positions   ∂u/∂W = Σ_s δ_s a_sᵀ   a (S·in), δ (S·out)   a convolution, or a layer that sees a sequence
    index       row i_s of ∂u/∂W: δ_s  i (S), δ (S·out)      an embedding
    dense       ∂u/∂θ                  a = ∂u/∂θ, δ = 1      everything else, and what is cheaper written out

    ⟨φ, φ'⟩ = Σ_groups Σ_{s,s'} ⟨a_s, a'_s'⟩⟨δ_s, δ'_s'⟩, where ⟨i, i'⟩ is 1 for equal indices and else 0

Arrays are NumPy's, or tensors on the device where Z lives there; the formulas are the same. `DeviceDual` is such a Z:
the t×t form as `rarely.extend.Dual` has it, whose factors and L are float64 tensors.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from rarely.extend import (
    Array,
    Arrays,
    Candidates,
    Dual,
    FactorRows,
    Factors,
    Fields,
    Limit,
    Proposal,
    Widths,
    gram,
    prior_variances,
)
from rarely.extend.provisional import GrowingCholesky, announce_rounding, cholesky

TILE_NUMBERS = 2**22  # numbers in a tile of products of positions


class Form(NamedTuple):
    """How the features of some parameters are held: those of a layer, (out, in), or all that have no rule."""

    layer: str  # its name; "" without a rule
    names: tuple[str, ...]  # names of the parameters: weight and bias of a layer, if both explore
    kind: str  # one of the four, or "row by row": dense, and `torch.func` cannot follow
    outputs: int
    inputs: int
    positions: int = 1

    @property
    def plain(self) -> bool:
        """Whether an inner product is one of a times one of δ."""
        return self.kind not in ("positions", "index")

    @property
    def parameters(self) -> int:
        """How many there are."""
        return self.outputs * self.inputs

    @property
    def width(self) -> tuple[int, int]:
        """(out, in) where features are pairs or written out."""
        return (self.outputs, self.inputs) if self.kind == "pair" else (1, self.parameters)

    @property
    def stored(self) -> tuple[int, int]:
        """Numbers of δ and of a."""
        width = 1 if self.kind == "index" else self.inputs
        return self.width if self.plain else (self.positions * self.outputs, self.positions * width)

    @property
    def products(self) -> int:
        """Multiplications of an inner product."""
        return sum(self.stored) * self.positions if self.kind != "index" else self.positions**2 * self.outputs

    def at_positions(self, x: Any) -> Any:
        """Return a or δ as (n, S, ·)."""
        return x.reshape(len(x), self.positions, x.shape[1] // self.positions)

    def written(self, a: Array, d: Array) -> tuple[Array, Array]:
        """Return features as a pair, those that are not one written out, (n, p) and (n, 1)."""
        if self.plain:
            return a, d
        signals = self.at_positions(d)
        if self.kind == "index":
            out = np.zeros((len(a), self.inputs, self.outputs))
            np.add.at(out, (np.arange(len(a))[:, None], a.astype(np.int64)), signals)
        else:
            out = np.einsum("nso,nsi->noi", signals, self.at_positions(a), optimize=True)
        return out.reshape(len(a), self.parameters), np.ones((len(a), 1))

    def inner(self, a: Any, d: Any, b: Any, e: Any) -> Any:
        """Return (n, n') inner products."""
        if self.plain:
            return (a @ b.T) * (d @ e.T)
        n, m, s = len(a), len(b), self.positions
        tile = max(1, TILE_NUMBERS // (m * s * s))
        if n > tile:
            return concatenated([self.inner(a[i : i + tile], d[i : i + tile], b, e) for i in range(0, n, tile)])
        a, d, b, e = (x.reshape(len(x) * s, x.shape[1] // s) for x in (a, d, b, e))
        alike = a == b.T if self.kind == "index" else a @ b.T
        return ((d @ e.T) * alike).reshape(n, s, m, s).sum((1, 3))

    def squares(self, a: Any, d: Any) -> Any:
        """Return ‖φ‖² of each, (n,)."""
        a, d = self.at_positions(a), self.at_positions(d)
        alike = a == a.swapaxes(1, 2) if self.kind == "index" else a @ a.swapaxes(1, 2)
        return ((d @ d.swapaxes(1, 2)) * alike).sum((1, 2))


class TorchFactors(Factors):
    """n features, one group per layer."""

    def __init__(self, forms: tuple[Form, ...], inputs: Any, signals: Any, norms: Any = None) -> None:
        super().__init__(inputs, signals, norms)
        self.forms = forms

    def alike(self, inputs: Any, signals: Any, norms: Any = None) -> TorchFactors:
        return TorchFactors(self.forms, inputs, signals, norms)

    @property
    def widths(self) -> tuple[tuple[int, int], ...]:
        return tuple(form.width for form in self.forms)

    def compute_norms(self) -> Array:
        return host(sum(map(Form.squares, self.forms, self.inputs, self.signals)))

    def written(self) -> Factors:
        inputs, signals = zip(
            *map(Form.written, self.forms, map(host, self.inputs), map(host, self.signals)), strict=True
        )
        return Factors(inputs, signals, self.norms)

    def columns(self) -> Array:
        return self.written().columns()

    def weighted(self, weights: Array | None) -> Factors:
        if weights is None or not torch.is_tensor(self.inputs[0]):
            return super().weighted(weights)
        root = torch.as_tensor(np.sqrt(weights)[:, None], device=self.inputs[0].device)
        return self.alike(self.inputs, tuple(d * root for d in self.signals))

    def last_layer(self) -> TorchFactors:
        return TorchFactors(self.forms[-1:], self.inputs[-1:], self.signals[-1:])

    @classmethod
    def joined(cls, parts: list[Any]) -> TorchFactors:
        both = (zip(*some, strict=True) for some in ([part.inputs for part in parts], [part.signals for part in parts]))
        return cls(parts[0].forms, *(tuple(map(concatenated, some)) for some in both))


def inner_products(left: Any, right: Any) -> Any:
    """Return inner products of features, (n, n'): pairs of NumPy's arrays by the core's loops, others by groups."""
    plain = () if torch.is_tensor(left.inputs[0]) else [i for i, form in enumerate(left.forms) if form.plain]
    if len(plain) == len(left.forms):
        return gram(left, right)
    total: Any = 0.0
    if plain:
        one, other = ([tuple(x[i] for i in plain) for x in (f.inputs, f.signals)] for f in (left, right))
        total = gram(Factors(one[0], one[1]), Factors(other[0], other[1]))
    for i, form in enumerate(left.forms):
        if i not in plain:
            total = total + form.inner(left.inputs[i], left.signals[i], right.inputs[i], right.signals[i])
    return total


def concatenated(parts: Any) -> Any:
    """Return arrays, or tensors, in order."""
    return torch.cat(list(parts)) if torch.is_tensor(parts[0]) else np.concatenate(parts)


def host(array: Any) -> Array:
    """Return an array of NumPy's."""
    return np.asarray(array.detach().cpu().numpy() if torch.is_tensor(array) else array)


class DeviceDual(Dual):
    """The t×t form whose arrays are on a device; an accepted round replaces them, which that device does in no time."""

    def __init__(self, widths: Widths, ridge: float, limit: Limit, *, forms: tuple[Form, ...], device: Any) -> None:
        rows = partial(FactorRows, tuple(form.stored for form in forms), partial(TorchFactors, forms))
        super().__init__(widths, ridge, limit, inner_products, rows)  # whose own arrays are filled for files alone
        self._device, sizes = device, zip(*(form.stored for form in forms), strict=True)
        signals, inputs = (tuple(self._tensor(np.empty((0, size))) for size in some) for some in sizes)
        self._past, self._lower = TorchFactors(forms, inputs, signals), self._tensor(np.empty((0, 0)))

    def _tensor(self, array: Array) -> Any:
        return torch.as_tensor(array, device=self._device)

    def _solved(self, factors: Any, rows: int) -> Any:
        """Return L⁻¹k for the first `rows` rounds."""
        k = inner_products(self._past[:rows], factors)
        return torch.linalg.solve_triangular(self._lower[:rows, :rows], k, upper=False)

    def block(self) -> int:
        return 1024

    def measure(self, factors: Any, *, running: bool = False) -> Candidates:
        rows = self.rounds if running else self.frozen_rounds
        if not rows:
            return Candidates(factors, prior_variances(factors, self.ridge))
        solved, norms = self._solved(factors, rows), factors.squared_norms
        left = norms - host((solved * solved).sum(0))
        announce_rounding(left, norms)
        return Candidates(factors, np.maximum(left, 0.0) / self.ridge, solved, norms / self.ridge)

    def cross(self, one: Candidates, others: Candidates) -> Array:
        inner: Any = inner_products(others.factors, one.factors)[:, 0]
        mine, theirs = one.solved, others.solved
        return host(inner if mine is None or theirs is None else inner - mine[:, 0] @ theirs) / self.ridge

    def propose(self, chosen: Candidates) -> Proposal:
        factors, measured = chosen.factors, chosen.solved
        self.limit.check_rounds(self.kind, self.rounds + len(factors))
        whole = measured is not None and len(measured) == self.rounds
        solved: Any = measured if whole else self._solved(factors, self.rounds)
        corner: Any = inner_products(factors, factors)
        corner.diagonal().add_(self.ridge)
        # The corner is small, and the core mends one that rounding has left indefinite.
        lower, jitters = cholesky(host(corner - solved.T @ solved), host(corner.diagonal()))
        self._factor.jitters += jitters
        growth = 2 * np.log(lower.diagonal()) - np.log(self.ridge)
        return Proposal(factors, self.log_det + growth.cumsum(), torch.cat((solved.T, self._tensor(lower)), 1))

    def accept(self, proposal: Proposal, count: int) -> None:
        if count:
            above = torch.nn.functional.pad(self._lower, (0, count))
            self._lower = torch.cat((above, proposal.kept[:count, : self.rounds + count]))
            self._past = TorchFactors.joined([self._past, proposal.factors[:count]])
            self.rounds, self.log_det = self.rounds + count, float(proposal.log_dets[count - 1])

    def features(self) -> TorchFactors:
        return self._past

    def state(self) -> tuple[dict[str, Any], Arrays]:
        numbers, _ = super().state()
        rows, past = self.past.fork(), self._past
        rows.append(past.alike(*(tuple(map(host, some)) for some in (past.inputs, past.signals))))
        factor, _ = GrowingCholesky.from_lower(host(self._lower))
        return numbers, rows.state() | {"factor": factor.packed()}

    def read(self, saved: Fields) -> None:
        super().read(saved)
        past, self._lower, jitters = self.past.view, self._tensor(self._factor.lower()), self.jitters
        arrays = (tuple(map(self._tensor, some)) for some in (past.inputs, past.signals))
        self._past = self._past.alike(*arrays)
        self.past, self._factor = self.past.fork(0), GrowingCholesky()
        self._factor.jitters = jitters
