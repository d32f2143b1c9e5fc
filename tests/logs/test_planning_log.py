import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rarely import ArmBlocks, InvalidContexts, InvalidInput, InvalidReward, RarelyError
from rarely.planning import InvalidLog, Log


def written(path, lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


ONE_ROW_A_ROUND = ["age,hour,page,minutes", "20,1,news,4.5", "30,2,deals,", "40,3,news,2", "50,4,video,NA"]
ONE_ROW_AN_ARM = ["visit,price,size,paid", "a,1,2,", "a,3,4,7.5", "b,5,6,", "b,7,8,"]


def test_one_row_a_round_has_its_reward_at_the_chosen_arm(tmp_path):
    log = Log.from_csv(written(tmp_path / "log.csv", ONE_ROW_A_ROUND), arm="page", reward="minutes")
    assert (len(log), log.arms, log.names) == (4, 3, ("age", "hour"))
    nan = np.nan
    np.testing.assert_array_equal(log.rewards, [[nan, 4.5, nan], [nan] * 3, [nan, 2.0, nan], [nan] * 3])
    np.testing.assert_array_equal(log.features, [[20, 1], [30, 2], [40, 3], [50, 4]])


def test_contexts_are_the_rows_scaled_in_the_arms_blocks(tmp_path):
    log = Log.from_csv(written(tmp_path / "log.csv", ONE_ROW_A_ROUND), arm="page", reward="minutes", arms=5)
    blocks = ArmBlocks.fit(log.features, arms=5)
    np.testing.assert_array_equal(log.contexts([2, 0]), blocks(log.features[[2, 0]]))
    assert log.dim == blocks.dim == 15


def test_one_row_an_arm_is_grouped_by_round_in_whatever_order(tmp_path):
    log = Log.from_csv(written(tmp_path / "log.csv", ONE_ROW_AN_ARM), round="visit", reward="paid")
    mixed = [ONE_ROW_AN_ARM[i] for i in (0, 1, 3, 2, 4)]
    other = Log.from_csv(written(tmp_path / "mixed.csv", mixed), round="visit", reward="paid")
    for each in (log, other):
        np.testing.assert_array_equal(each.features, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
        np.testing.assert_array_equal(each.rewards, [[np.nan, 7.5], [np.nan, np.nan]])
    assert log.contexts([0, 1]).shape == (2, 2, 3)
    assert np.all(log.contexts([0])[..., -1] == 1.0)


def test_features_may_be_named_and_names_of_arms_with_rows_are_none(tmp_path):
    path = written(tmp_path / "log.csv", ["visit,name,price,size", "a,x,1,2", "a,y,3,4"])
    assert Log.from_csv(path, round="visit", arm="name").names == ("price", "size")
    assert Log.from_csv(path, round="visit", features=["size"]).names == ("size",)


def test_arms_keep_their_names_in_the_order_of_their_numbers(tmp_path):
    lines = ["age,page,minutes", "20,10,1", "30,9,2", "40,-1,3"]
    log = Log.from_csv(written(tmp_path / "log.csv", lines), arm="page", reward="minutes", arms=4)
    assert log.arm_names == ("-1", "9", "10")
    assert log.known()[1].tolist() == [2, 1, 0]
    assert [log.arm_name(arm) for arm in range(4)] == ["-1", "9", "10", "3"]
    text = Log.from_csv(written(tmp_path / "text.csv", ONE_ROW_A_ROUND), arm="page", reward="minutes")
    assert text.arm_names == ("deals", "news", "video")
    with pytest.raises(InvalidInput, match="3 arms are named, more than the 2"):
        Log.of([[1.0]], 2, arm_names=["a", "b", "c"])


def test_columns_that_do_not_sound_like_features_are_remarked_upon_and_can_be_ignored(tmp_path):
    lines = ["age,userId,propensity,idle,page", "20,1,0.5,3,a", "30,2,0.5,4,b"]
    path = written(tmp_path / "log.csv", lines)
    log = Log.from_csv(path, arm="page")
    assert [remark.split()[1] for remark in log.remarks] == ["userId", "propensity"]
    assert "ignore it (--ignore propensity)" in log.remarks[1]
    assert Log.from_csv(path, arm="page", features=["age", "propensity"]).remarks == ()
    left = Log.from_csv(path, arm="page", ignore=["userId", "propensity"])
    assert (left.names, left.remarks) == (("age", "idle"), ())


def test_a_log_without_a_single_reward_has_none(tmp_path):
    lines = ["age,page,minutes", "20,news,", "30,deals,"]
    log = Log.from_csv(written(tmp_path / "log.csv", lines), arm="page", reward="minutes")
    assert log.rewards is None
    assert repr(log) == "<Log: 2 rounds, 2 arms, 1 features, no rewards>"


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([""], {"arms": 2}, "is empty; its first line must name the columns"),
        (["a,b"], {"arms": 2}, "a header and no rows"),
        (["a,b", "1"], {"arms": 2}, "line 2: 2 fields are expected; got 1"),
        (["a,a", "1,2"], {"arms": 2}, "names must differ; 'a'"),
        (["a,b", "1,2"], {}, "does not say how many arms"),
        (["a,b", "1,x", "2,3"], {"arms": 2}, "b has 'x' in line 2"),
        (["a,b,c", "1,x,y"], {"arms": 2}, "b has 'x' in line 2, c has 'y' in line 2"),
        (["a,b", "1,", "2,3"], {"arms": 2}, "b has '' in line 2"),
        (["a,b", "1,inf"], {"arms": 2}, "must be finite numbers"),
        (["a,b", "1,2"], {"arms": 2, "features": ["c"]}, "has no column 'c'; its columns are a, b"),
        (["a,b", "1,2"], {"arms": 2, "reward": "r"}, "has no column 'r'"),
        (["a,b", "1,2"], {"arms": 2, "reward": "b"}, "name the arm's column too"),
        (["a,b", "1,2"], {"arm": "b", "features": ["a", "b"]}, "'b' cannot be a feature and something else"),
        (["b", "1"], {"arm": "b"}, "no column left for the features"),
        (["a,b", "1,x", "1,y", "1,z"], {"arm": "b", "arms": 2}, "3 arms were chosen, more than the 2"),
        (["a,b", "1,"], {"arm": "b", "arms": 2}, "line 2: b must not be ''"),
        (["a,t", "1,null", "2,null"], {"round": "t"}, "line 2: t must not be 'null'"),
        (["a,t", "1,1", "2,1", "3,2"], {"round": "t"}, "round 1 has 2, round 2 has 1"),
        (["a,t", "1,1", "2,1"], {"round": "t", "arms": 3}, "are of 2 arms; got arms=3"),
        (["a,t", "1,1", "2,2"], {"round": "t"}, "arms must be a whole number of at least 2; got 1"),
        (["a,t", "1,1", "2,1"], {"round": "t", "arm": "name"}, "has no column 'name'"),
        (["a,b", "1,"], {"arms": 2}, "Is b the reward, unknown there? Then say reward='b' (--reward b)"),
        (["a;b", "1;2"], {"arms": 2}, "must separate its columns by commas; its first line has ';'"),
        (["a\tb", "1\t2"], {"arms": 2}, "its first line has '\\t'"),
        (["a,b", "1,2"], {"arm": "b", "reward": "b"}, "one column cannot be both arm and reward"),
        (["a,b", "1,2"], {"arms": 2, "features": "a"}, "features must be a list of columns, such as ['a']"),
        (["a,b", "1,2"], {"arms": 2, "ignore": "a"}, "ignore must be a list of columns"),
        (["a,b", "1,2"], {"arms": 2, "ignore": ["c"]}, "has no column 'c'"),
        (["a,b", "1,2"], {"arms": 2, "ignore": ["a"], "features": ["a"]}, "'a' cannot be a feature"),
    ],
)
def test_a_file_that_is_no_log_is_refused_with_a_reason(lines, options, says, tmp_path):
    with pytest.raises(RarelyError) as raised:
        Log.from_csv(written(tmp_path / "log.csv", lines), **options)
    assert says in str(raised.value)


