"""The benchmark of training steps at a tiny size: the same model but for its pattern, and ratios to the dense one."""

import torch

from repro.attention import Causal, Fixed, Strided
from repro.bench import factorised, read


def test_the_models_differ_in_their_pattern_alone():
    found = factorised.models(30)
    assert [model.config.pattern for model in found.values()] == [Causal(), Fixed(5, 1), Strided(5)]
    assert len({model.config.parameters for model in found.values()}) == 1


def test_a_step_goes_backward_and_counts_its_targets():
    model = factorised.models(12)["strided"]
    seen = []
    model.output.weight.register_hook(lambda gradient: seen.append(gradient.abs().sum().item()))
    assert factorised.step(model, torch.arange(26).view(2, 13), "no") == 24
    assert len(seen) == 1 and seen[0] > 0 and model.output.weight.grad is None


def test_its_record_holds_the_ratio_of_each_pattern(tmp_path):
    factorised.main(tmp_path / "found.json", lengths=(16, 30), rounds=1)
    found = read(tmp_path / "found.json")
    rows = [f"{name} against dense, {n} bytes" for name in ("fixed", "strided") for n in (16, 30)]
    assert sorted(found["ratios"]) == sorted(rows)
    for row, ratio in found["ratios"].items():
        name, n = row.split()[0], row.split(", ")[1]
        one, dense = (found["speeds"][f"{which}, {n}"]["tokens_per_second"] for which in (name, "dense"))
        assert ratio["measured"] == one / dense and ratio["wanted"] is None
