"""The paper's claims about GPT-2: size, each step of size, de-tokenizers, filter and hint.

"Larger is better" compares the largest with the smallest of the four sizes, which read the same text in the same order;
each step of size compares two neighbors over four texts. The claim that all sizes underfit gets no verdict: ours read
their text less than once, so they cannot do anything else.

On a text unlike its own, a model can be worse than token frequencies, which ignore the context, because it is
overconfident; a larger one may only be less so. A loss above that of token frequencies therefore counts as theirs. The
control is the same difference between two models of these sizes that were never trained. The assay trains the largest
model on a sixteenth of the text, to see whether a score can show an effect of the paper's size.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from math import log
from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.papers.gpt2_2019.sizes import PAPER, RANKS, SIZES
from repro.papers.gpt2_2019.tables import BITS, DETOKENISED, FIGURE_1, ROUGE, TABLE, TABLE_4, TEXT
from repro.papers.gpt2_2019.zero_shot import EXPERIMENT as ZERO_SHOT
from repro.papers.gpt2_2019.zero_shot import FREQUENCIES
from repro.study import Assay, Claim, Measured, Record, register
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np

SMALLEST, LARGEST = SIZES[0], SIZES[-1]
Score = Callable[[Record], "np.ndarray"]


def nats(record: Record, name: str, key: str = "nll", per: str = "n_words", times: float = 1.0) -> "np.ndarray":
    """(units,) of a set of texts: their mean is nats per word, or `times` that."""
    from repro.evaluation.bootstrap import linearised

    part = record.documents[name]
    return times * linearised(part[key], part[per] if per else [1] * len(part[key]))


def percent(record: Record, name: str, key: str = "correct") -> "np.ndarray":
    """(units,) of a set of tasks: 100 for a right answer, or 100 times a score from 0 to 1."""
    import numpy as np

    return 100 * np.array(record.documents[name][key], float)


def between(larger: str, smaller: str, score: Score, control: Callable[[Record], Any]) -> Callable:
    """Measures the score of one size minus that of another, by unit; `control` gives the same without the mechanism, as
    one number or one per unit. If there are records of frequencies, they replace the loss of a size that is higher."""
    def measure(records: Sequence[Record]) -> Measured:
        import numpy as np

        counted = up_to_frequencies(score, records)
        by_size = {size: [record for record in records if record.config["size"] == size] for size in (larger, smaller)}
        pairs = list(zip(by_size[larger], by_size[smaller], strict=True))
        effects = np.array([counted(one) - counted(other) for one, other in pairs])
        without = np.array([np.atleast_1d(control(one) - control(other)) for one, other in pairs])
        return Measured(effects, without)
    return measure


def up_to_frequencies(score: Score, records: Sequence[Record]) -> Score:
    """`score`, or the score of token frequencies at the same seed if their mean is lower."""
    alone = {record.seed: score(record) for record in records if record.config["size"] == FREQUENCIES}

    def counted(record: Record) -> "np.ndarray":
        own = score(record)
        return min(own, alone.get(record.seed, own), key=lambda found: found.mean())
    return counted


def detokenised(records: Sequence[Record]) -> Measured:
    """Nats per word of the largest size with the de-tokenizer minus those without, by article; the control is the same
    for token frequencies, which gain because there are fewer tokens per word."""
    import numpy as np

    def gain(record: Record) -> "np.ndarray":
        return nats(record, "wikitext103") - nats(record, "wikitext103", "tokenised")

    by_size = {size: [gain(record) for record in records if record.config["size"] == size]
               for size in (LARGEST, FREQUENCIES)}
    return Measured(*(np.array(by_size[size]) for size in (LARGEST, FREQUENCIES)))


def within(score: Score, other: Score, control: Score) -> Callable:
    """Measures the difference between two scores of the same model, by unit: `score` minus `other`; the control is
    `control` minus `other`."""
    def measure(records: Sequence[Record]) -> Measured:
        import numpy as np

        return Measured(np.array([score(record) - other(record) for record in records]),
                        np.array([control(record) - other(record) for record in records]))
    return measure


def room(score: Score, without: Callable[[Record], Any], sign: int = 1) -> Callable[[list[Record]], float]:
    """How far the score of a record is better than `without`; 0 if it is worse. sign: -1 if lower is better."""
    def moved(records: list[Record]) -> float:
        import numpy as np

        return max(0.0, sign * fmean(np.mean(score(record)) - np.mean(without(record)) for record in records))
    return moved


def by_text(score: Score, sign: int) -> Callable[[list[Record]], float | None]:
    """How far the score of the largest size, trained on all text, is better than with little text at the same seeds; 0
    if it is worse; None without such records. sign: -1 if lower is better."""
    def moved(records: list[Record]) -> float | None:
        import numpy as np

        counted = up_to_frequencies(score, records)
        everything, little = ({record.seed: np.mean(counted(record)) for record in records
                               if record.config["text"] == text and record.config["size"] == LARGEST}
                              for text in ("all", "little"))
        both = everything.keys() & little.keys()
        return max(0.0, sign * fmean(everything[seed] - little[seed] for seed in both)) if both else None
    return moved


def of_largest(having: str | None = None) -> Callable[[Any], bool]:
    """Whether a run is of the largest size, trained on all text or on little, and tries the set `having`."""
    return lambda config: (config.size == LARGEST and config.text in ("all", "little")
                           and (having is None or getattr(config, having) is not None))


def printed(column: str, change: Callable[[float, float], float]) -> Callable[[], float]:
    """The change of a column of Table 3 from the smallest to the largest model."""
    def effect() -> float:
        rows = {row["model"]: float(row[column]) for row in printed_rows("gpt2_2019_table3_zero_shot_lm")}
        return change(rows[LARGEST], rows[SMALLEST])
    return effect


def in_text(task: str, metric: str, data: str | None = None) -> float:
    """A number for GPT-2 that the text prints."""
    row, = (row for row in printed_rows("gpt2_2019_text_results") if row["task"] == task and row["metric"] == metric
            and row["model"].startswith("GPT-2") and data in (None, row["dataset"]))
    return float(row["value"])


def beyond_copying(record: Record, name: str, key: str = "correct") -> "np.ndarray":
    """(books,): their mean is the share of right answers, times 100, among clozes that the commonest candidate of the
    context does not answer; zeros if it answers all."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    part = record.documents[name]
    hits, left = np.array(part[key], float), 1 - np.array(part["commonest"], float)
    _, book = np.unique(part["book"], return_inverse=True)
    hits, left = (np.bincount(book, values) for values in (hits * left, left))
    return 100 * linearised(hits, left) if left.any() else left


