"""Tokenisers and streams: lossless, deterministic, cached, one token a word where windows are counted in words."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tiny_gemma
from tokenizers import Tokenizer
from tokenizers.models import WordPiece

from repro.data import Document, Reader, corpus, drawn, example_readers, registry, tokenisation, tokeniser, tokens
from repro.data.tokenisation import pieces
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")


@pytest.fixture
def bpe(data):
    return tokeniser("bpe", 280, ("wikitext-103", "pg19-subset"))


@real
def test_gpt2_token_counts_of_wikitext103(tmp_path, monkeypatch):
    """Counts of an independent encoder of the same files, plus the one <|endoftext|> before them."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path))
    gpt2 = tokeniser("gpt2")
    assert gpt2.vocab_size == 50_257
    assert gpt2.bos == 50_256
    assert gpt2.encode("Hello world").tolist() == [15496, 995]
    source = replace(corpus("wikitext-103"), normalise=None, never_targets=())
    validation = tokens(source, "validation", gpt2)
    assert len(validation.ids) == 249_887 + 1
    assert validation.n_words.sum() == 217_646
    assert validation.n_bytes.sum() == 1_146_846
    text = "".join(document.text for document in source.documents("validation"))
    assert gpt2.decode(validation.ids) == text


def test_bpe_round_trip_of_anything(bpe, sample):
    assert bpe.vocab_size == 280
    assert bpe.bos == 0
    for text in [*sample.articles, *sample.books["train-00-of-02"].values(), "", " ", "\n", " \n \n",
                 "🙂\u200d\x00\x85\u2028", "a <|endoftext|> b", "日本語 " * 3]:
        ids = bpe.encode(text)
        assert ids.dtype == np.int32
        assert bpe.decode(ids) == text
        assert bpe.bos not in ids
        assert bpe.decode([bpe.bos, *ids, bpe.bos]) == text


def test_no_piece_of_a_long_text_is_lost(bpe, monkeypatch):
    monkeypatch.setattr(tokenisation, "BATCH", 2)
    text = "a long text is cut into pieces " * 3200  # five pieces, so three calls
    assert len(list(pieces(text))) == 5
    assert bpe.decode(bpe.encode(text)) == text


def test_pieces_give_the_tokens_of_the_whole(bpe, sample):
    text = "".join([*sample.articles, *sample.books["train-00-of-02"].values()])
    text += "it's  two\n\nlines \n x\ty don't" * 50
    whole = bpe.backend.encode(text, add_special_tokens=False).ids
    for size in (1, 2, 7, 30, 10_000):
        cut = list(pieces(text, size))
        assert "".join(cut) == text
        assert [i for piece in cut for i in bpe.encode(piece)] == whole
    assert len(list(pieces(text, 30))) > 20


def test_stream_of_wikitext_is_the_file_after_one_endoftext(data, bpe, sample):
    stream = tokens("wikitext-103", "validation", bpe)
    assert stream.ids.dtype == np.int32
    assert stream.ids[0] == bpe.bos == stream.bos
    assert (stream.ids == bpe.bos).sum() == 1
    assert bpe.decode(stream.ids[1:]) == "".join(sample.articles)
    assert stream.ids[1:].tolist() == bpe.encode("".join(sample.articles)).tolist()
    assert stream.starts[0] == 1
    assert len(stream) == len(sample.articles)
    for k, article in enumerate(sample.articles):
        assert stream.document(k)[0] == bpe.bos
        assert bpe.decode(stream.document(k)[1:]) == article
        assert stream.n_words[k] == len(article.split()) + article.count("\n")
        assert stream.n_bytes[k] == len(article.encode())


def test_stream_of_books_has_endoftext_before_each(data, bpe, sample):
    stream = tokens("pg19-subset", "train", bpe)
    books = [*sample.books["train-00-of-02"].values(), *sample.books["train-01-of-02"].values()]
    assert np.flatnonzero(stream.ids == bpe.bos).tolist() == (stream.starts - 1).tolist()
    for k, book in enumerate(books):
        assert bpe.decode(stream.document(k)[1:]) == book
        assert stream.document(k)[0] == bpe.bos
        assert (stream.document(k) == bpe.bos).sum() == 1
        assert stream.n_words[k] == len(book.split())
    assert len(stream.ids) == sum(len(stream.document(k)) for k in range(3))


