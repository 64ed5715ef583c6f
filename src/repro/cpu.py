"""How fast and how exactly the processor of this machine multiplies matrices, measured.

On x86, torch sends a product of two float32 matrices to MKL, which is slow on processors that are not Intel's. oneDNN
can compute the same product, but torch uses it only if it may compute in bfloat16 internally: processors with AMX then
do so and lose digits, while others keep all digits. So the path is chosen by measuring both speed and error, once per
machine: the two paths round sums in different orders, and the same run should give the same record.
"""

import fcntl
import functools
import json
import multiprocessing
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from repro import paths
from repro.bf16 import bf16_products
from repro.errors import ReproError

KINDS = ("float32", "float32 through oneDNN", "bfloat16")  # of products
PATHS = ("default", "onednn")  # of large float32 products
ONEDNN = "bf16"  # the value of torch.backends.mkldnn.matmul.fp32_precision that selects oneDNN; CUDA has its own
SHAPE = (512, 1024, 512)  # of the product that is measured: rows, inner size, columns
EXACT = SHAPE[1]**0.5 * 2.0**-24  # expected relative error of float32 sums of this many terms, with 24-bit rounding
GAIN = 1.25  # the speedup needed to leave the default: noise must not decide between two equally fast paths
VOCABULARY = 4096  # of the model whose training is timed
LARGE = 2**23  # multiply-adds of a product; in smaller ones, oneDNN's overhead exceeds its gain


CPUINFO = Path("/proc/cpuinfo")


def model_name() -> str:
    """The name of the processor, as Linux reports it; elsewhere as Python does."""
    return _reported().get("model name") or platform.processor()


def generation() -> str:
    """The generation of the processor, such as "family 25, model 17" on x86, where clouds call several generations "AMD
    EPYC"; "" if Linux reports no such numbers."""
    found = _reported()
    return f"family {found['cpu family']}, model {found['model']}" if {"cpu family", "model"} <= found.keys() else ""


def _reported() -> dict[str, str]:
    """Names and values that Linux reports for its first processor."""
    lines = CPUINFO.read_text().partition("\n\n")[0].splitlines() if CPUINFO.exists() else []
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


@functools.cache
def float32_path() -> str:
    """The fastest exact way to multiply large float32 matrices here: "onednn", or torch's "default" (MKL on x86).

    Measured once per processor and version of torch, in a few tenths of a second, and stored in the work folder
    (`float32.json`), so that every process takes the same path, even if the two are about equally fast. If that folder
    cannot be written, each process measures again. With a GPU nothing is measured, because it computes large products.
    """
    if torch.cuda.is_available() or not torch.backends.mkldnn.is_available():
        return "default"
    file, machine = paths.work() / "float32.json", f"{model_name()}, torch {torch.__version__}"
    try:
        return _kept(file).get(machine) or _keep(file, machine)
    except (OSError, ReproError):
        return fastest_exact()


def fastest_exact() -> str:
    """One of `PATHS`, measured on the spot.

    A path counts as exact when its product is as close to the one in float64 as rounding to float32 allows (`EXACT`,
    2e-6; with bfloat16 inside it would be 2e-3 off).
    """
    speeds = rates(("float32", "float32 through oneDNN"), rounds=20)
    faster = speeds["float32 through oneDNN"] > GAIN * speeds["float32"]
    return "onednn" if faster and error("float32 through oneDNN") <= EXACT else "default"


