"""Figures as parts of a page: SVG without what a page does not need, a tenth of its size."""

from __future__ import annotations

import re
from html import escape

DECIMALS = 1
"""A tenth of a point cannot be seen."""
_NUMBER = re.compile(r"-?\d+\.\d+")
_COORDINATES = re.compile(r' (?:d|x|y|x1|x2|y1|y2|width|height|points|transform)="[^"]*"')
_FIGURE = re.compile(r"<svg role=.*?</svg>", re.DOTALL)
_STYLE = re.compile(r' style="([^"]*)"')


def inline(svg: str, label: str, prefix: str) -> str:
    """The `<svg>` element alone, with coordinates rounded and short ids under a prefix of their own.

    >>> figure = '<?xml version="1.0"?><svg width="9pt" viewBox="0 0 9 9"><g id="a"><path d="M 1.26 2.04"/></g></svg>'
    >>> inline(figure, "A picture", "p")
    '<svg role="img" aria-label="A picture" viewBox="0 0 9 9"><g><path d="M 1.3 2"/></g></svg>'
    """
    body = svg[svg.index("<svg") :].strip()
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    head, _, rest = body.partition(">")
    view = re.search(r'viewBox="[^"]*"', head)
    rest = re.sub(r" font-family: [^;\"]*;?", "", rest)
    rest = re.sub(r' transform="rotate\(-0 [^"]*"', "", rest)
    rest = _COORDINATES.sub(lambda found: _NUMBER.sub(_rounded, found.group()), rest)
    for number, name in enumerate(dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', rest))):
        rest = re.sub(rf'(href="#|url\(#| id="){re.escape(name)}(["\)])', rf"\g<1>{prefix}{number:x}\g<2>", rest)
    rest = re.sub(r' id="(?!' + re.escape(prefix) + r'[0-9a-f]+")[^"]*"', "", rest)
    rest = re.sub(r"\s*\n\s*", " ", rest).replace("xlink:href", "href").replace(" />", "/>").replace(' "', '"')
    rest = re.sub(r"> <", "><", rest)
    return f'<svg role="img" aria-label="{escape(label)}" {view.group() if view else ""}>{rest}'


def share_styles(page: str) -> tuple[str, str]:
    """The page with the styles inside its figures as classes, and the rules of these classes.

    >>> share_styles('<p style="x: y"></p><svg role="img"><g style="fill: red"/><g style="fill: red"/></svg>')
    ('<p style="x: y"></p><svg role="img"><g class="a0"/><g class="a0"/></svg>', '.a0{fill:red}')
    """
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        name = names.setdefault(found[1].strip().replace(": ", ":").replace("; ", ";"), f"a{len(names):x}")
        return f' class="{name}"'

    page = _FIGURE.sub(lambda figure: _STYLE.sub(named, figure.group()), page)
    return page, "\n".join(f".{name}{{{style}}}" for style, name in names.items())


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found.group()):.{DECIMALS}f}".removesuffix(".0")
