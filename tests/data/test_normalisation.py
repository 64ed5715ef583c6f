"""Typographic characters: which are read as plain ones, which stay, and which are refused."""

import os
import random
import textwrap
from dataclasses import replace

import pytest

from repro.data import corpora, corpus
from repro.data.normalisation import PLAIN, UNWRAPPED, typographic, unwrap
from repro.errors import ReproError


def test_quotes_dashes_and_ellipses_become_plain():
    assert PLAIN("“It’s—well … ‘done’,” 1914–18, well‐known.") == '"It\'s--well ... \'done\'," 1914-18, well-known.'
    assert PLAIN("«Ja», „nein“ ‚so‘ ― 5′ 3″") == "\"Ja\", \"nein\" 'so' -- 5' 3\""


def test_ligatures_become_letters():
    assert PLAIN("ﬁnd oﬀ, aﬄuence, Æsop's œuvre, Preﬆo") == "find off, affluence, Æsop's œuvre, Presto"


@pytest.mark.parametrize("text", ["", "plain -- 'text' ...", "naïve café 日本 −5 × 3 ° £ † • ⁄ 〜 \ufffd\uf8ff\x16",
                                  "a\u00a0b\u2009c\u3000d\u200b\u200c\u200d\u200e\ufeff", "the mæl of œ, ŉ and Ĳ"])
def test_all_else_stays_as_it_is(text):
    assert PLAIN(text) == text


def test_a_normalised_text_is_normal_and_has_as_many_words():
    text = "".join(f"a {c} b{c}c " for c in [*PLAIN.plain, *PLAIN.left, "é", "日"])
    found = PLAIN(text)
    assert PLAIN(found) == found != text
    assert len(found.split()) == len(text.split())
    assert not set(found) & set(PLAIN.plain)


@pytest.mark.parametrize(("character", "told"), [
    ("❝", r"U\+275D \(HEAVY DOUBLE TURNED COMMA QUOTATION MARK ORNAMENT\)"), ("⸺", r"U\+2E3A \(TWO-EM DASH\)"),
    ("\x93", r"U\+0093 \(a control character\)"), ("⋯", ".*MIDLINE HORIZONTAL ELLIPSIS"),
    ("⁂", ".*ASTERISM"), ("\u00ad", ".*SOFT HYPHEN"), ("⸜", r"U\+2E1C"), ("\u2028", ".*LINE SEPARATOR"),
    ("\u1680", ".*OGHAM SPACE MARK"), ("\u202e", ".*RIGHT-TO-LEFT OVERRIDE"), ("\x85", r"U\+0085")])
def test_a_character_that_it_does_not_know_is_told(character, told):
    with pytest.raises(ReproError, match=rf"a page has {told}.* at character 8, which the normalisation 'plain") as got:
        PLAIN(f"“It” is {character}this", "a page")
    assert "\n" not in str(got.value)


def test_what_is_read_as_plain_is_typographic_and_letters_are_not():
    assert all(typographic(c) for c in PLAIN.plain)
    assert not any(typographic(c) for c in "aé日'\"-. \n\x16œß×−°£½\u0301\ufffd")


def test_marks_are_counted():
    assert PLAIN.count("plain 'text'") == PLAIN.count("naïve †") == 0
    assert PLAIN.count("“It’s—well … ﬁne,” he said. “No.”") == 8


def test_a_corpus_says_where_it_found_one(data, sample):
    sample.put_parquet(data / "pg19-subset" / "test.parquet", {"id": [860], "text": ["a ⸺ b"]})
    books = replace(corpus("pg19-subset"), normalise=PLAIN)
    with pytest.raises(ReproError, match="^corpus pg19-subset, test, document 860 has U.2E3A"):
        books.documents("test")


