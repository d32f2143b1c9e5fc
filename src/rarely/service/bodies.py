"""Request and response bodies: their schemas, as `/openapi.json` describes them, how requests are read and refused.

A request is strict JSON in UTF-8, with finite numbers, unique names and a limited length. A refused one is answered
with the HTTP status of the error and its description after RFC 9457.
"""

from __future__ import annotations

import json
import re
from math import inf
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    SecretStr,
    Tag,
    ValidationError,
    create_model,
    model_validator,
)
from starlette.requests import Request
from starlette.responses import Response

from rarely.errors import InvalidInput, RarelyError
from rarely.study import Answer, PublishedVersion, Receipt, errors
from rarely.study.decision import are_numbers
from rarely.study.settings import parse_json

MAX_ERRORS = 3  # validation errors that an answer lists
MAX_FEATURES = 10_000  # numbers in a context
_ADDRESS = re.compile(r"\b(sqlite|postgres(ql)?|memory)://[^\s,;)]+[^\s,;).:]")
MEDIA, FORM = "application/problem+json", "application/x-www-form-urlencoded"
_STATUSES: tuple[tuple[int, tuple[type[RarelyError], ...]], ...] = (
    (404, (errors.UnknownStudy, errors.UnknownDecision)),
    (409, (errors.StudyConflict, errors.StudyExists, errors.StudyFull, errors.StudyPinned, errors.EnrolmentClosed)),
    (409, (errors.ApprovalNeeded, errors.StaleTrainer, errors.Erased)),
    (503, (errors.InvalidStorage, errors.BrokenStudy)),
    (422, (InvalidInput,)),
    (503, (errors.StudyError,)),
    (409, (RarelyError,)),
)
"""The first match counts. Errors of the database or of a damaged study may be temporary: 503."""
Id = Annotated[str, Field(min_length=1, max_length=200, description="Printable characters, no spaces at the ends.")]
Reason = Annotated[str, Field(max_length=2000, description="Recorded.")]
Numbers = Annotated[list[FiniteFloat], Field(max_length=MAX_FEATURES)]


def _form(contexts: Any) -> str:
    """Return which form of contexts is meant, so that errors are reported for that form only."""
    if isinstance(contexts, dict):
        return "by columns" if contexts.keys() & {"user", "items"} and not are_numbers(contexts) else "by name"
    return "row" if isinstance(contexts, list) and contexts and not isinstance(contexts[0], list) else "rows"


Row = Annotated[dict[str, str | bool | int | FiniteFloat | None], Field(max_length=MAX_FEATURES)]


