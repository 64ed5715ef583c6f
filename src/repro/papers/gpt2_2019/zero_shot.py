"""A language model on the sets of Table 3 and section 3, zero-shot.

Controls: an untrained model of the same size, on a part of each set, and the token frequencies of the training text,
which ignore the context. Translations are from WMT-14, which `repro data fetch` gets for `paper`; at `smoke` they are
of a generated language.
"""

from collections.abc import Callable
from math import exp, log
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from repro.papers.base.gpt2_mini import EXPERIMENT as MINI
from repro.papers.base.pretraining import PROCESS, RATE, new_tokeniser, tokeniser_of
from repro.papers.base.punctuation import Punctuation, tidied
from repro.papers.gpt2_2019 import sets
from repro.papers.gpt2_2019.sizes import EXPERIMENT as PRETRAINING
from repro.papers.gpt2_2019.sizes import PAPER, SIZES, model_config, text_of
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.experiment import corpus_named

if TYPE_CHECKING:
    from torch import Tensor

BASE = "gpt2-mini"
LAST_WORDS = 5_153  # passages of LAMBADA at `small`
IMPOSSIBLE = {"sizes": 97, BASE: 114}  # by tokenizer, with stop words barred as first tokens: `sets.impossible`
FREQUENCIES = "frequencies"


