"""GPT fine-tuned for tasks of four forms, and the gain of each part of the recipe (Radford et al. 2018, Table 5).

The pretrained weights are always those of `pretrain-gpt` at seed 0. The seed here draws the new weights, the order of
the examples and the dropout. Records of the whole recipe also hold the scores of baselines without a language model
(`repro.papers.gpt1_2018.baselines`).

A pretrained transformer, an LSTM, fresh weights and training without the auxiliary objective may each need another
learning rate. At `small` each uses the one with the best score on held-out training examples (`finetune-gpt-rates`).
"""

import random
from collections.abc import Iterable
from statistics import fmean
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from repro.data.tasks import task as task_named
from repro.errors import ReproError
from repro.papers.base.pretraining import PROCESS, Decayed, tokeniser_of
from repro.papers.gpt1_2018 import pretraining
from repro.papers.gpt1_2018.baselines import baselines
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register

Variant = Literal["full", "no-pretraining", "no-auxiliary", "lstm", "shuffled-labels"]


class Told(NamedTuple):
    """How a task is read (a form of `repro.models.encode_example`), its outputs, and its metric."""

    form: str
    n_outputs: int
    metric: str


FORMS = {
    "cola": Told("classification", 2, "matthews"), "sst2": Told("classification", 2, "accuracy"),
    "mrpc": Told("similarity", 2, "f1"), "qqp": Told("similarity", 2, "f1"), "stsb": Told("similarity", 1, "pearson"),
    "rte": Told("entailment", 2, "accuracy"), "sick": Told("entailment", 3, "accuracy"),
    "mnli": Told("entailment", 3, "accuracy"), "mnli-mismatched": Told("entailment", 3, "accuracy"),
    "qnli": Told("entailment", 2, "accuracy"), "snli": Told("entailment", 3, "accuracy"),
    "scitail": Told("entailment", 2, "accuracy"), "openbookqa": Told("multiple-choice", 1, "accuracy"),
    "race": Told("multiple-choice", 1, "accuracy"), "topics": Told("classification", 2, "accuracy"),
    "belonging": Told("entailment", 2, "accuracy"), "pairs": Told("similarity", 2, "accuracy"),
    "nouns": Told("multiple-choice", 1, "accuracy")}
GENERATED = "topics", "belonging", "pairs", "nouns"
SHOWN = "belonging"  # the one of these with all variants at smoke


def with_corpus(values: dict[str, Any], known: Iterable[str], refused: str) -> dict[str, Any]:
    """Settings with the corpus of their task. Raises ReproError for an unknown task, for one that is not among the
    `known` ones (the message begins with `refused`), and for a corpus that is not the task's."""
    name = values.get("task")
    if not isinstance(name, str):
        return values
    corpus = task_named(name).corpus
    if name not in known:
        raise ReproError(f"{refused} {name}; use one of {', '.join(sorted(known))}")
    if values.get("corpus", corpus) != corpus:
        raise ReproError(f"corpus is '{values['corpus']}', but task {name} has the corpus {corpus}; set only the task.")
    return {**values, "corpus": corpus}


class Config(RunConfig):
    """A task, a variant of the recipe, and its training."""

    task: str
    variant: Variant = "full"
    # Layers whose pretrained weights are used, from below; null: all. Always null for the variants lstm, which has one
    # layer, and `no-pretraining`, which uses none, so that a plan with it has each of them once.
    transferred: int | None = Field(None, ge=0)
    train_examples: int | None = Field(None, ge=1)  # drawn from those of the task; null: all that it has here
    at_most: Annotated[int | None, Absent(None)] = Field(None, ge=1)  # of all; null if `train_examples` is set
    lm_weight: float = Field(0.5, ge=0)  # of the auxiliary loss; that of the variant no-auxiliary is 0
    limit: int = Field(512, ge=3)  # tokens of a sequence
    # The separator of document and question in multiple choice. "nothing" writes "… went home.Where …".
    join: Annotated[Literal["blank", "nothing"], Absent("nothing")] = "blank"
    epochs: int = Field(2, ge=1)
    batch_size: int = Field(16, ge=1)  # examples
    learning_rate: float | None = Field(1e-3, gt=0)  # null: the best of those that were tried, see `best_rate`
    warmup_share: float = Field(0.002, ge=0, lt=1)  # of the steps, as in the paper
    weight_decay: float = Field(0.01, ge=0)
    decayed: Decayed = "matrices"
    dropout: float = Field(0.1, ge=0, lt=1)  # of the state that predicts the answer
    precision: Literal["no", "bf16"] = "no"

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values):
        """With the corpus of the task."""
        values = with_corpus(values, FORMS, "nothing is fine-tuned for task")
        if values.get("variant") in ("lstm", "no-pretraining"):
            layers = max(one.n_layer for one in pretraining.EXPERIMENT.plan(values["scale"]))
            if str(values.get("transferred")) in map(str, range(layers + 1)):  # any other number is refused below
                values = {**values, "transferred": None}
        return values if values.get("train_examples") is None else {**values, "at_most": None}

    @model_validator(mode="after")
    def _fits(self):
        base = base_of(self)
        if self.learning_rate is None and self.scale not in RATES.scales:
            raise ValueError(f"learning_rate is null, but rates are tried at {', '.join(RATES.scales)} only, not at "
                             f"{self.scale}; give one")
        if self.limit > base.n_positions:
            raise ValueError(f"limit is {self.limit} tokens, but the model's context ends at {base.n_positions}")
        if self.transferred is not None and self.transferred > base.n_layer:
            raise ValueError(f"transferred is {self.transferred}, but the model that was pretrained has {base.n_layer} "
                             "layers")
        return self


