"""The gpu engine behind the run engine: which cells it plays, what its records say, and how it fails."""

import importlib
from types import SimpleNamespace

import pytest

from rarely import RarelyError
from rarely.worlds import Quadratic
from rarely_lab.engine.cell import LocalExecutor, run_cells
from rarely_lab.gpu import executor as engine
from rarely_lab.reproduce.catalogue import PROBLEMS, plan_cells
from rarely_lab.reproduce.config import Problem
from rarely_lab.reproduce.records import Store

NETWORKS = ("neuralucb", "fixed", "adaptive")
PROBLEM = Problem("small", Quadratic(dim=3), hidden=8, steps=5, batches=(3,), log_ratios=(5,))


@pytest.fixture
def cells():
    return plan_cells([PROBLEM], ["paper", "code", "practical"], runs=2, rounds=12)


def test_cells_of_one_network_are_played_together_and_the_others_on_processors(cells):
    parts = engine.parted(cells)
    kinds = [{cell.configuration.kind for cell in part} for part in parts]
    assert kinds.count({"fixed", "adaptive"}) == 2
    assert {"linucb"} in kinds
    assert {"linucb-intercept"} in kinds
    assert {part[0].together[0] for part in parts} == {"", "neuralucb", "network"}
    alone = [part for part in parts if not part[0].together[0]]
    assert all(len(cells) == 1 for cells in alone)
    assert all(c.reading == "code" or c.configuration.linear or c.configuration.kind == "default" for (c,) in alone)
    assert sum(map(len, parts)) == len(cells)


def test_long_runs_are_played_in_pieces_that_a_command_of_ten_minutes_can_end():
    cells = plan_cells([PROBLEMS[f"cosine-T{t}"] for t in (500, 8000, 16_000)], ["practical"], runs=200)
    parts = engine.parted(cells)
    most = {(part[0].together[0], part[0].rounds): len(part) for part in reversed(parts)}
    assert most["neuralucb", 500] == most["network", 500] / 5 == 200
    assert (most["neuralucb", 8000], most["network", 16_000]) == (25, 17)
    for part in parts:
        assert len(part) == 1 or sum(map(engine.seconds_of, part)) / 8 <= engine.PIECE
    assert sum(map(len, parts)) == len(cells)


def test_records_are_those_of_the_core_and_say_what_made_them(cells, tmp_path):
    pytest.importorskip("torch", reason="rarely_lab.gpu needs torch: make test-torch")
    mine, theirs = Store(tmp_path / "gpu"), Store(tmp_path / "cpu")
    assert not run_cells(cells, mine, engine.GpuExecutor(1, device="cpu"))
    assert not run_cells(cells, theirs, LocalExecutor(None))
    ours = {record.id: record for record in mine.find().records}
    for record in theirs.find().records:
        other = ours[record.id]
        assert other.data["curve"] == record.data["curve"], record.id
        assert other.updates == record.updates
        assert other.data["asked"] == record.data["asked"]
        assert record.engine == "cpu"
        assert other.engine == ("gpu" if record.configuration.kind in NETWORKS and record.reading != "code" else "cpu")
    assert not run_cells(cells, mine, engine.GpuExecutor(1, device="cpu"), started=lambda todo, refused: todo and 1 / 0)


def test_replicas_that_do_not_fit_are_played_in_parts(cells, monkeypatch):
    class OutOfMemoryError(RuntimeError):
        pass

    sizes = []

    def play_group(part, device):
        sizes.append(len(part))
        if len(part) > 2:
            raise OutOfMemoryError
        return [cell.id for cell in part]

    monkeypatch.setattr(engine, "play_group", play_group)
    monkeypatch.setattr(engine, "_torch", lambda: SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: None)))
    part = max(engine.parted(cells), key=len)
    played, told = engine.play_part(part, "cpu")
    assert sorted(played) == sorted(cell.id for cell in part)
    assert max(sizes[1:]) <= len(part) // 2
    assert told
    assert "replicas at a time" in told[0]


def test_other_errors_are_raised(cells, monkeypatch):
    monkeypatch.setattr(engine, "play_group", lambda *_: 1 / 0)
    part = next(part for part in engine.parted(cells) if part[0].together[0] == "network")
    with pytest.raises(ZeroDivisionError):
        engine.play_part(part, "cpu")


@pytest.mark.parametrize("missing", ["torch", "cupy"])
def test_without_what_it_needs_one_sentence_says_what_to_install(cells, monkeypatch, missing):
    def import_module(name):
        if name == missing:
            raise ModuleNotFoundError(name=name)
        return importlib.import_module("math")

    monkeypatch.setattr(engine, "import_module", import_module)
    engine._torch.cache_clear()
    with pytest.raises(RarelyError, match=f"needs {missing}"):
        next(engine.GpuExecutor(1)(cells))


def test_without_a_gpu_one_sentence_says_so(cells, monkeypatch):
    torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(engine, "import_module", lambda name: torch)
    engine._torch.cache_clear()
    with pytest.raises(RarelyError, match="there is none"):
        next(engine.GpuExecutor(1)(cells))
    engine._torch.cache_clear()
