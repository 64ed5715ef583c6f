"""The study: experiments, their runs and records, and what the papers printed beside them."""

from repro.study.config import SCALES, Estimate, Experiment, Outcome, RunConfig, experiment, experiments, run_id
from repro.study.published import published
from repro.study.registry import register
from repro.study.runner import Context, model_folder, run
from repro.study.store import Record, Store
from repro.study.tables import Artifact, ArtifactContext, Rendered, artifact, artifacts
from repro.study.verdicts import Claim, Verdict, claim, claims, judge_difference, scoreboard, verdict_table

__all__ = ["SCALES", "Artifact", "ArtifactContext", "Claim", "Context", "Estimate", "Experiment", "Outcome", "Record",
           "Rendered", "RunConfig", "Store", "Verdict", "artifact", "artifacts", "claim", "claims", "experiment",
           "experiments", "judge_difference", "model_folder", "published", "register", "run", "run_id", "scoreboard",
           "verdict_table"]