def runs_of_sizes(*sizes: str, having: str | None = None) -> Callable[[Any], bool]:
    """Whether a run is of one of these sizes, trained on all text, and tries the set `having`."""
    return lambda config: (config.size in sizes and config.text == "all"
                           and (having is None or getattr(config, having) is not None))


def larger(name: str, field: str, column: str, on: str, score: Score, untrained: str | Score, verb: str = "",
           **fields: Any) -> Claim:
    """The claim that the largest size does better on a set of Table 3 than the smallest. untrained: the score of a
    model that was never trained, or the end of its metric's name."""
    relative = fields.get("relative", False)
    lower = fields.get("direction", "lower") == "lower"
    change = (lambda one, other: log(one / other)) if relative else (lambda one, other: round(one - other, 6))
    control = (lambda record: record.metrics[f"untrained_{untrained}"]) if isinstance(untrained, str) else untrained
    largest, alone = of_largest(field), runs_of_sizes(*[FREQUENCIES] * lower, having=field)
    compared = runs_of_sizes(SMALLEST, LARGEST, having=field)
    return Claim(
        id=f"gpt2_2019-larger-{name}", paper=PAPER, source="Table 3", experiment=ZERO_SHOT.name, about=(TABLE.id,),
        sentence=f"A larger model {verb or f'does better zero-shot on {on}'}.",
        where=lambda config: compared(config) or alone(config),
        paper_effect=printed(column, change),
        measure=between(LARGEST, SMALLEST, score, control),
        control="the same difference between two models of these sizes that were never trained",
        assay=Assay("the largest model, trained on all text against a sixteenth of it",
                    lambda config: largest(config) or alone(config), by_text(score, -1 if lower else 1)),
        family=f"gpt2_2019-larger-{'lower' if lower else 'higher'}",
        **{"direction": "lower", "short": f"Larger models do better on {on}.",
           "criterion_before": IN_FULL * lower} | fields)


