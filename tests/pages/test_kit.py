"""The page kit: what every page has, whatever it shows."""

import re
from pathlib import Path

import pytest
from jinja2 import DictLoader, UndefinedError
from matplotlib.figure import Figure

import rarely.pages
from rarely.pages import page
from rarely.pages.figures import COLOURS, drawn
from rarely.pages.grid import Grid
from rarely.pages.page import render
from rarely.pages.svg import PALETTE, Chart, inline

STYLE = (Path(rarely.pages.__file__).parent / "templates" / "style.css").read_text(encoding="utf-8")
TEMPLATE = """{% extends "base.html" %}{% from "parts.html" import figure, table, warnings %}
{% block main %}<h2 id="a">A</h2>{{ table(grid, caption="Some numbers") }}{{ figure(svg, "A <caption>") }}
{{ warnings(["a <doubt>"]) }}{% endblock %}"""


@pytest.fixture
def made(monkeypatch):
    """Return a page of everything that the kit has."""
    environment = page.environment("rarely.pages").overlay()
    own = DictLoader({"own.html": TEMPLATE})
    monkeypatch.setattr(environment, "loader", type(environment.loader)([own, *environment.loader.loaders]))
    monkeypatch.setattr(page, "environment", lambda package: environment)

    def make(**context):
        grid = Grid(["name", "regret"], [["<b>", "1"]], numbers=1)
        svg = inline(drawn(lambda: Figure(figsize=(1, 1))), "A <label>")
        return render("anything", "own.html", **{"grid": grid, "svg": svg} | context)

    return make


def test_a_page_has_landmarks_headers_with_scope_and_captions(made):
    text = made(contents=[("a", "The <first>")])
    assert text.count("<main>") == 1
    assert text.count("<h2") == 1
    assert '<th scope="col">name</th><th scope="col" class="n">regret</th>' in text
    assert '<th scope="row">&lt;b&gt;</th><td class="n">1</td>' in text
    assert "<caption>Some numbers</caption>" in text
    assert "<figcaption>A &lt;caption&gt;</figcaption></figure>" in text
    assert 'aria-label="A &lt;label&gt;"' in text
    assert "a &lt;doubt&gt;" in text
    # Beside a wide page, and folded above a narrow one.
    assert text.count('<a href="#a">The &lt;first&gt;</a>') == 2
    assert not re.search(r"""<script|@import|url\((?!#)|(?:src|href)=["'](?!#|data:)""", text)


def test_a_short_page_has_no_contents(made):
    assert "<summary>Contents" in made(contents=[("a", "A")])
    assert "<summary>Contents" not in made()


def test_a_name_that_is_missing_is_an_error(made):
    with pytest.raises(UndefinedError):
        made(grid={})


def test_every_colour_of_a_figure_has_one_for_dark_pages():
    light, dark = STYLE.split("prefers-color-scheme: dark")[:2]
    for name, colour in PALETTE.items():
        assert f"--{name}: {colour};" in light
        assert f"--{name}: #" in dark[: dark.index("} }")]


def test_a_figure_inside_a_page_has_only_colours_of_the_page():
    def draw():
        figure = Figure(figsize=(3, 2))
        axes = figure.add_subplot()
        for place, colour in enumerate(COLOURS.values()):
            axes.plot([0, 1], [place, 1], "o-", color=colour, label=str(place))
        axes.boxplot([[1, 2, 3]], patch_artist=True)
        axes.legend()
        axes.set_title("A title")
        return figure

    svg = drawn(draw)
    assert drawn(draw) == svg
    assert not re.findall(r"#[0-9a-f]{6}|white|black", inline(svg, "x"))


def test_ids_of_two_figures_differ():
    def draw():
        figure = Figure(figsize=(2, 2))
        figure.add_subplot().plot([0, 1], [0, 1], "o")
        return figure

    svg = drawn(draw)
    ids = [set(re.findall(r' id="([^"]*)"', inline(svg, label))) for label in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_a_chart_escapes_names_and_leaves_out_what_is_not_finite():
    chart = Chart("a <title>", (0, float("nan")), (1, 1), "x & y")
    chart.line([0, 0.5, 1], [1, float("nan"), 1])
    chart.level(1)
    svg = chart.svg()
    assert "a &lt;title&gt;" in svg
    assert "x &amp; y" in svg
    assert len(re.search(r'points="([^"]*)"', svg)[1].split()) == 2
    assert "nan" not in svg
