"""Measures what the recurrence module carries across a window boundary (Yoshida et al. 2020, section 5.3).

At `pretrained` the two models are the ones of `recurrence-gemma` that were trained on the CPU: Gemma 3 270M without a
module, and with the normalized module. How far back they reach is not measured there, because it takes hours.
"""

from pydantic import Field, model_validator

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.base.gpt2_mini import PROCESS, RATE, tokeniser_of
from repro.papers.yoshida2020.perplexity import evaluation, gemma
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING
from repro.papers.yoshida2020.perplexity.pg19 import EVALUATION as BOOKS
from repro.papers.yoshida2020.propagation.tables import (
    by_distance,
    consistency,
    controls,
    divergences,
    known_gain,
    reach,
    texts_beside,
)
from repro.study import ADDED, Artifact, Estimate, Experiment, Outcome, Record, RunConfig, Store, register


class Config(RunConfig):
    """The probes of a fine-tuned baseline and a fine-tuned recurrent model, both trained without overlap."""

    window: int = Field(300, ge=2)  # tokens: of a context, and of the windows that both models were trained on
    continuation: int = Field(30, ge=1)  # tokens written after the boundary
    contexts: int = Field(8000, ge=2)  # windows of the validation books that are continued
    topics: int = Field(20, ge=2)
    topic_books: int | None = Field(None, ge=1)  # training books that the topic model is fitted to; None: all
    topic_piece: int = Field(1000, ge=1)  # words per piece of a book; pieces are the topic model's documents
    topic_passes: int = Field(2, ge=1)  # passes over these documents
    windows_back: int = Field(5, ge=2)  # windows before the scored one, replaced one at a time
    reach_texts: int = Field(500, ge=0)  # texts in which windows are replaced, at least 2; 0: not measured
    reach_changes: int = Field(4, ge=1)  # tokens replaced in each of these texts, one at a time
    reach_overlap: int = Field(150, ge=0)  # tokens of overlap, for the baseline that reads with overlap
    examples: int = Field(12, ge=0)  # contexts whose continuations the record stores as text

    @model_validator(mode="after")
    def _fits(self):
        if self.continuation > self.window:
            raise ValueError(f"continuation is {self.continuation} tokens; it must fit the window ({self.window})")
        if self.reach_overlap >= self.window:
            raise ValueError(f"reach_overlap is {self.reach_overlap} tokens; it must be smaller than the window "
                             f"({self.window})")
        if self.reach_texts == 1:
            raise ValueError("reach_texts is 1; windows are replaced by those of another text: use 2 or more, or 0 to "
                             "leave this out")
        context = PRETRAINING.plan(self.scale)[0].n_positions
        if self.window > context:
            raise ValueError(f"window is {self.window} tokens, but the model's context ends at {context}")
        if self.examples > self.contexts:
            raise ValueError(f"examples is {self.examples}; there are only {self.contexts} contexts")
        return self


SCALES = {
    "smoke": {"corpus": "synthetic-books", "window": 30, "contexts": 240, "topic_piece": 250, "topic_passes": 3,
              "reach_texts": 30, "reach_overlap": 15},
    "small": {"corpus": "pg19-subset", "contexts": 2000, "reach_texts": 100},
    "pretrained": {"corpus": "pg19-subset", "window": 64, "contexts": 800, "reach_texts": 0, "reach_overlap": 32},
    "medium": {"corpus": "pg19-subset", "contexts": 4000},
    "paper": {"corpus": "pg19", "topic_books": 5000},
}


def trained(config, model: str) -> RunConfig:
    """The fine-tuning of `model` ("baseline" or "recurrent") on books, without overlap: the one of Table 2, or at
    `pretrained` the one of `recurrence-gemma` with normalized states."""
    sets = {"window": config.window, "corpus": config.corpus}
    if config.scale == "pretrained":
        return gemma.tuned(model, config.seed, **sets)
    return evaluation.trained(BOOKS.plan(config.scale, sets | {"model": model, "overlap": 0}, [config.seed])[0])


MODELS = ("baseline", "recurrent")
WRITERS = ("baseline", "recurrent", "masked", "book")  # masked: recurrent without h_prev; book: the true continuation


def execute(config, context):
    import torch

    from repro.data import corpus, tokens
    from repro.models import load_causal_lm

    coder = tokeniser_of(PRETRAINING.plan(config.scale)[0])
    runs = {name: context.need(trained(config, name)) for name in MODELS}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    models = {name: load_causal_lm(folder / "model").to(device) for name, (_, folder) in runs.items()}
    held_out = tokens(config.corpus, "validation", coder)
    training = [book.text for book in corpus(config.corpus).documents("train", config.topic_books)]

    documents, notes = propagated(config, context, models, held_out, training, coder)
    if config.reach_texts:
        documents["reach"], documents["distance"] = reached(config, context, models, held_out)
    if generator := corpus(config.corpus).generator:
        books = corpus(config.corpus).documents("test")
        documents["known_gain"] = gained(config, models, tokens(config.corpus, "test", coder),
                                         generator.bounds(books, config.window, 0))
    notes |= {"trained_by": {name: record.id for name, (record, _) in runs.items()}, "topic_books": len(training)}
    metrics, units = summary(documents)
    return Outcome(metrics, units, "baseline and recurrent", documents=documents, notes=notes)