def test_first_documents_are_the_first_by_file_name(data, bpe, sample):
    sample.put_parquet(data / "pg19-subset" / "train-01-of-02.parquet",
                        {"id": ["1000"], "text": ["By number last, by name first."]})
    books = {**sample.books["train-00-of-02"], 1000: "By number last, by name first."}
    names = sorted(map(str, books))
    assert names == ["1000", "101", "102"]
    two = tokens("pg19-subset", "train", bpe, n_documents=2)
    by_name = {str(name): text for name, text in books.items()}
    assert [bpe.decode(two.document(k)[1:]) for k in range(2)] == [by_name[name] for name in names[:2]]
    assert two.n_words.tolist() == [len(by_name[name].split()) for name in names[:2]] and len(two) == 2
    assert len(tokens("pg19-subset", "train", bpe)) == 3  # the cache of the whole is another file
    with pytest.raises(ReproError, match="n_documents=4: pg19-subset train has only 3 documents"):
        tokens("pg19-subset", "train", bpe, n_documents=4)


def test_documents_by_name(data, bpe, sample):
    books = sample.books["train-00-of-02"] | sample.books["train-01-of-02"]
    text = {str(name): book for name, book in books.items()}
    found = tokens("pg19-subset", "train", bpe, names=("103", "101"))
    assert [bpe.decode(found.document(k)[1:]) for k in range(len(found))] == [text["101"], text["103"]]
    other = tokens("pg19-subset", "train", bpe, names=["102"])
    assert [bpe.decode(other.document(k)[1:]) for k in range(len(other))] == [text["102"]]
    with pytest.raises(ReproError, match="unknown document of pg19-subset train '1011'. Did you mean '101'"):
        tokens("pg19-subset", "train", bpe, names=("101", "1011"))
    with pytest.raises(ReproError, match="n_documents=3: pg19-subset train has only 2 documents"):
        tokens("pg19-subset", "train", bpe, 3, ("101", "102"))


def test_a_draw_is_a_function_of_its_seed_and_the_names(data):
    import hashlib

    names = {"101", "102", "103"}
    orders = {seed: drawn("pg19-subset", "train", 3, seed) for seed in range(40)}
    assert all(set(order) == names for order in orders.values())
    assert len(set(orders.values())) == 6  # every order comes
    for seed, order in orders.items():
        assert [drawn("pg19-subset", "train", n, seed) for n in (1, 2)] == [order[:1], order[:2]]
        assert drawn(corpus("pg19-subset"), "train", 3, seed) == order
    by_hand = sorted(names, key=lambda name: hashlib.sha256(f"7/{name}".encode()).hexdigest())
    assert list(orders[7]) == by_hand


def test_a_draw_is_even():
    """Of 40 texts 10 are drawn 400 times: each comes about 100 times, and the first half as often as the second."""
    texts = [Document(str(k), "") for k in range(40)]
    shelf = replace(corpus("pg19-subset"), read=Reader(Document, lambda *_: iter(texts)))
    counts = Counter(name for seed in range(400) for name in drawn(shelf, "train", 10, seed))
    assert len(counts) == 40 and 55 < min(counts.values()) and max(counts.values()) < 145
    assert abs(sum(counts[str(k)] for k in range(20)) - 2000) < 150


@pytest.mark.parametrize("n", [0, -1, 4])
def test_impossible_draws(data, n):
    with pytest.raises(ReproError, match=f"^{n} documents are to be drawn: pg19-subset train has 1 to 3 to give"):
        drawn("pg19-subset", "train", n, 0)


UNKNOWN = ["", "no such word", "a <unk> b", "<unk>", "<unk><unk>, (<unk>) \"<unk>\" <unk>'s", "x<unk>y <unk",
           "日本 <unk> — naïve <unk>–<unk> .\n\n <unk> \n <unk>\n", "a < unk > <UNK> unk", "<unk> " * 9000]


@pytest.mark.parametrize("text", UNKNOWN, ids=range(len(UNKNOWN)))
@pytest.mark.parametrize("size", [257, 280, 330])
def test_tokens_that_touch_a_string_byte_by_byte(data, text, size):
    """A token of byte-level BPE is written with one character a byte, so that every token's bytes can be counted."""
    coder = tokeniser("bpe", size, "wikitext-103")
    content, ids = text.encode(), coder.encode(text)
    inside = np.zeros(len(content), bool)
    for k in range(len(content)):
        if content[k:k + 5] == b"<unk>":
            inside[k:k + 5] = True
    expected, at = [], 0
    for i in ids:
        length = len(coder.backend.id_to_token(int(i)))
        expected.append(inside[at:at + length].any())
        at += length
    assert at == len(content)
    found = coder.touching(text, ("<unk>", "never there"))
    assert found.dtype == bool and found.tolist() == expected
    assert found.any() == ("<unk>" in text)


