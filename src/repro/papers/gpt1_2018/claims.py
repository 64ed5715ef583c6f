"""The paper's claims about GPT: pre-training, the LSTM, the auxiliary objective, layers, and tasks without fine-tuning.

Scores of several tasks are averaged as in Table 5; examples are weighted so that every task counts the same.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.errors import ReproError
from repro.papers.gpt1_2018.finetuning import EXAMPLES, FORMS, LAYERS, SHOWN, TABLE_5, by_example, units
from repro.papers.gpt1_2018.finetuning import EXPERIMENT as FINETUNING
from repro.papers.gpt1_2018.pretraining import EXPERIMENT as PRETRAINING
from repro.papers.gpt1_2018.tables import (
    ABLATION,
    BY_CHECKPOINT,
    BY_EXAMPLES,
    BY_LAYERS,
    HEADS,
    PAPER,
    RATES,
    VARIANTS,
)
from repro.papers.gpt1_2018.zero_shot import EXPERIMENT as ZERO_SHOT
from repro.papers.gpt1_2018.zero_shot import HEURISTICS
from repro.study import ADDED, Assay, Claim, Measured, Record, register
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np

SOME = (*TABLE_5, SHOWN)  # tasks with all variants, the last one at smoke
COLUMNS = ("cola_matthews", "sst2_accuracy_percent", "mrpc_f1_percent", "stsb_pearson", "rte_accuracy_percent",
           "mnli_accuracy_percent")  # of Table 5: those of our six tasks, with SICK for MultiNLI
ORDERS = 200  # random orders of the labels; chance is their mean
SMALL_SETS = ("cola_matthews", "sst2_accuracy_percent", "mrpc_f1_percent", "stsb_pearson", "rte_accuracy_percent")
LARGE_SETS = ("qqp_f1_percent", "mnli_accuracy_percent", "qnli_accuracy_percent")


def by_chance(record: Record) -> "np.ndarray":
    """(examples,) of the same answers compared with the labels of other rows: the mean over ORDERS of the labels, the
    same for every model. Only how often an answer is given counts, regardless of the row."""
    test = record.documents["test"]
    return mean_units(tuple(test["label"]), tuple(test["prediction"]), FORMS[record.config["task"]].metric)


@lru_cache(maxsize=256)  # several claims compare the same records
def mean_units(labels: tuple, predictions: tuple, metric: str) -> "np.ndarray":
    """(examples,) mean over ORDERS of the labels of `units(order, predictions, metric)`.

    An order keeps the mean and the spread of the labels, so matrix products give the mean without a loop over orders.
    """
    import numpy as np

    kinds, orders = _orders(labels)
    if metric == "accuracy":
        code = {kind: n for n, kind in enumerate(kinds.tolist())}
        return 100 * (orders == np.array([code.get(one, -1) for one in predictions], np.int32)).mean(0)
    x, y = kinds.astype(float)[orders], np.array(predictions, float)
    if metric == "f1":
        both = x[0].sum() + y.sum()
        if not both > 0:
            raise ReproError("F1 of no positive label and no positive answer is not defined; add rows that have one.")
        f1 = 2 * (x @ y) / both
        return 100 * (f1.mean() + (2 * x.mean(0) * y - f1 @ x / ORDERS - f1.mean() * y) * len(y) / both)
    if not np.ptp(x[0]) or not np.ptp(y):
        return np.zeros(len(y))
    x, y = (x - x[0].mean()) / x[0].std(), (y - y.mean()) / y.std()
    share = x @ y / len(y)
    return 100 * (x.mean(0) * y - (share @ x**2 / ORDERS + share.mean() * y**2) / 2 + share.mean())


@lru_cache(maxsize=32)
def _orders(labels: tuple) -> "tuple[np.ndarray, np.ndarray]":
    """The kinds of labels, and (ORDERS, examples) the kind of each row in each order. Cached: models share tasks."""
    import numpy as np

    kinds, which = np.unique(np.array(labels), return_inverse=True)
    draw = np.random.default_rng(0)
    return kinds, np.array([draw.permutation(which) for _ in range(ORDERS)], np.int32)


def averaged(parts: Sequence["np.ndarray"]) -> "np.ndarray":
    """All numbers of several tasks, weighted so that their mean is the mean of the tasks' means."""
    import numpy as np

    total = sum(map(len, parts))
    return np.concatenate([part * total / (len(parts) * len(part)) for part in parts])


