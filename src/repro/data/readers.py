"""How corpora of text are read from their files: one reader for each layout."""

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from repro.data import books, files
from repro.data.base import Corpus, Document, Reader
from repro.errors import ReproError, check_text

TITLE = re.compile(r"^ = [^=\n].* = \n(?= \n)", re.MULTILINE)


def articles(text: str) -> list[Document]:
    """WikiText's running text, cut before each article's title line; joining the articles gives `text` again.

    Text before the first title (a blank line) belongs to the first article.
    """
    titles = list(TITLE.finditer(text))
    cuts = [0, *(title.start() for title in titles[1:]), len(text)]
    names = [title[0].strip(" =\n") for title in titles] or ["untitled"]
    return [Document(name, text[start:stop]) for name, start, stop in zip(names, cuts[:-1], cuts[1:], strict=True)]


def _wikitext(corpus: Corpus, split: str) -> Iterator[Document]:
    parts = []
    for path in corpus.paths(split):
        if path.suffix == ".xz":
            parts.append(files.xz_text(path))
        else:
            parts += [check_text(row["text"], f"text of {path}, row {number},")
                      for number, row in enumerate(files.parquet_rows(path, ["text"]))]
    text = "".join(parts)
    if text.strip():
        yield from articles(text)


def _shelf(corpus: Corpus, split: str) -> Iterator[Document]:
    yield from _books(corpus.paths(split))


def _shelf_with_held_out(corpus: Corpus, split: str) -> Iterator[Document]:
    yield from _books_of(split, corpus.paths(split))


def _books(paths: list[Path]) -> Iterator[Document]:
    for path in paths:
        for name, text in files.text_rows(path):
            yield Document(name, text)


def _books_of(split: str, paths: list[Path]) -> Iterator[Document]:
    for book in _books(paths):
        if not book.id.isdecimal():
            raise ReproError(f"book '{book.id:.40}' of {', '.join(path.name for path in paths)} is named by no number; "
                             "it is not a file of this corpus.")
        if (int(book.id) in books.PRETRAIN_VALIDATION) == (split == "validation"):
            yield book


def _wikipedia_and_books(corpus: Corpus, split: str) -> Iterator[Document]:
    """The paragraphs of each HotpotQA question, on related subjects, as one document; then the books.

    A paragraph belongs to the first question that has it, so none is in both splits. Every hundredth question belongs
    to validation.
    """
    questions, *shelves = corpus.paths(split)
    seen: set[str] = set()
    for number, row in enumerate(files.parquet_rows(questions, ["context_titles", "context_sentences"])):
        try:
            paragraphs = [f"{html.unescape(title).strip()}\n{''.join(sentences).strip()}\n\n" for title, sentences
                          in zip(row["context_titles"], row["context_sentences"], strict=True)]
        except (TypeError, ValueError, AttributeError) as error:
            raise ReproError(f"{questions}, row {number}: its titles and paragraphs do not fit together ({error}); "
                             "fetch the corpus again.") from error
        new = [one for one in dict.fromkeys(paragraphs) if one not in seen]
        seen.update(new)
        if new and (number % 100 == 0) == (split == "validation"):
            yield Document(f"question-{number}", "".join(new))
    yield from _books_of(split, shelves)


def _generated(corpus: Corpus, split: str) -> Iterator[Document]:
    for index in range(corpus.splits[split].n_documents):
        yield Document(f"{split}-{index}", corpus.generator.book(split, index))


def _cut_text(corpus: Corpus, split: str) -> Iterator[Document]:
    path, = corpus.paths(split)
    content = files.content(path)
    start, needed = 0, sum(part.n_bytes for part in corpus.splits.values())
    if len(content) < needed:
        raise ReproError(f"{path} is cut short: it has {len(content):,} bytes, and the splits of {corpus.name} take "
                         f"{needed:,}. Delete it and fetch the corpus again.")
    for name, part in corpus.splits.items():
        if name == split:
            text = content[start:start + part.n_bytes].decode(errors="surrogateescape")
            yield Document(f"{corpus.name}-{split}", text)
        start += part.n_bytes


def _text(rows: Callable[[Corpus, str], Iterator[Document]]) -> Reader:
    return Reader(Document, rows)


wikitext = _text(_wikitext)  # a running text, cut into its articles
shelf = _text(_shelf)  # a table of books with the columns `id` and `text`
shelf_with_held_out = _text(_shelf_with_held_out)  # the same, with a few books of the table held out for validation
wikipedia_and_books = _text(_wikipedia_and_books)  # HotpotQA's questions, then tables of books, with some held out
generated_books = _text(_generated)  # by `corpus.generator`
cut_text = _text(_cut_text)  # one text cut into train, validation and test by the byte counts of the splits
