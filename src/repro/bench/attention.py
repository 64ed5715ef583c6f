"""Attention as sequences grow: time and memory of our implementations and others (Beltagy et al. 2020, Figure 1).

All contenders get the same inputs, B = 1, 8 heads of size 64, and take turns in one process. On a CPU the inputs are
float32 and the window is 256; on a GPU bfloat16 and 512.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from repro.openmp import waiting
from repro.recompute import peak_memory

if TYPE_CHECKING:
    import pandas

    from repro.attention import Pattern

HEADS, SIZE = 8, 64
LENGTHS = tuple(2**k for k in range(9, 16))
PASSES = "forward", "forward+backward"
PLACES = 3_000, 30_000  # generation is timed after this many tokens of a text
WRITTEN = 16  # tokens written per timed call
FLOORS = {"window": "floor, window", "causal": "floor, causal"}  # names in figures
BUSY = "blocked, a core taken"
TOGETHER, SPREAD, HALF = "blocked, 16 global together", "blocked, 16 global spread", "blocked, bfloat16"
VARIANTS = TOGETHER, SPREAD, HALF, BUSY  # timed only for a ratio
AT = 8192  # positions at which most ratios are computed
RATIOS_AT = AT, 16384, 32768, 4096  # in order of value; half a length predicts the memory of a length
NO_TIME = "no time left"
SHARE_OF_MEMORY = 0.8  # largest share of the free memory that a run may need


class Contender(NamedTuple):
    """`run` takes the inputs and returns the attention's output; `parameters` also need gradients."""

    run: Callable[[dict[str, Tensor]], Tensor]
    parameters: tuple[Tensor, ...] = ()
    dtype: torch.dtype | None = None  # of its inputs, if it differs from the others


