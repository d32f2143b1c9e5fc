"""What a torch module costs in the place of our own network: decisions, training, and memory at p = 10⁶.

python benchmarks/torch_models.py speed       the same perceptron as `Network` and as a torch module
python benchmarks/torch_models.py update      an update that chooses its length, in plain trainings of that length
python benchmarks/torch_models.py million     500 rounds of 10 arms with p = 10⁶ and an exact Z
"""

import argparse
import copy
import math
import resource
import time
from functools import partial

import numpy as np
import torch
from torch import nn

import rarely.torch
from rarely import BatchNeuralUCB, OnDemand, Preset, Training
from rarely.torch.model import BATCH, BATCHES, RATE


def as_module(weights):
    layers = []
    for w in weights:
        layer = nn.Linear(w.shape[1], w.shape[0], bias=False, dtype=torch.float64)
        layer.weight.data = torch.as_tensor(w)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def seconds(call, repeats):
    call()
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


def speed(hidden=200, dim=20, arms=10, past=1000):
    """Print processor seconds of a decision, of one in a block of 64, and of a training: 200 steps, and self-tuned."""
    preset = Preset(scaling="standard", precision="float32")
    rng, common = np.random.default_rng(0), {"schedule": OnDemand(), "covariance": "dual", "seed": 0}
    one, block = rng.normal(size=(arms, dim)) / 5, rng.normal(size=(64, arms, dim)) / 5
    contexts, rewards = rng.normal(size=(past, arms, dim)) / np.sqrt(dim), rng.random(past)
    table, chosen = {}, {}
    ours = BatchNeuralUCB(dim, hidden=hidden, preset=preset, training=Training(steps=200), **common)
    model = {"model": rarely.torch.Module(as_module(ours.initial_weights))}
    for name, own in (("Network", {"dim": dim, "hidden": hidden}), ("torch", model)):
        policy = BatchNeuralUCB(**own, preset=preset, training=Training(steps=200), **common)
        decision = policy.select(contexts)
        policy.observe(decision, rewards)
        training = seconds(policy.prepare_update(force=True).run, 3)
        policy.update()
        tuned = BatchNeuralUCB(**own, **common)
        tuned.observe(tuned.select(contexts[:400]), rewards[:400])
        tuned_training = seconds(tuned.prepare_update(force=True).run, 3)
        single, blocked = (seconds(partial(policy.score, some), repeats) for some, repeats in ((one, 300), (block, 30)))
        table[name], chosen[name] = (single, blocked / 64, training, tuned_training), decision.arm
    print(
        f"{'':8} {'one by one':>12} {'in blocks of 64':>16} {'200 steps':>10} {'self-tuned':>10}   "
        f"p = {ours.network.parameters:,}"
    )
    for name, (single, blocked, training, tuned_training) in table.items():
        print(f"{name:8} {1e6 * single:9.0f} µs {1e6 * blocked:13.0f} µs {training:8.2f} s {tuned_training:8.2f} s")
    ratios = [b / a for a, b in zip(table["Network"], table["torch"], strict=True)]
    same = np.mean(chosen["Network"] == chosen["torch"])
    print(
        f"{'ratio':8} {ratios[0]:12.2f} {ratios[1]:16.2f} {ratios[2]:10.2f} {ratios[3]:10.2f}   same arms: {same:.1%}"
    )


def plain_training(net, contexts, rewards, steps):
    """Take steps of Adam in float32 on minibatches as large as the library's, and nothing else."""
    net = copy.deepcopy(net).float()
    x, y = (torch.tensor(each, dtype=torch.float32) for each in (contexts, rewards))
    batch, optimiser = max(BATCH, math.ceil(len(x) / BATCHES)), torch.optim.Adam(net.parameters(), lr=RATE, fused=True)
    done = 0
    while done < steps:
        for part in torch.randperm(len(x)).split(batch)[: steps - done]:
            optimiser.zero_grad()
            ((net(x[part]).ravel() - y[part]) ** 2).sum().backward()
            optimiser.step()
            done += 1


def update(dim=20, arms=10, rounds=(200, 1000, 4000), repeats=5):
    """Print the time of an update by default over that of a plain training of its length, the best of several each."""
    torch.manual_seed(0)
    shapes = {
        "one layer of 100": [(dim, 100), (100, 1)],
        "two layers of 256": [(dim, 256), (256, 256), (256, 1)],
    }
    for name, sizes in shapes.items():
        layers = [layer for size in sizes for layer in (nn.Linear(*size), nn.ReLU())]
        net = nn.Sequential(*layers[:-1])
        for count in rounds:
            policy = BatchNeuralUCB(model=rarely.torch.Module(net), schedule=OnDemand(), covariance="diagonal", seed=0)
            rng = np.random.default_rng(0)
            for _ in range(2):  # the second update knows of an earlier version, as most do
                contexts = rng.normal(size=(count // 2, arms, dim)) / np.sqrt(dim)
                decision = policy.select(contexts)
                chosen = contexts[np.arange(len(contexts)), decision.arm]
                policy.observe(decision, np.cos(3 * chosen[:, 0]) + 0.1 * rng.normal(size=len(chosen)))
                job = policy.prepare_update()
                record = policy.update()
            rows, told = policy.history.contexts, policy.history.rewards
            calls = (job.run, partial(plain_training, net, rows, told, record.steps))
            times = np.array([[seconds(call, 1) for call in calls] for _ in range(repeats)]).min(axis=0)
            ratio = f"{times[0]:.2f} s, plain {times[1]:.2f} s: {times[0] / times[1]:.2f}"
            print(f"{name}, {count} rounds: {record.steps} steps, {ratio}", flush=True)


def million(rounds=500, arms=10):
    """Play with p = 10⁶ in the exact dual form, and print the price that was stated and the memory that was used."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 1000), nn.ReLU(), nn.Linear(1000, 980), nn.ReLU(), nn.Linear(980, 1))
    model = rarely.torch.Module(net)
    print(model.describe(rounds))
    before, rng = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, np.random.default_rng(0)
    policy = BatchNeuralUCB(model=model, schedule=OnDemand(), covariance="dual", training=Training(steps=50), seed=0)
    start = time.process_time()
    for batch in range(5):
        contexts = rng.normal(size=(rounds // 5, arms, 20)) / 4
        decision = policy.select(contexts)
        chosen = contexts[np.arange(len(contexts)), decision.arm]
        policy.observe(decision, np.cos(chosen.sum(axis=1)))
        print(
            batch, f"log det {policy.log_det:.1f}", policy.update().final_loss, f"{time.process_time() - start:.0f} s"
        )
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"p = {policy.network.parameters:,}: peak {after / 2**10:.0f} MiB, of which {before / 2**10:.0f} before round 1"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "update", "million"])
    {"speed": speed, "update": update, "million": million}[parser.parse_args().what]()
