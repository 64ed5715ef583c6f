"""One short training loop for every model of the study."""

from repro.training.batches import Batches, LengthBuckets, Sequences, Stages
from repro.training.config import TrainConfig
from repro.training.objective import NextToken, WindowedLM, model_settings
from repro.training.state import TrainResult
from repro.training.trainer import train

__all__ = ["Batches", "LengthBuckets", "NextToken", "Sequences", "Stages", "TrainConfig", "TrainResult", "WindowedLM",
           "model_settings", "train"]
