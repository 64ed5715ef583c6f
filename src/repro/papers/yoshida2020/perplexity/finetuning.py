"""Fine-tuning of the base model on windows of text, with or without the recurrence module (Yoshida et al. 2020).

All of the paper's tables on language models score models that are trained here.
"""

import math
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import PROCESS, RATE, tokeniser_of, training_flops
from repro.recurrence.memories import MEMORIES
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.experiment import corpus_named
from repro.study.settings import DEVICES

NO_MEMORY = ("none", "overlap")  # the values of `memory` without a memory module
Memory = Literal["none", "overlap", *MEMORIES]
Candidate = tuple[Annotated[float, Field(gt=0)], bool]


class Config(RunConfig):
    """Model, text, windows, training and the module's settings."""

    model: Literal["baseline", "recurrent"] = "baseline"
    window: int = Field(300, ge=1)  # tokens
    overlap: int = Field(0, ge=0)  # tokens shared with the previous window in training
    windows_per_sequence: int = Field(20, ge=1)  # windows that gradients flow through
    batch_size: int = Field(1, ge=1)  # sequences per step
    train_documents: int | None = Field(None, ge=1)  # number of training documents; None: all
    train_draw: Annotated[Literal["first", "random"], Absent("first")] = "first"  # by file name, or drawn by the seed
    epochs: float = Field(2.0, gt=0)
    learning_rate: float | None = Field(None, gt=0)  # None: the best of `learning_rates` on validation
    learning_rates: tuple[Annotated[float, Field(gt=0)], ...] = Field((3e-5, 1e-4, 3e-4), min_length=1)
    selection_share: float = Field(1.0, gt=0, le=1)  # of `epochs` or `steps`, for each candidate, at overlap 0
    warmup_steps: int = Field(100, ge=0)
    decay: Literal["none", "linear"] = "none"  # of the learning rate after the warm-up
    validate_every: int = Field(2_000_000, ge=1)  # tokens
    validation_tokens: int | None = Field(None, ge=2)  # first tokens of the validation text, for training; None: all
    validation_head: int | None = Field(None, ge=2)  # first tokens read of each validation document; None: all
    # The number of validation documents that are read, from the first on; None: all.
    validation_documents: Annotated[int | None, Field(ge=1), Absent(None)] = None
    patience: int | None = Field(None, ge=1)  # validations without improvement before stopping early; None: to the end
    base: str = "gpt2-mini"  # the study's own base model, or a GPT-2 checkpoint (hub name or folder)
    insert_layer: int = Field(1, ge=0)  # counted from 0: 1 is the paper's second layer
    hidden_size: int = Field(200, ge=1)
    hidden_layers: int = Field(3, ge=1)
    pool: Literal["mean", "max", "attention"] = "mean"
    layers: Literal["learned", "last"] = "learned"
    n_embeddings: int = Field(1, ge=1)
    insert: Literal["one", "every"] = "one"
    truncate: int | None = Field(None, ge=1)  # windows after which the gradient of h_prev is cut; None never cuts
    recompute: Literal["none", "layer", "window", "window+layer"] = "none"
    precision: Literal["no", "bf16"] = "no"
    # Optimizer steps, instead of `epochs`. Step k then has the same targets at every overlap; a run with overlap reads
    # additional tokens before them, which are not targets. None: by epochs, on sequences that are cut for each overlap.
    steps: Annotated[int | None, Field(ge=1), Absent(None)] = None
    # Targets of a sequence, if `steps` is set. None: as many as `windows_per_sequence` disjoint windows have.
    sequence: Annotated[int | None, Field(ge=1), Absent(None)] = None
    module_learning_rate: Annotated[float | None, Field(gt=0), Absent(None)] = None  # None: `learning_rate`
    zero_init: Annotated[bool, Absent(False)] = False  # whether the module's last layer starts at 0
    # Whether the previous window's mean input of `insert_layer` is added to h_prev, which then looks like a token.
    residual: Annotated[bool, Absent(False)] = False
    # Whether the module reads states divided by their root mean square. Its output is then multiplied by the root mean
    # square of the input that `residual` adds.
    normalize: Annotated[bool, Absent(False)] = False
    # Candidates for `module_learning_rate` and `zero_init`, each tried with each of `learning_rates`: (times the
    # learning rate, zero_init).
    modules: Annotated[tuple[Candidate, ...], Absent(())] = ()
    # One of `repro.recurrence.MEMORIES`, with its own settings; "none" and "overlap" (whose size is `overlap`) have no
    # memory. None: `model` decides between the recurrence module and nothing.
    memory: Annotated[Memory | None, Absent(None)] = None

    @model_validator(mode="before")
    @classmethod
    def _model_of_memory(cls, values):
        memory = values.get("memory", cls.model_fields["memory"].default)
        given = values.get("model", "baseline")
        if not memory or given not in ("baseline", "recurrent"):  # an unknown model is refused later
            return values
        return values | {"model": "baseline" if memory in NO_MEMORY else "recurrent"}

    @model_validator(mode="after")
    def _fits(self):
        if self.overlap >= self.window:
            raise ValueError(f"overlap is {self.overlap} tokens; it must be smaller than the window ({self.window})")
        if (self.memory == "overlap") != (self.overlap > 0) and self.memory in NO_MEMORY:
            raise ValueError(f"memory is {self.memory} with an overlap of {self.overlap} tokens; use overlap=0 with "
                             "memory=none, and an overlap above 0 with memory=overlap")
        if self.sequence is not None and self.steps is None:
            raise ValueError(f"sequence is {self.sequence} targets, but without steps sequences are cut by "
                             "windows_per_sequence; set steps too")
        base = PRETRAINING.plan(self.scale)[0]
        if self.base == "gpt2-mini" and self.window > base.n_positions:
            raise ValueError(f"window is {self.window} tokens, but the model's context ends at {base.n_positions}; "
                             f"choose a window of at most {base.n_positions}")
        if self.base == "gpt2-mini" and self.insert_layer >= base.n_layer:
            raise ValueError(f"insert_layer is {self.insert_layer}, but the model has layers 0 to {base.n_layer - 1}")
        if self.base == "gpt2-mini" and base.tokeniser == "cut":
            self._is_covered()
        return self

    def _is_covered(self):
        from repro.models.vocabulary import STUDY_TEXTS, covers

        n = self.train_documents if self.train_draw == "first" else None
        if not covers(self.corpus, "train", n):
            known = "; ".join(f"corpus={name}" + f" with train_documents={most} or fewer, train_draw=first" * bool(most)
                              for name, split, most in STUDY_TEXTS if split == "train")
            raise ValueError(f"train_documents is {self.train_documents} of corpus={self.corpus}, "
                             f"train_draw={self.train_draw}, but the model of scale {self.scale} has the tokens of "
                             f"other texts only; use {known}")


