"""Records that were changed, damaged or made up: each costs its own cell, and a sentence."""

import copy
import errno
import gzip
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lab_records import record
from mutations import mutations
from rarely.cli import app
from rarely.experiments.catalogue import PROBLEMS, configurations
from rarely.experiments.config import Problem, identity
from rarely.experiments.queue import plan_cells
from rarely.experiments.record_checks import NEEDED, check_record
from rarely.experiments.records import FORMAT, Record
from rarely.experiments.report.writer import write_report
from rarely.experiments.runner import play_cell
from rarely.experiments.store import Store
from rarely.simulation.sealed_json import Malformed, digest_of, sealed
from rarely.worlds import Quadratic, Table

MUSEUM = Path(__file__).parents[1] / "museum"
SMALL = replace(PROBLEMS["cosine"], hidden=8, steps=5, batches=(3,), log_ratios=(2.0,))
PATTERNS = ("linucb-r1-b1", "fixed-*", "adaptive-*", "neuralucb")
pytestmark = pytest.mark.usefixtures("sketched_figures")


@pytest.fixture(scope="module")
def played():
    """Real records of every kind of configuration, by id."""
    records = [play_cell(cell).record for cell in plan_cells([SMALL], ["code"], 2, 25, PATTERNS)]
    return {one.id: one for one in records}


@pytest.fixture
def folder(played, tmp_path):
    for one in played.values():
        Store(tmp_path).write(one)
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    return result


def told(result):
    return " ".join(result.output.split())


