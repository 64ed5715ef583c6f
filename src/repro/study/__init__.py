"""The study's engine: experiments, their runs and records, artifacts, claims, and the values that the papers print.

>>> ADDED
'not in the paper'
>>> SCALES
('smoke', 'small', 'pretrained', 'medium', 'paper')
"""

from repro.study.artifacts import ADDED, Artifact, ArtifactContext, Rendered, artifact, artifacts, beside
from repro.study.claims import Assay, Claim, Measured, claim, claims, tally
from repro.study.experiment import Context, Estimate, Experiment, Outcome, Rereading, experiment, experiments
from repro.study.published import published
from repro.study.record import Record
from repro.study.registry import register
from repro.study.rule import Verdict, judge
from repro.study.runner import kept_model, model_folder, run
from repro.study.runs import Run, command, run_id
from repro.study.settings import SCALES, Absent, RunConfig
from repro.study.store import Store

__all__ = ["ADDED", "SCALES", "Absent", "Artifact", "ArtifactContext", "Assay", "Claim", "Context", "Estimate",
           "Experiment", "Measured", "Outcome", "Record", "Rendered", "Rereading", "Run", "RunConfig", "Store",
           "Verdict", "artifact", "artifacts", "beside", "claim", "claims", "command", "experiment", "experiments",
           "judge", "kept_model", "model_folder", "published", "register", "run", "run_id", "tally"]
