"""MiniLM made into a Longformer by more masked-token training, as the paper does with RoBERTa (section 5).

MiniLM comes without a head that predicts tokens. So the first stage trains one, tied to the embeddings, while the body
stays as it is. The second stage copies the positions and goes on with longer texts: with all weights, or with the new
positions alone.
"""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from repro.papers.base.models import EXPERIMENTS
from repro.papers.base.pretraining import PROCESS, tokeniser_of
from repro.study import Estimate, Experiment, Outcome, RunConfig, register

if TYPE_CHECKING:
    import numpy as np

PRETRAINING = EXPERIMENTS["roberta-mini"]
SCORED = 65_536  # tokens of held-out text
SEED = 1  # of its masks


class Config(RunConfig):
    """The weights that are trained, for how long, and on which text."""

    stage: Literal["head", "all", "positions"]
    window: int = Field(256, ge=2)  # keys on both sides of a token together
    max_positions: int = Field(2_048, ge=2)
    tokens: int = Field(1, ge=1)  # read in training
    batch_tokens: int = Field(8_192, ge=1)  # in a step
    learning_rate: float = Field(1e-3, gt=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps; then a polynomial of power 3 to 0
    precision: Literal["no", "bf16"] = "bf16"
    scored_corpus: str = "pg19-subset"


def base_of(config: Any) -> RunConfig:
    """The run that leaves the encoder."""
    return PRETRAINING.plan(config.scale)[0]


def head_of(config: Any) -> RunConfig | None:
    """The run that trains the head; None for that run itself."""
    return None if config.stage == "head" else EXPERIMENT.plan(config.scale, {"stage": "head"})[0]


def execute(config, context) -> Outcome:
    import torch

    from repro.attention import Full
    from repro.data import tokens
    from repro.models import Longformer, longformer_from, save_model
    from repro.models.long_reader import load_encoder
    from repro.training import MaskedLM, TrainConfig, train

    base, coder = base_of(config), tokeniser_of(base_of(config))
    torch.manual_seed(config.seed)
    encoder = load_encoder(context.need(base)[1] / "model")
    if config.stage == "head":
        length, model = base.n_positions, longformer_from(encoder, base.n_positions, Full())
        train_head_only(model)
    else:
        length, model = config.max_positions, longformer_from(encoder, config.max_positions, config.window)
        head = Longformer.from_pretrained(context.need(head_of(config))[1] / "model").lm_head
        model.lm_head.load_state_dict(head.state_dict())
        if config.stage == "positions":
            model.learn_positions_only(base.n_positions)
    order = roberta_order(coder)
    text = tokens(config.corpus, "train", coder)
    batches = MaskedBert(text.ids, order, length, config.batch_tokens // length, config.seed)
    steps = config.tokens // batches.units_per_batch
    settings = TrainConfig(config.tokens, config.learning_rate, int(config.warmup_share * steps), "cubic", 0.0,
                           validate_every=config.tokens, precision=config.precision, seed=config.seed)
    with context.progress(config.tokens, f"training {config.stage}", "tokens") as bar:
        result = train(MaskedLM(model.train()), batches, settings, context.folder / "training", progress=bar)
    save_model(model, context.folder / "model")
    held = tokens(config.scored_corpus, "validation", coder).ids[:SCORED]
    metrics = {"masked_bits_per_token": masked_bits(model, MaskedBert(held, order, length, 1, SEED)),
               "parameters": sum(weight.numel() for weight in model.parameters())}
    return Outcome(metrics, {"masked_bits_per_token": "bits per masked token", "parameters": "weights"}, config.stage,
                   result.curves, notes={"tokeniser": coder.fingerprint, "train_tokens": len(text.ids)})


def train_head_only(model) -> None:
    """Freeze everything except the head's own weights; its output matrix is that of the embeddings."""
    model.requires_grad_(False)
    for part in (model.lm_head.dense, model.lm_head.layer_norm):
        part.requires_grad_(True)
    model.lm_head.bias.requires_grad_(True)


def roberta_order(coder) -> "np.ndarray":
    """BERT's ids (V,) in the layout of RoBERTa, which masking expects: start, padding, end and unknown first, the mask
    last."""
    import numpy as np

    first, last = [coder.bos, *map(coder.special, ("pad", "sep", "unk"))], coder.special("mask")
    others = np.setdiff1d(np.arange(coder.vocab_size), [*first, last])
    return np.concatenate([first, others, [last]])


class MaskedBert:
    """`repro.training.Masked` for ids (N,) of BERT's tokenizer, with its own special tokens."""

    unit = "tokens"

    def __init__(self, ids: "np.ndarray", order: "np.ndarray", length: int, batch_size: int, seed: int):
        import numpy as np
        import torch

        from repro.training import Masked, Sequences

        self.order = torch.from_numpy(order)
        self.masked = Masked(Sequences(np.argsort(order)[ids], length, batch_size, seed), len(order), seed)
        self.batch_size, self.units_per_batch = self.masked.batch_size, self.masked.units_per_batch

    def batch(self, step: int) -> dict:
        """Batch number `step`, in BERT's ids."""
        found = self.masked.batch(step)
        targets = found["targets"]
        return found | {"ids": self.order[found["ids"]],
                        "targets": self.order[targets.clamp(min=0)].where(targets >= 0, targets)}

    def settings(self) -> dict:
        """The settings of the masked sequences."""
        return {"bert": self.masked.settings()}


def masked_bits(model, batches: MaskedBert) -> float:
    """Bits per masked token over one pass of held-out text."""
    from math import log

    import torch

    from repro.cpu import exact_products
    from repro.training import MaskedLM

    device = next(model.parameters()).device
    steps = max(1, SCORED // batches.units_per_batch - 1)
    total = count = 0
    with torch.no_grad(), exact_products(model, batches.units_per_batch, device):
        for step in range(steps):
            batch = {name: x.to(device) for name, x in batches.batch(step).items()}
            n = int((batch["targets"] >= 0).sum())
            total, count = total + n * float(MaskedLM(model)(batch)), count + n
    return total / count / log(2)


RATE = {"pretrained": 1.8e11}  # FLOP/s in training


def estimate(config):
    from repro.evaluation import flops_per_token
    from repro.training.masking import SHARE

    base = base_of(config)
    seen = base.n_positions if config.stage == "head" else config.window
    forward = (flops_per_token(base.n_layer, base.n_embd, seen, 0) + 2 * base.n_layer * seen * base.n_embd
               + SHARE * 2 * base.n_embd * (base.vocab_size + base.n_embd))
    flops = forward * ((1 if config.stage == "head" else 3) * config.tokens + SCORED)
    n = PRETRAINING.estimate(base).parameters + config.max_positions * base.n_embd + 4 * base.n_layer * base.n_embd**2
    kept = 4 * config.batch_tokens * (34 * base.n_layer * base.n_embd + SHARE * 3 * base.vocab_size)
    return Estimate(n, config.tokens, flops, int(PROCESS + 16 * n + kept), flops / RATE[config.scale])


# A head learns fast; the body, which is trained, changes little.
STAGES = {"head": {"tokens": 2_000_000, "learning_rate": 1e-3}, "all": {"tokens": 1_000_000, "learning_rate": 5e-5},
          "positions": {"tokens": 1_000_000, "learning_rate": 5e-4}}


def grid(scale: str) -> list[dict]:
    """The three stages."""
    return [{"stage": name} | settings for name, settings in STAGES.items()]


EXPERIMENT = Experiment(
    name="minilm-to-longformer", paper="longformer2020", config=Config, execute=execute, estimate=estimate, grid=grid,
    scales={"pretrained": {"corpus": "gutenberg-pretrain"}},
    summary="MiniLM made into Longformer: a head that predicts tokens, then longer texts.",
    needs=lambda config: [base_of(config), *([head_of(config)] if head_of(config) else [])],
    reads=lambda config: (config.scored_corpus, *PRETRAINING.reads(base_of(config))))
register(EXPERIMENT)
