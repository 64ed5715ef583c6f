"""WikiHop and the ablations on it (Beltagy et al. 2020, Tables 7 and 10): what of Longformer answers questions?

All configurations fine-tune on the same questions, in the same order, from the same base model, with the same head and
seeds. `full-attention` is the Longformer read like RoBERTa: with full attention, in pieces of as many tokens as the
base has positions. WikiHop itself is used at `paper` only; at `pretrained` the questions are on names of books. At
`paper` texts are read to their end, by Longformer in pieces of `length` tokens with question and candidates before
each; a large model reads only the first such piece, as in appendix D.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from repro.papers.longformer2020 import conversion
from repro.papers.longformer2020.tasks import continued, frame
from repro.papers.longformer2020.tasks.frame import PRETRAINING, SOURCES, base_of, check_source, longformer_of
from repro.papers.longformer2020.tasks.reader import Words
from repro.papers.longformer2020.tasks.wikihop import Candidates
from repro.study import Absent, Estimate, Experiment, Outcome, RunConfig, register

if TYPE_CHECKING:
    from repro.models.long_reader import TaskReader

PAPER = "longformer2020"


class Way(NamedTuple):
    """The start of a configuration, and how it reads.

    start: "base", "continued" (with more masked-token training) or "positions" (which trained the new ones alone).
    """

    start: str = "continued"
    pieces: bool = False
    projections: bool = True
    global_tokens: bool = True
    epochs: int = 1  # times those of the others
    length: float = 1.0  # of the others'


WAYS = {"longformer": Way(), "short": Way("base", pieces=True), "epochs-15": Way(epochs=3),
        "full-attention": Way(pieces=True), "short-sequence": Way(length=0.5), "no-mlm": Way("base"),
        "no-projections": Way(projections=False), "no-global": Way(projections=False, global_tokens=False),
        "positions-only": Way("positions")}
Configuration = Literal["longformer", "short", "epochs-15", "full-attention", "short-sequence", "no-mlm",
                        "no-projections", "no-global", "positions-only"]


class Config(RunConfig):
    """A configuration of Table 10, how it reads, and its training."""

    configuration: Configuration
    candidate_state: Literal["ent", "word"] = "ent"  # where a logit is read: at [ent], or at a candidate's first token
    length: int = Field(2_048, ge=2)  # tokens of a text that are read, with question and candidates
    window: int = Field(256, ge=2)  # keys on both sides of a token together
    n_train: int | None = Field(None, ge=1)  # training questions; None: all
    epochs: int = Field(1, ge=1)
    batch_size: int = Field(8, ge=1)  # questions
    learning_rate: float = Field(5e-5, gt=0)
    head_learning_rate: float | None = Field(None, gt=0)  # None: learning_rate
    warmup_share: float = Field(0.1, ge=0, lt=1)  # of the steps; then linear to 0
    weight_decay: float = Field(0.01, ge=0)
    optimizer: Literal["adamw", "muon"] = "adamw"
    precision: Literal["no", "bf16"] = "no"
    recompute: bool = False  # of layers, in the backward pass
    best: Literal["loss"] = "loss"  # no questions choose the weights: those of the last step count
    source: Annotated[Literal[*SOURCES] | None, Absent(None)] = None  # at `paper`; None: roberta-base
    reads_on: Annotated[bool, Absent(False)] = False  # whether more pieces of `length` tokens follow until a text ends

    @model_validator(mode="before")
    @classmethod
    def _of_configuration(cls, values: dict) -> dict:
        """Fill in the passes and the length of a configuration if not given."""
        way, sizes = WAYS.get(values.get("configuration"), Way()), SIZES.get(values.get("scale"), SIZES["smoke"])
        epochs, length = sizes
        base = values.get("scale") == "paper" and values.get("source") in (None, SOURCES[0])
        return {"epochs": epochs * way.epochs, "length": int(length * way.length), "reads_on": base} | values

    @model_validator(mode="after")
    def _fits(self):
        if self.window % 2:
            raise ValueError(f"window is {self.window} keys; it must be even, with half on each side")
        check_source(self)
        if self.model == "longformer" and self.length > (most := positions_of(self)):
            raise ValueError(f"length is {self.length}, but the Longformer of this scale has {most} positions; give at "
                             "most that many")
        return self

    @property
    def task(self) -> str:
        """The name in progress bars and checkpoints."""
        return "wikihop"

    @property
    def model(self) -> str:
        """How the reader reads: in pieces, or whole."""
        return "short" if WAYS[self.configuration].pieces else "longformer"

    @property
    def max_positions(self) -> int:
        """The tokens that a Longformer reads at once."""
        return self.length


SIZES = {"smoke": (1, 160), "pretrained": (2, 1_280), "paper": (5, 4_096)}  # passes, tokens read


def start_of(config: Any) -> RunConfig:
    """The run that leaves the model from which fine-tuning starts."""
    start = WAYS[config.configuration].start
    if start == "base":
        return base_of(config)
    if config.scale == "pretrained":
        stage = {"continued": "all"}.get(start, start)
        return next(one for one in continued.EXPERIMENT.plan(config.scale) if one.stage == stage)
    name = "frozen" if start == "positions" else "long" if config.scale == "paper" else "short"
    return next(one for one in conversion.EXPERIMENT.plan(config.scale)
                if one.configuration == name and one.source in (None, base_of(config).source))


class Ablation(Candidates):
    """The task, with the model of a configuration."""

    def model(self, config: Any, context: Any, words: Words) -> "TaskReader":
        return new_model(config, context, self, words)


def task_of(config: Any) -> Ablation:
    """The task, with the tokens that attend globally."""
    way = WAYS[config.configuration]
    return Ablation("wikihop", {}, state=config.candidate_state, global_tokens=way.global_tokens,
                    cuts=not config.reads_on)


def new_model(config: Any, context: Any, task: Candidates, words: Words) -> "TaskReader":
    """The model of a configuration. The seed draws the head, and the embeddings of the added tokens."""
    import torch

    from repro.attention import Full
    from repro.models import longformer_from
    from repro.models.long_reader import Reader, TaskReader, load_encoder

    way, base = WAYS[config.configuration], base_of(config)
    folder = context.need(start_of(config))[1] / "model"
    if way.start == "base":
        found = load_encoder(folder)
        window = Full() if way.pieces else config.window
        encoder = longformer_from(found, base.n_positions if way.pieces else positions_of(config), window)
    else:
        encoder = longformer_of(folder, config.window)
    torch.manual_seed(config.seed)
    encoder.resize_token_embeddings(words.coder.vocab_size + len(words.added), mean_resizing=False)
    for layer in encoder.longformer.encoder.layer:
        attention = layer.attention.self
        if way.pieces:
            attention.pattern = Full()
        if not way.projections:
            share_projections(attention)
    piece = base.n_positions if way.pieces else config.length if config.reads_on else None
    return TaskReader(Reader(encoder, words.sep, piece, global_tokens=not way.pieces),
                      task.head(config, encoder.config.hidden_size))


def share_projections(attention) -> None:
    """Let global tokens use the local projections, as one and the same weights."""
    for name in ("query", "key", "value"):
        setattr(attention, f"{name}_global", getattr(attention, name))


def positions_of(config: Any) -> int:
    """The positions of a Longformer of this scale, for a model that starts from the base."""
    if config.scale == "pretrained":
        return continued.EXPERIMENT.plan(config.scale)[0].max_positions
    return conversion.EXPERIMENT.plan(config.scale)[0].max_positions


def execute(config, context) -> Outcome:
    return task_of(config).execute(config, context)


def estimate(config) -> Estimate:
    """The costs of a run."""
    return frame.estimate(config, task_of(config), positions_of(config))


SCALES = {
    # The story that decides is beyond the window of the candidates. So few questions teach little: they try the code.
    "smoke": {"corpus": "synthetic-candidates", "candidate_state": "word", "window": 16, "batch_size": 16,
              "n_train": 320, "learning_rate": 2e-3, "optimizer": "muon"},
    "pretrained": {"corpus": "book-names", "precision": "bf16"},
    "paper": {"corpus": "wikihop", "window": 512, "batch_size": 32, "learning_rate": 3e-5, "precision": "bf16",
              "warmup_share": 0.03, "recompute": True},
}
EXPERIMENT = Experiment(
    name="wikihop-ablation", paper=PAPER, config=Config, scales=SCALES, execute=execute, estimate=estimate,
    grid=lambda scale: [{"configuration": name} for name in WAYS],
    needs=lambda config: list(dict.fromkeys([start_of(config), base_of(config)])),
    reads=lambda config: PRETRAINING.reads(base_of(config)),
    summary="WikiHop: Longformer, RoBERTa, and Longformer without one of its parts.")
register(EXPERIMENT)
