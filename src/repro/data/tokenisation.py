"""Text to token ids: tokenizers (trained once, then cached) and tokenized corpora (also cached).

A stream starts with <|endoftext|>, so that every real token of the text has a token before it that can predict it.
Encoding is lossless: decoding a stream gives back the text, byte for byte.
"""

import hashlib
import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Integral
from pathlib import Path

import numpy as np

from repro import paths
from repro.data import bpe
from repro.data.base import Corpus, Document, root
from repro.data.registry import corpus
from repro.errors import ReproError, check_text, check_whole, is_series, unknown

END = "<|endoftext|>"
MOST_IDS = 1_000_000  # of a tokeniser that is trained
MASKED = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")  # RoBERTa's special tokens: ids 0 to 3, and the last
OPENING = (END, "<bos>", MASKED[0], "[CLS]")  # tokens that open a text; a tokeniser with <bos> has <s> as HTML
SPECIAL = {"sep": ("</s>", "[SEP]"), "pad": ("<pad>", "[PAD]"), "unk": ("<unk>", "[UNK]"),
           "mask": ("<mask>", "[MASK]")}  # the names that RoBERTa and BERT give to each kind
VERSION = "1"  # part of every cache key: increase it when training or encoding changes
PIECE = 20_000  # characters encoded at a time
BATCH = 64  # pieces per call
CUT = "\ufffd"  # what a decoder writes for a byte that is no character


