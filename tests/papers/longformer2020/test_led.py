"""Summaries by LED, from a BART that restores damaged text to tables and verdicts, on a tiny corpus."""

import importlib
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer
from transformers import BartForConditionalGeneration, BertConfig, BertModel

from repro.data import Corpus, Split, corpus, registry, sources
from repro.data import example_readers as readers
from repro.data.examples import Summary
from repro.data.synthetic import NAMES
from repro.data.synthetic_articles import ARTICLES, RELATIONS
from repro.errors import ReproError
from repro.evaluation.summaries import rouge_n
from repro.models import LED, roberta_mini
from repro.models.pretrained import declared
from repro.papers.base import bart_mini
from repro.papers.base.bart_mini import damaged, from_encoder, new_model, paired
from repro.papers.longformer2020 import led, led_tables
from repro.study import artifact, claim, experiment, run


def coder_of(vocab_size, bos=0, sep=2, pad=1, **more):
    """Stands for a tokenizer with these ids, RoBERTa's unless given."""
    return SimpleNamespace(vocab_size=vocab_size, bos=bos, special={"sep": sep, "pad": pad}.get, **more)


TINY_BASE = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 34, "sequence": 32, "growing": (), "batch_size": 4,
             "tokens": 1_280, "validate_every": 1_280}
GENERATOR = replace(ARTICLES, n_paragraphs=4, n_facts=2, seed=5)
SIZES = {"train": 24, "validation": 5, "test": 6}


@pytest.fixture(scope="module")
def tiny(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BY_NAME, "tiny-articles", Corpus(
            "tiny-articles", "MIT", "embedded", {name: Split("", n_examples=n) for name, n in SIZES.items()},
            readers.generated[Summary], generator=GENERATOR))
        patch.setitem(bart_mini.SCALES, "smoke", bart_mini.SCALES["smoke"] | TINY_BASE)
        patch.setitem(led.SCALES, "smoke", led.SCALES["smoke"] | {
            "corpus": "tiny-articles", "epochs": 1, "batch_size": 4, "longest_summary": 5, "beam": 2})
        patch.setitem(led.LENGTHS, "smoke", (12, 30))
        plans = importlib.import_module("repro.study.experiment")
        patch.setattr(plans, "_plan", plans._plan.__wrapped__)  # or this plan would be kept for later tests
        plan = experiment("led-summarization").plan("smoke")
        yield SimpleNamespace(plan=plan, home=home, records=[run(one, progress=False) for one in plan])


def test_every_planned_run_scores_what_it_wrote_by_the_package(tiny):
    assert [(c.model, c.max_input) for c in tiny.plan] == [("led", 12), ("led", 30), ("lead", 30), ("oracle", 30)]
    rows = list(corpus("tiny-articles").examples("test"))
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    for config, record in zip(tiny.plan, tiny.records, strict=True):
        test, metrics = record.documents["test"], record.metrics
        for sample, row, *scores in zip(record.notes["samples"], rows, test["rouge1"], test["rougeL"], strict=False):
            want = scorer.score(row.summary, sample["told"])
            assert sample["wanted"] == row.summary
            assert scores == [want["rouge1"].fmeasure, want["rougeL"].fmeasure]
        for key in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
            assert len(test[key]) == 6 and len(record.documents["validation"][key]) == 5
            assert metrics[key] == pytest.approx(sum(test[key]) / 6)
            assert metrics[f"validation_{key}"] == pytest.approx(sum(record.documents["validation"][key]) / 5)
            assert ("other_" + key in metrics) is (config.model == "led")
    for record in tiny.records[:2]:  # the control is the summary of the text before
        told = [sample["told"] for sample in record.notes["samples"]]
        want = [scorer.score(row.summary, text)["rouge1"].fmeasure for row, text in zip(rows[1:3], told, strict=False)]
        assert record.documents["test"]["other_rouge1"][1:3] == want
    short, long = (record.metrics for record in tiny.records[:2])
    whole = [GENERATOR.best_rouge(row, f"{row.title} {row.document}")["rouge1"] for row in rows]
    blind = [GENERATOR.best_rouge(row, row.title)["rouge1"] for row in rows]
    assert sum(blind) / 6 <= short["best_rouge1"] < long["best_rouge1"] <= sum(whole) / 6
    assert short["tokens_read"] == 12 and short["test_cut"] == 6
    assert 12 < long["tokens_read"] <= 30 and long["parameters"] - short["parameters"] == 18 * 16


