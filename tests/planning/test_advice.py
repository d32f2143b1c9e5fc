"""Which policy for a log: laws of rewards, replay against play, verdicts, and the command."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from rarely import FramePolicy, InvalidInput, LinUCB, Mixture, Paced, Uniform
from rarely._cli import app
from rarely.logs import DecisionLog, InvalidLog
from rarely.planning import advice
from rarely.planning.advice import SURE, Evidence, Verdict, advise, improving
from rarely.planning.simulate import RewardLaw


def made_log(rounds=400, seed=0, chances=True, paid=None):
    rng = np.random.default_rng(seed)
    rows, arms = rng.normal(size=(rounds, 2)), rng.integers(3, size=rounds)
    means = np.stack([rows[:, 0], rows[:, 1], np.zeros(rounds)], axis=1)
    rewards = means[np.arange(rounds), arms] + 0.3 * rng.normal(size=rounds) if paid is None else paid(means, arms, rng)
    known = {"propensities": np.full(rounds, 1 / 3)} if chances else {}
    return DecisionLog.from_arrays(rows=rows, arms=arms, rewards=rewards, arm_count=3, **known)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (lambda mu, rng: (rng.random(mu.shape) < mu / 10) * 1.0, {0.0, 1.0}),
        (lambda mu, rng: rng.poisson(mu) * 1.0, set(map(float, range(40)))),
        (lambda mu, rng: (rng.random(mu.shape) < 0.4) * mu * rng.lognormal(size=mu.shape), None),
        (lambda mu, rng: mu - 3 + rng.normal(size=mu.shape), None),
    ],
)
def test_rewards_that_are_drawn_are_of_the_logs_kind_and_have_their_means(kind, values):
    rng = np.random.default_rng(0)
    mu = rng.gamma(3, 1, 4000).clip(max=9)
    rewards = kind(mu, rng)
    slope = np.polyfit(mu, rewards, 1)
    law = RewardLaw.of(rewards, np.polyval(slope, mu))
    for mean in law.within(np.quantile(np.polyval(slope, mu), [0.1, 0.5, 0.9])):
        drawn = law.draw(np.full(20000, mean), *rng.random((2, 20000)))
        assert drawn.mean() == pytest.approx(mean, abs=4 * drawn.std() / math.sqrt(20000) + 0.02 * rewards.std())
        assert values is None or {*drawn.tolist()} <= values
        assert rewards.min() < 0 or drawn.min() >= 0


def test_what_is_replayed_is_what_would_have_been_played():
    """A policy that never learns is judged as by its probabilities, and what others meet is thinned by a third."""
    log = made_log(900)
    makes = advice.read_candidates(
        {"never": lambda dim, schedule, context_scale, seed: Uniform(dim, schedule), "LinUCB": "LinUCB"}
    )
    comparison = advice.Comparison(makes, log, 200, 10, 0)
    comparison.replay(lambda done: None)
    assert comparison.replayed == 300
    evidence = comparison.logged["replay"]
    value, error = evidence.difference(0, -1)
    assert value == pytest.approx(0, abs=1e-12)
    gain, error = evidence.difference(1, -1)
    assert 0.5 < gain < 0.68 + 3 * error  # E max(X, Y, 0) = 0.68


def test_too_few_rounds_to_replay_are_learned_from_in_folds_and_no_chances_leave_the_simulation():
    few = advise(made_log(150), ["LinUCB", "LinTS"], horizon=60, batches=5, runs=3)
    assert {*few.sources} == {"learned", "simulation"}
    assert few.replayed == 0
    unknown = advise(made_log(150, chances=False), ["LinUCB", "LinTS"], horizon=60, batches=5, runs=3)
    assert {*unknown.sources} == {"simulation"}
    assert "all rests on the simulation" in str(unknown)


def test_policies_as_they_are_and_ensembles_are_candidates(tmp_path):
    """What a policy has learned, and for whom, does not count: its kind and settings do."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install '.[ensembles]'")
    one = LinUCB(7, Paced(9, 3), ridge=0.5, exploration=Mixture(0.3), seed=9)
    one.update(force=True)
    frame = FramePolicy.fit(LinUCB, {"age": [1.0, 2.0]}, arms=["a", "b"], ridge=0.5, exploration=Mixture(0.3))
    frame.save(tmp_path / "saved.policy")
    same = {"one": one, "frame": frame, "file": str(tmp_path / "saved.policy")}
    other = {"usual": LinUCB, "trees": "ensemble"}
    made = advise(made_log(), same | other, horizon=40, batches=3, runs=3)
    assert made.sources["simulation"][0] == made.sources["simulation"][1] == made.sources["simulation"][2]
    assert len({*made.gains[2:]}) == 3


