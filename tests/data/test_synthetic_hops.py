"""Questions of two steps: what they hold, and the best scores against asking every text there could be."""

from collections import Counter
from dataclasses import replace

import pytest

from repro.data import corpus, tokeniser
from repro.data.synthetic import NAMES, TOPICS
from repro.data.synthetic_hops import FAR_HOPS, HOPS, SIZES, WHETHER, WHICH, FarHops, SyntheticHops
from repro.errors import ReproError

OF = {word: number for number, topic in enumerate(TOPICS) for words in topic for word in words}


def parts(row):
    """The topics of the story's words, of the things in their order, and those things."""
    story, names, listed = (one.text.split() for one in row.paragraphs)
    assert set(names) <= {*NAMES, "."}
    things = listed[1::2]
    assert listed == [word for thing in things for word in ("the", thing)] + ["."]
    return {OF[word] for word in story if word in OF}, [OF[thing] for thing in things], things


def test_one_topic_and_one_thing_each_of_four():
    kinds, places = Counter(), Counter()
    for index in range(600):
        row = HOPS.example("train", index)
        story, topics, things = parts(row)
        assert len(row.paragraphs[0].text.split()) == HOPS.story_words and len(story) == 1
        assert len(set(topics)) == 4 == len(things) and max(topics) < HOPS.n_topics
        fits = [thing for thing, topic in zip(things, topics, strict=True) if topic in story]
        kinds[row.question, row.answer if row.answer in ("yes", "no") else "thing"] += 1
        if row.question == WHICH:
            span, = row.spans
            assert row.paragraphs[span.paragraph].text[span.start:span.stop] == row.answer
            assert [row.answer] == fits and row.answer not in row.paragraphs[0].text.split()
            places[things.index(row.answer)] += 1
        else:
            assert not row.spans and row.question == WHETHER and row.answer == ("yes" if fits else "no")
    assert len(places) == 4 and max(places.values()) < 1.5 * min(places.values())
    assert kinds[WHICH, "thing"] / 600 == pytest.approx(0.75, abs=0.05)
    assert kinds[WHETHER, "yes"] / 600 == pytest.approx(0.125, abs=0.04)
    assert sum(kinds.values()) == 600 and len(kinds) == 3


@pytest.mark.parametrize("cut", [0, 2, 5, 8, 9])
def test_the_best_score_is_that_of_every_text_that_agrees(cut):
    """The second window has the list up to a cut, and the story too or not; all that agrees with it is as likely.

    A reader of single windows says of each thing how likely it fits, given one window, and answers with the likeliest.
    """
    process = SyntheticHops(yes_no=0.5, n_names=0)
    for index in range(40):
        row = process.example("train", index)
        story, names, listed = (one.text for one in row.paragraphs)
        (topic,), topics, things = parts(row)
        first, rest = " ".join(listed.split()[:cut]), " ".join(listed.split()[cut:])
        known = {thing for thing in things if thing in first.split()}
        left = [thing for thing in things if thing not in known]
        right = [thing for thing, one in zip(things, topics, strict=True) if one == topic]
        if row.question == WHICH:
            want = 1.0 if set(right) & known or not left else 1 / len(left)
        elif set(right) & known or not left:
            want = 1.0
        else:  # of eight equal worlds four are "no", and each place of the thing that fits is one of the others
            no, yes = 4, sum(thing in left for thing in things)
            want = 0.5 if no == yes else float(row.answer == "no")
        assert process.best_score(row, [f"{story} {names} {first}", rest]) == pytest.approx(want)
        assert process.best_score(row) == 1.0
        assert process.best_score(row, [f"{story} {names}", listed]) == (0.25 if row.question == WHICH else 0.5)


def test_the_corpus_is_the_generators():
    source = corpus("synthetic-hops")
    rows = list(source.examples("validation"))
    assert len(rows) == SIZES["validation"] and rows[3] == HOPS.example("validation", 3)
    assert len({row.texts for row in rows}) == len(rows)
    assert all(row.ok for row in source.check())
    coder = tokeniser("word", corpus="synthetic-hops")
    for text in rows[0].texts:
        assert coder.decode(coder.encode(text)) == text.strip()
    assert len(set(HOPS.lexicon())) == len(HOPS.lexicon())
    assert source.fingerprint() != replace(HOPS, yes_no=0.3).fingerprint()
    assert HOPS.example("train", 0) == SyntheticHops().example("train", 0) != HOPS.example("train", 1)


@pytest.mark.parametrize(("change", "said"), [
    ({"story_words": 7}, "story_words=7 of synthetic hops: allowed are 8 to inf"), ({"yes_no": 1.1}, "yes_no=1.1"),
    ({"n_topics": 4}, "n_topics=4 .* 5 to 12"), ({"n_names": 41}, "n_names=41 .* 0 to 40"),
])
def test_bad_numbers(change, said):
    with pytest.raises(ReproError, match=said):
        SyntheticHops(**change)


def test_far_hops_have_names_between_the_story_and_the_things():
    for index in range(100):
        row = FAR_HOPS.example("train", index)
        story, *lists, things = (one.text.split() for one in row.paragraphs)
        assert len(story) == 48 and [len(one) for one in lists] == [6, 6] and len(things) == 9
        assert {word for one in lists for word in one} <= {*NAMES, "."} and len(set(row.titles)) == 4
        assert row.supporting == ((0, 0), (3, 0)) and set(row.titles) <= set(NAMES)
        assert [row.paragraphs[one.paragraph].text[one.start:one.stop] for one in row.spans] == [row.answer] * len(
            row.spans)
        assert FAR_HOPS.best_score(row) == 1
        alone = FAR_HOPS.best_score(row, [one.text for one in row.paragraphs])
        assert alone == (0.25 if row.question == WHICH else 0.5)
    with pytest.raises(ReproError, match="n_lists"):
        FarHops(n_lists=0)
