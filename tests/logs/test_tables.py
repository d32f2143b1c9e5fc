import csv
import datetime
import importlib
import importlib.util
import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rarely import (
    ArmBlocks,
    ContextsWarning,
    FrameEncoder,
    InvalidContexts,
    InvalidInput,
    InvalidReward,
    RarelyError,
    Uniform,
)
from rarely.logs import DecisionLog, InvalidLog
from rarely.offpolicy import ips
from rarely.planning.simulate import LoggedRounds


def written(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


ONE_ROW_A_ROUND = ["age,hour,page,minutes", "20,1,news,4.5", "30,2,deals,", "40,3,news,2", "50,4,video,NA"]
ONE_ROW_AN_ARM = ["visit,price,size,paid", "a,1,2,", "a,3,4,7.5", "b,5,6,", "b,7,8,"]


def all_rewards(log):
    """(n, K), NaN where unknown."""
    places, arms, rewards = log.known_rewards()
    table = np.full((len(log), log.arm_count), np.nan)
    table[places, arms] = rewards
    return table


def test_one_row_a_round_has_its_reward_at_the_chosen_arm(tmp_path):
    log = DecisionLog.from_frame(written(tmp_path / "log.csv", ONE_ROW_A_ROUND), arm="page", reward="minutes")
    assert (len(log), log.arm_count, log.names) == (4, 3, ("age", "hour"))
    assert log.arms.tolist() == [1, 0, 1, 2]
    nan = np.nan
    np.testing.assert_array_equal(all_rewards(log), [[nan, 4.5, nan], [nan] * 3, [nan, 2.0, nan], [nan] * 3])
    np.testing.assert_array_equal(log.rows, [[20, 1], [30, 2], [40, 3], [50, 4]])
    assert np.isnan(log.propensities).all()
    assert np.isnan(log.probabilities).all()
    assert log.present.all()


def test_contexts_are_the_rows_scaled_in_the_arms_blocks(tmp_path):
    log = DecisionLog.from_frame(
        written(tmp_path / "log.csv", ONE_ROW_A_ROUND), arm="page", reward="minutes", arm_count=5
    )
    played, blocks = LoggedRounds(log), ArmBlocks.fit(log.rows, arms=5)
    np.testing.assert_array_equal(played.contexts([2, 0]), blocks(log.rows[[2, 0]]))
    assert played.dim == blocks.dim == 15


def test_one_row_an_arm_is_grouped_by_round_in_whatever_order(tmp_path):
    log = DecisionLog.from_frame(written(tmp_path / "log.csv", ONE_ROW_AN_ARM), round="visit", reward="paid")
    mixed = [ONE_ROW_AN_ARM[i] for i in (0, 1, 3, 2, 4)]
    other = DecisionLog.from_frame(written(tmp_path / "mixed.csv", mixed), round="visit", reward="paid")
    for each in (log, other):
        np.testing.assert_array_equal(each.contexts, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
        np.testing.assert_array_equal(all_rewards(each), [[np.nan, 7.5], [np.nan, np.nan]])
        assert each.arms.tolist() == [1, -1]
    played = LoggedRounds(log)
    assert played.contexts([0, 1]).shape == (2, 2, 3)
    assert np.all(played.contexts([0])[..., -1] == 1.0)


def test_rewards_of_several_arms_of_a_round_are_all_known():
    table = [[1.0, 2.0], [np.nan, np.nan], [np.nan, 3.0]]
    log = DecisionLog.from_arrays(np.ones((3, 2, 1)), rewards=table)
    np.testing.assert_array_equal(all_rewards(log), table)
    assert (log.missing, log.arms.tolist(), len(log.observed)) == (1, [-1] * 3, 0)


def test_features_may_be_named_and_names_of_arms_with_rows_are_none(tmp_path):
    path = written(tmp_path / "log.csv", ["visit,name,price,size", "a,x,1,2", "a,y,3,4"])
    assert DecisionLog.from_frame(path, round="visit", arm="name").names == ("price", "size")
    assert DecisionLog.from_frame(path, round="visit", context=["size"]).names == ("size",)


def test_arms_keep_their_names_in_the_order_of_their_numbers(tmp_path):
    lines = ["age,page,minutes", "20,10,1", "30,9,2", "40,-1,3"]
    log = DecisionLog.from_frame(written(tmp_path / "log.csv", lines), arm="page", reward="minutes", arm_count=4)
    assert log.arm_names == ("-1", "9", "10")
    assert log.known_rewards()[1].tolist() == [2, 1, 0]
    assert [log.arm_name(arm) for arm in range(4)] == ["-1", "9", "10", "3"]
    text = DecisionLog.from_frame(written(tmp_path / "text.csv", ONE_ROW_A_ROUND), arm="page", reward="minutes")
    assert text.arm_names == ("deals", "news", "video")
    with pytest.raises(InvalidInput, match="3 arms are named, more than the 2"):
        DecisionLog.from_arrays(rows=[[1.0]], arm_count=2, arm_names=["a", "b", "c"])


def test_columns_that_do_not_sound_like_features_are_remarked_upon_and_can_be_ignored(tmp_path):
    lines = ["age,userId,propensity,idle,page", "20,1,0.5,3,a", "30,2,0.5,4,b"]
    path = written(tmp_path / "log.csv", lines)
    with pytest.warns(ContextsWarning, match="Column (userId|propensity)"):
        log = DecisionLog.from_frame(path, arm="page")
    assert [str(remark).split()[1] for remark in log.remarks] == ["userId", "propensity"]
    assert "ignore it (--ignore propensity)" in str(log.remarks[1])
    assert DecisionLog.from_frame(path, arm="page", context=["age", "propensity"]).remarks == ()
    left = DecisionLog.from_frame(path, arm="page", ignore=["userId", "propensity"])
    assert (left.names, left.remarks) == (("age", "idle"), ())


def test_a_log_without_a_single_reward_has_none(tmp_path):
    lines = ["age,page,minutes", "20,news,", "30,deals,"]
    log = DecisionLog.from_frame(written(tmp_path / "log.csv", lines), arm="page", reward="minutes")
    assert len(log.known_rewards()[2]) == 0
    assert repr(log) == "<DecisionLog: 2 rounds, 2 rewards missing>"


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([""], {"arm_count": 2}, "is empty; its first line must name the columns"),
        (["a,b"], {"arm_count": 2}, "a header and no rows"),
        (["a,b", "1"], {"arm_count": 2}, "line 2: 2 fields are expected; got 1"),
        (["a,a", "1,2"], {"arm_count": 2}, "must have different names; 'a'"),
        (["a,b", "1,2"], {}, "does not say how many arms"),
        (["a,b", "1,x", "2,3"], {"arm_count": 2}, "b has 'x' in line 2"),
        (["a,b,c", "1,x,y"], {"arm_count": 2}, "b has 'x' in line 2, c has 'y' in line 2"),
        (["a,b", "1,", "2,3"], {"arm_count": 2}, "b has '' in line 2"),
        (["a,b", "1,inf"], {"arm_count": 2}, "must be finite numbers"),
        (["a,b", "1,2"], {"arm_count": 2, "context": ["c"]}, "has no column 'c'; its columns are a, b"),
        (["a,b", "1,2"], {"arm_count": 2, "reward": "r"}, "has no column 'r'"),
        (["a,b", "1,2"], {"arm_count": 2, "reward": "b"}, "name the arm's column too"),
        (["a,b", "1,2"], {"arm": "b", "context": ["a", "b"]}, "'b' cannot be a context column and something else"),
        (["b", "1"], {"arm": "b"}, "no column left for the context"),
        (["a,b", "1,x", "1,y", "1,z"], {"arm": "b", "arm_count": 2}, "3 arms were chosen, more than the 2"),
        (["a,b", "1,"], {"arm": "b", "arm_count": 2}, "line 2: b must not be ''"),
        (["a,t", "1,null", "2,null"], {"round": "t"}, "lines 2, 3: t must not be 'null'"),
        (["a,t", "1,1", "2,1", "3,2"], {"round": "t"}, "round 1 has 2, round 2 has 1"),
        (["a,t", "1,1", "2,1"], {"round": "t", "arm_count": 3}, "the rounds have 2 arms; got arm_count=3"),
        (["a,t", "1,1", "2,2"], {"round": "t"}, "must name two arms at least"),
        (["a,t", "1,1", "2,1"], {"round": "t", "arm": "name"}, "has no column 'name'"),
        (["a,b", "1,"], {"arm_count": 2}, "Is b the reward, unknown there? Then say reward='b' (--reward b)"),
        (["a|b", "1|2"], {"arm_count": 2}, "must separate its columns by commas, semicolons or tabs"),
        (["a,b", "1,2"], {"arm": "b", "reward": "b"}, "one column cannot be both arm and reward"),
        (["a,b", "1,2"], {"arm_count": 2, "context": "a"}, "context must be a list of columns, such as ['a']"),
        (["a,b", "1,2"], {"arm_count": 2, "ignore": "a"}, "ignore must be a list of columns"),
        (["a,b", "1,2"], {"arm_count": 2, "ignore": ["c"]}, "has no column 'c'"),
        (["a,b", "1,2"], {"arm_count": 2, "ignore": ["a"], "context": ["a"]}, "'a' cannot be a context column"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_a_reason(lines, options, says, tmp_path):
    with pytest.raises(RarelyError) as raised:
        DecisionLog.from_frame(written(tmp_path / "log.csv", lines), **options)
    assert says in str(raised.value)


def test_an_arm_may_be_called_none_and_the_log_says_so(tmp_path):
    with pytest.warns(ContextsWarning, match="no arm is known"):
        log = DecisionLog.from_frame(written(tmp_path / "log.csv", ["a,b", "1,None", "2,mail"]), arm="b")
    assert log.arm_names == ("None", "mail")
    assert tuple(map(str, log.remarks)) == (
        "'None' in column b is taken for an arm; drop its rows if it means that no arm is known: line 2.",
    )


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InvalidLog, match=r"missing\.csv cannot be read"):
        DecisionLog.from_frame(tmp_path / "missing.csv", arm_count=2)
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(InvalidLog, match="not a text file in UTF-8"):
        DecisionLog.from_frame(tmp_path / "bytes.csv", arm_count=2)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"rows": [1.0, 2.0]}, InvalidContexts, "shape"),
        ({"rows": [[1.0, np.nan]]}, InvalidContexts, "finite"),
        ({"rows": [["x"]]}, InvalidContexts, "numbers"),
        ({}, InvalidLog, "a log needs contexts"),
        ({"rows": [[1.0]], "arm_count": None}, InvalidInput, "give arm_count"),
        ({"rows": [[1.0]], "arm_count": 0}, InvalidInput, "at least 1"),
        ({"rows": [[1.0]], "mask": [[True, True]]}, InvalidInput, "a mask needs contexts"),
        ({"contexts": [[[1.0]]]}, InvalidInput, "the contexts are of 1 arms; got arm_count=2"),
        ({"rows": [[1.0]], "arms": [2], "rewards": [1.0]}, InvalidLog, r"arms must be 0 … 1; round 1 has 2"),
        ({"rows": [[1.0]], "arms": [0], "rewards": [1.0, 2.0]}, InvalidReward, "one number a round"),
        ({"rows": [[1.0]], "rewards": [1.0]}, InvalidReward, r"shape \(1, 2\)"),
        ({"rows": [[1.0]], "rewards": [[1.0, np.inf]]}, InvalidReward, "finite"),
        ({"rows": [[1.0]], "rewards": [["x", 1]]}, InvalidReward, "numbers"),
        ({"rows": [[1.0]], "propensities": [0.5]}, InvalidLog, "give arms"),
        (
            {"contexts": np.ones((1, 2, 1)), "arms": [1], "mask": [[True, False]]},
            InvalidLog,
            "arm 1 of round 1 is masked",
        ),
    ],
)
def test_arrays_that_are_no_log_are_refused_with_a_reason(arguments, error, says):
    with pytest.raises(error, match=says):
        DecisionLog.from_arrays(**({"arm_count": 2} | arguments))


