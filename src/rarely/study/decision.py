"""A decision from request to record: `Request` → `Question` (checked) → `Answer`, and `DecisionRecord`, all of it.

body    everything but the numbers, as canonical JSON
data    contexts of the available arms (N·d numbers, or the r of a row), then N means, bonuses and probabilities; with a
        worth, its N gains and costs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rarely import Decision
from rarely.errors import InvalidContexts
from rarely.extend import Array, BoolArray, Described
from rarely.extend.checks import InvalidSlate, check_whole, read_real, shown
from rarely.extend.provisional import RoundContexts, Worth, all_finite, with_worth, worth_from
from rarely.frames.tables import TableRound
from rarely.study.errors import BrokenStudy
from rarely.study.events import (
    LARGEST_NUMBER,
    MAX_ARMS_OF_A_DECISION,
    Event,
    arrays_in,
    canonical,
    check_id,
    check_text,
    digest,
    new_id,
    next_event,
    packed,
)
from rarely.study.settings import StudySettings


class Request(NamedTuple):
    """A request for one decision; see `Study.ask`.

    Examples
    --------
    >>> Request({"red": [1.0], "blue": [2.0]}, id="visit-1", actor="shop").id
    'visit-1'
    """

    contexts: Any
    id: str | None = None
    available: Any = None
    actor: str = ""  #: Who asks; if empty, the actor of the call.
    worth: Any = None  #: What outcomes are worth; see `Study.ask`.
    slots: int | None = None  #: How many arms are shown.
    user: str | None = None  #: The id of the user; see `Policy.under`.


Requests = Iterable[Request | tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Question:
    """A request that was checked."""

    id: str
    numbers: Array
    """(N, d): contexts of the available arms; (r,) if blocks make them of a row; as in `TableRound` of columns."""
    present: BoolArray  # (K,): which arms are available
    hash: str  # a hash of the numbers and the available arms: equal for equal requests
    actor: str = ""
    table: TableRound | None = None  # what came by columns
    worth: Worth | None = None  # (K,): what outcomes are worth; None for as they are
    slots: int = 0  # how many slots are to be filled; 0 for a single arm
    slot: tuple[str, int, int] | None = None
    """The id of the slate, its slot from 1 on, and how many there are; None for a decision that is no slot."""
    user: str | None = None

    def without(self, closed: Sequence[int]) -> Question:
        """Return the question without some of its arms."""
        kept = self.present.copy()
        kept[list(closed)] = False
        by_arm = self.table is None and self.numbers.ndim == 2
        numbers = self.numbers[kept[self.present]] if by_arm else self.numbers
        return replace(self, present=kept, numbers=numbers)

    def at(self, slot: int, above: Sequence[int]) -> Question:
        """Return what is asked in a slot, counted from 1, below these arms."""
        mark, place = (self.id, slot, self.slots), canonical([slot, self.slots, list(above)])
        hash = digest(self.hash, place)
        return replace(self.without(above), id=slot_id(self.id, slot), hash=hash, slots=0, slot=mark)


def slot_id(id: str, slot: int) -> str:
    """Return the id of a slate's slot, counted from 1, which is a decision of its own."""
    return check_id(f"{id}#{slot}")


def slate_ids(content: Mapping[str, Any]) -> list[str]:
    """Return the ids of the slate that a decision is a slot of, and of all of its slots; none where it is no slot."""
    slate, _, slots = content.get("slot", ("", 0, 0))
    return [slate, *(slot_id(slate, slot) for slot in range(1, slots + 1))] if slate else []


class Slate(tuple[Any, ...]):
    """The answers to a slate's slots, or the receipts of their rewards, in order.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://example-slate", "songs", policy=LinUCB(dim=1, seed=0))
    >>> [answer.arm for answer in study.ask([[1.0], [3.0], [2.0]], id="visit-1", slots=2)]
    [1, 0]
    >>> [receipt.id for receipt in study.tell("visit-1", [0.0, 1.0], seen=2)]
    ['visit-1#1', 'visit-1#2']
    """

    __slots__ = ()

    def describe(self) -> dict[str, Any]:
        """Return the slots as JSON."""
        return {"slots": [each.describe() for each in self]}


