"""What claims of GPT measure, what tables show, and the plan at the paper's scale."""

from types import SimpleNamespace

import numpy as np
import pytest

from repro.errors import ReproError
from repro.papers.gpt1_2018 import claims, finetuning, pretraining, tables
from repro.study import artifact, artifacts, claim, experiment
from repro.study import claims as all_claims
from repro.study.published import printed_rows

MINE = [one for one in artifacts() if one.paper == "gpt1_2018"]


def test_there_is_every_table_and_figure_and_it_renders_without_records(tmp_path):
    assert {one.id.removeprefix("gpt1_2018-") for one in MINE} == {
        "figure1", "table1", "table2", "table3", "table4", "table5", "table5-figure", "table5-means", "figure2-layers",
        "figure2-zero-shot", "examples", "pretraining", "tuning-rates", "hyperparameters"}
    for one in MINE:
        for scale in one.scales:
            assert one.render(scale, (), tmp_path)._repr_html_()
    for one in all_claims():
        if one.paper == "gpt1_2018":
            assert {one.verdict(scale, tmp_path).verdict for scale in one.scales} == {"not run"}


def test_tables_have_the_papers_numbers_and_say_what_is_missing(tmp_path):
    shown = artifact("gpt1_2018-table5").render("small", (), tmp_path).table.set_index(["source", "method"])
    full = "Transformer with auxiliary LM (full)"
    assert shown.loc[("the paper", full), "CoLA"] == "45.4"
    assert shown.loc[("this study, small", full), "CoLA"] == "not run"
    assert shown.loc[("this study, small", full), "QQP"] == "–"  # it is not here
    means = shown["average"].groupby("source").agg(list)
    assert means["the paper"] == ["74.7", "59.9", "75.0", "69.1"] and set(means["this study, small"]) == {"not run"}
    data = artifact("gpt1_2018-table1").render("small", (), tmp_path).table.set_index("data set")["here"]
    assert "missing" in data["Story Cloze"] and set(data.index) == set(tables.WHERE)
    paper = artifact("gpt1_2018-table2").render("paper", (), tmp_path).table.set_index(["source", "method"])
    assert set(paper.loc[("this study, paper", "GPT"), ["MNLI-m", "SNLI", "SICK"]]) == {"not run"}
    assert paper.loc[("the paper", "CAFE (5 models)"), "SNLI"] == "89.3"
    assert paper.loc[("the paper", "CAFE"), "SNLI"] == "88.5"
    assert "SICK" in shown.columns and shown.loc[("this study, small", full), "SICK"] == "not run"
    assert shown.loc[("the paper", full), "MNLI"] == "81.8" and shown.loc[("the paper", full), "SICK"] == "–"
    settings = artifact("gpt1_2018-hyperparameters").render("paper", (), tmp_path).table
    ours = {(row["stage"], row["setting"]): row["full"] for _, row in settings.iterrows()}
    printed = {(row["stage"], row["setting"]): row["paper"] for _, row in settings.iterrows()}
    assert printed["pre-training", "corpus"] == "BooksCorpus"
    counted = "pre-training", "weights, counted"
    assert printed.pop(counted) == "116,534,784, as released" and ours.pop(counted) == "116,534,784"
    assert {told for (stage, _), told in ours.items() if stage == "pre-training"} == {"as released", "not run"}
    assert ours["pre-training", "token perplexity on the corpus"] == "not run"
    wanted = {("model", "layers"): "12", ("model", "hidden size"): "768", ("model", "attention heads"): "12",
              ("fine-tuning", "learning rate"): "6.25e-05", ("fine-tuning", "batch size"): "32",
              ("fine-tuning", "auxiliary LM weight lambda"): "0.5"}
    assert {key: ours[key] for key in wanted} == wanted
    small = artifact("gpt1_2018-hyperparameters").render("small", (), tmp_path).table.set_index(["stage", "setting"])
    assert small.loc[("pre-training", "warmup"), "small"] == "100" and "M tokens" in small.loc[
        ("pre-training", "epochs"), "small"]
    assert small.loc[("ablation", "LSTM baseline"), "small"] == "1 layer, 952 units"
    assert small.loc[("data", "RTE training examples"), "small"] == "not run"


