"""Memory of recurrent training against the length of the sequence (Yoshida et al. 2020, section 3.2)."""

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.gpt2_mini import PROCESS, RATE, training_flops
from repro.study import Artifact, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.artifacts import NOT_RUN

Recompute = Literal["none", "layer", "window", "window+layer"]
SETTLED = 3  # windows: from here on, gradients of the weights exist while a window with an h_prev is recomputed


class Config(RunConfig):
    """One kind of recomputation, measured on longer and longer sequences with an untrained GPT-2 of these sizes."""

    recompute: Recompute = "none"
    n_layer: int = Field(4, ge=3)
    n_embd: int = Field(128, ge=1)
    n_head: int = Field(4, ge=1)
    vocab_size: int = Field(4096, ge=2)
    n_positions: int = Field(1024, ge=2)
    window: int = Field(300, ge=1)  # tokens
    windows: tuple[Annotated[int, Field(ge=1)], ...] = (1, 2, 3, 4, 8, 16, 32, 64)  # of each sequence measured
    batch_size: int = Field(1, ge=1)  # sequences
    precision: Literal["no", "bf16"] = "no"
    tensors: Literal["real", "fake"] = "real"  # fake ones have shapes and no numbers: counted, not computed

    @model_validator(mode="after")
    def _fits(self):
        if self.window > self.n_positions:
            raise ValueError(f"window is {self.window} tokens, but the context is n_positions={self.n_positions}")
        if sorted(set(self.windows)) != list(self.windows) or SETTLED not in self.windows[:-1]:
            raise ValueError(f"windows is {self.windows}; give rising numbers that include {SETTLED} and a larger one")
        return self


SCALES = {
    "smoke": {"corpus": "synthetic-books", "n_layer": 3, "n_embd": 64, "vocab_size": 205, "n_positions": 128,
              "window": 30, "windows": (1, 2, 3, 4, 8, 16, 32), "batch_size": 8},
    "small": {"corpus": "synthetic-books"},
    "medium": {"corpus": "synthetic-books", "n_layer": 8, "n_embd": 512, "n_head": 8, "vocab_size": 16_384,
               "batch_size": 4, "precision": "bf16"},
    "paper": {"corpus": "synthetic-books", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50_257,
              "tensors": "fake"},
}


def execute(config, context):
    from contextlib import nullcontext

    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from repro.data import tokeniser, tokens
    from repro.models import gpt2_mini
    from repro.recompute import Plan, flops, paper_model, training_memory, training_step
    from repro.recurrence import RecurrentLM

    text = tokens(config.corpus, "train", tokeniser("word", corpus=config.corpus)).ids
    needed = config.batch_size * (config.windows[-1] * config.window + 1)
    if len(text) < needed:
        raise ReproError(f"{config.corpus} has {len(text):,} tokens, but {needed:,} are needed; choose fewer windows.")
    ids = torch.from_numpy(text[:needed].astype("int64") % config.vocab_size).view(config.batch_size, -1)
    fake = FakeTensorMode() if config.tensors == "fake" else None
    device = "cuda" if torch.cuda.is_available() and not fake else "cpu"
    torch.manual_seed(config.seed)
    with fake or nullcontext():
        ids = fake.from_tensor(ids) if fake else ids.to(device)
        sizes = config.n_layer, config.n_embd, config.n_head, config.vocab_size, config.n_positions
        with torch.device(device):
            model = RecurrentLM(gpt2_mini(*sizes).config)
        peaks = []
        with context.progress(sum(config.windows), f"recompute {config.recompute}", "windows") as bar:
            for n in config.windows:
                part = ids[:, :n * config.window + 1]
                peak = training_memory(model, part, config.window, config.recompute, config.precision)
                peaks.append([n, peak])
                bar.advance(n)
        part = ids[:, :SETTLED * config.window + 1]
        forward = flops(lambda: model(part, config.window, labels=part, return_logits=False))
        plain, step = (flops(training_step(model, part, config.window, kind)) for kind in ("none", config.recompute))
    plan = Plan.of(model, window=config.window, batch_size=config.batch_size, recompute=config.recompute,
                   precision=config.precision, device=device)
    planned = [[n, replace(plan, n_windows=n).peak] for n in config.windows]
    settled = [point for point in peaks if point[0] >= SETTLED]
    growth = [(high - low) / (more - fewer) for (fewer, low), (more, high) in pairwise(settled)]
    metrics = {
        "growth": (settled[-1][1] - settled[0][1]) / (settled[-1][0] - settled[0][0]),
        "least_growth": min(growth), "most_growth": max(growth),
        "paper_growth": paper_model(0, 1, config.n_embd, config.batch_size, 4 if config.precision == "no" else 2),
        "text": 8 * config.batch_size * config.window,
        "plan_error": max(abs(plan / peak - 1) for (_, plan), (_, peak) in zip(planned, peaks, strict=True)),
        "forward_passes": 1 + (step - plain) / forward}
    units = dict.fromkeys(metrics, "bytes per window") | {"plan_error": "share of the peak",
                                                          "forward_passes": "forward passes per step"}
    return Outcome(metrics, units, "recurrent", {"peak": peaks, "plan": planned}, notes={
        "parameters": plan.n_parameters, "counted": "allocator" if device == "cuda" else f"{config.tensors} tensors"})


