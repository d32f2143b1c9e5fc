"""What every learner promises; the promises are in `rarely.testing`."""

import pytest

from rarely import BatchNeuralUCB, LinUCB, OnDemand, Training
from rarely.testing import LEARNER_PROMISES, check_learner
from worlds import ARTICLES, MAKERS, WORDS, packed_rows, small

LEARNERS = {name: MAKERS[name] for name in ("paper", "practical", "deep", "sgd", "code", "linear", "no_intercept")}
LEARNERS |= {name: MAKERS[name] for name in ("default", "tuned", "neural_linear", "kernel", "kernel_steps")}
LEARNERS["rows"] = lambda: small(preset="practical", training=Training(rows=8))
"""Its linear part holds all samples, and the network trains on some."""
LEARNERS["content_arms"] = lambda: BatchNeuralUCB(schedule=OnDemand(), seed=0, **ARTICLES.settings)
SPARSE = {
    "sparse_rows": lambda: BatchNeuralUCB(schedule=OnDemand(), seed=0, **WORDS.settings),
    "sparse_linear": lambda: LinUCB(seed=0, **WORDS.settings),
}


@pytest.mark.parametrize("promise", LEARNER_PROMISES)
@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_keeps_its_promise(name, promise):
    check_learner(lambda: LEARNERS[name]()._learner, only=promise)


@pytest.mark.parametrize("promise", LEARNER_PROMISES)
@pytest.mark.parametrize("name", SPARSE)
def test_a_learner_of_packed_contexts_keeps_its_promise(name, promise):
    check_learner(lambda: SPARSE[name]()._learner, contexts=packed_rows, only=promise)
