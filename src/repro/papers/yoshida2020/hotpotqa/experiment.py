"""Questions about ten paragraphs (Yoshida et al. 2020, section 5.4 and Table 3): windows read alone, or with h_prev.

Both readers are the same encoder, RoBERTa or at `pretrained` MiniLM, fine-tuned on the same questions in the same
order. The recurrent reader carries a vector from window to window. Its controls read with its module masked, and with
the states of another question. As a positive control, the reader of single windows also reads the two supporting
paragraphs together in one window and apart in two, next to the same other paragraphs. Recurrence could win back the
score that this reader loses when they are apart. It also reads every text with another text's question. For generated
questions, the best score is known for both ways of reading.
"""

import random
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from operator import ne
from textwrap import shorten
from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.papers.base.models import EXPERIMENTS
from repro.papers.base.pretraining import PROCESS, Decayed, tokeniser_of
from repro.papers.base.punctuation import Punctuation, tidied
from repro.papers.yoshida2020.hotpotqa.reading import Asked, asked, by_window, padded, read_by, states_of_others
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.settings import validated

PRETRAINING = EXPERIMENTS["roberta-mini"]
PAPER, CHAPTER = "yoshida2020", "09_hotpotqa"
BASELINE, RECURRENT = "baseline", "recurrent"


class Config(RunConfig):
    """A reader: its module, its training data and its training."""

    model: Literal["baseline", "recurrent"]
    punctuation: Punctuation = "plain"  # of all questions and their texts; plain, as in the base model's texts
    window: int = Field(512, ge=8)  # tokens, including the question's and three special ones
    insert_layer: int = Field(1, ge=0)  # counted from 0: 1 is the second
    hidden_size: int = Field(768, ge=1)  # of the module's feedforward network
    hidden_layers: int = Field(1, ge=1)
    n_train: int | None = Field(None, ge=2)  # training questions, drawn at random; None: all
    # Training questions that choose the learning rate and the epoch; 0: the last epoch is kept.
    held_out: int = Field(300, ge=0)
    search_train: int = Field(900, ge=2)  # other training questions on which rates are tried, in one epoch
    rates: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1)  # learning rates to choose from
    learning_rate: float | None = Field(None, gt=0)  # None: the best of `rates`
    epochs: int = Field(3, ge=1)
    batch_size: int = Field(8, ge=2)  # questions
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps; then the rate falls linearly to 0
    weight_decay: float = Field(0.01, ge=0)
    decayed: Decayed = "matrices"
    optimizer: Literal["adamw", "muon"] = "adamw"
    precision: Literal["no", "bf16"] = "no"
    recompute: Literal["none", "window"] = "none"
    scored_in: Annotated[Literal["no", "bf16"], Absent("no")] = "no"  # precision in which a trained reader is scored
    # Whether the mean input of `insert_layer` in the previous window is added to h_prev, and the module's last layer
    # starts at 0: h_prev then starts as an average token.
    mean_token: Annotated[bool, Absent(False)] = False
    module_learning_rate: Annotated[float | None, Field(gt=0), Absent(None)] = None  # None: the reader's

    @model_validator(mode="after")
    def _fits(self):
        base = base_of(self)
        if self.n_train is not None and self.n_train < self.held_out + self.batch_size:
            raise ValueError(f"n_train is {self.n_train} and {self.held_out} of these are held out; at least a batch "
                             f"of {self.batch_size} must remain")
        if len(self.rates) > 1 and not self.held_out:
            raise ValueError(f"held_out is 0, but held-out questions must choose among {len(self.rates)} rates")
        if self.window > base.n_positions:
            raise ValueError(f"window is {self.window} tokens, but the base model has n_positions={base.n_positions}")
        if self.insert_layer >= base.n_layer:
            raise ValueError(f"insert_layer is {self.insert_layer}, but the base model has layers 0 to "
                             f"{base.n_layer - 1}")
        return self


def base_of(config) -> RunConfig:
    """The pre-training that both readers start from."""
    return PRETRAINING.plan(config.scale)[0]


