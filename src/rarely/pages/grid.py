"""A table of text, for HTML, Markdown and the console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Grid(NamedTuple):
    """A table of text cells; from column `numbers` on they are numbers, and the first column names the row."""

    head: Sequence[str]
    body: Sequence[Sequence[str]]
    numbers: int

    def markdown(self) -> str:
        r"""Return the table as Markdown.

        >>> print(Grid(["name", "regret"], [["a|b", "1.5"]], numbers=1).markdown())
        | name | regret |
        | --- | ---: |
        | a\|b | 1.5 |
        """
        rule = ["---" if column < self.numbers else "---:" for column in range(len(self.head))]
        lines = (self.head, rule, *self.body)
        return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)

    def lines(self) -> list[str]:
        """Return the table in lines of one width, for a console.

        >>> Grid(["B", "regret"], [["2", "1.5"]], numbers=0).lines()
        ['B  regret', '2     1.5']
        """
        lines = [self.head, *self.body]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