def test_bytes_and_words_that_touch_a_string(data):
    known = tokeniser("byte", corpus="wikitext-103")
    assert known.touching("é <unk>.", ("<unk>", ".")).tolist() == 3 * [False] + 6 * [True]
    words = tokeniser("word", corpus="synthetic-books")
    assert words.touching("Robin moored his drum .", ("his", "oor")).tolist() == [False, True, True, False, False]


def test_tokens_lie_where_their_letters_are(bpe, sample):
    text = " \n".join(3 * sample.articles) + "  naïve 日本 "
    places = bpe.offsets(text)
    assert places.shape == (len(bpe.encode(text)), 2) and places[0, 0] == 0 and places[-1, 1] == len(text)
    for id, (start, stop) in zip(bpe.encode(text), places, strict=True):
        if (letters := bpe.decode([id])).isprintable() and "\ufffd" not in letters:  # else a part of a letter
            assert text[start:stop] == letters
    long = "word " * 10_000  # several pieces
    assert bpe.offsets(long)[:, 1].tolist() == np.cumsum([len(bpe.decode([id])) for id in bpe.encode(long)]).tolist()
    assert tokeniser("word", corpus="synthetic-books").offsets("Robin  his").tolist() == [[0, 5], [7, 10]]
    assert bpe.offsets("").shape == (0, 2)


def test_what_is_never_predicted_is_known_of_every_token(data, bpe, sample):
    source = replace(corpus("wikitext-103"), never_targets=("<unk>",))
    plain, found = tokens("wikitext-103", "train", bpe), tokens(source, "train", bpe)
    assert plain.targets is None
    assert found.ids.tolist() == plain.ids.tolist() and len(found) == 9
    text = "".join(3 * sample.articles)
    assert found.targets.tolist() == [True, *~bpe.touching(text, ("<unk>",))]
    assert plain.n_words.sum() - found.n_words.sum() == text.count("<unk>") == 3
    assert plain.n_bytes.sum() - found.n_bytes.sum() == 15
    assert source.n_words("a <unk> b <unk>\n") == 3
    splits = {name: replace(part, counts={"<unk>": 3}) for name, part in source.splits.items()}
    rows = {row.split: row.found for row in replace(source, splits=splits).check() if row.what == "<unk>"}
    assert rows == {"train": 3, "validation": 1, "test": 1}
    assert tokens(source, "train", bpe).targets.tolist() == found.targets.tolist()  # from the cache
    assert source.fingerprint() != corpus("wikitext-103").fingerprint()
    assert source.fingerprint() != replace(source, never_targets=("unk",)).fingerprint()


def test_heads_of_books_keep_what_is_never_predicted(data, bpe):
    source = replace(corpus("pg19-subset"), never_targets=("book", "END"))
    whole = tokens(source, "train", bpe)
    heads = whole.heads(9, bpe)
    assert whole.targets[whole.starts - 1].all() and not whole.targets.all()
    cut = [whole.targets[start - 1:start + 9] for start in whole.starts]
    assert all((whole.targets_of(k)[:10] == one).all() for k, one in enumerate(cut))
    assert len(whole.targets_of(1)) == len(whole.document(1))
    assert heads.targets.tolist() == np.concatenate(cut).tolist() and not heads.targets.all()
    assert len(heads.targets) == len(heads.ids)


SCRIPTS = ("Ein Käfer für 5 £.", "Ёлка в лесу", "日本語と漢字", "🙂👩‍👩‍👧 ok", "नमस्ते दुनिया", "a\u00a0b\ufffd",
           "שלום\n\n\tعالم")


@pytest.fixture(scope="module")
def multilingual():
    return tokenisation.train_bpe([text for text in SCRIPTS for _ in range(3)], 290)


def bytes_by_hand(coder, ids):
    """Of byte-level BPE, decoded one id at a time: the letters of GPT-2's alphabet, which stand for one byte each."""
    from tokenizers.pre_tokenizers import ByteLevel

    letters = [coder.backend.id_to_token(int(one)) for one in ids if one != coder.bos]
    assert set("".join(letters)) <= set(ByteLevel.alphabet())
    return sum(map(len, letters))


