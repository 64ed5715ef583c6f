"""Long articles to short leads (Liu et al. 2018, Tables 3 and 4, Figure 3): which model, extractor and length.

One task, four kinds of models, several extractors and lengths L. The score is the log-perplexity of the lead's tokens;
the control is the same model with another article's input. For generated articles, the best possible value is known
for the part that was read.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import PROCESS, tokeniser_of
from repro.papers.base.pretraining import Decayed
from repro.papers.base.summaries import fit
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register

Model = Literal["seq2seq", "t-ed", "t-d", "t-dmca", "gpt2-mini"]  # the last is T-D, starting from the base model
Extractor = Literal["identity", "tf-idf", "textrank", "sumbasic", "cheating"]
SAMPLES = 3  # summaries that a record keeps as text


class Config(RunConfig):
    """A model, the part of an article that it reads, its size, and how it is trained."""

    model: Model
    length: int = Field(ge=2)  # L: tokens of the extracted input that are read
    extractor: Extractor = "tf-idf"
    tokeniser: Literal["word", "bpe", "base"] = "bpe"  # "base": the base model's
    vocab_size: int | None = Field(None, ge=257)  # for "bpe"; the other tokenizers have a fixed vocabulary
    longest_target: int = Field(256, ge=1)  # tokens of a lead; the rest is cut off
    end_cut_leads: Annotated[bool, Absent(True)] = False  # whether leads that were cut have an end token, too
    n_embd: int = Field(128, ge=1)
    n_head: int = Field(4, ge=1)
    n_layer: int = Field(5, ge=1)  # layers of T-D; of encoder and decoder each, in T-ED and seq2seq
    layers: str = "LMLML"  # of T-DMCA
    block: int = Field(256, ge=1)  # tokens per block of T-DMCA's local layers
    n_experts: int = Field(0, ge=0)  # of T-DMCA
    k: int = Field(2, ge=1)  # experts per token
    expert_layers: tuple[Annotated[int, Field(ge=0)], ...] = (2,)  # counted from 0
    position_size: int = Field(32, ge=2)  # sines and cosines of a relative position
    dropout: float = Field(0.1, ge=0, lt=1)
    input_weight: float = Field(1.0, ge=0, le=1)  # weight of an input token in the loss of T-D, T-DMCA and gpt2-mini
    balance: float = Field(0.01, ge=0)  # weight of the loss that keeps experts in use
    balance_padding: Annotated[bool, Absent(True)] = False  # whether padding counts in that loss
    epochs: int = Field(6, ge=1)
    batch_size: int = Field(8, ge=1)  # articles
    learning_rate: float = Field(3e-3, gt=0)
    warmup_share: float = Field(0.05, ge=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    decayed: Decayed = "matrices"
    optimizer: Literal["adamw", "muon"] = "muon"
    precision: Literal["no", "bf16"] = "no"
    recompute: bool = False  # whether layers are recomputed in the backward pass
    n_summaries: int = Field(8, ge=0)  # test articles whose summary is written
    beam: int = Field(4, ge=1)
    alpha: float = Field(0.6, ge=0)  # length penalty
    longest_summary: int = Field(64, ge=1)  # tokens

    @model_validator(mode="after")
    def _fits(self):
        if (self.tokeniser == "bpe") != (self.vocab_size is not None):
            raise ValueError(f"tokeniser is {self.tokeniser} and vocab_size {self.vocab_size}; 'bpe' needs a size, and "
                             "other tokenizers take none")
        if (self.tokeniser == "base") != (self.model == "gpt2-mini"):
            raise ValueError(f"tokeniser is {self.tokeniser} and model {self.model}; gpt2-mini reads with the "
                             "tokeniser 'base', and no other model does")
        if self.n_experts and self.model != "t-dmca":
            raise ValueError(f"n_experts is {self.n_experts} and model {self.model}; only t-dmca has experts")
        if self.model == "seq2seq" and self.optimizer == "muon":
            raise ValueError("model is seq2seq and optimizer muon, which trains Transformer blocks only; use adamw")
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd is {self.n_embd} and n_head {self.n_head}; the width must be a multiple of the "
                             "heads")
        if self.n_experts and self.k > self.n_experts:
            raise ValueError(f"k is {self.k}, but there are {self.n_experts} experts; use 1 to {self.n_experts}")
        if set(self.layers) - {"L", "M"} or self.n_experts and max(self.expert_layers, default=99) >= len(self.layers):
            raise ValueError(f"layers is '{self.layers}' and expert_layers {self.expert_layers}; layers are L or M, "
                             "and experts must be in at least one of them, counted from 0")
        return self


def model_config(config, vocab_size: int):
    """The sizes of the model, in the config of its class. Raises ReproError for inconsistent sizes."""
    from repro.attention import Causal
    from repro.models import DecoderConfig, EncoderDecoderConfig, Seq2SeqConfig, TDMCAConfig

    size = {"n_embd": config.n_embd, "n_head": config.n_head, "dropout": config.dropout,
            "position_size": config.position_size}
    if config.model == "seq2seq":
        return Seq2SeqConfig(vocab_size, config.n_embd, config.n_layer, config.dropout)
    if config.model == "t-ed":
        return EncoderDecoderConfig(vocab_size, n_layer=config.n_layer, **size)
    if config.model == "t-d":
        return DecoderConfig(vocab_size, patterns=(Causal(),) * config.n_layer, **size)
    return TDMCAConfig(vocab_size, layers=config.layers, block=config.block, n_experts=config.n_experts, k=config.k,
                       expert_layers=config.expert_layers, **size)


def base_runs(config) -> list[RunConfig]:
    """The pre-training run that a model starts from; none for a model trained from scratch."""
    return PRETRAINING.plan(config.scale) if config.model == "gpt2-mini" else []


def tokeniser_for(config):
    """The tokenizer of the articles, or the base model's."""
    from repro.data import tokeniser

    if config.tokeniser == "base":
        return tokeniser_of(*base_runs(config))
    return tokeniser(config.tokeniser, config.vocab_size or 0, config.corpus)


