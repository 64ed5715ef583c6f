"""Tables 2 to 5, Figures 1 and 4 and the results in the text, with the paper's values and ours."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, floor, log2, log10
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from repro.papers.gpt2_2019.sizes import CHAPTER, CHECKPOINTS, PAPER, RANKS, SIZES, model_config, named, text_of
from repro.papers.gpt2_2019.sizes import EXPERIMENT as PRETRAINING
from repro.papers.gpt2_2019.zero_shot import BASE, CALLED, FREQUENCIES, IMPOSSIBLE, LAST_WORDS
from repro.papers.gpt2_2019.zero_shot import EXPERIMENT as ZERO_SHOT
from repro.study import Artifact, ArtifactContext, Record, published, register
from repro.study.artifacts import ADDED, NOT_RUN, heading
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import pandas

NOT_HERE = "not here"
# Column of Table 3 -> its heading, our metric (None: we lack the set) and its format (see `mean`).
TABLE_3 = {
    "lambada_perplexity": ("LAMBADA perplexity", "lambada_perplexity", ""),
    "lambada_accuracy_percent": ("LAMBADA accuracy", "lambada_accuracy_stop_words_percent", ".2f"),
    "cbt_common_nouns_accuracy_percent": ("CBT-CN (ours, pg19-clozes)", "cloze_nouns_accuracy_percent", ".2f"),
    "cbt_named_entities_accuracy_percent": ("CBT-NE (ours, pg19-clozes)", "cloze_names_accuracy_percent", ".2f"),
    "wikitext2_perplexity": ("WikiText-2", "wikitext2_word_perplexity", ""),
    "ptb_perplexity": ("PTB", None, ""),
    "enwik8_bits_per_byte": ("enwik8 (ours, a part)", "enwik8_bits_per_byte", ".3f"),
    "text8_bits_per_character": ("text8 (ours, a part)", "text8_bits_per_character", ".3f"),
    "wikitext103_perplexity": ("WikiText-103", "wikitext103_word_perplexity", ""),
    "one_billion_word_perplexity": ("1BW", None, ""),
}
TASKS = {  # of Figure 1: our metric, in % or BLEU
    "reading": "reading_f1_percent", "summaries": "summary_hint_average", "questions": "questions_exact_percent",
    "translation": "translation_bleu", "translation into English": "translation_back_bleu"}
ROUGE = ("rouge1", "rouge2", "rougeL")
SUMMARIES = {"hint": "GPT-2 with TL;DR: hint", "no_hint": "GPT-2 without hint", "scrambled": "with a scrambled hint",
             "lede_3": "Lede-3", "random_3": "Random-3"}
LARGEST = SIZES[-1]


def sizes(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 2: weights as printed, as counted in the released models, and those of our sizes.

    The paper prints the count with GPT's vocabulary; the released weights have a larger one.
    """
    import pandas

    from repro.models.gpt import SIZES as RELEASED

    rows, of_gpt = [], RELEASED["openai-gpt"]
    for row in printed_rows("gpt2_2019_table2_model_sizes"):
        counted = RELEASED[CHECKPOINTS[row["model"]]]
        cells = {"paper: size": row["model"], "our size for it": f"{RANKS[row['model']]} of four",
                 "paper: parameters": f"{row['parameters_millions_as_printed']}M",
                 "counted, with GPT's vocabulary": f"{replace(counted, vocab_size=of_gpt.vocab_size).parameters:,}",
                 "counted, as released": f"{counted.parameters:,}", "paper: layers": row["layers"],
                 "paper: width": row["d_model"]}
        for scale in reversed(context.scales):
            config, = _whole(context, scale, size=row["model"])
            ours = model_config(config, config.vocab_size)
            name = heading(scale)
            cells |= {f"{name}: parameters": f"{ours.parameters:,}", f"{name}: without embeddings":
                      f"{ours.matrices:,}", f"{name}: layers": str(ours.n_layer), f"{name}: width": str(ours.n_embd)}
        rows.append(cells)
    return pandas.DataFrame(rows)


