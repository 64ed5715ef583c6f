"""Liu et al. (2018), *Generating Wikipedia by Summarizing Long Sequences*: what its chapter shows."""

from repro.papers.liu2018.cost import times_as_long
from repro.papers.liu2018.tables import cut_leads
from repro.papers.liu2018.task import read
from repro.study.paper import Paper
from repro.study.registry import register

__all__ = ["cut_leads", "read", "times_as_long"]

register(Paper(
    id="liu2018", name="T-DMCA", cite="liu2018wikipedia",
    idea="write Wikipedia articles from many sources with local and memory-compressed attention",
    part="Decoder-only models", chapters=(10, 10),
    findings=("liu2018-figure3-longer-base",)))