def execute(config, context) -> Outcome:
    from repro.data import corpus
    from repro.models import save_model

    source, coder = corpus(config.corpus), tokeniser_of(base_of(config))
    choosing, rows = set_apart(config)
    rate = best_rate(config, context)
    model, result, notes = trained(config, context, rows, coder, rate, config.epochs, choosing)
    held = prepared(map(tidied(config), source.examples("validation")), coder, config.window, must_stand=False)[0]
    variants, asks = {"": {}, "masked_": {"recurrent": False}, "other_": {}}, {}
    if config.model == BASELINE:
        variants = {"": {"recurrent": False}, "swapped_": {"recurrent": False}}
        asks["swapped_"] = swapped(held, coder, config.window)
    else:
        with scoring(config, model):
            variants["other_"]["given"] = states_of_others(model, held, config.batch_size)
    documents = {"distance": [one.distance for one in held], "windows": [len(one.windows) for one in held],
                 "guess_answer_nats": guessed(held, rows)}
    every = {}
    with context.progress(len(variants) * len(held), "answering", "questions") as bar, scoring(config, model):
        for name, way in variants.items():
            questions = asks.get(name, held)
            every[name] = answers = read_by(model, questions, batch_size=config.batch_size, progress=bar, **way)
            documents |= scored(questions, answers, name)
            if not name:
                samples = [{"question": one.question.question, "wanted": one.question.answer, "told": answer}
                           for one, (answer, _) in list(zip(held, answers, strict=True))[:SAMPLES]]
    if config.model == RECURRENT:
        with scoring(config, model):
            notes["by_window"] = window_by_window(model, held, *([answer for answer, _ in every[name]]
                                                                 for name in ("", "masked_")))
    metrics = {f"{name}{score}": _mean(documents[f"{name}{score}"]) for name in variants for score in SCORES}
    metrics["guess_answer_nats"] = _mean(documents["guess_answer_nats"])
    if choosing:
        after = [nats for _, nats in result.curves["validation_loss"]]
        metrics |= {"held_out_answer_nats": min(after), "epochs_kept": 1 + after.index(min(after))}
    split = {"validation": documents}
    if config.model == BASELINE:
        with scoring(config, model):
            found = assay(config, model, [one.question for one in held], coder)
        split |= {"assay": found} if found else {}
        metrics |= {name: _mean(values) for name, values in found.items()}
    if source.generator:
        best = source.generator.best_score
        alone = _mean([100 * best(one.question, one.texts) for one in held])
        everything = _mean([100 * best(one.question) for one in held])
        metrics |= {"best_alone": alone, "best_together": everything}
        if everything > alone:
            metrics["share_recovered"] = (metrics["answer_exact_match"] - alone) / (everything - alone)
    added = sum(weight.numel() for weight in model.added_parameters()) if config.model == BASELINE else 0  # unused
    metrics |= {"learning_rate": rate, "parameters": sum(weight.numel() for weight in model.parameters()) - added,
                "train_questions": len(rows) - notes["left_out"]}
    units = {name: unit(name) for name in metrics}
    save_model(model, context.folder / "model")
    return Outcome(metrics, units, config.model, result.curves, split,
                   notes | {"tokeniser": coder.fingerprint, "samples": samples})


def scoring(config, model) -> AbstractContextManager:
    """A context in which a trained reader computes in the precision in which it is scored."""
    import torch

    return torch.autocast(model.device.type, torch.bfloat16, enabled=config.scored_in == "bf16")


def swapped(questions: list[Asked], coder, window: int) -> list[Asked]:
    """The same texts and answers, each with the next text's question: a reader that is still right ignores its
    question."""
    return [asked(replace(one.question, question=other.question.question), coder, window, must_stand=False)
            for one, other in zip(questions, questions[1:] + questions[:1], strict=True)]


def window_by_window(model, questions: list[Asked], answers: list[str], masked: list[str]) -> dict:
    """The answer of each window of one question, with h_prev and without, and the number of answers that the module
    changes. The question is the first with several windows whose answer changes when the module is masked; if there is
    none, the first with several windows."""
    several = [k for k, one in enumerate(questions) if len(one.windows) > 1]
    if not several:
        return {}
    chosen = next((k for k in several if answers[k] != masked[k]), several[0])
    one = questions[chosen]
    ways = [by_window(model, one, recurrent) for recurrent in (True, False)]
    return {"question": one.question.question, "wanted": one.question.answer, "told": answers[chosen],
            "masked": masked[chosen], "changed": sum(map(ne, answers, masked)), "questions": len(answers), "windows": [
                [text, *(x for span in spans for x in span)]
                for text, *spans in zip((shorten(text, SHOWN) for text in one.texts), *ways, strict=True)]}


SHOWN = 120  # characters of a window that a record keeps
UNITS = {"share_recovered": "of what reading windows together can give", "learning_rate": "per step",
         "parameters": "weights", "train_questions": "questions", "epochs_kept": "epochs"}


def unit(metric: str) -> str:
    """The unit of a metric; for the scores of answers, by the ending of the name."""
    return "nats" if metric.endswith("nats") else UNITS.get(metric, "per cent")


