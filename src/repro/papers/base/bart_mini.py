"""The base model of LED: BART's architecture (Lewis et al. 2020), which restores damaged text.

Between 20 and 50% of a text are cut out in spans, each replaced by one <mask> ("text infilling"), and its sentences
change places. At `small` the layers start from roberta-mini's, at `pretrained` from MiniLM's, on both sides; the
decoder's attention to the encoder starts afresh.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from repro.papers.base import pretraining, roberta_mini
from repro.papers.base.pretraining import growing_batches, new_tokeniser, pretrain
from repro.study import Absent, Experiment, register

if TYPE_CHECKING:
    import numpy as np

HELD_OUT = 30_000  # tokens of the validation text that are restored
SHARE, SPAN = 0.3, 3.0  # share of the tokens that are cut out; mean tokens of a span (Lewis et al. 2020, section 2.2)
UNUSED = 2  # rows of BART's tables of positions that no token uses
DRAWS = 3  # separates the random draws of the damage from those of the text order, which use the same seed
UNITS = {"restored_nats_per_token": "nats per token of damaged text",
         "other_nats_per_token": "nats per token, with another damaged text as input"}


class Config(pretraining.Config):
    """bart-mini: tokenizer, architecture and training; `n_layer` on either side. At `paper` only `source` counts."""

    # RoBERTa's is also that of the published BART; "encoder": that of the encoder whose layers it starts from.
    tokeniser: Literal["masked-bpe", "roberta", "encoder"] = "masked-bpe"
    n_positions: int = Field(256, ge=4)
    sequence: int = Field(256, ge=4)
    # Where its layers come from; "roberta-mini": from the base model of that experiment, at `pretrained` MiniLM.
    starts: Annotated[Literal["scratch", "roberta-mini"], Absent("scratch")] = "scratch"
    embedding_std: Annotated[float, Field(gt=0), Absent(0.02)] = 0.02  # of new embeddings, standard deviation

    @model_validator(mode="after")
    def _room(self):
        if self.sequence > self.n_positions - 2:
            raise ValueError(f"sequence is {self.sequence} tokens and n_positions {self.n_positions}; <s> and </s> "
                             "take two more")
        if self.tokeniser == "encoder" and self.starts == "scratch":
            raise ValueError("tokeniser is encoder, but its layers start from scratch; use masked-bpe, or "
                             "starts=roberta-mini")
        return self


REAL = {"corpus": "books-and-wikipedia", "tokeniser_corpora": ("books-and-wikipedia",), "optimizer": "muon"}
SCALES = {
    "smoke": {"corpus": "synthetic-books", "tokeniser_corpora": ("synthetic-books", "synthetic-articles"),
              "vocab_size": 1_000, "n_layer": 2, "n_embd": 64, "n_positions": 66, "sequence": 64, "batch_size": 16,
              "growing": ((32, 0.7),), "tokens": 40_000, "learning_rate": 1e-2, "optimizer": "muon",
              "embedding_std": 0.3, "warmup_steps": 10, "validate_every": 40_000},
    "small": {**REAL, "starts": "roberta-mini", "vocab_size": 8_192, "n_layer": 4, "n_embd": 256, "n_positions": 256,
              "sequence": 254, "batch_size": 8, "tokens": 6_000_000, "learning_rate": 2e-3, "warmup_steps": 200,
              "weight_decay": 0.1, "validate_every": 1_000_000, "precision": "bf16", "weights": "bf16"},
    # At most two core hours. With AdamW, rates of 5e-4 and 1e-3 and sequences of 254 or 32 tokens, the decoder did not
    # read the damaged text after 900,000 or 160,000 tokens; with Muon, a rate of 2e-3 and sequences of 32 it did after
    # 80,000 (trials without records). Later positions stay as MiniLM has them.
    "pretrained": {"corpus": "books-and-wikipedia", "tokeniser": "encoder", "starts": "roberta-mini",
                   "vocab_size": 30_522, "n_layer": 6, "n_embd": 384, "n_head": 12, "n_positions": 512,
                   "sequence": 256, "growing": ((32, 0.3),), "batch_size": 8, "tokens": 3_000_000,
                   "learning_rate": 2e-3, "warmup_steps": 100, "weight_decay": 0.01, "optimizer": "muon",
                   "validate_every": 500_000, "precision": "bf16"},
    "paper": {"corpus": "arxiv", "source": "facebook/bart-large", "tokeniser": "roberta", "vocab_size": 50_265,
              "n_layer": 12, "n_embd": 1024, "n_head": 16, "n_positions": 1024, "sequence": 1022},
}


def base_runs(config) -> list:
    """The pre-training of roberta-mini, if layers start from it."""
    return roberta_mini.EXPERIMENT.plan(config.scale)[:1] if config.starts == "roberta-mini" else []


def tokeniser_of(config):
    """The tokenizer of a base model of this config: its own, or that of the encoder whose layers it starts from."""
    return pretraining.tokeniser_of(base_runs(config)[0] if config.tokeniser == "encoder" else config)


def ends(coder) -> tuple[int, int]:
    """The ids of the tokens that open and end a text: <s> and </s>, or BERT's [CLS] and [SEP]."""
    return coder.bos, coder.special("sep")


