"""Pages from templates: each is one HTML file that loads nothing else.

A template extends `base.html`, which has the style sheet, the landmarks and the table of contents, and imports its
tables, figures and warnings from `parts.html`. Everything that is filled in is escaped, except `Markup`. Templates of
Markdown, `*.md`, stand beside those of HTML and show the same tables.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

from rarely.extend import __version__
from rarely.pages.svg import short


def render(package: str, template: str, *, contents: Sequence[tuple[str, str]] = (), **context: Any) -> str:
    """Return a page from a template in the folder `templates` of a package, filled in from `context`.

    `contents` is the table of contents: the id of a heading, and its text.
    """
    return environment(package).get_template(template).render(contents=contents, **context)


@cache
def environment(package: str) -> Environment:
    """Return the Jinja environment of a package; its templates may extend and import those of this one."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("rarely.pages")]),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    made.filters |= {"moment": moment, "number": number}
    made.globals |= {"version": __version__, "refresh": 0}
    return made


def moment(seconds: float) -> str:
    """Return a time since 1970 as date and time of day.

    >>> moment(0)
    '1970-01-01 00:00:00 UTC'
    """
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def number(value: float | None) -> str:
    """Return a number for a table: counts in full, others in few letters, a dash for None."""
    if value is None:
        return "–"
    return f"{value:,}".replace(",", "\u202f") if isinstance(value, int) else short(float(value))