@pytest.mark.parametrize("text", [*SCRIPTS, "".join(SCRIPTS), ""])
def test_bytes_of_a_text_cut_at_every_token(multilingual, text):
    ids = multilingual.encode(text)
    whole = [multilingual.n_bytes(ids[:k]) for k in range(len(ids) + 1)]
    assert whole == [bytes_by_hand(multilingual, ids[:k]) for k in range(len(ids) + 1)]
    assert whole[-1] == len(text.encode()) and multilingual.n_bytes([multilingual.bos, *ids]) == whole[-1]
    for k, size in enumerate(whole):  # the text up to the last whole character is what these bytes say
        assert multilingual.decode(ids[:k]).startswith(text.encode()[:size].decode(errors="ignore"))
        assert multilingual.n_bytes(ids[:k]) + multilingual.n_bytes(ids[k:]) == whole[-1]


def test_bytes_of_a_published_layout_and_of_fallback_to_bytes():
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    vocab = {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3} | {f"<0x{k:02X}>": 4 + k for k in range(256)}
    made = Tokenizer(models.BPE(vocab, [("▁", "a")], unk_token="<unk>", byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_tokens([AddedToken("naïve", normalized=False)])
    coder = tokenisation.Tokeniser("fallback", made)
    ids = coder.encode("a naïve日 a")
    sizes = [coder.n_bytes(ids[:k]) for k in range(len(ids) + 1)]
    assert sizes[-1] == len("a naïve日 a".encode()) and np.diff(sizes).tolist() == [1, 1, 6, 1, 1, 1, 2]


def test_bytes_of_a_text_of_bytes_that_is_cut(data):
    known = tokenisation.Bytes(bytes(range(256)))
    for text in SCRIPTS:
        ids = known.encode(text)
        assert [known.n_bytes(ids[:k]) for k in range(len(ids) + 1)] == list(range(len(text.encode()) + 1))
        assert known.encode(known.decode(ids[:5])).tolist() == ids[:5].tolist()


@pytest.mark.parametrize("coder", ["multilingual", "bytes"])
@pytest.mark.parametrize("n", range(1, 40))
def test_heads_count_the_bytes_that_are_there(multilingual, coder, n):
    coder = multilingual if coder == "multilingual" else tokenisation.Bytes(bytes(range(256)))
    streams = [np.append(coder.bos, coder.encode(text)) for text in SCRIPTS]
    starts = 1 + np.cumsum([0, *map(len, streams[:-1])])
    counts = np.zeros(len(SCRIPTS), int)
    books = tokenisation.Tokens(np.concatenate(streams), starts, counts, counts, coder.bos, False)
    heads = books.heads(n, coder)
    for k, text in enumerate(SCRIPTS):
        content = text.encode()[:int(heads.n_bytes[k])]
        assert coder.encode(text)[:n].tolist() == heads.document(k)[1:].tolist()
        assert heads.n_bytes[k] == coder.n_bytes(coder.encode(text)[:n])
        assert heads.n_words[k] == len(content.decode(errors="replace").split())  # a cut word is a word


def test_heads_leave_out_what_is_never_predicted(data, bpe):
    never = ("<unk>",)
    texts = ["one <unk> two", "<unk>", "a b<unk>c é", "no such"]
    streams = [np.append(bpe.bos, bpe.encode(text)) for text in texts]
    targets = [np.append(True, ~bpe.touching(text, never)) for text in texts]
    counts = np.zeros(4, int)
    whole = tokenisation.Tokens(np.concatenate(streams), 1 + np.cumsum([0, *map(len, streams[:-1])]), counts, counts,
                                bpe.bos, False, np.concatenate(targets), never)
    for n in range(1, 20):
        heads = whole.heads(n, bpe)
        for k, text in enumerate(texts):
            size = bpe.n_bytes(bpe.encode(text)[:n])
            inside = np.zeros(len(text.encode()), bool)  # bytes that are never predicted
            for at in (i for i in range(len(text)) if text.startswith("<unk>", i)):
                inside[len(text[:at].encode()):][:5] = True
            assert heads.n_bytes[k] == (~inside[:size]).sum()
            assert heads.n_words[k] == len(text.encode()[:size].decode(errors="replace").split()) - inside[:size].any()
    full = whole.heads(99, bpe)
    assert full.n_words.tolist() == [2, 0, 2, 2] and full.n_bytes.tolist() == [8, 0, 7, 7]


@pytest.mark.parametrize("change", [
    {"ids": np.zeros((2, 3), int)}, {"starts": np.array([3, 1])}, {"starts": np.array([0, 99])},
    {"starts": np.array([-1, 2])}, {"n_words": np.zeros(3, int)}, {"n_bytes": np.zeros(1, int)},
    {"targets": np.ones(4, bool)}])
def test_parts_of_a_split_fit_together(change):
    good = {"ids": np.arange(9), "starts": np.array([1, 5]), "n_words": np.zeros(2, int), "n_bytes": np.zeros(2, int),
            "bos": 0, "joined": False}
    assert len(tokenisation.Tokens(**good)) == 2
    with pytest.raises(ReproError, match="starts|shapes"):
        tokenisation.Tokens(**good | change)
    for k in (-1, 2, 1.0, None):
        with pytest.raises(ReproError, match="document is"):
            tokenisation.Tokens(**good).document(k)


@pytest.mark.parametrize("how", ["file", "backend"])
def test_a_file_that_was_saved_after_a_call_that_cuts_and_pads(multilingual, tmp_path, how):
    """As a tokenizer.json is that transformers saved after `tokenizer(..., truncation=True, max_length=5)`."""
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(multilingual.backend.to_str())
    backend.enable_truncation(5)
    backend.enable_padding(length=32)
    backend.save(str(tmp_path / "tokenizer.json"))
    coder = (tokenisation.Tokeniser.read(tmp_path / "tokenizer.json") if how == "file" else
             tokenisation.Tokeniser("bpe-290", Tokenizer.from_file(str(tmp_path / "tokenizer.json"))))
    for text in SCRIPTS:
        assert coder.encode(text).tolist() == multilingual.encode(text).tolist()
        assert len(coder.offsets(text)) == len(coder.encode(text)) and coder.decode(coder.encode(text)) == text
    assert coder.fingerprint == multilingual.fingerprint


@pytest.mark.parametrize("ids", [[-1], [10**6], [1.5], ["a"], "ab", None, 3, [True], [[1, 2]], [None]])
@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_ids_that_a_tokeniser_does_not_have(multilingual, kind, ids):
    coder = multilingual if kind == "bpe" else tokenisation.Bytes(b"abc")
    for ask in (coder.decode, coder.n_bytes):
        with pytest.raises(ReproError, match="whole numbers from 0 to"):
            ask(ids)


@pytest.mark.parametrize("text", [None, 3, b"ab", ["a"], "\ud83d"])
@pytest.mark.parametrize("kind", ["bpe", "bytes"])
def test_what_is_no_text_has_no_tokens(multilingual, kind, text):
    coder = multilingual if kind == "bpe" else tokenisation.Bytes(b"abc")
    for ask in (coder.encode, lambda text: coder.touching(text, ("a",))):
        with pytest.raises(ReproError):
            ask(text)
    for strings in ("ab", [""], [3], [None]):
        with pytest.raises(ReproError, match="give a list of texts that are not empty"):
            coder.touching("a", strings)


def test_heads_keep_the_first_tokens_of_every_document_and_their_words(data, bpe):
    whole = tokens("pg19-subset", "train", bpe)
    heads = whole.heads(9, bpe)
    assert len(heads) == len(whole) and len(heads.ids) == 3 * 10
    for k in range(3):
        assert heads.document(k).tolist() == whole.document(k)[:10].tolist()
        text = bpe.decode(whole.document(k)[1:10])
        assert (heads.n_words[k], heads.n_bytes[k]) == (len(text.split()), bytes_by_hand(bpe, heads.document(k)))
    same = whole.heads(10**9, bpe)
    for name in ("ids", "starts", "n_words", "n_bytes"):
        np.testing.assert_array_equal(getattr(same, name), getattr(whole, name))
    with pytest.raises(ReproError, match="runs on from document to document"):
        tokens("wikitext-103", "validation", bpe).heads(9, bpe)


def test_cache_is_used_and_never_trusted_blindly(data, tmp_path, bpe):
    first = tokens("pg19-subset", "train", bpe)
    cache, = (tmp_path / "work" / "tokens").glob("pg19-subset-train-*.npz")
    stamp = cache.stat().st_mtime_ns
    again = tokens("pg19-subset", "train", bpe)
    assert cache.stat().st_mtime_ns == stamp
    for name in ("ids", "starts", "n_words", "n_bytes"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    cache.write_bytes(cache.read_bytes()[:-100])  # a damaged cache is made again
    np.testing.assert_array_equal(tokens("pg19-subset", "train", bpe).ids, first.ids)
    other = tokeniser("bpe", 270, "pg19-subset")
    tokens("pg19-subset", "train", other)
    assert len(list(cache.parent.glob("pg19-subset-train-*.npz"))) == 2


def test_training_is_the_same_in_every_process(data, bpe):
    code = ("from repro.data import tokeniser; "
            "print(tokeniser('bpe', 280, ('wikitext-103', 'pg19-subset')).fingerprint)")
    for threads in ("1", "2"):
        environment = {**os.environ, "RAYON_NUM_THREADS": threads, "REPRO_WORK": str(data.parent / f"work{threads}")}
        found = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        assert found.strip() == bpe.fingerprint


def test_training_uses_train_only_and_depends_on_its_content(data, bpe):
    assert tokeniser("bpe", 280, "pg19-subset").fingerprint != bpe.fingerprint
    (data / "wikitext" / "wiki.test.raw.xz").unlink()
    assert tokeniser("bpe", 280, ("wikitext-103", "pg19-subset")).fingerprint == bpe.fingerprint


def test_bytes_are_tokens(data, sample):
    known = tokeniser("byte", corpus="pg19-subset")
    books = [*sample.books["train-00-of-02"].values(), *sample.books["train-01-of-02"].values()]
    seen = sorted(set("".join(books).encode()))
    assert known.vocab_size == len(seen) + 1 and known.bos == 0
    stream = tokens("pg19-subset", "train", known)
    content = books[0].encode()
    assert stream.document(0).tolist() == [0, *(seen.index(byte) + 1 for byte in content)]
    assert known.decode(stream.document(0)) == books[0]
    assert stream.n_bytes[0] == len(content)
    assert known.fingerprint != tokeniser("byte", corpus=("pg19-subset", "wikitext-103")).fingerprint


def test_byte_that_training_did_not_have(data):
    with pytest.raises(ReproError, match=r"byte 126 .b'~'. at position 1 is not among the \d+ bytes of its training"):
        tokeniser("byte", corpus="pg19-subset").encode("a~")


@real
@pytest.mark.parametrize(("name", "n_known"), [("text8-prefix", 27), ("enwik8-prefix", 200)])
def test_every_byte_of_the_prefixes_is_known_from_training(name, n_known, tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path))
    known = tokeniser("byte", corpus=name)
    assert known.vocab_size == n_known + 1
    for split in ("validation", "test"):
        assert len(tokens(name, split, known).ids) == corpus(name).splits[split].n_bytes + 1


def test_word_tokeniser_has_one_token_a_word():
    words = tokeniser("word", 0, "synthetic-books")
    book = corpus("synthetic-books").documents("test", 1)[0].text
    ids = words.encode(book)
    assert len(ids) == len(book.split()) == 2500
    assert words.decode(ids) == book
    assert words.vocab_size == 205
    assert words.bos == 0
    assert words.bos not in ids
    with pytest.raises(ReproError, match="tokeniser word cannot encode this text"):
        words.encode("Robin ocean")


def test_stream_of_synthetic_books(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path))
    stream = tokens("synthetic-books", "test", tokeniser("word", 0, "synthetic-books"))
    assert stream.starts.tolist() == [1 + k * 2501 for k in range(40)]
    assert stream.n_words.tolist() == [2500] * 40


def test_a_tokeniser_for_masked_models_has_robertas_special_tokens(data, sample):
    masked = tokeniser("masked-bpe", 290, "pg19-subset")
    assert masked.vocab_size == 290 and masked.bos == 0
    assert [masked.backend.id_to_token(k) for k in (0, 1, 2, 3, 289)] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert len({masked.backend.id_to_token(k) for k in range(4, 289)}) == 285
    for text in (sample.articles[0], "a <mask> and </s> in a text <s><pad>", "🙂 ½"):
        ids = masked.encode(text)
        assert masked.decode(ids) == text
        assert ids.min() >= 4 and ids.max() < 289, "special tokens inside a text are text"
    assert tokens("pg19-subset", "train", masked).ids[0] == 0
    assert masked.mask == 289
    with pytest.raises(ReproError, match="tokeniser word has no <mask>; a masked model needs it as its last id"):
        _ = tokeniser("word", 0, "synthetic-books").mask
    masked.backend.add_special_tokens(["<other>"])
    with pytest.raises(ReproError, match="has <mask> as id 289; a masked model needs it as its last id .290"):
        _ = masked.mask


def test_special_tokens_of_roberta_and_bert_by_kind(data, bpe):
    masked = tokeniser("masked-bpe", 290, "pg19-subset")
    kinds = ("sep", "pad", "unk", "mask")
    assert [masked.special(kind) for kind in kinds] == [2, 1, 3, 289]
    names = {name: k for k, name in enumerate(("[MASK]", "cat", "[SEP]", "[UNK]", "[CLS]", "[PAD]"))}
    bert = tokenisation.Tokeniser("bert", Tokenizer(WordPiece(names, unk_token="[UNK]")))
    assert [bert.special(kind) for kind in kinds] == [2, 5, 3, 0] and bert.bos == 4
    with pytest.raises(ReproError, match=r"tokeniser bpe-280 has none of <mask>, \[MASK\]; take that of RoBERTa"):
        bpe.special("mask")
    with pytest.raises(ReproError, match="unknown kind of special token 'seperator'.*Known: mask, pad, sep, unk"):
        masked.special("seperator")


@pytest.mark.parametrize(("name", "size"), [("bpe", 280), ("masked-bpe", 290)])
def test_a_saved_tokeniser_needs_no_text(data, tmp_path, name, size, sample):
    made = tokeniser(name, size, "pg19-subset")
    made.save(tmp_path / "tokenizer.json")
    again = tokenisation.Tokeniser.read(tmp_path / "tokenizer.json")
    assert (again.fingerprint, again.bos, again.vocab_size) == (made.fingerprint, made.bos, size)
    assert again.encode(sample.articles[0]).tolist() == made.encode(sample.articles[0]).tolist()
    assert again.encode("<|endoftext|><s>").tolist() == made.encode("<|endoftext|><s>").tolist()


@pytest.mark.parametrize("content", [None, "", "{", '{"version": "1.0"}'])
def test_a_file_that_is_no_tokeniser_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ReproError, match="tokenizer.json is no whole file of a tokeniser"):
        tokenisation.Tokeniser.read(tmp_path / "tokenizer.json")