def new_model(config, coder):
    """A fresh BartForConditionalGeneration with a tokenizer's vocabulary and special tokens, without dropout."""
    from transformers import BartConfig, BartForConditionalGeneration

    vocab_size, (start, end) = coder.vocab_size, ends(coder)
    bart = BartForConditionalGeneration(BartConfig(
        vocab_size=vocab_size, d_model=config.n_embd, encoder_layers=config.n_layer, decoder_layers=config.n_layer,
        encoder_attention_heads=config.n_head, decoder_attention_heads=config.n_head,
        encoder_ffn_dim=4 * config.n_embd, decoder_ffn_dim=4 * config.n_embd,
        max_position_embeddings=config.n_positions, dropout=0.0, pad_token_id=coder.special("pad"),
        bos_token_id=start, eos_token_id=end, decoder_start_token_id=end, forced_eos_token_id=end))
    for name, weight in bart.named_parameters():
        if name.endswith(("shared.weight", "embed_positions.weight")):
            weight.data *= config.embedding_std / bart.config.init_std
    return bart


def from_encoder(bart, base) -> None:
    """Give the encoder and decoder of a BART the embeddings and first layers of a RoBERTa or BERT of the same width;
    attention from the decoder to the encoder keeps its weights."""
    import torch

    from repro.models.long_reader import n_positions

    source = base.base_model
    embeddings = source.embeddings
    rows = embeddings.position_embeddings.weight
    first = UNUSED - (len(rows) - n_positions(base))  # BERT's table has no unused rows
    with torch.no_grad():
        bart.model.shared.weight.copy_(embeddings.word_embeddings.weight)
        for side in bart.model.encoder, bart.model.decoder:
            table = side.embed_positions.weight[first:]
            table.copy_(rows[:len(table)] + embeddings.token_type_embeddings.weight[:1])
            side.layernorm_embedding.load_state_dict(embeddings.LayerNorm.state_dict())
            for layer, old in zip(side.layers, source.encoder.layer, strict=False):
                own, attention = layer.self_attn, old.attention
                for to, come in ((own.q_proj, attention.self.query), (own.k_proj, attention.self.key),
                                 (own.v_proj, attention.self.value), (own.out_proj, attention.output.dense),
                                 (layer.self_attn_layer_norm, attention.output.LayerNorm),
                                 (layer.fc1, old.intermediate.dense), (layer.fc2, old.output.dense),
                                 (layer.final_layer_norm, old.output.LayerNorm)):
                    to.load_state_dict(come.state_dict())


def damaged(ids: "np.ndarray", draw: "np.random.Generator", mask: int, stops: "np.ndarray") -> "np.ndarray":
    """A text (N,) with its sentences in random order, which end with one of `stops`, and spans of it replaced by one
    `mask` each; spans without tokens insert one."""
    import numpy as np

    sentences = np.split(ids, np.flatnonzero(np.isin(ids[:-1], stops)) + 1)
    ids = np.concatenate([sentences[k] for k in draw.permutation(len(sentences))])
    spans, left = [], round(SHARE * len(ids))
    while left:
        spans.append(min(left, int(draw.poisson(SPAN))))
        left -= spans[-1]
    kept = len(ids) - sum(spans)
    found, at, before = [], 0, 0
    for span, place in zip(spans, np.sort(draw.integers(0, kept + 1, len(spans))), strict=True):
        found += [ids[at:at + place - before], [mask]]
        at, before = at + place - before + span, place
    return np.concatenate([*found, ids[at:]]).astype(np.int64)


class Damaged:
    """Batches of `Sequences` or `Stages` as pairs of a damaged text and its original, for `Summaries`.

    marks: the ids that open and end a text.
    """

    unit = "tokens"

    def __init__(self, batches, mask: int, stops: "np.ndarray", seed: int = 0, marks: tuple[int, int] = (0, 2)):
        self.batches, self.mask, self.stops, self.seed, self.marks = batches, mask, stops, seed, marks
        self.batch_size, self.units_per_batch = batches.batch_size, batches.units_per_batch

    def batch(self, step: int) -> dict:
        """Batch number `step` (counted from 0, without end)."""
        import numpy as np

        rows = self.batches.batch(step)
        rows = (rows["input_ids"] if isinstance(rows, dict) else rows)[:, :-1].numpy()
        return paired(rows, self.mask, self.stops, np.random.default_rng([self.seed, step, DRAWS]), self.marks)

    def settings(self) -> dict:
        """The settings of the sequences, and of the damage."""
        return {"damaged": self.batches.settings(), "share": SHARE, "span": SPAN, "stops": self.stops.tolist(),
                "seed": self.seed}


