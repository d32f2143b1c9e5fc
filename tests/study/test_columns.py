"""A study of a FramePolicy: rounds come by columns, decide as arrays would, and are on record as they came."""

import datetime as dt
import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import FramePolicy, InvalidContexts, LinTS, LinUCB, OnDemand
from rarely.logs import read_log
from rarely.logs.tables import open_table
from rarely.offpolicy import evaluate
from rarely.study import BrokenStudy, InvalidStudy, Study
from rarely.study.tell import item_names

RNG = np.random.default_rng(0)
USERS = pd.DataFrame({"age": RNG.integers(18, 80, 40), "town": RNG.choice(["Ulm", "Bonn"], 40)})
ITEMS = pd.DataFrame({"sku": ["a", "b", "c"], "topic": ["x", "y", "x"], "price": [1.0, 2.0, 3.0]})


def shop(kind=LinTS, **settings):
    return FramePolicy.fit(kind, USERS, ITEMS, **{"key": "sku", "schedule": OnDemand(), "seed": 0} | settings)


@pytest.fixture
def study():
    with Study.create(f"memory://columns-{RNG.integers(1 << 60)}", "shop", policy=shop()) as study:
        yield study


def asked(i, items=ITEMS):
    return {"user": USERS.iloc[i % len(USERS)], "items": items}


def test_columns_decide_as_arrays_do(study):
    tables = shop()
    arrays = Study.create("memory://beside-columns", "shop", policy=shop().policy)
    for i in range(12):
        by_columns = study.ask(asked(i), id=f"v{i}")
        by_arrays = arrays.ask(tables.contexts(USERS.iloc[i], ITEMS), id=f"v{i}")
        assert (by_columns.index, by_columns.probability) == (by_arrays.index, by_arrays.probability)
        assert by_columns.arm == ITEMS.sku[by_columns.index]
        for one in (study, arrays):
            one.tell(f"v{i}", float(i % 3 == 0))
        if i == 6:
            assert study.update() == arrays.update() == "version"


def test_a_round_is_on_record_as_it_came(study):
    study.ask(asked(3), id="one")
    table = study.decision("one").question.table
    assert table.sent["user"] == {"age": int(USERS.age[3]), "town": USERS.town[3]}
    assert [row["sku"] for row in table.sent["items"]] == ["a", "b", "c"]
    json.dumps(table.sent)


def test_the_same_columns_get_the_same_answer_whichever_library_brings_them(study):
    answer = study.ask(asked(3), id="one")
    rows = {"user": {"age": int(USERS.age[3]), "town": USERS.town[3]}, "items": ITEMS.to_dict("records")}
    assert study.ask(rows, id="one") == answer


def test_items_come_and_go_by_name(study):
    study.ask(asked(0), id="one")
    assert study.ask(asked(1, ITEMS[:1])).arm == "a"
    assert study.ask(asked(2), available=["c"]).arm == "c"
    more = pd.concat([ITEMS, pd.DataFrame({"sku": ["new"], "topic": ["y"], "price": [9.0]})])
    study.ask(asked(3, more), available=["new"], id="two")
    assert study.decision("two").answer.arm == "new"
    other = "b" if study.decision("one").answer.arm != "b" else "c"
    assert study.tell("one", 1.0, arm=other, reason="sold out").reason == "override"
    assert study.verify().whole
    assert study.replay().equal


def test_a_study_of_columns_opens_with_its_tables_and_goes_on(tmp_path):
    storage = f"sqlite:///{tmp_path / 'shop.db'}"
    with Study.create(storage, "shop", policy=shop()) as study:
        for i in range(9):
            study.ask(asked(i), id=f"v{i}")
            study.tell(f"v{i}", float(i % 2))
        study.ask({"user": {"age": None, "town": "Rome"}, "items": ITEMS})
        study.update()
        wanted, seen = study.ask(asked(4), id="next"), study.status().unseen
    assert seen == {"age": 1, "town": 1}
    with Study.open(storage) as study:
        assert study.ask(asked(4), id="next") == wanted
        assert study.status().unseen == seen
        assert study.settings.tables.key == "sku"
        assert study.verify().whole
        assert study.replay().equal
        study.rollback(0)
        assert study.status().unseen == seen