def test_the_extracts_are_the_first_sentences_and_those_of_the_facts(tiny):
    """A summary has five words, as a paragraph has, so that the lead is one. The oracle finds the facts."""
    lead, oracle = tiny.records[2:]
    for row, first, best in zip(corpus("tiny-articles").examples("test"), lead.notes["samples"],
                                oracle.notes["samples"], strict=False):
        paragraphs = row.document.split("\n")
        assert first["told"] == paragraphs[0]
        facts = [one for one in paragraphs if len(set(one.split()) & set(row.summary.split())) > 1]
        assert best["told"] == "\n".join(facts)
    assert oracle.metrics["rouge1"] > lead.metrics["rouge1"]


def test_tables_and_claims(tiny):
    shown = artifact("longformer2020-table11").render("smoke", ()).table
    ours = shown[shown["source"] == "smoke, tiny-articles"]
    assert list(ours["model"]).count("control: LED reads another text") == 2
    possible = [record.metrics["best_rouge1"] for record in tiny.records[:2]]
    shown_best = [cell.split()[0] for cell in ours["best possible R-1"] if cell != "–"]
    assert shown_best == [f"{100 * one:.1f}" for one in possible]
    assert float(ours["R-1"].iloc[0].split()[0]) == pytest.approx(100 * tiny.records[0].metrics["rouge1"], abs=0.06)
    assert list(shown["R-1"])[6] == "46.63"
    artifact("longformer2020-figure3").render("smoke", ())
    written = artifact("longformer2020-summaries").render("smoke", ()).table
    samples = [record.notes["samples"][0] for record in tiny.records]
    assert list(written["summary"]) == [samples[0]["wanted"], *(one["told"].replace("\n", " ") for one in samples)]
    assert list(written["writer"])[:3] == ["the reference", "LED, 12 tokens", "LED, 30 tokens"]
    for name in ("figure3-length", "table11-lead"):
        assert claim(f"longformer2020-{name}").verdict("smoke").verdict == "machinery works"
    assert claim("longformer2020-figure3-length").paper_effect() == pytest.approx((46.23 - 44.48 + 19.62 - 17.99) / 200)


def made(model, n, own, other):
    """A record of two texts whose ROUGE-1 and ROUGE-2 are these."""
    keys = {first + key: values for first, values in (("", own), ("other_", other)) for key in ("rouge1", "rouge2")}
    return SimpleNamespace(config={"model": model, "max_input": n}, documents={"test": keys})


def test_claims_by_hand():
    records = [made("led", 4, [.1, .2], [.1, .1]), made("led", 8, [.5, .6], [.1, .2]),
               made("led", 16, [.6, .8], [.3, .3])]
    found = led_tables.longer(records)  # the second step gains least
    np.testing.assert_allclose(found.effects, [[.1, .2]])
    np.testing.assert_allclose(found.control, [[.2, .1]])
    assert found.note == "the step from 8 to 16 tokens"
    lead = made("lead", 16, [.3, .1], [])
    found = led_tables.above_the_lead([*records, lead])
    np.testing.assert_allclose(found.effects, [[.3, .7]])
    np.testing.assert_allclose(found.control, [[0, .2]])
    assert led_tables.room([lead, made("oracle", 16, [.5, .5], [])]) == pytest.approx(.3)
    assert led_tables.reading(records) == pytest.approx(.4)


def test_the_best_possible_rouge_by_all_leads_that_could_be():
    """Every lead that a reader of the first two facts cannot rule out, against one that it may write."""
    articles = replace(ARTICLES, n_facts=3, n_values=2)
    row = articles.example("test", 0)
    values = row.summary.split()[2::2]
    seen = " ".join([row.title, *values[:2]])
    relations = RELATIONS[:3]
    leads = [" ".join([row.title, *(part for pair in zip(words, [*values[:2], last], strict=True) for part in pair)])
             for words in product(*(wordings for wordings, _ in relations)) for last in relations[-1][1][:2]]
    assert len(leads) == 16 and row.summary in leads
    for key, n in (("rouge1", 1), ("rouge2", 2)):
        scores = [rouge_n(wanted, leads[0], n) for wanted in leads]
        assert articles.best_rouge(row, seen)[key] == pytest.approx(sum(scores) / 16)
    nothing = articles.best_rouge(row)
    assert nothing["rouge1"] == pytest.approx((1 / len(NAMES) + 1.5 + 1.5) / 7)
    assert nothing["rouge2"] == pytest.approx((0.5 / len(NAMES) + 0.75 + 0.5) / 6)