def test_parts_are_the_whole_recipe_less_a_variant_at_the_seeds_of_both(tmp_path, monkeypatch):
    drawn = artifact("gpt1_2018-table5-figure").render("small", (), tmp_path).content.alt
    assert "pre-training: CoLA +26.5 paper; SST-2 +7.3 paper" in drawn and "MNLI, here SICK +6.1 paper" in drawn
    assert "QQP" not in drawn and "transformer, not LSTM: CoLA +15.1 paper" in drawn
    scores = {"full": {0: 60.0, 1: 62.0, 2: 64.0}, "lstm": {2: 61.0, 0: 59.0}, "no-auxiliary": {}}
    monkeypatch.setattr(tables, "whole", lambda context, scale, task, variant: [
        type("Record", (), {"seed": seed, "metrics": {"test_score": told}}) for seed, told in scores[variant].items()])
    assert tables.gaps(None, "small", "rte", "lstm") == {0: 1.0, 2: 3.0}
    assert tables.gaps(None, "small", "rte", "no-auxiliary") == {}


def test_the_average_of_table_5_is_over_tasks_at_the_seeds_of_all(monkeypatch):
    hits = {"rte": {0: 1, 1: 3}, "sick": {0: 3, 1: 4, 2: 0}}
    context = SimpleNamespace(plan=lambda scale, task, variant: [task] if task in hits else [])
    monkeypatch.setattr(tables, "whole", lambda context, scale, task, variant: [
        made(task, variant, seed, right) for seed, right in hits[task].items()])
    assert tables.average(context, "small", ("rte", "mnli", "sick"), "full") == "68.8 ± 26.5"  # 50 and 87.5
    assert tables.average(context, "small", ("rte", "sick"), "full", "majority_score") == "50.0"
    hits["rte"] = {}
    assert tables.average(context, "small", ("rte", "sick"), "full") == "not run"


def test_means_of_parts_at_common_seeds_with_and_without_what_they_hang_on(monkeypatch):
    def found(context, scale, task, variant):
        if variant == tables.WORDS:
            return []
        right = {"full": 4, "lstm": 3, "no-auxiliary": 2, "no-pretraining": 1}[variant]
        right -= task == "sst2" and variant == "full"
        return [made(task, variant, seed, right) for seed in ((0, 1) if variant != "lstm" or task != "rte" else (1,))]

    monkeypatch.setattr(tables, "whole", lambda *told: [
        SimpleNamespace(**vars(one) | {"metrics": one.metrics | {"words_score": 30.0}}) for one in found(*told)])
    rows = tables.hang(SimpleNamespace(scales=("small",))).set_index("part")
    # a score of 100 or 75 (SST-2) against 25; by Matthews MRPC, whose labels are all alike, has no correlation
    assert rows.loc["pre-training", "six tasks"] == f"{(5 * 75 + 50) / 6:+.1f} ± 0.0"
    assert rows.loc["pre-training", "without SST‑2"] == "+75.0 ± 0.0"
    assert rows.loc["pre-training", "MRPC by Matthews"] == f"{(4 * 75 + 50 + 0) / 6:+.1f} ± 0.0"
    assert "±" not in rows.loc["transformer, not LSTM", "six tasks"], "one seed has all tasks"
    assert rows.loc["whole recipe, not tf-idf", "six tasks"] == f"{(5 * 100 + 75) / 6 - 30:+.1f} ± 0.0"
    assert "RTE" not in rows.loc["pre-training", "same answer throughout"]
    assert rows.loc["pre-training", "above every control in"] == "–"
    assert rows.loc["whole recipe, not tf-idf", "above every control in"] == "MRPC, RTE, SICK"  # no labels differ


@pytest.mark.parametrize(("control", "above"), [("majority_score", []), ("words_score", []), ("alone_score", []),
                                                ("training_score", ["RTE"])])
