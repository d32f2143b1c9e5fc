"""The Python blocks of a Markdown page, and what the page says that they print."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

PYTHON = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One block of code, and the text below it, which is what it prints; None where nothing is shown."""

    code: str
    shown: str | None


class Section(NamedTuple):
    """The blocks under one heading."""

    title: str
    blocks: list[Block]


def sections(path: Path) -> list[Section]:
    """A page's sections that have code, in order; the part before the first heading of level 2 has no title."""
    # A comment of Python begins as a heading does, so headings are looked for outside of code.
    parts = re.split(r"(^```.*?^```$)", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    gathered = [["", ""]]
    for number, part in enumerate(parts):
        pieces = [part] if number % 2 else re.split(r"^(##+ .*)$", part, flags=re.MULTILINE)
        gathered[-1][1] += pieces[0]
        gathered += [[title.lstrip("# "), text] for title, text in zip(pieces[1::2], pieces[2::2], strict=True)]
    found = [
        Section(title, [Block(*match.group("code", "shown")) for match in PYTHON.finditer(text)])
        for title, text in gathered
    ]
    return [section for section in found if section.blocks]


def run(blocks: list[Block], names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run blocks one after another with the same names, and hold their output to what the page shows."""
    names = {"__name__": "__main__"} if names is None else names
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, "page", "exec", dont_inherit=True), names)
        for name, value in names.items():  # pickle looks for a class of a program in its main module
            if isinstance(value, type) and value.__module__ == "__main__":
                setattr(sys.modules["__main__"], name, value)
        if block.shown is not None:
            assert printed.getvalue() == block.shown
    return names
