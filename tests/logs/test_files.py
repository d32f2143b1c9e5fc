"""What leaves a log comes back to the last bit, and other programs find what they expect."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decision_logs import made
from rarely import Decision, InvalidInput, LinTS, OnDemand, Worth
from rarely.offpolicy import (
    DecisionLog,
    InvalidLog,
    ParquetUnavailable,
    bandit_feedback,
    read_log,
    slates,
    write_log,
)

NAMES = ("rounds", "versions", "arms", "rewards", "propensities", "probabilities", "present", "contexts", "rows")


logs = st.builds(
    made,
    st.integers(0, 10**6),
    rounds=st.integers(0, 6),
    arms=st.integers(1, 4),
    dim=st.integers(1, 3),
    width=st.integers(0, 2),
    told=st.sampled_from([0.0, 0.6, 1.0]),
)


def same(one, other):
    for name in NAMES:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@given(log=logs)
def test_csv_gives_back_every_bit(log, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "log.csv"
    write_log(log, path)
    same(log, read_log(path))


@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_slates_and_worth_are_read_back(name, tmp_path):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    log, policy, rng = DecisionLog(), LinTS(2, OnDemand(), seed=0), np.random.default_rng(0)
    for i in range(12):
        contexts, slots = rng.normal(size=(4, 2)), None if i == 5 else 2 + i % 2
        worth = None if i < 3 else Worth(rng.normal(size=4), np.where(np.arange(4) == i % 6, np.inf, rng.random(4)))
        decision = policy.select(contexts, worth=worth, slots=slots)
        log.record(contexts, decision)
        log.observe(decision, rng.random(np.shape(decision.arm)))
    write_log(log, tmp_path / name)
    again = read_log(tmp_path / name)
    same(log, again)
    np.testing.assert_array_equal(again.slates, log.slates)
    for each in ("gain", "cost"):
        np.testing.assert_array_equal(getattr(again.worth, each), getattr(log.worth, each))
    assert slates(again.valued(), again.probabilities) == slates(log.valued(), log.probabilities)
    if name.endswith("csv"):
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("slate", "slat", 1))
        with pytest.raises(InvalidLog, match="slat is not one of them"):
            read_log(tmp_path / name)
        row = text.splitlines()[-1].split(",")
        gains = [i for i, column in enumerate(text.splitlines()[0].split(",")) if column.startswith("gain_")]
        row[next(i for i in gains if row[i])] = ""
        (tmp_path / name).write_text("\n".join([*text.splitlines()[:-1], ",".join(row)]))
        with pytest.raises(InvalidLog, match="gain_k and cost_k must be numbers for every arm"):
            read_log(tmp_path / name)


def test_csv_is_a_plain_table(tmp_path):
    log = DecisionLog()
    nan, third = float("nan"), 1 / 3
    decision = Decision(
        np.array([1]), np.array([[0.0, 0.0, nan]]), np.zeros((1, 3)), np.array([4]), np.array([9]),
        np.array([[third, 1 - third, 0.0]]),
    )  # fmt: skip
    log.record([[[0.1], [2.0], [nan]]], decision, rows=[[5.0]])
    write_log(log, tmp_path / "log.csv")
    header = "round,version,arm,reward,propensity,probability_0,probability_1,probability_2,row_0"
    assert (tmp_path / "log.csv").read_text() == (
        f"{header},context_0_0,context_1_0,context_2_0\n"
        "9,4,1,,0.6666666666666667,0.3333333333333333,0.6666666666666667,,5.0,0.1,2.0,\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; its first line must name the columns"),
        (
            "round,version,arm,reward,propensity,probability_0,context_0_0\n1,0,0,1.0,1.0,1.0\n",
            "line 2: 7 fields are expected; got 6",
        ),
        ("round,version,arm,reward,propensity,probability_0,context_0_0\n1,0,x,1.0,1.0,1.0,2.0\n", "arm in line 2"),
        ("round,version,arm,reward,propensity,probability_0,context_0_0\n1,0,0,a,1.0,1.0,2.0\n", "reward in line 2"),
        ("round,version,arm,reward,propensity,probability_0,x\n1,0,0,1.0,1.0,1.0,2.0\n", "x is not one of them"),
        (
            "round,version,arm,reward,propensity,probability_0,context_0_0\n1,0,0,1.0,0.5,1.0,2.0\n",
            "propensity must be",
        ),
        ("round,version,arm,reward,propensity,probability_0,context_0_0\n1,0,0,1.0,0.5,0.5,2.0\n", "sum to 1"),
        ("round,version,arm,reward,propensity,probability_0,context_0_0\n1,0,0,inf,1.0,1.0,2.0\n", "finite"),
        ("round,version,arm,reward,propensity,probability_0,context_0_0\n1,0,0,1.0,1.0,1.0,\n", "finite"),
    ],
)
def test_a_spoiled_table_is_refused(text, message, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_log(path)


@pytest.mark.parametrize(
    "arguments",
    [
        {"contexts": np.ones((1, 2, 1)), "rewards": [[1.0, 2.0]]},
        {"contexts": np.ones((1, 2, 1)), "arms": [0], "rewards": [1.0]},
        {"rows": [[1.0]], "arm_count": 2, "arms": [0], "rewards": [1.0], "propensities": [0.5]},
    ],
)
def test_a_log_without_probabilities_or_contexts_is_not_written(arguments, tmp_path):
    log = DecisionLog.from_arrays(**arguments)
    with pytest.raises(InvalidLog, match="with their contexts and probabilities"):
        write_log(log, tmp_path / "log.csv")
    if "arms" in arguments and "propensities" not in arguments:
        with pytest.raises(InvalidLog, match="probabilities that arms were drawn from must be known"):
            bandit_feedback(log)


def test_probabilities_that_are_unknown_are_neither_written_nor_exported(tmp_path):
    mask = np.array([[True, True, True], [True, False, True], [True, True, True]])
    given = {"propensities": [0.5, 0.9, 0.25], "mask": mask, "rows": [[1.0], [2.0], [3.0]]}
    log = DecisionLog.from_arrays(np.ones((3, 3, 2)), [0, 2, 1], [1.0, np.nan, 0.0], **given)
    write_log(log, tmp_path / "log.csv")
    again = read_log(tmp_path / "log.csv")
    for name in NAMES:
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))
    assert np.isnan(again.probabilities).sum() == 4
    feedback = bandit_feedback(log)
    assert feedback["pi_b"] is None
    assert feedback["pscore"].tolist() == [0.5, 0.25]


def test_open_bandit_pipeline_gets_its_fields():
    log = made(3, rounds=20, width=2)
    feedback, kept = bandit_feedback(log), log.observed
    n, K = len(kept), 3
    assert 0 < n < 20
    assert list(feedback) == [
        *("n_rounds", "n_actions", "context", "action_context", "action"),
        *("position", "reward", "expected_reward", "pscore", "pi_b"),
    ]
    assert (feedback["n_rounds"], feedback["n_actions"]) == (n, K)
    assert feedback["expected_reward"] is None
    assert feedback["action"].dtype.kind == feedback["position"].dtype.kind == "i"
    assert feedback["action_context"].tolist() == np.eye(K).tolist()
    assert feedback["position"].tolist() == [0] * n
    for i, place in enumerate(kept):
        arm = log.arms[place]
        assert feedback["action"][i] == arm
        assert feedback["reward"][i] == log.rewards[place]
        assert feedback["pscore"][i] == feedback["pi_b"][i, arm, 0] == log.probabilities[place, arm] > 0
        assert feedback["context"][i].tolist() == log.rows[place].tolist()
    np.testing.assert_allclose(feedback["pi_b"].sum(axis=1), 1)


def test_without_rows_the_arms_contexts_stand_side_by_side():
    log = made(4, rounds=8, told=1.0)
    context = bandit_feedback(log)["context"]
    expected = np.nan_to_num(log.contexts[log.observed]).reshape(8, 6)
    np.testing.assert_array_equal(context, expected)


@given(log=logs)
def test_parquet_gives_back_every_bit(log, tmp_path_factory):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rarely[parquet]'")
    path = tmp_path_factory.getbasetemp() / "log.parquet"
    write_log(log, path)
    same(log, read_log(path))


@pytest.mark.parametrize(("name", "values"), [("arm", [0.0]), ("reward", ["much"])])
def test_a_parquet_column_of_another_kind_is_refused(name, values, tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'rarely[parquet]'")
    from pyarrow.parquet import write_table

    columns = {"round": [1], "version": [0], "arm": [0], "reward": [1.0], "propensity": [1.0]}
    columns |= {"probability_0": [1], "context_0_0": [2]}
    write_table(arrow.table(columns), tmp_path / "log.parquet")
    assert read_log(tmp_path / "log.parquet").rewards.tolist() == [1.0]
    write_table(arrow.table(columns | {name: values}), tmp_path / "log.parquet")
    with pytest.raises(InvalidLog, match=rf"{name} in row 0 of .*log\.parquet must be a"):
        read_log(tmp_path / "log.parquet")


def test_without_pyarrow_an_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ParquetUnavailable, match=r"pip install 'rarely\[parquet\]'"):
        write_log(made(0), tmp_path / "log.parquet")
    with pytest.raises(ParquetUnavailable):
        read_log(tmp_path / "log.parquet")
