"""Features φ = ∂u/∂θ of a torch module, from one forward and one backward pass over all contexts of a call.

A hook on each layer with a rule keeps what the layer received, a, and what it returned; the gradient of Σu with respect
to the latter is δ, because no context depends on another. What has no rule, is shared between layers, or is used beside
its layer goes through `torch.func` and, where that fails, context by context. Which is not assumed but measured:
when a model is made, the features of a few contexts are compared with autograd's.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from rarely.extend.checks import InvalidInput
from rarely.torch.factors import Form, TorchFactors

AGREE = 1e-9  # the relative difference up to which a rule's gradient is autograd's
CHUNK_NUMBERS = 2**24  # numbers in the gradients that `torch.func` computes at a time
PASS = threading.RLock()  # hooks are on the module during a pass, so passes take turns
NORMS: dict[type, Callable[[Any, Any], Any]] = {
    nn.LayerNorm: lambda m, x: functional.layer_norm(x, m.normalized_shape, None, None, m.eps),
    nn.RMSNorm: lambda m, x: functional.rms_norm(x, m.normalized_shape, None, m.eps),
    nn.GroupNorm: lambda m, x: functional.group_norm(x, m.num_groups, None, None, m.eps),
    nn.BatchNorm1d: lambda m, x: functional.batch_norm(x, m.running_mean, m.running_var, eps=m.eps),
    nn.BatchNorm2d: lambda m, x: functional.batch_norm(x, m.running_mean, m.running_var, eps=m.eps),
}
"""What a normalisation returns before its weights."""
MIXES = (
    "net must not mix the contexts of a call, as BatchNorm does in training mode: what it returns for one of them "
    "changes with another. Call net.eval() first, or use LayerNorm or GroupNorm."
)
Outputs = Callable[[Any, Any], Any]  # (module, rows (n, d)) to u, (n,)


def has_rule(module: Any) -> bool:
    """Return whether a layer's features follow from what it receives and what comes back."""
    if type(module) is nn.Embedding:
        return module.max_norm is None and not module.scale_grad_by_freq
    if type(module) in (nn.Conv1d, nn.Conv2d):
        return module.groups == 1 and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    return type(module) is nn.Linear or type(module) in NORMS


