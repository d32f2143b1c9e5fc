"""Logs of Vowpal Wabbit and Open Bandit, read as they are."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import InvalidInput
from rarely.logs import DecisionLog, InvalidLog, bandit_feedback, read_log, write_log
from rarely.offpolicy import evaluate, ips


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return path


CB = "1:2:0.4 seen| a c:0.5\n3:0.5:0.2 'tag |user b d\n4:-1.2:0.5 |user:2 b:3 |w d\n"
ADF = """shared |u age:3 new
0:-1:0.75 |i red
|i blue price:2

shared |u age:5
|i red
|i blue price:1
2:0.5:0.25 |i green

|i red
|i blue
"""


def test_a_cb_log_has_rows_costs_become_rewards_and_namespaces_weigh(tmp_path):
    log = read_log(written(tmp_path / "log.txt", CB), arm_count=5)
    assert (log.names, log.arm_count) == (("a", "c", "user^b", "user^d", "w^d"), 5)
    np.testing.assert_array_equal(log.rows, [[1, 0.5, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 6, 0, 1]])
    assert (log.arms.tolist(), log.rewards.tolist()) == ([0, 2, 3], [-2.0, -0.5, 1.2])
    assert (log.propensities.tolist(), log.arm_names) == ([0.4, 0.2, 0.5], ("1", "2", "3", "4", "5"))
    assert read_log(tmp_path / "log.txt", ignore=["user"]).names == ("a", "c", "w^d")


def test_an_adf_log_has_contexts_of_what_is_shared_and_of_each_arm(tmp_path):
    log = read_log(written(tmp_path / "log.txt", ADF))
    assert log.names == ("u^age", "u^new", "i^red", "i^blue", "i^price", "i^green")
    assert log.present.tolist() == [[True, True, False], [True, True, True]]
    np.testing.assert_array_equal(log.contexts[0, :2], [[3, 1, 1, 0, 0, 0], [3, 1, 0, 1, 2, 0]])
    assert (log.arms.tolist(), log.rewards.tolist()) == ([0, 2], [1.0, -0.5])
    assert (str(log.remarks[0]), log.remarks[0].rows) == (
        "1 of 3 rounds have no label and are left out: line 10.",
        (10,),
    )


def event(**changes):
    return {
        "_label_cost": -1.0,
        "_label_probability": 0.5,
        "_label_Action": 2,
        "_labelIndex": 1,
        "a": [2, 1],
        "p": [0.75, 0.25],
        "c": {
            "User": {"id": "person5", "_age": 9, "vip": True, "old": False, "gap": None},
            "n": [4, 5.5],
            "_multi": [{"T": {"topic": "ski"}, "j": [{"x": 2}]}, {"T": {"_text": "herb garden"}}],
        },
    } | changes


def lines(path, *events):
    return written(path, "".join(json.dumps(each) + "\n" for each in events))


def test_decision_service_json_has_all_probabilities_and_text_as_columns(tmp_path):
    log = read_log(lines(tmp_path / "log.dsjson", event(), event(_label_cost=0), event(_skipLearn=True)))
    assert log.names == ("User^id=person5", "User^vip", "n[0]", "n[1]", "T^topic=ski", "j^x", "T^herb", "T^garden")
    np.testing.assert_array_equal(log.contexts[0], [[1, 1, 4, 5.5, 1, 2, 0, 0], [1, 1, 4, 5.5, 0, 0, 1, 1]])
    assert (log.arms.tolist(), log.rewards.tolist(), len(log.remarks)) == ([1, 1], [1.0, 0.0], 1)
    np.testing.assert_array_equal(log.probabilities, [[0.25, 0.75]] * 2)
    plain = {name: value for name, value in event().items() if name not in ("a", "p")}
    assert read_log(lines(tmp_path / "log.json", plain)).propensities.tolist() == [0.5]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1:2 | a\n", "line 1: a label must be one action:cost:probability; 1:2 is not"),
        ("1:2:0.5 2 | a\n", "line 1: a label must be one"),
        ("1:x:0.5 | a\n", "line 1: this is not a round of Vowpal Wabbit"),
        ("1:1:0.5 | a:b\n", "line 1: this is not a round"),
        ("shared | a\n0:1:0.5 | b\n1:1:0.5 | c\n", "one arm of a round must have a label; several do"),
        ("shared | a\n| b\n| c\n", "no round has a label"),
        ('{"_label_cost": 1}\n', "line 1: this is not a round"),
        (json.dumps(event(_outcomes=[])), "slates and conditional bandits"),
        (json.dumps(event(p=[0.5, 0.2])), "p sum to 1"),
        (json.dumps(event())[:-1], "line 1: this is not a round"),
        ("1:1:0.5 | a\n2:nan:0.5 | a\n", "line 2: a cost must be a finite number"),
        (json.dumps(event(a=[0, 1])), "the actions a must be 1, 2"),
    ],
)
def test_what_vowpal_wabbit_would_not_read_is_refused_with_its_line(text, says, tmp_path):
    with pytest.raises(InvalidLog, match=says):
        read_log(written(tmp_path / "log", text))


@given(
    rounds=st.lists(st.tuples(st.integers(1, 4), st.floats(-9, 9), st.floats(0.01, 1), st.floats(-9, 9)), min_size=1)
)
def test_what_is_written_for_vowpal_wabbit_is_read(rounds, tmp_path_factory):
    text = "".join(f"{arm}:{cost!r}:{p!r} |n x:{x!r} one\n" for arm, cost, p, x in rounds)
    log = read_log(written(tmp_path_factory.mktemp("vw") / "log", text), arm_count=5)
    arms, costs, chances, numbers = map(list, zip(*rounds, strict=True))
    assert (log.arms + 1).tolist() == arms
    assert log.rewards.tolist() == [0.0 - cost for cost in costs]
    assert log.propensities.tolist() == chances
    assert log.rows.tolist() == [[x, 1.0] for x in numbers]


DATASET = """,timestamp,item_id,position,click,propensity_score,user_feature_0,user-item_affinity_0
0,2019-11-24 00:00:18.5+00:00,14,1,0,0.05,ab,0.0
1,2019-11-24 00:00:17.1+00:00,3,3,1,0.2,cd,1.0
2,2019-11-24 00:00:19+00:00,14,1,0,0.05,ab,0.0
"""


OPEN_BANDIT = {"arm": "item_id", "reward": "click", "probability": "propensity_score", "time": "timestamp"}


@pytest.mark.filterwarnings("ignore::rarely.ContextsWarning")
def test_the_open_bandit_dataset_is_sorted_and_its_texts_become_columns(tmp_path):
    log = read_log(written(tmp_path / "all.csv", DATASET), **OPEN_BANDIT, ignore=[""], encoder="auto")
    assert log.names[:3] == ("position", "user_feature_0=ab", "user_feature_0=cd")
    assert log.arm_names == ("3", "14")
    assert log.rows[:, :3].tolist() == [[3, 0, 1], [1, 1, 0], [1, 1, 0]]
    assert (log.arms.tolist(), log.rewards.tolist()) == ([0, 1, 1], [1.0, 0.0, 0.0])
    assert [remark.kind for remark in log.remarks] == ["order"]


def test_bandit_feedback_comes_back_as_the_same_log():
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(3), 50)
    arms = np.array([rng.choice(3, p=row) for row in chances])
    log = DecisionLog.from_arrays(
        None, arms, rng.normal(size=50), rows=rng.normal(size=(50, 2)), arm_count=3, probabilities=chances
    )
    feedback = bandit_feedback(log)
    again = read_log(feedback)
    np.testing.assert_array_equal(again.probabilities, log.probabilities)
    np.testing.assert_array_equal(again.rows, log.rows)
    assert ips(again, [1] * 50) == ips(log, [1] * 50)
    slots = feedback | {"position": np.arange(50) % 2, "pi_b": np.stack([chances[:, :, None]] * 2, 2)[..., 0]}
    assert read_log(slots).rows.shape == (50, 4)
    several = evaluate(read_log({name: value for name, value in feedback.items() if name != "pi_b"}))
    assert [each.target for each in several][-1] == "always 2"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"action": [], "reward": [], "context": []}, "a position of at least 0 for each action"),
        ({"action": [0.7, 0.2]}, "action must be whole numbers"),
        ({"action": ["a", "b"]}, "action must be whole numbers"),
        ({"position": [0, -1]}, "a position of at least 0 for each action"),
        ({"position": [0]}, "a position of at least 0 for each action"),
        ({"pi_b": [[0.5, 0.5]]}, "pi_b must have shape"),
    ],
)
def test_feedback_that_does_not_fit_is_refused(given, says):
    fine = {"action": [0, 1], "reward": [1, 0], "context": [[1.0], [2.0]], "pscore": [0.5, 0.5]}
    assert len(read_log(fine)) == 2
    with pytest.raises(InvalidLog, match=says):
        read_log(fine | given)


def test_arguments_that_a_log_has_no_use_for_are_refused(tmp_path):
    path = written(tmp_path / "log.dat", CB)
    with pytest.raises(InvalidInput, match="unknown argument 'context' for a log of Vowpal Wabbit"):
        read_log(path, context=["a"])
    mine = DecisionLog.from_arrays([[[1.0], [2.0]]], arms=[0], rewards=[1.0], probabilities=[[0.5, 0.5]])
    write_log(mine, tmp_path / "log.csv")
    with pytest.raises(InvalidInput, match="unknown argument 'ignore' for a log that write_log wrote"):
        read_log(tmp_path / "log.csv", ignore=["version"])
    with pytest.raises(InvalidInput, match="unknown argument 'arm_count' for a bandit_feedback"):
        read_log({"action": [0], "reward": [1], "context": [[1.0]], "pscore": [0.5]}, arm_count=3)


@pytest.mark.parametrize("text", ["[1, 2]", '[["x", 1]]', '[{"x": 1, "a": "u"}]', '{"x": 1' + "0" * 5000 + "}", "{"])
def test_lines_that_are_no_objects_are_refused(text, tmp_path):
    path = written(tmp_path / "log.jsonl", '{"x": 1, "a": "u"}\n' + text + "\n")
    with pytest.raises(InvalidLog, match="line 2: one JSON object is expected"):
        read_log(path, arm="a")


def test_numbers_and_names_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(InvalidLog, match="x has 1000000"):
        read_log({"x": [10**400, 2], "a": ["u", "v"]}, arm="a")
    assert read_log({"x": [1, 2], "a": [np.ones(2), "v"]}, arm="a").arm_count == 2
    pytest.importorskip("pyarrow")
    for path in (tmp_path / "none.parquet", written(tmp_path / "bad.parquet", "abc")):
        with pytest.raises(InvalidLog, match="cannot be read"):
            read_log(path, arm="a")


@pytest.mark.parametrize("arm", [2**16 + 1, 10**9, 10**30])
def test_an_arm_of_any_number_takes_no_memory(arm, tmp_path):
    path = tmp_path / "log.vw"
    path.write_text(f"1:1.5:0.5 | a:1\n{arm}:0.5:0.25 | a:2\n", encoding="utf-8")
    tracemalloc.start()
    try:
        with pytest.raises(InvalidLog, match=f"at most 65536 arms, numbered 1, 2, …; got an arm {arm}"):
            read_log(path)
        path.write_text("65536:1.5:0.5 | a:1\n" * 500, encoding="utf-8")
        assert read_log(path).arm_count == 2**16
        assert tracemalloc.get_traced_memory()[1] < 2e7
    finally:
        tracemalloc.stop()
