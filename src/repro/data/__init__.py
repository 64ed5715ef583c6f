"""Corpora, tokenizers and token streams: `tokens("wikitext-103", "test", tokeniser("gpt2"))`.

>>> books: Documents = corpus("synthetic-books").documents("test")
>>> len(books), sum(len(book.text.split()) for book in books)
(8, 20000)
"""

from repro.data.base import CheckRow, Corpus, Document, Documents, Reader, Split, root
from repro.data.detokenisation import Detokeniser, detokeniser
from repro.data.ngrams import NgramFilter, Overlap, normalise, overlap
from repro.data.registry import corpora, corpus
from repro.data.tasks import Task, task
from repro.data.tokenisation import Tokeniser, Tokens, drawn, tokeniser, tokens, train_bpe
from repro.data.web import Page, WebText, webtext

__all__ = ["CheckRow", "Corpus", "Detokeniser", "Document", "Documents", "NgramFilter", "Overlap", "Page", "Reader",
           "Split", "Task", "Tokeniser", "Tokens", "WebText", "corpora", "corpus", "detokeniser", "drawn", "normalise",
           "overlap", "root", "task", "tokeniser", "tokens", "train_bpe", "webtext"]