def pretrained(config, context):
    """The base model, which reads input and lead as one text. Raises ReproError if they exceed its context."""
    from repro.models import OneText, Pretrained, load_causal_lm

    base, = base_runs(config)
    if config.length + config.longest_target + 1 > base.n_positions:
        raise ReproError(f"length is {config.length} and longest_target {config.longest_target} tokens, which with the "
                         f"separator exceeds the base model's context of {base.n_positions}; use a smaller length.")
    _, folder = context.need(base)
    model = load_causal_lm(folder / "model")
    if config.precision == "bf16":
        model.set_attn_implementation("eager")  # plain products: on a CPU faster than fused ones
    return OneText(Pretrained(model))


def build(config, vocab_size: int, way: str | None = None):
    """The untrained model. Attention uses plain products, the fastest implementation for short texts on a CPU.

    way: "products", which keeps the scores of later keys too, or "rows", which skips them. None: as the model is
    trained, T-DMCA with "rows" and the others with "products".
    """
    from repro.models import TDMCA, Decoder, EncoderDecoder, OneText, Seq2Seq

    size = model_config(config, vocab_size)
    if config.model == "seq2seq":
        return Seq2Seq(size)
    way = way or ("rows" if config.model == "t-dmca" else "products")
    if config.model == "t-ed":
        return EncoderDecoder(size, way, config.recompute)
    return OneText((Decoder if config.model == "t-d" else TDMCA)(size, way, config.recompute))


def flops(config, vocab_size: int, n: int, target: int) -> float:
    """Forward floating-point operations for an input of n tokens and a lead of `target`."""
    from repro.evaluation import flops_per_token

    text = n + target + 1
    if config.model == "gpt2-mini":
        base, = base_runs(config)
        return text * (flops_per_token(base.n_layer, base.n_embd, text, 0) + 2 * base.n_embd * base.vocab_size)
    size = model_config(config, vocab_size)
    return size.flops(n, target + 1) if hasattr(size, "flops") else size.flops_per_token(text) * text


