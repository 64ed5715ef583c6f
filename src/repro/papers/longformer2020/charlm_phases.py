"""Five phases against one (Beltagy et al. 2020, section 4.2): how much do growing windows and sequences help?

The paper trains in five phases because a model first needs many steps to learn from nearby text; it reports no
alternative. We add three that read as many characters: a longer first phase; the same five learning rates without
growth; and the windows and sequences of the last phase from the start. The runs of `small` were declared before any of
them was made, with three seeds.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repro.papers.longformer2020.charlm import (
    CHAPTER,
    OTHER_TEXT,
    PAPER,
    SIZES,
    Config,
    decoder_config,
    estimate,
    execute,
    growing,
    phase_length,
    training_tokens,
)
from repro.papers.longformer2020.charlm_tables import METRIC, compared, seeds_of, told_mean
from repro.study import ADDED, Artifact, ArtifactContext, Experiment, register

if TYPE_CHECKING:
    import pandas

FIVE, ONE, RATES, WIDEST = "five phases", "one phase", "five phases without growth", "the last phase's from the start"
GROWN = {
    "smoke": {**growing(4, 1), "length": 64, "longest": 720, "steps": (100, 40, 15, 5, 2),
              "batch_sizes": (4, 4, 2, 2, 2), "learning_rate": 1e-2, "eval_length": 1_008, "eval_step": 252},
    # Steps that read the same number of characters in sequences of 128 and 1,440; rate, width and optimizer of Table 4.
    "small": {**growing(4, 2), "n_embd": 128, "length": 128, "longest": 1_440, "steps": (1_980, 495, 270, 135, 40),
              "batch_sizes": (8, 8, 4, 4, 4), "learning_rate": 4e-3, "optimizer": "muon", "precision": "bf16",
              "attention": "products", "eval_length": 2_016, "eval_step": 1_008, "scored": 150_000},
}


def rows(scale: str) -> list[dict]:
    """The four ways to train; each phase reads the same number of characters, to within one step."""
    grown = GROWN[scale]
    lengths = [min(grown["length"] * 2**phase, grown["longest"]) for phase in range(len(grown["steps"]))]
    batches = grown["batch_sizes"]
    read = [steps * batch * length for steps, batch, length in zip(grown["steps"], batches, lengths, strict=True)]

    def still(phase: int) -> dict:
        """The windows, sequences and batches of one phase in all phases."""
        each = batches[phase] * lengths[phase]
        return {"windows": tuple(window * 2**phase for window in grown["windows"]), "length": lengths[phase],
                "steps": tuple(-(-characters // each) for characters in read), "doubling": False,
                "batch_sizes": (batches[phase],) * len(read)}

    first = still(0)
    return [{}, first | {"steps": (sum(first["steps"]),), "batch_sizes": batches[:1]}, first, still(len(read) - 1)]


PHASES = Experiment(
    name="charlm-phases", paper=PAPER, summary="Five phases of training against other ways to read as many characters.",
    config=Config, scales={scale: SIZES[scale] | grown for scale, grown in GROWN.items()}, grid=rows, execute=execute,
    estimate=estimate, rereading=OTHER_TEXT)
register(PHASES)


def way(config: Any) -> str:
    """Which of the four ways a run of `charlm-phases` takes.

    config: a run's config, or what a record holds of it.
    """
    values = config if isinstance(config, Mapping) else config.model_dump()
    if values.get("doubling", True):
        return FIVE
    return ONE if len(values["steps"]) == 1 else WIDEST if values["length"] == values["longest"] else RATES


def ways(context: ArtifactContext) -> "pandas.DataFrame":
    """How each way trains, its bits per character on validation text, and the difference of five phases to it."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        plan = context.plan(scale, experiment=PHASES.name)
        five = context.records_of(plan[0])
        for config in plan:
            found, last = five if config is plan[0] else context.records_of(config), len(config.steps) - 1
            rows.append([way(config), scale, _ends(_widths(config)), _ends([phase_length(config, 0),
                         phase_length(config, last)]), f"{sum(config.steps):,}", f"{sum(training_tokens(config)):,}",
                         told_mean(found, METRIC), seeds_of(found), "–" if found is five else compared(five, found)])
    return pandas.DataFrame(rows, columns=["way", "scale", "widest window", "sequences", "steps", "characters", "dev",
                                           "seeds", "five phases minus this"])


def _widths(config) -> list[int]:
    """Keys of the top layer in the first phase and in the last."""
    return [decoder_config(config, 2, phase).patterns[-1][-1].window for phase in (0, -1)]


def _ends(numbers: Sequence[int]) -> str:
    first, last = (f"{number:,}" for number in numbers)
    return first if first == last else f"{first} to {last}"


def updates(scale: str) -> dict[str, int]:
    """How many updates each way takes for the same characters. If these differ, growth is not the only difference.

    >>> updates("small")["five phases"]
    2920
    """
    return {way(config): sum(config.steps) for config in PHASES.plan(scale)}


register(
    Artifact(id="longformer2020-phases", paper=PAPER, chapter=CHAPTER, experiment=PHASES.name,
             title="Five phases against other ways to read as many characters", source=ADDED, build=ways))
