"""The book as a PDF: python book/pdf.py build/html build/book.pdf. All built pages, in the order of the table of
contents, become one page (build/book.html), which Chromium prints. Interactive parts are removed: folded parts are
opened or dropped, and animations show one frame."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

import landing
import toc
import yaml
from bs4 import BeautifulSoup, Tag

ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DROPPED = ("script, .fold, .steps, form, button, [hidden], .moving, .headerlink, noscript p, "
           "details:not(.claim, .more) > summary, .tag_hide-input > details, figure details, details.claim > div, "
           ".actions, .take, figcaption .data")
UNWRAPPED = "noscript, details:not(.claim), summary"
PATIENCE = 600  # seconds that Chromium may take


def printed(pages: Path, target: Path) -> None:
    """Write the rendered book in the folder `pages` to the file `target`. Exits without Chromium, for a link without a
    target, and with Chromium's message if it prints nothing."""
    if not CHROMIUM:
        sys.exit("Printing needs Chromium, and none is here: install it (Debian package chromium).")
    whole, target = target.with_suffix(".html").resolve(), target.resolve()
    text = joined(pages.resolve(), whole.parent)
    if lost := set(re.findall('href="#([^"]+)"', text)) - set(re.findall(r'\bid="([^"]+)"', text)):
        sys.exit(f"On paper these links would lead nowhere: {', '.join(sorted(lost))}.")
    whole.write_text(text)
    chromium(whole, target)
    found = numbers(target.read_bytes())  # of the pages, which are known once it is printed: the contents name them
    whole.write_text(re.sub(r'<b data-page="(.*?)"></b>', lambda at: f"<b>{found.get(at[1], '')}</b>", text))
    chromium(whole, target)


def chromium(page: Path, target: Path) -> None:
    """Print one page (HTML) to a PDF."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={profile}", "--no-pdf-header-footer", "--generate-pdf-document-outline",
             "--virtual-time-budget=600000",  # milliseconds, for formulas; it ends when nothing is to come
             f"--print-to-pdf={target}", page.as_uri()], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode or not target.exists():
        sys.exit(f"Chromium printed nothing:\n{done.stderr}")


def numbers(pdf: bytes) -> dict[str, int]:
    """The page number of each link target in a PDF by Chromium: targets are names with the object of their page, and
    pages come in the order of their objects."""
    pages = [int(one) for one in re.findall(rb"(\d+) 0 obj\n<</Type /Page\b", pdf)]
    rank = {one: k for k, one in enumerate(sorted(pages), start=1)}
    places = re.findall(rb"/(\S+) \[(\d+) 0 R /XYZ", pdf)
    return {name.decode(): rank[int(one)] for name, one in places if int(one) in rank}


def joined(pages: Path, beside: Path) -> str:
    """All pages as one (HTML), for a file in the folder `beside`: cover, contents, parts, chapters."""
    there, names = os.path.relpath(pages, beside), [name for _, inside in parts() for name in inside]
    first = soup(pages / "index.html")
    head = "".join(f'<link rel="stylesheet" href="{there}/{link["href"]}">' for link in first.select(
        'link[rel="stylesheet"]'))
    articles = {name: article(pages, name, names, there) for name in names}
    listed, body = "", ""
    for caption, inside in parts():
        listed += f"<li>{escape(caption)}<ul>" if caption else ""
        listed += "".join(f'<li><a href="#{place(name)}">{escape(title(articles[name]))}</a>'
                          f'<b data-page="{place(name)}"></b></li>' for name in inside)
        listed += "</ul></li>" if caption else ""
        body += "".join(f'<article class="bd-article" id="{place(name)}">{articles[name].decode_contents()}</article>'
                        for name in inside)
    cover = yaml.safe_load((ROOT / "_config.yml").read_text())
    return (f'<!doctype html><html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">'
            f'<title>{escape(cover["title"])}</title>{head}<style>{(ROOT / "book/print.css").read_text()}</style>'
            f'{mathematics(pages, names, there)}</head><body><main class="bd-content"><section class="cover"><h1>'
            f'{escape(cover["title"])}</h1><p>{escape(cover["author"])}, {cover["copyright"]}</p></section>'
            f'<nav class="toc"><h2>Contents</h2><ul>{listed}</ul></nav>{body}</main></body></html>')


def mathematics(pages: Path, names: list[str], there: str) -> str:
    """The scripts that typeset formulas, from the first page with a formula; "" if no page has one."""
    for name in names:
        found = [one for one in soup(pages / f"{name}.html").find_all("script")
                 if "MathJax" in (one.string or "") or "mathjax" in one.get("src", "")]
        if any("src" in one.attrs for one in found):
            folder = (pages / name).parent
            return "".join(f"<script>{one.string}</script>" if one.string else
                           f'<script src="{there}/{os.path.relpath(folder / one["src"], pages)}"></script>'
                           for one in found)
    return ""


def parts() -> Iterator[tuple[str, list[str]]]:
    """The parts of the book with the names of their pages, such as "notebooks/04_recurrence_module"; the first has no
    caption and holds the landing page."""
    contents = toc.contents()
    yield "", [contents["root"]]
    for part in contents["parts"]:
        yield part["caption"], [one["file"] for one in part["chapters"]]


def article(pages: Path, name: str, names: list[str], there: str) -> Tag:
    """The content of a page without interactive parts; its ids and links are those of the whole book."""
    found = soup(pages / f"{name}.html").select_one("article")
    for one in found.select(DROPPED):
        one.decompose()
    for one in found.select(UNWRAPPED):
        one.unwrap()
    for one in found.select("details"):
        one.name = "div"
    folder = (pages / name).parent
    for one in found.find_all(True):
        for key, value in one.attrs.items():
            if isinstance(value, str) and "url(#" in value:
                one[key] = value.replace("url(#", f"url(#{place(name)}--")
        if "id" in one.attrs:
            one["id"] = f"{place(name)}--{one['id']}"
        for key in ("href", "xlink:href"):
            if key in one.attrs:
                one[key] = link(pages, folder, name, names, one[key])
                if not one[key]:
                    del one[key]
        if one.name == "img":
            one["src"] = f"{there}/{os.path.relpath(folder / one['src'], pages)}"
            one.attrs.pop("loading", None)
    return found


def link(pages: Path, folder: Path, name: str, names: list[str], address: str) -> str:
    """The target of a link in the whole book: a page, an id in it, or an external address. Files next to the pages are
    linked in the repository; "" if that is not public, since a printed book has no such files."""
    file, _, at = address.partition("#")
    if re.match(r"[a-z]+:", file):
        return address
    target = os.path.relpath(folder / file, pages) if file else f"{name}.html"
    if target.removesuffix(".html") in names:
        here = place(target.removesuffix(".html"))
        return f"#{here}--{at}" if at and "=" not in at else f"#{here}"
    kept = target.replace(".py.html", ".py")
    if not landing.repository() or not (ROOT / kept).is_file():
        return ""
    return f"{landing.repository()}/blob/{os.environ.get('GITHUB_REF_NAME', 'main')}/{kept}" + f"#{at}" * bool(at)


def place(name: str) -> str:
    """The id of a page in the whole book."""
    return name.replace("/", "-")


def title(page: Tag) -> str:
    return page.h1.get_text()


def soup(file: Path) -> BeautifulSoup:
    return BeautifulSoup(file.read_text(), "html.parser")


if __name__ == "__main__":
    printed(Path(sys.argv[1]), Path(sys.argv[2]))
