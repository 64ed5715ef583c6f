"""The tasks of GPT: which rows, in which order, with which label; and those that are fetched."""

import os

import pyarrow.parquet
import pytest

from repro.data import corpora, corpus, fetch, root, sources, task
from repro.data.examples import LabelledText, MultipleChoice, Paragraph, Question, Summary
from repro.data.tasks import TASKS
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")

# task: (file, split of the file to train on, to test on, rows to train on, to test on, columns of texts, of the label)
FILES = {
    "cola": ("cola", "train", "dev", 8_551, 1_043, ("text",), "label"),
    "sst2": ("sst2", "train", "test", 5_000, 872, ("text",), "label"),
    "mrpc": ("mrpc", "train", "test", 4_076, 1_725, ("sentence1", "sentence2"), "label"),
    "stsb": ("stsb", "train", "test", 5_749, 1_379, ("sentence1", "sentence2"), "score"),
    "rte": ("rte", "train", "dev", 2_490, 277, ("sentence1", "sentence2"), "label"),
    "sick": ("sick", "train", "test", 4_500, 4_927, ("sentence1", "sentence2"), "label"),
    "openbookqa": ("openbookqa", "train", "test", 4_957, 500, ("question", "choices"), "label"),
    "race": ("race", "train", "test", 1_000, 600, ("article", "question", "options"), "label"),
}


def texts(row):
    if isinstance(row, LabelledText):
        return (row.text,) if row.pair is None else (row.text, row.pair)
    return (*row.paragraphs, row.question, list(row.candidates))


@real
@pytest.mark.parametrize("name", FILES)
def test_rows_are_those_of_the_file_in_its_order(name):
    file, train, test, n_train, n_test, columns, label = FILES[name]
    table = pyarrow.parquet.read_table(root() / "gpt1-tasks" / f"{file}.parquet").to_pylist()
    one = task(name)
    for split, called, n in (("train", train, n_train), ("test", test, n_test)):
        rows = [row for row in table if row["split"] == called][:n]
        found = list(one.examples(split))
        assert len(found) == n == len(rows)
        assert [texts(row) for row in found] == [tuple(row[column] for column in columns) for row in rows]
        labels = [row.answer if hasattr(row, "answer") else row.label for row in found]
        assert [one.label_text(value) for value in labels] == [row[label] for row in rows]


@real
def test_gap_and_lambada_are_those_of_their_files():
    table = pyarrow.parquet.read_table(root() / "coref" / "gap.parquet").to_pylist()
    found = list(task("gap").examples("test"))
    assert [(row.id, row.a.text, row.is_a) for row in found] == [
        (row["id"], row["a"], row["a_coref"]) for row in table if row["split"] == "test"]
    passages = pyarrow.parquet.read_table(root() / "lambada" / "test.parquet").to_pylist()
    told = list(corpus("lambada-cased").examples("test"))
    assert [row.text for row in told] == [row["text_cased"].rstrip() for row in passages] and len(told) == 5_153


@real
def test_other_numbers_of_rows():
    assert len(list(task("sst2").examples("train", 20_000))) == 20_000
    assert [row.id for row in task("sst2").examples("train", 500)] == [f"train-{k}" for k in range(500)]
    with pytest.raises(ReproError, match="20,001 rows of task sst2, train: sst2-subset has only 20,000 in train"):
        list(task("sst2").examples("train", 20_001))


@pytest.mark.parametrize("n", [0, -1])
def test_no_rows(n):
    with pytest.raises(ReproError, match=f"n is {n} rows of task cola; it must be a whole number"):
        list(task("cola").examples("train", n))


def test_unknown_tasks_and_splits():
    with pytest.raises(ReproError, match="unknown task 'sst-2'. Did you mean 'sst2'?"):
        task("sst-2")
    with pytest.raises(ReproError, match="unknown split of task rte 'dev'"):
        list(task("rte").examples("dev"))


def test_every_task_names_a_corpus_and_its_splits():
    for one in TASKS.values():
        assert {one.train, one.test} <= corpus(one.corpus).splits.keys()
    assert (task("race").n_train, task("race").n_test, task("sst2").n_train) == (1_000, 600, 5_000)


