"""The effect of depth on activations, gradients, loss and memory (Child et al. 2019, sections 5.2 and 5.4).

We train narrow models of 4 to 128 layers on bytes of text. Every residual branch adds to the variance of the
activations. N layers have 2 N branches; with output weights scaled by 1 / sqrt(2 N), all of them together add as much
variance as one unscaled branch. The paper gives this reason but no numbers. Memory is counted in bytes of tensors, with
and without recomputation.
"""

from math import log
from typing import Literal

from pydantic import Field, model_validator

from repro.papers.sparse2019.tables import mean
from repro.study import ADDED, Artifact, Estimate, Experiment, Outcome, Rereading, RunConfig, register
from repro.study.artifacts import NOT_RUN
from repro.study.published import printed_rows

KNOWN = 206  # about as many ids as a byte tokenizer has for enwik8; for estimates
CARD = 16 * 2**30  # bytes of memory of the paper's GPU


class Config(RunConfig):
    """A narrow model of some depth, its output weights scaled or not."""

    n_layer: int = Field(8, ge=1)
    scaled: bool = True
    n_embd: int = Field(32, ge=1)
    n_head: int = Field(2, ge=1)
    length: int = Field(128, ge=2)  # bytes of a sequence
    steps: int = Field(150, ge=1)
    batch_size: int = Field(8, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)
    decay: Literal["cosine", "none"] = "cosine"
    clip: float = Field(1.0, gt=0)
    optimizer: Literal["adamw", "muon"] = "adamw"
    held_out: int = Field(4_000, ge=2)  # bytes of the validation text
    scored: int = Field(20_000, ge=2)  # bytes of the test text

    @model_validator(mode="after")
    def _fits(self):
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads")
        return self


SCALES = {
    "smoke": {"corpus": "synthetic-books", "n_embd": 16, "length": 64, "batch_size": 8, "steps": 12,
              "held_out": 500, "scored": 2_000},
    "small": {"corpus": "enwik8-prefix", "learning_rate": 1e-2, "optimizer": "muon"},
    "medium": {"corpus": "enwik8-prefix", "n_embd": 128, "length": 1_024, "batch_size": 16, "steps": 1_000},
    "paper": {"corpus": "enwik8", "n_embd": 256, "length": 3_072, "batch_size": 32, "steps": 5_000,
              "learning_rate": 3.5e-4},
}
DEPTHS = {"smoke": (4, 8, 16), "small": (4, 8, 32, 128), "medium": (8, 32, 128), "paper": (8, 32, 128)}
RATES = {"small": (3e-3, 1e-2, 3e-2)}  # for the deepest models, so that each initialization is judged at its best rate


def model_config(config, vocab_size: int):
    """Size of the model; attention is dense, so that only depth differs."""
    from repro.models import SparseConfig

    return SparseConfig(vocab_size, config.length, config.n_layer, config.n_head, config.n_embd, scaled=config.scaled)


