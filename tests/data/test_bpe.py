"""Byte-pair encoding: what is split where, against GPT-2's own files; what is merged, against a plain version."""

import json
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.data import Tokeniser, root, tokeniser, train_bpe
from repro.data.tokenisation import pieces
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs GPT-2's files: REPRO_DATA is not set")
GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")  # as OpenAI has it
TEXTS = ["the dog. the dog! the dog? dogs' dog's 123 dog1 the\n\nthe  dogs\n",
         "Zürich’s dog — 日本 the dog...\t12.5%\n", "the lowest of the low, the newest of the new\n"] * 4
HARD = ["", " ", "  two  blanks ", "don't DON'T they'll'd 's's 've  're", "x\n\n \n\ty\r\n z", "12,345.67 ½ ² ٣٤ 一二",
        "naïve cafe\u0301 Zürich’s ‘q’ “q” —–-… ", "日本語のテキスト。 한국어 हिन्दी العربية",
        "a\u00a0b\u2003c\u3000d\u200be\ufefff",
        "👩‍👩‍👧 🇩🇪 ❤️ \U0001f9ea", "snake_case __init__ <|endoftext|> <unk>", "\x00\x01\x7f\x85\x1c\u2028",
        "ﬁ Ω ẞ ǅ ʼn ⅷ ", "." * 50 + " " * 50,
        "http://a.b/c?d=e&f#g", "I'M I'm o'clock 'tis ''s"]


