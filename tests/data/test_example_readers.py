"""Each kind of example: what is read from a tiny file, what is refused, and what real rows say."""

import os

import numpy as np
import pyarrow.parquet
import pytest

from repro.data import corpus, example_readers, fetch, root, sources
from repro.data.examples import BadField, Cloze, LabelledText, Mention, Paragraph, Question, Span
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")


def only(toy):
    found = list(toy.examples("train"))
    assert len(found) == 1
    return found[0]


def refused(toy, told):
    with pytest.raises(ReproError, match=f"^corpus toy, train, row {told}") as error:
        list(toy.examples("train"))
    assert "\n" not in str(error.value)


HOTPOT = {"id": "h1", "question": "Who?", "answer": "Ann", "type": "bridge", "level": "hard",
          "context_titles": ["One", "Two"], "context_sentences": [["Anna met Ann.", " Ann ran."], ["No one."]],
          "supporting_titles": ["Two", "One"], "supporting_sent_ids": [0, 1], "whole": False}


def test_a_question_and_where_its_answer_stands(declare):
    found = only(declare(example_readers.questions(), [HOTPOT]))
    assert found.paragraphs == (Paragraph("One", ("Anna met Ann.", " Ann ran.")), Paragraph("Two", ("No one.",)))
    assert found.spans == (Span(0, 9, 12), Span(0, 14, 17))  # not the beginning of Anna
    assert found.paragraphs[0].text[9:12] == found.paragraphs[0].text[14:17] == "Ann"
    assert found.supporting == ((1, 0), (0, 1))
    assert (found.answer, found.type, found.level) == ("Ann", "bridge", "hard")
    assert found.counts(()) == {"paragraphs": 2, "supporting facts": 2}


@pytest.mark.parametrize(("answer", "spans"), [
    ("yes", ()), ("no", ()), ("nobody", ()), ("MET", (Span(0, 5, 8),)), ("nna", (Span(0, 1, 4),)),
    ("no one", (Span(1, 0, 6),))])
def test_answers_in_other_words(declare, answer, spans):
    assert only(declare(example_readers.questions(), [HOTPOT | {"answer": answer}])).spans == spans


def test_sentences_without_blanks_or_numbers(declare):
    read = example_readers.questions(between=" ", level=None, sentence_split="whole")
    found = only(declare(read, [HOTPOT | {"context_sentences": [["A b.", "Ann c."], ["D."]]}]))
    assert found.paragraphs[0].text == "A b. Ann c."
    assert found.spans == (Span(0, 5, 8),)
    assert found.supporting == ((1, None), (0, None))
    assert found.level == ""


@pytest.mark.parametrize(("change", "told"), [
    ({"supporting_titles": ["Two", "Three"]}, "field supporting_titles names 'Three', which is not among the para"),
    ({"supporting_sent_ids": [0, 2]}, "field supporting_titles names sentence 2 of paragraph 0, which has 2"),
    ({"supporting_sent_ids": [0]}, "field supporting_sent_ids has another length"),
    ({"context_titles": ["One"]}, "field context_sentences has 2 paragraphs for 1 titles"),
    ({"context_sentences": [["a", None], ["b"]]}, "field context_sentences has something that is not text in the"),
    ({"question": None}, "field question is missing"), ({"answer": ""}, "field answer is empty"),
    ({"context_sentences": [None, ["b"]]}, "not question of the form that is expected in the columns id, question")])
def test_a_question_that_contradicts_itself(declare, change, told):
    refused(declare(example_readers.questions(), [HOTPOT | change]), f"h1: {told}")


@pytest.mark.parametrize(("span", "told"), [
    (Span(0, 2, 4), "2:4 of paragraph 0, which is outside its 3 characters"),
    (Span(1, 0, 1), "0:1 of paragraph 1, which is outside its 0 characters"),
    (Span(0, -1, 2), "-1:2"), (Span(0, 1, 1), "1:1"), (Span(0, 0, 2), "'ab' where the answer is 'abc'")])
