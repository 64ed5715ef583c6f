"""The reading guide's example: its counts are probabilities, and it goes from run to verdict."""

import pytest

from repro.errors import ReproError
from repro.papers import example
from repro.study import run


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    return tmp_path / "results"


def test_counts_are_probabilities_at_every_context():
    model = example.Counts(["a b a b c"], 2, ["a", "b", "c"])
    for before in ((), ("a",), ("b", "a"), ("c", "c")):
        assert sum(model.probability(before, word) for word in "abc") == pytest.approx(1)
    assert model.probability((), "a") == pytest.approx((2 + 5 / 3) / (5 + 5))
    assert model.probability(("a",), "b") > model.probability(("b",), "b")


def test_from_plan_to_verdict(store):
    plan = example.EXPERIMENT.plan("smoke", {"context": [0, 1], "train_books": 10})
    sets = {"context": [0, 1], "train_books": 10}
    first = run(plan[0], store, progress=False)
    cells = list(example.ARTIFACT.render("smoke", (), store, sets).content["perplexity per word"])
    assert cells == [f"{first.metrics['test_word_perplexity']:.2f}", "not run"]
    records = [first, run(plan[1], store, progress=False)]
    verdict = example.CLAIM.judge(records)
    assert verdict.verdict == "reproduced"
    assert verdict.low < verdict.effect < verdict.high < 0
    with pytest.raises(ReproError, match="two contexts"):
        example.CLAIM.judge(records[:1])
