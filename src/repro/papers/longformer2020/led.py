"""Summaries of long texts by LED (Beltagy et al. 2020, section 7, Table 11, Figure 3), by how much of a text is read.

LED starts from bart-mini, whose positions are copied until they reach the longest input, and learns from texts with
their summaries. At `pretrained` both sides of bart-mini start from MiniLM. Next to it are two extracts: the first
sentences of a text, and the sentences that match its summary best, which only an oracle can choose. As a control, LED
writes each summary from another text.
"""

from typing import Literal

from pydantic import Field, model_validator

from repro.papers.base import bart_mini
from repro.papers.base.pretraining import PROCESS, Decayed
from repro.papers.base.summaries import fit
from repro.study import Estimate, Experiment, Outcome, RunConfig, register

PAPER, CHAPTER = "longformer2020", "21_led"
SPLITS = "validation", "test"
SAMPLES = 3  # summaries that a record keeps as text


class Config(RunConfig):
    """A model or an extract, how much of a text it reads, and how it is trained and writes."""

    model: Literal["led", "lead", "oracle"] = "led"  # the last two train nothing and read whole texts
    max_input: int = Field(ge=3)  # tokens that LED reads, including <s> and </s>
    window: int = Field(256, ge=2)  # keys on both sides of a token together
    longest_target: int = Field(256, ge=1)  # tokens of a summary in training; the rest is cut off
    epochs: int = Field(4, ge=1)
    batch_size: int = Field(8, ge=1)  # texts
    learning_rate: float = Field(1e-3, gt=0)
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps
    weight_decay: float = Field(0.01, ge=0)
    decayed: Decayed = "matrices"
    optimizer: Literal["adamw", "muon"] = "muon"
    precision: Literal["no", "bf16"] = "no"
    recompute: bool = False  # of layers, in the backward pass
    beam: int = Field(4, ge=1)
    written_at_once: int = Field(8, ge=1)  # texts of similar length, whose summaries are written together
    length_penalty: float = Field(1.0, ge=0)
    no_repeat: int = Field(0, ge=0)  # n-grams of so many tokens occur once in a summary; 0: no limit
    longest_summary: int = Field(256, ge=1)  # tokens that are written

    @model_validator(mode="after")
    def _fits(self):
        if self.window % 2:
            raise ValueError(f"window is {self.window} keys; it must be even, with half on each side")
        positions = base_of(self).n_positions
        if max(self.longest_target, self.longest_summary) + 1 > positions:
            raise ValueError(f"longest_target is {self.longest_target} and longest_summary {self.longest_summary} "
                             f"tokens; the base's decoder has {positions} positions, one for the start")
        return self


def base_of(config) -> RunConfig:
    """The pre-training of the BART that LED starts from."""
    return bart_mini.EXPERIMENT.plan(config.scale)[0]


def sentences(text: str) -> list[str]:
    """The sentences of a text; a line without a period is one."""
    from repro.data.clozes import sentences as split

    return [one for line in text.split("\n") for one in split(line)]


def execute(config, context) -> Outcome:
    from repro.data import corpus
    from repro.evaluation.summaries import ROUGE, rouge

    source = corpus(config.corpus)
    rows = {split: list(source.examples(split)) for split in ("train", *SPLITS)}
    texts, metrics, curves, notes = (written if config.model == "led" else extracts)(config, context, rows)
    documents: dict[str, dict[str, list[float]]] = {}
    for split, found in texts.items():
        for name, each in found.items():
            scores = [rouge(row.summary, text) for row, text in zip(rows[split], each, strict=True)]
            documents.setdefault(split, {}).update({name + key: [one[key] for one in scores] for key in ROUGE})
    for split, found in documents.items():
        first = "" if split == "test" else f"{split}_"
        metrics |= {first + key: sum(each) / len(each) for key, each in found.items()}
    notes["samples"] = [{"title": row.title, "wanted": row.summary, "told": text}
                        for row, text in list(zip(rows["test"], texts["test"][""], strict=True))[:SAMPLES]]
    units = {name: UNITS.get(name, "F1 (0 to 1)") for name in metrics}
    return Outcome(metrics, units, config.model, curves, documents, notes)


