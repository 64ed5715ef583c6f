"""Loss by position, by hand."""

import numpy as np

from repro.papers.yoshida2020.perplexity.context_use import baseline, by_stretch
from repro.study import experiment


def test_positions_are_averaged_over_windows_and_doubling_stretches():
    nll = np.array([1, 2, 3, 4, 5, 6, 3, 2, 1, 0, 1, 4, 99.0])  # two windows of 6 and a piece of a third
    mean = [2, 2, 2, 2, 3, 5]
    assert by_stretch(nll, 6) == [[1.0, mean[0]], [2.0, mean[1]], [3.5, (mean[2] + mean[3]) / 2],
                                   [5.5, (mean[4] + mean[5]) / 2]]


def test_it_looks_at_the_baseline_of_table_1():
    config, = experiment("context-use").plan("small")
    run = baseline(config)
    assert (run.model, run.corpus, run.window, run.overlap) == ("baseline", "wikitext-103", 300, 0)
    assert run in [experiment("recurrence-wikitext103").needs(one)[0]
                   for one in experiment("recurrence-wikitext103").plan("small")]
