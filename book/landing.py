"""What the landing page says of the papers: which are here, in part or planned, and how their claims were judged."""

from pathlib import Path

from repro.study import SCALES, Record, Store, artifacts, claims, experiments, tally
from repro.study.once import unchanging

ROOT = Path(__file__).parents[1]
PAPERS_HERE, CHAPTERS_MISSING = "<!-- papers -->", "<!-- chapters that are missing -->"
PAPERS = {  # in the order of the chapters: name, citation, idea, first and last chapter
    "yoshida2020": ("Recurrence", "yoshida2020recurrence",
                    "hand a summary of the last window to the next one, inside a pretrained model", 3, 9),
    "liu2018": ("T-DMCA", "liu2018wikipedia",
                "attend in blocks and to compressed memory, and write Wikipedia articles from many sources", 10, 10),
    "gpt1_2018": ("GPT", "radford2018gpt1", "pretrain a decoder on books, then fine-tune it for each task", 11, 11),
    "gpt2_2019": ("GPT-2", "radford2019gpt2", "pretrain a larger one on the web, and do not fine-tune it at all",
                  12, 12),
    "sparse2019": ("Sparse Transformer", "child2019sparse", "factorise attention into two sparse patterns", 13, 15),
    "longformer2020": ("Longformer", "beltagy2020longformer",
                       "slide a window over the text and let a few tokens see everything", 16, 21),
}
LAST = 23  # chapter


def filled(text: str) -> str:
    """The landing page with what the records say in the places that wait for it."""
    with unchanging():
        for place, told in ((PAPERS_HERE, papers()), (CHAPTERS_MISSING, missing())):
            before, after = text.split(place)
            text = before + told + after
    return text


def papers() -> str:
    """A Markdown table with a row for each paper."""
    rows = ["| paper | here | claims |", "| --- | --- | --- |"]
    for paper, (name, key, idea, first, last) in PAPERS.items():
        planned = set(range(first, last + 1))
        here = planned & chapters()
        chapter = f"chapter{'s' * (len(planned) > 1)} {spans(planned)}"
        told = f"**planned**: {chapter}"
        if here:
            part = f"chapters {spans(here)} of {spans(planned)}"
            state, which = ("done", chapter) if here == planned else ("in part", part)
            shown = sum(one.paper == paper for one in artifacts())
            made = runs(paper)
            hours = sum(record.cost["wall_seconds"] for record in made) / 3600
            told = (f"**{state}**: {which}; {shown} tables and figures from {len(made)} recorded runs, which took "
                    f"{hours:.0f} hours")
        rows.append(f"| **{name}**, {{cite:t}}`{key}`: {idea} | {told} | {verdicts(paper)} |")
    return "\n".join(rows)


def missing() -> str:
    """The chapters that are still to come, such as "9 to 15 and 18 to 21"."""
    return spans(set(range(1, LAST + 1)) - chapters())


def chapters() -> set[int]:
    return {int(path.name[:2]) for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}


def runs(paper: str) -> list[Record]:
    """The records of a paper's experiments, those of `smoke` apart."""
    return [record for one in experiments() if one.paper == paper
            for scale in SCALES if scale != "smoke" and scale in one.scales
            for record in Store.of(scale).find(one.name, scale)]


def verdicts(paper: str) -> str:
    """How many claims have which verdict, each at the largest scale at which it was judged; never at `smoke`."""
    found = tally([claim for claim in claims() if claim.paper == paper])
    return ", ".join(f"{n} {verdict}" for verdict, n in found.items()) or "–"


def spans(numbers: set[int]) -> str:
    """Numbers in words, such as "9 to 15 and 18"."""
    starts = sorted(n for n in numbers if n - 1 not in numbers)
    ends = sorted(n for n in numbers if n + 1 not in numbers)
    told = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return " and ".join([", ".join(told[:-1])] * (len(told) > 1) + told[-1:])