class Config(RunConfig):
    """A model and its sets; `corpus` is LAMBADA's. Each set is the name of a corpus, or null if it is left out."""

    size: Literal["117M", "345M", "762M", "1542M", "gpt2-mini", "frequencies"]
    # The training text (OTHERS): always "all" for sizes other than the largest, so that a plan with `size` has each of
    # them once.
    text: Literal["all", "little", "wrapped"] = "all"
    wikitext2: str | None = None  # the raw text
    wikitext103: str | None = None  # the one with <unk>
    enwik8: str | None = None
    text8: str | None = None
    names: str | None = None  # clozes in the form of CBT
    nouns: str | None = None
    reading: str | None = None  # questions with paragraphs
    questions: str | None = None  # questions asked without their paragraphs
    articles: str | None = None  # to be summarized
    translations: str | None = None
    translations_back: str | None = None  # into English
    # How stop words are barred from LAMBADA's last words: as whole words, or, if they are one token, as the first token
    # of any word, which also bars words that begin with one (" to" + "wel").
    stop_words: Annotated[Literal["whole words", "first tokens"], Absent("first tokens")] = "whole words"
    punctuation: Punctuation = "plain"  # of all sets except enwik8 and text8; the books have plain punctuation
    translation_tokens: int = Field(sets.ANSWER, ge=1)
    window: int = Field(1024, ge=2)  # tokens
    overlap: int = Field(0, ge=0)  # tokens of a window that the previous one scored
    documents: int | None = Field(None, ge=1)  # of each text; null: all
    examples: int | None = Field(None, ge=1)  # of each set of tasks; null: all
    control: int = Field(200, ge=1)  # examples, and windows of text, for the untrained model
    summary_tokens: int = Field(100, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _of_size(cls, values):
        return values if values.get("size") == SIZES[-1] else {**values, "text": "all"}

    @model_validator(mode="after")
    def _fits(self):
        if self.overlap >= self.window:
            raise ValueError(f"overlap is {self.overlap} tokens; it must be smaller than the window ({self.window})")
        if self.text not in ("all", *OTHERS[self.scale]):
            raise ValueError(f"text is {self.text}; at {self.scale} the largest size is trained on all"
                             f"{''.join(f' or {text}' for text in OTHERS[self.scale])}")
        context = model_run(self).n_positions
        if self.window > context:
            raise ValueError(f"window is {self.window} tokens, but the context of {self.size} at {self.scale} is "
                             f"{context}; take at most these")
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if value is not None and (found := corpus_named(value).content_kind) != kind:
                raise ValueError(f"{name} is {value}, which has the kind {found}; it must be of the kind "
                                 f"{kind}")
        return self


# Other training text of the largest size: a little of the text, and books in lines as printed.
OTHERS = {"smoke": ("little",), "small": ("little", "wrapped"), "medium": ("little", "wrapped"), "paper": ()}
HERE = {"corpus": "lambada-cased", "wikitext2": "wikitext-103", "wikitext103": "wikitext-103-unk",
        "names": "pg19-clozes-names", "nouns": "pg19-clozes-nouns", "reading": "hotpotqa-subset",
        "questions": "hotpotqa-subset", "articles": "scisummnet-subset"}
SCALES = {
    "smoke": {"corpus": "synthetic-last-words", "wikitext2": "synthetic-books", "wikitext103": "synthetic-books",
              "enwik8": "synthetic-web", "text8": "synthetic-books", "names": "synthetic-clozes",
              "reading": "synthetic-questions", "questions": "synthetic-questions", "articles": "synthetic-summaries",
              "translations": "synthetic-translations", "window": 128, "documents": 2, "examples": 40, "control": 20,
              "summary_tokens": 12},
    "small": {**HERE, "enwik8": "enwik8-prefix", "text8": "text8-prefix", "stop_words": "first tokens"},
    "medium": {**HERE, "enwik8": "enwik8-prefix", "text8": "text8-prefix"},
    "paper": {**HERE, "enwik8": "enwik8", "text8": "text8", "translations": "wmt14-en-fr",
              "translations_back": "wmt14-fr-en", "translation_tokens": 100, "punctuation": "as typed"},
}
LANGUAGE = ("wikitext2", "wikitext103", "enwik8", "text8")
TRANSLATIONS = ("translations", "translations_back")
KINDS = {"corpus": "last word", **dict.fromkeys(LANGUAGE, "text"),
         **dict.fromkeys(("names", "nouns"), "multiple choice"), **dict.fromkeys(("reading", "questions"), "question"),
         **dict.fromkeys(("articles", *TRANSLATIONS), "summary")}  # of the examples of each set
TASKS = ("names", "nouns", "reading", "questions", "articles", *TRANSLATIONS)
FIELDS = (*LANGUAGE, *TASKS)


def fields_of(config) -> tuple[str, ...]:
    """The sets of a run besides LAMBADA; token frequencies can score only running text and last words."""
    return LANGUAGE if config.size == FREQUENCIES else FIELDS


def grid(scale: str) -> list[dict]:
    """The four sizes, the base model if it reads the same texts, the largest size trained on other text, and the token
    frequencies of the training text."""
    points: list[dict] = [{"size": size} for size in (*SIZES, *[BASE] * (scale in ("small", "medium")))]
    points += [{"size": SIZES[-1], "text": text} for text in OTHERS[scale]]
    return points + [{"size": FREQUENCIES}] * (scale != "paper")


def model_run(config) -> RunConfig:
    """The run that trained the model; for token frequencies, one with the same text and tokenizer."""
    if config.size == BASE:
        return MINI.plan(config.scale)[0]
    size = SIZES[-1] if config.size == FREQUENCIES else config.size
    return next(one for one in PRETRAINING.plan(config.scale, seeds=(config.seed,))
                if one.size == size and text_of(one) == config.text)


def execute(config, context):
    import torch

    from repro.models import GPT, load_causal_lm

    trained = model_run(config)
    sets_tried = 1 + sum(getattr(config, name) is not None for name in fields_of(config))
    if config.size == FREQUENCIES:
        coder, alone = new_tokeniser(trained), config.model_copy(update=dict.fromkeys(TASKS))
        with context.progress(sets_tried, "evaluating token frequencies", "sets") as bar:
            documents = scores_by_set(alone, frequencies(trained, coder), None, coder, bar)
        metrics = scores(documents, {})
        return Outcome(metrics, {name: unit(name) for name in metrics}, config.size, documents=documents)
    record, folder = context.need(trained)
    coder = tokeniser_of(trained)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    theirs = load_causal_lm(folder / "model").to(device).eval()
    model = GPT.from_transformers(theirs)
    torch.manual_seed(config.seed)
    untrained = GPT(model.config).to(device).eval()
    with context.progress(sets_tried, f"evaluating {config.size}", "sets") as bar:
        documents = scores_by_set(config, model, theirs, coder, bar)
        notes, bleu = {"answers": documents.pop("answers", [])}, documents.pop("bleu", {})
        control = on_control(config, untrained, coder, documents)
    metrics = scores(documents, control) | bleu | {"parameters": model.config.parameters}
    if "validation_token_loss" in record.metrics:
        metrics["validation_token_loss"] = record.metrics["validation_token_loss"]
    return Outcome(metrics, {name: unit(name) for name in metrics}, config.size, documents=documents, notes=notes)


def frequencies(run, coder) -> Callable[["Tensor"], "Tensor"]:
    """A model, from ids to logits, that predicts each token with its share of the training text, counting each token
    once more than it occurs."""
    import numpy as np
    import torch

    from repro.data import tokens

    counts = np.bincount(tokens(run.corpus, "train", coder).ids, minlength=coder.vocab_size) + 1
    logits = torch.from_numpy(np.log(counts / counts.sum())).float()
    return lambda ids: logits.expand(*ids.shape, -1)


def scores_by_set(config, model, theirs, coder, bar) -> dict[str, Any]:
    """The results of each set, a list with one number per unit; "answers" are written answers, and "bleu" has a metric
    for each direction of translation."""
    from repro.data import detokeniser

    plain, tidy = detokeniser("wikitext"), tidied(config)
    found: dict[str, Any] = {"lambada": sets.last_words(
        model, coder, [row.text for row in _rows(config, "corpus")], config.stop_words == "whole words")}
    bar.advance(1)
    for name in filter(lambda name: getattr(config, name), LANGUAGE):
        wikitext = name.startswith("wikitext")
        found[name] = sets.language(model, coder, getattr(config, name), config,
                                    (lambda text: plain.apply(tidy(text))) if wikitext else str)
        if name == "wikitext103":
            others = {"tokenised": tidy,
                      "other_blanks": lambda text: sets.fewer_blanks(tidy(text), plain.apply(tidy(text)))}
            for other, rewrite in others.items():
                found[name][other] = sets.language(model, coder, config.wikitext103, config, rewrite)["nll"]
        bar.advance(1)
    for name in filter(lambda name: getattr(config, name), ("names", "nouns")):
        found[name] = sets.clozes(model, coder, _rows(config, name))
        bar.advance(1)
    if config.reading:
        found["reading"] = sets.reading(theirs, coder, _rows(config, "reading"))
        bar.advance(1)
    if config.questions:
        found["questions"], found["answers"] = sets.closed_book(theirs, coder, _rows(config, "questions"),
                                                                _rows(config, "questions", "train"))
        bar.advance(1)
    if config.articles:
        found["articles"] = sets.summaries(theirs, coder, _rows(config, "articles"), config.seed, config.summary_tokens)
        bar.advance(1)
    for name in filter(lambda name: getattr(config, name), TRANSLATIONS):
        found[name], score = sets.translations(theirs, coder, _rows(config, name), _rows(config, name, "validation"),
                                               config.translation_tokens)
        found["bleu"] = found.get("bleu", {}) | {f"{CALLED[name]}_bleu": score}
        bar.advance(1)
    return found


def _rows(config, name: str, split: str = "test") -> list:
    """The examples of a set; if it has no test split, those of its validation split."""
    from repro.data import corpus

    source = corpus(getattr(config, name))
    rows = list(source.examples(split if split in source.splits else "validation"))
    return list(map(tidied(config), rows[:config.examples] if split == "test" else rows))


def on_control(config, untrained, coder, documents: dict[str, Any]) -> dict[str, float]:
    """The results of an untrained model on the beginning of each set: nats per word or byte, or the share of right
    answers. It answers all clozes, and `documents` keeps each answer under "untrained"."""
    from repro.evaluation import lambada

    fewer = fewer_of(config)
    passages = [row.text for row in _rows(fewer, "corpus")]
    found = lambada(untrained, coder, passages, sets.STOP_WORDS,  # as for the accuracy that it is compared with
                    whole_words=config.stop_words == "whole words")
    scores = {"lambada": float(found.nll.mean()), "lambada_accuracy": 100 * found.accuracy}
    for name in filter(documents.__contains__, LANGUAGE):
        wikitext = name.startswith("wikitext")
        part = sets.language(untrained, coder, getattr(config, name), fewer, tidied(config) if wikitext else str)
        whole = documents[name]
        each = sum(part["nll"]) / sum(part["n_tokens"])
        scores[name] = each * sum(whole["n_tokens"]) / sum(whole[PER[name]])
    for name in filter(documents.__contains__, ("names", "nouns")):
        documents[name]["untrained"] = sets.clozes(untrained, coder, _rows(config, name))["correct"]
        scores[name] = 100 * _share(documents[name]["untrained"])
    return scores


def fewer_of(config):
    """The config with the few examples and documents that the untrained model reads."""
    return config.model_copy(update={"examples": min(config.control, config.examples or config.control),
                                     "documents": 2})


PER = {"wikitext2": "n_words", "wikitext103": "n_words", "enwik8": "n_bytes", "text8": "n_bytes"}


def scores(documents: dict[str, Any], control: dict[str, float]) -> dict[str, float]:
    """The metrics of a record: those of each set in `documents`."""
    found: dict[str, float] = {}
    if "lambada" in documents:
        lambada = documents["lambada"]
        found["lambada_perplexity"] = exp(_share(lambada["nll"]))
        found["lambada_accuracy_percent"] = 100 * _share(lambada["correct"])
        found["lambada_accuracy_stop_words_percent"] = 100 * _share(lambada["correct_stop_words"])
    for name in filter(documents.__contains__, ("wikitext2", "wikitext103")):
        part = documents[name]
        found[f"{name}_word_perplexity"] = exp(sum(part["nll"]) / sum(part["n_words"]))
        if "tokenised" in part:
            found[f"{name}_word_perplexity_tokenised"] = exp(sum(part["tokenised"]) / sum(part["n_words"]))
    for name, metric in (("enwik8", "enwik8_bits_per_byte"), ("text8", "text8_bits_per_character")):
        if name in documents:
            found[metric] = sets.bits(documents[name]["nll"], documents[name]["n_bytes"])
    for name in filter(documents.__contains__, CALLED):
        found[f"{CALLED[name]}_accuracy_percent"] = 100 * _share(documents[name]["correct"])
    for name in filter(documents.__contains__, ("names", "nouns")):
        found[f"{CALLED[name]}_commonest_percent"] = 100 * _share(documents[name]["commonest"])
    if "reading" in documents:
        found["reading_f1_percent"] = 100 * _share(documents["reading"]["f1"])
        found["reading_alone_f1_percent"] = 100 * _share(documents["reading"]["f1_alone"])
    if "questions" in documents:
        part = documents["questions"]
        both = zip(part["probability"], part["correct"], strict=True)
        best = sorted(both, key=lambda one: -one[0])  # the first of equally probable ones, right or not
        confident = [right for _, right in best[:max(1, len(best) // 100)]]
        found |= {"questions_exact_percent": 100 * _share(part["correct"]),
                  "questions_most_common_percent": 100 * _share(part["most_common"]),
                  "questions_confident_percent": 100 * _share(confident)}
    found |= {f"summary_{name}": _share(values) for name, values in documents.get("articles", {}).items()}
    bits = {name: log(2) if name in ("enwik8", "text8") else 1 for name in control}
    return found | {f"untrained_{name}": value / bits[name] for name, value in control.items()}


CALLED = {"names": "cloze_names", "nouns": "cloze_nouns", "translations": "translation",
          "translations_back": "translation_back"}


def unit(metric: str) -> str:
    if metric == "parameters":
        return "weights"
    if metric == "validation_token_loss":
        return "nats per token of held-out training text"
    if metric.startswith("untrained_"):
        name = metric.removeprefix("untrained_")
        return {"lambada": "nats per word", "wikitext2": "nats per word", "wikitext103": "nats per word",
                "enwik8": "bits per byte", "text8": "bits per character"}.get(name, "per cent")
    for end, unit_shown in (("perplexity", "per word"), ("tokenised", "per word"), ("percent", "per cent"),
                         ("bleu", "BLEU"), ("bits_per_byte", "bits per byte"),
                         ("bits_per_character", "bits per character")):
        if metric.endswith(end):
            return unit_shown
    return "ROUGE F1, per cent"


TOKENS = {"smoke": 40_000, "small": 4_500_000, "medium": 4_500_000, "paper": 40_000_000}  # read, over all sets

PER_TOKEN = 1e-5  # seconds in which frequencies score one token


def estimate(config):
    run = model_run(config)
    if config.size == FREQUENCIES:
        return Estimate(run.vocab_size, 0, float(TOKENS[config.scale]), PROCESS, PER_TOKEN * TOKENS[config.scale] + 60)
    shape = model_config(run, run.vocab_size)
    flops = shape.flops_per_token(config.window) * TOKENS[config.scale]
    return Estimate(shape.parameters, 0, flops, PROCESS + 12 * shape.parameters, flops / RATE[config.scale] + 60)


EXPERIMENT = Experiment(
    name="zero-shot-gpt2", paper=PAPER, summary="GPT-2 of each size on zero-shot tasks.",
    config=Config, scales=SCALES, grid=grid, execute=execute, estimate=estimate,
    needs=lambda config: [] if config.size == FREQUENCIES else [model_run(config)],
    reads=lambda config: dict.fromkeys([*filter(None, (getattr(config, name) for name in fields_of(config))),
                                        *(model_run(config).tokeniser_corpora * (config.size == FREQUENCIES))]))
register(EXPERIMENT)


def _share(values) -> float:
    return sum(values) / len(values)
