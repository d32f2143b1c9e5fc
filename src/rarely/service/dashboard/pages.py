"""The pages: all studies, one study, the routes of the API."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from rarely.core.version import __version__
from rarely.service.dashboard.charts import short
from rarely.service.dashboard.overview import Overview
from rarely.service.dashboard.panels import panels, shadows
from rarely.study import Status, VersionRow

REFRESH = 30
"""Seconds after which a page is loaded again."""


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("rarely.service.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"moment": _moment, "number": _number, "safe_svg": Markup}
    made.globals |= {"rarely": __version__}
    return made


def render_index(studies: Sequence[Status]) -> str:
    """The page of all studies."""
    return _templates().get_template("index.html").render(studies=studies, refresh=REFRESH)


def render_study(
    overview: Overview,
    status: Status,
    versions: Sequence[VersionRow],
    health: Sequence[tuple[str, bool, str]],
    *,
    live: bool,
) -> str:
    """The page of a study; `live` pages are loaded again after a while, and lead to the others."""
    schedule = json.loads(versions[-1].settings).get("schedule", {}) if versions else {}
    with overview.lock:
        made = panels(overview, status.log_det, _trigger(overview, schedule))
        return (
            _templates()
            .get_template("study.html")
            .render(
                status=status,
                schedule=_named(schedule),
                panels=made,
                updates=overview.updates,
                versions={row.number: row for row in versions},
                shadows=shadows(overview),
                quarantined=list(reversed(overview.quarantined)),
                steps=list(reversed(overview.steps)),
                health=[*_conditions(status), *health],
                refresh=REFRESH if live else 0,
                live=live,
                now=time.time(),
            )
        )


def render_routes(schema: dict[str, Any]) -> str:
    """The page of the API's routes, from its OpenAPI description."""
    routes = [
        {
            "method": method.upper(),
            "path": path,
            "says": operation.get("description", ""),
            "scope": next((scope for need in operation.get("security", ()) for scope in need["key"]), ""),
            "takes": _names(operation.get("requestBody", {})),
            "gives": _names(operation["responses"]["200"]),
            "refuses": sorted(code for code in operation["responses"] if code >= "4"),
        }
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    models = [(name, model) for name, model in sorted(schema["components"]["schemas"].items()) if "properties" in model]
    return _templates().get_template("routes.html").render(routes=routes, models=models, type_of=_type, refresh=0)


def _trigger(overview: Overview, schedule: dict[str, Any]) -> float | None:
    """log det at which the next batch ends, where the schedule looks at it."""
    inner = schedule.get("schedule", schedule)
    ratio = inner.get("log_ratio") if isinstance(inner, dict) else None
    if not isinstance(ratio, int | float):
        return None
    accepted = [update["record"]["log_det"] for update in overview.updates if update["record"]]
    return (accepted[-1] if accepted else 0.0) + ratio


def _conditions(status: Status) -> list[tuple[str, bool, str]]:
    """(what, whether it is well, how it is), from the status alone."""
    rewards = status.rewards
    sums = f"{rewards.used} used + {rewards.pending} pending + {rewards.late} late + {rewards.quarantined} quarantined"
    return [
        ("rewards", rewards.balanced, f"{rewards.received} received = {sums}"),
        ("approval", status.candidate is None, "nothing waits" if status.candidate is None else "a candidate waits"),
        ("pinned", True, f"version {status.version} is pinned" if status.pinned else "no"),
        ("trainer", True, status.trainer or "none at work"),
        ("last hash", True, f"{status.head[:16]}… after {status.events} events"),
    ]


def _named(schedule: Any) -> str:
    """A schedule as Python would write it."""
    if not isinstance(schedule, dict):
        return str(schedule)
    fields = ", ".join(f"{name}={_named(value)}" for name, value in schedule.items() if name != "kind")
    return f"{schedule.get('kind', '')}({fields})"


def _names(part: dict[str, Any]) -> list[str]:
    """The models that a body may be."""
    found = []
    for content in part.get("content", {}).values():
        places = content["schema"].get("anyOf", [content["schema"]])
        found += [place["$ref"].rsplit("/", 1)[-1] for place in places if "$ref" in place]
    return found


def _type(schema: dict[str, Any]) -> str:
    """A schema in few words."""
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(_type(each) for each in schema[word])
    if "enum" in schema or "const" in schema:
        return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "anything"))


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _number(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    return short(float(value))