def test_saved_tokeniser_is_read_by_transformers(bpe, tmp_path, sample):
    from transformers import PreTrainedTokenizerFast

    bpe.save(tmp_path / "tokenizer.json")
    read = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token="<|endoftext|>")
    assert read(sample.articles[0])["input_ids"] == bpe.encode(sample.articles[0]).tolist()
    assert read.eos_token_id == bpe.bos


@pytest.mark.parametrize(("ask", "told"), [
    (("bpee", 300, "pg19-subset"), "unknown tokeniser 'bpee'. Did you mean 'bpe'?"),
    (("bpe", 256, "pg19-subset"), "vocab_size=256: byte-level BPE needs at least 257"),
    (("bpe", 100_000, "pg19-subset"), r"vocab_size=100000: the text of pg19-subset gives only \d+ different"),
    (("masked-bpe", 260, "pg19-subset"), "vocab_size=260: byte-level BPE needs at least 261 .*<pad> .* <mask>"),
    (("bpe", 300), "needs the name of at least one corpus"),
    (("bpe", 300, "pg19-sub"), "Did you mean 'pg19-subset'?"),
    (("word", 0, "pg19-subset"), "not a closed list")])
def test_impossible_tokenisers(data, ask, told):
    with pytest.raises(ReproError, match=told):
        tokeniser(*ask)


