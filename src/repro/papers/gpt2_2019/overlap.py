"""How much of each test text is in a training text, in runs of 8 words (Radford et al. 2019, section 4, Table 6).

A run reads one training text: each set's own, or one text for all sets, like WebText in the paper. At `smoke` the test
texts are generated books with planted stretches of training books, and exact sets count the percentage too. WebText was
never published, so there is no `paper` scale. Its filters of pages are tested at `smoke`, on planted cases.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pydantic import Field

from repro.errors import ReproError
from repro.papers.base.gpt2_mini import PROCESS
from repro.papers.gpt2_2019.sizes import CHAPTER, PAPER
from repro.study import Artifact, ArtifactContext, Estimate, Experiment, Outcome, RunConfig, register
from repro.study.artifacts import NOT_RUN
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import pandas

HERE = ("wikitext2", "enwik8", "text8")  # sets of the paper with their own training text
MEAN = "mean of WikiText-2, enwik8, text8"
TABLE_6 = "gpt2_2019_table6_8gram_overlap"
COLUMNS = {"ptb": "PTB", "wikitext2": "WikiText-2", "enwik8": "enwik8 (ours, a part)", "text8": "text8 (ours, a part)",
           "wikitext103": "WikiText-103", "one_billion_word": "1BW", "lambada": "LAMBADA", "planted": "generated"}
OWN = "own"
BLOCK = 1_000  # runs: the size of the blocks in which a single document is counted, for the interval
SETS = {  # metric -> corpus; LAMBADA's own training text, 2,662 novels, is missing
    "smoke": {"planted": "synthetic-books"},
    "small": {"wikitext2": "wikitext-103", "text8": "text8-prefix", "enwik8": "enwik8-prefix",
              "lambada": "lambada-cased"},
}


class Config(RunConfig):
    """The training text to search: "own" or the name of a corpus. `corpus` is the corpus of the first set."""

    training_set: str = OWN
    n: int = Field(8, ge=1)  # words in a run
    error_rate: float = Field(1e-8, gt=0, lt=1)  # of the filter
    random_runs: int = Field(1_000_000, ge=1)  # random runs of words, none of which should be found
    planted_every: int | None = Field(None, ge=2)  # books: one stretch in this many is from a training book; null: none


def execute(config: Config, context: Any) -> Outcome:
    """Count runs by position inside documents; "own" leaves out sets without their own training text."""
    from repro.data import NgramFilter, corpus, normalise

    metrics, documents = {}, {}
    sets = {name: one for name, one in SETS[config.scale].items()
            if config.training_set != OWN or "train" in corpus(one).splits}
    known = known_from = None
    with context.progress(len(sets), "counting runs", "sets") as bar:
        for name, one in sets.items():
            source = one if config.training_set == OWN else config.training_set
            if source != known_from:
                training = list(corpus(source).texts("train"))
                n_runs = sum(max(0, normalise(text).count(" ") + 2 - config.n) for text in training)
                known = NgramFilter(max(1, n_runs), config.n, config.error_rate)
                known.update(training)
                known_from = source
            tested = texts(config, one)
            documents[name] = counted(tested, known)
            total = sum(documents[name]["n_grams"])
            if not total:
                raise ReproError(f"no text of {one} has {config.n} words to count; choose a smaller n.")
            metrics[f"{name}_percent"] = 100 * sum(documents[name]["found"]) / total
            if config.planted_every:
                metrics[f"{name}_exact_percent"] = 100 * exact(tested, training, config.n)
            bar.advance(1)
    metrics["random_runs_found"] = sum(run in known for run in random_runs(config))
    metrics["filter_bytes_a_run"] = known.n_bytes / known.n_held
    if config.scale == "smoke" and config.training_set == OWN:
        metrics |= pages_left()
    return Outcome(metrics, {name: unit(name) for name in metrics}, "none", documents=documents)


def unit(name: str) -> str:
    """The unit of a metric."""
    return ("per cent of runs" if name.endswith("_percent") else "bytes" if name.startswith("filter") else
            "runs" if name.startswith("random") else "pages")


def texts(config: Config, name: str) -> list[str]:
    """The test texts of a corpus, at `smoke` with stretches of training text in them."""
    from repro.data import corpus

    found = list(corpus(name).texts("test"))
    if not config.planted_every:
        return found
    training = corpus(name).texts("train")
    return [planted(text, next(training), config.planted_every) for text in found]


def planted(text: str, source: str, every: int, stretch: int = 20) -> str:
    """`text` with every so-many-th stretch of 20 words replaced by the words at the same place of `source`."""
    words, theirs = text.split(), source.split()
    for start in range(0, min(len(words), len(theirs)) - stretch + 1, every * stretch):
        words[start:start + stretch] = theirs[start:start + stretch]
    return " ".join(words)


def counted(tested: Sequence[str], known: Any) -> dict[str, list[int]]:
    """`n_grams` and `found` of each text, or of each block of runs if there is only one text."""
    flags = [list(known.found(text)) for text in tested]
    if len(flags) == 1:
        flags = [flags[0][start:start + BLOCK] for start in range(0, len(flags[0]), BLOCK)]
    return {"n_grams": [len(one) for one in flags], "found": [sum(one) for one in flags]}


def exact(tested: Sequence[str], training: Sequence[str], n: int) -> float:
    """The share that an exact set finds."""
    from repro.data.ngrams import grams

    known = {run for text in training for run in grams(text, n)}
    found = [run in known for text in tested for run in grams(text, n)]
    return sum(found) / len(found)


def random_runs(config: Config) -> Iterator[str]:
    """Runs of words that no text has: numbers of 12 digits."""
    draw = random.Random(f"runs/{config.seed}")
    for _ in range(config.random_runs):
        yield " ".join(f"{draw.getrandbits(40):012}" for _ in range(config.n))


def pages_left() -> dict[str, float]:
    """How many of the planted pages remain after each step, and how many are kept or dropped wrongly."""
    from repro.data import webtext
    from repro.data.planted_pages import pages

    made = pages(n=30, planted=6)
    found = webtext(page for page, _ in made)
    reasons = dict.fromkeys((document.id for document in found.documents), "") | dict(found.dropped)
    wrong = sum(reasons[page.url] != case for page, case in made)
    return {f"pages_after_{step.lower()}": n for step, n in found.counts.items()} | {"pages_wrong": wrong}


def estimate(config: Config) -> Estimate:
    """Some 20 million words a corpus of books: 4 bytes a run, and the texts."""
    large = config.scale != "smoke"
    return Estimate(0, 0, 0.0, PROCESS + (500_000_000 if large else 0), 400.0 if large else 10.0)


def table(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 6: a row for each training text, the percentage of runs shared with each test text."""
    import pandas

    rows = [["the paper", row["training_set"], *(row.get(f"{name}_percent") or "–" for name in COLUMNS),
             _written(mean_of(row))] for row in printed_rows(TABLE_6)]
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            found = context.records_of(config)[:1]
            training_set = "each one's own" if config.training_set == OWN else config.training_set
            rows.append([f"this study, {scale}", training_set, *(
                _written(found[0].metrics.get(f"{name}_percent")) if found else NOT_RUN for name in COLUMNS),
                _written(mean_of(found[0].metrics)) if found else NOT_RUN])
    return pandas.DataFrame(rows, columns=["source", "training text", *COLUMNS.values(), MEAN])


