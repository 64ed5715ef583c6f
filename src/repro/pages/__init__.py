"""The study as shown in chapters and on front pages: sentences with numbers from records, verdicts, the scoreboard."""

from repro.pages.board import Scoreboard
from repro.pages.chapter_text import InShort, Metric, Sentence, effect_on, in_short, metric, sentence, verdict_of
from repro.pages.charts import Chart, explored
from repro.pages.costs import costs
from repro.pages.verdicts import VerdictTable, badge, verdict_table

__all__ = ["Chart", "InShort", "Metric", "Scoreboard", "Sentence", "VerdictTable", "badge", "costs", "effect_on",
           "explored", "in_short", "metric", "sentence", "verdict_of", "verdict_table"]
