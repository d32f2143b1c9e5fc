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
    LinUCB,
    Paced,
    Roster,
    RosterFull,
    Uniform,
    UnknownArm,
)

CAPACITY = 3
LAYOUTS = ["disjoint", "shared", "hybrid"]


def roster_of(*names, arms=CAPACITY, width=2, layout="disjoint"):
    roster = Roster(ArmBlocks(arms, Affine.identity(width, constant=True), layout))
    for name in names:
        roster.open(name)
    return roster


def restarted(roster):
    return Roster.from_description(json.loads(json.dumps(roster.describe())))


# --- who is on the roster


@given(
    st.sampled_from(LAYOUTS),
    st.lists(st.tuples(st.sampled_from(["open", "close", "restart"]), st.sampled_from("abcde")), max_size=30),
)
def test_any_coming_and_going_is_that_of_a_plain_dict(layout, steps):
    roster, slots, there = roster_of(layout=layout), {}, set()
    for step, name in steps:
        if step == "restart":
            roster = restarted(roster)
        elif step == "open":
            if name in there:
                with pytest.raises(InvalidInput, match="must not be open"):
                    roster.open(name)
            elif name not in slots and len(slots) == CAPACITY:
                with pytest.raises(RosterFull):
                    roster.open(name)
            else:
                assert roster.open(name) == slots.setdefault(name, len(slots))
                there.add(name)
        elif name in there:
            assert roster.close(name) == slots[name]
            there.remove(name)
        else:
            with pytest.raises(UnknownArm):
                roster.close(name)
        assert roster.slots == slots
        assert roster.names == tuple(name for name in slots if name in there)
        assert [roster.name_of(slot) for slot in slots.values()] == list(slots)
        check_offer(roster, slots, there)


def check_offer(roster, slots, there):
    rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    if not there:
        with pytest.raises(InvalidContexts, match="open one first"):
            roster(rows)
        return
    contexts, mask = roster(rows)
    whole = roster.blocks(rows)
    for slot in range(CAPACITY):
        is_open = any(slots[name] == slot for name in there)
        assert mask[:, slot].tolist() == [is_open] * 2
        np.testing.assert_array_equal(contexts[:, slot], whole[:, slot] if is_open else np.nan)
    single = roster(rows[1])
    np.testing.assert_array_equal(single.contexts, contexts[1])
    np.testing.assert_array_equal(single.mask, mask[1])


def test_a_full_roster_says_what_to_do_and_is_as_it_was():
    roster = roster_of("a", "b", "c")
    roster.close("b")
    before = roster.describe()
    with pytest.raises(RosterFull, match=r"the 3 slots are taken; got 'd'"):
        roster.open("d")
    assert roster.describe() == before
    assert roster.open("b") == 1


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_name_is_a_string(name):
    with pytest.raises(InvalidInput, match="name must be a string"):
        roster_of().open(name)


def test_what_the_roster_gave_out_is_not_its_own():
    roster = roster_of("a", "b")
    offer = roster([1.0, 2.0])
    offer.mask[:] = False
    roster.slots["z"] = 9
    assert roster.names == ("a", "b")
    assert roster.slots == {"a": 0, "b": 1}
    assert repr(roster) == "<Roster: a, b open; 2 of 3 slots taken>"


# --- arms and names


def test_decisions_of_any_time_keep_their_names():
    roster = roster_of("a", "b")
    policy = Uniform(roster.blocks.dim, seed=0)
    early = policy.select(*roster(np.zeros((20, 2))))
    names = roster.name_of(early)
    assert set(names) == {"a", "b"}
    roster.close("a")
    roster.open("c")
    late = policy.select(*roster(np.zeros((20, 2))))
    assert set(roster.name_of(late)) == {"b", "c"}
    assert roster.name_of(early) == names
    assert [roster.name_of(early[i]) for i in range(20)] == names
    assert roster.name_of(policy.history.arms) == names + roster.name_of(late)
    assert roster.name_of(early[3:3]) == []


@pytest.mark.parametrize("bad", [-1, 2, [0, 2], 0.0, "a", [[0]]])
def test_an_arm_that_no_name_has_is_refused(bad):
    with pytest.raises(UnknownArm):
        roster_of("a", "b").name_of(bad)


def test_a_slot_of_a_name_that_never_came_is_refused():
    with pytest.raises(UnknownArm, match="got 'z', and the names so far are: a, b"):
        roster_of("a", "b").slot_of("z")


@pytest.mark.parametrize("rows", [np.zeros(2), np.zeros((2, 2)), np.zeros((CAPACITY, 2))])
def test_a_forgotten_mask_or_star_is_refused(rows):
    roster = roster_of("a", "b")
    policy = LinUCB(roster.blocks.dim)
    for wrong in (roster(rows), roster(rows).contexts):
        with pytest.raises(InvalidContexts):
            policy.select(wrong)
    assert policy.round == 0


# --- features of an arm's own


def rich():
    return Roster(ArmBlocks(CAPACITY, Affine.identity(1), "shared", features=Affine([1.0, 1.0], [2.0, 2.0], False)))


def test_features_stand_behind_the_row_and_survive_closing():
    roster = rich()
    roster.open("a", [3.0, 1.0])
    roster.open("b", features=(1.0, 5.0))
    np.testing.assert_array_equal(roster([9.0]).contexts[:2], [[9, 1, 0, 1, 0, 0], [9, 0, 2, 0, 1, 0]])
    for name in "ab":
        roster.close(name)
    roster.open("a")
    roster.open("b", [3.0, 3.0])
    again = restarted(roster)
    assert again.describe() == roster.describe()
    np.testing.assert_array_equal(again([9.0]).contexts[:2], [[9, 1, 0, 1, 0, 0], [9, 1, 1, 0, 1, 0]])