UNITS = {"validation_nats_per_token": "nats per token of the summary", "tokens_read": "tokens per test text",
         "test_cut": "test texts", "parameters": "weights"}


def extracts(config, context, rows):
    """The first sentences of each text, about as many words as a training summary has, or the oracle's choice."""
    from statistics import fmean

    from repro.evaluation.summaries import oracle

    words = fmean(len(row.summary.split()) for row in rows["train"])

    def lead(row) -> str:
        taken: list[str] = []
        for one in sentences(row.document):
            if taken and len(" ".join([*taken, one]).split()) > words:
                break
            taken.append(one)
        return "\n".join(taken)

    def best(row) -> str:
        found = sentences(row.document)
        return "\n".join(found[k] for k in oracle(row.summary, found))

    choose = lead if config.model == "lead" else best
    return {split: {"": [choose(row) for row in rows[split]]} for split in SPLITS}, {}, {}, {}


def encoded(rows, coder, config) -> list[tuple]:
    """Each text with its title, between the ids that open and end a text, and cut at `max_input` tokens; its summary;
    whether that is whole; and how many tokens the text has."""
    marks = bart_mini.ends(coder)
    found = []
    for row in rows:
        text = "\n".join(part for part in (row.title, row.document) if part)
        ids, target = coder.encode(text), coder.encode(row.summary)
        found.append((bart_mini.framed(ids[:config.max_input - 2], marks), target[:config.longest_target],
                      len(target) <= config.longest_target, len(ids) + 2))
    return found


def written(config, context, rows):
    """Summaries by a trained LED, from each text and from another text; metrics, curves and notes of its training."""
    import torch
    from transformers import BartForConditionalGeneration

    from repro.data import corpus
    from repro.models import LED, save_model
    from repro.training import Summaries

    base = base_of(config)
    coder = bart_mini.tokeniser_of(base)
    texts = {split: encoded(found, coder, config) for split, found in rows.items()}
    pairs = {split: [one[:3] for one in found] for split, found in texts.items()}
    torch.manual_seed(config.seed)
    bart = BartForConditionalGeneration.from_pretrained(context.need(base)[1] / "model", dtype=torch.float32)
    led = LED.from_bart(bart, config.max_input, config.window)
    if config.recompute:
        led.activation_checkpointing_enable()
    model = bart_mini.in_pairs(led)
    result, validate = fit(config, context, Summaries(model.train(), 0.0, 0.0), pairs, bart_mini.ends(coder)[1],
                           f"training on {config.max_input} tokens", "texts")
    save_model(led, context.folder / "model")
    found = {}
    with context.progress(sum(len(pairs[split]) for split in SPLITS), "writing", "summaries") as bar:
        for split in SPLITS:
            own = summaries(config, led, coder, [given for given, *_ in pairs[split]], bar)
            found[split] = {"": own, "other_": own[-1:] + own[:-1]}  # the control reads the text before
    lengths = [length for *_, length in texts["test"]]
    metrics = {"validation_nats_per_token": validate(Summaries(model, 0.0, 0.0)),
               "tokens_read": sum(len(given) for given, *_ in pairs["test"]) / len(lengths),
               "test_cut": sum(length > config.max_input for length in lengths),
               "parameters": sum(weight.numel() for weight in led.parameters())}
    if hasattr(generator := corpus(config.corpus).generator, "best_rouge"):
        best = [generator.best_rouge(row, coder.decode(given))
                for row, (given, *_) in zip(rows["test"], pairs["test"], strict=True)]
        metrics |= {f"best_{key}": sum(one[key] for one in best) / len(best) for key in best[0]}
    return found, metrics, result.curves, {"tokeniser": coder.fingerprint}


