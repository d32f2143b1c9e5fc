"""Records of experiments: what they say, what is never mixed, and what a report makes of damaged ones."""

import gzip
import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from typer.testing import CliRunner

from lab_records import record
from rarely._cli import app
from rarely._core import native
from rarely.worlds import Dataset, Table, World
from rarely_lab.engine.cell import LocalExecutor, play_cell, run_cells
from rarely_lab.engine.play import play_policy
from rarely_lab.engine.record import MixedRecords, read_records
from rarely_lab.reproduce.catalogue import PROBLEMS, QUICK_CONFIGURATIONS, Cell, plan_cells, quick_cells
from rarely_lab.reproduce.config import PRESETS, Configuration, Problem
from rarely_lab.reproduce.records import Record, Store
from rarely_lab.reproduce.report.page import write_report
from rarely_lab.reproduce.report.quick_page import summarise

SMALL = replace(PROBLEMS["cosine"], hidden=8, steps=5, batches=(3,), log_ratios=(2.0,))
LINEAR = Configuration("linucb", ridge=1.0, beta=1.0)
pytestmark = pytest.mark.usefixtures("sketched_figures")


def cells(runs=2, rounds=25, patterns=("linucb-r1-b1", "fixed-*", "adaptive-*", "neuralucb")):
    return plan_cells([SMALL], ["code"], runs, rounds, patterns)


@pytest.fixture(scope="module")
def played():
    """Real records of every kind of configuration."""
    return [play_cell(cell).record for cell in cells()]


@pytest.fixture
def folder(played, tmp_path):
    for one in played:
        Store(tmp_path).write(one)
    return tmp_path


