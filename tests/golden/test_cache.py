"""The cache of golden results costs nothing but time: whatever is wrong with it, they are computed again."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rarely.golden import Family, Trace
from rarely.golden import family as module


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RARELY_CACHE", str(tmp_path))
    return tmp_path / "golden" / "toy.json"


@pytest.fixture
def played():
    return []


@pytest.fixture
def toy(played):
    """Makes the family anew, as another process would."""

    def lives():
        return {"life": lambda nudge: played.append(1) or Trace([[0, 1]], {"mean": 0.5})}

    return lambda: Family("toy", lives)


def test_a_family_is_played_once(cache, toy, played):
    first = toy().golden
    assert toy().golden == first
    assert len(played) == 1
    assert len(json.loads(cache.read_text())) == 1


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"7", b"\xff\xfe", b'{"a": 1}', b"[" * 10**5])
def test_a_damaged_cache_is_replaced(cache, toy, played, damage):
    first = toy().golden
    cache.write_bytes(damage)
    assert toy().golden.digest == first.digest
    assert len(played) == 2
    assert toy().golden.digest == first.digest
    assert len(played) == 2


@pytest.mark.parametrize("damage", [{"digest": "x"}, None, {"digest": 5}, {"margin": "much"}, {"more": 1}])
def test_a_damaged_result_is_computed_again(cache, toy, played, damage):
    toy().golden
    results = json.loads(cache.read_text())
    (key,) = results
    results[key] = damage if damage is None else results[key] | damage
    cache.write_text(json.dumps(results))
    toy().golden
    assert len(played) == 2


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch, toy, played):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RARELY_CACHE", str(tmp_path / "file"))  # no folder can be made in it
    assert toy().golden == toy().golden or len(played) == 2


def test_no_home_is_no_obstacle(monkeypatch, toy, played):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module, "cache_folder", homeless)
    toy().golden
    assert played == [1]


def test_other_sources_and_other_versions_have_results_of_their_own(cache, toy, played, monkeypatch):
    toy().golden
    for name, value in (("source_digest", lambda *packages: "other"), ("_versions", lambda: ["other"])):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            toy().golden
    assert len(played) == 3
    toy().golden
    assert len(played) == 3


def test_the_cache_does_not_grow_for_ever(cache, toy, monkeypatch):
    for number in range(module.KEPT + 5):
        monkeypatch.setattr(module, "_versions", lambda number=number: [str(number)])
        toy().golden
    assert len(json.loads(cache.read_text())) == module.KEPT


def test_two_at_once_are_both_right(cache, toy):
    barrier = threading.Barrier(4)

    def ask(_):
        barrier.wait()
        return toy().golden.digest

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1
    assert json.loads(cache.read_text())


def test_two_processes_at_once_are_both_right(tmp_path):
    command = [sys.executable, "-c", "from rarely.golden import FAMILIES as f; print(f['uniform'].golden.digest)"]
    environment = os.environ | {"RARELY_CACHE": str(tmp_path)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    assert len({process.communicate()[0] for process in both}) == 1
    assert [process.returncode for process in both] == [0, 0]


def test_golden_lives_are_silent(cache, caplog, recwarn):
    """Their updates are no news to whoever looks at a log."""
    from rarely.golden import FAMILIES

    caplog.set_level("DEBUG", "rarely")
    FAMILIES["linucb"].play()
    assert not caplog.records
    assert not recwarn
