"""Table 3 next to ours, the choices that the paper leaves open, and F1 by distance."""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.markup import bounded, percentage, written
from repro.papers.yoshida2020.hotpotqa.experiment import BASELINE, CHAPTER, EXPERIMENT, PAPER, RECURRENT, SCALES
from repro.study import ADDED, Artifact, ArtifactContext, Record, judge, register
from repro.study.artifacts import NOT_RUN
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy
    import pandas

TABLE = "yoshida2020_table3_hotpotqa"
SCORES = {"answer_f1": "F1", "answer_exact_match": "exact match"}
SPLIT = "validation"
ENOUGH = 20  # questions for a meaningful mean
OPEN = (  # the paper's words that leave a choice open, our choice, another reading
    ("a 2-layer MLP with a 768-dimensional hidden layer", "one hidden layer of 768 units", "two hidden layers"),
    ("inserted at layer 2", "the second layer, index 1 of those counted from 0, as in its Equation 1", "index 2"),
    ("the mean of the final layer", "over all real tokens of a window, including the question", "–"),
    ("windows", "question, separator, text; all full but the last; each token of the text in one window", "–"),
    ("start and end", "one softmax over the text of all windows; the mean of both losses", "–"),
    ("an answer that occurs several times", "any occurrence in a supporting sentence; if unknown, any", "–"),
    ("the type of an answer: <s>, max pooled over windows", "then a linear map to span, yes, no; its loss is added",
     "–"),
    ("length of an answer", "at most 30 tokens within one window", "–"),
    ("paragraphs", "in the order of the data set, each after its title", "–"),
    ("batch, warm-up, decay", "batch set by the scale; warm-up over a tenth of the steps, then linear to 0", "–"),
    ("learning rate", "at small the best of three after one pass over 900 questions, by the nats of 300 others; at "
     "pretrained 3e-4, and 1e-3 for the module, not tuned", "–"),
    ("epochs", "at small one, and three in separate rows; the best epoch counts, by the nats of the same 300, and at "
     "paper the last", "–"),
    ("dropout", "the base model's: none at small and pretrained", "–"),
)