def test_an_article_without_a_text_and_one_without_a_title():
    with pytest.raises(ReproError, match="document") as error:
        Summary("a", "title", "", "summary")
    assert "\n" not in str(error.value)
    part, *_ = sources.arxiv({"train": 1}).parts
    assert part.convert({"article": " \n", "abstract": "b"}) is None is part.convert({"article": "a", "abstract": ""})
    assert part.convert({"article": "a", "abstract": "b", "id": 3}) == {"article": "a", "abstract": "b"}
    coder = coder_of(99, encode=lambda text: np.array([len(part) for part in text.split("\n")]))
    untitled = Summary("a", "", "four", "b")
    assert led.encoded([untitled], coder, SimpleNamespace(max_input=9, longest_target=3))[0][0] == [0, 4, 2]


def test_the_plan_of_the_papers_scale():
    """The published large BART, at the lengths of Figure 3, with recomputation; its weights are as many as declared."""
    plan = experiment("led-summarization").plan("paper")
    models = [config for config in plan if config.model == "led"]
    assert [config.max_input for config in models] == [1_024, 4_096, 16_384]
    assert all(config.corpus == "arxiv" and config.recompute and config.window == 1_024 for config in models)
    base, = led.EXPERIMENT.needs(models[0])
    bart = declared("bart-large")
    assert base.source == "facebook/bart-large" and bart_mini.parameters(base, base.vocab_size) == bart.parameters
    short, *_, long = (led.estimate(config) for config in models)
    assert short.parameters == bart.parameters == long.parameters - 15 * 1_024 * 1_024
    assert long.flops > 5 * short.flops
    stored = led.estimate(models[2].model_copy(update={"recompute": False}))
    assert led.estimate(models[2]).memory_bytes < stored.memory_bytes / 4


def test_a_published_bart_is_taken_as_it_is(tmp_path, monkeypatch):
    config = bart_mini.EXPERIMENT.plan("paper")[0].model_copy(update={"source": str(tmp_path / "hub")})
    bart = new_model(SimpleNamespace(n_layer=1, n_embd=8, n_head=2, n_positions=6, embedding_std=0.02),
                     coder_of(11))
    bart.save_pretrained(tmp_path / "hub")
    monkeypatch.setattr(bart_mini, "new_tokeniser", lambda config: SimpleNamespace(fingerprint="f", vocab_size=11))
    found = bart_mini.execute(config, SimpleNamespace(folder=tmp_path))
    assert found.metrics == {"parameters": sum(one.numel() for one in bart.parameters())}
    again = BartForConditionalGeneration.from_pretrained(tmp_path / "model")
    assert all(torch.equal(one, two) for one, two in zip(again.parameters(), bart.parameters(), strict=True))


def test_only_embeddings_are_drawn_wider():
    small, wide = ({}, {})
    for std, found in ((0.02, small), (0.3, wide)):
        torch.manual_seed(0)
        found |= new_model(SimpleNamespace(n_layer=1, n_embd=8, n_head=2, n_positions=6, embedding_std=std),
                           coder_of(11)).state_dict()
    for name, weight in small.items():
        torch.testing.assert_close(wide[name], weight * (15 if "embed_" in name or "shared" in name or "head" in name
                                                         else 1), msg=name)


def test_texts_are_framed_and_cut(tiny):
    row = GENERATOR.example("test", 0)
    for marks in ({}, {"bos": 7, "sep": 8}):
        coder = coder_of(99, encode=lambda text: np.arange(4, 4 + len(text.split())), **marks)
        (ids, target, whole, n), = led.encoded([row], coder, SimpleNamespace(max_input=10, longest_target=3))
        assert ids == [coder.bos, *range(4, 12), coder.special("sep")]
        assert list(target) == [4, 5, 6] and not whole and n == 23


