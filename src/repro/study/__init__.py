"""The study: experiments, their runs and records, and what the papers printed beside them."""

from repro.study.config import SCALES, Estimate, Experiment, Outcome, RunConfig, experiment, experiments, run_id
from repro.study.published import published
from repro.study.registry import register
from repro.study.runner import Context, run
from repro.study.store import Record, Store

__all__ = ["SCALES", "Context", "Estimate", "Experiment", "Outcome", "Record", "RunConfig", "Store", "experiment",
           "experiments", "published", "register", "run", "run_id"]
