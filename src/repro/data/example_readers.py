"""How corpora of examples are read from their files: one reader for each kind, given the columns that hold its fields.

Files are tables: .parquet, or .npz with arrays of one length. A row's id comes from the id column; without one, it
consists of the split and the row's number in it.
"""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from repro.data import book_names as names_of_books
from repro.data import clozes, examples, files, normalisation
from repro.data.base import Corpus, Reader
from repro.data.examples import ANSWER_TYPES, BadField, Mention, Paragraph, Span
from repro.errors import ReproError

SPLIT = "split"  # the column that names a row's split, in files with several splits


def labelled(id: str | None = None, text: str = "text", pair: str | None = None, label: str = "label",
             score: tuple[float, float] | None = None) -> Reader:
    """Texts or pairs with a label, given by its index or name in `Corpus.labels`, or with a score in the range
    `score`."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.LabelledText:
        value = _label(corpus, row[label]) if score is None else row[label]
        if score is not None and not (isinstance(value, (int, float)) and score[0] <= value <= score[1]):
            raise BadField("label", f"is {value!r}, not a score from {score[0]} to {score[1]}")
        return examples.LabelledText(name, row[text], value, row[pair] if pair else None)

    return _reader(examples.LabelledText, build, {"id": id, "text": text, "pair": pair, "label": label}, score=score)


def questions(between: str = "", level: str | None = "level", sentence_split: str | None = None) -> Reader:
    """HotpotQA's layout; a supporting fact is a title and the number of a sentence, or null if the number is unknown.

    between: the string that joins sentences. sentence_split: a column that is false if a row's paragraphs are not split
    into sentences, so that the numbers of sentences mean nothing.
    """
    def build(corpus: Corpus, name: str, row: dict) -> examples.Question:
        titles = row["context_titles"]
        if len(titles) != len(row["context_sentences"]):
            raise BadField("context_sentences", f"has {len(row['context_sentences'])} paragraphs for {len(titles)} "
                                                "titles")
        paragraphs = tuple(Paragraph(title, tuple(sentences), between) for title, sentences
                           in zip(titles, row["context_sentences"], strict=True))
        lost = sorted(set(row["supporting_titles"]) - set(titles))
        if lost:
            raise BadField("supporting_titles", f"names '{lost[0]}', which is not among the paragraphs")
        if len(row["supporting_titles"]) != len(row["supporting_sent_ids"]):
            raise BadField("supporting_sent_ids", "has another length than supporting_titles")
        counted = sentence_split is None or row[sentence_split]
        supporting = tuple((titles.index(title), sentence if counted else None) for title, sentence
                           in zip(row["supporting_titles"], row["supporting_sent_ids"], strict=True))
        return examples.Question(name, row["question"], paragraphs, row["answer"], _spans(paragraphs, row["answer"]),
                                 supporting, row["type"], row[level] if level else "")

    return _reader(examples.Question, build, {
        "id": "id", "question": "question", "answer": "answer", "titles": "context_titles",
        "paragraphs": "context_sentences", "supporting": "supporting_titles", "sentences": "supporting_sent_ids",
        "type": "type", "level": level, "sentence split": sentence_split}, between=between)


def document_questions() -> Reader:
    """TriviaQA: questions on documents; each document is a paragraph of one sentence, and the positions of the answer
    are unknown."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.Question:
        if len(row["titles"]) != len(row["documents"]) or not row["documents"]:
            raise BadField("documents", f"has {len(row['documents'])} texts for {len(row['titles'])} titles")
        paragraphs = tuple(Paragraph(title, (text,)) for title, text in zip(row["titles"], row["documents"],
                                                                            strict=True))
        return examples.Question(name, row["question"], paragraphs, row["answer"], aliases=tuple(row["aliases"]))

    return _reader(examples.Question, build, {
        "id": "id", "question": "question", "answer": "answer", "aliases": "aliases", "titles": "titles",
        "paragraphs": "documents"})