def main(json_path=None, lengths: tuple[int, ...] = LENGTHS, rounds: int = 5, window: int | None = None,
         passes: tuple[str, ...] = PASSES, places: tuple[int, int] = PLACES, budget: float | None = None,
         began: float | None = None, clock: Callable[[], float] = time.monotonic) -> dict:
    """Time every contender at every length that fits in memory, and generation after long texts.

    Prints a table, ratios and growth exponents. rounds: timed runs of each; half as many at 16,384 positions, a quarter
    at 32,768. On a CPU with several threads, a last row is timed while another process, started here, occupies one of
    the cores. budget: seconds in which to finish, counted from `began` on `clock` (default: now). With a budget, the
    lengths needed for ratios come first, work that does not fit is left out, and the record is written after each
    length.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    window = window or (512 if device == "cuda" else 256)
    settings = {"lengths": lengths, "rounds": rounds, "window": window, "device": device,
                "allocator": {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")},
                "passes": passes, "threads": torch.get_num_threads(), "places": places, "waiting": waiting()}
    if budget is None:
        measured = measure(lengths, rounds, window, device, passes)
        if device == "cpu" and torch.get_num_threads() > 1 and AT in lengths and PASSES[1] in passes:
            measured[BUSY, PASSES[1], AT] = with_a_core_taken(AT, rounds, window)
        return _report(measured, settings, floors(window, lengths, device),
                       generation(window, places, rounds, device), json_path)
    deadline, settings = (clock() if began is None else began) + budget, settings | {"budget": budget}
    lower, written = floors(window, lengths, device), None

    def after(measured: dict) -> None:
        nonlocal written
        if written is None and deadline - clock() > budget / 2:
            written = generation(window, places, rounds, device)
        if json_path:
            _report(measured, settings, lower, written, json_path, printed=False)

    measured = measure(lengths, rounds, window, device, passes, deadline, clock, after)
    return _report(measured, settings, lower, written, json_path)


def measure(lengths: tuple[int, ...], rounds: int, window: int, device: str = "cpu",
            passes: tuple[str, ...] = PASSES, deadline: float = math.inf,
            clock: Callable[[], float] = time.monotonic, after: Callable[[dict], None] = lambda measured: None
            ) -> dict[tuple[str, str, int], dict]:
    """(contender, pass, n) -> its seconds and peak bytes, or why it was not attempted.

    deadline: the time on `clock` by which to finish; with a deadline, the lengths are in the order of `by_value`.
    after: called with all measurements after each length.
    """
    from repro.bench import compare

    measured: dict[tuple[str, str, int], dict] = {}
    known: dict[str, tuple[int, float, float]] = {}  # contender -> positions, seconds to compile, seconds of a run
    fields = {which: contenders(window, device, which) for which in passes}
    sizes = [(which, n) for which in passes for n in lengths]
    for which, n in sizes if deadline == math.inf else by_value(lengths, passes):
        if clock() >= deadline:
            break
        x, work, single = inputs(n, device), {}, {}
        for name, contender in fields[which].items():
            if name in VARIANTS and n != AT:
                continue
            needed = expected_bytes(measured, name, which, n)
            if needed > SHARE_OF_MEMORY * free_bytes(device):
                measured[name, which, n] = {"not_attempted": f"would need {needed / 2**30:.0f} GiB"}
            elif expected_seconds(known, name, n) >= deadline - clock() - sum(single.values()):
                measured[name, which, n] = {"not_attempted": NO_TIME}
            else:
                work[name], began = step(contender, cast(x, contender.dtype), which), clock()
                if device == "cuda" or name == "flex":
                    work[name]()  # compiles
                compiled = clock()
                measured[name, which, n] = {"peak_bytes": peak_memory(work[name], device)
                                            if device == "cuda" or name != "flex" else None}
                single[name] = clock() - compiled
                known[name] = n, max(0.0, compiled - began - single[name]), single[name]
        # Each has run once by now, so it needs no warm-up, which would take minutes for the longest texts.
        turns = min(rounds_at(n, rounds), (deadline - clock()) // (sum(single.values()) or 1))
        for name, speed in compare(work, max(1, int(turns)), warm_up=False).items():
            measured[name, which, n] |= speed | {"seconds": n / speed["tokens_per_second"]}
        after(measured)
    return measured


def _report(measured: dict, settings: dict, lower: list[dict], written: tuple[dict, list[int]] | None, json_path,
            printed: bool = True) -> dict:
    """The record of the measurements; `written` is the result of `generation`, or None if there was no time for it."""
    from repro.bench import report

    lengths, passes, places = (settings[name] for name in ("lengths", "passes", "places"))
    if printed:
        show(measured, lengths)
    rows = [{"contender": name, "pass": which, "n": n, **found} for (name, which, n), found in measured.items()]
    at = AT if AT in lengths else lengths[-1]
    speeds = {name: {key: found[key] for key in ("tokens_per_second", "lowest", "highest")}
              for (name, which, n), found in measured.items()
              if (which, n) == (passes[-1], at) and "seconds" in found}
    bars, kept = ratios(measured, settings["device"], lower), []
    if written:
        speed, kept = written
        early, late = (found["tokens_per_second"] for found in speed.values())
        speeds |= speed
        at_both = f"token {places[1]:,} / token {places[0]:,}"
        bars |= {f"generation: cost of {at_both}": (early / late, 1.2, "at most"),
                 f"generation: keys kept after {at_both}": (kept[1] / kept[0], 1.0, "at most")}
    title = (f"Attention, N = {at:,}, {passes[-1]}, window {settings['window']}, {HEADS} heads of {SIZE}, "
             f"{settings['device']}")
    return report("attention", settings, title, speeds, bars, json_path, printed=printed, runs=rows,
                  window=settings["window"], exponents=exponents(measured), floors=lower,
                  allocator=settings["allocator"], keys_kept=kept)


def by_value(lengths: tuple[int, ...], passes: tuple[str, ...]) -> list[tuple[str, int]]:
    """(pass, n) in the order of their value within a budget: forward and backward first, beginning with the lengths at
    which ratios are computed; then the other lengths, the longest first.

    >>> by_value((512, 4096, 8192), PASSES)[:4]
    [('forward+backward', 8192), ('forward+backward', 4096), ('forward+backward', 512), ('forward', 8192)]
    """
    order = [*(n for n in RATIOS_AT if n in lengths), *sorted(set(lengths) - set(RATIOS_AT), reverse=True)]
    return [(which, n) for which in reversed(passes) for n in order]


def expected_seconds(known: dict[str, tuple[int, float, float]], name: str, n: int) -> float:
    """Seconds of two runs of a contender at n and of compilation, if time grows with the square of n; 0 if unknown."""
    before, compiling, run = known.get(name, (n, 0.0, 0.0))
    return compiling + 2 * run * max(1.0, n / before)**2


def generation(window: int, places: tuple[int, ...], rounds: int, device: str = "cpu") -> tuple[dict, list[int]]:
    """Tokens per second of a small Llama with windows that generates after each of `places`, and the keys that it
    caches.

    The preceding texts are read first, outside the timing, so that the places can take turns.
    """
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    from repro.attention import register
    from repro.bench import compare
    from repro.hf_compat import cache_argument

    register()
    torch.manual_seed(0)
    config = LlamaConfig(num_hidden_layers=2, hidden_size=HEADS * SIZE, intermediate_size=2 * HEADS * SIZE,
                         num_attention_heads=HEADS, vocab_size=256, max_position_embeddings=2 * max(places),
                         sliding_window=window, attn_implementation="repro_sliding")
    model = LlamaForCausalLM(config).to(device, dtype(device)).eval()
    caches = {place: DynamicCache(config=config) for place in places}

    @torch.no_grad()
    def read(cache, n: int) -> None:
        model(torch.zeros((1, n), dtype=torch.long, device=device), **cache_argument(cache), logits_to_keep=1)

    def write(cache) -> Callable[[], int]:
        def work() -> int:
            for _ in range(WRITTEN):
                read(cache, 1)
            if device == "cuda":
                torch.cuda.synchronize()
            return WRITTEN
        return work

    for place, cache in caches.items():
        read(cache, place)
    work = {f"generation, after token {place:,}": write(cache) for place, cache in caches.items()}
    return compare(work, 2 * rounds), [max(layer.keys.shape[2] for layer in cache.layers) for cache in caches.values()]


def cast(x: dict[str, Tensor], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The same inputs in another dtype, if one is given."""
    if dtype is None:
        return x
    return {name: part.detach().to(dtype).requires_grad_(part.requires_grad) for name, part in x.items()}


