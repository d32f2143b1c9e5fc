import gzip
import hashlib
import io
import os
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from rarely import RarelyError
from rarely.worlds import DATASETS, Dataset, DataUnavailable
from rarely.worlds.datasets import cache_folder, fetch, located, places

GIVEN = os.environ.get("RARELY_DATA")
MUSHROOM = b"p,x,s,?\ne,x,y,b\ne,b,s,b\np,f,y,w\ne,x,s,?\n"
MAGIC = b"28.7,16.0,-8.2,g\n31.6,11.7,-9.9,g\n162.0,136.0,76.9,h\n"


def find(dataset, path=None, progress=None):
    """Return where a file is, fetched if need be, as `Dataset.table` does."""
    return located(dataset, path) or fetch(dataset, progress)


def made_up(content=MUSHROOM, *, name="fungi", file="fungi.data", label=0, counts=(("e", 3), ("p", 2)), urls=()):
    digest = hashlib.sha256(content).hexdigest()
    return Dataset(name, file, len(content), digest, label, counts, tuple(urls), source="made up")


FUNGI = made_up()
RAYS = made_up(MAGIC, name="rays", file="rays.data", label=3, counts=(("g", 2), ("h", 1)))


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.delenv("RARELY_DATA", raising=False)
    monkeypatch.setenv("RARELY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


def put(path, content=MUSHROOM):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.exists() else []


# Found


@pytest.mark.parametrize("inside", ["fungi.data", "fungi/fungi.data"])
def test_a_file_is_found_in_a_folder_and_in_one_of_the_datasets_name(monkeypatch, tmp_path, cache, inside):
    kept = put(cache / inside)
    assert located(FUNGI) == find(FUNGI) == kept
    shared = put(tmp_path / "shared" / inside)
    monkeypatch.setenv("RARELY_DATA", str(tmp_path / "shared"))
    assert find(FUNGI) == shared
    given = put(tmp_path / "given" / inside)
    assert find(FUNGI, tmp_path / "given") == find(FUNGI, str(tmp_path / "given")) == given


def test_a_file_given_is_taken_whatever_its_name(monkeypatch, tmp_path, cache):
    put(cache / "fungi.data")
    monkeypatch.setenv("RARELY_DATA", str(put(tmp_path / "shared" / "fungi.data").parent))
    given = put(tmp_path / "mine.csv")
    assert find(FUNGI, given) == given


def test_the_places_are_the_path_then_rarely_data_then_the_cache(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("RARELY_DATA", str(tmp_path / "shared"))
    expected = [
        folder / inside for folder in (tmp_path / "shared", cache) for inside in ("fungi.data", "fungi/fungi.data")
    ]
    assert list(places(FUNGI)) == expected
    given = [tmp_path / "given" / "fungi.data", tmp_path / "given" / "fungi" / "fungi.data"]
    assert list(places(FUNGI, tmp_path / "given"))[:2] == given


def test_the_cache_is_the_users_unless_told_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv("RARELY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "rarely"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "rarely"


def test_a_file_that_is_nowhere_is_not_located():
    assert located(FUNGI) is None


def test_a_path_without_the_file_is_refused(tmp_path):
    with pytest.raises(DataUnavailable, match=r"has no fungi.data; give the file itself, or the folder"):
        find(FUNGI, tmp_path)


def test_an_altered_file_is_refused_wherever_it_is_found_and_left_as_it_was(monkeypatch, tmp_path, cache):
    altered, sound = MUSHROOM.replace(b"p,f", b"e,f"), put(tmp_path / "sound" / "fungi.data")

    def refused(file, path=None):
        with pytest.raises(DataUnavailable, match=rf"{file} is not the original fungi.data.*{len(MUSHROOM)} bytes"):
            find(FUNGI, path)
        assert file.read_bytes() == altered

    refused(put(cache / "fungi" / "fungi.data", altered))
    monkeypatch.setenv("RARELY_DATA", str(tmp_path / "shared"))
    refused(put(tmp_path / "shared" / "fungi.data", altered))
    given = put(tmp_path / "given" / "fungi.data", altered)
    refused(given, given)
    refused(given, given.parent)
    assert find(FUNGI, sound) == sound


@pytest.mark.parametrize("content", [b"", MUSHROOM[:-1], MUSHROOM + b"\n", MUSHROOM.replace(b"\n", b"\r\n")])
def test_a_byte_more_or_less_is_an_altered_file(tmp_path, content):
    with pytest.raises(DataUnavailable, match=f"it has {len(content)} with"):
        FUNGI.verify(put(tmp_path / "fungi.data", content))


def test_what_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "fungi.data").mkdir()
    for path in (tmp_path / "fungi.data", tmp_path / "absent"):
        with pytest.raises(DataUnavailable, match="cannot be read"):
            FUNGI.verify(path)


def test_the_table_is_that_of_the_file(tmp_path):
    fungi = FUNGI.table(put(tmp_path / "fungi.data"))
    assert fungi.rows.tolist() == [[2, 0, 0], [2, 1, 1], [0, 0, 1], [1, 1, 2], [2, 0, 0]]
    assert fungi.labels.tolist() == [1, 0, 0, 1, 0]
    rays = RAYS.table(put(tmp_path / "rays.data", MAGIC))
    assert rays.rows.tolist() == [[28.7, 16.0, -8.2], [31.6, 11.7, -9.9], [162.0, 136.0, 76.9]]
    assert rays.classes == ("g", "h")
    assert (FUNGI.count, RAYS.count) == (5, 3)


def test_the_classes_are_counted(tmp_path):
    miscounted = replace(FUNGI, counts=(("e", 2), ("p", 3)))
    with pytest.raises(DataUnavailable, match=r"must hold {'e': 2, 'p': 3}.*got {'e': 3, 'p': 2}"):
        miscounted.table(put(tmp_path / "fungi.data"))


# Fetched


def zipped(content, member="fungi.data"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return file.getvalue()


class Server(ThreadingHTTPServer):
    """Answers with what the test put under a path; 404 elsewhere."""

    daemon_threads = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.answers, self.asked, self.over = {}, [], threading.Event()

    def url(self, name, answer):
        self.answers["/" + name] = answer
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Answer(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.asked.append(self.path)
        answer = self.server.answers.get(self.path)
        if answer is None:
            return self.send_error(404)
        try:
            return self.send(answer) if isinstance(answer, bytes) else answer(self)
        except ConnectionError:
            return None

    def send(self, content, length=None):
        self.send_response(200)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)


def stalled(request):
    request.send(MUSHROOM[:10], len(MUSHROOM))
    request.wfile.flush()
    request.server.over.wait(300)


def silent(request):
    request.server.over.wait(300)


def truncated(request):
    request.send(MUSHROOM[:10], len(MUSHROOM))


def without_length(request):
    request.send_response(200)
    request.end_headers()
    request.wfile.write(MUSHROOM)


def endless(request):
    request.send_response(200)
    request.end_headers()
    for _ in range(100):  # 4 MB stand for an endless answer: without its limit, fetch must fail and not the machine
        request.wfile.write(MUSHROOM * 1000)


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.over.set()
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(("dataset", "content"), [(FUNGI, MUSHROOM), (RAYS, MAGIC)], ids=["mushroom", "magic"])
def test_a_file_that_is_nowhere_is_fetched_once_and_kept_byte_for_byte(server, cache, dataset, content):
    dataset, seen = replace(dataset, urls=(server.url("file", content),)), []
    path = find(dataset, progress=lambda *bytes: seen.append(bytes))
    assert path == cache / dataset.name / dataset.file
    assert path.read_bytes() == content
    assert files(cache) == [path]
    assert seen[-1] == (len(content), len(content))
    assert find(dataset) == path
    assert dataset.table().classes == tuple(name for name, _ in dataset.counts)
    assert server.asked == ["/file"]


def test_progress_grows_up_to_what_is_expected(server):
    content = MUSHROOM * 20_000
    dataset, seen = made_up(content, urls=[server.url("file", content)]), []
    fetch(dataset, lambda *bytes: seen.append(bytes))
    so_far = [now for now, _ in seen]
    assert len(seen) > 1
    assert so_far == sorted(set(so_far))
    assert {expected for _, expected in seen} == {len(content)}


def test_a_server_that_says_no_length_is_believed_after_the_check(server):
    seen = []
    path = fetch(made_up(urls=[server.url("file", without_length)]), lambda *bytes: seen.append(bytes))
    assert path.read_bytes() == MUSHROOM
    assert seen[-1] == (len(MUSHROOM), len(MUSHROOM))


BAD = {
    "stalled": (stalled, "nothing came for too long"),
    "silent": (silent, "nothing came for too long"),
    "truncated": (truncated, rf"the connection ended after 10 of {len(MUSHROOM)} bytes"),
    "wrong hash": (MUSHROOM[::-1], "is not the original fungi.data"),
    "a page": (b"<html>moved</html>", "is not the original fungi.data"),
    "nothing": (b"", "is not the original fungi.data"),
    "404": (None, "the server answered 404"),
    "endless": (endless, rf"more than twice the expected {len(MUSHROOM)} bytes"),
    "no zip": (MUSHROOM, "zip"),
    "zip without the member": (zipped(MUSHROOM, "other.data"), "fungi.data"),
    "zip of another file": (zipped(MAGIC), "is not the original fungi.data"),
    "half a zip": (zipped(MUSHROOM)[:-30], "zip"),
}


def name_of(case):
    return "file.zip" if "zip" in case else "file"


@pytest.mark.parametrize("case", BAD)
def test_a_fetch_that_fails_says_why_and_where_to_put_the_file_and_keeps_nothing(server, cache, case):
    answer, why = BAD[case]
    url = server.url(name_of(case), answer)
    # A server that answers may take its time; those that do not would take 300 s, and end with another message.
    with pytest.raises(DataUnavailable, match=why) as error:
        fetch(made_up(urls=[url]), patience=0.2 if answer in (stalled, silent) else 300)
    assert f"fungi.data could not be fetched ({url}: " in str(error.value)
    assert f"Put the original file into {cache / 'fungi'}, or set RARELY_DATA" in str(error.value)
    assert files(cache) == []


@pytest.mark.parametrize("case", BAD)
def test_the_second_address_is_tried_after_the_first_failed(server, cache, case):
    urls = [server.url(name_of(case), BAD[case][0]), server.url("second.zip", zipped(MUSHROOM))]
    path = fetch(made_up(urls=urls), patience=0.2)
    assert path.read_bytes() == MUSHROOM
    assert files(cache) == [path]


def test_the_second_address_is_left_alone_where_the_first_is_good(server):
    urls = [server.url("first.zip", zipped(MUSHROOM)), server.url("second", MUSHROOM)]
    fetch(made_up(urls=urls))
    assert server.asked == ["/first.zip"]


def test_every_failure_is_told(server):
    urls = [server.url("first", None), server.url("second", truncated)]
    with pytest.raises(DataUnavailable, match=r"first: the server answered 404; .*second: the connection ended"):
        fetch(made_up(urls=urls))


def test_a_connection_that_is_refused_is_told(cache):
    with Server() as gone:
        url = gone.url("file", MUSHROOM)
    with pytest.raises(DataUnavailable, match=r"refused.*RARELY_DATA"):
        fetch(made_up(urls=[url]), patience=0.2)
    assert files(cache) == []


def test_a_failed_fetch_leaves_what_the_cache_had(server, cache):
    kept = put(cache / "rays" / "rays.data", MAGIC)
    with pytest.raises(RarelyError):
        find(made_up(urls=[server.url("file", truncated)]))
    assert files(cache) == [kept]


def test_a_damaged_zip_is_a_failure_like_others(server):
    whole = zipped(MUSHROOM)
    start = 30 + len("fungi.data")  # a local header has 30 bytes and the name
    damaged = whole[:start] + b"\xff" * 8 + whole[start + 8 :]
    with pytest.raises(DataUnavailable, match="RARELY_DATA"):
        fetch(made_up(urls=[server.url("file.zip", damaged)]))


# The originals


@pytest.fixture
def original(monkeypatch):
    def find_or_skip(name):
        if not GIVEN:
            pytest.skip("RARELY_DATA is not set: the original UCI files are not tested")
        monkeypatch.setenv("RARELY_DATA", GIVEN)
        if located(DATASETS[name]) is None:
            pytest.skip(f"RARELY_DATA has no {DATASETS[name].file}: the original is not tested")
        return DATASETS[name].table()

    return find_or_skip


def test_the_original_mushrooms_are_read(original):
    table = original("mushroom")
    assert table.rows.shape == (8124, 22)
    assert table.classes == ("e", "p")
    assert np.bincount(table.labels).tolist() == [4208, 3916]
    assert table.labels[:3].tolist() == [1, 0, 0]
    assert (table.rows == np.floor(table.rows)).all()
    assert DATASETS["mushroom"].count == 8124


def test_the_original_telescope_is_read(original):
    table = original("magic")
    assert table.rows.shape == (19020, 10)
    assert table.classes == ("g", "h")
    assert np.bincount(table.labels).tolist() == [12332, 6688]
    assert table.labels[[0, -1]].tolist() == [0, 1]
    assert table.rows[0, :2].tolist() == [28.7967, 16.0021]
    assert DATASETS["magic"].count == 19020


def test_the_original_shuttle_is_read(original):
    table = original("shuttle")
    assert table.rows.shape == (43500, 9)
    assert table.rows[0].tolist() == [50, 21, 77, 0, 28, 0, 27, 48, 22]
    assert table.labels[:3].tolist() == [1, 3, 0]


def test_the_original_census_is_read_without_rows_of_unknown_occupation(original):
    table = original("adult")
    assert table.rows.shape == (30718, 14)
    assert "?" not in table.classes
    assert [table.classes[k] for k in table.labels[:3]] == ["Adm-clerical", "Exec-managerial", "Handlers-cleaners"]


@pytest.mark.slow
def test_every_tenth_row_of_the_original_forest_is_read(original):
    table = original("covertype")
    assert table.rows.shape == (58102, 54)
    assert table.rows[0, :3].tolist() == [2596, 51, 3]


# Packed, thinned, with rows of unknown class


TREES = b"1,7,8\n2,3,4\n2,2,2\n1,5,5\n1,6,1\n"
"""A class and two whole numbers, of which every second row is read."""


def test_a_packed_file_is_found_verified_and_read(tmp_path, monkeypatch):
    packed = replace(made_up(TREES, counts=(("1", 2), ("2", 1))), packed=True, every=2)
    monkeypatch.setenv("RARELY_DATA", str(tmp_path))
    place = put(tmp_path / "fungi" / "fungi.data.gz", gzip.compress(TREES))
    assert located(replace(packed, packed=False)) is None
    assert located(packed) == place
    plain = packed.read(put(tmp_path / "plain" / "fungi.data", TREES))
    assert packed.table() == plain
    assert plain.rows.tolist() == [[7, 8], [2, 2], [6, 1]]
    assert plain.labels.tolist() == [0, 1, 0]
    put(place, gzip.compress(TREES)[:-9])
    with pytest.raises(DataUnavailable, match="cannot be read"):
        located(packed)
    put(place, gzip.compress(TREES + b"1,1,1\n"))
    with pytest.raises(DataUnavailable, match="not the original"):
        located(packed)


def test_a_packed_download_is_kept_packed(server, cache):
    packed = made_up(urls=[server.url("fungi.data.gz", gzip.compress(MUSHROOM))])
    kept = fetch(replace(packed, packed=True))
    assert kept == cache / "fungi" / "fungi.data.gz"
    assert gzip.decompress(kept.read_bytes()) == MUSHROOM
    assert fetch(packed).read_bytes() == MUSHROOM


def test_rows_of_unknown_class_are_left_out(tmp_path):
    lines = b"a,1\nb,2\n?,5\nb,6\n"
    own = made_up(lines, counts=(("a", 1), ("b", 2)))
    table = replace(own, unknown="?").table(put(tmp_path / "fungi.data", lines))
    assert table.rows.tolist() == [[1], [2], [6]]
    assert table.classes == ("a", "b")
