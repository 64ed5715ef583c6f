"""The smallest whole example of an experiment, its table and its claim: the reading guide shows this file.

A file like this one in a package of `repro.papers` is found by itself. This one is next to the packages and is no part
of the study, so it is known only to those who import it.
"""

from collections import Counter

from pydantic import Field

from repro.errors import ReproError
from repro.study.artifacts import Artifact
from repro.study.claims import Claim, Measured
from repro.study.experiment import Estimate, Experiment, Outcome
from repro.study.registry import register
from repro.study.settings import RunConfig


class Config(RunConfig):
    """The settings of a run: checked before it starts, frozen, and hashed into its id."""

    context: int = Field(1, ge=0, le=3)  # words before it that a guess may look at
    train_books: int = Field(60, ge=1, le=240)


class Counts:
    """P(word | words before it) from counts; a context that was rarely seen leans on the next shorter one."""

    def __init__(self, texts, n_before: int, lexicon: list[str]):
        self.n_before, self.n_types = n_before, len(lexicon)
        self.pairs, self.contexts = Counter(), Counter()
        for words in map(str.split, texts):
            for i in range(len(words)):
                for n in range(min(i, n_before) + 1):
                    before = tuple(words[i - n:i])
                    self.pairs[before, words[i]] += 1
                    self.contexts[before] += 1

    def probability(self, before: tuple[str, ...], word: str) -> float:
        """P(word | before), a positive number for every word of the lexicon."""
        shorter = self.probability(before[1:], word) if before else 1 / self.n_types
        return (self.pairs[before, word] + 5 * shorter) / (self.contexts[before] + 5)


def execute(config, context):
    """One run: count words in the training books, then guess every word of the test books."""
    from math import exp, log

    from repro.data import corpus

    books = corpus(config.corpus)
    texts = [book.text for book in books.documents("train", config.train_books)]
    model = Counts(texts, config.context, books.generator.lexicon())
    nll, n_words = [], []
    for book in books.documents("test"):
        words = book.text.split()
        seen = [tuple(words[max(0, i - config.context):i]) for i in range(len(words))]
        nll.append(-sum(map(log, map(model.probability, seen, words))))
        n_words.append(len(words))
    return Outcome(metrics={"test_word_perplexity": exp(sum(nll) / sum(n_words))},
                   units={"test_word_perplexity": "per word"}, model="counts",
                   documents={"test": {"nll": nll, "n_words": n_words}})


def table(context):
    """The table: a row for each planned config, the value from its record, or "not run"."""
    import pandas

    rows = [{"words of context": config.context,
             "perplexity per word": context.value("test_word_perplexity", context=config.context)}
            for config in context.plan()]
    return pandas.DataFrame(rows)


def measure(records):
    """The effect that the claim is about: nats per word of the longest context less those of the next shorter one, by
    book."""
    from repro.evaluation.bootstrap import linearised

    if len(records) < 2:
        raise ReproError(f"{len(records)} record(s) of counted-words: two contexts are needed for a comparison.")
    *_, shorter, longest = sorted(records, key=lambda record: record.config["context"])
    ours, theirs = (record.documents["test"]["nll"] for record in (longest, shorter))
    saved = [a - b for a, b in zip(ours, theirs, strict=True)]
    return Measured([linearised(saved, longest.documents["test"]["n_words"])])


EXPERIMENT = Experiment(
    name="counted-words", paper="this book", summary="Guess the next word from counts.", config=Config,
    scales={"smoke": {"corpus": "synthetic-books"}}, grid=lambda scale: [{"context": n} for n in (0, 1, 2)],
    execute=execute, estimate=lambda config: Estimate(0, 2500 * config.train_books, 0.0, 2**28, 1.0))
ARTIFACT = Artifact(id="counted-words-table", paper="this book", title="Words of context and perplexity",
                    chapter="01_reading_guide", experiment=EXPERIMENT.name, source="Reading guide", build=table)
CLAIM = Claim(id="counted-words-context", paper="this book", source="Reading guide", experiment=EXPERIMENT.name,
              about=(ARTIFACT.id,), measure=measure, direction="lower", relative=True, unit="book", same_weights=True,
              unit_shown="in perplexity",
              sentence="The longest context predicts better than the next shorter one.",
              short="The longest context predicts better than the next.", means_at=("smoke",),
              why_no_paper_effect="no paper says so", why_no_control="the shorter context is the control",
              why_no_assay="a word more is what is asked about")
register(EXPERIMENT, ARTIFACT, CLAIM)