def with_a_core_taken(n: int, rounds: int, window: int) -> dict:
    """The speed of `blocked`, forward and backward, while another process occupies one of the cores."""
    from repro.bench import compare

    contender = contenders(window, "cpu", PASSES[1])["blocked"]
    with a_core_taken():
        speed = compare({BUSY: step(contender, inputs(n, "cpu"), PASSES[1])}, rounds)[BUSY]
    return speed | {"seconds": n / speed["tokens_per_second"], "peak_bytes": None}


@contextmanager
def a_core_taken() -> Iterator[None]:
    """In the `with` block, another process computes on the last core available to this process, and on no other."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    stay = f"import os; os.sched_setaffinity(0, [{cores[-1]}]); print(flush=True)" if cores else "print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", f"{stay}\nwhile True: pass"], stdout=subprocess.PIPE) as other:
        try:
            other.stdout.readline()  # it has started
            yield
        finally:
            other.kill()


def rounds_at(n: int, rounds: int) -> int:
    """Timed runs at n positions, at least one."""
    return math.ceil(rounds * min(1, 8192 / n))


def contenders(window: int, device: str, which: str) -> dict[str, Contender]:
    """All contenders that can do this pass on this device, by name."""
    from local_attention import LocalAttention
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention as Theirs

    from repro.attention import Global, LongformerSelfAttention, SlidingWindow, attend
    from repro.attention.flex import flex

    causal = SlidingWindow(window)

    def ours(name, pattern=causal):
        return Contender(lambda x: attend(x["query"], x["key"], x["value"], pattern, name))

    def globally(positions):
        def run(x):
            n = x["query"].shape[2]
            pattern = causal | Global(positions or range(0, n, n // 16))
            return attend(x["query"], x["key"], x["value"], pattern, "blocked")
        return Contender(run)

    config = LongformerConfig(hidden_size=HEADS * SIZE, num_attention_heads=HEADS, attention_window=[window],
                              num_hidden_layers=1, attention_probs_dropout_prob=0.0)
    theirs = Theirs(config, 0).to(device, dtype(device))
    layers = {name: LongformerSelfAttention.from_transformers(theirs, implementation=name)
              for name in ("auto", "loop", "chunks")}
    package = LocalAttention(window, causal=True, exact_windowsize=True, use_rotary_pos_emb=False).to(device)

    def sparse(pattern_at):
        return Contender(lambda x: attend(x["query"], x["key"], x["value"], pattern_at(x["query"].shape[2]), "blocked"))

    def longformer(x):
        nobody = torch.zeros(x["hidden"].shape[:2], device=device, dtype=x["hidden"].dtype)
        return theirs(x["hidden"], nobody, nobody < 0, nobody > 0, False)[0]

    def layer(name):
        return Contender(lambda x: layers[name](x["hidden"]), local_parameters(layers[name]))

    field = {
        "dense, causal": Contender(dense_causal),
        "dense, mask": ours("dense"),
        "loop": ours("loop"),
        "chunks": ours("chunks"),
        "blocked": ours("blocked"),
        "blocked, dilation 4": ours("blocked", SlidingWindow(window, 4)),
        "strided": sparse(strided_at),
        "fixed": sparse(fixed_at),
        TOGETHER: globally(range(16)),
        SPREAD: globally(None),
        HALF: ours("blocked")._replace(dtype=torch.bfloat16),
        "local-attention": Contender(lambda x: package(x["query"], x["key"], x["value"])),
        "flex": Contender(lambda x: flex(x["query"], x["key"], x["value"], causal, SIZE**-0.5, compiled=True)),
        "Longformer layer, ours": layer("auto"),
        "Longformer layer, ours, loop": layer("loop"),
        "Longformer layer, ours, chunks": layer("chunks"),
        "Longformer layer, transformers": Contender(longformer, local_parameters(theirs)),
    }
    if device == "cpu" and which == PASSES[1]:
        del field["flex"]  # no backward pass on this device
    return field


def strided_at(n: int) -> "Pattern":
    """Strided attention for n positions: the stride is the power of 2 nearest to sqrt(n), 128 at 16,384."""
    from repro.attention import Strided

    return Strided(2 ** round(math.log2(n) / 2))


def fixed_at(n: int) -> "Pattern":
    """Fixed attention for n positions: blocks are twice that stride, and 8 positions of each block are the summary."""
    from repro.attention import Fixed

    return Fixed(2 * strided_at(n).stride, 8)


def local_parameters(layer: torch.nn.Module) -> tuple[Tensor, ...]:
    """The parameters that are used if no token is global."""
    return tuple(parameter for name, parameter in layer.named_parameters() if "global" not in name)


def dense_causal(x: dict[str, Tensor]) -> Tensor:
    """PyTorch's own kernel; on a GPU this is FlashAttention."""
    return F.scaled_dot_product_attention(x["query"], x["key"], x["value"], is_causal=True)