SCALES = {
    "smoke": {"corpus": "synthetic-books", "window": 30, "windows_per_sequence": 8, "batch_size": 8, "epochs": 0.2,
              "learning_rate": 2e-3, "warmup_steps": 20, "validate_every": 120_000},
    # 200 steps of 6,000 targets, 1.2 million in all.
    "small": {"corpus": "wikitext-103", "steps": 200, "learning_rates": (3e-4, 1e-3, 3e-3),
              "modules": ((1.0, False), (3.0, False), (1.0, True)), "selection_share": 0.2, "warmup_steps": 20,
              "decay": "linear", "validate_every": 500_000, "validation_tokens": 60_000, "validation_documents": 10,
              "precision": "bf16"},
    # Gemma 3 270M: 200 steps of 19,200 targets, 3.8 million in all. The module is in the middle of the 18 layers and
    # starts as the mean token of the previous window. Randomly initialized at the second layer, it learned nothing in
    # this time. Without normalization, at a rate of 3e-3, it carried nothing either (`recurrence-gemma`).
    "pretrained": {"corpus": "wikitext-103", "batch_size": 8, "windows_per_sequence": 8, "steps": 200,
                   "learning_rates": (4e-5, 1e-4), "modules": ((2.5, True), (10.0, True)), "selection_share": 0.1,
                   "warmup_steps": 20, "decay": "linear", "validate_every": 10_000_000, "validation_tokens": 60_000,
                   "validation_documents": 10, "precision": "bf16", "insert_layer": 9, "residual": True,
                   "zero_init": True, "normalize": True},
    "medium": {"corpus": "wikitext-103", "batch_size": 4, "learning_rates": (1e-4, 3e-4, 1e-3),
               "selection_share": 0.25, "precision": "bf16"},
    "paper": {"corpus": "wikitext-103-full", "batch_size": 4},
}
# A second, shorter window for the most important comparisons, by scale. In this window, an overlap of a sixth helps our
# fine-tuned baseline about as much as it helps the paper's (`choose-window`). 300 steps of 2 times 20 windows have
# 768,000 targets.
SECOND = {"small": {"window": 64, "batch_size": 2, "steps": 300}}


