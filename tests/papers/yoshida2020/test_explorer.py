"""How the runs of the recurrence chapters are told in the explorer."""

import pytest

from repro.pages.charts import charts, measured
from repro.papers.yoshida2020 import explorer
from repro.papers.yoshida2020.perplexity import variations, wikitext103
from repro.study import Store, experiment

TABLE1 = next(chart for chart in charts() if chart.id == "recurrence-wikitext103")


def test_the_committed_records_of_table_1_are_all_there():
    done = [config for config in experiment(TABLE1.experiment).plan("small") if Store.for_scale("small").seeds(config)]
    for one in measured(TABLE1, "small"):
        assert [point["settings"] for point in one["points"]] == [explorer.settings(config) for config in done]
        for config, point in zip(done, one["points"], strict=True):
            records = Store.for_scale("small").seeds(config)
            values = [record.metrics[one["metric"]] for record in records]
            assert min(values) * (1 - 1e-9) <= point["quality"][0] <= max(values) * (1 + 1e-9)
            assert point["costs"][explorer.FLOPS] == pytest.approx(records[0].metrics["flops_per_token"])


def test_a_run_of_the_papers_settings_meets_the_row_that_prints_it():
    printed = {one["match"]: one for one in explorer.printed("yoshida2020_table1_wikitext103", "test_word_perplexity")}
    plan = wikitext103.EVALUATION.plan("paper")
    met = {explorer.match(config): config for config in plan if explorer.match(config) in printed}
    assert len(printed) == 10 and set(met) == set(printed)
    for match, config in met.items():
        assert printed[match]["settings"] == explorer.settings(config)
        assert printed[match]["costs"][explorer.PAIRS] == explorer.costs(config)[explorer.PAIRS]
    first = printed["without recurrence, 0.0000"]
    assert (first["quality"], first["costs"][explorer.FLOPS]) == ([30.47], 1.75e8)
    assert explorer.printed("yoshida2020_table1_wikitext103", "test_bits_per_byte") == []


def test_pairs_of_a_scored_token_are_counted():
    from repro.attention import Causal

    assert explorer.pairs(12, 4) == Causal().count(12) / 8 and explorer.pairs(300, 0) == 150.5


def test_every_variation_has_a_name_of_its_own():
    plan = variations.EVALUATION.plan("smoke")
    assert [explorer.varied(config) for config in plan] == list(variations.variations("smoke"))
    other = plan[0].model_copy(update={"hidden_size": 7})
    assert explorer.varied(other) == "with recurrence"
