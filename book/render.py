"""Render executed chapters and the pages around them: python book/render.py TARGET CHAPTER.ipynb ... TARGET/../book
is the source that is built, a copy; nothing is written into `book/`."""

import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from itertools import count
from pathlib import Path

import api
import before
import cite
import downloads
import glossary
import landing
import learned
import nbformat
import one_page
import rooms
import scale
import tested
import toc
import yaml
from bs4 import BeautifulSoup, Tag
from gallery import Gallery

from repro import markup
from repro.study.paper import papers

ROOT = Path(__file__).resolve().parents[1]
MATHJAX = Path(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static/mathjax/tex-svg.js"))
DESCRIBED = 200  # characters that others show of a description
SCRIPT, STYLE_SHEET = r"<script[^>]*/(?:{})[^>]*>\s*</script>", r"<link[^>]*/(?:{})[^>]*>"
NEEDED_BY = {  # files that the theme gives every page -> what on a page needs them; "" for nothing
    "fontawesome/[^>]*/js/": "",  # it draws icons, which are letters of a font that is loaded anyway
    "mathjax/": r'class="math',
    r"mystnb\.": r'class="cell',  # notebooks
    r"sphinx-design\.|design-tabs\.": r'class="(?:[^"]* )?sd-',  # cards, grids, tabs
    r"togglebutton\.": r'class="(?:[^"]* )?(?:toggle|admonition[^"]* dropdown)[ "]',
    r"copybutton\.|clipboard\.": r'class="highlight',  # code
}
DRAWING = re.compile('(?P<open><figure class="drawing"[^>]*?)(?: data-csv="(?P<csv>[^"]*)")?>'
                     "(?P<inside>.*?<figcaption>)(?P<caption>.*?)</figcaption>", re.DOTALL)
RECORDS = re.compile("(<summary>records?</summary>)([0-9a-f]{16}(?:, [0-9a-f]{16})*)")  # in a caption
STYLED = re.compile('<style type="text/css">(?:(?!</style>).)*</style>\\s*(<table.*?</table>)', re.DOTALL)  # by pandas
EXPLAINED, WHERE = ("seeds x units", "detectable", "room"), "../how-to-read.html#a-claim"  # in the tables of verdicts
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="https?:[^>]*>')


def render(target: str | Path, *chapters: str | Path) -> None:
    """Write the book to the folder `target`. Exits with what is wrong: a target that would replace what is no book of
    ours, a warning, or a page that needs a network."""
    target = Path(target).resolve()
    source = target.parent / "book"
    if ROOT / "book" in (source, target, *target.parents) or target in (ROOT, *ROOT.parents):
        sys.exit(f"{target} lies in or beside book/, where a copy of it is to be built; take another folder: "
                 "build/stored/html.")
    for folder, mark in ((target, "objects.inv"), (source, "_config.yml")):
        ours = folder.is_relative_to(ROOT / "build") or (folder / mark).exists()  # there also what a kill left
        if folder.exists() and not ours and any(folder.iterdir()):
            sys.exit(f"{folder} is there and is no book, so it is not replaced; take another folder: "
                     "build/stored/html.")
    for folder in (target, source):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "book", source, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "_toc.yml").write_text(yaml.safe_dump(toc.contents(), allow_unicode=True, sort_keys=False))
    (source / "notebooks").mkdir()
    gallery = Gallery(source / "_extra/gallery")
    titles, files = {}, {}
    for chapter in sorted(map(Path, chapters)):
        notebook = set_outputs(nbformat.read(chapter, as_version=4), gallery, chapter.stem, files)
        titles[chapter.stem] = notebook.cells[0].source.partition("\n")[0].removeprefix("# ")
        (source / "notebooks" / chapter.name).write_text(nbformat.writes(notebook))
    for name, part in (("index.md", landing), ("what-we-learned.md", learned), ("design.md", rooms), ("api.md", api),
                       ("references.md", cite), ("how-it-is-tested.md", tested),
                       ("paper-scale.md", scale)):
        (source / name).write_text(gallery.finished(part.filled((source / name).read_text())))
    for paper in papers():
        if (page := source / f"{paper.id}.md").exists():
            page.write_text(gallery.finished(one_page.filled(page.read_text(), paper.id)))
    (source / "pictures.md").write_text(gallery.filled((source / "pictures.md").read_text(), titles))
    kept = {file.stem: f"../{file.relative_to(ROOT)}" for file in (ROOT / "results").glob("*/*/*.json")}
    for chapter in (source / "notebooks").glob("*.ipynb"):
        notebook = nbformat.read(chapter, as_version=4)
        for data in datas(notebook):
            data["text/html"] = linked(gallery.finished(data["text/html"]), kept)
        chapter.write_text(nbformat.writes(notebook))
    downloads.write(source / "_extra", files)
    shutil.copy(MATHJAX, source / "_extra/mathjax")
    landing.social(source / "_static/claims.png")
    options = ["--path-output", source, "--config", configured(source / "_config.yml"), "-W", "-n", "--keep-going"]
    build = [Path(sys.executable).parent / "jupyter-book", "build", source, *options]
    done = subprocess.run(build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\nThe book does not build without warnings (above).")
    pages = source / "_build/html"
    known = glossary.terms((pages / "glossary.html").read_text())
    files = {int(path.name[:2]): path.name for path in (pages / "notebooks").glob("[0-9]*.html")}
    for file in pages.rglob("*.html"):
        text = described(lighter(file.read_text()))
        file.write_text(glossary.explained(before.shown(text, files), known) if file.name in files.values() else text)
        if found := ELSEWHERE.search(file.read_text()):
            sys.exit(f"{file.name} loads something from elsewhere; it has to lie beside it: {found.group()}")
    pages.rename(target)
    print(f"The book is in {target / 'index.html'}")


def lighter(text: str) -> str:
    """A page without the scripts and style sheets that nothing on it needs (`NEEDED_BY`). Its colors are light where no
    script runs to choose them."""
    text = re.sub(r'(<html [^>]*data-theme=")auto"', r'\1light"', text)
    for files, needed in NEEDED_BY.items():
        if not (needed and re.search(needed, text)):
            text = re.sub(SCRIPT.format(files), "", text)
            text = re.sub(STYLE_SHEET.format(files), "", text)
    return text


def described(text: str) -> str:
    """A page whose head describes it by its own first sentences, where it has some."""
    article = text.partition('<article class="bd-article"')[2]
    first = re.search(r"<p>(.*?)</p>", article, re.DOTALL)
    sentence = " ".join(html.unescape(re.sub("<[^>]+>", "", first[1])).split()) if first else ""
    if len(sentence) < 40:
        return text
    shown = html.escape(sentence if len(sentence) <= DESCRIBED else f"{sentence[:DESCRIBED].rpartition(' ')[0]} …")
    described = r'(<meta (?:name="description"|property="og:description") content=")[^"]*'
    return re.sub(described, lambda one: one[1] + shown, text)


def configured(file: Path) -> Path:
    """The book's settings, in `file`: where the repository is public, with links to it, and with buttons that open a
    chapter at Binder or Colab."""
    config, address = yaml.safe_load((ROOT / "_config.yml").read_text()), landing.repository()
    local = config["sphinx"]["local_extensions"]  # beside the settings
    config["sphinx"]["local_extensions"] = {name: path.removeprefix("book/") for name, path in local.items()}
    if address:
        config["repository"] = {"url": address, "branch": landing.BRANCH}  # only what opens a chapter asks for a branch
        config["html"]["use_repository_button"] = True
        config["sphinx"]["config"]["html_context"]["site"] = landing.site()  # social pictures have whole addresses
        if "//github.com/" in address:
            config["launch_buttons"] = {"binderhub_url": "https://mybinder.org",
                                        "colab_url": "https://colab.research.google.com"}
    file.write_text(yaml.safe_dump(config, allow_unicode=True, sort_keys=False))
    return file


def set_outputs(notebook: nbformat.NotebookNode, gallery: Gallery | None = None, name: str = "",
                files: dict[str, str] | None = None) -> nbformat.NotebookNode:
    """A chapter whose figures are numbered and whose tables share one style; the `gallery` remembers what it shows.

    The values of its figures go into `files`, by name as CSV, and their captions link them.
    """
    files = {} if files is None else files
    chapter, numbers = re.match(r"# (\d+) · ", notebook.cells[0].source)[1], count(1)
    for data in datas(notebook):
        text = explained(numbered(set_table(data["text/html"]), chapter, numbers, files))
        text = downloads.kept(text, chapter, files)
        data["text/html"] = gallery.visit(name, text) if gallery else text
    return notebook


def datas(notebook: nbformat.NotebookNode) -> Iterator[dict]:
    """The outputs of a notebook that are HTML."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):
                yield output.data


def numbered(text: str, chapter: str, numbers: count, files: dict[str, str]) -> str:
    """HTML in which the caption of each drawing begins with its number, such as "Figure 4.2", and ends with a link to
    its values. These move from the HTML into `files`."""
    def one(found: re.Match) -> str:
        number = f"{chapter}.{next(numbers)}"
        link = ""
        if found["csv"] is not None:
            name = f"figure-{number.replace('.', '-')}.csv"
            files[name] = html.unescape(found["csv"])
            link = downloads.link(name)
        return (f'{found["open"]}>{found["inside"]}<span class="of-figure">Figure {number}</span> {found["caption"]}'
                f"{link}</figcaption>")

    return DRAWING.sub(one, text)


def linked(text: str, kept: dict[str, str]) -> str:
    """HTML whose captions link each record of `kept`, id -> address, to its file."""
    return RECORDS.sub(lambda found: found[1] + re.sub("[0-9a-f]{16}", lambda id: (
        f'<a href="{kept[id[0]]}">{id[0]}</a>' if id[0] in kept else id[0]), found[2]), text)


def explained(text: str) -> str:
    """HTML in which the headings of a table of verdicts lead to their explanation."""
    if '<th scope="col">verdict</th>' not in text or "<section" in text:
        return text
    return re.sub(f"(<th[^>]*>)({'|'.join(EXPLAINED)})</th>", rf'\1<a href="{WHERE}">\2</a></th>', text)


def set_table(text: str) -> str:
    """A table as pandas writes it, set like the artifacts': without its own style, numbers to the right, in a box.

    Such tables that are folded next to others are set, too.
    """
    soup = BeautifulSoup(text, "html.parser")
    if soup.select("details.more > table"):
        return STYLED.sub(lambda found: set_table(found[1]), text)
    if soup.find(["figure", "section"]) or not soup.table:
        return text
    table = soup.table
    caption = table.caption.extract().decode_contents() if table.caption else ""
    for tag in [table, *table.find_all(True)]:
        tag.attrs = {name: tag[name] for name in ("colspan", "rowspan", "href") if name in tag.attrs}
    folded = ""
    for k, (heads, cells) in enumerate(columns(table)):
        head = heads[-1].get_text().strip() if heads else ""
        if head == "scale" and len({one.get_text().strip() for one in cells}) > 1:
            folded = markup.FOLD
            for one in cells:
                one.parent.attrs |= {"class": markup.FOLDED} if one.get_text().strip() == markup.FOLDED else {}
        kind = {"class": "number"} if markup.numeric([one.get_text().strip() for one in cells]) else {}
        for one in (*heads[-1:], *cells):
            one.attrs |= kind
        for one in cells:
            if not one.find(True):
                inside = BeautifulSoup(markup.cell(one.get_text().strip()), "html.parser")
                one.clear()
                one.append(inside)
        if not k:
            for one in cells:
                one.name, one["scope"] = "th", "rowgroup" if "rowspan" in one.attrs else "row"
    return markup.framed(re.sub(r"\n\s*", "", str(table)), caption, folded)


def columns(table: Tag) -> list[tuple[list[Tag], list[Tag]]]:
    """The cells of the head and of the body in each column of a table, each where it begins."""
    found, taken = {}, set()
    for i, row in enumerate(table.find_all("tr")):
        k = 0
        for cell in row.find_all(["th", "td"]):
            while (i, k) in taken:
                k += 1
            found.setdefault(k, ([], []))[row.parent.name != "thead"].append(cell)
            wide, deep = int(cell.get("colspan", 1)), int(cell.get("rowspan", 1))
            taken |= {(i + down, k + right) for down in range(deep) for right in range(wide)}
    return [found[k] for k in sorted(found)]


if __name__ == "__main__":
    render(*sys.argv[1:])
