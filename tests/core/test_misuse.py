"""Calls that are right in shape and wrong in meaning are refused or announced."""

import numpy as np
import pytest

import rarely
from rarely import (
    ArmBlocks,
    BatchNeuralUCB,
    ContextsWarning,
    FixedGrid,
    InvalidContexts,
    InvalidReward,
    LinUCB,
    OnDemand,
    Roster,
)
from rarely.logs import DecisionLog
from worlds import MAKERS, contexts, small

everyone = pytest.mark.parametrize("name", MAKERS)


class Table:
    """The part of a DataFrame that matters: names, and an array on demand."""

    def __init__(self, columns, values):
        self.columns, self.values = columns, np.asarray(values)
        self.shape, self.ndim = self.values.shape, self.values.ndim

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __len__(self):
        return len(self.values)


def test_columns_in_another_order_are_refused(tmp_path):
    x = contexts()
    policy = small()
    policy.select(Table(["age", "height"], x[0]))
    before = policy.fingerprint()
    for call in (policy.select, policy.score, policy.probabilities):
        with pytest.raises(InvalidContexts, match="age, height; got height, age"):
            call(Table(["height", "age"], x[1]))
    assert policy.fingerprint() == before
    policy.save(tmp_path / "p")
    again = rarely.load(tmp_path / "p")
    with pytest.raises(InvalidContexts, match="columns"):
        again.select([Table(["height", "age"], x[1]), Table(["height", "age"], x[2, :2])])
    again.select([Table(["age", "height"], x[1]), Table(["age", "height"], x[2, :2])])
    again.select(x[3])  # an array has no names


def test_a_log_with_names_tells_the_columns():
    rows = np.random.default_rng(0).normal(size=(20, 2))
    policy = LinUCB.from_log(Table(["a", "b"], rows), rows[:, 0])
    with pytest.raises(InvalidContexts, match="a, b; got b, a"):
        policy.select(Table(["b", "a"], rows[:3]))


def test_rows_of_blocks_with_columns_in_another_order_are_refused():
    rows = np.random.default_rng(0).normal(size=(20, 2))
    blocks = ArmBlocks.fit(Table(["a", "b"], rows), arms=3)
    blocks(Table(["a", "b"], rows))
    with pytest.raises(InvalidContexts, match="a, b; got b, a"):
        blocks(Table(["b", "a"], rows))
    again = ArmBlocks.from_description(blocks.describe())
    with pytest.raises(InvalidContexts, match="a, b; got b, a"):
        again(Table(["b", "a"], rows))


def test_blocks_without_their_settings_are_refused():
    """The policy would scale them, which fills the zero blocks."""
    blocks = ArmBlocks.fit(np.random.default_rng(0).normal(size=(20, 2)), arms=3)
    policy = BatchNeuralUCB(blocks.dim, FixedGrid(24, 4), hidden=8)
    for made in (blocks([1.0, 2.0]), blocks(np.ones((4, 2)))[:2]):
        with pytest.raises(InvalidContexts, match=r"\*\*blocks.settings"):
            policy.select(made)
    roster = Roster(blocks)
    roster.open("one")
    with pytest.raises(InvalidContexts, match=r"\*\*blocks.settings"):
        policy.select(*roster([1.0, 2.0]))
    assert policy.round == 0
    BatchNeuralUCB(schedule=FixedGrid(24, 4), hidden=8, **blocks.settings).select(blocks([1.0, 2.0]))
    LinUCB(blocks.dim).select(blocks([1.0, 2.0]))  # scales nothing


def test_many_rows_where_earlier_rounds_had_few_arms_are_announced_once():
    policy, users = small(), np.random.default_rng(0).normal(size=(100, 2))
    policy.select(contexts()[0])
    policy.select(contexts()[1:4])
    with pytest.warns(ContextsWarning, match=r"one round of 100 arms, and earlier rounds had 3"):
        policy.select(users)
    policy.select(users[:50])
    policy.select(contexts()[4])


