"""De-tokenisers: nothing is lost whatever the text, and hardly an artefact or a mark is left in real ones."""

import os
import random
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from repro.data import corpus, detokeniser
from repro.data.detokenisation import MARK
from repro.errors import ReproError

real = pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")
STYLES = ("wikitext", "lambada")
PARTS = [*" \n'\"`,.;:!?()[]$%-–—/=@’<>0a9é日_\t\r\x00\x85\u2028\u00a0", MARK, "  ", " \n ", "''", "``", "...",
         "can", "not", "don", "n't", "'s", "'", "@-@", "@,@", "@.@", "<unk>", "U.S.", "No.", "T4.5", "-lrb-",
         "-rrb-", "can not", "s", "1", "23", " = ", " = = ", f"{MARK} ", "\ud800"]
ARTEFACTS = {  # what no other text has, as written by hand, apart from the rules
    "wikitext": [r"(?<= )[,.;:!?)\]%](?=[ \n])", r"[(\[$£](?= )", r"(?<= )@[-,.]@(?= )", r'(?<= )"(?= )',
                 r"(?<= )'(?:s|t|m|d|re|ve|ll)(?= )", r"(?<= )'(?= )", r"(?<=\d) – (?=\d)", r"=(?= =)", r" (?=\n)",
                 r"(?<=\n) "],
    "lambada": [r"(?<= )[,.;:!?%](?=[ \n])", r"``|''", r"(?<= )[`'](?= )", r"-[lr][rsc]b-",
                r"(?<= )(?:n't|'s|'m|'d|'re|'ll|'ve)(?= )", r"\b(?:gon|wan) na\b|\bgot ta\b|\bcan not\b"]}


def artefacts(style, text):
    return sum(len(re.findall(one, text)) for one in ARTEFACTS[style])


def test_wikitext_as_people_write_it():
    text = (" \n = Robin ( bird ) = \n \n = = Song = = \n \n The robin 's nest , ca . 1 @,@ 900 m ( 6 @,@ 234 ft ) "
            "up in the U.S. , is well @-@ known ; \" don 't \" , it said , \" at 17 : 30 ! \" The boys ' 3 @.@ 5 % , "
            "$ 5 or £ 6 , of 1990 – 95 – and \" no \" <unk> / Mr. X 's 'til 'Brien . \n ")
    plain = (" \n= Robin (bird) =\n\n== Song ==\n\nThe robin's nest, ca. 1,900 m (6,234 ft) up in the U.S., is well-"
             "known; \"don't\", it said, \"at 17:30!\" The boys' 3.5%, $5 or £6, of 1990–95 – and \"no\" <unk>/Mr. X"
             f"'s'til'Brien.\n{MARK}  ")
    assert detokeniser("wikitext").apply(text) == plain
    assert detokeniser("wikitext").invert(plain) == text


def test_lambada_as_people_write_it():
    text = ("`` i do n't know , '' she 'd said ... `` you ca n't -lrb- wo n't -rrb- ? '' ` we 're gon na , ' mr. o'neil"
            " said , `` and you can not at 9:45 , mother-in-law ! '' the others ' $ 5")
    plain = ("\"i don't know,\" she'd said... \"you can't (won't)?\" 'we're gonna,' mr. o'neil said, \"and you cannot "
             "at 9:45, mother-in-law!\" the others' $5")
    assert detokeniser("lambada").apply(text) == plain
    assert detokeniser("lambada").invert(plain) == text


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(codec=None)) | st.lists(st.sampled_from(PARTS)).map("".join)
       | st.lists(st.sampled_from(PARTS)).map(" ".join) | st.lists(st.sampled_from(PARTS)).map(" \n ".join))
@example(text="")
@example(text=" ")
@example(text="  \n")
@example(text=f" {MARK} \n {MARK}\n{MARK}")
@example(text=" don't T4.5 18- Mr . ' \" ' \n\n a\n")
def test_every_string_comes_back(style, text):
    one = detokeniser(style)
    assert one.invert(one.apply(text)) == text


@pytest.mark.parametrize("style", STYLES)
def test_strings_of_artefacts_come_back(style):
    one, draw, changed = detokeniser(style), random.Random(style), 0
    for _ in range(3_000):
        text = draw.choice(["", " "]) + "".join(draw.choice(PARTS) + draw.choice([" ", " ", ""])
                                                for _ in range(draw.randrange(12)))
        written = one.apply(text)
        assert one.invert(written) == text
        changed += written != text
    assert changed > 1_500, "what changes nothing would come back as well"


def test_what_cannot_be_read_back_is_marked_and_costs_its_neighbours_nothing():
    one = detokeniser("wikitext")
    assert one.apply("a , don't , b , c") == f"a, {MARK}don't , b, c"
    assert one.apply(f"{MARK}") == MARK + MARK
    assert one.apply("Mr . X") == "Mr . X", "kept apart: written together it would be the title"
    assert one.apply("Mr. X . ") == "Mr. X . "


def test_a_long_line_of_signs_is_quick():
    text = " ".join(["," * 3, ",", "'"] * 20_000)
    one = detokeniser("wikitext")
    assert one.invert(one.apply(text)) == text


@real
@pytest.mark.parametrize(("style", "name", "split", "least"), [
    ("wikitext", "wikitext-103", "validation", 20_000), ("wikitext", "wikitext-103-unk", "test", 20_000),
    ("lambada", "lambada", "test", 60_000)])
def test_real_text_comes_back_with_few_artefacts_and_marks(style, name, split, least):
    source, one = corpus(name), detokeniser(style)
    text = ("".join if source.is_text else "\n".join)(
        row.text for row in (source.stream(split) if source.is_text else source.examples(split)))
    written = one.apply(text)
    assert one.invert(written) == text
    before = artefacts(style, text)
    assert before > least
    assert artefacts(style, written) <= 0.03 * before
    assert written.count(one.mark) <= 0.005 * len(text.split())


def test_another_style():
    with pytest.raises(ReproError, match="unknown style of a de-tokeniser 'wikitexts'. Did you mean 'wikitext'?"):
        detokeniser("wikitexts")
    with pytest.raises(ReproError, match="unknown style of a de-tokeniser"):
        detokeniser(["wikitext"])
