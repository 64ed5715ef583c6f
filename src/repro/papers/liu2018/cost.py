"""How long an input fits into a given memory (Liu et al. 2018, sections 4.2.3, 4.2.4 and 5.3).

We count the peak memory of a training step, tensor by tensor, on models with the paper's layers. At all scales but
`paper` the models are narrower and the memory is smaller. Attention weights are kept for the backward pass, as in
2018; later kernels keep none and would let T-D read much longer inputs. Each model is counted twice, with the same code
for all: once keeping the weights of later keys, although they are zero, and once taking 512 queries at a time and
skipping the keys after them.
"""

import math
from functools import partial
from statistics import linear_regression
from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.gpt2_mini import PROCESS
from repro.papers.liu2018.summarise import CHAPTER, PAPER, flops
from repro.papers.liu2018.summarise import Config as Sized
from repro.study import Artifact, ArtifactContext, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.artifacts import NOT_RUN
from repro.study.store import Store

NAMES = {"t-ed": "T-ED", "t-d": "T-D", "t-dmca": "T-DMCA"}
GIB = 2**30


class Config(RunConfig):
    """A model whose training step is counted at increasing lengths, and the memory into which its input must fit."""

    model: Literal["t-ed", "t-d", "t-dmca"]
    lengths: tuple[Annotated[int, Field(ge=1)], ...] = (500, 1_000, 2_000, 4_000)  # L, tokens
    target: int = Field(110, ge=1)  # tokens of a lead: the median is 78 words
    vocab_size: int = Field(512, ge=257)
    n_embd: int = Field(64, ge=1)
    n_head: int = Field(4, ge=1)
    n_layer: int = Field(6, ge=1)  # layers of T-D, and of T-ED's encoder and decoder each
    layers: str = "LMLML"
    memory: float = Field(2.25, gt=0)  # GiB: about what T-D needs for 4,000 tokens, its longest input in the paper

    @model_validator(mode="after")
    def _fits(self):
        if len(self.lengths) < 2 or sorted(set(self.lengths)) != list(self.lengths):
            raise ValueError(f"lengths are {self.lengths}; give two or more in increasing order")
        if not self.layers or set(self.layers) - set("LM"):
            raise ValueError(f"layers is '{self.layers:.40}'; give one letter for each layer, L (local) or M (memory-"
                             "compressed)")
        return self


def execute(config, context):
    peaks, most = [], config.memory * GIB
    with context.progress(len(config.lengths), f"counting {config.model}", "lengths") as bar:
        for n in config.lengths:
            peaks.append([n, step_memory(config, n)])
            bar.advance(1)
    longest, skipping = (longest_that_fits(partial(step_memory, config, way=way, limit=most), most)
                         for way in ("products", "rows"))
    growth = linear_regression(*([math.log(value) for value in axis] for axis in zip(*peaks[-2:], strict=True))).slope
    sized = _sized(config)
    metrics = {"longest": longest, "longest_skipping": skipping, "growth": growth, "parameters": parameters(config),
               "flops": flops(sized, config.vocab_size, config.lengths[0], config.target)}
    return Outcome(metrics, UNITS, "untrained", {"peak": peaks})


UNITS = {"longest": "tokens of input that fit", "longest_skipping": "tokens of input that fit",
         "growth": "exponent of L, the two longest", "parameters": "weights",
         "flops": "forward operations per article, the shortest L"}


