"""The file of a saved policy: what damage it notices, and what it refuses before anything is allocated."""

import gc
import io
import json
import os
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest

import rarely
from rarely import SnapshotError
from rarely._core.saving import archive
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
    with pytest.raises(SnapshotError, match=r"there is none called .*nowhere\. Check the name") as missing:
        rarely.load(tmp_path / "nowhere")
    assert isinstance(missing.value, FileNotFoundError)
    with pytest.raises((IsADirectoryError, PermissionError)):  # the latter on Windows
        rarely.load(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes among its files")
def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SnapshotError, match="a device or a pipe"):
        rarely.load(tmp_path / "pipe")


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


# --- damage: every byte and bit of a small file


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny"
    archive.write(path, {"a": [1, 2.5, "three"]}, {"x": np.arange(3.0), "part.y": np.zeros((0, 2), np.int64)})
    return path


def same(one, other):
    return one.header == other.header and {name: (a.dtype, a.shape, a.tobytes()) for name, a in one.arrays.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in other.arrays.items()
    }


def test_what_is_read_is_what_was_written(tmp_path):
    arrays = {
        "plain": np.arange(6.0).reshape(2, 3),
        "by-columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "every_second": np.arange(6)[::2],
        "none": np.empty((0, 3)),
        "one": np.array(True),
        "single": np.ones((2, 2), np.float32),
        "other.order": np.arange(3, dtype=">i8"),
    }
    archive.write(tmp_path / "file", {"a": 1}, arrays)
    found = archive.read(tmp_path / "file")
    assert (found.header, found.version) == ({"a": 1}, rarely.__version__)
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype.newbyteorder("=")
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].flags.writeable
    assert found.arrays["by-columns"].flags.f_contiguous
    with zipfile.ZipFile(tmp_path / "file") as bundle:
        np.testing.assert_array_equal(np.load(io.BytesIO(bundle.read("plain.npy"))), arrays["plain"])


def test_the_same_state_gives_the_same_bytes(saved, tmp_path):
    policy = rarely.load(saved)
    policy.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize("array", [np.array([{}]), np.array(["a"]), np.array([1j]), np.array(["2020"], "M8[Y]")])
def test_only_numbers_are_written(tmp_path, array):
    with pytest.raises(TypeError, match="numbers or booleans"):
        archive.write(tmp_path / "file", {}, {"a": array})
    assert not list(tmp_path.iterdir())


def test_every_truncation_is_noticed(tiny):
    whole = tiny.read_bytes()
    for size in range(len(whole)):
        tiny.write_bytes(whole[:size])
        with pytest.raises(SnapshotError, match="is not a whole saved policy"):
            archive.read(tiny)


def test_a_flipped_bit_in_any_byte_is_noticed_or_carries_nothing(tiny):
    whole, truth = tiny.read_bytes(), archive.read(tiny)
    carried, rng = 0, np.random.default_rng(0)
    for position in range(len(whole)):
        altered = bytearray(whole)
        altered[position] ^= 1 << rng.integers(8)
        tiny.write_bytes(altered)
        try:
            found = archive.read(tiny)
        except SnapshotError:
            carried += 1
        else:
            assert same(found, truth)
            assert found.version == truth.version
    # The rest are dates, attributes and versions of the zip.
    assert carried > 0.8 * len(whole)


# --- files that were altered and sealed again


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def members_of(path):
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def sealed(members, /, **fields):
    """Members with a seal that fits them, but for the fields given."""
    seal = {"magic": archive.MAGIC, "format": archive.FORMAT, "rarely": rarely.__version__}
    seal |= {"members": {name: len(blob) for name, blob in members.items()}} | fields
    seal = {name: value for name, value in seal.items() if value is not ...}
    seal |= {"sha256": archive._digest(seal, {name: [blob] for name, blob in members.items()})}
    return {"seal.json": json.dumps(seal).encode()} | members


