"""The claims on what crosses a window boundary: topics, names and pronouns. Effects are by book."""

from collections.abc import Callable, Sequence
from functools import partial
from math import log
from typing import TYPE_CHECKING

from repro.papers.yoshida2020.propagation.experiment import EXPERIMENT, PAPER
from repro.papers.yoshida2020.propagation.tables import TABLE, is_closer, jsd
from repro.study import Assay, Claim, Measured, Record
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np


def by_book(records: list[Record], value: Callable[[dict], Sequence[float]]) -> "np.ndarray":
    """Mean over contexts of what `value(documents)` gives for each, (seeds, books); see `linearised`."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    found = []
    for record in records:
        books = record.documents["contexts"]["book"]
        n = np.bincount(books)
        found.append(linearised(np.bincount(books, value(record.documents))[n > 0], n[n > 0]))
    return np.array(found)


def divergence(records: list[Record], writer: str = "recurrent") -> Measured:
    """The log of the writer's mean divergence over the baseline's, which is the same in any base. The control uses
    contexts of other books: a continuation can be closer to them just by being blander."""
    import numpy as np

    def ratio(against: str) -> np.ndarray:
        ours, theirs = (by_book(records, jsd(name, against)) for name in (writer, "baseline"))
        first, second = (values.mean(1, keepdims=True) for values in (ours, theirs))
        return np.log(first / second) + ours / first - theirs / second
    return Measured(ratio("own"), ratio("other"))


def closer(records: list[Record], writer: str = "recurrent") -> Measured:
    """The share of contexts in which the writer's continuation is the closer one; the control uses other books'
    contexts."""
    return Measured(by_book(records, is_closer("own", writer)), by_book(records, is_closer("other", writer)))


def fitting(what: str, records: list[Record], writer: str = "recurrent") -> Measured:
    """The number of the writer's names or gendered pronouns that fit minus the number that do not, per context, minus
    the same difference for the baseline. The control asks whether they fit contexts of other books."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    def right(record: Record, name: str, against: str) -> np.ndarray:
        kept, n = np.transpose(record.documents[name][f"{what} {against}"])
        contexts = np.bincount(record.documents["contexts"]["book"])
        return linearised(2 * kept - n, contexts[contexts > 0])

    def more(against: str) -> np.ndarray:
        return np.array([right(record, writer, against) - right(record, "baseline", against) for record in records])
    return Measured(more("own"), more("other"))


pronouns, names = partial(fitting, "pronouns"), partial(fitting, "names")


def true_text(measure: Callable[[list[Record], str], Measured], null: float = 0.0) -> Assay:
    """The book's own continuation, measured like the recurrent model's: no continuation can be much closer."""
    return Assay("how much closer the book's own continuation is than the baseline's", lambda config: True,
                 lambda records: abs(float(measure(records, "book").effects.mean()) - null))


def printed_ratio() -> float:
    """The log of the printed divergences, recurrent over baseline."""
    ours, theirs = _printed("mean Jensen-Shannon divergence between context and continuation topics")
    return log(ours / theirs)


def printed_share() -> float:
    """The least share of contexts in which the paper finds the recurrent continuation closer."""
    percent, = _printed("share of contexts where the recurrent continuation has the lower JSD")
    return percent / 100


def _printed(quantity: str) -> list[float]:
    return [float(row["value"]) for row in printed_rows(TABLE) if row["quantity"] == quantity]


CAST = {"source": "Tables 4 and 5", "about": ("yoshida2020-consistency",), "direction": "higher",
        "unit_shown": "per context", "why_no_paper_effect": "the paper shows examples only"}
TOPICS = {"paper": PAPER, "source": "Section 5.3.1", "experiment": EXPERIMENT.name, "unit": "book",
          "about": ("yoshida2020-topic-jsd", "yoshida2020-topic-controls"), "control": "contexts of other books"}
CLAIMS = (
    Claim(id="yoshida2020-topic-jsd-lower", **TOPICS, measure=divergence, direction="lower", relative=True,
          unit_shown="in Jensen-Shannon divergence", assay=true_text(divergence),
          sentence="The recurrent model's continuations are closer to the topics of their contexts than the "
                   "baseline's.",
          short="Recurrence keeps continuations closer to their topics.",
          paper_effect=printed_ratio),
    Claim(id="yoshida2020-topic-jsd-share", **TOPICS, measure=closer, direction="higher", null=0.5,
          assay=true_text(closer, 0.5),
          sentence="In most contexts (the paper: at least 60%) the recurrent model's continuation is closer than the "
                   "baseline's.",
          short="In most contexts recurrence stays closer to the topic.",
          paper_effect=printed_share, unit_shown="of contexts"),
    Claim(id="yoshida2020-pronouns", **TOPICS | CAST, measure=pronouns, assay=true_text(pronouns),
          sentence="The recurrent model's pronouns have the gender of the context more often than the baseline's.",
          short="Recurrence keeps the gender of pronouns more often."),
    Claim(id="yoshida2020-names", **TOPICS | CAST, measure=names, assay=true_text(names),
          sentence="The recurrent model's continuations repeat names of their context more often than the baseline's.",
          short="Recurrence repeats names of the context more often."),
)
