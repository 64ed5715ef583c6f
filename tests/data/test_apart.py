"""What training text shares with evaluation text: found as brute force finds it, left out, counted and kept."""

import random
from dataclasses import replace

import pyarrow
import pytest

from repro.data import apart, corpus
from repro.data.apart import RUN, Dropped, Runs, dropped, passages, words
from repro.errors import ReproError

THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"


def text_of(documents, found):
    """The documents without their dropped passages."""
    left_out = {(one.document, one.passage) for one in found}
    return {name: "".join(part for k, part in enumerate(passages(text)) if (name, k) not in left_out)
            for name, text in documents}


def test_words_are_letters_and_digits_in_lower_case():
    assert words("The robin 's _nest_, ca . 1 @,@ 900 m — Don’t!") == words("the Robin's nest ca 1,900 m don't")
    assert words("naïve 日本 x2") == ["naïve", "日本", "x2"]


@pytest.mark.parametrize("text", ["", "a", "a\n\nb\n", "\n\n a\nb\n \n\n  c\n\n", "a\r\n\r\nb", "\n\n\n"])
def test_passages_are_the_text_cut_at_blank_lines(text):
    found = passages(text)
    assert "".join(found) == text
    assert all(found)
    assert sum(bool(part.strip()) for part in found) == len([p for p in text.replace("\r", "").replace("\n \n", "\n\n")
                                                             .split("\n\n") if p.strip()])


def test_thirteen_words_are_a_copy_and_twelve_are_not():
    runs = Runs([("test 1", f"It was {THIRTEEN.upper()}, they said.")])
    twelve = " ".join(THIRTEEN.split()[:12])
    documents = [("a", f"x {twelve} y\n\nz\n\n"), ("b", f"kept\n\nbut {THIRTEEN} no\n\nkept"), ("c", "")]
    assert list(dropped(documents, runs)) == [Dropped("b", 1, 15, "test 1")]


def test_all_passages_that_a_copy_touches_go_and_what_then_stands_together_is_looked_at():
    first, second = " ".join(THIRTEEN.split()[:7]), " ".join(THIRTEEN.split()[7:])
    other = "a b c d e f g h i j k l m"
    runs = Runs([("x", THIRTEEN), ("y", other)])
    assert [one.passage for one in dropped([("d", f"p\n\n{first}\n\n{second}\n\nq")], runs)] == [1, 2]
    hidden = f"{first}\n\n{other}\n\n{second}\n\nq"
    assert list(dropped([("d", hidden)], runs)) == [Dropped("d", 0, 7, "x"), Dropped("d", 1, 13, "y"),
                                                     Dropped("d", 2, 6, "x")]


def test_a_passage_that_begins_with_a_title_is_the_article():
    runs = Runs([], ["Robin ( bird )", "3", ""])
    documents = [("q", "Robin (Bird)\nIt sings.\n\nRobin\nA name.\n\n3\n\n\n * * *\n\nThe Robin (bird)\n")]
    assert list(dropped(documents, runs)) == [Dropped("q", 0, 4, "title"), Dropped("q", 2, 1, "title")]


@pytest.mark.parametrize("seed", range(4))
def test_brute_force_finds_the_same(seed):
    """Small vocabulary, so that copies are many; texts shorter than a run among them."""
    draw = random.Random(seed)

    def text(n):
        return "".join(draw.choice("aB") + draw.choice([" ", " ", ", ", "\n", "\n\n"]) for _ in range(n))

    held_out = [(f"t{k}", text(n)) for k, n in enumerate([0, 5, 12, 13, 14, 100, 200])]
    documents = [(f"d{k}", text(n)) for k, n in enumerate([0, 8, 13, 40, 150, 300] * 3)]
    known = {tuple(words(held)[k:k + RUN]) for _, held in held_out for k in range(len(words(held)) - RUN + 1)}
    found = list(dropped(documents, Runs(held_out)))
    assert 5 < len(found) < sum(len(passages(one)) for _, one in documents) - 5
    for left in text_of(documents, found).values():
        assert not {tuple(words(left)[k:k + RUN]) for k in range(len(words(left)))} & known
    for (name, whole), shared in ((one, set(range(len(passages(one[1]))))) for one in documents):
        parts = [words(part) for part in passages(whole)]
        touched, gone = True, set()
        while touched:
            line = [(word, k) for k, part in enumerate(parts) if k not in gone for word in part]
            touched = {k for at in range(len(line) - RUN + 1) if tuple(word for word, _ in line[at:at + RUN]) in known
                       for _, k in line[at:at + RUN]}
            gone |= touched
        assert {one.passage for one in found if one.document == name} == gone <= shared