IN_FULL = "until the first seed was known, a loss above that of token frequencies counted in full"  # before
PERPLEXITY = {"relative": True, "unit_shown": "in perplexity"}
ACCURACY = {"direction": "higher", "unit": "document", "unit_shown": "percentage points"}
register(
    larger("lambada", "corpus", "lambada_perplexity", "the last words of LAMBADA",
           lambda record: nats(record, "lambada", per=""), "lambada", unit="document", **PERPLEXITY),
    larger("wikitext103", "wikitext103", "wikitext103_perplexity",
           "WikiText-103, which has the same test articles as WikiText-2",
           lambda record: nats(record, "wikitext103"), "wikitext103", unit="document", **PERPLEXITY,
           short="Larger models do better on WikiText-103.",
           criterion_before="two claims, on WikiText-2 and on WikiText-103, with the same test articles; "
                            + IN_FULL),
    larger("enwik8", "enwik8", "enwik8_bits_per_byte", "enwik8",
           lambda record: nats(record, "enwik8", per="n_bytes", times=1 / log(2)), "enwik8", unit="stretch",
           unit_shown="bits per byte"),
    larger("text8", "text8", "text8_bits_per_character", "text8",
           lambda record: nats(record, "text8", per="n_bytes", times=1 / log(2)), "text8", unit="stretch",
           unit_shown="bits per character"),
    larger("lambada-accuracy", "corpus", "lambada_accuracy_percent", "predicting LAMBADA's last words",
           lambda record: percent(record, "lambada", "correct_stop_words"), "lambada_accuracy",
           verb="predicts more of LAMBADA's last words zero-shot", **ACCURACY),
    *(larger(f"cloze-{kind}", kind, f"cbt_{column}_accuracy_percent", f"{kind} left out of books",
             lambda record, kind=kind: beyond_copying(record, kind),
             lambda record, kind=kind: beyond_copying(record, kind, "untrained"),
             verb=f"fills in more missing {kind} zero-shot, compared with always picking the most frequent candidate",
             criterion_before="its units were questions, and its control used other clozes",
             **ACCURACY | {"unit": "book"})
      for kind, column in (("nouns", "common_nouns"), ("names", "named_entities"))))

TEXTS = {  # of the claims on each step: column of Table 3 -> name here, what its documents are counted in, unit
    "lambada_perplexity": ("lambada", "", 1.0), "wikitext103_perplexity": ("wikitext103", "n_words", 1.0),
    "enwik8_bits_per_byte": ("enwik8", "n_bytes", 1 / log(2)),
    "text8_bits_per_character": ("text8", "n_bytes", 1 / log(2))}


def shares(larger: str, smaller: str, records: Sequence[Record]) -> tuple["np.ndarray", "np.ndarray"]:
    """By what percentage of its loss one size is better than another (seeds, units), negative if it is, as mean over
    TEXTS; and the same for two models that were never trained (seeds, 1). A loss above that of frequencies counts as
    theirs."""
    import numpy as np

    effects, control = [], []
    for seed in sorted({record.seed for record in records}):
        of = {record.config["size"]: record for record in records if record.seed == seed}
        parts, without = [], []
        for name, per, times in TEXTS.values():
            score = partial(nats, name=name, per=per, times=times)
            counted = up_to_frequencies(score, list(of.values()))
            before = counted(of[smaller]).mean()
            parts.append(100 * (counted(of[larger]) - counted(of[smaller])) / before)
            without.append(100 * (of[larger].metrics[f"untrained_{name}"] - of[smaller].metrics[f"untrained_{name}"])
                           / of[smaller].metrics[f"untrained_{name}"])
        n = sum(map(len, parts))
        effects.append(np.concatenate([part * n / (len(parts) * len(part)) for part in parts]))
        control.append([fmean(without)])
    return np.array(effects), np.array(control)


