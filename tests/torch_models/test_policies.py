"""Policies with torch modules: choices, training, saving, errors."""

import copy
import gc
import pickle
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")

from torch import nn

import rarely.torch
from rarely import (
    BatchNeuralUCB,
    Discount,
    FixedGrid,
    InvalidContexts,
    InvalidInput,
    NeuralEpsilonGreedy,
    NeuralLinear,
    NeuralTS,
    NeuralUCB,
    OnDemand,
    Preset,
    SnapshotError,
    Training,
    Window,
    load,
)


def perceptron(network, weights):
    """The library's network of standard scaling as a torch module with the same weights."""
    layers = []
    for w in weights:
        linear = nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=torch.float64)
        linear.weight.data = torch.as_tensor(np.array(w))
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def small(seed=0, inputs=3, out=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, out))


def play(policy, rounds=40, arms=3, seed=0, dim=3):
    rng = np.random.default_rng(seed)
    chosen = []
    for _ in range(rounds):
        contexts = rng.random((arms, dim))
        decision = policy.select(contexts)
        chosen.append(decision.arm)
        policy.observe(decision, float(np.sin(3 * contexts[decision.arm]).sum() + 0.1 * rng.normal()))
        if policy.due:
            policy.update()
    return chosen


@pytest.mark.parametrize("covariance", ["dual", "primal", "diagonal", "last_layer"])
def test_a_perceptron_of_torch_chooses_as_the_librarys_own(covariance):
    settings = dict(
        schedule=FixedGrid(60, 6), covariance=covariance, preset=Preset(scaling="standard"), beta=0.3, seed=0,
        training=Training(steps=30, step_size=0.02), ridge=0.1,
    )  # fmt: skip
    ours = BatchNeuralUCB(3, hidden=8, depth=3, **settings)
    module = perceptron(ours.network, ours.initial_weights)
    theirs = BatchNeuralUCB(model=rarely.torch.Module(module), **settings)
    assert play(theirs, 60) == play(ours, 60)
    assert theirs.log_det == pytest.approx(ours.log_det, rel=1e-6)
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("forgetting", [None, Discount(0.8)])
def test_the_step_follows_from_the_curvature_as_the_librarys_own(forgetting):
    settings = dict(schedule=OnDemand(), preset=Preset(scaling="standard"), training=30, forgetting=forgetting, seed=0)
    ours = BatchNeuralUCB(3, hidden=8, **settings)
    theirs = BatchNeuralUCB(model=rarely.torch.Module(perceptron(ours.network, ours.initial_weights)), **settings)
    for policy in (ours, theirs):
        play(policy, 30)
    assert theirs.update().step_size == pytest.approx(ours.update().step_size, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "forgetting"), [(BatchNeuralUCB, Discount(0.95)), (NeuralTS, None), (NeuralEpsilonGreedy, Window(20))]
)
def test_a_policy_comes_back_the_same(kind, forgetting, tmp_path):
    settings = dict(schedule=FixedGrid(80, 4), forgetting=forgetting, seed=0)
    policy = kind(model=rarely.torch.Module(small()), **settings)
    play(policy, 30)
    policy.save(tmp_path / "p")
    again = load(tmp_path / "p", model=small(seed=5))  # whose weights are those of the file
    assert again.fingerprint() == policy.fingerprint()
    assert play(again, 20, seed=7) == play(policy, 20, seed=7)
    assert again.fingerprint() == policy.fingerprint()
    assert copy.deepcopy(policy).fingerprint() == policy.fingerprint()
    back = pickle.loads(pickle.dumps(policy.prepare_update(force=True))).run()
    assert policy.adopt(back).accepted


