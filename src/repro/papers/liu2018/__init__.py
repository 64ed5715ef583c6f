"""Liu et al. (2018), *Generating Wikipedia by Summarizing Long Sequences*: what its chapter shows."""

from repro.papers.liu2018.cost import times_as_long
from repro.papers.liu2018.tables import cut_leads
from repro.papers.liu2018.task import read

__all__ = ["cut_leads", "read", "times_as_long"]
