"""What every rule of choice promises; the promises are in `rarely.testing`."""

import numpy as np
import pytest

from rarely import InvalidInput, LinUCB, Mixture, OnDemand
from rarely.ensembles import MemberVotes
from rarely.extend import MixedRule, Thompson, UniformChoice, UpperConfidence
from rarely.testing import RULE_PROMISES, check_rule

RULES = {
    "upper_confidence": UpperConfidence,
    "random_ties": lambda: UpperConfidence(draws=True),
    "thompson": Thompson,
    "thompson_random_ties": lambda: Thompson(lowest=False),
    "uniform": UniformChoice,
    "votes": MemberVotes,
    "mixed": lambda: MixedRule(UpperConfidence(), Mixture(0.2)),
    "mixed_votes": lambda: MixedRule(MemberVotes(), Mixture(0.2)),
}


@pytest.mark.parametrize("promise", RULE_PROMISES)
@pytest.mark.parametrize("name", RULES)
def test_a_rule_keeps_its_promise(name, promise):
    if name.startswith("mixed") and promise.endswith("is_saved_with_it"):
        pytest.skip("a policy is given and saves the Mixture, not the rule that it makes of it")
    check_rule(RULES[name], examples=2, only=promise)


def test_a_joint_rule_decides_a_block_as_it_decides_single_rounds():
    contexts = np.random.default_rng(0).normal(size=(5, 3, 2))
    block, single = (LinUCB(2, OnDemand(), exploration=MemberVotes(), seed=0) for _ in range(2))
    assert block.select(contexts).arm.tolist() == [single.select(each).arm for each in contexts]


def test_a_mixture_is_given_as_such_and_not_as_a_rule_around_another():
    with pytest.raises(InvalidInput, match="must be a Mixture"):
        LinUCB(2, exploration=MixedRule(UpperConfidence(), Mixture(0.2)))
