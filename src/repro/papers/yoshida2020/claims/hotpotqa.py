"""The claims on questions about ten paragraphs."""

from collections.abc import Callable
from typing import Any

from repro.papers.yoshida2020.hotpotqa.experiment import BASELINE, EXPERIMENT, PAPER, RECURRENT
from repro.papers.yoshida2020.hotpotqa.tables import SCORES, SPLIT, TABLE, TABLE_3, is_main, lost_apart
from repro.study import ADDED, Assay, Claim, Measured, Record
from repro.study.published import printed_rows


def gain(score: str, sign: int = 1) -> Callable[[list[Record]], Measured]:
    """A measure of the recurrent reader's score minus the baseline's, by question. The control is the better of the
    reader with its module masked and with another question's states. sign: -1 where lower is better."""
    def measure(records: list[Record]) -> Measured:
        import numpy as np

        ours, base = ([record.documents[SPLIT] for record in records if record.model == name]
                      for name in (RECURRENT, BASELINE))
        plain = np.array([one[score] for one in base])
        controls = {way: np.array([one[f"{way}_{score}"] for one in ours]) - plain for way in ("masked", "other")}
        best = max(controls, key=lambda way: sign * controls[way].mean())
        return Measured(np.array([one[score] for one in ours]) - plain, controls[best],
                        "control: " + {"masked": "module masked", "other": "another question's states"}[best])
    return measure


def room(score: str, sign: int = 1) -> Callable[[list[Record]], float | None]:
    """A measure of what the single-window reader loses when the two supporting paragraphs are apart; None if no
    question has enough paragraphs. sign: -1 where lower is better."""
    def lost(records: list[Record]) -> float | None:
        import numpy as np

        found = [sign * lost_apart(record, score).mean() for record in records if "assay" in record.documents]
        return float(np.mean(found)) if found else None
    return lost


def printed(column: str) -> Callable[[], float]:
    """The score of the paper's recurrent reader minus the score of its reader of disjoint windows."""
    def effect() -> float:
        disjoint, recurrent = (float(row[column]) for row in printed_rows(TABLE))
        return recurrent - disjoint
    return effect


SHARED = {
    "paper": PAPER, "experiment": EXPERIMENT.name, "about": (TABLE_3.id,), "where": is_main, "unit": "question",
    "control": "the better of the reader with its module masked and with another question's states",
    "criterion_before": "until the result of one seed was known, the assay read only the two paragraphs, in one full "
                        "window or in two half windows"}
APART = "the loss of a reader of single windows when the two supporting paragraphs are in different windows"


def _baseline(config: Any) -> bool:
    return config.model == BASELINE and is_main(config)


CLAIMS = (*(Claim(
    id=f"yoshida2020-table3-{name.replace(' ', '-')}".lower(), **SHARED, source="Table 3", measure=gain(score),
    direction="higher", unit_shown="points", family="yoshida2020-questions", paper_effect=printed(f"{score}_percent"),
    assay=Assay(APART, _baseline, room(score)),
    sentence=f"RoBERTa with recurrence answers questions about long texts with a higher {name} than without it.",
    short=f"Recurrence raises the {name} of answers on long texts."
) for score, name in SCORES.items()), Claim(
    # With so few questions F1 and exact match detect only effects of several points, more than the paper's.
    id="yoshida2020-questions-nats", **SHARED, source=ADDED, measure=gain("answer_nats", -1), direction="lower",
    unit_shown="nats per question", assay=Assay(APART, _baseline, room("answer_nats", -1)),
    why_no_paper_effect="the paper prints only F1 and exact match",
    sentence="RoBERTa with recurrence assigns right answers about long texts a lower loss than without it.",
    short="Recurrence lowers the loss of right answers on long texts."))
