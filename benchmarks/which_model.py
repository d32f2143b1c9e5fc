"""Regret and cost of each kind of model on the same problems and seeds, for docs/which-model.md.

    python benchmarks/which_model.py digits --seeds 3 --first-seed 100
    python benchmarks/which_model.py cosine words

digits   scikit-learn's images of digits, 8×8; an arm is a class, and pays 1 if it is right
cosine   the paper's cosine problem: d = 10, 4 arms
words    12 words of 200; the reward is a sum over the words that arm and user share in kind
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

import rarely
import rarely.torch
from rarely import Affine, ArmBlocks, BatchNeuralUCB, LinUCB, Paced

BLOCKS = ArmBlocks(10, Affine(np.full(64, 0.3), np.full(64, 3.0)))
"""An image in the columns of each class, about standardised and of norm 1."""


class Digits(nn.Module):
    """Two convolutions, and the output of the arm's class."""

    def __init__(self):
        super().__init__()
        self.images = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.classes = nn.Linear(64, 10)

    def forward(self, image, arm):
        return self.classes(self.images(image)).gather(1, arm)


class Words(nn.Module):
    """A bag of embeddings, of the user's words and of the arm's."""

    def __init__(self, words=200, size=8):
        super().__init__()
        self.words = nn.Embedding(words, size)
        self.last = nn.Sequential(nn.Linear(2 * size, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item):
        return self.last(torch.cat((self.words(user).mean(1), self.words(item).mean(1)), 1))


def digits(seed):
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(images))
    for i in order:
        pay = (np.arange(10) == labels[i]).astype(float)
        yield (
            pay,
            {
                "torch": {"image": images[i].reshape(1, 8, 8) / 16, "arm": np.arange(10)[:, None]},
                "plain": BLOCKS(images[i] / 16),
            },
        )


def cosine(seed):
    rng = np.random.default_rng(seed)
    secret = rng.normal(size=10)
    secret /= np.linalg.norm(secret)
    while True:
        x = rng.normal(size=(4, 10))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        yield np.cos(3 * x @ secret), {"torch": x, "plain": x}


def words(seed):
    rng = np.random.default_rng(seed)
    kind = rng.normal(size=(200, 3))
    while True:
        user, items = rng.integers(200, size=6), rng.integers(200, size=(5, 6))
        pay = np.tanh(kind[items].mean(1) @ kind[user].mean(0) * 4)
        counts = np.array([np.bincount(np.r_[user, 200 + item], minlength=400) for item in items]).astype(float)
        yield pay, {"torch": {"user": user, "item": items}, "plain": counts}


def models(problem, horizon, batches, seed):
    """Yield every model's name, its policy and the kind of contexts that it takes."""
    schedule = Paced(horizon, batches)
    torch.manual_seed(seed)
    settings = BLOCKS.settings if problem == "digits" else {"dim": 10 if problem == "cosine" else 400}
    yield "BatchNeuralUCB, the default", BatchNeuralUCB(**settings, schedule=schedule, seed=seed), "plain"
    linear = {name: value for name, value in settings.items() if name != "limits"}
    yield "LinUCB, the same updates", LinUCB(**linear, schedule=schedule, seed=seed), "plain"
    made = {
        "digits": lambda: (Digits(), {"image": (1, 8, 8), "arm": (1,)}, ["arm"]),
        "cosine": lambda: (
            nn.Sequential(nn.Linear(10, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 1)),
            (10,),
            False,
        ),
        "words": lambda: (Words(), {"user": (6,), "item": (6,)}, True),
    }
    net, shape, ids = made[problem]()
    for name, explore in (
        ("torch module, all parameters explore", "requires_grad"),
        ("torch module, last layer", "last"),
    ):
        model = rarely.torch.Module(net, shape, ids=ids, explore=explore)
        yield name, BatchNeuralUCB(model=model, schedule=schedule, seed=seed), "torch"
    if hasattr(rarely, "EnsemblePolicy"):
        try:
            from lightgbm import LGBMRegressor as Regressor

            regressor = Regressor(verbose=-1, min_child_samples=5)
        except ImportError:
            from sklearn.ensemble import RandomForestRegressor as Regressor

            regressor = Regressor(50, random_state=0)
        dim = settings.get("dim", 640)
        policy = rarely.EnsemblePolicy(regressor, dim=dim, schedule=schedule, seed=seed)
        yield f"EnsemblePolicy of {type(regressor).__name__}", policy, "plain"


def play(policy, rounds, kind, horizon, noise, seed):
    rng, missed, deciding, training = np.random.default_rng(seed), 0.0, 0.0, 0.0
    for _, (pay, contexts) in zip(range(horizon), rounds, strict=False):
        start = time.process_time()
        decision = policy.select(contexts[kind])
        deciding += time.process_time() - start
        policy.observe(decision, float(pay[decision.arm] + noise * rng.normal()))
        missed += pay.max() - pay[decision.arm]
        if policy.due:
            start = time.process_time()
            policy.update()
            training += time.process_time() - start
    return missed, 1e3 * deciding / horizon, training


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", choices=["digits", "cosine", "words"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--horizon", type=int, default=1500)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--only", default="", help="models whose names contain this")
    given = parser.parse_args()
    for problem in given.problems:
        results = {}
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            for name, policy, kind in models(problem, given.horizon, given.batches, seed):
                if given.only in name:
                    noise = 0.0 if problem == "digits" else 0.1
                    found = play(policy, globals()[problem](seed), kind, given.horizon, noise, seed)
                    results.setdefault(name, []).append(found)
                    print(f"  {problem} {seed} {name}: regret {found[0]:.0f}", flush=True)
        print(f"| {problem}, {given.seeds} runs | regret | ms a decision | s of training |\n|---|---|---|---|")
        for name, found in results.items():
            regret, decision, training = np.array(found).T
            error = regret.std(ddof=1) / np.sqrt(len(regret)) if len(regret) > 1 else 0.0
            print(f"| {name} | {regret.mean():.0f} ± {error:.0f} | {decision.mean():.2f} | {training.mean():.1f} |")


if __name__ == "__main__":
    main()
