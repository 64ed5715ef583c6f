"""Differences between our fine-tuning and the paper's, and choices that the paper leaves open: one table, built from
settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.yoshida2020.perplexity import pg19
from repro.papers.yoshida2020.perplexity.finetuning import FINETUNING, SECOND, targets
from repro.study import RunConfig

if TYPE_CHECKING:
    import pandas

OPEN = "not stated"


@dataclass(frozen=True)
class Deviation:
    """One choice: its subject, the paper's value, and ours, read from a fine-tuning's config."""

    about: str
    paper: str
    ours: Callable[[RunConfig], str]


def _base(config) -> str:
    base = PRETRAINING.plan(config.scale)[0]
    return base.source if base.source != "scratch" else f"our own, {base.n_layer} layers of width {base.n_embd}"


def _text(config) -> str:
    from repro.data import corpus

    part = corpus(config.corpus).part_of
    return config.corpus + (f" (part of {part})" if part else "")


def _books(config) -> str:
    books = pg19.SCALES[config.scale]
    n, drawn = books.get("train_documents"), books.get("train_draw") == "random"
    return f"{n:,}, {'drawn at random by the seed' if drawn else 'the first by file name'}" if n else "all"


def _heads(config) -> str:
    heads = [(split, pg19.SCALES[config.scale].get(f"{split}_head")) for split in ("validation", "test")]
    return ", ".join(f"{split} {f'{n:,}' if n else 'whole'}" for split, n in heads)


def _through(config) -> str:
    n = pg19.SCALES[config.scale].get("sequence")
    return f"{config.windows_per_sequence}" + (f"; on books, enough for {n:,} targets" if n else "")


def _dropout(config) -> str:
    return "none" if PRETRAINING.plan(config.scale)[0].source == "scratch" else "the checkpoint's, 0.1"


def _windows(config) -> str:
    second = SECOND.get(config.scale)
    return f"{config.window}" + (f", and also {second['window']}" if second else "")


def _length(config) -> str:
    if config.steps is None:
        return f"{config.epochs:g} epochs"
    length = f"{config.steps} steps of {config.batch_size * targets(config):,} targets"
    if second := SECOND.get(config.scale):
        n = second["batch_size"] * config.windows_per_sequence * second["window"]
        length += f"; in windows of {second['window']} {second['steps']} steps of {n:,}"
    return length


def _overlapped(config) -> str:
    if config.steps is None:
        return "sequences of whole windows, cut separately for every overlap"
    return "the same targets, order and number of steps at every overlap"


def _kept(config) -> str:
    return "the best of all validations" + (", no early stopping" if config.patience is None else ", early stopping")


def _rate(config) -> str:
    if config.learning_rate is not None:
        return f"{config.learning_rate:g}"
    return f"the best of {', '.join(f'{rate:g}' for rate in config.learning_rates)} on validation text"


def _module_rate(config) -> str:
    if not config.modules:
        return "the base model's"
    times = dict.fromkeys(f"{times:g}" for times, _ in config.modules)
    return f"{' or '.join(times)} times the base model's, chosen on validation text"


def _tried(config) -> str:
    if config.learning_rate is not None:
        return "none"
    rates, modules = len(config.learning_rates), len(config.modules or "1")
    return f"{rates} for a baseline, {rates * modules} for a recurrent model"


def _start(config) -> str:
    if any(zero for _, zero in config.modules):
        return "He's, or its last layer at zero, chosen on validation text"
    return "He's, its last layer at zero" if config.zero_init else "He's, with equal layer weights"


DEVIATIONS = (
    Deviation("base model", "GPT-2 small, 12 layers of width 768", _base),
    Deviation("articles", "WikiText-103", _text),
    Deviation("training books", "1,250 of PG-19's, the first by file name", _books),
    Deviation("tokens scored per book, from its start", "validation 15,000, test whole", _heads),
    Deviation("window T, tokens", "300", _windows),
    Deviation("windows that gradients flow through", "20", _through),
    Deviation("sequences per step", OPEN, lambda config: str(config.batch_size)),
    Deviation("place of the module", "the second layer; Equation 1 counts from 1",
              lambda config: f"index {config.insert_layer} counted from 0, block number {config.insert_layer + 1}"),
    Deviation("length of training", "2 epochs", _length),
    Deviation("training with overlap", OPEN, _overlapped),
    Deviation("weights that are kept", "early stopping by the loss on validation text", _kept),
    Deviation("tokens between validations", "2,000,000", lambda config: f"{config.validate_every:,}"),
    Deviation("optimizer", "Adam", lambda config: "AdamW without weight decay"),
    Deviation("learning rate", "chosen on validation text", _rate),
    Deviation("learning rate of the module", OPEN, _module_rate),
    Deviation("short trainings to choose these", OPEN, _tried),
    Deviation("warm-up, steps", "100", lambda config: str(config.warmup_steps)),
    Deviation("rate after the warm-up", OPEN,
              lambda config: {"none": "constant", "linear": "falls to zero"}[config.decay]),
    Deviation("clipping of the gradient's norm", OPEN, lambda config: "at 1"),
    Deviation("dropout", OPEN, _dropout),
    Deviation("precision", OPEN, lambda config: "bf16 products" if config.precision == "bf16" else "single precision"),
    Deviation("activation of the module", OPEN, lambda config: "GELU, as in GPT-2"),
    Deviation("initialization of the module", OPEN, _start),
    Deviation("layers averaged in z", "all",
              lambda config: "the output of every block, the last one after the final norm"),
    Deviation("normalization of z", OPEN, lambda config: "none; h_prev passes its layer's own norm, like a token"),
    Deviation("positions averaged in z", "all of a window",
              lambda config: "all, including those shared with the previous window"),
)


def deviations(*scales: str) -> "pandas.DataFrame":
    """A row for each choice: the paper's, and ours at each of `scales`."""
    import pandas

    plans = {scale: next(run for run in FINETUNING.plan(scale) if run.model == "recurrent") for scale in scales}
    return pandas.DataFrame([{"choice": one.about, "the paper says": one.paper} | {
        scale: one.ours(config) for scale, config in plans.items()} for one in DEVIATIONS])
