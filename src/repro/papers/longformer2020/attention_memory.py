"""Memory of windowed and full attention against the length of the text (Beltagy et al. 2020, Figure 1, Appendix A).

`repro bench attention` measures time. This module counts scores and bytes of tensors, but not the memory that an
operation uses internally. On a CPU the counts are the same at every run. The attention inputs are random vectors, one
per distinct token of a text.
"""

import math
from functools import partial
from statistics import linear_regression
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.gpt2_mini import PROCESS
from repro.study import Artifact, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.artifacts import NOT_RUN

Implementation = Literal["full", "kernel", "chunks", "own chunks", "loop", "blocked"]
MEANING = {"full": "full, every score kept", "kernel": "full, a kernel that keeps none",
           "chunks": "window: chunks (transformers)", "own chunks": "window: chunks (ours)", "loop": "window: loop",
           "blocked": "window: blocked"}
NAMES = {"kernel": "dense", "own chunks": "chunks"}  # the names in `attend` that differ
WINDOWED = "chunks", "own chunks", "loop", "blocked"
LINEAR, QUADRATIC = 1.1, 1.8  # exponents: at most LINEAR for windows, at least QUADRATIC for full attention


class Config(RunConfig):
    """One implementation of attention, forward and backward, on longer and longer texts."""

    implementation: Implementation = "blocked"
    window: int = Field(256, ge=2, multiple_of=2)  # keys, on both sides together
    lengths: tuple[Annotated[int, Field(ge=1)], ...] = (512, 1024, 2048, 4096, 8192)  # tokens
    n_head: int = Field(1, ge=1)
    head_size: int = Field(64, ge=1)

    @model_validator(mode="after")
    def _fits(self):
        if len(self.lengths) < 2 or sorted(set(self.lengths)) != list(self.lengths):
            raise ValueError(f"lengths are {self.lengths}; give two or more, in increasing order")
        if any(n % self.window for n in self.lengths):
            raise ValueError(f"lengths are {self.lengths}; chunks need multiples of the window ({self.window})")
        return self


SCALES = {
    "smoke": {"corpus": "synthetic-books", "window": 64, "lengths": (256, 512, 1024, 2048)},
    "small": {"corpus": "synthetic-books"},
    "medium": {"corpus": "synthetic-books", "n_head": 8},
    "paper": {"corpus": "synthetic-books", "n_head": 12, "window": 512},
}