def call(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    return result


def told(result):
    return " ".join(result.output.split())


def test_a_record_says_all_that_is_asked_of_it(folder):
    path = folder / "records" / "cosine" / "code" / "adaptive-B3-logq2" / "seed0.json.gz"
    data = json.loads(gzip.decompress(path.read_bytes()))
    assert data["asked"]["configuration"]["log_ratio"] == 2.0
    assert data["asked"]["seed"] == 0
    assert len(data["curve"]) == 25
    assert data["curve"][-1] == pytest.approx(data["regret"], abs=1e-3)
    assert data["updates"]["cause"] == "determinant"
    assert len(data["updates"]["rounds"]) == len(data["updates"]["log_det"]) == 2
    assert data["log_det"][-1][0] == 25
    assert data["seconds"].keys() == {"selecting", "training"}
    assert data["peak_memory"] > 2**20
    assert data["environment"].keys() >= {"machine", "python", "numpy", "rarely"}
    assert data["environment"]["form"] == native.form()


def test_the_regret_on_record_is_the_worlds():
    cell = next(c for c in cells() if c.configuration.kind == "fixed")
    found = play_cell(cell).record
    rounds = SMALL.source.rounds(0, 25)
    policy, total = cell.policy(), 0.0
    for t in range(25):  # the plain loop of the README
        decision = policy.select(rounds.contexts[t])
        policy.observe(decision, rounds.rewards[t, decision.arm])
        total += rounds.means[t].max() - rounds.means[t, decision.arm]
        if policy.due and t < 24:
            policy.update()
    assert found.regret == pytest.approx(total)
    assert found.updates == [u.round for u in policy.updates]


def test_all_policies_of_a_run_see_the_same_world():
    seen = []

    class Watched:
        def __init__(self, policy):
            self.policy = policy

        def __getattr__(self, name):
            return getattr(self.policy, name)

        def select(self, contexts, **how):
            seen[-1].append(contexts)
            return self.policy.select(contexts, **how)

    for cell in cells(runs=1):
        seen.append([])
        world = cell.world()
        play_policy(Watched(cell.policy()), world.rounds(cell.seed, cell.rounds))
    assert all(np.array_equal(stream, seen[0]) for stream in seen)


def test_all_views_of_a_table_are_one_problem(tmp_path):
    rows = np.random.default_rng(0).normal(size=(20, 3))
    table = Problem("own", Table.of(rows, np.arange(20) % 2), hidden=8, steps=2, batches=(3,), log_ratios=(2.0,))
    every = plan_cells([table], PRESETS, 1, 20, ["linucb-r1-b1", "linucb-intercept-r1-b1", "fixed-*"])
    assert run_cells(every, Store(tmp_path), LocalExecutor(None)) == []
    assert Store(tmp_path).missing(every) == ([], [])
    assert len(read_records(tmp_path, Record).records) == 3 * 3


def test_two_problems_of_one_name_are_never_mixed(folder):
    other = plan_cells([replace(SMALL, hidden=10)], ["practical"], 1, 25, ["adaptive-*"])
    with pytest.raises(MixedRecords, match="two problems called cosine"):
        Store(folder).missing(other)


def test_runs_of_other_lengths_are_refused_before_they_are_played_and_by_a_report(folder):
    longer = plan_cells([SMALL], ["practical"], 1, 26, ["linucb-intercept-r1-b1"])
    with pytest.raises(MixedRecords, match="T = 25 and 26"):
        Store(folder).missing(longer)
    Store(folder).write(play_cell(longer[0]).record)
    with pytest.raises(MixedRecords, match="T = 25 and 26"):
        read_records(folder, Record)


def test_codes_are_not_mixed_by_a_report_nor_by_a_replacement_of_some_cells(folder, played, monkeypatch):
    before = {path: path.read_bytes() for path in folder.rglob("*.gz")}
    monkeypatch.setattr(Record, "fingerprint", classmethod(lambda cls, asked: "another"))
    with pytest.raises(MixedRecords, match="2 versions of the code in family reproduce/code"):
        Store(folder).missing(cells(runs=1), replace=True)
    assert {path: path.read_bytes() for path in folder.rglob("*.gz")} == before
    Store(folder).write(Record(played[0].data | {"code": "another"}))
    with pytest.raises(MixedRecords, match="2 versions of the code"):
        read_records(folder, Record)


@dataclass
class Plain(World):
    """An ordinary dataclass, which cannot be hashed."""

    slope: float = 1.0
    arms: int = 2
    dim: int = 1

    def secret(self, generator):
        return None

    def round(self, t, secret, generator):
        contexts = generator.random((2, 1))
        return contexts, self.slope * contexts[:, 0], 0.0


def test_a_world_of_ones_own_is_played_and_told_apart_by_its_knobs(tmp_path):
    def asked(slope):
        return Cell(Problem("own", Plain(slope)), "raw", LINEAR, 0, 9)

    assert run_cells([asked(1.0)], Store(tmp_path), LocalExecutor(None)) == []
    with pytest.raises(MixedRecords, match=r"world slope is 1\.0 on record, 2\.0 is asked for"):
        Store(tmp_path).missing([asked(2.0)])
    (failure,) = run_cells([asked(float("nan"))], Store(tmp_path / "other"), LocalExecutor(None))
    assert "finite" in failure.error


def test_a_table_travels_with_its_problem(monkeypatch):
    """A machine of a cluster has no data: it gets the table and not the name of its file."""
    table = Table.of([[1.0], [2.0]], ["a", "b"])
    monkeypatch.setattr(Dataset, "table", lambda dataset: table)
    source = Dataset("small", "small.data", 1, "", 1, (("a", 1), ("b", 1)), (), "")
    cell = Cell(Problem("small", source), "raw", LINEAR, 0, 2)
    assert cell.portable().source is table
    sent = cell.with_shared(None).with_shared(cell.portable())
    assert (sent.id, sent.describe()) == (cell.id, cell.describe())


# What a report makes of records


def test_an_edited_record_is_refused_alone_and_the_report_goes_on(folder):
    path = Store(folder).path("cosine/code/fixed-B3/seed0")
    data = json.loads(gzip.decompress(path.read_bytes())) | {"regret": 1.0}
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    result = call("report", folder, "--markdown", folder / "results.md")
    assert result.exit_code == 1
    assert "refused: 1 record; the report leaves them out and says so" in told(result)
    assert f"{path}: its content differs from its digest" in told(result)
    assert "Run reproduce again" in told(result)
    short = path.relative_to(folder).as_posix()
    for page in ("report.html", "results.md"):
        assert f"1 file was refused, and this report leaves it out: {short} (" in (folder / page).read_text()
    assert list(json.loads((folder / "claims.json").read_text())["refused"]) == [short]


def test_all_that_are_refused_are_named(tmp_path):
    paths = [Store(tmp_path).path(f"cosine/code/fixed-B3/seed{seed}") for seed in range(3)]
    paths[0].parent.mkdir(parents=True)
    for path in paths:
        path.write_bytes(b"")
    result = call("report", tmp_path)
    assert result.exit_code == 1
    assert "holds no records to report" in told(result)
    assert all(str(path) in told(result) for path in paths)


EXTREMES = [
    {"regret": 1e100, "seconds": {"selecting": 1e100, "training": 1e100}, "reward": -1e100},
    {"regret": 1e-300, "seconds": {"selecting": 0.0, "training": 0.0}, "right": 0.0, "peak_memory": 2**63 - 1},
    {"regret": 0.0, "log_det": [[0, -1e100], [60, 1e100]], "wall": {"selecting": 1e-300, "training": 0, "cell": 1e100}},
    {"environment": {name: "\x00<b>$\\frac$\n" for name in ("machine", "system", "python", "numpy", "rarely", "form")}},
    {"updates": {"cause": "", "rounds": [1], "log_det": [-1e100], "attempts": 2**63 - 1, "rejected": [[1, "why"]]}},
]


@pytest.mark.filterwarnings("ignore")  # a picture of 1e100 hours is not tidy
@pytest.mark.parametrize("edit", EXTREMES, ids=lambda edit: str(edit)[:40])
def test_the_largest_and_the_oddest_runs_can_be_reported(tmp_path, edit):
    for kind in ({"kind": "neuralucb"}, {"kind": "adaptive", "batches": 40, "log_ratio": 20.0}):
        for seed in range(2):
            data = record(seed=seed, **kind).data
            if seed == 0 or kind["kind"] == "adaptive":
                data |= edit
                data["curve"] = [data["regret"] * t / 59 for t in range(60)]
            Store(tmp_path).write(Record(data))
    assert call("report", tmp_path, "--markdown", tmp_path / "results.md").exit_code == 0


@pytest.mark.filterwarnings("ignore:Data has no positive values")
def test_runs_without_any_regret_are_reported(tmp_path):
    """A ratio of means with nothing below it is no number, and no end."""
    for seed in range(2):
        for kind in ("neuralucb", "fixed"):
            batches = {"batches": 40} if kind == "fixed" else {}
            Store(tmp_path).write(record(kind=kind, seed=seed, regret=0.0, **batches))
    assert "nan" in str(write_report(tmp_path).judged[0].checks)


def test_the_quick_runs_are_six_policies_whose_numbers_are_shown_and_not_judged(tmp_path, monkeypatch):
    few = [replace(cell, rounds=30) for cell in quick_cells(runs=1)]
    monkeypatch.setattr("rarely_lab.reproduce.catalogue.quick_cells", lambda: few)
    monkeypatch.setattr("rarely_lab.commands.progress.LocalExecutor", lambda jobs: LocalExecutor(None))
    result = call("reproduce", "--quick", "--out", tmp_path)
    assert result.exit_code == 0
    assert "judges nothing" in told(result)
    assert "random choice, run 1: lost" in told(result)
    assert "In 30 rounds random choice lost" in told(result)
    page = (tmp_path / "report.html").read_bytes()
    assert "0 cells to play" in told(call("reproduce", "--quick", "--out", tmp_path))
    assert (tmp_path / "report.html").read_bytes() == page
    records = read_records(tmp_path, Record).records
    assert {one.base for one in records} == {""}  # no claim of the paper is about them
    rows = summarise([*records, record()])
    assert [row.label for row in rows] == list(QUICK_CONFIGURATIONS)
    for row in rows:
        (one,) = row.runs.values()
        assert one.curve.shape == (30,)
        assert one.curve[-1] == pytest.approx(row.regret.value, abs=1e-3)
        assert len(one.updates) == row.updates
    assert [row.updates for row in rows[:3]] == [0, 29, 29]
    wrong = call("reproduce", "cosine", "--quick", "--out", tmp_path)
    assert "--quick plays a fixed selection" in told(wrong)
