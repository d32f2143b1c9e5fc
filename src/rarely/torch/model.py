"""`Module`: a torch module as the model of a policy, `TorchNetwork`: `Network` with one inside, and its training.

    ℒ/s² = Σ w_i (u(x_i; θ) − r_i/s)²/2 + λ‖θ − θ_0‖²/2        u = f/s

It is trained by full gradients as in the paper, by minibatches of Adam where it tunes itself, or by your loop. A
context comes as (cx, c) and stands for c·u(x), c² = w: a weighted sample is a scaled one, as in the core.

Weights are a tuple of float64 arrays, one for each parameter and buffer, so that a version is a value, as in the core.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from rarely.extend import Array, CovarianceFactory, Dual, FactorRows, RowCost, prices
from rarely.extend.checks import InvalidContexts, InvalidInput, SnapshotError, check_whole, shown
from rarely.extend.provisional import MAX_ITERATIONS, MODELS, MomentumState, Network, Objective, TrainingPlan, Weights
from rarely.torch.factors import DeviceDual, TorchFactors, host, inner_products
from rarely.torch.gradients import PASS, check_outputs, compute, forms_of, has_rule

BATCH, BATCHES = 128, 16
"""Samples of a minibatch, at least, and minibatches of a pass through all samples, at most."""
EVALUATED = 4096
"""Samples that are evaluated at a time."""
CURVED = 500
"""Samples whose Gram matrix tells the curvature."""
PROBES = 3
"""Contexts on which a new model is tried."""
RATES = (0.01, 0.002)
"""Adam's learning rates that a policy which tunes itself compares, as it compares skip paths of the perceptron."""
LOADED = 2
"""Versions of the module that are kept ready to decide."""
KNOWN: dict[str, Module] = {}
"""Models of this process by their settings, so that a policy's file, a study or a service finds its own again."""


@dataclass(frozen=True, eq=False)
class TorchNetwork(Network):
    """A torch module in the place of the perceptron: a function of weights and contexts.

    Contexts come with a constant, (x, 1), or (cx, c) where samples are weighted.
    """

    model: Any = None
    rate: float | None = None
    """Adam's learning rate; None where gradient descent takes a given number of steps."""
    shares_rows = linear_part = False

    @cached_property
    def output_scale(self) -> float:
        """s of f = s·u, the root mean square of ‖∂f/∂θ_0‖, as √m is for the perceptron; 1 of scaling "standard"."""
        return float(self.model.norm) if self.scaling == "ntk" else 1.0

    @cached_property
    def shapes(self) -> Any:
        return tuple(w.shape for w in self.model.weights)

    @cached_property
    def feature_widths(self) -> Any:
        return tuple(form.width for form in self.model.forms)

    @cached_property
    def parameters(self) -> int:
        return sum(w.size for w in self.model.weights)

    @property
    def most_trials(self) -> int:  # type: ignore[override]  # a constant of the class there, and here the model's
        return 2 if self.model.fit is None else 1

    def candidate(self, number: int | None) -> Self:
        return replace(self, rate=RATES[number or 0])

    def candidate_name(self, number: int) -> str:
        return f"rate = {RATES[number]:g}" if self.model.fit is None else "by fit"

    def own_objective(self, initial: Weights, contexts: Array, rewards: Array, plan: TrainingPlan) -> TorchObjective:
        return TorchObjective(self, initial, contexts, rewards, plan)

    def initial_weights(self, generator: np.random.Generator) -> tuple[Array, ...]:
        return tuple(self.model.weights)

    def values(self, weights: Weights, contexts: Array) -> Array:
        rows, roots = self.model.split(contexts)
        with PASS, torch.no_grad():
            parts = torch.as_tensor(rows, device=self.model.device).split(EVALUATED)
            values = [host(self.model.outputs(self.model.deciding(weights), part)) for part in parts]
        return np.asarray(roots * np.concatenate(values))

    def values_and_factors(self, weights: Weights, contexts: Array) -> tuple[Array, TorchFactors]:
        model = self.model
        with PASS:
            rows = torch.as_tensor(np.ascontiguousarray(model.split(contexts)[0]), device=model.device)
            u, pairs = compute(model.deciding(weights), model.forms, model.outputs, rows)
        pairs = [(a, d / self.output_scale) for a, d in pairs]
        pairs = pairs if model.on_device else [(host(a), host(d)) for a, d in pairs]
        return host(u), TorchFactors(model.forms, *zip(*pairs, strict=True))


