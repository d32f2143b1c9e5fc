"""`Module`: a torch module as the model of a policy, `TorchNetwork`: `Network` with one inside, and its training.

    ℒ/s² = Σ w_i (u(x_i; θ) − r_i/s)²/2 + λ‖θ − θ_0‖²/2        u = f/s

It is trained by full gradients as in the paper, by minibatches of Adam where it tunes itself, or by your loop. A
context comes as (cx, c) and stands for c·u(x), c² = w: a weighted sample is a scaled one, as in the core.

Weights are a tuple of float64 arrays, one for each parameter and buffer, so that a version is a value, as in the core.
Whole numbers of more than 16 bits are held in three parts, which training in float32 leaves exact.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from rarely.extend import Array, CovarianceFactory, Dual, FactorRows, RowCost, prices
from rarely.extend.checks import InvalidContexts, InvalidInput, ModelWarning, SnapshotError, check_whole, shown
from rarely.extend.provisional import MAX_ITERATIONS, MODELS, MomentumState, Network, Objective, TrainingPlan, Weights
from rarely.torch.factors import DeviceDual, TorchFactors, host, inner_products
from rarely.torch.gradients import PASS, check_apart, check_gradients, check_outputs, compute, forms_of, has_rule

BATCH, BATCHES = 128, 16  # samples of a minibatch, at least, and minibatches of a pass through all samples, at most
EVALUATED = 4096  # samples that are evaluated at a time
CURVED = 500  # samples whose Gram matrix tells the curvature
PROBES = 3  # contexts of each of two distributions on which a new model is tried
SAME = 1e-6  # the difference up to which numbers of two machines are those of one module
CHECKED = 4  # contexts of a call that are compared with autograd, at calls 1, 2, 4, 8, and so on
HALVES = 1e-7  # the difference, over the mean |u|, from which contexts of a training change with their company
LARGEST_ID = 2**50  # ids up to this are whole numbers after a sample's weight has scaled them, too
PART_BITS = 21  # bits of a part of a whole number
RATE = 0.01  # Adam's learning rate, where a policy tunes itself
LOADED = 2  # versions of the module that are kept ready to decide


@dataclass(frozen=True, eq=False)
class TorchNetwork(Network):
    """A torch module in the place of the perceptron: a function of weights and contexts.

    Contexts come with a constant, (x, 1), or (cx, c) where samples are weighted.
    """

    model: Any = None
    rate: float | None = None  # Adam's learning rate; None where gradient descent takes a given number of steps
    skips = (0.0,)

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

    def tuned(self, skip: float) -> Self:
        return replace(self, rate=RATE)

    def kernel(self, weights: Weights, contexts: Array) -> Array:
        factors = self.values_and_factors(weights, contexts)[1]
        return np.asarray(host(inner_products(factors, factors)), np.float64)

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
            module, sizes = model.deciding(weights), [form.stored for form in model.forms]
            u, pairs = rows.new_zeros(0), [(rows.new_zeros(0, a), rows.new_zeros(0, d)) for d, a in sizes]
            if len(rows):  # few modules take no contexts at all
                u, pairs = compute(module, model.forms, model.outputs, rows)
                model.check_call(module, rows, u, pairs)
        pairs = [(a, d / self.output_scale) for a, d in pairs]
        pairs = pairs if model.on_device else [(host(a), host(d)) for a, d in pairs]
        return host(u), TorchFactors(model.forms, *zip(*pairs, strict=True))


class Module:
    """A torch module whose parameters explore: the model of a neural policy.

    The module maps n contexts, (n, *shape), to n numbers, (n,) or (n, 1): the reward, standardised in preset
    "practical". It is copied, and the caller's stays as it is. Of a compiled module the original decides and is
    trained; one in float16 or bfloat16 is held in float32. Without `fit` it is trained in the mode in which it
    decides, so that dropout drops nothing and BatchNorm keeps its running statistics, which a warning says.

    Parameters
    ----------
    net
        The module, in the mode in which it decides: after `net.eval()` where it has dropout or BatchNorm.
    shape
        The shape of one context, such as (1, 8, 8), or a dict of shapes by the names of `forward`'s arguments. None
        takes the inputs of the first Linear layer.
    ids
        Whether contexts are whole numbers up to 2⁵⁰, such as those of words, which the module gets as int64; of a dict,
        the names of those that are.
    explore
        What Z is over: "requires_grad", every parameter that requires a gradient; "last", the last layer; or patterns
        of parameters' names, such as ["head.*"]. What requires no gradient is not trained either.
    fit
        A training of your own, `fit(module, contexts, rewards, weights, generator)`, in place of ours: it trains the
        module that it is given, from the initial weights, on tensors.
    batch
        Samples of a minibatch; None is a 16th of them, at least 128.
    examples
        Some contexts as they come, on which the forms of features are found and checked. None draws some, of uniform
        and of normal numbers. Some decisions are compared with autograd; an error may ask for examples.
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
        examples: Any = None,
        device: Any = "cpu",
    ) -> None:
        if not isinstance(net, nn.Module) or not (fit is None or callable(fit)):
            raise InvalidInput(f"net must be a torch.nn.Module, and fit a function; got {shown(net)}, {shown(fit)}.")
        check_whole("batch", batch, 1, besides=(None,))
        self.fit, self.batch, self._loaded, self._calls = fit, batch, list[tuple[Weights, Any]](), [0]
        if any(isinstance(each, torch.jit.ScriptModule) for each in net.modules()):
            raise InvalidInput("net must have layers whose gradients can be read: give the module, before TorchScript.")
        try:
            self._net, self.device = _own_copy(net), torch.empty(0, device=device).device
            torch.empty(1, device=device).cpu()  # what holds no numbers, as "meta", raises
        except Exception as error:
            raise InvalidInput(f"net must be one that can be copied, and device one that is here: {error}") from error
        self.inputs = _read_shape(self._net, shape)
        self.ids = frozenset(self.inputs if ids is True else (ids,) if isinstance(ids, str) else ids or ())
        if not self.ids <= self.inputs.keys():
            raise InvalidInput(f"ids must be names of shape's, {', '.join(self.inputs)}; got {', '.join(self.ids)}.")
        ends = [0, *itertools.accumulate(map(math.prod, self.inputs.values()))]
        self.columns = dict(zip(self.inputs, itertools.starmap(slice, itertools.pairwise(ends)), strict=True))
        self.dim = ends[-1]
        named = (*self._net.named_parameters(), *self._net.named_buffers())
        self.trained = [name for name, each in named if each.requires_grad]
        self.names = [*self.trained, *(name for name, _ in named if name not in self.trained)]
        if any(nn.parameter.is_lazy(each) for _, each in named):
            raise InvalidInput("net must have all of its weights; call a lazy one on some contexts first.")
        if any(each.is_complex() or each.is_quantized for _, each in named):
            raise InvalidInput("net must have weights of real numbers, neither complex nor quantised.")
        self.weights, self.explored, probes = self.read(self._net, np.float64), self._explored(explore), self._probes()
        module, rows = self.deciding(self.weights), torch.as_tensor(probes, device=self.device)
        self.probed = self.values_at_probes(self.weights)
        rows = rows[[i for i, u in enumerate(self.probed) if i < PROBES or u is not None]]
        if examples is not None:
            given = np.asarray(self.contexts(examples), np.float64).reshape(-1, self.dim)
            rows = torch.cat((rows, torch.as_tensor(given, device=self.device)))
        check_outputs(module, self.outputs, rows)
        self.forms, self.norm = forms_of(module, self.explored, self.outputs, rows), 1.0
        with_constant = np.column_stack((probes[:PROBES], np.ones(PROBES)))
        norms = self.network().values_and_factors(self.weights, with_constant)[1].squared_norms
        self.norm = math.sqrt(float(norms.mean())) or 1.0
        self._calls[0] = 0
        if fit is None:
            self._announce_modes()

    @property
    def on_device(self) -> bool:
        """Whether features stay on another device, as tensors."""
        return bool(self.device.type != "cpu")

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

    def unpacked(self, rows: Any, dtype: Any = None) -> dict[str, Any]:
        """Return rows, (n, d), as the tensors that the module takes, by name: ids as int64, all else in `dtype`."""
        parts = {name: rows[:, place].reshape(len(rows), *self.inputs[name]) for name, place in self.columns.items()}
        return {name: x.round().long() if name in self.ids else x.to(dtype or x.dtype) for name, x in parts.items()}

    def split(self, contexts: Array) -> tuple[Array, Array]:
        """Return x and c of contexts (cx, c)."""
        rows, roots = contexts[:, :-1], contexts[:, -1]
        rows = rows if (roots == 1).all() else rows / roots[:, None]
        for part in (rows[:, place] for name, place in self.columns.items() if name in self.ids):
            plain = part[roots == 1]
            if (np.abs(part) > LARGEST_ID).any() or (plain != np.rint(plain)).any():
                raise InvalidContexts("ids must be whole numbers up to 2⁵⁰. Number them, or give their digits apart.")
        return rows, roots

    def outputs(self, called: Any, rows: Any) -> Any:
        """Return u, (n,), of rows or of what `unpacked` returns."""
        parts = rows if isinstance(rows, dict) else self.unpacked(rows)
        count = len(next(iter(parts.values())))
        try:
            u = called(parts[""]) if "" in parts else called(**parts)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise InvalidInput(
                f"net must take {count} contexts of shape {self.inputs.get('', self.inputs)}: "
                f"{type(error).__name__}: {error}. Give shape=…, ids=True for whole numbers, or net.eval()."
            ) from error
        if not torch.is_tensor(u) or u.shape not in ((count,), (count, 1)):
            made = tuple(u.shape) if torch.is_tensor(u) else type(u).__name__
            raise InvalidInput(
                f"net must return one number for each context, a tensor of shape (n,) or (n, 1); of {count} "
                f"contexts it made {made}. Several outputs: give the arm as a part of the context, and return its own."
            )
        return u.reshape(count)

    def check_call(self, module: Any, rows: Any, u: Any, pairs: Any) -> None:
        """Raise InvalidInput unless u and features are finite and, now and then, those of autograd."""
        finite = u.isfinite()
        for part in itertools.chain(*pairs):
            finite = finite & part.isfinite().all(1)
        if not finite.all():
            bad = int(torch.nonzero(~finite)[0])
            raise InvalidContexts(
                "net must return finite numbers with finite gradients; of the context "
                f"{shown(rows[bad].tolist())} it made {float(u[bad]):g}, or such a gradient."
            )
        calls = self._calls[0] + 1
        if calls & (calls - 1) == 0 and len(rows):
            some = sorted({round(i) for i in np.linspace(0, len(rows) - 1, CHECKED)})
            parts = [(a[some], d[some]) for a, d in pairs]
            check_gradients(module, self.forms, self.outputs, rows[some], u[some], parts)
        self._calls[0] = calls

    def check_samples(self, weights: Weights, rows: Array) -> None:
        """Raise InvalidInput unless u of some contexts of a training is what each half of them gives alone."""
        some = torch.as_tensor(rows[:: max(1, -(-len(rows) // EVALUATED))], device=self.device)
        if len(some) > 1:
            module = self.fresh(weights, torch.float64)
            with torch.no_grad():
                u = self.outputs(module, some)
            # One of so many may be a small difference of large numbers, which another order of sums changes.
            check_apart(module, self.outputs, some.chunk(2), u, HALVES * float(u[u.isfinite()].abs().sum()) / len(u))

    # --- weights

    def load(self, module: Any, weights: Weights) -> None:
        """Put weights into a module."""
        with torch.no_grad():
            for tensor, array in zip(self._tensors(module), weights, strict=True):
                tensor.copy_(_joined(array) if _is_wide(tensor) else torch.as_tensor(array))

    def read(self, module: Any, dtype: Any) -> tuple[Any, ...]:
        """Return the weights of a module, as arrays."""
        kind = getattr(torch, np.dtype(dtype).name)
        tensors = (_parts(each) if _is_wide(each) else each.detach() for each in self._tensors(module))
        return tuple(each.to("cpu", kind, copy=True).numpy() for each in tensors)

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
        return self.__dict__ | {"_loaded": [], "_calls": [0]}

    # --- what the core asks for

    def network(self, scaling: Any = "standard") -> TorchNetwork:
        """Return what computes values, features and objectives from weights."""
        return TorchNetwork(self.dim + 1, 2, scaling=scaling, model=self)

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
        fit = None if self.fit is None else getattr(self.fit, "__qualname__", type(self.fit).__qualname__)
        given = {"shape": shapes, "ids": sorted(self.ids), "explore": self.explored, "batch": self.batch, "fit": fit}
        forms = [[form.layer, form.kind] for form in self.forms]
        return given | {"norm": self.norm, "layers": _layers(self._net), "forms": forms, "probed": self.probed}

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
        """Return a few contexts of uniform numbers and as many of normal ones, (n, d)."""
        rng, both = np.random.default_rng(0), []
        words = min((m.num_embeddings for m in self._net.modules() if isinstance(m, nn.Embedding)), default=1)
        sizes = {name: (PROBES, math.prod(shape)) for name, shape in self.inputs.items()}
        for drawn in (partial(rng.uniform, 0.05, 1), partial(rng.normal, 0, 1)):
            both.append([rng.integers(words, size=n) if name in self.ids else drawn(n) for name, n in sizes.items()])
        return np.vstack([np.hstack(parts) for parts in both]).astype(np.float64)

    def values_at_probes(self, weights: Weights) -> list[float | None]:
        """Return u of every probe alone; None where it, or its gradient, is no finite number."""
        module, found = self.deciding(weights), list[float | None]()
        for row in torch.as_tensor(self._probes(), device=self.device)[:, None]:
            found.append(None)
            with PASS, suppress(InvalidInput, RuntimeError):  # a module may take positive numbers alone
                u = self.outputs(module, row).sum()
                gradients = torch.autograd.grad(u, [*map(module.get_parameter, self.explored)], allow_unused=True)
                if all(each is None or each.isfinite().all() for each in (u, *gradients)):
                    found[-1] = float(u.detach())
        return found

    def _announce_modes(self) -> None:
        """Warn of layers that the library's training leaves as they are while a policy decides."""
        kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase, nn.MultiheadAttention)
        layers = ((name, each) for name, each in self._net.named_modules() if isinstance(each, kinds))
        if some := [name or "net" for name, each in layers if getattr(each, "p", getattr(each, "dropout", 1.0))]:
            warnings.warn(
                f"net is trained in the mode in which it decides: in {', '.join(some)} nothing is dropped, and running "
                "statistics stay as they are. Give fit=… to train them otherwise.",
                ModelWarning,
                stacklevel=3,
            )


def model_from(net: Any, saved: Any, arrays: Any) -> Module:
    """Return the model for a saved policy, that of a module or a model, if it makes of the weights what it made.

    Another architecture is refused by its first layer, and another `forward` by its values at the probes.
    """
    if not isinstance(net, Module | nn.Module):
        raise SnapshotError(
            f"holds a policy whose model is code, which a file cannot hold; got {shown(net)}. Give the module: "
            "load(path, model=net), Study.open(storage, model=net), or --import MODULE:NAME of a command."
        )
    layers = _layers(net._net if isinstance(net, Module) else _own_copy(net))
    for mine, theirs in itertools.zip_longest(layers, saved["layers"], fillvalue=["", "missing"]):
        if mine != theirs:
            raise SnapshotError(
                f"holds a model whose {theirs[0] or mine[0]!r} is {theirs[1]}; in the module given it is "
                f"{mine[1] if mine[0] == theirs[0] else 'missing'}. Give the architecture that was saved."
            )
    if not isinstance(net, Module):
        shape = saved["shape"]
        net = Module(net, shape.get("", shape), **{name: saved[name] for name in ("ids", "explore", "batch")})
    for name in ("shape", "ids", "explore", "fit", "forms"):
        if saved[name] != (mine := net.settings()[name]):
            argument = "examples" if name == "forms" else name
            raise SnapshotError(
                f"holds a model with {name} = {shown(saved[name])}; got {shown(mine)}. Make it as it was made: "
                f"model=Module(net, {argument}=…)."
            )
    initial = tuple(arrays[f"learner.initial{i}"] for i in range(len(net.weights)))
    if [each.shape for each in initial] != [each.shape for each in net.weights]:
        raise SnapshotError("must hold weights of the shapes that its layers have. Use a backup.")
    values = net.values_at_probes(initial)
    found, expected = (np.array([math.nan if u is None else u for u in some]) for some in (values, saved["probed"]))
    if not np.allclose(found, expected, SAME, SAME, equal_nan=True):
        raise SnapshotError(
            f"holds a model that made {shown(saved['probed'])} of some contexts with its first weights; the module "
            f"given makes {shown(values)}. Its forward must be the one that was saved."
        )
    model: Module = net.at(net.weights)
    model.norm, model.probed = float(saved["norm"]), saved["probed"]  # those of the initial weights in the file
    return model


MODELS["rarely.torch"] = model_from


def _own_copy(net: Any) -> Any:
    """Return a copy of a module as it was before `torch.compile`, with at least the digits of float32."""
    net = copy.deepcopy(getattr(net, "_orig_mod", net)).cpu()
    for module in list(net.modules()):
        for name, child in module.named_children():
            if hasattr(child, "_orig_mod"):
                setattr(module, name, child._orig_mod)
    for tensor in (*net.parameters(), *net.buffers()):
        if tensor.dtype in (torch.float16, torch.bfloat16):
            tensor.data = tensor.data.float()
    return net


def _is_wide(tensor: Any) -> bool:
    """Return whether a tensor has whole numbers that float32 might round."""
    return tensor.dtype in (torch.int32, torch.int64)


def _parts(tensor: Any) -> Any:
    """Return whole numbers in three parts, the highest first, each of which float32 holds."""
    whole, below = tensor.detach().long(), (1 << PART_BITS) - 1
    return torch.stack((whole >> 2 * PART_BITS, (whole >> PART_BITS) & below, whole & below))


def _joined(parts: Any) -> Any:
    """Return the whole numbers of three parts."""
    high, middle, low = torch.as_tensor(parts).long()
    return (high << 2 * PART_BITS) + (middle << PART_BITS) + low


def _layers(net: Any) -> list[list[str]]:
    """Return every layer, and every parameter and buffer, in words."""
    layers = [[name, type(m).__name__ if any(m.children()) else repr(m)] for name, m in net.named_modules()]
    arrays = (*net.named_parameters(), *net.named_buffers())
    trained = ("without a gradient", "with a gradient")
    return layers + [[name, f"of shape {tuple(a.shape)} {trained[a.requires_grad]}"] for name, a in arrays]


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
        self.initial, self._exact = tuple(w.astype(self.dtype) for w in initial), initial
        kind = getattr(torch, plan.precision)
        self._module = self.model.fresh(initial, kind)
        self._trained = [self._module.get_parameter(name) for name in self.model.trained]
        self._start = [p.detach().clone() for p in self._trained]
        (x, c), s = self.model.split(contexts), network.output_scale
        self.model.check_samples(initial, x)
        rows, c, r = (torch.tensor(each, device=self.model.device) for each in (x, c / s, rewards / s))
        self._x, self._c, self.targets = self.model.unpacked(rows, kind), c.to(kind), r.to(kind)
        self._parts: list[Any] = [slice(s, s + EVALUATED) for s in range(0, len(rewards), EVALUATED)]
        self._steps: Iterator[None] = iter(())
        self._bound = math.inf  # the loss that is reported at most

    @property
    def loops(self) -> str:
        tf32 = self.dtype is np.float32 and torch.get_float32_matmul_precision() != "highest"
        return f"torch, {self.model.device}, {'TF32' if tf32 else self.dtype.__name__}"

    def loss(self, weights: Weights | None = None) -> float:
        """Return ℒ of the weights, or of those that the module has."""
        if weights is not None:
            self.model.load(self._module, weights)
        with torch.no_grad():
            moved = sum(((p - q) ** 2).sum().double() for p, q in zip(self._trained, self._start, strict=True))
            return float(self.ridge * moved / 2 + sum(self._squares(part).double() for part in self._parts))

    def _squares(self, part: Any) -> Any:
        u = self.model.outputs(self._module, {name: each[part] for name, each in self._x.items()})
        return ((self._c[part] * u - self.targets[part]) ** 2).sum() / 2

    def _gradient(self, loss: Any) -> Any:
        return torch.autograd.grad(loss, self._trained, allow_unused=True, materialize_grads=True)

    def descend(self, start: Weights, step: float, steps: int, hopeless: float) -> tuple[Weights, float]:
        self.model.load(self._module, start)
        for _ in range(steps):
            total, gradient = (
                0.0,
                [self.ridge * (p.detach() - q) for p, q in zip(self._trained, self._start, strict=True)],
            )
            for part in self._parts:
                loss = self._squares(part)
                gradient = [some + more for some, more in zip(gradient, self._gradient(loss), strict=True)]
                total = total + loss.detach()
            if not float(total) <= hopeless:
                break
            with torch.no_grad():
                for parameter, each in zip(self._trained, gradient, strict=True):
                    parameter.sub_(each, alpha=step)
        return self._weights(), self.loss()

    def descend_with_momentum(
        self, start: MomentumState, step: float, steps: int, hopeless: float
    ) -> tuple[MomentumState, float]:
        """Take J steps of Adam on minibatches; `step` is the part of the rate that earlier attempts left."""
        fit = self.model.fit
        if not start.steps:
            self.model.load(self._module, self.initial)
            # The loss of the user's function may be another than ours, so that ours may rise.
            self._bound = math.inf if fit is None else self.loss()
            taken = self._adam(self._rate * step) if fit is None else self._fitted()
            self._steps = taken if self.samples else itertools.repeat(None)  # of nothing, nothing is learned
        for _ in range(steps):
            next(self._steps)
        weights, loss = self._weights(), self.loss()
        loss = min(loss, self._bound) if math.isfinite(loss) else loss
        return MomentumState(weights, weights, start.steps + steps), loss

    def _weights(self) -> Weights:
        """Return the module's weights; what training has left alone, such as buffers, keeps its float64 digits."""
        read = self.model.read(self._module, self.dtype)
        kept = zip(read, self.initial, self._exact, strict=True)
        return tuple(exact if np.array_equal(now, start) else now for now, start, exact in kept)

    def _adam(self, rate: float) -> Iterator[None]:
        """Take one step each time that the next one is asked for."""
        # The penalty's gradient λ(θ − θ_0) is weight decay less a constant.
        optimiser = torch.optim.Adam(self._trained, lr=rate, weight_decay=self.ridge, fused=True)
        pulls = [self.ridge * start for start in self._start]
        batch = self.model.batch or max(BATCH, math.ceil(self.samples / BATCHES))
        order = torch.Generator().manual_seed(self._seed)
        while True:
            shuffled = torch.randperm(self.samples, generator=order).to(self.model.device)
            count = min(batch, self.samples)
            for part in shuffled.split(batch) if batch < self.samples else [slice(None)]:
                gradient = self._gradient(self.samples / count * self._squares(part))
                for parameter, each, pull in zip(self._trained, gradient, pulls, strict=True):
                    parameter.grad = each - pull
                optimiser.step()
                yield

    def _fitted(self) -> Iterator[None]:
        """Train by the user's function; however many steps are asked for, it is called once."""
        seed, device = self._seed, self.model.device
        with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
            torch.manual_seed(seed)
            generator, weights = torch.Generator(device).manual_seed(seed), (self._c * self.network.output_scale) ** 2
            modes = [(each, each.training) for each in self._module.modules()]
            self.model.fit(self._module, self._x.get("", self._x), self.targets / self._c, weights, generator)
            for each, mode in modes:  # or the loss would be random, and change running statistics
                each.training = mode
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