def base_of(config):
    """The config of the pre-training of the model. Raises ReproError if a scale has none of its kind."""
    kind = "lstm" if config.variant == "lstm" else "transformer"
    found = [one for one in pretraining.EXPERIMENT.plan(config.scale) if one.model == kind]
    if not found:
        raise ReproError(f"variant is {config.variant}, but no {kind} is pretrained at {config.scale}; use another "
                         "variant or another scale.")
    return found[0]


def encoded(task, split: str, n: int | None, coder, limit: int, join: str = "blank"
            ) -> list[tuple[list[list[int]], float]]:
    """Rows of a task as `TaskModel` reads them, with their labels. join: see `Config`."""
    return as_read(task.name, task.examples(split, n), coder, limit, join)


def as_read(name: str, rows: Iterable[Any], coder, limit: int, join: str = "blank"
            ) -> list[tuple[list[list[int]], float]]:
    """The same for given `rows`."""
    from repro.models import encode_example

    form, found = FORMS[name].form, []
    for row in rows:
        label = row.answer if form == "multiple-choice" else row.label
        found.append((encode_example(form, texts_of(row, join), coder, limit), label))
    return found


def texts_of(row, join: str = "blank") -> tuple[str, ...]:
    """The texts of a row in the order of its form; with `join` "blank" a question begins with the space that separates
    it from its document."""
    if not hasattr(row, "candidates"):
        return row.texts
    document, question = "\n".join(row.paragraphs), row.question
    apart = join == "blank" and document and question and not document[-1].isspace() and not question[0].isspace()
    return (document, f" {question}" if apart else question, *row.candidates)


def drawn(name: str, n: int | None) -> list[Any]:
    """So many training rows of a task, or all (None), drawn at random from those that it uses (`Task.n_train`), because
    files are sorted by source or difficulty. Raises ReproError for more rows than there are."""
    task = task_named(name)
    rows = list(task.examples("train"))
    if n and n > len(rows):
        rows = list(task.examples("train", n))
    random.Random(0).shuffle(rows)
    return rows[:n]


def training_rows(config) -> list[Any]:
    """The training rows, the same at every seed."""
    return drawn(config.task, config.train_examples)[:config.at_most]


def score(labels, predictions, metric: str) -> float:
    """In the paper's unit, times 100: Matthews' or Pearson's correlation, F1 or accuracy."""
    import numpy as np

    from repro.evaluation.classification import score as share

    if metric in ("accuracy", "f1"):
        return 100 * share(labels, predictions, metric)
    if np.ptp(labels) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return 100 * float(np.corrcoef(labels, predictions)[0, 1])  # of labels 0 and 1 Pearson's is Matthews'


