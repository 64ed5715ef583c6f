"""Liu et al. (2018), *Generating Wikipedia by Summarizing Long Sequences*: what its chapter shows."""

from repro.papers.liu2018.cost import times_as_long
from repro.papers.liu2018.tables import cut_leads
from repro.papers.liu2018.task import read
from repro.study.paper import Finding, Paper
from repro.study.registry import register

__all__ = ["cut_leads", "read", "times_as_long"]

register(Paper(
    id="liu2018", name="T-DMCA", cite="liu2018wikipedia",
    idea="write Wikipedia articles from many sources with local and memory-compressed attention",
    part="Decoder-only models", chapters=(10, 10),
    says="A decoder alone can write Wikipedia leads from long inputs, and compressed attention lets it read longer "
         "ones.",
    finding=Finding(
        "A pretrained decoder that writes the abstract of a scientific paper saves {0.size:.2f} nats per token by "
        "reading more of the paper (Liu et al., for Wikipedia: {0.paper_size:.2f}). Compressed attention reads longer "
        "inputs and gains {1.size:.2f}, but with the text of another paper it still gains {1.control_size:.2f}.",
        {"liu2018-figure3-longer-base": "reproduced", "liu2018-table4-compressed": "not testable here"})))
