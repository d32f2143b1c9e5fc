"""Features of thirty-odd modules against autograd, one context at a time and written out."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")


from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import rarely.torch
from rarely._core.covariance import Limit
from rarely._core.covariance.diagonal import Diagonal
from rarely.torch.factors import DeviceDual, inner_products


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.last = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(x + torch.tanh(self.inner(x)))[:, 0]


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.gate, self.last = nn.Linear(5, 6), nn.Linear(5, 6, bias=False), nn.Linear(6, 1)

    def forward(self, x):
        return self.last(self.value(x) * torch.sigmoid(self.gate(x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class TiedWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.mix = nn.Embedding(9, 4), nn.Linear(4, 4)

    def forward(self, x):
        hidden = torch.tanh(self.mix(self.words(x).mean(1)))
        return torch.logsumexp(hidden @ self.words.weight.T, 1)


class Twice(nn.Module):
    """Calls one layer two times."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Beside(nn.Module):
    """Uses the weight of a layer beside its call."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(x))) + (x @ self.inner.weight.T).sum(1, keepdim=True)


class BesideBelow(Beside):
    """Does so for negative numbers alone, of which a probe with positive ones shows nothing."""

    def forward(self, x):
        return self.last(torch.tanh(self.inner(x))) + (torch.relu(-x) @ self.inner.weight.T).sum(1, keepdim=True)


class MixesBelow(nn.Module):
    """Mixes the contexts of a call where one of them is below a bound."""

    def __init__(self, bound=0.0):
        super().__init__()
        self.last, self.bound = nn.Linear(4, 1), bound

    def forward(self, x):
        return self.last(x) * (1 + x.mean()) if (x < self.bound).any() else self.last(x)


class Logarithm(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.log(x))


class Free(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.table = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(5, 3))
        self.last = nn.Linear(3, 1)

    def forward(self, x):
        return self.last(torch.sin(x * self.scale) @ self.table)


class Sequence(nn.Module):
    def __init__(self, kind, **settings):
        super().__init__()
        self.words, self.inner, self.last = nn.Embedding(7, 4), kind(4, 5, **settings), nn.Linear(5, 1)

    def forward(self, x):
        return self.last(self.inner(self.words(x))[0][:, -1])


class Attention(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.words, self.places = nn.Embedding(7, 4), nn.Parameter(torch.randn(6, 4) / 4)
        self.inner, self.last = nn.MultiheadAttention(4, 2, batch_first=True, **settings), nn.Linear(4, 1)

    def forward(self, x):
        x = self.words(x) + self.places
        return self.last(self.inner(x, x, x, need_weights=False)[0].mean(1))


class Bag(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.words, self.last = nn.Embedding(40, 3, **settings), nn.Linear(3, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.words(x).mean(1)))


class Mean(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x).flatten(1).mean(1)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head, self.words = nn.Conv2d(1, 2, 3), nn.Linear(18, 4), nn.Embedding(4, 4)

    def forward(self, image, arm):
        return (torch.tanh(self.head(self.conv(image).flatten(1))) * self.words(arm)[:, 0]).sum(1)


class InPlace(nn.Module):
    """Changes in place what a layer returned, but not where contexts are positive, as those are that a model tries."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(4, 3), nn.Linear(3, 1)
        nn.init.constant_(self.inner.weight, 0.3)
        nn.init.zeros_(self.inner.bias)

    def forward(self, x):
        return self.last(self.inner(input=x).relu_())


class Encoded(nn.Module):
    """Has a part that gradients do not reach."""

    def __init__(self):
        super().__init__()
        self.encoder, self.last = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x):
        with torch.no_grad():
            x = torch.tanh(self.encoder(x))
        return self.last(x)


class Branches(nn.Module):
    """Sends each context to one of two layers, those of `masked` together."""

    def __init__(self, masked, above=0):
        super().__init__()
        self.one, self.other, self.masked, self.above = nn.Linear(4, 1), nn.Linear(4, 1), masked, above

    def forward(self, x):
        if not self.masked:
            return torch.cat([self.one(row) if row[0, 0] > 0 else self.other(row) for row in x[:, None]])
        out, mask = x.new_zeros(len(x), 1), x[:, 0] > self.above
        out[mask], out[~mask] = self.one(x[mask]), self.other(x[~mask])
        return out


