"""Pairs, scores and memory of factorized attention by sequence length (Child et al. 2019, sections 4.2, 4.3).

`repro bench attention` measures time. This module counts allowed pairs, computed scores, and the bytes of tensors in
the forward and backward pass; on a CPU the counts are the same in every run. The attention inputs are random vectors.
"""

from math import log
from statistics import linear_regression
from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from repro.study import Artifact, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.artifacts import NOT_RUN

Name = Literal["dense", "strided", "fixed"]


class Config(RunConfig):
    """One pattern on sequences of increasing length; the stride is the square root of the length."""

    pattern: Name = "strided"
    lengths: tuple[Annotated[int, Field(ge=4)], ...] = (1_024, 4_096, 16_384)  # positions
    summary: int = Field(8, ge=1)  # positions; for "fixed", whose blocks are twice the square root of the length
    head_size: int = Field(16, ge=1)

    @model_validator(mode="after")
    def _fits(self):
        if len(self.lengths) < 2 or sorted(set(self.lengths)) != list(self.lengths):
            raise ValueError(f"lengths are {self.lengths}; give two or more, in increasing order")
        if self.pattern == "fixed" and self.summary > 2 * round(self.lengths[0] ** 0.5):
            raise ValueError(f"summary is {self.summary}; it must lie between 1 and the stride "
                             f"({2 * round(self.lengths[0] ** 0.5)} at the shortest length)")
        return self


def pattern_at(config, n: int):
    """The pattern for n positions."""
    from repro.attention import Causal, Fixed, Strided

    stride = round(n**0.5)
    return {"dense": lambda: Causal(), "strided": lambda: Strided(stride),
            "fixed": lambda: Fixed(2 * stride, config.summary)}[config.pattern]()


def execute(config, context):
    import torch

    from repro.attention import attend
    from repro.attention.blocked import share_of_pairs
    from repro.recompute import peak_memory

    def both_passes(n):
        generator = torch.Generator().manual_seed(config.seed)
        x = [torch.randn(1, 1, n, config.head_size, generator=generator).requires_grad_() for _ in range(3)]
        if config.pattern == "dense":  # keep every score, as implementations did in 2019
            mask = torch.ones(n, n, dtype=torch.bool).tril()
            out = (x[0] @ x[1].mT / config.head_size**0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ x[2]
        else:
            out = attend(*x, pattern_at(config, n), "blocked")
        return torch.autograd.grad(out.sum(), x)

    curves = {"pairs": [], "scores": [], "peak": []}
    for n in config.lengths:
        pattern = pattern_at(config, n)
        curves["pairs"].append([n, pattern.count(n)])
        curves["scores"].append([n, n**2 if config.pattern == "dense" else round(share_of_pairs(pattern, n) * n**2)])
        curves["peak"].append([n, peak_memory(lambda n=n: both_passes(n))])
    metrics = {f"growth_of_{name}": slope(points) for name, points in curves.items()}
    metrics["scores_per_pair"] = curves["scores"][-1][1] / curves["pairs"][-1][1]
    units = dict.fromkeys(metrics, "exponent of the length, fitted to all lengths")
    return Outcome(metrics, units | {"scores_per_pair": "scores computed per allowed pair, longest"}, config.pattern,
                   curves)


def slope(points) -> float:
    """The exponent e, if a quantity grows as n to the power of e."""
    return linear_regression(*([log(value) for value in axis] for axis in zip(*points, strict=True))).slope


def estimate(config):
    n = config.lengths[-1]
    scores = n**2 if config.pattern == "dense" else 8 * n**1.5
    return Estimate(0, 0, 14.0 * config.head_size * scores, 2**29 + (12 * n**2 if config.pattern == "dense" else 2**28),
                    5.0)


SCALES = {
    "smoke": {"corpus": "synthetic-books", "lengths": (256, 1_024, 2_048)},
    "small": {"corpus": "synthetic-books", "lengths": (1_024, 2_048, 4_096, 8_192)},
    "medium": {"corpus": "synthetic-books", "lengths": (1_024, 4_096, 16_384), "head_size": 64},
    "paper": {"corpus": "synthetic-books", "lengths": (3_072, 12_288, 24_576), "head_size": 64},
}
PAPER, CHAPTER = "sparse2019", "13_factorised_attention"
EXPERIMENT = Experiment(
    name="factorised-cost", paper=PAPER, summary="Pairs and memory of dense, strided and fixed attention by length.",
    config=Config, scales=SCALES, execute=execute, estimate=estimate,
    grid=lambda scale: [{"pattern": name} for name in get_args(Name)])


def figure(context):
    """Allowed pairs, and peak memory."""
    from repro.plotting import draw_growth

    found = {config.pattern: record for config in context.plan() for record in context.records_of(config)[:1]}
    return draw_growth({"allowed pairs": {name: record.curves["pairs"] for name, record in found.items()},
                        "peak, counted (MiB)": {name: [[n, peak / 2**20] for n, peak in record.curves["peak"]]
                                                for name, record in found.items()}})


def table(context):
    """A row for each scale and pattern."""
    import pandas

    shown = {"exponent of pairs": "growth_of_pairs", "exponent of memory": "growth_of_peak",
             "scores computed per pair": "scores_per_pair"}
    rows = []
    for scale in context.scales:
        for config in context.plan(scale):
            found = next((record.metrics for record in context.records_of(config)), None)
            rows.append({"scale": scale, "pattern": config.pattern}
                        | {name: f"{found[key]:.2f}" if found else NOT_RUN for name, key in shown.items()})
    return pandas.DataFrame(rows)


register(
    EXPERIMENT,
    Artifact(id="sparse2019-cost", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, source="Section 4.2",
             title="Growth of pairs and memory, as exponents of the length", build=table),
    Artifact(id="sparse2019-cost-figure", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, kind="figure",
             source="Section 4.2", title="Pairs and memory against the length", build=figure,
             look_for="Compare the slopes. A pattern with a flatter line than dense attention saves more the longer "
                      "the sequence is."))