def units(labels, predictions, metric: str):
    """(examples,) numbers whose mean is the score, times 100, and whose spread is that of the score over examples: for
    accuracy 100 for each hit, for F1 and correlations the terms of the Taylor series (`linearised`)."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    if metric == "accuracy":
        return 100.0 * np.array([one == other for one, other in zip(labels, predictions, strict=True)])
    x, y = np.array(labels, float), np.array(predictions, float)
    if metric == "f1":
        return 100 * linearised(2 * x * y, x + y)
    if not np.ptp(x) or not np.ptp(y):
        return np.zeros(len(x))
    x, y = ((z - z.mean()) / z.std() for z in (x, y))
    share = (x * y).mean()
    return 100 * (x * y - share * (x * x + y * y) / 2 + share)


def by_example(record):
    """(examples,) scores of a fine-tuned model on its test rows."""
    test = record.documents["test"]
    return units(test["label"], test["prediction"], FORMS[record.config["task"]].metric)


def transfer(model, trained, n: int) -> None:
    """Give a fresh transformer the embeddings and the n lowest layers of a trained one."""
    for name in ("embed", "places"):
        getattr(model, name).load_state_dict(getattr(trained, name).state_dict())
    for own, other in zip(model.layers[:n], trained.layers[:n], strict=True):
        own.load_state_dict(other.state_dict())


def start(config, context, coder):
    """The model that fine-tuning starts from, with all, some or no weights pretrained."""
    import torch

    torch.manual_seed(config.seed)
    base = base_of(config)
    fresh = pretraining.build(base, coder.vocab_size)
    if config.variant == "no-pretraining":
        return fresh
    _, folder = context.need(base)
    trained = pretraining.read(pretraining.build(base, coder.vocab_size), folder / "model" / pretraining.LAST)
    if config.transferred is None:
        return trained
    transfer(fresh, trained, config.transferred)
    return fresh


def middle(rows: list, metric: str) -> float:
    """The mean label if labels are numbers, which a head without bias would have to learn first; otherwise 0."""
    return fmean(label for _, label in rows) if metric == "pearson" else 0


def tuned(config, context, coder, rows: list, rate: float):
    """The model fine-tuned on `rows` of a task, and the result of `train`. Numbers are learned minus their mean."""
    from repro.models import TaskModel, labelled
    from repro.training import LengthBuckets, Task, TrainConfig, train

    form, n_outputs, metric = FORMS[config.task]
    mean = middle(rows, metric)
    rows = [(example, label - mean) for example, label in rows]
    model = TaskModel(start(config, context, coder), form, n_outputs, config.dropout)
    size = min(config.batch_size, len(rows))
    batches = LengthBuckets(rows, [max(map(len, example)) for example, _ in rows], labelled, size, config.seed)
    total = config.epochs * len(rows)
    settings = TrainConfig(total, rate, int(config.warmup_share * total / size), "linear", config.weight_decay,
                           validate_every=total, precision=config.precision, seed=config.seed,
                           decayed=config.decayed)
    weight = 0.0 if config.variant == "no-auxiliary" else config.lm_weight
    with context.progress(total, f"fine-tuning for {config.task}", "examples") as bar:
        return model, train(Task(model, weight), batches, settings, context.folder / "training", progress=bar)


def answered(model, rows: list) -> list[float]:
    """The model's answer to each row: a number if it has one output, otherwise the index of a label or candidate."""
    from repro.models import answers

    logits = answers(model, [example for example, _ in rows])
    return logits[:, 0].tolist() if logits.shape[1] == 1 else logits.argmax(1).tolist()


def execute(config, context):
    import numpy as np

    from repro.data import corpus

    task, metric = task_named(config.task), FORMS[config.task].metric
    coder = tokeniser_of(base_of(config))
    rows = as_read(task.name, training_rows(config), coder, config.limit, config.join)
    if config.variant == "shuffled-labels":
        order = np.random.default_rng(config.seed).permutation(len(rows))
        rows = [(example, rows[k][1]) for (example, _), k in zip(rows, order, strict=True)]
    test = encoded(task, "test", None, coder, config.limit, config.join)
    rate, mean = best_rate(config, context), middle(rows, metric)
    model, result = tuned(config, context, coder, rows, rate)
    predictions, labels = [one + mean for one in answered(model, test)], [label for _, label in test]
    metrics = {"test_score": score(labels, predictions, metric), **without_a_model(config, task, labels)}
    units = dict.fromkeys(metrics, f"{metric}, times 100")
    metrics |= {"train_examples": len(rows), "learning_rate": rate,
                "parameters": sum(weight.numel() for weight in model.parameters())}
    units |= {"train_examples": "examples", "learning_rate": "at its highest", "parameters": "weights"}
    if generator := corpus(config.corpus).generator:
        metrics["best_score"], units["best_score"] = 100 * generator.best_score(), f"{metric}, times 100, expected"
    return Outcome(metrics, units, config.variant, result.curves, {"test": {
        "label": [task.label_text(label) for label in labels],
        "prediction": [task.label_text(one) if task.named else one for one in predictions]}})


