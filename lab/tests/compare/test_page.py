import gzip
import re
import xml.etree.ElementTree as ET

import pytest
from typer.testing import CliRunner

from comparison_records import record
from rarely._cli import app
from rarely.pages.figures import drawn
from rarely_lab.compare import leaderboard, read_records
from rarely_lab.compare.page import draw_frontier, line_style, render_page, write_leaderboard
from rarely_lab.compare.runs import Store
from rarely_lab.compare.scores import BOARDS
from rarely_lab.engine.record import NothingOnRecord, pack

RECORDS = [
    record(problem, policy, batches, seed, regret, family=family)
    for problem, family in (("p", "gallery"), ("q<b>", "drift"))
    for policy, base in (("a", 20), ("b&c", 30), ("uniform", 100))
    for batches, regret in ((5, base + 9), (20, base + 3), (None, base))
    for seed in range(3)
    if not (policy == "uniform" and batches is None)
]


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "300"})


@pytest.fixture
def folder(tmp_path):
    for one in RECORDS:
        if "<" not in one.problem:
            Store(tmp_path).write(one)
    return tmp_path


def test_the_page_is_one_file_with_sound_figures_and_escaped_names(tmp_path):
    html = render_page(RECORDS, leaderboard(RECORDS), ["a <doubt>"])
    figures = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert len(figures) == 1 + 2  # the legend, and two problems
    for figure in figures:
        ET.fromstring(figure)
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", html)
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "q&lt;b&gt;" in html
    assert "<b>" not in html
    assert "a &lt;doubt&gt;" in html


def test_the_leaderboard_is_written_with_markdown(folder):
    written = write_leaderboard(folder, folder / "board.md")
    assert [row.policy for row in written.board.rows] == ["a", "b&c", "uniform"]
    text = (folder / "board.md").read_text(encoding="utf-8")
    assert "| 1. a |" in text
    assert written.path.name == "leaderboard.html"


def test_the_figures_say_what_is_0():
    assert "best sequential" in drawn(draw_frontier, leaderboard(RECORDS), "p")
    finite = drawn(draw_frontier, leaderboard([one for one in RECORDS if one.batches is not None]), "p")
    assert "best with B = 20" in finite
    assert "sequential" not in finite


def test_two_dozen_policies_look_different():
    assert len({str(line_style(index)) for index in range(24)}) == 24


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(NothingOnRecord, match="holds no records to compare"):
        write_leaderboard(tmp_path)