def choices(id: str | None = "id", question: str = "question", candidates: str = "choices", answer: str = "label",
            paragraphs: str | None = None) -> Reader:
    """Questions with candidates; the column `answer` holds the right candidate's number or its words, and the column
    `paragraphs` one text or several."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.MultipleChoice:
        right, texts = row[answer], row[paragraphs] if paragraphs else ()
        if isinstance(right, str):
            if right not in row[candidates]:
                raise BadField("answer", f"is '{right}', which is not among the candidates")
            right = row[candidates].index(right)
        return examples.MultipleChoice(name, row[question], tuple(row[candidates]), right,
                                       (texts,) if isinstance(texts, str) else tuple(texts))

    return _reader(examples.MultipleChoice, build, {
        "id": id, "question": question, "candidates": candidates, "answer": answer, "paragraphs": paragraphs})


def cloze_questions(kind: str, most: int) -> Reader:
    """Up to `most` questions for each book of a table, each with a word left out; kind: one of `clozes.KINDS`."""
    def rows(corpus: Corpus, split: str) -> Iterator[examples.MultipleChoice]:
        for path in corpus.paths(split):
            for name, content in files.text_rows(path):
                text = normalisation.PLAIN(content[:clozes.READ], f"corpus {corpus.name}, {split}, document {name}")
                yield from clozes.questions(name, text, kind, most)

    return Reader(examples.MultipleChoice, rows, f"clozes {clozes.VERSION} {kind}, {most} a book, "
                                                f"{normalisation.PLAIN}")


def book_names() -> Reader:
    """Questions on the names in a table of books (`repro.data.book_names`), book by book, up to the split's number of
    examples."""
    def rows(corpus: Corpus, split: str) -> Iterator[examples.MultipleChoice]:
        yield from islice(every(corpus, split), corpus.splits[split].n_examples)

    def every(corpus: Corpus, split: str) -> Iterator[examples.MultipleChoice]:
        share = names_of_books.SHARES[split]
        for path in corpus.paths(split):
            for name, content in files.text_rows(path):
                where = f"corpus {corpus.name}, {split}, document {name}"
                text = normalisation.PLAIN(content[:share.characters], where)
                yield from names_of_books.questions(name, text, share.most)

    return Reader(examples.MultipleChoice, rows, f"names of books {names_of_books.VERSION} {names_of_books.SHARES}, "
                                                f"{normalisation.PLAIN}")


def last_words(text: str = "text") -> Reader:
    """Passages whose last word (everything after the last space) is the target."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.Cloze:
        words = row[text].split()
        return examples.Cloze(name, row[text].rstrip(), words[-1] if words else "")

    return _reader(examples.Cloze, build, {"text": text})


def coreference() -> Reader:
    """LitBank: `sentences` of tokens and `clusters` of [first token, last token], counted from the document's start."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.Coreference:
        return examples.Coreference(name, tuple(map(tuple, row["sentences"])), tuple(
            tuple((first, last + 1) for first, last in cluster) for cluster in row["clusters"]))

    return _reader(examples.Coreference, build, {"id": "doc_id", "sentences": "sentences", "clusters": "clusters"})


def pronouns() -> Reader:
    """GAP, with its own columns."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.Pronoun:
        mentions = [Mention(row[one], row[f"{one}_offset"]) for one in ("pronoun", "a", "b")]
        return examples.Pronoun(name, row["text"], *mentions, row["a_coref"], row["b_coref"])

    columns = ("id", "text", "pronoun", "pronoun_offset", "a", "a_offset", "b", "b_offset")
    return _reader(examples.Pronoun, build, {name: name for name in columns} | {"is_a": "a_coref", "is_b": "b_coref"})


def summaries(document: str = "document", summary: str = "summary", title: str | None = "title",
              id: str | None = "id") -> Reader:
    """Documents with a title and a summary; or texts with their translations."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.Summary:
        return examples.Summary(name, row[title] if title else "", row[document], row[summary])

    return _reader(examples.Summary, build, {"id": id, "title": title, "document": document, "summary": summary})


def next_sentences(held_out: int) -> Reader:
    """HotpotQA's layout as texts to continue: the summary is the first supporting paragraph without its first sentence.
    The document is all paragraphs, with only the first sentence of that one; the title is the question.

    Questions without sentences, or whose paragraph has fewer than three, are left out. From the rest, the split
    "validation" takes every `held_out`-th question and "train" the others; "test" takes all of its own. Finally,
    questions whose summary also occurs in another paragraph are left out.
    """
    inner = questions(sentence_split="sentence_split")

    def rows(corpus: Corpus, split: str) -> Iterator[examples.Summary]:
        number = -1
        for one in inner.rows(corpus, split):
            if not one.supporting or one.supporting[0][1] is None:
                continue
            wanted = one.paragraphs[one.supporting[0][0]]
            if len(wanted.sentences) < 3 or not "".join(wanted.sentences[1:]).strip():
                continue
            number += 1
            if split != "test" and (number % held_out == 0) is not (split == "validation"):
                continue
            texts = [(part.sentences[0] if part is wanted else part.text).strip() for part in one.paragraphs]
            document = "\n".join(f"{title}: {text}" for title, text in zip(one.titles, texts, strict=True))
            summary = "".join(wanted.sentences[1:]).strip()
            if summary not in document:
                yield examples.Summary(one.id, one.question, document, summary)

    return Reader(examples.Summary, rows, f"{inner.settings} next sentences, nowhere else, held out {held_out}")


def images() -> Reader:
    """.npz files with `image` (n, height, width, 3) uint8 and `label` (n,)."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.Image:
        return examples.Image(name, row["image"], _label(corpus, int(row["label"])))

    return _reader(examples.Image, build, {"pixels": "image", "label": "label"})


