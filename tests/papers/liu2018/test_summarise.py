"""Long articles to short leads, from rows to the rendered tables and verdicts, on a tiny corpus."""

import importlib
import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.attention import products
from repro.data import examples, registry
from repro.data.base import Corpus, Split
from repro.data.example_readers import generated
from repro.data.extraction import METHODS
from repro.data.synthetic_articles import ARTICLES
from repro.errors import ReproError
from repro.models import tdmca
from repro.papers.liu2018 import claims as measures
from repro.papers.liu2018 import cost, extraction, summarise, tables
from repro.papers.liu2018.task import extracted, read
from repro.study import Store, artifact, claim, claims, experiment, run
from repro.study.published import printed_rows
from repro.training import Summaries

RESULTS = Path(__file__).parents[3] / "results"
TINY = replace(ARTICLES, n_paragraphs=4, n_facts=2, seed=5)
ROWS = [TINY.example("test", k) for k in range(12)]
forward = Summaries.forward


class Words:
    """Each word is a token."""

    bos = 0

    def encode(self, text):
        return np.array([hash(word) % 1000 + 1 for word in text.split()])


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    source = Corpus("tiny-articles", "MIT", "embedded", read=generated[examples.Summary], generator=TINY, splits={
        name: Split("", n_examples=n) for name, n in (("train", 32), ("validation", 6), ("test", 12))})
    monkeypatch.setitem(registry._BY_NAME, "tiny-articles", source)
    monkeypatch.setitem(summarise.SCALES, "smoke", summarise.SCALES["smoke"] | {
        "corpus": "tiny-articles", "n_embd": 8, "position_size": 4, "block": 4, "epochs": 1, "batch_size": 8,
        "n_summaries": 2})
    monkeypatch.setitem(extraction.EXPERIMENT.scales, "smoke", {"corpus": "tiny-articles"})
    monkeypatch.setitem(summarise.LENGTHS, "smoke", (11, 21, 21))
    monkeypatch.setitem(summarise.EXPERTS, "smoke", ((3, 21),))
    plans = importlib.import_module("repro.study.experiment")
    monkeypatch.setattr(plans, "_plan", plans._plan.__wrapped__)  # or this plan would be kept for later tests
    return tmp_path / "results"


def test_what_is_read_is_the_title_and_the_best_paragraphs_cut_at_l():
    for row in ROWS:
        texts = extracted(row, "cheating")
        assert texts[0] == row.title and sorted(texts[1:]) == sorted(row.document.split("\n"))
        told = set(row.summary.split())
        assert [len(told & set(text.split())) > 1 for text in texts[1:]] == [True, True, False, False]
        for length in (1, 6, 11, 20, 21):
            one, = read([row], Words(), "cheating", length, 3)
            assert one.source.tolist() == Words().encode(" ".join(texts))[:length].tolist()
            assert one.target.tolist() == Words().encode(row.summary)[:3].tolist()
            assert one.cut is (length < 21) and one.ended is (len(row.summary.split()) <= 3)
        assert [one.ended for n in (4, 5) for one in read([row], Words(), "cheating", 9, n)] == [False, True]


def test_an_input_longer_than_every_article_is_refused():
    with pytest.raises(ReproError, match="length is 22 tokens, but the longest article has only 21"):
        read(ROWS, Words(), "identity", 22, 3)