def test_a_score_counts_that_is_surely_above_all_controls(control, above):
    found = [made("rte", "full", seed, 60 - seed, of=100, majority=0) for seed in (0, 2)]  # 59 ± 4.9
    found[0].metrics[control] = 50
    assert tables.beyond_controls({"RTE": found, "SICK": []}) == above
    found[0].metrics[control] = 49
    assert tables.beyond_controls({"RTE": found}) == ["RTE"]


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews", "pearson"])
def test_the_mean_of_units_is_the_score_and_they_spread_as_it_does(metric):
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 400) if metric != "pearson" else draw.normal(size=400)
    told = np.where(draw.random(400) < 0.7, labels, 1 - labels)
    found = finetuning.units(labels, told, metric)
    assert found.shape == (400,) and found.mean() == pytest.approx(finetuning.score(labels, told, metric))
    again = [draw.integers(400, size=400) for _ in range(400)]
    spread = np.std([finetuning.score(labels[k], told[k], metric) for k in again])
    assert found.std() / 20 == pytest.approx(spread, rel=0.15)
    assert finetuning.units([0, 1, 1], [1, 1, 1], "matthews").tolist() == [0, 0, 0]


def test_tasks_weigh_the_same_however_many_rows_they_have():
    parts = [np.full(10, 3.0), np.full(1000, 5.0)]
    assert claims.averaged(parts).mean() == pytest.approx(4) and len(claims.averaged(parts)) == 1010


def made(task, variant, seed, right, transferred=None, n=None, of=4, majority=50.0):
    """A record of a task of accuracy, of whose `of` rows the first `right` are told."""
    test = {"label": [1] * of, "prediction": [1] * right + [0] * (of - right)}
    config = {"task": task, "variant": variant, "transferred": transferred, "train_examples": n}
    return SimpleNamespace(config=config, seed=seed, documents={"test": test}, metrics={
        "test_score": 100 * right / of, "majority_score": majority, "train_examples": n or 600})


def test_variants_are_held_against_each_other_task_by_task_and_seed_by_seed():
    records = [made(task, variant, seed, right + (seed == 1 and variant == "full"))
               for seed in (1, 0) for task, extra in (("rte", 0), ("sick", 1)) for variant, right in (
                   ("full", 2 + extra), ("no-pretraining", 1), ("lstm", 2), ("shuffled-labels", 2 - extra))]
    found = claims.between("full", "no-pretraining")(records)
    assert found.effects.mean(1).tolist() == [(25 + 50) / 2, (50 + 75) / 2]
    np.testing.assert_allclose(found.control, found.effects)  # all labels are alike: other rows' are the same
    assert claims.moved("full", "lstm")(records) == pytest.approx((50 + 75 + 75 + 100) / 4 - 50)
    assert claims.moved("lstm", "full")(records) == 0, "harm is no room"
    fewer = [one for one in records if (one.config["task"], one.config["variant"], one.seed) != ("sick", "lstm", 1)]
    assert claims.moved("full", "lstm")(fewer) == pytest.approx((0 + 25) / 2 / 2 + 25 / 2), "at the seeds of both"


@pytest.mark.parametrize("task", ["sick", "mrpc", "cola", "stsb"])
@pytest.mark.parametrize("seed", range(6))
def test_by_chance_is_what_the_answers_score_whatever_the_row(task, seed):
    draw = np.random.default_rng(seed)
    labels, told = [draw.integers(0, 2, 400).tolist() for _ in range(2)]
    record = SimpleNamespace(config={"task": task}, documents={"test": {"label": labels, "prediction": told}})
    knowing = SimpleNamespace(config={"task": task}, documents={"test": {"label": labels, "prediction": labels}})
    for one, right in ((record, told), (knowing, labels)):
        a, b = np.mean(labels), np.mean(right)
        wanted = {"sick": a * b + (1 - a) * (1 - b), "mrpc": 2 * a * b / (a + b)}.get(task, 0)
        assert claims.by_chance(one).mean() == pytest.approx(100 * wanted, abs=0.8)  # of 20 orders up to 1.5
    assert claims.by_example(knowing).mean() == pytest.approx(100)


def test_a_claim_on_mrpc_reads_its_runs_alone():
    one, plan = claim("gpt1_2018-lstm-mrpc"), experiment("finetune-gpt").plan("small")
    assert [(config.task, config.variant) for config in plan if one.where(config)] == [
        ("mrpc", "full"), ("mrpc", "lstm")]
    assert [(config.task, config.variant) for config in plan if one.assay.where(config)] == [
        ("mrpc", "full"), ("mrpc", "no-pretraining")]
    assert one.scales == ("small",)


