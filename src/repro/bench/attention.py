"""Attention as sequences grow: time and memory of our implementations and of others (Beltagy et al. 2020, Figure 1).

All contenders see the same numbers, B = 1, 8 heads of size 64, and take turns in one process. On CPU float32 and a
window of 256; on a GPU bfloat16 and 512. The patterns of Child et al. (2019) have a stride that grows as the square
root of the text, as theirs does.
"""

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.errors import unknown
from repro.recompute import peak_memory

if TYPE_CHECKING:
    import pandas

    from repro.attention import Pattern

HEADS, SIZE = 8, 64
LENGTHS = tuple(2**k for k in range(9, 16))
PASSES = "forward", "forward+backward"
FLOORS = {"window": "floor, window", "causal": "floor, causal"}  # names in figures
SHARE_OF_MEMORY = 0.8  # of what is free, that a run may need


class Contender(NamedTuple):
    """`run` takes the inputs and returns the attention's output; `parameters` want gradients too."""

    run: Callable[[dict[str, Tensor]], Tensor]
    parameters: tuple[Tensor, ...] = ()


def main(json_path=None, lengths: tuple[int, ...] = LENGTHS, rounds: int = 5, window: int | None = None,
         only: tuple[str, ...] = ()) -> dict:
    """Time every contender at every length that fits in memory; print a table, ratios and growth exponents.

    rounds: timed runs of each; half as many at 16,384 positions, a quarter at 32,768. only: the contenders that take
    part; none: all. Raises ReproError for one that is not there.
    """
    from repro.bench import report

    device = "cuda" if torch.cuda.is_available() else "cpu"
    window = window or (512 if device == "cuda" else 256)
    measured = measure(lengths, rounds, window, device, only=only)
    show(measured, lengths)
    rows = [{"contender": name, "pass": which, "n": n, **found} for (name, which, n), found in measured.items()]
    at = 8192 if 8192 in lengths else lengths[-1]
    speeds = {name: {key: found[key] for key in ("tokens_per_second", "lowest", "highest")}
              for (name, which, n), found in measured.items()
              if (which, n) == (PASSES[1], at) and "seconds" in found}
    title = f"Attention, N = {at:,}, forward and backward, window {window}, {HEADS} heads of {SIZE}, {device}"
    allocator = {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}
    settings = {"lengths": lengths, "rounds": rounds, "window": window, "device": device, "allocator": allocator}
    settings |= {"only": only} if only else {}
    return report("attention", settings, title, speeds, ratios(measured, device), json_path, runs=rows, window=window,
                  exponents=exponents(measured), floors=floors(window, lengths, device), allocator=allocator)


def measure(lengths: tuple[int, ...], rounds: int, window: int, device: str = "cpu",
            passes: tuple[str, ...] = PASSES, only: tuple[str, ...] = ()) -> dict[tuple[str, str, int], dict]:
    """(contender, pass, n) -> its seconds and peak bytes, or why it was not attempted."""
    from repro.bench import compare

    measured: dict[tuple[str, str, int], dict] = {}
    for which in passes:
        field = contenders(window, device, which)
        for name in only:
            if name not in field:
                raise unknown("contender", name, field)
        field = {name: one for name, one in field.items() if name in only} if only else field
        for n in lengths:
            x, work = inputs(n, device), {}
            for name, contender in field.items():
                needed = expected_bytes(measured, name, which, n)
                if needed > SHARE_OF_MEMORY * free_bytes(device):
                    measured[name, which, n] = {"not_attempted": f"would need {needed / 2**30:.0f} GiB"}
                else:
                    work[name] = step(contender, x, which)
                    if device == "cuda" or name == "flex":
                        work[name]()  # compiles
                    measured[name, which, n] = {"peak_bytes": peak_memory(work[name], device)
                                                if device == "cuda" or name != "flex" else None}
            # All have run by now: the longest texts take minutes, so nothing is run for nothing.
            for name, speed in compare(work, rounds_at(n, rounds), warm_up=False).items():
                measured[name, which, n] |= speed | {"seconds": n / speed["tokens_per_second"]}
    return measured


def rounds_at(n: int, rounds: int) -> int:
    """Timed runs at n positions, at least one."""
    return math.ceil(rounds * min(1, 8192 / n))