def test_every_planned_model_from_rows_to_tables_and_verdicts(tiny):
    plan = experiment("summarise").plan("smoke")
    assert [(c.model, c.length, c.n_experts, c.extractor) for c in plan] == [
        ("seq2seq", 11, 0, "tf-idf"), *((name, n, 0, "tf-idf") for n in (11, 21) for name in ("t-ed", "t-d", "t-dmca")),
        ("t-dmca", 21, 3, "tf-idf"), ("t-ed", 11, 0, "cheating"), ("t-ed", 11, 0, "identity")]
    records = {config: run(config, tiny, progress=False) for config in plan}
    for config, record in records.items():
        told, metrics = record.documents["test"], record.metrics
        assert metrics["test_log_perplexity"] == pytest.approx(sum(told["nats"]) / sum(told["tokens"]))
        assert metrics["other_log_perplexity"] == pytest.approx(sum(told["other"]) / sum(told["tokens"]))
        assert told["tokens"] == [6] * 12  # name, two facts, the end
        assert metrics["tokens_read"] == config.length and metrics["test_cut"] == 12 * (config.length < 21)
        assert [sample["wanted"] for sample in record.notes["samples"]] == [
            row.summary for row in map(lambda k: TINY.example("test", k), range(2))]
        assert 0 <= metrics["rouge_l"] <= 1 and ("most_used" in metrics) is (config.n_experts > 0)
        if config.length == 21:  # all is read: the wordings alone cannot be known
            assert metrics["best_log_perplexity"] == pytest.approx(2 * math.log(2) / 6)
        blind = (math.log(40) + 2 * math.log(2) + 2 * math.log(4)) / 6
        assert metrics["blind_log_perplexity"] == pytest.approx(blind)
    run(experiment("extract-leads").plan("smoke")[0], tiny, progress=False)
    shown = artifact("liu2018-table4").render("smoke", (), tiny).table
    assert list(shown["scale"]).count("the paper") == 6 and not (shown == "not run").any(axis=None)
    assert shown["log-perplexity"].iloc[:2].tolist() == ["5.04952", "2.46645"]
    assert artifact("liu2018-table3").render("smoke", (), tiny).table["extractor"].tolist()[5:] == [
        "cheating", "tf-idf", "identity"]
    told = artifact("liu2018-extraction-example").render("smoke", (), tiny).table
    assert told["method"].tolist() == ["the lead itself", *METHODS]
    assert told["words"].iloc[0] == TINY.example("test", 0).summary
    for name in ("liu2018-figure3", "liu2018-figure2", "liu2018-figure4", "liu2018-costs"):
        artifact(name).render("smoke", (), tiny)
    for one in claims():
        if one.id.startswith(("liu2018-table", "liu2018-figure")) and "smoke" in one.scales:
            found = one.verdict("smoke", tiny)
            assert found.verdict == "machinery works" and found.n_units == 12, one.id
    first = claim("liu2018-table4-experts").verdict("smoke", tiny)
    pair = [records[config].metrics for config in plan if (config.model, config.length) == ("t-dmca", 21)]
    assert first.effect == pytest.approx(pair[1]["test_log_perplexity"] - pair[0]["test_log_perplexity"])
    assert first.control == pytest.approx(pair[1]["other_log_perplexity"] - pair[0]["other_log_perplexity"])


@pytest.mark.parametrize("old", [False, True])
def test_a_lead_that_is_cut_has_no_end_unless_as_in_the_first_records(tiny, old, monkeypatch):
    """Leads of five words, three of which are read: an end behind them would be a fourth target."""
    seen = []
    monkeypatch.setattr(Summaries, "forward", lambda self, batch: seen.append(
        (batch["labels"].tolist(), self.balance_padding)) or forward(self, batch))
    config = experiment("summarise").plan("smoke", {
        "model": "t-ed", "optimizer": "adamw", "longest_target": 3, "end_cut_leads": old, "balance_padding": old,
        "extractor": "tf-idf", "n_experts": 0})[0]
    found = run(config, tiny, progress=False)
    assert found.documents["test"]["tokens"] == [3 + old] * 12
    assert {(row[-1] >= 0, padding) for rows, padding in seen for row in rows} == {(old, old)}
    assert ("end_cut_leads" in found.config) is not old  # a record that did so before holds nothing of it
    assert tables.leads_at_the_limit(SimpleNamespace(config=config.model_dump(), documents={
        "test": {"tokens": [4, 3, 4]}})) == "2 of 3"


def test_committed_runs_keep_their_cut_ends_and_other_scales_do_not():
    for scale in ("smoke", "small", "medium", "paper"):
        for one in experiment("summarise").plan(scale):
            assert one.end_cut_leads is one.balance_padding is (scale == "small")
    assert tables.cut_leads("small") == "4 of 80" and tables.cut_leads("small", "gpt2-mini") == "12 of 80"


def test_the_papers_effects_are_those_of_its_tables():
    wanted = {"liu2018-table4-seq2seq": 2.46645 - 5.04952, "liu2018-table4-one-text": 2.22216 - 2.46645,
              "liu2018-table4-compressed": 2.05159 - 2.22216, "liu2018-table4-experts": 1.92871 - 2.05159,
              "liu2018-figure3-longer-base": 2.22216 - 2.60,
              "liu2018-table3-tfidf": (4.80215 - 2.46645) / (4.80215 - 1.72975),
              "liu2018-table3-cheating-base": 1.72975 - 2.46645}
    assert {id: claim(id).paper_effect() for id in wanted} == pytest.approx(wanted)


@pytest.mark.parametrize("scale", ["smoke", "small", "medium", "paper"])
def test_every_scale_is_planned_and_estimated(scale):
    """Dry runs; each claim finds what it compares."""
    for config in experiment("summarise").plan(scale):
        told = summarise.estimate(config)
        assert told.parameters == summarise.weights(config, config.vocab_size or 80) > 0
        assert told.flops > 0 and told.seconds > 0
    for one in claims():
        if one.experiment == "summarise" and scale in one.scales:
            compared = [config for config in one.plan(scale) if one.where(config)]
            assert len(compared) == (3 if "tfidf" in one.id else 2), one.id
    from_base = [config for config in experiment("summarise").plan(scale) if config.model == "gpt2-mini"]
    assert len(from_base) == (5 if scale in ("small", "medium") else 0)
    assert all(config.length + config.longest_target < 1_024 for config in from_base)