MODULES = {
    "mlp": lambda: (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), (4,), False),
    "no biases": lambda: (nn.Sequential(nn.Linear(4, 6, False), nn.Tanh(), nn.Linear(6, 1, False)), (4,), False),
    "deep": lambda: (nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(5, 5), nn.ELU())], nn.Linear(5, 1)), 5, 0),
    "in place": lambda: (nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 1)), (4,), False),
    "in place beside the module": lambda: (InPlace(), (4,), False),
    "no gradient inside": lambda: (Encoded(), (4,), False),
    "branches": lambda: (Branches(masked=False), (4,), False),
    "branches together": lambda: (Branches(masked=True), (4,), False),
    "weight used beside its layer below 0": lambda: (BesideBelow(), (4,), False),
    "positive numbers alone": lambda: (Logarithm(), (4,), False),
    "layer norm": lambda: (nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 1)), (4,), False),
    "layer norm of images": lambda: (Mean(nn.Conv2d(1, 2, 3), nn.LayerNorm([2, 4, 4]), nn.GELU()), (1, 6, 6), False),
    "rms norm": lambda: (nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, 1)), (4,), False),
    "prelu": lambda: (nn.Sequential(nn.Linear(4, 6), nn.PReLU(6), nn.Linear(6, 1)), (4,), False),
    "bilinear": lambda: (Mean(nn.Linear(4, 3), nn.Softplus(), nn.Linear(3, 3)), (4,), False),
    "sequence of a linear": lambda: (Mean(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 1)), (3, 30), False),
    "short sequence": lambda: (Mean(nn.Linear(3, 2), nn.Tanh()), (7, 3), False),
    "conv1d": lambda: (Mean(nn.Conv1d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv1d(3, 1, 2, stride=2)), (2, 9), False),
    "conv2d": lambda: (Mean(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, (2, 3), stride=(2, 1))), (1, 8, 8), False),
    "dilated": lambda: (Mean(nn.Conv2d(2, 3, 3, dilation=2, padding=(1, 2)), nn.Tanh()), (2, 6, 6), False),
    "wide conv of few places": lambda: (Mean(nn.Conv2d(20, 30, 3), nn.Tanh()), (20, 4, 4), False),
    "grouped conv": lambda: (Mean(nn.Conv2d(2, 4, 3, groups=2), nn.Tanh()), (2, 5, 5), False),
    "same padding": lambda: (Mean(nn.Conv1d(2, 3, 3, padding="same"), nn.Tanh()), (2, 6), False),
    "circular padding": lambda: (Mean(nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), nn.Tanh()), (2, 6), 0),
    "group norm": lambda: (Mean(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU()), (1, 6, 6), False),
    "batch norm": lambda: (Mean(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval(), (1, 6, 6), False),
    "residual": lambda: (Residual(), (5,), False),
    "gated": lambda: (Gated(), (5,), False),
    "tied": lambda: (Tied(), (4,), False),
    "tied words": lambda: (TiedWords(), (5,), True),
    "called twice": lambda: (Twice(), (4,), False),
    "weight used beside its layer": lambda: (Beside(), (4,), False),
    "free parameters": lambda: (Free(), (5,), False),
    "gru": lambda: (Sequence(nn.GRU, batch_first=True), (6,), True),
    "lstm": lambda: (Sequence(nn.LSTM, batch_first=True), (4,), True),
    "attention": lambda: (Attention(), (6,), True),
    "bag": lambda: (Bag(), (4,), True),
    "padded bag": lambda: (Bag(padding_idx=0), (5,), True),
    "weight norm": lambda: (nn.Sequential(weight_norm(nn.Linear(4, 3)), nn.Tanh(), nn.Linear(3, 1)), (4,), False),
    "transformer": lambda: (Mean(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)), (5, 4), False),
    "two inputs": lambda: (TwoInputs(), {"image": (1, 5, 5), "arm": (1,)}, ["arm"]),
}  # fmt: skip