class Module:
    """A torch module whose parameters explore: the model of a neural policy.

    The module maps n contexts, (n, *shape), to n numbers, (n,) or (n, 1): the reward, standardised in preset
    "practical". It is copied, and the caller's stays as it is.

    Parameters
    ----------
    net
        The module, in the mode in which it decides: after `net.eval()` where it has dropout or BatchNorm.
    shape
        The shape of one context, such as (1, 8, 8), or a dict of shapes by the names of `forward`'s arguments. None
        takes the inputs of the first Linear layer.
    ids
        Whether contexts are whole numbers, such as those of words, to which they are rounded; of a dict, the names of
        those that are.
    explore
        What Z is over: "requires_grad", every parameter that requires a gradient; "last", the last layer; or patterns
        of parameters' names, such as ["head.*"]. What requires no gradient is not trained either.
    fit
        A training of your own, `fit(module, contexts, rewards, weights, generator)`, in place of ours: it trains the
        module that it is given, from the initial weights, on tensors. Each update calls it twice, first without a fifth
        of the rewards, on which the noise is measured.
    batch
        Samples of a minibatch; None is a 16th of them, at least 128.
    device
        "cpu" or "cuda". On "cuda" scores, Gram matrices, triangular solves and training stay there, and sums are not
        the same from run to run bit for bit. Decisions are float64; training in float32 uses TF32 only after
        `torch.set_float32_matmul_precision("high")`, and records say so.

    Examples
    --------
    >>> from rarely import BatchNeuralUCB, OnDemand
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 1))
    >>> policy = BatchNeuralUCB(model=Module(net), schedule=OnDemand(), seed=0)
    >>> policy.select([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).means.shape
    (2,)
    """

    def __init__(
        self,
        net: Any,
        shape: Any = None,
        *,
        ids: Any = False,
        explore: Any = "requires_grad",
        fit: Callable[..., Any] | None = None,
        batch: int | None = None,
        device: Any = "cpu",
    ) -> None:
        if not isinstance(net, nn.Module) or not (fit is None or callable(fit)):
            raise InvalidInput(f"net must be a torch.nn.Module, and fit a function; got {shown(net)}, {shown(fit)}.")
        check_whole("batch", batch, 1, besides=(None,))
        self.fit, self.batch, self._loaded = fit, batch, list[tuple[Weights, Any]]()
        try:
            self._net, self.device = copy.deepcopy(net).cpu(), torch.empty(0, device=device).device
        except Exception as error:
            raise InvalidInput(f"net must be one that can be copied, and device one that is here: {error}") from error
        self.inputs = _read_shape(self._net, shape)
        self.ids = frozenset(self.inputs if ids is True else (ids,) if isinstance(ids, str) else ids or ())
        if not self.ids <= self.inputs.keys():
            raise InvalidInput(f"ids must be names of shape's, {', '.join(self.inputs)}; got {', '.join(self.ids)}.")
        self.dim = sum(math.prod(each) for each in self.inputs.values())
        named = (*self._net.named_parameters(), *self._net.named_buffers())
        self.trained = [name for name, each in named if each.requires_grad]
        self.names = [*self.trained, *(name for name, _ in named if name not in self.trained)]
        if any(nn.parameter.is_lazy(each) for _, each in named):
            raise InvalidInput("net must have all of its weights; call a lazy one on some contexts first.")
        self.weights, self.explored, probes = self.read(self._net, np.float64), self._explored(explore), self._probes()
        module, rows = self.deciding(self.weights), torch.as_tensor(probes, device=self.device)
        check_outputs(module, self.outputs, rows)
        self.forms, self.norm = forms_of(module, self.explored, self.outputs, rows), 1.0
        factors = self.network().values_and_factors(self.weights, np.column_stack((probes, np.ones(PROBES))))[1]
        self.norm = math.sqrt(float(factors.squared_norms.mean())) or 1.0
        KNOWN[json.dumps(self.settings() | {"norm": 1.0})] = self

    # --- contexts

    def contexts(self, values: Any) -> Any:
        """Return contexts, (…, *shape) or a dict of them, as rows of numbers, (…, d); rows stay as they are.

        The axes before `shape` of a dict's arrays are broadcast, so that arms may share an image.
        """
        if not isinstance(values, Mapping):
            values, shape = host(values) if torch.is_tensor(values) else values, self.inputs.get("", ())
            if np.shape(values)[-len(shape) :] != shape or len(shape) < 2:
                return values
            values = {"": values}
        if values.keys() != self.inputs.keys():
            raise InvalidContexts(f"contexts must have {', '.join(self.inputs)}; got {', '.join(map(str, values))}.")
        flat: list[Array] = []
        for name, shape in self.inputs.items():
            part = np.asarray(host(values[name]), np.float64)
            if part.shape[part.ndim - len(shape) :] != shape:
                raise InvalidContexts(f"{name or 'contexts'} must have shape {shape} at the end; got {part.shape}.")
            flat.append(part.reshape(*part.shape[: part.ndim - len(shape)], math.prod(shape)))
        lead = np.broadcast_shapes(*(each.shape[:-1] for each in flat))
        return np.concatenate([np.broadcast_to(each, (*lead, each.shape[-1])) for each in flat], axis=-1)

    def unpacked(self, rows: Any) -> Any:
        """Return rows, (n, d), as the tensor, or the tensors by name, that the module takes."""
        parts, start = {}, 0
        for name, shape in self.inputs.items():
            part = rows[:, start : start + math.prod(shape)].reshape(len(rows), *shape)
            parts[name] = part.round().long() if name in self.ids else part
            start += math.prod(shape)
        return parts.get("", parts)

    def split(self, contexts: Array) -> tuple[Array, Array]:
        """Return x and c of contexts (cx, c)."""
        rows, roots = contexts[:, :-1], contexts[:, -1]
        return (rows if (roots == 1).all() else rows / roots[:, None]), roots

    def outputs(self, called: Any, rows: Any) -> Any:
        """Return u of each row, (n,)."""
        parts = self.unpacked(rows)
        try:
            u = called(**parts) if isinstance(parts, dict) else called(parts)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput(
                f"net must take {len(rows)} contexts of shape {self.inputs.get('', self.inputs)} in {rows.dtype}: "
                f"{type(error).__name__}: {error}. Give shape=…, ids=True for whole numbers, or net.eval()."
            ) from error
        if not torch.is_tensor(u) or u.shape not in ((len(rows),), (len(rows), 1)):
            made = tuple(u.shape) if torch.is_tensor(u) else type(u).__name__
            raise InvalidInput(
                f"net must return one number for each context, a tensor of shape (n,) or (n, 1); of {len(rows)} "
                f"contexts it made {made}. Several outputs: give the arm as a part of the context, and return its own."
            )
        return u.reshape(len(rows))

    # --- weights

    def load(self, module: Any, weights: Weights) -> None:
        """Put weights into a module."""
        with torch.no_grad():
            for tensor, array in zip(self._tensors(module), weights, strict=True):
                tensor.copy_(torch.as_tensor(array))

    def read(self, module: Any, dtype: Any) -> tuple[Any, ...]:
        """Return the weights of a module, as arrays."""
        kind = getattr(torch, np.dtype(dtype).name)
        return tuple(each.detach().to("cpu", kind, copy=True).numpy() for each in self._tensors(module))

    def _tensors(self, module: Any) -> list[Any]:
        named = dict(module.named_parameters()) | dict(module.named_buffers())
        return [named[name] for name in self.names]

    def fresh(self, weights: Weights, dtype: Any = None, device: Any = None) -> Any:
        """Return a copy of the module with these weights, on the device."""
        module = copy.deepcopy(self._net).to(device or self.device, dtype)
        self.load(module, weights)
        return module

    def deciding(self, weights: Weights) -> Any:
        """Return the module in float64 with these weights, of which only what explores requires a gradient."""
        for loaded, module in self._loaded:
            if loaded is weights:
                return module
        if len(self._loaded) == LOADED:
            module = self._loaded.pop()[1]
            self.load(module, weights)
        else:
            module = self.fresh(weights, torch.float64).requires_grad_(False)
            for name in self.explored:
                module.get_parameter(name).requires_grad_(True)
        self._loaded.insert(0, (weights, module))
        return module

    @property
    def module(self) -> Any:
        """A copy of the module, with the weights of the version in use where it is `policy.model`."""
        return self.fresh(self.weights, device="cpu")

    def at(self, weights: Weights) -> Module:
        """Return the model with these weights."""
        other = copy.copy(self)
        other.weights = weights
        return other

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loaded": []}

    # --- what the core asks for

    def network(self, scaling: Any = "standard") -> TorchNetwork:
        """Return what computes values, features and objectives from weights."""
        return TorchNetwork(self.dim + 1, 2, scaling=scaling, model=self)

    @property
    def on_device(self) -> bool:
        """Whether features stay on a device, as tensors."""
        return bool(self.device.type != "cpu")

    @property
    def row(self) -> RowCost:
        """Numbers that a round keeps in the dual form of Z, and multiplications of an inner product."""
        return RowCost(sum(sum(form.stored) for form in self.forms), sum(form.products for form in self.forms))

    @property
    def factory(self) -> Callable[..., CovarianceFactory]:
        """What makes Z of the features."""
        stored, kind = tuple(form.stored for form in self.forms), partial(TorchFactors, self.forms)
        dual: Any = partial(Dual, inner=inner_products, rows=partial(FactorRows, stored, kind))
        if self.on_device:
            dual = partial(DeviceDual, forms=self.forms, device=self.device)
        return partial(CovarianceFactory, row=self.row, dual=dual)

    def settings(self) -> dict[str, Any]:
        """Return what a file keeps of the model besides its weights, as JSON."""
        shapes = {name: list(shape) for name, shape in self.inputs.items()}
        settings = {"shape": shapes, "ids": sorted(self.ids), "explore": self.explored, "batch": self.batch}
        return settings | {"norm": self.norm, "fit": _name_of(self.fit), "layers": self.layers}

    @property
    def layers(self) -> list[list[str]]:
        """Every layer, and every parameter and buffer, in words."""
        return _layers(self._net)

    def describe(self, rounds: int = 1000) -> str:
        """Return how each layer's features are held, and what each form of Z would take after that many rounds."""
        table = [(f.layer or ", ".join(f.names), f.parameters, f.kind, sum(f.stored)) for f in self.forms]
        table.append(("all that explores", sum(f.parameters for f in self.forms), "", self.row.numbers))
        lines = [f"{'layer':32} {'parameters':>12}  {'form':10} {'numbers a round':>15}"]
        lines += [f"{layer[:32]:32} {count:>12,}  {kind:10} {numbers:>15,}" for layer, count, kind, numbers in table]
        costs = prices(tuple(f.width for f in self.forms), rounds, self.row).values()
        return "\n".join([*lines, f"Z after {rounds:,} rounds:", *(f"  {cost}" for cost in costs)])

    # --- the first look at the module

    def _explored(self, explore: Any) -> list[str]:
        patterns = ["*"] if explore == "requires_grad" else [explore] if isinstance(explore, str) else explore
        if explore == "last":
            ruled = [f"{name}.*".lstrip(".") for name, each in self._net.named_modules() if has_rule(each)]
            patterns = [each for each in ruled if any(fnmatchcase(name, each) for name in self.trained)][-1:]
        listed = isinstance(patterns, list | tuple) and all(isinstance(each, str) for each in patterns)
        explored = [name for name in self.trained if listed and any(fnmatchcase(name, each) for each in patterns)]
        if not explored:
            raise InvalidInput(
                "explore must be 'requires_grad', 'last' or patterns of names, and leave a parameter that requires a "
                f"gradient, which are: {', '.join(self.trained) or 'none'}; got {explore!r}."
            )
        return explored

    def _probes(self) -> Array:
        """Return a few contexts of uniform numbers, (n, d)."""
        rng, parts = np.random.default_rng(0), []
        words = min((m.num_embeddings for m in self._net.modules() if isinstance(m, nn.Embedding)), default=1)
        for name, shape in self.inputs.items():
            size = (PROBES, math.prod(shape))
            parts.append(rng.integers(words, size=size) if name in self.ids else rng.uniform(0.05, 1, size))
        return np.hstack(parts).astype(np.float64)