def loss_of(row: dict[str, str], column: str) -> float:
    """The loss that a row of Table 3 prints: nats per word for a perplexity, otherwise bits."""
    return log(float(row[column])) if column.endswith("perplexity") else float(row[column])


def printed_step(larger: str, smaller: str) -> float:
    """The mean over TEXTS of the values that Table 3 prints for the same comparison."""
    rows = {row["model"]: row for row in printed_rows("gpt2_2019_table3_zero_shot_lm")}
    return round(fmean(100 * (loss_of(rows[larger], column) / loss_of(rows[smaller], column) - 1)
                       for column in TEXTS), 6)


def by_little_text(records: list[Record]) -> float | None:
    """The room of each step: by what percentage of its loss the largest size is worse when trained on a sixteenth of
    the text; None if no seed has both."""
    gains = [moved(records) for name, per, times in TEXTS.values()
             for moved in [by_text(partial(nats, name=name, per=per, times=times), -1)]]
    little = [record for record in records if record.config["text"] == "little"]
    if None in gains or not little:
        return None
    before = [fmean(float(up_to_frequencies(partial(nats, name=name, per=per, times=times), records)(record).mean())
                    for record in little) for name, per, times in TEXTS.values()]
    return fmean(100 * gain / loss for gain, loss in zip(gains, before, strict=True))


def step(smaller: str, larger: str) -> Claim:
    """The claim that one size does better on the texts of Table 3 than the next smaller one."""
    alone, ends = runs_of_sizes(FREQUENCIES), runs_of_sizes(smaller, larger)
    names = RANKS[larger], RANKS[smaller]
    return Claim(
        id=f"gpt2_2019-step-{larger.lower()}", paper=PAPER, source="Table 3", experiment=ZERO_SHOT.name,
        about=(BITS.id, TABLE.id), unit="document", direction="lower", unit_shown="% of the loss",
        sentence=f"The {names[0]} of four models does better zero-shot than the {names[1]} on four texts (the paper's "
                 f"{larger} and {smaller}).",
        short=f"The {names[0]} of four models beats the {names[1]}.",
        where=lambda config: all(getattr(config, name, None) for name in ("wikitext103", "enwik8", "text8")) and (
            ends(config) or alone(config)),
        measure=lambda records: Measured(*shares(larger, smaller, records)),
        control="the same of two models of these sizes that were never trained",
        paper_effect=lambda: printed_step(larger, smaller), family="gpt2_2019-steps",
        criterion_before="none: added after its runs were known",
        assay=Assay("the largest model, trained on all text against a sixteenth of it",
                    lambda config: of_largest("text8")(config) or alone(config), by_little_text))


register(*(step(*pair) for pair in pairwise(SIZES)))

