"""What the service takes and gives, as `/openapi.json` describes it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, FiniteFloat, Tag

from rarely.study import Answer

WIDEST = 10_000
"""Numbers in a context."""
Id = Annotated[str, Field(min_length=1, max_length=200, description="Printable characters, no spaces at the ends.")]
Reason = Annotated[str, Field(max_length=2000, description="On record.")]
Numbers = Annotated[list[FiniteFloat], Field(max_length=WIDEST)]


def _form(contexts: Any) -> str:
    """Which of the forms of contexts is meant, so that a flaw is told for that form alone."""
    if isinstance(contexts, dict):
        return "by name"
    return "row" if isinstance(contexts, list) and contexts and not isinstance(contexts[0], list) else "rows"


Contexts = Annotated[
    Annotated[list[Numbers], Tag("rows")]
    | Annotated[Numbers, Tag("row")]
    | Annotated[dict[str, Numbers], Tag("by name")],
    Discriminator(_form),
]


class Taken(BaseModel):
    """A body: no field too many, no number as a text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DecideRequest(Taken):
    """One decision that is asked for."""

    contexts: Contexts = Field(
        description="A context for each arm, contexts by the arms' names, or one row where the study has blocks."
    )
    id: Id | None = Field(None, description="The same id and contexts get the same answer; null makes a new id.")
    available: list[str | int] | None = Field(None, description="Names or places of the arms that are there.")


class DecideRequests(Taken):
    """Many decisions, in one commit."""

    requests: list[DecideRequest] = Field(min_length=1)


class RewardRequest(Taken):
    """The reward of a decision."""

    id: Id
    reward: FiniteFloat
    key: Id | None = Field(None, description="Which of several rewards of the decision it is.")


class RewardRequests(Taken):
    """Many rewards, in one commit."""

    rewards: list[RewardRequest] = Field(min_length=1)


class ActivateRequest(Taken):
    """Which version shall decide."""

    version: int | Literal["next", "candidate"] = Field(
        description='"next" trains one on the rewards so far, "candidate" approves the one that waits, a number rolls '
        "back to an earlier one."
    )
    force: bool = Field(False, description='Train "next" although no reward came since the last update.')
    reason: Reason = ""


class ShadowRequest(Taken):
    """Which version is scored beside the one in use."""

    version: int | Literal["candidate"] | None
    reason: Reason = ""


class SignedRequest(Taken):
    """Why something is done."""

    reason: Reason = ""


class ReceiptBody(BaseModel):
    """What became of a reward."""

    id: str
    status: Literal["accepted", "duplicate", "late", "quarantined"]
    reason: str
    seq: int


class ProblemBody(BaseModel):
    """Why a request is refused (RFC 9457)."""

    title: str
    status: int
    detail: str


class AnswersBody(BaseModel):
    """An answer or a problem for each request, in their order."""

    answers: list[Answer | ProblemBody]


class ReceiptsBody(BaseModel):
    """A receipt or a problem for each reward, in their order."""

    receipts: list[ReceiptBody | ProblemBody]


class OutcomeBody(BaseModel):
    """What was done."""

    outcome: str
    version: int = Field(description="The version in use.")


class StatusBody(BaseModel):
    """Where the study stands; see `rarely.study.Status`."""

    model_config = ConfigDict(extra="allow")

    name: str
    decisions: int
    version: int
    rewards: dict[str, Any]


class VersionsBody(BaseModel):
    """The published versions; see `rarely.study.VersionRow`."""

    versions: list[dict[str, Any]]


class HealthBody(BaseModel):
    """Whether the service can decide."""

    status: Literal["ok", "failed"]
    problems: dict[str, str] = Field(description="What is wrong, by study.")


BODIES: tuple[type[Any], ...] = (
    *(DecideRequest, DecideRequests, RewardRequest, RewardRequests, ActivateRequest, ShadowRequest, SignedRequest),
    *(Answer, AnswersBody, ReceiptBody, ReceiptsBody, OutcomeBody, StatusBody, VersionsBody, HealthBody),
    ProblemBody,
)
"""All that `/openapi.json` describes."""