def test_no_evaluation_text_leaves_everything():
    assert list(dropped([("d", THIRTEEN * 3)], Runs([]))) == []
    assert list(dropped([("d", THIRTEEN * 3)], Runs([("short", "a b c")]))) == []


@pytest.fixture
def pretraining(data, sample):
    """Books and paragraphs, some of them copies of the evaluation texts of `data`."""
    long = " ".join(f"w{k}" for k in range(30))
    sample.put_parquet(data / "pg19-subset" / "test.parquet", {"id": [860], "text": [f"Held out: {long}"]})
    sample.put_parquet(data / "gutenberg-pretrain" / "train-00-of-01.parquet", {
        "id": [1, 10993, 2], "text": ["“Own” words …\n\nMore.\n", "held out", f"Quoted: “{long}”\n\nOwn.\n"]})
    sample.put_parquet(data / "hotpotqa" / "train.parquet", {
        "context_titles": [["Z &amp; Co", "Robin (bird)"]] + [["A", "B"]] + [["A", "C"]] * 2,
        "context_sentences": [[["Held.", " Out."], ["It sings."]]] + [[["Alpha –", " one."], ["Beta."]]]
                             + [[["Alpha –", " one."], [f"Copy {long}."]]] * 2})
    return corpus("books-and-wikipedia")


@pytest.fixture(autouse=True)
def examples(data, sample):
    """The corpora of examples that it is apart from: questions about paragraphs, and passages."""
    put_questions(sample, data / "hotpotqa" / "validation.parquet", "What is it?", {"Other": ["Nothing", " here."]})
    put_questions(sample, data / "multihop-other" / "2wikimultihop_sample.parquet", "Where?", {"Another": ["Here."]})
    for name in ("dev_plain", "test"):
        sample.put_parquet(data / "lambada" / f"{name}.parquet",
                           {form: ["none of it , he said"] for form in ("text_plain", "text_cased")})


def put_questions(sample, path, question, paragraphs):
    """One question about `paragraphs`, title -> sentences."""
    nothing = pyarrow.array([[]], pyarrow.list_(pyarrow.string()))
    sample.put_parquet(path, {
        "id": ["q7"], "question": [question], "answer": ["yes"], "type": [""], "level": [""], "sentence_split": [True],
        "context_titles": [list(paragraphs)], "context_sentences": [list(paragraphs.values())],
        "supporting_titles": nothing, "supporting_sent_ids": nothing.cast(pyarrow.list_(pyarrow.int64()))})


def test_it_is_apart_from_examples(pretraining, data, sample):
    """From their paragraphs, the titles of those, their questions, and from passages; twelve words are no copy."""
    own = {title: " ".join(f"{title}{k}" for k in range(RUN)) for title in ("a", "b", "c", "d", "e", "f")}
    put_questions(sample, data / "hotpotqa" / "validation.parquet", f"Is it {own['a']}?", {
        "X": [own["b"][:-3], own["b"][-3:] + " end."], "D &amp; Co": ["Short."], "Y": [own["c"].rsplit(" ", 1)[0]]})
    put_questions(sample, data / "multihop-other" / "2wikimultihop_sample.parquet", "Where?",
                  {"Z": [own["d"].split(" ", 1)[0], own["d"].split(" ", 1)[1]]})
    sample.put_parquet(data / "lambada" / "dev_plain.parquet", {"text_plain": [f"so {own['e']}"]})
    sample.put_parquet(data / "lambada" / "test.parquet", {"text_plain": ["a b"], "text_cased": [own["f"]]})
    training = {"First": ["held out"]}, {title: [text] for title, text in own.items()} | {
        "D &amp; Co": ["No."], "D & Co": ["Else."], "X": ["A name."], "Question": ["Is it so?"]}
    sample.put_parquet(data / "hotpotqa" / "train.parquet", {
        "context_titles": [list(one) for one in training],
        "context_sentences": [list(one.values()) for one in training]})
    found = [(one.passage, one.shared_with) for one in pretraining.dropped("train") if one.document == "question-1"]
    assert found == [(0, "hotpotqa-subset validation q7"), (1, "hotpotqa-subset validation q7"),
                     (3, "2wikimultihop-sample validation q7"), (4, "lambada validation validation-0"),
                     (5, "lambada-cased test test-0"), (6, "title"), (7, "title"), (8, "title")]
    assert pretraining.documents("train")[0].text == f"c\n{own['c']}\n\nQuestion\nIs it so?\n\n"