def test_the_command_plays_reports_and_resumes(tmp_path):
    own = "class Mine:\n    def __init__(self, task):\n        pass\n"
    own += "    def select(self, contexts):\n        return 0\n    def due(self, round):\n        return True\n"
    own += "    def observe(self, *told):\n        pass\n    def update(self):\n        pass\n"
    (tmp_path / "my_own_policy.py").write_text(own, encoding="utf-8")
    command = ["compare", "needle", "two-sided+delay", "--policy", "linucb", "--policy", "mine=my_own_policy:Mine"]
    command += ["--budgets", "3,T", "--seeds", "2", "--rounds", "20", "--jobs", "1", "--out", tmp_path / "out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.syspath_prepend(tmp_path)
        result = call(*command, "--pack", tmp_path / "all.gz", "--markdown", tmp_path / "board.md")
        assert result.exit_code == 0, result.output
        assert "16 cells to play" in result.output
        assert "0 cells to play" in call(*command).output
    assert "16 records packed" in result.output
    assert "mine" in (tmp_path / "board.md").read_text(encoding="utf-8")
    merged = call("compare", "--merge", tmp_path / "all.gz", "--out", tmp_path / "merged")
    assert merged.exit_code == 0, merged.output
    assert "16 records in" in merged.output
    report = call("compare", "--merge", tmp_path / "merged", "--out", tmp_path / "merged")
    assert report.exit_code == 0
    assert "leaderboard" in report.output


def test_a_refused_record_is_named_and_the_exit_code_is_1(folder):
    broken = next(folder.rglob("*.gz"))
    broken.write_bytes(b"nonsense")
    result = call("compare", "--merge", folder, "--out", folder)
    assert result.exit_code == 1
    assert broken.name in result.output
    assert "1 file was refused" in (folder / "leaderboard.html").read_text(encoding="utf-8")


@pytest.fixture
def own(tmp_path, monkeypatch, serial):
    """A folder with policies of one's own: one that always takes the same arm, and one that fails."""
    text = "class Same:\n    def __init__(self, task):\n        self.arms = task.arms\n"
    text += "    def select(self, contexts):\n        return 0\n    def due(self, round):\n        return True\n"
    text += "    def observe(self, *told):\n        pass\n    def update(self):\n        pass\n"
    text += "class Fails(Same):\n    def select(self, contexts):\n        raise RuntimeError('boom')\n"
    name = f"own_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


SHORT = ["--budgets", "3", "--seeds", "2", "--rounds", "20", "--jobs", "1"]


def test_what_failed_is_told_also_where_nothing_else_was_played(own, tmp_path):
    result = call("compare", "needle", "--policy", f"x={own}:Fails", *SHORT, "--out", tmp_path / "out")
    assert result.exit_code == 1
    text = " ".join(result.output.split())
    assert f"needle/x/B3/seed0: RuntimeError: boom ({own}.py, line 14)" in text
    assert "1 more failed as needle/x/B3/seed0 did, the last of them needle/x/B3/seed1" in text
    assert "2 of 2 cells failed" in text
    assert "no records" not in text


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x=../mine:make", "name the module as `import` does, without folder and .py, and run where its file is"),
        ("x=mine.py:make", "name the module as `import` does"),
        ("x=unfinished:make", "unfinished cannot be imported, SyntaxError"),
        ("x=dividing:make", "dividing cannot be imported, ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_is_no_traceback(source, says, tmp_path, monkeypatch):
    (tmp_path / "unfinished.py").write_text("def make(", encoding="utf-8")
    (tmp_path / "dividing.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = call("compare", "needle", "--policy", source, *SHORT, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert says in " ".join(result.output.split())
    assert "Traceback" not in result.output


def test_a_policy_that_does_not_beat_uniform_play_is_named(tmp_path):
    for seed in range(2):
        Store(tmp_path).write(record("p", "a", 5, seed, 150.0, uniform=100))
    with pytest.raises(NothingOnRecord, match="nothing that beats it"):
        write_leaderboard(tmp_path)


def test_records_are_packed_also_where_no_page_can_be_made(own, tmp_path):
    """A policy that never learns, alone: nothing beats uniform play, so there is no scale."""
    command = ["compare", "needle", "--policy", f"x={own}:Same", *SHORT, "--out", tmp_path / "out"]
    result = call(*command, "--pack", tmp_path / "mine.gz")
    assert result.exit_code == 1
    assert "2 records packed" in result.output
    assert "or nothing that beats it" in result.output
    assert len(read_records(tmp_path / "mine.gz").records) == 2


def test_a_policy_alone_has_its_page_where_a_board_has_the_zero(tmp_path, monkeypatch):
    monkeypatch.setitem(BOARDS["v1"], "scales", {"needle": [20.0, 100.0]})
    for batches in (5, 20):
        Store(tmp_path).write(record("needle", "mine", batches, 0, 150.0, uniform=100, rounds=2000))
    result = call("compare", "--merge", tmp_path, "--out", tmp_path, "--pack", tmp_path / "mine.gz")
    assert result.exit_code == 0, result.output
    assert "One run of each policy ranks nobody" in result.output
    assert "\nmine: area 1.625 over 1 problem" in result.output


def test_nothing_is_packed_where_there_is_nothing(own, tmp_path):
    command = ["compare", "needle", "--policy", f"x={own}:Fails", *SHORT, "--out", tmp_path / "out"]
    result = call(*command, "--pack", tmp_path / "mine.gz")
    assert result.exit_code == 1
    assert "records packed" not in result.output
    assert not (tmp_path / "mine.gz").exists()


def test_refused_lines_of_a_pack_are_called_records(folder, tmp_path):
    pack(read_records(folder).records, tmp_path / "all.gz")
    lines = gzip.decompress((tmp_path / "all.gz").read_bytes()).splitlines()
    (tmp_path / "all.gz").write_bytes(gzip.compress(b"\n".join([*lines, b"{", b"{", b"["])))
    result = call("compare", "--merge", tmp_path / "all.gz", "--out", tmp_path / "merged")
    assert result.exit_code == 1
    assert f"refused: 3 records; {len(lines)} records were merged" in result.output


def test_runs_with_b_equal_to_t_alone_make_no_leaderboard(tmp_path):
    Store(tmp_path).write(record("p", "a", None, 0, 50.0, uniform=100))
    with pytest.raises(NothingOnRecord, match="play finite budgets too"):
        write_leaderboard(tmp_path)


def test_a_budget_that_nobody_has_beside_others_is_told(tmp_path):
    Store(tmp_path).write(record("p", "a", 5, 0, 50.0, uniform=100))
    Store(tmp_path).write(record("p", "b", 20, 0, 50.0, uniform=100))
    with pytest.raises(NothingOnRecord, match=r"with every budget on record \(5, 20\)"):
        write_leaderboard(tmp_path)


def test_intervals_that_are_not_known_leave_a_page(tmp_path):
    for batches in (5, 20):
        Store(tmp_path).write(record("p", "a", batches, 0, 50.0 - batches, uniform=100))
    assert write_leaderboard(tmp_path).path.is_file()


def test_a_folder_of_a_comparison_is_refused_by_the_report_of_the_paper(folder):
    result = call("report", folder)
    assert result.exit_code == 1
    assert "its kind is 'comparison'" in result.output


def test_columns_that_are_no_features_are_left_out(tmp_path, monkeypatch, serial):
    rows = [f"{i},{i % 3 - 1}.5,{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["id,x,kind", *rows]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = ["compare", "mine.csv", "--label", "kind", "--policy", "uniform", *SHORT, "--out", "out"]
    call(*command, "--ignore", "id")
    (first, *_) = read_records(tmp_path / "out").records
    assert first.data["asked"]["problem"]["world"]["dim"] == 2 * (1 + 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing"], "no world is called 'nothing'"),
        (["needle", "--policy", "nothing"], "no policy is called 'nothing'"),
        (["needle", "--budgets", "5;20"], "separated by commas"),
        (["needle", "--budgets", ","], "at least one problem, one policy and one budget"),
        (["needle", "--label", "x"], "are for a table of your own"),
        (["needle", "--merge", "x"], "plays nothing"),
        (["--merge", "nowhere"], "nowhere does not exist; name a folder"),
        (["--merge", "."], "has no records"),
        (["needle", "--rounds", "2", "--budgets", "5"], "nothing is left to play. B = 5 is left out on needle"),
        (["needle", "--ignore", "x"], "are for a table of your own"),
    ],
)
def test_misuse_is_one_sentence(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = call("compare", *arguments)
    assert result.exit_code == 1
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = call("compare", "needle", "--policy", "linucb", "--out", tmp_path / "file")
    assert result.exit_code == 1
    assert str(tmp_path / "file") in result.output
    assert isinstance(result.exception, SystemExit)