def test_an_estimate_needs_probabilities_and_a_column_can_give_them(tmp_path):
    lines = ["age,page,minutes,p", "20,news,4,0.5", "30,deals,,0.25", "40,news,2,0.5"]
    path = written(tmp_path / "log.csv", lines)
    without = DecisionLog.from_frame(path, arm="page", reward="minutes", ignore=["p"])
    with pytest.raises(InvalidLog, match="2 of 2 rounds with rewards have none, the first is round 1"):
        ips(without, [1, 1, 1])
    log = DecisionLog.from_frame(path, arm="page", reward="minutes", probability="p")
    assert (log.names, log.propensities.tolist()) == (("age",), [0.5, 0.25, 0.5])
    np.testing.assert_array_equal(log.probabilities, [[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]])
    assert ips(log, [1, 1, 1]).value == 6.0
    with pytest.raises(InvalidLog, match="name the arm's column too"):
        DecisionLog.from_frame(path, probability="p", arm_count=2, ignore=["page", "minutes"])
    with pytest.raises(InvalidLog, match="needs one row a round"):
        DecisionLog.from_frame(written(path, ["t,x,p", "1,1,0.5", "1,2,0.5"]), round="t", probability="p")
    with pytest.raises(InvalidLog, match=r"log\.csv, line 3: p, the probability .* above 0 and at most 1; got 0\."):
        DecisionLog.from_frame(written(path, ["x,a,p", "1,1,0.5", "1,2,0"]), arm="a", probability="p")
    with pytest.raises(InvalidLog, match=r"the frame, row 1: p, .* got 1\.3\."):
        DecisionLog.from_frame({"x": [1, 2], "a": [1, 2], "p": [0.5, 1.3]}, arm="a", probability="p")


