"""Columns of every kind as numbers, with their gaps, unknown values and names."""

import datetime as dt
import json
import math
import subprocess
import sys
import warnings
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rarely import ContextsWarning, FrameEncoder, InvalidContexts, InvalidInput
from rarely.extend.checks import TooExpensive
from rarely.frames.columns import bucket_of, key_of
from rarely.logs import DecisionLog

DATES = [dt.date(2031, 5, 17), dt.date(2031, 5, 24), dt.date(2031, 6, 1)]
SAMPLE = {
    "age": [20, None, 40],
    "town": ["Ulm", None, "Bonn"],
    "member": [True, False, True],
    "since": DATES,
}


def plain(encoder, row):
    """One row as numbers, written as plainly as it can be: the oracle of the encoder."""
    out = []
    for column in encoder.columns:
        value, known = row[column.name], row[column.name] is not None
        if column.kind == "number":
            out.append(float(value) if known else column.median)
        elif column.kind == "date":
            day = (value - dt.date(1970, 1, 1)).days if known else None
            out.append(day - column.median if known else 0.0)
            for length in (7, 365.2425):
                angle = 2 * math.pi * day / length if known else None
                out += [math.sin(angle), math.cos(angle)] if known else [0.0, 0.0]
        else:
            out += [float(value == each) for each in column.values]
            out.append(float(value not in column.values and (known or not column.gaps)))
        if column.gaps:
            out.append(float(not known))
    return out


towns = st.sampled_from(["Ulm", "Bonn", "Rome", "", None])
rows = st.fixed_dictionaries(
    {
        "age": st.none() | st.integers(-5, 120) | st.floats(-1e6, 1e6),
        "town": towns,
        "member": st.none() | st.booleans(),
        "since": st.none() | st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)),
    }
)


@given(st.lists(rows, min_size=1, max_size=6))
def test_rows_are_encoded_as_the_plain_oracle_does(table):
    encoder = FrameEncoder.fit(SAMPLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContextsWarning)
        found = encoder(table)
        assert np.allclose(found, [plain(encoder, row) for row in table], rtol=0, atol=1e-9)
        assert np.array_equal(encoder(table[0]), found[0])
        assert np.array_equal(encoder({name: [row[name] for row in table] for name in SAMPLE}), found)


def test_numbers_have_the_names_of_their_columns():
    cycles = ("sine of week", "cosine of week", "sine of year", "cosine of year")
    assert FrameEncoder.fit(SAMPLE).names == (
        *(
            "age",
            "age (missing)",
            "town=Bonn",
            "town=Ulm",
            "town (unknown)",
            "town (missing)",
            "member",
            "since (days)",
        ),
        *(f"since ({cycle})" for cycle in cycles),
    )


def test_a_date_with_a_time_has_the_cycle_of_the_day_in_its_own_zone():
    zone = dt.timezone(dt.timedelta(hours=5))
    times = [dt.datetime(2031, 5, 17, hour, tzinfo=zone) for hour in (0, 6, 12)]
    encoder = FrameEncoder.fit({"at": times})
    assert encoder.names[-2:] == ("at (sine of day)", "at (cosine of day)")
    assert np.allclose(encoder({"at": times})[:, -2:], [[0, 1], [1, 0], [0, -1]])


def test_numbers_of_every_kind_and_durations_are_numbers():
    values = [1, 2.5, Decimal("3.5"), np.float32(4), np.int8(5), True, dt.timedelta(hours=12)]
    found = FrameEncoder.fit({"x": values})({"x": values})
    assert found[:, 0].tolist() == [1, 2.5, 3.5, 4, 5, 1, 0.5]
    assert FrameEncoder.fit({"x": np.array([12, 36], "m8[h]")})({"x": np.array([6], "m8[h]")}) == 0.25


