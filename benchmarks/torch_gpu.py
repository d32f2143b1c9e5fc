"""p = 17 million on one GPU: layers of 4096, T = 20 000, B = 50, exact Z; and the rate of training.

    PYTHONPATH=src python benchmarks/torch_gpu.py                  # needs torch with CUDA, and NumPy; some minutes
    PYTHONPATH=src python benchmarks/torch_gpu.py --device cpu --width 64 --rounds 400 --batches 4    # a rehearsal

Training is timed from inside and its multiplications are counted: 6·p for each sample of a step, forward and backward.
The product rate is that of 8192×8192 matrices in the same precision.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

import rarely.torch
from rarely import BatchNeuralUCB, FixedGrid, Limits
from rarely._core.training.gradient_descent import TrainingPlan
from rarely._core.training.objective import MomentumState


def synchronised(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def product_rate(device, size):
    """Return float32 multiplications and additions a second in large products, as torch's settings make them."""
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    _ = a @ b
    start = synchronised(device)
    for _ in range(5):
        _ = a @ b
    return 5 * 2 * size**3 / (synchronised(device) - start)


def training_rate(model, samples, batch, steps):
    """Return operations a second of Adam's steps, and milliseconds a step."""
    rng = np.random.default_rng(0)
    contexts = np.column_stack((rng.normal(size=(samples, model.dim)), np.ones(samples)))
    network = model.network().tuned(0.0)
    objective = network.own_objective(
        model.weights, contexts, rng.normal(size=samples), TrainingPlan(0.01, precision="float32")
    )
    objective.descend_with_momentum(MomentumState.at_rest(objective.initial), 0.1, 3, np.inf)
    adam = objective._steps
    start = synchronised(model.device.type)
    for _ in range(steps):
        next(adam)
    taken = synchronised(model.device.type) - start
    return 6 * network.parameters * min(batch, samples) * steps / taken, 1e3 * taken / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--arms", type=int, default=4)
    parser.add_argument("--batch", type=int, default=2048, help="samples of a minibatch")
    parser.add_argument("--tf32", action="store_true")
    given = parser.parse_args()
    torch.set_float32_matmul_precision("high" if given.tf32 else "highest")
    torch.manual_seed(0)
    dim, width = 32, given.width
    net = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    start = time.perf_counter()
    model = rarely.torch.Module(net, device=given.device, batch=given.batch)
    print(model.describe(given.rounds), flush=True)
    peak = product_rate(given.device, 8192 if given.device == "cuda" else 512)
    rate, step = training_rate(model, 8192, given.batch, 50 if given.device == "cuda" else 5)
    precision = "TF32" if given.tf32 else "float32"
    print(f"training in {precision}: {rate / 1e12:.2f} TFLOP/s, {rate / peak:.0%} of the product rate", flush=True)
    print(f"(which is {peak / 1e12:.2f} TFLOP/s); {step:.2f} ms a step of {given.batch} samples", flush=True)
    policy = BatchNeuralUCB(
        model=model,
        schedule=FixedGrid(given.rounds, given.batches),
        covariance="dual",
        limits=Limits(memory=100 * 2**30, history=None),
        seed=0,
    )
    rng, secret = np.random.default_rng(0), np.random.default_rng(1).normal(size=dim)
    deciding = training = missed = missed_at_random = 0.0
    while policy.round < given.rounds:
        count = min(given.rounds // given.batches, given.rounds - policy.round)
        contexts = rng.normal(size=(count, given.arms, dim)) / np.sqrt(dim)
        begun = synchronised(given.device)
        decision = policy.select(contexts)
        deciding += synchronised(given.device) - begun
        pay = np.tanh(contexts @ secret)
        policy.observe(decision, pay[np.arange(count), decision.arm] + 0.1 * rng.normal(size=count))
        missed += float((pay.max(axis=1) - pay[np.arange(count), decision.arm]).sum())
        missed_at_random += float((pay.max(axis=1) - pay.mean(axis=1)).sum())
        if policy.due and policy.versions_left:
            begun = synchronised(given.device)
            record = policy.update()
            training += synchronised(given.device) - begun
            memory = torch.cuda.max_memory_allocated() / 2**30 if given.device == "cuda" else 0.0
            spent = f"deciding {deciding:.0f} s, training {training:.0f} s, {memory:.1f} GiB, {record.loops}"
            so_far = f"round {policy.round}, J = {record.steps}, log det {policy.log_det:.0f}"
            print(f"{time.perf_counter() - start:5.0f} s: {so_far}, {spent}", flush=True)
    sizes = f"p = {policy.network.parameters:,}, covariance {policy.covariance}"
    print(f"{policy.round} rounds, {policy.version} trainings, {sizes}; {time.perf_counter() - start:.0f} s")
    print(f"regret {missed:.0f}, at random {missed_at_random:.0f}")


if __name__ == "__main__":
    main()
