"""Words of the glossary on chapter pages, and what a chapter says before it begins."""

import before
import glossary
import landing

PAGE = """<dl class="glossary"><dt id="term-room">room<a class="headerlink" href="#term-room">#</a></dt>
<dd><p>How far a <em>score</em> can move; "all".</p></dd>
<dt id="term-not-reproduced">not reproduced<a class="headerlink" href="#x">#</a></dt><dd><p>No.</p></dd>
<dt id="term-reproduced">reproduced<a class="headerlink" href="#x">#</a></dt><dd><p>Yes.</p></dd>
<dt id="term-run">run<a class="headerlink" href="#x">#</a></dt><dd><p>One training.</p></dd></dl>"""


def chapter(text: str) -> str:
    return f'<p>room</p><article class="bd-article">{text}</article>'


def marked(id: str, word: str, title: str) -> str:
    return f'<a class="term" href="../glossary.html#{id}" title="{title}"><abbr>{word}</abbr></a>'


def test_terms_come_from_the_page_with_anchors_and_plain_definitions():
    known = glossary.terms(PAGE)
    assert known["room"] == ("term-room", 'How far a score can move; "all".') and len(known) == 4


def test_the_first_use_in_prose_is_marked_and_nothing_else():
    room = marked("term-room", "Rooms", "How far a score can move; &quot;all&quot;.")
    seen = glossary.explained(chapter(
        '<h2>room</h2><p><code>room</code> <a href="x">room</a> headroom <b>Rooms</b> and room.</p><p>room, run</p>'
        '<p class="x">reproduced</p><p>It is not reproduced, or reproduced.</p>'), glossary.terms(PAGE))
    assert seen == chapter(
        f'<h2>room</h2><p><code>room</code> <a href="x">room</a> headroom <b>{room}</b> and room.</p><p>room, run</p>'
        f'<p class="x">reproduced</p><p>It is {marked("term-not-reproduced", "not reproduced", "No.")}, or '
        f'{marked("term-reproduced", "reproduced", "Yes.")}.</p>')


def test_every_verdict_and_the_words_of_a_measurement_are_in_the_glossary():
    from repro.pages.verdicts import LOOKS

    text = (landing.ROOT / "book/glossary.md").read_text().splitlines()
    asked = {*LOOKS, "room", "assay", "control", "overlap"} - {"open", "not run"}  # which say what they mean
    assert asked <= set(text)
    assert glossary.COMMON <= set(text), "words that no page underlines are in the glossary, too"


def test_a_lesson_says_how_long_it_takes_and_what_it_builds_on():
    prose = "word " * 590
    page = (f'<article class="bd-article"><h1>6 · Toy<a>#</a></h1><p>{prose}</p><div class="cell tag_in-short"></div>'
            f"<details><p>{prose}</p></details><table><tr><td>{prose}</td></tr></table></article>")
    seen = before.shown(page, {3: "03_a.html", 6: "06_b.html"})
    assert '</h1><p class="before">3 minutes to read. Builds on chapter <a href="03_a.html">3</a>.</p>' in seen
    assert before.shown(page.replace("tag_in-short", ""), {}) == page.replace("tag_in-short", "")
    assert '<p class="before">1 minute to read.</p>' == before.line(3, 1, {3: "03_a.html"})


def test_a_chapter_builds_on_earlier_chapters_alone():
    assert all(one < number for number, others in before.BUILDS_ON.items() for one in others)