def test_unknown_values_and_new_gaps_are_announced_once():
    encoder = FrameEncoder.fit({"town": ["Ulm", "Bonn"], "age": [1.0, 3.0]})
    with pytest.warns(ContextsWarning, match="'town': 'Rome' was not in the sample"):
        assert encoder({"town": "Rome", "age": 5}).tolist() == [0, 0, 1, 5]
    with pytest.warns(ContextsWarning, match="'age': a gap is filled in and not marked"):
        assert encoder({"town": "Ulm", "age": None}).tolist() == [0, 1, 0, 2]
    assert encoder({"town": None, "age": None}).tolist() == [0, 0, 1, 2]


def test_a_number_can_be_a_category_also_where_gaps_made_it_a_float():
    encoder = FrameEncoder.fit({"zip": [89073, 53111]}, kinds={"zip": "category"})
    assert encoder.names == ("zip=53111", "zip=89073", "zip (unknown)")
    assert encoder({"zip": [89073.0, "53111"]}).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_text_of_many_values_is_hashed_alike_in_every_process():
    words = [f"word {i % 50}" for i in range(100)]
    encoder = FrameEncoder.fit({"word": words}, buckets=8)
    found = encoder({"word": words})
    assert found.shape == (100, 9)
    assert (found.sum(axis=1) == 1).all()
    assert found[:, :8].argmax(axis=1).tolist() == [bucket_of(word, 8) for word in words]
    code = "from rarely.frames.columns import bucket_of; print(*(bucket_of(f'word {i}', 8) for i in range(50)))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert there.split() == [str(bucket_of(f"word {i}", 8)) for i in range(50)]
    marked = FrameEncoder.fit({"word": [*words, None]}, buckets=8)
    assert marked({"word": None}).tolist() == [0] * 9 + [1]


def test_text_whose_values_all_differ_looks_like_an_id():
    with pytest.warns(ContextsWarning, match="as ids do"):
        FrameEncoder.fit({"id": [f"user {i}" for i in range(40)]})
    assert FrameEncoder.fit({"id": ["a", "b"], "x": [1, 2]}, ignore=["id"]).names == ("x",)


def test_dates_as_text_are_dates_unless_one_says_otherwise():
    days = ["2031-05-17", None, "2031-05-19T12:00:00"]
    encoder = FrameEncoder.fit({"day": days})
    assert encoder({"day": "2031-05-17"})[0] == -1.25
    with pytest.raises(InvalidContexts, match=r"'day' of the table must be a date.*row 0 has 'soon'"):
        encoder({"day": "soon"})
    named = FrameEncoder.fit({"day": days}, kinds={"day": "category"})
    assert named({"day": "2031-05-17"}).tolist() == [1, 0, 0, 0]
    assert len(FrameEncoder.fit({"day": ["2031-05-17", "2031-05"]}).names) == 3
    numbered = FrameEncoder.fit({"order": ["2031-05-17-03", "2031-05-17-04", "2031-05-18-01"]})
    assert numbered.columns[0].kind == "category"