def test_the_pretraining_corpus_is_plain_and_apart(pretraining):
    assert [(one.id, one.text) for one in pretraining.stream("train")] == [
        ("question-1", "A\nAlpha - one.\n\nB\nBeta.\n\n"), ("1", '"Own" words ...\n\nMore.\n'), ("2", "Own.\n")]
    assert [(one.id, one.text) for one in pretraining.stream("validation")] == [
        ("question-0", "Z & Co\nHeld. Out.\n\n"), ("10993", "held out")]
    assert pretraining.dropped("train") == [Dropped("question-2", 0, 32, "pg19-subset test 860"),
                                            Dropped("2", 0, 31, "pg19-subset test 860")]
    assert pretraining.dropped("validation") == [Dropped("question-0", 1, 4, "title")]
    rows = {(row.split, row.what): (row.expected, row.found) for row in pretraining.check()}
    assert rows["train", "passages left out"] == (944, 2)
    assert rows["train", "words left out"] == (94_513, 63)
    assert rows["train", "passages left out of question-*"] == (662, 1)
    assert rows["train", "words left out of question-*"] == (75_212, 32)
    assert rows["train", "words of question-*"] == (2_183_193, 6)
    assert rows["validation", "words left out of question-*"] == (570, 4)
    assert rows["train", "documents"] == (2_807, 3)


def test_what_is_left_out_is_looked_for_once(pretraining, monkeypatch, tmp_path):
    before = pretraining.dropped("train")
    kept, = (tmp_path / "work" / "overlap").glob("books-and-wikipedia-train-*.json")
    monkeypatch.setattr(apart, "Runs", None)
    assert pretraining.dropped("train") == before
    monkeypatch.undo()
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    kept.write_text("cut off")
    assert pretraining.dropped("train") == before
    assert apart.read(kept) == before


def test_its_fingerprint_follows_all_that_decides_its_text(pretraining, data, sample, monkeypatch):
    found = [pretraining.fingerprint()]
    assert found[0] != replace(pretraining, apart_from=()).fingerprint()
    assert found[0] != replace(pretraining, normalise=None).fingerprint()
    plain = replace(corpus("wikitext-103"), normalise=pretraining.normalise)
    later = replace(pretraining, apart_from=(plain, *pretraining.apart_from[1:]))
    assert later.fingerprint() == found[0], "what others are read as does not change what this one holds"
    put_questions(sample, data / "hotpotqa" / "validation.parquet", "Another?", {})
    found.append(pretraining.fingerprint())
    other = replace(corpus("lambada"), read=corpus("lambada-cased").read)
    found.append(replace(pretraining, apart_from=tuple(
        other if one.name == "lambada" else one for one in pretraining.apart_from)).fingerprint())
    for folder, name in (("pg19-subset", "test"), ("pg19-subset", "validation"), ("hotpotqa", "train")):
        columns = ({"context_titles": [["T"]], "context_sentences": [[["S"]]]} if folder == "hotpotqa"
                   else {"id": [7], "text": ["other"]})
        sample.put_parquet(data / folder / f"{name}.parquet", columns)
        found.append(pretraining.fingerprint())
    sample.put_parquet(data / "pg19-subset" / "train-00-of-02.parquet", {"id": [5], "text": ["other"]})
    assert pretraining.fingerprint() == found[-1], "training text of others has nothing to do with it"
    monkeypatch.setattr(apart, "VERSION", 2)
    found.append(pretraining.fingerprint())
    assert len(set(found)) == len(found)


def test_without_the_evaluation_texts_it_is_not_here(pretraining, data):
    assert pretraining.available()
    (data / "hotpotqa" / "validation.parquet").rename(data / "hotpotqa" / "kept")
    assert not pretraining.available()
    (data / "hotpotqa" / "kept").rename(data / "hotpotqa" / "validation.parquet")
    (data / "wikitext" / "wiki.test.raw.xz").unlink()
    assert not pretraining.available()
    with pytest.raises(ReproError, match="corpus wikitext-103 has no test files"):
        pretraining.fingerprint()
    (data / "hotpotqa" / "train.parquet").unlink()
    with pytest.raises(ReproError, match=r"books-and-wikipedia has no train files \(hotpotqa/train.parquet\)"):
        pretraining.documents("train")