def by_seed(records: Sequence[Record]) -> list[dict[tuple, Record]]:
    """For each seed with all records, its records by (task, variant, transferred, train_examples)."""
    found: dict[int, dict[tuple, Record]] = {}
    for record in records:
        key = tuple(record.config.get(name) for name in ("task", "variant", "transferred", "train_examples"))
        found.setdefault(record.seed, {})[key] = record
    most = max(map(len, found.values()), default=0)
    return [found[seed] for seed in sorted(found) if len(found[seed]) == most]


def between(one: str, other: str) -> Callable[[Sequence[Record]], Measured]:
    """Measures one variant's scores minus another's, averaged over tasks; the control is the same by chance."""
    def measure(records: Sequence[Record]) -> Measured:
        import numpy as np

        effects, control = [], []
        for found in by_seed(records):
            pairs = [(found[task, one, None, None], found[task, other, None, None])
                     for task in sorted({key[0] for key in found})]
            for score, kept in ((by_example, effects), (by_chance, control)):
                kept.append(averaged([score(first) - score(second) for first, second in pairs]))
        return Measured(np.array(effects), np.array(control), "one pre-training of each model")
    return measure


def moved(one: str, other: str) -> Callable[[list[Record]], float]:
    """How far the score of one variant, with all layers and the examples of Table 5, is above that of another: the
    mean over tasks of the means over common seeds; 0 if it is below."""
    def room(records: list[Record]) -> float:
        scores: dict[str, dict[str, dict[int, float]]] = {}
        for record in records:
            if record.config.get("transferred") is record.config.get("train_examples") is None:
                of_task = scores.setdefault(record.config["task"], {one: {}, other: {}})
                of_task.setdefault(record.config["variant"], {})[record.seed] = record.metrics["test_score"]
        gains = [fmean(found[one][seed] - found[other][seed] for seed in found[one].keys() & found[other].keys())
                 for found in scores.values()]
        return max(0.0, fmean(gains))
    return room


def variants(*names: str) -> Callable[[Any], bool]:
    """Whether a run is one of these variants of Table 5; at `paper` there is no LSTM, because none was released."""
    return lambda config: (config.task in SOME and config.variant in names and config.transferred is None
                           and config.train_examples is None and ("lstm" not in names or config.scale != "paper"))


def on_mrpc(*names: str) -> Callable[[Any], bool]:
    """The same, on the only data set of Table 5 on which the paper's LSTM wins."""
    return lambda config: config.task == "mrpc" and variants(*names)(config)


def printed(one: str, other: str, columns: Sequence[str] = COLUMNS) -> float:
    """The mean over columns of Table 5 of one variant's scores minus another's."""
    rows = {row["method"]: row for row in printed_rows("gpt1_2018_table5_ablation")}
    return round(fmean(float(rows[VARIANTS[one]][name]) - float(rows[VARIANTS[other]][name]) for name in columns), 6)


COMMON = {"paper": PAPER, "experiment": FINETUNING.name, "unit": "document", "direction": "higher",
          "unit_shown": "points"}