@pytest.mark.parametrize("odd", ["", "0000-00-00", "2031-02-29"])
def test_a_text_that_keeps_a_column_from_being_dates_is_named(odd):
    days = ["2031-05-17", odd, "2031-05-19", None]
    with pytest.warns(ContextsWarning, match=f"column 'day'.*{odd!r} is none, so it is a category. Give None"):
        assert FrameEncoder.fit({"day": days}).columns[0].kind == "category"
    dates = FrameEncoder.fit({"day": [None if day == odd else day for day in days]})
    with pytest.raises(InvalidContexts, match="or None; row 0 has"):
        dates({"day": odd})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"town": ["Ulm"], "agee": [1]}, "must have the column 'age'.*Did you mean 'agee'"),
        ({"town": ["Ulm"], "age": [1], "x": [1]}, "must not have the column 'x'"),
        ({"town": ["Ulm", "Bonn"], "age": [1]}, "equally many rows; town has 2, age has 1"),
        ({"town": ["Ulm"], "age": ["old"]}, "'age' of the table must be a number.*row 0 has 'old'"),
        ({"town": ["Ulm"] * 2, "age": [1, math.inf]}, "'age' of the table must be finite; row 1 has inf"),
        ({"town": ["Ulm"], "age": np.ones((1, 2))}, "one value for each row"),
        (3, "must be a frame"),
        ([], "must be a frame"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(table, message):
    encoder = FrameEncoder.fit({"town": ["Ulm", "Bonn"], "age": [20, 40]})
    with pytest.raises(InvalidContexts, match=message):
        encoder(table)


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        ({"x": [None, None]}, {}, r"all are gaps. Give ignore=\['x'\] \(--ignore x\)"),
        ({"x": [1, "a"]}, {}, "the same in all rows; row 1 has 'a'"),
        ({"x": [[1], [2]]}, {}, "row 0 has"),
        ({"x": [1]}, {"kinds": {"y": "hash"}}, "must have the column 'y'"),
        ({"x": [1]}, {"kinds": {"x": "hush"}}, "Did you mean 'hash'"),
        ({"x": [1]}, {"ignore": "x"}, "ignore must be a list of columns"),
        ({"x": [1]}, {"ignore": ["x"]}, "not ignored"),
        ({"x": [1]}, {"buckets": 1}, "buckets must be a whole number"),
        ({}, {}, "equally many rows; there are none"),
    ],
)
def test_a_sample_that_cannot_be_fitted_is_refused(table, settings, message):
    with pytest.raises(InvalidInput, match=message):
        FrameEncoder.fit(table, **settings)


def test_a_description_is_json_and_gives_the_same_encoder():
    sample = SAMPLE | {"word": ["a", None, "a"], "id": [1, 2, 3]}
    encoder = FrameEncoder.fit(sample, kinds={"word": "hash"}, ignore=["id"])
    other = FrameEncoder.from_description(json.loads(json.dumps(encoder.describe())))
    table = SAMPLE | {"word": ["a", None, "d"], "id": [4, 5, 6]}
    assert other.names == encoder.names
    assert np.array_equal(other(table), encoder(table))
    assert other.describe() == encoder.describe()
    assert repr(other).startswith("<FrameEncoder: age: number, town: category,")


def test_the_scale_of_a_short_sample_leaves_cycles_as_they_are():
    encoder = FrameEncoder.fit({"at": [dt.datetime(2031, 5, 17, 12, minute) for minute in range(10)]})
    later = encoder.scale(encoder({"at": [dt.datetime(2031, 11, 17, 0, 0)]}))[0]
    assert np.abs(later[1:] * math.sqrt(7)).max() <= 4


def test_values_that_libraries_of_numbers_refuse_are_gaps_or_text():
    signalling = FrameEncoder.fit({"price": [Decimal("sNaN"), Decimal(1)]})
    assert np.array_equal(signalling({"price": [Decimal("sNaN")]}), [[1.0, 1.0]])
    lists = FrameEncoder.fit({"tags": [["a"], ["b"], ["a"]]}, kinds={"tags": "hash"})
    assert np.array_equal(lists({"tags": [["a"]]}), lists({"tags": ["['a']"]}))
    assert 0 <= bucket_of("\ud800", 64) < 64


def test_a_warning_that_is_an_error_is_raised_again():
    encoder = FrameEncoder.fit({"town": ["Ulm", "Bonn"]})
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ContextsWarning, match="'Rome' was not in the sample"):
                encoder({"town": ["Rome"]})


def test_a_log_is_read_through_an_encoder_of_its_users():
    users = {"age": [20, 30], "town": ["Ulm", "Bonn"]}
    past = {"paid": [1, 0], "offer": ["tea", "rum"], "p": [0.5, 0.5]}
    encoder = FrameEncoder.fit(users)
    log = DecisionLog.from_frame(users | past, arm="offer", reward="paid", probability="p", encoder=encoder)
    assert np.array_equal(log.rows, encoder(users))
    assert log.names == encoder.names


FORMS = [np.float16([1.5, 2, 3]), np.float32([1.5, 2, 3]), list(map(Decimal, ("1.50", "2", "3.000")))]


