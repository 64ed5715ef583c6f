"""Classified documents, from corpus to table and verdict, on documents whose best possible accuracy is known."""

import importlib
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro import paths
from repro.data import Corpus, Split, corpus, registry
from repro.data import example_readers as readers
from repro.data.examples import LabelledText
from repro.data.synthetic_documents import SyntheticDocuments
from repro.errors import ReproError
from repro.models import Encoder
from repro.papers.longformer2020 import classification, classification_tables
from repro.study import artifact, claim, experiment, run

WHOLE, BEGINNING = 41, 13  # tokens: 40 words and <|endoftext|>; nothing in the first 12 words tells the label
TINY = {"corpus": "tiny-documents", "length": [WHOLE, BEGINNING], "n_embd": 16, "position_size": 4, "window": 8,
        "epochs": 4, "learning_rate": 1e-2}


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A folder for records, and short documents to tell apart."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    generator = SyntheticDocuments(n_words=40, far=12, n_cues=3, reliability=0.95)
    sizes = {"train": 400, "validation": 60, "test": 200}
    monkeypatch.setitem(registry._BY_NAME, "tiny-documents", Corpus(
        "tiny-documents", "MIT", "embedded", {name: Split("", n_examples=n) for name, n in sizes.items()},
        readers.generated[LabelledText], generator=generator, labels=("blame", "praise")))
    return tmp_path / "results"


def test_who_reads_whole_documents_tells_them_and_who_reads_their_beginning_guesses(tiny):
    plan = experiment("classify-documents").plan("smoke", TINY)
    whole, beginning = (run(config, tiny, progress=False) for config in plan[:2])
    assert (whole.config["length"], beginning.config["length"]) == (WHOLE, BEGINNING)
    best = 0.99275  # of the majority of its cues, by counting every case
    assert whole.metrics["test_best_accuracy"] == pytest.approx(best, abs=0.03)
    assert best - 0.15 < whole.metrics["test_accuracy"] <= 1
    assert beginning.metrics["test_best_accuracy"] == 0.5
    assert beginning.metrics["test_accuracy"] == pytest.approx(0.5, abs=0.12)
    assert (whole.metrics["tokens_read"], beginning.metrics["tokens_read"]) == (WHOLE, BEGINNING)
    assert (whole.metrics["test_cut"], beginning.metrics["test_cut"]) == (0, 200)
    # what is kept for each document is what the metrics were made of, and the weights are those of the best F1
    test = whole.documents["test"]
    assert len(test["label"]) == 200
    right = sum(label == told for label, told in zip(test["label"], test["prediction"], strict=True))
    assert whole.metrics["test_accuracy"] == right / 200
    chosen = max(value for _, value in whole.curves["validation_f1"])
    assert whole.metrics["validation_f1"] == whole.notes["chosen"]["f1"] == chosen
    assert [at for at, _ in whole.curves["validation_f1"]] == [400, 800, 1_200, 1_600]
    assert run(plan[1], tiny / "again", progress=False, force=True).digest == beginning.digest


def test_controls_read_nothing(tiny):
    plan = experiment("classify-documents").plan("smoke", TINY | {"model": ["majority", "positive"], "length": WHOLE})
    found = {config.model: run(config, tiny, progress=False) for config in plan}
    labels = [row.label for row in corpus("tiny-documents").examples("test")]
    train = [row.label for row in corpus("tiny-documents").examples("train")]
    share = sum(labels) / len(labels)
    common = int(2 * sum(train) > len(train))
    assert found["majority"].metrics["test_accuracy"] == pytest.approx(share if common else 1 - share)
    assert found["majority"].documents["test"]["prediction"] == [common] * 200
    assert found["positive"].metrics["test_accuracy"] == pytest.approx(share)
    assert found["positive"].metrics["test_f1"] == pytest.approx(2 * share / (1 + share))
    assert found["positive"].metrics["test_best_accuracy"] == 0.5


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_the_window_of_every_planned_model_changes_its_logits(scale):
    ids = torch.randint(100, (1, 70), generator=torch.Generator().manual_seed(0))
    for config in experiment("classify-documents").plan(scale, {"model": "encoder"}):
        told = []
        for window in (config.window, config.window + 2):
            torch.manual_seed(0)
            model = Encoder(classification.encoder_config(config.model_copy(update={"window": window}), 100)).eval()
            told.append(model(ids))
        assert not torch.allclose(*told, rtol=0, atol=1e-4)


