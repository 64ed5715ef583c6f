"""What this machine can run, and what it lacks: the rows of `repro doctor`."""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from repro import paths
from repro.errors import ReproError


@dataclass(frozen=True)
class Finding:
    """One row: what was looked at, what was found, and what to do about it ("" if nothing)."""

    what: str
    found: str
    lack: str = ""


def findings() -> list[Finding]:
    """Look at Python, torch, the device, memory, tools, versions and corpora. Takes seconds: it counts the corpora."""
    return [*_software(), *_device(), *_memory(), *_tools(), *_corpora()]


def _software() -> Iterator[Finding]:
    yield Finding("Python", platform.python_version(), "" if sys.version_info >= (3, 11) else "3.11 or newer is needed")
    file = paths.home() / "constraints.txt"
    wanted = dict(re.findall(r"^([\w.\-]+)==([\w.\-]+)", file.read_text(), re.MULTILINE)) if file.exists() else {}
    other = []
    for name, expected in wanted.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            continue  # of an extra that is not installed
        if found.partition("+")[0] != expected:
            other.append(f"{name} {found} (tested: {expected})")
    if wanted:
        yield Finding("versions", f"{len(other)} of {len(wanted)} differ from constraints.txt: {', '.join(other)}"
                      if other else "as in constraints.txt", "pip install -c constraints.txt -e ." if other else "")
    else:
        yield Finding("versions", "no constraints.txt", f"{paths.home()} is no checkout; set REPRO_HOME")


def _device() -> Iterator[Finding]:
    import torch

    gpu = torch.cuda.is_available()
    yield Finding("torch", torch.__version__)
    if gpu:
        bytes_free, bytes_all = torch.cuda.mem_get_info()
        yield Finding("device", f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, "
                      f"{bytes_free / 2**30:.0f} of {bytes_all / 2**30:.0f} GiB free")
        yield Finding("bf16", "yes" if torch.cuda.is_bf16_supported() else "no",
                      "" if torch.cuda.is_bf16_supported() else "scales medium and paper train in fp32")
        yield Finding("FlexAttention", "forward and backward")
    else:
        yield Finding("device", "cpu", "scales medium and paper need a GPU")
        yield Finding("bf16", "slow on a CPU", "runs use fp32")
        yield Finding("FlexAttention", "forward only on a CPU", "training uses implementation='blocked'")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("cores", f"{cores}, torch uses {torch.get_num_threads()} threads")


def _memory() -> Iterator[Finding]:
    page = os.sysconf("SC_PAGE_SIZE") / 2**30
    free = page * os.sysconf("SC_AVPHYS_PAGES")
    yield Finding("memory", f"{free:.1f} of {page * os.sysconf('SC_PHYS_PAGES'):.1f} GiB free",
                  "" if free > 4 else "scale small needs about 4 GiB")
    folder = paths.work()
    while not folder.exists():
        folder = folder.parent
    disk = shutil.disk_usage(folder).free / 2**30
    yield Finding("disk", f"{disk:.1f} GiB free in {folder}", "" if disk > 5 else "set REPRO_WORK to a larger disk")


def _tools() -> Iterator[Finding]:
    for what, names, use in [("git", ["git"], ""), ("make", ["make"], "needed by `make book` and `make test`"),
                             ("C compiler", ["cc", "gcc", "clang"], "needed by torch.compile and FlexAttention")]:
        found = next(filter(None, map(shutil.which, names)), None)
        yield Finding(what, found or "none", "" if found else use or f"install {what}")


def _corpora() -> Iterator[Finding]:
    from repro.data import corpora

    folder = paths.data()
    if folder is None:
        yield Finding("REPRO_DATA", "not set", "set it to the folder of real corpora, or `repro data fetch NAME`")
    else:
        yield Finding("REPRO_DATA", str(folder), "" if folder.is_dir() else "there is no such folder")
    for corpus in corpora():
        fetch = f"repro data fetch {corpus.name}" if corpus.origin else f"from {corpus.source}"
        if not corpus.available():
            yield Finding(f"corpus {corpus.name}", "not here", fetch)
            continue
        try:
            wrong = [row for row in corpus.check() if not row.ok]
            found = "; ".join(f"{row.split}: {row.found:,} {row.what}, not {row.expected:,}" for row in wrong)
        except ReproError as error:
            found = str(error)
        yield Finding(f"corpus {corpus.name}", found or "whole", fetch if found else "")