def test_a_span_outside_its_text(span, told):
    with pytest.raises(BadField, match=f"field spans has {told}"):
        Question("x", "Which?", (Paragraph("t", ("abc",)),), "abc", (span,))
    assert Question("x", "Which?", (Paragraph("t", ("abc",)),), "ABC", (Span(0, 0, 3),)).spans


def test_what_is_to_be_read_in_a_question_and_in_a_passage():
    question = Question("x", "Which?", (Paragraph(" T &amp; U", ("a &amp; b.", "c"), " "), Paragraph("V", ())), "yes")
    assert question.titles == ("T & U", "V")
    assert question.texts == ("Which?", "T & U\na &amp; b. c", "V\n"), "entities stay in text, as files have them"
    assert Cloze("y", "a b", "b").texts == ("a b",)


CHOICE = {"id": "c1", "question": "Which?", "choices": ["a", "b", "c"], "label": 2}


@pytest.mark.parametrize(("texts", "found"), [(None, ()), ("one text", ("one text",)), (["p", "q"], ("p", "q"))])
def test_a_choice(declare, texts, found):
    named = {} if texts is None else {"paragraphs": "texts"}
    row = only(declare(example_readers.choices(**named), [CHOICE | {"texts": texts}]))
    assert (row.id, row.candidates, row.answer, row.paragraphs) == ("c1", ("a", "b", "c"), 2, found)


def test_an_answer_in_words(declare):
    assert only(declare(example_readers.choices(), [CHOICE | {"label": "b"}])).answer == 1
    refused(declare(example_readers.choices(), [CHOICE | {"label": "d"}]), "c1: field label is 'd', which is not among")


@pytest.mark.parametrize(("change", "told"), [
    ({"label": 3}, "field label is 3, not one of the 3 candidates"), ({"label": -1}, "field label is -1"),
    ({"choices": ["a", None, "c"]}, "field choices has something in it that is not text"),
    ({"choices": None}, "field choices is missing"), ({"id": None}, "field id is missing")])
def test_a_choice_that_contradicts_itself(declare, change, told):
    refused(declare(example_readers.choices(), [CHOICE | change]), f"{(CHOICE | change)['id']}: {told}")


def test_a_last_word(declare):
    found = only(declare(example_readers.last_words(), [{"text": "he saw signs , signs \n"}]))
    assert found == Cloze("train-0", "he saw signs , signs", "signs")
    assert found.context == "he saw signs , "
    refused(declare(example_readers.last_words(), [{"text": "signs"}]), "train-0: field target is 'signs', but the te")
    refused(declare(example_readers.last_words(), [{"text": " "}]), "train-0: field text is empty")


BOOK = {"doc_id": "b1", "sentences": [["Ann", "saw", "Bob", "Lee", "."], ["He", "ran"]],
        "clusters": [[[0, 0]], [[2, 3], [5, 5]]]}


def test_clusters_of_mentions(declare):
    found = only(declare(example_readers.coreference(), [BOOK]))
    assert found.tokens == ("Ann", "saw", "Bob", "Lee", ".", "He", "ran")
    assert found.clusters == (((0, 1),), ((2, 4), (5, 6)))
    assert [found.tokens[slice(*mention)] for mention in found.clusters[1]] == [("Bob", "Lee"), ("He",)]
    assert found.counts(()) == {"tokens": 7, "clusters": 2, "mentions": 3}


