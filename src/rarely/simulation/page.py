"""One HTML file that needs nothing else: the style that all pages share, and tables that scroll where they must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rarely.simulation.inline_svg import share_styles

STYLE = Path(__file__).with_name("page.css")


def document(title: str, body: str, style_file: Path = STYLE) -> str:
    """The whole page; styles inside figures become classes that all of them share."""
    body, styles = share_styles(body)
    style = style_file.read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}{styles}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def grid(head: Sequence[str], body: Sequence[Sequence[str]], numbers: int, css: str = "grid") -> str:
    """A table of plain texts; from column `numbers` on they are numbers."""
    rows = [f"<tr>{''.join(_cells('td', line, numbers))}</tr>" for line in body]
    return scrolled("".join(_cells("th", head, numbers)), rows, css)


def table(head: Sequence[str], rows: Sequence[str], css: str) -> str:
    """A table of rows that are HTML already."""
    return scrolled("".join(_cells("th", head, len(head))), rows, css)


def scrolled(head: str, rows: Sequence[str], css: str) -> str:
    """A table that scrolls by itself where it is wider than the screen."""
    inside = "\n".join(rows)
    head = f"<thead><tr>{head}</tr></thead>"
    return f'<div class="scroll"><table class="{css}">{head}<tbody>\n{inside}\n</tbody></table></div>'


def _cells(tag: str, texts: Sequence[str], numbers: int) -> Iterator[str]:
    for i, text in enumerate(texts):
        css = ' class="n"' if i >= numbers else ""
        yield f"<{tag}{css}>{escape(text)}</{tag}>"