OTHER_ROWS = "the same answers compared with the labels of other rows"
SHUFFLED = "the control was how far the full recipe with shuffled labels beat the commonest label"  # before
ONE_PRETRAINING = "one pre-training was enough, as if the same weights were compared"  # before
AFTERWARDS = "none: added after Table 5 was known"
register(
    Claim(id="gpt1_2018-pretraining-helps", **COMMON, source="Table 5", about=(ABLATION.id,),
          sentence="Pre-training raises the scores of fine-tuned models.",
          where=variants("full", "no-pretraining"), measure=between("full", "no-pretraining"), control=OTHER_ROWS,
          criterion_before=SHUFFLED,
          paper_effect=lambda: printed("full", "no-pretraining"), family="gpt1_2018-parts",
          assay=Assay("training on the labels against training on shuffled ones", variants("full", "shuffled-labels"),
                      moved("full", "shuffled-labels"))),
    Claim(id="gpt1_2018-lstm-worse", **COMMON, source="Table 5", about=(ABLATION.id, RATES.id),
          sentence="An LSTM pretrained on the same text scores below a transformer of the same size.",
          short="An LSTM pretrained on the same text loses to a transformer.",
          where=variants("full", "lstm"), measure=between("full", "lstm"), control=OTHER_ROWS,
          criterion_before=SHUFFLED,
          paper_effect=lambda: printed("full", "lstm"), family="gpt1_2018-parts",
          assay=Assay("pre-training against none", variants("full", "no-pretraining"),
                      moved("full", "no-pretraining"), lambda: printed("full", "no-pretraining"))),
    Claim(id="gpt1_2018-lstm-mrpc", **COMMON, source="Section 5, Table 5", about=(ABLATION.id,),
          sentence="On MRPC alone the pretrained LSTM scores above the transformer.",
          short="On MRPC the LSTM scores above the transformer.",
          where=on_mrpc("full", "lstm"), measure=between("lstm", "full"), control=OTHER_ROWS,
          criterion_before=AFTERWARDS,
          paper_effect=lambda: printed("lstm", "full", ("mrpc_f1_percent",)), family="gpt1_2018-without",
          assay=Assay("pre-training against none", on_mrpc("full", "no-pretraining"), moved("full", "no-pretraining"),
                      lambda: printed("full", "no-pretraining", ("mrpc_f1_percent",)))),
    Claim(id="gpt1_2018-auxiliary-average", **COMMON, source="Table 5", about=(ABLATION.id,),
          sentence="Averaged over the tasks, scores are no lower without the auxiliary objective: 75.0 against 74.7.",
          short="On average, scores are no lower without the objective.",
          where=variants("full", "no-auxiliary"), measure=between("no-auxiliary", "full"), control=OTHER_ROWS,
          criterion_before=AFTERWARDS,
          paper_effect=lambda: printed("no-auxiliary", "full"), family="gpt1_2018-without",
          assay=Assay("pre-training against none", variants("full", "no-pretraining"),
                      moved("full", "no-pretraining"), lambda: printed("full", "no-pretraining"))))


def of_examples(config: Any) -> bool:
    """Whether a run has the task with several numbers of examples, with or without the auxiliary objective, and the
    fewest or the most examples; the numbers between are only shown in the table."""
    between = config.train_examples is not None and min(EXAMPLES) < config.train_examples < max(EXAMPLES)
    return (config.task in ("sst2", SHOWN) and config.variant in ("full", "no-auxiliary")
            and config.transferred is None and config.scale != "paper"
            and (config.scale == "smoke" or config.train_examples is not None and not between))


def ends(found: dict[tuple, Record]) -> dict[str, tuple[Record, Record]]:
    """For the fewest and the most examples: the records with and without the auxiliary objective."""
    numbers = sorted({(record.metrics["train_examples"], key[3], key[0]) for key, record in found.items()},
                     key=lambda one: one[0])
    return {name: tuple(found[task, variant, None, n] for variant in ("full", "no-auxiliary"))
            for name, (_, n, task) in (("fewest", numbers[0]), ("most", numbers[-1]))}


def auxiliary(records: Sequence[Record]) -> Measured:
    """The gain of the auxiliary objective with the most examples minus that with the fewest, by test example."""
    import numpy as np

    gain = [{name: by_example(full) - by_example(without) for name, (full, without) in ends(found).items()}
            for found in by_seed(records)]
    return Measured(np.array([one["most"] - one["fewest"] for one in gain]), note="one pre-training")


def learning(records: list[Record]) -> float:
    """How far the score rises from the fewest examples to the most."""
    found = [ends(one) for one in by_seed(records)]
    return max(0.0, fmean(one["most"][0].metrics["test_score"] - one["fewest"][0].metrics["test_score"]
                          for one in found))