def test_masks_and_lists_say_that_arms_vary():
    policy, x = small(), contexts()
    policy.select(x[0])
    policy.select(x[1], mask=[True, False, True])
    policy.select([x[2, :2], x[3]])
    policy.select(x[4])


BAD = {
    "complex": np.ones((3, 2)) * 1j,
    "masked": np.ma.masked_greater(np.arange(6.0).reshape(3, 2), 3.0),
    "text": np.array([["1", "2"], ["3", "4"]]),
    "dates": np.array([["2020-01-01", "2020-01-02"]], "M8[D]"),
    "objects": np.array([[object(), 1.0]], object),
    "text among objects": np.array([["1", 2.0], [3.0, 4.0]], object),
    "masked rows": [np.ma.masked_greater([1.0, 2.0], 1.0), np.array([3.0, 4.0])],
    "huge": [[10**400, 1.0]],
}
REFUSED = r"must (be numbers|not be masked)"


@pytest.mark.parametrize("kind", BAD)
def test_what_are_no_real_numbers_is_refused(kind):
    policy, bad = small(), BAD[kind]
    decision = policy.select(contexts()[:3])
    for call in (
        lambda: policy.select(bad),
        lambda: policy.score(bad),
        lambda: policy.select([bad, bad]),
        lambda: BatchNeuralUCB.from_log(bad, np.ones(len(bad)), schedule=FixedGrid(24, 4)),
        lambda: ArmBlocks.fit(bad, arms=2),
    ):
        with pytest.raises(InvalidContexts, match=REFUSED):
            call()
    rewards = [row[0] for row in bad] if isinstance(bad, list) else bad[:, 0]
    if kind == "masked rows":
        rewards = [np.ma.masked, 1.0]
    with pytest.raises(InvalidReward, match=REFUSED):
        policy.observe(decision, (np.ones(3) * 1j if kind == "complex" else rewards))
    assert policy.missing == 3


def test_text_is_called_text_and_a_table_of_it_is_shown_the_way():
    policy = small()
    with pytest.raises(InvalidContexts, match=r"got text among them..*FramePolicy, for tables with text"):
        policy.select([["a", "b"], ["c", "d"]])
    with pytest.raises(InvalidReward, match=r"got text among them\. Convert it to numbers first\.$"):
        policy.observe(policy.select(contexts()[0]), "yes")


def test_a_mask_is_not_masked():
    policy = small()
    with pytest.raises(InvalidContexts, match="mask must not be masked"):
        policy.select(contexts()[0], mask=np.ma.masked_array([True] * 3, mask=[True, False, False]))
    assert policy.round == 0


def test_an_array_that_masks_nothing_is_an_array():
    policy = small()
    assert policy.select(np.ma.masked_array(contexts()[0])).round == 1


def test_an_observe_without_rewards_says_so():
    policy = LinUCB(2)
    with pytest.raises(InvalidReward, match="no rewards were given"):
        policy.observe(policy.select(np.ones((3, 2))))