def test_the_paper_scale_is_the_papers():
    plan = experiment("summarise").plan("paper")
    assert {(c.n_experts, c.length) for c in plan if c.n_experts} == {(128, 11_000), (256, 7_500)}
    one = plan[-1]
    assert (one.vocab_size, one.n_embd, one.n_head, one.n_layer) == (32_000, 512, 8, 6)
    assert (one.layers, one.block, one.beam, one.alpha) == ("LMLML", 256, 4, 0.6)


@pytest.mark.parametrize("change,told", [
    ({"n_experts": 2, "model": "t-d"}, "only t-dmca has experts"), ({"n_experts": 2, "k": 3}, "k is 3"),
    ({"n_head": 3}, "multiple of the heads"), ({"model": "seq2seq"}, "use adamw"), ({"length": 1}, "length is 1"),
    ({"vocab_size": 300}, "other tokenizers take none"), ({"model": "gpt2-mini"}, "with the tokeniser 'base'"),
    ({"tokeniser": "base"}, "no other model does"), ({"extractor": "tfidf"}, "unknown extractor 'tfidf'"),
    ({"n_experts": -1}, "n_experts is -1")])
def test_settings_that_do_not_fit_are_told_in_one_line(change, told):
    with pytest.raises(ReproError, match=told) as error:
        experiment("summarise").plan("smoke", {"model": "t-dmca", "length": 26, "optimizer": "muon"} | change)
    assert "\n" not in str(error.value)


def record(model="t-ed", extractor="tf-idf", nats=(), other=(), tokens=(2, 4), **config):
    """What a claim reads of a record."""
    told = {"nats": list(nats), "other": list(other), "tokens": list(tokens)}
    config = {"model": model, "extractor": extractor, "length": 500, "n_experts": 0} | config
    return SimpleNamespace(seed=config.get("seed"), config=config, documents={"test": told}, metrics={
        "test_log_perplexity": sum(nats) / sum(tokens), "other_log_perplexity": sum(other) / sum(tokens)})


def test_an_extractor_is_told_as_a_share_of_the_way_to_cheating():
    runs = [record(extractor="cheating", nats=(2, 4), other=(8, 9)), record(nats=(3, 6), other=(9, 9)),
            record(extractor="identity", nats=(6, 6), other=(9, 9))]
    found = claim("liu2018-table3-tfidf").measure(runs)
    assert found.effects.shape == (1, 2) and "1.000 nats" in found.note  # (12 - 6) / 6 tokens
    assert found.effects.mean() == pytest.approx((12 - 9) / 6) and found.control.mean() == 0
    for one in runs:
        one.metrics["test_log_perplexity"] = 1.0
    assert claim("liu2018-table3-tfidf").measure(runs).effects.mean() == pytest.approx(0.5 / 1e-3)


@pytest.mark.parametrize("name,model", [("cheating", "t-ed"), ("cheating-base", "gpt2-mini")])
def test_cheating_is_told_in_nats_so_that_it_is_no_rest_of_a_share(name, model):
    """Its number does not change with the beginning of the articles, on which the share of a search rests."""
    of = {"model": model, "scale": "small", "corpus": "scisummnet-subset"}
    runs = [record(extractor="cheating", nats=(2, 4), other=(8, 9), **of), record(nats=(3, 6), other=(9, 9), **of)]
    one = claim(f"liu2018-table3-{name}")
    assert {config.extractor for config in one.plan("small") if one.where(config)} == {"cheating", "tf-idf"}
    found = one.measure(runs)
    assert found.effects.mean() == pytest.approx((6 - 9) / 6) and found.control.mean() == pytest.approx(-1 / 6)
    assert one.assay.room(runs) == pytest.approx((17 - 6) / 6), "of the better reader, not of both together"


def test_what_is_read_is_the_assay():
    """Of the better reader, over its seeds: a model that reads nothing decides nothing."""
    runs = [record("t-d", nats=(6, 6), other=(8, 8)), record("t-d", nats=(6, 6), other=(7, 7)),
            record("t-ed", nats=(6, 6), other=(6, 7))]
    assert measures.reading(runs) == pytest.approx((4 + 2) / 2 / 6)
    deaf = [record(model, nats=(6 - k, 7 - k), other=(6 - k, 7 - k), length=length, seed=seed, scale="small",
                   corpus="scisummnet-subset")
            for seed in range(3) for k, (model, length) in enumerate((("t-ed", 500), ("t-d", 1_000)))]
    found = claim("liu2018-table4-one-text")
    assert found.judge(deaf, deaf).verdict == "not testable here"


