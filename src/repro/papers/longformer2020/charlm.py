"""Longformer as a character language model (Beltagy et al. 2020, section 4, Table 12 and Tables 2, 3 and 4).

`paper` is Table 12. The other scales keep its proportions: windows that grow sixteenfold from the bottom layer to the
top, sequences of four times the top window, five phases of training that double both and halve the learning rate. Their
later phases have a larger share of the steps, because a model needs some steps to adapt to windows of twice the size,
however short the training. The paper does not print the windows of single layers; LEVELS is our guess, which matches
both printed ends and, rounded up, the printed mean of 230.
"""

from math import ceil
from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.papers.base.pretraining import Decayed
from repro.papers.longformer2020.charlm_tables import (
    ablation,
    agreement,
    cost_and_quality,
    models,
)
from repro.study import (
    ADDED,
    Absent,
    Artifact,
    Estimate,
    Experiment,
    Outcome,
    Rereading,
    RunConfig,
    register,
)

LEVELS = (1, 1, 2, 2, 4, 4, 8, 8, 8, 16, 16, 16)  # window of each of 12 layers, as a multiple of the smallest
GAPS = (1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4)  # dilation of each of 12 layers; the paper's values plus 1
LONGEST_WARMUP = 10_000  # steps
BLOCK = 1_000  # characters whose losses a record keeps as one sum; intervals over text group several blocks
AGREEMENT = 8_192  # most characters in a sequence that every implementation reads: a dense mask fits no more
Window = Annotated[int, Field(ge=1)] | None
Implementation = Literal["dense", "loop", "blocked", "flex"]  # of attention
Detail = Literal["scaled", "dropout", "shared", "bare"]


class Config(RunConfig):
    """A character language model: its patterns and size, its phases of training, and how it is scored."""

    model: Literal["small", "large"] = "small"  # which of the paper's two models it corresponds to
    windows: tuple[Window, ...] = Field(min_length=1)  # keys per layer in phase 1; None: full attention
    dilation: tuple[Annotated[int, Field(ge=1)], ...]  # of each layer; 1 is none
    dilated_heads: int = Field(2, ge=0)  # heads of a layer that have its dilation
    n_embd: int = Field(64, ge=1)
    n_head: int = Field(4, ge=1)
    position_size: int = Field(32, ge=2)  # sines and cosines of a relative position
    dropout: float = Field(0.0, ge=0, lt=1)
    length: int = Field(256, ge=2)  # characters of a sequence in phase 1; doubled with the windows in each phase
    longest: int | None = Field(None, ge=2)  # characters at which the doubling stops
    steps: tuple[Annotated[int, Field(ge=1)], ...] = Field((1,), min_length=1)  # of each phase
    batch_sizes: tuple[Annotated[int, Field(ge=1)], ...] = (8,)  # sequences, of each phase
    learning_rate: float = Field(2.5e-4, gt=0)  # in phase 1; halved in each phase
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps of a phase, at most LONGEST_WARMUP of them
    decay: Literal["none", "linear"] = "none"  # within a phase, after the warm-up
    weight_decay: float = Field(0.01, ge=0)
    decayed: Decayed = "matrices"
    clip: float = Field(0.25, gt=0)
    validations: int = Field(4, ge=1)  # in each phase
    held_out: int = Field(20_000, ge=2)  # characters of the validation text that each of these reads
    eval_length: int = Field(256, ge=1)  # characters of an overlapping sequence
    eval_step: int = Field(64, ge=1)  # characters from one sequence to the next; each sequence scores this many
    scored: int | None = Field(None, ge=1)  # characters of a split that are scored; None: all
    implementations: tuple[Implementation, ...] = ()  # each also scores the start of the validation text
    precision: Literal["no", "bf16"] = "no"
    recompute: bool = False
    optimizer: Annotated[Literal["adamw", "muon"], Absent("adamw")] = "adamw"
    # How attention is trained; "products" does so in `precision`. Text is always scored in single precision.
    attention: Annotated[Literal["auto", "products"], Absent("auto")] = "auto"
    # Variants of the model, as described in `repro.models.decoder`, and phases that only lower the learning rate.
    positions: Annotated[Literal["relative", "absolute", "none"], Absent("relative")] = "relative"
    details: Annotated[tuple[Detail, ...], Absent(())] = ()  # of Transformer-XL's code
    doubling: Annotated[bool, Absent(True)] = True  # of windows and sequences in each phase

    @model_validator(mode="after")
    def _fits(self):
        for one, other in (("dilation", "windows"), ("batch_sizes", "steps")):
            if len(getattr(self, one)) != len(getattr(self, other)):
                raise ValueError(f"{one} has {len(getattr(self, one))} numbers and {other} has "
                                 f"{len(getattr(self, other))}; give both the same number of values")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; n_embd must be a multiple of n_head")
        if self.dilated_heads > self.n_head:
            raise ValueError(f"dilated_heads is {self.dilated_heads}; it must be at most n_head ({self.n_head})")
        if self.eval_step > self.eval_length:
            raise ValueError(f"eval_step is {self.eval_step} characters; it must be at most eval_length "
                             f"({self.eval_length})")
        return self