def execute(config, context):
    import torch

    from repro.data import tokeniser, tokens
    from repro.evaluation import perplexity
    from repro.models import SparseTransformer
    from repro.papers.sparse2019.density import blocks
    from repro.recompute import peak_memory
    from repro.training import NextToken, Sequences, TrainConfig, train

    coder = tokeniser("byte", corpus=config.corpus)
    text = {split: tokens(config.corpus, split, coder).ids for split in ("train", "validation", "test")}
    torch.manual_seed(config.seed)
    model = SparseTransformer(model_config(config, coder.vocab_size))
    batches = Sequences(text["train"], config.length, config.batch_size, config.seed)
    curves = at_start(model, batches.batch(0))
    metrics = {"growth_of_variance": curves["variance"][-1][1] / curves["variance"][0][1],
               "gradient_ratio": curves["gradient"][0][1] / curves["gradient"][-1][1]}
    for recompute in (False, True):
        model.recompute, name = recompute, "recomputed" if recompute else "kept"
        half = config.length // 2
        peaks = [peak_memory(lambda n=n: backward(model, batches.batch(0)[:, :n + 1])) for n in (half, config.length)]
        metrics[f"bytes_per_token_{name}"] = (peaks[1] - peaks[0]) / (config.length - half) / config.batch_size
    model.recompute = False
    total = config.steps * batches.units_per_batch

    def nats(split, most):
        return perplexity(model, text[split][:most + 1], config.length, 0).target_nll

    settings = TrainConfig(total, config.learning_rate, int(config.warmup_share * config.steps), config.decay,
                           0.01, config.clip, total, seed=config.seed,
                           optimizer=config.optimizer)
    with context.progress(total, f"training {config.n_layer} layers", "bytes") as bar:
        found = train(NextToken(model), batches, settings, context.folder,
                      lambda objective: nats("validation", config.held_out).mean(), bar)
    losses = nats("test", config.scored)
    metrics |= {"validation_bits_per_byte": found.best_loss / log(2), "test_bits_per_byte": losses.mean() / log(2)}
    return Outcome({name: float(value) for name, value in metrics.items()},
                   {"growth_of_variance": "times, from what enters the layers to what leaves them, untrained",
                    "gradient_ratio": "gradient norm of the first layer over the last's, before training",
                    "bytes_per_token_kept": "bytes that a further token takes in a training step",
                    "bytes_per_token_recomputed": "bytes that a further token takes in a training step",
                    "validation_bits_per_byte": "bits per byte", "test_bits_per_byte": "bits per byte"},
                   "scaled" if config.scaled else "unscaled", curves | found.curves,
                   {"test": blocks(losses.astype(float))})


def at_start(model, ids) -> dict[str, list]:
    """Variance of the residual stream after each layer (0: before the first), and the gradient norm of each layer's
    weights for a random direction at the end; the output layer starts at zero and would pass no gradient back."""
    import torch

    x = model.embedded(ids[:, :-1])
    variances = [[0, x.var().item()]]
    for number, layer in enumerate(model.layers, 1):
        x = layer(x, "auto", False)
        variances.append([number, x.var().item()])
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    (model.norm(x) * direction).mean().backward()
    norms = [[number, torch.cat([weight.grad.flatten() for weight in layer.parameters()]).norm().item()]
             for number, layer in enumerate(model.layers, 1)]
    model.zero_grad(set_to_none=True)
    return {"variance": variances, "gradient": norms}


def backward(model, ids) -> None:
    """One forward and backward pass that leaves no gradients."""
    logits = model(ids[:, :-1])
    logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).mean().backward()
    model.zero_grad(set_to_none=True)


def estimate(config):
    settings = model_config(config, KNOWN)
    n = config.steps * config.batch_size * config.length
    rate = {"smoke": 2e9, "small": 5e9, "medium": 1e13, "paper": 3e13}[config.scale]  # narrow layers are slow
    flops = 3 * n * settings.flops_per_token(config.length)
    kept = config.batch_size * config.length * config.n_embd * config.n_layer * 120
    return Estimate(settings.parameters, n, flops, 2**30 + 16 * settings.parameters + kept, flops / rate)


def grid(scale: str) -> list[dict]:
    """Every depth with both initializations; the deepest at several learning rates if RATES has them."""
    deepest = [{"learning_rate": rate} for rate in RATES.get(scale, ())] or [{}]
    return [{"n_layer": n, "scaled": scaled} | rate for n in DEPTHS[scale] for scaled in (True, False)
            for rate in (deepest if n == max(DEPTHS[scale]) else [{}])]


PAPER, CHAPTER = "sparse2019", "14_deep"
EXPERIMENT = Experiment(
    name="sparse-depth", paper=PAPER,
    summary="Depth: variance, gradients, loss and memory, with and without scaled output weights.",
    config=Config, scales=SCALES, execute=execute, estimate=estimate, grid=grid,
    rereading=Rereading(lambda configs, name: [{"corpus": name} for _ in configs],
                        lambda config: max(config.held_out, config.scored, config.length) + 1, trains=True))


