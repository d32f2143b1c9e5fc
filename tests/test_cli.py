import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

import rarely
from rarely import __version__
from rarely._cli import app
from rarely._cli.console import Shown, console
from rarely._core import native
from rarely.runs.executor import SerialExecutor
from rarely.worlds import datasets

QUICK = ["reproduce", "cosine", "--preset", "code", "--runs", "2", "--rounds", "20", "--jobs", "1", "--only", "fixed-*"]
SKETCH = '<svg viewBox="0 0 9 9"></svg>'
"""What the fixture puts in the place of a figure."""
pytestmark = pytest.mark.usefixtures("sketched_figures")


@pytest.fixture
def serial(monkeypatch):
    """Cells played in this process: starting another takes longer than they do."""
    monkeypatch.setattr("rarely._cli.reproduce.LokyExecutor", lambda jobs: SerialExecutor())


@pytest.fixture
def unreported(serial, monkeypatch):
    """Runs without their report, whose figures take longer."""
    monkeypatch.setattr("rarely._cli.reproduce.make_report", lambda out: None)


@pytest.fixture(scope="module")
def played(tmp_path_factory, sketched_figures):
    """Six cells on record, with their report, and what the command printed."""
    out = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rarely._reproduce.report.page.drawn", lambda draw: SKETCH)
        return out, call(*QUICK, "--out", out)


@pytest.fixture
def records(played, tmp_path):
    """A copy of those records that a test may change."""
    return shutil.copytree(played[0], tmp_path / "out")


