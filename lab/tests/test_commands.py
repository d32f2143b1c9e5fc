"""The commands reproduce, report and compare."""

import errno
import json
import re
import shutil
import sys
import time

import pytest

from command_line import HIDDEN, call, python, told
from rarely import __version__
from rarely.console import console
from rarely.extend.provisional import native

QUICK = ["reproduce", "cosine", "--preset", "code", "--runs", "2", "--rounds", "20", "--jobs", "1", "--only", "fixed-*"]
SKETCH = '<svg viewBox="0 0 9 9"></svg>'
"""What the fixture puts in the place of a figure."""
ALONE = (
    "from rarely_lab.commands import progress, reproduce; from rarely_lab.engine.cell import LocalExecutor\n"
    "progress.LocalExecutor = lambda jobs: LocalExecutor(None); reproduce.make_report = lambda out: None"
)
"""A fresh Python that plays in its own process, and reports nothing."""
pytestmark = pytest.mark.usefixtures("sketched_figures")


@pytest.fixture
def unreported(serial, monkeypatch):
    """Runs without their report, whose figures take longer."""
    monkeypatch.setattr("rarely_lab.commands.reproduce.make_report", lambda out: None)


@pytest.fixture(scope="module")
def played(tmp_path_factory, sketched_figures):
    """Six cells on record, with their report, and what the command printed."""
    out = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rarely_lab.reproduce.report.page.drawn", lambda draw: SKETCH)
        return out, call(*QUICK, "--out", out)


@pytest.fixture
def records(played, tmp_path):
    """A copy of those records that a test may change."""
    return shutil.copytree(played[0], tmp_path / "out")


@pytest.mark.parametrize(
    "command", [["report", "nowhere"], ["reproduce", "cosine", "--only", "fixed-B40", "--out", "x"]]
)
def test_the_first_line_comes_before_figures_are_imported(command, tmp_path):
    """Of the commands that draw: Matplotlib alone takes half a second and more."""
    said = python(
        f"import os, sys; os.chdir({str(tmp_path)!r}); sys.argv[1:] = {command!r}\n"
        "from rarely._cli import app; from rarely.console import console; say = console.print\n"
        "def first(*given, **how):\n"
        "    say(*given, **how); say('matplotlib' in sys.modules); os._exit(0)\n"
        "console.print = first; app()"
    )
    assert said.splitlines()[1] == "False"


def test_reproduce_without_compiled_loops_says_what_to_do(tmp_path):
    arguments = [*QUICK[:-1], "linucb-r1-b1", "--runs", "1", "--out", str(tmp_path)]
    code, first = python(HIDDEN.format(setup=ALONE, arguments=arguments), RARELY_COMPILED="").splitlines()[:2]
    assert code == "0"
    assert first.startswith(f"rarely {__version__} with NumPy's loops, several times slower")
    assert "nowhere.so is missing. Install the package again" in first


def test_reproduce_fails_at_once_where_the_loops_asked_for_are_missing(tmp_path):
    said = python(HIDDEN.format(setup=ALONE, arguments=[*QUICK, "--out", str(tmp_path)]), RARELY_COMPILED="1")
    assert said.startswith("1\nerror: RARELY_COMPILED=1 asks for the compiled loops, and they are missing.")
    assert not list(tmp_path.iterdir())


def test_progress_is_told_by_the_clock_and_not_by_the_cells(tmp_path, monkeypatch, unreported):
    """The first cell may take minutes: a line comes all the same, and the next says how long the others take."""
    from rarely_lab.engine.cell import play_cell

    lines, say = [], console.print
    monkeypatch.setattr(console, "print", lambda text, **how: (lines.append(text), say(text, **how)))

    def until(said):
        while not any(re.match(said, line) for line in lines):
            time.sleep(0.01)

    def patient(cells):
        until("0 of 6 cells after .* the time left is not known yet$")
        for cell in cells[:3]:
            yield play_cell(cell)
        until("3 of 6 cells after .*; about .* left$")
        for cell in cells[3:]:
            yield play_cell(cell)

    monkeypatch.setattr(sys.modules["rarely.console"], "SECONDS_TO_FIRST_LINE", 0.05)
    monkeypatch.setattr("rarely_lab.commands.progress.LocalExecutor", lambda jobs: patient)
    assert call(*QUICK, "--out", tmp_path).exit_code == 0
    assert any(re.match("6 of 6 cells in .*$", line) for line in lines)


def test_reproduce_plays_reports_and_resumes(played, records):
    out, first = played
    assert first.exit_code == 0
    numpy, loops = native.form() == "numpy", f"compiled loops ({native.form()})"
    assert first.output.startswith(f"rarely {__version__} with {'NumPy' if numpy else loops}")
    assert "6 cells to play" in told(first)
    assert f"report: {out / 'report.html'}" in told(first)
    assert len(list(out.glob("records/cosine/code/*/*.json.gz"))) == 6
    assert json.loads((out / "claims.json").read_text())["claims"]
    again = call(*QUICK, "--out", records)
    assert "0 cells to play" in told(again)
    assert "6 on record already" in told(again)


