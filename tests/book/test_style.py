"""The English of the pages: no worn-out construction, short sentences, few open tables, captions that say what to see.

Judged are the pages of the book, README, CONTRIBUTING and CHANGELOG, the sentences of the claims, and the titles and
captions of tables and figures. What the paper says is quoted, so its admonition is judged for length only. The code's
docstrings, comments, error messages and command-line help follow the same rules.
"""

import ast
import functools
import io
import json
import re
import tokenize
from pathlib import Path
from statistics import median

import pytest
from bs4 import BeautifulSoup

from repro.study import artifacts, claims

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
LESSONS = [path for path in CHAPTERS if '"in-short"' in path.read_text()]
PAGES = [*CHAPTERS, *sorted((ROOT / "book").glob("*.md")), *(ROOT / f"{one}.md" for one in (
    "README", "CONTRIBUTING", "CHANGELOG"))]
each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
lesson = pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)

LONGEST, MEDIAN, OPEN_TABLES = 40, 18, 4  # words of a sentence, of half of them; tables that are not folded
WORN = {
    "says, reports, stores, shows": r"\b(?:told|tells|telling)\b",
    "depends on": r"\b(?:hangs?|hung|hanging) on\b",
    "name the thing": r"\b(?:whoever|whatever|whichever)\b",
    "is in, follows, next to": r"\bst(?:ands?|ood) (?:in|for|at|beside|behind|next|side|under|below|above)\b"
                               r"|\blies? behind\b|\b(?:is|are) beside\b|\bin the place of\b",
    "say it plainly": r"\bno gift\b|\bcan hardly\b|\bis not yet\b|\bwhat is otherwise\b"
                      r"|\bas many as there (?:are|is)\b",
    "the same way, again, also": r"\b(?:alike|anew|likewise|at hand)\b",
    "half of": r"\ba half of\b",
    "%": r"\bper cent\b",
    "no space before %": r"\d %(?!\w)",
    "learned": r"\blearnt\b",
    "pre-training": r"\bpretraining\b",
    "pretrain, pretrained": r"\bpre-train(?!ing)",
    "subject, verb, object": r"^Of (?!course\b)|^That (?!is\b|makes\b|leaves\b|gives\b|means\b|rules\b|explains\b)"
                             r"|^What (?!.*\?$)",
}
PLAIN = {"code": r"```(?!\{).*?```", "directive": r"^(?:```|:::+)\{?.*$|^:\w+:.*$", "comment": r"<!--.*?-->",
         "math": r"\$\$.*?\$\$", "table": r"^\|.*\|$", "heading": r"^#+ .*$", "anchor": r"^\(.*\)=$",
         "tag": r"<[^>]+>"}
END = r"(?<=[.!?])(?:[*)\"]+)?\s+(?=[A-Z*`$(\[{\"])|\n\s*\n|\n\s*(?:[-*]|\d+\.) |^\s*(?:[-*]|\d+\.) "
SAYING = ("ReproError", "warn", "echo")  # functions and exceptions that show their arguments to a reader
ENTRY = r"[a-z_]\w*(?:, [a-z_]\w*)*(?: \([^()]*\))?: "  # of a list of parameters in a docstring
ABBREVIATED = r"\b(e\.g|i\.e|et al|vs|cf|Fig|approx)\."


def sentences(markdown: str) -> list[str]:
    """The sentences of a piece of Markdown, without code, tables, headings and the marks of directives."""
    for pattern in PLAIN.values():
        markdown = re.sub(pattern, "\n\n", markdown, flags=re.MULTILINE | re.DOTALL if ".*?" in pattern
                          else re.MULTILINE)
    markdown = re.sub(ABBREVIATED, r"\1", markdown)
    markdown = re.sub(r"\$[^$\n]+\$", "x", markdown)
    markdown = re.sub(r"\{\w+(?::\w+)?\}`[^`]*`", "X", markdown)  # citations
    markdown = re.sub(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\([^)]*\)", r"\1", markdown)
    parts = (" ".join(part.split()) for part in re.split(END, markdown, flags=re.MULTILINE))
    return [part for part in parts if len(words(part)) > 2]


def words(sentence: str) -> list[str]:
    """Its words; code counts as one, whatever is in it."""
    return re.findall(r"`[^`]*`|\{[^{}]*\}|[\w][\w'’.,/-]*", sentence)


def worn(sentence: str) -> list[str]:
    """The worn-out constructions of a sentence, each with what to say in its place."""
    plain = re.sub(r"`[^`]*`|\"[^\"]*\"|“[^”]*”", "x", sentence)
    return [f"{found[0].strip()!r}: {better}" for better, pattern in WORN.items()
            if (found := re.search(pattern, plain, re.IGNORECASE if not pattern.startswith("^") else 0))]