def test_gpt2_neither_here_nor_on_the_hub(data, monkeypatch):
    import huggingface_hub

    def refuse(*_):
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    with pytest.raises(ReproError, match="neither in .*gpt2-tokenizer nor on the hub"):
        tokeniser("gpt2")


@pytest.mark.parametrize(("name", "repository"), [("roberta", "FacebookAI/roberta-base"),
                                                  ("openai-gpt", "openai-community/openai-gpt")])
def test_a_published_tokeniser_that_the_hub_does_not_give(monkeypatch, name, repository):
    def refuse(*arguments):
        assert arguments == (repository, "tokenizer.json")
        raise OSError("no network")
    monkeypatch.setattr("huggingface_hub.hf_hub_download", refuse)
    with pytest.raises(ReproError, match=f"the tokeniser of {repository} cannot be had from the hub .OSError."):
        tokeniser(name)


def test_a_tokeniser_is_trained_on_the_texts_of_examples(tmp_path, monkeypatch, declare):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    rows = [{"text": "one zebra, two zebras", "pair": "zebra crossing " * 9, "label": k % 2} for k in range(5)]
    found = declare(example_readers.labelled(pair="pair"), rows, labels=("no", "yes"))
    monkeypatch.setitem(registry._BY_NAME, "toy", found)
    assert list(found.texts("train")) == 5 * [rows[0]["text"], rows[0]["pair"]]
    coder = tokeniser("bpe", 270, "toy")
    assert coder.decode(coder.encode("a zebra")) == "a zebra"
    assert len(coder.encode("zebra")) < 5
    assert tokeniser("byte", corpus="toy").known == bytes(sorted(set(b"one zebra, two zebras zebra crossing ")))


