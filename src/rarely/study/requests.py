"""What `ask` is given, checked and brought to one form, and the block of contexts that the policy is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rarely.core.errors import InvalidContexts
from rarely.core.inputs.array_reader import read_real
from rarely.core.types import Array, BoolArray
from rarely.study.canonical import canonical, digest, packed
from rarely.study.settings import StudySettings
from rarely.study.texts import check_id, check_text, new_id


class Request(NamedTuple):
    """One decision that is asked for; see `Study.ask`.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-request", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> from rarely.study import Request
    >>> [answer.arm for answer in study.ask_many([Request([[1.0], [2.0]], id="visit-1"), Request({"red": [1.0]})])]
    ['blue', 'red']
    """

    contexts: Any
    id: str | None = None
    available: Any = None
    actor: str = ""
    """Who asks; where it is empty, the actor of the call."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request that was checked."""

    id: str
    numbers: Array
    """(N, d): the contexts of the arms that are there; (r,) where blocks make contexts of a row."""
    present: BoolArray
    """(K,)."""
    hash: str
    """Of the numbers and of the arms that are there: equal for equal requests."""
    actor: str = ""


def read_request(request: Request, settings: StudySettings, dim: int) -> Question:
    """Check a request; contexts that no policy takes are refused here, before anything is decided."""
    id = new_id() if request.id is None else check_id(request.id)
    if settings.blocks is not None:
        numbers = read_real(request.contexts, "row", InvalidContexts)
        width = settings.blocks.rows.dim
        if numbers.shape != (width,):
            raise InvalidContexts(f"this study takes one row of {width} numbers a decision; got {numbers.shape}.")
        assert settings.blocks.arms is not None  # StudySettings refuses blocks without a number of arms
        present = _present(request.available, settings.blocks.arms, settings.arms)
    else:
        numbers, present = _contexts(request, settings, dim)
    if not np.isfinite(numbers).all():
        raise InvalidContexts(
            "contexts must be finite; leave an absent arm out with available, and fill in missing numbers."
        )
    if present is not _everyone(len(present)) and not present.any():
        raise InvalidContexts("at least one arm must be available; got none.")
    numbers = np.array(numbers, np.float64)
    complete = present is _everyone(len(present))
    form = _form(numbers.shape, len(present)) if complete else canonical([numbers.shape, np.flatnonzero(present)])
    hash = digest(form, packed(numbers))
    return Question(id, numbers, present, hash, check_text(request.actor, "actor"))


def _contexts(request: Request, settings: StudySettings, dim: int) -> tuple[Array, BoolArray]:
    contexts, arms = request.contexts, settings.arms
    if isinstance(contexts, Mapping):
        if arms is None or request.available is not None:
            raise InvalidContexts("contexts by name need a study whose arms have names, and no available.")
        unknown = [name for name in contexts if name not in arms]
        if unknown:
            raise InvalidContexts(f"this study has the arms {', '.join(arms)}; got contexts of {unknown[0]!r}.")
        present = np.array([name in contexts for name in arms])
        numbers = read_real([contexts[name] for name in arms if name in contexts], "contexts", InvalidContexts)
        if present.any() and numbers.shape != (present.sum(), dim):
            raise InvalidContexts(f"each context must hold {dim} numbers; got an array of shape {numbers.shape}.")
        return numbers, present
    numbers = read_real(contexts, "contexts", InvalidContexts)
    count = None if arms is None else len(arms)
    if numbers.ndim != 2 or numbers.shape[1] != dim or not len(numbers) or count not in (None, len(numbers)):
        raise InvalidContexts(
            f"contexts must have shape ({'K' if count is None else count}, {dim}), a row for each arm; got "
            f"{numbers.shape}. A study of rows needs blocks=ArmBlocks(…) when it is created."
        )
    present = _present(request.available, len(numbers), arms)
    return numbers if request.available is None else numbers[present], present


def _present(available: Any, count: int, arms: Sequence[str] | None) -> BoolArray:
    """Which arms are there, from their names or places."""
    if available is None:
        return _everyone(count)
    if isinstance(available, str) or not isinstance(available, Sequence | np.ndarray | set | frozenset | tuple):
        raise InvalidContexts(f"available must be a list of the arms that are there; got {available!r}.")
    present = np.zeros(count, np.bool_)
    for arm in available:
        place = arms.index(arm) if arms is not None and isinstance(arm, str) and arm in arms else arm
        if isinstance(place, bool) or not isinstance(place, int | np.integer) or not 0 <= place < count:
            known = f"0 … {count - 1}" if arms is None else ", ".join(arms)
            raise InvalidContexts(f"available must hold names or places of the arms ({known}); got {arm!r}.")
        present[place] = True
    return present


@lru_cache
def _everyone(count: int) -> BoolArray:
    """All arms; one array for all questions, so that it is known by its identity."""
    present = np.ones(count, np.bool_)
    present.flags.writeable = False
    return present


@lru_cache
def _form(shape: tuple[int, ...], count: int) -> str:
    """The part of a hash that says which numbers there are, where all arms are there."""
    return canonical([shape, np.arange(count)])


def is_complete(question: Question) -> bool:
    """Whether all arms are there."""
    present = question.present
    return present is _everyone(len(present)) or bool(present.all())


def block_of(questions: Sequence[Question], settings: StudySettings) -> tuple[Any, BoolArray | None]:
    """Contexts (n, K, d) and mask (n, K), None where every arm is there, as `Policy.select` takes them."""
    alike = len({id(question.present) for question in questions}) == 1
    if alike and settings.blocks is None and is_complete(questions[0]):
        return np.stack([question.numbers for question in questions]), None
    width = max(len(question.present) for question in questions)
    present = np.zeros((len(questions), width), np.bool_)
    for i, each in enumerate(questions):
        present[i, : len(each.present)] = each.present
    mask = None if present.all() else present
    if settings.blocks is not None:
        return settings.blocks(np.stack([question.numbers for question in questions])), mask
    if mask is None:
        return np.stack([question.numbers for question in questions]), None
    contexts = np.zeros((*present.shape, questions[0].numbers.shape[1]))
    for i, each in enumerate(questions):
        contexts[i, present[i]] = each.numbers
    return contexts, mask