def test_no_interval_is_said_of_what_nobody_can_know():
    log = made_log(60, chances=False, paid=lambda means, arms, rng: rng.normal(size=len(arms)))
    said = advise(log, ["LinUCB", "LinTS"], horizon=50, runs=3).sentence
    assert "e-1" not in said


def test_the_same_seed_gives_the_same_advice_which_is_json_and_ends_with_its_sentence():
    settings = {"horizon": 40, "batches": 3, "runs": 3}
    once, again = (advise(made_log(), ["LinUCB", "LinTS"], **settings) for _ in range(2))
    assert (once.gains, once.sources) == (again.gains, again.sources)
    told = json.loads(json.dumps(once.describe(), allow_nan=False))
    assert told["names"] == ["LinUCB", "LinTS"]
    assert str(once).splitlines()[-1] == once.sentence


def test_an_answer_comes_after_a_few_short_runs_and_more_after_each_run():
    heard = []
    given = {
        "horizon": 80,
        "batches": 5,
        "runs": 4,
        "progress": lambda stage, done, of: heard.append((stage, done, of)),
    }
    answers = list(improving(made_log(), ["LinUCB", "LinTS"], **given))
    assert [each.runs for each in answers] == [3, 3, 4]
    assert heard[0] == ("replay", 0, 2)
    assert heard[-1] == ("simulation", 7, 7)
    assert len(list(improving(made_log(), ["LinUCB", "LinTS"], **given, seconds=0.0))) == 1


def sure(*values, runs=9, spread=0.01):
    """Runs that differ by next to nothing."""
    wave = spread * np.sin(np.arange(runs))[:, None] * np.arange(1, len(values) + 1)
    return Evidence(np.array(values) + wave)


def test_a_verdict_takes_the_cheapest_of_what_is_surely_as_good():
    same = Verdict(("a", "b"), {}, sure(1.0, 1.0, 0.0), True)
    assert same.answer([9.0, 1.0])[0] == 1
    assert same.answer([1.0, 9.0])[0] == 0
    ahead = Verdict(("a", "b"), {"replay": sure(1.0, 0.5, 0.0)}, sure(1.0, 0.5, 0.0), True)
    chosen, said = ahead.answer([9.0, 1.0])
    assert chosen == 0
    assert said.startswith("Take a: it earns 0.99")
    assert "more than b, the next best" in said


def test_a_log_and_a_simulation_that_contradict_each_other_cannot_tell():
    against = Verdict(("a", "b"), {"replay": sure(1.0, 0.4, 0.0, spread=0.4)}, sure(0.4, 1.0, 0.0), True)
    assert against.answer([1.0, 1.0])[0] is None
    # A model that foresees nothing has no say, so that the log decides alone.
    assert Verdict(("a", "b"), against.logged, against.simulation, False).answer([1.0, 1.0])[0] == 0


def test_nothing_is_recommended_where_nothing_is_gained():
    chosen, said = Verdict(("a", "b"), {}, sure(0.01, 0.0, 0.0, spread=1.0), True).answer([1.0, 1.0])
    assert chosen is None
    assert said.startswith("Cannot tell: it is not shown that any of these earns more than choosing at random")


def test_one_that_surely_gains_is_not_denied_for_another_that_may_gain_more():
    runs = np.array([[0.5, 2.0, 0.0], [0.52, -0.6, 0.0], [0.48, 1.9, 0.0]] * 3)
    verdict = Verdict(("sure", "unsure"), {}, Evidence(runs), True)
    assert verdict.interval(0, -1)[1] > 0 > verdict.interval(1, -1)[1]
    chosen, said = verdict.answer([1.0, 1.0])
    assert chosen is None
    assert said.startswith("Cannot tell which of sure, unsure earns most: unsure earns")