def without_a_model(config, task, labels) -> dict[str, float]:
    """The scores of baselines without a language model, trained on the same rows; only for the whole recipe."""
    if config.variant != "full" or config.transferred is not None:
        return {}
    others = list(task.examples("test"))
    predictions = baselines(training_rows(config), others, FORMS[task.name].n_outputs)
    return {f"{name}_score": score(labels, found, FORMS[task.name].metric) for name, found in predictions.items()}


def execute_rate(config, context):
    """One learning rate, on a part of the training examples, scored on held-out ones. A held-out example is skipped if
    it contains a training example or is contained in one, as phrases of a sentence are."""
    coder, rows = tokeniser_of(base_of(config)), training_rows(config)
    held, rows = rows[:HELD_OUT], rows[HELD_OUT:]
    if not rows:
        raise ReproError(f"{len(held)} training examples of {config.task}: {HELD_OUT} are held out, and none is left "
                         "to train on; use more.")
    known = ["\n".join(texts_of(row)) for row in rows]
    held = [row for row in held if (text := "\n".join(texts_of(row)))
            and not any(text in other or other in text for other in known)]
    held, rows = (as_read(config.task, some, coder, config.limit, config.join) for some in (held, rows))
    model, result = tuned(config, context, coder, rows, config.learning_rate)
    metric = FORMS[config.task].metric
    held_out_score = score([label for _, label in held], answered(model, held), metric)
    return Outcome({"held_out_score": held_out_score, "held_out_examples": len(held)},
                   {"held_out_score": f"{metric}, times 100", "held_out_examples": "examples"}, config.variant,
                   result.curves)


def rates_of(config) -> list[Config]:
    """The runs that try learning rates for a variant, with the settings of the scale and one seed; none if a rate is
    given. Without transferred layers, the rates are those of `no-pretraining`."""
    begun = "no-pretraining" if config.transferred == 0 else config.variant if config.variant in TRIED else "full"
    return [] if config.learning_rate is not None else [
        one for one in RATES.plan(config.scale) if one.variant == begun and one.epochs != LONGER_EPOCHS]


def best_rate(config, context) -> float:
    """The learning rate: the given one, or the tried one with the best mean score over tasks."""
    scores: dict[float, list[float]] = {}
    for one in rates_of(config):
        scores.setdefault(one.learning_rate, []).append(context.need(one)[0].metrics["held_out_score"])
    return max(scores, key=lambda rate: fmean(scores[rate])) if scores else config.learning_rate


# Examples, and tokens of each, roughly; tokens that candidates share count once.
KNOWN = {"cola": (8_551, 11), "sst2": (5_000, 12), "mrpc": (4_076, 110), "stsb": (5_749, 60), "rte": (2_490, 70),
         "sick": (4_500, 26), "openbookqa": (4_957, 60), "race": (1_000, 550), "mnli": (392_702, 40),
         "mnli-mismatched": (392_702, 40), "qnli": (104_743, 55), "qqp": (363_846, 30), "snli": (550_152, 28),
         "scitail": (23_596, 45)}
TESTS = {"sick": 1.1, "race": 0.6, "mrpc": 0.4}  # test examples per training example


def estimate(config) -> Estimate:
    base = base_of(config)
    known, length = KNOWN.get(config.task, (600, 40))
    tokens = config.epochs * (config.train_examples or min(known, config.at_most or known)) * length
    per_token = pretraining.training_flops(base)
    model = pretraining.EXPERIMENT.estimate(base)
    flops = per_token * (tokens + known * length * TESTS.get(config.task, 0.2) / 3)
    rate = pretraining.rate(config.scale, base.model, config.precision)
    return Estimate(model.parameters, tokens, flops, PROCESS + 16 * model.parameters, flops / rate)


def pretrained(config) -> list:
    """The pre-training run of the model that is fine-tuned."""
    return [] if config.variant == "no-pretraining" else [base_of(config)]


