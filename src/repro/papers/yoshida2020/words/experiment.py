"""The words of a page on which recurrence lowers the loss. Not in the paper, which sums over words.

A record holds numbers and positions but no text; the text is read from the corpus when the page is drawn.
"""

from itertools import accumulate
from typing import Annotated

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import PROCESS, RATE, tokeniser_of
from repro.papers.yoshida2020.perplexity import evaluation
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING, SECOND
from repro.papers.yoshida2020.perplexity.matched import EVALUATION as MATCHED
from repro.papers.yoshida2020.perplexity.pg19 import EVALUATION as BOOKS
from repro.papers.yoshida2020.perplexity.wikitext103 import EVALUATION as ARTICLES
from repro.papers.yoshida2020.words.figure import digest, page_figure, passage
from repro.study import ADDED, Absent, Artifact, Estimate, Experiment, Outcome, RunConfig, register

MODELS = ("baseline", "recurrent")


class Config(RunConfig):
    """A page of test text, read in disjoint windows by a fine-tuned baseline and a fine-tuned recurrent model.

    The start of the page, ten windows into the first text, was fixed before any page was seen. The shorter windows were
    added after the page of the longer ones was known.
    """

    window: int = Field(300, ge=1)  # tokens
    insert_layer: Annotated[int, Field(ge=0, le=1), Absent(1)] = 1  # the recurrent model's block, from 0
    book: int = Field(0, ge=0)  # of the test text, counted from 0; a continuous text is one book
    skip: int = Field(10, ge=1)  # windows before the page; they are read but not shown
    windows: int = Field(2, ge=1)  # of the page
    reference: int | None = Field(None, ge=1)  # training texts that identify names and topic words; None: all

    @model_validator(mode="after")
    def _trained(self):
        known = [one.scales[self.scale]["corpus"] for one in (BOOKS, ARTICLES)]
        if self.corpus not in known:
            raise ValueError(f"corpus is {self.corpus}, but models are fine-tuned on {' and '.join(known)}; choose one "
                             "of these")
        return self


SCALES = {"smoke": {"window": 30, "windows": 6}, "small": {}, "medium": {}, "paper": {"reference": 1250}}