def execute(config, context):
    import torch

    from repro.attention import Full, SlidingWindow, attend
    from repro.attention.blocked import tiles
    from repro.data import tokeniser, tokens
    from repro.recompute import peak_memory

    text = tokens(config.corpus, "train", tokeniser("byte", corpus=config.corpus)).ids
    if len(text) < config.lengths[-1]:
        raise ReproError(f"{config.corpus} has {len(text):,} tokens, {config.lengths[-1]:,} are needed. Choose shorter "
                         "lengths or another corpus.")
    ids = torch.from_numpy(text[:config.lengths[-1]].astype("int64"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vectors = torch.randn(3, config.n_head, int(ids.max()) + 1, config.head_size,
                          generator=torch.Generator().manual_seed(config.seed)).to(device)
    pattern = SlidingWindow(config.window, causal=False) if config.implementation in WINDOWED else Full()
    attention = way(config, pattern, device)
    tiles.cache_clear()  # so that they are counted even if this process used them before
    peaks, scores = [], []
    with context.progress(sum(config.lengths), f"attention {config.implementation}", "tokens") as bar:
        for n in config.lengths:
            inputs = [part[None].clone().requires_grad_() for part in vectors[:, :, ids[:n].to(device)]]
            step = partial(both_passes, attention, inputs)
            peaks.append([n, peak_memory(step, device)])
            scores.append([n, computed(config, pattern, n, device)])
            bar.advance(n)
    with torch.no_grad():
        few = [part[..., :config.lengths[0], :] for part in inputs]
        difference = (attention(*few) - attend(*few, pattern, "dense")).abs().max().item()
    n, peak = peaks[-1]
    growth = linear_regression(*([math.log(value) for value in axis] for axis in zip(*peaks, strict=True))).slope
    metrics = {"growth": growth, "bytes_per_token": peak / n, "scores_per_pair": scores[-1][1] / pattern.count(n),
               "difference": difference}
    units = {"growth": "exponent of the length, fitted to all lengths", "bytes_per_token": "bytes per token, longest",
             "scores_per_pair": "scores computed forward per allowed pair, longest",
             "difference": "from the dense reference, at most, shortest"}
    return Outcome(metrics, units, "untrained", {"peak": peaks, "scores": scores},
                   notes={"counted": "allocator" if device == "cuda" else "tensors"})


def both_passes(attention, inputs):
    """Forward, and backward to the inputs."""
    from torch.autograd import grad

    return grad(attention(*inputs).sum(), inputs)


def way(config, pattern, device: str):
    """The attention (query, key, value) -> (1, H, N, D) of an implementation."""
    from repro.attention import attend
    from repro.attention.blocked import blocked

    layer = sliding_chunks(config).to(device) if config.implementation == "chunks" else None
    half = config.window // 2

    def full(query, key, value):
        return (query @ key.mT / math.sqrt(config.head_size)).softmax(-1) @ value

    def chunks(query, key, value):
        query, key, value = (part.transpose(1, 2) for part in (query / math.sqrt(config.head_size), key, value))
        shares = layer._sliding_chunks_query_key_matmul(query, key, half).softmax(-1)
        return layer._sliding_chunks_matmul_attn_probs_value(shares, value, half).transpose(1, 2)

    def ours(*inputs):
        return attend(*inputs, pattern, NAMES.get(config.implementation, config.implementation))

    def tiled(query, key, value):  # not in PyTorch's kernel, whose internal memory cannot be counted
        return blocked(query, key, value, pattern, config.head_size**-0.5, fused=False)

    return {"full": full, "chunks": chunks, "blocked": tiled}.get(config.implementation, ours)


def sliding_chunks(config):
    """The paper's own chunks, from the layer of transformers, whose projections are not used here."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    return LongformerSelfAttention(LongformerConfig(
        hidden_size=config.n_head * config.head_size, num_attention_heads=config.n_head, num_hidden_layers=1,
        attention_window=[config.window]), 0)


def computed(config, pattern, n: int, device: str) -> int:
    """Scores that a head computes in the forward pass for n tokens, allowed or not."""
    import torch

    from repro.attention.blocked import share_of_pairs
    from repro.recompute import flops

    if config.implementation == "chunks":
        layer, x = sliding_chunks(config), torch.zeros(1, n, config.n_head, config.head_size)
        products = flops(lambda: layer._sliding_chunks_query_key_matmul(x, x, config.window // 2))
        return products // (2 * config.head_size * config.n_head)
    if config.implementation == "own chunks":  # blocks of a window that overlap by half
        return (-(-n // (config.window // 2)) + 1) * config.window**2
    if config.implementation == "blocked":
        return round(share_of_pairs(pattern, n, device) * n**2)
    return n**2 if config.implementation in ("full", "kernel") else pattern.count(n)  # a diagonal has no other pairs


def estimate(config):
    longest = config.lengths[-1]
    kept = longest if config.implementation == "full" else 4 * config.window + 16 * config.head_size
    return Estimate(0, 0, 14.0 * config.head_size * config.n_head * kept * sum(config.lengths),
                    PROCESS + 16 * config.n_head * longest * kept, 10.0)


EXPERIMENT = Experiment(
    name="attention-memory", paper="longformer2020", summary="Memory of attention, full and in windows, by length.",
    config=Config, scales=SCALES, execute=execute, estimate=estimate,
    grid=lambda scale: [{"implementation": name} for name in get_args(Implementation)])


def figure(context):
    """Left: scores that each implementation stores according to the paper's text. Right: the peaks of ours."""
    from repro.attention import SlidingWindow
    from repro.plotting import draw_growth

    configs = context.plan()
    pattern = SlidingWindow(configs[0].window, causal=False)
    mib = 4 * configs[0].n_head / 2**20  # a score of every head
    pairs = [[n, mib * pattern.count(n)] for n in configs[0].lengths]
    stated = {"full self-attention": [[n, mib * n**2] for n in configs[0].lengths],
              "Longformer-chunk": [[n, 2 * held] for n, held in pairs], "Longformer-loop, -cuda": pairs}
    found = {MEANING[config.implementation]: [[n, peak / 2**20] for n, peak in record.curves["peak"]]
             for config in configs for record in context.records_of(config)[:1]}
    return draw_growth({"paper's text: scores held (MiB)": stated, "ours: peak, counted (MiB)": found},
                       label="tokens", bounds=list(stated))


SHOWN = {"exponent of memory": ("growth", ".2f"), "bytes per token": ("bytes_per_token", ",.0f"),
         "scores computed per allowed pair, forward": ("scores_per_pair", ".2f"),
         "difference from dense": ("difference", ".0e")}


def table(context):
    """One row per scale and implementation."""
    import pandas

    rows = []
    for scale in context.scales:
        for config in context.plan(scale):
            found = next((record.metrics for record in context.records_of(config)), None)
            row = {name: f"{found[key]:{style}}" if found else NOT_RUN for name, (key, style) in SHOWN.items()}
            if found and config.implementation == "kernel":
                row["difference from dense"] = "–"  # it is dense
            rows.append({"scale": scale, "implementation": MEANING[config.implementation]} | row)
    return pandas.DataFrame(rows)


PAPER, CHAPTER = "longformer2020", "16_patterns_and_implementations"
register(
    EXPERIMENT,
    Artifact(id="longformer2020-figure1", paper=PAPER, title="Memory of attention against the length of the text",
             chapter=CHAPTER, experiment=EXPERIMENT.name, source="Figure 1", build=figure, kind="figure",
             look_for="Compare the slopes. A line twice as steep as that of a window means memory that grows with the "
                      "square of the length."),
    Artifact(id="longformer2020-appendix-a", paper=PAPER, title="Memory and scores of each implementation of attention",
             chapter=CHAPTER, experiment=EXPERIMENT.name, source="Appendix A", build=table))
