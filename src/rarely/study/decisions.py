"""A decision as it is answered, and as it stands in the record.

data    contexts of the arms that were there (N·d numbers, or the r of a row), then N means, bonuses, probabilities,
        and the N probabilities of the shadow version where there is one
body    everything else
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rarely.core.types import Array, BoolArray
from rarely.study.canonical import unpacked
from rarely.study.errors import BrokenStudy
from rarely.study.events import Event
from rarely.study.requests import Question


@dataclass(frozen=True, slots=True)
class Answer:
    """What `ask` answers: the same for the same id and request, for the life of the study.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-answer", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> answer = study.ask([[1.0], [2.0]], id="visit-1")
    >>> answer.arm, answer.index, answer.probability, answer.version
    ('blue', 1, 1.0, 0)
    """

    id: str
    arm: str | int
    """The name of the arm, or its place where arms have no names."""
    index: int
    """Its place, 0 … K−1."""
    probability: float
    """With which it was drawn."""
    version: int
    round: int
    """How many decisions the study has made, this one included."""
    stage: str
    seq: int
    """Its place in the record."""
    time: int
    """Microseconds since 1970 (UTC)."""

    def describe(self) -> dict[str, Any]:
        """The answer as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Record:
    """All that the record says about a decision; arrays hold the arms that were there.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-record", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> _ = study.ask([[1.0], [2.0]], id="visit-1")
    >>> record = study.decision("visit-1")
    >>> record.answer.arm, record.probabilities
    ('blue', array([0., 1.]))
    """

    answer: Answer
    question: Question
    means: Array
    bonuses: Array
    probabilities: Array
    shadow: Array | None
    """Probabilities of the shadow version."""
    shadow_of: int | None
    """The event that holds the shadow version."""
    block: int
    """The first event of the block in which it was decided."""
    draws: int
    """Uniform numbers that the policy's generator had given before."""
    drew: bool
    """Whether this decision took one more."""
    actor: str

    @property
    def present(self) -> BoolArray:
        return self.question.present

    def padded(self, values: Array, absent: float) -> Array:
        """(N,) → (K,)."""
        out = np.full(len(self.present), absent)
        out[self.present] = values
        return out


def answer_of(event: Event, arms: Sequence[str] | None, content: dict[str, Any] | None = None) -> Answer:
    """What was answered."""
    content = event.content if content is None else content
    index = content["arm"]
    assert event.ref is not None
    return Answer(
        event.ref,
        index if arms is None else arms[index],
        index,
        content["probability"],
        content["version"],
        content["round"],
        content["stage"],
        event.seq,
        event.time,
    )


def record_of(event: Event, arms: Sequence[str] | None) -> Record:
    """All that a decision's event says."""
    try:
        content = event.content
        answer = answer_of(event, arms, content)
        present = np.ones(content["arms"], np.bool_)
        if content["present"] is not None:
            present[:] = False
            present[content["present"]] = True
        there, shape = int(present.sum()), tuple(content["shape"])
        sizes = [int(np.prod(shape)), there, there, there]
        sizes += [] if content["shadow"] is None else [there]
        numbers, means, bonuses, probabilities, *shadow = unpacked(event.data, *sizes)
        question = Question(answer.id, numbers.reshape(shape), present, content["request"])
        return Record(
            answer,
            question,
            means,
            bonuses,
            probabilities,
            shadow[0] if shadow else None,
            content["shadow"],
            content["block"],
            content["draws"],
            content["drew"],
            event.actor,
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BrokenStudy(f"event {event.seq} is no decision that can be read ({error!r}). Use a backup.") from error
