"""The prose of a lesson holds no result: `sentence` takes it from records, or an artifact shows it.

A result is a number that was measured: one with a decimal point, with the unit of a measurement, or next to the name
of one. So are a verdict's words. A setting is written as code, `0.02`, and is none. What a paper says stands in its
admonition, and what an exercise asks for in its section.
"""

import ast
import json
import re
from pathlib import Path

import pytest

CHAPTERS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
LESSONS = [path for path in CHAPTERS if '"in-short"' in path.read_text()]

NUMBER = r"\d[\d.,]*"
UNIT = (r"%|per cent|nats?|bits?|points?|times|x|×|ms|s|seconds?|minutes?|hours?|[kMGT]i?B|[kMGT]?FLOPs?(/s)?|tokens/s")
MEASURE = "perplexity|loss|accuracy|ratio|gain|effect|verdict|correlation|p"
RESULT = re.compile(
    rf"\b{NUMBER}\s?(?:{UNIT})(?![\w/])"
    rf"|(?<![\d.])\d+\.\d+(?![\d.])"
    rf"|\b(?:{MEASURE})(?: value)?\s?(?:of|is|was|=|<|>|to|from|by|about|falls to)?\s?[+−-]?{NUMBER}"
    r"|\b(?:not )?reproduced\b|\binconclusive\b|\bnot testable here\b", re.IGNORECASE)

SCALE = re.compile(r"`(?:smoke|small|medium|paper)`")
FOUND = re.compile(r"\b(?:helps?|worse|better|ahead|cannot be told apart|nothing more|(?:one|two) to \w+ powers)\b")
EXEMPT = [
    r"^```.*?^```$",  # directives, the paper's admonition among them, and code
    r"^## Exercises$.*?(?=^## |\Z)",
    r"\$\$.*?\$\$|\$[^$\n]+\$",
    r"`[^`]*`",  # settings, names and citations
    r"\{[^{}]*\}",  # where `sentence` puts a value
    r"\b(?:sections?|chapters?|tables?|figures?|equations?|appendix|footnotes?)\s[A-Z]?[\d.]+"
    r"(?:(?:, | and | to )[\d.]+)*",
    r"\b95% (?:confidence )?intervals?",
    r"\]\([^)]*\)",
]


def typed_results(markdown: str) -> list[str]:
    """What in a piece of Markdown looks like a result that somebody typed: in numbers, or in words about a scale."""
    plain = re.sub("|".join(EXEMPT[:2]), " … ", markdown, flags=re.MULTILINE | re.DOTALL)
    said = [FOUND.search(part)[0] for part in re.split(r"(?<=[.:;])\s+", plain)
            if SCALE.search(part) and FOUND.search(part)]
    for pattern in EXEMPT:
        markdown = re.sub(pattern, " … ", markdown, flags=re.MULTILINE | re.DOTALL | re.IGNORECASE)
    return [found[0].strip() for found in RESULT.finditer(markdown)] + said


TYPED = [
    ("Recurrence saves 5 % of it.", "5 %"),
    ("It saves 5.2%.", "5.2%"),
    ("The gain is 0.04 here.", "gain is 0.04"),
    ("between 1.71 and\n1.75", "1.71"),
    ("a perplexity of 31", "perplexity of 31"),
    ("some 12 nats a word", "12 nats"),
    ("It is 3 times as fast", "3 times"),
    ("2x faster", "2x"),
    ("takes 40 s on one core", "40 s"),
    ("needs 14 GiB", "14 GiB"),
    ("p < 1e-5", "p < 1"),
    ("The claim is reproduced at small.", "reproduced"),
    ("It stays inconclusive.", "inconclusive"),
    ("## 5 % of everything", "5 %"),
    ("As Table 1 shows, 0.3 is lost.", "0.3"),
    ("At `small` recurrence does not help:\nit is new.", "help"),
    ("Chapter 6 finds it a\nlittle worse at `small`.", "worse"),
    ("The two cannot be told apart at `medium`.", "cannot be told apart"),
]
UNTYPED = [
    "Windows of 300 tokens, sequences of 20 windows, three layers of 200 units, 5 overlaps.",
    "GPT-2's own initialisation (`0.02`) leaves little; `warmup_steps=20`.",
    "A loss in nats, in per cent, 2 to 128 tokens; chapter 6; see sections 4.2 and 5.3.1, Equation 1, Table 12.",
    "Each value has a 95% interval over documents.",
    "It saves {share:.0%} of {possible:,.0f} nats, at {r.value:.3f}.",
    "A matrix of $0.5 n^2$ scores; $$x = 0.3$$",
    "```{admonition} What the paper says\nThe gain is 1.3 points, and 60 % of the contexts.\n```\nWe ask the same.",
    "```\nrepro run x --set rate=0.01\n```",
    "See [the page](https://example.org/v1.2%20x).",
    "WikiText-103, GPT-2, text8 and enwik8, PG-19.",
    "## Exercises\n\n### Exercise 1\n\nWith a rate of 0.5, do you get 5 % more?",
    "a small effect, a larger gain, and a better perplexity than before; the ratio of both",
    "The code is shown in full. The run is repeated at 4 seeds.",
    "It stands in 1 of 2 rows.",
    "At `smoke` every run is short. A longer one would be better.",
    "## Exercises\n\nDoes it help at `smoke`?",
]


def test_a_typed_result_is_found():
    assert [(prose, typed_results(prose)[:1]) for prose, _ in TYPED] == [(prose, [result]) for prose, result in TYPED]


def test_settings_citations_and_the_papers_words_are_none():
    assert {prose: found for prose in UNTYPED if (found := typed_results(prose))} == {}


def test_only_the_exercises_and_the_admonition_are_left_out():
    assert typed_results("## Exercises\n\n0.5\n\n## After\n\n0.7 more") == ["0.7"]
    assert typed_results("```{admonition} What the paper says\n0.5\n```\n\nOurs: 0.7\n\n```\n0.1\n```") == ["0.7"]


def prose(path):
    """The Markdown of a lesson, and the words that its code cells give to `sentence` and `in_short`."""
    cells = json.loads(path.read_text())["cells"]
    yield "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for cell in cells:
        calls = ast.walk(ast.parse("".join(cell["source"]))) if cell["cell_type"] == "code" else ()
        for call in calls:
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("sentence", "in_short"):
                yield from (part.value for part in ast.walk(call)
                            if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_types_no_result(path):
    found = [result for piece in prose(path) for result in typed_results(piece)]
    assert not found, f"{path.name}: {found}; say it with `sentence`, or write a setting as `code`"