def byte_signs():
    """GPT-2's table from bytes to the characters that stand for them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + k) for k, byte in enumerate(rest)}


def encoded(text, ranks, ids, split=GPT2.findall):
    """Byte-pair encoding written out: of all pairs in a word always the one with the lowest rank is merged first."""
    signs, found = byte_signs(), []
    for word in split(text):
        parts = [signs[byte] for byte in word.encode()]
        while len(parts) > 1:
            rank, at = min((ranks.get(pair, 10**9), k) for k, pair in enumerate(zip(parts, parts[1:], strict=False)))
            if rank == 10**9:
                break
            pair, k, merged = (parts[at], parts[at + 1]), 0, []
            while k < len(parts):
                both = tuple(parts[k:k + 2]) == pair
                merged.append("".join(pair) if both else parts[k])
                k += 1 + both
            parts = merged
        found += [ids[part] for part in parts]
    return found


def ranks_of(one):
    """(pair -> rank, token -> id) of a tokeniser."""
    model = json.loads(one.backend.to_str())["model"]
    return {tuple(pair): rank for rank, pair in enumerate(model["merges"])}, model["vocab"]


def spelled(one):
    """The bytes of every token but <|endoftext|>."""
    back = {sign: byte for byte, sign in byte_signs().items()}
    return [bytes(back[sign] for sign in token) for token, id in ranks_of(one)[1].items() if id]


@pytest.fixture(scope="module")
def small():
    return train_bpe(TEXTS, 290)


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_hard_text_is_split_and_merged_as_a_plain_implementation_does(small, text):
    assert small.encode(text).tolist() == encoded(text, *ranks_of(small))
    assert small.decode(small.encode(text)) == text


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"])))
def test_any_text_comes_back(small, text):
    assert small.decode(small.encode(text)) == text


@real
@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
def test_hard_text_is_split_as_gpt2_does(text):
    """With GPT-2's own merges in the place of ours: ids equal to the published files', by hand and by `tokenizers`."""
    from tokenizers import Tokenizer, models

    folder = root() / "gpt2-tokenizer"
    ids = json.loads((folder / "vocab.json").read_text())
    lines = (folder / "merges.txt").read_text().splitlines()[1:]
    ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(filter(None, lines))}
    ours = train_bpe(TEXTS, 300).backend
    made = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    made.pre_tokenizer, made.decoder = ours.pre_tokenizer, ours.decoder
    found = Tokeniser("ours", made).encode(text).tolist()
    assert found == encoded(text, ranks, ids) == tokeniser("gpt2").encode(text).tolist()


def test_merges_are_those_of_the_most_frequent_pairs(small):
    """The first merges, learned by counting pairs over all words again after each."""
    words = Counter(word for text in TEXTS for word in GPT2.findall(text))
    signs = byte_signs()
    split = {word: [signs[byte] for byte in word.encode()] for word in words}
    for pair in list(ranks_of(small)[0])[:12]:
        pairs = Counter()
        for word, n in words.items():
            for one in zip(split[word], split[word][1:], strict=False):
                pairs[one] += n
        assert pairs[pair] == max(pairs.values())
        for word, parts in split.items():
            joined, k = [], 0
            while k < len(parts):
                both = tuple(parts[k:k + 2]) == pair
                joined.append("".join(pair) if both else parts[k])
                k += 1 + both
            split[word] = joined


def categories_of(token):
    """Letters, digits, other signs, blanks: those in a token, the blank before a word and 's, 't, ... excepted."""
    text = token.decode(errors="ignore")
    text = text[1:] if len(text) > 1 and text[0] == " " else text
    if text in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
        return {"ending"}
    return {"letter" if c.isalpha() else "digit" if c.isnumeric() else "blank" if c.isspace() else "sign" for c in text}


def test_no_merge_across_categories_but_with_the_rule_off(small):
    plain = [text for text in TEXTS if text.isascii()]
    within, across = train_bpe(plain, 280), train_bpe(plain, 280, categories=False)
    assert all(len(categories_of(token)) <= 1 for token in spelled(within))
    assert any(len(categories_of(token)) > 1 for token in spelled(across))
    assert b" dog" in spelled(within) and any(token.count(b" ") > 1 for token in spelled(across))
    assert not any(b"\n" in token[:-1] for token in spelled(across)), "lines end where they end"
    for text in (*HARD, *TEXTS):
        assert across.decode(across.encode(text)) == text
        found = encoded(text, *ranks_of(across), split=lambda one: regex.findall(r"[^\n]*\n|[^\n]+", one))
        assert across.encode(text).tolist() == found


def test_the_rule_saves_versions_of_a_word():
    """With few ids to spare, a token for each of dog. dog! dog? leaves none for other words."""
    texts = ["".join(f"a {word}{sign} " for word in ("dog", "cat", "fox", "owl") for sign in ".!?,;")] * 3
    fresh = "the dog the cat the fox the owl"
    within, across = train_bpe(texts, 285), train_bpe(texts, 285, categories=False)
    assert len(within.encode(fresh)) < len(across.encode(fresh))


def test_ids_are_the_end_of_text_the_bytes_and_the_merges(small):
    ranks, ids = ranks_of(small)
    assert small.vocab_size == 290 and small.bos == 0 and ids["<|endoftext|>"] == 0
    assert sorted(ids[sign] for sign in byte_signs().values()) == list(range(1, 257))
    assert [ids["".join(pair)] for pair in ranks] == list(range(257, 290))
    assert train_bpe(TEXTS, 257).vocab_size == 257
    assert small.encode("<|endoftext|>").min() > 0, "inside a text it is text"


def test_a_short_text_gives_fewer_ids():
    assert train_bpe(["abc"], 1_000).vocab_size == 259
    assert train_bpe(["", "abc", "  "], 1_000).vocab_size == 260, "empty texts are passed over"


@pytest.mark.parametrize("settings", [{}, {"categories": False}, {"level": "word"}])
def test_it_is_saved_and_read_whole(tmp_path, settings):
    made = train_bpe(TEXTS, 290, **settings)
    made.save(tmp_path / "tokenizer.json")
    again = Tokeniser.read(tmp_path / "tokenizer.json")
    assert (again.fingerprint, again.bos, again.vocab_size) == (made.fingerprint, 0, made.vocab_size)
    long = "The dog, the dogs. \n" * 2_000 + "the dog " * 4_000
    for text in (*HARD, long):
        assert again.encode(text).tolist() == made.encode(text).tolist()
    whole = made.backend.encode(long, add_special_tokens=False).ids
    assert made.encode(long).tolist() == whole, "in pieces as in one"


def test_pieces_of_lines():
    text = ("line of words\n" * 9 + "\n\n") * 3
    one = train_bpe(TEXTS, 290, categories=False)
    parts = list(pieces(text, size=20, between=one._between))
    assert "".join(parts) == text and len(parts) > 9 and all(part.endswith("\n") for part in parts)


def test_training_is_the_same_in_every_process():
    code = "from repro.data import train_bpe; print(train_bpe(['ab abc abcd bcd '] * 3, 262).fingerprint)"
    told = {subprocess.check_output([sys.executable, "-c", code], text=True,
                                    env=os.environ | {"RAYON_NUM_THREADS": threads}) for threads in ("1", "2")}
    assert told == {train_bpe(["ab abc abcd bcd "] * 3, 262).fingerprint + "\n"}


# GPT's

def test_words_are_those_of_gpt():
    """The same ids as transformers' tokeniser of GPT with our merges."""
    from transformers import OpenAIGPTTokenizer

    made = train_bpe(TEXTS, 300, level="word")
    ranks, ids = ranks_of(made)
    theirs = OpenAIGPTTokenizer(vocab=ids, merges=list(ranks))
    for text in (*HARD, *TEXTS, "The DOG's\tNEWEST, lowest!"):
        if "<unk>" in text or "<|endoftext|>" in text:
            continue  # special tokens inside a text are text here
        assert made.encode(text).tolist() == theirs(text)["input_ids"]


