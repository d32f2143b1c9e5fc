"""What every learner promises; the promises are in `rarely.testing`."""

import pytest

from rarely import Training
from rarely.testing import LEARNER_PROMISES, check_learner
from worlds import MAKERS, small

LEARNERS = {name: MAKERS[name] for name in ("paper", "practical", "deep", "sgd", "code", "linear", "no_intercept")}
LEARNERS |= {name: MAKERS[name] for name in ("tuned", "neural_linear", "kernel", "kernel_steps")}
LEARNERS["rows"] = lambda: small(preset="practical", training=Training(rows=8))
"""Its linear part holds all samples, and the network trains on some."""


@pytest.mark.parametrize("promise", LEARNER_PROMISES)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_keeps_its_promise(name, promise):
    check_learner(lambda: LEARNERS[name]()._learner, only=promise)