def written(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    return path


def on_file(path):
    return json.loads(gzip.decompress(path.read_bytes()))


def without_digest(data):
    """As version 0.1 wrote it."""
    return {name: value for name, value in data.items() if name != "digest"} | {"format": 1}


def some(folder, kind="fixed-B3"):
    return next(path for path in sorted(folder.glob("records/**/*.json.gz")) if kind in str(path))


def test_a_record_carries_the_digest_of_its_content(folder):
    data = on_file(some(folder))
    assert data["format"] == FORMAT
    assert len(data["digest"]) == 64
    assert data["digest"] == digest_of(data)
    assert data["digest"] != digest_of(data | {"regret": 1.0})
    assert all(one.has_digest for one in Store(folder).read())


@pytest.mark.parametrize(
    "edit",
    [{"regret": 1.0}, {"regret": -1e9}, {"right": 0.99}, {"digest": "0" * 64}, {"code": "y"}, {"seconds": {}}],
    ids=str,
)
def test_an_edited_record_is_refused_alone_and_the_report_goes_on(folder, edit):
    path = some(folder)
    data = on_file(path) | edit
    if "regret" in edit:  # as somebody would who knows that there is a curve
        data["curve"] = [edit["regret"] * (t + 1) / 25 for t in range(25)]
    written(path, data)
    result = call("report", folder, "--markdown", folder / "results.md")
    assert result.exit_code == 1
    assert "refused: 1 file in records; the report leaves them out and says so" in told(result)
    assert f"{path}: its content differs from its digest" in told(result)
    assert "Run reproduce again" in told(result)
    short = path.relative_to(folder).as_posix()
    for page in ("report.html", "results.md"):
        assert f"1 file was refused, and this report is made without: {short} (" in (folder / page).read_text()
    said = json.loads((folder / "claims.json").read_text())
    assert list(said["refused"]) == [short]
    assert said["without_digest"] == 0


def test_all_that_are_refused_are_named(folder):
    paths = sorted(folder.glob("records/**/*.json.gz"))
    for path in paths[:-1]:
        written(path, on_file(path) | {"regret": 1.0})
    result = call("report", folder)
    assert f"refused: {len(paths) - 1} files in records" in told(result)
    assert all(str(path) in told(result) for path in paths[:-1])
    assert f"{len(paths) - 1} files were refused" in (folder / "report.html").read_text()
    written(paths[-1], on_file(paths[-1]) | {"regret": 1.0})
    result = call("report", folder)
    assert result.exit_code == 1
    assert "holds no records to report" in told(result)
    assert all(str(path) in told(result) for path in paths)


def test_reproduce_says_what_it_refuses_and_plays_it_again(tmp_path):
    quick = ["reproduce", "cosine", "--preset", "code", "--runs", "1", "--rounds", "20", "--jobs", "1"]
    quick += ["--only", "fixed-*", "--out", tmp_path]
    assert call(*quick).exit_code == 0
    path = some(tmp_path, "fixed-B40")
    regret = on_file(path)["regret"]
    written(path, on_file(path) | {"regret": -1e9})
    again = call(*quick)
    assert again.exit_code == 0
    assert "refused: 1 file in records; cells asked for are played again" in told(again)
    assert str(path) in told(again)
    assert "1 cells to play" in told(again)
    assert on_file(path)["regret"] == regret


def test_a_digest_cannot_be_left_out_of_a_format_that_has_one(folder):
    path = some(folder)
    written(path, without_digest(on_file(path)) | {"format": FORMAT})
    assert "it has no digest" in told(call("report", folder))


def test_records_of_version_0_1_are_read_and_marked(tmp_path):
    shutil.copytree(MUSEUM / "0.1.0" / "laboratory", tmp_path, dirs_exist_ok=True)
    assert not any(one.has_digest for one in Store(tmp_path).read())
    result = call("report", tmp_path, "--markdown", tmp_path / "results.md")
    assert result.exit_code == 0
    assert "without digest: 3 of 3 records, written by version 0.1" in told(result)
    for page in ("report.html", "results.md"):
        assert "3 of 3 records are without digest" in (tmp_path / page).read_text()
    assert json.loads((tmp_path / "claims.json").read_text())["without_digest"] == 3


def test_records_with_a_digest_are_not_marked(folder):
    assert "without digest" not in told(call("report", folder))
    assert "digest" not in (folder / "report.html").read_text()


def test_true_records_of_every_kind_are_such_as_a_run_can_have(played):
    for one in played.values():
        check_record(one.data)
    rows = [[float(i % 5), float(i % 3)] for i in range(40)]
    table = Problem("own", Table.of(rows, [i % 2 for i in range(40)]), hidden=8, steps=2, batches=(3,))
    world = replace(PROBLEMS["quadratic"], hidden=8, steps=2, batches=(3,), log_ratios=(2.0,))
    for cell in plan_cells([table, world], ["practical", "code"], 2, 30, PATTERNS):
        result = play_cell(cell)
        assert result.error == ""
        check_record(without_digest(json.loads(json.dumps(result.record.data))))


def changed(data, place, value):
    """The data with another value at a place, which is (name, name, …)."""
    data = copy.deepcopy(data)
    inner = data
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return data


IMPOSSIBLE = [
    (("regret",), -1e9),
    (("regret",), 1.0),  # not the end of the curve
    (("regret",), math.nan),
    (("regret",), "10"),
    (("regret",), True),
    (("right",), 1.5),
    (("right",), 1.0),  # and yet regret
    (("reward",), math.inf),
    (("reward",), 10**400),
    (("curve",), [0.0] * 25),
    (("curve", 3), 1e9),
    (("curve", 3), -1.0),
    (("curve",), [1.0]),
    (("curve",), None),
    (("updates", "rounds"), [9, 9]),
    (("updates", "rounds"), [0, 9]),
    (("updates", "rounds"), [9, 25]),
    (("updates", "rounds"), [3, 9, 12]),  # of a budget of two
    (("updates", "log_det"), [1.0]),
    (("updates", "attempts"), -1),
    (("updates", "rejected"), [3]),
    (("updates", "rejected"), [[99, "why"]]),
    (("log_det",), []),
    (("log_det",), [[0, 0.0]]),
    (("log_det", 1), [0, 0.0]),
    (("log_det", 1), [1]),
    (("log_det", 2, 1), "x"),
    (("seconds", "training"), -0.5),
    (("wall", "selecting"), 0),
    (("wall",), []),
    (("peak_memory",), 0.5),
    (("environment", "machine"), None),
    (("environment", "machine"), "\ud800"),
    (("environment", "more"), 3),
    (("id",), "cosine/code/fixed-B3/seed1"),
    (("identity",), "x"),
    (("code",), 3),
    (("format",), 3),
    (("format",), True),
    (("asked", "seed"), 1),
    (("asked", "rounds"), 24),
    (("asked", "rounds"), "25"),
    (("asked", "reading"), "raw"),
    (("asked", "configuration", "kind"), "adaptive"),
    (("asked", "configuration", "kind"), ["fixed"]),
    (("asked", "configuration", "batches"), 10**400),
    (("asked", "configuration", "ridge"), 1.0),
    (("asked", "configuration", "more"), 1.0),
    (("asked", "problem", "base"), "mushroom"),
    (("asked", "problem", "name"), "quadratic"),
    (("asked", "world", "arms"), 0),
    (("asked", "world", "view"), "bird's"),
    (("asked", "world"), None),
]


@pytest.mark.parametrize(("place", "value"), IMPOSSIBLE, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("kind", ["0.1", "sealed"])
def test_numbers_that_no_run_can_have_are_refused_with_and_without_digest(played, tmp_path, kind, place, value):
    one = played["cosine/code/fixed-B3/seed0"]
    data = changed(without_digest(one.data), place, value)
    if place[0] == "asked" and isinstance(data["asked"], dict):
        data["identity"] = identity(data["asked"])
    if kind == "sealed":
        data = sealed({"format": FORMAT} | {k: v for k, v in data.items() if k != "format" or place == ("format",)})
    path = written(Store(tmp_path).path(one.id), data)
    (refusal,) = Store(tmp_path).examine().refused
    assert refusal.path == path
    assert refusal.reason
    assert "\n" not in str(refusal)


@pytest.mark.parametrize("name", ["regret", "curve", "asked", "updates", "log_det", "seconds", "environment", "id"])
def test_a_missing_field_is_named(played, tmp_path, name):
    one = played["cosine/code/fixed-B3/seed0"]
    data = without_digest(one.data)
    del data[name]
    written(Store(tmp_path).path(one.id), data)
    assert [file.reason for file in Store(tmp_path).examine().refused] == [f"{name} is missing"]


def test_the_world_says_how_much_regret_there_can_be(played):
    """2 a round for a cosine, 1 for a table, and for a quadratic what its matrix allows; only wrong rounds cost."""
    data = without_digest(played["cosine/code/fixed-B3/seed0"].data)
    wrong = round(25 * (1 - data["right"]))
    assert wrong > 0

    def costing(total, world):
        asked = data["asked"] | {"world": data["asked"]["world"] | world}
        curve = [round(total * (t + 1) / 25, 4) for t in range(25)]
        return data | {"asked": asked, "identity": identity(asked), "regret": total, "curve": curve}

    worst = float(max(Quadratic().rounds(seed=0, count=400).means.max(axis=1)))
    for world, most in ({"world": "Cosine"}, 2.0), ({"world": "TableWorld"}, 1.0):
        check_record(costing(most * wrong, world))
        with pytest.raises(Malformed, match="regret must be a number from 0 to"):
            check_record(costing(1.01 * most * wrong, world))
    quadratic = {"world": "Quadratic", "dim": 4}
    check_record(costing(worst * wrong, quadratic))
    with pytest.raises(Malformed, match="regret must be a number from 0 to"):
        check_record(costing(10 * worst * wrong, quadratic))
    for own in ({"world": "Mine"}, {"world": "Cosine", "text": "0123"}):  # a class of one's own
        check_record(costing(1e6 * wrong, own))


def test_a_record_in_anothers_place_is_refused(folder):
    path = some(folder)
    shutil.copy(path, path.with_name("copy of seed0.json.gz"))
    (refusal,) = Store(folder).examine().refused
    assert f"it is the record of cosine/code/fixed-B3/seed0, which belongs at {path}" in refusal.reason


def odd_files(path):
    def folder():
        path.mkdir()

    def link():
        path.symlink_to(path.with_name("nowhere"))

    contents = {
        "nothing": b"",
        "text": b"regret: 3",
        "truncated": gzip.compress(b"{}")[:-3],
        "not compressed": b'{"format": 2}',
        "not closed": gzip.compress(b'{"format": 2'),
        "a number": gzip.compress(b"3"),
        "no object": gzip.compress(b"[]"),
        "not UTF-8": gzip.compress(b'{"id": "\xff"}'),
        "deep": gzip.compress(b"[" * 100_000),
        "nested": gzip.compress(b'{"a": ' * 30 + b"1" + b"}" * 30),
        "many digits": gzip.compress(b'{"format": ' + b"9" * 10_000 + b"}"),
        "damaged inside": gzip.compress(bytes(range(256)) * 40)[:200] + b"damage" * 50,
    }
    return {"folder": folder, "link": link} | {name: lambda c=c: path.write_bytes(c) for name, c in contents.items()}


@pytest.mark.parametrize("kind", odd_files(Path()))
def test_a_file_that_is_no_record_is_named(folder, kind):
    path = some(folder)
    path.unlink()
    odd_files(path)[kind]()
    found = Store(folder).examine()
    assert [file.path for file in found.refused] == [path]
    assert len(found.records) == len(plan_cells([SMALL], ["code"], 2, 25, PATTERNS)) - 1
    assert "\n" not in str(found.refused[0])


def test_a_folder_that_cannot_be_read_is_named(folder, monkeypatch):
    hidden, scandir = some(folder).parent, os.scandir

    def refusing(path):
        if Path(path) == hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = Store(folder).examine()
    assert [str(file) for file in found.refused] == [
        f"{hidden}: it cannot be read (permission denied). Allow its reading, or remove the folder."
    ]
    assert found.records
    result = call("report", folder)
    assert result.exit_code == 1
    assert str(hidden) in told(result)


def test_a_link_to_a_folder_is_named_and_not_followed(folder, tmp_path):
    hidden = some(folder).parent
    hidden.rename(tmp_path / "elsewhere")
    hidden.symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (refusal,) = Store(folder).examine().refused
    assert refusal.path == hidden
    assert "a link to a folder" in refusal.reason


def test_a_file_that_unpacks_to_more_than_any_record_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("rarely.simulation.sealed_json.LARGEST_FILE", 10_000)
    path = tmp_path / "records" / "a.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b" " * 1_000_000))
    assert "it holds more than" in Store(tmp_path).examine().refused[0].reason


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_bytes_are_refused_or_change_nothing(played, tmp_path, data):
    one = played["cosine/code/fixed-B3/seed0"]
    Store(tmp_path).write(one)
    path = Store(tmp_path).path(one.id)
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    else:
        at = data.draw(st.integers(0, len(whole) - 1))
        flipped = whole[at] ^ (1 << data.draw(st.integers(0, 7)))
        path.write_bytes(whole[:at] + bytes([flipped]) + whole[at + 1 :])
    found = Store(tmp_path).examine()
    assert len(found.records) + len(found.refused) == 1
    for survivor in found.records:  # gzip's header has bits that mean nothing
        assert digest_of(survivor.data) == digest_of(on_file(path)) == survivor.data["digest"]


@pytest.mark.filterwarnings("ignore")  # a picture of 1e100 hours is not tidy
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kind=st.sampled_from(["0.1", "sealed", "edited"]))
def test_no_change_of_a_record_ends_a_report_in_a_traceback(played, tmp_path, data, kind):
    shutil.rmtree(tmp_path / "records", ignore_errors=True)
    one = played[data.draw(st.sampled_from(sorted(played)))]
    Store(tmp_path).write(one)
    path = Store(tmp_path).path(one.id)
    whole = on_file(path)
    content = data.draw(mutations(whole if kind == "edited" else without_digest(whole)))
    if kind != "edited":
        if isinstance(content.get("asked"), dict) and content["asked"] != whole["asked"]:
            content["identity"] = identity(content["asked"])  # what hides behind the identity is looked at too
        if kind == "sealed":
            content = sealed(content | {"format": FORMAT})
    written(path, content)
    result = call("report", tmp_path, "--markdown", tmp_path / "results.md")
    if kind == "edited" and digest_of(content) != digest_of(whole):
        assert result.exit_code == 1
    if result.exit_code == 1:
        assert str(path) in told(result)
        assert "error:" in result.output


EXTREMES = [
    {"regret": 1e100},
    {"regret": 1e-300},
    {"seconds": {"selecting": 0.0, "training": 0.0}},
    {"seconds": {"selecting": 1e100, "training": 1e100}},
    {"wall": {"selecting": 1e-300, "training": 0.0, "cell": 1e100}},
    {"log_det": [[0, -1e100], [60, 1e100]]},
    {"peak_memory": 2**63 - 1},
    {"reward": -1e100},
    {"right": 0.0},
    {"environment": {name: "\x00<b>$\\frac$\n" for name in ("machine", "system", "python", "numpy", "rarely")}},
    {"updates": {"cause": "", "rounds": [], "log_det": [], "attempts": 2**63 - 1, "rejected": [[1, "\ud800"]]}},
    {"updates": {"cause": "", "rounds": [1], "log_det": [-1e100], "attempts": 0, "rejected": []}},
]


@pytest.mark.filterwarnings("ignore")  # a picture of 1e100 hours is not tidy
@pytest.mark.parametrize("edit", EXTREMES, ids=lambda edit: str(edit)[:40])
def test_what_passes_the_checks_can_be_reported(tmp_path, edit):
    """The largest and the oddest values that are accepted, in one of two runs and in both."""
    for kind in ({"kind": "neuralucb"}, {"kind": "adaptive", "batches": 40, "log_ratio": 20.0}):
        for seed in range(2):
            data = record(seed=seed, **kind).data
            if seed == 0 or kind["kind"] == "adaptive":
                data |= edit
                data["curve"] = [data["regret"] * t / 59 for t in range(60)]
            Store(tmp_path).write(Record(data))
    assert Store(tmp_path).examine().refused == []
    assert call("report", tmp_path, "--markdown", tmp_path / "results.md").exit_code == 0


def test_a_table_may_be_called_anything(tmp_path):
    """Signs that a picture would take for a formula."""
    table = tmp_path / "a $_$ and $x.csv"
    table.write_text("x,kind\n" + "".join(f"{i % 5},{'ab'[i % 2]}\n" for i in range(30)))
    result = call("reproduce", table, "--preset", "code", "--runs", "1", "--only", "linucb-r1-b1", "--out", tmp_path)
    assert result.exit_code == 0


@pytest.mark.filterwarnings("ignore:Data has no positive values")
def test_runs_without_any_regret_are_reported(tmp_path):
    """A ratio of means with nothing below it is no number, and no end."""
    for seed in range(2):
        for kind in ("neuralucb", "fixed"):
            batches = {"batches": 40} if kind == "fixed" else {}
            Store(tmp_path).write(record(kind=kind, seed=seed, regret=0.0, **batches))
    assert "nan" in str(write_report(tmp_path).judged[0].checks)


@pytest.mark.parametrize("problem", ["cosine", "quadratic"])
def test_a_configuration_sets_what_its_kind_needs_and_nothing_else(problem):
    for configuration in configurations(PROBLEMS[problem]):
        given = [name for name, value in vars(configuration).items() if name != "kind" and value is not None]
        assert tuple(given) == NEEDED[configuration.kind]