def paired(rows: "np.ndarray", mask: int, stops: "np.ndarray", draw: "np.random.Generator",
           marks: tuple[int, int] = (0, 2)) -> dict:
    """Rows (B, N) as a batch of `padded` pairs: damaged between `marks`, and as they were."""
    from repro.evaluation.summaries import padded

    return padded([(framed(damaged(row, draw, mask, stops), marks), row) for row in rows], marks[1])


def framed(ids, marks: tuple[int, int]) -> list[int]:
    """A text between the ids that open and end it."""
    return [marks[0], *map(int, ids), marks[1]]


def sentence_ends(coder) -> "np.ndarray":
    """The ids of tokens that end a sentence."""
    import numpy as np

    return np.array([k for k in range(coder.vocab_size) if coder.decode([k]).rstrip().endswith((".", "!", "?"))], int)


def in_pairs(model):
    """A BART or LED as a model of text pairs, which `Summaries` trains and `nats` scores."""
    import torch

    from repro.models.summarisers import Read

    class InPairs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.config = model, model.config
            self.set_attn_implementation = model.set_attn_implementation

        def forward(self, source, lengths, ids):
            real = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
            return self.model(input_ids=source, attention_mask=real.long(), decoder_input_ids=ids).logits

        def read(self, source, lengths, ids, id_lengths=None):
            return Read(self(source, lengths, ids), None, 0.0)

    return InPairs()


def restored_nats(model, batches: list[dict], other: bool = False) -> float:
    """Nats per token of held-out texts; other: from the damaged text of the next row."""
    import torch

    from repro.training import Summaries

    device, total, count = next(model.parameters()).device, 0.0, 0
    objective = Summaries(model, 0.0, 0.0)
    with torch.no_grad():
        for batch in batches:
            if other:
                batch = batch | {name: batch[name].roll(1, 0) for name in ("source", "lengths")}
            n = int((batch["labels"] >= 0).sum())
            total += n * objective({name: x.to(device) for name, x in batch.items()}).item()
            count += n
    return total / count


def execute(config, context):
    import numpy as np
    import torch
    from transformers import BartForConditionalGeneration

    from repro.data import tokens
    from repro.models.long_reader import load_encoder
    from repro.training import Summaries

    coder = tokeniser_of(config) if config.tokeniser == "encoder" else new_tokeniser(config)
    if config.source != "scratch":
        bart = BartForConditionalGeneration.from_pretrained(config.source, dtype=torch.float32)
        return pretraining.outcome(config, context, NAME, bart, coder)
    torch.manual_seed(config.seed)
    bart = new_model(config, coder)
    for base in base_runs(config):
        from_encoder(bart, load_encoder(context.need(base)[1] / "model"))
    stops, mask, marks = sentence_ends(coder), coder.special("mask"), ends(coder)
    held = tokens(config.corpus, "validation", coder).ids[:HELD_OUT]
    rows = held[:len(held) // config.sequence * config.sequence].reshape(-1, config.sequence)
    draw = np.random.default_rng(DRAWS)
    held_out = [paired(rows[k:k + 8], mask, stops, draw, marks) for k in range(0, len(rows), 8)]
    batches = Damaged(growing_batches(config, tokens(config.corpus, "train", coder)), mask, stops, config.seed, marks)
    model, result, loss = pretrain(config, context, NAME, Summaries(in_pairs(bart), 0.0, 0.0), batches,
                                   lambda model: restored_nats(model, held_out))
    metrics = {"restored_nats_per_token": loss, "other_nats_per_token": restored_nats(model, held_out, other=True)}
    return pretraining.outcome(config, context, NAME, model.model, coder, result, metrics, UNITS)


def parameters(config, vocab_size: int) -> int:
    """The weights of a bart-mini."""
    width, n = config.n_embd, config.n_layer
    attention, feedforward, norm = 4 * (width + 1) * width, (8 * width + 5) * width, 2 * width
    return (vocab_size * width + 2 * (config.n_positions + 2) * width + 2 * norm
            + n * (3 * attention + 2 * feedforward + 5 * norm))


def estimate(config):
    from repro.evaluation import flops_per_token

    width = config.n_embd
    each = 3 * (2.4 * flops_per_token(config.n_layer, width, config.sequence, 0) + 2 * width * config.vocab_size)
    found = pretraining.estimate(config, parameters(config, config.vocab_size), each)
    return replace(found, seconds=found.flops / RATE) if config.scale == "pretrained" else found


RATE = 1e11  # FLOP/s in training at `pretrained`, on a CPU in bf16


NAME = "bart-mini"
EXPERIMENT = Experiment(
    name="pretrain-bart-mini", paper="longformer2020",
    summary="Pretrain the base model of LED, which restores damaged text (smoke: generated text).",
    config=Config, scales=SCALES, execute=execute, estimate=estimate, reads=lambda config: config.tokeniser_corpora,
    needs=base_runs)
register(EXPERIMENT)