def test_report_redraws_from_records_alone(records):
    before = (records / "report.html").read_bytes()
    for path in (records / "report.html", records / "claims.json"):
        path.unlink()
    result = call("report", records, "--markdown", records / "results.md")
    assert result.exit_code == 0
    assert (records / "report.html").read_bytes() == before
    tables = (records / "results.md").read_text()
    assert "| cosine-4 | At equal B adaptive beats fixed. |" in tables
    assert "| fixed B=40 | 2 |" in tables


def own_table(tmp_path, text, *arguments):
    (tmp_path / "own.csv").write_text(text)
    short = ["--policy", "linucb", "--budgets", "3,T", "--seeds", "1", "--jobs", "1"]
    return call("compare", tmp_path / "own.csv", *arguments, *short, "--out", tmp_path / "out")


def test_a_class_called_none_is_played(tmp_path, serial):
    result = own_table(tmp_path, "x,kind\n" + "".join(f"{i % 2},{('none', 'some')[i % 2]}\n" for i in range(90)))
    assert result.exit_code == 0, told(result)


def test_columns_can_be_left_out_by_name_and_number(tmp_path, serial):
    text = "id,x,y,kind\n" + "".join(f"{i},{i % 2},{i % 3},{'ab'[i % 2]}\n" for i in range(90))
    assert own_table(tmp_path, text, "--label", "kind", "--ignore", "id", "--ignore", "2").exit_code == 0
    refused = own_table(tmp_path, text, "--ignore", "nowhere")
    assert refused.exit_code == 1
    assert "has no column 'nowhere'; its columns are id, x, y, kind" in told(refused)


def test_a_folder_that_cannot_be_written_to_is_named_before_the_work(tmp_path):
    (tmp_path / "afile").write_text("")
    named = call("reproduce", "cosine", "--only", "fixed-B40", "--out", tmp_path / "afile")
    assert named.exit_code == 1
    assert f"--out names a folder; {tmp_path / 'afile'} is a file" in told(named)


def test_a_full_disk_is_one_sentence_with_the_path_and_the_run_goes_on_later(tmp_path, monkeypatch, unreported):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    short = [*QUICK, "--runs", "1", "--only", "linucb-r1-b1", "--out", tmp_path]
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        result = call(*short)
    assert result.exit_code == 1
    assert re.search(r"records/cosine/\S+\.json\.gz cannot be written: No space left on device\. Free", told(result))
    assert not list(tmp_path.glob("records/**/*.part"))
    assert call(*short).exit_code == 0


def test_a_report_that_cannot_be_written_is_told_with_the_path(tmp_path, serial):
    (tmp_path / "claims.json").mkdir()
    call(*QUICK, "--runs", "1", "--only", "linucb-r1-b1", "--out", tmp_path)
    result = call("report", tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path / 'claims.json'} cannot be written" in told(result)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["1,a", "2,", "3,b"], "for their class"),
        ([f"{i},c{i}" for i in range(150)], "150 classes"),
    ],
)
def test_labels_that_are_no_classes_are_refused(lines, says, tmp_path):
    (tmp_path / "odd.csv").write_text("\n".join(lines) + "\n")
    result = call("compare", tmp_path / "odd.csv", "--out", tmp_path)
    assert result.exit_code == 1
    assert says in told(result)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["reproduce", "nowhere"], "no problem is called 'nowhere'"),
        (["reproduce", "cosine", "--preset", "best"], "--preset must be one of"),
        (["reproduce", "cosine", "--only", "nothing-*"], "code is called nothing-*; there are neuralucb"),
        (["reproduce", "cosine", "--preset", "paper", "--only", "default-*"], "no configuration of preset paper is"),
        (["compare", "cosine", "--label", "x"], "--label and --ignore are for a table of your own"),
        (["reproduce", "cosine", "--only", "fixed-B40", "--out", "afile/x"], "afile"),
        (["reproduce", "cosine", "--address", "auto"], "--address is for --engine ray"),
        (["reproduce", "mine.csv"], "A table of your own is played by rarely compare"),
        (["compare", "missing.csv"], "missing.csv cannot be read"),
        (["report", "nowhere"], "no records to report"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").write_text("")
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in told(result)
    assert "Traceback" not in result.output


def test_wrong_usage_has_its_own_exit_code():
    assert call("reproduce", "cosine", "--runs", "0").exit_code == 2


def test_mixing_is_refused_with_a_way_out(records, unreported):
    other = [a if a != "20" else "21" for a in QUICK]
    refused = call(*other, "--out", records)
    assert refused.exit_code == 1
    assert "rounds is 20 on record, 21 is asked for" in told(refused)
    assert "--replace" in told(refused)
    assert call(*other, "--out", records, "--replace").exit_code == 0


def test_a_failed_cell_is_told_at_the_end_with_exit_code_1(tmp_path, monkeypatch):
    def failing(cell):
        from rarely_lab.engine.cell import Result, play_cell

        return Result(cell.id, None, "it rained") if cell.seed else play_cell(cell)

    monkeypatch.setattr("rarely_lab.commands.progress.LocalExecutor", lambda jobs: lambda cells: map(failing, cells))
    result = call(*QUICK, "--out", tmp_path)
    assert result.exit_code == 1
    assert "fixed-B40/seed1: it rained" in told(result)
    assert "3 of 6 cells failed" in told(result)
    assert (tmp_path / "report.html").exists()