def pages(rounds=400, seed=0):
    """Visits with the pages that were shown, drawn with 0.6, 0.3 and 0.1, and the probabilities in a column."""
    rng, chances = np.random.default_rng(seed), np.array([0.6, 0.3, 0.1])
    arms = rng.choice(3, rounds, p=chances)
    names = np.array(["deals", "news", "video"])[arms].tolist()
    return {"age": rng.random(rounds), "share": rng.beta(2, 2, rounds), "chance": chances[arms], "page": names}


def test_an_arm_in_another_spelling_is_said_to_be_one_more():
    frame = pages() | {"chance": np.zeros(400)}
    assert DecisionLog.from_frame(frame, arm="page").remarks == ()
    frame["page"][17] = "News "
    said = "'news' and 'News ' in column page are two arms"
    with pytest.warns(ContextsWarning, match=said) as warned:
        log = DecisionLog.from_frame(frame, arm="page")
    assert warned[0].filename == __file__
    assert (log.arm_names, len(log.remarks)) == (("News ", "deals", "news", "video"), 1)
    assert log.remarks[0].rows == (17,)


def test_a_log_of_rows_alone_takes_no_further_decisions():
    log = DecisionLog.from_arrays(rows=[[1.0]], arm_count=2)
    contexts = np.ones((1, 2, 1))
    with pytest.raises(InvalidLog, match="takes no decision"):
        log.record(contexts, Uniform(1).select(contexts))
    with pytest.raises(InvalidLog, match="the log has no arm for round 1"):
        log.observe(rounds=[1], rewards=[1.0])