def test_the_base_model_reads_on_in_its_own_context(tmp_path, monkeypatch):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2, n_positions=40, bos_token_id=0,
                               eos_token_id=0)).save_pretrained(tmp_path / "model")
    monkeypatch.setattr(summarise, "base_runs", lambda config: [SimpleNamespace(n_positions=40)])
    context = SimpleNamespace(need=lambda base: (None, tmp_path))
    config = SimpleNamespace(length=23, longest_target=16, precision="no", model="gpt2-mini")
    model = summarise.pretrained(config, context).eval()
    text = torch.tensor([[3, 4, 5, 0, 6, 7]])
    with torch.no_grad():
        told = model(text[:, :3], torch.tensor([3]), text[:, 3:])
        torch.testing.assert_close(told, model.decoder.model(text).logits[:, 3:])
    config.length = 24
    with pytest.raises(ReproError, match="exceeds the base model's context of 40"):
        summarise.pretrained(config, context)


def test_memory_is_what_a_longer_input_adds_and_the_longest_fits():
    assert cost.longest_that_fits(lambda n: 10 + n, 110) == pytest.approx(100, abs=2)
    assert cost.longest_that_fits(lambda n: 10 + n * n, 14) == 2
    with pytest.raises(ReproError, match="one token of input takes"):
        cost.longest_that_fits(lambda n: 10 + n, 10)
    config = {one.model: one for one in experiment("summarise-memory").plan("smoke")}["t-d"]
    weights = 16 * cost.parameters(config)
    short, long, longer = (cost.step_memory(config, n) for n in (64, 128, 192))
    assert weights < short < long < longer
    kept = 4 * config.n_head * config.n_layer  # of each pair the weight of attention
    text = [n + config.target + 1 for n in (64, 128, 192)]
    curvature = (longer - 2 * long + short) / (text[0]**2 - 2 * text[1]**2 + text[2]**2)
    assert kept <= curvature <= 1.6 * kept


def test_models_are_counted_with_the_same_code(monkeypatch):
    """Weights of attention that a step keeps, by hand: 24 tokens in rows of 8, two heads, blocks longer than the text.
    """
    for module in (products, tdmca):
        monkeypatch.setattr(module, "ROWS", 8)
    softmax, kept = torch.Tensor.softmax, []
    monkeypatch.setattr(torch.Tensor, "softmax", lambda x, *dim: kept.extend(
        [x.numel()] * torch.is_grad_enabled()) or softmax(x, *dim))
    plan = {one.model: one for one in experiment("summarise-memory").plan("smoke", {"target": 3})}
    ours = {"t-d": {"products": 6 * 24 * 24, "rows": 6 * 8 * (8 + 16 + 24)},  # six layers
            "t-dmca": {"products": 3 * 24 * 24 + 2 * 24 * (7 + 1),  # two layers of seven groups and its own
                       "rows": 3 * 8 * (8 + 16 + 24) + 2 * 8 * (2 + 5 + 7 + 3)}}
    for (model, counts), way in itertools.product(ours.items(), ("products", "rows")):
        cost.step_memory(plan[model], 20, way)  # and a separator, and a lead of three
        assert sum(kept) == 2 * counts[way], (model, way)
        kept.clear()


def test_the_committed_lengths_and_weights_are_what_the_claims_say():
    """Their rule asks only on which side of 1 they lie."""
    found = {one.model: Store.for_scale("small", RESULTS).seeds(one)[0].metrics
             for one in experiment("summarise-memory").plan("small")}
    for name, least, most in (("longest", 2.0, 2.4), ("longest_skipping", 2.4, 3.2)):
        assert least < found["t-dmca"][name] / found["t-d"][name] < most
        assert found["t-d"]["longest"] < found["t-d"]["longest_skipping"]
    assert 0.4 < found["t-d"]["parameters"] / found["t-ed"]["parameters"] < 0.6


def test_the_recurrent_model_of_the_paper_has_its_width():
    size = {(row["topic"], row["parameter"]): row["value"] for row in printed_rows("liu2018_settings")}
    width, layers = map(int, size["seq2seq-attention", "hidden size / layers"].split("/"))
    one, = (point for point in experiment("summarise").plan("paper") if point.model == "seq2seq")
    assert (one.n_embd, one.n_layer) == (width, layers) == (128, 2)
    assert summarise.model_config(one, 32_000).n_embd == 128


def test_experts_are_read_from_records_that_do_not_hold_them():
    assert tables.Settings({"model": "t-d"}).n_experts == 0


def test_what_is_counted_does_not_hang_on_what_ran_before():
    from repro.attention import patterns

    config = cost.EXPERIMENT.plan("smoke", {"model": "t-ed"})[0]
    patterns._check_apart.cache_clear()
    first, second = (cost.step_memory(config, 64) for _ in range(2))
    assert first == second