@dataclass(frozen=True)
class Tokeniser:
    """A tokenizers.Tokenizer (`backend`) with the few methods that the study needs.

    >>> coder = train_bpe(["the cat sat on the mat"] * 9, 270)
    >>> coder.decode(coder.encode("the mat sat")), coder.vocab_size
    ('the mat sat', 269)
    """

    name: str
    backend: object = field(repr=False)

    def __post_init__(self) -> None:
        from tokenizers import Tokenizer

        if not isinstance(self.backend, Tokenizer):
            raise ReproError(f"backend is a {type(self.backend).__name__}; give a tokenizers.Tokenizer, such as the "
                             "backend_tokenizer of a fast transformers tokenizer.")
        self.backend.encode_special_tokens = True  # "<|endoftext|>" inside a text is text
        self.backend.no_truncation()  # a tokenizer.json keeps what a call set: texts would be cut or padded
        self.backend.no_padding()

    @classmethod
    def read(cls, path: Path | str, name: str = "") -> "Tokeniser":
        """The tokeniser of a file that `save` wrote, or of a published model's tokenizer.json. name: "" gives bpe-SIZE.
        Raises ReproError for a file that is missing or damaged."""
        from tokenizers import Tokenizer

        try:
            backend = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises plain Exception
            raise ReproError(f"{path} is no whole file of a tokeniser ({error}); make it again.") from error
        return cls(name or f"bpe-{backend.get_vocab_size()}", backend)

    @property
    def bos(self) -> int:
        """The id of the token that opens a text: the first of <|endoftext|>, <bos>, <s> and [CLS] that it has."""
        return next((k for k in map(self.backend.token_to_id, OPENING) if k is not None), None)

    @property
    def mask(self) -> int:
        """The id of <mask>. Raises ReproError for a tokeniser that has none, or not as its last id."""
        found, last = self.backend.token_to_id(MASKED[-1]), self.backend.get_vocab_size() - 1
        if found != last:
            raise ReproError(f"tokeniser {self.name} has {'no <mask>' if found is None else f'<mask> as id {found}'}; a"
                             f" masked model needs it as its last id ({last}): take masked-bpe or "
                             "roberta.")
        return found

    def special(self, kind: str) -> int:
        """The id of the special token of a kind: "sep" ends a text, "pad" fills a batch, "unk" is for what it does not
        know, and "mask" hides a token. Raises ReproError for another kind, and if it has no such token.

        >>> tokeniser("masked-bpe", 300, "synthetic-books").special("sep")
        2
        """
        if kind not in SPECIAL:
            raise unknown("kind of special token", kind, SPECIAL)
        found = next((k for k in map(self.backend.token_to_id, SPECIAL[kind]) if k is not None), None)
        if found is None:
            raise ReproError(f"tokeniser {self.name} has none of {', '.join(SPECIAL[kind])}; take that of RoBERTa or "
                             "BERT.")
        return found

    @cached_property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return self.backend.get_vocab_size()  # goes through all of them: every `decode` of Gemma's took milliseconds

    @cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of the tokeniser's JSON."""
        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """The ids of `text`, int32, no special token added; "<|endoftext|>" in it is text. ReproError for a word that a
        word-level one lacks."""
        parts = list(pieces(self._readable(text), between=self._between))
        return np.concatenate([np.zeros(0, np.int32), *self._encoded(parts)])

    def _encoded(self, parts: list[str]) -> Iterator[np.ndarray]:
        """The ids of each of `parts`, int32."""
        for start in range(0, len(parts), BATCH):
            try:
                batch = self.backend.encode_batch_fast(parts[start:start + BATCH], add_special_tokens=False)
            except Exception as error:  # tokenizers raises plain Exception
                raise ReproError(f"tokeniser {self.name} cannot encode this text: {error}.") from error
            yield from (np.array(encoding.ids, np.int32) for encoding in batch)

    def used(self, texts: Iterable[str]) -> np.ndarray:
        """The ids that `encode` gives for any of `texts`, ascending: each different word is encoded only once."""
        words: set[str] = set()
        for text in texts:
            words.update(pieces(self._readable(text), 1, self._between))
        used = np.zeros(self.vocab_size, bool)
        for ids in self._encoded(sorted(words)):
            used[ids] = True
        return np.flatnonzero(used)

    def touching(self, text: str, strings: Sequence[str]) -> np.ndarray:
        """Which tokens of `encode(text)` hold a character of one of `strings` (without blanks): (n,) bool.

        A string may span several tokens, and a token may also hold the blank before it: all of these touch the string.
        """
        inside = np.append(0, np.cumsum(_inside(re.finditer(_any(strings), check_text(text, "the text")), len(text))))
        starts, stops = self.offsets(text).T
        return inside[stops] > inside[starts]

    def offsets(self, text: str) -> np.ndarray:
        """Where each token of `encode(text)` is in `text`: (n, 2) int, its first character and one past its last.

        A character that spans several tokens belongs to each of them.
        """
        found, start, text = [np.zeros((0, 2), int)], 0, self._readable(text)
        for piece in pieces(text, between=self._between):
            try:
                encoding = self.backend.encode(piece, add_special_tokens=False)
            except Exception as error:  # tokenizers raises plain Exception
                raise ReproError(f"tokeniser {self.name} cannot encode this text: {error}.") from error
            found.append(start + np.array(encoding.offsets, int).reshape(-1, 2))
            start += len(piece)
        return np.concatenate(found)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; <|endoftext|> gives nothing. Raises ReproError for ids that it does not have."""
        return self.backend.decode(_ids(ids, self), skip_special_tokens=True)

    def n_bytes(self, ids: Iterable[int]) -> int:
        """The number of UTF-8 bytes that `ids` encode, also if they end inside a character.

        `decode` would give U+FFFD there, which is three bytes. Exact for byte-level BPE and for BPE with fallback to
        bytes. For others it counts the bytes that `decode` gives, and in a cut character one for each byte token.
        """
        from tokenizers import decoders

        ids = _ids(ids, self)
        if isinstance(self.backend.decoder, decoders.ByteLevel) or self._sentencepiece and not bpe.adds_blank(
                self.backend):
            return int(self._sizes[ids].sum())
        whole = self.decode(ids).rstrip(CUT)
        return len(whole.encode()) + len(self.decode(ids)) - len(whole)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """(ids,) bytes of each token. Byte-level BPE has one per letter of its alphabet; SentencePiece's tokens have
        those of their characters. Special tokens are no text."""
        sizes = np.zeros(self.vocab_size, np.int64)
        for token, k in self.backend.get_vocab().items():
            sizes[k] = bpe.n_bytes(token) if self._sentencepiece else len(token)
        for k, added in self.backend.get_added_tokens_decoder().items():
            sizes[k] = 0 if added.special else len(added.content.encode())
        return sizes

    def _readable(self, text: str) -> str:
        """`text`. Raises ReproError for half a character, and for a sign that would come back as a blank."""
        reason = _half(check_text(text, "the text"))
        if self._sentencepiece and bpe.BLANK in text:
            reason = f"'{bpe.BLANK}' at position {text.index(bpe.BLANK):,} is its sign for a blank; replace it"
        if reason:
            raise ReproError(f"tokeniser {self.name} cannot encode this text: {reason}.")
        return text

    def save(self, path: Path | str) -> None:
        """Write one JSON file, which tokenizers and transformers' PreTrainedTokenizerFast read."""
        paths.write_atomic(path, self.backend.to_str())

    @cached_property
    def _sentencepiece(self) -> bool:
        return bpe.is_sentencepiece(self.backend)

    @cached_property
    def _between(self) -> re.Pattern:
        if self._sentencepiece and bpe.needs_whole_text(self.backend):
            return _NOWHERE
        return _LINE_ENDS if bpe.goes_across_words(self.backend) else _BETWEEN_WORDS


