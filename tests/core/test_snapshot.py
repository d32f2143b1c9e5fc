import json
import zipfile

import numpy as np
import pytest

import rarely
from rarely import SnapshotError
from worlds import contexts, play, small


@pytest.fixture
def saved(tmp_path):
    policy = small()
    play(policy, contexts()[:9])
    path = tmp_path / "policy.rarely"
    policy.save(path)
    return path


def test_a_truncated_file_is_a_clear_error(saved):
    whole = saved.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(SnapshotError, match="not a whole saved policy"):
            rarely.load(saved)


def test_an_altered_byte_is_noticed_wherever_it_is(saved):
    whole = bytearray(saved.read_bytes())
    for position in np.linspace(0, len(whole) - 1, 60).astype(int):
        altered = bytearray(whole)
        altered[position] ^= 0x55
        saved.write_bytes(altered)
        try:
            again = rarely.load(saved)
        except SnapshotError:
            continue
        # A byte that carries nothing, such as a date in the zip's directory.
        assert again.round == 9


def test_an_array_replaced_in_the_zip_fails_the_checksum(saved, tmp_path):
    forged = tmp_path / "forged"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            blob = old.read(name)
            new.writestr(name, blob[:-8] + bytes(8) if name == "learner.weights0.npy" else blob)
    with pytest.raises(SnapshotError, match="checksum"):
        rarely.load(forged)


def test_two_arrays_that_changed_places_fail_the_checksum(saved, tmp_path):
    forged, swap = tmp_path / "forged", {"learner.weights0.npy": "learner.initial0.npy"}
    swap |= {b: a for a, b in swap.items()}
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(forged, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(swap.get(name, name)))
    with pytest.raises(SnapshotError, match="checksum"):
        rarely.load(forged)


def test_foreign_files_are_told_from_ours(saved, tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a policy")
    with pytest.raises(SnapshotError):
        rarely.load(text)
    foreign = tmp_path / "arrays.npz"
    np.savez(foreign, a=np.zeros(3))
    with pytest.raises(SnapshotError, match="not a saved policy"):
        rarely.load(foreign)
    with pytest.raises(FileNotFoundError):
        rarely.load(tmp_path / "nowhere")


def test_a_format_of_the_future_is_refused_by_name(saved, tmp_path):
    future = tmp_path / "future"
    with zipfile.ZipFile(saved) as old, zipfile.ZipFile(future, "w") as new:
        for name in old.namelist():
            blob = old.read(name)
            if name == "seal.json":
                blob = json.dumps(json.loads(blob) | {"format": 99}).encode()
            new.writestr(name, blob)
    with pytest.raises(SnapshotError, match="format 99"):
        rarely.load(future)


def test_nothing_is_pickled(saved):
    with zipfile.ZipFile(saved) as bundle:
        names = bundle.namelist()
        assert {n.rsplit(".", 1)[1] for n in names} == {"json", "npy"}
        assert all(b"O" not in bundle.read(n)[:80].split(b"descr")[1][:10] for n in names if n.endswith("npy"))


def test_a_save_that_fails_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()
    policy = rarely.load(saved)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        policy.save(saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["policy.rarely"]
