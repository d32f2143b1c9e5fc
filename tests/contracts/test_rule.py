"""What every rule of choice promises; the promises are in `rarely.testing`."""

import pytest

from rarely import Mixture
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
