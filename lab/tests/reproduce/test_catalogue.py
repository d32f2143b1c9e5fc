import numpy as np
import pytest

from rarely import BatchNeuralUCB, LinUCB, NeuralUCB
from rarely._core.schedules import DeterminantTrigger, FixedGrid, Paced
from rarely.worlds import Table, TableWorld
from rarely_lab.engine.record import identity
from rarely_lab.reproduce.catalogue import FAIR, PROBLEMS, Cell, configurations, plan_cells
from rarely_lab.reproduce.config import PRESETS, Configuration, Problem

TABLE = Table.of(np.random.default_rng(0).normal(size=(30, 3)), np.arange(30) % 2)
OWN = Problem("own", TABLE)


@pytest.mark.parametrize(
    ("name", "m", "ridge", "beta", "eta", "batches", "log_ratios"),
    [
        ("cosine", 200, 0.01, 0.001, 0.01, (40, 100, 200), (20, 40, 60)),
        ("quadratic", 100, 0.01, 0.01, 0.005, (40, 100, 200), (20, 25, 30)),
        ("mushroom", 100, 0.001, 0.001, 0.05, (40, 100, 250), (20, 30, 40)),
        ("magic", 100, 0.001, 0.001, 0.05, (40, 100, 200), (50, 60, 70)),
        ("magic-m400", 400, 0.001, 0.001, 0.05, (40, 100, 200), (50, 60, 70)),
    ],
)
def test_problems_have_the_printed_settings(name, m, ridge, beta, eta, batches, log_ratios):
    p = PROBLEMS[name]
    assert (p.hidden, p.ridge, p.beta, p.step_size, p.batches, p.log_ratios) == (
        m,
        ridge,
        beta,
        eta,
        batches,
        log_ratios,
    )
    assert p.steps == 200


def test_both_readings_of_the_noise_can_be_chosen():
    for name in ("cosine", "quadratic"):
        assert PROBLEMS[name].source.noise == 0.5
        assert PROBLEMS[f"{name}-sd"].source.noise == 0.25


def test_the_comparison_is_the_papers():
    ids = [c.id for c in configurations(PROBLEMS["mushroom"]) if c.kind != "default"]
    assert len(ids) == len(set(ids)) == 16 + 16 + 1 + 3 + 9
    assert {"neuralucb", "fixed-B250", "adaptive-B40-logq30", "linucb-r0.001-b1", "linucb-intercept-r1-b0.1"} <= set(
        ids
    )
    assert Configuration("linucb", ridge=FAIR[0], beta=FAIR[1]).id in ids


def test_linear_cells_are_shared_by_presets_that_see_the_same_contexts():
    readings = {c.reading for c in plan_cells([PROBLEMS["cosine"]], PRESETS, 1, 10) if c.configuration.linear}
    assert readings == {"raw"}
    readings = {c.reading for c in plan_cells([OWN], PRESETS, 1, 10) if c.configuration.linear}
    assert readings == {"raw", "unit", "standard"}


def test_the_default_policy_stands_beside_one_preset():
    planned = plan_cells([PROBLEMS["mushroom"]], PRESETS, 1, 10, ["default-*"])
    assert {c.id for c in planned} == {"mushroom/practical/default-B40/seed0", "mushroom/practical/default-B100/seed0"}


def test_the_default_policy_has_nothing_set():
    asked = cell(PROBLEMS["cosine"], "practical", kind="default", batches=5)
    policy = asked.policy()
    assert policy.settings() == BatchNeuralUCB(10, Paced(20, 5), covariance="exact", seed=3).settings()


def cell(problem, reading, **configuration):
    return Cell(problem, reading, Configuration(**configuration), 3, 20)


def test_cells_become_the_policies_that_they_name():
    cosine = PROBLEMS["cosine"]
    for given, kind, schedule in (
        (cell(cosine, "paper", kind="neuralucb"), NeuralUCB, None),
        (cell(cosine, "paper", kind="fixed", batches=5), BatchNeuralUCB, FixedGrid(20, 5)),
        (
            cell(cosine, "paper", kind="adaptive", batches=5, log_ratio=2.0),
            BatchNeuralUCB,
            DeterminantTrigger(20, 5, 2.0),
        ),
        (cell(cosine, "raw", kind="linucb", ridge=0.1, beta=0.01), LinUCB, None),
    ):
        policy = given.policy()
        assert type(policy) is kind
        if schedule is not None:
            assert policy.schedule.schedule == schedule


def settings(preset, problem):
    given = cell(problem, preset, kind="neuralucb")
    return given.policy()


