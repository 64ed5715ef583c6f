"""The claims on variations of the recurrence module."""

from math import log

from repro.papers.yoshida2020.perplexity.tables import log_ratio, module_effect
from repro.papers.yoshida2020.perplexity.variations import EVALUATION
from repro.study import Assay, Claim, Measured


def passed_or_all(records) -> Measured:
    """Pooling only the passed positions in testing, against pooling all of them, on validation text."""
    passed, every = ([record for record in records if record.config["test_positions"] == name]
                     for name in ("passed", "all"))
    return Measured(log_ratio(passed, every, "validation"))


def module_counts(records) -> float:
    """The largest effect of masking the module out; no choice of pooling can matter more."""
    return max(log(1 / (1 + module_effect([record], "validation"))) for record in records)


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
)
