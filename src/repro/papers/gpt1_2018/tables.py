"""Tables 1 to 5, Figures 1 and 2 and the settings, with the paper's values and ours."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from repro.papers.gpt1_2018.finetuning import (
    AT_MOST,
    FORMS,
    GENERATED,
    HELD_OUT,
    LAYERS,
    LONGER_EPOCHS,
    SHOWN,
    TRIED,
    TRIED_ON,
    by_example,
    encoded,
    score,
)
from repro.papers.gpt1_2018.finetuning import EXPERIMENT as FINETUNING
from repro.papers.gpt1_2018.finetuning import RATES as TUNING
from repro.papers.gpt1_2018.finetuning import TABLE_5 as ABLATED
from repro.papers.gpt1_2018.pretraining import BEYOND, size_of
from repro.papers.gpt1_2018.pretraining import EXPERIMENT as PRETRAINING
from repro.papers.gpt1_2018.zero_shot import EXPERIMENT as ZERO_SHOT
from repro.papers.gpt1_2018.zero_shot import HEURISTICS
from repro.study import Artifact, ArtifactContext, Record, published, register
from repro.study.artifacts import ADDED, NOT_RUN, heading
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import pandas

PAPER, CHAPTER = "gpt1_2018", "11_gpt"
AVERAGE = "average"  # the paper's over its eight columns, ours over the tasks that we have
OURS = "Finetuned Transformer LM (GPT-1, ours)"
# Column of a printed table -> its heading, and our task (None: the data set is not here).
TABLE_2 = {"mnli_matched_accuracy_percent": ("MNLI-m", "mnli"),
           "mnli_mismatched_accuracy_percent": ("MNLI-mm", "mnli-mismatched"),
           "snli_accuracy_percent": ("SNLI", "snli"), "scitail_accuracy_percent": ("SciTail", "scitail"),
           "qnli_accuracy_percent": ("QNLI", "qnli"), "rte_accuracy_percent": ("RTE", "rte")}
TABLE_3 = {"story_cloze_accuracy_percent": ("Story Cloze", None), "race_m_accuracy_percent": ("RACE-m", None),
           "race_h_accuracy_percent": ("RACE-h", "race"), "race_accuracy_percent": ("RACE", None)}
TABLE_4 = {"cola_matthews": ("CoLA", "cola"), "sst2_accuracy_percent": ("SST-2", "sst2"),
           "mrpc_f1_percent": ("MRPC", "mrpc"), "stsb_pearson": ("STS-B", "stsb"), "qqp_f1_percent": ("QQP", "qqp"),
           "glue_score": ("GLUE", None)}
TABLE_5 = {name: TABLE_4[name] for name in ("cola_matthews", "sst2_accuracy_percent", "mrpc_f1_percent", "stsb_pearson",
                                            "qqp_f1_percent")} | {
    "mnli_accuracy_percent": ("MNLI", "mnli"), "qnli_accuracy_percent": ("QNLI", "qnli"),
    "rte_accuracy_percent": ("RTE", "rte")}
BESIDE = {"sick": "SICK", "openbookqa": "OpenBookQA"}  # ours -> heading: smaller sets for those that we lack
HEADS = {task: head for columns in (TABLE_2, TABLE_3, TABLE_4) for head, task in columns.values()} | BESIDE
VARIANTS = {  # of Table 5: the paper's row
    "full": "Transformer with auxiliary LM (full)", "no-pretraining": "Transformer without pre-training",
    "no-auxiliary": "Transformer without auxiliary LM", "lstm": "LSTM with auxiliary LM"}
SHORT = {"full": "whole recipe", "no-pretraining": "no pre-training", "no-auxiliary": "no auxiliary LM", "lstm": "LSTM"}
CALLED = {"full": "GPT", "no-pretraining": "without pre-training", "shuffled-labels": "control: shuffled labels"}
WORDS = "words_score"  # of tf-idf
BASELINES = {"majority_score": "control: the commonest label", WORDS: "control: tf-idf",
             "alone_score": "control: second text or candidates alone"}
WHERE = {  # data set of Table 1 -> our version of it
    "SNLI": "SICK instead; by repro data fetch", "MultiNLI": "SICK instead; by repro data fetch",
    "Question NLI": "by repro data fetch", "RTE": "development set", "SciTail": "by repro data fetch",
    "RACE": "1,000 training and 600 test questions of RACE-h; OpenBookQA in addition",
    "Story Cloze": "missing: available on request only",
    "MSR Paraphrase Corpus": "complete", "Quora Question Pairs": "by repro data fetch", "STS Benchmark": "complete",
    "Stanford Sentiment Treebank-2": "20,000 of 67,349 rows, of which most runs use the first 5,000; development set",
    "CoLA": "development set"}


def mean(found: Sequence[Record], metric: str = "test_score") -> str:
    """The mean over seeds, with the standard deviation where there are several."""
    values = [record.metrics[metric] for record in found if metric in record.metrics]
    if not values:
        return NOT_RUN if not found else "–"
    return f"{fmean(values):.1f}" + (spread(values) if metric not in BASELINES else "")  # these are deterministic


def spread(values: Sequence[float]) -> str:
    """The standard deviation of several values, as a suffix to their mean."""
    return f" ± {stdev(values):.1f}" if len(values) > 1 else ""


def whole(context: ArtifactContext, scale: str, task: str, variant: str) -> list[Record]:
    """The records of a variant with all layers and the examples of Table 5."""
    return [record for config in context.plan(scale, task=task, variant=variant, transferred=None, train_examples=None)
            for record in context.records_of(config)]


def cell(context: ArtifactContext, scale: str, task: str | None, variant: str, metric: str = "test_score") -> str:
    """One cell: the score of a variant on a task; "–" if there is no such run."""
    if task is None or not context.plan(scale, task=task, variant=variant):
        return "–"
    return mean(whole(context, scale, task, variant), metric)


def figure_1(context: ArtifactContext) -> Any:
    """How an example of each form is read: the tokens that `encode_example` gives for one of each generated task."""
    from repro.data.tasks import task
    from repro.papers.base.pretraining import new_tokeniser
    from repro.plotting import draw_inputs

    coder = new_tokeniser(PRETRAINING.plan("smoke")[0])
    special = ("Start", "Delim", "Extract")
    shown = {}
    for name in GENERATED:
        form = FORMS[name].form
        (sequences, _), = encoded(task(name), "test", 1, coder, 12 if form == "similarity" else 9)
        shown[form] = [[(special[k - coder.vocab_size], True) if k >= coder.vocab_size else
                        (coder.decode([k]), False) for k in ids] for ids in sequences]
    return draw_inputs(shown)


def datasets(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 1: the data sets of the paper, and our version of each."""
    import pandas

    return pandas.DataFrame([{"task": row["task"], "data set": name, "here": WHERE[name]}
                             for row in printed_rows("gpt1_2018_table1_datasets")
                             for name in row["datasets"].split("; ")])


