"""Byte-pair encoding as GPT and GPT-2 have it: all rules in the backend of `tokenizers`, saved and read with it.

GPT (Radford et al. 2018, section 4.1; Sennrich et al. 2016) merges the letters of lower-case words, and the last symbol
of a word has `</w>` at its end. GPT-2 (Radford et al. 2019, section 2.2) merges bytes, so that no text has an unknown
symbol, and never merges across categories of characters: letters, digits, other signs, blanks. The one exception is a
blank before a word, which saves a token a word. The steps that GPT's own code takes before that, with ftfy and spaCy,
are left out, as in transformers.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

LEVELS = ("byte", "word")
UNKNOWN = "<unk>"
WORD_END = "</w>"
BLANK = "▁"  # SentencePiece's sign for a blank
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_ACROSS = re.compile(rf"\w[{BLANK}\n]")


def byte_level(texts: Iterable[str], vocab_size: int, special: Iterable[str] = (), last: Iterable[str] = (),
               categories: bool = True) -> Any:
    """A backend with the ids of `special`, of the 256 bytes, of what merges make, and of `last`, in this order.

    categories: whether merges stay within a category of characters. Without that rule they go anywhere in a line.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    special, last = list(special), list(last)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if categories else pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("\n"), "merged_with_previous"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size - len(last), special_tokens=special, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    made.add_special_tokens(last)
    return made


def word_level(texts: Iterable[str], vocab_size: int, special: Iterable[str] = ()) -> Any:
    """A backend with the ids of `special` and <unk>, of letters, of letters that end a word, and of what merges make.

    At most half of the ids are for letters: where a text has more, the rarest have none.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    special = [*special, UNKNOWN]
    made = Tokenizer(models.BPE(unk_token=UNKNOWN, end_of_word_suffix=WORD_END))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder(suffix=WORD_END)
    made.train_from_iterator(_with_letters(texts), trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=special, show_progress=False, end_of_word_suffix=WORD_END,
        limit_alphabet=(vocab_size - len(special)) // 4))
    return made


def goes_across_words(backend: Any) -> bool:
    """Whether the tokens of a backend may go across blanks: one trained without categories."""
    from tokenizers import pre_tokenizers

    return isinstance(backend.pre_tokenizer, pre_tokenizers.Sequence)


def is_sentencepiece(backend: Any) -> bool:
    """Whether a backend writes blanks as a sign and unknown characters as bytes, as SentencePiece's BPE does."""
    from tokenizers import models

    return isinstance(backend.model, models.BPE) and bool(backend.model.byte_fallback)


def needs_whole_text(backend: Any) -> bool:
    """Whether cutting a text between two words changes the tokens of such a backend: it begins each text with a blank,
    as Llama 2's does, or has tokens that go on across a blank or line end. Gemma's does neither."""
    return adds_blank(backend) or any(map(_ACROSS.search, backend.get_vocab()))


def adds_blank(backend: Any) -> bool:
    """Whether such a backend puts a blank before a text."""
    return backend.encode("a", add_special_tokens=False).tokens[0].startswith(BLANK)


def n_bytes(token: str) -> int:
    """The number of UTF-8 bytes of a token of such a backend."""
    return 1 if _BYTE.fullmatch(token) else len(token.replace(BLANK, " ").encode())


def _with_letters(texts: Iterable[str]) -> Iterator[str]:
    """The texts, then each of their letters as a word of its own, so that each has an id at the end of a word too."""
    letters: set[str] = set()
    for text in texts:
        letters.update(text)
        yield text
    yield " ".join(sorted(letters))