def table(context):
    """A row for each scale, depth, initialization and learning rate."""
    import pandas

    rows = []
    for scale in context.scales:
        for config in context.plan(scale):
            found = context.records_of(config)
            rows.append({"scale": scale, "layers": config.n_layer,
                         "output weights": "scaled by 1/sqrt(2N)" if config.scaled else "unscaled",
                         "learning rate": f"{config.learning_rate:g}",
                         "variance grows by (times)": mean(found, "growth_of_variance", style=".2f"),
                         "gradient norm, first / last layer": mean(found, "gradient_ratio", style=".2f"),
                         "bits per byte": mean(found, "test_bits_per_byte")})
    return pandas.DataFrame(rows)


def memory(context):
    """Memory per token, tokens that fit on the paper's card, and the length that the paper trained on."""
    import pandas

    stated = next(row for row in printed_rows("sparse2019_hyperparameters") if "reachable" in row["parameter"])
    rows = [{"source": f"the paper, {stated['note']}", "layers": "–", "width": "–",
             "length trained": f"{int(stated['value']):,}", "KiB per token, kept": "–",
             "KiB per token, recomputed": "–", "tokens in 16 GiB, kept": "–", "tokens in 16 GiB, recomputed": "–"}]
    for scale in context.scales:
        for config in {config.n_layer: config for config in context.plan(scale, scaled=True)}.values():
            found = [record.metrics for record in context.records_of(config)[:1]]
            taken = {name: found[0][f"bytes_per_token_{name}"] for name in ("kept", "recomputed")} if found else {}
            rows.append({"source": f"this study, {scale}", "layers": str(config.n_layer), "width": str(config.n_embd),
                         "length trained": f"{config.length:,}",
                         **{f"KiB per token, {name}": f"{taken[name] / 1024:,.1f}" if taken else NOT_RUN
                            for name in ("kept", "recomputed")},
                         **{f"tokens in 16 GiB, {name}": f"{CARD / taken[name] / 1e6:.2f} M" if taken else NOT_RUN
                            for name in ("kept", "recomputed")}})
    return pandas.DataFrame(rows)


def figure(context):
    """Variance of the residual stream and gradient norms, layer by layer, of the deepest models."""
    from repro.plotting import draw_growth

    deepest = max(config.n_layer for config in context.plan())
    panels = {"variance after the layer": {}, "gradient norm of the layer": {}}
    for config in context.plan(n_layer=deepest):
        name = "output weights scaled by 1/sqrt(2N)" if config.scaled else "output weights unscaled"
        found = context.records_of(config)[:1]
        for title, key in zip(panels, ("variance", "gradient"), strict=True):
            if found or name not in panels[title]:  # untrained models are the same at every learning rate
                panels[title][name] = [point for record in found for point in doublings(record.curves[key])]
    return draw_growth(panels, label="layer")


def doublings(points) -> list:
    """The [layer, value] pairs of layers 1, 2, 4, and so on."""
    return [point for point in points if point[0] >= 1 and point[0] & (point[0] - 1) == 0]


register(
    EXPERIMENT,
    Artifact(id="sparse2019-depth", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, source=ADDED,
             title="Depth with output weights scaled by 1/sqrt(2N) and without", build=table),
    Artifact(id="sparse2019-depth-figure", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, kind="figure",
             source=ADDED, title="Variance and gradients through the deepest models before training", build=figure,
             look_for="Flat lines are what scaling is for: every layer adds little variance, and the first layer's "
                      "gradient is about as large as the last one's."),
    Artifact(id="sparse2019-recomputation", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name,
             source="Section 5.4", title="Memory with and without recomputation", build=memory))
