"""The paper's four problems, as plain functions: contexts and mean rewards of T rounds, and the noise."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Problem:
    """T rounds: contexts (T, K, d), mean rewards (T, K), noise (T,), and the printed settings."""

    contexts: np.ndarray
    means: np.ndarray
    noise: np.ndarray
    hidden: int
    ridge: float
    beta: float

    def regrets(self, rounds: np.ndarray, arms: np.ndarray) -> np.ndarray:
        """Pseudo-regret of the arm chosen in each of the given rounds."""
        return self.means[rounds].max(axis=1) - self.means[rounds, arms]

    def rewards(self, rounds: np.ndarray, arms: np.ndarray) -> np.ndarray:
        return self.means[rounds, arms] + self.noise[rounds]


def cosine(seed: int, rounds: int = 2000) -> Problem:
    rng = np.random.default_rng([seed, 1])
    theta = rng.random(10)
    theta /= np.linalg.norm(theta)
    contexts = rng.random((rounds, 4, 10))
    return Problem(contexts, np.cos(3 * contexts @ theta), rng.normal(0, 0.5, rounds), 200, 0.01, 0.001)


def quadratic(seed: int, rounds: int = 2000) -> Problem:
    rng = np.random.default_rng([seed, 2])
    a = rng.normal(size=(4, 4))
    contexts = rng.random((rounds, 10, 4))
    means = np.square(contexts @ a.T).sum(axis=2)
    return Problem(contexts, means, rng.normal(0, 0.5, rounds), 100, 0.01, 0.01)


def table(rows: np.ndarray, labels: np.ndarray, seed: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows without replacement, and the reward of each of two arms."""
    rng = np.random.default_rng([seed, 3])
    picked = rng.permutation(len(rows))[:rounds]
    return rows[picked], (labels[picked, None] == np.arange(2)).astype(float)


def mushroom() -> tuple[np.ndarray, np.ndarray]:
    """22 categories coded as integers, and the class: 0 edible, 1 poisonous."""
    text = np.loadtxt(_data("mushroom", "agaricus-lepiota.data"), dtype=str, delimiter=",")
    columns = [np.unique(column, return_inverse=True)[1] for column in text.T]
    return np.stack(columns[1:], axis=1).astype(float), columns[0]


def magic() -> tuple[np.ndarray, np.ndarray]:
    """10 numbers, and the class: 0 gamma, 1 hadron."""
    text = np.loadtxt(_data("magic", "magic04.data"), dtype=str, delimiter=",")
    return text[:, :-1].astype(float), (text[:, -1] == "h").astype(int)


def have_tables() -> bool:
    return bool(os.environ.get("RARELY_DATA")) and _data("magic", "magic04.data").exists()


def _data(folder: str, name: str) -> Path:
    return Path(os.environ["RARELY_DATA"]) / folder / name
