"""Yoshida, Ettinger and Gimpel (2020), *Adding Recurrence to Pretrained Transformers*: the names that its chapters
use."""

from repro.papers.yoshida2020.deviations import deviations
from repro.papers.yoshida2020.evaluation import evaluate
from repro.papers.yoshida2020.normalisation import change_without
from repro.papers.yoshida2020.propagation import propagation_records, trained
from repro.papers.yoshida2020.propagation_tables import (
    distance_names,
    mean_over_books,
    own_and_other,
    reach_by_reader,
    side_by_side,
)
from repro.papers.yoshida2020.reading import answered, asked, by_window, padded, states_of_others
from repro.papers.yoshida2020.tables import curves, layer_weights, learning_curves, learning_rates, row_kind
from repro.study.paper import Paper
from repro.study.registry import register

__all__ = ["answered", "asked", "by_window", "change_without", "curves", "deviations", "distance_names", "evaluate",
           "layer_weights", "learning_curves", "learning_rates", "mean_over_books", "own_and_other", "padded",
           "propagation_records", "reach_by_reader", "row_kind", "side_by_side", "states_of_others", "trained"]

register(Paper(
    id="yoshida2020", name="Recurrence", cite="yoshida2020recurrence",
    idea="pass a summary of each window to the next one, inside a pretrained model",
    part="Recurrence", chapters=(3, 9),
    weights=lambda: 124,  # of the GPT-2 to which it adds recurrence
    findings=("yoshida2020-table1-gain-disjoint", "yoshida2020-matched-wikitext-103-first-block")))
