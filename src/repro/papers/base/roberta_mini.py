"""The base model that the encoder chapters start from: RoBERTa's architecture, which fills in what is masked.

It is trained on gpt2-mini's text, at `small` in three stages, and has the same size. A step costs less, because the
output layer applies only to the 15% of tokens that are predicted. Its metric, bits per masked token, is what Beltagy
et al. (2020) print as BPC.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base import pretraining
from repro.papers.base.pretraining import growing_batches, new_tokeniser, pretrain
from repro.study import Absent, Experiment, register
from repro.study.settings import canonical, validated

HELD_OUT = 120_000  # tokens of the validation text, of which 15% are predicted
SCORED = 8  # sequences at a time
UNITS = {"frequency_bits_per_token": "bits per masked token that frequencies alone leave",
         "spread_bits_per_token": "bits per masked token, over all of the held-out text",
         "again_bits_per_token": "bits per masked token of a passage that is read a second time",
         "again_bits_saved": "bits per masked token, against another passage in front"}
MASK_SEED = 0  # of the masks of held-out text, the same for every model


SPREAD = 128  # sequences of the validation text, evenly over all of it, which is more than one book
# Settings of training, not of the architecture.
TRAINING = {"continues", "tokens", "batch_size", "growing", "sinusoids", "learning_rate", "warmup_steps",
            "weight_decay", "decayed", "validate_every", "optimizer", "precision"}


class Config(pretraining.Config):
    """roberta-mini: tokenizer, architecture and training. At `pretrained` and `paper` only `source` counts."""

    tokeniser: Literal["masked-bpe", "roberta", "own"] = "masked-bpe"  # "own": that of the published model `source`
    n_positions: int = Field(512, ge=2)
    sequence: int = Field(512, ge=3)  # tokens per training sequence, including <s> and </s>
    # The amplitude of the waves that initialize positions; None: random.
    sinusoids: Annotated[float | None, Field(gt=0), Absent(None)] = None
    # The settings (of TRAINING) in which the run whose weights it starts from differs; that run may continue another.
    # None: it starts from scratch.
    continues: Annotated[dict[str, Any] | None, Absent(None)] = None

    @model_validator(mode="after")
    def _starts(self):
        if self.continues is not None and self.sinusoids is not None:
            raise ValueError(f"sinusoids is {self.sinusoids}, but a run that continues another starts from its "
                             "positions; set sinusoids=null, or continues=null")
        if strange := sorted({*(self.continues or {})} - TRAINING):
            raise ValueError(f"continues has {strange[0]}={self.continues[strange[0]]!r}; the continued run may differ "
                             f"only in {', '.join(sorted(TRAINING))}")
        return self

    def __hash__(self) -> int:
        return hash(canonical(self.settings()))  # a dict has no hash of its own


def earlier(config) -> Config | None:
    """The run whose weights this one starts from. Raises ReproError, in one line, for settings that do not fit."""
    if config.continues is None:
        return None
    return validated(Config, {**config.model_dump(), "continues": None, **config.continues})


def chain(config) -> list[Config]:
    """The runs behind its weights, from the first, which started from scratch, to itself."""
    before = earlier(config)
    return [*(chain(before) if before else ()), config]


REAL = {"corpus": "books-and-wikipedia", "tokeniser_corpora": ("books-and-wikipedia",), "optimizer": "muon",
        "precision": "bf16", "weights": "bf16", "weight_decay": 0.1, "growing": ((128, 0.5),)}
# FIRST, the recipe of gpt2-mini, gets a model little further than token frequencies. With SHORT it learns to look at
# its neighbors with a quarter of the tokens: more sequences are short, and positions start as waves. But too few whole
# sequences remain to train the positions beyond the 128th, so the chosen model reads on.
FIRST = {"growing": REAL["growing"], "sinusoids": None, "batch_size": 8, "tokens": 60_000_000}
SHORT = {"growing": ((32, 0.3), (128, 0.4)), "sinusoids": 0.05, "tokens": 14_000_000}
SECOND = {"continues": SHORT}  # `small` continues this run, which itself continues SHORT
ANEW = {"continues": None}
SCALES = {
    # Enough ids to make every word a token. With AdamW, fewer layers or longer sequences it learns no topics in time.
    "smoke": {"corpus": "synthetic-books", "tokeniser_corpora": ("synthetic-books",), "vocab_size": 940, "n_layer": 3,
              "n_embd": 64, "n_positions": 64, "sequence": 64, "batch_size": 16, "growing": ((32, 0.7),),
              "tokens": 500_000, "learning_rate": 1e-2, "optimizer": "muon", "warmup_steps": 20,
              "validate_every": 500_000},
    "small": {**REAL, "vocab_size": 8192, "n_layer": 6, "n_embd": 256, "batch_size": 4, "tokens": 12_000_000,
              "growing": (), "continues": SECOND, "decayed": "all", "learning_rate": 3e-3, "warmup_steps": 200,
              "validate_every": 2_000_000},
    # MiniLM-L6, six layers of BERT's architecture: a real encoder that one core can train. It has no dropout, like our
    # own base models: on a CPU a training step then takes a third of the time.
    "pretrained": {"corpus": "hotpotqa-subset", "source": "minilm-l6", "tokeniser": "own", "vocab_size": 30_522,
                   "n_layer": 6, "n_embd": 384, "n_head": 12},
    "medium": {**REAL, "vocab_size": 16_384, "n_layer": 8, "n_embd": 512, "n_head": 8, "batch_size": 128,
               "tokens": 300_000_000, "learning_rate": 1e-3, "warmup_steps": 500, "validate_every": 20_000_000},
    "paper": {"corpus": "gutenberg-pretrain", "source": "FacebookAI/roberta-base", "tokeniser": "roberta",
              "vocab_size": 50_265, "n_layer": 12, "n_embd": 768, "n_head": 12},
}


def execute(config, context):
    import torch

    from repro.data import tokens
    from repro.models import load_masked_lm, pretrained, roberta_mini
    from repro.training import Masked, MaskedLM

    if config.tokeniser == "own":
        model, coder = pretrained.load(config.source)
        model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.0
        return pretraining.outcome(config, context, NAME, model, coder)
    coder, before = new_tokeniser(config), earlier(config)
    if config.source != "scratch":
        return pretraining.outcome(config, context, NAME, load_masked_lm(config.source), coder)
    torch.manual_seed(config.seed)
    if before:
        first_record, folder = context.need(before)
        model = load_masked_lm(folder / "model")
    else:
        model = roberta_mini(config.n_layer, config.n_embd, config.n_head, coder.vocab_size, config.n_positions,
                             config.sinusoids)
    held = tokens(config.corpus, "validation", coder)
    held_out = held_out_batches(held.ids[:HELD_OUT], config.sequence, coder.mask + 1,
                                None if held.targets is None else held.targets[:HELD_OUT])
    text = tokens(config.corpus, "train", coder)
    seed = config.seed + len(chain(config)) - 1  # not the order and masks of an earlier run
    batches = Masked(growing_batches(config, text, seed), coder.mask + 1, seed)
    model, result, loss = pretrain(config, context, NAME, MaskedLM(model), batches,
                                   lambda model: masked_loss(model, held_out))
    everywhere, targets = spread(held.ids, config.sequence, SPREAD, held.targets)
    metrics = {"masked_bits_per_token": loss / math.log(2),
               "frequency_bits_per_token": frequency_bits(text.ids, held_out, coder.mask + 1),
               "spread_bits_per_token": masked_loss(model, held_out_batches(
                   everywhere, config.sequence, coder.mask + 1, targets)) / math.log(2)}
    again, other = (masked_loss(model, batches) / math.log(2) for batches in said_twice(
        everywhere.reshape(-1, config.sequence), coder.mask + 1))
    metrics |= {"again_bits_per_token": again, "again_bits_saved": other - again}
    outcome = pretraining.outcome(config, context, NAME, model, coder, result, metrics,
                                  {name: UNITS.get(name, "bits per masked token") for name in metrics})
    if before:
        outcome.notes["tokens"] += first_record.notes["tokens"]  # all tokens that the weights have seen
    return outcome


def held_out_batches(ids, sequence: int, vocab_size: int, targets=None) -> list:
    """A text (N,) in sequences that do not overlap, with fixed masks; an incomplete last sequence is left out.

    targets (N,): which tokens are to be predicted; None: all.
    Raises ReproError for a text that is shorter than a sequence.
    """
    import numpy as np

    from repro.training import masked

    if len(ids) < sequence:
        raise ReproError(f"{len(ids):,} tokens of held-out text are fewer than one sequence of {sequence}.")
    targets = np.ones(len(ids), bool) if targets is None else targets
    rows, allowed = (x[:len(ids) // sequence * sequence].reshape(-1, sequence) for x in (ids, targets))
    draw = np.random.default_rng(MASK_SEED)
    return [masked(rows[k:k + SCORED], vocab_size, draw, allowed[k:k + SCORED]) for k in range(0, len(rows), SCORED)]


def spread(ids, sequence: int, n: int, targets=None):
    """Up to `n` sequences of a text (N,), spread evenly from its beginning to its end, as one text; and the matching
    part of `targets` (N,), the tokens to be predicted."""
    import numpy as np

    if len(ids) < sequence:
        raise ReproError(f"{len(ids):,} tokens of held-out text are fewer than one sequence of {sequence}.")
    starts = np.linspace(0, len(ids) - sequence, min(n, len(ids) // sequence)).astype(int)
    chosen = (starts[:, None] + np.arange(sequence)).ravel()
    return ids[chosen], None if targets is None else targets[chosen]


def said_twice(rows, vocab_size: int) -> tuple[list, list]:
    """Rows (n, N) of held-out text with their beginning repeated, 15% of the repetition masked; and the same rows with
    the beginning of another row in front. The gain of the first over the second comes from looking up.
    """
    import numpy as np

    from repro.training import masked
    from repro.training.masking import SHARE

    half = (rows.shape[1] - 2) // 2
    begun = rows[:, 1:1 + half]
    hidden = np.random.default_rng(MASK_SEED).random(begun.shape).argsort(1)[:, :max(1, round(SHARE * half))]
    allowed = np.zeros(rows.shape, bool)
    np.put_along_axis(allowed, 1 + half + hidden, True, 1)

    def after(front) -> list:
        read, draw = rows.copy(), np.random.default_rng(MASK_SEED)
        read[:, 1:1 + half], read[:, 1 + half:1 + 2 * half] = front, begun
        return [masked(read[k:k + SCORED], vocab_size, draw, allowed[k:k + SCORED])
                for k in range(0, len(read), SCORED)]

    return after(begun), after(np.roll(begun, 1, 0))


def frequency_bits(ids, batches: list, vocab_size: int) -> float:
    """Mean -log2 p of the masked tokens of `batches`, where p is the frequency of each token in `ids` (N,) with one
    added to each count: the loss of a model that looks at no context.

    >>> import numpy as np, torch
    >>> round(frequency_bits(np.array([0, 0]), [{"targets": torch.tensor([[0, -100, 1]])}], 2), 3)  # 3/4 and 1/4
    1.208
    """
    import numpy as np

    counts = np.bincount(ids, minlength=vocab_size) + 1
    hidden = np.concatenate([batch["targets"][batch["targets"] >= 0].numpy() for batch in batches])
    return float(-np.log2(counts[hidden] / counts.sum()).mean())


def masked_loss(model, batches: list) -> float:
    """Nats per masked token."""
    import torch

    from repro.cpu import exact_products
    from repro.training import MaskedLM

    device, total, count = next(model.parameters()).device, 0.0, 0
    with torch.no_grad(), exact_products(model, batches[0]["ids"].numel(), device):
        for batch in batches:
            n = int((batch["targets"] >= 0).sum())
            total += n * MaskedLM(model)({name: x.to(device) for name, x in batch.items()}).item()
            count += n
    return total / count


def estimate(config):
    from repro.models import roberta_parameters
    from repro.models.pretrained import declared

    n = (declared(config.source).parameters if config.tokeniser == "own" else
         roberta_parameters(config.n_layer, config.n_embd, config.vocab_size, config.n_positions))
    return pretraining.estimate(config, n, masked_training_flops(config, config.sequence))


def masked_training_flops(config, window: int) -> float:
    """FLOPs of one training token: three times the forward pass; the output layers at 15% of the tokens.

    Attention looks both ways, at twice as many keys as a decoder's.
    """
    from repro.evaluation import flops_per_token
    from repro.training.masking import SHARE

    both_ways = 2 * config.n_layer * window * config.n_embd
    output = 2 * config.n_embd * (config.vocab_size + config.n_embd)
    return 3 * (flops_per_token(config.n_layer, config.n_embd, window, 0) + both_ways + SHARE * output)


NAME = "roberta-mini"
EXPERIMENT = Experiment(
    name="pretrain-roberta-mini", paper="longformer2020",
    summary="Pretrain the encoders' base model on books and Wikipedia (smoke: generated text).",
    config=Config, scales=SCALES, execute=execute, estimate=estimate, reads=lambda config: config.tokeniser_corpora,
    needs=lambda config: [before] if (before := earlier(config)) else [],
    grid=lambda scale: [{}, *[SECOND, SHORT | ANEW, FIRST | ANEW] * (scale == "small")])
register(EXPERIMENT)