def test_an_arm_may_be_called_none_and_the_log_says_so(tmp_path):
    log = Log.from_csv(written(tmp_path / "log.csv", ["a,b", "1,None", "2,mail"]), arm="b")
    assert log.arm_names == ("None", "mail")
    assert log.remarks == ("'None' in column b is taken for an arm; drop its rows if it means that no arm is known.",)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InvalidLog, match=r"missing\.csv cannot be read"):
        Log.from_csv(tmp_path / "missing.csv", arms=2)
    (tmp_path / "bytes.csv").write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(InvalidLog, match="not a CSV file in UTF-8"):
        Log.from_csv(tmp_path / "bytes.csv", arms=2)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"features": [1.0, 2.0], "arms": 2}, InvalidContexts, "shape"),
        ({"features": [[1.0, np.nan]], "arms": 2}, InvalidContexts, "finite"),
        ({"features": [["x"]], "arms": 2}, InvalidContexts, "numbers"),
        ({"features": [[1.0]]}, InvalidInput, "give arms"),
        ({"features": [[1.0]], "arms": 1}, InvalidInput, "at least 2"),
        ({"features": [[1.0]], "arms": 2, "chosen": [2], "rewards": [1.0]}, InvalidInput, "from 0 to 1"),
        ({"features": [[1.0]], "arms": 2, "chosen": [0], "rewards": [1.0, 2.0]}, InvalidReward, "one for each"),
        ({"features": [[1.0]], "arms": 2, "rewards": [1.0]}, InvalidReward, r"shape \(1, 2\)"),
        ({"features": [[1.0]], "arms": 2, "rewards": [[1.0, np.inf]]}, InvalidReward, "finite"),
        ({"features": [[1.0]], "arms": 2, "rewards": [["x", 1]]}, InvalidReward, "numbers"),
    ],
)
def test_arrays_that_are_no_log_are_refused_with_a_reason(arguments, error, says):
    with pytest.raises(error, match=says):
        Log.of(**arguments)


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
    log, same = Log.from_csv(path, arm="arm", reward="reward", arms=3), Log.of(rows, 3, chosen, rewards)
    np.testing.assert_array_equal(log.features, same.features)
    np.testing.assert_array_equal(log.known()[2], same.known()[2])