def execute(config, context):
    import torch

    from repro.data import corpus
    from repro.evaluation.summaries import nats
    from repro.papers.liu2018.task import read
    from repro.training import Summaries

    source = corpus(config.corpus)
    coder = tokeniser_for(config)
    rows = {split: list(source.examples(split)) for split in ("train", "validation", "test")}
    texts = {split: read(found, coder, config.extractor, config.length, config.longest_target)
             for split, found in rows.items()}
    pairs = {split: [(one.source, one.target, one.ended or config.end_cut_leads) for one in found]
             for split, found in texts.items()}
    torch.manual_seed(config.seed)
    model = pretrained(config, context) if config.model == "gpt2-mini" else build(config, coder.vocab_size)
    n = {split: [len(target) + ended for _, target, ended in found] for split, found in pairs.items()}
    objective = Summaries(model, config.input_weight, config.balance, config.balance_padding)
    result, _ = fit(config, context, objective, pairs, coder.bos, f"training {config.model}", "articles")
    test = pairs["test"]
    others = [(test[k - 1][0], *lead) for k, (_, *lead) in enumerate(test)]  # with the preceding article's input
    documents = {"nats": nats(model, test, coder.bos).tolist(), "tokens": n["test"],
                 "other": nats(model, others, coder.bos).tolist(),
                 "words": [len(coder.decode(target).split()) for _, target, _ in test]}
    given = sum(len(one.source) for one in texts["test"]) / len(test)
    metrics = {"test_log_perplexity": sum(documents["nats"]) / sum(n["test"]),
               "other_log_perplexity": sum(documents["other"]) / sum(n["test"]),
               "tokens_read": given, "test_cut": sum(one.cut for one in texts["test"]),
               "test_nats_per_word": sum(documents["nats"]) / sum(documents["words"]),
               "parameters": sum(weight.numel() for weight in model.parameters()),
               "flops": flops(config, coder.vocab_size, round(given), round(sum(n["test"]) / len(test)))}
    if source.generator:
        seen = [coder.decode(one.source) for one in texts["test"]]
        for name, shown in (("best", seen), ("blind", [""] * len(seen))):
            documents[name] = list(map(source.generator.best_nats, rows["test"], shown))
            metrics[f"{name}_log_perplexity"] = sum(documents[name]) / sum(n["test"])
    if config.n_experts:
        metrics |= expert_use(model, test, coder.bos)
    written = summaries(config, context, model, coder, test, rows["test"])
    metrics |= {name: sum(one[name] for one in written) / len(written) for name in ("rouge_l", "repetition") if written}
    units = {name: UNITS.get(name, "nats per token of the lead") for name in metrics}
    notes = {"tokeniser": coder.fingerprint, "samples": [
        {"title": row.title, "wanted": row.summary, "told": one["text"]}
        for row, one in list(zip(rows["test"], written, strict=False))[:SAMPLES]]}
    documents |= {"rouge_l": [one["rouge_l"] for one in written]} if len(written) == len(test) else {}
    return Outcome(metrics, units, config.model, result.curves, {"test": documents}, notes)


UNITS = {"test_nats_per_word": "nats per word of the lead",
         "tokens_read": "tokens per article", "test_cut": "test articles", "parameters": "weights",
         "flops": "forward operations per article", "rouge_l": "F1 (0 to 1)", "repetition": "share of 3-grams",
         "most_used": "share of the choices", "least_used": "share of the choices"}