@contextmanager
def exact_products(model: Any, rows: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Inside the `with` block, layers of `model` take the fastest exact path if it pays for inputs of up to `rows`
    vectors.

    Only layers do (modules with a weight matrix): the many small products inside attention are faster on the default
    path. Nothing changes on other devices than a CPU, or if `model` is not a module. Meant for scoring: a backward pass
    outside the block takes torch's own path.
    """
    hooks = []
    if isinstance(model, nn.Module) and torch.device(device).type == "cpu" and float32_path() == "onednn":
        for layer in model.modules():
            weight = getattr(layer, "weight", None)
            if getattr(weight, "ndim", 0) == 2 and not isinstance(layer, nn.Embedding) and _large(rows, weight):
                hooks += _hook(layer)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def rates(kinds: tuple[str, ...] = KINDS, rounds: int = 5) -> dict[str, float]:
    """GFLOP/s of one thread in matrix products, by kind.

    The best of `rounds`, alternating between kinds, in CPU time, which other processes do not lengthen.
    """
    works = {kind: _product(kind) for kind in kinds}
    threads, best = torch.get_num_threads(), {}
    torch.set_num_threads(1)
    try:
        for turn in range(rounds + 1):
            for kind, work in works.items():
                started = time.thread_time()
                work()
                if turn:  # the first warms up
                    best[kind] = min(best.get(kind, float("inf")), time.thread_time() - started)
    finally:
        torch.set_num_threads(threads)
    rows, inner, columns = SHAPE
    return {kind: 2e-9 * rows * inner * columns / seconds for kind, seconds in best.items()}


def training_rate(precision: str = "no", threads: int = 1, seconds: float = 1.0) -> float:
    """Tokens/s at which this process trains a small transformer for `seconds`; precision: "no" (fp32) or "bf16"."""
    model, optimizer = _trainee()
    draw, before = torch.Generator().manual_seed(0), torch.get_num_threads()
    batch = torch.randint(VOCABULARY, (4, 256), generator=draw)
    torch.set_num_threads(threads)
    try:
        done, started = 0, time.perf_counter()
        while time.perf_counter() - started < seconds:
            with bf16_products(torch.device("cpu"), precision == "bf16"):
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                    logits = model(batch)
                F.cross_entropy(logits.flatten(0, 1).float(), batch.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done += batch.numel()
        return done / (time.perf_counter() - started)
    finally:
        torch.set_num_threads(before)


def training_rates(rounds: int = 1, seconds: float = 0.5) -> dict[str, float]:
    """Tokens/s of training on one thread by precision, "no" (fp32) and "bf16": the best of `rounds`, alternating."""
    found = [{precision: training_rate(precision, 1, seconds) for precision in ("no", "bf16")}
             for _ in range(rounds + 1)]
    return {precision: max(turn[precision] for turn in found[1:]) for precision in found[0]}  # the first warms up


def sharing_rates(cores: int, precision: str = "no", rounds: int = 1, seconds: float = 0.5) -> dict[int, float]:
    """Tokens/s of one process that trains with all `cores` threads (1), and of two together with half of them each (2).

    The best of `rounds`, alternating, in separate processes.
    """
    whole, half = (precision, cores, seconds), (precision, cores // 2, seconds)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = [{1: pool.apply(training_rate, whole), 2: sum(pool.starmap(training_rate, [half, half], chunksize=1))}
                 for _ in range(rounds + 1)]
    return {n: max(turn[n] for turn in found[1:]) for n in found[0]}


def error(kind: str) -> float:
    """The error of a product of this kind against float64, relative to the norm of the product."""
    exact = torch.matmul(*(x.double() for x in _matrices()))
    return ((_product(kind)().double() - exact).norm() / exact.norm()).item()


def _kept(file: Path) -> dict[str, str]:
    """The path of each machine that the file lists; a damaged file counts as empty."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return {name: path for name, path in found.items() if path in PATHS} if isinstance(found, dict) else {}


def _keep(file: Path, machine: str) -> str:
    """Measure and store the path of this machine; if two processes do so at once, the second takes the first result."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            kept = _kept(file)
            if machine not in kept:
                kept[machine] = fastest_exact()
                paths.write_atomic(file, json.dumps(kept, indent=1) + "\n")
            return kept[machine]
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # after `close` alone, a process forked meanwhile would keep it


@functools.cache
def _trainee() -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model like GPT-2, with two layers of width 256, and its optimizer."""
    with torch.random.fork_rng(devices=[]):
        layers = [nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, activation="gelu", batch_first=True,
                                             norm_first=True) for _ in range(2)]
        model = nn.Sequential(nn.Embedding(VOCABULARY, 256), *layers, nn.Linear(256, VOCABULARY))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def _product(kind: str) -> Callable[[], torch.Tensor]:
    """A function that computes the measured product in this way."""
    left, right = _matrices()
    if kind == "bfloat16":
        left, right = left.bfloat16(), right.bfloat16()
    if kind != "float32 through oneDNN":
        return lambda: left @ right

    def through_onednn():
        with _onednn():
            return left @ right
    return through_onednn


def _matrices() -> tuple[torch.Tensor, torch.Tensor]:
    rows, inner, columns = SHAPE
    draw = torch.Generator().manual_seed(0)  # leaves the caller's random state as it is
    return torch.randn(rows, inner, generator=draw), torch.randn(inner, columns, generator=draw)


def _hook(layer: nn.Module) -> list[Any]:
    """Let large products of this layer go through oneDNN until these hooks are removed."""
    setting, before = torch.backends.mkldnn.matmul, []

    def enter(layer, inputs):
        before.append(setting.fp32_precision)
        if inputs and _large(inputs[0].numel() // inputs[0].shape[-1], layer.weight):
            setting.fp32_precision = ONEDNN

    def leave(*_):
        setting.fp32_precision = before.pop()

    return [layer.register_forward_pre_hook(enter), layer.register_forward_hook(leave, always_call=True)]


def _large(rows: int, weight: torch.Tensor) -> bool:
    return rows * weight.numel() >= LARGE


@contextmanager
def _onednn() -> Iterator[None]:
    """Inside the `with` block, float32 products on a CPU go through oneDNN."""
    setting = torch.backends.mkldnn.matmul
    before = setting.fp32_precision
    setting.fp32_precision = ONEDNN
    try:
        yield
    finally:
        setting.fp32_precision = before