def model_from(net: Any, saved: Any, arrays: Any) -> Module:
    """Return the model for a saved policy: that of a module or a model, or one that this process has made.

    Another architecture is refused by its first layer.
    """
    net = KNOWN.get(json.dumps(saved | {"norm": 1.0})) if net is None else net
    if not isinstance(net, Module | nn.Module):
        raise SnapshotError(
            "holds a policy whose model is code, which a file cannot hold. Make the same rarely.torch.Module before, "
            "or give it: load(path, model=net)."
        )
    layers = net.layers if isinstance(net, Module) else _layers(net)
    for mine, theirs in itertools.zip_longest(layers, saved["layers"], fillvalue=["", "missing"]):
        if mine != theirs:
            raise SnapshotError(
                f"holds a model whose {theirs[0] or mine[0]!r} is {theirs[1]}; in the module given it is "
                f"{mine[1] if mine[0] == theirs[0] else 'missing'}. Give the architecture that was saved."
            )
    if not isinstance(net, Module):
        shape = saved["shape"]
        net = Module(net, shape.get("", shape), **{name: saved[name] for name in ("ids", "explore", "batch")})
    if saved["fit"] != (name := _name_of(net.fit)):
        raise SnapshotError(f"holds a policy trained by fit = {saved['fit']}; got {name}: model=Module(net, fit=…).")
    model: Module = net.at(net.weights)
    model.norm = float(saved["norm"])  # that of the initial weights in the file
    return model


