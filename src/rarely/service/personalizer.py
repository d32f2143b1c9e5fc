"""The calls of Azure Personalizer's REST interface, for a study of a `FramePolicy` whose items are named by a key.

    POST …/personalizer/v1.0/rank                       contextFeatures, actions, excludedActions, eventId
    POST …/personalizer/v1.0/events/{event}/reward      value
    POST …/personalizer/v1.0/events/{event}/activate

A client of that service changes one address, to `{service}/v1/studies/{name}`, and keeps its key in the header
`Ocp-Apim-Subscription-Key`. Features are columns: those of objects in objects are called "user.age".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pydantic import Field, FiniteFloat
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from rarely.errors import RarelyError
from rarely.service.access import Key
from rarely.service.app import STUDY, Api, as_json, route
from rarely.service.bodies import Id, Refusal, RequestBody, response_of
from rarely.service.opened import OpenedStudy
from rarely.study import Request, Tell

BASE = f"{STUDY}/personalizer/v1.0"
Features = list[dict[str, Any]]


class RankAction(RequestBody):
    """What may be shown."""

    id: Id
    features: Features = Field(default_factory=list)


class RankRequest(RequestBody):
    """A request for a rank, as Personalizer takes it."""

    contextFeatures: Features = Field(default_factory=list)  # noqa: N815
    actions: list[RankAction] = Field(min_length=1)
    excludedActions: list[Id] = Field(default_factory=list)  # noqa: N815
    eventId: Id | None = None  # noqa: N815
    deferActivation: bool = False  # noqa: N815


class RankReward(RequestBody):
    """The reward of an event."""

    value: FiniteFloat


@route("decide", (RankRequest,), path=f"{BASE}/rank")
async def rank(api: Api, study: OpenedStudy, key: Key, body: RankRequest) -> Response:
    """Rank actions as Azure Personalizer does: `rewardActionId` is to be shown, and the event gets its reward."""
    tables = study.study.settings.tables
    if tables is None or tables.items is None or tables.key is None:
        detail = (
            "rank needs a study of FramePolicy.fit(kind, users, items, key=…): actions are items, named by the key."
        )
        raise Refusal(422, detail, "InvalidStudy")
    if body.deferActivation:
        detail = (
            "deferActivation must be false: a study learns from any event that gets a reward, activated or not. "
            "Ask for the rank when it is going to be shown, or send no reward for what was not shown."
        )
        raise Refusal(422, detail, "InvalidBody")
    if len(body.actions) > api.limits.arms:
        raise Refusal(422, f"a rank may have at most {api.limits.arms} actions.", "InvalidContexts")
    names = [action.id for action in body.actions]
    if unknown := {*body.excludedActions} - {*names}:
        raise Refusal(422, f"excludedActions must be ids of actions; {min(unknown)!r} is none.", "InvalidContexts")
    items = [_row(action.features, tables.items.slices) | {tables.key: action.id} for action in body.actions]
    asked: dict[str, Any] = {"items": items}
    if tables.users is not None:
        asked["user"] = _row(body.contextFeatures, tables.users.slices)
    open_ = None
    if body.excludedActions:
        open_ = [place for place, name in enumerate(names) if name not in body.excludedActions]
    (answer,) = await study.writer.submit([Request(asked, body.eventId, open_, key.name)])
    if isinstance(answer, RarelyError):
        return response_of(answer)
    record = await run_in_threadpool(study.study.decision, answer.id)
    chances = record.padded(record.probabilities, 0.0)
    order = sorted(range(len(names)), key=lambda place: (place != answer.index, -chances[place]))
    ranking = [{"id": names[place], "probability": float(chances[place])} for place in order]
    return as_json({"ranking": ranking, "eventId": answer.id, "rewardActionId": names[answer.index]}, 201)


@route("reward", (RankReward,), path=f"{BASE}/events/{{event}}/reward")
async def rank_reward(api: Api, study: OpenedStudy, key: Key, body: RankReward, event: str) -> Response:
    """Record the reward of an event; repeating it changes nothing."""
    (receipt,) = await study.writer.submit([Tell(event, body.value, None, key.name)])
    return response_of(receipt) if isinstance(receipt, RarelyError) else Response(status_code=204)


@route("decide", path=f"{BASE}/events/{{event}}/activate", method="POST")
async def rank_activate(api: Api, study: OpenedStudy, key: Key, event: str) -> Response:
    """Answer that an event is active, as all events are; a study learns from it as soon as it has a reward."""
    await run_in_threadpool(study.study.decision, event)
    return Response(status_code=204)


def _row(features: Features, wanted: Any) -> dict[str, Any]:
    """Return features as one row: a column that did not come is a gap."""
    came = {name: value for each in features for name, value in _flat(each)}
    return dict.fromkeys(wanted) | {name: _plain(name, value) for name, value in came.items()}


def _flat(features: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in features.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _plain(name: str, value: Any) -> Any:
    if not isinstance(value, str | bool | int | float | None) or not np.isfinite(
        value if type(value) is float else 0.0
    ):
        raise Refusal(422, f"feature {name!r} must be text, a number, a boolean or null.", "InvalidContexts")
    return value
