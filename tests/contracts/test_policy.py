"""What every policy promises. A new policy is one line in worlds.MAKERS; the promises are in `rarely.testing`."""

import numpy as np
import pytest

from rarely import FixedGrid
from rarely.testing import POLICY_PROMISES, check_policy
from worlds import AS_SHIPPED, HORIZON, MAKERS, REBUILT, contexts, play, rewards

everyone = pytest.mark.parametrize("name", MAKERS)


@pytest.mark.parametrize("promise", POLICY_PROMISES)
@everyone
def test_a_policy_keeps_its_promise(name, promise):
    if name == "uniform" and promise in ("log_det_grows_with_every_round", "nothing_is_learned_inside_a_batch"):
        pytest.skip("a uniform choice has no Z and learns nothing")
    check_policy(MAKERS[name], only=promise)


@pytest.mark.parametrize("promise", POLICY_PROMISES)
@pytest.mark.parametrize("name", AS_SHIPPED)
def test_a_policy_as_users_construct_it_keeps_its_promise(name, promise):
    make, draw = AS_SHIPPED[name]
    check_policy(make, contexts=draw, only=promise)


def test_arms_that_return_are_judged_by_their_own_rewards_in_these_checks():
    make, draw = AS_SHIPPED["returning_arms"]
    policy, stream = make(FixedGrid(HORIZON, 4)), draw(None, 12, 3)
    arms = play(policy, stream)
    paid = [rewards(stream[0])[arm] if arm in arms else np.nan for arm in range(3)]
    tried = ~np.isnan(paid)
    assert tried.sum() > 1
    np.testing.assert_allclose(policy.score(stream[0]).means[tried], np.array(paid)[tried])


@everyone
def test_updates_count_the_rewards_that_they_learn_from(name):
    policy = MAKERS[name](FixedGrid(HORIZON, 4))
    play(policy, contexts())
    remembered = 9 if name == "window" else HORIZON
    assert [u.samples for u in policy.updates] == [min(n, remembered) for n in (6, 12, 18)]


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in REBUILT])
def test_log_det_does_not_change_with_updates(name):
    policy = MAKERS[name]()
    for t in range(HORIZON):
        policy.observe(policy.select(contexts()[t]), float(t))
        before = policy.log_det
        if policy.due and not (policy.update().rescaled or (name in ("default", "tuned") and policy.version == 1)):
            # Otherwise features changed with the scale, or with the linear path, and Z with them.
            assert policy.log_det == pytest.approx(before, rel=1e-10)


def test_a_broken_promise_is_told_with_its_name_its_sentence_and_the_seed():
    class Forgetful(type(MAKERS["linear"]())):
        def observe(self, *args, **named):
            pass

    with pytest.raises(
        AssertionError,
        match=r"Forgetful breaks the promise rewards_may_come_in_any_order: Rewards that come late.* "
        r"In this check: missing must be 2; got 6 \(seed=5\)\.",
    ):
        check_policy(lambda schedule: Forgetful(2, schedule, seed=0), seed=5, only="rewards_may_come_in_any_order")