def estimate(config):
    from repro.models import parameters
    from repro.recompute import Plan

    n = parameters(config.n_layer, config.n_embd, config.vocab_size, config.n_positions)
    peak = Plan(config.n_layer, config.n_embd, config.vocab_size, n, config.window, config.windows[-1],
                config.batch_size, config.recompute, config.precision).peak
    tokens = sum(config.windows) * config.window * config.batch_size
    if config.tensors == "fake":
        return Estimate(n, tokens, 0.0, PROCESS, 120.0)
    cost = 5 / 3 * training_flops(config, config.window) * tokens  # with at most two forward passes more
    return Estimate(n, tokens, cost, PROCESS + peak, cost / RATE[config.scale])


EXPERIMENT = Experiment(
    name="memory-recurrence", paper="yoshida2020", summary="Peak memory of recurrent training by sequence length.",
    config=Config, scales=SCALES, execute=execute, estimate=estimate,
    grid=lambda scale: [{"recompute": kind} for kind in get_args(Recompute)])


def table(context):
    """One row per scale and kind of recomputation: peaks, growth next to the paper's 2k, and the extra cost."""
    import pandas

    rows = []
    for scale in context.scales:
        for config in context.plan(scale):
            records = context.records_of(config)
            row = {"scale": scale, "recomputed": config.recompute}
            peaks = dict(records[0].curves["peak"]) if records else {}
            ends = [n for n in (1, SETTLED, config.windows[-1]) if n in config.windows]
            row |= {f"{n} window{'s' * (n > 1)} (MiB)": f"{peaks[n] / 2**20:,.1f}" if peaks else NOT_RUN for n in ends}
            found = records[0].metrics if records else None
            row |= {"each further (B)": f"{found['growth']:,.0f}" if found else NOT_RUN,
                    "2k (B)": f"{found['paper_growth']:,.0f}" if found else NOT_RUN,
                    "its text (B)": f"{found['text']:,.0f}" if found else NOT_RUN,
                    "plan off by": f"{found['plan_error']:.1%}" if found else NOT_RUN,
                    "forward passes": f"{found['forward_passes']:.2f}" if found else NOT_RUN}
            rows.append(row)
    return pandas.DataFrame(rows).fillna("–")


def figure(context):
    """The peaks at the requested scale, and the growth after three windows, next to the paper's model."""
    from repro.plotting import draw_memory

    records = [record for config in context.plan() for record in context.records_of(config)[:1]]
    return draw_memory({record.config["recompute"]: record.curves["peak"] for record in records},
                       records[0].metrics["paper_growth"] if records else 0.0, SETTLED)

PAPER, SOURCE, CHAPTER = "yoshida2020", "Section 3.2", "05_memory_and_recomputation"
register(
    EXPERIMENT,
    Artifact(id="yoshida2020-memory", paper=PAPER, title="Peak memory of training, and its growth per window",
             chapter=CHAPTER, experiment=EXPERIMENT.name, source=SOURCE, build=table),
    Artifact(id="yoshida2020-memory-growth", paper=PAPER, title="Peak memory by length of the sequence",
             chapter=CHAPTER, experiment=EXPERIMENT.name, source=SOURCE, build=figure, kind="figure",
             look_for="A flat line means that longer sequences cost no memory; compare the slopes, not the heights."))
