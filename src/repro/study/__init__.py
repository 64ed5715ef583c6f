"""The study's engine: experiments, their runs and records, artifacts and claims, and what the papers printed."""

from repro.study.artifacts import Artifact, ArtifactContext, Rendered, artifact, artifacts, beside
from repro.study.claims import Assay, Claim, Measured, claim, claims, scoreboard, verdict_table
from repro.study.experiment import Context, Estimate, Experiment, Outcome, experiment, experiments
from repro.study.ids import run_id
from repro.study.lesson import InShort, Metric, Sentence, badge, in_short, metric, sentence
from repro.study.plan import command
from repro.study.published import published
from repro.study.record import Record
from repro.study.registry import register
from repro.study.rule import Verdict, judge
from repro.study.runner import model_folder, run
from repro.study.settings import SCALES, Absent, RunConfig
from repro.study.store import Store

__all__ = ["SCALES", "Absent", "Artifact", "ArtifactContext", "Assay", "Claim", "Context", "Estimate", "Experiment",
           "InShort", "Measured", "Metric", "Outcome", "Record", "Rendered", "RunConfig", "Sentence", "Store",
           "Verdict", "artifact", "artifacts", "badge", "beside", "claim", "claims", "command", "experiment",
           "experiments", "in_short", "judge", "metric", "model_folder", "published", "register", "run", "run_id",
           "scoreboard", "sentence", "verdict_table"]