def together(row: dict) -> str:
    """The number of models behind a printed score, if there are several."""
    return f" ({row['ensemble_size']} models)" if row.get("ensemble_size", "1") not in ("", "1") else ""


def scores(table: str, columns: dict[str, tuple[str, str | None]], more: Sequence[str] = ()):
    """Build Table 2, 3 or 4: the paper's rows, then ours with controls. more: our tasks that the paper lacks."""
    more = {BESIDE[task]: task for task in more}
    heads = {head: task for head, task in columns.values()} | more

    def build(context: ArtifactContext) -> "pandas.DataFrame":
        import pandas

        rows = [{"source": "the paper", "method": row["method"] + together(row)} |
                {head: row[column] or "–" for column, (head, _) in columns.items()} | dict.fromkeys(more, "–")
                for row in published(table).fillna("").to_dict("records")]
        for scale in reversed([one for one in context.scales if one != "smoke"]):  # it has generated tasks only
            for variant, called in CALLED.items():
                rows.append({"source": f"this study, {scale}", "method": called} | {
                    head: cell(context, scale, task, variant) for head, task in heads.items()})
            for metric, called in BASELINES.items():
                rows.append({"source": f"this study, {scale}", "method": called} | {
                    head: cell(context, scale, task, "full", metric) for head, task in heads.items()})
        return pandas.DataFrame(rows)
    return build


