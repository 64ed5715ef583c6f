"""Longformer's tasks (Beltagy et al. 2020, section 6 and Table 7): a short model, Longformer, and two controls.

All start from the same pretrained encoder, RoBERTa or at `pretrained` MiniLM, and have the same head, training
examples, order, steps and seeds. "short" is the paper's RoBERTa: it reads a context in pieces of as many tokens as it
has positions, and the states of all pieces are joined. "longformer" reads it whole, with global tokens that the task
chooses. "longformer-cut" is the same model on the first `cut` tokens of the context. "longformer-short" is the same
model on the tokens that "short" reads; it is for tasks in which "short" reads the first piece alone. At `paper` these
three start from the Longformer that more masked-token training made of the encoder (`roberta-to-longformer`), and
`source` may be roberta-large.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from repro.papers.longformer2020.tasks import frame
from repro.papers.longformer2020.tasks.classification import HYPERPARTISAN, IMDB
from repro.papers.longformer2020.tasks.coreference import COREFERENCE
from repro.papers.longformer2020.tasks.frame import PRETRAINING, SOURCES, base_of, needs
from repro.papers.longformer2020.tasks.hotpotqa import HOTPOTQA
from repro.papers.longformer2020.tasks.reader import AS_SHORT, MODELS
from repro.papers.longformer2020.tasks.triviaqa import TRIVIAQA
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register

PAPER = "longformer2020"
TASKS = {one.name: one for one in (TRIVIAQA, HOTPOTQA, COREFERENCE, IMDB, HYPERPARTISAN)}


class Config(RunConfig):
    """A task, a model, how it reads, and its training."""

    task: Literal["triviaqa", "hotpotqa", "coreference", "imdb", "hyperpartisan"]
    model: Literal[*MODELS]
    max_positions: int = Field(4096, ge=2)  # tokens of a text that are read, with the prefix and the separator
    window: int = Field(256, ge=2)  # keys on both sides of a token together
    cut: int = Field(128, ge=1)  # tokens of the context that "longformer-cut" reads
    n_train: int | None = Field(None, ge=1)  # training examples; None: all
    held_out: int = Field(1, ge=1)  # training examples that choose the weights, for a corpus without validation
    epochs: int = Field(3, ge=1)
    batch_size: int = Field(8, ge=1)  # examples
    learning_rate: float = Field(1e-4, gt=0)
    head_learning_rate: float | None = Field(None, gt=0)  # None: learning_rate
    # The next four are for coreference only: other tasks' runs do not depend on them.
    max_words: Annotated[int, Field(ge=1), Absent(10)] = 10  # of a mention
    kept: Annotated[float, Field(gt=0), Absent(0.4)] = 0.4  # candidate mentions for each word
    head_hidden: Annotated[int, Field(ge=1), Absent(150)] = 150  # of the networks for mentions and pairs of them
    head_dropout: Annotated[float, Field(ge=0, lt=1), Absent(0.3)] = 0.3
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps; then linear to 0
    weight_decay: float = Field(0.01, ge=0)
    optimizer: Literal["adamw", "muon"] = "adamw"
    precision: Literal["no", "bf16"] = "no"  # of training and scoring
    recompute: bool = False  # of layers, in the backward pass
    best: str = "loss"  # the metric of the validation examples that chooses the epoch
    source: Annotated[Literal[*SOURCES] | None, Absent(None)] = None  # at `paper`; None: roberta-base

    @model_validator(mode="after")
    def _fits(self):
        frame.check_source(self)
        if self.window % 2:
            raise ValueError(f"window is {self.window} keys; it must be even, with half on each side")
        if self.model == AS_SHORT and not TASKS[self.task].first_piece:
            raise ValueError(f"model is {self.model}, but on {self.task} the short model reads every piece of a text; "
                             "use longformer")
        if self.max_positions < (known := base_of(self).n_positions):
            raise ValueError(f"max_positions is {self.max_positions}, but the base already has {known}; give at least "
                             "that many")
        if self.model != "short" and self.scale == "paper" and self.max_positions > (most := frame.positions_of(self)):
            raise ValueError(f"max_positions is {self.max_positions}, but the Longformer of this scale has {most}; "
                             "give at most that many")
        return self


def execute(config, context) -> Outcome:
    return TASKS[config.task].execute(config, context)


def estimate(config) -> Estimate:
    """The costs of a run."""
    positions = base_of(config).n_positions if config.model == "short" else config.max_positions
    return frame.estimate(config, TASKS[config.task], positions, config.held_out)


def grid(scale: str) -> list[dict]:
    """The models on every task of this scale, with the task's settings."""
    return [{"task": task.name, "model": model, **task.scales[scale]} for task in TASKS.values()
            if scale in task.scales for model in MODELS if task.first_piece or model != AS_SHORT]


SCALES = tuple(scale for scale in frame.RATE if any(scale in task.scales for task in TASKS.values()))
EXPERIMENT = Experiment(
    name="longformer-tasks", paper=PAPER, config=Config, scales=dict.fromkeys(SCALES, {}), grid=grid, execute=execute,
    estimate=estimate, needs=needs,
    reads=lambda config: PRETRAINING.reads(base_of(config)), selects=("task", "model"),
    summary="Longformer's tasks: the short encoder in pieces, Longformer, and cut texts.")
register(EXPERIMENT)