def contexts_of(model, count, seed=1):
    rng = np.random.default_rng(seed)
    parts = []
    for name, shape in model.inputs.items():
        size = (count, int(np.prod(shape)))
        parts.append(rng.integers(0, 4, size).astype(float) if name in model.ids else rng.normal(size=size))
    return np.concatenate(parts, axis=1)


def dense(model, rows):
    """∂u/∂θ of each context by autograd alone, with the parameters in the order of `explored`."""
    module = model.module.double()
    found = []
    for row in torch.as_tensor(rows)[:, None]:
        module.zero_grad()
        parts = model.unpacked(row)
        out = module(parts[""]) if "" in parts else module(**parts)
        out.sum().backward()
        grads = [p.grad for p in map(module.get_parameter, model.explored)]
        zeros = [torch.zeros_like(p) for p in map(module.get_parameter, model.explored)]
        found.append(torch.cat([(z if g is None else g).flatten() for g, z in zip(grads, zeros, strict=True)]).numpy())
    return np.array(found)


@pytest.mark.filterwarnings("ignore::rarely.ModelWarning")
@pytest.mark.parametrize("name", MODULES)
def test_inner_products_and_log_det_are_those_of_autograd(name):
    torch.manual_seed(0)
    net, shape, ids = MODULES[name]()
    model = rarely.torch.Module(net, shape, ids=ids)
    rows = contexts_of(model, 12)
    rows = np.abs(rows) if isinstance(net, Logarithm) else rows
    truth = dense(model, rows)
    _, factors = model.network().values_and_factors(model.weights, np.column_stack((rows, np.ones(12))))
    kernel = truth @ truth.T
    scale = np.abs(kernel).max()
    assert sum(form.parameters for form in model.forms) == truth.shape[1]
    np.testing.assert_allclose(inner_products(factors[:5], factors), kernel[:5], rtol=0, atol=1e-10 * scale)
    np.testing.assert_allclose(factors.squared_norms, kernel.diagonal(), rtol=0, atol=1e-10 * scale)
    diagonal = Diagonal(factors.widths, 0.5, Limit(factors.widths)).contribution(factors)
    np.testing.assert_allclose(np.sort(diagonal), np.sort(np.square(truth).sum(axis=0)), rtol=1e-9, atol=1e-10 * scale)
    np.testing.assert_allclose(factors.vectors() @ factors.vectors().T, kernel, rtol=0, atol=1e-10 * scale)
    log_det = np.linalg.slogdet(np.eye(12) + kernel / 0.5)[1]
    for form, seen in (
        (model.factory("dual", 0.5, 2**32, None).empty(factors.widths), factors),
        on_device(model, factors),
    ):
        form.accept(form.propose(form.measure(seen)), 12)
        assert form.log_det == pytest.approx(log_det, rel=1e-10)
        form.freeze()
        np.testing.assert_allclose(form.measure(seen).variances, variances(truth), rtol=1e-6)


def variances(truth):
    kernel = truth @ truth.T
    return (kernel - kernel @ np.linalg.solve(kernel + 0.5 * np.eye(len(truth)), kernel)).diagonal() / 0.5


def on_device(model, factors):
    """Z in tensors, and the factors as it takes them."""
    made = (tuple(map(torch.as_tensor, some)) for some in (factors.inputs, factors.signals))
    form = DeviceDual(factors.widths, 0.5, Limit(factors.widths), forms=model.forms, device=torch.device("cpu"))
    return form, type(factors)(factors.forms, *made)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("mlp", ["pair", "pair"]),
        ("layer norm", ["pair", "dense", "pair"]),
        ("sequence of a linear", ["positions", "dense"]),
        ("wide conv of few places", ["positions"]),
        ("conv2d", ["dense", "dense"]),
        ("padded bag", ["index", "pair"]),
        ("attention", ["dense", "dense", "pair"]),
        ("gru", ["row by row", "dense", "pair"]),
    ],
)
def test_each_layer_has_its_cheapest_form(name, kinds):
    """A rule that is wrong would go unnoticed above: what disagrees with autograd is written out."""
    torch.manual_seed(0)
    net, shape, ids = MODULES[name]()
    assert [form.kind for form in rarely.torch.Module(net, shape, ids=ids).forms] == kinds


