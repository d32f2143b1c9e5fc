"""Batched Neural Bandits in one file: Algorithm 1 and Algorithm 2 with NumPy, the p×p matrix and all.

Written for reading, beside the paper (Gu, Karbasi, Khosravi, Mirrokni, Zhou: Batched Neural Bandits):

    python examples/one_file.py                      # cosine, adaptive, B = 40, log q = 40
    python examples/one_file.py --scheme fixed --batches 200 --rounds 500

It imports nothing of `rarely`, whose tests demand that both choose the same arms, round by round.
"""

from __future__ import annotations

import argparse
import time

import numpy as np


def cosine_problem(seed: int, rounds: int, dim: int = 10, arms: int = 4):
    """Section 6.1: r = cos(3 xᵀθ*) + N(0, 0.25), contexts U[0, 1]^d, θ* ~ U[0, 1]^d of norm 1."""
    rng = np.random.default_rng([seed, 1])
    theta = rng.random(dim)
    theta /= np.linalg.norm(theta)
    contexts = rng.random((rounds, arms, dim))
    return contexts, np.cos(3 * contexts @ theta), rng.normal(0, 0.5, rounds)


# --- the network, equation (3) with L = 2: f(x; θ) = √m W_2 σ(W_1 x) ---------------------------------


def initial_weights(rng: np.random.Generator, dim: int, hidden: int):
    """Assumption 2 without doubled contexts: W_1 = [W; W], W_2 = [w, −w], so that f(x; θ_0) = 0."""
    w1 = rng.normal(0, np.sqrt(2 / hidden), (hidden // 2, dim))
    w2 = rng.normal(0, np.sqrt(2 / hidden), hidden // 2)
    return np.vstack([w1, w1]), np.concatenate([w2, -w2])


def values(theta, x):
    """f(x; θ) of (n, d) contexts."""
    w1, w2 = theta
    return np.sqrt(len(w2)) * (np.maximum(x @ w1.T, 0) @ w2)


def features(theta, x):
    """g(x; θ)/√m of (n, d) contexts, written out: (n, p) with p = md + m."""
    w1, w2 = theta
    hidden = np.maximum(x @ w1.T, 0)
    by_w1 = ((hidden > 0) * w2)[:, :, None] * x[:, None, :]
    return np.hstack([by_w1.reshape(len(x), -1), hidden])


# --- Algorithm 2: TrainNN ----------------------------------------------------------------------------


def stable_step(theta_0, x, ridge):
    """1.8/(m(λ_max(ΦΦᵀ) + λ)): the printed η diverges at once, for the curvature is about m·t."""
    phi = features(theta_0, x)
    v = phi.sum(axis=0)
    for _ in range(20):
        v /= np.linalg.norm(v)
        v, last = phi.T @ (phi @ v), v
    return 1.8 / (len(theta_0[1]) * (last @ v + ridge))


def train(theta_0, x, r, ridge, steps, eta):
    """J gradient steps on line 1's ℒ(θ) = Σ(f(x_i; θ) − r_i)²/2 + mλ‖θ − θ_0‖²/2, from θ_0."""
    m = len(theta_0[1])
    w1, w2 = theta_0[0].copy(), theta_0[1].copy()  # θ^(0)
    for _ in range(steps):  # line 2: for j = 0 … J − 1
        hidden = np.maximum(x @ w1.T, 0)
        error = np.sqrt(m) * (hidden @ w2) - r
        back = (hidden > 0) * w2
        grad1 = np.sqrt(m) * back.T @ (error[:, None] * x) + m * ridge * (w1 - theta_0[0])
        grad2 = np.sqrt(m) * error @ hidden + m * ridge * (w2 - theta_0[1])
        w1 -= eta * grad1  # line 3: θ^(j+1) = θ^(j) − η∇ℒ(θ^(j))
        w2 -= eta * grad2
    return w1, w2  # line 4: end for; ensure θ^(J)


# --- Algorithm 1: BatchNeuralUCB ---------------------------------------------------------------------


def batch_neural_ucb(
    contexts,
    reward_of,
    *,
    scheme: str,
    batches: int,
    log_q: float = np.inf,
    hidden: int = 200,
    ridge: float = 0.01,
    beta: float = 0.001,
    steps: int = 200,
    eta: float | None = None,
    seed: int = 0,
    progress=lambda t, b: None,
):
    """Play (T, K, d) contexts; returns the arms and the rounds, from 1, at which a batch began.

    scheme: "fixed" (line 3, as t_b = ⌊bT/B⌋ + 1), "adaptive" (line 3) or "sequential" (NeuralUCB).
    """
    rounds, _, dim = contexts.shape
    theta_0 = theta = initial_weights(np.random.default_rng(seed), dim, hidden)
    p = hidden * dim + hidden
    z_inverse = np.eye(p) / ridge  # line 1: Z_1 = λI, kept as its inverse
    frozen = z_inverse.copy()  # Z at the batch's start: what scores
    log_det = log_det_start = 0.0  # log det Z_t − log det λI; det itself overflows
    count = min(batches, rounds)
    starts, chosen, x_seen, r_seen = [1], [], np.empty((rounds, dim)), np.empty(rounds)
    b, waiting = 0, 0

    for t in range(1, rounds + 1):
        if scheme == "fixed":
            new_batch = b + 1 < count and t == (b + 1) * rounds // count + 1
        elif scheme == "adaptive":
            new_batch = log_det - log_det_start > log_q and b <= batches - 2
        else:
            new_batch = t > 1
        if new_batch:
            b += 1
            starts.append(t)
            for s in range(waiting, t - 1):  # line 5: the batch's rewards come in
                r_seen[s] = reward_of(s, chosen[s])
            waiting = t - 1
            step = stable_step(theta_0, x_seen[: t - 1], ridge) if eta is None else eta
            theta = train(theta_0, x_seen[: t - 1], r_seen[: t - 1], ridge, steps, step)  # line 6
            frozen[:] = z_inverse  # line 7: β_{t_b} is constant here
            log_det_start = log_det
        phi = features(theta, contexts[t - 1])
        variance = np.einsum("kp,kp->k", phi @ frozen, phi)
        arm = int(np.argmax(values(theta, contexts[t - 1]) + beta * np.sqrt(variance)))  # line 10
        # line 11: Z ← Z + φφᵀ, by Sherman–Morrison and the determinant lemma
        u = z_inverse @ phi[arm]
        growth = 1 + phi[arm] @ u
        u /= np.sqrt(growth)
        z_inverse -= np.outer(u, u)
        log_det += np.log(growth)
        x_seen[t - 1] = contexts[t - 1, arm]
        chosen.append(arm)
        progress(t, b)
    return np.array(chosen), starts


def main() -> None:
    """Play the cosine problem and print regret, batches and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheme", choices=["fixed", "adaptive", "sequential"], default="adaptive")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--log-q", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    contexts, means, noise = cosine_problem(args.seed, args.rounds)

    def progress(t: int, b: int) -> None:
        if t % 100 == 0:
            print(f"round {t} of {args.rounds}, batch {b}", flush=True)

    start = time.perf_counter()
    arms, starts = batch_neural_ucb(
        contexts,
        lambda s, arm: means[s, arm] + noise[s],
        scheme=args.scheme,
        batches=args.batches,
        log_q=args.log_q,
        seed=args.seed,
        progress=progress,
    )
    regret = float((means.max(axis=1) - means[np.arange(args.rounds), arms]).sum())
    print(f"regret {regret:.1f}, {len(starts)} batches, {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