def grid(scale: str) -> list[dict]:
    """A page of a book and a page of an article; at `smoke`, where both tables read the same books, one page. Scales
    with a second, shorter window have such pages again, of about the same length, with the module at the first
    block."""
    pages = [{"corpus": one.scales[scale]["corpus"]} for one in (BOOKS, ARTICLES)]
    short = SECOND.get(scale, {}).get("window")
    return pages + [page | {"window": short, "windows": 600 // short, "insert_layer": 0} for page in pages if short]


def trained(config, model: str) -> RunConfig:
    """The fine-tuning of `model` ("baseline" or "recurrent") without overlap on this text: from Table 2 or 1, or for
    the second window from `recurrence-matched`."""
    wanted = {"model": model, "overlap": 0, "window": config.window} | (
        {"insert_layer": config.insert_layer} if model == "recurrent" else {})
    if config.window == SECOND.get(config.scale, {}).get("window"):
        plan = MATCHED.plan(config.scale, seeds=[config.seed])
        return evaluation.trained(next(one for one in plan if one.corpus == config.corpus and all(
            getattr(one, key) == value for key, value in wanted.items())))
    parent = next(one for one in (BOOKS, ARTICLES) if one.scales[config.scale]["corpus"] == config.corpus)
    return evaluation.trained(parent.plan(config.scale, wanted, [config.seed])[0])


def execute(config, context) -> Outcome:
    import numpy as np
    import torch

    from repro.data import corpus
    from repro.evaluation import perplexity
    from repro.evaluation.words import spans, whole_words, word_of
    from repro.models import load_causal_lm
    from repro.recurrence import MaskedOut

    runs = {name: context.need(trained(config, name)) for name in MODELS}
    source, coder = corpus(config.corpus), tokeniser_of(PRETRAINING.plan(config.scale)[0])
    title, parts = passage(source, config.book)
    text, before = "".join(parts), np.cumsum([0, *map(len, parts[:-1])])
    ids = np.concatenate([[coder.bos], *map(coder.encode, parts)])
    tokens = np.concatenate([start + coder.offsets(part) for start, part in zip(before, parts, strict=True)])
    first, stop = config.window * config.skip, config.window * (config.skip + config.windows)
    if stop > len(tokens):
        raise ReproError(f"the page ends at token {stop:,}, but {title} has {len(tokens):,}; choose a smaller skip or "
                         "another book.")

    words = spans(text)
    which = word_of(words, tokens)
    low, high = whole_words(which, first, stop)
    inside = (low <= which) & (which < high)
    page = {"start": words[low:high, 0].tolist(), "stop": words[low:high, 1].tolist(),
            "kind": kinds(config, source, parts, words[low:high]),
            "window": (np.searchsorted(which, range(low, high)) // config.window).tolist()}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    models = {name: load_causal_lm(folder / "model").to(device) for name, (_, folder) in runs.items()}
    for name, model in {**models, "masked": MaskedOut(models["recurrent"])}.items():
        nll = np.zeros(len(tokens))
        nll[:stop] = perplexity(model, ids[:stop + 1], config.window, 0).target_nll
        page[name] = np.bincount(which[inside] - low, nll[inside]).round(6).tolist()

    metrics = {"words": high - low} | {f"saved{suffix}": sum(page["baseline"]) - sum(page[name]) for suffix, name in (
        ("", "recurrent"), ("_masked", "masked"))}
    notes = {"text": title, "sha256": digest(text[page["start"][0]:page["stop"][-1]]),
             "trained_by": {name: record.id for name, (record, _) in runs.items()}}
    return Outcome(metrics, {"words": "words", "saved": "nats", "saved_masked": "nats"}, "baseline and recurrent",
                   documents={"page": page}, notes=notes)


def kinds(config, source, parts: list[str], words) -> list[str]:
    """The kinds of some words, given as (n, 2) positions in the joined `parts`. The generator of an embedded text knows
    them; otherwise they are derived from the training text, and words typical of the page's documents are topic
    words."""
    from repro.evaluation.consistency import common_words
    from repro.evaluation.topics import keywords
    from repro.evaluation.words import kind_of

    text, (first, last) = "".join(parts), (words[0, 0], words[-1, 1])
    if source.generator:
        n = len(text[:first].split())
        return source.generator.kinds(text)[n:n + len(words)].tolist()
    others = [one.text for one in source.documents("train", config.reference)]
    around = "".join(part for part, end in zip(parts, accumulate(map(len, parts)), strict=True)
                     if end > first and end - len(part) < last)
    common, topical = common_words(others), keywords(around, others)
    return [kind_of(text[start:stop], common, topical) for start, stop in words]


def estimate(config) -> Estimate:
    from repro.evaluation import flops_per_token

    base = PRETRAINING.plan(config.scale)[0]
    n = max(FINETUNING.estimate(trained(config, name)).parameters for name in MODELS)
    per_token = flops_per_token(base.n_layer, base.n_embd, config.window, 0) + 2 * base.n_embd * base.vocab_size
    flops = 3 * config.window * (config.skip + config.windows) * per_token
    counted = {"smoke": 0, "small": 26_000_000, "medium": 26_000_000, "paper": 86_000_000}[config.scale]  # words
    return Estimate(n, 0, flops, PROCESS + 8 * n + 10 * counted, flops / RATE[config.scale] + 1e-6 * counted)


EXPERIMENT = Experiment(
    name="words-saved", paper="yoshida2020", summary="Loss saved by recurrence on each word of a page of test text.",
    config=Config, scales=SCALES, execute=execute, grid=grid, estimate=estimate,
    needs=lambda config: [trained(config, name) for name in MODELS])
LOOK_FOR = ("Stronger colors mark words on which one model is clearly better. A memory should help on the underlined "
            "names, pronouns and topic words.")
register(
    EXPERIMENT,
    Artifact(id="words-saved-article", paper="yoshida2020", title="Loss saved by recurrence on each word of an article",
             chapter="04_recurrence_module", experiment=EXPERIMENT.name, source=ADDED, kind="figure",
             build=lambda context: page_figure(context, ARTICLES),
             look_for=LOOK_FOR),
    Artifact(id="words-saved-book", paper="yoshida2020", title="Loss saved by recurrence on each word of a book's page",
             chapter="07_pg19", experiment=EXPERIMENT.name, source=ADDED, kind="figure",
             build=lambda context: page_figure(context, BOOKS),
             look_for=LOOK_FOR))
