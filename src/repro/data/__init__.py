"""Corpora, tokenisers and token streams: `tokens("wikitext-103", "test", tokeniser("gpt2"))`."""

from repro.data.base import CheckRow, Corpus, Document, Documents, Reader, Split, root
from repro.data.registry import corpora, corpus
from repro.data.tokenisation import Tokeniser, Tokens, drawn, tokeniser, tokens

__all__ = ["CheckRow", "Corpus", "Document", "Documents", "Reader", "Split", "Tokeniser", "Tokens",
           "corpora", "corpus", "drawn", "root", "tokeniser", "tokens"]
