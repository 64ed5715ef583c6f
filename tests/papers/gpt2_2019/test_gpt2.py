"""GPT-2 of four sizes and the sets it is tried on: plans, tiny runs, what a record holds, what claims measure."""

import importlib
import math
from types import SimpleNamespace

import numpy as np
import pytest

from repro import paths
from repro.data import corpus, detokeniser, examples, tokens
from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.models import GPT, load_causal_lm
from repro.papers.base.pretraining import tokeniser_of
from repro.papers.gpt2_2019 import claims, sets, sizes, tables, zero_shot
from repro.study import artifact, artifacts, claim, experiment, model_folder, run
from repro.study import claims as all_claims
from repro.study.artifacts import ArtifactContext
from repro.study.published import printed_rows

ENDS = ("117M", "1542M")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The smallest and the largest size at `smoke`, on next to no tokens: (results, config and record by size)."""
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("gpt2")
    patch.setenv("REPRO_HOME", str(folder))
    patch.setenv("REPRO_WORK", str(folder / "work"))
    patch.setitem(sizes.SCALES, "smoke", sizes.SCALES["smoke"] | {"tokens": 4_096, "validate_every": 2_048})
    patch.setattr(sizes, "AGAIN", 2)
    patch.setitem(zero_shot.SCALES, "smoke", zero_shot.SCALES["smoke"] | {"examples": 6, "control": 3,
                                                                          "summary_tokens": 6})
    plans = importlib.import_module("repro.study.experiment")
    patch.setattr(plans, "_plan", plans._plan.__wrapped__)  # or this plan would be kept for later tests
    found = {}
    for name in ("pretrain-gpt2-sizes", "zero-shot-gpt2"):
        for config in experiment(name).plan("smoke"):
            little = getattr(config, "text", "all") == "little" or getattr(config, "text_tokens", None) is not None
            if config.size in (*ENDS, "frequencies"):
                found[name, config.size + "-little" * little] = config, run(config, folder / "results", progress=False)
    yield folder / "results", found
    patch.undo()


def test_plans_are_those_of_table_2_and_nearly_in_its_proportions():
    printed = {row["model"]: row for row in printed_rows("gpt2_2019_table2_model_sizes")}
    for scale in ("smoke", "small", "medium", "paper"):
        by_text = {text: [one for one in experiment("pretrain-gpt2-sizes").plan(scale) if sizes.text_of(one) == text]
                   for text in ("all", "little", "wrapped")}
        plan = by_text["all"]
        assert [config.size for config in plan] == list(printed)
        assert by_text["little"] == [plan[-1].model_copy(update={"text_tokens": plan[-1].tokens // 16})] * (
            scale != "paper")
        printed_lines = {"corpus": "gutenberg-pretrain", "tokeniser_corpora": ("gutenberg-pretrain",)}
        assert by_text["wrapped"] == [plan[-1].model_copy(update=printed_lines)] * (scale in ("small", "medium"))
        assert plan[0].corpus == ("synthetic-web" if scale == "smoke" else "gutenberg-unwrapped")
        counts = [sizes.model_config(config, config.vocab_size).matrices for config in plan]
        assert sorted(counts) == counts and len(set(counts)) == 4
        for config in [*plan, *experiment("zero-shot-gpt2").plan(scale)]:
            told = experiment(config.experiment).estimate(config)
            assert told.parameters > 0 and told.seconds > 0 and told.memory_bytes > 0
    for config in experiment("pretrain-gpt2-sizes").plan("paper"):
        row = printed[config.size]
        assert (str(config.n_layer), str(config.n_embd)) == (row["layers"], row["d_model"])
        assert config.source.startswith("openai-community/gpt2") and config.n_positions == 1024
    small = experiment("pretrain-gpt2-sizes").plan("small")[:4]
    assert [(one.n_layer, one.n_embd) for one in small] == [(2, 64), (4, 80), (6, 112), (8, 128)]
    assert {(one.tokens, one.precision, one.optimizer, one.n_positions) for one in small} == {
        (8_000_000, "bf16", "muon", 1024)}


def test_every_size_is_tried_as_it_was_trained_and_the_base_model_beside_them():
    for scale in ("smoke", "small", "medium", "paper"):
        plan = experiment("zero-shot-gpt2").plan(scale, seeds=(2,))
        assert [one.size for one in plan if one.text == "all"] == [
            *sizes.SIZES, *["gpt2-mini"] * (scale in ("small", "medium")), *["frequencies"] * (scale != "paper")]
        assert [one.size for one in plan if one.text == "little"] == ["1542M"] * (scale != "paper")
        assert [one.size for one in plan if one.text == "wrapped"] == ["1542M"] * (scale in ("small", "medium"))
        for config in plan:
            needed = zero_shot.model_run(config)
            if config.size == "frequencies":
                largest, = (one for one in plan if (one.size, one.text) == ("1542M", "all"))
                assert needed == zero_shot.model_run(largest)
                assert not experiment(config.experiment).needs(config)
                continue
            assert needed.scale == scale and (config.size == "gpt2-mini" or needed.size == config.size)
            assert config.size == "gpt2-mini" or sizes.text_of(needed) == config.text
            assert needed.seed == (0 if config.size == "gpt2-mini" else 2)
            assert needed.experiment == ("pretrain-gpt2-mini" if config.size == "gpt2-mini" else "pretrain-gpt2-sizes")


def test_the_base_model_is_the_largest_point():
    others = [experiment("pretrain-gpt2-sizes").estimate(one).parameters
              for one in experiment("pretrain-gpt2-sizes").plan("small")]
    mini, = experiment("pretrain-gpt2-mini").plan("small")
    assert experiment("pretrain-gpt2-mini").estimate(mini).parameters > max(others)


def test_little_text_is_the_beginning_read_again(made):
    config, record = made[1]["pretrain-gpt2-sizes", "1542M-little"]
    other, whole = made[1]["pretrain-gpt2-sizes", "1542M"]
    assert config.text_tokens == 2_048 and other.text_tokens is None and config.tokens == other.tokens
    text = tokens(config.corpus, "train", tokeniser_of(config)).ids
    told = [sequences.flatten() for sequences in (sizes.read_ones(sizes.batches_of(one), 4, one, 32)
                                                  for one in (config, other))]
    known = {tuple(text[k:k + 9]) for k in range(2_048 - 8)}
    share = [np.mean([tuple(row[k:k + 9]) in known for k in range(0, len(row) - 9, 129)]) for row in told]
    assert share[0] == 1 and share[1] < 1
    assert record.metrics["validation_token_loss"] != whole.metrics["validation_token_loss"]
    with pytest.raises(ReproError, match="text_tokens is 999,999,999, but the text of synthetic-web has"):
        sizes.batches_of(config.model_copy(update={"text_tokens": 999_999_999}))


def test_only_the_largest_size_is_trained_on_other_text():
    plan = experiment("zero-shot-gpt2").plan
    for scale, text, told in (("smoke", "wrapped", "at smoke the largest size is trained on all or little"),
                              ("paper", "little", "at paper the largest size is trained on all")):
        with pytest.raises(ReproError, match=f"text is {text}; {told}.$"):
            plan(scale, {"size": "1542M", "text": text})
        assert {one.text for one in plan(scale, {"size": "117M,gpt2-mini", "text": text})} == {"all"}


def test_the_commonest_candidate_of_a_context_and_of_equal_ones_the_last():
    told = ("Tom saw Ann. Ann's hat, Tom-cat and Bob",)  # "Ann's" and "Tom-cat" are other words
    assert sets.commonest(told, ("Bob", "Ann", "Tom")) == 0
    assert sets.commonest(("Tom saw Ann, Bob and Tom",), ("Bob", "Ann", "Tom")) == 2
    assert sets.commonest(("Tom saw Ann",), ("Bob", "Ann", "Tom")) == 1


def test_a_window_must_be_longer_than_what_is_read_again():
    with pytest.raises(ReproError, match=r"overlap is 128 tokens; it must be smaller than the window \(128\)"):
        experiment("zero-shot-gpt2").plan("smoke", {"overlap": "128"})
    with pytest.raises(ReproError, match="Did you mean '345M'|size='346M'"):
        experiment("zero-shot-gpt2").plan("smoke", {"size": "346M"})


def test_training_tells_losses_of_text_that_was_read_and_of_text_that_was_not(made):
    config, record = made[1]["pretrain-gpt2-sizes", "117M"]
    for split in ("train", "validation"):
        kept = record.documents[split]
        assert set(kept["n_tokens"]) == {config.sequence}
        assert record.metrics[f"{split}_token_loss"] == pytest.approx(sum(kept["nll"]) / sum(kept["n_tokens"]))
    assert record.metrics["untrained_token_loss"] == pytest.approx(math.log(512), rel=0.02)
    assert record.metrics["validation_token_loss"] < record.metrics["untrained_token_loss"]
    assert record.metrics["parameters"] == sizes.model_config(config, 512).parameters


def test_cut_texts_lose_only_what_fills_no_sequence():
    rows = sizes.cut(np.arange(11), 3)
    assert rows.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]


def test_frequencies_are_those_of_the_text_that_the_sizes_read(made):
    """Every token costs what its share of the training text says, whatever stands before it."""
    config, record = made[1]["zero-shot-gpt2", "frequencies"]
    trained = zero_shot.model_run(config)
    coder = tokeniser_of(trained)
    seen = tokens(trained.corpus, "train", coder).ids
    texts = [text for text, _, _ in sets.texts(config.enwik8, config.documents)]
    for text, nats, n in zip(texts, *(record.documents["enwik8"][key] for key in ("nll", "n_tokens")), strict=True):
        ids = coder.encode(text)
        shares = [(int((seen == token).sum()) + 1) / (len(seen) + coder.vocab_size) for token in ids]
        assert (nats, n) == (pytest.approx(-sum(map(math.log, shares)), rel=1e-5), len(ids))
    passages = [row.text for row in corpus(config.corpus).examples("test")][:config.examples]
    ids = coder.encode(" " + passages[0].rpartition(" ")[2])
    shares = [(int((seen == token).sum()) + 1) / (len(seen) + coder.vocab_size) for token in ids]
    assert record.documents["lambada"]["nll"][0] == pytest.approx(-sum(map(math.log, shares)), rel=1e-5)
    assert not set(record.metrics) & {"parameters", "reading_f1_percent", "untrained_lambada"}
    for size in ("frequencies", "117M"):  # a run of its own, and no other
        assert len(experiment("zero-shot-gpt2").plan("smoke", {"size": size, "text": "all"})) == 1


def test_language_is_scored_in_words_of_the_text_as_it_was(made):
    config, record = made[1]["zero-shot-gpt2", "1542M"]
    trained = zero_shot.model_run(config)
    model = GPT.from_transformers(load_causal_lm(model_folder(trained, made[0], progress=False)))
    coder = tokeniser_of(trained)
    books = [one.text for one in corpus("synthetic-books").documents("test")[:2]]
    n_words = sum(len(book.split()) for book in books)
    for metric, rewrite in (("wikitext103_word_perplexity", detokeniser("wikitext").apply),
                            ("wikitext103_word_perplexity_tokenised", str)):
        ids = np.concatenate([[coder.bos], *(coder.encode(rewrite(book)) for book in books)])
        assert record.metrics[metric] == pytest.approx(math.exp(perplexity(model, ids, 128, 0).nll / n_words), rel=1e-4)
    kept = record.documents["wikitext103"]
    assert sum(kept["n_words"]) == n_words and len(kept["nll"]) == len(kept["tokenised"]) == 2
    page = corpus("synthetic-web").documents("test")[:2]
    assert record.documents["enwik8"]["n_bytes"] == [len(one.content) for one in page]
    told = sum(record.documents["enwik8"]["nll"]) / math.log(2) / sum(len(one.content) for one in page)
    assert record.metrics["enwik8_bits_per_byte"] == pytest.approx(told)


def test_a_record_has_every_metric_and_a_number_for_every_unit(made):
    for size in ENDS:
        _, record = made[1]["zero-shot-gpt2", size]
        lambada = record.documents["lambada"]
        assert {len(values) for values in lambada.values()} == {6}
        assert record.metrics["lambada_perplexity"] == pytest.approx(math.exp(np.mean(lambada["nll"])))
        assert record.metrics["lambada_accuracy_stop_words_percent"] == pytest.approx(
            100 * np.mean(lambada["correct_stop_words"]))
        assert {"lambada_accuracy_percent", "wikitext2_word_perplexity", "text8_bits_per_character",
                "cloze_names_accuracy_percent", "cloze_names_commonest_percent", "reading_f1_percent",
                "questions_exact_percent", "summary_hint_rougeL", "translation_accuracy_percent",
                "untrained_lambada"} <= set(record.metrics)
        assert len(record.notes["answers"]) == 6
        shares = [one["probability"] for one in record.notes["answers"]]
        assert shares == sorted(shares, reverse=True) and 0 <= shares[-1] <= shares[0] <= 1


def test_artifacts_and_verdicts_of_a_finished_plan_and_of_none(made, tmp_path):
    mine = [one for one in artifacts() if one.paper == "gpt2_2019" and one.id.removeprefix("gpt2_2019-") != "table6"]
    assert {one.id for one in mine} >= {f"gpt2_2019-{name}" for name in (
        "table2", "table3", "table3-bits", "table3-figure", "table4", "table5", "figure1", "figure4", "text-results",
        "detokenised")}
    shown = artifact("gpt2_2019-table3").render("smoke", (), made[0]).table
    ours = shown[shown["source"] == "this study, smoke"].set_index("model")
    _, record = made[1]["zero-shot-gpt2", "1542M"]
    largest = "largest of four, 241k; the paper's 1542M"
    assert ours.loc[largest, "enwik8 (ours, a part)"] == f"{record.metrics['enwik8_bits_per_byte']:.3f}"
    drawn = artifact("gpt2_2019-table3-bits").render("smoke", (), made[0])
    assert drawn.png()
    context = ArtifactContext(artifact("gpt2_2019-table3-bits"), ("smoke",), made[0])
    bits = {(row["source"], row["model"]): row["score"] for row in tables._table_3(context, "perplexity", np.log2)
            if row["model"] == "smoke" or row["weights"] == 1542}
    assert bits["LAMBADA", "paper"] == pytest.approx(np.log2(8.63))
    assert bits["WikiText-2", "paper"] == pytest.approx(np.log2(18.34)) and ("PTB", "paper") not in bits
    assert ours.loc["second of four, 46k; the paper's 345M", "WikiText-2"] == "not run"
    assert set(ours["PTB"]) == {"not here"}
    control = ours.loc["the commonest candidate of the context"]
    assert control["CBT-NE (ours, pg19-clozes)"] == f"{record.metrics['cloze_names_commonest_percent']:.2f}"
    assert set(control[["CBT-CN (ours, pg19-clozes)", "WikiText-2", "weights", "seeds"]]) == {"–"}
    shown = artifact("gpt2_2019-text-results").render("smoke", (), made[0]).table
    put = shown[shown["task"] == "translation"].set_index(["data set", "model"])[f"smoke: {largest}"]
    assert put["WMT-14 En-Fr", "GPT-2 (1542M)"] == (
        f"{record.metrics['translation_bleu']:.1f} (synthetic-translations)")
    assert [cell for cell in put if "synthetic" in cell] == [put["WMT-14 En-Fr", "GPT-2 (1542M)"]]
    ratio = shown.set_index("measure").loc["ratio of correct answers", f"smoke: {largest}"]
    right = [made[1]["zero-shot-gpt2", size][1].metrics["questions_exact_percent"] for size in ("1542M", "117M")]
    assert ratio == (f"{right[0] / right[1]:.1f}" if right[1] else
                     f"none: {right[0]:.2f} and {right[1]:.2f}% right")
    put = shown[shown["task"] == "reading comprehension"].set_index("model").loc["GPT-2 (1542M)", f"smoke: {largest}"]
    alone = f"{record.metrics['reading_alone_f1_percent']:.2f} without the text)"
    assert put.startswith(f"{record.metrics['reading_f1_percent']:.2f} (") and put.endswith(alone)
    assert "given only the paragraphs that hold the answer" in put
    for name, data in (("table4", record.config["articles"]), ("table5", record.config["questions"])):
        assert f"smoke: {data}; 1 seed" in artifact(f"gpt2_2019-{name}").render("smoke", (), made[0]).caption
    full = artifact("gpt2_2019-text-results").render("paper", (), tmp_path).table.iloc[0]
    assert (full["data set"], full["paper"], full["full: 1542M"]) == ("CoQA dev", "55 percent", "not run")
    counted = artifact("gpt2_2019-table2").render("paper", (), tmp_path).table.iloc[0]
    assert (counted["paper: parameters"], counted["full: parameters"]) == ("117M", "124,439,808")
    assert counted["counted, with GPT's vocabulary"] == "116,929,536"  # 9,779 rows of 768 fewer
    for one in mine:
        for scale, results in (("smoke", made[0]), ("small", tmp_path)):
            assert scale not in one.scales or one.render(scale, (), results)._repr_html_()
    for one in all_claims():
        if one.paper == "gpt2_2019" and "smoke" in one.scales and "-step-" not in one.id:  # sizes between are not made
            assert one.verdict("smoke", made[0]).verdict == "machinery works", one.id
            assert one.verdict("small", tmp_path).verdict == "not run"


def test_the_base_model_which_read_other_text_is_on_no_line_of_sizes():
    found = {"117M": (1e6, 2.0), "1542M": (4e6, 4.0), "gpt2-mini": (7e6, 9.0), "frequencies": (0.0, 1.0)}
    context = SimpleNamespace(
        scales=("small",), plan=lambda scale, **fields: [SimpleNamespace(size=size) for size in found],
        records_of=lambda config: [SimpleNamespace(metrics=dict(zip(("parameters", "told"), found[config.size],
                                                                    strict=True)))])
    rows = tables._scores(context, {"a task": "told"})
    assert [(row["model"], row["weights"], row["score"]) for row in rows] == [
        ("small", 1, 2), ("small", 4, 4), ("small: gpt2-mini, on other and more text", 7, 9)]


def test_papers_effects_are_those_that_it_prints():
    assert claim("gpt2_2019-filter").paper_effect() == pytest.approx(63.24 - 52.66)
    assert claim("gpt2_2019-hint").paper_effect() == 6.4
    assert claim("gpt2_2019-larger-lambada").expected() == pytest.approx(8.63 / 35.13 - 1)
    assert claim("gpt2_2019-larger-text8").paper_effect() == pytest.approx(0.98 - 1.17)
    assert claim("gpt2_2019-larger-lambada-accuracy").paper_effect() == pytest.approx(63.24 - 45.99)
    assert claim("gpt2_2019-larger-questions").paper_effect() == pytest.approx(4.1 - 4.1 / 5.3)


def made_up(size, seed, nll, correct, untrained):
    return SimpleNamespace(config={"size": size}, seed=seed, metrics={"untrained_wikitext103": untrained}, documents={
        "wikitext103": {"nll": nll, "n_words": [10, 30]},
        "lambada": {"correct": [0, 0, 1], "correct_stop_words": correct, "correct_other_words": [0, 0, 0]}})


def test_claims_measure_the_larger_less_the_smaller_and_with_less_without():
    records = [made_up(size, seed, nll, [0, 1, 1], untrained) for seed in (0, 1) for size, nll, untrained in (
        ("1542M", [20 + seed, 60], 9.0), ("117M", [30, 90], 9.5))]
    found = claim("gpt2_2019-larger-wikitext103").measure(records)
    assert found.effects.shape == (2, 2) and found.control.tolist() == [[-0.5], [-0.5]]
    assert found.effects.mean(1).tolist() == pytest.approx([80 / 40 - 3, 81 / 40 - 3])
    filtered = claim("gpt2_2019-filter").measure(records[:1])
    assert filtered.effects.tolist() == [[0, 100, 0]] and filtered.control.tolist() == [[0, 0, -100]]
    assert claims.room(lambda record: claims.percent(record, "lambada"), lambda record: 0.0)(records) == (
        pytest.approx(100 / 3))


def test_clozes_beyond_copying_are_those_that_the_commonest_candidate_does_not_answer():
    part = {"correct": [1, 1, 0, 0, 0], "commonest": [1, 0, 0, 1, 0], "book": ["a", "a", "a", "b", "b"]}
    record = SimpleNamespace(documents={"names": part | {"untrained": [0, 1, 1, 0, 1]}})
    told = claims.beyond_copying(record, "names")
    assert told.tolist() == pytest.approx([100 * (1 + 2 / 3) / 3, 100 / 9])  # of three that are left one, in the first
    assert claims.beyond_copying(record, "names", "untrained").mean() == pytest.approx(100)
    record.documents["names"]["commonest"] = [1] * 5
    assert claims.beyond_copying(record, "names").tolist() == [0, 0]


def read_texts(size, seed, losses, untrained, text="all"):
    """A record with one document of two words or bytes in each text, at `losses` a word or byte."""
    names = ("lambada", "wikitext103", "enwik8", "text8")
    nll = {name: loss * (1 if name in names[:2] else math.log(2)) for name, loss in zip(names, losses, strict=True)}
    return SimpleNamespace(
        seed=seed, config={"size": size, "text": text}, metrics={f"untrained_{name}": untrained for name in names},
        documents={name: {"nll": [value] if name == "lambada" else [2 * value], "n_words": [2], "n_bytes": [2]}
                   for name, value in nll.items()})


def test_a_step_of_size_is_the_mean_share_of_the_loss_over_four_texts():
    records = [read_texts("345M", 0, (9.0, 8.0, 3.0, 2.0), 12.0), read_texts("117M", 0, (10.0, 10.0, 4.0, 2.0), 10.0),
               read_texts("frequencies", 0, (20.0, 20.0, 20.0, 20.0), 0.0)]
    found = claim("gpt2_2019-step-345m").measure(records)
    assert found.effects.mean() == pytest.approx((-10 - 20 - 25 + 0) / 4) and found.effects.shape == (1, 4)
    assert found.control.tolist() == [[pytest.approx(20)]]
    records[2] = read_texts("frequencies", 0, (9.5, 9.0, 20.0, 20.0), 0.0)  # count for the smaller where it is worse
    told = 100 * np.mean([9 / 9.5, 8 / 9, 3 / 4, 1]) - 100
    assert claim("gpt2_2019-step-345m").measure(records).effects.mean() == pytest.approx(told)


def test_the_papers_steps_are_those_of_table_3_in_nats_and_bits():
    wanted = {"345m": [math.log(15.60) / math.log(35.13), math.log(26.37) / math.log(37.50), 1.01 / 1.16, 1.06 / 1.17],
              "762m": [math.log(10.87) / math.log(15.60), math.log(22.05) / math.log(26.37), 0.97 / 1.01, 1.02 / 1.06],
              "1542m": [math.log(8.63) / math.log(10.87), math.log(17.48) / math.log(22.05), 0.93 / 0.97, 0.98 / 1.02]}
    for name, ratios in wanted.items():
        one = claim(f"gpt2_2019-step-{name}")
        assert one.paper_effect() == pytest.approx(100 * (np.mean(ratios) - 1), abs=1e-5)
        assert one.family == "gpt2_2019-steps" and one.paper_effect() < 0


def test_a_step_reads_both_sizes_and_the_frequencies_and_its_room_is_more_text():
    one, plan = claim("gpt2_2019-step-762m"), experiment("zero-shot-gpt2").plan("small")
    assert [config.size for config in plan if one.where(config)] == ["345M", "762M", "frequencies"]
    assert [(config.size, config.text) for config in plan if one.assay.where(config)] == [
        ("1542M", "all"), ("1542M", "little"), ("frequencies", "all")]
    everything = read_texts("1542M", 0, (9.0, 8.0, 3.0, 2.0), 0.0)
    little = read_texts("1542M", 0, (10.0, 10.0, 4.0, 1.9), 0.0, "little")  # harm, in the last, is no room
    assert one.assay.room([everything, little]) == pytest.approx((10 + 20 + 25 + 0) / 4)
    assert one.assay.room([everything]) is None


def test_assays_that_the_paper_prints():
    for name, printed in (("filter", 63.24), ("questions", 4.1), ("hint", 31.55 - 15.03)):
        one = claim(f"gpt2_2019-{'larger-' * (name == 'questions')}{name}")
        assert one.assay.paper() == pytest.approx(printed)


def test_the_assay_of_size_is_what_more_text_moves():
    records = [SimpleNamespace(seed=0, config={"text": text, "size": "1542M"}, documents={"lambada": {"correct": hits}})
               for text, hits in (("all", [1, 1, 0, 0]), ("little", [1, 0, 0, 0]))]
    moved, harm = (claims.by_text(lambda record: claims.percent(record, "lambada"), sign) for sign in (1, -1))
    assert moved(records) == pytest.approx(25) and moved(records[:1]) is None
    assert harm(records) == 0  # where lower is better, this is worse
    better = claims.room(lambda record: claims.percent(record, "lambada"), lambda record: 60.0, -1)
    assert better(records) == pytest.approx(60 - 37.5) and claims.room(lambda one: 1.0, lambda one: 2.0)(records) == 0
    more = SimpleNamespace(seed=1, config={"text": "all", "size": "1542M"}, documents={"lambada": {"correct": [0] * 4}})
    assert moved([*records, more]) == pytest.approx(25)  # a seed that has no pair
    more.seed = 2
    assert moved([records[1], more]) is None


def test_de_tokenisers_are_held_against_frequencies_of_the_same_seed():
    def told(size, seed, *nll):
        return SimpleNamespace(seed=seed, config={"size": size}, documents={"wikitext103": {
            "nll": list(nll[:2]), "tokenised": list(nll[2:]), "n_words": [2, 2]}})

    found = claims.detokenised([told("1542M", 0, 6, 6, 10, 12), told("frequencies", 0, 8, 8, 9, 9),
                                told("1542M", 1, 4, 4, 4, 4), told("frequencies", 1, 8, 8, 8, 8)])
    assert found.effects.tolist() == [[-2, -3], [0, 0]] and found.control.tolist() == [[-0.5, -0.5], [0, 0]]


def test_punctuation_of_all_that_is_read_is_plain_and_of_the_paper_scale_as_typed(monkeypatch):
    row = examples.Cloze("1", "“Who—if any?” said Ann’s", "Ann’s")
    plans = {scale: experiment("zero-shot-gpt2").plan(scale)[0] for scale in ("smoke", "small", "medium", "paper")}
    monkeypatch.setattr("repro.data.corpus", lambda name: SimpleNamespace(
        splits=["test"], examples=lambda split: [row], is_text=False))
    told = {scale: zero_shot._rows(config, "corpus")[0].target for scale, config in plans.items()}
    assert told == {"smoke": "Ann's", "small": "Ann's", "medium": "Ann's", "paper": "Ann’s"}


def test_held_out_stretches_lie_evenly_from_the_beginning_of_a_text_to_its_end():
    rows = sizes.spread(np.arange(101), 10, 4)
    assert rows.tolist() == [list(range(start, start + 11)) for start in (0, 30, 60, 90)]
    assert len(sizes.spread(np.arange(101), 10, 40)) == 10  # no two share a target


@pytest.mark.parametrize("sets_, told", [
    ({"window": "2048"}, "window is 2048 tokens, but the context of 117M at small is 1024"),
    ({"names": "hotpotqa-subset"}, "names is hotpotqa-subset, which has the kind question; it must be of the"),
    ({"wikitext2": "lambada-cased"}, "wikitext2 is lambada-cased, which has the kind last word; it must be of the kind "
                                     "text"),
    ({"punctuation": "typed"}, "punctuation")])
def test_a_window_beyond_the_context_and_a_set_of_another_kind_are_refused_while_planning(sets_, told):
    with pytest.raises(ReproError, match=told):
        experiment("zero-shot-gpt2").plan("small", {"size": "117M", "text": "all"} | sets_)


def test_a_plan_with_a_size_has_that_size_and_other_shapes_are_free_to_try():
    for scale in ("smoke", "small"):
        for size in sizes.SIZES:
            plan = experiment("pretrain-gpt2-sizes").plan(scale, {"size": size})
            shape, = {(one.n_layer, one.n_head, one.n_embd) for one in plan}
            assert shape == tuple(sizes.shapes(scale)[size].values())
            assert len(plan) == (2 if scale == "smoke" else 3)  # what it reads differs
            assert [one.text for one in experiment("zero-shot-gpt2").plan(scale, {"size": size})] == (
                ["all"] if size != "1542M" else ["all", *zero_shot.OTHERS[scale]])
    tried, = {(one.size, one.n_layer) for one in experiment("pretrain-gpt2-sizes").plan("small", {
        "size": "117M", "n_layer": 3})}
    assert tried == ("117M", 3)


def test_a_loss_counts_up_to_that_of_frequencies():
    def told(size, *nll, seed=0, text="all"):
        return SimpleNamespace(config={"size": size, "text": text}, seed=seed, metrics={"untrained": 9.0},
                               documents={"lambada": {"nll": list(nll)}})

    def score(record):
        return claims.nats(record, "lambada", per="")

    records = [told("117M", 9.0, 8.0), told("1542M", 5.0, 6.0), told("frequencies", 7.0, 6.5),
               told("117M", 6.0, 5.0, seed=1), told("1542M", 9.0, 8.0, seed=1), told("frequencies", 7.0, 6.5, seed=1)]
    measure = claims.between("1542M", "117M", score, lambda record: record.metrics["untrained"])
    assert measure(records).effects.tolist() == [[-2.0, -0.5], [1.0, 1.5]]
    assert measure([one for one in records if one.config["size"] != "frequencies"]).effects[0].tolist() == [-4, -2]
    moved = claims.by_text(score, -1)
    little = told("1542M", 9.0, 9.0, text="little")
    assert moved([records[1], records[2], little]) == pytest.approx(6.75 - 5.5)
    assert moved([records[1], little]) == pytest.approx(9 - 5.5) and moved(records[1:3]) is None


def test_frequencies_belong_to_claims_on_losses_and_to_no_others():
    plan = experiment("zero-shot-gpt2").plan("small")
    for name, alone in (("lambada", ["frequencies"]), ("text8", ["frequencies"]), ("lambada-accuracy", [])):
        one = claim(f"gpt2_2019-larger-{name}")
        assert [config.size for config in plan if one.where(config)] == ["117M", "1542M", *alone]
        assert [config.size for config in plan if one.assay.where(config)] == ["1542M", "1542M", *alone]
        assert {config.text for config in plan if one.assay.where(config)} == {"all", "little"}


def test_other_words_that_are_barred_are_the_most_frequent_ones():
    known = {" the", " and", " said", " eyes", " door"}  # those of one token
    coder = SimpleNamespace(encode=lambda text: [0] * (1 if text in known else 2))
    passages = ["the eyes said the eyes and door Said", "the eyes , and the windows said window windows windows door"]
    assert sets.other_words(coder, passages) == ["eyes", "said"]  # two stop words are one token; "door" stands once
    known.add(" windows")
    assert sets.other_words(coder, passages) == ["eyes", "windows"]


def test_words_that_begin_with_a_stop_word_are_impossible_where_it_is_barred_as_first_token():
    pieces = {"towel": [" to", "wel"], "to": [" to"], "dog": [" dog"], "toy": [" toy"], "ago": [" a", "go"],
              "dogma": [" dog", "ma"], "yourselves": [" yours", "elves"]}
    ids = {piece: k for k, piece in enumerate(sorted({one for some in pieces.values() for one in some} | {"?"}))}
    coder = SimpleNamespace(encode=lambda text: np.array([ids[one] for one in pieces.get(text.strip(), ["?", "?"])]))
    assert sets.impossible(coder, ["a towel", "a to", "a dog", "a toy", "an ago", "a dogma", "to yourselves"]) == 1, (
        "of stop words only to is one token here")


@pytest.mark.skipif(paths.data() is None, reason="needs LAMBADA: set REPRO_DATA")
def test_how_many_last_words_are_impossible_for_the_base_model():
    config, = experiment("zero-shot-gpt2").plan("small", {"size": "gpt2-mini"})
    passages = [row.text for row in zero_shot._rows(config, "corpus")]
    coder = tokeniser_of(zero_shot.model_run(config))
    assert (sets.impossible(coder, passages), len(passages)) == (zero_shot.IMPOSSIBLE["gpt2-mini"],
                                                                 zero_shot.LAST_WORDS)


def test_stop_words_are_barred_as_a_run_says(monkeypatch):
    seen = []
    monkeypatch.setattr(sets, "last_words", lambda model, coder, passages, whole: seen.append(whole) or {"nll": [1.0]})
    bar = SimpleNamespace(advance=lambda n: None)
    for name in ("whole words", "first tokens"):
        config, = experiment("zero-shot-gpt2").plan("smoke", {"size": "frequencies", "stop_words": name})
        zero_shot.scores_by_set(config.model_copy(update=dict.fromkeys(zero_shot.FIELDS)), None, None, None, bar)
    assert seen == [True, False]
    assert {one.stop_words for one in experiment("zero-shot-gpt2").plan("small")} == {"first tokens"}
    assert {one.stop_words for scale in ("smoke", "medium", "paper") for one in experiment("zero-shot-gpt2").plan(
        scale)} == {"whole words"}


def test_as_many_other_blanks_are_left_out():
    text, rewritten = "the old king , he said , was here .", "the old king, he said, was here."
    found = sets.fewer_blanks(text, rewritten)
    assert found.count(" ") == rewritten.count(" ") and found.replace(" ", "") == text.replace(" ", "")
    assert found != rewritten and found == sets.fewer_blanks(text, rewritten)
    assert sets.fewer_blanks("a b", "a b") == "a b"


def test_long_texts_are_kept_in_stretches_that_lose_nothing(monkeypatch):
    monkeypatch.setattr(sets, "STRETCH", 100)
    content = ("words and words " * 40).encode() + "é".encode()[:1]  # cut through a character
    text = SimpleNamespace(content=content)
    source = SimpleNamespace(documents=lambda split: [text], n_words=lambda text: len(text.split()))
    monkeypatch.setattr("repro.data.corpus", lambda name: source)
    found = sets.texts("cut", None)
    assert len(found) == 7 and "".join(part for part, _, _ in found) == "words and words " * 40
    assert sum(n for _, _, n in found) == 640 and sum(n for _, n, _ in found) == 120
    assert sets.texts("cut", 2) == found[:2]


def test_answers_end_with_their_line_and_have_the_probability_of_what_is_told(monkeypatch):
    coder = SimpleNamespace(encode=lambda text: np.arange(len(text)), decode=lambda ids: "".join(map(chr, ids)))
    model = SimpleNamespace(config=SimpleNamespace(n_positions=40))
    seen = []

    def continued(model, prompts, n_new):
        seen.extend(map(len, prompts))
        ids = np.array([[ord(sign) for sign in text.ljust(n_new)] for text in (" ab\ncd", " abcdefghijkl"[:n_new],
                                                                             "\nab")])
        return ids, np.full(ids.shape, 0.5)

    monkeypatch.setattr("repro.evaluation.generation.continued", continued)
    found = sets.answers(model, coder, ["x" * 50, "", ""], ["Q: a\nA:", "Q: b\nA:", "A:"])
    assert seen == [40 - sets.ANSWER, 7, 2]  # what is too long loses its beginning
    assert found == [("ab", pytest.approx(math.exp(-2))), ("abcdefghijk", pytest.approx(math.exp(-6))),
                     ("", pytest.approx(math.exp(-0.5)))]  # the line end is counted: nothing is no sure answer


def test_answers_are_held_against_those_of_the_next_question(monkeypatch):
    rows = [SimpleNamespace(question=f"who {k}", answer=answer) for k, answer in enumerate(("a b", "c d", "e f"))]
    monkeypatch.setattr(sets, "answers", lambda model, coder, contexts, asked: [("c d", 0.5), ("c d", 0.5), ("x", 0.9)])
    found, written = sets.closed_book(None, None, rows, rows)
    assert found["correct"] == [0, 1, 0] and found["correct_other"] == [1, 0, 0]
    assert [one["answer"] for one in written] == ["x", "c d", "c d"]
    with pytest.raises(ReproError, match="there are 1 questions without a text; give at least 2"):
        sets.closed_book(None, None, rows[:1], rows)


def test_of_equally_sure_answers_the_right_ones_do_not_come_first():
    part = {"correct": [0, 1], "probability": [0.5, 0.5], "most_common": [0, 0]}
    last = {"nll": [1.0], "correct": [0], "correct_stop_words": [0]}
    assert zero_shot.scores({"lambada": last, "questions": part}, {})["questions_confident_percent"] == 0


def test_of_a_cloze_that_fills_the_context_not_all_that_stands_before_is_read(monkeypatch):
    seen = []
    monkeypatch.setattr("repro.evaluation.generation.branch_nll",
                        lambda model, prefix, branches: seen.append(len(prefix)) or [1, 0])
    coder = SimpleNamespace(encode=lambda text: list(text))
    for positions in (4, 5, 7):
        row = SimpleNamespace(id="a-b-7", question="XXXXX x", paragraphs=["before"], candidates=["a", "b"], answer=1)
        model = SimpleNamespace(config=SimpleNamespace(n_positions=positions))
        assert sets.clozes(model, coder, [row]) == {"correct": [1], "commonest": [0], "book": ["a-b"]}
    assert seen == [1, 1, 3]  # branches " a x" have 4 tokens


def test_a_law_is_found_again():
    law = tables.Law(1.5, 20.0, 0.4, 300.0, 0.5)
    points = [(n, [[tokens, law(n, tokens)] for tokens in (2e5, 1e6, 4e6)]) for n in (1e4, 1e5, 1e6)]
    records = [SimpleNamespace(metrics={"parameters": n}, curves={"validation_loss": curve}) for n, curve in points]
    found = tables.fitted(records)
    assert found(3e5, 2e6) == pytest.approx(law(3e5, 2e6), rel=0.01)
    assert tables.fitted(records[:2]) is None  # six points for five numbers
