"""Arms that are told apart by their features, crossed with the row, in any number."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rarely
from rarely import (
    Affine,
    ArmBlocks,
    BatchNeuralUCB,
    FixedGrid,
    InvalidContexts,
    InvalidInput,
    LinTS,
    LinUCB,
    Mixture,
    OnDemand,
    Roster,
    Uniform,
)
from rarely._core.inputs.arm_blocks import Crossed, scale_from
from rarely.offpolicy import DecisionLog

RNG = np.random.default_rng(0)
USERS, ARTICLES = 3 + 2 * RNG.normal(size=(200, 4)), 10 * RNG.normal(size=(60, 3)) - 5


class Table:
    """As pandas has it."""

    def __init__(self, columns, values):
        self.columns, self._values = columns, values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._values, dtype)


class Row:
    """One row of a table, as pandas has it."""

    ndim = 1

    def __init__(self, index, values):
        self.index, self._values = index, values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._values, dtype)


def test_a_row_with_names_must_have_them_in_order():
    blocks = ArmBlocks.fit(Table("abcd", USERS), layout="bilinear", features=Table("xyz", ARTICLES))
    roster = Roster(blocks)
    roster.open("new", Row("xyz", ARTICLES[0]))
    for index in ("abcd", range(4)):  # numbers are no names
        np.testing.assert_array_equal(roster(Row(index, USERS[0]))[0], roster(USERS[0])[0])
    with pytest.raises(InvalidContexts, match="a, b, c, d; got d, c, b, a"):
        roster(Row("dcba", USERS[0]))
    with pytest.raises(InvalidContexts, match="x, y, z; got z, y, x"):
        roster.open("newer", Row("zyx", ARTICLES[0]))
    assert roster.names == ("new",)


def content(layout="bilinear", **more):
    return ArmBlocks.fit(USERS, layout=layout, features=ARTICLES, **more)


def articles(count, layout="bilinear"):
    roster = Roster(content(layout))
    for i in range(count):
        roster.open(f"a{i}", ARTICLES[i % len(ARTICLES)])
    return roster


# --- crossing


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 6), st.booleans())
def test_crossed_contexts_are_the_parts_their_products_and_the_constant(rows, own, count, constant):
    rng = np.random.default_rng(rows * 10 + own)
    center, spread = rng.normal(size=rows + own), 0.5 + rng.random(rows + own)
    contexts = rng.normal(size=(count, rows + own))
    made = Crossed(center, spread, constant, rows=rows)(contexts)
    x = (contexts - center) / spread
    products = [np.outer(each[:rows], each[rows:]).ravel() for each in x]
    plain = [np.concatenate((each, product, np.ones(int(constant)))) for each, product in zip(x, products, strict=True)]
    assert made.shape == (count, rows + own + rows * own + constant)
    np.testing.assert_allclose(made, np.reshape(plain, made.shape), rtol=1e-14)


def test_crossed_scales_are_described_by_json():
    scale = Crossed(np.array([0.1, 1 / 3, 2.0]), np.array([1.0, 2.0, 3.0]), rows=np.int64(2))
    again = scale_from(json.loads(json.dumps(scale.describe())))
    assert isinstance(again, Crossed)
    np.testing.assert_array_equal(again(np.eye(3)), scale(np.eye(3)))
    assert type(scale_from(Affine.identity(2).describe())) is Affine


@pytest.mark.parametrize("rows", [0, 3, -1, 1.5, None])
def test_a_row_is_some_of_the_numbers_and_not_all(rows):
    with pytest.raises(InvalidInput, match="rows must be a whole number from 1 to 2"):
        Crossed(np.zeros(3), np.ones(3), rows=rows)


# --- blocks


def test_content_contexts_are_plain_and_the_policy_crosses_them():
    blocks = content()
    contexts = blocks(USERS[0], ARTICLES[:5])
    np.testing.assert_array_equal(contexts, [[*USERS[0], *article] for article in ARTICLES[:5]])
    scaled = blocks.scale(contexts)
    assert scaled.shape == (5, 4 + 3 + 12 + 1)
    np.testing.assert_allclose(scaled[:, :4], [blocks.rows(USERS[:1])[0, :4]] * 5)
    np.testing.assert_allclose(scaled[:, 4:7], blocks.features(ARTICLES[:5])[:, :3])
    np.testing.assert_array_equal(scaled[:, -1], 1.0)
    several = blocks(USERS[:2], ARTICLES[:5])
    np.testing.assert_array_equal(several[0], contexts)
    own = blocks(USERS[:2], np.stack((ARTICLES[:5], ARTICLES[5:10])))
    np.testing.assert_array_equal(own[1, :, 4:], ARTICLES[5:10])


def test_shared_content_arms_have_no_marks():
    blocks = content("shared")
    assert blocks.dim == 7
    assert blocks.scale(blocks(USERS[0], ARTICLES[:2])).shape == (2, 8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout": "bilinear"}, "arms must be a number, or features must"),
        ({}, "arms must be a number, or features must"),
        ({"features": ARTICLES}, "features need a part that arms share"),
        ({"layout": "hybrid", "features": ARTICLES}, "'hybrid' has a block for each arm"),
        ({"layout": "bilinear", "features": ARTICLES, "arms": 3}, "'bilinear' distinguishes arms by their features"),
        ({"layout": "bilinear", "arms": 3}, "'bilinear' distinguishes arms by their features"),
    ],
)
def test_layouts_that_cannot_be_are_refused(settings, message):
    with pytest.raises(InvalidInput, match=message):
        ArmBlocks.fit(USERS, **settings)


@pytest.mark.parametrize("bad", [None, np.zeros(3), np.zeros((2, 4)), np.zeros((2, 5, 3)), np.zeros((0, 3))])
def test_features_of_another_shape_are_refused(bad):
    with pytest.raises(InvalidContexts, match=r"features of the arms must have shape \(K, 3\)"):
        content()(USERS[0], bad)


def test_names_of_columns_are_kept_and_checked():
    blocks = ArmBlocks.fit(Table("abcd", USERS), layout="bilinear", features=Table("xyz", ARTICLES))
    again = ArmBlocks.from_description(json.loads(json.dumps(blocks.describe())))
    for own in (blocks, again):
        assert own(Table("abcd", USERS[:2]), Table("xyz", ARTICLES)).shape == (2, 60, 7)
        with pytest.raises(InvalidContexts, match=r"columns of features must be those .*: x, y, z; got z, y, x"):
            own(USERS[:2], Table("zyx", ARTICLES))
        with pytest.raises(InvalidContexts, match="columns of rows must be those"):
            own(Table("abdc", USERS[:2]), ARTICLES)


# --- rosters


def test_a_roster_of_many_names_offers_the_open_ones_alone():
    roster = articles(1000)
    for i in range(950):
        roster.close(f"a{i}")
    contexts, mask = roster(USERS[:3])
    assert contexts.shape == (3, 50, 7)
    assert mask.shape == (3, 1000)
    assert mask.sum() == 150
    policy = LinUCB(**roster.settings)
    decision = policy.select(contexts, mask)
    assert (decision.arm >= 950).all()
    assert np.isnan(decision.means[:, :950]).all()
    assert roster.name_of(decision) == [f"a{arm}" for arm in decision.arm]
    one = policy.select(*roster(USERS[0]))
    assert roster.name_of(one) == f"a{one.arm}"


def test_an_offer_of_open_arms_decides_as_all_arms_with_a_mask_do():
    roster = articles(20)
    for i in (0, 3, 4, 19):
        roster.close(f"a{i}")
    blocks = roster.blocks
    whole = np.asarray(blocks(USERS[:40], ARTICLES[:20]))
    settings = {"schedule": FixedGrid(80, 4), "exploration": Mixture(0.1), "seed": 3} | blocks.settings
    settings["within_batch"] = "frozen"  # a running Z sums in the order of the arms, so its last digits differ
    ours, plain = LinUCB(**settings), LinUCB(**settings)
    for _ in range(2):
        (contexts, mask), rewards = roster(USERS[:40]), np.sin(np.arange(40))
        decision, other = ours.select(contexts, mask), plain.select(whole, mask)
        for name in ("arm", "means", "bonuses", "probabilities"):
            np.testing.assert_array_equal(getattr(decision, name), getattr(other, name))
        for policy, made in ((ours, decision), (plain, other)):
            policy.observe(made, rewards)
            policy.update()
    np.testing.assert_array_equal(ours.coefficients, plain.coefficients)


def test_new_articles_come_without_a_limit_and_names_last():
    roster, policy = Roster(content()), None
    told = []
    for day in range(40):
        roster.open(f"news {day}", ARTICLES[day])
        if day >= 3:
            roster.close(f"news {day - 3}")
        policy = policy or Uniform(roster.blocks.dim, seed=0)
        decision = policy.select(*roster(USERS[:5]))
        told.append((decision, roster.name_of(decision)))
        roster = Roster.from_description(json.loads(json.dumps(roster.describe())))
    assert all(roster.name_of(decision) == names for decision, names in told)
    assert roster.slot_of("news 39") == 39
    assert roster.name_of(policy.history.arms) == [name for _, names in told for name in names]


def test_a_failed_opening_leaves_the_roster_as_it_was():
    roster = articles(16)
    before = roster.describe()
    with pytest.raises(InvalidInput, match="must be 3 finite numbers"):
        roster.open("new", [1.0, 2.0])
    with pytest.raises(InvalidInput, match="must be 3 finite numbers"):
        roster.open("new")
    assert roster.describe() == before
    assert "new" not in roster.slots


def test_a_mask_that_was_forgotten_or_is_another_is_refused():
    roster = articles(20)
    roster.close("a3")
    policy = LinUCB(**roster.settings)
    contexts, mask = roster(USERS[0])
    with pytest.raises(InvalidContexts, match="must come with its mask"):
        policy.select(contexts)
    with pytest.raises(InvalidContexts, match="must be True for each of the 19 arms"):
        policy.select(contexts, ~mask)
    assert policy.round == 0


@pytest.mark.parametrize("offered", [True, False])
def test_a_policy_that_would_not_cross_is_refused(offered):
    roster = articles(4)
    policy = BatchNeuralUCB(roster.blocks.dim, FixedGrid(10, 2), hidden=4, seed=0)
    given = roster(USERS[0]) if offered else (roster.blocks(USERS[0], ARTICLES[:4]),)
    with pytest.raises(InvalidContexts, match=r"policy made with \*\*blocks.settings"):
        policy.select(*given)


# --- policies


@pytest.mark.parametrize("make", [LinUCB, LinTS, BatchNeuralUCB])
def test_policies_of_content_arms_are_saved_and_loaded(make, tmp_path):
    roster = articles(12)
    own = {"hidden": 8} if make is BatchNeuralUCB else {}
    policy = make(schedule=FixedGrid(60, 3), seed=1, **own, **roster.settings)
    policy.observe(policy.select(*roster(USERS[:30])), np.sin(np.arange(30)))
    policy.update()
    policy.save(tmp_path / "policy")
    again = rarely.load(tmp_path / "policy")
    assert again.fingerprint() == policy.fingerprint()
    assert policy.history.contexts.shape == (30, 7)
    for each in (policy, again):
        roster.name_of(each.select(*roster(USERS[30])))
    assert again.fingerprint() == policy.fingerprint()
    np.testing.assert_allclose(make(**policy.settings()).select(*roster(USERS[0])).means, 0.0, atol=1e-12)


def test_only_products_rank_articles_differently_for_users():
    """Rewards are a pure interaction, of which [user, article] shows a linear model nothing."""
    rng = np.random.default_rng(5)
    users, own = rng.normal(size=(1500, 2)), rng.normal(size=(10, 2))
    means, got = np.tanh(users @ own.T), {}
    for layout in ("shared", "bilinear"):
        blocks = ArmBlocks.fit(users, layout=layout, features=own)
        policy = LinUCB(schedule=FixedGrid(1500, 15), seed=0, beta=0.3, **blocks.settings)
        arms = []
        for start in range(0, 1500, 100):
            here = slice(start, start + 100)
            decision = policy.select(blocks(users[here], own))
            policy.observe(decision, means[here][np.arange(100), decision.arm])
            arms += decision.arm.tolist()
            if policy.due:
                policy.update()
        got[layout] = means[np.arange(1500), arms][750:].mean()
    assert abs(got["shared"]) < 0.15
    assert got["bilinear"] > 0.5


def test_a_log_keeps_what_was_offered():
    roster, log = articles(20), DecisionLog()
    for i in (0, 7):
        roster.close(f"a{i}")
    policy = Uniform(roster.blocks.dim, seed=0)
    for rows in (USERS[:6], USERS[6]):
        contexts, mask = roster(rows)
        log.record(contexts, policy.select(contexts, mask))
    assert log.present.sum() == 7 * 18
    np.testing.assert_array_equal(log.contexts[6, 1], [*USERS[6], *ARTICLES[1]])
    assert np.isnan(log.contexts[:, 7]).all()


def test_a_long_life_needs_no_setting_but_its_horizon():
    """The t×t form is left for its work long before it would outgrow the memory, whatever the number of arms."""
    blocks = ArmBlocks.fit(RNG.normal(size=(50, 20)), layout="bilinear", features=RNG.normal(size=(50, 8)))
    policy = BatchNeuralUCB(schedule=OnDemand(horizon=500_000), seed=0, **blocks.settings)
    assert policy.select(blocks(np.zeros(20), np.zeros((50, 8)))).round == 1