def test_another_architecture_is_refused_by_its_first_layer(tmp_path):
    policy = BatchNeuralUCB(model=rarely.torch.Module(small()), schedule=OnDemand(), seed=0)
    policy.save(tmp_path / "p")
    other = nn.Sequential(nn.Linear(3, 6), nn.GELU(), nn.Linear(6, 1))
    with pytest.raises(SnapshotError, match=r"'1' is Tanh\(\).*GELU"):
        load(tmp_path / "p", model=other)
    with pytest.raises(SnapshotError, match=r"'2' is Linear.*missing"):
        load(tmp_path / "p", model=nn.Sequential(nn.Linear(3, 6), nn.Tanh()))
    frozen = small()
    frozen[0].weight.requires_grad_(False)
    with pytest.raises(SnapshotError, match=r"'0.weight' is .* with a gradient"):
        load(tmp_path / "p", model=frozen)
    for nonsense in (3, "net"):
        with pytest.raises(SnapshotError, match="model is code"):
            load(tmp_path / "p", model=nonsense)
    with pytest.raises(SnapshotError, match="load\\(path, model=net\\)"):
        load(tmp_path / "p")  # although this process has made the model
    BatchNeuralUCB(dim=2, hidden=4, schedule=OnDemand(), seed=0).save(tmp_path / "q")
    with pytest.raises(InvalidInput, match="saved with one"):
        load(tmp_path / "q", model=small())
    with pytest.raises(SnapshotError, match="fit"):
        load(tmp_path / "p", model=rarely.torch.Module(small(), fit=lambda *_: None))


def test_a_process_that_has_not_imported_the_package_finds_it(tmp_path):
    policy = BatchNeuralUCB(model=rarely.torch.Module(small()), schedule=OnDemand(), seed=0)
    policy.save(tmp_path / "p")
    code = (
        "import sys, torch; from torch import nn; import rarely; torch.manual_seed(0); assert 'rarely.torch' not in "
        "sys.modules; net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1)); "
        "print(rarely.load(sys.argv[1], model=net).fingerprint())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "p"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == policy.fingerprint()


@pytest.mark.parametrize("package", ["antigravity", "rarely.antigravity", 7])
def test_a_file_has_no_other_package_imported(package, tmp_path, monkeypatch):
    model = rarely.torch.Module(small())
    settings = model.settings() | {"package": package}
    monkeypatch.setattr(model, "settings", lambda: settings)
    BatchNeuralUCB(model=model, schedule=OnDemand(), seed=0).save(tmp_path / "p")
    with pytest.raises(SnapshotError, match="import that package before loading"):
        load(tmp_path / "p", model=small())
    assert package not in sys.modules


def test_the_callers_module_stays_as_it_is(tmp_path):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    before = copy.deepcopy(net.state_dict())
    policy = BatchNeuralUCB(model=rarely.torch.Module(net), schedule=FixedGrid(40, 2), seed=0)
    play(policy)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert net[1].inplace
    policy.save(tmp_path / "p")
    assert load(tmp_path / "p", model=net).fingerprint() == policy.fingerprint()
    trained = policy.model.module
    assert trained[0].weight.dtype == torch.float32
    assert not torch.equal(trained[0].weight, net[0].weight)
    x = np.random.default_rng(1).random((5, 3))
    raw = trained(torch.as_tensor(x, dtype=torch.float32)).detach().numpy()[:, 0]
    scale = policy._network.rewards
    means = scale.center + scale.spread * raw
    np.testing.assert_allclose(means, policy.score(x).means, rtol=1e-4)


def test_the_same_seed_gives_the_same_policy():
    made = [BatchNeuralUCB(model=rarely.torch.Module(small()), schedule=FixedGrid(400, 3), seed=3) for _ in range(2)]
    for policy in made:
        play(policy, 200)
        policy.update(force=True)  # on minibatches, whose order is drawn
    assert made[0].fingerprint() == made[1].fingerprint()


def fit(module, contexts, rewards, weights, generator):
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05)
    for _ in range(20):
        optimiser.zero_grad()
        (weights * (module(contexts)[:, 0] - rewards) ** 2).mean().backward()
        optimiser.step()


def test_a_file_is_not_loaded_with_another_fit(tmp_path):
    def other(module, *_):
        raise AssertionError

    policy = BatchNeuralUCB(model=rarely.torch.Module(small(), fit=fit), schedule=OnDemand(), seed=0)
    policy.save(tmp_path / "p")
    changed = rarely.torch.Module(small(), fit=other)
    assert load(tmp_path / "p", model=rarely.torch.Module(small(), fit=fit)).model.fit is fit
    with pytest.raises(SnapshotError, match=r"a model with fit = 'fit'; got '.*other'"):
        load(tmp_path / "p", model=changed)


