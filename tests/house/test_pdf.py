"""The book on paper: one page with every place and link, and what Chromium prints of it."""

import re

import pdf
import pytest
import toc
from bs4 import BeautifulSoup
from chromium import needs_chromium

FIRST = """<html><head><link rel="stylesheet" href="_static/a.css"><script>window.MathJax = {}</script>
<script src="_static/other.js"></script></head><body>
<article class="bd-article"><section id="top"><h1>First &amp; more<a class="headerlink" href="#top">#</a></h1>
<p><a href="notebooks/04_two.html#place">two</a> <a href="notebooks/04_two.html">all</a> <a href="#top">up</a>
<a href="https://example.org/x#y">out</a> <a href="src/repro/markup.py.html#L3">code</a>
<a href="notebooks/23.html">gone</a></p></section></article></body></html>"""
SECOND = """<html><head><script>window.MathJax = {tex: 2}</script>
<script src="../_static/../mathjax/tex-svg.js?v=1"></script></head><body>
<article class="bd-article"><section id="place"><h1>4 · Two</h1>
<div class="tag_hide-input"><details><summary>Show</summary><pre>hidden code</pre></details></div>
<div class="tag_hide-cell"><details><summary>Show</summary><pre>solution</pre></details></div>
<details class="claim" id="c"><summary>a claim</summary><div>what it rests on</div></details>
<figure class="drawing"><label class="fold">play it</label><div class="still"><svg viewBox="0 0 9 9"><clipPath id="p">
<path d="M0 0"/></clipPath><g clip-path="url(#p)"><use xlink:href="#p"/></g></svg></div><div class="moving">frames</div>
<figcaption><span class="of-figure">Figure 4.1</span> What.</figcaption></figure>
<div hidden>live</div><noscript><svg id="still"></svg><p>Sliders need a script.</p></noscript><script>1</script>
<a href="../index.html#top">first</a><a href="23.html?paper=a#b=c">odd</a><img src="../gallery/x.svg" loading="lazy">
</section></article></body></html>"""


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """A book of two pages, rendered, in build/html."""
    folder = tmp_path / "build/html"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "index.html").write_text(FIRST)
    (folder / "notebooks/04_two.html").write_text(SECOND)
    monkeypatch.setattr(pdf, "parts", lambda: iter([("", ["index"]), ("A part", ["notebooks/04_two"])]))
    monkeypatch.setattr(pdf.landing, "repository", lambda: "https://example.org/repo")
    return folder


def read(pages):
    return BeautifulSoup(pdf.joined(pages, pages.parent), "html.parser")


def test_places_and_links_are_those_of_the_whole(pages, monkeypatch):
    links = {one.get_text(): one.get("href") for one in read(pages).select("a")}
    assert links == {"First & more": "#index", "4 · Two": "#notebooks-04_two", "two": "#notebooks-04_two--place",
                     "all": "#notebooks-04_two", "up": "#index--top", "out": "https://example.org/x#y", "gone": None,
                     "code": "https://example.org/repo/blob/main/src/repro/markup.py#L3", "first": "#index--top",
                     "odd": None}
    monkeypatch.setattr(pdf.landing, "repository", lambda: "")
    assert [one.get("href") for one in read(pages).select("a") if one.get_text() == "code"] == [None]


def test_what_is_folded_is_opened_or_dropped_and_nothing_moves(pages):
    second = read(pages).find(id="notebooks-04_two")
    text = second.get_text()
    assert "solution" in text and "a claim" in text and "Figure 4.1" in text and second.find(id="notebooks-04_two--c")
    for gone in ("hidden code", "Show", "rests on", "frames", "play it", "live", "Sliders"):
        assert gone not in text, gone
    assert not second.select("script, details, .headerlink, noscript") and second.find(id="notebooks-04_two--still")


def test_a_drawing_keeps_what_it_refers_to_and_files_are_found(pages):
    second = read(pages).find(id="notebooks-04_two")
    assert second.g["clip-path"] == "url(#notebooks-04_two--p)" and second.use["xlink:href"] == "#notebooks-04_two--p"
    assert second.find(id="notebooks-04_two--p").name == "clippath"
    assert second.img.attrs == {"src": "html/gallery/x.svg"}
    head = read(pages).head
    assert head.link["href"] == "html/_static/a.css"
    scripts = head.find_all("script")  # of the first page with a formula
    assert [one.get("src", one.string) for one in scripts] == [
        "window.MathJax = {tex: 2}", "html/mathjax/tex-svg.js?v=1"]


def test_every_page_of_the_book_is_printed_once():
    listed, contents = [name for _, inside in pdf.parts() for name in inside], toc.contents()
    assert listed == [contents["root"], *(one["file"] for part in contents["parts"] for one in part["chapters"])]
    assert len(set(listed)) == len(listed)


@needs_chromium
def test_paper_has_pages_links_that_lead_somewhere_and_numbers_in_its_contents(pages, tmp_path):
    target = tmp_path / "build/book.pdf"
    (pages / "index.html").write_text(FIRST.replace("</section>", "<p>long</p>" * 100 + "</section>"))
    pdf.printed(pages, target)
    told = target.read_bytes()
    n = len(re.findall(rb"/Type /Page\b", told))
    found = pdf.numbers(told)
    assert found["index"] == 3, "after the cover and the contents"
    assert found["notebooks-04_two"] == found["notebooks-04_two--place"] == n > 4, "a chapter begins on its own page"
    assert {one.decode() for one in re.findall(rb"/Dest /(\S+)", told)} <= set(found)
    assert set(re.findall(rb"/URI \((.*?)\)", told)) == {b"https://example.org/x#y",
                                                        b"https://example.org/repo/blob/main/src/repro/markup.py#L3"}
    listed = BeautifulSoup(target.with_suffix(".html").read_text(), "html.parser").select(".toc b")
    assert [one.get_text() for one in listed] == ["3", str(n)]


@needs_chromium
def test_a_link_that_leads_nowhere_is_not_printed(pages, tmp_path):
    (pages / "index.html").write_text(FIRST.replace("04_two.html#place", "04_two.html#lost"))
    with pytest.raises(SystemExit, match="links would lead nowhere: notebooks-04_two--lost."):
        pdf.printed(pages, tmp_path / "build/book.pdf")


def test_without_chromium_it_says_what_to_install(pages, tmp_path, monkeypatch):
    monkeypatch.setattr(pdf, "CHROMIUM", None)
    with pytest.raises(SystemExit, match="Debian package chromium"):
        pdf.printed(pages, tmp_path / "book.pdf")
