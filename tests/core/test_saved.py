"""Fields are read once, each with what must hold of it."""

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from rarely import SnapshotError
from rarely._core.saving.fields import Fields


def fields(**values):
    numbers = {name: value for name, value in values.items() if not isinstance(value, np.ndarray)}
    return Fields("part", numbers, {name: value for name, value in values.items() if isinstance(value, np.ndarray)})


def refused(sentence):
    return pytest.raises(SnapshotError, match=re.escape(sentence))


def test_what_fits_is_handed_out():
    with fields(a=1.5, b=3, c=True, d="red", e=np.arange(6.0).reshape(2, 3)) as saved:
        assert saved.number("a") == 1.5
        assert saved.whole("b") == 3
        assert saved.flag("c") is True
        assert saved.text("d") == "red"
        assert saved.array("e", (None, 3)).sum() == saved.array("e", None).sum() == 15


@pytest.mark.parametrize("value", [None, "1", True, [1], {}, math.nan, math.inf, -math.inf, np.ones(1)])
def test_other_numbers_are_refused(value):
    with refused("part.a"):
        fields(a=value).number("a")


@pytest.mark.parametrize("value", [None, "1", True, [1], 1.0, math.nan])
def test_other_whole_numbers_are_refused(value):
    with refused("a whole number"):
        fields(a=value).whole("a")


@pytest.mark.parametrize("value", [0, 1, None, "true"])
def test_a_flag_is_true_or_false(value):
    with refused("must hold true or false in part.a, not"):
        fields(a=value).flag("a")


@pytest.mark.parametrize(
    ("array", "asked", "sentence"),
    [
        (np.zeros((2, 3)), {"shape": (3, 2)}, "an array of shape (3, 2) in part.a, not of shape (2, 3)"),
        (np.zeros((2, 3)), {"shape": (None, 2)}, "an array of shape (n, 2) in part.a, not of shape (2, 3)"),
        (np.zeros(2), {"shape": (2, 1)}, "an array of shape (2, 1) in part.a, not of shape (2,)"),
        (np.zeros(()), {"shape": (1,)}, "an array of shape (1,) in part.a, not of shape ()"),
        (np.zeros(2, np.float32), {"shape": (2,)}, "an array of float64 in part.a, not one of float32"),
        (np.zeros(2), {"shape": (2,), "dtype": "single"}, "an array of float32 in part.a, not one of float64"),
        (np.zeros(2), {"shape": (2,), "dtype": "int"}, "an array of int64 in part.a, not one of float64"),
        (np.zeros(2, int), {"shape": (2,), "dtype": "bool"}, "an array of bool in part.a, not one of int64"),
        (np.array([1, np.nan]), {"shape": (2,)}, "an array of finite numbers in part.a"),
        (np.array([1, np.inf]), {"shape": (2,), "missing": True}, "an array of finite numbers, or NaN in part.a"),
    ],
)
def test_other_arrays_are_refused(array, asked, sentence):
    with refused(sentence):
        fields(a=array).array("a", **asked)


def test_a_number_is_no_array():
    with refused("must hold an array in part.a, not 1"):
        fields(a=1).array("a", (1,))


def test_missing_numbers_single_precision_and_flags_can_be_allowed():
    saved = fields(a=np.array([1, np.nan]), b=np.ones(2, np.float32), c=np.array([True]))
    assert np.isnan(saved.array("a", (2,), missing=True)[1])
    assert saved.array("b", (2,), "single").sum() == 2
    assert saved.array("c", (1,), "bool").all()


