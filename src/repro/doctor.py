"""The rows of `repro doctor`: this machine's abilities, and what it lacks."""

import os
import platform
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from repro import openmp, paths
from repro.errors import ReproError

if TYPE_CHECKING:
    from repro.data.base import Corpus


@dataclass(frozen=True)
class Finding:
    """One row: what was looked at, what was found, and what to do about it ("" if nothing)."""

    what: str
    found: str
    lack: str = ""


def findings(each_corpus: bool = False) -> list[Finding]:
    """Look at Python, torch, the device, its speed, memory, tools, versions, published models, and corpora. The corpora
    share one row; with `each_corpus` each has its own.

    Takes up to half a minute: it trains a little, and counts the corpora that are here. The first call takes a minute
    more if it has to compare texts for overlap.
    """
    return [*_software(), *_device(), *_attention(), *_speed(), *_memory(), *_tools(), *_corpora(each_corpus),
            *_models()]


def _software() -> Iterator[Finding]:
    yield Finding("Python", platform.python_version(), "" if sys.version_info >= (3, 11) else "3.11 or newer is needed")
    file = paths.home() / "constraints.txt"
    wanted = dict(re.findall(r"^([\w.\-]+)==([\w.\-]+)", file.read_text(), re.MULTILINE)) if file.exists() else {}
    other = []
    for name, expected in wanted.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            continue  # belongs to an optional extra that is not installed
        if found.partition("+")[0] != expected:
            other.append(f"{name} {found} (tested: {expected})")
    if wanted:
        yield Finding("versions", f"{len(other)} of {len(wanted)} differ from constraints.txt: {', '.join(other)}"
                      if other else "as in constraints.txt",
                      "pip install -c constraints.txt -e '.[study]'" if other else "")
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
        yield Finding("FlexAttention", "forward only on a CPU", "training uses implementation='blocked'")
    yield Finding("cores", f"{_cores()}, torch uses {torch.get_num_threads()} threads")
    yield _waiting(openmp.GIVEN)


def _waiting(given: Mapping[str, str]) -> Finding:
    """How threads wait for work; `given` are the settings that this process was started with."""
    found = openmp.waiting()
    advice = "export " + " ".join(f"{name}={value}" for name, value in openmp.SETTINGS.items())
    if found.startswith("spinning"):
        return Finding("waiting threads", found, f"beside other processes: {advice}")
    return Finding("waiting threads", found + (", set by repro" if not given else ""),
                   "" if given else f"before your own Python starts: {advice}")


def _attention() -> Iterator[Finding]:
    """The implementation that `attend` chooses for 8,192 positions and heads of 64 by default."""
    import torch

    from repro.attention import Causal, Global, SlidingWindow, Strided, choose, flash

    fused = flash.available(torch.device("cpu"))
    yield Finding("tiles on a CPU", "many at once, in PyTorch's fused kernel" if fused else "one after the other",
                  "" if fused else f"PyTorch {torch.__version__} has no such kernel")
    window = SlidingWindow(256)
    cases = {"causal": {"pattern": Causal()}, "window of 256": {"pattern": window},
             "window of 256, 200 positions": {"pattern": window, "n": 200},
             "window of 256, 16 global": {"pattern": window | Global(range(16))},
             "window of 256, float64": {"pattern": window, "dtype": torch.float64},
             "window of 256, heads of 576": {"pattern": window, "size": 576},
             "strided, 128": {"pattern": Strided(128)}, "strided, 2": {"pattern": Strided(2)}}
    for name, case in cases.items():
        chosen = {device: choose(**{"n": 8192} | case, device=device).name for device in ("cpu", "cuda")}
        yield Finding(f"attention, {name}", ", ".join(f"{device} {way}" for device, way in chosen.items()))


def _speed() -> Iterator[Finding]:
    """The fastest settings for runs on this CPU; nothing if there is a GPU."""
    import torch

    from repro import bf16, cpu

    if torch.cuda.is_available():
        return
    yield Finding("bf16", "the CPU's instructions" if bf16.has_bf16() else
                  "no instructions for it: training works its products out in float32")
    rates = ", ".join(f"{kind} {rate:,.0f}" for kind, rate in cpu.rates().items())
    yield Finding("matrix products", f"{rates} GFLOP/s, one thread")
    off = cpu.error("float32 through oneDNN")
    path = "oneDNN" if cpu.float32_path() == "onednn" else "torch's default path"
    yield Finding("scoring", f"float32 through {path}: the fastest exact way (oneDNN is {off:.0e} off float64, "
                  f"{'exact' if off <= cpu.EXACT else 'not exact'})")
    training = cpu.training_rates()
    best = max(training, key=training.get)
    shown = ", ".join(f"{'fp32' if name == 'no' else name} {rate:,.0f}" for name, rate in training.items())
    yield Finding("training", f"{shown} tokens/s, one thread", f"set precision={best}")
    cores = _cores()
    if cores > 1:
        one, two = cpu.sharing_rates(cores, best).values()
        count, threads = (2, cores // 2) if two > one else (1, cores)
        yield Finding("processes", f"1 of {cores} threads {one:,.0f}, 2 of {cores // 2} together {two:,.0f} tokens/s",
                      f"run {count} at a time, with OMP_NUM_THREADS={threads}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


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


def _corpora(each: bool) -> Iterator[Finding]:
    from repro.data import corpora

    folder = paths.data()
    if folder is None:
        yield Finding("REPRO_DATA", "not set", "set it to the folder of real corpora, or `repro data fetch NAME`")
    else:
        yield Finding("REPRO_DATA", str(folder), "" if folder.is_dir() else "there is no such folder")
    states = [(corpus, _state(corpus)) for corpus in corpora()]
    if each:
        yield from (Finding(f"corpus {corpus.name}", found, "" if found == "whole" else corpus.way)
                    for corpus, found in states)
        return
    count = Counter(found if found in ("whole", "not here") else "damaged" for _, found in states)
    yield Finding("corpora", ", ".join(f"{count[state]} {state}" for state in ("whole", "damaged", "not here")
                                       if count[state]),
                  "" if count["whole"] == len(states) else "repro doctor --corpora lists each")


def _models() -> Iterator[Finding]:
    from repro.models.pretrained import PRETRAINED, home, is_here

    here = [name for name in PRETRAINED if is_here(name)]
    lack = [f"`repro models fetch {name}`" for name in ("gemma-3-270m", "minilm-l6") if name not in here]
    yield Finding("published models", f"{', '.join(here) or 'none'} of {len(PRETRAINED)} in {home()}",
                  f"scale pretrained needs {' and '.join(lack)}" if lack else "")


def _state(corpus: "Corpus") -> str:
    """Whether a corpus is "whole", "not here", or what is wrong with it."""
    if not corpus.available():
        return "not here"
    try:
        wrong = [row for row in corpus.check() if not row.ok]
    except ReproError as error:
        return str(error)
    return "; ".join(f"{row.split}: {row.found:,} {row.what}, not {row.expected:,}" for row in wrong) or "whole"
