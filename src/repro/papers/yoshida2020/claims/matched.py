"""The claims on recurrence in short windows, at which overlap gains the paper's 10%."""

from repro.papers.yoshida2020.claims.effects import (
    MASKED,
    both,
    first_gain,
    gain,
    printed,
    printed_overlap,
    room_of_overlap,
)
from repro.papers.yoshida2020.perplexity.finetuning import SECOND
from repro.papers.yoshida2020.perplexity.matched import ARTIFACT, EVALUATION
from repro.papers.yoshida2020.perplexity.tables import FIRST, row_kind
from repro.study import Assay, Claim

NAMES = {"wikitext-103": "WikiText-103", "pg19-subset": "books of PG-19"}


def of_text(corpus: str, *points: tuple[str, bool]):
    """A test of whether a config is one of these points on a text: (kind of model, whether its windows overlap)."""
    return lambda config: config.corpus == corpus and (row_kind(config), config.overlap > 0) in points


def claim(corpus: str, unit: str, table: str, place: str) -> Claim:
    """The claim on recurrent against baseline on disjoint windows; the assay is the baseline's gain from overlap."""
    first = place == "first"
    return Claim(
        id=f"yoshida2020-matched-{corpus}-{place}-block", paper="yoshida2020", source="Tables 1 and 2",
        experiment=EVALUATION.name, about=(ARTIFACT.id,), unit=unit, direction="lower", relative=True,
        unit_shown="in perplexity",
        family="yoshida2020-matched", control=MASKED, seeds=3 if first else 5,
        sentence=f"On {NAMES[corpus]}, in windows of {SECOND['small']['window']} tokens without overlap, the recurrent "
                 f"model (module at the {place} block) has a lower test perplexity than the baseline.",
        short=f"In short windows recurrence helps ({'books' if unit == 'book' else 'articles'}, {place} block).",
        where=of_text(corpus, (FIRST if first else "recurrent", False), ("baseline", False)),
        measure=first_gain if first else gain, paper_effect=printed(table, *both(0)),
        assay=Assay("the baseline's gain from an overlap of a sixth of the window",
                    of_text(corpus, ("baseline", False), ("baseline", True)), room_of_overlap,
                    printed_overlap(table)))


CLAIMS = tuple(
    claim(corpus, unit, table, place) for place in ("second", "first") for corpus, unit, table in (
        ("wikitext-103", "document", "yoshida2020_table1_wikitext103"),
        ("pg19-subset", "book", "yoshida2020_table2_pg19")))