def test_a_training_of_the_users_own():
    calls = []

    def counted(module, contexts, rewards, weights, generator):
        calls.append((contexts.shape, rewards.shape, weights.shape, contexts.dtype))
        fit(module, contexts, rewards, weights, generator)

    model = rarely.torch.Module(small(), fit=counted)
    policy = BatchNeuralUCB(model=model, schedule=OnDemand(), seed=0)
    play(policy, 40)
    record = policy.update()
    assert record.accepted
    assert record.noise is not None
    assert len(calls) == 1
    assert calls[0] == ((40, 3), (40,), (40,), torch.float32)
    direct = model.fresh(model.weights, torch.float32)
    rewards = policy.history.rewards
    rewards = torch.as_tensor((rewards - rewards.mean()) / rewards.std(), dtype=torch.float32)
    fit(direct, torch.tensor(np.array(policy.history.contexts), dtype=torch.float32), rewards, torch.ones(40), None)
    np.testing.assert_allclose(direct[0].weight.detach().numpy(), policy.weights[0], rtol=1e-5)


@pytest.mark.parametrize("watched", [{"progress": lambda *_: None}, {"seconds": 1e6}])
def test_a_training_of_the_users_own_that_is_watched_is_the_same(watched):
    """Its steps come in parts then, after each of which the loss is asked for."""

    def trained(module, *others):
        module.train()
        fit(module, *others)

    def after(**how):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1)).eval()
        model = rarely.torch.Module(net, fit=trained)
        policy = BatchNeuralUCB(model=model, schedule=OnDemand(), seed=0)
        play(policy, 40)
        record = policy.update(**how)
        return policy.weights, record.final_loss, [*map(np.array_equal, policy.weights, model.weights)]

    alone, loss, _ = after()
    seen, same_loss, moved = after(**watched)
    assert not any(moved)
    assert same_loss == loss
    for one, other in zip(alone, seen, strict=True):
        np.testing.assert_array_equal(other, one)


@pytest.mark.parametrize("own", [{}, {"fit": fit}])
def test_an_update_without_any_reward_leaves_the_weights(own):
    policy = BatchNeuralUCB(model=rarely.torch.Module(small(), **own), schedule=OnDemand(), seed=0)
    before = policy.weights
    for _ in range(2):
        policy.update(force=True)
        policy.select(np.zeros((5, 4, 3)))
    assert policy.version == 2
    for now, first in zip(policy.weights, before, strict=True):
        np.testing.assert_array_equal(now, first)