def prose(page: Path) -> list[str]:
    """The pieces of Markdown of a page; of a chapter also what its cells give to `sentence` and `in_short`."""
    if page.suffix == ".md":
        return [page.read_text()]
    pieces = []
    for cell in json.loads(page.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            pieces.append(source)
            continue
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("sentence", "in_short"):
                pieces += [one.value for one in ast.walk(call) if isinstance(one, ast.Constant)
                           and isinstance(one.value, str) and " " in one.value]
    return pieces


def own(markdown: str) -> str:
    """Markdown without the admonitions that give a paper's words."""
    return re.sub(r"^```\{admonition\} What the paper.*?^```$", "", markdown, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def texts_of(code: str) -> list[tuple[int, str, str]]:
    """The English in Python code: (line, kind, text), the kind "docstring", "comment" or "message"; a message is what
    an exception, a warning, the terminal or the help of a command says, with x for each value in it."""
    found, tree = [], ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found += [(node.body[0].lineno, "docstring", text)] if (text := ast.get_docstring(node)) else []
        said = [node.exc] if isinstance(node, ast.Raise) and node.exc else []
        if isinstance(node, ast.Call):
            said += [one.value for one in node.keywords if one.arg in ("help", "epilog")]
            said += node.args if getattr(node.func, "attr", getattr(node.func, "id", "")) in SAYING else []
        found += [(one.lineno, "message", text) for part in said for one in ast.walk(part) if (text := _literal(one))]
    previous = None
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            text, place = token.string.lstrip("#! "), token.start
            if previous == (place[0] - 1, place[1]):  # the comment goes on
                found[-1] = (found[-1][0], "comment", f"{found[-1][2]} {text}")
            else:
                found.append((place[0], "comment", text))
            previous = place
    return list(dict.fromkeys(found))


def _literal(node: ast.AST) -> str:
    """A string of several words, with x for each value in it; "" for anything else."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    text = "".join(one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else "x" for one in parts)
    return text if " " in text.strip() else ""


def code_sentences(kind: str, text: str) -> list[str]:
    """The sentences of a docstring, comment or message; the entries of a list of parameters count separately."""
    if kind == "docstring":
        text = re.sub(r"^[ ]*>>>.*?(?=^[ ]*$|\Z)", "\n", text, flags=re.MULTILINE | re.DOTALL)  # examples
    text = re.sub(r"\n(?=[ ]*(?:[-*]|\d+\.) )", "\n\n", text)
    parts = (re.sub(ABBREVIATED, r"\1", " ".join(part.split())) for part in re.split(r"\n\s*\n", text))
    return [one for part in parts for one in re.split(rf"(?<=[.!?]) |(?<=[.!?][)\"'`]) |; (?={ENTRY})", part) if one]


BAD = ["The record is told of it.", "That curves fall is no proof.", "Of questions it has an F1.", "It hangs on size.",
       "What is measured is a loss.", "Ours stands beside theirs.", "Both are alike.", "It gains 3 per cent.",
       "It can hardly be seen.", "Whoever wants it reads it.", "A half of it is gone."]
GOOD = ["The record stores it.", "That is why curves fall.", "It depends on size.", "What does it cost?",
        "The interval lies below zero.", "`told` is a name.", "We report what came out."]


def test_worn_out_constructions_are_found_and_plain_ones_are_not():
    assert [one for one in BAD if not worn(one)] == [] and [one for one in GOOD if worn(one)] == []


def test_sentences_are_split_and_counted():
    text = ("# A heading\n\nOne is `a b c` here. Two is $x + y$, see {cite:t}`a2018b`, e.g. here.\n\n"
            "| a | table |\n\n- three in a list\n- four in [a list](x.md)\n\n```python\nno = 1\n```\n")
    found = sentences(text)
    assert found == ["One is `a b c` here.", "Two is x, see X, e.g here.", "three in a list", "four in a list"]
    assert [len(words(one)) for one in found] == [4, 7, 4, 4]


@each
def test_no_construction_is_worn_out(page):
    found = [(one, worn(one)) for piece in prose(page) for one in sentences(own(piece)) if worn(one)]
    assert found == []


@each
def test_sentences_are_short(page):
    found = [one for piece in prose(page) for one in sentences(piece)]
    assert [one for one in found if len(words(one)) > LONGEST] == []
    assert median(len(words(one)) for one in found or ["two words"]) <= MEDIAN


@pytest.mark.parametrize("page", CHAPTERS, ids=lambda page: page.stem)
def test_few_tables_are_open(page):
    found = 0
    for cell in json.loads(page.read_text())["cells"]:
        for output in cell.get("outputs", []):
            shown = BeautifulSoup("".join(output.get("data", {}).get("text/html", "")), "html.parser")
            found += sum(not one.find_parent("details") for one in shown.select("table"))
    assert found <= OPEN_TABLES, f"{found} open tables; put secondary ones into `folded`"


@lesson
def test_a_lesson_answers_in_two_sentences_and_says_at_once_what_it_means(page):
    cells = json.loads(page.read_text())["cells"]
    at = next(k for k, cell in enumerate(cells) if "in-short" in cell["metadata"].get("tags", []))
    call = ast.parse("".join(cells[at]["source"])).body[-1].value
    answer = call.args[2]
    template = answer if isinstance(answer, ast.Constant) else answer.args[0]
    assert len(sentences(template.value)) <= 2
    means = "".join(cells[at + 1]["source"])
    assert cells[at + 1]["cell_type"] == "markdown" and means.startswith("## What it means\n")
    assert len(sentences(re.split(r"^## .*", means, flags=re.MULTILINE)[1])) <= 5


@pytest.mark.parametrize("one", claims(), ids=lambda one: one.id)
def test_claims_are_plain(one):
    assert worn(one.sentence) == worn(one.short) == []
    assert len(words(one.sentence)) <= LONGEST


SIZE = re.compile(r"\b(?:half|twice|double|quadruple|thrice|(?:two|three|four|five|ten|\d+) times|\d[\d.]* ?%)")
SETTINGS = re.compile(r"\((?:the paper: |at which )[^)]*\)|up to half a window|[Ww]ith three times the passes"
                      r"|[Rr]eading half the tokens")


def sizes(sentence: str) -> list[str]:
    """The sizes of an effect that a sentence names as ours: not those of settings, or in parentheses of the paper."""
    return SIZE.findall(SETTINGS.sub(" ", sentence))


@pytest.mark.parametrize("one", claims(), ids=lambda one: one.id)
def test_a_claim_that_names_a_size_is_judged_by_that_size(one):
    """Else half of the paper's effect is enough, and "reproduced" would be beside a sentence that is not true here."""
    assert one.margin or not sizes(one.sentence) + sizes(one.short), one.sentence


def test_a_size_is_found():
    assert sizes("It reads three times as long an input.") == ["three times"]
    assert sizes("It reads a longer input (the paper: three times as long).") == []


@pytest.mark.parametrize("one", artifacts(), ids=lambda one: one.id)
def test_titles_are_plain_and_a_figure_says_what_to_see(one):
    assert worn(one.title) == worn(one.look_for) == []
    if one.kind == "figure":
        assert len(words(one.look_for)) >= 5, f"{one.id}: what is there to see? say it in `look_for`"


CODE = sorted((ROOT / "src" / "repro").rglob("*.py"))
PLANTED = '''"""What a module is."""
# One half of it
# is told here.


def first(n):
    """Numbers up to n.

    >>> "told of" and "alike"
    'alike'

    n: how many; m: whatever is left.
    """
    print("not judged: told")  # x lies behind it
    if n:
        raise ValueError(f"{n} numbers are alike; give "
                         f"{n + 1}.")
    return option("--told", help="It hangs on n.")
'''


def worn_in(code: str) -> list[tuple[int, str]]:
    """The worn-out constructions of Python code: (line, what to say in its place)."""
    return sorted((line, better) for line, kind, text in texts_of(code) for one in code_sentences(kind, text)
                  for better in worn(one))


def long_in(code: str) -> list[tuple[int, int]]:
    """The sentences of docstrings that are too long: (line, words)."""
    return [(line, len(words(one))) for line, kind, text in texts_of(code) if kind == "docstring"
            for one in code_sentences(kind, text) if len(words(one)) > LONGEST]


def test_worn_out_constructions_are_found_in_code():
    assert list(dict.fromkeys(line for line, _ in worn_in(PLANTED))) == [1, 2, 7, 14, 16, 18]


def test_long_sentences_are_found_in_docstrings():
    long = f'"""One. {"many words " * 20}here. n: {"many words " * 15}; m: {"some words " * 15}."""'
    assert long_in(long) == [(1, 41)] and long_in(PLANTED) == []


def test_no_construction_in_the_code_is_worn_out():
    found = {str(path.relative_to(ROOT)): worn for path in CODE if (worn := worn_in(path.read_text()))}
    assert found == {}


def test_sentences_of_docstrings_are_short():
    found = {str(path.relative_to(ROOT)): long for path in CODE if (long := long_in(path.read_text()))}
    assert found == {}


AS_RECORDED = {"registry.py", "detokenisation.py"}  # what records call a part of a corpus; text as corpora print it


def test_a_percentage_has_one_form_on_pages_and_in_what_code_writes():
    spaced = re.compile(r"[\d}] %(?= [a-z]|[.,;:)\"'”`]|$)", re.MULTILINE)
    assert spaced.search("saves 5 % of it") and spaced.search('f"{share} %"') and not spaced.search("n ** 2 % 11; 5%")
    files = [path for folder in ("src", "book") for kind in ("py", "js", "html", "md")
             for path in (ROOT / folder).rglob(f"*.{kind}") if path.name not in AS_RECORDED]
    sources = {path: path.read_text() for path in (*files, ROOT / "README.md")}
    sources |= {path: "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
                for path in CHAPTERS}
    assert {path.name: found[0] for path, text in sources.items() if (found := spaced.findall(text))} == {}