def bundled(path, members, kind=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", kind) as bundle:
        for name, blob in members.items():
            bundle.writestr(name, blob)
    return path


def header_of(kind, dtype, shape):
    """The beginning of an .npy file that claims such an array."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY" + bytes([kind, 0]) + len(text).to_bytes(2 if kind == 1 else 4, "little") + text


EMPTY = {"header.json": b"{}"}
FORGED = {
    "an object array": sealed(EMPTY | {"a.npy": npy(np.array([{}], object))}),
    "an array of text": sealed(EMPTY | {"a.npy": npy(np.array(["a"]))}),
    "a structured array": sealed(EMPTY | {"a.npy": npy(np.zeros(2, "f8,i8"))}),
    "80 TB": sealed(EMPTY | {"a.npy": header_of(1, "<f8", (10**13,))}),
    "80 TB of another kind": sealed(EMPTY | {"a.npy": header_of(2, "<f8", (10**13,)) + bytes(80)}),
    "a shape beyond all numbers": sealed(EMPTY | {"a.npy": header_of(1, "<f8", (10**40,))}),
    "a shape that overflows to the right size": sealed(
        EMPTY | {"a.npy": header_of(1, "<f8", (2**40, 2**24)) + bytes(0)}
    ),
    "many rows of nothing": sealed(EMPTY | {"a.npy": header_of(1, "<f8", (10**13, 0))}),
    "a negative shape": sealed(EMPTY | {"a.npy": header_of(1, "<f8", (-1, -1)) + bytes(8)}),
    "too few numbers": sealed(EMPTY | {"a.npy": header_of(1, "<f8", (2,)) + bytes(8)}),
    "too many numbers": sealed(EMPTY | {"a.npy": header_of(1, "<f8", (2,)) + bytes(24)}),
    "a header that is code": sealed(EMPTY | {"a.npy": header_of(1, "<f8", "__import__('os')")}),
    "a header without an end": sealed(EMPTY | {"a.npy": b"\x93NUMPY\x01\x00\xff\xff{'descr': "}),
    "many digits": sealed(EMPTY | {"a.npy": b"\x93NUMPY\x01\x00\xff\xff{'descr': '<f8', 'shape': (" + b"1" * 65000}),
    "nothing for an array": sealed(EMPTY | {"a.npy": b""}),
    "no header": sealed({}),
    "a header that is a list": sealed({"header.json": b"[]"}),
    "a header that is no JSON": sealed({"header.json": b"{"}),
    "a header that is no text": sealed({"header.json": b"\xff\xfe"}),
    "a deep header": sealed({"header.json": b'{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"}),
    "a long number": sealed({"header.json": b'{"a": ' + b"1" * 10**5 + b"}"}),
    "a member of another kind": sealed(EMPTY | {"notes.txt": b"mine"}),
    "a member elsewhere": sealed(EMPTY | {"../a.npy": npy(np.zeros(1))}),
    "a member that was not announced": sealed(EMPTY) | {"a.npy": npy(np.zeros(1))},
    "a member that is missing": {k: v for k, v in sealed(EMPTY | {"a.npy": npy(np.zeros(1))}).items() if k != "a.npy"},
    "a size that differs": sealed(EMPTY, members={"header.json": 3}),
    "members that are a list": sealed(EMPTY, members=["header.json"]),
    "a field less in the seal": sealed(EMPTY, rarely=...),
    "a seal that is a list": EMPTY | {"seal.json": b"[]"},
    "a seal of something else": sealed(EMPTY, magic="other"),
    "no seal": EMPTY,
    "a long seal": sealed(EMPTY, rarely="1" * 2**21),
    **{f"format {n!r}": sealed(EMPTY, format=n) for n in (0, -1, 99, 1.5, True, "2", None, [2], float("nan"))},
}


@pytest.mark.parametrize("what", FORGED)
def test_what_was_altered_and_sealed_again_is_refused(tmp_path, what):
    path = bundled(tmp_path / "forged", FORGED[what])
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError, match=str(path)):
            archive.read(path)
        assert tracemalloc.get_traced_memory()[1] < 20 * path.stat().st_size + 2**20
    finally:
        tracemalloc.stop()


def test_a_seal_of_ones_own_is_accepted_if_all_fits(tmp_path):
    found = archive.read(bundled(tmp_path / "forged", sealed(EMPTY | {"a.npy": npy(np.arange(3.0))})))
    assert found.arrays["a"].tolist() == [0, 1, 2]


def test_a_file_that_unpacks_to_much_more_is_refused_before_it_is_unpacked(tmp_path):
    bomb = header_of(1, "<f8", (10**7,)) + bytes(8 * 10**7)
    path = bundled(tmp_path / "bomb", sealed(EMPTY | {"a.npy": bomb}), zipfile.ZIP_DEFLATED)
    del bomb
    assert path.stat().st_size < 200_000
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError):
            archive.read(path)
        assert tracemalloc.get_traced_memory()[1] < 2**21
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_members_must_not_be_compressed(tmp_path, kind):
    path = tmp_path / "packed"
    with zipfile.ZipFile(path, "w") as bundle:
        for name, blob in sealed(EMPTY | {"a.npy": npy(np.zeros(100))}).items():
            bundle.writestr(name, blob, kind if name == "a.npy" else zipfile.ZIP_STORED)
    with pytest.raises(SnapshotError, match=r"must hold plain members, but 'a\.npy' is compressed"):
        archive.read(path)


def test_members_that_claim_more_than_the_file_has_are_refused(tmp_path):
    path = bundled(tmp_path / "claims", sealed(EMPTY | {"a.npy": npy(np.zeros(100))}))
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    for offset in (20, 24):  # sizes, packed and not
        content[entry + offset : entry + offset + 4] = (2**31).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="claims members of"):
        archive.read(path)


def test_members_that_lie_over_each_other_are_refused(tmp_path):
    many = {f"a{i}.npy": npy(np.zeros(200)) for i in range(20)}
    path = bundled(tmp_path / "overlap", sealed(EMPTY | many))
    content = path.read_bytes()
    with zipfile.ZipFile(path) as bundle:
        infos = {info.filename: info for info in bundle.infolist()}
        start = bundle.start_dir
    # Every a{i} of the directory points at the bytes of a0, and the others are cut out.
    begin, end = infos["a0.npy"].header_offset, infos["a1.npy"].header_offset
    directory = content[start:]
    for i in range(1, 20):
        directory = directory.replace(
            infos[f"a{i}.npy"].header_offset.to_bytes(4, "little"), begin.to_bytes(4, "little")
        )
    directory = directory.replace(start.to_bytes(4, "little"), end.to_bytes(4, "little"))
    path.write_bytes(content[:end] + directory)
    with pytest.raises(SnapshotError, match="claims members of"):
        archive.read(path)


def test_another_format_says_who_wrote_it(tmp_path):
    path = bundled(tmp_path / "later", sealed(EMPTY, format=99, rarely="7.0", colour="red"))
    sentence = f"has format 99 and was written by rarely 7.0; this is rarely {rarely.__version__}, which reads format 1"
    with pytest.raises(SnapshotError, match=sentence):
        rarely.load(path)


def test_the_version_that_wrote_it_is_under_the_seal(saved):
    members = members_of(saved)
    seal = json.loads(members["seal.json"])
    assert (seal["rarely"], seal["format"]) == (rarely.__version__, archive.FORMAT)
    bundled(saved, members | {"seal.json": json.dumps(seal | {"rarely": "9.9"}).encode()})
    with pytest.raises(SnapshotError, match="checksum"):
        rarely.load(saved)


def test_an_interrupted_save_or_load_prints_nothing(saved, monkeypatch):
    """Nothing is raised where it could only be printed, wherever in zipfile or here the interrupt comes."""
    found, printed = archive.read(saved), []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: printed.append(raised.exc_value))

    def at_line(call, stop):
        lines = 0

        def trace(frame, event, arg):
            nonlocal lines
            if "zipfile" not in frame.f_code.co_filename and frame.f_code.co_filename != archive.__file__:
                return None
            if frame.f_code.co_name == "__del__":
                return None
            lines += event == "line"
            if lines == stop:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt:
            return False
        finally:
            sys.settrace(before)
        return True

    before, small = sys.gettrace(), {"a": np.zeros(3)}
    for call in (lambda: archive.write(saved, found.header, small), lambda: archive.read(saved)):
        stop = 1
        while not at_line(call, stop):
            gc.collect(0)
            stop += 3
    assert [error for error in printed if not isinstance(error, ResourceWarning)] == []


@pytest.mark.parametrize("kind", ["FixedGrid", "GeometricGrid"])
def test_a_forged_grid_of_many_points_is_refused_before_it_is_made(saved, kind):
    found = archive.read(saved)
    found.header["settings"]["schedule"] = {"kind": kind, "horizon": 10**9, "batches": 9_999_999}
    archive.write(saved, found.header, found.arrays)
    with pytest.raises(SnapshotError, match="batches must be at most 100,000"):
        rarely.load(saved)
