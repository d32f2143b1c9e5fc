"""A world as an environment of Gymnasium, so that its agents can be compared with policies on the same rounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely._core.errors import InvalidInput, check_whole
from rarely._core.types import Array
from rarely.worlds.protocol import Rounds, World

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as error:
    raise ImportError("rarely.adapters.gymnasium needs Gymnasium: pip install gymnasium.") from error


class BanditEnv(gymnasium.Env[Array, np.int64]):
    """One run of a world: an observation is the contexts of a round, an action is an arm.

    Parameters
    ----------
    world
        Any world of `rarely.worlds`, or your own.
    rounds
        Length of an episode. The last step is `truncated`, not `terminated`: a bandit has no final state.

    Notes
    -----
    `reset(seed=s)` starts run s of the world: the rounds are those that `world.rounds(s, …)` gives to a policy. Without
    a seed, the runs follow one another. `info` has the pseudo-regret of each step and the best arm.

    Examples
    --------
    >>> from rarely.worlds import Cosine                                 # doctest: +SKIP
    >>> env = BanditEnv(Cosine(), rounds=100)                            # doctest: +SKIP
    >>> contexts, _ = env.reset(seed=0)                                  # doctest: +SKIP
    >>> contexts, reward, _, truncated, info = env.step(2)               # doctest: +SKIP
    """

    def __init__(self, world: World, rounds: int) -> None:
        check_whole("rounds", rounds, 1)
        self.world, self.rounds = world, rounds
        self.observation_space = spaces.Box(-np.inf, np.inf, (world.arms, world.dim), np.float64)
        self.action_space = spaces.Discrete(world.arms)
        self._run, self._step = -1, 0
        self._drawn: Rounds | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start run `seed` of the world, or the run after the last one; gives the contexts of round 1."""
        super().reset(seed=seed)
        run = self._run + 1 if seed is None else seed
        # One round more than is played: the observation after the last step.
        last = self.rounds if self.world.horizon is not None and self.world.horizon <= self.rounds else self.rounds + 1
        self._drawn = self.world.rounds(run, last)
        self._run, self._step = run, 0
        return self._drawn.contexts[0], {"run": run}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Play an arm; gives the next contexts, the reward, False, whether the run is over, and the regret."""
        if self._drawn is None or self._step >= self.rounds:
            raise InvalidInput("call reset() before step(): no run is under way.")
        if not self.action_space.contains(np.int64(action)):
            raise InvalidInput(f"action must be an arm from 0 to {self.world.arms - 1}; got {action!r}.")
        now = self._drawn[self._step : self._step + 1]
        arms = [int(action)]
        info = {"regret": float(now.regrets(arms)[0]), "best": int(now.best[0]), "round": self._step + 1}
        self._step += 1
        following = min(self._step, len(self._drawn) - 1)
        return self._drawn.contexts[following], float(now.paid(arms)[0]), False, self._step == self.rounds, info
