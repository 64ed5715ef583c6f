"""The benchmark of writing at a tiny size: both ways write the same, and the ratio is that of their speeds."""

import torch

from repro.bench import generation, read


def test_both_ways_say_the_same_and_what_is_kept_is_read_once():
    seen = []
    for name, model in generation.decoders().items():
        model.embed.register_forward_hook(lambda module, given, out: seen.append(given[0].shape[1]))
        texts = torch.randint(4_096, (2, 9), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            told = [way(model, texts, 3) for way in (generation.kept, generation.again)]
        assert seen == [9, 1, 1, 1, 9, 10, 11, 12], name
        seen.clear()
        for one, other in zip(*told, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
        assert generation.timed(generation.kept, model, texts, 3) == 6
        seen.clear()


def test_its_record_holds_the_ratio_of_each_row(tmp_path, monkeypatch):
    monkeypatch.setattr(generation, "BEAMS", 1)
    generation.main(tmp_path / "found.json", inputs=(12,), tokens=2, rounds=1)
    found = read(tmp_path / "found.json")
    assert set(found["ratios"]) == {"T-D, 12 tokens read before", "T-DMCA, 12 tokens read before"}
    for row, ratio in found["ratios"].items():
        kept, again = (found["speeds"][f"{row}: {way}"]["tokens_per_second"] for way in ("kept", "read again"))
        assert ratio["measured"] == kept / again
