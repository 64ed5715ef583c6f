"""The study's engine: experiments, their runs and records, artifacts and claims, and what the papers printed.

>>> ADDED
'not in the paper'
>>> SCALES
('smoke', 'small', 'pretrained', 'medium', 'paper')
"""

from repro.study.artifacts import ADDED, Artifact, ArtifactContext, Rendered, artifact, artifacts, beside
from repro.study.board import Scoreboard
from repro.study.chapter_text import InShort, Metric, Sentence, badge, in_short, metric, sentence
from repro.study.charts import Chart, explored
from repro.study.claims import Assay, Claim, Measured, claim, claims, tally, verdict_table
from repro.study.costs import costs
from repro.study.experiment import Context, Estimate, Experiment, Outcome, experiment, experiments
from repro.study.ids import run_id
from repro.study.plan import command
from repro.study.published import published
from repro.study.record import Record
from repro.study.registry import register
from repro.study.rule import Verdict, judge
from repro.study.runner import kept_model, model_folder, run
from repro.study.settings import SCALES, Absent, RunConfig
from repro.study.store import Store

__all__ = ["ADDED", "SCALES", "Absent", "Artifact", "ArtifactContext", "Assay", "Chart", "Claim", "Context", "Estimate",
           "Experiment", "InShort", "Measured", "Metric", "Outcome", "Record", "Rendered", "RunConfig", "Scoreboard",
           "Sentence", "Store", "Verdict", "artifact", "artifacts", "badge", "beside", "claim", "claims", "command",
           "costs", "experiment", "experiments", "explored", "in_short", "judge", "kept_model", "metric",
           "model_folder", "published", "register", "run", "run_id", "sentence", "tally", "verdict_table"]