class RequestBody(BaseModel):
    """A request's body: no unknown fields, and no numbers as text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Columns(RequestBody):
    """One round by columns: a user, items, or both."""

    user: Row | None = None
    items: list[Row] | None = None


Contexts = Annotated[
    Annotated[list[Numbers], Tag("rows")]
    | Annotated[Numbers, Tag("row")]
    | Annotated[dict[str, Numbers], Tag("by name")]
    | Annotated[Columns, Tag("by columns")],
    Discriminator(_form),
]

Worths = FiniteFloat | Id | Numbers | dict[str, FiniteFloat]
"""One number, the name of a column of items, a number for each arm, or numbers by the names of arms."""


class WorthBody(RequestBody):
    """What outcomes are worth: gain times outcome, less cost."""

    gain: Worths = 1.0
    cost: (
        Worths | Annotated[list[FiniteFloat | None], Field(max_length=MAX_FEATURES)] | dict[str, FiniteFloat | None]
    ) = Field(0.0, description="What showing an arm costs; null for an arm that is not available.")
    spends: Worths | None = None

    def fields(self) -> dict[str, Any]:
        """Return what `Worth` is made of: JSON has no infinite cost."""
        cost: Any = self.cost
        if isinstance(cost, list):
            cost = [inf if each is None else each for each in cost]
        elif isinstance(cost, dict):
            cost = {arm: inf if each is None else each for arm, each in cost.items()}
        return self.model_dump() | {"cost": cost}


class DecideRequest(RequestBody):
    """A request for one decision."""

    contexts: Contexts | None = Field(
        None,
        description="A context for each arm, contexts by the names of the arms, one row if the study has blocks, or "
        "columns.",
    )
    user: Row | None = Field(None, description="The user's row, where requests come by columns.")
    items: list[Row] | None = Field(None, description="Rows of the items to choose among, by columns.")
    id: Id | None = Field(None, description="The same id and contexts get the same answer; null makes a new id.")
    available: list[str | int] | None = Field(None, description="Names or indices of the available arms.")
    worth: Worths | WorthBody | None = Field(
        None, description="What outcomes are worth: its gain alone, or gain and cost."
    )

    slots: int | None = Field(None, ge=1, description="How many arms are shown, in order: a slate.")
    user_id: Id | None = Field(None, description="The user who keeps an arm, or is held out.")

    @model_validator(mode="after")
    def _asks_in_one_way(self) -> DecideRequest:
        columns = self.user is not None or self.items is not None
        if columns == (self.contexts is not None):
            raise ValueError("give either contexts, or the columns of user and items")
        return self

    @property
    def asked(self) -> Any:
        """What `Study.ask` takes as contexts."""
        if self.contexts is None or isinstance(self.contexts, Columns):
            source: Any = self if self.contexts is None else self.contexts
            return {name: rows for name in ("user", "items") if (rows := getattr(source, name)) is not None}
        return self.contexts


class RewardRequest(RequestBody):
    """The reward of a decision."""

    id: Id
    reward: FiniteFloat | dict[str, FiniteFloat] | list[FiniteFloat] = Field(
        description="A number, outcomes by name, or the rewards of a slate's slots."
    )
    seen: int | None = Field(None, ge=0, description="The last slot of a slate that was seen; null for all.")
    key: Id | None = Field(None, description="Which of several rewards of the decision it is.")
    arm: str | int | None = Field(None, description="The arm that a person gave instead of the one decided.")
    reason: Reason = ""


class SignedRequest(RequestBody):
    """The reason of an action."""

    reason: Reason = ""


class ActivateRequest(SignedRequest):
    """Which version is to decide."""

    version: int | Literal["next", "candidate"] = Field(
        description='"next" trains one on the rewards so far, "candidate" approves the one that awaits approval, a '
        "number rolls back to an earlier one."
    )
    force: bool = Field(False, description='Train "next" even if no reward came since the last update.')


class ActRequest(SignedRequest):
    """A button of the dashboard."""

    act: Literal["approve", "dismiss", "pin", "unpin", "rollback"]
    version: str = Field("", description="The number to roll back to.")
    token: str = Field(description="What the page holds, so that no other page can press its buttons.")


class CloseRequest(SignedRequest):
    """What gets no further patients, and the second person who agrees."""

    arm: str | None = Field(None, description="The arm; without one, enrolment.")
    approval: SecretStr = Field(description="The key of a second person, with the scope approve.")


class EraseRequest(SignedRequest):
    """Persons of whom contexts, ids and texts are erased. The reason stays on record: name nobody in it."""

    ids: list[Id | int] = Field(min_length=1, description="Their ids.")
    by: Id = Field("id", description="What the ids are: id, of decisions; user; or a column of the user's table.")


class PruneRequest(SignedRequest):
    """From before when decisions and rewards are dropped, as far as the version in use does not need them."""

    before: Id | int = Field(description="A day or a moment such as 2026-11-18 (UTC), or the number of an event.")
    dry_run: bool = Field(False, description="Only say how many events and bytes would go.")


class ProblemBody(BaseModel):
    """Why a request was refused (RFC 9457)."""

    title: str
    status: int
    detail: str


class OutcomeBody(BaseModel):
    """What was done."""

    outcome: str
    version: int = Field(description="The version in use.")


class HealthBody(BaseModel):
    """Whether the service can decide."""

    status: Literal["ok", "failed"]
    problems: list[str] = Field(description="What is wrong, without names and paths.")


def _several(name: str, of: Any, base: type[BaseModel] = BaseModel, least: int = 0) -> Any:
    """Return the model of a body with a list of that name."""
    says = f"Several {name}, in order" + (", in one commit." if base is RequestBody else ".")
    listed: Any = (list[of], Field(min_length=least))
    return create_model(f"{name.capitalize()}Body", __base__=base, __doc__=says, **{name: listed})


DecideRequests = _several("requests", DecideRequest, RequestBody, 1)
RewardRequests = _several("rewards", RewardRequest, RequestBody, 1)
SlateBody = _several("slots", Answer | Receipt)
AnswersBody = _several("answers", Answer | SlateBody | ProblemBody)
ReceiptsBody = _several("receipts", Receipt | SlateBody | ProblemBody)
DECIDED, REWARDED = (SlateBody, AnswersBody), (SlateBody, ReceiptsBody)
VersionsBody = _several("versions", PublishedVersion)


def listed(body: BaseModel, *names: str) -> list[Any]:
    """Return the items of a body with a list of one of these names, of which there is at least one; else none.

    >>> listed(RewardRequest(id="a", reward=1.0), "rewards")
    []
    """
    fields = vars(body)  # `getattr` of what a model lacks takes ten times as long
    return next((fields[name] for name in names if name in fields), [])


def media_of(models: tuple[type[BaseModel], ...]) -> str:
    """Return the media type of a body."""
    return FORM if models == (ActRequest,) else "application/json"


async def read_body(request: Request, models: tuple[type[BaseModel], ...], max_bytes: int) -> Any:
    """Read a request's body as the model that has a field of the body, else the first; `Refusal` if it is invalid."""
    kind, _, parameters = request.headers.get("content-type", "").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind.strip().lower() != (wanted := media_of(models)) or charset not in ("", "utf-8"):
        raise Refusal(415, f"the body must be {wanted} in UTF-8; name it as Content-Type.", "WrongContentType")
    body = await _read_bytes(request, max_bytes)
    value = dict(parse_qsl(body.decode(errors="replace"))) if wanted == FORM else parse(body)
    names = value.keys() if isinstance(value, dict) else set()
    model = next((each for each in models[1:] if each.model_fields.keys() & names), models[0])
    try:
        return model.model_validate(value)
    except ValidationError as error:
        flaws = error.errors(include_url=False, include_context=False, include_input=False)
        places = [".".join(str(part)[:40] for part in flaw["loc"]) or "the body" for flaw in flaws]
        said = "; ".join(f"{place}: {flaw['msg']}" for place, flaw in zip(places[:MAX_ERRORS], flaws, strict=False))
        more = f"; and {len(flaws) - MAX_ERRORS} more" if len(flaws) > MAX_ERRORS else ""
        raise Refusal(422, f"the body does not fit the schema: {said}{more}.", "InvalidBody") from None