def summaries(config, led, coder, inputs: list[list[int]], bar) -> list[str]:
    """A summary of each of these inputs, written by a LED; inputs of similar length are read together."""
    import torch

    from repro.ids import evaluating

    found = [""] * len(inputs)
    order = sorted(range(len(inputs)), key=lambda k: len(inputs[k]))
    with torch.no_grad(), evaluating(led):
        for start in range(0, len(order), config.written_at_once):
            chosen = order[start:start + config.written_at_once]
            lengths = torch.tensor([len(inputs[k]) for k in chosen])
            ids = torch.full((len(chosen), int(lengths.max())), led.config.pad_token_id)
            for row, k in zip(ids, chosen, strict=True):
                row[:len(inputs[k])] = torch.tensor(inputs[k])
            real = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
            made = led.generate(
                input_ids=ids.to(led.device), attention_mask=real.to(led.device), num_beams=config.beam,
                length_penalty=config.length_penalty, no_repeat_ngram_size=config.no_repeat,
                max_new_tokens=config.longest_summary)
            for k, row in zip(chosen, made.tolist(), strict=True):
                found[k] = coder.decode(row).strip()
            bar.advance(len(chosen))
    return found


# Training texts; tokens of a text and of its summary.
KNOWN = {"synthetic-articles": (1_600, 64, 8), "scisummnet-subset": (541, 5_500, 140), "arxiv": (203_037, 8_600, 290)}
RATE = {"smoke": 2e10, "small": 1e11, "pretrained": 1e11}  # FLOP/s in training


def estimate(config):
    if config.model != "led":
        return Estimate(0, 0, 0.0, 2**29, 60.0)
    from repro.evaluation import flops_per_token

    base = base_of(config)
    n_train, whole, target = KNOWN.get(config.corpus, (1_000, 4_000, 200))
    n, width = min(config.max_input, whole), base.n_embd
    encoder = n * flops_per_token(base.n_layer, width, min(n, config.window), 0)
    decoder = target * (1.3 * flops_per_token(base.n_layer, width, target, 0) + 2 * width * base.vocab_size
                        + 4 * base.n_layer * n * width) + 4 * base.n_layer * n * width**2
    flops = n_train * (encoder + decoder) * (3 * config.epochs + 1)
    weights = bart_mini.parameters(base, base.vocab_size) + (config.max_input - base.n_positions) * width
    states = base.n_layer + 40 if config.recompute else 40 * base.n_layer  # of a token, each as wide as the model
    kept = 4 * config.batch_size * (n + 2 * target) * states * width
    return Estimate(weights, config.epochs * n_train * (n + target), flops, PROCESS + 16 * weights + kept,
                    flops / RATE.get(config.scale, 1e13))


SCALES = {
    "smoke": {"corpus": "synthetic-articles", "window": 8, "longest_target": 16, "epochs": 1, "batch_size": 12,
              "learning_rate": 2e-2, "written_at_once": 64, "longest_summary": 12},
    "small": {"corpus": "scisummnet-subset", "window": 256, "longest_target": 254, "epochs": 3, "batch_size": 2,
              "precision": "bf16", "no_repeat": 3, "longest_summary": 200},
    "pretrained": {"corpus": "scisummnet-subset", "window": 256, "longest_target": 254, "epochs": 3, "batch_size": 2,
                   "learning_rate": 3e-4, "precision": "bf16", "no_repeat": 3, "longest_summary": 200},
    # The paper gives the windows, the lengths, beam search and teacher forcing, but no rate, passes or batch.
    "paper": {"corpus": "arxiv", "window": 1024, "longest_target": 512, "epochs": 2, "batch_size": 4,
              "learning_rate": 5e-5, "optimizer": "adamw", "precision": "bf16", "recompute": True, "no_repeat": 3,
              "longest_summary": 512},
}
LENGTHS = {"smoke": (18, 34, 66), "small": (256, 1_024, 4_096), "pretrained": (256, 1_024, 4_096),
           "paper": (1_024, 4_096, 16_384)}


def grid(scale: str) -> list[dict]:
    """LED at each length of Figure 3, then the extracts."""
    longest = LENGTHS[scale][-1]
    return [*({"model": "led", "max_input": n} for n in LENGTHS[scale]),
            *({"model": name, "max_input": longest} for name in ("lead", "oracle"))]


EXPERIMENT = Experiment(
    name="led-summarization", paper=PAPER, summary="Summaries of long texts by how much of them is read: ROUGE.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate,
    needs=lambda config: [base_of(config)] if config.model == "led" else [])
register(EXPERIMENT)