@pytest.mark.parametrize("training", [None, 20, "fit"])
def test_what_training_leaves_alone_keeps_all_of_its_digits(training):
    """Training is in float32, which would move a buffer of 1.7e9 seconds by a minute, and a frozen encoder a little."""

    class Since(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("origin", torch.tensor(1.7e9 + 23.25, dtype=torch.float64))
            self.encoder, self.head = nn.Linear(3, 4).double().requires_grad_(False), nn.Linear(4, 1).double()

        def forward(self, x):
            return self.head(self.encoder(x) + (self.origin - 1.7e9).to(x.dtype) / 100)

    torch.manual_seed(0)
    net, own = Since(), {"fit": fit} if training == "fit" else {"training": training}
    model = rarely.torch.Module(net, fit=own.pop("fit", None))
    policy = BatchNeuralUCB(model=model, schedule=OnDemand(), seed=0, **own)
    play(policy, 30)
    policy.update()
    shown = policy.model.module
    assert not torch.equal(shown.head.weight, net.head.weight)
    assert torch.equal(shown.origin, net.origin)
    assert torch.equal(shown.encoder.weight, net.encoder.weight)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_fails_inside_fit_leaves_the_policy_unchanged(error):
    def failing(module, contexts, rewards, weights, generator):
        nn.init.zeros_(module[0].weight)
        raise error

    policy = BatchNeuralUCB(model=rarely.torch.Module(small(), fit=failing), schedule=OnDemand(), seed=0)
    play(policy, 20)
    before = policy.fingerprint()
    with pytest.raises(error):
        policy.update()
    assert policy.fingerprint() == before

    def breaking(module, *_):
        nn.init.constant_(module[0].weight, float("nan"))

    policy = BatchNeuralUCB(model=rarely.torch.Module(small(), fit=breaking), schedule=OnDemand(), seed=0)
    play(policy, 20)
    with pytest.raises(InvalidInput, match="finite"):
        policy.update()


class Arms(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head, self.words = nn.Conv2d(1, 2, 3), nn.Linear(32, 3), nn.Embedding(3, 3)

    def forward(self, image, arm):
        return (self.head(torch.relu(self.conv(image)).flatten(1)) * self.words(arm)[:, 0]).sum(1)


def test_contexts_of_any_shape_and_dicts():
    torch.manual_seed(0)
    rng, image = np.random.default_rng(0), np.random.default_rng(1).random((1, 6, 6))
    convolution = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(32, 1))
    policy = BatchNeuralUCB(model=rarely.torch.Module(convolution, (1, 6, 6)), schedule=OnDemand(), seed=0)
    images = rng.random((4, 3, 1, 6, 6))
    decision = policy.select(images)
    np.testing.assert_array_equal(policy.score(images).means, policy.score(images.reshape(4, 3, 36)).means)
    np.testing.assert_allclose(policy.score(torch.as_tensor(images[0])).means, policy.score(images[0]).means)
    policy.observe(decision, rng.random(4))
    policy.update()
    model = rarely.torch.Module(Arms(), {"image": (1, 6, 6), "arm": (1,)}, ids=["arm"])
    policy = BatchNeuralUCB(model=model, schedule=OnDemand(), seed=0)
    decision = policy.select({"image": image, "arm": np.arange(3)[:, None]})
    assert decision.means.shape == (3,)
    assert policy.history.contexts[0, -1] == decision.arm
    with pytest.raises(InvalidContexts, match="image, arm"):
        policy.select({"image": image})
    with pytest.raises(InvalidContexts, match="image must have shape"):
        policy.select({"image": image[0], "arm": np.arange(3)[:, None]})


def test_explore_chooses_what_z_is_over():
    for explore, names in (
        ("requires_grad", ["0.weight", "0.bias", "2.weight", "2.bias"]),
        ("last", ["2.weight", "2.bias"]),
        (["*.bias"], ["0.bias", "2.bias"]),
    ):
        assert rarely.torch.Module(small(), explore=explore).explored == names
    frozen = small()
    frozen[0].requires_grad_(False)
    policy = BatchNeuralUCB(model=rarely.torch.Module(frozen), schedule=FixedGrid(40, 2), seed=0)
    play(policy)
    assert torch.equal(policy.model.module[0].weight, frozen[0].weight)
    with pytest.raises(InvalidInput, match="explore"):
        rarely.torch.Module(small(), explore=["nothing"])


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop, self.last = nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.drop(self.inner(x)))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_modules_that_cannot_decide_are_refused_with_the_remedy():
    for net, words in (
        (small(out=2), r"one number for each context.*\(3, 2\)"),
        (Dropped(), r"random.*net\.eval\(\)"),
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)), r"mix.*net\.eval\(\)"),
        (nn.Embedding(3, 1), "shape must be given"),
        (nn.Sequential(nn.ReLU(), nn.Linear(3, 1, bias=False)).requires_grad_(False), "explore"),
        ("text", "torch.nn.Module"),
    ):
        with pytest.raises(InvalidInput, match=words):
            rarely.torch.Module(net)
    broken = small()
    nn.init.constant_(broken[0].weight, float("nan"))
    with pytest.raises(InvalidInput, match="finite"):
        rarely.torch.Module(broken)
    for settings, words in (
        ({"shape": "abc"}, "shape must be a whole number"), ({"shape": (-3,)}, "shape must be a whole number"),
        ({"explore": 3}, "explore must be"), ({"explore": "none.*"}, "explore must be"), ({"ids": "a"}, "ids must be"),
        ({"fit": 3}, "fit a function"), ({"device": "meta"}, "device one that"), ({"device": "nowhere"}, "device one"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=words):
            rarely.torch.Module(small(), **settings)
    with pytest.raises(InvalidInput, match="lazy"):
        rarely.torch.Module(nn.Sequential(nn.LazyLinear(2), nn.Linear(2, 1)), 3)
    linear = nn.Linear(3, 1)
    linear.bias = None
    linear.other = linear.weight * 2  # which torch does not copy
    with pytest.raises(InvalidInput, match="can be copied"):
        rarely.torch.Module(linear)
    assert rarely.torch.Module(nn.Linear(3, 1), explore="last").explored == ["weight", "bias"]
    words = rarely.torch.Module(nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(4, 1)), 2, ids=True)
    with pytest.raises(InvalidInput, match=r"net must take 2 contexts.*out of range"):
        BatchNeuralUCB(model=words, schedule=OnDemand()).select([[0, 1], [4, 5]])
    with pytest.raises(InvalidInput, match="ids=True"):
        rarely.torch.Module(nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(4, 1)), (2,))
    with pytest.warns(rarely.ModelWarning, match=r"in drop nothing is dropped"):
        assert rarely.torch.Module(Dropped().eval()).forms
    for net, words in (
        (torch.jit.trace(small(), torch.zeros(1, 3)), "before TorchScript"),
        (small().to("meta"), "can be copied"),
        (nn.Linear(3, 1, dtype=torch.complex64), "real numbers"),
    ):
        with pytest.raises(InvalidInput, match=words):
            rarely.torch.Module(net, 3)
    model = rarely.torch.Module(small())
    for kind, settings in (
        (BatchNeuralUCB, {"hidden": 8}), (BatchNeuralUCB, {"dim": 4}), (BatchNeuralUCB, {"preset": "code"}),
        (NeuralLinear, {}), (BatchNeuralUCB, {"training": Training(skip=1.0)}),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match="model must be"):
            kind(model=model, schedule=OnDemand(), **settings)
    with pytest.raises(InvalidInput, match="model must be"):
        BatchNeuralUCB(model=small(), schedule=OnDemand())


