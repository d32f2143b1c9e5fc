"""The flat tables, and that the lines of pandas in the docs recompute every verdict from them."""

import os
import re
from pathlib import Path

import pytest

from lab_records import lengths, paper
from rarely_lab.reproduce.report.few_updates import figures_of_few, render_few_updates
from rarely_lab.reproduce.report.page import write_tables
from rarely_lab.reproduce.report.paper_claims import judge
from rarely_lab.reproduce.report.results import compare

pandas = pytest.importorskip("pandas")
DOCS = Path(__file__).parents[3] / "docs"


def again(folder, monkeypatch):
    """The verdicts that the code in the docs makes of the tables, beside those that are written there."""
    monkeypatch.chdir(folder)
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    code = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "checks.csv" in block)
    names = {}
    exec(code, names)
    return names["verdicts"]


def test_the_lines_in_the_docs_recompute_every_verdict(tmp_path, monkeypatch):
    records = [*paper("mushroom"), *paper("magic"), *lengths(lambda t: 6 * t**0.3, lambda kind, t: t**0.5)]
    for place, one in enumerate(records):  # so that some hold, some fail and some stay open
        one.data["regret"] *= 1 + 0.4 * ((place * 7919) % 11 == 0 and one.problem == "magic")
        one.data["regret"] *= 3 if one.id.startswith("mushroom/practical/adaptive-B40") else 1
    judged = judge(compare(records))
    write_tables(tmp_path, records, judged)
    verdicts = again(tmp_path, monkeypatch)
    told = verdicts[verdicts.published != "not applicable"]
    assert len(told) == sum(one.claim.kind != "figure" for one in judged)
    assert (told.again == told.published.str.partition(",")[0]).all()
    assert set(told.again) == {"holds", "does not hold", "inconclusive"}


@pytest.mark.slow
def test_the_published_verdicts_are_recomputed(tmp_path, monkeypatch):
    from rarely_lab.engine.record import read_packed
    from rarely_lab.reproduce.records import Record

    records = read_packed(DOCS / "records", Record).records
    write_tables(tmp_path, records, judge(compare(records)))
    verdicts = again(tmp_path, monkeypatch)
    told = verdicts[verdicts.published != "not applicable"]
    assert (told.again == told.published.str.partition(",")[0]).all()


def test_the_page_on_few_updates_answers_in_its_first_sentence():
    found = compare(lengths(lambda t: 6 * t**0.3, lambda kind, t: (2.5 if kind == "fixed" else 1.1) * t**0.5))
    page = render_few_updates(found)
    first = next(line for line in page.splitlines() if line.startswith("**"))
    assert first.startswith(
        "**The determinant rule with log q = 20 has 0.99 to 1.01 times the mean regret of NeuralUCB"
    )
    assert "a fixed grid of √T batches 2.2" in first
    assert "on quadratic, preset practical; cosine, preset practical" in first
    assert "to the power of 0.13 over these lengths" in first  # log₂ T
    assert re.search(r"\| quadratic \| 200 \| \d+ \| \d+ \| 1\d\.\d \|", page)  # Theorem 2's B beyond T
    assert [*figures_of_few(found)] == ["few-updates-quadratic-practical", "few-updates-cosine-practical"]
    assert len(figures_of_few(found)["few-updates-cosine-practical"]().axes) == 2
    assert figures_of_few(found[:2]) == {}


def test_tables_are_written_by_the_command(tmp_path):
    from typer.testing import CliRunner

    from rarely._cli import app
    from rarely_lab.reproduce.records import Store

    for one in paper("magic")[:40]:
        Store(tmp_path).write(one)
    asked = ["report", str(tmp_path), "--csv", str(tmp_path / "tables")]
    assert CliRunner().invoke(app, asked).exit_code == 0
    assert sorted(os.listdir(tmp_path / "tables")) == ["checks.csv", "runs.csv"]
