"""What the explorer is given: every point of a grid that has a record, once, and no other."""

import math
from dataclasses import replace

import pytest

from repro.evaluation import flops_per_token
from repro.papers.yoshida2020.explorer import architecture, measured
from repro.study import Outcome, Store, experiment, run

WORDS = [10, 20, 30]


@pytest.fixture
def windowed(toy):
    """The toy experiment with losses per document: the same for every document, `value` per word in all."""
    def execute(config, context):
        value = 30 - config.overlap / 10 - (config.model == "recurrent") - (config.limit == 4)
        metrics = {"test_word_perplexity": value}
        if config.model == "recurrent":
            metrics["test_word_perplexity_masked"] = 40.0
        documents = {"test": {"nll": [n * math.log(value) for n in WORDS], "n_words": WORDS}}
        if config.overlap:
            metrics |= {"validation_word_perplexity": 2 * value, "validation_word_perplexity_masked": 4 * value}
            documents["validation"] = {"nll": [n * math.log(2 * value) for n in WORDS], "n_words": WORDS}
        return Outcome(metrics, dict.fromkeys(metrics, "per word"), config.model, documents=documents)

    grid = [{"model": "baseline"}, {"model": "baseline", "overlap": 5}, {"model": "recurrent"},
            {"model": "recurrent", "limit": 4}]
    changed = replace(toy.experiment, paper="yoshida2020", execute=execute, grid=lambda scale: grid,
                      needs=lambda config: [])
    from repro.study import registry
    registry._declared[type(changed)] = {"toy-recurrence": changed, "toy-base": toy.base,
                                         "pretrain-gpt2-mini": toy.base}
    return changed


def test_every_point_with_a_record_is_there_once(windowed):
    assert measured("smoke") == []
    for config in windowed.plan("smoke")[1:]:
        run(config, progress=False)
    found, held_out = measured("smoke")  # the base model has no window: no entry
    assert (found["id"], found["experiment"], found["scale"], found["split"]) == (
        "toy-recurrence/smoke/test", "toy-recurrence", "smoke", "test")
    assert (held_out["id"], held_out["split"], len(held_out["points"])) == (
        "toy-recurrence/smoke/validation", "validation", 1)  # only one run tells it
    assert held_out["points"][0]["perplexity"][0] == pytest.approx(59)
    assert held_out["points"][0]["module"] == pytest.approx(-0.5)
    assert (found["data"], found["part_of"]) == ("toy-text", "toy: 1 of 9 texts")
    assert [(p["model"], p["window"], p["overlap"]) for p in found["points"]] == [
        ("baseline", 300, 5), ("recurrent", 300, 0), ("recurrent limit=4", 300, 0)]
    assert [p["perplexity"][0] for p in found["points"]] == pytest.approx([29.5, 29, 28])
    assert not [p for p in found["points"] if "difference" in p]  # no baseline where the recurrent models are
    run(windowed.plan("smoke")[0], progress=False)
    found, _ = measured("smoke")
    base, _, plain, other = found["points"]
    assert "difference" not in base and "module" not in base
    assert plain["difference"] == pytest.approx([29 / 30 - 1] * 3)
    assert other["difference"] == pytest.approx([28 / 30 - 1] * 3)
    assert [plain["module"], other["module"]] == pytest.approx([29 / 40 - 1, 28 / 40 - 1])
    assert base["records"] == [Store.of("smoke").get(windowed.plan("smoke")[0]).id]


def test_the_committed_records_are_all_there_and_cost_what_they_say():
    small = measured("small")
    for one in small:
        records = {record.id: record for record in Store.of("small").find(one["experiment"], "small")}
        model = architecture("small")
        for point in one["points"]:
            (record,) = [records[id] for id in point["records"]]
            assert point["perplexity"][0] == pytest.approx(record.metrics[f"{one['split']}_word_perplexity"], rel=1e-9)
            assert record.metrics["flops_per_token"] == flops_per_token(
                model["n_layer"], model["d_model"], point["window"], point["overlap"])
    done = [config for config in experiment("recurrence-wikitext103").plan("small") if Store.of("small").get(config)]
    (table1,) = [one["points"] for one in small if one["id"] == "recurrence-wikitext103/small/test"]
    assert [(p["model"].split()[0], p["window"], p["overlap"]) for p in table1] == [
        (config.model, config.window, config.overlap) for config in done]


def test_the_papers_architecture_is_gpt2_small():
    assert architecture("paper") == {"scale": "paper", "name": "openai-community/gpt2 (paper)", "n_layer": 12,
                                     "d_model": 768, "n_positions": 1024}
