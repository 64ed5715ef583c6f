"""The benchmark of encoders at a tiny size: that contenders do the same work, and what it makes of the speeds."""

import pytest
import torch

from repro.bench import encoders, read
from repro.models import roberta_mini

TINY = {"n_layer": 2, "width": 16, "heads": 2, "vocabulary": 90, "n": 64, "window": 8, "globals_": 3, "piece": 32,
        "batch_size": 2, "questions": 2, "windows": 2, "led_window": 16, "summary": 5, "beams": 2, "rounds": 1}


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
        f"64 tokens to 5, 2 beams: {encoders.OURS_LED} / {encoders.THEIRS_LED}": 1.0}
    assert len(wanted) == 8  # and two of the same call
    speed = {name: value["tokens_per_second"] for name, value in found["speeds"].items()}
    for name, ratio in found["ratios"].items():
        title, _, names = name.rpartition(": ")
        one, other = names.split(" / ")
        assert ratio["measured"] == speed[f"{title}: {one}"] / speed[f"{title}: {other}"]
