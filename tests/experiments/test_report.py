import csv
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from lab_records import record
from rarely.experiments.catalogue import PROBLEMS, configurations
from rarely.experiments.config import VIEWS
from rarely.experiments.report.writer import NothingToReport, write_report
from rarely.experiments.store import Store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two problems, two presets, two runs of everything, made up."""
    out = tmp_path_factory.mktemp("lab")
    store = Store(out)
    for problem in ("cosine", "mushroom"):
        for preset in ("practical", "code"):
            for c in (c for c in configurations(PROBLEMS[problem]) if c.part_of(preset)):
                reading = (VIEWS[preset] if problem == "mushroom" else "raw") if c.linear else preset
                for seed in range(2):
                    sizes = {"regret": 100.0 + 7 * seed + (c.batches or 0) / 9, "updates": min(c.batches or 59, 59) - 1}
                    store.write(record(problem, reading, seed=seed, **vars(c), **sizes))
    drawn = []
    write_report(out, lambda done, of: drawn.append((done, of)))
    assert drawn[-1] == (18, 18)
    return out


def test_outputs_have_fixed_names(folder):
    names = {path.name for path in folder.iterdir()}
    assert names >= {"report.html", "claims.json", "summary.csv", "figures", "records"}
    figures = {path.name for path in (folder / "figures").iterdir()}
    kinds = ("box", "scatter", "curves", "logdet")
    for stem in (
        "frontier-practical",
        "frontier-code",
        *(f"{p}-{r}-{k}" for p in ("cosine", "mushroom") for r in ("practical", "code") for k in kinds),
    ):
        assert {f"{stem}.png", f"{stem}.svg"} <= figures


def test_figures_are_whole(folder):
    for path in (folder / "figures").glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")
    for path in (folder / "figures").glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_a_report_made_again_is_the_same(folder):
    before = {
        path: path.read_bytes() for path in (folder / "report.html", folder / "claims.json", folder / "summary.csv")
    }
    stale = folder / "figures" / "gone-practical-box.svg"
    stale.write_text("<svg/>")
    write_report(folder)
    assert {path: path.read_bytes() for path in before} == before
    assert not stale.exists()


def test_the_page_needs_nothing_else(folder):
    page = (folder / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", page)
    assert "<script" not in page
    assert "@import" not in page
    assert not re.findall(r"url\((?!#)", page)


def test_the_page_tells_what_the_claims_file_tells(folder):
    page = (folder / "report.html").read_text()
    claims = json.loads((folder / "claims.json").read_text())["claims"]
    assert len(claims) == 2 * (1 + 6 + 8)
    for claim in claims:
        at = page.index(f'id="{claim["id"]}-{claim["problem"]}-{claim["preset"]}"')
        said = "figure" if claim["kind"] == "figure" else claim["verdict"]
        assert said in page[at : at + 400]


def test_the_page_begins_with_five_sentences(folder):
    page = (folder / "report.html").read_text()
    summary = page[page.index('id="summary"') : page.index("<nav>")]
    assert summary.count("<li>") == 5
    assert "Of the paper" in summary
    assert "practical" in summary
    assert page.index('id="summary"') < page.index('id="claims"')


def test_a_page_of_84_figures_weighs_less_than_3_mb(folder):
    """Seven problems in three presets; a figure may weigh so much, and the rest of a page as much as here."""
    page = (folder / "report.html").read_text()
    figures = [figure.encode() for figure in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    rest = len(page.encode()) - sum(map(len, figures))
    assert sum(map(len, figures)) / len(figures) * 88 + rest / 4 * 21 < 3e6


def test_verdicts_of_other_lengths_are_marked_in_the_table(folder):
    page = (folder / "report.html").read_text()
    rows = page[page.index('id="claims"') : page.index('class="figures"')]
    cells = re.findall(r'class="v [^>]*>([^<]*)<', rows)
    assert cells
    assert all(cell.endswith("at T = 60") for cell in cells)


def test_the_page_says_what_is_short_of_the_paper(folder):
    page = (folder / "report.html").read_text()
    assert "T = 60 rounds; the paper&#x27;s have 2000" in page
    assert "has 2 runs" in page


def test_the_page_tells_which_adaptive_runs_are_the_same(tmp_path):
    store = Store(tmp_path)
    for batches in (40, 100):
        for seed in range(2):
            store.write(record(kind="adaptive", batches=batches, log_ratio=20.0, seed=seed, regret=50.0 + seed))
    write_report(tmp_path)
    assert "are the same runs" in (tmp_path / "report.html").read_text()


def test_the_summary_has_a_line_for_every_series(folder):
    with open(folder / "summary.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 2 * (4 + 1 + 3 + 9) + 2 * 2
    fixed = next(line for line in lines if line["configuration"] == "fixed-B40" and line["problem"] == "cosine")
    assert float(fixed["regret_mean"]) == pytest.approx(103.5 + 40 / 9, rel=1e-4)
    assert float(fixed["updates"]) == 39
    assert float(fixed["seconds_selecting"]) + float(fixed["seconds_training"]) == pytest.approx(
        float(fixed["seconds"])
    )


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(NothingToReport, match="rarely reproduce"):
        write_report(tmp_path)


def in_browser(folder, page, *options):
    command = [CHROMIUM, *QUIET, f"--user-data-dir={folder / 'profile'}", *options, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the page is not loaded in a real browser")
@pytest.mark.parametrize("width", [500, 1280])  # chromium's narrowest window, a little above a phone's, and a desk's
def test_a_real_browser_shows_the_page(folder, tmp_path, width):
    probe = """<script>addEventListener('load', () => { const figures = [...document.querySelectorAll('figure svg')];
      const cut = [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1);
      document.title = JSON.stringify({wide: document.documentElement.scrollWidth, room: innerWidth, cut: cut.length,
      figures: figures.filter(f => f.getBoundingClientRect().width > 300).length, all: figures.length,
      widest: Math.max(...figures.map(f => f.getBoundingClientRect().right)),
      moved: document.querySelector('table.claims').parentElement.scrollWidth > innerWidth,
      rows: document.querySelectorAll('#claims ~ .scroll tbody tr').length,
      asked: performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length}); })</script>"""
    probed = tmp_path / "probed.html"
    probed.write_text((folder / "report.html").read_text().replace("</body>", probe + "</body>"))
    dom = in_browser(tmp_path, probed, f"--window-size={width},900", "--virtual-time-budget=10000", "--dump-dom")
    seen = json.loads(re.search(r"<title>(\{.*?\})</title>", dom).group(1))
    assert seen["wide"] <= seen["room"]  # nothing sticks out sideways
    assert seen["widest"] <= seen["room"]
    assert bool(seen["cut"]) == (width == 500)  # at a desk no table needs to be moved; on a phone tables scroll
    assert not seen["moved"]  # but never the verdicts
    assert seen["figures"] == seen["all"] == 18
    assert seen["rows"] >= 1 + 4 + 8
    assert seen["asked"] == 0  # nothing was asked of a network


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the page is not printed")
def test_a_real_browser_prints_the_page(folder, tmp_path):
    pdf = tmp_path / "report.pdf"
    in_browser(tmp_path, folder / "report.html", f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    assert pdf.read_bytes().startswith(b"%PDF")
