"""What the explorer is given: every point of a grid that has a record, once, and no other."""

import math
from dataclasses import replace

import pytest

from repro.pages import Chart, explored
from repro.pages.charts import PEAK, charts, measured
from repro.study import SCALES, Outcome, Store, experiment, register, registry, run

WORDS = [10, 20, 30]


@pytest.fixture
def charted(toy):
    """The toy experiment with losses per document: the same for every document, `value` per word in all."""
    def execute(config, context):
        value = 30 - config.overlap / 10 - (config.model == "recurrent") + config.seed
        metrics = {"test_word_perplexity": value, "test_bits_per_byte": value / 10, "flops_per_token": 100.0}
        documents = {"test": {"nll": [n * math.log(value) for n in WORDS], "n_words": WORDS}}
        if config.overlap:
            metrics["validation_word_perplexity"] = 2 * value
        return Outcome(metrics, dict.fromkeys(metrics, "per word"), config.model, documents=documents)

    changed = replace(toy.experiment, execute=execute, needs=lambda config: [])
    registry._declared[type(changed)]["toy-recurrence"] = changed
    register(Chart(id="toy", paper="toy2020", title="Toys", experiment="toy-recurrence", line=lambda c: f"a {c.model}",
                   settings=lambda config: {"overlap, tokens": config.overlap},
                   costs=lambda config: {"state carried on, numbers": config.overlap},
                   match=lambda config: config.model,
                   printed=lambda metric: [{"match": "baseline", "quality": [9.0]}] * (metric.startswith("test_w"))))
    return changed


def test_every_point_with_a_record_is_there_once_for_each_quality(charted):
    (chart,) = charts()
    assert measured(chart, "smoke") == [] == measured(chart, "paper")
    plan = charted.plan("smoke")
    for config in plan[1:]:
        run(config, progress=False)
    words, held_out, coded = measured(chart, "smoke")
    assert [one["id"] for one in (words, held_out, coded)] == [
        f"toy/smoke/toy-text/{name}" for name in ("test_word_perplexity", "validation_word_perplexity",
                                                  "test_bits_per_byte")]
    assert (words["data"], words["part_of"], words["scale"]) == ("toy-text", "toy: 1 of 9 texts", "smoke")
    assert [(one["line"], one["settings"]["overlap, tokens"]) for one in words["points"]] == [
        ("a baseline", 5), ("a recurrent", 0), ("a recurrent", 5)]
    assert [one["quality"] for one in words["points"]] == [pytest.approx([value] * 3) for value in (29.5, 29, 28.5)]
    assert [one["quality"] for one in held_out["points"]] == [[59.0], [57.0]]  # no losses per document: no interval
    assert words["printed"] and not coded["printed"]
    point = words["points"][0]
    assert point["costs"] | {PEAK: 0} == {"FLOPs per scored token": 100, "state carried on, numbers": 5, PEAK: 0}
    assert point["records"] == [Store.for_scale("smoke").get(plan[1]).id] and point["match"] == "baseline"
    assert point["command"].startswith("repro run toy-recurrence --scale smoke") and point["files"] == []


def test_generated_text_is_called_so_and_has_nothing_of_a_paper_beside_it(charted, monkeypatch):
    run(charted.plan("smoke")[1], progress=False)
    assert measured(charts()[0], "smoke")[0]["text"] == "Toys: toy, a part, smoke"
    monkeypatch.setattr("repro.pages.charts.GENERATED", "toy-")
    words = measured(charts()[0], "smoke")[0]
    assert (words["text"], words["printed"], words["generated"]) == ("Generated text, smoke", [], True)
    register(replace(charts()[0], id="again", title="Toys, once more"), replace(charts()[0], id="more", title="Others"))
    every = [one for one in explored(("smoke",)) if one["metric"] == words["metric"]]
    told = [(one["id"].partition("/")[0], one["text"]) for one in every]
    assert told == [("toy", "Generated text, smoke"), ("again", "Generated text, once more, smoke")]


def test_seeds_are_one_point(charted):
    for config in charted.plan("small", seeds=(0, 2))[:4:3]:
        run(config, progress=False)
    run(charted.plan("small", seeds=(2,))[0], progress=False)
    words = explored(("small",))[0]
    first = words["points"][0]
    assert first["quality"][0] == pytest.approx(math.exp((math.log(30) + math.log(32)) / 2))
    assert len(first["records"]) == 2 == len(first["files"])
    assert all(file.startswith("../results/small/toy-recurrence/") for file in first["files"])


def test_the_largest_scale_comes_first_and_words_before_bytes(charted):
    assert explored(tuple(reversed(SCALES))) == []
    for scale in ("smoke", "small"):
        run(charted.plan(scale)[1], progress=False)
    order = [(one["scale"], one["metric"]) for one in explored(tuple(reversed(SCALES)))]
    metrics = ["test_word_perplexity", "validation_word_perplexity", "test_bits_per_byte"]
    assert order == [(scale, metric) for scale in ("small", "smoke") for metric in metrics]


def test_every_planned_run_of_a_chart_can_be_named():
    """In the study itself: a value of a setting that its chart has no words for would break the page."""
    for chart in charts():
        for scale in experiment(chart.experiment).scales:
            for config in experiment(chart.experiment).plan(scale):
                assert chart.line(config) and isinstance(chart.match(config), str)
                assert all(dict(chart.settings(config)))
                assert all(isinstance(number, (int, float)) for number in dict(chart.costs(config)).values())