def base_runs(config) -> list[RunConfig]:
    """The pre-training run of the study's own base model; none for a published checkpoint."""
    return PRETRAINING.plan(config.scale) if config.base == "gpt2-mini" else []


def candidates(config) -> list[RunConfig]:
    """The short fine-tunings, one per learning rate (and setting of the module), that choose the settings of a baseline
    or a recurrent model.

    The choice is made on WikiText-103, on disjoint windows, for the scale's own module. Other texts, overlaps, places
    of the module and seeds reuse it (section 4). A module that is initialized in another way has its own candidates.
    """
    if config.learning_rate is not None:
        return []
    planned = [run for run in FINETUNING.plan(config.scale) if run.model == config.model]
    run = next((run for run in planned if run.window == config.window), planned[0])
    short = {"base": config.base, "epochs": run.epochs * run.selection_share, "selection_share": 1.0, "modules": ()}
    if run.steps is not None:
        short["steps"] = math.ceil(run.steps * run.selection_share)
    if other := config.residual != run.residual:
        short |= {name: getattr(config, name) for name in ("insert_layer", "residual", "normalize")}
    tried = []
    for rate in config.learning_rates:
        one = run.model_copy(update={**short, "learning_rate": rate, "learning_rates": (rate,)})
        modules = config.modules if config.model == "recurrent" else ()
        tried += [one.model_copy(update={"module_learning_rate": None if times == 1 else times * rate,
                                         "zero_init": config.zero_init if other else zero_init})
                  for times, zero_init in modules or [(1, False)]]
    return tried  # a candidate does not depend on the other rates


def held_out(config, coder):
    """The part of the validation text that a fine-tuning reads."""
    from repro.data import tokens

    text = tokens(config.corpus, "validation", coder)
    if config.validation_documents and config.validation_documents < len(text):
        text = leading(text, int(text.starts[config.validation_documents]) - (not text.joined))
    return text.heads(config.validation_head, coder) if config.validation_head else text


def leading(text, n: int | None):
    """The documents that start within the first `n` tokens, the last one cut at `n`, for their loss per token.

    Their words are not recounted.
    """
    if n is None or n >= len(text.ids):
        return text
    kept = int(np.searchsorted(text.starts, n))
    stop = n if text.joined or kept == len(text) else min(n, int(text.starts[kept]) - 1)  # without the next bos
    targets = None if text.targets is None else text.targets[:stop]
    return replace(text, ids=text.ids[:stop], targets=targets, starts=text.starts[:kept], n_words=text.n_words[:kept],
                   n_bytes=text.n_bytes[:kept])


