"""The table of what is not as in the paper, against the settings that runs are made with."""

from repro.papers.yoshida2020 import deviations
from repro.training import TrainConfig


def test_the_table_says_what_the_settings_are():
    table = deviations("small", "paper").set_index("choice")
    assert table.columns.tolist() == ["the paper says", "small", "paper"]
    small, paper = table["small"], table["paper"]
    for name, (ours, theirs) in {
            "window T, tokens": ("300, and also 64", "300"),
            "length of training": ("200 steps of 6,000 targets; in windows of 64 300 steps of 2,560", "2 epochs"),
            "training books": ("20, drawn at random by the seed", "1,250, the first by file name"),
            "tokens scored per book, from its start": ("validation 3,000, test 4,000",
                                                       "validation 15,000, test whole"),
            "sequences per step": ("1", "4"), "tokens between validations": ("500,000", "2,000,000"),
            "place of the module": ("index 1 counted from 0, block number 2",) * 2,
            "base model": ("our own, 6 layers of width 256", "openai-community/gpt2"),
            "dropout": ("none", "the checkpoint's, 0.1"), "warm-up, steps": ("20", "100"),
            "learning rate": ("the best of 0.0003, 0.001, 0.003 on validation text",
                              "the best of 3e-05, 0.0001, 0.0003 on validation text"),
            "short trainings to choose these": ("3 for a baseline, 9 for a recurrent model",
                                                "3 for a baseline, 3 for a recurrent model"),
            "precision": ("bf16 products", "single precision"),
            "weights that are kept": ("the best of all validations, no early stopping",) * 2}.items():
        assert (small[name], paper[name]) == (ours, theirs)
    assert small["articles"].startswith("wikitext-103 (part of WikiText-103: its training text is WikiText-2's")
    assert table["the paper says"]["optimizer"] == "Adam"
    assert small["learning rate of the module"].startswith("1 or 3 times the base model's")
    assert TrainConfig(1, 1.0).clip == 1.0 and "at 1" in small["clipping of the gradient's norm"]
    assert not any("\n" in cell for cell in table.to_numpy().ravel())