register(Claim(
    id="gpt1_2018-auxiliary", **COMMON, source="Section 5", about=(BY_EXAMPLES.id, ABLATION.id), where=of_examples,
    sentence="The auxiliary objective helps more with many training examples than with few.",
    short="The auxiliary objective helps more with many examples.",
    measure=auxiliary, why_no_control="the rows of a pair differ in the objective, each at its own learning rate",
    paper_effect=lambda: round(printed("full", "no-auxiliary", LARGE_SETS)
                               - printed("full", "no-auxiliary", SMALL_SETS), 6),
    assay=Assay("the most examples against the fewest", of_examples, learning)))


def of_layers(config: Any) -> bool:
    """Whether a run belongs to Figure 2, left: some layers transferred, or no pre-training at all."""
    return (config.task in (*LAYERS, SHOWN) and config.train_examples is None
            and config.variant in ("full", "no-pretraining") and config.scale != "paper")


def by_layers(found: dict[tuple, Record]) -> dict[str, list[tuple[int, "np.ndarray"]]]:
    """For each task the scores by test example, from the embeddings alone to all layers transferred."""
    tasks: dict[str, list] = {}
    for (task, _, transferred, _), record in found.items():
        if transferred is not None:
            tasks.setdefault(task, []).append((transferred, by_example(record)))
    return {task: sorted(kept, key=lambda one: one[0]) for task, kept in sorted(tasks.items())}


def further(scores: list[tuple[int, "np.ndarray"]]) -> "np.ndarray":
    """By test example, the slope of the score over transferred layers, from one to all, times the distance: the gain of
    the layers after the first."""
    import numpy as np

    numbers = np.array([n for n, _ in scores if n], float)
    weights = (numbers - numbers.mean()) / ((numbers - numbers.mean())**2).sum()
    return np.ptp(numbers) * sum(weight * score for weight, (_, score) in zip(weights, scores[1:], strict=True))


def layers(records: Sequence[Record]) -> Measured:
    """The gain of the layers after the first, averaged over tasks; the note lists each task."""
    import numpy as np

    seeds = [{task: further(scores) for task, scores in by_layers(found).items()} for found in by_seed(records)]
    room = at_one_rate(records)
    each = ", ".join(f"{HEADS.get(task, task)} {fmean(float(seed[task].mean()) for seed in seeds):+.1f} "
                     f"(room {room[task]:.1f})" for task in seeds[0])
    return Measured(np.array([averaged(list(seed.values())) for seed in seeds]), note=f"one pre-training; {each}")


def at_one_rate(records: Sequence[Record]) -> dict[str, float]:
    """For each task, how far the score with all layers exceeds that of fresh weights, both at the rate of fresh
    weights."""
    gains: dict[str, list[float]] = {}
    for found in by_seed(records):
        for task in by_layers(found):
            most = max(key[2] for key in found if key[0] == task and key[2] is not None)
            gains.setdefault(task, []).append(found[task, "full", most, None].metrics["test_score"]
                                              - found[task, "no-pretraining", None, None].metrics["test_score"])
    return {task: fmean(each) for task, each in gains.items()}


def worth(records: list[Record]) -> float:
    """The mean gain over tasks of all pretrained weights at one learning rate; 0 if they do harm."""
    return max(0.0, fmean(at_one_rate(records).values()))


register(Claim(
    id="gpt1_2018-layers", **COMMON, source="Figure 2, left", about=(BY_LAYERS.id,), where=of_layers, measure=layers,
    sentence="Each additional transferred layer raises the score: the trend from one layer to all, over SICK and SST-2 "
             "together.", short="Each additional transferred layer raises the score.",
    criterion_before="all layers against the embeddings alone; the first layer alone gave +6.06 of its +5.74 points",
    why_no_control="rows differ only in the number of transferred layers, and all use one learning rate",
    why_no_paper_effect='the paper prints "up to 9%" for MultiNLI, which we do not have, and draws the other points',
    assay=Assay("all pretrained weights against none, at one learning rate", of_layers, worth)))


def checkpoints(records: Sequence[Record]) -> Measured:
    """The score after pre-training minus that before it, by row; the control is the same with the next row's text in
    front."""
    import numpy as np

    effects, control = [], []
    for record in records:
        last = len(record.curves["score"]) - 1
        for key, kept in (("correct", effects), ("correct_other", control)):
            end, start = (_scores_at(record, f"checkpoint_{number}", key) for number in (last, 0))
            kept.append(end - start)
    return Measured(np.array(effects), np.array(control), "one pre-training")