def test_a_layer_that_sees_some_contexts_of_a_call_is_refused():
    model = rarely.torch.Module(Branches(masked=True, above=-9), (4,))
    with pytest.raises(rarely.InvalidInput, match=r"layer 'one' must see each of 2 .* it saw 1\. Mask"):
        model.network().values_and_factors(model.weights, np.array([[1.0, 0, 0, 0, 1], [-10.0, 0, 0, 0, 1]]))


def test_a_module_that_mixes_contexts_is_refused_when_it_is_made_or_when_it_does():
    with pytest.raises(rarely.InvalidInput, match=r"mix the contexts of a call"):
        rarely.torch.Module(MixesBelow())
    model = rarely.torch.Module(MixesBelow(-30.0))
    rows = np.array([[1.0, 2, 3, 4, 1], [-40.0, 0, 0, 0, 1]])
    for _ in range(2):  # the call that was refused is not forgotten
        with pytest.raises(rarely.InvalidInput, match=r"mix the contexts of a call"):
            model.network().values_and_factors(model.weights, rows)
    with pytest.raises(rarely.InvalidInput, match=r"mix the contexts of a call"):
        rarely.torch.Module(MixesBelow(-30.0), examples=rows[:, :4])


def test_a_module_that_mixes_rare_contexts_is_refused_at_the_training_that_has_one():
    model = rarely.torch.Module(MixesBelow(-30.0))
    policy = rarely.BatchNeuralUCB(model=model, schedule=rarely.OnDemand(), seed=0)
    rng = np.random.default_rng(0)
    for round in range(12):  # the check of a few decisions comes at calls 1, 2, 4 and 8
        contexts = rng.uniform(-1, 1, (1, 4)) - 40 * (round == 10)
        policy.observe(policy.select(contexts), 1.0)
        if round == 9:
            assert policy.update().accepted
    with pytest.raises(rarely.InvalidInput, match=r"mix the contexts of a call"):
        policy.update()
    assert policy.version == 1


def test_contexts_of_a_training_may_be_small_differences_of_large_numbers():
    torch.manual_seed(0)
    model = rarely.torch.Module(nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1)))
    model.check_samples(model.weights, 1e6 * np.random.default_rng(0).normal(size=(5000, 4)))


def test_a_wrong_form_is_found_on_real_contexts_and_examples_mend_it():
    class Far(Beside):
        def forward(self, x):
            return self.last(torch.tanh(self.inner(x))) + (torch.relu(-x - 20) @ self.inner.weight.T).sum(1, True)

    torch.manual_seed(0)
    net, rows = Far(), np.array([[1.0, 2, 3, 4], [-40.0, 0, 0, 1]])
    model = rarely.torch.Module(net)
    with pytest.raises(rarely.InvalidInput, match=r"gradient of 'inner' must be .* examples"):
        model.network().values_and_factors(model.weights, np.column_stack((rows, np.ones(2))))
    model = rarely.torch.Module(net, examples=rows)
    _, factors = model.network().values_and_factors(model.weights, np.column_stack((rows, np.ones(2))))
    truth = dense(model, rows)
    np.testing.assert_allclose(factors.vectors() @ factors.vectors().T, truth @ truth.T, rtol=1e-10)


def test_a_deep_module_is_compared_with_autograd_once_and_not_layer_by_layer():
    passes = {}
    for depth in (2, 40):
        net = nn.Sequential(*[m for _ in range(depth) for m in (nn.Linear(3, 3), nn.Tanh())], nn.Linear(3, 1))
        passes[depth] = []
        net[0].register_forward_hook(lambda *_, seen=passes[depth]: seen.append(1))
        rarely.torch.Module(net)
    assert len(passes[2]) == len(passes[40])