def test_the_presets_are_the_three_readings():
    paper, practical, code = (settings(preset, PROBLEMS["cosine"]) for preset in PRESETS)
    assert (paper.context_scale.scaled_dim, practical.context_scale.scaled_dim) == (10, 11)
    assert paper.beta == practical.beta == 0.001
    assert code.beta == pytest.approx(np.sqrt(0.01 * 0.001))
    assert code.settings()["training"]["step_size"] == 0.01
    assert paper.settings()["training"]["step_size"] is None
    assert code.network.biases


@pytest.mark.parametrize(
    ("preset", "view", "dim"), [("paper", "raw", 6), ("practical", "standard", 8), ("code", "unit", 6)]
)
def test_presets_see_tables_in_their_own_view(preset, view, dim):
    given = cell(OWN, preset, kind="neuralucb")
    world = given.world()
    assert isinstance(world, TableWorld)
    assert (world.view, world.dim) == (view, dim)
    policy = given.policy()
    assert policy.dim == dim
    if preset == "practical":
        assert policy.context_scale == world.context_scale  # contexts come scaled: the policy leaves them alone


def test_an_intercept_is_appended_or_stands_in_every_block():
    appended = cell(PROBLEMS["cosine"], "raw", kind="linucb-intercept", ridge=1.0, beta=1.0)
    assert len(appended.policy().coefficients) == 11
    plain = cell(PROBLEMS["cosine"], "raw", kind="linucb", ridge=1.0, beta=1.0)
    assert len(plain.policy().coefficients) == 10
    inside = cell(OWN, "raw", kind="linucb-intercept", ridge=1.0, beta=1.0)
    assert len(inside.policy().coefficients) == 8


def test_runs_are_planned_one_after_the_other_and_the_longest_first():
    planned = plan_cells([OWN, PROBLEMS["cosine"]], PRESETS, 3, 20)
    seeds = [c.seed for c in planned]
    assert seeds == sorted(seeds)
    first = [c.work() for c in planned if c.seed == 0]
    assert first == sorted(first, reverse=True)


def test_every_configuration_has_its_own_number_of_runs_fixed_beforehand():
    def most(problem, pattern, preset=None):
        cells = plan_cells([PROBLEMS[problem]], preset and [preset], patterns=[pattern])
        return {(cell.reading, sum(other.reading == cell.reading for other in cells)) for cell in cells}

    assert most("quadratic", "neuralucb") == {("paper", 600), ("practical", 600), ("code", 30)}
    assert most("quadratic", "linucb-r1-b1") == {("raw", 300)}
    assert most("mushroom", "default-B40") == {("practical", 100)}
    assert most("cosine-T4000", "fixed-B63") == {("paper", 100), ("practical", 100)}
    assert most("cosine-T4000", "default-*") == {("practical", 30)}
    assert most("cosine-T8000", "neuralucb") == {("paper", 30), ("practical", 30)}
    assert most("cosine-T16000", "fixed-B126") == {("paper", 8), ("practical", 8)}
    assert most("cosine-T16000", "neuralucb") == set()
    assert most("cosine-T8000", "default-*") == set()
    assert most("magic-m400", "neuralucb") == {("paper", 100), ("practical", 100)}
    assert most("magic-m400", "neuralucb", "code") == {("code", 30)}
    assert most("cosine-timed", "neuralucb") == {("paper", 20), ("practical", 20)}


def test_patterns_pick_configurations():
    ids = {c.configuration.id for c in plan_cells([OWN], ["code"], 1, 20, ["fixed-*", "neuralucb"])}
    assert ids == {"neuralucb", "fixed-B40", "fixed-B100", "fixed-B200"}


def test_a_table_has_no_more_rounds_than_rows():
    assert {c.rounds for c in plan_cells([OWN], ["code"], 1, 2000)} == {30}


def test_what_matters_is_in_the_identity():
    base = cell(OWN, "code", kind="fixed", batches=5)
    told = {identity(base.describe())}
    for other in (
        cell(OWN, "paper", kind="fixed", batches=5),
        cell(OWN, "code", kind="fixed", batches=6),
        cell(Problem("own", TABLE, hidden=50), "code", kind="fixed", batches=5),
        cell(Problem("own", Table.of(TABLE.rows + 1, TABLE.labels)), "code", kind="fixed", batches=5),
        Cell(OWN, "code", base.configuration, 4, 20),
        Cell(OWN, "code", base.configuration, 3, 21),
        cell(Problem("own", TABLE, runs=5, presets=("code",)), "code", kind="fixed", batches=5),  # the same question
    ):
        told.add(identity(other.describe()))
    assert len(told) == 7


def test_tables_with_the_same_numbers_are_equal():
    same = Table.of(TABLE.rows.copy(), TABLE.labels)
    assert same == TABLE
    assert hash(Problem("own", same)) == hash(OWN)
    assert Table.of(TABLE.rows + 1, TABLE.labels) != TABLE