def frames():
    """The same columns as every kind of frame that is installed."""
    columns = {"age": [20, 30, 40], "page": ["news", "deals", "news"], "minutes": [4.5, None, 2.0]}
    yield pytest.param(columns, id="dict")
    for library, make in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")):
        if importlib.util.find_spec(library):
            yield pytest.param(getattr(importlib.import_module(library), make)(columns), id=library)


@pytest.mark.parametrize("frame", list(frames()))
def test_a_frame_is_the_log_of_its_columns(frame):
    log = DecisionLog.from_frame(frame, arm="page", reward="minutes")
    assert (log.names, log.arm_names) == (("age",), ("deals", "news"))
    assert (log.rows.tolist(), log.arms.tolist()) == ([[20.0], [30.0], [40.0]], [1, 0, 1])
    np.testing.assert_array_equal(log.rewards, [4.5, np.nan, 2.0])


class Series:
    """A column as pandas and polars have it, of values and of gaps that are no float."""

    NA = type("NAType", (), {})()

    def __init__(self, *values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def to_list(self):
        return list(self.values)


class Frame(dict):
    """A frame as pandas and polars have it."""

    columns = property(list)


def test_gaps_of_frames_are_gaps_and_whole_numbers_among_floats_stay_whole():
    frame = Frame(x=Series(1, 2, 3), arm=Series(1.0, 10.0, 2.0), paid=Series(Series.NA, np.nan, 5))
    log = DecisionLog.from_frame(frame, arm="arm", reward="paid")
    assert log.arm_names == ("1", "2", "10")
    assert log.missing == 2


@pytest.mark.parametrize(
    ("frame", "options", "says"),
    [
        ("log.csv", {}, "log.csv cannot be read"),
        (3, {}, "must be a frame of pandas, polars or pyarrow"),
        ([[1.0]], {}, r"got \[\[1.0\]\]"),
        ({"x": [1, None], "a": [0, 1]}, {"arm": "a"}, "x has None in row 1"),
        ({"x": [1, "b"], "a": [0, 1]}, {"arm": "a"}, "x has 'b' in row 1"),
        ({"x": [1, 2], "a": [0, None]}, {"arm": "a"}, "row 1: a must not be None"),
        ({"x": [1, 2], "a": [0]}, {"arm": "a"}, "equally many rows; x has 2, a has 1"),
        ({"x": [], "a": []}, {"arm": "a"}, "no rows"),
        ({"x": 1}, {}, "must have columns: lists or arrays, one value a row; got one row"),
        ({"x": np.float64(1)}, {}, "must have columns: lists or arrays"),
        ({"x": "ab"}, {}, "must have columns: lists or arrays"),
    ],
)
def test_a_frame_that_is_no_log_is_refused_with_the_row(frame, options, says):
    with pytest.raises(InvalidLog, match=says):
        DecisionLog.from_frame(frame, **options)


@pytest.mark.parametrize(
    ("frame", "options", "says"),
    [
        ("\ud800", {}, "a path must be text"),
        ("a\0b", {}, "must not contain the character 0"),
        ({"x": [1, 2], "a": [0, 1]}, {"arm": np.zeros(2)}, "arm must be the name of a column; got an array"),
        ({"x": [1, 2], "a": [0, 1]}, {"arm": "a", "context": 5}, "context must be a list of columns; got 5"),
        ({"x": [1, 2], "a": [0, 1]}, {"arm": "a", "ignore": None}, "ignore must be a list of columns; got None"),
        ({"x": [1, 2], "a": [0, 1]}, {"arm": "a", "arm_count": "3"}, "arm_count must be a whole number"),
        ({"x": [1, 2], "a": [0, 0]}, {"round": "a", "arm_count": np.ones(2)}, "arm_count must be a whole number"),
    ],
)
def test_options_of_another_kind_are_refused(frame, options, says):
    with pytest.raises(InvalidInput, match=says):
        DecisionLog.from_frame(frame, **options)


finite = st.floats(-1e6, 1e6)


@given(
    rows=arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 3)), elements=finite),
    seed=st.integers(0, 99),
)
def test_what_is_written_is_read(rows, seed, tmp_path_factory):
    generator = np.random.default_rng(seed)
    chosen, rewards = generator.integers(3, size=len(rows)), generator.normal(size=len(rows))
    rewards[generator.random(len(rows)) < 0.3] = np.nan
    path = tmp_path_factory.mktemp("log") / "log.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{i}" for i in range(rows.shape[1])), "arm", "reward"])
        for row, arm, reward in zip(rows.tolist(), chosen.tolist(), rewards.tolist(), strict=True):
            writer.writerow([*row, "abc"[arm], "" if reward != reward else reward])
    log = DecisionLog.from_frame(path, arm="arm", reward="reward", arm_count=3)
    same = DecisionLog.from_arrays(None, chosen, rewards, rows=rows, arm_count=3)
    np.testing.assert_array_equal(log.rows, same.rows)
    np.testing.assert_array_equal(log.known_rewards()[2], same.known_rewards()[2])


