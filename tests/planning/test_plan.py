import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from decision_logs import planning_log
from rarely import (
    Affine,
    ArmBlocks,
    BatchNeuralUCB,
    DeterminantTrigger,
    EveryRound,
    FixedGrid,
    FramePolicy,
    GeometricGrid,
    InvalidInput,
    LinUCB,
    Preset,
    RarelyError,
    TheoremRadius,
)
from rarely._cli import app
from rarely.planning import NothingClose, plan
from rarely.planning.frontier import default_batches, improving
from rarely.planning.report import render_page, write_plan
from rarely.planning.simulate import KINDS, Maker, play
from rarely.runs.statistics import IntervalEstimate
from rarely.worlds import Cosine, World
from worlds import play_world

SMALL = {"hidden": 8, "training": 10}


def log_of(rounds=120, arms=3, rewards=True, seed=0):
    generator = np.random.default_rng(seed)
    rows, slopes = generator.normal(size=(rounds, 3)), generator.normal(size=(3, arms))
    chosen = generator.integers(arms, size=rounds)
    paid = (rows @ slopes)[np.arange(rounds), chosen] + 0.3 * generator.normal(size=rounds)
    return planning_log(rows, arms, chosen, paid) if rewards else planning_log(rows, arms)


class Lines(World):
    """Scaled contexts and linear rewards: a linear policy knows all after a few rounds."""

    arms, dim, context_scale = 3, 3, Affine.identity(3)

    def secret(self, generator):
        return generator.normal(size=3)

    def round(self, t, secret, generator):
        contexts = generator.normal(size=(3, 3))
        return contexts, contexts @ secret, 0.3 * generator.normal()


@pytest.fixture(scope="module")
def made():
    """A plan with everything in it, but small."""
    return plan(log_of(), horizon=400, max_rounds=40, runs=2, settings=SMALL, batches=[2, 8], kinds=KINDS)


def test_the_same_seed_gives_the_same_plan_and_stages_are_told():
    settings = {"horizon": 20, "runs": 2, "policy": "LinUCB", "batches": [2]}
    heard = []
    once = plan(log_of(60), **settings, seed=0, progress=lambda stage, done, of: heard.append((stage, done / of)))
    again, other = (plan(log_of(60), **settings, seed=seed) for seed in (0, 1))
    assert again.describe() == once.describe()
    assert other.frontier.sequential != once.frontier.sequential
    assert other.fit != once.fit
    assert_stages_are_told(heard)


def test_many_processes_make_the_same_plan():
    few = {"horizon": 20, "runs": 2, "policy": "LinUCB", "batches": [2, 4], "simulator": np.copy}
    alone, together = (plan(log_of(40, rewards=False), **few, jobs=jobs) for jobs in (1, 2))
    assert together.describe() == alone.describe()


def test_a_plan_says_where_it_extrapolates(made):
    notes = " ".join(made.notes)
    assert "40 rounds long, not 400: shares are those of the SHORTER horizon" in notes
    assert "fitted to 120 of the log's: it foresees" in notes
    assert "Simulated rounds are those of the log in a random order, 40 of them: what changed with time" in notes


def test_a_plan_says_when_it_has_nothing_to_extrapolate():
    short = plan(log_of(rewards=False), horizon=40, runs=1, policy="LinUCB", batches=[2], simulator=np.copy)
    assert "EXTRAPOLATED" not in short.text()
    assert "SHORTER" not in short.text()
    assert "with normal noise of 0.5 times the spread of its means around them" in short.text()
    assert short.fit is None
    again = plan(log_of(30), horizon=40, runs=1, policy="LinUCB", batches=[2], simulator=lambda rows: rows, noise=0.1)
    assert "30 of them, and 10 more are drawn from it again" in again.text()
    assert "those of the simulator given, with normal noise of 0.1 around them" in again.text()