def summaries(config, context, model, coder, test, rows) -> list[dict]:
    """Beam search summaries of the first test articles, each with its ROUGE-L and its repetition."""
    from repro.evaluation.summaries import repetition, rouge_l, written

    made = []
    with context.progress(config.n_summaries, "writing", "summaries") as bar:
        for (given, *_), row in list(zip(test, rows, strict=True))[:config.n_summaries]:
            text = coder.decode(written(model, given, coder.bos, config.beam, config.alpha, config.longest_summary))
            made.append({"text": text, "rouge_l": rouge_l(row.summary, text), "repetition": repetition(text.split())})
            bar.advance(1)
    return made


def expert_use(model, pairs, separator: int) -> dict[str, float]:
    """The shares of the most and the least used expert among all choices, on test articles."""
    import torch

    from repro.evaluation.summaries import padded

    use, device = 0, next(model.parameters()).device
    with torch.no_grad():
        for pair in pairs:  # one at a time, so that no padding is counted
            batch = {name: part.to(device) for name, part in padded([pair], separator).items()}
            model(batch["source"], batch["lengths"], batch["ids"])
            use = use + torch.stack(list(model.decoder.use.values())).float()
    shares = use / use.sum(1, keepdim=True)
    return {"most_used": shares.max().item(), "least_used": shares.min().item()}


def weights(config, vocab_size: int) -> int:
    """The number of weights of a model."""
    if config.model != "gpt2-mini":
        return model_config(config, vocab_size).parameters
    from repro.models import parameters

    base, = base_runs(config)
    return parameters(base.n_layer, base.n_embd, base.vocab_size, base.n_positions)


KNOWN = {"synthetic-articles": (1_600, 51, 8, 80), "scisummnet-subset": (541, 5_500, 140, 8_192),
         "hotpotqa-paragraphs": (853, 1_300, 95, 8_192), "wikisum": (1_865_750, 60_000, 110, 32_000)}
RATE = {"medium": 2e13, "paper": 5e13}  # FLOP/s of training on a GPU; on one core 4e10


def estimate(config):
    n_train, whole, target, words = KNOWN.get(config.corpus, (1_000, 2_000, 100, 8_192))
    n, vocab = min(config.length, whole), config.vocab_size or words
    each = flops(config, vocab, n, target)
    total = each * n_train * (3 * config.epochs + 0.4)
    written = config.beam * min(target, config.longest_summary)  # tokens of a summary, each read once
    total += each * config.n_summaries * (1 + written / (n + target))
    parameters = weights(config, vocab)
    text = n + target
    pairs = (model_config(config, vocab).pairs_per_token(text) if config.model == "t-dmca" else
             config.n_head * config.n_layer * text)
    kept = 4 * config.batch_size * text * (config.n_layer * 40 * config.n_embd + 3 * vocab + 3 * pairs)
    return Estimate(parameters, config.epochs * n_train * (n + target), total, PROCESS + 16 * parameters + kept,
                    total / RATE.get(config.scale, 4e10))


# At smoke an input token has little weight in the loss: most of the input is noise, and the 200 steps should train the
# lead.
SCALES: dict[str, dict] = {
    "smoke": {"corpus": "synthetic-articles", "tokeniser": "word", "longest_target": 16, "n_embd": 32, "n_head": 2,
              "n_layer": 2, "layers": "LML", "block": 16, "expert_layers": (1,), "position_size": 16, "dropout": 0.0,
              "input_weight": 0.05, "epochs": 2, "batch_size": 16, "learning_rate": 2e-2, "n_summaries": 4,
              "longest_summary": 10},
    # Two articles per step: with 541 articles, eight per step left 68 steps per epoch, too few to learn to read. Leads
    # that were cut and padding are treated as in the earliest of these runs, so that all runs are comparable.
    "small": {"corpus": "scisummnet-subset", "vocab_size": 4_096, "n_embd": 64, "n_head": 2, "position_size": 16,
              "epochs": 3, "batch_size": 2, "precision": "bf16", "n_summaries": 8, "longest_summary": 128,
              "decayed": "all", "end_cut_leads": True, "balance_padding": True},
    "medium": {"corpus": "scisummnet-subset", "vocab_size": 8_192, "n_embd": 512, "n_head": 8, "n_layer": 6,
               "position_size": 64, "epochs": 20, "learning_rate": 1e-3, "precision": "bf16", "recompute": True,
               "n_summaries": 80, "longest_summary": 256},
    # transformer_base_v1 of tensor2tensor (section 5.2): 1 million steps of about 8 articles
    "paper": {"corpus": "wikisum", "vocab_size": 32_000, "n_embd": 512, "n_head": 8, "n_layer": 6,
              "position_size": 64, "epochs": 4, "learning_rate": 1e-3, "precision": "bf16", "recompute": True,
              "optimizer": "adamw", "n_summaries": 1_000, "longest_summary": 512, "longest_target": 512},
}
# The short and the long input at which models are compared, and T-DMCA's longest; then other points of Figure 3.
LENGTHS = {"smoke": (26, 51, 51), "small": (500, 1_000, 2_000), "medium": (500, 2_000, 4_000),
           "paper": (500, 4_000, 11_000)}
