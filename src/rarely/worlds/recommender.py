"""A news recommender: users who differ, articles that come and go, clicks that are known hours later or never.

    u   users      (n, 20)   a user's numbers, N(0, I)
    a   features   (50, 8)   an article's numbers, N(0, I)
    M              (20, 8)   tastes: of rank 4, uᵀMa ~ variance 1 over users and articles
    w              (8,)      what makes an article popular with everybody, ‖w‖ = 1
    q                        an article's own quality, N(0, 1): no feature shows it

    P(click) = σ(base + taste·uᵀMa + popularity·wᵀa + quality·q)

On day D the articles 8D … 8D + 49 are live: eight new ones each morning, and the eight oldest are gone. So two weeks
have 154 articles, and none lives longer than a week. A reward arrives after an exponential delay, or, one time in ten,
never.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rarely.extend import Array
from rarely.extend.checks import InvalidInput, check_not_negative, check_positive, check_whole
from rarely.extend.provisional import Crossed
from rarely.worlds.protocol import Rounds, World, seeded

HOURS_A_DAY = 24.0


class Tastes(NamedTuple):
    """What a seed decides once, and no policy sees: M, w, and the seed of the articles."""

    tastes: Array
    popularity: Array
    articles: int


@dataclass(frozen=True)
class Day:
    """One day of a `Recommender`: n visits, and K articles that are live all day.

    Examples
    --------
    >>> from rarely.worlds import Recommender
    >>> day = Recommender().day(seed=0, day=0)
    >>> len(day) == len(day.users), day.means.shape == (len(day), len(day.names))
    (True, True)
    """

    users: Array  #: The numbers of each visitor, (n, u).
    names: tuple[str, ...]  #: The names of the live articles, (K,), oldest first, which they keep while they live.
    features: Array  #: The numbers of each article, (K, a).
    means: Array  #: The probability of a click on each article, (n, K).
    clicks: Array  #: 1 where the visitor would click, else 0, (n, K).
    hours: Array  #: The time of each visit, (n,), in hours since the first day began.
    arrivals: Array  #: The time at which its reward arrives, (n,), in the same hours; NaN where it never is.

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class Recommender(World):
    """Articles that come and go, for users who like different ones.

    Contexts of its rounds are [user, article]; `context_scale` crosses the two. `day` gives the same rounds as a
    service meets them: users, live articles by name, and the hour at which each click arrives.

    Parameters
    ----------
    arms, new, daily
        K, articles that are live at a time; articles that come, and go, each day; decisions a day.
    user_dim, article_dim
        Numbers about a user, and about an article.
    rank
        The rank of the interaction M: how many kinds of taste there are.
    base
        The log odds of a click on an average article.
    taste, popularity, quality
        Standard deviations of the three parts of the log odds: user × article, the article's features, and what
        no feature shows.
    delay, lost
        Mean hours until a reward arrives; the share of rewards that never arrive.

    Examples
    --------
    >>> world = Recommender()
    >>> monday, tuesday = world.day(seed=0, day=0), world.day(seed=0, day=1)
    >>> monday.clicks.shape, len(set(monday.names) | set(tuesday.names))
    ((5000, 50), 58)
    >>> world.rounds(seed=0, count=3).contexts.shape
    (3, 50, 28)
    """

    arms: int = 50
    new: int = 8
    daily: int = 5000
    user_dim: int = 20
    article_dim: int = 8
    rank: int = 4
    base: float = -3.0
    taste: float = 0.4
    popularity: float = 0.1
    quality: float = 0.1
    delay: float = 4.0
    lost: float = 0.1
    dim: int = field(init=False)
    context_scale: Crossed | None = field(init=False)

    def __post_init__(self) -> None:
        for name, least in (("arms", 1), ("new", 0), ("daily", 1), ("user_dim", 1), ("article_dim", 1), ("rank", 1)):
            check_whole(name, getattr(self, name), least)
        for name in ("taste", "popularity", "quality"):
            check_not_negative(name, getattr(self, name), "because it is a standard deviation")
        check_positive("delay", self.delay, "because it is a mean number of hours")
        if not 0 <= self.lost <= 1:
            raise InvalidInput(f"lost must be a share from 0 to 1 of the rewards; got {self.lost!r}.")
        lengths = np.repeat((self.user_dim, self.article_dim), (self.user_dim, self.article_dim))
        scale = Crossed(np.zeros(len(lengths)), np.sqrt(lengths), rows=self.user_dim)
        vars(self).update(dim=len(lengths), context_scale=scale)

    def day(self, seed: int, day: int) -> Day:
        """Return all visits of day 0, 1, 2, …: the rounds day·daily + 1 … (day + 1)·daily of the same seed."""
        check_whole("day", day, 0)
        secret, first = self.secret(seeded(seed, 0)), day * self.daily
        users, luck = np.empty((self.daily, self.user_dim)), np.empty((self.daily, 3))
        for i in range(self.daily):
            users[i], luck[i] = self._visit(seeded(seed, first + i + 1))
        features, appeal = self._articles(secret, day)
        means = self._chances(secret, users, features, appeal)
        hours = (first + np.arange(self.daily)) * HOURS_A_DAY / self.daily
        arrivals = np.where(luck[:, 2] < self.lost, np.nan, hours - self.delay * np.log(luck[:, 1]))
        names = tuple(f"article-{day * self.new + i}" for i in range(self.arms))
        return Day(users, names, features, means, (luck[:, :1] < means).astype(np.float64), hours, arrivals)

    def secret(self, generator: np.random.Generator) -> Tastes:
        """Return M, w and the articles to come."""
        users, articles = (generator.normal(size=(count, self.rank)) for count in (self.user_dim, self.article_dim))
        tastes, popularity = users @ articles.T, generator.normal(size=self.article_dim)
        tastes, popularity = (array / np.linalg.norm(array) for array in (tastes, popularity))
        return Tastes(tastes, popularity, int(generator.integers(2**62)))

    def round(self, t: int, secret: Tastes, generator: np.random.Generator) -> tuple[Array, Array, float]:
        """Return the contexts [user, article] of round t and the probability of each click."""
        user, _ = self._visit(generator)
        features, appeal = self._articles(secret, (t - 1) // self.daily)
        contexts = np.hstack((np.broadcast_to(user, (self.arms, self.user_dim)), features))
        return contexts, self._chances(secret, user[None], features, appeal)[0], 0.0

    def rounds(self, seed: int, count: int, first: int = 1) -> Rounds:
        """Return rounds whose rewards are clicks, 0 or 1: one draw decides for all articles."""
        drawn = super().rounds(seed, count, first)
        luck = np.array([self._visit(seeded(seed, t))[1][0] for t in range(first, first + count)])
        return Rounds(drawn.contexts, drawn.means, (luck[:, None] < drawn.means).astype(np.float64))

    def _visit(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """Return a user, and three uniform numbers: for the click, its delay and its loss."""
        return generator.normal(size=self.user_dim), 1 - generator.random(3)

    def _articles(self, secret: Tastes, day: int) -> tuple[Array, Array]:
        """Return features and qualities of the articles of a day, oldest first."""
        return _articles(secret.articles, day * self.new, self.arms, self.article_dim)

    def _chances(self, secret: Tastes, users: Array, features: Array, qualities: Array) -> Array:
        """Return (n, K): P(click)."""
        odds = self.base + self.popularity * features @ secret.popularity + self.quality * qualities
        return np.asarray(1 / (1 + np.exp(-odds - self.taste * users @ secret.tastes @ features.T)))


@lru_cache(maxsize=8)
def _articles(seed: int, first: int, count: int, dim: int) -> tuple[Array, Array]:
    drawn = np.array([np.random.default_rng((seed, first + i)).normal(size=dim + 1) for i in range(count)])
    drawn.flags.writeable = False  # it is shared
    return drawn[:, :dim], drawn[:, dim]