def test_a_plan_is_json_and_advice(made):
    text = json.dumps(made.describe(), allow_nan=False)
    back = json.loads(text)
    assert back["horizon"] == 400
    assert set(back["enough"]) == set(KINDS)
    assert back["advice"] == made.text()
    assert [len(point["pattern"]) for point in back["frontier"]["points"][:2]] == [2, 8]
    odd = {"beta": TheoremRadius(0.1, 1.0), "ridge": np.float64(0.5)}
    alone = plan(
        log_of(rewards=False), horizon=40, runs=1, policy="LinUCB", batches=[2], settings=odd, simulator=np.copy
    )
    told = json.loads(json.dumps(alone.describe(), allow_nan=False))["settings"]
    assert told["ridge"] == 0.5
    assert told["beta"]["nu"] == 0.1
    assert alone.headline().startswith("Cannot tell")
    assert "one run)" in alone.headline()


def test_a_plan_becomes_the_schedule_of_the_whole_horizon(made):
    loose = 100.0
    assert made.schedule(loose, "fixed") == FixedGrid(400, 2)
    assert made.schedule(loose, "geometric") == GeometricGrid(400, 2)
    trigger = made.schedule(loose, "adaptive")
    assert isinstance(trigger, DeterminantTrigger)
    assert (trigger.horizon, trigger.batches) == (400, 2)
    simulated = made.frontier.of_kind("adaptive")[0].log_ratio
    assert simulated < trigger.log_ratio < 5 * simulated
    with pytest.raises(NothingClose, match="nothing tried loses at most -10000 %"):
        made.schedule(-100.0)


def test_a_linear_world_needs_few_batches():
    # Runs differ, so the promise is about what is told surely by enough of them.
    frontier = plan(Lines(), horizon=40, runs=20, policy="LinUCB", batches=[2, 12], kinds=["fixed"]).frontier
    assert frontier.enough(0.3, "fixed", surely=True).batches == 12
    few, many = frontier.of_kind("fixed")
    assert frontier.verdict(few, 0.3) == "outside"
    assert few.lost.value > many.lost.value


@given(rounds=st.integers(10, 30), batches=st.integers(2, 9), seed=st.integers(0, 99))
def test_batches_sum_to_the_rounds_and_never_exceed_the_budget(rounds, batches, seed):
    frontier = next(improving(Lines(), Maker("LinUCB"), rounds, [batches], KINDS, [seed], [seed + 1]))
    for point in frontier.points:
        assert sum(point.pattern) == rounds
        assert 1 <= len(point.pattern) <= batches
        assert point.used == len(point.pattern)
        assert min(point.pattern) >= 1
    lengths = frontier.of_kind("fixed")[0].pattern
    assert max(lengths) - min(lengths) <= 1


def test_stretches_of_rounds_choose_what_single_rounds_choose(monkeypatch):
    double = Preset.named("practical", precision="float64")
    maker, world = Maker("default", SMALL | {"preset": double}), Cosine(dim=3, arms=3)
    for schedule in (FixedGrid(60, 5), DeterminantTrigger(60, 6, log_ratio=3.0)):
        policy, rounds = maker(world.dim, world.context_scale, schedule, 4), world.rounds(4, 60)
        regrets = rounds.regrets(play_world(policy, rounds))
        whole = play(world, maker, 60, schedule, 4)
        monkeypatch.setattr("rarely.planning.simulate.MAX_CONTEXT_BYTES", 8 * 3 * 3 * 7)
        pieces = play(world, maker, 60, schedule, 4)
        assert whole.regret == pytest.approx(regrets.sum())
        assert pieces.regret == pytest.approx(whole.regret)
        assert whole.ends == pieces.ends == (*(update.round for update in policy.updates), 60)


def test_a_world_without_regret_cannot_tell():
    class Same(Lines):
        def round(self, t, secret, generator):
            contexts, means, noise = super().round(t, secret, generator)
            return contexts, 0 * means, noise

    flat = plan(Same(), horizon=30, runs=2, policy="LinUCB", batches=[2])
    assert flat.headline().startswith("Cannot tell")
    with pytest.raises(NothingClose):
        flat.schedule()
    json.dumps(flat.describe(), allow_nan=False)


