"""BatchNeuralUCB of many runs in lockstep: one row of every tensor for each run.

    R  replicas     T  rounds     K  arms     N  the most rounds that a replica has decided
    X̃  (R, N, d)    δ  (R, N, m)  a  (R, N, m)    factors of the rounds so far: φ = (δ x̃ᵀ, a)
    L  (R, N, N)    L Lᵀ = ΦΦᵀ + λI, the identity beyond a replica's own rounds

A turn decides the next rounds of all replicas at once: arms do not change Z within a batch, so a block of rounds is
chosen together, and the first round that ends a batch is found afterwards. Replicas whose batch has ended wait for the
others, and are then trained together, each on its own number of samples. The clock of every replica, its scales, its
initial weights and all settings are the core's own.

Z and scores are in float64; training is in float32 on a GPU, whichever precision a preset has on a processor. Arms
therefore agree with the core's but for rounds in which two arms are nearly tied, which are counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rarely import Policy
from rarely.extend import Array, ContextScale, IntArray, RewardScale
from rarely.extend.provisional import CLIP, ROUNDED, TIE, BatchClock, state_of
from rarely.worlds.protocol import Rounds
from rarely_lab.engine.play import NEARLY
from rarely_lab.gpu.training import Samples, Theta, train

BLOCK = 64  # rounds that a turn decides, at most
Factors = tuple[Tensor, Tensor, Tensor]


class Update(NamedTuple):
    """An update of a replica, with the names of `rarely.UpdateRecord`."""

    round: int
    accepted: bool
    log_det: float
    attempts: int = 0
    reason: str = ""


@dataclass
class Replica:
    """One run: what happened in it, and what the core keeps of it."""

    run: Rounds
    clock: BatchClock
    scale: ContextScale
    arms: IntArray
    log_dets: Array  # log det Z − log det λI after each round, (T,)
    updates: list[Update] = field(default_factory=list)
    done: int = 0
    frozen: int = 0
    """Rounds decided, and those in the Z that bonuses come from."""
    seen: int = 0  # rounds that its scale has seen
    log_det: float = 0.0
    trained: bool = False  # whether other weights than θ_0 have decided
    near_ties: int = 0  # rounds in which two arms were nearly tied

    def see(self) -> None:
        """Let its scale see the rounds that it has decided."""
        new = self.run.contexts[self.seen : self.done]
        self.scale, self.seen = self.scale.after(new.reshape(-1, new.shape[2]), len(new)), self.done


class Lockstep:
    """Replicas of one network on runs of one world; they may differ in schedule and seed, not in λ, β, m and J."""

    def __init__(
        self, policies: Sequence[Policy], runs: Sequence[Rounds], device: str, precision: torch.dtype = torch.float32
    ) -> None:
        self.device, self.precision = torch.device(device), precision
        learners: list[Any] = [state_of(policy).current.learner for policy in policies]
        first = learners[0]
        self.plan, self.network = first.plan, first.network
        self.beta, self.standardises = float(policies[0].settings()["beta"]), first.standardise_rewards
        self.horizon, self.arms = runs[0].rewards.shape
        self.replicas = []
        for policy, learner, run in zip(policies, learners, runs, strict=True):
            kept = state_of(policy).clock, learner.scale.prepared(run.contexts[0])
            self.replicas.append(Replica(run, *kept, np.zeros(self.horizon, np.int64), np.zeros(self.horizon)))
        self.fits_scale = first.scale.fits
        self.dim, self.columns = first.scale.map.dim, first.scale.map.scaled_dim
        # A scale that is given is the same for all, and contexts come scaled by the core.
        scaled = (lambda contexts: contexts) if self.fits_scale else first.scale
        self.contexts, self.paid, self.run = on_device(runs, scaled, self.device)
        count, rows, units = len(policies), self.horizon, self.network.hidden
        first, last = (self._put([learner.initial[layer] for learner in learners]) for layer in (0, 1))
        self.initial = Theta(first, last[:, 0])
        self.weights = Theta(*(part.clone() for part in self.initial))
        self.direction = Theta(*(torch.zeros_like(part) for part in self.initial))
        self.past = tuple(self._zeros(count, rows, width) for width in (self.columns, units, units))
        self.chosen = self._zeros(count, rows, self.dim) if self.fits_scale else self.past[0]
        self.rewards = self._zeros(count, rows)
        self.factor = self._zeros(count, rows, rows)
        self.factor.diagonal(dim1=1, dim2=2).fill_(1.0)
        self.reward_scale = torch.tensor([[0.0, 1.0]], dtype=torch.float64, device=self.device).repeat(count, 1)
        self.seconds = {"selecting": 0.0, "training": 0.0}

    def _put(self, arrays: Any) -> Tensor:
        return put(arrays, self.device)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=self.device)

    def _tensor(self, values: Any) -> Tensor:
        return torch.tensor(values, device=self.device)

    def play(self) -> list[Replica]:
        while True:
            start = time.perf_counter()
            playing = [i for i, r in enumerate(self.replicas) if r.done < self.horizon and not r.clock.due]
            if playing:
                self._turn(playing)
                self.seconds["selecting"] += time.perf_counter() - start
                continue
            due = [i for i, r in enumerate(self.replicas) if r.clock.due and r.done < self.horizon]
            if not due:
                return self.replicas
            self._update(due)
            self.seconds["training"] += time.perf_counter() - start

    # --- deciding

    def _turn(self, who: list[int]) -> None:
        """Decide the next rounds of some replicas, until the batch of each ends or the block does."""
        replicas = [self.replicas[i] for i in who]
        rows, done, most = self._tensor(who), self._tensor([r.done for r in replicas]), max(r.done for r in replicas)
        follows = [r.scale.follows for r in replicas]
        block = 1 if any(follows) else BLOCK
        wanted = [min(r.clock.lookahead(r.done, r.log_det), self.horizon - r.done, block) for r in replicas]
        count, ahead = max(wanted), self._tensor(wanted)
        offsets = torch.arange(count, device=self.device)
        contexts = self.contexts[self.run[rows][:, None], (done[:, None] + offsets).clamp(max=self.horizon - 1)]
        x = self._scaled(contexts, [r.scale for r in replicas]).flatten(1, 2)
        values, factors = features(self.weights.of(rows), x)
        norms, solved = squared_norms(factors), None
        left = norms
        if most:
            past: Any = tuple(part[rows, :most] for part in self.past)
            # Without a copy if they are all.
            factor = self.factor if len(who) == len(self.replicas) else self.factor[rows, :most]
            solved = torch.linalg.solve_triangular(factor[:, :most, :most], gram(past, factors), upper=False)
            inside = torch.arange(most, device=self.device) < self._tensor([r.frozen for r in replicas])[:, None]
            left = norms - (inside[:, None].double() @ solved.square())[:, 0]
        arms, near = self._choose(values, norms, left, rows, count)
        flat = offsets * self.arms + arms
        present = (offsets < ahead[:, None])[..., None]
        new: Any = tuple(part.gather(1, flat[..., None].expand(-1, -1, part.shape[2])) * present for part in factors)
        corner, beside = gram(new, new), None
        if solved is not None:
            beside = solved.gather(2, flat[:, None].expand(-1, most, -1)).mT * present
            corner = corner - beside @ beside.mT
        corner.diagonal(dim1=1, dim2=2).add_(self.plan.ridge)
        triangle = torch.linalg.cholesky(corner)
        growth = 2 * triangle.diagonal(dim1=1, dim2=2).log() - math.log(self.plan.ridge)
        told = growth.cumsum(1).cpu().numpy(), arms.cpu().numpy(), near.cpu().numpy()
        kept = self._tensor(self._note(replicas, wanted, follows, *told))
        self._append(rows, done, kept, contexts, arms, new, beside, triangle)
        if any(follows):
            self._follow([i for i, follow in zip(who, follows, strict=True) if follow])

    def _scaled(self, contexts: Tensor, scales: Sequence[Any]) -> Tensor:
        """Scale contexts (R', …, d) as `ContextScale` does; those of a scale that is given are scaled already."""
        if not self.fits_scale:
            return contexts
        shape, most = (len(scales), *(1,) * (contexts.dim() - 2), -1), CLIP / math.sqrt(self.dim)
        parts = (self._put([getattr(scale.map, part) for scale in scales]) for part in ("center", "spread"))
        center, spread = (part.view(shape) for part in parts)
        scaled = ((contexts - center) / spread).clamp_(-most, most)
        return torch.cat((scaled, torch.ones_like(scaled[..., :1])), -1) if self.columns > self.dim else scaled

    def _follow(self, who: list[int]) -> None:
        """Make Z anew on a scale that has followed a round; only then its log det is known."""
        for i in who:
            self.replicas[i].see()
        self._rebuild(who, self.weights)
        for r in (self.replicas[i] for i in who):
            r.log_dets[r.done - 1] = r.log_det
            if r.clock.first_due(r.done - 1, np.array([r.log_det])) is not None:
                r.clock = r.clock.ended(r.done)

    def _choose(self, values: Tensor, norms: Tensor, left: Tensor, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the arms of all rounds, the lowest of tied ones, and which rounds were nearly tied."""
        center, spread = self.reward_scale[rows].T[..., None]
        means = center + spread * self.network.output_scale * values
        scores = (means + self.beta * (left.clamp(min=0) / self.plan.ridge).sqrt()).unflatten(1, (count, self.arms))
        prior = (self.beta * (norms / self.plan.ridge).sqrt()).unflatten(1, (count, self.arms))
        best, rounded = scores.amax(-1), ROUNDED * scores.abs().amax(-1)
        size = torch.maximum(best - scores.amin(-1), prior.amax(-1)).maximum(spread)
        tied = scores >= (best - TIE * size - rounded)[..., None]
        near = (scores >= (best - NEARLY * size - rounded)[..., None]) & ~tied
        numbers = torch.arange(self.arms, device=self.device)
        return torch.where(tied, numbers, self.arms).amin(-1), near.any(-1)

    def _note(
        self, replicas: Any, wanted: list[int], follows: list[bool], growth: Array, arms: IntArray, near: Any
    ) -> list[int]:
        """Return how many of the decided rounds each replica keeps: those up to the one that ends its batch."""
        kept = []
        for r, count, follow, grown, chosen, ties in zip(replicas, wanted, follows, growth, arms, near, strict=True):
            log_dets = r.log_det + grown[:count]
            end = None if follow else r.clock.first_due(r.done, log_dets)
            keep = count if end is None else end + 1
            r.arms[r.done : r.done + keep], r.log_dets[r.done : r.done + keep] = chosen[:keep], log_dets[:keep]
            r.near_ties += int(ties[:keep].sum())
            r.log_det = float(log_dets[keep - 1])
            r.clock = r.clock if end is None else r.clock.ended(r.done + keep)
            r.done += keep
            kept.append(keep)
        return kept

    def _append(
        self,
        rows: Tensor,
        done: Tensor,
        kept: Tensor,
        contexts: Tensor,
        arms: Tensor,
        new: Factors,
        beside: Tensor | None,
        triangle: Tensor,
    ) -> None:
        """Add the kept rounds to Z and to what is learned from."""
        offsets = torch.arange(arms.shape[1], device=self.device)
        r, j = (offsets < kept[:, None]).nonzero(as_tuple=True)
        at, when = rows[r], done[r] + j
        for part, values in zip(self.past, new, strict=True):
            part[at, when] = values[r, j]
        if self.fits_scale:
            self.chosen[at, when] = contexts[r, j, arms[r, j]]
        self.rewards[at, when] = self.paid[self.run[at], when, arms[r, j]]
        if beside is not None:
            self.factor[at, when, : beside.shape[2]] = beside[r, j]
        lower = (offsets[:, None] >= offsets) & (offsets[:, None] < kept[:, None, None])
        r, j, k = lower.nonzero(as_tuple=True)
        self.factor[rows[r], done[r] + j, done[r] + k] = triangle[r, j, k]

    # --- learning

    def _rebuild(self, who: list[int], weights: Theta) -> None:
        """Make Z anew from all rounds of some replicas: features at these weights, on the scale of each."""
        replicas, rows = [self.replicas[i] for i in who], self._tensor(who)
        most = max(r.done for r in replicas)
        inside = torch.arange(most, device=self.device) < self._tensor([r.done for r in replicas])[:, None]
        x = self._scaled(self.chosen[rows, :most], [r.scale for r in replicas])
        factors: Any = tuple(part * inside[..., None] for part in features(weights.of(rows), x)[1])
        matrix = gram(factors, factors)
        matrix.diagonal(dim1=1, dim2=2).add_(torch.where(inside, self.plan.ridge, 1.0))
        triangle = torch.linalg.cholesky(matrix)
        for part, values in zip(self.past, factors, strict=True):
            part[rows, :most] = values
        self.factor[rows, :most, :most] = triangle
        logs = (2 * triangle.diagonal(dim1=1, dim2=2).log() - math.log(self.plan.ridge)) * inside
        for r, log_det in zip(replicas, logs.sum(1).tolist(), strict=True):
            r.log_det = log_det

    def _update(self, due: list[int]) -> None:
        """Train the next version of some replicas, and freeze their Z."""
        replicas, rows = [self.replicas[i] for i in due], self._tensor(due)
        most, counts = max(r.done for r in replicas), self._tensor([r.done for r in replicas])
        inside = torch.arange(most, device=self.device) < counts[:, None]
        for r in replicas:
            r.see()
        fitted = [r.scale.fitted() for r in replicas]
        x = self._scaled(self.chosen[rows, :most], fitted) * inside[..., None]
        rewards, scale = self.rewards[rows, :most], self.reward_scale[rows]
        if self.standardises:
            fits = (RewardScale.fit(r.run.paid(r.arms)[: r.done]) for r in replicas)
            scale = self._put([(one.center, one.spread) for one in fits])
        targets = (rewards - scale[:, :1]) / scale[:, 1:] * inside / self.network.output_scale
        planned = torch.float32 if self.plan.precision == "float32" else torch.float64
        outcome = train(
            Samples(x.to(planned), targets.to(planned), counts),
            self.initial.of(rows),
            self.direction.of(rows),
            steps=self.plan.steps,
            ridge=self.plan.ridge,
            hidden=self.network.hidden,
            precision=self.precision,
        )
        good = rows[outcome.accepted]
        for whole, new in ((self.weights, outcome.weights), (self.direction, outcome.direction)):
            for part, values in zip(whole, new, strict=True):
                part[good] = values[outcome.accepted].to(part.dtype)
        self.reward_scale[good] = scale[outcome.accepted]
        rescaled = []
        for i, r, fit, reason in zip(due, replicas, fitted, outcome.reasons, strict=True):
            if not reason:
                rescaled += [i] if r.scale.changed_columns(fit) else []
                r.scale = fit
        # Z is made anew for scales that changed: at θ_0 while no other weights have decided, as `NetworkLearner` does.
        for trained, weights in ((False, self.initial), (True, self.weights)):
            if some := [i for i in rescaled if self.replicas[i].trained == trained]:
                self._rebuild(some, weights)
        for r, attempts, reason in zip(replicas, outcome.attempts.tolist(), outcome.reasons, strict=True):
            if not reason:
                r.trained, r.frozen = True, r.done
            version = r.clock.version + (not reason)
            r.clock = r.clock.restarted(r.done, r.log_det, version)
            r.updates.append(Update(r.done, not reason, r.log_det, attempts, reason))


def features(weights: Theta, x: Tensor) -> tuple[Tensor, Factors]:
    """Return u of contexts (R, n, d), and their factors."""
    h = x @ weights.first.mT
    units = torch.relu(h)
    return (units @ weights.last[..., None])[..., 0], (x, (h > 0) * weights.last[:, None], units)


def gram(left: Factors, right: Factors) -> Tensor:
    """Return ⟨φ, φ'⟩ = ⟨x, x'⟩⟨δ, δ'⟩ + ⟨a, a'⟩, (R, n, n')."""
    return (left[0] @ right[0].mT) * (left[1] @ right[1].mT) + left[2] @ right[2].mT


def squared_norms(factors: Factors) -> Tensor:
    """Return ‖φ‖², (R, n)."""
    x, signals, units = (part.square().sum(-1) for part in factors)
    return x * signals + units


def on_device(
    runs: Sequence[Rounds], scale: Callable[[Array], Array], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return scaled contexts (S, T, K, d) and rewards (S, T, K) of runs that differ, and which each replica plays."""
    unlike = {id(run): run for run in runs}
    contexts = [scale(run.contexts.reshape(-1, run.contexts.shape[2])) for run in unlike.values()]
    shaped = [flat.reshape(*runs[0].rewards.shape, -1) for flat in contexts]
    which = torch.tensor([list(unlike).index(id(run)) for run in runs], device=device)
    return put(shaped, device), put([run.rewards for run in unlike.values()], device), which


def put(arrays: Any, device: torch.device) -> Tensor:
    """Return arrays of one shape as one tensor on the device."""
    return torch.from_numpy(np.ascontiguousarray(np.stack(arrays), np.float64)).to(device)