@pytest.mark.skipif(paths.data() is None, reason="needs real articles: set REPRO_DATA")
def test_real_articles_from_rows_to_the_rendered_table(tmp_path, monkeypatch):
    """Every run that is planned at small, with a tiny model that is trained for one epoch."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    monkeypatch.setitem(classification.SCALES, "small", {
        "corpus": "hyperpartisan", "vocab_size": 300, "n_embd": 8, "position_size": 4, "window": 8, "epochs": 1,
        "batch_size": 32})
    monkeypatch.setitem(classification.LENGTHS, "small", (64, 32))
    plans = importlib.import_module("repro.study.experiment")
    monkeypatch.setattr(plans, "_plan", plans._plan.__wrapped__)  # or this plan would be kept for later tests
    plan = experiment("classify-documents").plan("small")
    found = {(record.model, record.config["length"]): record
             for record in (run(config, tmp_path / "results", progress=False) for config in plan)}
    labels = {split: [row.label for row in corpus("hyperpartisan").examples(split)] for split in ("validation", "test")}
    assert (len(labels["test"]), sum(labels["test"])) == (65, 27)
    for record in found.values():
        assert all(math.isfinite(value) for value in record.metrics.values())
        assert {split: told["label"] for split, told in record.documents.items()} == labels
        assert {split: len(told["prediction"]) for split, told in record.documents.items()} == {
            "validation": 64, "test": 65}
    assert [at for at, _ in found["encoder", 64].curves["validation_loss"]] == [544]  # 17 batches
    assert found["encoder", 64].metrics["tokens_read"] > found["encoder", 32].metrics["tokens_read"] > 31
    # who always finds the label has 27 hits and 38 false alarms; who never does has 38 of 65 right
    assert found["positive", 64].metrics["test_f1"] == 2 * 27 / (65 + 27)
    assert found["majority", 64].metrics["test_f1"] == 0
    assert found["majority", 64].metrics["test_accuracy"] == 38 / 65

    shown = artifact("longformer2020-table7-hyperpartisan").render("small", (), tmp_path / "results")
    assert "hyperpartisan (part of SemEval-2019 task 4: its 645 training articles" in shown.caption
    assert "and of small ones trained from scratch" in shown.caption
    ours = shown.table.iloc[2:]
    assert ours["tokens read"].tolist() == ["first 64, our BPE of 300", "first 32, our BPE of 300", *["nothing"] * 2]
    cut = [int(re.fullmatch(r"(\d+) of 65", told)[1]) for told in ours["cut"][:2]]
    assert 60 <= cut[0] <= cut[1] <= 65
    assert [told.split()[0] for told in ours["F1"][2:]] == ["0.0", "58.7"]
    assert not (ours == "not run").any(axis=None)
    told = claim("longformer2020-table7-length").verdict("small", tmp_path / "results")
    assert told.verdict == "open" and "1 of 3 seeds" in told.text
    assert (told.n_units, told.paper_effect) == (65, pytest.approx(0.074))


def test_a_corpus_of_other_than_two_labels_is_refused(tiny, monkeypatch):
    monkeypatch.setitem(registry._BY_NAME, "tiny-documents",
                        SimpleNamespace(**vars(corpus("tiny-documents")) | {"labels": ("a", "b", "c")}))
    config = experiment("classify-documents").config(
        experiment="classify-documents", scale="smoke", corpus="tiny-documents", length=5, tokeniser="word")
    with pytest.raises(ReproError, match="tiny-documents has 3 labels; this experiment needs exactly 2"):
        classification.execute(config, None)


@pytest.mark.parametrize(("sets", "told"), [
    ({"window": 33}, "window is 33 keys; it must be even"),
    ({"n_embd": 63}, "n_embd is 63 and n_head 2"),
    ({"length": 1}, "length is 1"),
    ({"n_layer": 1}, "n_layer is 1"),
    ({"tokeniser": "word"}, "tokeniser is word and vocab_size 4096; 'bpe' needs a size"),
    ({"vocab_size": None}, "tokeniser is bpe and vocab_size None"),
    ({"corpus": "hyperpartisn"}, "unknown corpus 'hyperpartisn'. Did you mean 'hyperpartisan'"),
])
def test_settings_that_cannot_be(sets, told):
    with pytest.raises(ReproError, match=told):
        experiment("classify-documents").plan("small", sets)


def record(length, seed, predictions, labels=(1, 0) * 20, model="encoder"):
    return SimpleNamespace(config={"length": length, "model": model}, seed=seed, scale="small", id=f"{length}-{seed}",
                           documents={"test": {"label": list(labels), "prediction": list(predictions)}})


RIGHT, WRONG, ALMOST = (1, 0) * 20, (0, 1) * 20, (1, 0) * 19 + (0, 1)


def judged(whole, beginning):
    """The claim on runs that read 9 tokens and 3, their predictions seed by seed."""
    return claim("longformer2020-table7-length").judge(
        [record(length, seed, told) for length, side in ((9, whole), (3, beginning)) for seed, told in enumerate(side)])


def test_the_verdict_is_on_the_difference_in_f1_over_seeds_and_documents():
    better = judged((RIGHT, ALMOST, RIGHT), (WRONG,) * 3)
    assert better.effect == pytest.approx((1 + 0.95 + 1) / 3)
    assert better.low < better.effect < better.high and better.n_units == 40
    assert better.paper_effect == pytest.approx(0.074)
    assert " in F1 (0 to 1)" in better.text
    worse = judged((WRONG,) * 3, (RIGHT,) * 3)
    assert (worse.verdict, worse.effect) == ("not reproduced", -1)
    torn = judged((RIGHT, WRONG, ALMOST), (ALMOST,) * 3)
    assert torn.verdict == "not testable here" and torn.detectable > 0.5
    assert "the paper's would be 0.074 here" in torn.text
    assert judged((RIGHT,) * 2, (WRONG,) * 2).verdict == "open"


def test_documents_spread_as_f1_does_when_they_are_drawn_again():
    """Against the bootstrap of F1 itself."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 200)
    ours, theirs = (np.where(rng.random(200) < share, labels, 1 - labels) for share in (0.8, 0.7))
    found = classification_tables.whole_or_beginning([record(9, 0, ours, labels), record(3, 0, theirs, labels)]).effects

    def f1(told, drawn):
        return 2 * (told & labels)[drawn].sum() / (told + labels)[drawn].sum()
    again = [f1(ours, drawn) - f1(theirs, drawn) for drawn in rng.integers(200, size=(4000, 200))]
    assert found.mean() == pytest.approx(f1(ours, slice(None)) - f1(theirs, slice(None)))
    assert found.std(ddof=1) / 200**0.5 == pytest.approx(np.std(again), rel=0.05)


