"""A log as the dictionary of Open Bandit Pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from rarely.core.inputs.array_reader import read_real
from rarely.logs.decision_log import DecisionLog
from rarely.logs.errors import InvalidLog


def bandit_feedback(log: DecisionLog, expected_reward: Any = None) -> dict[str, Any]:
    """The rounds whose rewards are in, as Open Bandit Pipeline's `bandit_feedback`.

    Its rounds are those of `log.observed`; make an `action_dist` of Open Bandit Pipeline on the same rounds.

    Parameters
    ----------
    log
        The decisions and their rewards.
    expected_reward
        (n, K) for each round of the log, if it is known.

    Returns
    -------
    dict
        `context` has (n, r) recorded rows or, without them, the arms' contexts side by side, (n, K·d), 0 where an arm
        is absent. `action_context` is one-hot, (K, K): here contexts belong to an arm in a round, there to an arm for
        ever. `position` is 0 everywhere, because one arm is shown. `pscore` (n,) and `pi_b` (n, K, 1) are the
        probabilities of the chosen arm and of every arm.

    Examples
    --------
    >>> from rarely import Uniform
    >>> log, policy = DecisionLog(), Uniform(dim=2, seed=0)
    >>> decision = policy.select([[1.0, 2.0], [3.0, 4.0]])
    >>> log.record([[1.0, 2.0], [3.0, 4.0]], decision, rows=[7.0])
    >>> log.observe(decision, 1.5)
    >>> feedback = bandit_feedback(log)
    >>> feedback["context"], feedback["action"], feedback["pscore"], feedback["pi_b"].shape
    (array([[7.]]), array([1]), array([0.5]), (1, 2, 1))
    """
    places = log.observed
    probabilities, rows = log.probabilities[places], log.rows
    n, arms = probabilities.shape
    if rows is None:
        rows = np.where(log.present[..., None], log.contexts, 0.0).reshape(len(log), -1)
    if expected_reward is not None:
        expected_reward = read_real(expected_reward, "expected_reward", InvalidLog)
        if expected_reward.shape != log.present.shape:
            raise InvalidLog(
                f"expected_reward must have shape {log.present.shape}, a number for each arm of each round of the log; "
                f"got {expected_reward.shape}."
            )
        expected_reward = expected_reward[places]
    return {
        "n_rounds": n,
        "n_actions": arms,
        "context": rows[places],
        "action_context": np.eye(arms, dtype=int),
        "action": log.arms[places],
        "position": np.zeros(n, int),
        "reward": log.rewards[places],
        "expected_reward": expected_reward,
        "pscore": log.propensities[places],
        "pi_b": probabilities[:, :, None],
    }