def compute(module: Any, forms: tuple[Form, ...], outputs: Outputs, rows: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return u, (n,), and a and δ of every form."""
    with PASS:
        u, calls = _passed(module, [form.layer for form in forms if form.layer], outputs, rows)
        return u, [
            _stored(module.get_submodule(form.layer), form, calls.get(form.layer, []), len(rows))
            if form.layer
            else _dense(_without_rule(module, form, outputs, rows))
            for form in forms
        ]


def _dense(gradients: Any) -> tuple[Any, Any]:
    return gradients.flatten(1), gradients.new_ones((len(gradients), 1))


def _passed(module: Any, layers: Iterable[str], outputs: Outputs, rows: Any) -> tuple[Any, dict[str, list[Any]]]:
    """Return u, and what each layer received and δ of every call, in the order of the layers' last calls."""
    calls: dict[str, list[Any]] = {}

    def keeper(name: str) -> Callable[..., Any]:
        def keep(layer: Any, received: Any, named: Any, returned: Any) -> Any:
            calls[name] = [*calls.pop(name, []), ((*received, *named.values())[0].detach(), returned)]
            return returned.clone()  # what follows may change it in place, and δ is the gradient before that

        return keep

    hooks = [module.get_submodule(name).register_forward_hook(keeper(name), with_kwargs=True) for name in layers]
    try:
        u = outputs(module, rows)
    finally:
        for hook in hooks:
            hook.remove()
    ends = [end for seen in calls.values() for _, end in seen if end.requires_grad and u.requires_grad]
    signals = iter(torch.autograd.grad(u.sum(), ends, allow_unused=True, materialize_grads=True) if ends else ())
    return u.detach(), {
        layer: [(x, next(signals) if y.requires_grad and u.requires_grad else torch.zeros_like(y)) for x, y in seen]
        for layer, seen in calls.items()
    }


def _pairs(module: Any, calls: list[Any], count: int, bias: bool) -> tuple[Any, Any]:
    """Return a, (n, S, in), and δ, (n, S, out), of all calls of a layer; of an embedding i, (n, S, 1)."""
    inputs, signals = [], []
    for x, d in calls:
        if isinstance(module, nn.Conv1d | nn.Conv2d):
            flat = isinstance(module, nn.Conv1d)
            each = (module.kernel_size, module.dilation, module.padding, module.stride)
            window = [(one, *size) if flat else size for one, size in zip((1, 1, 0, 1), each, strict=True)]
            x, d = functional.unfold(x.unsqueeze(2) if flat else x, *window).mT, d.flatten(2).mT
        elif isinstance(module, nn.Embedding):
            d = d if module.padding_idx is None else d * (x != module.padding_idx)[..., None]
            x = x.reshape(count, -1, 1).to(d.dtype)
        inputs.append(x.reshape(count, -1, x.shape[-1]))
        signals.append(d.reshape(count, -1, d.shape[-1]))
    a = torch.cat(inputs, 1)
    return (torch.cat((a, torch.ones_like(a[..., :1])), 2) if bias else a), torch.cat(signals, 1)


def _stored(module: Any, form: Form, calls: list[Any], count: int) -> tuple[Any, Any]:
    """Return a and δ of a layer with a rule."""
    if not calls or any(len(x) != count for x, _ in calls):
        raise InvalidInput(
            f"layer {form.layer!r} must see each of {count} contexts, as when the model was made; it saw "
            f"{', '.join(str(len(x)) for x, _ in calls) or 'none'}. Mask with torch.where, or leave it out of explore."
        )
    if type(module) in NORMS:
        axes = len(getattr(module, "normalized_shape", ()))  # weights belong to the last axes, or to the channels
        parts: list[Any] = [0.0 for _ in form.names]
        for x, d in calls:
            for i, name in enumerate(form.names):
                each = d * NORMS[type(module)](module, x) if name.endswith("weight") else d
                each = each.unsqueeze(1).flatten(1, -axes - 1) if axes else each.unsqueeze(-1).flatten(2).mT
                parts[i] = parts[i] + each.sum(1).flatten(1)
        return _dense(torch.cat(parts, 1))
    a, d = _pairs(module, calls, count, bias=len(form.names) == 2)
    if form.kind != "dense":
        if a.shape[1] != form.positions:
            raise InvalidInput(
                f"layer {form.layer!r} must see {form.positions} positions of a context, as when the model was made; "
                f"it saw {a.shape[1]}. Pad contexts to one length."
            )
        return a.flatten(1), d.flatten(1)
    if isinstance(module, nn.Embedding):
        out = d.new_zeros((count, module.num_embeddings, d.shape[2]))
        return _dense(out.scatter_add_(1, a.long().expand(d.shape), d))
    return _dense(torch.einsum("nso,nsi->noi", d, a))


def _without_rule(module: Any, form: Form, outputs: Outputs, rows: Any) -> Any:
    """Return gradients written out, (n, p), by `torch.func` or context by context."""
    parameters = {name: module.get_parameter(name) for name in form.names}
    if form.kind == "row by row":
        return torch.cat([each.flatten(1) for each in _by_autograd(parameters.values(), module, outputs, rows)], 1)

    def value(some: Any, row: Any) -> Any:
        return outputs(lambda *args, **named: torch.func.functional_call(module, some, args, named), row[None])[0]

    chunk = max(1, CHUNK_NUMBERS // form.parameters)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*performance drop")
        each = torch.func.vmap(torch.func.grad(value), in_dims=(None, 0), chunk_size=chunk)(parameters, rows)
    return torch.cat([gradient.detach().flatten(1) for gradient in each.values()], 1)


def _by_autograd(parameters: Iterable[Any], module: Any, outputs: Outputs, rows: Any) -> list[Any]:
    """Return ∂u/∂θ of each parameter, (n, …), context by context."""
    tensors, gradients = list(parameters), []
    for row in rows[:, None]:
        u = outputs(module, row).sum() + 0 * tensors[0].sum()  # which has a gradient, even if u depends on no parameter
        gradients.append(torch.autograd.grad(u, tensors, allow_unused=True, materialize_grads=True))
    return [torch.stack(each) for each in zip(*gradients, strict=True)]


# --- the first look at a module


def forms_of(module: Any, explored: list[str], outputs: Outputs, rows: Any) -> tuple[Form, ...]:
    """Return the forms of all parameters that explore, the last layer with a rule at the end.

    `rows` are some contexts, on which every form is compared with autograd.
    """
    truth = _by_autograd(map(module.get_parameter, explored), module, outputs, rows)
    expected = dict(zip(explored, truth, strict=True))
    layers = {name: layer for name, layer in module.named_modules() if f"{name}.weight" in expected and has_rule(layer)}
    ruled: list[Form] = []
    for name, calls in _passed(module, layers, outputs, rows)[1].items():
        names = tuple(each for each in (f"{name}.weight", f"{name}.bias") if each in expected)
        with suppress(Exception):  # whatever a module does that the rule cannot follow
            form = _form_of(name, layers[name], names, calls, len(rows))
            if _agrees(form, _stored(layers[name], form, calls, len(rows)), expected):
                ruled.append(form)
    covered = {name for form in ruled for name in form.names}
    if not (rest := tuple(name for name in explored if name not in covered)):
        return tuple(ruled)
    other = Form("", rest, "dense", 1, sum(expected[name][0].numel() for name in rest))
    with suppress(Exception):  # or torch.func
        if _agrees(other, _dense(_without_rule(module, other, outputs, rows)), expected):
            return (other, *ruled)
    return (other._replace(kind="row by row"), *ruled)


def _form_of(name: str, layer: Any, names: tuple[str, ...], calls: list[Any], count: int) -> Form:
    """Return a layer's cheapest form."""
    size = layer.weight.numel() + (layer.bias.numel() if len(names) == 2 else 0)
    dense, index = Form(name, names, "dense", 1, size), isinstance(layer, nn.Embedding)
    if type(layer) in NORMS:
        return dense
    a, d = _pairs(layer, calls, count, bias=len(names) == 2)
    kind = "index" if index else "pair" if a.shape[1] == 1 else "positions"
    form = dense._replace(kind=kind, outputs=d.shape[2], inputs=size // d.shape[2], positions=a.shape[1])
    return form if kind == "pair" or form.products < dense.products else dense


def _agrees(form: Form, pair: tuple[Any, Any], expected: dict[str, Any]) -> bool:
    """Return whether the features of a form are autograd's."""
    truth = [expected[name] for name in form.names]
    if form.layer and len(truth) == 2 and truth[0].dim() > truth[1].dim():  # the bias is the last column of the weights
        truth = [torch.cat([each.reshape(*truth[1].shape, -1) for each in truth], 2)]
    flat = torch.cat([each.flatten(1) for each in truth], 1).cpu()
    vectors = torch.as_tensor(TorchFactors((form,), *((each,) for each in pair)).vectors())
    return bool(torch.allclose(vectors, flat, AGREE, AGREE * float(flat.abs().max())))


def check_outputs(module: Any, outputs: Outputs, rows: Any) -> None:
    """Raise InvalidInput, with the remedy, unless u is one finite number of each context and depends on it alone."""
    other = rows.clone()
    other[0] = rows[-1]
    with torch.no_grad():
        u, again, mixed = (outputs(module, some) for some in (rows, rows, other))
    if not torch.isfinite(u).all():
        raise InvalidInput("net must return finite numbers; of contexts between 0 and 1 it made others.")
    if not torch.equal(u, again):
        raise InvalidInput("net must not be random while it decides, as dropout is. Call net.eval() first.")
    if not torch.allclose(mixed[1:], u[1:], rtol=1e-9, atol=1e-12):
        raise InvalidInput(MIXES)
    check_apart(module, outputs, rows[:, None], u)


def check_gradients(module: Any, forms: tuple[Form, ...], outputs: Outputs, rows: Any, u: Any, pairs: Any) -> None:
    """Raise InvalidInput unless u and features of some contexts of a call are those of each of them alone."""
    check_apart(module, outputs, rows[:, None], u)
    names = [name for form in forms for name in form.names]
    expected = dict(zip(names, _by_autograd(map(module.get_parameter, names), module, outputs, rows), strict=True))
    for form, pair in zip(forms, pairs, strict=True):
        if not _agrees(form, pair, expected):
            raise InvalidInput(
                f"the gradient of {form.layer or ', '.join(form.names)!r} must be the one that contexts showed when "
                "the model was made, unlike one used beside its layer. Give such contexts: Module(net, examples=…)."
            )


def check_apart(module: Any, outputs: Outputs, parts: Iterable[Any], u: Any, tolerance: float = 1e-12) -> None:
    """Raise InvalidInput unless u, (n,), is what each part of its contexts gives without the others."""
    with torch.no_grad():
        apart = torch.cat([outputs(module, part) for part in parts])
    if not torch.allclose(apart, u, rtol=1e-9, atol=tolerance, equal_nan=True):
        raise InvalidInput(MIXES)