def call(*arguments, **environment):
    result = CliRunner().invoke(app, [str(a) for a in arguments], env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def told(result):
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", result.output).split())


def commands(group, *path):
    """The path of every command, and of every group of commands."""
    yield " ".join(path), group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *path, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(name):
    result = call(*name.split(), "--help", COLUMNS="200")
    assert result.exit_code == 0
    if not hasattr(COMMANDS[name], "commands"):
        assert f"rarely {name} " in told(result).partition("Examples")[2]


def test_version():
    assert told(call("--version")) == __version__


def python(code, **environment):
    """What a fresh Python prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_the_version_is_said_without_the_command_line():
    said = python(
        "import sys; sys.argv[1:] = ['--version']\n"
        "from rarely.__main__ import main; main()\n"
        "print(sorted({'typer', 'rich', 'rarely._reproduce', 'rarely.planning', 'matplotlib'} & sys.modules.keys()))"
    )
    assert said.split() == [__version__, "[]"]


def test_what_takes_long_to_import_waits_for_the_command_that_needs_it():
    wanted = "{'matplotlib', 'ray', 'sklearn'}"
    assert python(f"import sys, rarely._cli; print(sorted({wanted} & sys.modules.keys()))") == "[]\n"


@pytest.mark.parametrize(
    "command", [["report", "nowhere"], ["reproduce", "cosine", "--only", "fixed-B40", "--out", "x"]]
)
def test_the_first_line_comes_before_figures_are_imported(command, tmp_path):
    """Of the commands that draw: Matplotlib alone takes half a second and more."""
    said = python(
        f"import os, sys; os.chdir({str(tmp_path)!r}); sys.argv[1:] = {command!r}\n"
        "from rarely._cli import app; from rarely._cli.console import console; say = console.print\n"
        "def first(*given, **how):\n"
        "    say(*given, **how); say('matplotlib' in sys.modules); os._exit(0)\n"
        "console.print = first; app()"
    )
    assert said.splitlines()[1] == "False"


def test_letters_that_the_terminal_has_not_do_not_end_the_program():
    code = "import sys; sys.argv[1:] = ['doctor', '--help']; from rarely.__main__ import main; main()"
    assert "?" in python(code, PYTHONIOENCODING="ascii")


def test_doctor_says_what_is_found_and_how_it_is_judged():
    result = call("doctor")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split()[:3] == ["ok", "rarely", f"{__version__},"]
    assert any(line.split()[1] == "threads" for line in lines)
    assert lines[-1].startswith("problems: 0, notes: ")


def test_doctor_as_json_has_everything():
    result = call("doctor", "--json")
    found = json.loads(result.output)
    assert found["ok"]
    assert found["build"] == rarely.build_info().describe()
    assert {finding["status"] for finding in found["findings"]} <= {"ok", "note"}


def test_doctor_fails_where_something_asked_for_is_missing():
    result = call("doctor", RARELY_COMPILED="yes")
    assert result.exit_code == 1
    assert "problem loops" in told(result)
    assert "problems: 1" in told(result)
    assert json.loads(call("doctor", "--json", RARELY_COMPILED="yes").output)["ok"] is False


HIDDEN = (
    "from pathlib import Path; from rarely._core.native import loader; loader.LIBRARY = Path('nowhere.so'); "
    "loader.RECORD = Path('nowhere.json')\n"
    "import sys; from typer.testing import CliRunner; from rarely._cli import app, reproduce\n"
    "from rarely.runs.executor import SerialExecutor; reproduce.LokyExecutor = lambda jobs: SerialExecutor()\n"
    "reproduce.make_report = lambda out: None\n"
    "result = CliRunner().invoke(app, {arguments!r}); print(result.exit_code); print(result.output)"
)


@pytest.mark.parametrize(
    ("wish", "code", "says"),
    [
        ("1", "1", "problem loops RARELY_COMPILED=1, but there are no compiled loops"),
        ("", "0", "note loops NumPy, several times slower than compiled loops"),
    ],
)
def test_doctor_without_compiled_loops(wish, code, says):
    said = python(HIDDEN.format(arguments=["doctor"]), RARELY_COMPILED=wish).split()
    assert said[0] == code
    assert says in " ".join(said)
    assert "Install the package again" in " ".join(said)


def test_reproduce_without_compiled_loops_says_what_to_do(tmp_path):
    arguments = [*QUICK, "--only", "nothing", "--runs", "1", "--only", "linucb-r1-b1", "--out", str(tmp_path)]
    code, first = python(HIDDEN.format(arguments=arguments), RARELY_COMPILED="").splitlines()[:2]
    assert code == "0"
    assert first.startswith(f"rarely {__version__} with NumPy's loops, several times slower")
    assert "nowhere.so is missing. Install the package again" in first


def test_reproduce_fails_at_once_where_the_loops_asked_for_are_missing(tmp_path):
    said = python(HIDDEN.format(arguments=[*QUICK, "--out", str(tmp_path)]), RARELY_COMPILED="1")
    assert said.startswith("1\nerror: RARELY_COMPILED=1 asks for the compiled loops, and they are missing.")
    assert not list(tmp_path.iterdir())


def test_progress_is_told_by_the_clock_and_not_by_the_cells(tmp_path, monkeypatch, unreported):
    """The first cell may take minutes: a line comes all the same, and the next says how long the others take."""
    from rarely.runs.cell import play_cell

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

    monkeypatch.setattr(sys.modules["rarely._cli.console"], "SECONDS_TO_FIRST_LINE", 0.05)
    monkeypatch.setattr("rarely._cli.reproduce.LokyExecutor", lambda jobs: patient)
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


def test_a_class_called_none_is_played(tmp_path):
    result = own_table(tmp_path, "x,kind\n" + "".join(f"{i % 2},{('none', 'some')[i % 2]}\n" for i in range(90)))
    assert result.exit_code == 0, told(result)


def test_columns_can_be_left_out_by_name_and_number(tmp_path):
    text = "id,x,y,kind\n" + "".join(f"{i},{i % 2},{i % 3},{'ab'[i % 2]}\n" for i in range(90))
    assert own_table(tmp_path, text, "--label", "kind", "--ignore", "id", "--ignore", "2").exit_code == 0
    refused = own_table(tmp_path, text, "--ignore", "nowhere")
    assert refused.exit_code == 1
    assert "has no column 'nowhere'; its columns are id, x, y, kind" in told(refused)


@pytest.mark.parametrize("command", [["reproduce", "cosine", "--only", "fixed-B40"], ["plan", "--world", "cosine"]])
def test_a_folder_that_cannot_be_written_to_is_named_before_the_work(command, tmp_path, monkeypatch):
    (tmp_path / "afile").write_text("")
    named = call(*command, "--out", tmp_path / "afile")
    assert named.exit_code == 1
    assert f"--out names a folder; {tmp_path / 'afile'} is a file" in told(named)
    monkeypatch.setattr("rarely.runs.writing.os.access", lambda path, mode: False)
    closed = call(*command, "--out", tmp_path / "closed")
    assert closed.exit_code == 1
    assert f"can be written to; {tmp_path} cannot" in told(closed)
    assert not (tmp_path / "closed").exists()


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


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_a_terminal_breaks_lines_between_words_and_a_pipe_not_at_all():
    code = "from rarely._cli.console import console; console.print('updates ' * 30)"
    piped = python(code)
    assert len(piped.splitlines()) == 1
    import pty

    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "dumb"}
    subprocess.run([sys.executable, "-c", code], stdout=follower, stderr=follower, env=environment, check=True)
    os.close(follower)
    shown = os.read(leader, 10**5).decode().split("\r\n")
    os.close(leader)
    assert len(shown) > 2
    assert {word for line in shown for word in line.split()} == {"updates"}


@pytest.fixture
def lines(monkeypatch):
    """Lines that are printed, every hundredth of a second."""
    lines = []
    monkeypatch.setattr(console, "print", lambda text, **how: lines.append(text))
    monkeypatch.setattr(sys.modules["rarely._cli.console"], "SECONDS_BETWEEN_LINES", 0.01)
    return lines


def shown(line):
    """What tells these lines."""
    return type("Told", (Shown,), {"line": lambda self: line()})()


def test_a_line_comes_every_so_many_seconds_where_there_is_no_terminal(lines):
    with shown(lambda: f"line {len(lines)}"):
        while len(lines) < 3:
            time.sleep(0.005)
    count = len(lines)
    time.sleep(0.05)
    assert lines[:3] == ["line 0", "line 1", "line 2"]
    assert len(lines) == count


def test_a_line_without_text_is_not_printed(lines):
    texts = iter(["", "", "one", "two"])
    with shown(lambda: next(texts, "")):
        while len(lines) < 2:
            time.sleep(0.005)
    assert lines == ["one", "two"]


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
        (["plan", "--world", "cosine+drift"], "name cosine itself"),
        (["report", "nowhere"], "no records to report"),
        (["data", "iris"], "unknown dataset 'iris'"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").write_text("")
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in told(result)
    assert "Traceback" not in result.output


def test_wrong_usage_has_its_own_exit_code(tmp_path):
    assert call("reproduce", "cosine", "--runs", "0").exit_code == 2
    assert call("nothing").exit_code == 2


def test_mixing_is_refused_with_a_way_out(records, unreported):
    other = [a if a != "20" else "21" for a in QUICK]
    refused = call(*other, "--out", records)
    assert refused.exit_code == 1
    assert "rounds is 20 on record, 21 is asked for" in told(refused)
    assert "--replace" in told(refused)
    assert call(*other, "--out", records, "--replace").exit_code == 0


def test_a_failed_cell_is_told_at_the_end_with_exit_code_1(tmp_path, monkeypatch):
    def failing(cell):
        from rarely.runs.cell import Result, play_cell

        return Result(cell.id, None, "it rained") if cell.seed else play_cell(cell)

    monkeypatch.setattr("rarely._cli.reproduce.LokyExecutor", lambda jobs: lambda cells: map(failing, cells))
    result = call(*QUICK, "--out", tmp_path)
    assert result.exit_code == 1
    assert "fixed-B40/seed1: it rained" in told(result)
    assert "3 of 6 cells failed" in told(result)
    assert (tmp_path / "report.html").exists()


def test_data_lists_what_is_missing_and_where_it_would_come_from(tmp_path):
    result = call("data", RARELY_DATA="", RARELY_CACHE=str(tmp_path))
    assert result.exit_code == 0
    assert told(result).count("not found") == len(datasets.DATASETS)
    assert call("data", "magic", RARELY_DATA="", RARELY_CACHE=str(tmp_path)).exit_code == 1
    assert call("data", "--path", tmp_path).exit_code == 1
    assert "archive.ics.uci.edu" in told(result)


def test_data_refuses_an_altered_file(tmp_path):
    (tmp_path / "magic04.data").write_text("1,2,g\n")
    result = call("data", "magic", "--path", tmp_path)
    assert result.exit_code == 1
    assert "not the original" in told(result)


def test_a_file_is_checked_as_what_it_is_called(tmp_path):
    (tmp_path / "magic04.data").write_text("1,2,g\n")
    assert "not the original magic04.data" in told(call("data", "--path", tmp_path / "magic04.data"))
    (tmp_path / "other.data").write_text("1,2,g\n")
    assert "Name the dataset" in told(call("data", "--path", tmp_path / "other.data"))
    assert "does not exist" in told(call("data", RARELY_DATA=str(tmp_path / "nowhere")))


def test_data_that_cannot_be_fetched_says_where_to_put_it(tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OSError("no network here")

    monkeypatch.setattr(datasets.urllib.request, "urlopen", refused)
    result = call("data", "--fetch", RARELY_DATA="", RARELY_CACHE=str(tmp_path))
    assert result.exit_code == 1
    assert f"Put the original file into {tmp_path / 'mushroom'}" in told(result)


def test_without_the_laboratory_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; import runpy; runpy.run_module('rarely', run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'rarely[lab]'" in result.stderr
    assert "Traceback" not in result.stderr