def test_the_table_has_the_papers_rows_beside_ours(tiny):
    shown = artifact("longformer2020-table7-hyperpartisan").render("smoke", (), tiny)
    assert shown.table.iloc[:2][["model", "tokens read", "F1"]].to_numpy().tolist() == [
        ["RoBERTa-base, pretrained", "first 512, RoBERTa's BPE", "87.4"],
        ["Longformer-base, pretrained", "first 4,096, RoBERTa's BPE", "94.8"]]
    assert shown.table["F1"].tolist()[2:] == ["not run"] * 4
    assert shown.table["tokens read"].tolist()[2:] == ["first 513, words", "first 129, words", "nothing", "nothing"]
    assert shown.table["cut"].tolist() == ["–", "–", "not run", "not run", "–", "–"]
    control = experiment("classify-documents").plan("smoke")[3]
    assert run(control, tiny, progress=False).metrics["test_best_accuracy"] == 0.5
    last = artifact("longformer2020-table7-hyperpartisan").render("smoke", (), tiny).table.iloc[-1]
    labels = [row.label for row in corpus("synthetic-documents").examples("test")]
    share = sum(labels) / len(labels)
    assert last["F1"].startswith(f"{200 * share / (1 + share):.1f} [")
    assert (last["best possible accuracy"], last["seeds"]) == ("50.0", "1")


def test_the_claim_is_judged_by_the_models_that_read(tiny):
    found = claim("longformer2020-table7-length")
    assert [(config.model, config.length) for config, _ in found.records("smoke", tiny)] == [
        ("encoder", 513), ("encoder", 129)]
    assert found.chapter == "20_classification_and_coreference"


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_estimates_are_those_of_the_models(scale):
    told = [classification.estimate(config) for config in experiment("classify-documents").plan(scale)]
    assert told[0].flops > told[1].flops > told[2].flops == 0
    assert all(json.dumps(vars(one), allow_nan=False) for one in told)
    assert max(one.seconds for one in told) < {"smoke": 60, "small": 90}[scale]
