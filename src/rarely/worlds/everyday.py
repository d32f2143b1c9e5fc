"""Ten worlds like the problems of users, on which nothing in this library was tuned: the untuned half of board v2.

Each has a paragraph of rules, drawn anew for every seed, and was written before any policy was played on it. Where one
row is told for all arms, as of a prompt or a patient, arms are blocks of it with a constant.

    x, u, q     what a round shows: a row, a user, a query
    p, λ        chances and rates; rewards are drawn for each arm alone
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rarely.extend import Affine, ArmBlocks, Array, ContextMap, IntArray
from rarely.worlds.gallery import Sized
from rarely.worlds.protocol import World

Round = tuple[Array, Array, Array]


def _chance(odds: Any) -> Array:
    return np.asarray(1 / (1 + np.exp(-odds)))


def _beside(row: Array, items: Array) -> Array:
    """Return the contexts [row, item], (K, d)."""
    return np.hstack((np.broadcast_to(row, (len(items), len(row))), items))


@dataclass(frozen=True)
class OneRow(World):
    """One row of so many columns for all arms, in the block of each."""

    arms: int
    columns: int
    dim: int = field(init=False)
    blocks: ArmBlocks = field(init=False, repr=False)
    context_scale: ContextMap | None = field(init=False)

    def __post_init__(self) -> None:
        blocks = ArmBlocks(self.arms, Affine.identity(self.columns, constant=True))
        vars(self).update(blocks=blocks, dim=blocks.dim, context_scale=blocks.scale)


class ModelRouter(OneRow):
    """A prompt goes to one of five language models: right or wrong, less what the model costs for a prompt so long.

    Dearer models are better on average; each has a topic, a direction in the prompt's numbers, where it is good.
    """

    def secret(self, generator: np.random.Generator) -> tuple[Array, IntArray]:
        topics = generator.normal(size=(self.arms, self.columns))
        return topics / np.linalg.norm(topics, axis=1, keepdims=True), generator.permutation(self.arms)

    def round(self, t: int, secret: tuple[Array, IntArray], generator: np.random.Generator) -> Round:
        topics, rank = secret
        x = generator.normal(size=self.columns)
        right, cost = _chance(0.5 * rank - 1 + 1.5 * topics @ x), 0.005 * 2.5**rank * (1 + 0.3 * math.tanh(x[0]))
        return self.blocks(x), right - cost, (generator.random(self.arms) < right) - right


class Clicks(Sized):
    """A user is shown one of ten items; the log odds of a click are −2.5, what is popular, and taste: uᵀM item."""

    def secret(self, generator: np.random.Generator) -> tuple[Array, Array]:
        half = self.dim // 2
        return generator.normal(size=(half, half)) / half, generator.normal(size=half) / math.sqrt(half)

    def round(self, t: int, secret: tuple[Array, Array], generator: np.random.Generator) -> Round:
        taste, popular = secret
        user, items = generator.normal(size=len(popular)), generator.normal(size=(self.arms, len(popular)))
        clicks = _chance(-2.5 + items @ popular + 1.5 * items @ taste @ user)
        return _beside(user, items), clicks, (generator.random(self.arms) < clicks) - clicks


class Categories(Sized):
    """Eight offers, each of one of 40 brands, for customers of one of eight kinds, all as dummy columns.

    A brand has a value, and half of the brands please some kinds of customers more than others.
    """

    def secret(self, generator: np.random.Generator) -> Array:
        brands = self.dim - 8
        pleases = generator.normal(size=(8, brands)) * (generator.random(brands) < 0.5)
        return generator.normal(size=brands) + pleases

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        brands = secret.shape[1]
        kind, offers = generator.integers(8), generator.choice(brands, self.arms, replace=False)
        contexts = _beside(np.eye(8)[kind], np.eye(brands)[offers])
        return contexts, secret[kind, offers], generator.normal(size=self.arms)


class Ranking(Sized):
    """The first of twelve documents for a query, by ten features of the pair; graded relevance, 0 to 4.

    As in tables for learning to rank, features are skewed, some repeat each other, and relevance saturates.
    """

    def secret(self, generator: np.random.Generator) -> tuple[Array, Array]:
        return generator.normal(size=(self.dim, self.dim)), generator.exponential(size=self.dim)

    def round(self, t: int, secret: tuple[Array, Array], generator: np.random.Generator) -> Round:
        mixed, weights = secret
        query, documents = generator.normal(size=self.dim), generator.normal(size=(self.arms, self.dim))
        raw = (documents + 0.5 * query) @ mixed / math.sqrt(self.dim)
        grade = _chance(2 * np.tanh(raw) @ weights / np.linalg.norm(weights) - 1.5)
        return np.exp(raw), 4 * grade, generator.binomial(4, grade) - 4 * grade


class Payments(Sized):
    """Six offers: most people pay nothing, and those who pay differ by orders of magnitude.

    One direction decides who pays, another how much: log-normal with deviation 1.
    """

    def secret(self, generator: np.random.Generator) -> Array:
        return generator.normal(size=(2, self.dim)) / math.sqrt(self.dim)

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        contexts = generator.normal(size=(self.arms, self.dim))
        odds, level = secret @ contexts.T
        pays, means = _chance(1.5 * odds - 1), np.exp(level + 0.5)
        amounts = np.exp(level + generator.normal(size=self.arms))
        return contexts, pays * means, np.where(generator.random(self.arms) < pays, amounts, 0.0) - pays * means


class Dose(Sized):
    """One of nine doses for a patient with three numbers; the response falls on both sides of the patient's own dose.

    A context is the patient and the dose, so that doses beside each other tell of each other.
    """

    def secret(self, generator: np.random.Generator) -> Array:
        return generator.normal(size=self.dim - 1)

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        patient, doses = generator.normal(size=self.dim - 1), np.linspace(0, 1, self.arms)
        best = _chance(patient @ secret)
        response = np.exp(-(((doses - best) / 0.25) ** 2))
        return _beside(patient, doses[:, None]), response, 0.3 * generator.normal(size=self.arms)


class Sensors(OneRow):
    """Four settings of a machine whose five sensors drift slowly: a row is much like the one before.

    A sensor is three sines of its own periods, 30 to 600 rounds, and a little noise. The best setting depends on two
    of them and on their product.
    """

    def secret(self, generator: np.random.Generator) -> tuple[Array, Array, Array]:
        periods = np.exp(generator.uniform(math.log(30), math.log(600), size=(self.columns, 3)))
        return periods, generator.uniform(0, 2 * np.pi, periods.shape), generator.normal(size=(self.arms, 4))

    def round(self, t: int, secret: tuple[Array, Array, Array], generator: np.random.Generator) -> Round:
        periods, phases, effects = secret
        x = np.sin(2 * np.pi * t / periods + phases).sum(axis=1) + 0.1 * generator.normal(size=self.columns)
        means = effects @ np.array([0.5, x[0], x[1], x[0] * x[1]])
        return self.blocks(x), means, 0.5 * generator.normal(size=self.arms)


class Words(Sized):
    """Six texts of about ten words of 200, frequent and rare: a word is worth something, and some pairs more.

    Rows are counts of words, nearly all of them 0.
    """

    def secret(self, generator: np.random.Generator) -> tuple[Array, Array, IntArray]:
        frequent = 1 / np.arange(1, self.dim + 1)
        pairs = generator.integers(0, 30, size=(2, 15))
        return generator.permutation(frequent / frequent.sum()), generator.normal(size=self.dim), pairs

    def round(self, t: int, secret: tuple[Array, Array, IntArray], generator: np.random.Generator) -> Round:
        chances, worth, (one, other) = secret
        counts = generator.multinomial(10, chances, size=self.arms).astype(np.float64)
        present, order = counts > 0, np.argsort(-chances)
        together = (present[:, order[one]] & present[:, order[other]]).sum(axis=1)
        return counts, present @ worth + together, 0.5 * generator.normal(size=self.arms)


class Calls(Sized):
    """Five shifts for a service: how many calls each answers, a Poisson count with a log-linear rate and a ceiling."""

    def secret(self, generator: np.random.Generator) -> Array:
        return generator.normal(size=self.dim) / math.sqrt(self.dim)

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        contexts = generator.normal(size=(self.arms, self.dim))
        rates = 30 * _chance(1.5 * contexts @ secret - 1.5)
        return contexts, rates, generator.poisson(rates) - rates


class Prices(Sized):
    """One of eight prices for a customer of three numbers: the price if it is accepted, or nothing.

    What a customer would pay at most is log-normal around a level that depends on the customer, in a curve.
    """

    def secret(self, generator: np.random.Generator) -> Array:
        return generator.normal(size=(2, self.dim - 1)) / math.sqrt(self.dim - 1)

    def round(self, t: int, secret: Array, generator: np.random.Generator) -> Round:
        customer, prices = generator.normal(size=self.dim - 1), np.geomspace(1, 8, self.arms)
        level = 1 + np.tanh(2 * secret[0] @ customer) + 0.3 * (secret[1] @ customer) ** 2
        bought = _chance(3 * (level - np.log(prices)))
        rewards = prices * (generator.random() < bought)
        return _beside(customer, prices[:, None]), prices * bought, rewards - prices * bought


EVERYDAY: dict[str, World] = {
    "model-router": ModelRouter(5, 8),
    "clicks": Clicks(10, 12),
    "categories": Categories(8, 48),
    "ranking": Ranking(12, 10),
    "payments": Payments(6, 6),
    "dose": Dose(9, 4),
    "sensors": Sensors(4, 5),
    "words": Words(6, 200),
    "calls": Calls(5, 8),
    "prices": Prices(8, 4),
}
"""Worlds like problems of users by name, as they are played."""