def longest_that_fits(peak, memory: float, limit: int = 2**20) -> int:
    """The largest n below `limit` for which peak(n) is at most `memory`; the binary search is precise to 2%.

    Raises ReproError if not even one token fits.
    """
    if peak(1) > memory:
        raise ReproError(f"memory is {memory / GIB:.3g} GiB, but one token of input takes more; give more memory.")
    low, high = 1, 2
    while high < limit and peak(high) <= memory:
        low, high = high, 2 * high
    while high - low > max(1, low // 50):
        middle = (low + high) // 2
        low, high = (middle, high) if peak(middle) <= memory else (low, middle)
    return low


def step_memory(config, n: int, way: str = "products", limit: float = math.inf) -> int | float:
    """Peak bytes of one training step on an input of n tokens: weights, gradients, Adam's moments and activations.

    way: how attention is computed: "products" with all scores, or "rows" without most scores of later keys. limit:
    bytes at which counting stops; the peak is then infinite.
    """
    import torch

    from repro.attention.products import _masks
    from repro.papers.liu2018.summarise import build
    from repro.recompute import peak_memory
    from repro.training import Summaries

    objective = Summaries(build(_sized(config), config.vocab_size, way)).train()
    weights = sum(weight.numel() for weight in objective.parameters())
    target = torch.zeros(1, config.target + 1, dtype=torch.int64)

    def batch(n: int) -> dict[str, torch.Tensor]:
        return {"source": torch.zeros(1, n, dtype=torch.int64), "lengths": torch.tensor([n]), "ids": target,
                "labels": target}

    with torch.no_grad():
        objective(batch(1))  # patterns are checked at their first use, which is not part of a step
    measured = batch(n)
    _masks.cache_clear()  # so that the masks are counted even if this process has built them before
    held = 12 * weights  # weights and Adam's moments; `peak_memory` counts the gradients
    return held + peak_memory(lambda: objective(measured).backward(), limit=limit - held)


def parameters(config) -> int:
    """The number of weights."""
    from repro.papers.liu2018.summarise import model_config

    return model_config(_sized(config), config.vocab_size).parameters


def _sized(config) -> Sized:
    """The settings of `summarise` for a model of the same size."""
    return Sized(experiment="summarise", scale=config.scale, corpus=config.corpus, model=config.model,
                 length=config.lengths[0], vocab_size=config.vocab_size, n_embd=config.n_embd,
                 n_head=config.n_head, n_layer=config.n_layer, layers=config.layers,
                 position_size=config.n_embd // config.n_head,
                 dropout=0.0)


# The paper's widths, and the memory of its GPUs.
PRINTED = {"vocab_size": 32_000, "n_embd": 512, "n_head": 8, "memory": 16.0}
SMALLER = {"lengths": (64, 128, 256), "vocab_size": 257, "n_embd": 32, "n_head": 2, "target": 16, "memory": 0.01}
EXPERIMENT = Experiment(
    name="summarise-memory", paper=PAPER, summary="Memory of a training step by length, and the longest that fits.",
    config=Config, execute=execute,
    estimate=lambda config: Estimate(  # the allocator keeps a part of the freed memory
        parameters(config), 0, 0.0, PROCESS + int(4 * config.memory * GIB), 45 * config.memory),
    revision=1,  # since this revision, either all models skip later keys or none does
    scales={"smoke": {"corpus": "synthetic-articles"} | SMALLER, "small": {"corpus": "synthetic-articles"},
            "paper": {"corpus": "synthetic-articles"} | PRINTED},
    grid=lambda scale: [{"model": name} for name in NAMES])


def table(context: ArtifactContext):
    """One row per model: weights, operations, growth of memory, and the longest input that fits."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = next((record.metrics for record in context.records_of(config)), None)
            rows.append({
                "scale": scale, "model": NAMES[config.model],
                "weights": f"{found['parameters']:,.0f}" if found else NOT_RUN,
                "operations per article": f"{found['flops']:.2e}" if found else NOT_RUN,
                "memory grows with L to the power": f"{found['growth']:.2f}" if found else NOT_RUN,
                "memory (GiB)": f"{config.memory:g}",
                "longest input that fits": f"{found['longest']:,.0f}" if found else NOT_RUN,
                "the same, later keys skipped": f"{found['longest_skipping']:,.0f}" if found else NOT_RUN})
    return pandas.DataFrame(rows)


def figure(context: ArtifactContext):
    """Peak memory of a training step against L."""
    from repro.plotting import draw_growth

    curves = {}
    for config in context.plan():
        for record in context.records_of(config)[:1]:
            curves[NAMES[config.model]] = [[n, peak / 2**20] for n, peak in record.curves["peak"]]
    return draw_growth({"peak of a training step, counted (MiB)": curves}, label="input tokens L")


def times_as_long(scale: str, skipping: bool = False) -> str:
    """T-DMCA's longest input in units of T-D's in the same memory, such as "2.1"; or "not run".

    skipping: whether both skip later keys; if not, both keep the scores of all keys.
    """
    name = "longest_skipping" if skipping else "longest"
    found = {config.model: Store.for_scale(scale).seeds(config) for config in EXPERIMENT.plan(scale)}
    if not (found["t-dmca"] and found["t-d"]):
        return NOT_RUN
    return f"{found['t-dmca'][0].metrics[name] / found['t-d'][0].metrics[name]:.1f}"


OF = {"paper": PAPER, "chapter": CHAPTER, "experiment": EXPERIMENT.name}
TABLE = Artifact(id="liu2018-memory", **OF, source="sections 4.2.3 and 4.2.4", build=table,
                 title="Weights, operations and longest input that fits, for models with the paper's layers")
FIGURE = Artifact(id="liu2018-memory-growth", **OF, source="section 5.3", build=figure, kind="figure",
                  title="Memory of a training step by length of the input",
                  look_for="Both axes are logarithmic. Memory that grows in proportion to the input is a line of slope "
                           "1; with its square, of slope 2. The flatter a line, the longer an input fits.")
register(EXPERIMENT, TABLE, FIGURE)