def stretched(schedule, n_layer: int) -> tuple[int, ...]:
    """The 12 entries of `schedule` spread over n_layer layers."""
    return tuple(schedule[len(schedule) * layer // n_layer] for layer in range(n_layer))


def growing(n_layer: int, smallest: int) -> dict:
    """Windows that grow from the bottom layer to the top, with the paper's dilation."""
    return {"windows": tuple(smallest * level for level in stretched(LEVELS, n_layer)),
            "dilation": stretched(GAPS, n_layer)}


def growth(config, phase: int) -> int:
    """Window size in a phase, counted from 0, as a multiple of the first phase's."""
    return 2**phase if config.doubling else 1


def phase_length(config, phase: int) -> int:
    """Characters of a training sequence in a phase, counted from 0."""
    length = config.length * growth(config, phase)
    return length if config.longest is None else min(length, config.longest)


def phase_settings(config, phase: int):
    """Training settings of a phase, counted from 0."""
    from repro.training import TrainConfig

    total = training_tokens(config)[phase]
    return TrainConfig(total, config.learning_rate / 2**phase,
                       min(int(config.warmup_share * config.steps[phase]), LONGEST_WARMUP), config.decay,
                       config.weight_decay, config.clip, -(-total // config.validations),
                       precision=config.precision, seed=config.seed, optimizer=config.optimizer,
                       decayed=config.decayed)


def decoder_config(config, vocab_size: int, phase: int = -1):
    """The model's size and its patterns in a phase; by default the last phase, whose patterns are used for scoring."""
    from repro.attention import Causal
    from repro.models import DecoderConfig, longformer_patterns

    times = growth(config, phase % len(config.steps))
    windowed = longformer_patterns([times * (window or 1) for window in config.windows], config.n_head,
                                   config.dilation, config.dilated_heads)
    patterns = tuple(pattern if window else Causal() for window, pattern in zip(config.windows, windowed, strict=True))
    return DecoderConfig(vocab_size, config.n_embd, config.n_head, patterns, config.dropout, config.position_size,
                         config.positions, config.details)


def trained(config, folder):
    """The model that the run of `config` left in `folder` (`repro.study.model_folder(config)`), and its tokenizer."""
    from safetensors.torch import load_file

    from repro.data import tokeniser
    from repro.models import Decoder

    coder = tokeniser("byte", corpus=config.corpus)
    model = Decoder(decoder_config(config, coder.vocab_size))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.eval(), coder


def execute(config, context):
    from safetensors.torch import save

    from repro.data import tokeniser, tokens
    from repro.paths import write_atomic

    coder = tokeniser("byte", corpus=config.corpus)
    text = {split: tokens(config.corpus, split, coder).ids for split in ("train", "validation", "test")}
    model, curves = train_in_phases(config, context, text, coder.vocab_size)
    weights = {name: weight.cpu().clone() for name, weight in model.state_dict().items()}  # shared weights too
    write_atomic(context.folder / "model" / "model.safetensors", save(weights))
    metrics, documents = evaluate(config, context, model, text)
    return Outcome(metrics, {name: unit(name) for name in metrics}, config.model, curves, documents,
                   {"tokeniser": coder.fingerprint, "training_characters": sum(training_tokens(config)),
                    "windows": [window and window * growth(config, len(config.steps) - 1)
                                for window in config.windows]})


def train_in_phases(config, context, text, vocab_size: int):
    """A new model, trained phase by phase, and its curves. Each phase has a folder, so a killed run resumes."""
    import torch

    from repro.evaluation import perplexity
    from repro.models import Decoder
    from repro.training import NextToken, Sequences, train

    def loss(objective):
        score = perplexity(objective.model, text["validation"][:config.held_out + 1], length, 0)
        return score.nll / score.n_scored

    torch.manual_seed(config.seed)
    model, seen, curves = None, 0, {"train_loss": [], "validation_loss": []}
    with context.progress(sum(training_tokens(config)), "training", "characters") as bar:
        for phase, batch in enumerate(config.batch_sizes):
            earlier, length = model, phase_length(config, phase)
            model = Decoder(decoder_config(config, vocab_size, phase), config.attention, config.recompute)
            if earlier is not None:
                model.load_state_dict(earlier.state_dict())
            result = train(NextToken(model), Sequences(text["train"], length, batch, config.seed),
                           phase_settings(config, phase), context.folder / f"phase-{phase + 1}", loss, bar)
            for name, points in result.curves.items():
                curves[name] += [[seen + at, value] for at, value in points]
            seen += result.tokens
    model.implementation = "auto"
    return model, curves


def evaluate(config, context, model, text) -> tuple[dict, dict]:
    """Metrics, and the losses of the scored text block by block. As in the paper, sequences overlap and each is scored
    on its last `eval_step` characters, except the first, which is scored in full."""
    import numpy as np

    from repro.evaluation import perplexity

    metrics, documents, both = {}, {}, []
    for split in ("validation", "test"):
        ids = text[split][:config.scored and config.scored + 1]
        with context.progress(len(ids) - 1, f"scoring {split}", "characters") as bar:
            score = perplexity(model, ids, config.eval_length, config.eval_length - config.eval_step,
                               progress=bar.advance)
        starts = np.arange(0, score.n_scored, BLOCK)
        documents[split] = {"nll": np.add.reduceat(score.target_nll.astype(float), starts).tolist(),
                            "n_characters": np.diff(starts, append=score.n_scored).tolist()}
        metrics[f"{split}_bits_per_character"] = bits(score)
        both.append(score)
    metrics["pooled_bits_per_character"] = bits(*both)
    for name in config.implementations:
        length, model.implementation = min(config.eval_length, AGREEMENT), name
        metrics[f"validation_bits_per_character_{name}"] = bits(
            perplexity(model, text["validation"][:2 * length + 1], length, length // 2, batch_size=1))
    model.implementation = "auto"
    return metrics | {"parameters": model.config.parameters,
                      "pairs_per_character": model.config.pairs_per_token(config.eval_length),
                      "flops_per_character": model.config.flops_per_token(config.eval_length)}, documents


def bits(*scores) -> float:
    """Bits per character over all texts of these `repro.evaluation.Score`s."""
    from math import log

    return sum(score.nll for score in scores) / log(2) / sum(score.n_scored for score in scores)


def unit(metric: str) -> str:
    return {"parameters": "weights", "pairs_per_character": "pairs per character read, all layers and heads",
            "flops_per_character": "FLOPs per character read"}.get(metric, "bits per character")


def training_tokens(config) -> list[int]:
    """Number of characters that each phase trains on."""
    return [steps * batch * phase_length(config, phase)
            for phase, (steps, batch) in enumerate(zip(config.steps, config.batch_sizes, strict=True))]


KNOWN = 206  # approximate number of ids (enwik8's), for estimates; a run counts its own
SCORED = {"smoke": 5_000, "small": 50_000, "medium": 200_000, "paper": 5_000_000}  # approximate characters in a split
RATE = {"smoke": 2e10, "small": 2.5e10, "medium": 2e13, "paper": 5e13}  # sustained FLOP/s of each scale's machine
HALF = {"smoke": 2.5, "small": 2.5}  # speedup of bf16; for scales with a GPU, RATE is already that of bf16


def estimate(config):
    phases = [decoder_config(config, KNOWN, phase) for phase in range(len(config.steps))]
    n_tokens = training_tokens(config)
    flops = sum(3 * phase.flops_per_token(phase_length(config, k)) * n for k, (phase, n) in
                enumerate(zip(phases, n_tokens, strict=True)))
    read = 2 * (config.scored or SCORED[config.scale]) * config.eval_length / config.eval_step
    flops += phases[-1].flops_per_token(config.eval_length) * read
    n, kept = phases[-1].parameters, max(batch * phase_length(config, k) for k, batch in enumerate(config.batch_sizes))
    per_layer = config.n_embd if config.recompute else 24 * config.n_embd + 2 * config.n_head * config.position_size
    memory = 2**30 + 16 * n + 4 * kept * (len(config.windows) * per_layer + 2 * KNOWN)
    rate = RATE[config.scale] * (HALF.get(config.scale, 1) if config.precision == "bf16" else 1)
    return Estimate(n, sum(n_tokens), flops, memory, flops / rate)


# Width, text and scoring of each scale; then one phase of training (Table 4) and five phases (Tables 2 and 3).
SIZES = {
    "smoke": {"corpus": "synthetic-books", "n_embd": 32, "position_size": 16, "learning_rate": 2e-2,
              "held_out": 2_000, "scored": 4_000},
    "small": {"corpus": "text8-prefix", "decayed": "all", "learning_rate": 5e-3, "scored": 50_000},
    "medium": {"corpus": "text8-prefix", "n_embd": 256, "n_head": 8, "position_size": 64, "dropout": 0.2,
               "learning_rate": 1e-3, "held_out": 100_000, "scored": 200_000, "precision": "bf16"},
    "paper": {"corpus": "text8", "n_embd": 512, "n_head": 8, "position_size": 512, "dropout": 0.2,
              "learning_rate": 2.5e-4, "held_out": 500_000, "precision": "bf16", "recompute": True},
}
LONG = {"length": 2_048, "eval_length": 32_256, "eval_step": 512}
# `small` was declared before any of its runs: seeds 5 to 9, not used before (in the cost figure, windows without
# dilation and full attention use the first three), and claims on validation and test text together.
# Trials, on 1.2 million characters at seed 0, in bits per character on the first 50,000 of validation text, with full
# attention: 6 layers, steps of 8 sequences, rate 4e-3: 2.195 in 160 s of a busy core; 4 layers, steps of 8, 6e-3: 2.190
# in 94 s; 4 layers, steps of 4, 2e-3: 2.218, 4e-3: 2.159, 8e-3: 2.169, each in about 120 s. A window of 4 keys in all
# layers reached 2.152 at 4e-3, where full attention reached 2.159. It led by 0.05 after 0.5 million characters and by
# nothing at the end, so these runs go on to 4.1 million. (Earlier runs had 2.345 and 2.305 after 2.6 million.)
ONE_PHASE = {
    "smoke": {**growing(4, 1), "length": 64, "steps": (150,), "batch_sizes": (4,), "decay": "linear",
              "eval_length": 128, "eval_step": 64},
    "small": {**growing(4, 4), "n_embd": 128, "length": 256, "steps": (4_000,), "batch_sizes": (4,),
              "learning_rate": 4e-3, "decay": "linear", "optimizer": "muon", "precision": "bf16",
              "attention": "products", "eval_length": 512, "eval_step": 256, "scored": 150_000},
    "medium": {**growing(12, 32), **LONG, "steps": (900,), "batch_sizes": (16,), "decay": "linear"},
    "paper": {**growing(12, 32), **LONG, "steps": (150_000,), "batch_sizes": (32,)},
}
FIVE_PHASES = {
    "smoke": {**growing(4, 1), "length": 64, "longest": 720, "steps": (100, 40, 15, 5, 2),
              "batch_sizes": (4, 4, 2, 2, 2), "learning_rate": 1e-2, "eval_length": 1_008, "eval_step": 252,
              "implementations": ("dense", "loop", "blocked")},
    "small": {**growing(6, 2), "length": 128, "longest": 1_440, "steps": (800, 400, 200, 80, 40),
              "batch_sizes": (8, 8, 4, 4, 4), "eval_length": 2_016, "eval_step": 504,
              "implementations": ("dense", "loop", "blocked", "flex")},
    "medium": {**growing(12, 32), **LONG, "longest": 23_040, "steps": (400, 100, 50, 25, 10),
               "batch_sizes": (16, 16, 8, 8, 8), "recompute": True,
               "implementations": ("dense", "loop", "blocked", "flex")},
    "paper": {**growing(12, 32), **LONG, "longest": 23_040, "steps": (430_000, 50_000, 50_000, 35_000, 5_000),
              "batch_sizes": (32, 32, 16, 16, 16),
              "implementations": ("dense", "loop", "blocked")},  # 512 waves: probably too wide for "flex", not tried
}
LARGE = {
    "smoke": growing(6, 1), "small": growing(15, 2), "medium": {**growing(30, 32), "dropout": 0.4},
    "paper": {**growing(30, 32), "dropout": 0.4, "steps": (350_000, 25_000, 10_000, 5_000, 5_000)},
}
WINDOWS = {"smoke": (2, 16), "small": (4, 16, 64), "medium": (32, 128, 512), "paper": (32, 128, 512)}  # of all layers


def ablation_rows(grown: dict) -> list[dict]:
    """Table 4: windows that shrink, stay equal or grow from bottom to top, and growing ones with dilation.

    We add a row with the narrowest window in all layers. It shows what wider windows are worth here: the claims' assay.
    """
    windows, layers = grown["windows"], len(grown["windows"])
    none = (1,) * layers
    return [{"windows": windows[::-1], "dilation": none},
            {"windows": (ceil(sum(windows) / layers),) * layers, "dilation": none},
            {"windows": windows, "dilation": none},
            {"windows": windows, "dilation": grown["dilation"]},
            {"windows": windows[:1] * layers, "dilation": none}]


def cost_rows(layers: int, windows) -> list[dict]:
    """One window in all layers, without dilation and with dilation 4 on the dilated heads; and full attention."""
    return [{"windows": (window,) * layers, "dilation": (dilation,) * layers}
            for window in windows for dilation in (1, 4)] + [
                {"windows": (None,) * layers, "dilation": (1,) * layers}]


def staged_grid(scale: str) -> list[dict]:
    """Table 2: the small model on text8 and on enwik8; Table 3: the large one on enwik8."""
    first = SIZES[scale]["corpus"]
    second = first.replace("text8", "enwik8")
    corpora = dict.fromkeys((first, second))
    return [{"model": "small", "corpus": corpus} for corpus in corpora] + [
        {"model": "large", "corpus": second, **LARGE[scale]}]


def as_trained(own: dict) -> dict:
    """Settings that score text on sequences of training length."""
    return {"eval_length": own["length"], "eval_step": own["length"] // 4}


def scales(settings: dict) -> dict:
    return {scale: SIZES[scale] | own for scale, own in settings.items()}


PAPER, CHAPTER = "longformer2020", "17_character_lm"
def characters(config) -> int:
    """The fewest characters that a run needs in each of its three texts."""
    longest = max(phase_length(config, phase) for phase in range(len(config.steps)))
    return max(config.scored or 0, config.held_out or 0, config.eval_length, longest) + 1


OTHER_TEXT = Rereading(lambda configs, name: [{"corpus": name} for _ in configs], characters, trains=True)
ABLATION = Experiment(
    name="charlm-ablation", paper=PAPER, summary="Windows and dilation across layers: one phase, bits per character.",
    config=Config, scales=scales(ONE_PHASE), execute=execute, estimate=estimate,
    grid=lambda scale: ablation_rows(ONE_PHASE[scale]), rereading=OTHER_TEXT)
STAGED = Experiment(
    name="charlm", paper=PAPER, summary="The character language model, trained in five phases.",
    config=Config, scales=scales(FIVE_PHASES), grid=staged_grid, execute=execute, estimate=estimate)
# Scored on sequences of training length: full attention has learned no longer distances.
COST = Experiment(
    name="charlm-cost", paper=PAPER, summary="Bits per character against attended pairs; full attention as the limit.",
    config=Config, grid=lambda scale: cost_rows(len(ONE_PHASE[scale]["windows"]), WINDOWS[scale]), execute=execute,
    estimate=estimate, scales=scales({scale: own | as_trained(own) for scale, own in ONE_PHASE.items()}))
register(ABLATION, STAGED, COST)


register(
    Artifact(id="longformer2020-table2", paper=PAPER, chapter=CHAPTER, experiment=STAGED.name, source="Table 2",
             title="Small models: bits per character on text8 and enwik8",
             build=lambda context: models(context, "longformer2020_table2_small_char_lm", "small")),
    Artifact(id="longformer2020-table3", paper=PAPER, chapter=CHAPTER, experiment=STAGED.name, source="Table 3",
             title="Large models: bits per character on enwik8",
             build=lambda context: models(context, "longformer2020_table3_large_enwik8", "large")),
    Artifact(id="longformer2020-table4", paper=PAPER, chapter=CHAPTER, experiment=ABLATION.name, source="Table 4",
             title="Windows across layers and dilation: bits per character on the development text",
             look_for="Our differences are on development and test text together.", build=ablation),
    Artifact(id="longformer2020-implementations", paper=PAPER, chapter=CHAPTER, experiment=STAGED.name,
             title="One model scored with every implementation of attention: validation bits per character",
             source=ADDED, build=agreement),
    Artifact(id="longformer2020-window-cost", paper=PAPER, chapter=CHAPTER, experiment=COST.name, kind="figure",
             title="Bits per character against attended pairs, by window and dilation", source=ADDED,
             build=cost_and_quality,
             look_for="Lower left is better and cheaper. Dilation helps if its line lies below at equal pairs."))