def test_on_a_device_decisions_are_the_same(tmp_path, monkeypatch):
    """Z in tensors, here on the CPU."""

    def life():
        return BatchNeuralUCB(model=rarely.torch.Module(small()), schedule=FixedGrid(60, 4), covariance="dual", seed=0)

    plain = life()
    chosen = play(plain, 60)
    monkeypatch.setattr(rarely.torch.Module, "on_device", True)
    policy = life()
    assert play(policy, 40) == chosen[:40]
    policy.save(tmp_path / "p")
    again = load(tmp_path / "p", model=small())
    assert again.log_det == policy.log_det
    rng = np.random.default_rng(5)
    block = rng.random((12, 3, 3))
    np.testing.assert_allclose(again.score(block).bonuses, policy.score(block).bonuses, rtol=1e-9)
    np.testing.assert_array_equal(again.select(block).arm, policy.select(block).arm)
    for form in ("primal", "diagonal", "last_layer"):
        assert policy.with_covariance(form).covariance == form
    monkeypatch.setattr(rarely.torch.Module, "on_device", False)
    assert load(tmp_path / "p", model=small()).select(block).arm.tolist() == again.history.arms[-12:].tolist()


def test_a_study_finds_its_model(tmp_path):
    from rarely.study import Study
    from rarely.study.errors import UnknownPart

    url = f"sqlite:///{tmp_path}/study.db"
    policy = BatchNeuralUCB(model=rarely.torch.Module(small()), schedule=FixedGrid(40, 3), seed=0)
    study = Study.create(url, "own", policy=policy, arms=["a", "b"])
    contexts = np.random.default_rng(0).random((20, 2, 3))
    for i, context in enumerate(contexts):
        assert study.ask(context, str(i)).arm in ("a", "b")
        study.tell(str(i), float(context.sum()))
    assert study.update() == "version"
    with pytest.raises(UnknownPart, match=r"Study\.open\(storage, model=net\)"):
        Study.open(url, "own")
    again = Study.open(url, "own", model=[nn.Linear(2, 1), small()])  # the one of its policy
    assert again.ask(contexts[0], "later").arm == study.ask(contexts[0], "later").arm