def execute(config, context) -> Outcome:
    import torch

    from repro.data import drawn, tokens
    from repro.evaluation import score_documents
    from repro.models import load_causal_lm, save_causal_lm
    from repro.recurrence import RecurrenceConfig
    from repro.training import Sequences, TrainConfig, WindowedLM, train

    pretraining = PRETRAINING.plan(config.scale)[0]
    coder = tokeniser_of(pretraining)
    base = config.base
    if base == "gpt2-mini":
        pretrained, folder = context.need(pretraining)
        base = folder / "model"
        if pretrained.notes["tokeniser"] != coder.fingerprint:
            raise ReproError(f"base model {pretrained.id} was trained with another tokenizer, because the tokenizer's "
                             "texts have changed. Run `repro run pretrain-gpt2-mini --force`.")
    tried = [(context.need(run)[0].metrics["validation_token_loss"], run) for run in candidates(config)]
    taken = min(tried, key=lambda one: one[0])[1] if tried else config
    rate, zero_init = taken.learning_rate, taken.zero_init
    module_rate = taken.module_learning_rate if config.model == "recurrent" else None

    torch.manual_seed(config.seed)
    module = RecurrenceConfig(config.insert_layer, config.hidden_size, config.hidden_layers, config.pool,
                              config.n_embeddings, config.insert, config.layers, zero_init=zero_init,
                              residual=config.residual, normalize=config.normalize)
    memory = None if config.memory in NO_MEMORY else config.memory
    yoshida = config.model == "recurrent" and memory is None
    own = {"zero_init": True} if memory and zero_init else {}
    model = load_causal_lm(base, module if yoshida else None, memory, **own)
    if model.config.vocab_size != coder.vocab_size:
        raise ReproError(f"base={config.base} has {model.config.vocab_size:,} token ids, the tokeniser of scale "
                         f"{config.scale} {coder.vocab_size:,}; choose a checkpoint trained with that tokeniser.")
    if config.precision == "bf16" and not torch.cuda.is_available() and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation("eager")  # plain products, as in GPT-2 with a module; on a CPU faster than fused
    names = None
    if config.train_documents and config.train_draw == "random":
        names = drawn(config.corpus, "train", config.train_documents, config.seed)
    text = tokens(config.corpus, "train", coder, config.train_documents, names)
    validation = leading(held_out(config, coder), config.validation_tokens)

    def loss(objective):
        score, _ = score_documents(objective.model, validation, config.window, config.overlap)
        return score.nll / score.n_scored

    def weights(objective):
        return {f"layer_weight_{k}": w for k, w in enumerate(objective.model.recurrence.layer_weights.tolist())}

    before = 0 if config.steps is None else config.overlap
    sequences = Sequences(text.ids, targets(config), config.batch_size, config.seed, text.targets, before)
    n_tokens = int(config.epochs * len(text.ids)) if config.steps is None else (
        config.steps * sequences.tokens_per_batch)
    settings = TrainConfig(n_tokens, rate, config.warmup_steps, config.decay, validate_every=config.validate_every,
                           patience=config.patience, precision=config.precision, seed=config.seed,
                           module_learning_rate=module_rate)
    objective = WindowedLM(model, config.window, config.overlap, config.recompute, config.truncate, before)
    description = f"{config.model}, window {config.window}, overlap {config.overlap}, rate {rate:g}"
    with context.progress(settings.tokens, description, "tokens") as bar:
        result = train(objective, sequences, settings, context.folder, loss, bar,
                       watch=weights if yoshida else None)
    save_causal_lm(model, context.folder / "model")
    losses = {run.learning_rate: min(x for x, one in tried if one.learning_rate == run.learning_rate)
              for _, run in tried}
    notes = {"learning_rate": rate, "candidates": [[r, x] for r, x in losses.items()], "tokens": result.tokens,
             "steps": result.steps, "stopped_early": result.stopped_early,
             "rate_at_edge": bool(losses) and rate in (min(losses), max(losses)),
             "train_documents": len(text), "train_words": int(text.n_words.sum()), "train_tokens": len(text.ids)}
    if names:
        notes["train_names"] = list(names)
    if memory:
        notes["module_learning_rate"] = module_rate or rate
    if yoshida:
        notes |= {"layer_weights": model.recurrence.layer_weights.tolist(), "module_learning_rate": module_rate or rate,
                  "zero_init": zero_init,
                  "modules": [[one.learning_rate, one.module_learning_rate or one.learning_rate, one.zero_init, x]
                              for x, one in tried]}
    return Outcome({"validation_token_loss": result.best_loss}, {"validation_token_loss": "nats per token"},
                   config.memory or config.model, result.curves, notes=notes)


