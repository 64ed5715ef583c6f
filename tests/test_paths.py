"""Where things lie, and writing that is whole or not at all."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from killed import left_by_a_kill

from repro import paths
from repro.errors import ReproError


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    for name in ("REPRO_HOME", "REPRO_WORK", "REPRO_DATA"):
        monkeypatch.delenv(name, raising=False)


def test_home_is_the_checkout_unless_told_otherwise(monkeypatch, tmp_path):
    assert (paths.home() / "pyproject.toml").exists()
    assert paths.home() == Path(paths.__file__).parents[2]
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "a" / ".." / "b"))
    assert paths.home() == (tmp_path / "b").resolve()


def test_home_of_an_installed_package_is_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "lib" / "site-packages" / "repro" / "paths.py"))
    monkeypatch.chdir(tmp_path)
    assert paths.home() == tmp_path


@pytest.mark.parametrize(("scale", "place"), [
    ("smoke", "build/results"), ("small", "results"), ("medium", "results"), ("paper", "results")])
def test_smoke_records_are_not_kept_with_the_others(monkeypatch, tmp_path, scale, place):
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    assert paths.results(scale) == tmp_path / place


def test_work_lies_in_build_or_where_told(monkeypatch, tmp_path):
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    assert paths.work() == (tmp_path / "build" / "work").resolve()
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "elsewhere"))
    assert paths.work() == (tmp_path / "elsewhere").resolve()


def test_data_is_what_the_environment_says_or_nothing(monkeypatch, tmp_path):
    assert paths.data() is None
    monkeypatch.setenv("REPRO_DATA", "")
    assert paths.data() is None
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    assert paths.data() == tmp_path.resolve()


@pytest.mark.parametrize("content", ["grün\n", b"\x00\xff\n", "", b"x" * 1_000_000])
def test_what_is_written_is_read_back(tmp_path, content):
    path = tmp_path / "new" / "folder" / "file.txt"
    for _ in range(2):  # the second time over an existing file
        paths.write_atomic(str(path), content)
        assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
        assert os.listdir(path.parent) == ["file.txt"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path, monkeypatch):
    path, seen = tmp_path / "file", []
    path.write_text("old")

    def watched(name):
        original = getattr(os, name)

        def call(*arguments):
            seen.append((name, path.read_text()))
            return original(*arguments)
        monkeypatch.setattr(paths.os, name, call)

    for name in ("fsync", "replace"):
        watched(name)
    paths.write_atomic(path, "new")
    assert seen == [("fsync", "old"), ("replace", "old")]  # to the disk first, then under its name
    assert path.read_text() == "new"


@pytest.mark.parametrize("name", ["fsync", "replace", "chmod"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, name):
    path = tmp_path / "file"
    path.write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(paths.os, name, full)
    with pytest.raises(ReproError, match=r"cannot write .*file: No space left on device"):
        paths.write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_file_larger_than_the_system_allows_leaves_the_old_one(tmp_path):
    """A limit of the operating system instead of a pretended one, in a process of its own."""
    path = tmp_path / "file"
    path.write_text("old")
    code = (f"import signal; signal.signal(signal.{signal.SIGXFSZ.name}, signal.SIG_IGN)\n"
            f"from repro.errors import ReproError; from repro.paths import write_atomic\n"
            f"try: write_atomic({str(path)!r}, 'x' * 100_000)\n"
            f"except ReproError as error: print(error)")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    done = subprocess.run([sys.executable, "-c", code], preexec_fn=limit, capture_output=True, text=True,
                          env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    assert "cannot write" in done.stdout, done.stderr
    assert "File too large" in done.stdout
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_a_file_where_a_folder_should_be_is_told(tmp_path, below):
    (tmp_path / "file").write_text("old")
    with pytest.raises(ReproError, match="cannot write"):
        paths.write_atomic(tmp_path / below / "new", "new")
    assert (tmp_path / "file").read_text() == "old"


def test_a_folder_where_a_file_should_be_is_told(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ReproError, match="cannot write .*folder"):
        paths.write_atomic(tmp_path / "folder", "new")
    assert os.listdir(tmp_path) == ["folder"]


FORK = """
import fcntl, os, signal, time
from pathlib import Path
from repro.paths import locked
from repro.study.runner import _exclusive as exclusive
with CALL as alone:
    child = os.fork()
    if not child:
        time.sleep(100)
        os._exit(0)
try:
    fcntl.flock(os.open("FILE", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
    print(alone, "free")
except OSError:
    print(alone, "taken")
os.kill(child, signal.SIGKILL)
"""


@pytest.mark.parametrize(("call", "file", "alone"), [('locked(Path("."))', ".", True),
                                                     ('exclusive(Path("run"))', "run.lock", None)])
def test_a_lock_ends_with_its_block_where_a_forked_process_goes_on(tmp_path, call, file, alone):
    code = FORK.replace("CALL", call).replace("FILE", file)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{alone} free\n", done.stderr


WRITE = "from repro.paths import write_atomic\nwatch()\nwrite_atomic('file', 'new')"


def test_what_a_killed_write_leaves_is_deleted_by_the_next_one(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / ".file.original").write_text("not ours")
    (tmp_path / ".other.abcdefgh.unfinished").write_text("of another file, which may be being written")
    kept = {"file", ".file.original", ".other.abcdefgh.unfinished"}
    left = left_by_a_kill(tmp_path, WRITE, "os.rename")
    assert len(left - kept) == 1 and (tmp_path / "file").read_text() == "old"
    paths.write_atomic(tmp_path / "file", "new")
    assert set(os.listdir(tmp_path)) == kept and (tmp_path / "file").read_text() == "new"


def test_a_file_that_another_process_writes_is_not_deleted(tmp_path, monkeypatch):
    """A second writer waits until the first has put its file into place."""
    code = "from repro.paths import write_atomic; print(flush=True); write_atomic('file', 'theirs')"
    replace, other = os.replace, []

    def meanwhile(*names):
        other.append(subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE))
        other[0].stdout.readline()  # it has begun
        with pytest.raises(subprocess.TimeoutExpired):
            other[0].wait(timeout=0.3)
        replace(*names)

    monkeypatch.setattr(paths.os, "replace", meanwhile)
    paths.write_atomic(tmp_path / "file", "ours")
    assert not other[0].wait(timeout=60)
    assert os.listdir(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "theirs"