class Sparse:
    """What SciPy's sparse matrices have, which this package does not need."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.ndim, self.nnz = self.values.shape, self.values.ndim, np.count_nonzero(values)

    def toarray(self):
        return self.values


@pytest.mark.parametrize(
    "call",
    [
        lambda policy, matrix: policy.select(matrix),
        lambda policy, matrix: policy.score(matrix),
        lambda policy, matrix: policy.probabilities([matrix, matrix]),
        lambda policy, matrix: policy.select(np.eye(2), matrix),
        lambda policy, matrix: policy.select([[matrix, matrix], [matrix, matrix]]),
        lambda policy, matrix: policy.observe(rounds=[1], rewards=matrix),
        lambda policy, matrix: LinUCB.from_log(matrix, [1.0, 2.0]),
        lambda policy, matrix: LinUCB.from_log(np.eye(2), matrix),
        lambda policy, matrix: ArmBlocks.fit(matrix, 2),
        lambda policy, matrix: ArmBlocks.fit(np.eye(2), 2)(matrix),
        lambda policy, matrix: ArmBlocks.fit(np.eye(2), 2, layout="hybrid", features=matrix),
        lambda policy, matrix: DecisionLog.from_arrays(rows=matrix, arm_count=2),
        lambda policy, matrix: rarely.Affine.fit(matrix),
        lambda policy, matrix: rarely.Affine(matrix, np.ones(2)),
    ],
)
def test_a_sparse_matrix_is_refused_with_the_remedy(call):
    policy = LinUCB(2, OnDemand(), seed=0)
    policy.select(np.eye(2))
    with pytest.raises(rarely.InvalidInput, match=r"must be dense; got a sparse matrix. Give matrix\.toarray\(\)"):
        call(policy, Sparse(np.eye(2)))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda policy: policy.update(force=np.zeros(2)), "force must be True or False; got an array"),
        (lambda policy: policy.prepare_update(force=np.zeros(2)), "force must be True or False; got an array"),
        (lambda policy: policy.update(progress=5), "progress must be a function of a fraction and a phase"),
        (lambda policy: policy.prepare_update().run(5), "progress must be a function of a fraction and a phase"),
        (lambda policy: LinUCB.from_log(np.eye(2), [1.0, 2.0], dim=np.ones(2)), "dim must be a whole number"),
        (lambda policy: policy.save("\ud800"), r"a path must be text that a file can be called; got '\\ud800'"),
        (lambda policy: rarely.load("\ud800"), r"a path must be text that a file can be called; got '\\ud800'"),
    ],
)
def test_settings_of_another_kind_are_refused_and_nothing_changes(call, says):
    policy = LinUCB(2, OnDemand(), seed=0)
    policy.observe(policy.select(np.eye(2)), 1.0)
    before = policy.fingerprint()
    with pytest.raises(rarely.InvalidInput, match=says):
        call(policy)
    assert policy.fingerprint() == before


class Index:
    """What an index of pandas says about itself."""

    def __init__(self, labels):
        self.labels = np.asarray(labels)
        self.dtype, self.is_monotonic_increasing = self.labels.dtype, bool((self.labels[1:] >= self.labels[:-1]).all())

    def __iter__(self):
        return iter(self.labels)

    def equals(self, other):
        return np.array_equal(self.labels, other.labels)


class Series(Table):
    def __init__(self, values, labels):
        super().__init__(None, values)
        self.index = Index(labels)


@pytest.mark.parametrize("labels", [[2, 1, 0], [5, 9, 7], [0, 1, 0]])
def test_rewards_whose_labels_and_positions_disagree_are_refused(labels):
    policy = LinUCB(2, OnDemand(), seed=0)
    decision = policy.select(np.ones((3, 2, 2)))
    before = policy.fingerprint()
    with pytest.raises(InvalidReward, match=r"index of this Series does not rise. Give rewards\.sort_index\(\)"):
        policy.observe(decision, Series([1.0, 2.0, 3.0], labels))
    with pytest.raises(InvalidReward, match="does not rise"):
        LinUCB.from_log(np.eye(3), Series([1.0, 2.0, 3.0], labels))
    assert policy.fingerprint() == before


@pytest.mark.parametrize("labels", [[0, 1, 2], [5, 7, 9], ["c", "a", "b"]])
def test_rewards_of_other_labels_count_by_position(labels):
    policy = LinUCB(2, OnDemand(), seed=0)
    policy.observe(policy.select(np.ones((3, 2, 2))), Series([1.0, 2.0, 3.0], labels))
    assert policy.history.rewards.tolist() == [1.0, 2.0, 3.0]


def test_a_log_and_its_rewards_have_one_index():
    frame = Table(["age", "height"], np.eye(3)[:, :2])
    frame.index = Index([2, 0, 1])
    policy = LinUCB.from_log(frame, Series([1.0, 2.0, 3.0], [2, 0, 1]))
    assert policy.history.rewards.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(InvalidReward, match=r"two different indexes. Align them first: rewards\.loc\["):
        LinUCB.from_log(frame, Series([1.0, 2.0, 3.0], [0, 1, 2]))