def targets(config) -> int:
    """The number of targets of a sequence, in all its windows together. Without `steps` all windows are complete."""
    if config.steps is None:
        return config.window + (config.windows_per_sequence - 1) * (config.window - config.overlap)
    return config.sequence or config.windows_per_sequence * config.window


# About, for estimates; runs count them.
TOKENS_PER_WORD = {"smoke": 1.0, "small": 1.7, "pretrained": 1.3, "medium": 1.4, "paper": 1.25}


def training_words(config) -> int:
    """Words of one epoch, from the corpus's declared counts, without reading it."""
    split = corpus_named(config.corpus).of_text().split("train")
    words = split.n_words or (split.n_bytes or 0) // 6 or 69_000 * split.n_documents  # of an average book of PG-19
    known = config.train_documents and split.n_documents
    return words * min(config.train_documents, split.n_documents) // split.n_documents if known else words


def module_parameters(config, base) -> int:
    """Weights of the recurrence module or memory; none in a baseline."""
    if config.model == "baseline":
        return 0
    if config.memory:
        return added_weights(config.memory, base)
    h, d = config.hidden_size, base.n_embd
    feedforward = (d + 1) * h + (config.hidden_layers - 1) * (h + 1) * h + (h + 1) * config.n_embeddings * d
    pooling = (config.layers == "learned") * base.n_layer + (config.pool == "attention") * d
    return pooling + feedforward


def added_weights(memory: str, base) -> int:
    """Weights of a memory in a model of these sizes, counted without making them."""
    return sum(weight.numel() for weight in without_weights(memory, base).parameters())


def without_weights(memory: str, base):
    """A memory for a model of these sizes, with its weights on the meta device."""
    import torch
    from transformers import GPT2Config

    from repro.recurrence.memories import complete, make

    with torch.device("meta"):
        return make(GPT2Config(n_layer=base.n_layer, n_embd=base.n_embd, n_head=base.n_head), complete(memory))


def estimate(config) -> Estimate:
    from repro.recompute import Plan

    base = PRETRAINING.plan(config.scale)[0]
    n = PRETRAINING.estimate(base).parameters + module_parameters(config, base)
    if config.steps is None:
        tokens = int(config.epochs * TOKENS_PER_WORD[config.scale] * training_words(config))
    else:
        tokens = config.steps * config.batch_size * targets(config)
    per_token = training_flops(base, config.window) * config.window / (config.window - config.overlap)
    if config.memory and config.memory not in NO_MEMORY:
        per_token += 3 * without_weights(config.memory, base).flops_per_token(config.window, config.overlap)
    flops = per_token * tokens
    plan = Plan(base.n_layer, base.n_embd, base.vocab_size, n, config.window, config.windows_per_sequence,
                config.batch_size, config.recompute if config.model == "recurrent" else "none", config.precision)
    faster = 4 if config.precision == "bf16" and DEVICES[config.scale] == "one CPU core" else 1  # measured
    return Estimate(n, tokens, flops, PROCESS + plan.peak, flops / RATE[config.scale] / faster)


FINETUNING = Experiment(
    name="finetune-gpt2", paper="yoshida2020", summary="Fine-tune the base model with and without recurrence.",
    config=Config, scales=SCALES, execute=execute, estimate=estimate,
    grid=lambda scale: [{"model": model} | window for window in ({}, *filter(None, [SECOND.get(scale)]))
                        for model in ("baseline", "recurrent")],
    needs=lambda config: base_runs(config) + candidates(config), models_of=base_runs,
    reads=lambda config: () if base_runs(config) else PRETRAINING.plan(config.scale)[0].tokeniser_corpora)
register(FINETUNING)