@dataclass(frozen=True)
class Bytes:
    """A tokeniser whose tokens are bytes: id 0 is <|endoftext|>, the others are the bytes of `known`, in its order."""

    known: bytes
    name: str = "byte"
    bos: int = 0

    @property
    def vocab_size(self) -> int:
        """Number of ids, <|endoftext|> included."""
        return 1 + len(self.known)

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the known bytes."""
        return hashlib.sha256(self.known).hexdigest()

    def encode(self, text: str) -> np.ndarray:
        """The ids of the bytes of `text`, int32. Raises ReproError for a byte that is not known."""
        content = np.frombuffer(_bytes_of(text), np.uint8)
        table = np.zeros(256, np.int32)
        table[list(self.known)] = range(1, self.vocab_size)
        ids = table[content]
        if not ids.all():
            at = int(ids.argmin())
            raise ReproError(f"tokeniser byte cannot encode this text: byte {content[at]} ({bytes([content[at]])}) "
                             f"at position {at:,} is not among the {len(self.known)} bytes of its training text.")
        return ids

    def touching(self, text: str, strings: Sequence[str]) -> np.ndarray:
        """Which bytes of `text` belong to one of `strings`: (n,) bool."""
        content = _bytes_of(text)
        return _inside(re.finditer(_any(strings).encode(), content), len(content))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, with a surrogate for each byte of a character that is cut; <|endoftext|> gives nothing.
        Raises ReproError for ids that it does not have."""
        return bytes(self.known[i - 1] for i in _ids(ids, self) if i).decode(errors="surrogateescape")

    def n_bytes(self, ids: Iterable[int]) -> int:
        """The number of bytes that `ids` encode: one each, except <|endoftext|>."""
        return sum(map(bool, _ids(ids, self)))


_BETWEEN_WORDS = re.compile(r"(?<=\w)[ \n](?=\w)")
_LINE_ENDS = re.compile(r"(?<=\n)")
_NOWHERE = re.compile(r"(?!)")
_SURROGATE = re.compile("[\ud800-\udfff]")


def pieces(text: str, size: int = PIECE, between: re.Pattern = _BETWEEN_WORDS) -> Iterator[str]:
    """`text` in pieces of about `size` characters, cut before a single blank or line end between two words.

    GPT-2's pre-tokeniser never joins across such a place, so encoding the pieces equals encoding the whole. A tokeniser
    whose merges go across words has to be cut after line ends, `between`.
    """
    start = 0
    while start < len(text):
        cut = between.search(text, start + size)
        stop = cut.start() if cut else len(text)
        yield text[start:stop]
        start = stop


