"""Records in one file: the same report, and the same runs when they are played again."""

import gzip
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lab_records
from rarely import InvalidInput
from rarely._cli import app
from rarely.runs.files import sealed_text
from rarely.runs.machine import describe
from rarely_lab.commands.reproduce import _check_engine
from rarely_lab.engine.cell import play_cell
from rarely_lab.engine.record import MixedRecords, copy_records, outdated, pack, read_packed, read_records
from rarely_lab.reproduce.catalogue import PROBLEMS, Cell, plan_cells
from rarely_lab.reproduce.golden import FAMILIES
from rarely_lab.reproduce.records import SHORT, Record, Store, check_engines, read_fitting
from rarely_lab.reproduce.report.page import write_report
from rarely_lab.reproduce.report.results import compare

PUBLISHED = Path(__file__).parents[3] / "docs" / "records"
LONGEST = 60
"""Seconds of a run, of which 30 are replayed."""
SEEDS = (0, 1, 7)
SAMPLE = ("linucb-r1-b1", "linucb-intercept-r1-b1", "fixed-B40", "adaptive-B40-logq20")
pytestmark = pytest.mark.usefixtures("sketched_figures")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A few short runs that were really played."""
    out = tmp_path_factory.mktemp("lab")
    patterns = ["linucb-r1-b1", "fixed-B40", "adaptive-B40-*"]
    for cell in plan_cells([PROBLEMS["cosine"]], ["code"], runs=2, rounds=101, patterns=patterns):
        Store(out).write(play_cell(cell).record)
    return out


@pytest.fixture(scope="module")
def published(folder, tmp_path_factory, sketched_figures):
    path = tmp_path_factory.mktemp("docs") / "records.jsonl.gz"
    write_report(folder, publish_to=path)
    return path


def test_the_report_of_the_file_is_that_of_the_folder(folder, published, tmp_path):
    write_report(tmp_path, published=published)
    assert (tmp_path / "report.html").read_bytes() == (folder / "report.html").read_bytes()
    claims = [json.loads((place / "claims.json").read_text()) for place in (folder, tmp_path)]
    assert claims[0] == claims[1]
    assert not (tmp_path / "records").exists()


def test_the_file_has_the_digest_of_every_original(folder, published):
    original = {record.id: record.data["digest"][:SHORT] for record in read_records(folder, Record).records}
    assert {record.id: record.data["original"] for record in read_packed(published, Record).records} == original


def test_7580_records_of_2000_rounds_take_a_few_mb(tmp_path):
    """All that `make reproduce` plays; a record of its own file takes about 8 kB."""
    generator, records = np.random.default_rng(0), []
    for seed in range(40):
        one = lab_records.record(
            kind="fixed", batches=40, seed=seed, rounds=2000, updates=39, regret=float(generator.uniform(50, 99))
        )
        one.data["curve"] = (one.regret * np.sort(generator.random(2000))).round(4).tolist()
        records.append(Record(json.loads(sealed_text(one.data))))
    pack(records, tmp_path / "records.json.gz")
    assert (tmp_path / "records.json.gz").stat().st_size / len(records) * 7580 < 4e6


def test_publishing_what_was_published_changes_nothing(published, tmp_path):
    pack(read_packed(published, Record).records, tmp_path / "again.jsonl.gz")
    assert (tmp_path / "again.jsonl.gz").read_bytes() == published.read_bytes()


def test_a_line_that_was_edited_is_refused_and_the_report_says_so(published, tmp_path):
    first, *others = gzip.decompress(published.read_bytes()).decode().splitlines()
    edited = json.dumps(json.loads(first) | {"regret": 1.0})
    path = tmp_path / "edited.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join([edited, *others]).encode()))
    found = read_packed(path, Record)
    assert len(found.records) == len(others)
    assert "changed after it was written" in str(found.refused[0])
    write_report(tmp_path / "out", published=path)
    assert "edited.jsonl.gz/line 1" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"line 1: .*Publish the records again"):
        read_fitting(path)


def as_one_object(path):
    """The records of a packed file as 0.3 published them: what they share by its place, in one sealed object."""
    records, worlds, environments = [], [], []
    for one in (record.data for record in read_packed(path, Record).records):
        asked = one["asked"]
        worlds.append({name: asked[name] for name in ("problem", "world", "reading", "rounds")})
        environments.append(one["environment"])
        omitted = ("format", "kind", "identity", "code", "asked", "digest", "curve_points")
        kept = {name: value for name, value in one.items() if name not in omitted}
        kept |= {"configuration": asked["configuration"], "seed": asked["seed"], "curve": one["curve_points"]}
        records.append(kept | {"world": len(worlds) - 1, "environment": len(worlds) - 1})
    codes = {Record.golden_family(record.asked): record.code for record in read_packed(path, Record).records}
    head = {"format": "rarely records 1", "code": codes}
    return head | {"records": records, "worlds": worlds, "environments": environments}


def test_a_file_of_version_0_3_is_read_as_one_of_today(published, tmp_path):
    path = tmp_path / "records.json.gz"
    path.write_bytes(gzip.compress(sealed_text(as_one_object(published)).encode()))
    old, new = ([r.data for r in read_packed(each, Record).records] for each in (path, published))
    assert old == [{name: value for name, value in one.items() if name != "digest"} for one in new]
    content = json.loads(gzip.decompress(path.read_bytes()))
    content["records"][0]["regret"] = 1.0
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    with pytest.raises(InvalidInput, match="changed after it was written"):
        read_packed(path, Record)


def test_the_command_publishes_and_reads_back(folder, tmp_path):
    path = tmp_path / "records.json.gz"
    first = CliRunner().invoke(app, ["report", str(folder), "--publish", str(path)])
    assert first.exit_code == 0
    assert f"records: {path}" in first.output
    second = CliRunner().invoke(app, ["report", str(path), "--out", str(tmp_path / "page")])
    assert second.exit_code == 0
    assert (tmp_path / "page" / "report.html").read_bytes() == (folder / "report.html").read_bytes()
    wrong = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path)])
    assert wrong.exit_code == 1
    assert "--out is for a file of published records" in wrong.output


def test_a_run_continues_from_published_records(published, folder, tmp_path, serial):
    """Only what is asked for is copied, and only what is missing is played; digests of the first originals stay."""
    command = ["reproduce", "cosine", "--from", str(published), "--runs", "3", "--rounds", "101", "--preset", "code"]
    command += ["--only", "fixed-B40", "--jobs", "1", "--out", str(tmp_path / "out")]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    assert "unpacking records: 100 %" in first.output
    assert "2 records of" in first.output
    before, after = ({r.id: r for r in read_records(place, Record).records} for place in (folder, tmp_path / "out"))
    before = {name: record for name, record in before.items() if record.configuration.id == "fixed-B40"}
    assert after.keys() - before.keys() == {"cosine/code/fixed-B40/seed2"}
    pack(list(after.values()), tmp_path / "again.jsonl.gz")
    again = {record.id: record for record in read_packed(tmp_path / "again.jsonl.gz", Record).records}
    for name, record in before.items():
        assert again[name].data["original"] == record.data["digest"][:SHORT]
    assert [again[name].regret for name in before] == [record.regret for record in before.values()]
    assert "0 records of" in CliRunner().invoke(app, command).output


def test_unpacking_overwrites_nothing(published, folder, tmp_path):
    """A folder that has some of the records keeps them as they are, and gets the others."""
    mine, told = [one for one in read_fitting(published)[0] if one.configuration.id == "fixed-B40"], []
    own = Store(folder).path("cosine/code/fixed-B40/seed0")
    Store(tmp_path).write(next(record for record in Store(folder).find().records if record.id.endswith("B40/seed0")))
    assert copy_records(mine, Store(tmp_path), lambda done, of: told.append((done, of))) == 1
    assert told == [(1, 1)]
    assert Store(tmp_path).path("cosine/code/fixed-B40/seed0").read_bytes() == own.read_bytes()
    assert copy_records(mine, Store(tmp_path), print) == 0


def test_what_is_missing_is_listed_and_nothing_is_written(published, tmp_path):
    command = ["reproduce", "cosine", "--runs", "3", "--rounds", "101", "--preset", "code", "--only", "fixed-B40"]
    out = tmp_path / "out"
    listed = CliRunner().invoke(app, [*command, "--from", str(published), "--list", "--out", str(out)])
    assert listed.exit_code == 0
    assert "cosine/code: fixed 1\n1 of 3 cells are to be played" in listed.output
    assert not out.exists()
    longer = CliRunner().invoke(app, [*command, "--rounds", "99", "--from", str(published), "--list"]).output
    assert "3 of 3 cells are to be played" in longer


def test_pieces_are_merged(published, tmp_path):
    """What several files have together is there, once, and nothing is left to be played."""
    records, command = read_fitting(published)[0], ["reproduce", "cosine", "--rounds", "101", "--preset", "code"]
    mine = [one for one in records if one.configuration.id == "fixed-B40"]
    pack(mine[:1], tmp_path / "a.jsonl.gz")
    pack(mine, tmp_path / "b.jsonl.xz")
    command += ["--from", str(tmp_path / "a.jsonl.gz"), "--from", str(tmp_path / "b.jsonl.xz"), "--only", "fixed-B40"]
    said = CliRunner().invoke(app, [*command, "--runs", "2", "--out", str(tmp_path / "out")]).output
    assert said.count("1 records of") == 2
    assert "0 cells to play" in said


def test_the_smallest_file_is_read_as_the_other(published, tmp_path):
    pack(read_packed(published, Record).records, tmp_path / "records.jsonl.xz")
    one, other = (read_packed(path, Record).records for path in (published, tmp_path / "records.jsonl.xz"))
    assert [record.data for record in one] == [record.data for record in other]
    (tmp_path / "records.jsonl.xz").write_bytes(published.read_bytes())
    with pytest.raises(InvalidInput, match="is not a file of packed records"):
        read_packed(tmp_path / "records.jsonl.xz", Record)


def test_records_that_update_every_round_share_one_list(published):
    linear = [record for record in read_packed(published, Record).records if record.configuration.linear]
    assert [record.updates for record in linear] == [list(range(1, 101))] * 2
    assert linear[0].data["updates"]["rounds"] is linear[1].data["updates"]["rounds"]


def test_records_of_other_code_are_left_out_and_played_again(published, tmp_path, monkeypatch, serial):
    monkeypatch.setattr(Record, "fingerprint", classmethod(lambda cls, asked: "another"))
    assert read_fitting(published) == ([], {"reproduce/code": 8, "reproduce/linucb": 2})
    command = ["reproduce", "cosine", "--from", str(published), "--runs", "1", "--rounds", "101", "--preset", "code"]
    played = CliRunner().invoke(app, [*command, "--only", "linucb-r1-b1", "--jobs", "1", "--out", str(tmp_path)])
    assert "8 of reproduce/code are left out" in played.output
    assert "1 cells to play" in played.output


def test_an_engine_does_not_continue_what_another_began(folder, tmp_path):
    out = tmp_path / "out"
    for record in read_records(folder, Record).records:
        Store(out).write(record)
    with pytest.raises(MixedRecords, match="cosine/code would be of two engines, cpu and gpu"):
        check_engines([*((r.series, r.engine) for r in read_records(out, Record).records), ("cosine/code", "gpu")])
    one = next(r for r in read_records(out, Record).records if r.configuration.kind == "fixed")
    data = {name: value for name, value in one.data.items() if name != "digest"}
    Store(out).write(Record(data | {"environment": one.data["environment"] | {"engine": "gpu"}}))
    with pytest.raises(MixedRecords, match="two engines"):
        read_records(out, Record)
    series = compare([r for r in Store(out).find().records if not r.configuration.linear])[0].series
    fixed, other = (series[name] for name in ("fixed-B40", "adaptive-B40-logq20"))
    assert len(compare(Store(out).find().records)[0].paired("regret", fixed, other)[0]) == 1


def test_the_engine_is_asked_before_anything_is_played(tmp_path):
    cells = plan_cells([PROBLEMS["cosine"]], ["practical"], runs=1, rounds=101, patterns=["fixed-B40", "default-*"])
    Store(tmp_path).write(lab_records.record(kind="fixed", batches=40, rounds=101))
    with pytest.raises(MixedRecords, match="cosine/practical"):
        _check_engine(cells, tmp_path, gpu=True)
    _check_engine(cells, tmp_path, gpu=False)
    _check_engine([cell for cell in cells if cell.configuration.kind == "default"], tmp_path, gpu=True)


def replayed(record):
    """The same cell, played now."""
    cell = Cell(PROBLEMS[record.problem], record.reading, record.configuration, record.seed, record.rounds)
    result = play_cell(cell)
    assert result.record is not None, result.error
    return result.record


def check_replay(record):
    """Equal in the environment that the record is from, bit for bit; within rounding elsewhere. Return what is said."""
    again = replayed(record)
    assert again.data["identity"] == record.data["identity"]
    if record.data["environment"] == describe():
        assert again.data["regret"] == record.data["regret"]
        assert again.curve_digest == record.curve_digest
        assert again.updates == record.updates
    else:
        # Elsewhere sums are rounded otherwise, and an arm that was chosen by a hair may be another.
        assert again.regret == pytest.approx(record.regret, rel=0.25)
        assert again.versions == pytest.approx(record.versions, rel=0.1)
    equal = again.curve_digest == record.curve_digest and again.updates == record.updates
    return "equal" if equal else f"regret {again.regret:.6g}, {record.regret:.6g} on record"


def test_published_cells_that_are_played_again_are_equal(published):
    sample = [record for record in read_packed(published, Record).records if record.seed == 1]
    assert len(sample) >= 5
    for record in sample:
        check_replay(record)


@pytest.fixture(scope="module")
def some():
    """The records of a few seeds that 0.3 published."""
    content = json.loads(gzip.decompress((PUBLISHED / "0.3.json.gz").read_bytes()))
    content["records"] = [one for one in content["records"] if one["seed"] in SEEDS]
    return Record.of_object(sealed_text(content))


def test_a_later_file_of_a_folder_replaces_records_and_leaves_out_those_of_earlier_code(published, tmp_path):
    records = read_packed(published, Record).records
    linear = [one for one in records if one.configuration.linear]
    networks = [one for one in records if not one.configuration.linear]
    earlier = [Record(one.data | {"regret": 1.0, "code": "earlier"}) for one in records]
    pack([Record(json.loads(sealed_text({**one.data}))) for one in earlier], tmp_path / "1.jsonl.gz")
    pack([linear[0]], tmp_path / "2.jsonl.xz")
    found = read_packed(tmp_path, Record)
    assert not found.refused
    assert [one.id for one in found.records if one.configuration.linear] == [linear[0].id]
    assert found.records.count(linear[0]) == 1
    assert {one.id for one in found.records if one.code == "earlier"} == {one.id for one in networks}
    write_report(tmp_path / "page", published=tmp_path)
    assert (tmp_path / "page" / "report.html").exists()


def test_the_report_of_the_folder_that_one_is_in_lies_beside_it(published, tmp_path, monkeypatch):
    folder = tmp_path / "records"
    folder.mkdir()
    shutil.copy(published, folder / "0.json.gz")
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(app, ["report", "."]).exit_code == 0
    assert (tmp_path / "records-report" / "report.html").exists()


def test_every_published_file_but_the_first_is_of_this_code():
    """What no longer fits is played anew at the next release."""
    for piece in sorted(PUBLISHED.iterdir())[1:]:
        records, left_out = read_fitting(piece)
        assert records
        assert left_out == {}


@pytest.fixture(scope="module")
def everything():
    """All records that are published."""
    return read_packed(PUBLISHED, Record).records


def test_published_records_fit_unless_their_family_has_changed(some):
    """They carry a hash of the sources of 0.3, which stands for the golden digest that their family had then."""
    families = {Record.golden_family(record.asked): record for record in some}
    assert set(families) == set(FAMILIES)
    assert {record.code for record in families.values()} == set(FAMILIES.releases["0.3"]["codes"])
    for name, record in families.items():
        digest = FAMILIES.releases["0.3"]["families"][name]["digest"]
        assert record.numerics == digest
        assert record.made_by == ("" if Record.fingerprint(record.asked) == digest else "0.3")


def test_a_family_that_has_changed_is_said_to_be_of_the_release_that_made_it(some, monkeypatch, tmp_path):
    three = [next(one for one in some if one.configuration.kind == kind) for kind in ("default", "fixed", "linucb")]
    assert outdated(three[1:]) == []
    family = FAMILIES["reproduce/default"]
    monkeypatch.setitem(vars(family), "golden", replace(family.golden, digest="0" * 16))
    told = ["The 1 records of reproduce/default are made by 0.3: this version gives other numbers."]
    assert outdated(three) == told
    pack(three, tmp_path / "three.json.gz")
    fitting, left_out = read_fitting(tmp_path / "three.json.gz")
    assert left_out == {"reproduce/default": 1}
    assert [one.id for one in fitting] == [one.id for one in three[1:]]


def test_records_of_this_code_and_of_the_release_belong_together_while_the_numbers_are_the_same(some, tmp_path):
    old = [one for one in some if (one.problem, one.configuration.kind) == ("cosine", "linucb") and one.seed < 2][:2]
    new = Record(old[1].data | {"code": Record.fingerprint(old[1].asked)})
    assert new.code != old[1].code
    Record.check_together([old[0], new], [old[0].asked])
    pack([old[0], new], tmp_path / "both.json.gz")
    assert {one.numerics for one in read_packed(tmp_path / "both.json.gz", Record).records} == {new.code}
    with pytest.raises(MixedRecords, match="2 versions of the code in family reproduce/linucb"):
        Record.check_together([old[0], Record(old[1].data | {"code": "another"})], [])


def test_a_published_run_is_equal_when_it_is_played_again(some):
    """A change of numbers makes the results page one of code that no longer exists: make reproduce plays it again."""
    sample = [one for one in some if one.configuration.id in SAMPLE and one.seed == 7 and one.problem == "quadratic"]
    assert {one.reading for one in sample} >= {"paper", "code"}
    check_replay(min(sample, key=lambda one: one.seconds))


REPLAYED = 30


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rarely.DriftWarning")  # an alarm that the run of the record had, too
def test_runs_drawn_at_random_are_equal_when_they_are_played_again(everything, capsys):
    """The judge where this and a golden digest disagree; every release draws others: REPLAY=7 make test-slow."""
    seed = int(os.environ.get("REPLAY", "0"))
    generator, drawn = random.Random(seed), list[Record]()
    families = {name: [one for one in everything if Record.golden_family(one.asked) == name] for name in FAMILIES}
    while len(drawn) < REPLAYED:
        one = generator.choice(families[list(families)[len(drawn) % len(families)]])
        # A sequential run takes minutes; of those in lockstep, the record has a share of the time alone.
        if one.seconds <= LONGEST and one.configuration.kind != "neuralucb":
            drawn.append(one)
    for one in drawn:
        said = f"made by {one.made_by}" if one.made_by else check_replay(one)
        with capsys.disabled():
            print(f"REPLAY={seed}: {one.id}, {one.engine} on {one.form}: {said}", flush=True)
