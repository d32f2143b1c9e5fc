"""A file is replaced in one step, and nothing is left behind."""

import errno
import os
import signal
import stat
import subprocess
import sys

import pytest

from rarely._core.saving import files
from rarely._core.saving.files import PREFIX, SUFFIX, replacing

fcntl = pytest.importorskip("fcntl", reason="modes, links, pipes and locks are tested as POSIX has them")


def write(path, content=b"new"):
    with replacing(path) as file:
        file.write(content)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture
def umask():
    """A umask of one's own, which takes all from others and writing from the group."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


@pytest.fixture
def old(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    return path


def test_a_new_file_and_an_old_one_are_written(tmp_path):
    path = tmp_path / "file"
    for content in (b"one", b"two"):
        write(path, content)
        assert path.read_bytes() == content
        assert names(tmp_path) == ["file"]


def test_nothing_is_seen_before_the_end(old):
    with replacing(old) as file:
        file.write(b"half")
        file.flush()
        assert old.read_bytes() == b"old"
    assert old.read_bytes() == b"half"


def test_a_block_that_fails_leaves_the_old_file_alone(old):
    def interrupted():
        with replacing(old) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert old.read_bytes() == b"old"
    assert names(old.parent) == ["file"]


class TestMode:
    def test_a_new_file_has_what_the_umask_leaves(self, tmp_path, umask, monkeypatch):
        # To ask for the umask is to set it, for all threads.
        monkeypatch.setattr("os.umask", lambda mask: pytest.fail("the umask was changed"))
        write(tmp_path / "file")
        assert mode(tmp_path / "file") == 0o666 & ~umask

    @pytest.mark.parametrize("kept", [0o600, 0o664, 0o444])
    def test_a_file_that_exists_keeps_its_own(self, old, umask, kept):
        old.chmod(kept)
        write(old)
        assert old.read_bytes() == b"new"
        assert mode(old) == kept

    def test_a_private_file_is_private_while_it_is_written(self, old):
        old.chmod(0o600)
        with replacing(old):
            assert {mode(entry) for entry in old.parent.iterdir()} == {0o600}


class TestLinks:
    def test_a_link_stays_and_its_target_is_written(self, tmp_path):
        (tmp_path / "folder").mkdir()
        target, link = tmp_path / "folder" / "target", tmp_path / "link"
        target.write_bytes(b"old")
        link.symlink_to("folder/target")
        write(link)
        assert link.is_symlink()
        assert target.read_bytes() == b"new"
        assert names(tmp_path / "folder") == ["target"]
        assert names(tmp_path) == ["folder", "link"]

    def test_a_link_to_what_is_not_there_yet_makes_it(self, tmp_path):
        link = tmp_path / "link"
        link.symlink_to("target")
        write(link)
        assert link.is_symlink()
        assert (tmp_path / "target").read_bytes() == b"new"

    def test_links_in_a_circle_are_an_error(self, tmp_path):
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        with pytest.raises(OSError, match=r"'.*/a'") as caught:
            write(tmp_path / "a")
        assert caught.value.errno == errno.ELOOP
        assert names(tmp_path) == ["a", "b"]


class TestRefusals:
    def test_a_folder_is_not_a_file(self, tmp_path):
        with pytest.raises(IsADirectoryError, match=f"not a folder: '{tmp_path}'"):
            write(tmp_path)
        assert not names(tmp_path)

    def test_a_pipe_is_not_replaced(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="only a regular file can be replaced"):
            write(tmp_path / "pipe")
        assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)

    def test_a_folder_that_is_missing_is_named(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=f"a folder that exists: '{tmp_path}/nowhere/file'"):
            write(tmp_path / "nowhere" / "file")

    def test_a_folder_that_may_not_be_written_to_is_an_error(self, old):
        old.parent.chmod(0o500)
        if os.access(old.parent, os.W_OK):
            pytest.skip("root may write anywhere")
        try:
            with pytest.raises(PermissionError, match=f"the old one is untouched .*: '{old}'"):
                write(old)
        finally:
            old.parent.chmod(0o700)
        assert old.read_bytes() == b"old"

    @pytest.mark.parametrize("call", ["open", "fsync", "replace", "chmod"])
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
    def test_what_the_disk_says_is_said_with_the_path(self, old, monkeypatch, call, number):
        def fail(*args, **options):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(f"os.{call}", fail)
            with pytest.raises(OSError, match=f"old one is untouched .*{os.strerror(number)}.*: '{old}'") as caught:
                write(old)
        assert caught.value.errno == number
        assert old.read_bytes() == b"old"
        assert names(old.parent) == ["file"]

    def test_a_disk_that_is_full_half_way_leaves_the_old_file(self, old):
        code = (
            "import resource, signal, sys\n"
            "from rarely._core.saving.files import replacing\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
            "try:\n"
            "    with replacing(sys.argv[1]) as file:\n"
            "        file.write(bytes(1_000_000))\n"
            "except OSError as error:\n"
            "    print(error)\n"
        )
        said = subprocess.run([sys.executable, "-c", code, old], check=True, capture_output=True, text=True).stdout
        assert "the old one is untouched (File too large)" in said
        assert str(old) in said
        assert old.read_bytes() == b"old"
        assert names(old.parent) == ["file"]


def test_file_and_then_folder_are_synced(old, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr("os.fsync", lambda handle: (synced.append(os.fstat(handle)), sync(handle)))
    inode = os.stat(old).st_ino
    write(old)
    assert [stat.S_ISREG(status.st_mode) for status in synced] == [True, False]
    assert synced[0].st_ino == os.stat(old).st_ino != inode
    assert synced[1].st_ino == os.stat(old.parent).st_ino


def test_a_folder_that_the_disk_does_not_confirm_is_said(old, monkeypatch):
    sync = os.fsync

    def fail(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        sync(handle)

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="the file was replaced, but may not be on the disk"):
        write(old)
    assert old.read_bytes() == b"new"


class TestTemporaryFiles:
    def left_behind(self, folder, name="0" * 16):
        path = folder / f"{PREFIX}{name}{SUFFIX}"
        path.write_bytes(b"half")
        return path

    def test_those_of_dead_processes_are_removed(self, old):
        for digit in "123":
            self.left_behind(old.parent, digit * 16)
        write(old)
        assert names(old.parent) == ["file"]

    def test_those_of_others_that_live_are_not(self, old):
        path = self.left_behind(old.parent)
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            write(old)
            assert path.exists()
        write(old)
        assert not path.exists()

    def test_one_under_way_is_not_removed_by_the_next(self, tmp_path):
        with replacing(tmp_path / "a") as slow:
            slow.write(b"slow")
            write(tmp_path / "b", b"fast")
        assert (tmp_path / "a").read_bytes() == b"slow"
        assert (tmp_path / "b").read_bytes() == b"fast"
        assert names(tmp_path) == ["a", "b"]

    def test_one_that_was_removed_before_it_was_locked_is_made_again(self, tmp_path, monkeypatch):
        lock, removed = fcntl.flock, []

        def race(file, kind):
            if not removed:
                removed.extend(entry.unlink() or entry for entry in tmp_path.glob(f"{PREFIX}*"))
            lock(file, kind)

        monkeypatch.setattr("fcntl.flock", race)
        write(tmp_path / "file")
        assert len(removed) == 1
        assert names(tmp_path) == ["file"]

    def test_a_link_of_that_name_is_not_followed(self, old, tmp_path_factory):
        elsewhere = tmp_path_factory.mktemp("elsewhere") / "precious"
        elsewhere.write_bytes(b"precious")
        (old.parent / f"{PREFIX}{'0' * 16}{SUFFIX}").symlink_to(elsewhere)
        write(old)
        assert elsewhere.read_bytes() == b"precious"

    def test_other_names_are_left_alone(self, old):
        (old.parent / f"{PREFIX}notes.txt").write_bytes(b"mine")
        write(old)
        assert names(old.parent) == [f"{PREFIX}notes.txt", "file"]


SAVER = """
import os, sys
from rarely._core.saving.files import replacing
path, moment = sys.argv[1:]
def stop(*_):
    print("here", flush=True)
    sys.stdin.read()
if moment in ("fsync", "replace"):
    setattr(os, moment, stop)
with replacing(path) as file:
    file.write(b"b" * 2**20)
    if moment == "write":
        file.flush()
        stop()
"""


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_process_killed_while_it_writes_leaves_the_old_file_whole(moment, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a")
    command = [sys.executable, "-c", SAVER, path, moment]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as saver:
        assert saver.stdout.readline() == b"here\n"
        saver.send_signal(signal.SIGKILL)
        saver.wait()
    assert path.read_bytes() == b"a"
    assert len(names(tmp_path)) == 2
    write(path)  # which removes what the killed one left
    assert names(tmp_path) == ["file"]


def test_without_locks_and_open_folders_as_on_windows(tmp_path, monkeypatch):
    """What can be tested of that elsewhere: the file is closed before it is renamed, and folders are not opened."""
    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.delattr(os, "O_DIRECTORY")
    rename, closed = os.replace, []
    with replacing(tmp_path / "file") as file:
        monkeypatch.setattr(os, "replace", lambda *names: (closed.append(file.closed), rename(*names)))
        file.write(b"new")
    assert closed == [True]
    assert (tmp_path / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["file"]