PAIRS = {
    "multinli": (sources.multinli, "premise", "hypothesis", "label", "validation_matched"),
    "qnli": (sources.qnli, "question", "sentence", "label", "validation"),
    "qqp": (sources.qqp, "question1", "question2", "label", "validation"),
    "snli": (sources.snli, "premise", "hypothesis", "label", "test"),
    "scitail": (sources.scitail, "sentence1", "sentence2", "gold_label", "test"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_that_are_fetched_are_what_is_read(tmp_path, monkeypatch, name):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    source, text, pair, label, split = PAIRS[name]
    labels = corpus(name).labels
    told = labels if name == "scitail" else range(len(labels))
    hub = {place: [{text: f"{place} {k}", pair: f"other {k}", label: told[k % len(labels)], "idx": k} for k in range(5)]
           for place in source().rows}
    hub[split] += [{text: "no label", pair: "a", label: "-" if name == "scitail" else -1},
                   {text: " ", pair: "a", label: told[0]}, {text: "a", pair: None, label: told[0]}]
    rows = {place: len(found) for place, found in hub.items()}
    fetch.fetch(name, tmp_path / name, source(rows, per_file=4), lambda split, skip: iter(hub[split][skip:]),
                progress=False)
    found = list(corpus(name).examples(split))
    assert found == [LabelledText(f"{split}-{k}", f"{split} {k}", k % len(labels), f"other {k}") for k in range(5)]
    assert set(corpus(name).splits) == set(rows)
    row = corpus(name).check()[-1]
    assert (row.what, row.ok) == ("files as they were fetched", True)


def test_translations_are_read_in_both_directions(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    hub = {split: [{"translation": {"en": f"{split} {k}", "fr": f"{split}, {k}"}} for k in range(5)]
           for split in sources.WMT14_ROWS}
    fetch.fetch("wmt14-en-fr", tmp_path / "wmt14", sources.wmt14(dict.fromkeys(hub, 5), per_file=4),
                lambda split, skip: iter(hub[split][skip:]), progress=False)
    for name, told, wanted in (("wmt14-en-fr", "test 4", "test, 4"), ("wmt14-fr-en", "test, 4", "test 4")):
        assert list(corpus(name).examples("test"))[4] == Summary("test-4", "", told, wanted)
        assert {split: one.n_examples for split, one in corpus(name).splits.items()} == {"validation": 3_000,
                                                                                       "test": 3_003}


def test_wikihop_is_read_as_questions_with_candidates(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    hub = {split: [{"id": f"{split}-{k}", "query": "country_of x", "answer": "b", "candidates": ["a", "b"],
                    "supports": ["one", "two"]} for k in range(5)] for split in sources.WIKIHOP_ROWS}
    fetch.fetch("wikihop", tmp_path / "wikihop", sources.wikihop(dict.fromkeys(hub, 5), per_file=4),
                lambda split, skip: iter(hub[split][skip:]), progress=False)
    found = list(corpus("wikihop").examples("validation"))
    assert found[4] == MultipleChoice("validation-4", "country_of x", ("a", "b"), 1, ("one", "two")) and len(found) == 5


def test_triviaqa_is_read_as_questions_on_documents(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    pages = {"doc_source": ["TagMe"] * 2, "filename": ["A.txt", "B.txt"], "title": ["A", "B"],
             "wiki_context": ["Ann ran.\n\nShe won.", "Ben saw Anna."]}
    answer = {"value": "Ann", "aliases": ["Anna", "Ann", "A. Lee"], "normalized_aliases": ["anna", "ann", "lee"],
              "normalized_value": "ann", "type": "WikipediaEntity", "matched_wiki_entity_name": ""}
    hub = {split: [{"question": f"Who ran {k}?", "question_id": f"{split}_{k}", "question_source": "http://x",
                    "entity_pages": pages, "search_results": {"title": []}, "answer": answer} for k in range(5)]
           for split in sources.TRIVIAQA_ROWS}
    fetch.fetch("triviaqa", tmp_path / "triviaqa", sources.triviaqa(dict.fromkeys(hub, 5), per_file=4),
                lambda split, skip: iter(hub[split][skip:]), progress=False)
    found = list(corpus("triviaqa").examples("train"))
    assert len(found) == 5 and found[4] == Question(
        "train_4", "Who ran 4?", (Paragraph("A", ("Ann ran.\n\nShe won.",)), Paragraph("B", ("Ben saw Anna.",))), "Ann",
        aliases=("Anna", "A. Lee"))
    assert sources.triviaqa().config == "rc.wikipedia"
    assert {split: part.n_examples for split, part in corpus("triviaqa").splits.items()} == sources.TRIVIAQA_ROWS
    hub["train"][2] = hub["train"][2] | {"entity_pages": pages | {"title": ["A"]}}
    fetch.fetch("triviaqa", tmp_path / "other" / "triviaqa", sources.triviaqa(dict.fromkeys(hub, 5), per_file=4),
                lambda split, skip: iter(hub[split][skip:]), progress=False)
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "other"))
    with pytest.raises(ReproError, match="triviaqa, train, row train_2: field documents has 2 texts for 1 titles"):
        list(corpus("triviaqa").examples("train"))


def test_published_sizes():
    sizes = {name: {split: part.n_examples for split, part in corpus(name).splits.items()} for name in PAIRS}
    assert sizes["multinli"] == {"train": 392_702, "validation_matched": 9_815, "validation_mismatched": 9_832}
    assert sizes["qnli"]["train"] == 104_743
    assert sizes["scitail"] == {"train": 23_596, "validation": 1_304, "test": 2_126}
    assert sum(one.origin().rows["train"] for one in corpora() if one.name in ("snli", "qqp")) == 550_152 + 363_846


@real
def test_wikitext_with_its_unknown_words():
    whole, raw = corpus("wikitext-103-unk"), corpus("wikitext-103")
    for split, n in (("validation", 1_657), ("test", 2_492)):
        words = [word for one in whole.documents(split) for word in raw.normalise(one.text, split).split()]
        plain = [word for one in raw.documents(split) for word in one.text.split()]
        assert words.count("<unk>") == n
        assert all(word == other or word == "<unk>" for word, other in zip(words, plain, strict=True))
        assert len(whole.documents(split)) == 60
    assert all(row.ok for row in whole.check())