def dtype(device: str) -> torch.dtype:
    """The precision in which a device is timed."""
    return torch.bfloat16 if device == "cuda" else torch.float32


def inputs(n: int, device: str) -> dict[str, Tensor]:
    """query, key and value (1, H, N, D), hidden states (1, N, H * D) for layers with projections, and the gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = {name: (1, HEADS, n, SIZE) for name in ("query", "key", "value", "flow")}
    shapes["hidden"] = 1, n, HEADS * SIZE
    return {name: torch.randn(shape, generator=generator).to(device, dtype(device)).requires_grad_(name != "flow")
            for name, shape in shapes.items()}


def step(contender: Contender, x: dict[str, Tensor], which: str) -> Callable[[], int]:
    """One pass over the inputs; the returned function runs it and returns the number of positions."""
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
    """The memory available to a run, in bytes."""
    import psutil

    return torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available


def expected_bytes(measured: dict, name: str, which: str, n: int) -> float:
    """The bytes that a run at n will need, extrapolated from n / 4 and n / 2; 0 if they were not measured."""
    half, quarter = (measured.get((name, which, n // k), {}) for k in (2, 4))
    if half.get("not_attempted", NO_TIME) != NO_TIME:
        return math.inf
    last, before = half.get("peak_bytes") or 0, quarter.get("peak_bytes") or 0
    return last * (last / before if before else 4)


def ratios(measured: dict, device: str, lower: list[dict] = ()) -> dict[str, tuple]:
    """All ratios that the measured lengths allow, with bounds: (ratio, least), or (ratio, most, "at most").

    lower: the result of `floors`.
    """
    def found(name, n, key="tokens_per_second"):
        return measured.get((name, PASSES[1], n), {}).get(key)

    at = "N = 8,192"
    wanted = {
        f"{at}: blocked / dense, causal": (found("blocked", 8192), found("dense, causal", 8192), 10),
        **{f"N = {n:,}: {name} / dense, causal": (found(name, n), found("dense, causal", n), least)
           for n, least in ((4096, 2), (16384, 6)) for name in ("strided", "fixed")},
        f"{at}: blocked / local-attention": (found("blocked", 8192), found("local-attention", 8192), 1.5),
        f"{at}: Longformer layer, ours / transformers": (
            found("Longformer layer, ours", 8192), found("Longformer layer, transformers", 8192), 2.5),
        f"{at}: blocked, dilation 4 / blocked": (found("blocked, dilation 4", 8192), found("blocked", 8192), 1 / 1.3),
        f"{at}: blocked, bfloat16 / blocked": (found(HALF, 8192), found("blocked", 8192), 1.5),
        "blocked: N = 16,384 / N = 8,192": (found("blocked", 16384), found("blocked", 8192), 2 / 2.3),
        "N = 16,384, memory: dense, mask / blocked": (
            found("dense, mask", 16384, "peak_bytes"), found("blocked", 16384, "peak_bytes"), 10),
    }
    floor = next((row["seconds"] for row in lower if (row["pattern"], row["n"], row["pass"]) == (
        "window", 8192, PASSES[1])), None)
    alone = found("blocked", 8192, "seconds")
    at_most = {
        f"{at}, time: blocked / floor": (alone, floor, 1.9),
        f"{at}, time: 16 global together / none": (found(TOGETHER, 8192, "seconds"), alone, 1.3),
        f"{at}, time: 16 global spread / none": (found(SPREAD, 8192, "seconds"), alone, 1.3),
        f"{at}, time: a core taken / idle": (found(BUSY, 8192, "seconds"), alone, 4),
    }
    if device == "cuda":
        wanted, at_most = {"N = 32,768: flex / dense, causal": (
            found("flex", 32768), found("dense, causal", 32768), 8)}, {}
    return ({label: (one / other, round(least, 2)) for label, (one, other, least) in wanted.items() if one and other}
            | {label: (one / other, most, "at most") for label, (one, other, most) in at_most.items() if one and other})


def times(found: dict | None) -> dict[str, float | None]:
    """Two time ratios of a stored run at AT positions, forward and backward: dense causal attention to its floor, and
    the loop to chunks; None if there is no run."""
    if found is None:
        return {"dense": None, "loop": None}
    spent = {run["contender"]: run.get("seconds") for run in found["notes"]["runs"]
             if (run["pass"], run["n"]) == (PASSES[1], AT)}
    floor, = (one["seconds"] for one in found["notes"]["floors"]
              if (one["pattern"], one["pass"], one["n"]) == ("causal", PASSES[1], AT))
    return {"dense": spent["dense, causal"] / floor, "loop": spent["loop"] / spent["chunks"]}


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
    """The least time that arithmetic and memory access allow, at the speeds of this machine.

    A pair costs 4 D operations forward and 10 D backward (the scores again, and four gradients). Query, key, value and
    output are moved through memory once, and again in the backward pass together with their gradients. The speeds come
    from a square matrix product and a copy, the best of three.
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
    """The seconds that `work` takes, after one run to warm up."""
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def curves(measured: dict, which: str = PASSES[1]) -> dict[str, dict[str, list[list[float]]]]:
    """Milliseconds and MiB of one pass by length, as input of `draw_growth`; lengths that were not measured have no
    point.

    Contenders of all passes are included, so that each has the same color in all figures, except those that are timed
    only for a ratio.
    """
    names = dict.fromkeys(name for name, *_ in measured if name not in VARIANTS)
    return {title: {name: [[n, found[key] * factor] for (one, kind, n), found in measured.items()
                           if (one, kind) == (name, which) and found.get(key)] for name in names}
            for title, key, factor in (("time (ms)", "seconds", 1e3), ("memory added (MiB)", "peak_bytes", 2**-20))}