@pytest.mark.parametrize(("task", "labels"), [("sick", ["A", "B", "C"]), ("rte", [0, 1]), ("mrpc", [0, 1]),
                                              ("cola", [0, 1]), ("stsb", [0.5, 2.25, 5.0]), ("cola", [1])])
def test_by_chance_is_the_mean_over_orders_drawn_one_by_one(task, labels):
    draw = np.random.default_rng(1)
    given, told = draw.choice(labels, 30).tolist(), draw.choice(labels, 30).tolist()
    if task == "sick":
        told[3] = "D"  # an answer that is no label
    orders, metric = np.random.default_rng(0), finetuning.FORMS[task].metric
    one_by_one = [finetuning.units(orders.permutation(np.array(given)).tolist(), told, metric)
                  for _ in range(claims.ORDERS)]
    record = SimpleNamespace(config={"task": task}, documents={"test": {"label": given, "prediction": told}})
    np.testing.assert_allclose(claims.by_chance(record), np.mean(one_by_one, 0), rtol=1e-9, atol=1e-9)


def test_by_chance_refuses_an_f1_that_is_not_defined():
    with pytest.raises(ReproError, match="F1 of no positive label and no positive answer"):
        claims.mean_units((0, 0), (0, 0), "f1")


def test_the_auxiliary_objective_with_many_examples_less_that_with_few():
    hits = {("full", 500): 1, ("no-auxiliary", 500): 2, ("full", None): 3, ("no-auxiliary", None): 1,
            ("full", 20_000): 4, ("no-auxiliary", 20_000): 2}
    records = [made("sst2", variant, seed, right - seed * (variant == "full"), n=n)
               for seed in (0, 1) for (variant, n), right in hits.items()]
    found = claims.auxiliary(records)
    assert found.effects.mean(1).tolist() == [50 + 25, 25 + 50]
    assert claims.learning(records) == pytest.approx(75)


def test_a_transformer_that_tells_text_better_saves_nats():
    records = [SimpleNamespace(config={"model": model}, documents={"validation": {"nll": nll, "n_tokens": [10, 30]}})
               for model, nll in (("transformer", [20.0, 60.0]), ("lstm", [30.0, 70.0]))]
    found = claims.language(records)
    assert found.effects.mean() == pytest.approx(0.5) and claim("gpt1_2018-lstm-language").direction == "higher"


def test_layers_are_the_slope_beyond_the_first():
    records = [made("sick", "full", 0, right, k) for k, right in ((0, 0), (1, 3), (2, 2), (3, 4), (None, 4))]
    records.append(made("sick", "no-pretraining", 0, 0))
    assert claims.layers(records).effects.mean() == pytest.approx(25)  # 75, 50 and 100 per cent rise by 12.5 a layer
    first = [made("sick", "full", 0, 4 if k else 0, k) for k in range(4)]
    assert claims.layers([*first, made("sick", "no-pretraining", 0, 0)]).effects.mean() == pytest.approx(0), (
        "what the first layer gives is not counted")
    other = [made("sst2", "full", 0, 1, k) for k in range(4)] + [made("sst2", "no-pretraining", 0, 2)]
    assert claims.layers(records + other).note == "one pre-training; SICK +25.0 (room 100.0), SST-2 +0.0 (room -25.0)"
    assert claims.worth(records) == 100 and claims.worth(records + other) == (100 - 25) / 2
    assert claims.worth(other) == 0, "harm is no room"
    assert "embeddings alone" in claim("gpt1_2018-layers").criterion_before


def test_heuristics_are_held_against_the_untrained_model():
    documents = {"test": {"label": [0, 1, 1, 0]},
                 "checkpoint_0": {"correct": [1, 0, 0, 0], "correct_other": [0, 0, 1, 0]},
                 "checkpoint_1": {"correct": [1, 1, 1, 0], "correct_other": [0, 1, 1, 0]}}
    record = SimpleNamespace(config={"task": "sst2"}, documents=documents, curves={"score": [[0, 25], [9, 75]]})
    found = claims.checkpoints([record])
    assert found.effects.tolist() == [[0, 100, 100, 0]] and found.control.tolist() == [[0, 100, 0, 0]]
    record.config["task"] = "cola"  # told are 0 1 1 1 at the end, 0 0 0 1 before
    wanted = finetuning.score([0, 1, 1, 0], [0, 1, 1, 1], "matthews") - finetuning.score([0, 1, 1, 0], [0, 0, 0, 1],
                                                                                        "matthews")
    assert claims.checkpoints([record]).effects.mean() == pytest.approx(wanted)