def _ids(values: Iterable[int], tokeniser: Tokeniser | Bytes) -> list[int]:
    """`values` as ints. Raises ReproError for ids that a tokeniser does not have."""
    most = tokeniser.vocab_size - 1
    if not is_series(values):
        raise ReproError(f"ids are {values!r:.60}; give a list of whole numbers from 0 to {most:,}.")
    ids = values.tolist() if hasattr(values, "tolist") else list(values)
    for k, one in enumerate(ids):
        if isinstance(one, bool) or not isinstance(one, Integral) or not 0 <= one <= most:
            raise ReproError(f"id {k} is {one!r:.60}; tokeniser {tokeniser.name} has whole numbers from 0 to {most:,}.")
    return [int(one) for one in ids]


def _half(text: str) -> str:
    """A description of the part of a text that is not a character; "" if there is none."""
    found = _SURROGATE.search(text)
    return found and f"{found[0]!r} at position {found.start():,} is half a character (a lone surrogate)" or ""


def _bytes_of(text: str) -> bytes:
    """The bytes of a text, where a surrogate replaces each byte of a character that is cut."""
    try:
        return check_text(text, "the text").encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise ReproError(f"tokeniser byte cannot encode this text: {_half(text)}.") from None


def _any(strings: Sequence[str]) -> str:
    """A regular expression that finds each of `strings`. Raises ReproError for an empty one or a non-string."""
    if isinstance(strings, str) or not all(isinstance(one, str) and one for one in strings):
        raise ReproError(f"strings are {strings!r:.60}; give a list of texts that are not empty.")
    return "|".join(map(re.escape, strings))


def _inside(matches: Iterable[re.Match], n: int) -> np.ndarray:
    """Which of `n` characters are in one of `matches`: (n,) bool."""
    found = np.zeros(n, bool)
    for match in matches:
        found[slice(*match.span())] = True
    return found


@dataclass(frozen=True)
class Tokens:
    """A tokenised split: one stream and where its documents lie in it.

    ids: (n,) int32, starting with `bos`; books are each preceded by `bos`, WikiText's articles are not.
    starts: (documents,) index in `ids` of each document's first token.
    n_words, n_bytes: (documents,) words (as `Corpus.n_words` counts) and UTF-8 bytes, without what is never predicted.
    targets: (n,) bool, which tokens are to be predicted; the others are only context. None: all of them.
    never: the strings that are never predicted, such as "<unk>". Raises ReproError for parts that do not match.

    >>> books = tokens("synthetic-books", "test", tokeniser("word", corpus="synthetic-books"), n_documents=2)
    >>> len(books.starts), bool(books.ids[0] == books.bos), books.joined
    (2, True, False)
    """

    ids: np.ndarray
    starts: np.ndarray
    n_words: np.ndarray
    n_bytes: np.ndarray
    bos: int
    joined: bool
    targets: np.ndarray | None = None
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = {name: np.shape(getattr(self, name)) for name in ("ids", "starts", "n_words", "n_bytes")}
        sizes |= {} if self.targets is None else {"targets": np.shape(self.targets)}
        n, documents = sizes["ids"], sizes["starts"]
        if len(n) != 1 or len(documents) != 1 or not sizes["n_words"] == sizes["n_bytes"] == documents or sizes.get(
                "targets", n) != n:
            shapes = ", ".join(f"{name} {size}" for name, size in sizes.items())
            raise ReproError(f"the parts of a split have shapes {shapes}; ids and targets must be (tokens,), the "
                             "others (documents,).")
        if documents[0] and not (0 <= self.starts[0] and (np.diff(self.starts) >= 0).all() and self.starts[-1] <= n[0]):
            raise ReproError(f"starts must rise from 0 to the {n[0]:,} tokens that there are at most.")

    def __len__(self) -> int:
        return len(self.starts)

    def document(self, k: int) -> np.ndarray:
        """Document k as a stream of its own: `bos`, then its tokens."""
        return self._document(k, self.ids, self.bos)

    def targets_of(self, k: int) -> np.ndarray | None:
        """Which tokens of `document(k)` are to be predicted, `bos` among them; None: all."""
        return None if self.targets is None else self._document(k, self.targets, True)

    def _document(self, k: int, values: np.ndarray, first: int) -> np.ndarray:
        """`first`, then the `values`, one per token, of document k."""
        check_whole(k, "document", 0, len(self) - 1)
        begin = int(self.starts[k])
        last = k + 1 == len(self.starts)
        end = len(self.ids) if last else int(self.starts[k + 1]) - (not self.joined)
        return np.concatenate([np.array([first], values.dtype), values[begin:end]])

    def heads(self, n: int, tokeniser: Tokeniser) -> "Tokens":
        """The first `n` tokens of every document (of books; a running text has no heads), with the words and bytes in
        them that are predicted. A word that is cut counts as one, and a character by the bytes that are there."""
        check_whole(n, "n", 1, of="tokens")
        if self.joined:
            raise ReproError(f"the first {n} tokens of each document: this text runs on from document to document.")
        parts = [self.document(k)[:n + 1] for k in range(len(self))]
        counts = np.array([self._counts(k, ids, tokeniser) for k, ids in enumerate(parts)]).reshape(-1, 2)
        ends = np.cumsum([len(ids) for ids in parts])
        targets = None if self.targets is None else np.concatenate(
            [self.targets_of(k)[:n + 1] for k in range(len(self))])
        return replace(self, ids=np.concatenate(parts), starts=np.append(0, ends[:-1]) + 1, targets=targets,
                       n_words=counts[:, 0], n_bytes=counts[:, 1])

    def _counts(self, k: int, head: np.ndarray, tokeniser: "Tokeniser | Bytes") -> tuple[int, int]:
        """How many words and bytes of the head of document k are predicted."""
        n_words, n_bytes = len(tokeniser.decode(head).split()), tokeniser.n_bytes(head)
        if self.never:
            content = tokeniser.decode(self.document(k)).encode(errors="surrogateescape")
            spans = [found.span() for found in re.finditer(_any(self.never).encode(), content)]
            inside = [min(stop, n_bytes) - start for start, stop in spans if start < n_bytes]
            n_words, n_bytes = n_words - len(inside), n_bytes - sum(inside)
        return n_words, n_bytes