def contenders(window: int, device: str, which: str) -> dict[str, Contender]:
    """All that can do this pass on this device, by name."""
    from local_attention import LocalAttention
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention as Theirs

    from repro.attention import LongformerSelfAttention, SlidingWindow, attend
    from repro.attention.flex import flex

    causal = SlidingWindow(window)

    def ours(name, pattern=causal):
        return Contender(lambda x: attend(x["query"], x["key"], x["value"], pattern, name))

    config = LongformerConfig(hidden_size=HEADS * SIZE, num_attention_heads=HEADS, attention_window=[window],
                              num_hidden_layers=1, attention_probs_dropout_prob=0.0)
    theirs = Theirs(config, 0).to(device, dtype(device))
    layer = LongformerSelfAttention.from_transformers(theirs)
    package = LocalAttention(window, causal=True, exact_windowsize=True, use_rotary_pos_emb=False).to(device)

    def sparse(pattern_at):
        return Contender(lambda x: attend(x["query"], x["key"], x["value"], pattern_at(x["query"].shape[2]), "blocked"))

    def longformer(x):
        nobody = torch.zeros(x["hidden"].shape[:2], device=device, dtype=x["hidden"].dtype)
        return theirs(x["hidden"], nobody, nobody < 0, nobody > 0, False)[0]

    field = {
        "dense, causal": Contender(dense_causal),
        "dense, mask": ours("dense"),
        "loop": ours("loop"),
        "blocked": ours("blocked"),
        "blocked, dilation 4": ours("blocked", SlidingWindow(window, 4)),
        "strided": sparse(strided_at),
        "fixed": sparse(fixed_at),
        "local-attention": Contender(lambda x: package(x["query"], x["key"], x["value"])),
        "flex": Contender(lambda x: flex(x["query"], x["key"], x["value"], causal, SIZE**-0.5, compiled=True)),
        "Longformer layer, ours": Contender(lambda x: layer(x["hidden"]), local_parameters(layer)),
        "Longformer layer, transformers": Contender(longformer, local_parameters(theirs)),
    }
    if device == "cpu" and which == PASSES[1]:
        del field["flex"]  # has no backward pass there
    return field


def strided_at(n: int) -> "Pattern":
    """Strided attention for n positions: the stride is the power of 2 next to sqrt(n), 128 at 16,384."""
    from repro.attention import Strided

    return Strided(2 ** round(math.log2(n) / 2))


def fixed_at(n: int) -> "Pattern":
    """Fixed attention for n positions: blocks of twice that stride, of which 8 positions are the summary."""
    from repro.attention import Fixed

    return Fixed(2 * strided_at(n).stride, 8)


def local_parameters(layer: torch.nn.Module) -> tuple[Tensor, ...]:
    """Those that serve where no token is global."""
    return tuple(parameter for name, parameter in layer.named_parameters() if "global" not in name)


def dense_causal(x: dict[str, Tensor]) -> Tensor:
    """PyTorch's own kernel; on a GPU that is FlashAttention."""
    return F.scaled_dot_product_attention(x["query"], x["key"], x["value"], is_causal=True)


def dtype(device: str) -> torch.dtype:
    """What is timed on a kind of device."""
    return torch.bfloat16 if device == "cuda" else torch.float32


