"""The claims on variations of the recurrence module."""

from math import log

from repro.papers.yoshida2020.claims.effects import without_module
from repro.papers.yoshida2020.perplexity.tables import log_ratio, module_effect
from repro.papers.yoshida2020.perplexity.variations import EVALUATION
from repro.study import ADDED, Assay, Claim, Measured


def passed_or_all(records) -> Measured:
    """Pooling only the passed positions in testing, against pooling all of them, on validation text."""
    passed, every = ([record for record in records if record.config["test_positions"] == name]
                     for name in ("passed", "all"))
    return Measured(log_ratio(passed, every, "validation"))


def helps(records) -> Measured:
    """A model against itself without its module's content (`without_module`), on validation text."""
    return Measured(-without_module(records, records, "validation"))


def module_counts(records) -> float:
    """The largest effect of masking the module out; no choice of pooling can matter more."""
    return max(log(1 / (1 + module_effect([record], "validation"))) for record in records)


def row_helps(id: str, place: str, short: str, where) -> Claim:
    """The claim that the module of one row of the table lowers perplexity; `where`: the runs of that row."""
    return Claim(id=f"yoshida2020-variations-{id}", paper="yoshida2020", source=ADDED, experiment="variations-pg19",
                 about=("yoshida2020-variations",), unit="book", direction="lower", relative=True, measure=helps,
                 unit_shown="in perplexity",
                 where=where, family="yoshida2020-variations-module", short=short,
                 sentence=f"Inserted at {place}, the module lowers the perplexity of books in disjoint windows (64 "
                          "tokens at small), compared with the same model with the module masked out.",
                 why_no_paper_effect="no numbers are printed", why_no_assay="a difference of any size counts",
                 why_no_control="the effect already compares the same weights with and without what they carry",
                 criterion_before="none: declared after the results were known, for the only two rows with an "
                                  "interval below zero")


CLAIMS = (
    Claim(id="yoshida2020-variations-passed", paper="yoshida2020", source="Footnote 3", experiment=EVALUATION.name,
          about=("yoshida2020-variations",), unit="book", direction="lower", relative=True, same_weights=True,
          unit_shown="in perplexity",
          sentence="A model trained on disjoint windows has a lower perplexity on overlapping ones if it pools only "
                   "the positions that the next window does not read again.",
          short="With overlap, pool only positions that are not read again.",
          where=lambda config: config.overlap > 0 and config.train_overlap == 0, measure=passed_or_all,
          why_no_paper_effect="no numbers are printed",
          why_no_control="the same weights; only the pooling differs",
          assay=Assay("the loss from masking the module out", lambda config: config.overlap > 0, module_counts)),
    row_helps("every-layer", "every layer", "At every layer: better than with the module masked out.",
              lambda config: config.insert == "every"),
    row_helps("first-layer", "the first layer", "At the first layer: better than with it masked out.",
              lambda config: config.insert_layer == 0 and config.insert == "one"),
)