def tokens(corpus_name: str | Corpus, split: str, tokeniser: Tokeniser | Bytes,
           n_documents: int | None = None, names: Sequence[str] | None = None) -> Tokens:
    """`split` of a corpus as token ids, read from the cache when this corpus, split and tokeniser were seen before.

    n_documents: only the first n_documents in alphabetical order of file names; None: all, in the order of the corpus.
    names: only documents with these names, such as those from `drawn`.
    Raises ReproError for an unknown corpus, split or name, missing or damaged files, more documents than there are, and
    a full disk.

    >>> coder = tokeniser("word", corpus="synthetic-books")
    >>> books = tokens("synthetic-books", "test", coder, n_documents=2)
    >>> books.n_words.tolist()
    [2500, 2500]
    """
    source = corpus_name if isinstance(corpus_name, Corpus) else corpus(corpus_name)
    if not hasattr(tokeniser, "fingerprint"):
        raise ReproError(f"tokeniser is {tokeniser!r:.60}; give what repro.data.tokeniser(...) returns.")
    if n_documents is not None:
        check_whole(n_documents, "n_documents")
    if isinstance(names, str):
        raise ReproError(f"names is '{names:.40}'; give a list, such as ['{names:.40}'].")
    chosen = [*[n_documents] * bool(n_documents), *sorted(names or ())]
    key = _key(VERSION, source.fingerprint([split]), split, tokeniser.fingerprint, *chosen)
    cache = paths.work() / "tokens" / f"{source.name}-{split}-{key}.npz"
    try:
        with np.load(cache) as kept:
            needed = ("ids", "starts", "n_words", "n_bytes", *["targets"] * bool(source.never_targets))
            parts = {name: kept[name] for name in needed}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        parts = _tokenise(source, split, tokeniser, _chosen(source, split, n_documents, names))
        buffer = io.BytesIO()
        np.savez(buffer, **parts)
        paths.write_atomic(cache, buffer.getvalue())
    return Tokens(parts["ids"].astype(np.int32), parts["starts"], parts["n_words"], parts["n_bytes"],
                  tokeniser.bos, source.joined, parts.get("targets"), source.never_targets)


