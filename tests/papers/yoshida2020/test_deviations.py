"""The table of what is not as in the paper, against the settings that runs are made with."""

from repro.papers.yoshida2020 import deviations, finetuning
from repro.training import TrainConfig


def test_the_table_says_what_the_settings_are():
    table = deviations("small", "paper").set_index("choice")
    assert table.columns.tolist() == ["the paper says", "small", "paper"]
    small, paper = table["small"], table["paper"]
    for name, (ours, theirs) in {
            "window T, tokens": ("300", "300"), "length of training": ("1 epochs", "2 epochs"),
            "place of the module": ("index 2 counted from 0, the block number 3",
                                    "index 1 counted from 0, the block number 2"),
            "base model": ("our own, 4 layers of width 128", "openai-community/gpt2"),
            "dropout": ("none", "the checkpoint's, 0.1"), "warm-up, steps": ("20", "100"),
            "learning rate": ("the best of 0.001, 0.003, 0.01 on validation text",
                              "the best of 3e-05, 0.0001, 0.0003 on validation text"),
            "weights that are kept": ("the best of all validations, to the end",) * 2}.items():
        assert (small[name], paper[name]) == (ours, theirs)
    assert TrainConfig(1, 1.0).clip == 1.0 and "at 1" in small["clipping of the gradient's norm"]
    assert not any("\n" in cell for cell in table.to_numpy().ravel())


def test_it_follows_the_settings(monkeypatch):
    from repro.study.experiment import _plan

    monkeypatch.setitem(finetuning.SCALES, "small", finetuning.NEXT)
    monkeypatch.setitem(finetuning.SECOND, "small", finetuning.NEXT_SECOND)
    _plan.cache_clear()
    table = deviations("small").set_index("choice")["small"]
    _plan.cache_clear()
    assert table["window T, tokens"] == "300, and beside it 64"
    assert table["length of training"] == "200 steps of 6,000 targets"
    assert table["learning rate of the module"].startswith("1 or 3 times the base's")
    assert table["numbers"] == "bf16 in products"
    assert "zero" in table["its start"]
