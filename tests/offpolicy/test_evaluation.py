"""Several targets judged by one log, in Python and by the command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rarely import ArmBlocks, ContextsWarning, FramePolicy, InvalidInput, LinTS, LinUCB, OnDemand
from rarely._cli import app
from rarely.logs import DecisionLog, write_log
from rarely.offpolicy import InvalidTarget, difference, dr, evaluate, ips, snips
from rarely.offpolicy.estimates import Ridge, reward_model
from rarely.study import Study

CHANCES = np.array([0.5, 0.3, 0.2])


def visits(rounds=600, seed=0):
    """Offers drawn with known probabilities; rum sells best, gin to the old."""
    rng = np.random.default_rng(seed)
    age, arms = rng.normal(40, 10, rounds), rng.choice(3, rounds, p=CHANCES)
    sold = rng.random(rounds) < np.array([0.2, 0.4, 0.0])[arms] + (arms == 2) * np.clip(age / 100, 0, 1)
    names = np.array(["tea", "rum", "gin"])[arms]
    return {"age": age, "offer": names.tolist(), "sold": sold * 1.0, "p": CHANCES[arms]}


NAMED = {"arm": "offer", "reward": "sold", "probability": "p"}


def test_every_judgement_is_that_of_its_estimator():
    log = DecisionLog.from_frame(visits(), **NAMED)
    target = (log.rows[:, 0] > 40).astype(int)
    made = {(each.target, each.estimator): each for each in evaluate(log, {"own": target})}
    assert list(dict.fromkeys(name for name, _ in made)) == [
        *("the log's own rule", "all arms alike", "always gin", "always rum", "always tea", "own")
    ]
    assert made["own", "ips"].estimate == ips(log, target)
    assert made["own", "snips"].gain == difference(log, target, log.probabilities, estimator="snips")
    assert made["own", "dr"].estimate == dr(log, target)
    assert made["own", "dr"].gain == difference(log, target, log.probabilities)
    assert [made["own", name].estimate.rounds for name in ("ips", "snips", "dr")] == [600, 600, 599]
    assert made["the log's own rule", "snips"].estimate.value == pytest.approx(log.rewards.mean())
    assert made["always rum", "dr"].gain.low > 0 > made["always tea", "dr"].gain.high


def test_a_model_of_rows_is_one_for_each_arm_from_earlier_rounds_alone():
    frame = visits(80)
    log = DecisionLog.from_frame(frame, **NAMED)
    q, starts = reward_model(log), [1, 2, 3, 4, 6, 9, 13, 19, 28, 42, 63]
    for t in (0, 5, 30, 79):
        start = max((s for s in starts if s <= t), default=0)
        for arm in range(3):
            mine = np.flatnonzero(log.arms[:start] == arm) if (log.arms[:start] == arm).any() else np.arange(start)
            wanted = Ridge()(log.rows[mine], log.rewards[mine])(log.rows[t : t + 1])[0] if start else np.nan
            assert np.array_equal(q[t, arm], wanted, equal_nan=True)
    assert dr(log, [1] * 80).error < 1.5 * snips(log, [1] * 80).error


def test_doubly_robust_judgements_do_not_depend_on_what_all_rewards_share():
    log, far = (
        DecisionLog.from_frame(visits() | {"sold": visits()["sold"] + 0.5 + shift}, **NAMED) for shift in (0, 1e6)
    )
    near, shifted = (
        next(each.estimate for each in evaluate(past, estimators=["dr"]) if each.target == "always rum")
        for past in (log, far)
    )
    assert shifted.value - near.value == pytest.approx(1e6)
    assert shifted.error == pytest.approx(near.error, rel=1e-4)


def unordered():
    """A table that is not in the order of time, and a target for its rows, which follows their age."""
    frame = visits(80) | {"when": np.random.default_rng(1).permutation(80), "visit": [f"v{i}" for i in range(80)]}
    return frame, np.where(frame["age"] > 40, 1, 2)


def test_a_target_of_rows_in_another_order_is_tied_to_their_ids():
    frame, target = unordered()
    with pytest.warns(ContextsWarning, match="order of when"):
        log = DecisionLog.from_frame(frame, time="when", id="visit", **NAMED)
    assert log.ids == tuple(f"v{i}" for i in np.argsort(frame["when"]))
    wanted = DecisionLog.from_frame({name: frame[name] for name in ("age", "offer", "sold", "p")}, **NAMED)
    table, by_id = np.eye(3)[target], dict(zip(frame["visit"], target.tolist(), strict=True))
    rows = dict(zip(frame["visit"], table, strict=True))
    names = {visit: wanted.arm_name(arm) for visit, arm in by_id.items()}
    rule = {"rule": lambda columns: np.where(columns["age"] > 40, "rum", "tea"), "named": names}
    for tied in (by_id, rows):
        assert snips(log, tied).value == pytest.approx(snips(wanted, target).value)
    for made in evaluate(log, rule, estimators=["snips"])[-2:]:
        assert made.estimate.value == pytest.approx(snips(wanted, target).value)
    for untied in (target, table, table.tolist()):
        with pytest.raises(InvalidInput, match=r"must say which rounds it is about.*\{id: …\}"):
            snips(log, untied)
    assert snips(log, [1] * 80).value == snips(wanted, [1] * 80).value
    assert snips(log, log.probabilities).value == pytest.approx(wanted.rewards.mean())
    for wrong in (by_id | {"v80": 1}, {name: arm for name, arm in by_id.items() if name != "v7"}):
        with pytest.raises(InvalidInput, match="a target by id must have each of the log's and no other"):
            snips(log, wrong)


def test_rounds_without_an_id_are_tied_by_their_numbers():
    frame, _ = unordered()
    del frame["visit"]
    with pytest.warns(ContextsWarning, match="order of when"):
        log = DecisionLog.from_frame(frame, time="when", **NAMED)
    target = (log.rows[:, 0] > 40).astype(int)
    with pytest.raises(InvalidInput, match=r"\{round: …\} of log.rounds"):
        ips(log, target)
    assert ips(log, dict(zip(log.rounds.tolist(), target, strict=True))).value > 0


@pytest.mark.parametrize("targets", [[1, 2], 3, "rum"])
def test_targets_without_names_are_refused(targets):
    with pytest.raises(InvalidInput, match="targets must be a dictionary of targets by name"):
        evaluate(DecisionLog.from_frame(visits(40), **NAMED), targets)


def test_a_target_that_the_log_cannot_judge_has_its_reason():
    log = DecisionLog.from_frame(visits(40) | {"offer": ["tea", "rum"] * 20}, arm_count=3, **NAMED)
    made = evaluate(log, estimators=["ips"])
    refused = {each.target: each.reason for each in made if each.estimate is None}
    assert refused.keys() == {"always 2"}
    assert "must agree with the log at least once" in refused["always 2"]
    assert "must agree with the log at least once" in str(made)
    with pytest.raises(InvalidInput, match="sum to 1"):
        evaluate(log, {"wrong": [[0.5, 0.5, 0.5]] * 40}, estimators=["ips"])
    with pytest.raises(InvalidInput, match="estimators must be"):
        evaluate(log, estimators=["magic"])


def test_targets_are_names_of_arms_or_a_function_of_the_columns():
    log = DecisionLog.from_frame(visits(40) | {"offer": ["tea", "rum"] * 20}, **NAMED)
    column, middle = log.names[0], float(np.median(log.rows[:, 0]))
    numbers = np.where(log.rows[:, 0] > middle, log.arm_names.index("tea"), log.arm_names.index("rum"))
    named = np.where(log.rows[:, 0] > middle, "tea", "rum")
    targets = {
        "numbers": numbers,
        "names": named,
        "rule": lambda columns: np.where(columns[column] > middle, "tea", "rum"),
    }
    found = {each.target: each.estimate.value for each in evaluate(log, targets, estimators=["snips"])}
    assert found["numbers"] == found["names"] == found["rule"]
    with pytest.raises(InvalidInput, match=r"must name arms of the log.*'milk'"):
        evaluate(log, {"odd": ["milk"] * 40})


def test_a_gain_of_rounding_size_is_none():
    log = DecisionLog.from_frame(visits(40) | {"offer": ["tea", "rum"] * 20, "p": [0.5] * 40}, **NAMED)
    alike = next(each for each in evaluate(log, estimators=["ips"]) if each.target == "all arms alike")
    assert (alike.gain.low, alike.gain.high) == (0.0, 0.0)


def call(*arguments):
    result = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def table(path, frame):
    rows = zip(*frame.values(), strict=True)
    path.write_text("\n".join([",".join(frame), *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")
    return path


OPTIONS = ["--arm", "offer", "--reward", "sold", "--probability", "p"]


def test_the_command_prints_a_table_with_what_looked_odd(tmp_path):
    frame = visits(100)
    frame["offer"][7] = "Tea"
    frame |= {"visit": [*range(99), 98]}
    for name in ("age", "offer", "sold", "p"):
        frame[name] = [*list(frame[name])[:99], list(frame[name])[98]]
    code, said = call(table(tmp_path / "log.csv", frame), *OPTIONS, "--id", "visit", "--estimator", "snips")
    assert code == 0
    assert "log.csv: 99 rounds, 4 arms, 99 rewards, 1 features: age" in said
    assert "'tea' and 'Tea' in column offer are two arms; correct the rows if they should be one: line 9." in said
    assert "1 rows repeat an earlier one with the same visit and are dropped: line 101." in said
    assert "always rum" in said


def test_the_command_prints_json_and_judges_a_saved_policy_on_rows(tmp_path):
    frame = visits()
    log = DecisionLog.from_frame(frame, **NAMED)
    blocks = ArmBlocks.fit(log.rows, arms=3)
    chosen = blocks(log.rows)[np.arange(600), log.arms]
    policy = LinUCB.from_log(chosen[:300], log.rewards[:300], dim=blocks.dim)
    policy.save(tmp_path / "policy.rarely")
    (tmp_path / "arms.json").write_text(json.dumps({"blocks": blocks.describe()}))
    code, said = call(
        *(table(tmp_path / "log.csv", frame), *OPTIONS, "--json", "--reward-range", 0, 1),
        *("--policy", tmp_path / "policy.rarely", "--blocks", tmp_path / "arms.json"),
    )
    assert code == 0
    found = json.loads(said)
    own = [each for each in found["estimates"] if each["target"] == "policy.rarely"]
    target = policy.probabilities(blocks(log.rows))
    assert (found["rounds"], [each["estimator"] for each in own]) == (600, ["ips", "snips", "dr"])
    assert own[1]["estimate"]["value"] == pytest.approx(snips(log, target).value)
    assert "it may have learned from their rewards" in own[1]["estimate"]["note"]


def test_the_command_reads_a_log_of_its_own_and_refuses_what_has_no_probabilities(tmp_path):
    policy, log, rng = LinUCB(dim=2, seed=0), DecisionLog(), np.random.default_rng(0)
    contexts = rng.normal(size=(50, 3, 2))
    decision = policy.select(contexts)
    log.record(contexts, decision)
    log.observe(decision, rng.random(50))
    write_log(log, tmp_path / "live.csv")
    code, said = call(tmp_path / "live.csv", "--estimator", "snips")
    assert (code, "in round 1 the target chooses arm 0" in said) == (0, True)
    code, said = call(table(tmp_path / "log.csv", visits(30)), "--arm", "offer", "--reward", "sold", "--ignore", "p")
    assert (code, "error: the probabilities that arms were drawn from must be known" in said) == (1, True)
    quoted = {'"unit, old"' if name == "p" else name: values for name, values in visits(30).items()}
    options = ["--arm", "offer", "--reward", "sold", "--ignore", '"unit, old"']
    code, said = call(table(tmp_path / "quoted.csv", quoted), *options)
    assert (code, "error: the probabilities that arms were drawn from must be known" in said) == (1, True)
    assert call()[0] == 2
    policy.save(tmp_path / "policy.rarely")
    code, said = call(tmp_path / "log.csv", *OPTIONS, "--policy", tmp_path / "policy.rarely")
    assert (code, "all arms of this log share a row; give --blocks" in said) == (1, True)
    (tmp_path / "arms.json").write_text("[]")
    code, said = call(table(tmp_path / "log.csv", visits(30)), *OPTIONS, "--blocks", tmp_path / "arms.json")
    assert (code, "must be JSON of ArmBlocks, as describe() gives it" in said) == (1, True)


def test_a_policy_of_items_is_judged_by_the_record_of_its_study(tmp_path):
    items = [{"id": name, "price": price} for name, price in (("tea", 3.0), ("rum", 9.0), ("gin", 6.0))]
    users = [{"age": 20.0 + 7 * i % 40, "town": "Ulm" if i % 3 else None} for i in range(40)]
    shop = FramePolicy.fit(LinTS, users, items, key="id", schedule=OnDemand(), seed=0)
    study = Study.create("memory://judged-items", "shop", policy=shop)
    for i, user in enumerate(users):
        study.ask({"user": user, "items": items}, id=f"v{i}")
        study.tell(f"v{i}", float(i % 4 == 0))
    log, learned = study.log(), FramePolicy(study.policy(0), shop.tables)
    chances = np.array([shop.probabilities(user, items) for user in users])
    assert ips(log, learned).value == pytest.approx(ips(log, chances).value, rel=1e-12)
    learned.save(tmp_path / "shop.policy")
    study.export(tmp_path / "log.csv")
    code, said = call(tmp_path / "log.csv", "--policy", tmp_path / "shop.policy", "--json")
    assert code == 0, said
    made = json.loads(said)["estimates"]
    named = {each["target"]: each["estimate"]["value"] for each in made if each["estimator"] == "ips"}
    assert named["shop.policy"] == pytest.approx(ips(log, learned).value, rel=1e-12)
    with pytest.raises(InvalidTarget, match="log of a Study by columns"):
        ips(DecisionLog.from_frame(visits(40), **NAMED), learned)
