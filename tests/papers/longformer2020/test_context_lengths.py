"""Table 6: counts of texts whose words are known, each kind's context, and the verdicts from distances by hand."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from repro import paths
from repro.data import corpus, tokeniser
from repro.data.examples import LabelledText, MultipleChoice, Paragraph, Question
from repro.errors import ReproError
from repro.papers.longformer2020 import context_lengths
from repro.papers.longformer2020.claims import off_by, share_off
from repro.papers.longformer2020.context_lengths import contexts
from repro.study import artifact, claim, experiment, run


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    return tmp_path / "results"


def test_counts_of_generated_texts(results):
    """Every word of generated texts is one token, and no punctuation is one with it."""
    plan = experiment("context-lengths").plan("smoke")
    assert [config.corpus for config in plan] == ["synthetic-documents", "synthetic-hops"]
    for config in plan:
        record = run(config, results, progress=False)
        rows = list(corpus(config.corpus).examples(config.splits[0]))
        lengths = [sum(len(text.split()) for text in contexts(row)) for row in rows]
        assert record.documents["all"]["wordpieces"] == lengths
        assert record.metrics["average_wordpieces"] == pytest.approx(sum(lengths) / len(lengths))
        assert record.metrics["texts"] == len(rows)
    shown = artifact("longformer2020-table6").render("smoke", also=(), results=results).table
    assert shown["source"].tolist() == ["the paper"] * 6 + ["this study, smoke"] * 2
    assert "not run" not in shown.to_string()


class Words:
    """A tokenizer by blanks."""

    fingerprint = "words"

    def encode(self, text):
        return text.split()


def counted(monkeypatch, rows, splits=("test",)):
    """The outcome for these rows of a corpus, told apart by split."""
    bar = SimpleNamespace(advance=lambda n: None)
    monkeypatch.setattr("repro.data.corpus", lambda name: SimpleNamespace(examples=rows.get))
    monkeypatch.setattr("repro.data.tokeniser", lambda name, corpus: Words())
    config = SimpleNamespace(corpus="tiny", splits=splits, tokeniser="word")
    return context_lengths.execute(config, SimpleNamespace(progress=lambda *_: nullcontext(bar)))


def test_average_percentile_and_share(monkeypatch):
    """Lengths 1 to 20, and 600 once: 20 of 21 texts have at most 20 words, and one has more than 512."""
    rows = [LabelledText(str(n), " ".join(["rain"] * n), 0) for n in (*range(1, 21), 600)]
    found = counted(monkeypatch, {"train": rows[:9], "test": rows[9:]}, ("train", "test"))
    assert found.metrics == pytest.approx({"average_wordpieces": 810 / 21, "percentile95_wordpieces": 20,
                                           "percent_above_512": 100 / 21, "texts": 21})
    assert counted(monkeypatch, {"test": rows[:20]}).metrics["percent_above_512"] == 0
    limit = [LabelledText(str(n), " ".join(["rain"] * n), 0) for n in (512, 513)]
    assert counted(monkeypatch, {"test": limit}).metrics["percent_above_512"] == 50, "512 tokens still fit"


def test_what_the_context_of_each_kind_is():
    question = Question("q", "who sang?", (Paragraph("A &amp; B", ("one two.", " three.")), Paragraph("C", ("four",))),
                        "four")
    assert list(contexts(question)) == ["A & B", "one two. three.", "C", "four"]
    assert list(contexts(MultipleChoice("m", "who?", ("a", "b"), 0, ("one two", "three")))) == ["one two", "three"]
    assert list(contexts(LabelledText("t", "good film", 1))) == ["good film"]
    with pytest.raises(ReproError, match="an example of kind 'cloze' has no context to count"):
        list(contexts(SimpleNamespace(kind="cloze")))


def test_a_split_without_examples(monkeypatch):
    with pytest.raises(ReproError, match="corpus tiny has no examples in test; choose other splits"):
        counted(monkeypatch, {"test": []})


def test_distances_from_the_printed_numbers():
    def record(**metrics):
        return [SimpleNamespace(metrics=metrics)]

    measure = off_by("IMDB", "average_wordpieces", "percentile95_wordpieces")
    for average, percentile, wanted in ((300, 705, 0), (303, 705, 0.01), (300, 634.5, 0.1), (270, 720, 0.1)):
        found = measure(record(average_wordpieces=average, percentile95_wordpieces=percentile)).effects
        assert found == [[pytest.approx(wanted)]]
    lengths = [512] * 87 + [513] * 13  # 13 % above, with a standard error of 3.363 points
    texts = [SimpleNamespace(documents={"all": {"wordpieces": lengths}})]
    assert share_off(512, 13.0)(texts).effects == [[0]]
    assert share_off(512, 16.0)(texts).effects == [[pytest.approx(3 / (1.96 * 3.363), rel=1e-3)]]


@pytest.mark.parametrize(("name", "small", "paper"), [
    ("longformer2020-table6-hyperpartisan", "hyperpartisan", "hyperpartisan"),
    ("longformer2020-table6-imdb", "imdb-subset", "imdb"), ("longformer2020-imdb-above-512", "imdb-subset", "imdb")])
def test_claims_read_one_run(name, small, paper):
    for scale, wanted in (("small", small), ("paper", paper)):
        one = claim(name)
        assert [config.corpus for config in one.plan(scale) if one.where(config)] == [wanted]


@pytest.mark.skipif(paths.data() is None, reason="needs real questions: set REPRO_DATA")
def test_pieces_are_gpt2s():
    row = next(iter(corpus("wikihop-sample").examples("train")))
    coder = tokeniser("gpt2")
    pieces = [coder.decode([int(one)]) for text in contexts(row) for one in coder.encode(text)]
    assert "".join(pieces) == "".join(row.paragraphs) and len(pieces) > sum(len(one.split()) for one in row.paragraphs)


def test_one_corpus_is_counted_with_its_own_splits():
    for scale, name in (("small", "hyperpartisan"), ("smoke", "synthetic-hops")):
        whole = [config for config in experiment("context-lengths").plan(scale) if config.corpus == name]
        assert experiment("context-lengths").plan(scale, {"corpus": name}) == whole and len(whole) == 1
    with pytest.raises(ReproError, match="unknown corpus 'litbank'. Known: "):
        experiment("context-lengths").plan("small", {"corpus": "litbank"})
