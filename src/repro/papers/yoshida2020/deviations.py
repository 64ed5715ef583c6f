"""Where our fine-tuning is not the paper's, or the paper leaves open what to do: one table, read off the settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.yoshida2020.finetuning import FINETUNING, SECOND, targets
from repro.study import RunConfig

if TYPE_CHECKING:
    import pandas

OPEN = "no value known to us"


@dataclass(frozen=True)
class Deviation:
    """One choice: what it is about, what the paper says of it, and ours, told of a fine-tuning's config."""

    about: str
    paper: str
    ours: Callable[[RunConfig], str]


def _base(config) -> str:
    base = PRETRAINING.plan(config.scale)[0]
    return base.source if base.source != "scratch" else f"our own, {base.n_layer} layers of width {base.n_embd}"


def _dropout(config) -> str:
    return "none" if PRETRAINING.plan(config.scale)[0].source == "scratch" else "the checkpoint's, 0.1"


def _windows(config) -> str:
    second = SECOND.get(config.scale)
    return f"{config.window}" + (f", and beside it {second['window']}" if second else "")


def _length(config) -> str:
    if config.steps is None:
        return f"{config.epochs:g} epochs"
    return f"{config.steps} steps of {config.batch_size * targets(config):,} targets"


def _overlapped(config) -> str:
    if config.steps is None:
        return "sequences of whole windows, cut anew for every overlap"
    return "the same targets in the same order, and as many steps, at every overlap"


def _kept(config) -> str:
    return "the best of all validations" + (", to the end" if config.patience is None else ", ended early")


def _rate(config) -> str:
    if config.learning_rate is not None:
        return f"{config.learning_rate:g}"
    return f"the best of {', '.join(f'{rate:g}' for rate in config.learning_rates)} on validation text"


def _module_rate(config) -> str:
    if not config.modules:
        return "the same as the base's"
    times = dict.fromkeys(f"{times:g}" for times, _ in config.modules)
    return f"{' or '.join(times)} times the base's, whichever is best on validation text"


def _start(config) -> str:
    if any(zero for _, zero in config.modules):
        return "He's, or its last layer at zero, whichever is best on validation text"
    return "He's, its last layer at zero" if config.zero_init else "He's, with equal weights of layers"


DEVIATIONS = (
    Deviation("base model", "GPT-2 small, 12 layers of width 768", _base),
    Deviation("text", "WikiText-103, PG-19", lambda config: config.corpus),
    Deviation("window T, tokens", "300", _windows),
    Deviation("windows that gradients flow through", "20", lambda config: str(config.windows_per_sequence)),
    Deviation("place of the module", "the second layer; Equation 1 counts from 1",
              lambda config: f"index {config.insert_layer} counted from 0, the block number {config.insert_layer + 1}"),
    Deviation("length of training", "2 epochs", _length),
    Deviation("training with overlap", OPEN, _overlapped),
    Deviation("weights that are kept", OPEN, _kept),
    Deviation("optimiser", OPEN, lambda config: "AdamW without weight decay"),
    Deviation("learning rate", "chosen on validation text", _rate),
    Deviation("learning rate of the module", OPEN, _module_rate),
    Deviation("warm-up, steps", "100", lambda config: str(config.warmup_steps)),
    Deviation("rate after the warm-up", OPEN,
              lambda config: {"none": "constant", "linear": "falls to zero"}[config.decay]),
    Deviation("clipping of the gradient's norm", OPEN, lambda config: "at 1"),
    Deviation("dropout", OPEN, _dropout),
    Deviation("numbers", OPEN, lambda config: "bf16 in products" if config.precision == "bf16" else "single precision"),
    Deviation("hidden units of the module", OPEN, lambda config: "GELU, as in GPT-2"),
    Deviation("its start", OPEN, _start),
    Deviation("layers that z weighs", "all",
              lambda config: "the output of every block, the last one after the final norm"),
    Deviation("normalisation of z", OPEN, lambda config: "none; h_prev passes its layer's own norm, as a token does"),
    Deviation("positions that z averages", "all of a window",
              lambda config: "all, those shared with the window before too"),
)


def deviations(*scales: str) -> "pandas.DataFrame":
    """A row for each choice: what the paper says, and what is done at each of `scales`."""
    import pandas

    plans = {scale: next(run for run in FINETUNING.plan(scale) if run.model == "recurrent") for scale in scales}
    return pandas.DataFrame([{"choice": one.about, "the paper says": one.paper} | {
        scale: one.ours(config) for scale, config in plans.items()} for one in DEVIATIONS])