@dataclass(frozen=True, slots=True)
class Answer(Described):
    """The answer of `ask`: the same for the same id and request, for the life of the study.

    Examples
    --------
    >>> answer = Answer("visit-1", "blue", 1, probability=0.8, version=0, round=1, stage="main", seq=2, time=10**15)
    >>> answer.describe()["arm"]
    'blue'
    """

    id: str
    arm: str | int  #: The name of the arm, or its index if arms have no names.
    index: int  #: The index of the arm, 0 … K−1.
    probability: float  #: The probability with which the arm was drawn.
    version: int
    round: int  #: The number of decisions of the study so far, this one included.
    stage: str
    seq: int  #: The number of its event in the record.
    time: int  #: Microseconds since 1970 (UTC).


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """Everything on record about a decision; arrays hold the available arms.

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
    block: int  #: The first event of the block in which it was decided.
    held_out: bool | None  #: Whether a lot decided; see `Decision.held_out`.
    actor: str
    price: float | None = None  #: The worth of a unit of the policy's `Ceiling`; None without one.
    limits: str = ""  #: Which of "cap", "ceiling", "sticky" and "holdout" had a say; see `Policy.under`.
    erased: bool = False  #: Whether contexts and ids were erased, with zeros in their place.

    @property
    def present(self) -> BoolArray:
        """(K,): which arms were available."""
        return self.question.present

    def padded(self, values: Array, absent: float) -> Array:
        """Return (N,) values of the available arms as (K,) values of all arms."""
        return spread(values, self.present, absent)


def spread(values: Array, present: BoolArray, absent: float) -> Array:
    """Return (N,) values of the available arms as (K,) values of all arms."""
    out = np.full(len(present), absent)
    out[present] = values
    return out


# --- requests


def read_request(request: Request, settings: StudySettings, dim: int) -> Question:
    """Check a request, so that contexts that no policy accepts are refused before anything is decided."""
    id = new_id() if request.id is None else check_id(request.id)
    table = None if settings.tables is None else settings.tables.asked(request.contexts)
    if table is not None:
        numbers, present = table.numbers, _present(request.available, table.arms, table.names)
    elif settings.blocks is not None:
        numbers = read_real(request.contexts, "row", InvalidContexts)
        width = settings.shared
        if numbers.shape != (width,):
            raise InvalidContexts(f"this study takes one row of {width} numbers per decision; got {numbers.shape}.")
        assert settings.blocks.arms is not None  # StudySettings refuses blocks without a number of arms
        present = _present(request.available, settings.blocks.arms, settings.arms)
    else:
        numbers, present = _contexts(request, settings, dim)
    worth, user = None, None if request.user is None else check_id(request.user, "user")
    if request.worth is not None:
        worth, open_arms = _worth(request.worth, present, settings, table)
        if settings.tables is None and settings.blocks is None:  # else the numbers are not by arm
            numbers = numbers[open_arms[present]]
        present = open_arms
    if not all_finite(numbers):
        raise InvalidContexts("contexts must be finite; leave out an unavailable arm with available, and fill in gaps.")
    if not present.any():
        raise InvalidContexts("at least one arm must be available; got none.")
    numbers = np.array(numbers, np.float64)
    there = np.flatnonzero(present).tolist()
    if table is None:
        hash = digest(canonical([numbers.shape, there]), packed(numbers))
    else:  # other text may become the same numbers
        hash = digest(canonical([table.sent, there]))
    hash = hash if worth is None else digest(hash, canonical(worth.describe()))
    hash = hash if user is None else digest(hash, "user", user)
    if request.slots is not None:
        check_whole("slots", request.slots, 1, InvalidSlate)
        if request.slots > len(there):
            raise InvalidSlate(f"a slate must have at most as many slots as arms, {len(there)}; got {request.slots}.")
        slot_id(id, request.slots)
    actor, slots = check_text(request.actor, "actor"), int(request.slots or 0)
    return Question(id, numbers, present, hash, actor, table, worth, slots, user=user)


def _worth(
    asked: Any, present: BoolArray, settings: StudySettings, table: TableRound | None
) -> tuple[Worth, BoolArray]:
    """Return the worth of a request, (K,), and which arms it leaves."""
    if settings.tables is not None and table is not None:
        asked = settings.tables.worth(asked, table.sent.get("items"))
    else:
        asked = worth_from(asked).of_arms(settings.arms or ())
    rounds = with_worth(
        RoundContexts(np.zeros((1, len(present), 0)), present[None], len(present), True), asked, ceiling=True
    )
    return rounds.worth[0], rounds.present[0]


def _contexts(request: Request, settings: StudySettings, dim: int) -> tuple[Array, BoolArray]:
    """Return (N, d) contexts of the available arms and (K,) which those are."""
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
    fits = numbers.ndim == 2 and numbers.shape[1] == dim and 0 < len(numbers) <= MAX_ARMS_OF_A_DECISION
    if not fits or count not in (None, len(numbers)):
        raise InvalidContexts(
            f"contexts must have shape ({'K' if count is None else count}, {dim}), a row for each arm; got "
            f"{numbers.shape}. For one row per decision create the study with blocks=ArmBlocks(…)."
        )
    present = _present(request.available, len(numbers), arms)
    return numbers if request.available is None else numbers[present], present


def are_numbers(contexts: Mapping[str, Any]) -> bool:
    """Return whether these are contexts of arms that are called "user" or "items"."""
    lists = all(isinstance(each, list | tuple | np.ndarray) and len(each) for each in contexts.values())
    return lists and not any(isinstance(each[0], Mapping) for each in contexts.values())


def read_available(available: Any) -> list[Any]:
    """Return a list of arms as a list; refuse a single text, and what is none."""
    listed = isinstance(available, Iterable) and not isinstance(available, str | Mapping)
    if not listed or (isinstance(available, np.ndarray) and not available.ndim):
        raise InvalidContexts(f"available must be a list of the available arms; got {shown(available)}.")
    return list(available)


def _present(available: Any, count: int, arms: Sequence[str] | None) -> BoolArray:
    if available is None:
        return np.ones(count, np.bool_)
    present = np.zeros(count, np.bool_)
    for arm in read_available(available):
        index = arms.index(arm) if arms is not None and isinstance(arm, str) and arm in arms else arm
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < count:
            all_arms = f"0 … {count - 1}" if arms is None else ", ".join(arms)
            raise InvalidContexts(f"available must hold names or indices of the arms ({all_arms}); got {arm!r}.")
        present[index] = True
    return present


def asked_of(questions: Sequence[Question], settings: StudySettings) -> dict[str, Any]:
    """Return the arguments of `Policy.select` that these questions make."""
    contexts, mask = block_of(questions, settings)
    widths = [len(question.present) for question in questions]
    worth = Worth.joined([question.worth for question in questions], widths, max(widths))
    users = [question.user for question in questions]
    return {"contexts": contexts, "mask": mask, "worth": worth, "user": users if any(users) else None}


def block_of(questions: Sequence[Question], settings: StudySettings) -> tuple[Any, BoolArray | None]:
    """Return contexts (n, K, d) and mask (n, K) as `Policy.select` takes them; None if every arm is available."""
    width = max(len(question.present) for question in questions)
    present = np.zeros((len(questions), width), np.bool_)
    for i, each in enumerate(questions):
        present[i, : len(each.present)] = each.present
    mask = None if present.all() else present
    rounds = [question.numbers for question in questions]
    if settings.blocks is not None:
        return settings.blocks(np.stack(rounds)), mask
    if (tables := settings.tables) is not None:  # which make contexts of all arms
        rounds = [tables.round_contexts(each.numbers, len(each.present)) for each in questions]
    if all(len(numbers) == width for numbers in rounds):
        return np.stack(rounds), mask
    contexts = np.zeros((*present.shape, rounds[0].shape[1]))
    for i, numbers in enumerate(rounds):
        contexts[i, present[i] if tables is None else slice(len(numbers))] = numbers
    return contexts, mask


# --- from the record


def answer_of(event: Event, arms: Sequence[str] | None) -> Answer:
    """Return the answer that was given."""
    content, index = event.content, event.content["arm"]
    decided = {name: content[name] for name in ("probability", "version", "round", "stage")}
    if index is None or not index < content["arms"] or (arms is not None and content["arms"] != len(arms)):
        raise BrokenStudy(f"event {event.seq} decides for arm {index} of {content['arms']}. Use a backup.")
    name = content.get("name", index) if arms is None else arms[index]
    return Answer(id=str(event.ref), arm=name, index=index, seq=event.seq, time=event.time, **decided)


def record_of(event: Event, arms: Sequence[str] | None) -> DecisionRecord:
    """Return everything that a decision's event holds."""
    try:
        content, answer = event.content, answer_of(event, arms)
        present = np.ones(content["arms"], np.bool_)
        if content["present"] is not None:
            present[:] = False
            present[content["present"]] = True
        if not present[answer.index]:
            raise ValueError("the arm was not available")
        numbers, means, bonuses, chances, *worths = arrays_in(event)
        slot = tuple(content["slot"]) if "slot" in content else None
        marks: dict[str, Any] = {"slot": slot, "user": content.get("user")}
        question = Question(answer.id, numbers.reshape(content["shape"]), present, content["request"], **marks)
        if worths:
            columns = (spread(column, present, 0.0) for column in worths)
            question = replace(question, worth=Worth(**dict(zip(content["worth"], columns, strict=True))))
        if "sent" in content:
            question = replace(question, table=TableRound(content["sent"], question.numbers, len(present)))
        decided = (content["block"], content["held_out"], event.actor, content.get("price"), content.get("limits", ""))
        return DecisionRecord(answer, question, means, bonuses, chances, *decided, erased=content.get("erased", False))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BrokenStudy(f"event {event.seq} cannot be read as a decision ({error!r}). Use a backup.") from error


