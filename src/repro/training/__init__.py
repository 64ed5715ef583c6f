"""One short training loop for every model of the study."""

from repro.training.objective import NextToken, WindowedLM
from repro.training.sequences import Sequences
from repro.training.trainer import TrainConfig, TrainResult, train

__all__ = ["NextToken", "Sequences", "TrainConfig", "TrainResult", "WindowedLM", "train"]