def panels(found: dict | None, which: str = PASSES[1]) -> dict[str, dict[str, list[list[float]]]]:
    """`curves` of a stored run, with the floors of its machine in the first panel; without a run, empty panels."""
    notes = found["notes"] if found else {"runs": [], "floors": []}
    drawn = curves({(run["contender"], run["pass"], run["n"]): run for run in notes["runs"]}, which)
    for floor in notes["floors"]:
        if floor["pass"] == which:
            drawn["time (ms)"].setdefault(FLOORS[floor["pattern"]], []).append([floor["n"], 1e3 * floor["seconds"]])
    return drawn


def growth_table(found: dict) -> "pandas.DataFrame":
    """The exponents of a stored run: one row per contender, one column per pass."""
    import pandas

    frame = pandas.DataFrame([{"contender": name.rpartition(": ")[0], "pass": name.rpartition(": ")[2], "power": power}
                              for name, power in found["notes"]["exponents"].items()])
    return frame.pivot(index="contender", columns="pass", values="power").rename_axis(index=None, columns=None)


def show(measured: dict, lengths: tuple[int, ...]) -> None:
    """Print milliseconds and MiB: one row per contender and pass, one column per length."""
    from rich.console import Console
    from rich.table import Table

    table = Table("ms / MiB added", *(f"{n:,}" for n in lengths), title="Attention", title_justify="left")
    for name, which in dict.fromkeys((name, which) for name, which, _ in measured):
        cells = []
        for n in lengths:
            found = measured.get((name, which, n), {"not_attempted": ""})
            memory = found.get("peak_bytes")
            cells.append(found["not_attempted"] if "not_attempted" in found else f"{1000 * found['seconds']:,.1f} / "
                         + ("" if memory is None else f"{memory / 2**20:,.0f}"))
        table.add_row(f"{name}: {which}", *cells)
    Console(width=200).print(table)
