"""The benchmark of GPT at a tiny size: that all contenders do the same work, and what it makes of the speeds."""

import pytest
import torch

from repro.bench import gpt, read
from repro.models import GPT, GPTConfig, TaskModel

TINY = {"n_layer": 2, "width": 16, "heads": 2, "vocabulary": 300, "batch_size": 3, "length": 8, "steps": 2, "pairs": 12,
        "pairs_at_once": 4, "candidates": 3, "document": 20, "rounds": 1}


def fresh():
    torch.manual_seed(0)
    return GPT(GPTConfig(300, 512, 2, 16, 2))


def reading(monkeypatch):
    """Lists of the shapes of what models read, a list for each time that one is added."""
    seen, read_all = [], GPT._through

    def through(self, x, *rest, **named):
        seen[-1].append(tuple(x.shape[:2]))
        return read_all(self, x, *rest, **named)
    monkeypatch.setattr(GPT, "_through", through)
    return seen


def test_the_bare_loop_and_ours_end_in_the_same_weights(monkeypatch):
    models = []

    def kept():
        models.append(fresh())
        return models[-1]
    works = gpt.pretraining(kept, 3, 8, 3, "no")
    assert {name: work() for name, work in works.items()} == dict.fromkeys((gpt.TRAINER, gpt.LOOP, gpt.OURS), 72)
    _, bare, own, _ = models  # the first tells its size, the last is the Trainer's
    assert not torch.equal(own.places.weight[:8], fresh().places.weight[:8])
    for one, other in zip(bare.parameters(), own.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)


def test_all_read_the_same_pairs_and_differ_in_what_they_pad(monkeypatch):
    examples = [([[300, *[7] * n, 302]], n % 2) for n in (3, 30, 4, 29, 5, 28, 6, 27, 31, 8, 9, 10)]
    seen, tokens = reading(monkeypatch), {}
    for name, work in gpt.fine_tuning(fresh, examples, 4, "no").items():
        seen.append([])
        assert work() == 12
        assert sum(rows for rows, _ in seen[-1]) == 12
        tokens[name] = sum(rows * n for rows, n in seen[-1])
    assert tokens[gpt.LONGEST] == 12 * 33
    assert tokens[gpt.BUCKETS] == 4 * (8 + 29 + 33) < tokens[gpt.BATCHES] < tokens[gpt.LONGEST]


def test_pairs_without_the_real_ones_are_as_long(monkeypatch):
    from repro import data

    monkeypatch.setattr(type(data.corpus("rte")), "available", lambda self: False)
    examples, source = gpt.entailments(500, 300)
    lengths = sorted(len(example[0]) for example, _ in examples)
    assert source == "random" and 50 < lengths[250] < 65 and 110 < lengths[450] < 160
    made = TaskModel(fresh(), "entailment", 2)
    assert made(torch.tensor([examples[0][0]]), torch.tensor([[len(examples[0][0][0])]])).logits.shape == (1, 2)


@pytest.mark.parametrize("training", [True, False])
def test_a_document_is_read_once_or_for_each_candidate(monkeypatch, training):
    seen = reading(monkeypatch)
    for work in gpt.choosing(fresh, 300, 3, 20, "no", training).values():
        seen.append([])
        assert work() == 2
    assert seen == [[(6, 43)], [(2, 34), (6, 9)]]


def test_the_report_has_the_five_ratios(tmp_path, monkeypatch):
    threads = torch.get_num_threads()
    found = gpt.main(tmp_path / "gpt.json", **TINY)
    assert read(tmp_path / "gpt.json") == found and torch.get_num_threads() == threads
    speed = {name: value["tokens_per_second"] for name, value in found["speeds"].items()}
    wanted = {(gpt.OURS, gpt.TRAINER): 1.0, (gpt.OURS, gpt.LOOP): 0.95, (gpt.BUCKETS, gpt.LONGEST): 2.5,
              (gpt.BUCKETS, gpt.BATCHES): 1.5}
    for (one, other), bound in wanted.items():
        assert found["ratios"][f"{one} / {other}"] == {"measured": speed[one] / speed[other], "wanted": bound,
                                                       "bound": "at least"}
    for name in (gpt.TRAINED, gpt.SCORED):
        ratio = found["ratios"][f"{name}: {gpt.ONCE} / {gpt.EACH}"]
        assert ratio["measured"] == speed[f"{name}: {gpt.ONCE}"] / speed[f"{name}: {gpt.EACH}"]
        assert ratio["wanted"] == 3.0
    assert len(found["ratios"]) == 6
