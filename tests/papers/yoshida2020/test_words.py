"""A page of the embedded books, read by tiny models: the numbers, and the figure with and without the words."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from repro.cli import main
from repro.data import corpus, tokeniser, tokens
from repro.data.excerpts import digest, excerpt, excerpts
from repro.errors import ReproError
from repro.papers.yoshida2020.words import figure as words_figure
from repro.papers.yoshida2020.words.experiment import kinds, trained
from repro.papers.yoshida2020.words.figure import page_of, passage
from repro.study import Store, artifact, experiment
from repro.study.progress import Progress
from repro.study.settings import canonical

RESULTS = Path(__file__).parents[3] / "results"
EXPERIMENT = experiment("words-saved")
CONFIG = EXPERIMENT.plan("smoke", {"window": 20, "skip": 3, "windows": 2, "book": 1})[0]
PAGE = slice(60, 100)  # words: at smoke a word is a token


@pytest.fixture(scope="module")
def models(shake):
    import torch

    from repro.models import gpt2_mini
    from repro.recurrence import RecurrenceConfig, RecurrentLM

    torch.manual_seed(0)
    baseline = gpt2_mini(3, 16, 2, tokeniser("word", corpus="synthetic-books").vocab_size, 64)
    found = {"baseline": baseline, "recurrent": RecurrentLM(baseline.config, RecurrenceConfig(1, 12, 2))}
    return {name: shake(model, seed).eval() for seed, (name, model) in enumerate(found.items())}


@pytest.fixture(scope="module")
def context(models, tmp_path_factory):
    """A run's context whose fine-tuned models are these."""
    from repro.models import save_causal_lm

    folders = {name: tmp_path_factory.mktemp(name) for name in models}
    for name, model in models.items():
        save_causal_lm(model, folders[name] / "model")
    return SimpleNamespace(folder=None, progress=Progress(False), need=lambda run: (
        SimpleNamespace(id=f"{run.model}-{run.overlap}-{run.window}"), folders[run.model]))


@pytest.fixture(scope="module")
def record(context):
    outcome = EXPERIMENT.execute(CONFIG, context)
    return SimpleNamespace(metrics=outcome.metrics, documents=outcome.documents, notes=outcome.notes,
                           config=CONFIG.settings(), data={"name": CONFIG.corpus}, seed=0)


@pytest.fixture(scope="module")
def book():
    return corpus("synthetic-books").documents("test")[1].text


def test_the_models_are_those_of_the_tables_without_overlap():
    texts = ["pg19-subset", "wikitext-103"]
    for scale, corpora in (("smoke", ["synthetic-books"]), ("small", 2 * texts)):
        plan = EXPERIMENT.plan(scale)
        assert [config.corpus for config in plan] == corpora
        for config in plan:
            table = experiment("recurrence-matched" if config.window == 64 else
                               "recurrence-wikitext103" if "wiki" in config.corpus else "recurrence-pg19")
            behind = [need for run in table.plan(scale) for need in table.needs(run)]
            needs = EXPERIMENT.needs(config)
            assert [run.model for run in needs] == ["baseline", "recurrent"]
            assert all(run in behind and run.overlap == 0 and run.window == config.window for run in needs)
            assert needs[1].insert_layer == config.insert_layer == (0 if config.window == 64 else 1)
    assert [one.window * one.windows for one in EXPERIMENT.plan("small")] == [600, 600, 576, 576]
    assert trained(CONFIG.model_copy(update={"seed": 4}), "baseline").seed == 4
    assert trained(EXPERIMENT.plan("small", seeds=[2])[3], "recurrent").seed == 2
    first, = EXPERIMENT.plan("small", {"insert_layer": 0, "window": 300, "windows": 2, "corpus": "wikitext-103"})
    assert (trained(first, "recurrent").insert_layer, trained(first, "recurrent").window) == (0, 300)


def test_the_losses_of_a_page_are_those_of_the_whole_book(models, record):
    from repro.evaluation import score_documents
    from repro.recurrence import MaskedOut

    text = tokens("synthetic-books", "test", tokeniser("word", corpus="synthetic-books"))
    before = int(text.n_words[0])
    for name, model in {**models, "masked": MaskedOut(models["recurrent"])}.items():
        whole = score_documents(model, text, 20, 0)[0].target_nll[before:][PAGE]
        np.testing.assert_allclose(record.documents["page"][name], whole, atol=2e-5)


def test_a_record_has_numbers_and_places_and_no_text(record, book):
    page = record.documents["page"]
    assert [book[a:b] for a, b in zip(page["start"], page["stop"], strict=True)] == book.split()[PAGE]
    assert page["kind"] == corpus("synthetic-books").generator.kinds(book)[PAGE].tolist()
    assert page["window"] == 20 * [3] + 20 * [4]
    total = {name: sum(page[name]) for name in ("baseline", "recurrent", "masked")}
    assert record.metrics == {"words": 40, "saved": pytest.approx(total["baseline"] - total["recurrent"]),
                              "saved_masked": pytest.approx(total["baseline"] - total["masked"])}
    assert len({round(value, 6) for value in total.values()}) == 3
    told = canonical([record.documents, record.notes])
    assert record.notes["text"] == "test-1 of synthetic-books"
    assert not [word for word in set(book.split()[PAGE]) if len(word) > 4 and f'"{word}"' in told]


