"""NeuralUCB and NeuralTS as the code of their authors plays them, with the settings of that code.

    f(x) = w₂ᵀ ReLU(W₁x + b₁) + b₂   one hidden layer of 100; starts uniform on ±1/√(inputs of the layer)
    g    (p,)  gradient of f by all p weights in use
    U    (p,)  λ + Σ g² over the arms that were chosen so far: every choice changes it, no training does
    σ    √(λν Σ g²/U)

github.com/uclaml/NeuralUCB plays the largest f + σ, with λ = 0.001 and ν = 1. Training continues from the weights in
use: steps of 0.01 on (f − r)² of one reward after another, in one random order again and again, with weight decay λ,
until 1000 steps are made or the mean loss of a pass is at most 0.001.

github.com/ZeroWeight/NeuralTS plays the largest draw from N(f, σ²), with the λ = 0.01 and ν = 0.00001 with which its
script cuda.sh plays Mushroom, MAGIC and four more. It trains after every round by 100 steps of 0.01 on the mean of
(f − r)² over all n rewards, with weight decay λ/n; with fewer updates each has the steps of all rounds since the last.

As in their data code, a row of a table has length 1. Where arms are blocks of one row, f of arm k has the k-th block of
W₁ alone, and the others' gradients are 0. Numbers have single precision, as theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from rarely.extend import Array, IntArray
from rarely_lab.compare.problems import AtEnds, Task

HIDDEN, RATE = 100, 0.01
MOST_STEPS, SMALL_LOSS = 1000, 1e-3
FULL_STEPS = 100  # of NeuralTS, for each round since the last update


class AuthorsNetwork(AtEnds, ABC):
    """What the two share: the network, U and σ."""

    stream, refits = 10, True
    decay: float  # λ
    variance: float  # ν

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        blocks, columns = (task.arms, task.block) if task.block else (1, task.dim)
        self.hidden = self._start(task.dim, (blocks, HIDDEN, columns))
        self.biases = self._start(task.dim, (HIDDEN,))
        self.output = self._start(HIDDEN, (HIDDEN,))
        self.offset = float(self._start(HIDDEN, ()))
        self.squares = [np.full_like(weights, self.decay) for weights in (self.hidden, self.biases, self.output)]
        self._offset_square = self.decay

    def _start(self, inputs: int, shape: tuple[int, ...]) -> Array:
        return np.asarray(self._generator.uniform(-1, 1, shape) / np.sqrt(inputs), np.float32)

    def rows(self, contexts: Array) -> Array:
        """Return each arm's row without the blocks of others, (K, n)."""
        if not self._task.block:
            return contexts.astype(np.float32)
        own = contexts.reshape(len(contexts), -1, self._task.block).sum(axis=1)
        return np.asarray(own / np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-12), np.float32)

    def assess(self, contexts: Array) -> tuple[Array, Array, list[Array]]:
        """Return f and σ of every arm, (K,), and the gradients by W₁, b₁ and w₂; that by b₂ is 1."""
        rows = self.rows(contexts)
        before = np.matmul(self.hidden, rows[:, :, None])[:, :, 0] + self.biases
        after = np.maximum(before, 0)
        signals = self.output * (before > 0)
        gradients = [signals[:, :, None] * rows[:, None, :], signals, after]
        shares = [(g * g / u).reshape(len(rows), -1).sum(axis=1) for g, u in zip(gradients, self.squares, strict=True)]
        deviations = np.sqrt(self.decay * self.variance * (sum(shares) + 1 / self._offset_square))
        return after @ self.output + self.offset, deviations, gradients

    @abstractmethod
    def scores(self, means: Array, deviations: Array) -> Array:
        """Return what is largest for the arm to play, (K,)."""

    @abstractmethod
    def train(self, rows: Array, blocks: IntArray, rewards: Array) -> None:
        """Continue training on all rewards."""

    def select(self, contexts: Array) -> int:
        """Return the arm with the largest score, and add its squared gradient to U."""
        with np.errstate(all="ignore"):  # weights that diverged stay so, as in theirs
            means, deviations, gradients = self.assess(contexts)
            arm = int(np.argmax(self.scores(means, deviations)))
            for square, gradient in zip(self.squares, gradients, strict=True):
                part = square[arm if self._task.block else 0] if square.ndim == 3 else square
                part += gradient[arm] ** 2
        self._offset_square += 1.0
        return arm

    def learn(self, arms: Sequence[int], rows: Sequence[Array], rewards: Sequence[float]) -> None:
        with np.errstate(all="ignore"):
            blocks = np.array(arms) if self._task.block else np.zeros(len(arms), np.int64)
            self.train(np.array(rows), blocks, np.array(rewards, np.float32))


class AuthorsNeuralUCB(AuthorsNetwork):
    """NeuralUCB of uclaml."""

    decay, variance = 0.001, 1.0

    def scores(self, means: Array, deviations: Array) -> Array:
        return means + deviations

    def train(self, rows: Array, blocks: IntArray, rewards: Array) -> None:
        order = self._generator.permutation(len(rewards))
        samples = [(self.hidden[blocks[i]], rows[i], float(rewards[i])) for i in order]
        # All weights are kept divided by `scale`, so that a step of weight decay is one multiplication.
        scale, steps, loss = 1.0, 0, np.inf
        while steps < MOST_STEPS and not loss / len(samples) <= SMALL_LOSS:
            loss = 0.0
            for weights, row, reward in samples[: MOST_STEPS - steps]:
                after = np.maximum(weights @ row + self.biases, 0)
                error = scale * (scale * float(after @ self.output) + self.offset) - reward
                next_scale = scale * (1 - RATE * self.decay)
                step = 2 * RATE * error / next_scale
                signals = (after > 0) * self.output
                signals *= step * scale
                self.output -= (step * scale) * after
                self.biases -= signals
                weights -= signals[:, None] * row
                self.offset -= step
                loss, scale, steps = loss + error * error, next_scale, steps + 1
        for each in (self.hidden, self.biases, self.output):
            each *= scale
        self.offset *= scale


class AuthorsNeuralTS(AuthorsNetwork):
    """NeuralTS of ZeroWeight."""

    decay, variance = 0.01, 1e-5
    _trained_on = 0

    def scores(self, means: Array, deviations: Array) -> Array:
        return means + deviations * self._generator.standard_normal(len(means))

    def train(self, rows: Array, blocks: IntArray, rewards: Array) -> None:
        order = np.argsort(blocks, kind="stable")
        rows, rewards, count = rows[order], rewards[order], len(rewards)
        ends = np.searchsorted(blocks[order], np.arange(len(self.hidden) + 1))
        parts = [slice(first, last) for first, last in pairwise(ends)]
        keep, new = 1 - RATE * self.decay / count, count - self._trained_on
        self._trained_on = count
        after = np.empty((count, HIDDEN), rows.dtype)
        for _ in range(FULL_STEPS * new):
            for weights, part in zip(self.hidden, parts, strict=True):
                np.matmul(rows[part], weights.T, out=after[part])
            after += self.biases
            active = after > 0
            after *= active
            errors = after @ self.output + self.offset - rewards
            errors *= 2 * RATE / count
            output = errors @ after
            np.multiply(errors[:, None], self.output, out=after)
            after *= active
            self.hidden *= keep
            for weights, part in zip(self.hidden, parts, strict=True):
                weights -= after[part].T @ rows[part]
            self.biases = keep * self.biases - after.sum(axis=0)
            self.output = keep * self.output - output
            self.offset = keep * self.offset - float(errors.sum())