def test_a_difference_of_few_runs_has_a_wider_error():
    few, many = (Evidence(np.tile([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]], (times, 1))) for times in (1, 100))
    assert few.difference(0, 1)[1] * SURE == pytest.approx(4.30265 / math.sqrt(3), rel=1e-3)
    assert many.difference(0, 1)[1] * SURE == pytest.approx(1.97 * math.sqrt(2 / 3 / 300), rel=0.01)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"candidates": ["LinUCB"]}, "at least two candidates"),
        ({"candidates": "LinUCB"}, "candidates must be names"),
        ({"candidates": ["LinUCB", "magic"]}, "a policy must be one of default, LinUCB, LinTS, ensemble, module:name"),
        ({"candidates": ["LinUCB", "rarely:Nobody"]}, "cannot be imported"),
        ({"candidates": {"a": LinUCB, "b": 3.0}}, "a class of policies, or a function that makes one; got 3.0"),
        ({"candidates": {"a": LinUCB, "b": lambda *_, **__: 3}}, "must make a Policy; got 3"),
        ({"runs": 2}, "runs must be a whole number of at least 3"),
        ({"horizon": 9}, "horizon must be a whole number of at least 40"),
        ({"log": [[1.0]]}, "log must be a DecisionLog"),
        ({"log": made_log(40)}, "at least 50 rewards"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_reason(given, says):
    with pytest.raises(InvalidInput, match=says) as caught:
        advise(**{"log": made_log(60), "candidates": ["LinUCB", "LinTS"], "horizon": 50} | given)
    assert isinstance(caught.value, InvalidLog) == ("rewards" in says or "DecisionLog" in says)


# --- the command


def table(path, rounds=300):
    rng = np.random.default_rng(0)
    lines = ["age,country,user_id,offer,bought,p"]
    for i in range(rounds):
        age, country, offer = rng.integers(18, 80), rng.choice(["de", "fr", ""]), rng.choice(["tea", "rum"])
        bought = int(rng.random() < (0.8 if (offer == "tea") == (country == "de") else 0.2))
        lines.append(f"{age if i % 7 else ''},{country},{i},{offer},{bought},{0.5 if i % 9 else ''}")
    path.write_text("\n".join(lines) + "\n")
    return path


ASKED = ("--arm", "offer", "--reward", "bought", "--probability", "p", "--policy", "LinUCB", "--policy", "LinTS")


def test_the_command_goes_from_a_table_as_it_is_to_a_sentence(tmp_path):
    asked = (*ASKED, "--horizon", "60", "--batches", "5", "--runs", "3", "--out", str(tmp_path / "out"))
    refused = CliRunner().invoke(app, ["advise", str(table(tmp_path / "log.csv")), *asked])
    assert refused.exit_code == 1
    assert "is missing. Leave such rows out by drop_unknown=True (--drop-unknown)" in " ".join(refused.output.split())
    result = CliRunner().invoke(app, ["advise", str(tmp_path / "log.csv"), *asked, "--drop-unknown"])
    assert result.exit_code == 0, result.output
    said = (tmp_path / "out" / "advice.txt").read_text()
    assert said.splitlines()[-1] in result.output
    assert "Column user_id is taken for a part of the context" in " ".join(result.output.split())
    assert "34 of 300 rows have no p and are left out" in " ".join(result.output.split())
    assert json.loads((tmp_path / "out" / "advice.json").read_text())["rounds"] == 266


def test_a_command_that_is_stopped_leaves_its_last_answer(tmp_path, monkeypatch):
    whole = improving

    def stopped(*given, **settings):
        yield next(whole(*given, **settings))
        raise KeyboardInterrupt

    monkeypatch.setattr("rarely._cli.advise.improving", stopped)
    asked = (*ASKED, "--drop-unknown", "--horizon", "60", "--batches", "5", "--out", str(tmp_path / "out"))
    result = CliRunner().invoke(app, ["advise", str(table(tmp_path / "log.csv")), *asked])
    assert result.exit_code == 130
    assert "What is written so far is an answer" in result.output
    assert (tmp_path / "out" / "advice.txt").read_text().strip()