def visits(**changes):
    return {
        "visit": ["a", "b", "c", "d"],
        "when": ["2024-01-01", "2024-01-02T10:00", "2024-01-03", "2024-01-04"],
        "age": [20, 30, 40, 50],
        "page": ["news", "deals", "news", "deals"],
        "paid": [1.0, 0.0, None, 2.0],
    } | changes


NAMED = {"arm": "page", "reward": "paid", "id": "visit", "time": "when"}


def test_rows_out_of_order_are_sorted_and_repeated_ones_dropped_on_record():
    frame = {name: [values[i] for i in (2, 0, 1, 0, 3)] for name, values in visits().items()}
    with pytest.warns(ContextsWarning) as warned:
        log = DecisionLog.from_frame(frame, **NAMED)
    plain = DecisionLog.from_frame(visits(), **NAMED)
    np.testing.assert_array_equal(log.rows, plain.rows)
    np.testing.assert_array_equal(log.rewards, plain.rewards)
    assert [(remark.kind, remark.rows) for remark in log.remarks] == [
        ("duplicate", (3,)),
        ("order", (1,)),
        ("gap", (0,)),
    ]
    assert [str(each.message) for each in warned] == [
        "1 rows repeat an earlier one with the same visit and are dropped: row 3.",
        "Rows are put in the order of when; 1 had an earlier one than the row before: row 1.",
    ]
    assert [(remark.kind, remark.rows) for remark in plain.remarks] == [("gap", (2,))]


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"visit": ["a", "b", "a", "a"]}, {}, "other values: rows 2, 3; the first has that of row 0"),
        ({"visit": ["a", None, "c", ""]}, {}, "rows 1, 3: visit must not be None"),
        ({"when": ["2024-01-01", "soon", "", "2024-01-04"]}, {}, "rows 1, 2: when must not be 'soon'"),
        ({"age": [20, "x", None, "y"]}, {}, "age has 'x' in rows 1, 2, 3"),
        ({}, {"time": "then"}, "has no column 'then'"),
        ({"page": ["a", "a", "b", "b"]}, {"round": "page", "arm": None}, "the column page is the id"),
    ],
)
def test_gaps_and_conflicts_are_refused_with_their_rows(changes, options, says):
    with pytest.raises(InvalidLog, match=says):
        DecisionLog.from_frame(visits(**changes), **(NAMED | options))


