"""How much reading typographic quotes and dashes as plain ones helps the base model. Not in the paper.

The experiment scores the test books that use such marks (`experiment.uses`), as typed in their files and as read. Both
readings have the same number of words, so their perplexities per word are comparable.
"""

import re
from dataclasses import replace

from pydantic import Field

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import PROCESS, RATE, tokeniser_of
from repro.papers.yoshida2020.normalisation.experiment import uses
from repro.study import Estimate, Experiment, Outcome, RunConfig, register

READINGS = ("typed", "read")
MARKED, TOKENS_PER_WORD = 9, 1.4  # number of test books that use such marks, and tokens per word; for estimates


class Config(RunConfig):
    """The first words of each such book, in disjoint windows."""

    window: int = Field(300, ge=1)  # tokens
    words: int = Field(3000, ge=1)  # of each book


def execute(config, context) -> Outcome:
    from repro.models import load_causal_lm

    base = PRETRAINING.plan(config.scale)[0]
    _, folder = context.need(base)
    losses, n_words, names = measured(config, load_causal_lm(folder / "model"), tokeniser_of(base), context)
    return Outcome(perplexities(losses, n_words), dict.fromkeys(_metrics(), "per word"), "gpt2-mini",
                   documents={"test": {"n_words": n_words} | {f"nll_{name}": losses[name] for name in READINGS}},
                   notes={"books": names})


def measured(config, model, coder, context) -> tuple[dict[str, list[float]], list[int], list[str]]:
    """The nats of each book in both readings, its number of words, and its name."""
    import numpy as np

    from repro.data import corpus
    from repro.data.normalisation import PLAIN
    from repro.evaluation import perplexity

    source = replace(corpus(config.corpus).of_text(), normalise=None, apart_from=())
    losses, n_words, names = {name: [] for name in READINGS}, [], []
    books = [one for one in source.stream("test") if uses(PLAIN.count(one.text), len(one.text.split()))]
    with context.progress(len(books), "scoring marked books", "books") as bar:
        for book in books:
            typed = "".join(re.findall(r"\s*\S+", book.text)[:config.words])
            read = PLAIN(typed, f"corpus {source.name}, test, document {book.id}")
            for name, text in zip(READINGS, (typed, read), strict=True):
                ids = np.concatenate([[coder.bos], coder.encode(text)])
                losses[name].append(float(perplexity(model, ids, config.window, 0).nll))
            n_words.append(source.n_words(typed))
            names.append(book.id)
            bar.advance(1)
    return losses, n_words, names


def perplexities(losses: dict[str, list[float]], n_words: list[int]) -> dict[str, float]:
    """Word perplexity of all these books together, in each reading."""
    from math import exp

    return {metric: exp(sum(losses[name]) / sum(n_words)) for metric, name in zip(_metrics(), READINGS, strict=True)}


def _metrics() -> list[str]:
    return [f"{name}_word_perplexity" for name in READINGS]


def estimate(config) -> Estimate:
    base = PRETRAINING.estimate(PRETRAINING.plan(config.scale)[0])
    flops = 2 * base.parameters * len(READINGS) * MARKED * TOKENS_PER_WORD * config.words
    return Estimate(base.parameters, 0, flops, PROCESS + 4 * base.parameters, 30 + flops / RATE[config.scale])


EXPERIMENT = Experiment(
    name="read-as-typed", paper="yoshida2020", summary="Books with typographic marks, scored as typed and as read.",
    config=Config, scales={"small": {"corpus": "pg19-subset"}}, execute=execute, estimate=estimate,
    needs=lambda config: [PRETRAINING.plan(config.scale)[0]])
register(EXPERIMENT)
