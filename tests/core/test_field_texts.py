"""Texts of fields in help(), and everything else as it was."""

import inspect
import pickle
import pydoc
from dataclasses import dataclass

import pytest

import rarely
from rarely._core import field_texts
from rarely._core.field_texts import FieldTexts, show_fields
from rarely.offpolicy import Estimate
from rarely.planning import TrialPoint
from rarely.study import Answer, Status

SHOWN = [rarely.UpdateRecord, rarely.Decision, rarely.PolicyEvent, Answer, Status, Estimate, TrialPoint]


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__name__)
def test_help_shows_every_field_before_the_examples(kind):
    text = pydoc.plain(pydoc.render_doc(kind))
    section = text.partition("Attributes\n")[2].partition("Examples\n")[0]
    fields = getattr(kind, "__dataclass_fields__", None) or kind._fields
    assert section
    for name in fields:
        assert name.startswith("_") or f" {name} : " in section


def test_a_text_stands_under_its_field():
    text = inspect.getdoc(rarely.UpdateRecord)
    assert "samples : int\n    Rewards that it learned from.\n" in text
    assert "coverage : float | None\n    Of the rewards of the version before:" in text
    assert "    when it decided." in text, "further lines are indented too"
    assert rarely.UpdateRecord.__doc__ == text


def test_an_abstract_class_has_its_docstring_in_help_and_its_fields_in_doc():
    # pydoc reads the docstring of a class with a metaclass past all descriptors.
    assert "B batches of T/B rounds" in pydoc.render_doc(rarely.FixedGrid)
    assert "horizon : int\nbatches : int\n" in rarely.FixedGrid.__doc__


def test_sections_that_are_written_stay_as_they_are():
    for kind in (rarely.Limits, rarely.Training, rarely.FrameEncoder):
        assert not isinstance(vars(kind)["__doc__"], FieldTexts)
        assert inspect.getdoc(kind).count("Attributes\n---") + inspect.getdoc(kind).count("Parameters\n---") == 1


@dataclass(frozen=True, slots=True)
class Pair:
    """Two numbers."""

    left: int
    _hidden: int = 0
    """Not shown."""
    right: float = 1.0
    """The second
    of two."""

    @property
    def total(self):
        """The sum."""
        return self.left + self.right


def test_a_class_without_examples_and_without_source():
    names = {"Pair": Pair, "__all__": ["Pair", "pi"], "pi": 3}
    show_fields(names)
    assert (
        Pair.__doc__ == "Two numbers.\n\nAttributes\n----------\nleft : int\nright : float\n    The second\n    of two."
    )
    assert Pair(1).__doc__ == Pair.__doc__
    assert pickle.loads(pickle.dumps(Pair(1))) == Pair(1)
    made = dataclass(type("Made", (), {"__doc__": "Of no file.", "__annotations__": {"a": int}}))
    show_fields({"Made": made, "__all__": ["Made"]})
    assert made.__doc__ == "Of no file."


def test_nothing_is_read_before_somebody_asks(monkeypatch):
    def refuse(thing):
        raise AssertionError("the source was read")

    monkeypatch.setattr(field_texts.inspect, "getsource", refuse)
    show_fields({"Pair": dataclass(type("Pair", (), {"__doc__": "One."})), "__all__": ["Pair"]})
    assert isinstance(vars(rarely.Decision)["__doc__"], FieldTexts)