COMMON = {"paper": PAPER, "experiment": ZERO_SHOT.name}
ONE_PRETRAINING = "one pre-training was enough, as if the same weights were compared"  # before
register(
    Claim(id="gpt2_2019-larger-reading", **COMMON, **ACCURACY, source="Figure 1", about=(FIGURE_1.id, TEXT.id),
          sentence="A larger model answers more questions about a text zero-shot.",
          short="Larger models answer more questions about a text.",
          where=runs_of_sizes(SMALLEST, LARGEST, having="reading"), family="gpt2_2019-larger-higher",
          measure=between(LARGEST, SMALLEST, lambda record: percent(record, "reading", "f1"),
                          lambda record: percent(record, "reading", "f1_alone")),
          control="the same difference when the question is read without the text",
          why_no_paper_effect="the paper draws the smaller models and prints no number for them",
          assay=Assay("the largest model with the text against without it", runs_of_sizes(LARGEST, having="reading"),
                      room(lambda record: percent(record, "reading", "f1"),
                           lambda record: percent(record, "reading", "f1_alone")))),
    Claim(id="gpt2_2019-larger-questions", **COMMON, **ACCURACY, source="Section 3.8", about=(FIGURE_1.id, TEXT.id),
          sentence="A larger model answers more questions without any text (the paper: 5.3 times as many as the "
                   "smallest).",
          short="Larger models answer more questions without any text.",
          where=runs_of_sizes(SMALLEST, LARGEST, having="questions"), family="gpt2_2019-larger-higher",
          measure=between(LARGEST, SMALLEST, lambda record: percent(record, "questions"),
                          lambda record: percent(record, "questions", "correct_other")),
          control="the same difference when the answers are compared with those of other questions",
          paper_effect=lambda: in_text("question answering", "exact match") * (
              1 - 1 / in_text("question answering", "ratio of correct answers")),
          assay=Assay("all questions that the largest model answers", runs_of_sizes(LARGEST, having="questions"),
                      room(lambda record: percent(record, "questions"), lambda record: 0.0),
                      lambda: in_text("question answering", "exact match"))),
    Claim(id="gpt2_2019-detokenisers", **COMMON, source="Section 3.1", about=(DETOKENISED.id,), unit="document",
          sentence="Invertible de-tokenizers lower the perplexity of text that was split into words.",
          short="De-tokenizers lower the perplexity of text split in words.",
          where=runs_of_sizes(LARGEST, FREQUENCIES, having="wikitext103"), direction="lower", **PERPLEXITY,
          measure=detokenised,
          control="the same for token frequencies; a de-tokenized text has fewer tokens",
          criterion_before="its control left out as many blanks at random positions, and one pre-training was enough",
          why_no_paper_effect="the paper gives 2.5 to 5 in perplexity over all its sets, and no number for this one",
          assay=Assay("the largest model, trained against untrained", runs_of_sizes(LARGEST, having="wikitext103"),
                      room(lambda record: nats(record, "wikitext103"),
                           lambda record: record.metrics["untrained_wikitext103"], -1))),
    Claim(id="gpt2_2019-filter", **COMMON, **ACCURACY, source="Section 3.3", about=(TEXT.id, TABLE.id),
          sentence="With stop words barred, the model predicts more of the last words of LAMBADA.",
          short="Barring stop words helps predict last words of LAMBADA.",
          where=runs_of_sizes(LARGEST),
          measure=within(lambda record: percent(record, "lambada", "correct_stop_words"),
                         lambda record: percent(record, "lambada"),
                         lambda record: percent(record, "lambada", "correct_other_words")),
          control="as many other words barred, the most frequent ones", criterion_before=ONE_PRETRAINING,
          paper_effect=lambda: round(in_text("LAMBADA", "accuracy with stop-word filter")
                                     - in_text("LAMBADA", "accuracy without stop-word filter"), 6),
          assay=Assay("all last words that are predicted with the filter", runs_of_sizes(LARGEST),
                      room(lambda record: percent(record, "lambada", "correct_stop_words"), lambda record: 0.0),
                      lambda: in_text("LAMBADA", "accuracy with stop-word filter"))))


def summarised(model: str) -> float:
    """The mean ROUGE that Table 4 prints."""
    return float(next(row["rouge_average"] for row in printed_rows("gpt2_2019_table4_summarization")
                      if row["model"] == model))


def rouge(record: Record, name: str) -> "np.ndarray":
    """(articles,): the mean of the three ROUGE scores of one kind of summary."""
    import numpy as np

    return np.mean([record.documents["articles"][f"{name}_{measure}"] for measure in ROUGE], 0)


register(
    Claim(id="gpt2_2019-hint", **COMMON, source="Section 3.6", about=(TABLE_4.id,), unit="document",
          direction="higher", unit_shown="points of mean ROUGE F1", where=runs_of_sizes(LARGEST, having="articles"),
          sentence="The hint TL;DR: after an article makes the generated text more like a summary.",
          short="The hint TL;DR makes generated text more like a summary.",
          measure=within(lambda record: rouge(record, "hint"), lambda record: rouge(record, "no_hint"),
                         lambda record: rouge(record, "scrambled")), criterion_before=ONE_PRETRAINING,
          control="the characters of the hint in another order",
          paper_effect=lambda: in_text("summarization", "drop without TL;DR: hint"),
          assay=Assay("the first three sentences against the text generated without a hint",
                      runs_of_sizes(LARGEST, having="articles"),
                      room(lambda record: rouge(record, "lede_3"), lambda record: rouge(record, "no_hint")),
                      lambda: round(summarised("Lede-3") - summarised("GPT-2 without hint"), 6))))
