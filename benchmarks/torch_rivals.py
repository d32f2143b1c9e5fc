"""The same module, data and budget of trainings for us and for the rules of calvera and AgileRL: regret and decisions.

    python benchmarks/torch_rivals.py --seeds 3 --first-seed 200

calvera 1.0.2 (`NeuralBandit`) and AgileRL 2.58.0 (`NeuralUCB`) are not run themselves: the one needs Lightning, the
other 30 packages, and both their own loops. `Diagonal` and `LastLayer` are their rules in a few lines, from their
sources: one backward pass for each arm; Z diagonal over all parameters (bonus √(λν Σ g²/Z)), or full over the last
layer (bonus γ√(gᵀZ⁻¹g), g/√out). Both train with Adam, as they do, on all rewards so far and when we do. Each is played
with its package's own exploration rate, 1, and with one that makes bonuses small (--tune prints regret for a grid);
ours is the library's default.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn

import rarely.torch
from rarely import BatchNeuralUCB, Paced

STEPS, RATE = 200, 3e-3
PLAYED = {
    "ours": (),
    "calvera's diagonal": (),
    "calvera's diagonal, ν = 1e-4": (1e-4,),
    "AgileRL's last layer": (),
    "AgileRL's last layer, γ = 0.1": (0.1,),
}
"""Who plays, and the exploration rate where it is not the package's own."""


class Rival:
    """What both share: a network, its rewards, and training from the weights that it has."""

    def __init__(self, net):
        self.net, self.contexts, self.rewards = net, [], []

    def gradients(self, contexts, parameters):
        values = self.net(torch.as_tensor(contexts, dtype=torch.float32))[:, 0]
        found = []
        for value in values:  # one backward pass for each arm
            self.net.zero_grad()
            value.backward(retain_graph=True)
            found.append(torch.cat([p.grad.flatten() for p in parameters]).clone())
        return values.detach(), torch.stack(found)

    def observe(self, context, reward):
        self.contexts.append(context)
        self.rewards.append(reward)

    def update(self):
        x, y = (torch.as_tensor(np.array(values), dtype=torch.float32) for values in (self.contexts, self.rewards))
        optimiser = torch.optim.Adam(self.net.parameters(), lr=RATE, weight_decay=1e-4)
        for _ in range(STEPS):
            rows = torch.randint(len(x), (min(128, len(x)),))
            optimiser.zero_grad()
            ((self.net(x[rows])[:, 0] - y[rows]) ** 2).mean().backward()
            optimiser.step()


class Diagonal(Rival):
    """calvera's NeuralUCB."""

    def __init__(self, net, nu=1.0, ridge=1.0):
        super().__init__(net)
        self.own, self.scale = list(net.parameters()), ridge * nu
        self.z = torch.full((sum(p.numel() for p in self.own),), ridge)

    def select(self, contexts):
        values, g = self.gradients(contexts, self.own)
        arm = int(torch.argmax(values + torch.sqrt(self.scale * (g * g / self.z).sum(1))))
        self.z += g[arm] ** 2
        return arm


class LastLayer(Rival):
    """AgileRL's NeuralUCB."""

    def __init__(self, net, gamma=1.0, ridge=1.0):
        super().__init__(net)
        self.own, self.gamma = list(net[-1].parameters()), gamma
        self.inverse = ridge * torch.eye(sum(p.numel() for p in self.own))

    def select(self, contexts):
        values, g = self.gradients(contexts, self.own)
        bonus = torch.sqrt(torch.einsum("ni,ij,nj->n", g, self.inverse, g).clamp(min=0))
        arm = int(torch.argmax(values + self.gamma * bonus))
        v = self.inverse @ g[arm]
        self.inverse -= torch.outer(v, v) / (1 + g[arm] @ v)
        return arm


def network(dim, seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def rounds(seed, horizon, arms, dim):
    rng = np.random.default_rng(seed)
    secret = rng.normal(size=dim)
    secret /= np.linalg.norm(secret)
    x = rng.normal(size=(horizon, arms, dim))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    return x, np.cos(3 * x @ secret), 0.1 * rng.normal(size=horizon)


def play(name, seed, given, *constant):
    """Return regret, and seconds of processor time of all decisions."""
    x, pay, noise = rounds(seed, given.horizon, given.arms, given.dim)
    net, schedule = network(given.dim, seed), Paced(given.horizon, given.batches)
    missed = deciding = 0.0
    if name == "ours":
        policy = BatchNeuralUCB(model=rarely.torch.Module(net), schedule=schedule, seed=seed)
        while policy.round < given.horizon:
            start = time.process_time()
            decision = policy.select(x[policy.round :], until_due=bool(policy.versions_left))
            deciding += time.process_time() - start
            done, chosen = np.arange(policy.round - len(decision.arm), policy.round), decision.arm
            policy.observe(decision, pay[done, chosen] + noise[done])
            missed += float((pay[done].max(axis=1) - pay[done, chosen]).sum())
            if policy.due and policy.versions_left:
                policy.update()
        return missed, deciding, [record.round for record in policy.updates]
    rival = {"calvera's diagonal": Diagonal, "AgileRL's last layer": LastLayer}[name.partition(",")[0]](net, *constant)
    for t in range(given.horizon):
        start = time.process_time()
        arm = rival.select(x[t])
        deciding += time.process_time() - start
        rival.observe(x[t, arm], pay[t, arm] + noise[t])
        missed += float(pay[t].max() - pay[t, arm])
        if t + 1 in given.updates:
            rival.update()
    return missed, deciding, []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--horizon", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--arms", type=int, default=20)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    if given.tune:
        given.updates = [2**i for i in range(1, 20)]
        for constant in (1e-6, 1e-4, 1e-2, 1e-1, 1.0):
            for name in ("calvera's diagonal", "AgileRL's last layer"):
                regret = np.mean([play(name, seed, given, constant)[0] for seed in range(2)])
                print(f"{name} {constant:g}: {regret:.0f}", flush=True)
        return
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for name, constant in PLAYED.items():
            regret, deciding, updates = play(name, seed, given, *constant)
            given.updates = updates or given.updates
            results.setdefault(name, []).append((regret, given.horizon / deciding))
            print(
                f"  {seed} {name}: regret {regret:.0f}, {given.horizon / deciding:.0f} decisions a second", flush=True
            )
    print(f"| T = {given.horizon}, {given.arms} arms | regret | decisions a second |\n|---|---|---|")
    for name, found in results.items():
        regret, rate = np.array(found).T
        error = regret.std(ddof=1) / np.sqrt(len(regret))
        print(f"| {name} | {regret.mean():.0f} ± {error:.0f} | {np.median(rate):.0f} |")


if __name__ == "__main__":
    main()
