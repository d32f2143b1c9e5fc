"""A world played through Gymnasium is the world that policies see."""

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="Gymnasium is not installed: pip install gymnasium")

from gymnasium.utils.env_checker import check_env

from rarely._core.errors import InvalidInput
from rarely.adapters.gymnasium import BanditEnv
from rarely.worlds import Cosine


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")  # contexts have no bounds
def test_gymnasium_accepts_it():
    check_env(BanditEnv(Cosine(), rounds=5), skip_render_check=True)


def test_an_episode_is_a_run_of_the_world():
    world, env = Cosine(), BanditEnv(Cosine(), rounds=4)
    rounds = world.rounds(3, 4)
    contexts, info = env.reset(seed=3)
    assert info == {"run": 3}
    for t in range(4):
        np.testing.assert_array_equal(contexts, rounds.contexts[t])
        contexts, reward, terminated, truncated, info = env.step(1)
        assert reward == rounds.rewards[t, 1]
        assert info["regret"] == rounds.means[t].max() - rounds.means[t, 1]
        assert not terminated
        assert truncated == (t == 3)
    with pytest.raises(InvalidInput, match="reset"):
        env.step(0)
    assert env.reset()[1] == {"run": 4}


@pytest.mark.parametrize("action", [-1, 4, 99])
def test_an_arm_that_does_not_exist_is_refused(action):
    env = BanditEnv(Cosine(), rounds=2)
    env.reset(seed=0)
    with pytest.raises(InvalidInput, match="from 0 to 3"):
        env.step(action)