def test_words_end_in_their_mark():
    made = train_bpe(TEXTS, 400, level="word")
    ranks, ids = ranks_of(made)
    assert ids["<|endoftext|>"] == 0 == made.bos and ids["<unk>"] == 1
    assert all("</w>" not in first for first, _ in ranks)
    assert made.encode("dog").tolist() == [ids["dog</w>"]]
    assert made.encode("The dog. THE DOG").tolist() == made.encode("the dog . the dog").tolist()
    assert made.decode(made.encode("The dog, the  DOGS.")) == "the dog , the dogs ."
    assert not any(c.isupper() for token in ids for c in token.replace("</w>", ""))
    letters = {c for text in TEXTS for c in "".join(made.backend.normalizer.normalize_str(text).split())}
    assert all(c in ids and f"{c}</w>" in ids for c in letters), "a letter may end a word that was not seen"
    assert made.encode("Ж").tolist() == [1]


def test_words_of_many_letters_keep_the_size_that_is_asked_for():
    letters = "".join(chr(0x3b1 + k) for k in range(24)) + "".join(chr(0x4e00 + k) for k in range(900))
    made = train_bpe([" ".join(letters), "abc " * 50], 400, level="word")
    assert 200 < made.vocab_size <= 400
    assert made.encode("abc").tolist() == [ranks_of(made)[1]["abc</w>"]]


# What is refused

def test_a_size_may_be_numpys(small):
    made = train_bpe(TEXTS, np.int64(260))
    assert made.vocab_size == 260
    with pytest.raises(ReproError, match=r"tokeniser bpe-260 cannot encode this text: '.ud800' at position 2 is half"):
        made.encode("ab\ud800")


@pytest.mark.parametrize(("ask", "told"), [
    ((TEXTS, 300, "bytes"), "unknown level of BPE 'bytes'. Did you mean 'byte'?"),
    ((TEXTS, 300, "letter"), "unknown level of BPE 'letter'. .*Known: byte, word"),
    ((TEXTS, 256), "vocab_size=256: BPE needs a whole number of at least 257"), ((TEXTS, 0, "word"), "vocab_size=0"),
    ((TEXTS, 10**12), "vocab_size=1000000000000: at most 1,000,000 ids are trained"), ((TEXTS, -5), "vocab_size=-5"),
    ((TEXTS, 300.0), "vocab_size=300.0"), ((TEXTS, True), "vocab_size=True"),
    (([], 300), "there is no word in the texts"), (([""], 300), "there is no word"), ((["", " \n"], 300), "no word"),
    (([], 300, "word"), "there is no word"), (("text", 300), "texts is one string; give a list of texts"),
    ((["a", "b<|endoftext|>c"], 300), r"text 1 has <\|endoftext\|> in it, which stands between texts only"),
    ((["a<|endoftext|>"], 300, "word"), r"text 0 has <\|endoftext\|>"), ((["a", None], 300), "text 1 is NoneType, not"),
    (([b"a"], 300), "text 0 is bytes, not a string"),
    ((["a", "b\ud800 a"], 300), r"text 1 cannot be read: '.ud800' at position 1 is half a character"),
    ((["\udfff"], 300, "word"), "text 0 cannot be read"),
    ((TEXTS, 300, "word", False), "categories=False goes with level='byte'")])
def test_what_is_refused(ask, told):
    with pytest.raises(ReproError, match=told) as error:
        train_bpe(*ask)
    assert "\n" not in str(error.value)