def test_times_may_be_numbers_dates_or_moments():
    day = datetime.date(2024, 1, 1)
    for times in ([3, 1.5, 2, 9], [day.replace(day=i) for i in (3, 1, 2, 9)], ["3", "1", "2", "9"]):
        with pytest.warns(ContextsWarning, match="order of when"):
            log = DecisionLog.from_frame(visits(when=times), **NAMED)
        assert log.rows[:, 0].tolist() == [30, 40, 20, 50]


NANOSECONDS = np.int64(1_700_000_000_000_000_000) + np.array([0, 3, 1, 2])
MOMENTS = {
    "whole numbers": NANOSECONDS,
    "text": [str(time) for time in NANOSECONDS],
    "decimals": [f"1700000000.{time % 10**9:09}" for time in NANOSECONDS.tolist()],
    "dates of NumPy": NANOSECONDS.astype("M8[ns]"),
    "ISO 8601": [f"{time}Z" for time in NANOSECONDS.astype("M8[ns]")],
}


@pytest.mark.parametrize("times", MOMENTS.values(), ids=MOMENTS)
def test_rows_a_nanosecond_apart_are_put_in_order(times):
    with pytest.warns(ContextsWarning, match="order of when; 1 had an earlier one"):
        log = DecisionLog.from_frame(visits(when=times), **NAMED)
    assert log.rows[:, 0].tolist() == [20, 40, 50, 30]