def test_papers_effects_are_those_of_table_5():
    means = [np.mean(row) for row in ([45.4, 91.3, 82.3, 82.0, 56.0, 81.8], [18.9, 84.0, 79.4, 30.9, 53.8, 75.7],
                                      [30.3, 90.5, 83.2, 71.8, 54.6, 73.7])]
    assert claim("gpt1_2018-pretraining-helps").paper_effect() == pytest.approx(means[0] - means[1], abs=1e-5)
    assert claim("gpt1_2018-lstm-worse").paper_effect() == pytest.approx(means[0] - means[2], abs=1e-5)
    without, mrpc = claim("gpt1_2018-auxiliary-average"), claim("gpt1_2018-lstm-mrpc")
    assert without.paper_effect() == pytest.approx(np.mean([2.5, 0.7, 2.6, 1.2, -1.6, -0.7]), abs=1e-5)
    assert mrpc.paper_effect() == pytest.approx(83.2 - 82.3) and mrpc.assay.paper() == pytest.approx(82.3 - 79.4)
    for one in (without, claim("gpt1_2018-lstm-worse")):
        assert one.assay.paper() == pytest.approx(means[0] - means[1], abs=1e-5)
    large, small = np.mean([0.5, 0.7, 1.2]), np.mean([-2.5, -0.7, -2.6, -1.2, 1.6])
    assert claim("gpt1_2018-auxiliary").paper_effect() == pytest.approx(large - small, abs=1e-5)


def test_the_papers_own_scale_is_planned():
    base, = experiment("pretrain-gpt").plan("paper")
    told = experiment("pretrain-gpt").estimate(base)
    assert told.parameters == 116_534_784 and told.training_tokens == 0 and "openai-gpt" in told.note
    plan = experiment("finetune-gpt").plan("paper")
    assert {one.variant for one in plan} == set(finetuning.VARIANTS) - {"lstm"}
    assert {"mnli", "qqp", "race", "cola"} <= {one.task for one in plan}
    for one in plan:
        assert (one.epochs, one.batch_size, one.learning_rate, one.lm_weight, one.dropout) == (3, 32, 6.25e-5, 0.5, 0.1)
        told = experiment("finetune-gpt").estimate(one)
        assert told.parameters == 116_534_784 and told.flops > 0 and told.seconds > 0
        rows = {"mnli": 392_702, "qqp": 363_846, "snli": 550_152, "sst2": 20_000, "race": 6_712, "rte": 2_490}
        assert told.training_tokens >= 3 * 10 * rows.get(one.task, 1), one.task
        assert one.train_examples == {"sst2": 20_000, "race": 6_712}.get(one.task)
        assert experiment("finetune-gpt").needs(one) == ([] if one.variant == "no-pretraining" else [base])


def test_a_released_model_is_taken_as_it_is(home, monkeypatch):
    import transformers

    small = transformers.OpenAIGPTLMHeadModel(transformers.OpenAIGPTConfig(
        vocab_size=50, n_positions=16, n_embd=8, n_layer=2, n_head=2))
    monkeypatch.setattr("repro.models.load_causal_lm", lambda source: small)
    from repro.study import run

    one = pretraining.EXPERIMENT.plan("smoke", {"source": "somebody/gpt", "vocab_size": "50", "n_positions": "16",
                                                "n_embd": "8", "n_head": "2"})[0]
    record = run(one)
    kept = pretraining.read(pretraining.build(one, 50),
                            home / "work" / "runs" / record.id / "model" / pretraining.LAST)
    assert kept.embed.weight.equal(small.transformer.tokens_embed.weight) and record.metrics["parameters"] == (
        kept.config.parameters)


def test_what_the_paper_prints_of_layers_is_of_another_task():
    row, = (row for row in printed_rows("gpt1_2018_figure2_transfer_zero_shot") if row["source"] == "Section 5")
    assert "MultiNLI" in row["quantity"] and "mnli" not in finetuning.LAYERS
    assert claim("gpt1_2018-layers").expected() is None