def block_events(
    study: str,
    last: tuple[int, str, int],
    now: int,
    questions: Sequence[Question],
    decision: Decision,
    decided: dict[str, Any],
    signed: dict[str, str],
    unseen: Mapping[str, int] | None = None,
) -> list[Event]:
    """Return the events, after `last`, of questions that were decided together.

    `decided` has what their contents share, stage and version, and `signed` actor and reason; a question's own actor
    comes first. `unseen` counts decisions so far by columns with values that the sample did not have; the events go on
    counting.
    """
    events: list[Event] = []
    counts, first, arms, rounds = Counter(unseen), last[0] + 1, decision.arms.tolist(), decision.rounds.tolist()
    columns = (decision.means, decision.bonuses, decision.probabilities)
    lots, prices = (None if each is None else np.atleast_1d(each) for each in (decision.held_out, decision.price))
    reasons = [decision.reason] * len(arms) if isinstance(decision.reason, str) else decision.reason
    for i, question in enumerate(questions):
        arm, width = arms[i], len(question.present)
        whole = np.count_nonzero(question.present) == width
        here: Any = slice(width) if whole else np.flatnonzero(question.present)
        content = decided | {
            "arm": arm,
            "arms": width,
            "block": first,
            "held_out": None if lots is None else bool(lots[i]),
            "present": None if whole else here.tolist(),
            "probability": float(columns[2][i, arm]),
            "request": question.hash,
            "round": rounds[i],
            "shape": list(question.numbers.shape),
        }
        if (table := question.table) is not None:
            counts.update(table.unseen)
            content |= {"sent": table.sent, "unseen": dict(counts)}
            content |= {"name": table.names[arm]} if table.names else {}
        worths = {} if question.worth is None else asdict(question.worth)
        worths = {name: column[here] for name, column in worths.items() if column is not None}
        content |= {"worth": [*worths]} if worths else {}
        # What the chosen arm's outcome is worth stands here as well, where the database can sum it.
        chosen = {name: float(getattr(question.worth, name)[arm]) for name in ("gain", "cost") if worths}
        content |= {name: value for name, value in chosen.items() if abs(value) < LARGEST_NUMBER}
        price, slot = prices if prices is None else float(prices[i]), question.slot and list(question.slot)
        rare = {"user": question.user, "price": price, "limits": str(reasons[i]) or None, "slot": slot}
        content |= {name: value for name, value in rare.items() if value is not None}
        data = packed(question.numbers, *(column[i, here] for column in columns), *worths.values())
        by = signed | ({"actor": question.actor} if question.actor else {})
        plain = table is None  # else what came may have other types than JSON
        event = next_event(study, last, "decide", now, content, ref=question.id, data=data, plain=plain, **by)
        last = (event.seq, event.hash, event.time)
        events.append(event)
    return events