def drawn(corpus_name: str | Corpus, split: str, n: int, seed: int) -> tuple[str, ...]:
    """The names of `n` documents of `split` drawn at random by `seed`, in the order in which they are drawn.

    A pure function, the same on every machine: documents are sorted by a hash of seed and name. So a longer
    draw begins with the names of a shorter one, and adding or removing a document does not reorder the others.
    Raises ReproError for an unknown corpus or split, missing files, and more names than documents.

    >>> drawn("synthetic-books", "test", 3, seed=0) == drawn("synthetic-books", "test", 5, seed=0)[:3]
    True
    """
    source = corpus_name if isinstance(corpus_name, Corpus) else corpus(corpus_name)
    names = {document.id for document in source.stream(split)}
    check_whole(seed, "seed", 0)
    if isinstance(n, bool) or not isinstance(n, Integral) or not 1 <= n <= len(names):
        raise ReproError(f"{n} documents are to be drawn: {source.name} {split} has 1 to {len(names)} to give.")
    return tuple(sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())[:n])


def _chosen(source: Corpus, split: str, n: int | None, names: Sequence[str] | None) -> Iterable[Document]:
    if n is None and names is None:
        return source.stream(split)
    there = sorted(document.id for document in source.stream(split))
    for name in sorted({*(names or ())} - {*there}):
        raise unknown(f"document of {source.name} {split}", name, there)
    wanted = there if names is None else sorted(names)
    if n is not None and len(wanted) < n:
        raise ReproError(f"n_documents={n}: {source.name} {split} has only {len(wanted)} documents.")
    wanted = set(wanted[:n])
    return sorted((document for document in source.stream(split) if document.id in wanted), key=lambda one: one.id)


def _tokenise(source: Corpus, split: str, tokeniser: Tokeniser | Bytes,
              documents: Iterable[Document]) -> dict[str, np.ndarray]:
    small = np.uint16 if tokeniser.vocab_size <= 2**16 else np.int32
    bos = np.array([tokeniser.bos], small)
    never = source.never_targets
    stream, starts, n_words, n_bytes, targets, length = [], [], [], [], [], 0
    for document in documents:
        if not starts or not source.joined:
            stream.append(bos)
            targets.append(np.ones(1, bool))
            length += 1
        starts.append(length)
        stream.append(tokeniser.encode(document.text).astype(small))
        length += len(stream[-1])
        n_words.append(source.n_words(document.text))
        n_bytes.append(len(document.content) - sum(document.text.count(one) * len(one.encode()) for one in never))
        if never:
            targets.append(~tokeniser.touching(document.text, never))
    if not starts:
        raise ReproError(f"corpus {source.name}, {split}, has no document; fetch it again, or give another split.")
    parts = {"ids": np.concatenate(stream), "starts": np.array(starts, np.int64),
             "n_words": np.array(n_words, np.int64), "n_bytes": np.array(n_bytes, np.int64)}
    return parts | ({"targets": np.concatenate(targets)} if never else {})