def questions(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 3: the printed rows, then ours, in %, with 95% intervals over seeds and questions.

    "nats": the loss of the right answer; for a guess, all tokens of a text are equally likely. "masked": the same
    reader with its module off; "other": with the states of another question; "swapped": each text with another text's
    question. "together minus apart": the gain from having both supporting paragraphs in one window. "recovered": the
    share of the possible gain from reading all windows together, if it is known.
    """
    import pandas

    rows = [["the paper", *((BASELINE, "–") if row["model"].startswith("Disjoint") else (RECURRENT, "as the paper's")),
             "HotpotQA, dev", row["answer_f1_percent"], row["answer_exact_match_percent"], *["–"] * 6, "–"]
            for row in printed_rows(TABLE)]
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = context.records_of(config)
            cells = [*(_interval(found, name) for name in SCORES), _mean(found, "answer_nats", 3)] + [
                _mean(found, name) for name in ("masked_answer_f1", "other_answer_f1", "swapped_answer_f1")
            ] + [_together(found), _mean(found, "share_recovered", 2)] if found else [NOT_RUN] * 8
            rows.append([f"this study, {scale}", config.model, _module(config), config.corpus, *cells,
                         str(len(found)) if found else NOT_RUN])
        guesses = [record for config in context.plan(scale) for record in context.records_of(config)][:1]
        rows.append([f"this study, {scale}", "a guess", "–", context.plan(scale)[0].corpus, "–", "–",
                     _mean(guesses, "guess_answer_nats", 3) if guesses else NOT_RUN, *["–"] * 6])
    return pandas.DataFrame(rows, columns=["source", "model", "module", "questions", "F1", "exact match", "nats",
                                           "F1: masked", "F1: other", "F1: swapped", "F1: together minus apart",
                                           "recovered", "seeds"])


def left_open(context: ArtifactContext) -> "pandas.DataFrame":
    """The paper's words, our reading, and other readings that are rows at smoke."""
    import pandas

    return pandas.DataFrame(OPEN, columns=["the paper", "our choice", "other reading tried at smoke"])


def sayings(context: ArtifactContext) -> "pandas.DataFrame":
    """Some validation questions, the right answers, and the answers of both readers of the first seed."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        found = {config.model: context.records_of(config) for config in context.plan(scale) if is_main(config)}
        samples = {model: records[0].notes["samples"] if records else [] for model, records in found.items()}
        rows += [[f"this study, {scale}", one["question"], one["wanted"], one["told"], other["told"]]
                 for one, other in zip(samples[BASELINE], samples[RECURRENT], strict=False)] or [
                     [f"this study, {scale}", *[NOT_RUN] * 4]]
    return pandas.DataFrame(rows, columns=["source", "question", "right answer", BASELINE, RECURRENT])


def windows_told(context: ArtifactContext) -> "pandas.DataFrame":
    """One validation question: the words that each of its windows would give alone, and their probability for the
    recurrent reader of the first seed, with h_prev and without. It is the first question with several windows whose
    answer the module changes, for better or worse; if there is none, the first with several windows. The number of
    changed answers comes first."""
    import pandas

    columns = ["source", "what is read", "with h_prev", "without h_prev"]
    rows = []
    for scale in reversed(context.scales):
        config, = (one for one in context.plan(scale) if is_main(one) and one.model == RECURRENT)
        found = context.records_of(config)
        one = found[0].notes["by_window"] if found else {}
        if not one:
            rows.append([f"this study, {scale}", *["no question has two windows" if found else NOT_RUN] * 3])
            continue
        asked = f"{one['question']} (wanted: {one['wanted']})"
        rows.append([f"this study, {scale}", "answers that the module changes", f"{one['changed']} of "
                     f"{one['questions']}", "–"])
        rows.append([f"this study, {scale}", asked, one["told"], one["masked"]])
        rows += [[f"this study, {scale}", f"window {k}: {text}", f"{seen} ({100 * sure:.2g}%)",
                  f"{alone} ({100 * less:.2g}%)"]
                 for k, (text, seen, sure, alone, less) in enumerate(one["windows"], 1)]
    return pandas.DataFrame(rows, columns=columns)


def by_distance(context: ArtifactContext):
    """F1 of both readers by the number of windows between the starts of the two supporting paragraphs, at distances
    with at least `ENOUGH` questions."""
    import pandas

    from repro.plotting import draw_table_curves

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = [record.documents[SPLIT] for record in context.records_of(config)] if is_main(config) else []
            for distance in sorted({one for documents in found for one in documents["distance"] if one >= 0}):
                values = [f1 for documents in found
                          for f1, at in zip(documents["answer_f1"], documents["distance"], strict=True)
                          if at == distance]
                if len(values) < ENOUGH * len(found):
                    continue
                rows.append({"source": scale, "model": config.model, "distance": distance, "f1": fmean(values)})
    return draw_table_curves(pandas.DataFrame(rows, columns=["source", "model", "distance", "f1"]), "distance", "f1",
                             ("windows from one paragraph to the other", "F1 (%)"))


def is_main(config: Any) -> bool:
    """Whether a run has the main reading of the paper and the usual epochs, which the claims are about."""
    epochs = SCALES[config.scale]["epochs"]
    return not config.mean_token and (config.hidden_layers, config.insert_layer, config.epochs) == (1, 1, epochs)


def _module(config: Any) -> str:
    parts = [] if config.model == BASELINE else [
        f"{config.hidden_layers} hidden x {config.hidden_size}, index {config.insert_layer}"]
    parts += ["starts as the mean token"] * config.mean_token
    if config.epochs != SCALES[config.scale]["epochs"]:
        parts.append(f"{config.epochs} epochs")
    return "; ".join(parts) or "–"


def _interval(records: Sequence[Record], score: str) -> str:
    verdict = judge([record.documents[SPLIT][score] for record in records], "higher", seeds=1)
    return percentage(verdict.effect, verdict.low, verdict.high)


def _mean(records: Sequence[Record], metric: str, digits: int = 1) -> str:
    values = [record.metrics[metric] for record in records if metric in record.metrics]
    return written(fmean(values), f".{digits}f") if values else "–"


def _together(records: Sequence[Record]) -> str:
    found = [lost_apart(record, "answer_f1") for record in records if "assay" in record.documents]
    if not found:
        return "–"
    verdict = judge(found, "higher", seeds=1)
    return bounded(verdict.effect, verdict.low, verdict.high, "+.1f")


def lost_apart(record: Record, score: str) -> "numpy.ndarray":
    """For each question, the score with both supporting paragraphs in one window minus the score with one in each."""
    import numpy as np

    together, apart = (np.array(record.documents["assay"][f"{way}_{score}"]) for way in ("together", "apart"))
    return together - apart

OF = {"paper": PAPER, "chapter": CHAPTER, "experiment": EXPERIMENT.name}
TABLE_3 = Artifact(id="yoshida2020-table3", **OF, source="Table 3", build=questions,
                   title="Questions about ten paragraphs: answer scores in % (ours: other models and other questions)")
CHOICES = Artifact(id="yoshida2020-hotpotqa-open", **OF, source=ADDED, build=left_open,
                   title="Choices that the paper leaves open about its reader, and ours")
FIGURE = Artifact(id="yoshida2020-hotpotqa-distance", **OF, source=ADDED, kind="figure", build=by_distance,
                  title="F1 by the distance between the two supporting paragraphs",
                  look_for="If the recurrent reader connects windows, its line stays above the baseline's where the "
                           "paragraphs are one or more windows apart.")
SAMPLES = Artifact(id="yoshida2020-hotpotqa-answers", **OF, source=ADDED, build=sayings,
                   title="Sample questions and the answers of both readers")
WINDOWS = Artifact(id="yoshida2020-hotpotqa-windows", **OF, source=ADDED, build=windows_told,
                   title="One question, window by window")
register(TABLE_3, CHOICES, FIGURE, SAMPLES, WINDOWS)