@pytest.mark.parametrize(("change", "told"), [
    ({"clusters": [[[6, 7]]]}, "field clusters has a mention of tokens 6:8, which is outside the 7 tokens"),
    ({"clusters": [[[-1, 0]]]}, "field clusters has a mention of tokens -1:1"),
    ({"clusters": [[[3, 2]]]}, "field clusters has a mention of tokens 3:3"),
    ({"clusters": [[[0, 0]], [[1, 1], [0, 0]]]}, "field clusters has the mention of tokens 0:1 twice"),
    ({"clusters": [[[1]]]}, "not coreference of the form"), ({"clusters": None}, "field clusters is missing"),
    ({"sentences": [["a", None]]}, "field sentences has no tokens, or something that is not text"),
    ({"sentences": []}, "field sentences has no tokens")])
def test_clusters_that_contradict_the_text(declare, change, told):
    refused(declare(example_readers.coreference(), [BOOK | change]), f"b1: {told}")


GAP = {"id": "g1", "text": "Ann met Eve; she ran.", "pronoun": "she", "pronoun_offset": 13, "a": "Ann", "a_offset": 0,
       "a_coref": False, "b": "Eve", "b_offset": 8, "b_coref": True}


def test_a_pronoun(declare):
    found = only(declare(example_readers.pronouns(), [GAP]))
    assert (found.pronoun, found.a, found.b) == (Mention("she", 13), Mention("Ann", 0), Mention("Eve", 8))
    assert (found.is_a, found.is_b, found.gender) == (False, True, "feminine")
    assert found.counts(()) == {"a": 0, "b": 1, "feminine": 1}


@pytest.mark.parametrize(("change", "told"), [
    ({"pronoun_offset": 12}, "field pronoun is 'she' at character 12, where the text has ' sh'"),
    ({"a_offset": -21}, "field a is 'Ann' at character -21"), ({"b_offset": 40}, "field b is 'Eve' at character 40"),
    ({"a_coref": True}, "field b_coref is true as is_a is"), ({"a_offset": None}, "field a_offset is missing")])
def test_a_pronoun_that_contradicts_the_text(declare, change, told):
    refused(declare(example_readers.pronouns(), [GAP | change]), f"g1: {told}")


def test_a_summary(declare):
    row = {"id": "s1", "title": "T", "article": "long text", "abstract": "short"}
    read = example_readers.summaries(document="article", summary="abstract")
    found = only(declare(read, [row]))
    assert (found.id, found.title, found.document, found.summary) == ("s1", "T", "long text", "short")
    assert found.counts(()) == {"words": 2}
    refused(declare(read, [row | {"abstract": ""}]), "s1: field abstract is empty")


def pixels(n):
    return np.arange(n * 2 * 4 * 3, dtype=np.uint8).reshape(n, 2, 4, 3)


def test_images(declare):
    toy = declare(example_readers.images(), {"image": pixels(3), "label": np.array([1, 0, 1], np.uint8)}, "rows.npz",
                  labels=("cat", "dog"))
    found = list(toy.examples("train"))
    assert [one.label for one in found] == [1, 0, 1]
    assert [one.counts(toy.labels) for one in found] == [{"dog": 1}, {"cat": 1}, {"dog": 1}]
    assert np.array_equal(np.stack([one.pixels for one in found]), pixels(3))


@pytest.mark.parametrize(("change", "told"), [
    ({"label": np.array([0, 2])}, "train, row train-1: field label is 2, not 0 to 1"),
    ({"image": pixels(2)[..., 0]}, r"train, row train-0: field image is uint8 of shape \(2, 4\), not uint8"),
    ({"image": pixels(2) / 255}, r"train, row train-0: field image is float64 of shape \(2, 4, 3\)"),
    ({"image": pixels(3)}, r"train: .*rows\.npz has arrays of different lengths")])
def test_images_that_are_none(declare, change, told):
    rows = {"image": pixels(2), "label": np.array([0, 1])} | change
    with pytest.raises(ReproError, match=f"^corpus toy, {told}"):
        list(declare(example_readers.images(), rows, "rows.npz", labels=("cat", "dog")).examples("train"))