SCORES = ("answer_f1", "answer_exact_match", "answer_nats")  # as metrics, and for each question in `documents`
SAMPLES = 5


def training_questions(config) -> list:
    """The training questions of a reader: all, or `n_train` at random, the same for every model and seed."""
    from repro.data import corpus
    from repro.errors import ReproError

    rows = list(map(tidied(config), corpus(config.corpus).examples("train")))
    if config.n_train is None:
        return rows
    if config.n_train > len(rows):
        raise ReproError(f"n_train is {config.n_train:,}, but {config.corpus} has {len(rows):,} training questions.")
    return random.Random(0).sample(rows, config.n_train)


def set_apart(config, searching: bool = False) -> tuple[list, list]:
    """The held-out training questions, and the others in corpus order; searching: only the others that a search
    reads."""
    rows = training_questions(config)
    shuffled = list(rows)
    random.Random(0).shuffle(shuffled)
    held, others = shuffled[:config.held_out], shuffled[config.held_out:]
    if searching:
        return held, others[:config.search_train]
    names = {row.id for row in held}
    return held, [row for row in rows if row.id not in names]


def prepared(rows, coder, window: int, must_stand: bool = True) -> tuple[list[Asked], int]:
    """The questions in windows, and how many were left out because their answer does not occur in the context.

    must_stand: False for questions that are only answered and not trained on; then none is left out.
    """
    found, left_out = [], 0
    for row in rows:
        if must_stand and not row.spans and row.answer_type == "span":
            left_out += 1
            continue
        found.append(asked(row, coder, window, must_stand=must_stand))
    return found, left_out


def trained(config, context, rows, coder, rate: float, epochs: int, choosing=(), name: str = "training"):
    """A reader trained on `rows`, the result of its training, and the numbers of questions without a span to learn:
    questions `left_out`, and questions that teach only the `type_alone`, because windows cut every right span or it is
    too long.

    choosing: questions whose nats choose the epoch to keep; without any, the last epoch is kept.
    """
    import torch

    from repro.recurrence import RecurrenceConfig, RecurrentEncoder
    from repro.training import Answers, LengthBuckets, TrainConfig, train

    questions, left_out = prepared(rows, coder, config.window)
    torch.manual_seed(config.seed)
    _, folder = context.need(base_of(config))
    module = RecurrenceConfig(config.insert_layer, config.hidden_size, config.hidden_layers, layers="last",
                              zero_init=config.mean_token, residual=config.mean_token)
    model = RecurrentEncoder.from_pretrained(folder / "model", module).train()
    batches = LengthBuckets(questions, [len(one.windows) for one in questions], padded, config.batch_size, config.seed)
    total = epochs * len(questions)
    settings = TrainConfig(total, rate, int(config.warmup_share * total / config.batch_size), "linear",
                           config.weight_decay, validate_every=len(questions), precision=config.precision,
                           seed=config.seed, optimizer=config.optimizer, decayed=config.decayed,
                           module_learning_rate=config.module_learning_rate)
    held = prepared(choosing, coder, config.window, must_stand=False)[0]

    def nats(reader: Answers) -> float:
        with scoring(config, reader.model):
            answers = read_by(reader.model, held, reader.recurrent, batch_size=config.batch_size)
        return _mean([nats for _, nats in answers])

    with context.progress(total, f"{name} {config.model}", "questions") as bar:
        result = train(Answers(model, config.model == RECURRENT, config.recompute), batches, settings,
                       context.folder / name, validate=nats if held else None, progress=bar)
    n_plain = sum(not one.type and not one.answers for one in questions)
    return model, result, {"left_out": left_out, "type_alone": n_plain}


def scored(questions: list[Asked], answers: list[tuple[str, float]], name: str = "") -> dict[str, list[float]]:
    """F1 and exact match of each answer, in %, by HotpotQA's rules, and the nats of the right answer."""
    from repro.evaluation import answer_scores

    pairs = [answer_scores(answer, one.question.answer) for one, (answer, _) in zip(questions, answers, strict=True)]
    return {f"{name}answer_exact_match": [100 * exact for exact, _ in pairs],
            f"{name}answer_f1": [100 * f1 for _, f1 in pairs], f"{name}answer_nats": [nats for _, nats in answers]}