def tokeniser(name: str, vocab_size: int = 0, corpus: str | Sequence[str] = ()) -> Tokeniser | Bytes:
    """The tokeniser `name`, trained on the train split of `corpus` (one name or several) unless it is cached.

    "bpe": byte-level BPE with `vocab_size` ids, id 0 is <|endoftext|>.
    "masked-bpe": the same for masked models: <s> 0, <pad> 1, </s> 2, <unk> 3, and <mask> has the last id.
    "word": one id per word of an embedded corpus' lexicon; `vocab_size` is not used.
    "byte": one id per byte that occurs in the train split; `vocab_size` is not used.
    "gpt2": the original GPT-2 one (50,257 ids), from $REPRO_DATA/gpt2-tokenizer or the hub; the rest is not used.
    "roberta": RoBERTa's own (50,265 ids), from the hub; the rest is not used.
    "openai-gpt": GPT's own (40,478 ids, lower case, no <|endoftext|>), from the hub; the rest is not used.
    Raises ReproError for another name, fewer ids than bytes and special tokens, an unknown or missing corpus.

    >>> coder = tokeniser("word", corpus="synthetic-books")
    >>> book = corpus("synthetic-books").documents("test")[0].text
    >>> coder.decode(coder.encode(book)).split() == book.split()
    True
    """
    if not isinstance(corpus, str | Sequence) or not isinstance(name, str):
        raise ReproError(f"name is {name!r:.40} and corpus {corpus!r:.40}; give a name, and a name or a list of them.")
    names = (corpus,) if isinstance(corpus, str) else tuple(corpus)
    if name in _PUBLISHED:
        return Tokeniser(name, _PUBLISHED[name]())
    if name not in ("bpe", "masked-bpe", "word", "byte"):
        raise unknown("tokeniser", name, ["bpe", "masked-bpe", "word", "byte", *_PUBLISHED])
    if not names:
        raise ReproError(f"tokeniser {name} needs the name of at least one corpus to be made from.")
    if name == "word":
        return Tokeniser("word", _word(names[0]))
    if name == "byte":
        return Bytes(_bytes(names))
    special, last = (MASKED[:-1], MASKED[-1:]) if name == "masked-bpe" else ((END,), ())
    least = 256 + len(special) + len(last)
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, Integral) or vocab_size < least:
        raise ReproError(f"vocab_size={vocab_size!r:.40}: byte-level BPE needs at least {least} (256 bytes and "
                         f"{' '.join((*special, *last))}).")
    return Tokeniser(f"{name}-{vocab_size}", _bpe(name, names, vocab_size, special, last))


def train_bpe(texts: Iterable[str], vocab_size: int, level: str = "byte", categories: bool = True) -> Tokeniser:
    """A tokeniser trained on `texts`, of at most `vocab_size` ids: fewer if the texts give no more merges.

    level "byte" is GPT-2's: id 0 is <|endoftext|>, then 256 bytes, then merges. Merges do not cross categories of
    characters, except a blank before a word; with categories=False, they go anywhere within a line. Decoding gives
    back every text. level "word" is GPT's: lower case without accents, `</w>` at the end of a word, id 0 <|endoftext|>,
    id 1 <unk> for letters that the texts lack; decoding gives words with single blanks between them.
    Empty texts are skipped. Raises ReproError for another level, for categories=False with words, and for fewer
    than 257 ids or more than a million (`tokenizers` would reserve memory for them before it reads anything). Raises it
    also for texts that are not a list of strings, hold no word, or contain "<|endoftext|>" or a lone surrogate.

    >>> coder = train_bpe(["low lower lowest"] * 9, 262)
    >>> [coder.decode([one]) for one in coder.encode("lower")]
    ['low', 'e', 'r']
    """
    if not isinstance(categories, bool):
        raise ReproError(f"categories is {categories!r:.40}; it must be True or False.")
    if not isinstance(level, str) or level not in bpe.LEVELS:
        raise unknown("level of BPE", level, bpe.LEVELS)
    if isinstance(vocab_size, bool) or not isinstance(vocab_size, Integral) or vocab_size < 257:
        raise ReproError(f"vocab_size={vocab_size}: BPE needs a whole number of at least 257 (256 bytes and {END}).")
    if vocab_size > MOST_IDS:
        raise ReproError(f"vocab_size={vocab_size}: at most {MOST_IDS:,} ids are trained.")
    vocab_size = int(vocab_size)
    if level == "word" and not categories:
        raise ReproError("categories=False goes with level='byte': at level 'word', a merge never leaves its word.")
    if not isinstance(texts, Iterable):
        raise ReproError(f"texts is {texts!r:.60}; give a list of texts.")
    if isinstance(texts, str):
        raise ReproError("texts is one string; give a list of texts, such as [text].")
    words, between = 0, _BETWEEN_WORDS if categories else _LINE_ENDS

    def checked() -> Iterator[str]:
        nonlocal words
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise ReproError(f"text {number} is {type(text).__name__}, not a string.")
            if END in text:
                raise ReproError(f"text {number} has {END} in it, which stands between texts only; take it out.")
            if half := _half(text):
                raise ReproError(f"text {number} cannot be read: {half}.")
            words += not text.isspace() and text != ""
            yield from pieces(text, between=between)

    made = (bpe.word_level(checked(), vocab_size, (END,)) if level == "word" else
            bpe.byte_level(checked(), vocab_size, (END,), categories=categories))
    if not words:
        raise ReproError("there is no word in the texts; BPE needs at least one text to learn from.")
    return Tokeniser(f"bpe-{made.get_vocab_size()}", made)


