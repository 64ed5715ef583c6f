"""One short training loop for every model of the study."""

from repro.training.batches import Batches, LengthBuckets, Sequences, Stages
from repro.training.config import TrainConfig
from repro.training.masking import Masked, masked
from repro.training.objective import (
    Answers,
    HeadLoss,
    Labels,
    MaskedLM,
    NextToken,
    Summaries,
    Task,
    WindowedLM,
    model_settings,
)
from repro.training.state import TrainResult
from repro.training.trainer import train

__all__ = ["Answers", "Batches", "HeadLoss", "Labels", "LengthBuckets", "Masked", "MaskedLM", "NextToken", "Sequences",
           "Stages", "Summaries", "Task", "TrainConfig", "TrainResult", "WindowedLM", "masked", "model_settings",
           "train"]