def _whole(context: ArtifactContext, scale: str, **sets: Any) -> list:
    """The configs of trainings that read all of the text."""
    return [config for config in context.plan(scale, **sets) if text_of(config) == "all"]


def zero_shot(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 3: one row per model, ours below the paper's, with mean and standard deviation over seeds."""
    import pandas

    rows = [{"source": "the paper", "model": row["model"], "weights": "–"} |
            {head: row[column] for column, (head, _, _) in TABLE_3.items()} | {"seeds": "–"}
            for row in published("gpt2_2019_table3_zero_shot_lm").to_dict("records")]
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = context.records_of(config)
            rows.append({"source": f"this study, {scale}", "model": called(config),
                         "weights": mean(found, "parameters", ",.0f")} |
                        {head: mean(found, metric, style) if metric else NOT_HERE
                         for head, metric, style in TABLE_3.values()} | {"seeds": str(len(found)) if found else "–"})
        rows.append(_commonest(context, scale))
    return pandas.DataFrame(rows)


def _commonest(context: ArtifactContext, scale: str) -> dict[str, str]:
    """A row of Table 3 for the control of the clozes, which needs no model."""
    found = context.records(scale, size=LARGEST, text="all")[:1]
    cells = {head: mean(found, metric.replace("accuracy", "commonest"), style)
             for head, metric, style in TABLE_3.values() if metric and metric.startswith("cloze")}
    return {"source": f"this study, {scale}", "model": "the commonest candidate of the context", "weights": "–"} | {
        head: cells.get(head, "–" if metric else NOT_HERE) for head, metric, _ in TABLE_3.values()} | {"seeds": "–"}


def called(config) -> str:
    """The model of a run, as tables name it."""
    if config.size == FREQUENCIES:
        return "token frequencies alone"
    name = BASE if config.size == BASE else named(config.size, config.scale)
    return name + {"all": "", "little": "; little text", "wrapped": "; books in lines"}[config.text]


def summarised(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 4: ROUGE of the largest model's summaries, and of the first and random sentences of the article."""
    import pandas

    rows = [{"source": "the paper, CNN and Daily Mail", "summary": row["model"], "R-1": row["rouge1_f1"],
             "R-2": row["rouge2_f1"], "R-L": row["rougeL_f1"], "R-AVG": row["rouge_average"]}
            for row in published("gpt2_2019_table4_summarization").to_dict("records")]
    for scale in reversed(context.scales):
        for config in context.plan(scale, size=LARGEST, text="all"):
            found = context.records_of(config)
            for name, label in SUMMARIES.items():
                values = [mean(found, f"summary_{name}_{measure}", ".2f") for measure in ROUGE]
                rows.append({"source": f"this study, {scale}, {config.articles}",
                             "summary": label.replace("GPT-2", named(LARGEST, scale))} |
                            dict(zip(("R-1", "R-2", "R-L"), values, strict=True)) |
                            {"R-AVG": _average(found, name)})
    return pandas.DataFrame(rows)


def _average(found: Sequence[Record], name: str) -> str:
    values = [rouge(record, name) for record in found]
    return f"{fmean(values):.2f}" if values else NOT_RUN


def rouge(record: Record, name: str) -> float:
    """The mean of the three ROUGE scores of one kind of summary."""
    return fmean(record.metrics[f"summary_{name}_{measure}"] for measure in ROUGE)


def most_confident(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 5: the answers that the largest model is most confident about, the paper's first, then ours."""
    import pandas

    rows = [{"source": "the paper", "question": row["question"], "answer": row["generated_answer"],
             "correct": row["correct"], "probability": f"{row['probability_percent']}%"}
            for row in published("gpt2_2019_table5_natural_questions_top30").to_dict("records")]
    for scale in reversed(context.scales):
        for config in context.plan(scale, size=LARGEST, text="all"):
            found = context.records_of(config)[:1]
            source = f"this study, {scale} ({named(LARGEST, scale)}), {config.questions}"
            rows += [{"source": f"{source}, seed {record.seed}",
                      "question": one["question"],
                      "answer": one["answer"] or "(nothing)", "correct": "yes" if one["correct"] else "no",
                      "probability": _share(one["probability"])}
                     for record in found for one in record.notes["answers"]]
            if not found:
                rows.append(dict.fromkeys(("source", "question", "answer", "correct", "probability"), NOT_RUN) |
                            {"source": source})
    return pandas.DataFrame(rows)


def _share(probability: float) -> str:
    return f"{rounded(100 * probability, 2)}%" if probability >= 1e-4 else "< 0.01%"


def detokenised(context: ArtifactContext) -> "pandas.DataFrame":
    """Perplexity per word of the same text, split into words and as people write it."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale, text="all"):
            found = context.records_of(config)
            tokens = found[0].documents["wikitext103"] if found else {}
            other = [exp(sum(r.documents["wikitext103"]["other_blanks"]) / sum(tokens["n_words"])) for r in found]
            rows.append({"scale": scale, "model": called(config), "text": config.wikitext103,
                         "split into words": mean(found, "wikitext103_word_perplexity_tokenised"),
                         "de-tokenized": mean(found, "wikitext103_word_perplexity"),
                         "as many other spaces removed": rounded(fmean(other), 4) if other else NOT_RUN})
    return pandas.DataFrame(rows)


def in_text(context: ArtifactContext) -> "pandas.DataFrame":
    """The results printed in the text of sections 2 to 4, and our largest model's result if we have the set, or one
    like it."""
    import pandas

    rows = []
    for row in printed_rows("gpt2_2019_text_results"):
        cells = {"task": row["task"], "data set": row["dataset"], "model": row["model"], "measure": row["metric"],
                 "paper": f"{row['value']} {row['unit']}".strip()}
        for scale in reversed(context.scales):
            cells[f"{heading(scale)}: {named(LARGEST, scale)}"] = _text_cell(context, scale, row)
        rows.append(cells)
    return pandas.DataFrame(rows)


OURS = {  # (task, measure, start of the model) -> our metric and its set
    ("reading comprehension", "F1", "GPT-2"): ("reading_f1_percent", "reading"),
    ("question answering", "exact match", "GPT-2"): ("questions_exact_percent", "questions"),
    ("question answering", "exact match", "most"): ("questions_most_common_percent", "questions"),
    ("question answering", "accuracy on the 1% most confident", "GPT-2"): ("questions_confident_percent", "questions"),
    ("LAMBADA", "accuracy without stop-word filter", "GPT-2"): ("lambada_accuracy_percent", "corpus"),
    ("LAMBADA", "accuracy with stop-word filter", "GPT-2"): ("lambada_accuracy_stop_words_percent", "corpus"),
}
ALONE = {"reading_f1_percent": "reading_alone_f1_percent"}  # the same with the question alone
# How our set is easier than the paper's: HotpotQA's supporting paragraphs hold the answer; CoQA asks about a whole
# passage, after a conversation.
EASIER = {"reading_f1_percent": ", given only the paragraphs that hold the answer"}
BARRED = {"whole words": ", stop words barred as whole words",
          "first tokens": ", stop words of one token barred as first token: "
                          f"{IMPOSSIBLE['sizes']} of {LAST_WORDS:,} last words cannot be predicted"}
WHY_NOT = {  # task -> why we have no number
    "translation": "not run: WMT-14 is fetched at paper scale only",
    "commonsense": "not run: we do not have the Winograd schemas",
    "data": "not run: WebText was never published", "reading comprehension": "–", "question answering": "–"}
SETTINGS = {"vocabulary": "vocab_size", "context": "n_positions", "batch size": "batch_size"}


def _text_cell(context: ArtifactContext, scale: str, row: dict[str, str]) -> str:
    if row["metric"] in SETTINGS:
        return f"{getattr(context.plan(scale, experiment=PRETRAINING.name)[0], SETTINGS[row['metric']]):,}"
    if row["metric"] == "residual init scaling":
        return "the same"
    config, = context.plan(scale, experiment=ZERO_SHOT.name, size=LARGEST, text="all")
    found = context.records_of(config)
    key = next((key for key in OURS if key[:2] == (row["task"], row["metric"]) and row["model"].startswith(key[2])),
               None)
    if key and key in OURS:
        metric, field = OURS[key]
        without = f"; {mean(found, ALONE[metric], '.2f')} without the text" if metric in ALONE else ""
        barred = BARRED[config.stop_words] if metric == "lambada_accuracy_stop_words_percent" else ""
        note = f"{getattr(config, field)}{EASIER.get(metric, '')}{barred}{without}"
        return f"{mean(found, metric, '.2f')} ({note})" if found else NOT_RUN
    if row["task"] == "translation" and row["model"].startswith("GPT-2"):
        field = "translations" if "En-Fr" in row["dataset"] else "translations_back"
        if name := getattr(config, field):
            return f"{mean(found, f'{CALLED[field]}_bleu', '.1f')} ({name})" if found else NOT_RUN
    if row["metric"] == "ratio of correct answers":
        smallest, = context.plan(scale, experiment=ZERO_SHOT.name, size=SIZES[0], text="all")
        right = [fmean(record.metrics["questions_exact_percent"] for record in records)
                 for records in (found, context.records_of(smallest)) if records]
        if len(right) < 2:
            return NOT_RUN
        return f"{right[0] / right[1]:.1f}" if right[1] else f"none: {right[0]:.2f} and {right[1]:.2f}% right"
    if row["task"] == "summarization":
        change = [rouge(record, "hint") - rouge(record, "no_hint") for record in found]
        return f"{fmean(change):.2f} ({config.articles})" if change else NOT_RUN
    return WHY_NOT.get(row["task"], "–")


def by_size(context: ArtifactContext) -> Any:
    """Figure 1: the score of each task by model size, one panel per task, one line per scale."""
    return _panels(_scores(context, TASKS), "score (% or BLEU)")


def accuracies_by_size(context: ArtifactContext) -> Any:
    """The accuracies of Table 3 by model size, the paper's and ours, one panel per set."""
    return _panels(_table_3(context, "accuracy_percent", lambda score: score), "accuracy (%)")


def bits_by_size(context: ArtifactContext) -> Any:
    """The perplexities and bits of Table 3, all in bits, by model size, the paper's and ours, one panel per text."""
    rows = _table_3(context, "perplexity", log2)
    for ending in ("bits_per_byte", "bits_per_character"):
        rows += _table_3(context, ending, lambda score: score)
    return _panels(rows, "bits of a word, byte or character")


def _table_3(context: ArtifactContext, ending: str, shown: Callable[[float], float]) -> list[dict[str, Any]]:
    """The paper's rows and ours of those columns of Table 3 whose names end so and that have a metric of ours."""
    heads = {column: head.partition(" (")[0].removesuffix(" perplexity")
             for column, (head, metric, _) in TABLE_3.items() if metric and column.endswith(ending)}
    rows = [{"source": name, "model": "paper", "weights": float(row["model"].removesuffix("M")),
             "score": float(row[column])} for row in printed_rows("gpt2_2019_table3_zero_shot_lm")
            if row["model"] in SIZES for column, name in heads.items()]
    rows += _scores(context, {name: TABLE_3[column][1] for column, name in heads.items()})
    return [row | {"score": shown(row["score"])} for row in rows]


def _scores(context: ArtifactContext, metrics: Mapping[str, str]) -> list[dict[str, Any]]:
    """For each named metric and scale, the mean over seeds of every size that has the metric."""
    rows = []
    for name, metric in metrics.items():
        for scale in reversed(context.scales):
            for config in context.plan(scale, text="all"):
                found = context.records_of(config)
                values = [value for record in found if (value := _score(record, metric)) is not None]
                if values and config.size != FREQUENCIES:
                    other = f"{scale}: {BASE}, on other and more text" if config.size == BASE else scale
                    rows.append({"source": name, "model": other, "weights": found[0].metrics["parameters"] / 1e6,
                                 "score": fmean(values)})
    return rows


def _panels(rows: list[dict[str, Any]], label: str) -> Any:
    import pandas

    from repro.plotting import draw_table_curves

    frame = pandas.DataFrame(rows, columns=["source", "model", "weights", "score"])
    return draw_table_curves(frame, "weights", "score", ("million weights", label), log_x=10)


def _score(record: Record, metric: str) -> float | None:
    if metric == "summary_hint_average":
        return rouge(record, "hint") if f"summary_hint_{ROUGE[0]}" in record.metrics else None
    return record.metrics.get(metric)


def losses_by_size(context: ArtifactContext) -> Any:
    """Figure 4: the loss on training text and on held-out text by model size, and a fit to the latter (`fitted`)."""
    import pandas

    from repro.plotting import draw_table_curves

    rows = []
    for scale in reversed(context.scales):
        plan = _whole(context, scale)
        law = fitted([record for config in plan for record in context.records_of(config)])
        for config in plan:
            found = context.records_of(config)
            if not found or "train_token_loss" not in found[0].metrics:
                continue
            weights = found[0].metrics["parameters"]
            point = {"source": scale, "weights": weights / 1e6}
            for split, called in (("train", "text read in training"), ("validation", "held-out text")):
                rows.append(point | {"model": called, "loss": fmean(r.metrics[f"{split}_token_loss"] for r in found)})
            if law:
                rows.append(point | {"model": "fit to losses on one book during training", "loss": law(
                    weights, fmean(r.notes["tokens"] for r in found))})
    frame = pandas.DataFrame(rows, columns=["source", "model", "weights", "loss"])
    return draw_table_curves(frame, "weights", "loss", ("million weights", "nats per token"), log_x=10)


class Law:
    """loss = floor + size_factor / weights**a + text_factor / tokens**b (Hoffmann et al. 2022, section 3.3)."""

    def __init__(self, floor: float, size_factor: float, a: float, text_factor: float, b: float):
        self.floor, self.size_factor, self.a, self.text_factor, self.b = floor, size_factor, a, text_factor, b

    def __call__(self, weights: float, tokens: float) -> float:
        return self.floor + self.size_factor / weights**self.a + self.text_factor / tokens**self.b


def fitted(records: Sequence[Record]) -> Law | None:
    """The law that best fits the held-out losses of all sizes during training; None with fewer than 8 points.

    The learning rate still falls at all points but the last of each curve, so it describes these trainings and predicts
    no others. Least squares of the logs, from one start, none of the five numbers below 0.
    """
    import numpy as np
    from scipy.optimize import least_squares

    points = np.array([(record.metrics["parameters"], tokens, loss) for record in records
                       for tokens, loss in record.curves.get("validation_loss", [])])
    if len(points) < 8:
        return None
    weights, tokens, loss = points.T
    scale = np.array([weights.mean(), tokens.mean()])

    def values(x):
        return x[0] + x[1] * (weights / scale[0])**-x[2] + x[3] * (tokens / scale[1])**-x[4]

    start = np.array([loss.min() / 2, loss.min() / 4, 0.3, loss.min() / 4, 0.3])
    found = least_squares(lambda x: np.log(values(x)) - np.log(loss), start, bounds=([1e-9] * 5, [np.inf] * 5)).x
    return Law(found[0], found[1] * scale[0]**found[2], found[2], found[3] * scale[1]**found[4], found[4])


def mean(found: Sequence[Record], metric: str, style: str = "") -> str:
    """The mean over seeds, with the standard deviation if several differ; "–" for a set that was left out.

    style: as in a format; empty: four digits, see `rounded`.
    """
    values = [record.metrics[metric] for record in found if metric in record.metrics]
    if not values:
        return NOT_RUN if not found else "–"
    average = fmean(values)
    written = f"{average:{style}}" if style else rounded(average, 4)
    spread = f" ± {rounded(stdev(values), 2)}" if len(values) > 1 and stdev(values) > 1e-9 * abs(average) else ""
    return written + spread


def rounded(value: float, digits: int) -> str:
    """A number with this many significant digits, without powers of ten.

    >>> rounded(2_052_263.9, 4), rounded(8.6349, 4), rounded(0.0000123, 2), rounded(99.6, 2)
    ('2,052,000', '8.635', '0.000012', '100')
    """
    short = float(f"{value:.{digits - 1}e}")
    return f"{short:,.{max(0, digits - 1 - floor(log10(abs(short)))) if short else 0}f}"


OF = {"paper": PAPER, "chapter": CHAPTER}
TABLE_2 = Artifact(id="gpt2_2019-table2", **OF, experiment=PRETRAINING.name, source="Table 2", build=sizes,
                   title="The four models: weights as printed (counted with GPT's vocabulary), as released, and ours")
TABLE = Artifact(id="gpt2_2019-table3", **OF, experiment=ZERO_SHOT.name, source="Table 3", build=zero_shot,
                 title="Zero-shot language modeling, by model size",
                 look_for=f"Ours represent the paper's sizes; {BASE} is the base model of this study, trained longer "
                          "and on other text. For LAMBADA accuracy, stop words are excluded: at small as first "
                          "tokens, elsewhere as whole words. WikiText-2 and WikiText-103 have the same test articles, "
                          "the second with <unk> for rare words.",
                 shows=("corpus", "names", "nouns", "wikitext2", "wikitext103", "enwik8", "text8"))
TABLE_4 = Artifact(id="gpt2_2019-table4", **OF, experiment=ZERO_SHOT.name, source="Table 4", build=summarised,
                   title="Summaries by the largest model, ROUGE F1 in % (ours: scientific articles)",
                   shows=("articles",))
TABLE_5 = Artifact(id="gpt2_2019-table5", **OF, experiment=ZERO_SHOT.name, source="Table 5", build=most_confident,
                   title="The answers that the largest model is most confident about (ours: HotpotQA, no text given)",
                   shows=("questions",))
DETOKENISED = Artifact(
    id="gpt2_2019-detokenised", **OF, experiment=ZERO_SHOT.name, source=ADDED, build=detokenised,
    title="Perplexity per word of text with and without the marks of its word tokenizer", shows=("wikitext103",))
TEXT = Artifact(id="gpt2_2019-text-results", **OF, experiment=(PRETRAINING.name, ZERO_SHOT.name),
                source="Sections 2 to 4", build=in_text, title="Results that the paper reports in its text, and ours",
                shows=("corpus", "reading", "questions", "articles", "translations", "translations_back"))
FIGURE_1 = Artifact(id="gpt2_2019-figure1", **OF, experiment=ZERO_SHOT.name, source="Figure 1", build=by_size,
                    kind="figure", title="Zero-shot scores, by model size",
                    look_for="If larger models answer better, a line rises with the number of weights. A flat line "
                             "near zero means that no model here does the task.",
                    shows=("reading", "articles", "questions", "translations", "translations_back"))
BY_SIZE = Artifact(id="gpt2_2019-table3-figure", **OF, experiment=ZERO_SHOT.name, source="Table 3", kind="figure",
                   build=accuracies_by_size, title="Accuracy on texts that no model was trained on, by model size",
                   look_for="Compare slopes, not levels. Our line rises with size as the paper's does if small models "
                            "already profit from size.",
                   shows=("corpus", "names", "nouns"))
FIGURE_4 = Artifact(id="gpt2_2019-figure4", **OF, experiment=PRETRAINING.name, source="Figure 4", build=losses_by_size,
                    kind="figure", title="Loss on training text and on held-out text, by model size",
                    look_for="If a model underfits, both of its losses are close together. A growing gap means that "
                             "larger models begin to memorize.")
BITS = Artifact(id="gpt2_2019-table3-bits", **OF, experiment=ZERO_SHOT.name, source="Table 3", kind="figure",
                build=bits_by_size, title="Bits on texts that no model was trained on, by model size",
                look_for="If larger models predict unseen text better, a line falls to the right. Compare slopes: our "
                         "models are far to the left of the paper's.")
register(TABLE_2, TABLE, TABLE_4, TABLE_5, DETOKENISED, TEXT, FIGURE_1, BY_SIZE, BITS, FIGURE_4)