def test_it_is_a_step_of_a_corpus_and_of_its_fingerprint(data, sample):
    sample.put_parquet(data / "pg19-subset" / "test.parquet", {"id": [860], "text": ["“x” — y …"]})
    plain, raw = replace(corpus("pg19-subset"), normalise=PLAIN), corpus("pg19-subset")
    assert plain.documents("test")[0].text == '"x" -- y ...'
    assert raw.documents("test")[0].text == "“x” — y …"
    told = {row.what: row.found for row in plain.check() if row.split == "test"}
    assert told["documents"] == 1 and told["words"] == 4
    versions = [raw, plain, replace(raw, normalise=replace(PLAIN, version=2)),
                replace(raw, normalise=replace(PLAIN, name="another"))]
    assert len({one.fingerprint(["test"]) for one in versions}) == 4
    assert plain.fingerprint() == replace(raw, normalise=PLAIN).fingerprint()


@pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")
def test_it_knows_every_character_of_the_real_texts():
    for one in corpora():
        if one.is_text and one.available() and not one.generator:
            for split in one.splits:
                for document in one._whole(split):
                    plain = PLAIN(document.text, f"{one.name} {split} {document.id}")
                    assert not set("“”‘’—…") & set(plain)


def test_the_corpora_that_are_evaluated_on_are_read_as_plain():
    """As are those that their models are trained on; characters are another matter: there every byte counts."""
    steps = {one.name: (one.normalise, one.never_targets) for one in corpora() if one.is_text}
    plain = {"wikitext-103", "wikitext-103-full", "pg19", "pg19-subset", "gutenberg-pretrain", "books-and-wikipedia"}
    assert {name for name, (normalise, _) in steps.items() if normalise is PLAIN} == plain
    assert {name for name, (normalise, _) in steps.items() if normalise is UNWRAPPED} == {"gutenberg-unwrapped"}
    assert {name for name, (_, never) in steps.items() if never == ("<unk>",)} == {"wikitext-103", "wikitext-103-full"}


def test_unwrapping_undoes_wrapping_and_leaves_verse():
    rng = random.Random(0)

    def words(n):
        return " ".join("x" * rng.randint(1, 9) for _ in range(n))

    prose = [words(rng.randint(5, 300)) for _ in range(40)]
    verse = "\n".join(words(3) for _ in range(9))
    for width in (54, 72):
        broken = [textwrap.fill(one, width, break_on_hyphens=False) for one in prose]
        assert sum(one.count("\n") for one in broken) > 200
        assert unwrap("\n\n".join([*broken, verse])) == "\n\n".join([*prose, verse])
    assert (unwrap(""), unwrap("\n\n")) == ("", "\n\n")


def test_a_line_is_full_when_the_next_word_would_have_made_it_too_long():
    full = "\n\n".join(["x" * 20] * 8)  # the width: 20 characters
    for line, word, joined in (("y" * 15, "z" * 4, False), ("y" * 15, "z" * 5, True), ("y" * 16, "zzzz and", True)):
        assert unwrap(f"{full}\n\n{line}\n{word}") == f"{full}\n\n{line}{' ' if joined else chr(10)}{word}"
    assert unwrap(f"{full}\n\n  {'y' * 17}\n  {'z' * 5} z") == f"{full}\n\n  {'y' * 17} {'z' * 5} z"
    assert unwrap(f"{full}\n\n{'y' * 18}--\nzz") == f"{full}\n\n{'y' * 18}--zz"
    assert unwrap(f"{full}\n\n{'y' * 20}\n\nzz") == f"{full}\n\n{'y' * 20}\n\nzz", "a paragraph ends"


def test_joined_lines_are_read_with_plain_characters_and_tell_another_corpus():
    text = "\n".join(["“Ah,” said he," + "x" * 6] * 5)
    assert UNWRAPPED(text) == PLAIN(text).replace("\n", " ") and PLAIN(text).count("\n") == 4
    assert str(UNWRAPPED) != str(PLAIN) and UNWRAPPED.plain == PLAIN.plain
    printed, joined = corpus("gutenberg-pretrain"), corpus("gutenberg-unwrapped")
    assert joined.made_of == (printed,) and joined.origin is None
    assert replace(joined, name=printed.name, normalise=PLAIN, origin=printed.origin, source=printed.source,
                   made_of=()) == printed