@pytest.mark.parametrize("values", FORMS, ids=["float16", "float32", "Decimal"])
def test_a_number_of_a_category_has_one_key_whichever_type_holds_it(values):
    encoder = FrameEncoder.fit({"plan": values}, kinds={"plan": "category"})
    assert encoder.names == FrameEncoder.fit({"plan": [1.5, 2, 3]}, kinds={"plan": "category"}).names
    wanted = np.eye(3, 4)
    assert np.array_equal(encoder({"plan": values}), wanted)
    assert np.array_equal(encoder({"plan": [1.5, 2.0, 3]}), wanted)
    assert np.array_equal(encoder({"plan": values[1]}), wanted[1])


@given(st.integers(-(2**70), 2**70), st.integers(0, 3))
def test_whole_decimals_have_the_key_of_the_whole_number(number, zeros):
    assert key_of(Decimal(f"{number}.{'0' * zeros}")) == str(int(float(number)) if float(number) == number else number)


def test_dates_and_durations_of_every_unit_are_days():
    attoseconds = np.array([0, 10**18, 9 * 10**18], "M8[as]")
    found = FrameEncoder.fit({"at": attoseconds})({"at": attoseconds})[:, 0]
    assert np.allclose(found, (np.array([0, 1, 9]) - 1) / 86400, rtol=1e-12)
    assert FrameEncoder.fit({"x": [np.timedelta64(6, "h"), None, np.timedelta64(1, "D")]})({"x": [None]})[0, 0] == 0.625
    for years in (np.array([1, 2], "m8[Y]"), [np.timedelta64(1, "Y")]):
        with pytest.raises(InvalidContexts, match="durations that have a fixed length"):
            FrameEncoder.fit({"x": years})


def test_a_row_of_more_numbers_than_memory_holds_is_refused_before_it_is_made():
    values = [f"value {i}" for i in range(2**16)]
    with pytest.raises(TooExpensive, match="most of them 'town'"):
        FrameEncoder.fit({"age": np.zeros(2**16), "town": values}, max_categories=10**9)
    with pytest.raises(TooExpensive, match="at most 65,536 numbers"):
        FrameEncoder.fit({"town": ["Ulm", "Ulm", "Bonn"]}, kinds={"town": "hash"}, buckets=10**12)
    with pytest.raises(TooExpensive, match="Take fewer rows at a time"):
        FrameEncoder.fit({"town": values[: 2**15] * 4}, max_categories=10**9)


FORGED = [
    {"buckets": 10**12}, {"buckets": -1}, {"kind": "hash"}, {"kind": "moon"}, {"median": math.inf}, {"values": [1, 2]},
    {"values": 3}, {"cycles": ["moon"]}, {"name": 3}, {"gaps": 1}, {"values": ["Ulm"]},
    {"zone": 3}, {"zone": "Atlantis"}, {"zone": "../../etc/passwd"}, {"zone": "9" * 20},
]  # fmt: skip


@pytest.mark.parametrize("forged", FORGED, ids=str)
def test_a_description_that_fit_does_not_make_is_refused(forged):
    description = FrameEncoder.fit({"town": ["Ulm", "Bonn"]}).describe()
    description["columns"][0] |= forged
    with pytest.raises(InvalidInput):
        FrameEncoder.from_description(description)


def test_a_description_of_too_many_buckets_is_refused_before_they_are_made():
    description = FrameEncoder.fit({"town": ["Ulm", "Ulm"]}, kinds={"town": "hash"}).describe()
    description["columns"][0] |= {"buckets": 10**12}
    with pytest.raises(TooExpensive):
        FrameEncoder.from_description(description)


def test_text_in_a_column_of_numbers_is_refused_as_what_the_sample_had():
    encoder = FrameEncoder.fit({"age": [20.0, 30.0]})
    with pytest.raises(InvalidContexts, match=r"'age'.* be a number or a boolean, as in the sample; row 1 has '4'"):
        encoder.transform({"age": [1.0, "4"]})