def guessed(questions: list[Asked], rows: list) -> list[float]:
    """The nats of the right answer to each question for a guess: all tokens of its text are equally likely to begin and
    to end the answer, and each type is about as frequent as among the training questions `rows`."""
    from types import SimpleNamespace

    import torch

    from repro.data.examples import ANSWER_TYPES
    from repro.training.objective import answer_nats

    kinds = [row.answer_type for row in rows]
    types = torch.tensor([1.0 + kinds.count(kind) for kind in ANSWER_TYPES])
    found = []
    for one in questions:
        batch = padded([one])
        even = torch.zeros(batch["text"].shape)
        found += answer_nats(SimpleNamespace(start_logits=even, end_logits=even, type_logits=types.log()[None]),
                             batch).tolist()
    return found


def assay(config, model, questions: list, coder) -> dict[str, list[float]]:
    """The scores of four paragraphs in two windows: both supporting ones together in one window, and one in each.

    Both ways read the same paragraphs in the same position of a window; only the second paragraphs change places. The
    other two paragraphs are the question's nearest in length to the supporting ones. Only questions with such
    paragraphs and two windows in both ways count.
    """
    from repro.errors import ReproError

    ways: dict[str, list[Asked]] = {"together": [], "apart": []}
    for row in questions:
        gold = sorted({number for number, _ in row.supporting})
        others = [number for number in range(len(row.paragraphs)) if number not in gold]
        if len(gold) != 2 or len(others) < 2:
            continue
        length = [len(text) for text in row.texts[1:]]
        first = min(others, key=lambda number: abs(length[number] - length[gold[0]]))
        second = min((one for one in others if one != first), key=lambda number: abs(length[number] - length[gold[1]]))
        try:
            both = [asked(row, coder, config.window, groups, must_stand=False) for groups in (
                ((gold[0], gold[1]), (first, second)), ((gold[0], second), (first, gold[1])))]
        except ReproError:  # a question that leaves no room for text in a window
            continue
        if all(len(one.windows) == 2 for one in both):
            for name, one in zip(ways, both, strict=True):
                ways[name].append(one)
    if not ways["together"]:
        return {}
    found = {}
    for name, ones in ways.items():
        found |= scored(ones, read_by(model, ones, recurrent=False, batch_size=config.batch_size), f"{name}_")
    return found


def best_rate(config, context) -> float:
    """The given learning rate, or the tried rate with the lowest loss on held-out training questions. F1 changes in
    steps of whole questions, which is too coarse to separate rates on so few questions."""
    tried = rates_of(config)
    if not tried:
        return config.learning_rate or config.rates[0]
    records = [context.need(one)[0] for one in tried]
    return min(records, key=lambda record: record.metrics["held_out_answer_nats"]).config["learning_rate"]


def rates_of(config) -> list[RunConfig]:
    """The runs that try the learning rates of a reader; none if there is nothing to choose. They have one seed and
    train for one epoch, even if the reader trains for more."""
    if config.learning_rate is not None or len(config.rates) == 1:
        return []
    same = config.model_dump(mode="json", exclude={"epochs"}) | {"experiment": RATES.name, "seed": 0}
    return [validated(Config, same | {"learning_rate": rate}) for rate in config.rates]


def execute_rate(config, context) -> Outcome:
    """One learning rate, trained for one epoch on part of the training questions and scored on others."""
    coder, (choosing, rows) = tokeniser_of(base_of(config)), set_apart(config, searching=True)
    held = prepared(choosing, coder, config.window, must_stand=False)[0]
    model, result, _ = trained(config, context, rows, coder, config.learning_rate, 1)
    with scoring(config, model):
        answers = read_by(model, held, config.model == RECURRENT, batch_size=config.batch_size)
    scores = scored(held, answers)
    metrics = {f"held_out_{name}": _mean(scores[name]) for name in SCORES}
    return Outcome(metrics, {name: unit(name) for name in metrics}, config.model, result.curves)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


# about how many: training questions, validation questions, tokens of a context, tokens of a question with special ones
KNOWN = {"synthetic-hops": (3_000, 200, 40, 7), "hotpotqa-subset": (2_575, 500, 1_250, 30),
         "hotpotqa": (90_447, 7_405, 1_250, 30)}
RATE = {"smoke": 2e10, "small": 2e11, "pretrained": 1.8e11, "medium": 3e13, "paper": 6e13}  # FLOP/s in training