def test_the_price_of_z_is_stated_before():
    policy = NeuralUCB(model=rarely.torch.Module(small()), seed=0)
    text = policy.model.describe(rounds=500)
    assert "0                                          24  pair" in text
    assert "Z after 500 rounds" in text
    assert "dual (exact)" in text


# --- whole numbers


class Hashed(nn.Module):
    """Keeps every context that it gets."""

    def __init__(self):
        super().__init__()
        self.words, self.last, self.seen = nn.Embedding(97, 3), nn.Linear(3, 1), []
        self.register_buffer("factor", torch.tensor([2654435761, -2654445112, 2**62 + 1]))
        self.register_buffer("mask", torch.tensor([True, False, True]))

    def __deepcopy__(self, memo):
        copied = type(self)()
        copied.load_state_dict(self.state_dict())
        copied.seen = self.seen
        return copied

    def forward(self, x):
        self.seen.append(x.detach().clone())
        return self.last(self.words((x * self.factor % 97)[:, 0]))


@pytest.mark.parametrize("training", [None, 30])
def test_whole_numbers_stay_what_they_are(training, tmp_path):
    torch.manual_seed(0)
    net, rng, given = Hashed(), np.random.default_rng(0), set()
    policy = BatchNeuralUCB(model=rarely.torch.Module(net, 1, ids=True), schedule=OnDemand(), seed=0, training=training)
    net.seen.clear()
    for _ in range(20):
        contexts = rng.integers(2**24, 2**50, size=(4, 1))
        given.update(contexts.ravel().tolist())
        policy.observe(policy.select(contexts), float(rng.normal()))
    policy.update()
    assert set(torch.cat(net.seen).ravel().tolist()) <= given
    assert {each.dtype for each in net.seen} == {torch.int64}
    assert torch.equal(policy.model.module.factor, net.factor)
    assert torch.equal(policy.model.module.mask, net.mask)
    policy.save(tmp_path / "p")
    fresh = Hashed()
    fresh.factor.zero_()  # a buffer is in the file
    again = load(tmp_path / "p", model=rarely.torch.Module(fresh, 1, ids=True))
    np.testing.assert_array_equal(again.score(contexts).means, policy.score(contexts).means)
    assert torch.equal(again.model.module.factor, net.factor)


def test_ids_that_float64_would_round_are_refused():
    model = rarely.torch.Module(Hashed(), 1, ids=True)
    for policy in (BatchNeuralUCB(model=model, schedule=OnDemand()),):
        for wrong in ([[2**53 + 1]], [[-(2**50) - 1]], [[1.5]]):
            with pytest.raises(InvalidContexts, match="ids must be whole numbers up to 2⁵⁰"):
                policy.select(wrong)


def test_ids_of_weighted_samples_are_those_that_were_given():
    net = Hashed()
    model = rarely.torch.Module(net, 1, ids=True)
    ids = np.random.default_rng(0).integers(2**49, 2**50, 200).astype(float)
    roots = np.sqrt(0.97 ** np.arange(200))
    net.seen.clear()
    model.network().values(model.weights, np.column_stack((ids * roots, roots)))
    assert net.seen[-1].ravel().tolist() == ids.tolist()


# --- what a file and a model say of each other


class Curved(nn.Module):
    def __init__(self, curve):
        super().__init__()
        self.first, self.last, self.curve = nn.Linear(3, 6), nn.Linear(6, 1), curve

    def forward(self, x):
        return self.last(self.curve(self.first(x)))