def mean_of(percents: Mapping[str, Any]) -> float | None:
    """The mean over the sets that are HERE, of a row that is printed or of metrics; None where it has not all."""
    found = [percents.get(f"{name}_percent") for name in HERE]
    return None if None in found else fmean(map(float, found))


def _written(percent: float | None) -> str:
    if percent is None:
        return "–"
    return "< 0.01" if 0 < percent < 0.005 else f"{percent:.2f}"


EXPERIMENT = Experiment(
    name="overlap-gpt2", paper=PAPER, summary="How much of test texts is in training texts: runs of 8 words.",
    config=Config, execute=execute, estimate=estimate,
    scales={"smoke": {"corpus": "synthetic-books", "random_runs": 20_000, "planted_every": 5},
            "small": {"corpus": "wikitext-103"}},
    grid=lambda scale: [{"training_set": name} for name in
                        (OWN, "synthetic-documents" if scale == "smoke" else "gutenberg-pretrain")],
    reads=lambda config: sorted({*SETS[config.scale].values(),
                                 *({config.training_set} - {OWN})} - {config.corpus}))
TABLE = Artifact(
    id="gpt2_2019-table6", paper=PAPER, chapter=CHAPTER, experiment=EXPERIMENT.name, source="Table 6", build=table,
    title="Runs of 8 words in test texts that also occur in a training text, in %",
    look_for="Our LAMBADA is the text as it was scored. WikiText-103's test text is WikiText-2's, whose training text "
             "has <unk> for rare words.")
register(EXPERIMENT, TABLE)