@pytest.mark.parametrize("bad", [None, [], [1.0], [[1.0, 2.0]], [1.0, np.inf], "red"])
def test_wrong_features_are_refused_and_take_no_slot(bad):
    roster = rich()
    with pytest.raises(InvalidInput, match=r"features of 'a' must be (2 )?(finite )?numbers"):
        roster.open("a", bad)
    assert roster.slots == {}
    with pytest.raises(InvalidInput, match="'a' was given some"):
        roster_of().open("a", [1.0])


@pytest.mark.parametrize("layout", ["shared", "hybrid"])
def test_an_arm_is_judged_by_its_features_before_it_is_ever_chosen(layout):
    rng = np.random.default_rng(0)
    roster = Roster(ArmBlocks(10, Affine.identity(1, constant=True), layout, features=Affine.identity(1)))
    values = np.arange(9.0) - 4
    for k, value in enumerate(values):
        roster.open(f"arm {k}", [value])
    rows, arms = rng.normal(size=(400, 1)), rng.integers(9, size=400)
    contexts = roster(rows).contexts[np.arange(400), arms]
    policy = LinUCB.from_log(contexts, values[arms], dim=roster.blocks.dim, ridge=1e-3)
    new = roster.open("new", [2.5])
    means, bonuses = policy.score(*roster([0.5]))
    assert means[new] == pytest.approx(2.5, abs=0.1)
    assert np.argmax(bonuses) == new


# --- a better arm arrives in mid-stream

ROUNDS, ARRIVAL = 240, 120
PAYS = {"old": (0.0, 0.2), "older": (0.1, -0.2), "new": (1.0, 0.1)}
"""Level and slope: the new arm pays the most wherever a row is likely to be."""


def reward(name, row):
    level, slope = PAYS[name]
    return level + slope * row[0]


def stream(policy, roster, rows, wrong=None, at_restart=None):
    """Play all rows, an update whenever due. `wrong` spoils the contexts, `at_restart` replaces the players."""
    names, done = [], policy.round
    while done < len(rows):
        if done == ARRIVAL and "new" not in roster.slots:
            roster.open("new")
        if at_restart is not None and done == ARRIVAL + 10:
            policy, roster = at_restart(policy, roster)
        stop = next(stop for stop in (ARRIVAL, ARRIVAL + 10, len(rows)) if stop > done)
        contexts, mask = roster(rows[done:stop])
        decision = policy.select(contexts if wrong is None else wrong(contexts), mask, until_due=True)
        chosen = roster.name_of(decision)
        paid = [reward(name, row) for name, row in zip(chosen, rows[done:], strict=False)]
        policy.observe(decision, paid)
        names += chosen
        done = policy.round
        if policy.due:
            policy.update()
    return names, policy, roster


def players(schedule, layout="disjoint"):
    roster = roster_of("old", "older", arms=4, layout=layout)
    settings = {"hidden": 16, "ridge": 0.1, "beta": 0.3, "seed": 0}
    return BatchNeuralUCB(schedule=schedule, **settings, **roster.settings), roster


def rows_of(rounds=ROUNDS):
    return np.random.default_rng(7).normal(size=(rounds, 2))


def share_of_new(names):
    return np.mean([name == "new" for name in names[-60:]])


@pytest.mark.filterwarnings("ignore::rarely.DriftWarning")  # where arms share columns, a better arm is a surprise
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("schedule", [FixedGrid(ROUNDS, 12), Paced(ROUNDS, 8)])
def test_a_better_arm_that_arrives_is_found(schedule, layout):
    names, policy, _ = stream(*players(schedule, layout), rows_of())
    assert "new" not in names[:ARRIVAL]
    assert share_of_new(names) > 0.9
    assert policy.version == schedule.batches - 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda contexts: np.where(np.arange(4)[:, None] == 2, contexts[:, :1], contexts),
        lambda contexts: np.where(np.arange(4)[:, None] == 2, contexts[:, 1:2], contexts),
        lambda contexts: np.where(np.arange(4)[:, None] == 2, 0.0, contexts),
    ],
    ids=["of the first arm", "of the second arm", "empty"],
)
def test_with_wrong_contexts_it_would_not_be_found(wrong):
    names, _, _ = stream(*players(FixedGrid(ROUNDS, 12)), rows_of(), wrong)
    assert share_of_new(names) < 0.5


def test_a_restart_in_mid_stream_changes_nothing(tmp_path):
    def at_restart(policy, roster):
        policy.save(tmp_path / "policy.rarely")
        (tmp_path / "roster.json").write_text(json.dumps(roster.describe()))
        read = json.loads((tmp_path / "roster.json").read_text())
        return rarely.load(tmp_path / "policy.rarely"), Roster.from_description(read)

    straight, policy, _ = stream(*players(FixedGrid(ROUNDS, 12)), rows_of())
    names, resumed, roster = stream(*players(FixedGrid(ROUNDS, 12)), rows_of(), at_restart=at_restart)
    assert names == straight
    assert resumed is not policy
    assert roster.name_of(resumed.history.arms) == names
    for a, b in zip(policy.weights, resumed.weights, strict=True):
        np.testing.assert_array_equal(a, b)