def test_contexts_that_no_unit_answers_to_are_refused():
    class Nothing(Lines):
        def round(self, t, secret, generator):
            contexts, means, noise = super().round(t, secret, generator)
            return 0 * contexts, means, noise

    with pytest.raises(InvalidInput, match="all features are 0"):
        next(improving(Nothing(), Maker("default", SMALL), 20, [2], KINDS, [0], [1]))


def test_default_batches_double_up_to_a_quarter():
    assert default_batches(2000) == (2, 4, 8, 16, 32)
    assert default_batches(10) == (2,)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"horizon": 5}, "horizon must be a whole number of at least 10"),
        ({"runs": 0}, "runs must be"),
        ({"batches": [1]}, "each of batches must be a whole number of at least 2"),
        ({"batches": []}, "some numbers below the 40 rounds"),
        ({"batches": [40]}, "below the 40 rounds"),
        ({"noise": -1.0}, "noise must be 0 or a positive"),
        ({"policy": "magic"}, "a policy must be one of default, LinUCB, LinTS, ensemble, module:name"),
        ({"settings": {"seed": 3}}, "settings must leave dim, schedule, seed"),
        ({"settings": {"ridge": -1.0}, "policy": "LinUCB"}, "ridge must be a positive"),
        ({"settings": {"hiden": 3}}, "unknown argument 'hiden' for BatchNeuralUCB. Did you mean 'hidden'"),
        ({"source": Cosine(), "simulator": lambda rows: rows}, "a world has its own rewards and noise"),
        ({"source": [[1.0]]}, "source must be a DecisionLog or a World"),
        ({"source": np.ones((3, 2))}, r"got an array of float64 of shape \(3, 2\)\. DecisionLog\.from_arrays"),
        ({"source": planning_log([[1.0]] * 9, 2)}, "at least 10 rounds; got 9"),
        ({}, r"at least 50 rewards; the log has 0\. Name their column .* or give a simulator"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_a_reason(arguments, says):
    source = arguments.get("source", log_of(rewards=False))
    with pytest.raises(RarelyError, match=says):
        plan(source, **({"horizon": 40, "runs": 1} | {k: v for k, v in arguments.items() if k != "source"}))


def test_a_table_is_planned_for_as_many_rounds_as_it_has():
    from rarely.worlds import Table, TableWorld

    generator = np.random.default_rng(0)
    table = Table.of(generator.normal(size=(50, 2)), generator.integers(2, size=50))
    short = plan(TableWorld(table, "standard", constant=True), horizon=200, runs=1, policy="LinUCB", batches=[2])
    assert short.frontier.rounds == 50
    assert "50 rounds long, not 200" in short.text()


def assert_stages_are_told(heard):
    stages = list(dict.fromkeys(stage for stage, _ in heard))
    assert stages == ["reward model", "simulation"]
    for stage in stages:
        parts = [part for name, part in heard if name == stage]
        assert parts == sorted(parts)
        assert parts[-1] == 1


def test_a_written_plan_has_all_three_files(made, tmp_path):
    paths = write_plan(made, tmp_path / "new" / "plan")
    assert [path.name for path in paths] == ["plan.json", "plan.svg", "plan.html"]
    saved = json.loads(paths[0].read_text(encoding="utf-8"))
    assert saved == json.loads(json.dumps(made.describe()))
    assert "<svg" in paths[1].read_text(encoding="utf-8")
    html = paths[2].read_text(encoding="utf-8")
    assert html == render_page(made, paths[1].read_text(encoding="utf-8"))
    assert html.count("<li>") >= len(made.notes)
    assert [html.count(f'<th scope="row">{name}') for name in ("paced<", "fixed<", "adaptive, log q = ")] == [2] * 3
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)|<script|@import""", html)
    assert html.count("<svg") == 1
    assert made.headline().split(":")[0] in html


# --- the command


def call(*arguments):
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


def csv_of(path, log, chosen, rewards):
    lines = ["x,y,user_id,page,minutes"]
    for row, arm, reward in zip(log, chosen, rewards, strict=True):
        lines.append(f"{','.join(map(str, row))},p{arm},{reward}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_command_goes_from_a_csv_to_advice(tmp_path):
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(80, 3))
    arms = [*generator.integers(2, size=79), 1]
    path = csv_of(tmp_path / "log.csv", rows, arms, rows[:, 0].round(3))
    path.write_text("P".join(path.read_text().rsplit("p", 1)))
    options = ["--arm", "page", "--reward", "minutes", "--horizon", 60, "--runs", 2, "--batches", "2,4", "--jobs", 1]
    code, said = call(path, *options, "--hidden", 8, "--steps", 10, "--out", tmp_path / "plan")
    assert code == 0
    assert "log.csv: 80 rounds, 3 arms, 80 rewards, 3 features: x, y, user_id" in said
    assert said.count("'p1' and 'P1' in column page are two arms") == 2  # when it is read, and in the plan
    assert "Column user_id is taken for a part of the context, though its name suggests something else" in said
    assert "simulation: 100 %" in said
    assert f"files: {tmp_path / 'plan' / 'plan.json'}" in said
    found = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert found["settings"]["hidden"] == 8
    assert found["origin"] == "fitted"


def test_the_command_plans_for_a_world(tmp_path):
    code, said = call(
        *("--world", "cosine", "--policy", "LinUCB", "--horizon", 50, "--runs", 1, "--batches", "2", "--jobs", 1),
        *("--out", tmp_path),
    )
    assert code == 0
    assert "those of the world Cosine" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "one thing to plan from"),
        (["log.csv", "--world", "cosine"], "one thing to plan from"),
        (["--world", "nothing"], "no world is called 'nothing'"),
        (["--world", "cosine", "--arms", "3"], "are for a log"),
        (["missing.csv", "--arms", "2"], "missing.csv cannot be read"),
        (["log.csv"], "page has 'p1' in line 2"),
        (["--world", "cosine", "--out", "log.csv"], "log.csv is a file"),
        (["log.csv", "--features", "x,w", "--arms", "2"], "no column 'w'"),
        (["missing.csv", "--batches", "two"], "--batches must be whole numbers"),
        (["missing.csv", "--batches", "1,4"], "--batches must lie between 2 and 1999"),
        (["missing.csv", "--policy", "LinUCB", "--hidden", "8"], "unknown argument 'hidden' for LinUCB"),
        (["missing.csv", "--policy", "LinUCB", "--ridge", "0"], "ridge must be a positive"),
        (["missing.csv", "--hidden", "7"], "hidden"),
        (["missing.csv", "--out", "log.csv/plan"], "log.csv is a file"),
        (["log.csv", "--ignore", "page,w"], "no column 'w'"),
        (["log.csv", "--arm", "page", "--reward", "page"], "cannot be both arm and reward"),
        (["log.csv", "--features", "x", "--arms", "2"], "at least 10 rounds; got 1"),
    ],
)
def test_errors_of_the_command_are_one_sentence_and_an_exit_code(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    csv_of(Path("log.csv"), [[1, 2, 3]], [1], [2.0])
    code, said = call(*arguments)
    assert code == 1
    assert re.search(re.escape(says), said), said
    assert "Traceback" not in said


def test_a_plan_that_is_stopped_leaves_nothing(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("rarely._cli.plan.improving_plan", stopped)
    code, said = call("--world", "cosine", "--out", tmp_path / "plan")
    assert code == 130
    assert "What is written so far is a plan" in said
    assert not (tmp_path / "plan").exists()


def test_a_plan_that_is_stopped_later_leaves_its_last_answer(tmp_path, monkeypatch, made):
    def stopped(*_, **__):
        yield made
        raise KeyboardInterrupt

    monkeypatch.setattr("rarely._cli.plan.improving_plan", stopped)
    code, said = call("--world", "cosine", "--out", tmp_path / "plan")
    assert code == 130
    assert "first answer" in said
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["horizon"] == 400


def test_settings_are_checked_before_anything_is_simulated():
    with pytest.raises(InvalidInput, match="leave dim"):
        Maker("default", {"schedule": EveryRound()})
    with pytest.raises(InvalidInput, match="hidden"):
        Maker("default", {"hidden": 7})


def test_the_default_policy_can_be_planned_for_with_nothing_set():
    found = plan(log_of(60, rewards=False), horizon=24, runs=1, policy="default", batches=[2], simulator=np.copy)
    assert found.settings == {}
    assert "with default on the simulator's rewards" in found.headline()
    assert "The simulated policy is default (nothing set). It starts untrained" in found.text()
    assert found.frontier.runs == 1


def test_a_model_of_pure_noise_gives_no_advice_from_end_to_end():
    generator = np.random.default_rng(1)
    noise = planning_log(generator.normal(size=(80, 2)), 2, generator.integers(2, size=80), generator.normal(size=80))
    found = plan(noise, horizon=30, runs=1, policy="LinUCB", batches=[2])
    assert found.fit.r_squared < 0
    assert found.headline().startswith("No advice")
    assert "it foresees NOTHING of the variance" in found.text()
    assert found.text().count("To paste") == 0


def test_what_is_pasted_is_a_policy():
    log = log_of(40, rewards=False)
    names = {"blocks": ArmBlocks.fit(log.rows, arms=3), "BatchNeuralUCB": BatchNeuralUCB, "LinUCB": LinUCB}
    names |= {kind.__name__: kind for kind in (FixedGrid, GeometricGrid, DeterminantTrigger)}
    frame = FramePolicy.fit(LinUCB, {"age": [1.0, 2.0]}, arms=["a", "b"], beta=0.3, seed=0)
    for policy, other in (("LinUCB", {}), ("default", SMALL), (frame, {}), (LinUCB, {})):
        given = {"policy": policy, "settings": other, "batches": [16], "simulator": np.copy, "kinds": KINDS}
        found = plan(log, horizon=60, max_rounds=20, runs=1, **given)
        point = replace(found.frontier.of_kind("adaptive")[0], lost=IntervalEstimate(0.0, 0.0, 0.0, 1))
        line = replace(found, frontier=replace(found.frontier, points=(point,))).recipe()
        made = eval(line.removeprefix("To paste: ").split("  #")[0], names)
        assert made.schedule.horizon == 60
        assert "extrapolated from" in line
        if policy is not frame:
            continue
        assert (made.settings()["beta"], made.settings()["ridge"]) == (0.3, 1.0)


def test_rewards_without_spread_are_refused():
    generator = np.random.default_rng(3)
    rows, chosen = generator.normal(size=(60, 2)), generator.integers(2, size=60)
    same = planning_log(rows, 2, chosen, np.ones(60))
    with pytest.raises(RarelyError, match=r"rewards must differ .* all are 1"):
        plan(same, horizon=20, runs=1, policy="LinUCB")


@pytest.mark.parametrize(
    ("simulator", "says"),
    [
        (lambda rows: None, "a mean for every arm|every arm"),
        (lambda rows: [["x"] * 3] * len(rows), "means of the simulator must be real numbers"),
        (lambda rows: np.full((len(rows), 3), np.nan), "not all finite"),
        (lambda rows: np.random.default_rng().random((len(rows), 3)), "the same for the same features"),
    ],
)
def test_simulators_that_give_no_means_are_refused(simulator, says):
    with pytest.raises(InvalidInput, match=says):
        plan(log_of(40, rewards=False), horizon=20, runs=1, policy="LinUCB", batches=[2], simulator=simulator)


def test_a_simulator_is_asked_once_for_the_means_of_a_run():
    asked = []

    def simulator(rows):
        asked.append(len(rows))
        return rows

    plan(log_of(40, rewards=False), horizon=20, runs=2, policy="LinUCB", batches=[2, 4], simulator=simulator)
    assert asked == [8, 8] + [20] * 5


def test_the_settings_that_are_given_are_those_simulated():
    found = [
        plan(
            log_of(40, rewards=False),
            **{"horizon": 20, "runs": 1, "batches": [2], "kinds": ["adaptive"], "simulator": np.copy},
            settings=SMALL | other,
        )
        for other in ({"ridge": 0.01}, {"ridge": 1.0}, {"depth": 3})
    ]
    assert found[2].settings["depth"] == 3
    assert found[1].frontier.pilot[-1][1] < found[0].frontier.pilot[-1][1] / 1.5