def estimate(config, searching: bool = False):
    base = base_of(config)
    n_train, n_held, length, own = KNOWN.get(config.corpus, (1_000, 100, 1_000, 30))
    windows = -(-length // max(1, config.window - own))
    per_token = base.n_layer * (24 * base.n_embd**2 + 4 * config.window * base.n_embd)
    each = windows * config.window * per_token
    learned = (config.n_train or n_train) - config.held_out
    read = min(config.search_train, learned) if searching else config.epochs * learned
    answers = config.held_out * (1 if searching else config.epochs)
    answers += 0 if searching else n_held * (3 if config.model == RECURRENT else 2)
    n = _weights(config, base)
    kept = config.batch_size * config.window * 4 * base.n_layer * (34 * base.n_embd + base.n_head * config.window)
    memory = PROCESS + 16 * n + kept * (1 if config.recompute == "window" else windows)
    flops = each * (3 * read + answers)
    return Estimate(n, read * (length + windows * own), flops, memory, flops / RATE[config.scale])


def _weights(config, base) -> int:
    """The weights of a reader: its encoder without an output layer, two heads, and a module if it is used."""
    from repro.models import roberta_parameters

    d, width = base.n_embd, config.hidden_size
    module = 2 * d * width + width + d + (config.hidden_layers - 1) * (width + 1) * width
    output = d**2 + 3 * d + base.vocab_size
    output += d * (base.tokeniser == "own")  # BERT has one token type more than RoBERTa, but two positions fewer
    return (roberta_parameters(base.n_layer, d, base.vocab_size, base.n_positions) - output + 5 * (d + 1)
            + module * (config.model == RECURRENT))


# At smoke, a window holds the story but not all of the rest; the things are in the next window.
SCALES = {
    "smoke": {"corpus": "synthetic-hops", "window": 37, "epochs": 1, "batch_size": 16, "rates": (2e-3,),
              "held_out": 0, "hidden_size": 64, "optimizer": "muon"},
    "small": {"corpus": "hotpotqa-subset", "epochs": 1, "rates": (3e-4, 1e-3, 2e-3), "optimizer": "muon",
              "precision": "bf16", "decayed": "all"},
    # A core trains on a question in 0.5 s and answers one in 0.2 s. All rows read 1,200 of the 2,575 training questions
    # once, and 100 more are held out, so that three seeds of the first two rows take about 100 minutes of one core. The
    # rates are not tuned; in a trial on 200 questions, the reader's rate lowered the loss on held-out questions.
    "pretrained": {"corpus": "hotpotqa-subset", "n_train": 1300, "held_out": 100, "epochs": 1, "rates": (3e-4,),
                   "module_learning_rate": 1e-3, "batch_size": 4, "precision": "bf16", "scored_in": "bf16",
                   "punctuation": "as typed"},
    "medium": {"corpus": "hotpotqa", "n_train": 30_000, "epochs": 4, "rates": (1e-4, 3e-4, 1e-3), "batch_size": 32,
               "search_train": 9_000, "precision": "bf16", "optimizer": "muon"},
    "paper": {"corpus": "hotpotqa", "n_train": 30_000, "epochs": 4, "rates": (2e-5,), "held_out": 0,
              "batch_size": 32, "precision": "bf16", "recompute": "window", "punctuation": "as typed"},
}


def grid(scale: str) -> list[dict]:
    """Both readers; at smoke also other readings of the paper's module, at small more epochs, and at `pretrained` the
    module in the middle that starts as an average token."""
    points = [{"model": BASELINE}, {"model": RECURRENT}]
    if scale == "pretrained":
        points += [{"model": RECURRENT, "insert_layer": 3, "mean_token": True}]
    if scale == "small":
        points += [{"model": BASELINE, "epochs": 3}, {"model": RECURRENT, "epochs": 3}]
    if scale == "smoke":
        points += [{"model": RECURRENT, "hidden_layers": 2}, {"model": RECURRENT, "insert_layer": 2}]
    return points


SHARED = {"paper": PAPER, "config": Config, "reads": lambda config: PRETRAINING.reads(base_of(config)), "revision": 1}
RATES = Experiment(
    name="recurrence-hotpotqa-rates", **SHARED, summary="Learning rates tried for readers of questions.",
    scales={scale: {key: value for key, value in values.items() if key != "epochs"}
            for scale, values in SCALES.items() if len(values["rates"]) > 1},
    grid=lambda scale: [{"model": model, "learning_rate": rate} for model in (BASELINE, RECURRENT)
                        for rate in SCALES[scale]["rates"]],
    execute=execute_rate, estimate=partial(estimate, searching=True), needs=lambda config: [base_of(config)])
EXPERIMENT = Experiment(
    name="recurrence-hotpotqa", **SHARED | {"revision": 2},  # changed what a trained reader reads, not its training
    scales=SCALES, grid=grid, execute=execute, estimate=estimate,
    summary="Questions about long texts: RoBERTa on single windows, and with recurrence: F1 and exact match.",
    needs=lambda config: [base_of(config), *rates_of(config)], models_of=lambda config: [base_of(config)])
register(RATES, EXPERIMENT)