def propagated(config, context, models, held_out, training, coder):
    """Every writer's continuations of the same contexts. Each is compared with its own context and, as a control, with
    a context from another book."""
    import numpy as np

    from repro.evaluation.consistency import common_words, kept_genders, kept_names
    from repro.evaluation.continuations import continue_contexts, sample_passages
    from repro.evaluation.topics import fit_topics, from_other_books, jensen_shannon

    window = config.window
    passages = sample_passages(held_out, window, 1 + config.continuation, config.contexts, config.seed)
    ids, books, other = passages.ids, passages.books, from_other_books(passages.books, config.seed)
    written = {"book": ids[:, window + 1:]}
    with context.progress(3 * len(ids), "continuing contexts", "contexts") as bar:
        for name, model, memory in (("baseline", "baseline", True), ("recurrent", "recurrent", True),
                                    ("masked", "recurrent", False)):
            written[name] = continue_contexts(models[model], ids[:, :window + 1], config.continuation, memory,
                                              progress=bar.advance)
    contexts = [coder.decode(row) for row in ids[:, :window]]
    texts = {name: [coder.decode(row) for row in written[name]] for name in WRITERS}

    topics = fit_topics(training, config.topics, config.topic_piece, config.topic_passes, seed=config.seed)
    about = topics.distributions(contexts)
    common = common_words(training)
    documents = {"contexts": {"book": books.tolist()}}
    for name in WRITERS:
        written_about, found = topics.distributions(texts[name]), {}
        for against, partner in (("own", np.arange(len(books))), ("other", other)):
            divergence = jensen_shannon(about[partner], written_about)
            found[f"jsd {against}"] = divergence.round(6).tolist()
            pairs = [(contexts[i], text) for i, text in zip(partner, texts[name], strict=True)]
            found[f"names {against}"] = by_book([kept_names(*pair, common) for pair in pairs], books)
            found[f"pronouns {against}"] = by_book([kept_genders(*pair) for pair in pairs], books)
        documents[name] = found

    shown = np.linspace(0, len(ids) - 1, config.examples).round().astype(int)
    notes = {
        "examples": [example(contexts[i], coder.decode(ids[i, window:window + 1]),
                             {name: texts[name][i] for name in WRITERS}, topics, common) for i in shown],
        "topics": [topics.top_words(k) for k in range(config.topics)],
        "without_topic_words": {name: sum(topics.n_words(text) == 0 for text in texts[name]) for name in WRITERS},
        "books": {"read": len(held_out), "too short for a context": list(passages.too_short)},
        "tokens": {"in contexts": len(ids) * window,
                   "in the books": len(held_out.ids) - len(held_out) if not held_out.joined else len(held_out.ids) - 1}}
    return documents, notes


def by_book(kept, books):
    """[kept, n] of each book with continuations, summed over its contexts."""
    import numpy as np

    return [np.sum([k for k, at in zip(kept, books, strict=True) if at == book], 0).tolist()
            for book in np.unique(books)]


def example(context, first, continuations, topics, common):
    """One context as the record keeps it, with the topic words and names that occur in it or in a continuation."""
    from repro.evaluation.consistency import names
    from repro.evaluation.topics import WORD

    together = "\n".join([context, first, *continuations.values()])
    return {"context": context, "first": first, "continuations": continuations,
            "topic_words": sorted(topics.words_of(context) & set(WORD.findall(together))),
            "names": sorted(set(names(together, common)))}


def reached(config, context, models, held_out):
    """Mean absolute and mean change of loss, a row of texts for each distance.

    First by windows back, with a whole window replaced; then by tokens back, with a single token replaced. Models
    compute in double precision, so that small changes after several windows are not rounding errors.
    """
    from copy import deepcopy

    from repro.evaluation.continuations import sample_passages
    from repro.evaluation.dependence import dependence, distances, token_dependence
    from repro.evaluation.topics import from_other_books

    n_windows = config.windows_back + 1
    passages = sample_passages(held_out, n_windows * config.window, 1, config.reach_texts, config.seed)
    others = passages.ids[from_other_books(passages.books, config.seed)]
    windows = {"book": passages.books.tolist()}
    tokens = windows | {"tokens back": distances(n_windows, config.window)}
    with context.progress(6 * len(others), "replacing what came before", "texts") as bar:
        for name, model, overlap in (("baseline", "baseline", 0), ("overlap", "baseline", config.reach_overlap),
                                     ("recurrent", "recurrent", 0)):
            asked = deepcopy(models[model]).double(), passages.ids, others, config.window, overlap
            for found, changes in ((windows, dependence(*asked, progress=bar.advance)),
                                   (tokens, token_dependence(*asked, config.reach_changes, config.seed,
                                                          progress=bar.advance))):
                found |= {f"{name} {kind}": rows.tolist() for kind, rows in zip(("absolute", "signed"), changes,
                                                                               strict=True)}
    return windows, tokens