@given(
    array=arrays_of.arrays(np.float64, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    shape=st.lists(st.none() | st.integers(0, 3), max_size=3).map(tuple),
)
def test_a_shape_fits_or_is_refused(array, shape):
    fits = len(shape) == array.ndim and all(a in (None, b) for a, b in zip(shape, array.shape, strict=False))
    if fits and np.isfinite(array).all():
        assert fields(a=array).array("a", shape) is array
    else:
        with refused("part.a"):
            fields(a=array).array("a", shape)


def test_a_field_that_is_not_there_is_named():
    for read in (lambda f: f.number("b"), lambda f: f.array("b", ()), lambda f: f.flag("b")):
        with refused("must hold part.b, but does not"):
            read(fields(a=1))


def test_what_nothing_has_read_is_refused_at_the_end():
    with refused("holds part.a, which this version does not know"), fields(a=1, b=np.zeros(1)) as saved:
        saved.array("b", (1,))


def test_an_error_inside_is_not_hidden_by_what_is_left_over():
    def failing():
        with fields(a=1):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()


def test_parts_inside_have_numbers_and_arrays_of_their_own():
    saved = Fields("outer", {"inner": {"a": 1}, "b": 2}, {"inner.c": np.zeros(2), "d": np.ones(1)})
    with saved:
        with saved.inner("inner") as inner:
            assert inner.whole("a") == 1
            assert inner.array("c", (2,)).sum() == 0
        saved.whole("b")
        saved.array("d", (1,))
    with refused("must hold fields in outer.inner, not 3"):
        Fields("outer", {"inner": 3}, {}).inner("inner")
    with refused("holds outer.inner.a"), Fields("outer", {"inner": {"a": 1}}, {}).inner("inner"):
        pass


def test_the_fields_of_the_whole_have_no_place():
    saved = Fields("", {"a": 1, "inner": {"b": "x"}}, {})
    with refused("must hold a finite number in inner.b, not 'x'"):
        saved.inner("inner").number("b")
    with refused("must hold true or false in a, not 1"):
        saved.flag("a")
    with refused("holds c, which"):
        Fields("", {"c": 1}, {}).finish()


def test_a_name_stands_for_one_thing():
    with refused("holds part.a twice"):
        Fields("part", {"a": 1}, {"a": np.zeros(1)})


def test_null_and_text_are_read():
    with fields(a=None, b="0f", c=[1, "x"], d={"any": 1}) as saved:
        assert saved.is_null("a")
        assert saved.text("b") == "0f"
        assert saved.value("c") == [1, "x"]
        assert saved.value("d") == {"any": 1}
    saved = fields(b="0f\n", c=1, d=np.zeros((2, 1)))
    with refused("must hold text in part.c"):
        saved.text("c")
    assert not saved.is_null("c")
    assert not saved.is_null("d")
    for read in (saved.is_null, saved.value):
        with refused("must hold part.z, but does not"):
            read("z")


class Part(NamedTuple):
    count: int
    share: float | None = None
    names: tuple[str, ...] = ()


@dataclass
class Whole:
    parts: tuple[Part, ...]
    first: tuple[int, str]
    kept: bool = True


def test_values_are_read_by_their_annotations():
    parts = [[3, 0.5, ["a"]], {"count": 0, "share": None, "names": []}]
    with fields(parts=parts, first=[1, "x"]) as saved:
        assert saved.made(Whole, kept=False) == Whole((Part(3, 0.5, ("a",)), Part(0)), (1, "x"), kept=False)
    with fields(one=2**63 - 1, other=7, none=float("nan")) as saved:
        assert saved.of("one", int) == 2**63 - 1
        assert saved.of("other", float) == 7
        assert math.isnan(saved.alike("none", 0))


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ([[3, 0.5, "a"]], "must hold a list in part.parts.0.names, not 'a'"),
        ([[3, 0.5]], "must hold fields in part.parts.0, not [3, 0.5]"),
        ([[True, None, []]], "a whole number from 0 to 9223372036854775807 in part.parts.0.count, not True"),
        ([[-1, None, []]], "in part.parts.0.count, not -1"),
        ([[2**63, None, []]], "in part.parts.0.count"),
        ([[1.0, None, []]], "in part.parts.0.count"),
        ([[1, 10**400, []]], "must hold a number in part.parts.0.share"),
        ([{"count": 1, "names": []}], "must hold part.parts.0.share, but does not"),
        ([{"count": 1, "share": None, "names": [], "x": 1}], "holds part.parts.0.x, which this version does not know"),
        ({"0": [1, None, []]}, "must hold a list in part.parts"),
    ],
)
def test_values_with_another_field_are_refused_by_its_name(parts, sentence):
    with refused(sentence):
        fields(parts=parts, first=[1, "x"], kept=True).made(Whole)
    with refused("a list of 2 values in part.first"):
        fields(parts=[], first=[1], kept=True).made(Whole)


def test_ranges_are_kept():
    saved = fields(a=-1, b=2**53 + 1, c=0.0)
    for read in (lambda: saved.whole("a"), lambda: saved.whole("b"), lambda: saved.number("c", above=0.0)):
        with refused("must hold"):
            read()
    assert saved.whole("a", -1) == -1
    assert saved.number("c", 0.0) == 0
    with refused("must hold two of a kind in part"):
        saved.check(False, "two of a kind")


def test_long_values_are_cut_short():
    with refused("not [0, 0, ") as caught:
        fields(a=[0] * 10**5).number("a")
    assert len(str(caught.value)) < 200
