"""A policy of tables decides as its policy does on arrays, and both are one file."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

import rarely
from rarely import (
    ArmBlocks,
    BatchNeuralUCB,
    FrameEncoder,
    FramePolicy,
    InvalidContexts,
    InvalidInput,
    LinTS,
    LinUCB,
    OnDemand,
    SnapshotError,
)
from rarely._core.saving import archive
from rarely.frames.tables import FrameTables
from rarely.logs import DecisionLog
from rarely.offpolicy import InvalidTarget, dr, ips, snips
from rarely.study import Study

RNG = np.random.default_rng(0)
USERS = {"age": RNG.integers(18, 80, 40).tolist(), "town": RNG.choice(["Ulm", "Bonn"], 40).tolist()}
ITEMS = [{"name": f"item {i}", "price": float(i), "topic": "ab"[i % 2]} for i in range(5)]


def user(i):
    return {name: values[i] for name, values in USERS.items()}


def made(kind=LinUCB, **settings):
    items = FrameEncoder.fit(ITEMS, ignore=["name"])
    return FramePolicy.fit(kind, USERS, items, **{"schedule": OnDemand(), "seed": 0} | settings)


@pytest.mark.parametrize("kind", [LinUCB, LinTS, BatchNeuralUCB])
def test_it_decides_as_its_policy_does_on_arrays(kind):
    policy = made(kind)
    users, items = policy.users(USERS), policy.items(ITEMS)
    blocks = ArmBlocks.fit(users, layout="bilinear", features=items)
    other = kind(schedule=OnDemand(), seed=0, **blocks.settings)
    for i in range(20):
        mine, theirs = policy.select(user(i), ITEMS), other.select(blocks(users[i], items))
        assert mine.arm == theirs.arm
        assert np.array_equal(mine.means, theirs.means)
        reward = float(ITEMS[mine.arm]["topic"] == "a")
        policy.observe(mine, reward)
        other.observe(ids=theirs.id, rewards=reward)
    assert policy.update().samples == other.update().samples
    assert policy.fingerprint() == other.fingerprint()
    assert np.array_equal(policy.score(USERS, ITEMS).means, other.score(blocks(users, items)).means)
    assert np.array_equal(policy.probabilities(user(1), items), other.probabilities(blocks(users[1], items)))


def test_blocks_of_rounds_have_one_table_of_items_or_one_each():
    policy = made()
    first = {name: values[:3] for name, values in USERS.items()}
    assert policy.contexts(first, ITEMS).shape == (3, 5, 4 + 4)
    each = policy.contexts(first, [ITEMS, ITEMS[:2], ITEMS[:4]])
    assert [len(contexts) for contexts in each] == [5, 2, 4]
    decision = policy.select(first, [ITEMS, ITEMS[:2], ITEMS[:4]])
    assert decision.means.shape == (3, 5)
    policy.observe(decision[2], 1.0)
    assert policy.missing == 2
    with pytest.raises(InvalidContexts, match="2 tables of items need as many users; got one"):
        policy.select(user(0), [ITEMS, ITEMS])


def test_items_alone_and_arms_with_names():
    items = FramePolicy.fit(LinUCB, items=FrameEncoder.fit(ITEMS, ignore=["name"]))
    assert items.select(items=ITEMS).means.shape == (5,)
    assert items.select(items=[ITEMS, ITEMS[:2]]).means.shape == (2, 5)
    arms = FramePolicy.fit(LinUCB, USERS, arms=["red", "blue"], layout="hybrid")
    assert arms.arms[arms.select(user(0)).arm] in ("red", "blue")
    assert arms.select(USERS, mask=[[True, False]] * 40).arm.tolist() == [0] * 40
    with pytest.raises(InvalidContexts, match="items must not be given"):
        arms.select(user(0), ITEMS)
    with pytest.raises(InvalidContexts, match="users must be given"):
        made().select(items=ITEMS)


def test_past_rounds_train_version_0():
    rewards = [float(town == "Ulm") for town in USERS["town"]]
    chosen = ["red", "blue"] * 20
    policy = FramePolicy.fit(LinUCB, USERS, arms=["red", "blue"], chosen=chosen, rewards=rewards, seed=0)
    blocks = ArmBlocks.fit(policy.users(USERS), arms=2)
    contexts = blocks(policy.users(USERS))[np.arange(40), [0, 1] * 20]
    other = LinUCB.from_log(contexts, rewards, seed=0, **blocks.settings)
    assert policy.fingerprint() == other.fingerprint()
    items = {"price": list(range(40))}
    logged = FramePolicy.fit(LinUCB, USERS, items, rewards=rewards)
    assert logged.updates[0].samples == 40
    with pytest.raises(InvalidInput, match="chosen must be one of"):
        FramePolicy.fit(LinUCB, USERS, arms=["red"], chosen=["green"] * 40, rewards=rewards)


def test_explanations_name_the_columns_and_find_the_one_that_matters():
    policy = made(beta=0.1)
    for i in range(40):
        decision = policy.select(user(i), ITEMS)
        policy.observe(decision, float(ITEMS[decision.arm]["topic"] == "a"))
        policy.update()
    effects = policy.explain(user(0), ITEMS, arm=1)
    assert {effect.column for effect in effects} == {"users.age", "users.town", "items.price", "items.topic"}
    assert effects[0].column == "items.topic"
    assert effects[0].mean < 0
    features = policy.items(ITEMS).copy()
    place = policy.items.slices["items.topic".partition(".")[2]]
    features[1, place] = policy.items.scale.center[place]
    means, bonuses = (policy.score(user(0), ITEMS), policy.score(user(0), features))
    assert effects[0].mean == pytest.approx(means.means[1] - bonuses.means[1])
    assert effects[0].bonus == pytest.approx(means.bonuses[1] - bonuses.bonuses[1])
    arms = FramePolicy.fit(LinUCB, USERS, arms=["red", "blue"])
    assert len(arms.explain(user(0), arm=1)) == 2
    alone = FramePolicy.fit(LinUCB, items={"price": [1.0, 2.0]})
    assert [effect.column for effect in alone.explain(items={"price": [1.0, 5.0]}, arm=1)] == ["items.price"]
    with pytest.raises(InvalidInput, match="one of its arms; got arm 9"):
        policy.explain(user(0), ITEMS, arm=9)


@pytest.mark.parametrize("kind", [LinUCB, BatchNeuralUCB])
def test_policy_and_encoders_are_one_file(kind, tmp_path):
    policy = made(kind)
    policy.observe(policy.select(USERS, ITEMS), [1.0, 0.0] * 20)
    policy.update()
    policy.save(tmp_path / "policy.rarely")
    loaded = rarely.load(tmp_path / "policy.rarely")
    assert isinstance(loaded, FramePolicy)
    assert loaded.describe() == policy.describe()
    other = rarely.load(tmp_path / "policy.rarely")
    mine, theirs = policy.select(user(3), ITEMS), other.select(user(3), ITEMS)
    assert np.array_equal(mine.means, theirs.means)
    assert policy.fingerprint() == other.fingerprint()
    other.observe(ids=theirs.id, rewards=1.0)


def test_a_file_with_another_wrapper_is_refused(tmp_path):
    policy = made()
    header, arrays = policy.policy._content()
    forged = {"kind": "FramePolicy"} | policy.describe() | {"users": None}
    for wrapper in ({"kind": "Unknown"}, {"kind": "FramePolicy"}, 3, forged):
        archive.write(tmp_path / "policy.rarely", header | {"wrapper": wrapper}, arrays)
        with pytest.raises(SnapshotError):
            rarely.load(tmp_path / "policy.rarely")


def test_copies_are_apart():
    policy = made()
    for other in (copy.copy(policy), pickle.loads(pickle.dumps(policy)), policy.with_covariance("diagonal")):
        other.select(user(0), ITEMS)
        assert (policy.round, other.round) == (0, 1)
        assert isinstance(other, FramePolicy)
    assert repr(policy) == "<FramePolicy of <LinUCB: version 0, round 0, 0 rewards missing>>"
    with pytest.raises(AttributeError):
        policy.nothing


def test_tables_that_do_not_make_a_policy_are_refused():
    for arguments in ({}, {"users": USERS}, {"arms": ["a", "b"]}, {"users": USERS, "items": ITEMS, "arms": ["a"]}):
        with pytest.raises(InvalidInput, match="must choose among"):
            FramePolicy.fit(LinUCB, **arguments)
    for arms in (["a", "a"], "ab", {"a", "b"}, ["a", None], [1.5, 2.5], [["a"], ["b"]]):  # a set has no order
        with pytest.raises(InvalidInput, match="different names"):
            FramePolicy.fit(LinUCB, USERS, arms=arms)
    with pytest.raises(InvalidInput, match="one that is there learns by"):
        made().fit(USERS, [1.0, 2.0])
    with pytest.raises(InvalidContexts, match="the sample must have a row; column 'age' has none"):
        FramePolicy.fit(LinUCB, {"age": []}, arms=["a", "b"])
    with pytest.raises(InvalidInput, match="dim=2"):
        FramePolicy(LinUCB(dim=3), FrameTables(FrameEncoder.fit({"x": [1, 2]}), FrameEncoder.fit({"y": [1, 2]})))


def test_arms_are_named_by_lists_columns_and_numbers():
    pandas = pytest.importorskip("pandas")
    chosen = pandas.Series([1, 2] * 20, index=range(40, 80))
    for arms in ([1, 2], np.array([1, 2]), pandas.Series([1, 2]), ["1", "2"]):
        policy = FramePolicy.fit(LinUCB, USERS, arms=arms, chosen=chosen, rewards=[0.0, 1.0] * 20)
        assert policy.arms == ("1", "2")
        assert policy.select(user(0)).arm == 1
    assert FramePolicy.fit(LinUCB, USERS, arms=3).arms == ("0", "1", "2")
    log = DecisionLog.from_frame(
        USERS | {"arm": chosen.tolist(), "paid": [0.0, 1.0] * 20, "p": [0.5] * 40},
        **{"arm": "arm", "reward": "paid", "probability": "p", "encoder": policy.users},
    )
    assert ips(log, policy).value == 1.0


def test_a_call_that_raises_has_changed_nothing():
    policy = made()
    before = policy.fingerprint()
    with pytest.raises(InvalidContexts):
        policy.select({"age": "x", "town": "Ulm"}, ITEMS)
    assert policy.fingerprint() == before


def test_a_study_decides_on_the_contexts_of_tables():
    policy = made()
    study = Study.create("memory://frames", "items", policy=policy.policy)
    answer = study.ask(policy.contexts(user(0), ITEMS), id="visit-1")
    assert study.ask(policy.contexts(user(0), ITEMS), id="visit-1") == answer
    assert study.tell("visit-1", 1.0).status == "accepted"


def test_columns_are_left_out_and_a_decision_is_explained():
    users = {"id": ["a", "b", "c"], "age": [20, 30, 40]}
    policy = FramePolicy.fit(LinUCB, users, arms=["tea", "rum"], ignore=["id"])
    decision = policy.select({"age": 25})
    assert policy.explain({"age": 25}, arm=decision) == policy.explain({"age": 25}, arm=int(decision.arm))
    assert [effect.column for effect in policy.explain({"age": 25}, arm=decision)] == ["users.age"]
    with pytest.raises(InvalidInput, match=r"made by FramePolicy\.fit"):
        FramePolicy(LinUCB, policy.tables)


PAST = [
    ({"users": USERS, "items": ITEMS, "rewards": np.ones(40)}, "a row of users and of items; got 40 and 5"),
    ({"users": USERS, "items": [ITEMS[0]] * 40, "rewards": np.ones(3)}, "rewards must be one number a round: 40"),
    ({"users": USERS, "arms": ["u", "v"], "chosen": ["u"] * 40}, "chosen must come with arms and rewards"),
    ({"users": USERS, "items": ITEMS, "chosen": ["u"] * 40}, "chosen must come with arms and rewards"),
    *(
        ({"users": USERS, "arms": ["u", "v"], "chosen": chosen, "rewards": np.ones(40)}, "chosen must be one of")
        for chosen in (3, None, [["u"]] * 40, ["u"] * 39, ["w"] * 40)
    ),
]


@pytest.mark.parametrize(("arguments", "says"), PAST, ids=[says for _, says in PAST])
def test_past_rounds_that_do_not_fit_together_are_refused(arguments, says):
    with pytest.raises(InvalidInput, match=says):
        FramePolicy.fit(LinUCB, schedule=OnDemand(), **arguments)


def visits(n=600):
    rng = np.random.default_rng(3)
    table = {"age": rng.integers(18, 80, n), "town": rng.choice(["Ulm", "Bonn"], n)}
    table |= {"arm": rng.choice(["tea", "rum", "ale"], n), "p": np.full(n, 1 / 3)}
    liked = np.where(table["age"] < 40, "tea", "rum")
    return table | {"paid": (table["arm"] == liked).astype(float)}


def test_a_log_judges_a_policy_of_tables_as_its_policy_on_arrays():
    """The arms of the log are in the order of their names, those of the policy in its own."""
    past = visits()
    half = {name: values[:300] for name, values in past.items()}
    people = {name: half[name] for name in ("age", "town")}
    seen = {"arms": ["rum", "tea", "ale"], "chosen": half["arm"], "rewards": half["paid"], "beta": 0.2, "seed": 0}
    policy = FramePolicy.fit(LinTS, people, schedule=OnDemand(), **seen)
    rest = {name: values[300:] for name, values in past.items()}
    log = DecisionLog.from_frame(rest, arm="arm", reward="paid", probability="p", encoder=policy.users)
    contexts = policy.contexts({name: rest[name] for name in ("age", "town")})
    order = [policy.arms.index(name) for name in log.arm_names]
    for estimator in (ips, snips):
        on_arrays = estimator(log, policy.policy.probabilities(contexts)[:, order])
        assert replace(estimator(log, policy), note="") == replace(on_arrays, note="")
    assert dr(log, policy).value > dr(log, [0] * len(log)).value


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"encoder": "auto", "ignore": ["town"]}, "read with the encoder of the FramePolicy"),
        ({"arms": ["tea", "rum"]}, "'ale' is not an arm of both"),
        ({"items": ITEMS}, "decides among items"),
    ],
)
def test_a_log_that_does_not_fit_the_tables_is_refused(settings, says):
    past, arms = visits(60), settings.pop("arms", ["tea", "rum", "ale"])
    people = {name: past[name] for name in ("age", "town")}
    named = {"items": settings.pop("items")} if "items" in settings else {"arms": arms}
    policy = FramePolicy.fit(LinUCB, people, **named)
    read = {"arm": "arm", "reward": "paid", "probability": "p", "encoder": policy.users} | settings
    with pytest.raises(InvalidTarget, match=says):
        snips(DecisionLog.from_frame(past, **read), policy)


@pytest.mark.parametrize("kind", ["list", "dict", "pandas"])
def test_items_that_are_changed_in_place_are_encoded_anew(kind):
    tables, rows = made().tables, [dict(row) for row in ITEMS]
    items = rows if kind == "list" else {name: [row[name] for row in rows] for name in rows[0]}
    if kind == "pandas":
        items = pytest.importorskip("pandas").DataFrame(items)
    before = tables.features(items)
    assert tables.features(items) is before
    if kind == "list":
        items[2]["topic"] = "b"
    elif kind == "dict":
        items["topic"][2] = "b"
    else:
        items.loc[2, "topic"] = "b"
    rows[2]["topic"] = "b"
    after = tables.features(items)
    assert not np.array_equal(after, before)
    np.testing.assert_array_equal(after, made().tables.features(rows))
    assert "_kept" not in pickle.loads(pickle.dumps(tables)).__dict__


@pytest.mark.parametrize(
    "row", [{"age": 41.0, "town": "Ulm"}, {"age": 41, "town": "Ulm"}, {"age": 41.5, "town": "Rome"}]
)
@pytest.mark.filterwarnings("ignore::rarely.ContextsWarning")
def test_one_row_is_encoded_as_in_a_table(row):
    encoder = made().tables.users
    np.testing.assert_array_equal(encoder(row), encoder([row])[0])
