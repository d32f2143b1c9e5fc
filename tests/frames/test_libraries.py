"""Frames of pandas, polars and pyarrow become the same numbers as dicts of columns."""

import datetime as dt
import json

import numpy as np
import pytest

from rarely import FrameEncoder, FramePolicy, InvalidContexts, LinUCB

TABLE = {
    "age": [20, None, 40, 33],
    "income": [1.5, 2.5, None, 0.5],
    "town": ["Ulm", None, "Bonn", "Ulm"],
    "member": [True, False, True, None],
    "born": [dt.date(1990, 1, 5), None, dt.date(1985, 3, 1), dt.date(2001, 12, 31)],
    "seen": [dt.datetime(2031, 5, 17, hour) for hour in range(4)],
    "visits": [1, 2, 3, 4],
    "known": [True, False, False, True],
}


def pandas_frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(TABLE | {"town": pandas.Categorical(TABLE["town"])})


def pandas_nullable():
    return pandas_frame().convert_dtypes()


def pandas_zoned():
    frame = pandas_frame()
    return frame.assign(seen=frame["seen"].dt.tz_localize("Asia/Tokyo"))


def pandas_objects():
    return pandas_frame().astype(object)


def polars_frame():
    polars = pytest.importorskip("polars")
    return polars.DataFrame(TABLE).with_columns(polars.col("town").cast(polars.Categorical))


def polars_zoned():
    frame = polars_frame()
    return frame.with_columns(frame["seen"].dt.replace_time_zone("Asia/Tokyo"))


def arrow_table():
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table(TABLE | {"town": pyarrow.array(TABLE["town"]).dictionary_encode()})


FRAMES = [pandas_frame, pandas_nullable, pandas_zoned, pandas_objects, polars_frame, polars_zoned, arrow_table]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.__name__)
def test_a_frame_of_any_library_is_encoded_as_a_dict_of_columns(frame):
    wanted, table = FrameEncoder.fit(TABLE), frame()
    found = FrameEncoder.fit(table)
    assert found.names == wanted.names
    ours, theirs = found.describe(), wanted.describe()
    zones = [{column.pop("zone") for column in described["columns"]} for described in (ours, theirs)]
    assert ours == theirs
    assert zones == [{"", "Asia/Tokyo"} if "zoned" in frame.__name__ else {""}, {""}]
    assert np.array_equal(found(table), wanted(TABLE))
    assert np.array_equal(wanted(table[:2]), wanted(TABLE)[:2])


def test_a_row_of_a_frame_is_one_round():
    frame, encoder = pandas_frame(), FrameEncoder.fit(TABLE)
    assert np.array_equal(encoder(frame.iloc[1]), encoder(TABLE)[1])
    assert np.array_equal(encoder(frame.astype(object).iloc[1]), encoder(TABLE)[1])
    rows = [*frame.astype(object).itertuples(index=False)]
    assert np.array_equal(encoder(rows[1]), encoder(TABLE)[1])
    assert np.array_equal(encoder(rows), encoder(TABLE))
    rows = polars_frame().rows(named=True)
    assert np.array_equal(encoder(rows[3]), encoder(TABLE)[3])
    assert np.array_equal(encoder(rows), encoder(TABLE))


def test_a_moment_has_the_same_numbers_in_every_zone_and_library():
    """Also where a clock is put back, and as text, as a browser sends it."""
    pandas = pytest.importorskip("pandas")
    moments = pandas.date_range("2031-10-26", periods=30, freq="37min", tz="Europe/Berlin")
    encoder = FrameEncoder.fit(pandas.DataFrame({"at": moments}))
    assert encoder.columns[0].zone == "Europe/Berlin"
    wanted = encoder({"at": [*moments]})
    assert np.array_equal(wanted[:, 0], encoder({"at": [*moments.tz_localize(None)]})[:, 0])
    again = FrameEncoder.from_description(json.loads(json.dumps(encoder.describe())))
    utc = moments.tz_convert("UTC")
    for other in (utc, moments.tz_convert("Asia/Kolkata"), [each.isoformat() for each in utc.to_pydatetime()]):
        assert np.array_equal(again({"at": [*other]}), wanted)
    polars = pytest.importorskip("polars")
    assert np.array_equal(again(polars.DataFrame({"at": [*utc.to_pydatetime()]})), wanted)
    mixed = FrameEncoder.fit({"at": ["2031-05-17T08:30:00+02:00", "2031-11-17T08:30:00+01:00"]})
    assert mixed.columns[0].zone == ""  # times of day are those of each value's own
    assert mixed({"at": "2031-05-17T08:30:00+02:00"}).tolist() == mixed({"at": "2031-05-17T08:30:00"}).tolist()


@pytest.mark.parametrize("frame", [pandas_frame, polars_frame, arrow_table], ids=lambda frame: frame.__name__)
def test_a_policy_decides_from_frames(frame):
    policy = FramePolicy.fit(LinUCB, frame(), {"price": [1.0, 2.0, 3.0]})
    decision = policy.select(frame(), {"price": [1.0, 2.0, 3.0]})
    policy.observe(decision, [0.0, 1.0, 0.0, 1.0])
    assert policy.update().samples == 4


def test_long_numbers_of_a_category_stay_apart():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": pandas.array([2**60 + 1, 2**60 + 2, None], dtype="Int64")})
    assert len(FrameEncoder.fit(frame, kinds={"id": "category"}).columns[0].values) == 2


def test_columns_of_an_arrow_batch_with_gaps_are_those_of_a_table():
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"age": [1.5, None, 2.0], "visits": [2**53 + 1, None, 2**53]}
    wanted = FrameEncoder.fit(columns, kinds={"visits": "category"})
    for make in (pyarrow.table, pyarrow.record_batch):
        found = FrameEncoder.fit(make(columns), kinds={"visits": "category"})
        assert found.describe() == wanted.describe()
        assert len(found.columns[1].values) == 2


class FakeArrowArray:
    """An array of pyarrow with a gap, whose `to_numpy` refuses to copy, as that of a record batch does."""

    type, null_count = "double", 1

    def __len__(self):
        return 2

    def to_pylist(self):
        return [1.5, None]

    def to_numpy(self, zero_copy_only=True):
        if zero_copy_only:
            raise ValueError("Needed to copy 1 chunks with 1 nulls, but zero_copy_only was True")
        return np.array([1.5, np.nan])

    def __array__(self, dtype=None, copy=None):
        return self.to_numpy(zero_copy_only=False)


def test_a_column_that_must_be_copied_is_copied():
    assert np.array_equal(FrameEncoder.fit({"a": FakeArrowArray()})({"a": FakeArrowArray()}), [[1.5, 0], [1.5, 1]])


def test_numbers_of_a_category_have_one_key_in_every_library():
    values = [1.5, 2.0, 3.0]
    wanted = FrameEncoder.fit({"plan": values}, kinds={"plan": "category"})
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame({"plan": np.float32(values)}), pandas.DataFrame({"plan": values}, dtype="Float32")]
    for frame in frames:
        assert FrameEncoder.fit(frame, kinds={"plan": "category"}).names == wanted.names
        assert np.array_equal(FrameEncoder.fit(frame, kinds={"plan": "category"})(frame.iloc[1]), [0, 1, 0, 0])


def test_a_lazy_frame_is_refused():
    polars = pytest.importorskip("polars")
    with pytest.raises(InvalidContexts, match="must be a frame of pandas, polars or pyarrow"):
        FrameEncoder.fit(polars.DataFrame({"age": [1, 2]}).lazy())