def test_the_page_is_drawn_from_the_corpus_with_the_mean_over_seeds(record, book):
    other = SimpleNamespace(**vars(record) | {"metrics": record.metrics | {"saved_masked": 0.0}, "documents": {
        "page": record.documents["page"] | {"recurrent": record.documents["page"]["baseline"]}}})
    page = page_of("small", [record, other])
    assert [word.text for word in page.words] == book.split()[PAGE]
    found = record.documents["page"]
    assert [word.saved for word in page.words] == pytest.approx(
        [(a - b) / 2 for a, b in zip(found["baseline"], found["recurrent"], strict=True)])
    assert "Text: test-1 of synthetic-books." in page.note and "REPRO_DATA" not in page.note


def test_where_the_text_is_not_here_or_another_there_are_dots(record, monkeypatch):
    found = corpus("synthetic-books")
    away = SimpleNamespace(available=lambda: False)
    changed = SimpleNamespace(available=lambda: True, name="x", joined=False,
                              documents=lambda split: [replace(one, text=one.text.swapcase())
                                                       for one in found.documents(split)])
    lengths = [b - a for a, b in zip(*(record.documents["page"][key] for key in ("start", "stop")), strict=True)]
    for source in (away, changed):
        monkeypatch.setattr("repro.data.corpus", lambda name, source=source: source)
        page = page_of("small", [record])
        assert [word.text for word in page.words] == ["·" * n for n in lengths]
        assert "Set REPRO_DATA" in page.note


def test_committed_pages_have_their_words_without_their_corpora(monkeypatch):
    """The words of records that are shown come with the package, and are those that were scored."""
    monkeypatch.delenv("REPRO_DATA", raising=False)
    seen = 0
    for config in EXPERIMENT.plan("small"):
        for one in Store.for_scale("small", RESULTS).seeds(config):
            page = page_of("small", [one])
            words = [word.text for word in page.words]
            assert "·" not in "".join(words) and "REPRO_DATA" not in page.note
            assert not any(set(word) & set(" \n\t") for word in words) and "" not in words
            text = excerpts()[one.notes["sha256"]]
            assert words == text["text"].split() and text["license"] == corpus(config.corpus).licence
            seen += 1
    assert seen


def test_an_excerpt_is_found_by_what_it_says():
    for key, kept in excerpts().items():
        written = kept["source"].startswith("written by a model")
        assert written or digest(kept["text"]) == key
        assert excerpt(key) == kept["text"]


def test_paragraphs_begin_after_an_empty_line():
    text = "One two.\n\nThree\nfour"
    page = {"start": [0, 4, 10, 16], "stop": [3, 8, 15, 20]}
    assert words_figure.words_in(text, page) == (["One", "two.", "Three", "four"], [False, False, True, False])


def test_a_text_that_runs_on_is_one_and_its_topic_is_that_of_the_articles_on_the_page():
    def documents(split, n=None):
        texts = {"test": ["\n\nsail " * 9, "\nmast Ann took her " * 9, "\nsail deck " * 9], "train": ["took " * 99]}
        return [SimpleNamespace(text=text, id=text[:4]) for text in texts[split]]

    source = SimpleNamespace(name="wiki", joined=True, generator=None, documents=documents)
    name, parts = passage(source, 0)
    assert (name, len(parts)) == ("the test text of wiki", 3)
    start = len(parts[0]) + 1
    places = np.array([(start, start + 4), (start + 5, start + 8), (start + 9, start + 13), (start + 14, start + 17)])
    assert kinds(SimpleNamespace(reference=None), source, parts, places) == ["topic", "name", "other", "pronoun"]
    inside = np.array([(7, 11), (start, start + 4)])  # the first article is on the page too
    assert kinds(SimpleNamespace(reference=None), source, parts, inside)[1] == "topic"
    with pytest.raises(ReproError, match="book is 1, but the test text of wiki has books 0 to 0"):
        passage(source, 1)


def test_what_cannot_be_read_is_refused(context):
    with pytest.raises(ReproError, match="corpus is text8-prefix, but models are fine-tuned on"):
        EXPERIMENT.plan("small", {"corpus": "text8-prefix"})
    far = CONFIG.model_copy(update={"skip": 1000})
    with pytest.raises(ReproError, match="the page ends at token 20,040, but test-1 of synthetic-books has"):
        EXPERIMENT.execute(far, context)


def test_without_records_the_figures_say_not_run_and_have_no_picture(tmp_path):
    for id in ("words-saved-book", "words-saved-article"):
        shown = artifact(id).render("smoke", results=tmp_path)
        assert '<p class="absent">not run</p>' in shown._repr_html_()
        assert "small: all not run: `repro run words-saved --scale small --results" in shown.caption
        with pytest.raises(ReproError, match=f"{id} is made of words and cannot be saved as a picture"):
            shown.png()
    told = CliRunner().invoke(main, ["show", "words-saved-book", "--results", str(tmp_path)]).stdout
    assert "This figure is made of words; see it in its chapter, 07_pg19." in told and "FILE.png" not in told
