"""One short training loop for every model of the study."""

from repro.training.batches import Batches, LengthBuckets, Sequences, Stages
from repro.training.config import TrainConfig
from repro.training.objective import Labels, NextToken, WindowedLM, model_settings
from repro.training.state import TrainResult
from repro.training.trainer import train

__all__ = ["Batches", "Labels", "LengthBuckets", "NextToken", "Sequences", "Stages", "TrainConfig", "TrainResult",
           "WindowedLM", "model_settings", "train"]
