"""The benchmark of encoders at a tiny size: that contenders do the same work, and what it makes of the speeds."""

import json

import numpy as np
import pytest
import torch

from repro import evaluation
from repro.bench import encoders, read
from repro.models import Longformer, roberta_mini
from repro.paths import home

TINY = {"n_layer": 2, "width": 16, "heads": 2, "vocabulary": 90, "n": 64, "window": 8, "globals_": 3, "piece": 32,
        "batch_size": 2, "questions": 2, "windows": 2, "led_window": 16, "summary": 5, "beams": 2, "rounds": 1,
        "bert": {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8,
                 "vocab_size": 40, "max_position_embeddings": 16}, "bert_window": 4, "reviews": [3, 20, 4, 18],
        "annotated": (2, 9, 3)}


def fresh():
    torch.manual_seed(0)
    model = roberta_mini(2, 16, 2, 90, 32)
    for weight in model.parameters():
        weight.data.normal_(std=1.0)  # so that it matters who sees whom
    return model


@pytest.fixture
def losses(monkeypatch):
    """Contenders return the loss that they would go back from."""
    monkeypatch.setattr(encoders, "step", lambda loss, model, tokens, precision: loss)


@pytest.mark.parametrize("globals_", [0, 3])
def test_all_tell_the_same_tokens_of_a_long_text(losses, globals_):
    one, other, peer = (work() for work in encoders.long_texts(fresh, 64, 8, globals_, "no").values())
    torch.testing.assert_close(one, peer, rtol=0, atol=1e-4)
    torch.testing.assert_close(other, peer, rtol=0, atol=1e-4)


def test_global_tokens_count(losses):
    found = [encoders.long_texts(fresh, 64, 8, n, "no")[encoders.OURS]().item() for n in (0, 3)]
    assert abs(found[0] - found[1]) > 1e-3


def test_masked_tokens_are_those_of_the_labels(losses):
    one, peer = (work() for work in encoders.masked_tokens(fresh, 2, 32, "no").values())
    torch.testing.assert_close(one, peer, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("windows", "same"), [(1, True), (3, False)])
def test_readers_differ_in_what_comes_from_the_window_before(losses, windows, same):
    one, other = (work().item() for work in encoders.readers(fresh, 2, windows, 32, "no").values())
    assert (abs(one - other) < 1e-6) == same, (one, other)


def test_both_leds_learn_the_same_and_write_the_same(losses, monkeypatch):
    monkeypatch.setattr(encoders, "writing", lambda model, ids, first, summary, beams, precision: model.eval().generate(
        input_ids=ids, global_attention_mask=first, num_beams=beams, max_new_tokens=summary))
    trains, writes = encoders.summaries(2, 16, 2, 90, 64, 16, 5, 3, "no")
    one, peer = (work() for work in trains.values())
    torch.testing.assert_close(one, peer, rtol=0, atol=1e-5)
    assert torch.equal(*writes.values()) and writes[encoders.OURS_LED].shape == (1, 6)


def test_a_step_leaves_no_gradients_and_tells_its_tokens():
    model = fresh()
    assert encoders.step(lambda: model.lm_head.bias.sum(), model, 7, "no")() == 7
    assert all(weight.grad is None for weight in model.parameters())


def test_the_converted_bert_is_transformers(losses):
    one, peer = (work() for work in encoders.converted(TINY["bert"], 64, 4, "no").values())
    torch.testing.assert_close(one, peer, rtol=1e-4, atol=1e-5)


def test_batches_read_the_same_tokens_and_differ_in_padding(monkeypatch):
    seen, encode = [], Longformer.encode
    monkeypatch.setattr(encoders, "step", lambda loss, model, tokens, precision: lambda: (loss(), tokens)[1])
    monkeypatch.setattr(Longformer, "encode", lambda self, ids, *more: (seen.append(ids), encode(self, ids, *more))[1])
    works = encoders.classified(TINY["bert"], [3, 20, 4, 18], 2, 4, "no")
    padded = {}
    for name, work in works.items():
        seen.clear()
        assert work() == 45
        assert sorted(int((row > 0).sum()) for ids in seen for row in ids) == [3, 4, 18, 20]
        padded[name] = sum(ids.numel() for ids in seen)
    assert padded[encoders.BY_LENGTH] == 48 <= padded[encoders.SHUFFLED], "3 with 4 and 18 with 20"


def test_the_reviews_are_those_of_the_record():
    record, = (one for path in (home() / "results/small/context-lengths").glob("*.json")
               if (one := json.loads(path.read_text()))["config"]["corpus"] == "imdb-subset")
    n = len(encoders.REVIEWS)
    found = np.quantile(record["documents"]["all"]["wordpieces"], (np.arange(n) + 0.5) / n)
    assert found.round().astype(int).tolist() == list(encoders.REVIEWS)


def test_scored_clusters_have_the_sizes_that_are_asked_for(monkeypatch):
    given = []
    monkeypatch.setattr(evaluation, "coreference_scores", lambda *sides: given.extend(sides))
    assert encoders.coreference(3, 200, 50)() == 600
    gold, predicted = given
    assert len(gold) == len(predicted) == 3 and all(sum(map(len, one)) == 200 for one in gold)
    assert all(30 < len(one) <= 50 for one in gold)
    assert 0.85 < sum(len(cluster) for one in predicted for cluster in one) / 600 < 0.95


def test_the_report_has_all_bounds(tmp_path):
    threads = torch.get_num_threads()
    found = encoders.main(tmp_path / "encoders.json", **TINY)
    assert read(tmp_path / "encoders.json") == found and torch.get_num_threads() == threads
    wanted = {name: ratio["wanted"] for name, ratio in found["ratios"].items()}
    long, chosen = (f"64 tokens{more}: {encoders.OURS} / {encoders.THEIRS}" for more in ("", ", 3 global"))
    assert {name: bound for name, bound in wanted.items() if bound} == {
        long: 1.7, chosen: 1.7, f"32 tokens: {encoders.MASKED} / {encoders.LABELS}": 1.15,
        f"questions: {encoders.RECURRENT} / {encoders.DISJOINT}": 0.8,
        f"64 tokens, window 16, to 5: {encoders.OURS_LED} / {encoders.THEIRS_LED}": 1.5,
        f"64 tokens to 5, 2 beams: {encoders.OURS_LED} / {encoders.THEIRS_LED}": 1.0,
        f"64 tokens, BERT: {encoders.BODY} / {encoders.THEIR_BODY}": 1.7,
        f"reviews: {encoders.BY_LENGTH} / {encoders.SHUFFLED}": 1.5, "seconds to score 18 mentions": 1.0}
    assert len(wanted) == 11  # and two of the same call
    assert found["ratios"].pop("seconds to score 18 mentions")["bound"] == "at most"
    speed = {name: value["tokens_per_second"] for name, value in found["speeds"].items()}
    for name, ratio in found["ratios"].items():
        title, _, names = name.rpartition(": ")
        one, other = names.split(" / ")
        assert ratio["measured"] == speed[f"{title}: {one}"] / speed[f"{title}: {other}"]