VARIANTS = ("full", "no-pretraining", "no-auxiliary", "lstm", "shuffled-labels")
TABLE_5 = ("cola", "sst2", "mrpc", "stsb", "rte", "sick")  # of its eight tasks those that we have, SICK for MultiNLI
QUESTIONS = ("openbookqa", "race")
FETCHED = ("mnli", "mnli-mismatched", "qnli", "qqp", "snli", "scitail")  # by `repro data fetch`
LAYERS = ("sick", "sst2")  # tasks with only some layers transferred
LAYER_RATE = 3e-4  # of all points by layers, so that they differ in layers only: the best for fresh weights
AT_MOST = 2_500  # examples at `small`
EXAMPLES = {500: 10, 5_000: 2, 20_000: 2}  # of SST-2 -> epochs; the fewest take as many steps as in Table 5
ALL = {"sst2": 20_000, "race": 6_712}  # all that we have, for tasks that use fewer except at `paper`
TRIED = {  # variant with its own search -> rates; the LSTM's pre-training needs ten times the transformer's rate
    "full": (3e-4, 1e-3, 3e-3, 1e-2), "no-pretraining": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    "no-auxiliary": (3e-5, 1e-4, 3e-4, 1e-3, 3e-3), "lstm": (1e-3, 3e-3, 1e-2, 3e-2)}
TRIED_ON = ("sick", "sst2", "stsb")  # tasks of the search
LONGER = {"full": 1e-3, "no-pretraining": 3e-4, "no-auxiliary": 1e-4, "lstm": 3e-3}  # the best, for more epochs too
LONGER_EPOCHS = 6
HELD_OUT = 500  # training examples of each task that are held out in the search


def grid(scale: str) -> list[dict]:
    """Table 5 with every task and variant, and the control with shuffled labels; Table 3; layers transferred; and SST-2
    by number of examples. At smoke, all variants and layers for one task; at `paper`, every available data set."""
    def points(tasks, variants, **fields) -> list[dict]:
        return [{"task": task, "variant": variant} | fields for task in tasks for variant in variants]

    if scale == "smoke":
        rest = [one for one in GENERATED if one != SHOWN]
        return [*points((SHOWN,), VARIANTS), *points(rest, VARIANTS[:2]),
                *[one for n in (0, 1, 2) for one in points((SHOWN,), ("full",), transferred=n)],
                *points((SHOWN,), ("full", "no-auxiliary"), train_examples=100)]
    if scale == "paper":  # of the variants those that need no LSTM, which nobody has released
        return [one for task in (*TABLE_5, *FETCHED, "race") for one in points(
            (task,), [variant for variant in VARIANTS if variant != "lstm"], train_examples=ALL.get(task))]
    some = [one for n in range(pretraining.EXPERIMENT.plan(scale)[0].n_layer + 1)
            for one in points(LAYERS, ("full",), transferred=n, learning_rate=LAYER_RATE)]
    return [*points(TABLE_5, VARIANTS), *points(QUESTIONS, ("full", "no-pretraining", "shuffled-labels")), *some,
            *[one for n, epochs in EXAMPLES.items()
              for one in points(("sst2",), ("full", "no-auxiliary"), train_examples=n, epochs=epochs)]]


SHARED = {"paper": "gpt1_2018", "config": Config, "estimate": estimate,
          "reads": lambda config: base_of(config).tokeniser_corpora}
SMALL = {"precision": "bf16", "at_most": AT_MOST, "decayed": "all", "join": "nothing",
         "warmup_share": 0.1}  # the paper's share would be no step at all
RATES = Experiment(
    name="finetune-gpt-rates", **SHARED, summary="Learning rates for fine-tuning, by variant.", execute=execute_rate,
    scales={"small": SMALL}, needs=pretrained,
    grid=lambda scale: [{"task": task, "variant": variant, "learning_rate": rate} | epochs
                        for some, epochs in ((TRIED, {}), ({name: (rate,) for name, rate in LONGER.items()},
                                                           {"epochs": LONGER_EPOCHS}))
                        for variant, rates in some.items() for rate in rates for task in TRIED_ON])
EXPERIMENT = Experiment(
    name="finetune-gpt", **SHARED, summary="GPT fine-tuned for tasks: full recipe and ablations.",
    execute=execute,
    grid=grid, needs=lambda config: [*pretrained(config), *rates_of(config)], models_of=pretrained, revision=1,
    scales={"smoke": {"limit": 64, "epochs": 4, "learning_rate": 2e-3}, "small": SMALL | {"learning_rate": None},
            "paper": {"epochs": 3, "batch_size": 32, "learning_rate": 6.25e-5}})
register(RATES, EXPERIMENT)
