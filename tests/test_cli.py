import importlib.metadata
import json
import os
import subprocess
import sys
import time

import pytest
import typer

import rarely
from command_line import HIDDEN, call, python, told
from rarely import __version__
from rarely._cli import LAB, app
from rarely.console import Shown, console
from rarely.extend.provisional import native
from rarely.worlds import datasets


def commands(group, *path):
    """The path of every command, and of every group of commands."""
    yield " ".join(path), group
    for name in group.list_commands(None) if hasattr(group, "list_commands") else ():
        yield from commands(group.get_command(None, name), *path, name)


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples(name):
    result = call(*name.split(), "--help", COLUMNS="200")
    assert result.exit_code == 0
    if not hasattr(COMMANDS[name], "list_commands"):
        assert f"rarely {name} " in told(result).partition("Examples")[2]


def test_version():
    assert told(call("--version")) == __version__


def test_the_version_is_said_without_the_command_line():
    said = python(
        "import sys; sys.argv[1:] = ['--version']\n"
        "from rarely.__main__ import main; main()\n"
        "print(sorted({'typer', 'rich', 'rarely_lab', 'rarely.planning', 'matplotlib'} & sys.modules.keys()))"
    )
    assert said.split() == [__version__, "[]"]


def test_what_takes_long_to_import_waits_for_the_command_that_needs_it():
    wanted = "{'matplotlib', 'jinja2', 'loky', 'ray', 'sklearn', 'rarely_lab'}"
    assert python(f"import sys, rarely._cli; print(sorted({wanted} & sys.modules.keys()))") == "[]\n"


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
    native.form()  # read before the wish is another, so that the tests after this one have their loops
    result = call("doctor", RARELY_COMPILED="yes")
    assert result.exit_code == 1
    assert "problem loops" in told(result)
    assert "problems: 1" in told(result)
    assert json.loads(call("doctor", "--json", RARELY_COMPILED="yes").output)["ok"] is False


@pytest.mark.parametrize(
    ("wish", "code", "says"),
    [
        ("1", "1", "problem loops RARELY_COMPILED=1, but there are no compiled loops"),
        ("", "0", "note loops NumPy, several times slower than compiled loops"),
    ],
)
def test_doctor_without_compiled_loops(wish, code, says):
    said = python(HIDDEN.format(setup="", arguments=["doctor"]), RARELY_COMPILED=wish).split()
    assert said[0] == code
    assert says in " ".join(said)
    assert "Install the package again" in " ".join(said)


def test_a_folder_that_cannot_be_written_to_is_named_before_the_work(tmp_path, monkeypatch):
    command = ["plan", "--world", "cosine"]
    (tmp_path / "afile").write_text("")
    named = call(*command, "--out", tmp_path / "afile")
    assert named.exit_code == 1
    assert f"--out names a folder; {tmp_path / 'afile'} is a file" in told(named)
    monkeypatch.setattr("rarely.runs.files.os.access", lambda path, mode: False)
    closed = call(*command, "--out", tmp_path / "closed")
    assert closed.exit_code == 1
    assert f"can be written to; {tmp_path} cannot" in told(closed)
    assert not (tmp_path / "closed").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pty")
def test_a_terminal_breaks_lines_between_words_and_a_pipe_not_at_all():
    code = "from rarely.console import console; console.print('updates ' * 30)"
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
    monkeypatch.setattr(sys.modules["rarely.console"], "SECONDS_BETWEEN_LINES", 0.01)
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
    ("arguments", "says"),
    [
        (["plan", "--world", "cosine+drift"], "name cosine itself"),
        (["plan", "--world", "nowhere"], "no world is called 'nowhere'"),
        (["data", "iris"], "unknown dataset 'iris'"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert result.exit_code == 1
    assert says in told(result)
    assert "Traceback" not in result.output


def test_wrong_usage_has_its_own_exit_code():
    assert call("data", "--nothing").exit_code == 2
    assert call("nothing").exit_code == 2


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


def test_without_its_extra_the_command_says_what_to_install():
    code = "import sys; sys.modules['typer'] = None; import runpy; runpy.run_module('rarely', run_name='__main__')"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'rarely[cli]'" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def without_lab(monkeypatch):
    """No other package has commands."""
    monkeypatch.setattr("rarely._cli.entry_points", lambda group: ())


@pytest.mark.parametrize("name", LAB)
@pytest.mark.parametrize("arguments", [[], ["cosine", "--runs", "3", "--quick"], ["-x"]])
def test_without_the_laboratory_its_commands_say_what_to_install(name, arguments, without_lab):
    result = call(name, *arguments)
    assert result.exit_code == 2
    assert f"rarely {name}: it is part of rarely-lab: pip install rarely-lab" in told(result)
    assert "Traceback" not in result.output


def test_the_help_lists_the_laboratorys_commands_whether_it_is_installed_or_not(monkeypatch, without_lab):
    lacking = told(call("--help", COLUMNS="200"))
    monkeypatch.undo()
    installed = told(call("--help", COLUMNS="200"))
    for name, says in LAB.items():
        assert f"{name} {says}" in installed
        assert f"{name} {says} Not available: it is part of rarely-lab" in lacking


def entry(name, value):
    return importlib.metadata.EntryPoint(name, value, "rarely.commands")


def test_a_package_adds_commands_by_entry_points(monkeypatch, tmp_path):
    (tmp_path / "beside.py").write_text(
        "import typer\ndef greet(name: str) -> None:\n    typer.echo(f'hello {name}')\n"
        "several = typer.Typer()\nseveral.command('one')(greet)\nseveral.command('two')(greet)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entries = [entry("greet", "beside:greet"), entry("many", "beside:several"), entry("gone", "nowhere:greet")]
    monkeypatch.setattr("rarely._cli.entry_points", lambda group: entries)
    assert told(call("greet", "you")) == "hello you"
    assert told(call("many", "two", "you")) == "hello you"
    assert "greet" in told(call("--help"))
    broken = call("gone", "you")
    assert broken.exit_code == 2
    assert "nowhere:greet cannot be imported, ModuleNotFoundError" in told(broken)


@pytest.mark.parametrize("name", ["loky", "matplotlib", "jinja2"])
def test_a_plan_says_what_it_needs_before_it_begins(name, monkeypatch):
    monkeypatch.setattr("rarely._cli.plan.find_spec", lambda asked: None if asked == name else asked)
    result = call("plan", "--world", "cosine")
    assert result.exit_code == 1
    assert f"rarely plan needs {name}: pip install 'rarely[plan]'" in told(result)