def test_damage_keeps_the_order_of_what_is_left_and_cuts_a_share_out():
    ids, draw = np.arange(10, 110), np.random.default_rng(0)
    found = damaged(ids, draw, 5, np.array([999]))
    left = found[found != 5]
    assert len(left) == 70 and (np.diff(left) > 0).all() and 0 < (found == 5).sum() < 30
    spans = np.flatnonzero(np.diff(left) > 1)
    assert {int(left[k + 1] - left[k] - 1) for k in spans} != {1}
    moved = damaged(np.array([7, 1, 8, 1, 9, 1] * 50), draw, 5, np.array([1]))
    assert set(moved.tolist()) == {1, 5, 7, 8, 9}
    whole = [7, 8, 9, 1, 4, 6, 1]
    shares = bart_mini.SHARE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bart_mini, "SHARE", 0.0)
        orders = {tuple(damaged(np.array(whole), np.random.default_rng(k), 5, np.array([1])).tolist())
                  for k in range(20)}
    assert orders == {(7, 8, 9, 1, 4, 6, 1), (4, 6, 1, 7, 8, 9, 1)} and bart_mini.SHARE == shares
    batch = paired(np.arange(10, 26).reshape(2, 8), 5, np.array([999]), draw)
    assert batch["ids"][:, 0].tolist() == [2, 2] and batch["labels"][1].tolist() == [*range(18, 26), 2]
    assert batch["source"][0, 0] == 0 and batch["source"][0, batch["lengths"][0] - 1] == 2
    batch = paired(np.arange(10, 26).reshape(2, 8), 5, np.array([999]), draw, (7, 6))
    assert batch["ids"][:, 0].tolist() == [6, 6] and batch["labels"][0].tolist() == [*range(10, 18), 6]
    assert batch["source"][0, 0] == 7 and batch["source"][0, batch["lengths"][0] - 1] == 6