def test_other_numbers_than_the_columns_make_are_found(study):
    """The hash of the chain protects the record; the encoder is checked besides, as another version may differ."""
    study.ask(asked(1), id="one")
    column = study.settings.tables.users.columns[0]
    object.__setattr__(column, "median", 99.0)
    assert study.verify().whole  # the median stands for gaps alone
    tables = study.settings.tables
    changed = replace(tables.items.columns[0], values=("y", "x"))
    object.__setattr__(tables, "items", replace(tables.items, columns=(changed, *tables.items.columns[1:])))
    assert "not what its columns are encoded as" in study.verify().flaw
    assert not study.replay().equal


BAD = {
    "user alone": ({"user": {"age": 3, "town": "Ulm"}}, "columns of user and items; got user"),
    "arrays": (np.eye(3), "columns of user and items; got an array"),
    "another table": ({"user": {"age": 3, "town": "Ulm"}, "items": ITEMS, "x": 1}, "got user, items, x"),
    "a column missing": ({"user": {"age": 3}, "items": ITEMS}, "user must have the column 'town'"),
    "text for a number": (
        {"user": {"age": "old", "town": "Ulm"}, "items": ITEMS},
        "'age' of user must be .*row 0 has 'old'",
    ),
    "several users": ({"user": USERS, "items": ITEMS}, "user must be one row; got 40"),
    "an item twice": ({"user": USERS.iloc[0], "items": pd.concat([ITEMS, ITEMS])}, "row 3 has 'a' again"),
    "a name that is a gap": ({"user": USERS.iloc[0], "items": ITEMS.assign(sku=None)}, "must be text; row 0 has None"),
    "a column too many": ({"user": USERS.iloc[0], "items": ITEMS.assign(more=1)}, "must not have the column 'more'"),
    "infinite": ({"user": USERS.iloc[0], "items": ITEMS.assign(price=np.inf)}, "'price' of items must be finite"),
    "no items": ({"user": USERS.iloc[0], "items": ITEMS[:0]}, "at least one arm|must"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_the_tables_do_not_have_is_refused_and_nothing_recorded(study, kind):
    bad, says = BAD[kind]
    before = study.status().events
    with pytest.raises(InvalidContexts, match=says):
        study.ask(bad, id="bad")
    with pytest.raises(InvalidContexts, match="names or indices"):
        study.ask(asked(0), available=["gone"])
    assert study.status().events == before


JUNK = [[1], {"a": 1}, b"x", 1j, object(), 10**400, 10**5000, -(10**400), Decimal("Infinity"), Decimal("1e999999")]
JUNK += [float("inf"), "\ud800", np.timedelta64(3, "M")]


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: type(junk).__name__)
@pytest.mark.parametrize("column", ["price", "topic", "sku", "age", "town", "note"])
def test_what_json_does_not_have_is_refused_and_nothing_recorded(column, junk):
    policy = FramePolicy.fit(LinTS, USERS, ITEMS, key="sku", ignore=["note"], seed=0)
    study = Study.create(f"memory://junk-{RNG.integers(1 << 60)}", "shop", policy=policy)
    user, items = {"age": 30, "town": "Ulm"}, [{**row, "note": ""} for row in ITEMS.to_dict("records")]
    (user if column in user else items[1])[column] = junk
    with pytest.raises(InvalidContexts):
        study.ask({"user": user, "items": items})
    assert study.status().events == 1


def test_durations_of_any_unit_are_days():
    users = {"since": np.array([1, 2, 5], "timedelta64[D]")}
    policy = FramePolicy.fit(LinTS, users, arms=["tea", "rum"], seed=0)
    study = Study.create(f"memory://days-{RNG.integers(1 << 60)}", "shop", policy=policy)
    for unit in ("D", "us", "ns"):
        study.ask({"user": {"since": np.array([3], "timedelta64[D]").astype(f"timedelta64[{unit}]")}}, id=unit)
        assert study.decision(unit).question.numbers.tolist() == [3.0]


def test_an_override_by_the_name_of_an_item_that_is_damaged_is_damage(study):
    study.ask(asked(0), id="one")
    (event,) = (event for event in study.events() if event.kind == "decide")
    event.content["sent"]["items"][1].pop("sku")
    with pytest.raises(BrokenStudy, match="items of decision 'one'"):
        item_names(study.settings, event)


def test_arms_and_blocks_are_those_of_the_tables():
    with pytest.raises(InvalidStudy, match="left out where a FramePolicy"):
        Study.create("memory://two-sources", "shop", policy=shop(), arms=["a", "b"])
    named = FramePolicy.fit(LinTS, USERS, arms=["tea", "rum"], schedule=OnDemand(), seed=0)
    study = Study.create("memory://named-arms", "bar", policy=named, control="tea")
    assert study.ask({"user": USERS.iloc[0]}).arm in ("tea", "rum")
    assert study.settings.arms == ("tea", "rum")
    for i in range(30):
        study.tell(study.ask({"user": USERS.iloc[i]}).id, float(i % 2))
    assert len(study.analysis().means) == 2
    assert {"always tea", "always rum"} <= {judged.target for judged in evaluate(study.log())}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_an_export_has_what_came_and_the_names_of_items(study, tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    for i in range(3):
        study.ask(asked(i), id=f"v{i}")
    records = list(study.decisions())
    study.export(tmp_path / f"log.{suffix}")
    table = open_table(tmp_path / f"log.{suffix}")
    rows = [dict(zip(table.header, line, strict=True)) for _, line in table.lines]
    assert [row["name"] for row in rows] == [record.answer.arm for record in records]
    assert [json.loads(row["sent"]) for row in rows] == [record.question.table.sent for record in records]
    assert np.array_equal(read_log(tmp_path / f"log.{suffix}").contexts, study.log().contexts)
    empty = Study.create(f"memory://empty-{suffix}", "shop", policy=shop())
    assert next(empty.csv_text()).splitlines()[0].split(",")[:6] == table.header[:6]


def test_the_schema_has_every_column(study):
    schema = study.request_schema()
    assert schema["required"] == ["user", "items"]
    assert schema["properties"]["user"]["properties"]["age"] == {"type": ["number", "boolean", "null"]}
    assert schema["properties"]["items"]["items"]["properties"]["topic"]["examples"] == ["x", "y"]


VALUES = st.one_of(
    st.integers(-(2**70), 2**70).map(float),
    st.floats(allow_infinity=False, width=32).map(np.float32),
    st.decimals(-(10**6), 10**6, places=2),
    st.booleans(),
    st.none(),
    st.timedeltas(dt.timedelta(-(10**4)), dt.timedelta(10**4)),
)


@given(
    st.lists(VALUES, min_size=2, max_size=5), st.lists(st.datetimes(dt.datetime(1990, 1, 1)), min_size=2, max_size=5)
)
def test_what_is_on_record_is_encoded_as_what_came(numbers, days):
    """Values of any library become JSON, and that becomes the same numbers."""
    rows = min(len(numbers), len(days))
    sample = {"n": [1.0, None, 3.0], "d": [dt.datetime(2031, 5, 17), None, dt.datetime(2031, 9, 1, 12)]}
    tables = FramePolicy.fit(LinUCB, items=sample).tables
    came = {"n": numbers[:rows], "d": days[:rows]}
    asked = tables.asked({"items": came})
    np.testing.assert_allclose(asked.numbers, tables.items(came).ravel(), rtol=1e-12)
    assert tables.fits(json.loads(json.dumps(asked.sent)), asked.numbers)


def test_decimals_of_categories_keep_their_names():
    tables = FramePolicy.fit(LinUCB, items={"size": ["2", "0.5", "7"]}).tables
    asked = tables.asked({"items": {"size": [Decimal("2.00"), Decimal("0.50")]}})
    np.testing.assert_array_equal(asked.numbers, tables.items({"size": [2, 0.5]}).ravel())