def test_the_texts_of_documents(data):
    books = corpus("pg19-subset")
    assert list(books.texts("train")) == [book.text for book in books.stream("train")]
    with pytest.raises(ReproError, match="unknown split of pg19-subset 'trian'"):
        next(books.texts("trian"))


def test_what_has_no_text_trains_no_tokeniser(declare):
    pictures = declare(example_readers.images(), {"image": np.zeros((1, 2, 2, 3), np.uint8), "label": [0]},
                       "rows.npz", ("a", "b"))
    with pytest.raises(ReproError, match="toy has no text to train a tokenizer on: it contains image"):
        next(pictures.texts("train"))


@pytest.fixture(scope="module")
def gemma():
    """A tokeniser with ▁ for blanks and bytes for unknown characters."""
    return tokenisation.Tokeniser("tiny-gemma", tiny_gemma.tokenizer())


def test_a_tokeniser_with_a_sign_for_blanks_loses_nothing(gemma):
    assert gemma.bos == gemma.backend.token_to_id("<bos>")
    for text in [*tiny_gemma.TEXTS, "", " ", "  the cat ", "\n", "a\r\n\n\nb\n", "日本 <bos> <b>x</b>", "\t\x00 é"]:
        ids = gemma.encode(text)
        assert gemma.decode(ids) == text and gemma.decode([gemma.bos, *ids]) == text
        assert gemma.n_bytes([gemma.bos, *ids]) == len(text.encode())
        assert gemma.bos not in ids
    ids = gemma.encode("a日")
    assert [gemma.n_bytes(ids[:k]) for k in range(len(ids) + 1)] == [0, 1, 2, 3, 4]  # three bytes for the sign
    with pytest.raises(ReproError, match="tiny-gemma cannot encode this text: '▁' at position 2 is its sign for"):
        gemma.encode("a ▁b")