def test_layers_of_a_roberta_are_those_of_the_encoder(shake):
    """The encoder gives the states of RoBERTa's first layers; only the attention across is its own."""
    roberta = shake(roberta_mini(3, 16, 2, 31, 20)).eval()
    config = SimpleNamespace(n_layer=2, n_embd=16, n_head=2, n_positions=18, embedding_std=0.02)
    bart, fresh = (shake(new_model(config, coder_of(31)), 2).eval() for _ in range(2))
    from_encoder(bart, roberta)
    ids = torch.randint(4, 31, (2, 15), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want = roberta(ids, output_hidden_states=True).hidden_states[2]
        torch.testing.assert_close(bart.model.encoder(ids).last_hidden_state, want, atol=1e-5, rtol=1e-5)
    for one, other in zip(bart.model.decoder.layers, fresh.model.decoder.layers, strict=True):
        assert torch.equal(one.encoder_attn.q_proj.weight, other.encoder_attn.q_proj.weight)
        assert not torch.equal(one.fc1.weight, other.fc1.weight)
    assert torch.equal(bart.lm_head.weight, roberta.roberta.embeddings.word_embeddings.weight)
    assert sum(one.numel() for one in bart.parameters()) == bart_mini.parameters(config, 31)


def test_an_led_reads_pairs_as_it_reads_padded_texts(shake):
    config = SimpleNamespace(n_layer=1, n_embd=16, n_head=2, n_positions=18, embedding_std=0.02)
    model = LED.from_bart(shake(new_model(config, coder_of(31))), 40, 4).eval()
    source, ids = torch.randint(4, 31, (2, 9)), torch.tensor([[2, 5, 6], [2, 7, 8]])
    lengths = torch.tensor([9, 5])
    found = bart_mini.in_pairs(model)(source, lengths, ids)
    alone = model(source[1:, :5], decoder_input_ids=ids[1:]).logits
    torch.testing.assert_close(found[1:], alone, atol=1e-5, rtol=1e-5)


def test_an_encoder_decoder_starts_from_a_bert_on_both_sides(shake):
    """The encoder gives the states of BERT; start and end of summaries are BERT's own tokens."""
    bert = shake(BertModel(BertConfig(vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                      intermediate_size=64, max_position_embeddings=20, layer_norm_eps=1e-5))).eval()
    config = SimpleNamespace(n_layer=2, n_embd=16, n_head=2, n_positions=20, embedding_std=0.02)
    bart = shake(new_model(config, coder_of(31, bos=5, sep=6, pad=0)), 2).eval()
    from_encoder(bart, bert)
    ids = torch.randint(7, 31, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        want = bert(ids).last_hidden_state
        torch.testing.assert_close(bart.model.encoder(ids).last_hidden_state, want, atol=1e-5, rtol=1e-5)
        model = LED.from_bart(bart, 64, 40)
        torch.testing.assert_close(model.led.encoder(ids, global_attention_mask=torch.zeros_like(ids))[0], want,
                                   atol=1e-5, rtol=1e-5)
        rows = bert.embeddings.position_embeddings.weight + bert.embeddings.token_type_embeddings.weight[0]
        assert torch.equal(bart.model.decoder.embed_positions.weight[2:], rows)
        told = model.generate(ids, num_beams=2, max_new_tokens=4)
    assert (told[:, 0] == 6).all() and set(told[:, -1].tolist()) <= {0, 6}


def test_the_plan_of_the_pretrained_base():
    """Two core hours at most; MiniLM's tokenizer; layers from the run that leaves it."""
    base, = experiment("pretrain-bart-mini").plan("pretrained")
    before, = bart_mini.base_runs(base)
    assert (before.source, before.n_layer, before.n_embd, before.vocab_size) == (
        "minilm-l6", base.n_layer, base.n_embd, base.vocab_size)
    assert experiment("pretrain-bart-mini").estimate(base).seconds < 2 * 3_600
    plan = experiment("led-summarization").plan("pretrained")
    assert [config.max_input for config in plan if config.model == "led"] == [256, 1_024, 4_096]
    assert {config.corpus for config in plan} == {"scisummnet-subset"} and led.base_of(plan[0]) == base
    with pytest.raises(ReproError, match="tokeniser is encoder, but its layers start from scratch"):
        experiment("pretrain-bart-mini").plan("pretrained", {"starts": "scratch"})


def test_bases_are_compared_above_the_first_sentences(tiny, tmp_path):
    shown = artifact("longformer2020-led-bases").render("smoke", ()).table
    row = shown.iloc[-1]
    led_scores, lead_scores = (np.mean([record.documents["validation"][key] for key in ("rouge1", "rouge2")])
                               for record in (tiny.records[1], tiny.records[2]))
    assert row["scale"] == "smoke" and row["tokens read"] == "30"
    assert float(row["LED"].split()[0]) == pytest.approx(100 * led_scores, abs=0.06)
    assert float(row["the first sentences"].split()[0]) == pytest.approx(100 * lead_scores, abs=0.06)
    assert float(row["difference"].split()[0]) == pytest.approx(100 * (led_scores - lead_scores), abs=0.06)
    empty = artifact("longformer2020-led-bases").render("small", ("pretrained",), tmp_path).table
    assert set(empty["difference"]) == {"not run"} and len(set(empty["base"])) == 2
    assert list(empty["tokens read"]) == ["256", "1,024", "4,096"] * 2


def test_lengths_are_compared_at_the_same_seeds(tiny, tmp_path):
    """The shorter input at seeds 0 and 1, the longer one at seed 1: both rows, and the figure, show seed 1 alone."""
    short, long = (config for config in tiny.plan if config.model == "led")
    other, _, longer = (run(config.model_copy(update={"seed": seed}), tmp_path, progress=False)
                        for config, seed in ((short, 1), (short, 0), (long, 1)))
    shown = artifact("longformer2020-table11").render("smoke", (), tmp_path).table
    ours = shown[shown["model"] == "LED"]
    assert list(ours["seeds"]) == ["1", "1"]
    for cell, record in zip(ours["R-1"], (other, longer), strict=True):
        assert float(cell.split()[0]) == pytest.approx(100 * record.metrics["rouge1"], abs=0.06)
    drawn = artifact("longformer2020-figure3").render("smoke", (), tmp_path).as_csv()
    for record in (other, longer):
        assert f"{100 * record.metrics['validation_rouge1']:.4f}"[:6] in drawn


@pytest.mark.parametrize("scale", ["smoke", "small", "pretrained"])
def test_estimates(scale):
    for config in experiment("led-summarization").plan(scale):
        found = experiment("led-summarization").estimate(config)
        assert (found.flops > 0) is (config.model == "led")
    base, = experiment("pretrain-bart-mini").plan(scale)
    assert experiment("pretrain-bart-mini").estimate(base).seconds > 0
    assert [one.experiment for one in bart_mini.base_runs(base)] == ["pretrain-roberta-mini"] * (scale != "smoke")