def test_rows_of_a_frame_in_a_time_zone_are_put_in_order():
    pandas = pytest.importorskip("pandas")
    times = pandas.to_datetime(NANOSECONDS).tz_localize("Asia/Tokyo")
    with pytest.warns(ContextsWarning, match="order of when"):
        log = DecisionLog.from_frame(pandas.DataFrame(visits(when=times)), **NAMED)
    assert log.rows[:, 0].tolist() == [20, 40, 50, 30]


def test_repeated_ids_a_nanosecond_apart_are_no_repetition():
    times = NANOSECONDS.astype("M8[ns]")
    with pytest.raises(InvalidLog, match="one visit must be one round"):
        DecisionLog.from_frame(visits(when=times, visit=["a", "a", "c", "d"], age=[1] * 4, page=["x"] * 4), **NAMED)


@given(st.lists(st.integers(0, 2**64) | st.floats(0, 2.0**64), min_size=2, max_size=8))
def test_times_are_ordered_as_exact_numbers_are(times):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContextsWarning)
        table = [{"x": place, "t": time, "a": "uv"[place % 2]} for place, time in enumerate(times)]
        log = DecisionLog.from_frame(table, arm="a", time="t")
    assert log.rows[:, 0].tolist() == sorted(range(len(times)), key=times.__getitem__)


