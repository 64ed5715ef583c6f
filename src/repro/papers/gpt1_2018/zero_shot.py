"""Four tasks without fine-tuning, asked of a language model during pre-training (Radford et al. 2018, section 5).

Each task is put as a question of likelihood (Figure 2, right). CoLA: a sentence is acceptable if its mean
log-probability is above a threshold, chosen on training rows. SST-2: "very" is appended to the text, and the more
probable of "positive" and "negative" is the answer. RACE: the candidate with the highest mean log-probability after
document and question. Winograd schemas: each candidate replaces the pronoun, and the answer is the one after which the
rest has the highest mean log-probability; we use GAP, with pronouns from Wikipedia, instead of the paper's DPRD.

We ask the untrained model too. Before and after pre-training we also ask with the text of the next row in front, so
that only the answer itself can be judged.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from repro.errors import ReproError
from repro.papers.base.pretraining import PROCESS, tokeniser_of
from repro.papers.gpt1_2018 import pretraining
from repro.papers.gpt1_2018.finetuning import drawn, score, with_corpus
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register

if TYPE_CHECKING:
    import numpy as np

Ids = list[int]
Texts = tuple[str, str, str]  # text that may lose its end, text after it, and text that is scored


def acceptable(row: Any, other: Any) -> list[Texts]:
    """CoLA: the sentence itself; for two texts, the second after the first."""
    return [("", "", other.text)] if row.pair is None else [("", other.text, f" {row.pair}")]


def sentiment(row: Any, other: Any) -> list[Texts]:
    """SST-2: either word after the text and "very"."""
    return [("", f"{other.text.strip()} very", f" {word}") for word in ("negative", "positive")]


def question(row: Any, other: Any) -> list[Texts]:
    """RACE: each candidate after document and question."""
    return [("\n".join(other.paragraphs), f"\n{other.question}", f" {one}") for one in row.candidates]


def pronoun(row: Any, other: Any) -> list[Texts]:
    """GAP: the rest of the text after each name that replaces the pronoun."""
    before = other.text[:other.pronoun.start]
    return [("", f"{before}{name.text}", _rest(row)) for name in (row.a, row.b)]


def _rest(row: Any) -> str:
    return row.text[row.pronoun.start + len(row.pronoun.text):]


class Heuristic(NamedTuple):
    """How a task is asked: from a row, and the row whose text comes first, to the texts that are read and scored."""

    reads: Callable[[Any, Any], list[Texts]]
    metric: str
    mean: bool = True  # the mean log-probability of a token; otherwise the sum
    called: str = ""  # in Figure 2


HEURISTICS = {
    "cola": Heuristic(acceptable, "matthews", called="CoLA"),
    "sst2": Heuristic(sentiment, "accuracy", mean=False, called="SST-2"),
    "race": Heuristic(question, "accuracy", called="RACE-h"),
    "gap": Heuristic(pronoun, "accuracy", called="GAP"),
    "belonging": Heuristic(acceptable, "accuracy"), "nouns": Heuristic(question, "accuracy")}


class Config(RunConfig):
    """A task, and the model whose checkpoints are asked."""

    task: str
    model: Literal["transformer", "lstm"] = "transformer"
    train_examples: int = Field(2_000, ge=2)  # rows that choose the threshold, for tasks with one
    train_draw: Annotated[Literal["first", "random"], Absent("first")] = "first"  # rows of the file
    examples: int | None = Field(None, ge=2)  # test rows, the first; null: all of the task

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, values):
        """With the corpus of the task."""
        return with_corpus(values, HEURISTICS, "there is no heuristic for task")


def base_of(config):
    """The pre-training run whose checkpoints are asked."""
    return next(one for one in pretraining.EXPERIMENT.plan(config.scale) if one.model == config.model)


def rows_of(config, split: str) -> tuple[list[Any], list[int]]:
    """Rows of "train" or "test" and their labels. Pronouns must mean one of the two names and must not end the text."""
    from repro.data.tasks import task

    if split == "train" and config.train_draw == "random":
        rows = drawn(config.task, config.train_examples)
    else:
        rows = list(task(config.task).examples(split, config.train_examples if split == "train" else config.examples))
    if hasattr(rows[0], "pronoun"):
        rows = [row for row in rows if row.is_a != row.is_b and _rest(row).strip()]
        return rows, [int(row.is_b) for row in rows]
    return rows, [row.answer if hasattr(row, "candidates") else row.label for row in rows]


def asked(heuristic: Heuristic, rows: Sequence[Any], others: Sequence[Any], coder, limit: int
          ) -> list[list[tuple[Ids, Ids]]]:
    """For each row and each of its answers, the ids of the prefix and the ids that are scored, `limit` at most.

    A text that is too long loses the end of its document, then its beginning; scored ids are cut at their end if they
    alone are too long. Texts begin with <|endoftext|>.
    """
    found = []
    for row, other in zip(rows, others, strict=True):
        found.append([])
        for document, before, continuation in heuristic.reads(row, other):
            wanted = coder.encode(continuation).tolist()[:limit - 1]
            room = limit - 1 - len(wanted)
            close = coder.encode(before).tolist()[-room:] if room and before else []
            far = coder.encode(document).tolist()[:room - len(close)] if document else []
            found[-1].append(([coder.bos, *far, *close], wanted))
    return found


def log_probabilities(model, texts: Sequence[Sequence[tuple[Ids, Ids]]], mean: bool) -> list["np.ndarray"]:
    """For each row (answers,): the log-probability of the scored text, as mean over its tokens or as sum."""
    import numpy as np

    from repro.evaluation import continuation_nll

    nats, n = continuation_nll(model, [before for row in texts for before, _ in row],
                               [continuation for row in texts for _, continuation in row], batch_size=32)
    values = -nats / n if mean else -nats
    return np.split(values, np.cumsum([len(row) for row in texts])[:-1])


def threshold(values: Sequence[float], labels: Sequence[int], metric: str) -> float:
    """The threshold from which label 1 is predicted: the one with the best score, the lowest if several are equal."""
    import numpy as np

    values = np.asarray(values)
    cuts = np.unique(values)
    cuts = cuts[np.linspace(0, len(cuts) - 1, min(len(cuts), 200)).astype(int)]  # that many quantiles are enough
    return float(max(cuts, key=lambda cut: score(labels, (values >= cut).astype(int), metric)))


def moment(record, folder, tokens: int):
    """The file of the weights after this many tokens. Raises ReproError if only the last ones were kept."""
    path = folder / pretraining.MOMENTS / f"{tokens:012d}.safetensors"
    if not path.is_file():
        raise ReproError(f"{path} is missing: for {record.id}, only the last weights stay with the record; run `repro "
                         f"run {record.experiment} --scale {record.scale} --force` for those of other moments.")
    return path


def execute(config, context):
    import numpy as np
    import torch

    heuristic, base = HEURISTICS[config.task], base_of(config)
    record, folder = context.need(base)
    coder = tokeniser_of(base)
    rows, labels = rows_of(config, "test")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(config.seed)
    model = pretraining.build(base, coder.vocab_size).to(device).eval()
    learnt = heuristic.reads is acceptable  # a threshold
    shown, known = rows_of(config, "train") if learnt else ([], [])

    def encoded(some) -> tuple[list, list]:
        """With each row's own text in front, and with the next row's."""
        return tuple(asked(heuristic, some, others, coder, base.n_positions) for others in (some, some[1:] + some[:1]))

    def predict(texts, to_learn_from) -> "np.ndarray":
        """(rows,): the answers."""
        values = log_probabilities(model, texts, heuristic.mean)
        if not learnt:
            return np.array([value.argmax() for value in values])
        cut = threshold(np.concatenate(log_probabilities(model, to_learn_from, heuristic.mean)), known,
                        heuristic.metric)
        return (np.concatenate(values) >= cut).astype(int)

    mine, others = zip(encoded(rows), encoded(shown), strict=True)
    moments = [0, *record.notes["checkpoints"]]
    curves, documents = {"score": [], "other_score": []}, {}
    with context.progress(len(moments), f"asking for {config.task}", "checkpoints") as bar:
        for number, tokens in enumerate(moments):
            if tokens:
                pretraining.read(model, moment(record, folder, tokens))
            own = predict(*mine)
            documents[f"checkpoint_{number}"] = {"correct": (own == labels).astype(int).tolist()}
            curves["score"].append([tokens, score(labels, own, heuristic.metric)])
            if tokens in (moments[0], moments[-1]):
                other = predict(*others)
                documents[f"checkpoint_{number}"]["correct_other"] = (other == labels).astype(int).tolist()
                curves["other_score"].append([tokens, score(labels, other, heuristic.metric)])
            bar.advance(1)
    documents["test"] = {"label": [int(label) for label in labels], "prediction": own.tolist()}
    commonest = np.bincount(labels).argmax()  # of the test rows themselves: no baseline without a text can be better
    metrics = {"test_score": curves["score"][-1][1], "untrained_score": curves["score"][0][1],
               "other_score": curves["other_score"][-1][1],
               "majority_score": score(labels, np.full(len(labels), commonest), heuristic.metric)}
    units = dict.fromkeys(metrics, f"{heuristic.metric}, times 100")
    return Outcome(metrics | {"rows": len(rows)}, units | {"rows": "examples"}, config.model, curves, documents)


LENGTHS = {"cola": (3_043, 11), "sst2": (1_744, 30), "race": (1_200, 450), "gap": (1_780, 110)}  # texts, tokens of each


def estimate(config) -> Estimate:
    base = base_of(config)
    trained = pretraining.EXPERIMENT.estimate(base)
    n, length = LENGTHS.get(config.task, (800, 20))
    tokens = (base.checkpoints + 3) * n * length  # each checkpoint, the untrained model, and two controls
    flops = pretraining.training_flops(base) / 3 * tokens
    seconds = flops / pretraining.rate(config.scale, base.model, "no")
    return Estimate(trained.parameters, 0, flops, PROCESS + 8 * trained.parameters, seconds + 10)


def grid(scale: str) -> list[dict]:
    """Both models, each task of Figure 2; CoLA's file is sorted by source, so its rows are drawn at random. At smoke,
    generated tasks."""
    tasks = {"belonging": {}, "nouns": {}} if scale == "smoke" else {
        "cola": {"train_draw": "random"}, "sst2": {}, "race": {"examples": 300}, "gap": {"examples": 1_000}}
    return [{"task": task, "model": model} | few for task, few in tasks.items() for model in ("transformer", "lstm")]


EXPERIMENT = Experiment(
    name="zero-shot-gpt", paper="gpt1_2018", config=Config, grid=grid, execute=execute, estimate=estimate,
    summary="Zero-shot tasks at checkpoints of GPT's pre-training.",
    needs=lambda config: [base_of(config)], reads=lambda config: base_of(config).tokeniser_corpora,
    scales={"smoke": {"train_examples": 400}, "small": {}})
register(EXPERIMENT)