@pytest.mark.parametrize("keep", [0, 10, 0.5, -1])
def test_damaged_images(declare, keep):
    toy = declare(example_readers.images(), {"image": pixels(2), "label": np.array([0, 1])}, "rows.npz")
    path, = toy.paths("train")
    content = path.read_bytes()
    path.write_bytes(content[:int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(ReproError, match=r"rows\.npz is damaged or truncated"):
        list(toy.examples("train"))


def test_images_without_an_array(declare):
    with pytest.raises(ReproError, match=r"rows\.npz has no array label"):
        list(declare(example_readers.images(), {"image": pixels(2)}, "rows.npz").examples("train"))


def test_recordings(declare):
    row = {"title": "Fugue", "seconds": 2.5, "mulaw_u8": bytes([0, 127, 128, 191, 255])}
    found = only(declare(example_readers.recordings(rate=2), [row]))
    assert (found.title, found.rate, found.seconds) == ("Fugue", 2, 2.5)
    assert found.codes.tolist() == [0, 127, 128, 191, 255]
    # of code 191, v = 2 * 191 / 255 - 1 = 0.498039 and (256 ** v - 1) / 255 = 0.058145
    assert found.waveform() == pytest.approx([-1, -8.62e-5, 8.62e-5, 0.058145, 1], rel=1e-3)
    refused(declare(example_readers.recordings(rate=2), [row | {"seconds": 3.1}]),
            "train-0: field seconds is 3.1, but 5 samples last 2.50")
    refused(declare(example_readers.recordings(rate=2), [row | {"mulaw_u8": b"", "seconds": 0.0}]),
            r"train-0: field mulaw_u8 is uint8 of shape \(0,\)")


# What the hub has, as it has it.

REVIEWS = {"train": [{"text": f"review {k}", "label": k % 2} for k in range(5)], "test": [{"text": "x", "label": 0}]}
FACTS = {"title": ["One", "Two", "One"], "sent_id": [1, 5, 2]}  # the second and the third are beyond the paragraph
QUESTIONS = {"train": [], "validation": [
    {key: HOTPOT[key] for key in ("id", "question", "answer", "type", "level")} | {"supporting_facts": FACTS} | {
        "context": {"title": HOTPOT["context_titles"], "sentences": HOTPOT["context_sentences"]}}]}
PICTURES = {"train": [{"img": image, "label": k} for k, image in enumerate(pixels(3))], "test": []}


@pytest.mark.parametrize(("name", "source", "hub"), [
    ("imdb", sources.imdb, REVIEWS), ("hotpotqa", sources.hotpotqa, QUESTIONS), ("cifar10", sources.cifar10, PICTURES)])
def test_what_is_fetched_is_what_is_read(tmp_path, monkeypatch, name, source, hub):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    one = corpus(name)
    rows = {split: len(found) for split, found in hub.items()}
    fetch.fetch(name, tmp_path / one.folder, source(rows, per_file=2), lambda split, skip: iter(hub[split][skip:]),
                progress=False)
    found = {split: list(one.examples(split)) for split, n in rows.items() if n}
    assert {split: len(read) for split, read in found.items()} == {split: n for split, n in rows.items() if n}
    if name == "imdb":
        assert found["train"][3] == LabelledText("train-3", "review 3", 1)
        assert one.check()[-1].ok and one.check()[-1].found == 4
    elif name == "hotpotqa":
        assert found["validation"][0].supporting == ((0, 1), (1, None), (0, None))
        assert found["validation"][0].spans == (Span(0, 9, 12), Span(0, 14, 17))
    else:
        assert np.array_equal(found["train"][2].pixels, pixels(3)[2]) and found["train"][2].label == 2


# Real rows, against what the files say when read otherwise.

def table(path):
    return pyarrow.parquet.read_table(root() / path).to_pylist()


@real
def test_real_splits_of_hyperpartisan():
    one = corpus("hyperpartisan")
    rows = table("hyperpartisan/byarticle.parquet")
    for split, called in (("train", "train"), ("validation", "dev"), ("test", "test")):
        assert [(row["id"], row["text"], row["label"]) for row in rows if row["split"] == called] == [
            (found.id, found.text, found.label) for found in one.examples(split)]


@real
def test_real_pairs():
    row = table("gpt1-tasks/sick.parquet")[0]
    found = next(corpus("sick").examples("train"))
    assert (found.text, found.pair) == (row["sentence1"], row["sentence2"])
    assert corpus("sick").labels[found.label] == row["label"] == "NEUTRAL"
    assert next(corpus("stsb").examples("train")).label == 5.0


@real
def test_real_questions():
    found = {one.id: one for one in corpus("hotpotqa-subset").examples("validation")}["5add39e75542997545bbbcc4"]
    told = [found.paragraphs[paragraph].sentences[sentence] for paragraph, sentence in found.supporting]
    assert found.answer == "American" and "Raymond S. Persi" in told[0] and "American" in told[1]
    for span in found.spans:
        assert found.paragraphs[span.paragraph].text[span.start:span.stop] == "American"
    assert len(found.spans) == sum(p.text.split().count("American") for p in found.paragraphs) > 0
    assert "".join(table("hotpotqa/validation.parquet")[0]["context_sentences"][0]) == found.paragraphs[0].text


@real
def test_real_choices():
    found = next(corpus("wikihop-sample").examples("train"))
    assert found.candidates[found.answer] == "1996 summer olympics" and len(found.paragraphs) > 1
    found = next(corpus("race-subset").examples("train"))
    assert found.candidates[found.answer] == "his timid characteristic" and found.paragraphs[0].startswith("Maybe you")


@real
def test_real_last_words():
    assert [one.target for one in corpus("lambada").examples("test")] == [
        row["target_plain"] for row in table("lambada/test.parquet")]
    assert next(corpus("lambada-cased").examples("test")).text.endswith("I don't care about signs")


@real
def test_real_mentions():
    found = next(corpus("litbank").examples("train"))
    assert found.id == "1023_bleak_house"
    assert [found.tokens[slice(*mention)] for mention in found.clusters[0]] == [("Chancery",)] * 3
    found = next(corpus("gap").examples("development"))
    assert (found.a.text, found.is_a, found.b.text, found.is_b, found.gender) == (
        "Cheryl Cassidy", True, "Pauline", False, "feminine")


@real
def test_real_images_and_sound():
    labels = [one.label for one, _ in zip(corpus("cifar10-subset").examples("test"), range(6), strict=False)]
    assert [corpus("cifar10-subset").labels[label] for label in labels] == [
        "cat", "ship", "ship", "airplane", "frog", "frog"]
    found = next(corpus("piano-bach").examples("test"))
    assert found.title == "WTC I Fugue No.10 E minor BWV 855" and found.seconds == pytest.approx(89.587, abs=1e-3)
    wave = found.waveform()
    assert wave.dtype == np.float32 and 0.1 < np.abs(wave).max() < 0.6  # the recordings are quiet
    assert abs(float(wave.mean())) < 0.01


@real
def test_next_sentences_are_not_in_the_text_and_the_first_is():
    rows = {split: list(corpus("hotpotqa-paragraphs").examples(split)) for split in ("train", "validation", "test")}
    ids = [row.id for found in rows.values() for row in found]
    assert len(ids) == len(set(ids)) == 1_279 and len(rows["validation"]) == 95
    questions = {one.id: one for split in ("train", "validation")
                 for one in corpus("hotpotqa-subset").examples(split)}
    for row in rows["test"]:
        one = questions[row.id]
        wanted = one.paragraphs[one.supporting[0][0]]
        assert row.summary == "".join(wanted.sentences[1:]).strip() and row.summary not in row.document
        assert wanted.sentences[0].strip() in row.document and row.title == one.question
        assert len(row.document.split("\n")) >= len(one.paragraphs)