def inputs(n: int, device: str) -> dict[str, Tensor]:
    """query, key and value (1, H, N, D), hidden states (1, N, H * D) for layers with projections, and the gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = {name: (1, HEADS, n, SIZE) for name in ("query", "key", "value", "flow")}
    shapes["hidden"] = 1, n, HEADS * SIZE
    return {name: torch.randn(shape, generator=generator).to(device, dtype(device)).requires_grad_(name != "flow")
            for name, shape in shapes.items()}


def step(contender: Contender, x: dict[str, Tensor], which: str) -> Callable[[], int]:
    """One pass over the inputs; returns the number of positions."""
    leaves = [part for part in x.values() if part.requires_grad]

    def work() -> int:
        with torch.set_grad_enabled(which == PASSES[1]):
            out = contender.run(x)
        if which == PASSES[1]:
            torch.autograd.grad(out, [*leaves, *contender.parameters], x["flow"].view(out.shape), allow_unused=True)
        if out.is_cuda:
            torch.cuda.synchronize()
        return x["hidden"].shape[1]
    return work


def free_bytes(device: str) -> int:
    """Memory that a run could have."""
    import psutil

    return torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available


def expected_bytes(measured: dict, name: str, which: str, n: int) -> float:
    """What a run at n will need: as much more than at n / 2 as that was more than at n / 4; 0 where that is unknown."""
    half, quarter = (measured.get((name, which, n // k), {}) for k in (2, 4))
    if "not_attempted" in half:
        return math.inf
    last, before = half.get("peak_bytes") or 0, quarter.get("peak_bytes") or 0
    return last * (last / before if before else 4)


def ratios(measured: dict, device: str) -> dict[str, tuple[float, float]]:
    """Every bar that the measured lengths allow: (ratio, the least it should be)."""
    def per_second(name, n):
        return measured.get((name, PASSES[1], n), {}).get("tokens_per_second")

    def peak(name, n):
        return measured.get((name, PASSES[1], n), {}).get("peak_bytes")

    wanted = {
        "N = 8,192: blocked / dense, causal": (per_second("blocked", 8192), per_second("dense, causal", 8192), 5),
        "N = 8,192: blocked / local-attention": (per_second("blocked", 8192), per_second("local-attention", 8192), 1),
        "N = 8,192: Longformer layer, ours / transformers": (
            per_second("Longformer layer, ours", 8192), per_second("Longformer layer, transformers", 8192), 2),
        "N = 8,192: blocked, dilation 4 / blocked": (
            per_second("blocked, dilation 4", 8192), per_second("blocked", 8192), 1 / 1.3),
        "blocked: N = 16,384 / N = 8,192": (per_second("blocked", 16384), per_second("blocked", 8192), 2 / 2.3),
        **{f"N = {n:,}: {name} / dense, causal": (per_second(name, n), per_second("dense, causal", n), least)
           for n, least in ((4096, 2), (16384, 6)) for name in ("strided", "fixed")},
        "N = 16,384, memory: dense, mask / blocked": (peak("dense, mask", 16384), peak("blocked", 16384), 10),
    }
    if device == "cuda":
        wanted = {"N = 32,768: flex / dense, causal": (
            per_second("flex", 32768), per_second("dense, causal", 32768), 8)}
    return {label: (one / other, round(least, 2)) for label, (one, other, least) in wanted.items() if one and other}


def exponents(measured: dict) -> dict[str, float]:
    """Slope of log(seconds) over log(N) for each contender and pass, over lengths of at least 2,048."""
    found = {}
    for name, which in dict.fromkeys((name, which) for name, which, _ in measured):
        points = [(math.log(n), math.log(run["seconds"])) for (one, other, n), run in measured.items()
                  if (one, other) == (name, which) and n >= 2048 and "seconds" in run]
        if len(points) > 1:
            x, y = (torch.tensor(axis, dtype=torch.float64) for axis in zip(*points, strict=True))
            found[f"{name}: {which}"] = (((x - x.mean()) * y).sum() / (x - x.mean()).square().sum()).item()
    return found


def floors(window: int, lengths: tuple[int, ...], device: str) -> list[dict]:
    """The least time that arithmetic and memory allow: allowed pairs and tensors, at the speeds of this machine.

    A pair costs 4 D operations forward and 10 D backward (scores again, and four gradients); query, key, value and
    output pass through memory once, backward once more with their gradients. Speeds: a square matrix product and a
    copy, the best of three.
    """
    from repro.attention import Causal, SlidingWindow

    side, kind = 4096 if device == "cuda" else 1024, dtype(device)
    square, block = (torch.ones(rows, side, device=device, dtype=kind) for rows in (side, 4 * side))
    product = min(seconds(lambda: square @ square, device) for _ in range(3)) / (2 * side**3)
    copied = min(seconds(block.clone, device) for _ in range(3)) / (2 * block.nbytes)
    tensor = HEADS * SIZE * kind.itemsize
    return [{"pattern": name, "n": n, "pass": which,
             "seconds": max(factor * SIZE * HEADS * pattern.count(n) * product, moved * n * tensor * copied)}
            for which, factor, moved in ((PASSES[0], 4, 4), (PASSES[1], 14, 12)) for n in lengths
            for name, pattern in (("window", SlidingWindow(window)), ("causal", Causal()))]


def seconds(work: Callable, device: str) -> float:
    """How long `work` takes, after one run to warm up."""
    import time

    work()
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def curves(measured: dict, which: str = PASSES[1]) -> dict[str, dict[str, list[list[float]]]]:
    """Milliseconds and MiB of one pass by length, as `draw_growth` takes them; what was not measured has no point.

    Every contender of any pass is named, so that it has one colour in all figures.
    """
    names = dict.fromkeys(name for name, *_ in measured)
    return {title: {name: [[n, found[key] * factor] for (one, kind, n), found in measured.items()
                           if (one, kind) == (name, which) and found.get(key)] for name in names}
            for title, key, factor in (("time (ms)", "seconds", 1e3), ("memory added (MiB)", "peak_bytes", 2**-20))}


def panels(found: dict | None, which: str = PASSES[1]) -> dict[str, dict[str, list[list[float]]]]:
    """`curves` of a stored run, with the floors of its machine in the first; without a run, panels without a line."""
    notes = found["notes"] if found else {"runs": [], "floors": []}
    drawn = curves({(run["contender"], run["pass"], run["n"]): run for run in notes["runs"]}, which)
    for floor in notes["floors"]:
        if floor["pass"] == which:
            drawn["time (ms)"].setdefault(FLOORS[floor["pattern"]], []).append([floor["n"], 1e3 * floor["seconds"]])
    return drawn


def growth_table(found: dict) -> "pandas.DataFrame":
    """The exponents of a stored run, a row a contender and a column a pass."""
    import pandas

    frame = pandas.DataFrame([{"contender": name.rpartition(": ")[0], "pass": name.rpartition(": ")[2], "power": power}
                              for name, power in found["notes"]["exponents"].items()])
    return frame.pivot(index="contender", columns="pass", values="power").rename_axis(index=None, columns=None)


def show(measured: dict, lengths: tuple[int, ...]) -> None:
    """Print milliseconds and MiB, a row a contender and pass, a column a length."""
    from rich.console import Console
    from rich.table import Table

    table = Table("ms / MiB added", *(f"{n:,}" for n in lengths), title="Attention", title_justify="left")
    for name, which in dict.fromkeys((name, which) for name, which, _ in measured):
        cells = []
        for n in lengths:
            found = measured[name, which, n]
            memory = found.get("peak_bytes")
            cells.append(found.get("not_attempted") or f"{1000 * found['seconds']:,.1f} / "
                         + ("" if memory is None else f"{memory / 2**20:,.0f}"))
        table.add_row(f"{name}: {which}", *cells)
    Console(width=200).print(table)