def test_its_pieces_give_the_tokens_of_the_whole(gemma):
    text = (" ".join(tiny_gemma.TEXTS) + "the cat\nsat  on\n\nthe mat ") * 8
    whole = gemma.backend.encode(text, add_special_tokens=False).ids
    for size in (1, 7, 300):
        cut = list(pieces(text, size, gemma._between))
        assert "".join(cut) == text and len(cut) > 3
        assert [k for piece in cut for k in gemma.encode(piece)] == whole
    assert gemma.used([text]).tolist() == sorted({*whole})
    spans = gemma.offsets(text)
    assert spans[0].tolist() == [0, 3] and spans[-1][1] == len(text) and (np.diff(spans[:, 0]) >= 0).all()


@pytest.mark.parametrize("change", ["blank before", "token across"])
def test_one_whose_tokens_depend_on_the_place_reads_a_text_as_one_piece(gemma, change):
    told = json.loads(gemma.backend.to_str())
    if change == "blank before":  # as Llama 2
        told["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                                  told["normalizer"]]}
        told["decoder"]["decoders"].append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    else:
        told["model"]["vocab"]["e▁c"] = len(told["model"]["vocab"])
        told["model"]["vocab"].setdefault("e▁", len(told["model"]["vocab"]))
        told["model"]["merges"] = [["e", "▁"], ["e▁", "c"], *told["model"]["merges"]]
    coder = tokenisation.Tokeniser(change, Tokenizer.from_str(json.dumps(told)))
    text = "the cat sat " * 4000
    assert list(pieces(text, between=coder._between)) == [text]
    ids = coder.encode(text)
    assert ids.tolist() == coder.backend.encode(text, add_special_tokens=False).ids
    assert coder.decode(ids) == text and coder.n_bytes(ids) == len(text.encode())


def test_half_a_character_is_told_by_its_place_in_the_whole_text(gemma, bpe):
    for coder in (gemma, bpe):
        for read in (coder.encode, coder.offsets, lambda text, coder=coder: coder.used([text])):
            with pytest.raises(ReproError, match="at position 30,000 is half a character"):
                read("a b " * 7500 + "\ud800")