MODELS["rarely.torch"] = model_from


def _layers(net: Any) -> list[list[str]]:
    """Return every layer, and every parameter and buffer, in words."""
    layers = [[name, type(m).__name__ if any(m.children()) else repr(m)] for name, m in net.named_modules()]
    arrays = (*net.named_parameters(), *net.named_buffers())
    trained = ("without a gradient", "with a gradient")
    return layers + [[name, f"of shape {tuple(a.shape)} {trained[a.requires_grad]}"] for name, a in arrays]


def _name_of(fit: Any) -> str | None:
    return None if fit is None else getattr(fit, "__qualname__", type(fit).__qualname__)


def _read_shape(net: Any, shape: Any) -> dict[str, tuple[int, ...]]:
    if shape is None:
        first = next((m for m in net.modules() if isinstance(m, nn.Linear)), None)
        if first is None:
            raise InvalidInput("shape must be given, that of one context, because net has no Linear layer to ask.")
        shape = (first.in_features,)
    shapes = shape if isinstance(shape, Mapping) else {"": shape}
    read = {str(name): tuple(each) if isinstance(each, list | tuple) else (each,) for name, each in shapes.items()}
    for each in itertools.chain(*read.values()):
        check_whole("shape", each, 1)
    return read


class TorchObjective(Objective):
    """ℒ of a module that is trained in place, on its device; weights go in and come out as arrays."""

    def __init__(self, network: Any, initial: Weights, contexts: Array, rewards: Array, plan: TrainingPlan) -> None:
        self.network, self.ridge, self._rate, self._seed = network, plan.ridge, network.rate, plan.seed
        self.dtype, self.model, self._contexts = np.dtype(plan.precision).type, network.model, contexts
        self.initial = tuple(w.astype(self.dtype) for w in initial)
        self._module = self.model.fresh(initial, getattr(torch, plan.precision))
        self._trained = [self._module.get_parameter(name) for name in self.model.trained]
        self._start = [p.detach().clone() for p in self._trained]
        (x, c), s = self.model.split(contexts), network.output_scale
        self._x, self._c, self.targets = (
            torch.as_tensor(np.ascontiguousarray(each, self.dtype), device=self.model.device)
            for each in (x, c / s, rewards / s)
        )
        self._parts: list[Any] = [slice(s, s + EVALUATED) for s in range(0, len(rewards), EVALUATED)]
        self._steps: Iterator[None] = iter(())

    @property
    def loops(self) -> str:
        tf32 = self.dtype is np.float32 and torch.get_float32_matmul_precision() != "highest"
        return f"torch, {self.model.device}, {'TF32' if tf32 else self.dtype.__name__}"

    def loss(self, weights: Weights) -> float:
        self.model.load(self._module, weights)
        return self._loss()

    def _loss(self) -> float:
        with torch.no_grad():
            moved = sum(((p - q) ** 2).sum().double() for p, q in zip(self._trained, self._start, strict=True))
            return float(self.ridge * moved / 2 + sum(self._squares(part).double() for part in self._parts))

    def _squares(self, part: Any) -> Any:
        u = self.model.outputs(self._module, self._x[part])
        return ((self._c[part] * u - self.targets[part]) ** 2).sum() / 2

    def _gradient(self, parts: list[Any], scale: float) -> tuple[float, list[Any]]:
        """Return Σ over some samples, and the gradient of scale·Σ + penalty."""
        total, gradient = 0.0, [self.ridge * (p.detach() - q) for p, q in zip(self._trained, self._start, strict=True)]
        for part in parts:
            loss = scale * self._squares(part)
            added = torch.autograd.grad(loss, self._trained, allow_unused=True, materialize_grads=True)
            torch._foreach_add_(gradient, list(added))
            total = total + loss.detach()
        return total, gradient

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        self.model.load(self._module, start)
        for _ in range(steps):
            total, gradient = self._gradient(self._parts, 1.0)
            if not float(total) <= hopeless:
                break
            with torch.no_grad():
                torch._foreach_add_(self._trained, gradient, alpha=-step)
        return self.model.read(self._module, self.dtype), self._loss()

    def descend_with_momentum(
        self, start: MomentumState, step: float, steps: int, hopeless: float
    ) -> tuple[MomentumState, float]:
        """Take J steps of Adam on minibatches; `step` is the part of the rate that earlier attempts left."""
        fit = self.model.fit
        if not start.steps:
            self.model.load(self._module, self.initial)
            self._steps = self._adam(self._rate * step) if fit is None else self._fitted()
        for _ in range(steps):
            next(self._steps)
        weights, loss = self.model.read(self._module, self.dtype), self._loss()
        # The user's loss may be another than ours, so that ours may rise.
        loss = loss if fit is None or not math.isfinite(loss) else min(loss, self.loss(self.initial))
        return MomentumState(weights, weights, start.steps + steps), loss

    def _adam(self, rate: float) -> Iterator[None]:
        """Take one step each time that the next one is asked for."""
        optimiser = torch.optim.Adam(self._trained, lr=rate, fused=True)
        batch = self.model.batch or max(BATCH, math.ceil(self.samples / BATCHES))
        order = torch.Generator().manual_seed(self._seed)
        while True:
            shuffled = torch.randperm(self.samples, generator=order).to(self.model.device)
            for part in shuffled.split(batch) if batch < self.samples else [slice(None)]:
                count = batch if batch < self.samples else self.samples
                gradient = self._gradient([part], self.samples / count)[1]
                for parameter, each in zip(self._trained, gradient, strict=True):
                    parameter.grad = each
                optimiser.step()
                yield

    def _fitted(self) -> Iterator[None]:
        """Train by the user's function; however many steps are asked for, it is called once."""
        seed, device = self._seed, self.model.device
        with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
            torch.manual_seed(seed)
            generator, weights = torch.Generator(device).manual_seed(seed), (self._c * self.network.output_scale) ** 2
            self.model.fit(self._module, self.model.unpacked(self._x), self.targets / self._c, weights, generator)
        if not all(np.isfinite(w).all() for w in self.model.read(self._module, self.dtype)):
            raise InvalidInput("fit must leave finite weights; some are not. The policy has not changed.")
        while True:
            yield

    def top_curvature(self, start: Weights | None) -> tuple[float, Weights | None]:
        if self._rate is not None or not self.samples:
            return 1.0 - self.ridge, None  # Adam's rate does not depend on it
        some = self._contexts[:: -(-self.samples // CURVED)]
        features = self.network.values_and_factors(self.initial, some)[1]
        kernel = host(inner_products(features, features)) * np.outer(some[:, -1], some[:, -1])
        vector = np.ones(len(some))
        for _ in range(MAX_ITERATIONS):
            vector = kernel @ (vector / np.linalg.norm(vector))
        return float(np.linalg.norm(vector)) * self.samples / len(some), None
