"""The pages of the documentation: their code runs, their commands and links exist, and no public name is missing."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from code_blocks import run, sections

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
# tests/test_readme.py, tests/test_tutorials.py and lab/tests/reproduce/test_flat.py run the code of these.
RUN_ELSEWHERE = {ROOT / "README.md", DOCS / "reproduction.md", *(DOCS / "tutorials").glob("*.md")}
WITH_CODE = [page for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"] if page not in RUN_ELSEWHERE]
COOKBOOK = DOCS / "cookbook.md"
MODULES = [
    *(
        "rarely",
        "rarely.errors",
        "rarely.worlds",
        "rarely.theory",
        "rarely.logs",
        "rarely.offpolicy",
        "rarely.planning",
    ),
    *("rarely.study", "rarely.service", "rarely.testing", "rarely.cluster", "rarely_lab.compare"),
]


def named(page):
    return str(page.relative_to(ROOT))


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", [p for p in WITH_CODE if p != COOKBOOK and sections(p)], ids=named)
def test_the_code_of_a_page_runs(page):
    run([block for section in sections(page) for block in section.blocks])


@pytest.mark.parametrize("recipe", sections(COOKBOOK)[1:], ids=lambda recipe: recipe.title)
def test_a_recipe_needs_only_the_first_block_and_its_own(recipe):
    run([*sections(COOKBOOK)[0].blocks, *recipe.blocks])


def test_output_that_differs_from_the_page_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\n# no heading\nprint(1 + 1)\n```\n\n```text\n3\n```\n", encoding="utf-8")
    [section] = sections(page)
    assert section.title == ""
    with pytest.raises(AssertionError):
        run(section.blocks)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES, ROOT / "CONTRIBUTING.md"], ids=named)
def test_links_of_a_page_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


def test_commands_of_the_pages_are_commands():
    from typer.testing import CliRunner

    from rarely._cli import app

    text = "\n".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *PAGES])
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    plain = "\n".join(code for language, code in fenced if not language)
    lines = re.findall(r"^rarely (\w+)(.*?)(?:#.*)?$", plain, re.MULTILINE)
    lines += re.findall(r"`rarely (\w+)([^`]*)`", text)
    assert {command for command, _ in lines} >= {"reproduce", "report", "plan", "data"}
    for command in {command for command, _ in lines}:
        shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"})
        assert shown.exit_code == 0, command
        options = {option for name, rest in lines if name == command for option in re.findall(r"--[a-z]+", rest)}
        assert {option for option in options if option not in shown.output} == set(), command


def program(name):
    """A program of the folder `docs` as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_broken_links_of_built_pages_are_found(tmp_path):
    (tmp_path / "other.html").write_text('<h1 id="here">x</h1><a href="#here">', encoding="utf-8")
    links = [
        "other.html",
        "other.html#here",
        "other.html#gone",
        "gone.html",
        "gone.png",
        "#nowhere",
        "https://x.org/gone",
    ]
    (tmp_path / "page.html").write_text("".join(f'<a href="{link}">' for link in links), encoding="utf-8")
    found = program("check_links").broken_links(tmp_path)
    assert found == ["page.html: #nowhere", "page.html: gone.html", "page.html: gone.png", "page.html: other.html#gone"]


def test_the_picture_of_the_readme_is_drawn_by_its_program(tmp_path):
    totals = program("picture").draw(tmp_path / "small.svg", rounds=30, seeds=1, batches=3)
    assert "<svg" in (tmp_path / "small.svg").read_text(encoding="utf-8")
    assert list(totals) == [
        "random choice",
        "the same policy, updated after every round",
        "the default policy, updated 2 times",
    ]


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name_once(module):
    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    parts = re.split(r"^\.\. currentmodule:: (\S+)$", text, flags=re.MULTILINE)
    own = "\n".join(part for name, part in zip(parts[1::2], parts[2::2], strict=True) if name == module)
    listed = re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)(?:\(\))?$", own, re.MULTILINE)
    logs = set(importlib.import_module("rarely.logs").__all__)
    elsewhere = {"rarely.theory": {"KernelUCB"}, "rarely.offpolicy": logs, "rarely.planning": logs}.get(module, set())
    assert sorted(listed) == sorted(set(importlib.import_module(module).__all__) - elsewhere)


def test_every_decision_is_in_the_list():
    listed = re.findall(r"\]\((\d{4}[\w-]*\.md)\)", (DOCS / "decisions" / "README.md").read_text(encoding="utf-8"))
    assert listed == [path.name for path in sorted((DOCS / "decisions").glob("0*.md"))]


@pytest.mark.parametrize("page", sorted((DOCS / "decisions").glob("0*.md")), ids=lambda page: page.stem)
def test_a_decision_has_a_status_and_a_date(page):
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# \d{4}: .+\n\nStatus: (accepted|superseded by \[\d{4}\]).*<br>\nDate: \d{4}-\d\d-\d\d\n\n", text)
