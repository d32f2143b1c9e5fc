"""`python benchmarks/router.py`: a policy of 20 versions against the best price in hindsight."""

import importlib.util
from pathlib import Path

import pytest

from rarely import Paced, Uniform
from rarely.worlds import find_world
from rarely.worlds.gallery import Router

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "router.py"
ROUNDS, SHARE = 1000, 0.5


@pytest.fixture(scope="module")
def router():
    spec = importlib.util.spec_from_file_location("router", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::rarely.DriftWarning")  # a model does get worse
@pytest.mark.parametrize("change", ["price cut", "regression"])
def test_20_versions_get_nine_tenths_of_the_best_fixed_price_and_chance_does_not(router, change):
    world = Router(change, ROUNDS)
    answers, spent = router.played(router.POLICIES["LinUCB, 20 versions"], world, 0, SHARE)
    assert answers >= 0.9
    assert spent <= 1
    chance, _ = router.played(lambda rounds: Uniform(Router.dim, Paced(rounds, 20), seed=0), world, 0, SHARE)
    assert chance < 0.8


@pytest.mark.parametrize(("name", "change"), [("router-cut", "price cut"), ("router-regression", "regression")])
def test_both_routers_are_found_by_name(name, change):
    world = find_world(name)
    assert (type(world), world.change) == (Router, change)