def ablation(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 5: the score without each part, and with shuffled labels; at smoke on generated tasks."""
    import pandas

    rows = [{"source": "the paper", "method": row["method"], AVERAGE: row["average_score"]} |
            {head: row[column] for column, (head, _) in TABLE_5.items()} | {HEADS["sick"]: "–"}
            for row in published("gpt1_2018_table5_ablation").to_dict("records")]
    for scale in reversed(context.scales):
        columns = dict(zip(GENERATED, GENERATED, strict=True)) if scale == "smoke" else dict(TABLE_5.values()) | {
            HEADS["sick"]: "sick"}
        for variant, called in (VARIANTS | {"shuffled-labels": CALLED["shuffled-labels"]}).items():
            rows.append({"source": f"this study, {scale}", "method": called,
                         AVERAGE: average(context, scale, columns.values(), variant)} | {
                head: cell(context, scale, task, variant) for head, task in columns.items()})
        for metric in ("majority_score", WORDS):
            rows.append({"source": f"this study, {scale}", "method": BASELINES[metric],
                         AVERAGE: average(context, scale, columns.values(), "full", metric)} | {
                head: cell(context, scale, task, "full", metric) for head, task in columns.items()})
    return pandas.DataFrame(rows).fillna("–")


def average(context: ArtifactContext, scale: str, tasks: Iterable[str], variant: str, metric: str = "test_score"
            ) -> str:
    """The mean score over the tasks that we have, seed by seed, then over the seeds that all tasks have; "not run"
    while a task is missing."""
    here = [task for task in tasks if context.plan(scale, task=task, variant=variant)]
    found = [{record.seed: record.metrics[metric] for record in whole(context, scale, task, variant)
              if metric in record.metrics} for task in here]
    common = sorted(set.intersection(*map(set, found))) if found else []
    means = [fmean(scores[seed] for scores in found) for seed in common]
    return f"{fmean(means):.1f}" + (spread(means) if metric not in BASELINES else "") if means else NOT_RUN


PARTS = {  # of the recipe: the variant that is without it
    "pre-training": "no-pretraining", "auxiliary objective": "no-auxiliary", "transformer, not LSTM": "lstm"}
INSTEAD = {"MNLI": "sick"}  # column of Table 5 whose data set we lack -> the one that replaces it


def parts(context: ArtifactContext) -> Any:
    """How far the whole recipe scores above one without a part of it, by data set, in Table 5 and here."""
    from repro.plotting import draw_effects

    printed = {row["method"]: row for row in printed_rows("gpt1_2018_table5_ablation")}
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for part, variant in PARTS.items():
        rows = found.setdefault(part, {})
        for column, (head, task) in TABLE_5.items():
            task = INSTEAD.get(head, task)
            if task in ABLATED:
                row = rows.setdefault(head if head not in INSTEAD else f"{head}, here {HEADS[task]}", {})
                row["paper"] = [float(printed[VARIANTS["full"]][column]) - float(printed[VARIANTS[variant]][column])]
                for scale in reversed(context.scales):
                    if gap := gaps(context, scale, task, variant):
                        row[scale] = list(gap.values())
        if "smoke" in context.scales:
            gap = gaps(context, "smoke", SHOWN, variant)
            rows[SHOWN] = {"smoke": list(gap.values())} if gap else {}
    return draw_effects(found, "points")


def beyond_controls(records: Mapping[str, Sequence[Record]]) -> list[str]:
    """The tasks on which the whole recipe beats every control by more than two of its standard errors over test
    examples. records: of the whole recipe, by task. Controls: the commonest label, tf-idf, and the second text or the
    candidates alone."""
    import numpy as np

    def surely(found: Sequence[Record]) -> float:
        each = np.mean([by_example(record) for record in found], 0)
        return each.mean() - 2 * each.std() / len(each)**0.5

    return [task for task, found in records.items() if found and surely(found) > max(
        record.metrics.get(name, 0.0) for record in found for name in BASELINES)]


def hang(context: ArtifactContext) -> "pandas.DataFrame":
    """The mean gain of each part over tasks, and that of the whole recipe over tf-idf; also without SST-2, and with
    MRPC scored as CoLA is, which a constant answer does not raise. The last row names the tasks on which the whole
    recipe is clearly above every control."""
    import pandas

    scale, rows = context.scales[0], []
    for part, variant in {**PARTS, "whole recipe, not tf-idf": WORDS}.items():
        def mean_gap(tasks: Sequence[str], mrpc: str | None = None, variant: str = variant) -> str:
            found = [gaps(context, scale, task, variant, mrpc if task == "mrpc" else None) for task in tasks]
            means = [fmean(gap[seed] for gap in found) for seed in sorted(set.intersection(*map(set, found)))]
            return f"{fmean(means):+.1f}{spread(means)}" if means else NOT_RUN

        same = [HEADS[task] for task in ABLATED if (found := whole(context, scale, task, variant))
                and all(len(set(record.documents["test"]["prediction"])) == 1 for record in found)]
        rows.append({"part": part, "six tasks": mean_gap(ABLATED),
                     "without SST‑2": mean_gap([task for task in ABLATED if task != "sst2"]),
                     "MRPC by Matthews": mean_gap(ABLATED, "matthews") if variant != WORDS else "–",
                     "same answer throughout": ", ".join(same) or "–", "above every control in": "–"})
    beyond = beyond_controls({HEADS[task]: whole(context, scale, task, "full") for task in ABLATED})
    rows[-1]["above every control in"] = ", ".join(beyond) or "none"
    return pandas.DataFrame(rows)


def gaps(context: ArtifactContext, scale: str, task: str, variant: str, metric: str | None = None) -> dict[int, float]:
    """By seed, how far the full recipe scores above a variant, or above tf-idf (WORDS), for seeds that both have.
    metric: replaces the task's own."""
    def score_of(record: Record) -> float:
        if metric is None:
            return record.metrics["test_score"]
        return score(*(record.documents["test"][key] for key in ("label", "prediction")), metric)

    full = {record.seed: record for record in whole(context, scale, task, "full")}
    if variant == WORDS:
        return {seed: score_of(record) - record.metrics[WORDS] for seed, record in full.items()}
    others = whole(context, scale, task, variant)
    return {record.seed: score_of(full[record.seed]) - score_of(record) for record in others if record.seed in full}


def by_layers(context: ArtifactContext) -> Any:
    """Figure 2, left: the score by number of layers transferred, with the embeddings."""
    import pandas

    from repro.plotting import draw_table_curves

    rows = []
    for scale in reversed(context.scales):
        for task in LAYERS if scale != "smoke" else (SHOWN,):
            for config in context.plan(scale, task=task, variant="full", train_examples=None):
                found = context.records_of(config) if config.transferred is not None else []
                rows += [{"source": scale, "model": HEADS.get(task, task), "layers": config.transferred,
                          "score": fmean(one.metrics["test_score"] for one in found)}] if found else []
    frame = pandas.DataFrame(rows, columns=["source", "model", "layers", "score"])
    return draw_table_curves(frame, "layers", "score", ("layers transferred", "score, times 100"))


def by_checkpoint(context: ArtifactContext) -> Any:
    """Figure 2, right: the scores of the heuristics during pre-training, one panel per task.

    The paper draws scores relative to guessing and to the best known; we draw the scores themselves.
    """
    import pandas

    from repro.plotting import draw_table_curves

    rows = []
    for config in context.plan(context.scales[0]):
        for record in context.records_of(config)[:1]:
            called = HEURISTICS[config.task].called or config.task
            rows += [{"source": called, "model": config.model, "tokens": tokens / 1e6, "score": value}
                     for tokens, value in record.curves["score"]]
            if config.model == "transformer":
                rows += [{"source": called, "model": "commonest label", "tokens": tokens / 1e6,
                          "score": record.metrics["majority_score"]} for tokens, _ in record.curves["score"]]
    frame = pandas.DataFrame(rows, columns=["source", "model", "tokens", "score"])
    return draw_table_curves(frame, "tokens", "score", ("million tokens", "score, times 100"))


def by_examples(context: ArtifactContext) -> "pandas.DataFrame":
    """The score with and without the auxiliary objective, by number of training examples of one task."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        task = "sst2" if scale != "smoke" else SHOWN
        found, epochs = {}, {}
        for config in context.plan(scale, task=task, transferred=None):
            if config.variant in ("full", "no-auxiliary"):
                found[config.train_examples or config.at_most, config.variant] = context.records_of(config)
                epochs[config.train_examples or config.at_most] = config.epochs
        for n in sorted({n for n, _ in found}, key=lambda n: (n is None, n or 0)):
            records = found[n, "full"]
            n_examples = n or (int(records[0].metrics["train_examples"]) if records else None)
            rows.append({"scale": scale, "task": HEADS.get(task, task),
                         "examples": f"{n_examples:,}" if n_examples else "all of Table 5", "epochs": str(epochs[n]),
                         "with the auxiliary objective": mean(records), "without": mean(found[n, "no-auxiliary"])})
    return pandas.DataFrame(rows)


def rates(context: ArtifactContext) -> "pandas.DataFrame":
    """The pre-training of both models: held-out loss, learning rate, and the losses of the short trainings that chose
    the rate, and of those at higher rates."""
    import pandas

    rows = []
    columns = ("weights", "nats per token", "learning rate", "nats per token of short trainings", "higher rate tried")
    for scale in reversed(context.scales):
        longest = max(config.tokens for config in context.plan(scale))
        for config in context.plan(scale, tokens=longest):
            found = context.records_of(config)[:1]
            cells = dict.fromkeys(columns, NOT_RUN)
            beyond = [one for rate in BEYOND.values() for one in context.plan(scale, model=config.model,
                                                                              learning_rate=rate)]
            further = [f"{one.learning_rate:g}: {record.metrics['validation_token_loss']:.3f}"
                       for one in beyond for record in context.records_of(one)]
            for record in found:
                tried = [f"{rate:g}: {loss:.3f}" for rate, loss in record.notes.get("rates_tried", [])]
                loss = record.metrics.get("validation_token_loss")
                cells = {"weights": f"{record.metrics['parameters']:,.0f}",
                         "nats per token": "–" if loss is None else f"{loss:.3f}",
                         "learning rate": f"{record.metrics['learning_rate']:g}" if loss is not None else "–",
                         "nats per token of short trainings": ", ".join(tried) or "–",
                         "higher rate tried": ", ".join(further) or (NOT_RUN if beyond else "–")}
            rows.append({"scale": scale, "model": config.model, "tokens": f"{config.tokens:,}"} | cells)
    return pandas.DataFrame(rows)


def tuning_rates(context: ArtifactContext) -> "pandas.DataFrame":
    """The held-out score of each learning rate of fine-tuning, by method, and the mean that decides which is taken."""
    import pandas

    tried: dict[tuple, dict[str, list[Record]]] = {}
    for one in context.plan(context.scales[0]):
        found = tried.setdefault((one.variant, one.epochs, one.learning_rate), {})
        found[one.task] = context.records_of(one)
    rows = []
    for variant, epochs, rate in sorted(tried, key=lambda key: (list(TRIED).index(key[0]), key[1:])):
        found = tried[variant, epochs, rate]
        scores = [record.metrics["held_out_score"] for records in found.values() for record in records[:1]]
        rows.append({"method": SHORT[variant], "epochs": epochs, "rate": rate} | {
            HEADS[task]: mean(records, "held_out_score") for task, records in found.items()} | {
            "mean": fmean(scores) if len(scores) == len(found) else None})
    short = [row for row in rows if row["epochs"] != LONGER_EPOCHS and row["mean"] is not None]
    for row in rows:
        best = max((one["mean"] for one in short if one["method"] == row["method"]), default=None)
        row["taken"] = "✓" if row in short and row["mean"] == best else ""
    for row in rows:  # as text, once all are compared
        row |= {"epochs": str(row["epochs"]), "rate": f"{row['rate']:g}",
                "mean": NOT_RUN if row["mean"] is None else f"{row['mean']:.1f}"}
    return pandas.DataFrame(rows, columns=["method", "epochs", "rate", "mean", "taken", *map(HEADS.get, TRIED_ON)])


DECAYED = {"matrices": "not of biases and gains", "all": "of biases and gains too"}
SETTINGS = {  # parameter of the paper -> our value, from the configs of pre-training and fine-tuning
    "layers": lambda base, tuned: base.n_layer, "hidden size": lambda base, tuned: base.n_embd,
    "attention heads": lambda base, tuned: base.n_head,
    "feed-forward inner size": lambda base, tuned: 4 * base.n_embd, "activation": lambda base, tuned: "GELU",
    "position embeddings": lambda base, tuned: "learned", "corpus": lambda base, tuned: base.corpus,
    "optimizer": lambda base, tuned: {"muon": "Muon, AdamW", "adamw": "AdamW"}[base.optimizer],
    "maximum learning rate": lambda base, tuned: "searched" if base.learning_rate is None else base.learning_rate,
    "BPE merges": lambda base, tuned: (
        f"{base.vocab_size - 257}, of bytes as in GPT-2" if base.tokeniser == "bpe" else
        "none: words" if base.tokeniser == "word" else "the released ones"),
    "dropout (residual, embedding, attention)": lambda base, tuned: base.dropout,
    "modified L2 weight w": lambda base, tuned: f"{base.weight_decay:g}, {DECAYED[base.decayed]}",
    "classifier dropout": lambda base, tuned: tuned.dropout,
    "auxiliary LM weight lambda": lambda base, tuned: tuned.lm_weight}
STAGES = {  # (stage, parameter) -> the same, for parameters that both stages have
    ("pre-training", "batch"): lambda base, tuned: f"{base.batch_size} of {base.n_positions} tokens",
    ("pre-training", "warmup"): lambda base, tuned: base.warmup_steps,
    ("pre-training", "epochs"): lambda base, tuned: f"{base.tokens / 1e6:g}M tokens",
    ("pre-training", "weight init"): lambda base, tuned: "N(0, 0.02)",
    ("fine-tuning", "learning rate"): lambda base, tuned: (
        "searched" if tuned.learning_rate is None else tuned.learning_rate),
    ("fine-tuning", "batch size"): lambda base, tuned: tuned.batch_size,
    ("fine-tuning", "epochs"): lambda base, tuned: (
        f"{tuned.epochs} of at most {tuned.at_most:,} examples" if tuned.at_most else tuned.epochs),
    ("fine-tuning", "warmup"): lambda base, tuned: f"{100 * tuned.warmup_share:g}% of training"}


def measured_settings(context: ArtifactContext, scale: str) -> dict[str, str]:
    """Our values of parameters that the paper prints and that no config holds: they come from runs or sizes."""
    def metric_of(metric: str, config: Any, style: Callable[[float], str]) -> str:
        found = context.records_of(config)
        if not found:
            return NOT_RUN
        return style(found[0].metrics[metric]) if metric in found[0].metrics else "–"

    def examples(task: str) -> str:
        config, = context.plan(scale, experiment=FINETUNING.name, task=task, variant="full", train_examples=None,
                               transferred=None)
        return metric_of("train_examples", config, "{:,.0f}".format)

    longest = {model: max(found, key=lambda config: config.tokens) for model in ("transformer", "lstm")
               if (found := context.plan(scale, experiment=PRETRAINING.name, model=model))}
    values = {"token perplexity on the corpus": metric_of("validation_token_loss", longest["transformer"],
                                                        lambda loss: f"{exp(loss):.1f}, held out")}
    if "lstm" in longest:  # nobody has released one
        values["LSTM baseline"] = f"1 layer, {size_of(longest['lstm']).units:,} units"
    if scale == "small":
        values |= {"RTE training examples": examples("rte"),
                   "STS-B / SNLI training examples": f"{examples('stsb')} / {examples('sick')} of SICK"}
    return values


def settings(context: ArtifactContext) -> "pandas.DataFrame":
    """The settings that the paper prints, and ours; we count the weights, whose number it does not print."""
    import pandas

    from repro.models.gpt import SIZES as RELEASED

    rows = []
    runs = {scale: measured_settings(context, scale) for scale in context.scales}
    for row in printed_rows("gpt1_2018_hyperparameters"):
        cells = {"stage": row["stage"], "setting": row["parameter"], "paper": f"{row['value']} {row['unit']}".strip()}
        ours = STAGES.get((row["stage"], row["parameter"])) or SETTINGS.get(row["parameter"])
        for scale in reversed(context.scales):
            base, = context.plan(scale, experiment=PRETRAINING.name, model="transformer")[:1]
            tuned = context.plan(scale, experiment=FINETUNING.name)[0]
            released = row["stage"] == "pre-training" and base.source != "scratch"  # nothing is trained then
            if ours is None:
                cells[heading(scale)] = runs[scale].get(row["parameter"], "–")
            else:
                cells[heading(scale)] = "as released" if released else str(ours(base, tuned))
        rows.append(cells)
    bases = {scale: context.plan(scale, experiment=PRETRAINING.name, model="transformer")[0] for scale in
             reversed(context.scales)}
    rows.append({"stage": "pre-training", "setting": "weights, counted",
                 "paper": f"{RELEASED['openai-gpt'].parameters:,}, as released"} |
                {heading(scale): f"{size_of(base).parameters:,}" for scale, base in bases.items()})
    return pandas.DataFrame(rows)


OF = {"paper": PAPER, "chapter": CHAPTER}
FIGURE_1 = Artifact(id="gpt1_2018-figure1", **OF, experiment=FINETUNING.name, source="Figure 1", build=figure_1,
                    kind="figure", title="Each form of task as token sequences, made by encode_example",
                    look_for="Forms differ in where the special tokens go. Similarity reads both orders "
                             "of its texts, and multiple choice has one sequence per candidate.")
TABLE_1 = Artifact(id="gpt1_2018-table1", **OF, experiment=FINETUNING.name, source="Table 1", build=datasets,
                   title="The paper's data sets, and how much of each we have")
NLI = Artifact(id="gpt1_2018-table2", **OF, experiment=FINETUNING.name, source="Table 2",
               title="Accuracy on natural language inference",
               build=scores("gpt1_2018_table2_nli", TABLE_2, ("sick",)))
QA = Artifact(id="gpt1_2018-table3", **OF, experiment=FINETUNING.name, source="Table 3",
              title="Accuracy on question answering",
              build=scores("gpt1_2018_table3_qa", TABLE_3, ("openbookqa",)))
GLUE = Artifact(id="gpt1_2018-table4", **OF, experiment=FINETUNING.name, source="Table 4",
                title="Scores on classification and similarity (CoLA: Matthews' correlation, MRPC and QQP: F1, STS-B: "
                      "Pearson, others: accuracy; the paper scores test sets, we score development sets where Table 1 "
                      "says so)",
                build=scores("gpt1_2018_table4_similarity_classification", TABLE_4))
ABLATION = Artifact(id="gpt1_2018-table5", **OF, experiment=FINETUNING.name, source="Table 5", build=ablation,
                    title="Scores with parts of the recipe removed or replaced (measures as in Table 4; the paper's "
                          "average covers eight data sets, ours those we have; we pretrained each model once; at "
                          f"small at most {AT_MOST:,} examples per task; ± is the standard deviation over seeds)")
PARTS_FIGURE = Artifact(id="gpt1_2018-table5-figure", **OF, experiment=FINETUNING.name, source="Table 5", build=parts,
                        kind="figure", title="How much each part of the recipe adds to the score",
                        look_for="A part helps on a task if our points lie to the right of zero for every seed. "
                                 "Compare the rows: a gain on one task may be missing on the next.")
HANG = Artifact(id="gpt1_2018-table5-means", **OF, experiment=FINETUNING.name, source=ADDED, build=hang,
                title="How many points each part adds, mean over tasks ± standard deviation over seeds; and the tasks "
                      "on which the recipe without the part gives the same answer to every example")
BY_LAYERS = Artifact(id="gpt1_2018-figure2-layers", **OF, experiment=FINETUNING.name, source="Figure 2, left",
                     build=by_layers, kind="figure", title="Score by number of pretrained layers transferred",
                     look_for="If every layer helps, a line rises all the way to the right. A jump from 0 to 1 and a "
                              "flat rest mean that the first layer is enough.")
BY_CHECKPOINT = Artifact(id="gpt1_2018-figure2-zero-shot", **OF, experiment=ZERO_SHOT.name, source="Figure 2, right",
                         build=by_checkpoint, kind="figure",
                         title="Scores without fine-tuning, during pre-training",
                         look_for="A model learns a task from text alone only if its line rises above that of the "
                                  "commonest label.")
BY_EXAMPLES = Artifact(id="gpt1_2018-examples", **OF, experiment=FINETUNING.name, source=ADDED, build=by_examples,
                       title="Score with and without the auxiliary objective, by number of training examples")
RATES = Artifact(id="gpt1_2018-pretraining", **OF, experiment=PRETRAINING.name, source=ADDED, build=rates,
                 title="Pre-training of both models, one training of each")
TUNING_RATES = Artifact(id="gpt1_2018-tuning-rates", **OF, experiment=TUNING.name, source=ADDED, build=tuning_rates,
                        title=f"Scores on up to {HELD_OUT} held-out training examples, by learning rate of fine-tuning")
HYPERPARAMETERS = Artifact(id="gpt1_2018-hyperparameters", **OF, experiment=(PRETRAINING.name, FINETUNING.name),
                           source="Sections 4.1 and 4.2", build=settings,
                           title="Settings of the paper and of this study")
register(FIGURE_1, TABLE_1, NLI, QA, GLUE, ABLATION, PARTS_FIGURE, HANG, BY_LAYERS, BY_CHECKPOINT, BY_EXAMPLES, RATES,
         TUNING_RATES, HYPERPARAMETERS)