async def _read_bytes(request: Request, max_bytes: int) -> bytes:
    too_long = Refusal(413, f"a body may have at most {max_bytes} bytes; send less in one request.", "BodyTooLong")
    length = request.headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or int(length[:20]) > max_bytes:
        raise too_long
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise too_long
    return bytes(body)


def parse(body: bytes) -> Any:
    """Parse strict JSON; `Refusal` if it is not."""
    try:
        return parse_json(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        why = f"it is not UTF-8, at byte {error.start}"
    except ValueError as error:
        why = str(error)
    raise Refusal(400, f"the body must be JSON: {why}.", "InvalidJson")


# --- refusals


class Refusal(RarelyError):
    """A request that is refused before it reaches a study."""

    def __init__(self, status: int, detail: str, code: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.headers = status, code or f"Http{status}", headers or {}


def describe(error: BaseException) -> dict[str, Any]:
    """Return the error as JSON, after RFC 9457; the client raises an error of the name in `title`."""
    if isinstance(error, Refusal):
        return {"title": error.code, "status": error.status, "detail": str(error)}
    status = next((status for status, kinds in _STATUSES if isinstance(error, kinds)), 500)
    detail = str(error) if status != 500 else "the service failed, and nothing was changed; its log says why."
    if status == 503:
        detail = _ADDRESS.sub("the database", detail)  # whose address is in the log
    return {"title": type(error).__name__, "status": status, "detail": detail}


def response_of(error: BaseException) -> Response:
    """Return the response to a refused request."""
    said = describe(error)
    headers = dict(error.headers) if isinstance(error, Refusal) else {}
    if said["status"] == 503:
        headers.setdefault("Retry-After", "1")
    return Response(json.dumps(said), said["status"], headers, MEDIA)