MORE = {"smoke": (), "small": (100, 4_096), "medium": (100, 1_000), "paper": (100, 1_000, 2_000)}
EXPERTS = {"smoke": ((4, 51),), "small": ((8, 2_000), (8, 4_096)), "medium": ((16, 4_000),),
           "paper": ((128, 11_000), (256, 7_500))}  # (experts, tokens of input)
EXTRACTORS = "cheating", "tf-idf", "identity"  # of Table 3
ALSO = {"small": ("hotpotqa-paragraphs",)}  # corpora of a second task; no claim is about them
BASE = {"small": (100, 500, 750), "medium": (100, 500, 750)}  # inputs of the base model; its context has 1,024 tokens
FROM_BASE = {"model": "gpt2-mini", "tokeniser": "base", "vocab_size": None, "epochs": 2, "optimizer": "adamw",
             "learning_rate": 1e-3, "recompute": False}
RECURRENT = {"smoke": 1e-2, "small": 2e-3, "medium": 1e-3, "paper": 1e-3}  # learning rate of seq2seq, with AdamW


def grid(scale: str) -> list[dict]:
    """Table 4 and Figure 3, then Table 3."""
    short, long, longest = LENGTHS[scale]
    # At `small`, a width that gives about as many weights as T-ED, the model it is compared with; at `paper`, the
    # paper's width (lstm_attention of tensor2tensor, section 5.2).
    seq2seq = {"smoke": {"n_layer": 1}, "small": {"n_layer": 2, "n_embd": 108},
               "paper": {"n_layer": 2, "n_embd": 128}}.get(scale, {"n_layer": 2})
    points = [{"model": "seq2seq", "length": short, "optimizer": "adamw", "learning_rate": RECURRENT[scale]} | seq2seq]
    points += [{"model": name, "length": n} for n in sorted({short, long, longest, *MORE[scale]})
               for name in ("t-ed", "t-d", "t-dmca") if n <= long or name == "t-dmca"]
    points += [{"model": "t-dmca", "length": n, "n_experts": experts} for experts, n in EXPERTS[scale]]
    points += [{"model": "t-ed", "length": short, "extractor": name} for name in EXTRACTORS]
    points += [FROM_BASE | {"length": n, "extractor": name} for n in BASE.get(scale, ())
               for name in (EXTRACTORS if n == short else ("tf-idf",))]
    return points + [{"corpus": name, "model": model, "length": n} for name in ALSO.get(scale, ())
                     for model, n in (("t-ed", short), ("t-d", short), ("t-dmca", long))]


PAPER, CHAPTER = "liu2018", "10_decoders_for_long_texts"
EXPERIMENT = Experiment(
    name="summarise", paper=PAPER, summary="Long articles to short leads: log-perplexity by model, length, extractor.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate, needs=base_runs)
register(EXPERIMENT)