def _scores_at(record: Record, moment: str, key: str) -> "np.ndarray":
    """(rows,) scores of a heuristic; for two labels, whether it is right gives the predicted label."""
    labels, right = record.documents["test"]["label"], record.documents[moment][key]
    if HEURISTICS[record.config["task"]].metric == "accuracy":
        return units(right, [1] * len(right), "accuracy")
    return units(labels, [label if hit else 1 - label for label, hit in zip(labels, right, strict=True)], "matthews")


def asked(task: str) -> Callable[[Any], bool]:
    """Whether a run asks the transformer for this task; at smoke, for the generated task that replaces it."""
    names = (task, {"cola": "belonging", "race": "nouns"}.get(task))
    return lambda config: config.experiment == ZERO_SHOT.name and config.task in names and config.model == "transformer"


def fine_tuned(task: str) -> Callable[[Any], bool]:
    """Whether a run fine-tunes the whole recipe for this task; at smoke, for the generated task that replaces it."""
    names = (task, {"cola": "belonging", "race": "nouns"}.get(task))
    return lambda config: (config.experiment == FINETUNING.name and config.task in names and config.variant == "full"
                           and config.transferred is None and config.train_examples is None)


def above_majority(records: list[Record]) -> float:
    """How far the scores lie above the commonest label."""
    return fmean(record.metrics["test_score"] - record.metrics["majority_score"] for record in records)


def heuristic(task: str, sentence: str, short: str) -> Claim:
    """The claim that a model without fine-tuning gets better at a task during pre-training."""
    tuned = task in FORMS
    positive = {"assay": Assay("the fine-tuned model, above the commonest label", fine_tuned(task), above_majority)
                } if tuned else {"why_no_assay": "no model here is fine-tuned for it"}
    return Claim(id=f"gpt1_2018-heuristic-{task}",
                 **COMMON | {"experiment": (ZERO_SHOT.name, *([FINETUNING.name] if tuned else []))},
                 source="Figure 2, right", about=(BY_CHECKPOINT.id,), sentence=sentence, short=short,
                 where=asked(task), measure=checkpoints, family="gpt1_2018-heuristics",
                 criterion_before=ONE_PRETRAINING,
                 control="the same with the next row's text in front",
                 why_no_paper_effect="the paper draws scores relative to the best known, and prints no number",
                 **positive)


register(
    heuristic("cola", "During pre-training, acceptable sentences become more likely than others.",
              "Pre-training makes acceptable sentences more likely."),
    heuristic("sst2", "During pre-training, the model learns to distinguish “very positive” from “very negative”.",
              "Pre-training separates “very positive” from “very negative”."),
    heuristic("race", "During pre-training, right answers become more likely than others.",
              "Pre-training makes right answers more likely."),
    heuristic("gap", "During pre-training, the model gets better at resolving pronouns.",
              "Pre-training helps the model to resolve pronouns."))


def language(records: Sequence[Record]) -> Measured:
    """Nats per token of the LSTM minus the transformer's, by stretch of held-out text."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    nats = {record.config["model"]: linearised(*(record.documents["validation"][key] for key in ("nll", "n_tokens")))
            for record in records}
    return Measured(np.array([nats["lstm"] - nats["transformer"]]), note="one pre-training of each")


register(Claim(
    id="gpt1_2018-lstm-language", paper=PAPER, experiment=PRETRAINING.name, source=ADDED, about=(RATES.id,),
    criterion_before=ONE_PRETRAINING,
    sentence="Pretrained on the same text, the transformer predicts held-out text better than the LSTM.",
    short="The transformer predicts held-out text better than the LSTM.", unit="stretch",
    direction="higher", unit_shown="nats per token saved", measure=language,
    where=lambda config: config.source == "scratch" and config.tokens == max(
        one.tokens for one in PRETRAINING.plan(config.scale)),
    why_no_paper_effect="the paper compares the two by their fine-tuned scores only",
    why_no_control="both models read the same tokens in the same order with the same optimizer",
    why_no_assay="the paper prints no effect to compare with"))