def _bpe(kind: str, names: tuple[str, ...], vocab_size: int, special: tuple[str, ...], last: tuple[str, ...]) -> object:
    """Byte-level BPE of corpora, from the cache if they were seen before."""
    import tokenizers
    from tokenizers import Tokenizer

    sources = [corpus(name) for name in names]
    key = _key(VERSION, tokenizers.__version__, vocab_size, *(source.fingerprint(["train"]) for source in sources))
    cache = paths.work() / "tokenisers" / f"{kind}-{vocab_size}-{'+'.join(names)}-{key}.json"
    if not cache.exists():
        texts = (piece for source in sources for text in source.texts("train") for piece in pieces(text))
        made = bpe.byte_level(texts, vocab_size, special, last)
        if made.get_vocab_size() != vocab_size:
            raise ReproError(f"vocab_size={vocab_size}: the text of {', '.join(names)} gives only "
                             f"{made.get_vocab_size()} different tokens; ask for at most that many.")
        paths.write_atomic(cache, made.to_str())
    return Tokenizer.from_file(str(cache))


def _bytes(names: tuple[str, ...]) -> bytes:
    seen = np.zeros(256, bool)
    for text in (text for name in names for split in corpus(name).known_bytes for text in corpus(name).texts(split)):
        seen |= np.bincount(np.frombuffer(text.encode(errors="surrogateescape"), np.uint8), minlength=256) > 0
    return bytes(np.flatnonzero(seen).tolist())


def _word(name: str) -> object:
    from tokenizers import Tokenizer, models, pre_tokenizers

    generator = corpus(name).generator
    if generator is None:
        raise ReproError(f"tokeniser word: the words of {name} are not a closed list; use 'bpe' for it.")
    made = Tokenizer(models.WordLevel({word: k for k, word in enumerate([END, *sorted(generator.lexicon())])}))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([END])
    return made


def _gpt2() -> object:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    local = root() / "gpt2-tokenizer"
    names = ("vocab.json", "merges.txt")
    if all((local / name).exists() for name in names):
        found = [str(local / name) for name in names]
    else:
        try:
            from huggingface_hub import hf_hub_download
            found = [hf_hub_download("openai-community/gpt2", name) for name in names]
        except Exception as error:  # no network, no such file: many types, one meaning
            raise ReproError(f"the GPT-2 tokeniser is neither in {local} nor on the hub ({type(error).__name__}): "
                             "set REPRO_DATA to the folder that holds gpt2-tokenizer/.") from error
    made = Tokenizer(models.BPE.from_file(*found))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(END, normalized=False)])
    return made


def _from_hub(repository: str) -> object:
    from tokenizers import Tokenizer

    try:
        from huggingface_hub import hf_hub_download
        return Tokenizer.from_file(hf_hub_download(repository, "tokenizer.json"))
    except Exception as error:  # no network, no such file: many types, one meaning
        raise ReproError(f"the tokeniser of {repository} cannot be had from the hub ({type(error).__name__}): fetch it "
                         "where there is a network.") from error


_PUBLISHED = {"gpt2": _gpt2, "roberta": partial(_from_hub, "FacebookAI/roberta-base"),
              "openai-gpt": partial(_from_hub, "openai-community/openai-gpt")}



def _key(*parts: object) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]
