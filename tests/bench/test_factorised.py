"""The benchmark of training steps: models as in Table 2, which differ in their pattern, and ratios to the dense one."""

import torch

from repro.attention import Causal, Fixed, Strided
from repro.bench import factorised, read
from repro.papers.sparse2019.settings import IMAGE, TEXT


def test_the_first_cases_are_the_models_of_table_2():
    keys = "length", "stride", "summary", "n_layer", "n_head", "n_embd"
    wanted = [tuple(values[key] for key in keys) for values in (IMAGE["small"], TEXT["small"])]
    assert list(factorised.CASES.values())[:2] == wanted
    assert all(f"{n:,} bytes" in name for name, (n, *_) in factorised.CASES.items())


def test_the_models_differ_in_their_pattern_alone():
    found = factorised.models(30, 6, 2, 2, 2, 16)
    assert [model.config.pattern for model in found.values()] == [Causal(), Fixed(6, 2), Strided(6)]
    assert len({model.config.parameters for model in found.values()}) == 1


def test_a_step_goes_backward_and_counts_its_targets():
    model = factorised.models(12, 4, 1, 1, 1, 8)["strided"]
    seen = []
    model.output.weight.register_hook(lambda gradient: seen.append(gradient.abs().sum().item()))
    assert factorised.step(model, torch.arange(26).view(2, 13), "no") == 24
    assert len(seen) == 1 and seen[0] > 0 and model.output.weight.grad is None


def test_its_record_holds_the_ratio_of_each_pattern(tmp_path):
    factorised.main(tmp_path / "found.json", {"a": (16, 4, 1, 1, 1, 8), "b": (30, 5, 2, 2, 2, 8)}, rounds=1)
    found = read(tmp_path / "found.json")
    rows = [f"{name} against dense, {case}" for name in ("fixed", "strided") for case in "ab"]
    assert sorted(found["ratios"]) == sorted(rows)
    for row, ratio in found["ratios"].items():
        name, case = row.split()[0], row.split(", ")[1]
        one, dense = (found["speeds"][f"{which}, {case}"]["tokens_per_second"] for which in (name, "dense"))
        assert ratio["measured"] == one / dense and ratio["wanted"] is None
