"""A policy in a notebook: where it stands, when it next changes, and how well calibrated it was."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rarely.core.policies.update_record import UpdateRecord

MOST = 8
"""Updates that the table shows, the last ones."""


def policy_table(name: str, facts: Sequence[tuple[str, str]], updates: Sequence[UpdateRecord]) -> str:
    """The facts as a table, and the last updates below it; all text is escaped.

    >>> policy_table("LinUCB", [("version", "3")], [])
    '<table><caption>LinUCB</caption><tbody><tr><th>version</th><td>3</td></tr></tbody></table>'
    """
    rows = "".join(f"<tr><th>{escape(fact)}</th><td>{escape(value)}</td></tr>" for fact, value in facts)
    table = f"<table><caption>{escape(name)}</caption><tbody>{rows}</tbody></table>"
    return table + _update_table(updates) if updates else table


def _update_table(updates: Sequence[UpdateRecord]) -> str:
    heads = ("round", "version", "rewards", "β", "noise", "coverage", "")
    left_out = len(updates) - MOST
    caption = f"the last {MOST} of {len(updates)} updates" if left_out > 0 else "updates"
    head = "".join(f"<th>{name}</th>" for name in heads)
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _row(record))}</tr>" for record in updates[-MOST:])
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(record: UpdateRecord) -> tuple[str, ...]:
    return (
        str(record.round),
        str(record.version),
        str(record.samples),
        f"{record.beta:.3g}",
        "" if record.noise is None else f"{record.noise:.3g}",
        "" if record.coverage is None else f"{record.coverage:.2f}",
        "" if record.accepted else escape(f"rejected: {record.reason}"),
    )