def recordings(rate: int) -> Reader:
    """Recordings of `rate` samples a second with the columns `title`, `seconds` and `mulaw_u8` (one byte per
    sample)."""
    def build(corpus: Corpus, name: str, row: dict) -> examples.Audio:
        found = examples.Audio(name, row["title"], np.frombuffer(row["mulaw_u8"], np.uint8), rate)
        if abs(found.seconds - row["seconds"]) > 1 / rate:
            raise BadField("seconds", f"is {row['seconds']}, but {len(found.codes):,} samples last {found.seconds:.2f}")
        return found

    return _reader(examples.Audio, build, {"title": "title", "seconds": "seconds", "codes": "mulaw_u8"}, rate=rate)


def _generated(corpus: Corpus, split: str) -> Iterator[Any]:
    for index in range(corpus.splits[split].n_examples):
        yield corpus.generator.example(split, index)


generated = {kind: Reader(kind, _generated) for kind in (  # by `corpus.generator`
    examples.LabelledText, examples.Summary, examples.Image, examples.Audio, examples.Cloze, examples.MultipleChoice,
    examples.Question, examples.Coreference)}


def _reader(row: type, build: Callable[[Corpus, str, dict], Any], columns: dict[str, str | None],
            **settings: Any) -> Reader:
    """The reader whose rows are made by `build(corpus, id, the columns of one row)`.

    columns: field -> its column; None: the corpus has none. settings: other settings that `build` depends on.
    """
    wanted = [column for column in columns.values() if column is not None]

    def rows(corpus: Corpus, split: str) -> Iterator[Any]:
        for index, found in enumerate(_rows_of(corpus, split, wanted)):
            name = str(found[columns["id"]]) if columns.get("id") else f"{split}-{index}"
            try:
                for column in wanted:
                    if found[column] is None:
                        raise BadField(column, "is missing")
                example = build(corpus, name, found)
            except BadField as error:
                wrong = f"field {columns.get(error.field) or error.field} {error.wrong}"
                raise ReproError(f"corpus {corpus.name}, {split}, row {name}: {wrong}.") from None
            except (TypeError, ValueError, AttributeError) as error:  # a value of the wrong type
                raise ReproError(f"corpus {corpus.name}, {split}, row {name}: not {row.kind} of the form that is "
                                 f"expected in the columns {', '.join(wanted)} ({error}).") from error
            yield example

    return Reader(row, rows, " ".join(f"{name}={value}" for name, value in (columns | settings).items()))


def _rows_of(corpus: Corpus, split: str, columns: list[str]) -> Iterator[dict]:
    """The rows of the split's files that belong to it."""
    wanted = corpus.splits[split].rows
    known = [part.rows for part in corpus.splits.values()]
    paths = corpus.paths(split)
    try:
        for path in paths:
            for row in files.table(path, columns + [SPLIT] * (wanted is not None)):
                if wanted is not None and row[SPLIT] not in known:
                    raise ReproError(f"field {SPLIT} of {path} is {row[SPLIT]!r}, not one of {', '.join(known)}.")
                if wanted is None or row[SPLIT] == wanted:
                    yield row
    except ReproError as error:
        raise ReproError(f"corpus {corpus.name}, {split}: {error}") from error


def _label(corpus: Corpus, value: object) -> int:
    """The index of a label that a file gives by its index or its name."""
    if value in corpus.labels:
        return corpus.labels.index(value)
    if isinstance(value, int) and 0 <= value < len(corpus.labels):
        return value
    raise BadField("label", f"is {value!r}, not 0 to {len(corpus.labels) - 1} or one of {', '.join(corpus.labels)}")


def _spans(paragraphs: tuple[Paragraph, ...], answer: object) -> tuple[Span, ...]:
    """Where the answer occurs as whole words; if nowhere, ignoring case; if still nowhere, also inside words."""
    if not isinstance(answer, str) or not answer or answer in ANSWER_TYPES[1:]:
        return ()
    exact = re.escape(answer)
    word = rf"(?<!\w){exact}(?!\w)"
    for pattern in (word, f"(?i:{word})", f"(?i:{exact})"):
        found = [Span(number, match.start(), match.end()) for number, paragraph in enumerate(paragraphs)
                 for match in re.finditer(pattern, paragraph.text)]
        if found:
            return tuple(found)
    return ()
