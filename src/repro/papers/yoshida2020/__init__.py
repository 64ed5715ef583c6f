"""Yoshida, Ettinger and Gimpel (2020), *Adding Recurrence to Pretrained Transformers*: the functions that its chapters
use."""

from importlib import import_module

from repro.pages import metric
from repro.papers.yoshida2020.deviations import deviations
from repro.papers.yoshida2020.hotpotqa.reading import answered, asked, by_window, padded, states_of_others
from repro.papers.yoshida2020.normalisation.experiment import change_without
from repro.papers.yoshida2020.perplexity.evaluation import evaluate
from repro.papers.yoshida2020.perplexity.pg19_tables import larger_window
from repro.papers.yoshida2020.perplexity.tables import layer_weights, learning_curves, learning_rates, row_kind
from repro.papers.yoshida2020.propagation.experiment import propagation_records, trained
from repro.papers.yoshida2020.propagation.tables import (
    distance_names,
    mean_over_books,
    own_and_other,
    reach_by_reader,
    side_by_side,
)
from repro.study import artifact
from repro.study.paper import Finding, Paper
from repro.study.registry import register

__all__ = ["answered", "asked", "by_window", "change_without", "deviations", "distance_names", "evaluate",
           "hotpotqa_numbers", "larger_window", "layer_weights", "learning_curves", "learning_rates", "mean_over_books",
           "own_and_other", "padded", "propagation_records", "reach_by_reader", "row_kind", "side_by_side",
           "states_of_others", "trained"]


def hotpotqa_numbers() -> dict[str, float]:
    """On HotpotQA at `small`: `changed` of `asked` answers change if the vector is removed, at the first seed; `f1` of
    the baseline, in %."""
    table = artifact("yoshida2020-hotpotqa-windows").render("small", also=()).table
    changed, asked = map(int, table["with h_prev"].iloc[0].split(" of "))
    f1 = metric("recurrence-hotpotqa", "answer_f1", model="baseline", epochs=1).value
    return {"changed": changed, "asked": asked, "f1": f1}


register(Paper(
    id="yoshida2020", name="Recurrence", cite="yoshida2020recurrence",
    idea="pass a summary of each window to the next one, inside a pretrained model",
    part="Recurrence", chapters=(3, 9),
    weights=lambda: 124,  # millions, in the GPT-2 to which it adds recurrence
    says="Passing a summary of each window to the next lowers a pretrained model's perplexity, even where windows "
         "overlap.",
    values=hotpotqa_numbers,
    finding=Finding(
        "In windows of 64 tokens, one of our memory modules lowers the perplexity of Gemma 3 270M on "
        "books by {0.size:.1%} and brings its continuations {1.size:.1%} closer to the topic of their context (paper: "
        "{1.paper_size:.1%}). In windows of 300, recurrence does not measurably change the perplexity of our small "
        "GPT-2 ({2.effect:+.1%}; paper: {2.paper:+.1%}).",
        {"yoshida2020-gemma-gain-normalized": "reproduced, smaller", "yoshida2020-topic-jsd-lower": "reproduced",
         "yoshida2020-table1-gain-disjoint": "not reproduced"}),
    headline=Finding(
        "**A memory passed from one window of text to the next helps where windows are short.** In windows of 64 "
        "tokens, it lowers the perplexity of Gemma 3 270M on books by {0.size:.1%}; with the memory of another book "
        "the gain is gone. It is the third module that we tried in Gemma. Overlapping the windows by a sixth lowers "
        "perplexity by {0.room:.1%}, for a fifth more FLOPs. In our small GPT-2, the module of Yoshida et al. (2020) "
        "lowers perplexity by {1.size:.1%} on articles in windows of 64 tokens. In windows of 300, as in the paper, we "
        "find no effect ({2.effect:+.1%}; paper: {2.paper:+.1%}).",
        {"yoshida2020-gemma-gain-normalized": "reproduced, smaller",
         "yoshida2020-matched-wikitext-103-second-block": "reproduced, smaller",
         "yoshida2020-table1-gain-disjoint": "not reproduced", "yoshida2020-gemma-own-state": "reproduced"})))

# Lists and the scoreboard show experiments, tables and figures in the order of import, after the imports above.
for module in ("perplexity.context_use", "memories.experiment", "perplexity.variations", "perplexity.wikitext103",
               "perplexity.gemma", "perplexity.goals", "hotpotqa.experiment", "hotpotqa.tables", "perplexity.matched",
               "peak_memory", "normalisation.typed", "perplexity.window_choice", "words.experiment"):
    import_module(f"{__name__}.{module}")
