"""Sparse contexts give the decisions, bonuses and estimates of the same contexts written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rarely
from rarely import (
    Affine,
    BatchNeuralUCB,
    Discount,
    InvalidContexts,
    InvalidInput,
    LinTS,
    LinUCB,
    NeuralLinear,
    NeuralTS,
    OnDemand,
    Preset,
    SparseRows,
    Training,
    Window,
)
from rarely._core.model.sparse_features import sparse_products

D, W, K = 30, 4, 5
ROWS = SparseRows.of(D, W)
DENSE = {"dim": D, "context_scale": Affine(np.zeros(D), np.full(D, W**0.5))}


def contexts(rng):
    """K contexts, written out and as dicts; column 0 is among them, which also fills up what is packed."""
    written = np.zeros((K, D))
    for row in written:
        row[rng.choice(D, rng.integers(1, W + 1), replace=False)] = rng.normal()
    written[0, 0] = 1.0 if np.count_nonzero(written[0]) < W else written[0, 0]
    return written, [{int(c): row[c] for c in np.flatnonzero(row)} for row in written]


POLICIES = {
    "LinUCB": (LinUCB, {}),
    "LinTS": (LinTS, {}),
    "forgetting": (LinUCB, {"forgetting": Discount(0.9)}),
    "default": (BatchNeuralUCB, {"hidden": 8}),
    "NeuralTS": (NeuralTS, {"hidden": 8}),
    "skip": (BatchNeuralUCB, {"hidden": 8, "training": Training(steps=5, skip=1.0)}),
}


@pytest.mark.parametrize("covariance", ["dual", "diagonal"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_sparse_policy_decides_as_a_dense_one(name, covariance, tmp_path):
    kind, given = POLICIES[name]
    given = given | {"schedule": OnDemand(), "seed": 0, "covariance": covariance}
    sparse, dense, rng = kind(**ROWS.settings, **given), kind(**DENSE, **given), np.random.default_rng(1)
    for t in range(24):
        written, dicts = contexts(rng)
        mine, theirs = sparse.select(ROWS.pack(dicts)), dense.select(written)
        assert mine.arm == theirs.arm
        assert np.allclose(mine.means, theirs.means, rtol=1e-5, atol=1e-6)
        assert np.allclose(mine.bonuses, theirs.bonuses, rtol=1e-5, atol=1e-6)
        reward = float(written[mine.arm].sum() > 0)
        sparse.observe(mine, reward)
        dense.observe(theirs, reward)
        if t % 8 == 7:
            assert sparse.update().accepted == dense.update().accepted
    assert sparse.log_det == pytest.approx(dense.log_det)
    block = [contexts(rng) for _ in range(6)]
    many = sparse.select(np.stack([ROWS.pack(dicts) for _, dicts in block]))
    assert np.array_equal(many.arm, dense.select(np.stack([written for written, _ in block])).arm)
    sparse.save(tmp_path / "policy.rarely")
    assert rarely.load(tmp_path / "policy.rarely").fingerprint() == sparse.fingerprint()


def test_an_update_before_any_reward_can_be_forced():
    policy, row = (
        BatchNeuralUCB(schedule=OnDemand(), hidden=8, seed=0, **ROWS.settings),
        ROWS.pack([{3: 1.0}, {4: 2.0}]),
    )
    before = policy.score(row).means
    assert policy.update(force=True).accepted
    assert np.array_equal(policy.score(row).means, before)


def test_the_estimate_is_the_ridge_estimate_to_rounding():
    rng, policy = np.random.default_rng(2), LinUCB(schedule=OnDemand(), **ROWS.settings)
    for _ in range(40):
        policy.observe(policy.select(ROWS.pack(contexts(rng)[1])), float(rng.normal()))
    policy.update()
    x, r = ROWS(policy.history.contexts), policy.history.rewards
    assert np.allclose(policy.coefficients, np.linalg.solve(np.eye(D + 1) + x.T @ x, x.T @ r), rtol=0, atol=1e-13)


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 1000))
def test_inner_products_are_those_of_rows_written_out(left, right, seed):
    rng = np.random.default_rng(seed)
    packed = [ROWS.padded(np.vstack([ROWS.pack(contexts(rng)[1]) for _ in range(n)])) for n in (left, right)]
    plain = SparseRows(np.zeros(2 * W + 2), np.ones(2 * W + 2), False, columns=D + 1)
    a, b = (plain(rows) for rows in packed)
    assert np.allclose(sparse_products(*packed), a @ b.T)


def test_matrices_of_scipy_are_packed():
    sparse = pytest.importorskip("scipy.sparse")
    written, dicts = contexts(np.random.default_rng(3))
    for form in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        order = np.sort(ROWS.pack(form(written)).reshape(K, 2, W), axis=2)
        assert np.array_equal(order, np.sort(ROWS.pack(dicts).reshape(K, 2, W), axis=2))
    twice = sparse.csr_matrix((np.ones(2), np.array([3, 3]), np.array([0, 2])), shape=(1, D))
    assert ROWS.pack(twice)[0].tolist() == [3, 0, 0, 0, 2, 0, 0, 0]
    assert twice.nnz == 2
    with pytest.raises(InvalidContexts, match="SparseRows"):
        LinUCB(dim=D).select(sparse.csr_matrix(written))


def test_a_dense_form_of_z_is_made_of_the_dual_one():
    policy = LinUCB(schedule=OnDemand(), **ROWS.settings)
    rng = np.random.default_rng(4)
    for _ in range(5):
        policy.select(ROWS.pack(contexts(rng)[1]))
    assert policy.with_covariance("diagonal").covariance == "diagonal"
    with pytest.raises(InvalidInput, match="diagonal form too; got 'primal'"):
        policy.with_covariance("primal")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{D: 1.0}], "columns beyond 29"),
        ([{-1: 1.0}], "columns beyond 29"),
        ([dict.fromkeys(range(5), 1.0)], "at most 4 are not 0; got 30 columns and 5 numbers"),
        ([{1.5: 1.0}], "columns must be whole numbers"),
        ([{"a": 1.0}], "columns must be whole numbers"),
        ([{10**30: 1.0}], "columns must be whole numbers"),
        ([{1: "x"}], "numbers of a sparse row must be real"),
        ([{1: 10**400}], "numbers of a sparse row must be real"),
        ([{1: 2j}], "numbers of a sparse row must be real"),
        ({1: 1.0}, "a sparse matrix or a list of dicts"),
        ([[1.0, 2.0]], "a sparse matrix or a list of dicts"),
        (np.eye(3), "a sparse matrix or a list of dicts"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows, message):
    with pytest.raises(InvalidContexts, match=message):
        ROWS.pack(rows)


def test_zeros_take_no_place_and_no_rows_are_no_contexts():
    assert np.array_equal(ROWS.pack([dict.fromkeys(range(9), 0.0) | {7: 2.0}]), ROWS.pack([{7: 2.0}]))
    assert ROWS.pack([]).shape == (0, ROWS.dim)


def test_what_was_not_packed_is_refused():
    policy = LinUCB(**ROWS.settings)
    with pytest.raises(InvalidContexts, match=r"what rows\.pack returned"):
        policy.select(np.full((2, 2 * W), 0.5))
    with pytest.raises(InvalidInput, match="depth 2 without biases"):
        NeuralLinear(schedule=OnDemand(), **ROWS.settings)
    with pytest.raises(InvalidInput, match="depth 2 without biases"):
        BatchNeuralUCB(schedule=OnDemand(), depth=3, **ROWS.settings)
    with pytest.raises(InvalidInput, match="start from the initial weights"):
        BatchNeuralUCB(schedule=OnDemand(), training=Training(steps=5, warm_start=True), **ROWS.settings)
    for spread in (np.array([2.0, 1.0]), np.array([1e-320, 1.0])):
        with pytest.raises(InvalidInput, match="spread 1 of the columns"):
            SparseRows(np.zeros(2), spread, columns=3)
    for wrong in ({"columns": 0, "nonzeros": 1}, {"columns": 5, "nonzeros": 0}):
        with pytest.raises(InvalidInput):
            SparseRows.of(**wrong)


def test_rewards_too_large_for_the_estimate_are_rejected():
    policy = LinUCB(schedule=OnDemand(), **ROWS.settings)
    policy.observe(policy.select(ROWS.pack([{1: 1.0}, {2: 1.0}])), 1e308)
    with pytest.warns(rarely.RejectedWarning):
        assert not policy.update().accepted


def both(kind, columns, nonzeros, given):
    """A policy of sparse contexts, and one of the same contexts written out."""
    rows = SparseRows.of(columns, nonzeros)
    dense = Affine(np.zeros(columns), np.full(columns, nonzeros**0.5))
    given = {"schedule": OnDemand(), "seed": 0} | given
    return rows, kind(**rows.settings, **given), kind(dim=columns, context_scale=dense, **given)


def drawn(rng, arms, columns, nonzeros):
    """Contexts of some arms, written out, and packed in any order of their columns."""
    written = np.zeros((arms, columns))
    for row in written:
        row[rng.choice(columns, rng.integers(1, nonzeros + 1), replace=False)] = rng.normal(size=1) + rng.normal()
    return written, [{int(c): row[c] for c in rng.permutation(np.flatnonzero(row))} for row in written]


PRECISE = Preset.named("practical", precision="float64")
FORGETFUL = {
    "LinUCB": (LinUCB, {}),
    "LinUCB, a window": (LinUCB, {"forgetting": Window(3)}),
    "LinUCB, the last round": (LinUCB, {"forgetting": Window(1), "within_batch": "frozen"}),
    "LinUCB, a discount": (LinUCB, {"forgetting": Discount(0.8)}),
    "LinTS, a discount": (LinTS, {"forgetting": Discount(0.8)}),
    "default": (BatchNeuralUCB, {"hidden": 8}),
    "default, a window": (BatchNeuralUCB, {"hidden": 8, "forgetting": Window(20)}),
    "NeuralTS, a discount": (
        NeuralTS,
        {"hidden": 8, "forgetting": Discount(0.9), "training": Training(steps=5), "preset": PRECISE},
    ),
    "skip, a window": (
        BatchNeuralUCB,
        {
            "hidden": 8,
            "forgetting": Window(4),
            "training": Training(steps=5, skip=1.0),
            "preset": PRECISE,
            "within_batch": "running",
        },
    ),
}


@pytest.mark.parametrize("name", FORGETFUL)
@settings(max_examples=4)
@given(
    columns=st.integers(2, 40),
    nonzeros=st.integers(1, 5),
    arms=st.integers(1, 6),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_sparse_rows_are_exact_for_every_policy_and_shape(name, columns, nonzeros, arms, rounds, seed):
    kind, given = FORGETFUL[name]
    nonzeros, rng = min(nonzeros, columns), np.random.default_rng(seed)
    rows, sparse, dense = both(kind, columns, nonzeros, given)
    for _ in range(3):
        block = [drawn(rng, arms, columns, nonzeros) for _ in range(rounds)]
        written, packed = np.stack([each for each, _ in block]), np.stack([rows.pack(each) for _, each in block])
        for mine, theirs in zip(sparse.score(packed), dense.score(written), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)
        decision, other = sparse.select(packed), dense.select(written)
        np.testing.assert_array_equal(decision.arm, other.arm)
        np.testing.assert_allclose(decision.probabilities, other.probabilities, atol=1e-5)
        assert sparse.log_det == pytest.approx(dense.log_det, rel=1e-6)
        rewards = written[np.arange(rounds), decision.arm, 0] + rng.normal(size=rounds)
        sparse.observe(decision, rewards)
        dense.observe(other, rewards)
        assert sparse.update().accepted == dense.update().accepted
        assert sparse.log_det == pytest.approx(dense.log_det, rel=1e-6)
        assert sparse.beta == pytest.approx(dense.beta, rel=1e-6)


def test_rounds_of_more_arms_than_a_block_are_exact():
    rows, sparse, dense = both(LinUCB, 50, 3, {"within_batch": "frozen"})
    rng = np.random.default_rng(0)
    for _ in range(3):
        written, packed = drawn(rng, 1500, 50, 3)
        assert sparse.select(rows.pack(packed)).arm == dense.select(written).arm
        assert sparse.log_det == pytest.approx(dense.log_det, rel=1e-9)


@pytest.mark.parametrize("nonzeros", [1, 3])
def test_arms_of_their_own_columns_are_judged_by_their_own_rewards(nonzeros):
    """One-hot arms share no column in packed contexts either; other arms do, although column 0 fills them up."""
    rows, sparse, dense = both(BatchNeuralUCB, 6, nonzeros, {"hidden": 8})
    written, rng, paid = np.eye(6), np.random.default_rng(0), np.linspace(0, 1, 6)
    packed = rows.pack([{i: 1.0} for i in range(6)])
    for round in range(60):
        decision, other = sparse.select(packed), dense.select(written)
        assert decision.arm == other.arm
        reward = paid[decision.arm] + 0.3 * rng.normal()
        sparse.observe(decision, reward)
        dense.observe(other, reward)
        if round % 12 == 11:
            sparse.update()
            dense.update()
            assert sparse._state.current.override.decides
            assert sparse.beta == pytest.approx(dense.beta, rel=1e-6)
    if nonzeros == 3:
        sparse.select([rows.pack([{0: 1.0, 1: 1.0}, {1: 2.0, 2: 1.0}, {3: 1.0}])])
        assert not sparse._state.arm_stats.disjoint
