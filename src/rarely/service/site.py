"""The pages of a service as routes: studies, one study, the API."""

from __future__ import annotations

import json

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from rarely.service.dashboard import Overview, render_index, render_routes, render_study
from rarely.service.opened import OpenedStudies, OpenedStudy
from rarely.study import Study

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded and no script runs."""


def page(text: str) -> Response:
    """A page that loads nothing from elsewhere."""
    headers = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return Response(text, media_type="text/html", headers=headers)


class Site:
    """The pages, over the studies of a service."""

    def __init__(self, studies: OpenedStudies, app: FastAPI) -> None:
        self._studies, self._app = studies, app

    async def index(self, http: Request, name: str, caller: str) -> Response:
        """The page of all studies."""
        statuses = [await run_in_threadpool(each.status) for each in self._studies.all() if not each.failure]
        return page(render_index(statuses))

    async def study(self, http: Request, name: str, caller: str) -> Response:
        """The dashboard of a study."""
        known = self._studies.known(name)
        study = await run_in_threadpool(self._studies.open, name) if known is None else known
        return page(await run_in_threadpool(dashboard_of, study))

    async def routes(self, http: Request, name: str, caller: str) -> Response:
        """The routes of the API, for people."""
        return page(render_routes(self._app.openapi()))

    async def openapi(self, http: Request, name: str, caller: str) -> Response:
        """The routes of the API, for programs."""
        return Response(json.dumps(self._app.openapi()), media_type="application/json")


def dashboard_of(opened: OpenedStudy) -> str:
    """The page of a study that is served, up to its last event."""
    status, trainer = opened.status(), opened.trainer
    _bring_up_to_date(opened.overview, opened.study, status.events)
    health = [
        ("writer", opened.writer.alive and not opened.failure, opened.failure or f"{opened.writer.waiting} waiting"),
        (
            "training",
            not trainer.last_error,
            trainer.last_error or ("under way" if trainer.under_way else "no problem"),
        ),
    ]
    return render_study(opened.overview, status, opened.study.versions(), health, live=True)


def written_page(study: Study) -> str:
    """The page of a study as a file that stands alone.

    Parameters
    ----------
    study
        The study, open or read-only.

    Examples
    --------
    >>> from rarely import LinUCB
    >>> from rarely.study import Study
    >>> study = Study.create("memory://page", "colours", policy=LinUCB(dim=1), arms=["red", "blue"])
    >>> written_page(study).startswith("<!doctype html>")
    True
    """
    status, overview = study.status(), Overview(study.settings)
    _bring_up_to_date(overview, study, status.events)
    return render_study(overview, status, study.versions(), [], live=False)


def _bring_up_to_date(overview: Overview, study: Study, last: int) -> None:
    with overview.lock:
        overview.follow(study.events(overview.seq, last))