def test_arms_beyond_the_whole_numbers_of_floats_stay_apart(tmp_path):
    arms, context = [2**53 + 1, 2**53, 2**53 + 1, 2**53], {"x": [1.0, 2.0, 3.0, 4.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = DecisionLog.from_frame(context | {"arm": arms}, arm="arm")
    assert log.arm_names == (str(2**53), str(2**53 + 1))
    assert log.arms.tolist() == [1, 0, 1, 0]
    encoder = FrameEncoder.fit({"shop": arms}, kinds={"shop": "category"})
    path = written(tmp_path / "log.csv", ["shop,arm", *(f"{shop},{'uv'[i % 2]}" for i, shop in enumerate(arms))])
    assert np.array_equal(DecisionLog.from_frame(path, arm="arm", encoder=encoder).rows, encoder({"shop": arms}))


def test_digits_that_underscores_separate_are_no_number(tmp_path):
    with pytest.raises(InvalidLog, match="x has '1_000' in line 2"):
        DecisionLog.from_frame(written(tmp_path / "log.csv", ["x,a", "1_000,u", "10,v"]), arm="a")


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json"])
def test_a_list_of_dicts_and_json_lines_are_tables(ending, tmp_path):
    records = [dict(zip(visits(), row, strict=True)) for row in zip(*visits().values(), strict=True)]
    del records[2]["paid"]
    path = tmp_path / f"log.{ending}"
    path.write_text("\n\n".join(map(json.dumps, records)), encoding="utf-8")
    for source in (records, path):
        log = DecisionLog.from_frame(source, **NAMED)
        np.testing.assert_array_equal(log.rewards, [1, 0, np.nan, 2])
    assert log.remarks[0].rows == (5,)  # every second line of the file is blank
    path.write_text('{"a": 1}\n[1]\n', encoding="utf-8")
    with pytest.raises(InvalidLog, match="line 2: one JSON object is expected"):
        DecisionLog.from_frame(path, arm="a")


class OneHot:
    """An encoder of a column of text, as an adapter of another library would be."""

    names = ("city=Oslo", "city=Rome")

    def transform(self, frame):
        return [[city == "Oslo", city == "Rome"] for city in frame["city"]]


@pytest.mark.filterwarnings("ignore::rarely.ContextsWarning")
def test_an_encoder_makes_the_context_of_text(tmp_path):
    frame = visits(city=["Rome", "Oslo", "Rome", "Rome"], when=[2, 1, 3, 4])
    with pytest.raises(InvalidLog, match=r"city has 'Rome' in rows 0, 1, 2, 3.*encoder='auto'"):
        DecisionLog.from_frame(frame, **NAMED)
    rows = [",".join("" if cell is None else str(cell) for cell in row) for row in zip(*frame.values(), strict=True)]
    path = written(tmp_path / "log.csv", [",".join(frame), *rows])
    for source in (frame, Frame(frame), path):
        assert "city=Oslo" in DecisionLog.from_frame(source, encoder="auto", **NAMED).names
        fitted = FrameEncoder.fit({"city": frame["city"]})
        assert DecisionLog.from_frame(source, encoder=fitted, **NAMED).names == fitted.names
        log = DecisionLog.from_frame(source, encoder=OneHot(), **NAMED)
        assert (log.names, log.rows.tolist()) == (OneHot.names, [[1, 0], [0, 1], [0, 1], [0, 1]])
    with pytest.raises(InvalidInput, match="context must be None"):
        DecisionLog.from_frame(frame, encoder=OneHot(), context=["city"], **NAMED)
    with pytest.raises(InvalidLog, match="has no column 'x'"):
        DecisionLog.from_frame(frame, encoder=OneHot(), arm="x")
    OneHot.transform = lambda self, frame: [[1.0]]
    with pytest.raises(InvalidLog, match="a row of numbers for each of 4"):
        DecisionLog.from_frame(frame, encoder=OneHot(), **NAMED)


def test_semicolons_tabs_and_decimal_commas_are_read(tmp_path):
    wanted = written(tmp_path / "a.csv", ["age,offer,paid", "20.5,tea,1", "30,rum,0"])
    plain = DecisionLog.from_frame(wanted, arm="offer", reward="paid")
    for name, lines in (
        ("b.csv", ["age;offer;paid", "20,5;tea;1", "30;rum;0"]),
        ("c.csv", ["age\toffer\tpaid", "20.5\ttea\t1", "30\trum\t0"]),
    ):
        log = DecisionLog.from_frame(written(tmp_path / name, lines), arm="offer", reward="paid")
        assert (log.rows.tolist(), log.arm_names) == (plain.rows.tolist(), plain.arm_names)


def test_columns_of_a_file_that_are_dates_are_coded_as_dates(tmp_path):
    lines = ["day,seen,code,arm,reward"]
    lines += [f"2031-05-{i + 1:02d},2031-05-01 1{i}:30,2031-13-0{i},{i % 2},{i}" for i in range(9)]
    lines += [",,,0,1"]
    names = DecisionLog.from_frame(
        written(tmp_path / "log.csv", lines), encoder="auto", arm="arm", reward="reward"
    ).names
    assert {"day (days)", "day (missing)", "seen (days)"} <= {*names}
    assert not any(name.startswith("code (days") for name in names)  # no calendar has a month 13


def test_a_file_without_rows_is_refused_by_its_name(tmp_path):
    for encoder in (None, "auto"):
        with pytest.raises(InvalidLog, match=r"log\.csv has a header and no rows"):
            DecisionLog.from_frame(
                written(tmp_path / "log.csv", ["age,arm,reward"]), encoder=encoder, arm="arm", reward="reward"
            )


def test_a_log_of_one_arm_or_of_rewards_in_words_says_what_to_do(tmp_path):
    for rows, said in [
        (("a,1,2", "a,0,3"), r"must name two arms at least.*--arms K"),
        (("a,yes,2", "b,no,3"), "1 for yes"),
    ]:
        path = written(tmp_path / "log.csv", ["arm,reward,age", *rows])
        with pytest.raises(InvalidLog, match=said):
            DecisionLog.from_frame(path, arm="arm", reward="reward")