def gained(config, models, text, bounds):
    """Nats of each generated test book by kind of word, under both bounds and each model."""
    import numpy as np

    from repro.data.synthetic import KINDS
    from repro.evaluation import score_documents
    from repro.recurrence import MaskedOut

    losses = {"window": bounds.window_nll, "unlimited": bounds.unlimited_nll}
    for name, model in {**models, "masked": MaskedOut(models["recurrent"])}.items():
        losses[name] = score_documents(model, text, config.window, 0)[0].target_nll.astype(np.float64)
    starts = np.cumsum(bounds.n_words) - bounds.n_words
    return {name: {kind: np.add.reduceat(nll * (bounds.kinds == kind), starts).tolist() for kind in KINDS}
            for name, nll in losses.items()}


def summary(documents):
    """The few numbers that summarize the run."""
    import numpy as np

    from repro.evaluation.topics import sign_test

    metrics = {f"jsd_{name}{suffix}": float(np.mean(documents[name][f"jsd {against}"])) for name in WRITERS
               for suffix, against in (("", "own"), ("_other_book", "other"))}
    units = dict.fromkeys(metrics, "nats")
    test = sign_test(documents["recurrent"]["jsd own"], documents["baseline"]["jsd own"])
    metrics |= {"recurrent_closer": test.smaller / test.n, "tied": test.ties / test.n, "sign_test_p": test.p}
    return metrics, units | {"recurrent_closer": "of contexts, without ties", "tied": "of contexts",
                             "sign_test_p": "two-sided"}


TOPIC_WORDS = {"smoke": 600_000, "paper": 340_000_000} | dict.fromkeys(  # about
    ("small", "pretrained", "medium"), 26_000_000)


def estimate(config):
    from repro.evaluation import flops_per_token

    base = PRETRAINING.plan(config.scale)[0]
    n = max(FINETUNING.estimate(trained(config, name)).parameters for name in MODELS)
    read = config.contexts * (config.window + 4 * config.continuation)
    replaced = config.windows_back + config.reach_changes
    read += 2 * config.reach_texts * (config.windows_back + 1) * (replaced + 3) * config.window  # in double precision
    flops = read * (flops_per_token(base.n_layer, base.n_embd, config.window, 0) + 2 * base.n_embd * base.vocab_size)
    seconds = flops / RATE[config.scale] + 1e-6 * TOPIC_WORDS[config.scale] * (1 + config.topic_passes)
    return Estimate(n, 0, flops, PROCESS + 8 * n + 10 * TOPIC_WORDS[config.scale], seconds)


EXPERIMENT = Experiment(
    name="propagation-pg19", paper="yoshida2020", summary="What is carried across a window boundary (section 5.3).",
    config=Config, scales=SCALES, execute=execute, estimate=estimate,
    needs=lambda config: [trained(config, name) for name in MODELS])
register(EXPERIMENT)


def propagation_records(scale: str) -> list[Record]:
    """The experiment's records as planned at `scale`, at every available seed; none if it was not run."""
    return Store.for_scale(scale).seeds(EXPERIMENT.plan(scale)[0])


PAPER, CHAPTER = "yoshida2020", "08_what_is_propagated"
register(
    Artifact(id="yoshida2020-topic-jsd", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, build=divergences,
             source="Section 5.3.1", title="Divergence between the topics of a context and of its continuation"),
    Artifact(id="yoshida2020-topic-controls", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, build=controls,
             source=f"{ADDED}, after section 5.3.1",
             title="Divergence from own contexts and from those of other books"),
    Artifact(id="yoshida2020-continuations", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name,
             build=texts_beside, source="Tables 4 and 5", title="Greedy continuations of the same contexts"),
    Artifact(id="yoshida2020-consistency", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, build=consistency,
             source=f"{ADDED}, after section 5.3", title="Names and pronouns that agree with the context"),
    Artifact(id="yoshida2020-known-gain", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, build=known_gain,
             source=f"{ADDED}, after section 5.3", title="Share of the possible gain that recurrence recovers"),
    Artifact(id="yoshida2020-reach", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, build=reach,
             source=f"{ADDED}, after section 5.3", title="Change of loss when an earlier window is replaced"),
    Artifact(id="yoshida2020-distance", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, build=by_distance,
             source=f"{ADDED}, after section 5.3", title="Change of loss when an earlier token is replaced"))