def test_another_forward_with_the_same_layers_is_refused(tmp_path):
    torch.manual_seed(0)
    policy = BatchNeuralUCB(model=rarely.torch.Module(Curved(torch.tanh)), schedule=OnDemand(), seed=0, training=20)
    play(policy)
    policy.update()
    policy.save(tmp_path / "p")
    rarely.torch.Module(Curved(torch.sin))  # which no file finds by itself
    assert load(tmp_path / "p", model=Curved(torch.tanh)).fingerprint() == policy.fingerprint()
    for model in (Curved(torch.sin), rarely.torch.Module(Curved(torch.sin))):
        with pytest.raises(SnapshotError, match=r"Its forward must be the one that was saved"):
            load(tmp_path / "p", model=model)
    with pytest.raises(SnapshotError, match=r"a model with explore = .*; got \['last.weight"):
        load(tmp_path / "p", model=rarely.torch.Module(Curved(torch.tanh), explore="last"))


def test_no_model_outlives_its_policies():
    kept = weakref.ref(rarely.torch.Module(small()))
    gc.collect()
    assert kept() is None


def test_a_loaded_policy_is_saved_and_loaded_again(tmp_path):
    policy = BatchNeuralUCB(model=rarely.torch.Module(small()), schedule=OnDemand(), seed=0, training=20)
    policy.save(tmp_path / "p")
    load(tmp_path / "p", model=small(seed=5)).save(tmp_path / "q")
    assert load(tmp_path / "q", model=small(seed=6)).fingerprint() == policy.fingerprint()


def test_a_compiled_module_is_its_original(tmp_path):
    net = small()
    compiled, inner = torch.compile(net, backend="eager"), nn.Sequential(torch.compile(net, backend="eager"))
    plain, first, second = (rarely.torch.Module(each) for each in (net, compiled, compiled))
    assert plain.forms == first.forms == second.forms
    assert (
        rarely.torch.Module(inner).settings()["layers"] == rarely.torch.Module(nn.Sequential(net)).settings()["layers"]
    )
    policy = BatchNeuralUCB(model=first, schedule=OnDemand(), seed=0, training=20, covariance="dual")
    play(policy)
    policy.update()
    policy.save(tmp_path / "p")
    for model in (net, compiled, second):
        assert load(tmp_path / "p", model=model).fingerprint() == policy.fingerprint()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_module_shown_is_the_one_that_decides(dtype):
    policy = BatchNeuralUCB(model=rarely.torch.Module(small().to(dtype)), schedule=OnDemand(), seed=0, training=20)
    play(policy)
    policy.update()
    shown = policy.model.module
    assert {each.dtype for each in shown.parameters()} == {torch.float32}
    for mine, weights in zip(shown.parameters(), policy.weights, strict=True):
        np.testing.assert_array_equal(mine.detach().double().numpy(), weights)


def test_a_net_that_makes_nan_is_named():
    class Logarithm(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(3, 1)

        def forward(self, x):
            return self.last(torch.log(x))

    policy = BatchNeuralUCB(model=rarely.torch.Module(Logarithm()), schedule=OnDemand(), seed=0, training=20)
    before = policy.fingerprint()
    with pytest.raises(InvalidContexts, match=r"net must return finite numbers .* \[-1.0, 2.0, 3.0\] it made nan"):
        policy.select([[1.0, 2.0, 3.0], [-1.0, 2.0, 3.0]])
    assert policy.fingerprint() == before


def test_training_that_leaves_layers_alone_is_announced():
    normed = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1)).eval()
    with pytest.warns(rarely.ModelWarning, match=r"in 1, 2 nothing is dropped, and running statistics stay"):
        policy = BatchNeuralUCB(model=rarely.torch.Module(normed), schedule=OnDemand(), seed=0, training=20)
    play(policy)
    policy.update()
    assert torch.equal(policy.model.module[1].running_mean, torch.zeros(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rarely.torch.Module(normed, fit=fit)
        rarely.torch.Module(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 1)))


def test_an_update_of_the_default_trains_once(monkeypatch):
    steps, plain = [], torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, *_: (steps.append(1), plain(self))[1])
    policy = BatchNeuralUCB(model=rarely.torch.Module(small()), schedule=OnDemand(), seed=0)
    play(policy)
    record = policy.update()
    assert len(steps) == record.steps == 330
