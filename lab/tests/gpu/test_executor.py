"""The gpu engine behind the run engine: which cells it plays, what its records say, and how it fails."""

import importlib
from types import SimpleNamespace

import pytest

from rarely import RarelyError
from rarely.worlds import Quadratic
from rarely_lab.engine.executors import LocalExecutor
from rarely_lab.engine.store import run_cells
from rarely_lab.gpu import executor as engine
from rarely_lab.reproduce.catalogue import plan_cells
from rarely_lab.reproduce.config import Problem
from rarely_lab.reproduce.records import Store

PROBLEM = Problem("small", Quadratic(dim=3), hidden=8, steps=5, batches=(3,), log_ratios=(5,))


@pytest.fixture
def cells():
    return plan_cells([PROBLEM], ["paper", "code", "practical"], runs=2, rounds=12)


def test_cells_of_one_network_are_played_together_and_the_others_on_processors(cells):
    groups, others = engine.grouped(cells)
    kinds = [{cell.configuration.kind for cell in group} for group in groups]
    assert kinds.count({"neuralucb"}) == 2
    assert kinds.count({"fixed", "adaptive"}) == 2
    assert {"linucb"} in kinds
    assert {"linucb-intercept"} in kinds
    assert {(cell.reading, cell.configuration.kind) for cell in others} == {
        *(("code", kind) for kind in ("neuralucb", "fixed", "adaptive")),
        ("practical", "default"),
    }
    assert sum(map(len, groups)) + len(others) == len(cells)


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
        by_gpu = record.reading not in ("code",) and record.configuration.kind != "default"
        assert other.engine == ("gpu" if by_gpu else "cpu")
    assert not run_cells(cells, mine, engine.GpuExecutor(1, device="cpu"), started=lambda todo, refused: todo and 1 / 0)


def test_replicas_that_do_not_fit_are_played_in_parts(cells, monkeypatch):
    class OutOfMemoryError(RuntimeError):
        pass

    sizes, told = [], []

    def play_group(part, rounds, device):
        sizes.append(len(part))
        if len(part) > 10:
            raise OutOfMemoryError
        return [cell.id for cell in part]

    monkeypatch.setattr(engine, "play_group", play_group)
    monkeypatch.setattr(engine, "_torch", lambda: SimpleNamespace(cuda=SimpleNamespace(empty_cache=lambda: None)))
    group = max(engine.grouped(cells)[0], key=len)
    runs = {cell.seed: None for cell in group}
    played = list(engine.GpuExecutor(1, told.append, device="cpu")._in_parts(group, runs))
    assert sorted(played) == sorted(cell.id for cell in group)
    assert max(sizes[1:]) <= len(group) // 2
    assert told
    assert "replicas at a time" in told[0]


def test_other_errors_are_raised(cells, monkeypatch):
    monkeypatch.setattr(engine, "play_group", lambda *_: 1 / 0)
    group = engine.grouped(cells)[0][0]
    with pytest.raises(ZeroDivisionError):
        list(engine.GpuExecutor(1, device="cpu")(group))


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
