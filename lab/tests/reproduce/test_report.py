import json
import re
import xml.etree.ElementTree as ET

import pytest

from browser import browse, needs_browser, probe
from lab_records import record, runs
from rarely.pages.figures import drawn
from rarely_lab.engine.record import NothingOnRecord, read_records
from rarely_lab.reproduce.catalogue import PROBLEMS, configurations
from rarely_lab.reproduce.config import VIEWS
from rarely_lab.reproduce.records import Record, Store
from rarely_lab.reproduce.report import page
from rarely_lab.reproduce.report.page import write_report
from rarely_lab.reproduce.report.paper_claims import judge
from rarely_lab.reproduce.report.results import compare
from rarely_lab.reproduce.report.tables import results


def fill(out, problems, presets, only=lambda c: True):
    """Write two made-up runs of every configuration."""
    store = Store(out)
    for problem in problems:
        for preset in presets:
            for c in (c for c in configurations(PROBLEMS[problem]) if c.part_of(preset) and only(c)):
                reading = (VIEWS[preset] if problem == "mushroom" else "raw") if c.linear else preset
                for seed in range(2):
                    sizes = {"regret": 100.0 + 7 * seed + (c.batches or 0) / 9, "updates": min(c.batches or 59, 59) - 1}
                    store.write(record(problem, reading, seed=seed, **vars(c), **sizes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A report on two problems, with all figures of the first kind in one preset and the others empty."""
    out = tmp_path_factory.mktemp("lab")
    fill(out, ("cosine", "mushroom"), ("practical", "code"))
    progress = []
    figures = {}

    def once(draw):  # figures of one kind weigh and look the same in every problem
        if draw.func not in figures:
            figures[draw.func] = drawn(draw)
        return figures[draw.func]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "drawn", once)
        write_report(out, lambda done, of: progress.append((done, of)))
    assert progress[-1] == (14, 14)
    return out


def test_outputs_have_fixed_names(folder):
    names = {path.name for path in folder.iterdir()}
    assert names >= {"report.html", "claims.json", "figures", "records"}
    kinds = ("box", "scatter", "curves")
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "frontier-practical.svg",
        "frontier-code.svg",
        *(f"{p}-{r}-{k}.svg" for p in ("cosine", "mushroom") for r in ("practical", "code") for k in kinds),
    }


def test_figures_are_whole(folder):
    for path in (folder / "figures").glob("*.svg"):
        assert ET.parse(path).getroot().tag.endswith("svg")


def test_a_report_made_again_is_the_same(tmp_path, sketched_figures):
    fill(tmp_path, ["cosine"], ["code"], only=lambda c: c.id in ("neuralucb", "fixed-B40"))
    write_report(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.suffix in (".html", ".json")}
    assert len(before) == 2
    stale = tmp_path / "figures" / "gone-practical-box.svg"
    stale.write_text("<svg/>")
    write_report(tmp_path)
    assert {path: path.read_bytes() for path in before} == before
    assert not stale.exists()


def test_a_problems_name_is_text_on_the_page():
    records = runs([1.0, 2.0], kind="fixed", batches=40)
    for one in records:
        one.data["asked"]["problem"] = {"name": "<b>$x$", "base": ""}
    comparisons = compare(records)
    names = page.figures(comparisons)
    text = page.render_page(records, comparisons, judge(comparisons), dict.fromkeys(names, "<svg></svg>"), ["<i>"])
    assert "&lt;b&gt;$x$" in text
    assert "<b>" not in text
    assert "<i>" not in text


def test_the_page_needs_nothing_else(folder):
    text = (folder / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", text)
    assert "<script" not in text
    assert "@import" not in text
    assert not re.findall(r"url\((?!#)", text)


def test_the_page_tells_what_the_claims_file_tells(folder):
    text = (folder / "report.html").read_text()
    claims = json.loads((folder / "claims.json").read_text())["claims"]
    assert len(claims) == 2 * 2 * (1 + 6 + 8)
    for claim in claims:
        at = text.index(f'id="{claim["id"]}-{claim["problem"]}-{claim["preset"]}-{claim["estimand"]}"')
        said = "figure" if claim["kind"] == "figure" else claim["verdict"]
        assert said in text[at : at + 400]


def test_the_page_begins_with_the_counts_of_each_preset_and_what_they_have_in_common(folder):
    text = (folder / "report.html").read_text()
    summary = text[text.index('id="summary"') :]
    summary = summary[: summary.index("</ul>")]
    assert summary.count("<li>") == 6
    assert "Preset practical, of 13 claims: by means" in summary
    assert "with the smallest budget mean regret is" in summary
    assert "in every reading" in summary
    assert text.index('id="summary"') < text.index('id="claims"')


def test_a_page_of_63_figures_weighs_less_than_3_mb(folder):
    """Seven problems in three presets; a figure may weigh so much, and the rest of a page as much as here."""
    text = (folder / "report.html").read_text()
    figures = [figure.encode() for figure in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    rest = len(text.encode()) - sum(map(len, figures))
    assert sum(map(len, figures)) / len(figures) * 66 + rest / 4 * 21 < 3e6


def test_verdicts_of_other_lengths_are_marked_in_the_table(folder):
    text = (folder / "report.html").read_text()
    rows = text[text.index('<table class="claims"') : text.index('id="p-cosine"')]
    cells = re.findall(r'<a class="[^>]*>([^<]*)<', rows)
    assert cells
    assert all(cell.endswith("at T = 60") for cell in cells)


def test_the_page_says_what_is_short_of_the_paper(folder):
    text = (folder / "report.html").read_text()
    assert "T = 60 rounds; the paper&#39;s have 2000" in text
    assert "has 2 runs" in text


def test_the_page_says_which_adaptive_runs_are_the_same(tmp_path, sketched_figures):
    store = Store(tmp_path)
    for batches in (40, 100):
        for seed in range(2):
            store.write(record(kind="adaptive", batches=batches, log_ratio=20.0, seed=seed, regret=50.0 + seed))
    write_report(tmp_path)
    assert "are the same runs" in (tmp_path / "report.html").read_text()


def test_the_table_has_a_line_for_every_series(folder):
    comparisons = compare(read_records(folder, Record).records)
    lines = [line for one in comparisons for line in results(one).body]
    assert len(lines) == 2 * 2 * (4 + 1 + 3 + 9) + 2 * 2
    fixed = next(line for line in lines if line[0] == "fixed B=40")
    share = "100 [34.2, 100]"  # of both runs, in a world in which uniform play loses less than twice as much
    assert fixed == ["fixed B=40", "2", "108 ± 5", "108", share, "50 %", "39", "0.25", "0.75", "1×", "60", "64"]


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(NothingOnRecord, match="rarely reproduce"):
        write_report(tmp_path)


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_real_browser_shows_the_page(folder, tmp_path, width):
    script = """(() => { const all = [...document.querySelectorAll('figure svg')];
      const figures = all.map(f => f.getBoundingClientRect());
      const cut = [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1);
      return {wide: document.documentElement.scrollWidth, cut: cut.length, all: figures.length,
      figures: figures.filter(f => f.width > 300).length, widest: Math.max(...figures.map(f => f.right)),
      moved: cut.includes(document.querySelector('table.claims').parentElement),
      contents: getComputedStyle(document.querySelector('nav.contents')).position,
      folded: getComputedStyle(document.querySelector('details.contents')).display,
      rows: document.querySelectorAll('table.claims tbody tr').length,
      tall: document.documentElement.scrollHeight, board: document.querySelector('table.claims').offsetHeight,
      asked: performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length}; })()"""
    seen = probe(tmp_path, (folder / "report.html").read_text(), script, width)
    assert max(seen["wide"], seen["widest"]) <= width  # nothing sticks out sideways
    assert bool(seen["cut"]) == (width == 390)  # at a desk no table needs to be moved; on a phone tables scroll
    assert not seen["moved"]  # but never the verdicts
    assert seen["figures"] == seen["all"] == 14
    assert seen["rows"] == 1 + 6 + 8
    # Of some forty claims and ten figures, a phone shows 15 000 pixels at most: evidence is folded.
    assert seen["board"] < 300 * seen["rows"]
    assert seen["tall"] - seen["board"] < 4500
    assert seen["asked"] == 0  # nothing was asked of a network
    # The contents stay in sight at a desk, and are folded above the page on a phone.
    assert (seen["contents"], seen["folded"]) == (("sticky", "none") if width == 1280 else ("static", "block"))


@needs_browser
def test_a_real_browser_prints_the_page(folder, tmp_path):
    pdf = tmp_path / "report.pdf"
    browse(tmp_path, folder / "report.html", f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_runs_whose_times_do_not_count_are_said():
    everything = [*runs([1] * 3, kind="neuralucb"), *runs([1] * 3, kind="fixed", batches=40)]
    assert page._notes(compare(everything)[0]) == []
    for run in (everything[0], everything[-1]):
        run.data["environment"]["machine"] = "another"
    (said,) = page._notes(compare(everything)[0])
    assert said.endswith("; runs elsewhere, left aside: 2.")


def test_shares_of_a_lockstep_are_no_times_but_those_of_timed_runs_are(tmp_path):
    kinds = {"neuralucb": {}, "fixed": {"batches": 40}}
    lockstep = [record(kind=kind, seconds=5.0, seed=seed, **c) for kind, c in kinds.items() for seed in (0, 1)]
    for one in lockstep:
        one.data["environment"] |= {"engine": "gpu", "device": "a GPU"}
        one.data["near_ties"] = 3
    (alone,) = compare(lockstep)
    assert alone.paired("seconds", *alone.series.values()) == ([], [])
    assert [row[7:10] for row in results(alone).body] == [["—", "—", "—"]] * 2
    timed = [
        record("cosine-timed", kind=kind, seconds=took, regret=1.0, **c)
        for (kind, c), took in zip(kinds.items(), (8.0, 2.0), strict=True)
    ]
    (both,) = compare([*lockstep, *timed])
    assert both.paired("seconds", *both.series.values()) == ([8.0], [2.0])
    assert [row[2:10:7] for row in results(both).body] == [["100 ± 0", "1×"], ["100 ± 0", "4×"]]
    assert [row[7:9] for row in results(both).body] == [["2.00", "6.00"], ["0.50", "1.50"]]
    for some, scatter in ((lockstep, 0), (timed, 1)):
        for one in some:
            Store(tmp_path).write(one)
        write_report(tmp_path)
        assert len(list((tmp_path / "figures").glob("*-scatter.svg"))) == scatter
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "4 runs of networks were played in lockstep on a GPU; in 12 of their 240 rounds" in text
