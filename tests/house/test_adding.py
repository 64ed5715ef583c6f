"""Adding a memory, a pattern, a corpus and a paper by the rows of CONTRIBUTING.md alone, in a copy of the tree.

A row lists files. Each has a toy here: the text of a new file, or an edit of one that is there. If a row names another
file than the toys, or the toys do not work with the files of their row, document and code disagree.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = dict(re.findall(r"^\| (an? [^|]+?) \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))


def added(text):
    """An edit that puts `text` at the end."""
    return lambda before: f"{before.rstrip()}\n{text}"


def inserted(text, after):
    """An edit that puts `text` after a line that is there."""
    def edit(before):
        assert after in before
        return before.replace(after, after + text, 1)
    return edit


MEMORY = '''"""The mean of the last hidden states of a window, added to all inputs of the next."""

from repro.recurrence.memories.base import Memory


class LastState(Memory):
    """State: the mean over a window of what the last layer returns, (B, d)."""

    def read(self, layer, hidden, state, stride, places):
        hidden = hidden if state is None else hidden + state[:, None]
        for index in range(self.n_layer):
            hidden = layer(index, hidden)
        return hidden, hidden[:, :stride].mean(1)

    def state_numbers(self, window):
        return self.d_model

    def flops_per_window(self, window):
        return 0  # products are counted, and it only adds
'''
MEMORY_TEST = '''from repro.recurrence.memories import complete


def test_it_has_no_settings():
    assert complete("last-state") == {"name": "last-state"}
'''
PATTERN = '''

@dataclass(frozen=True)
class Sink(Pattern, name="sink"):
    """Every key of the own block, and the first of all."""

    block: int

    looks_ahead = False

    def keys(self, i):
        start = i - i % self.block
        return [Keys(0, torch.clamp(start - 1, max=0)), Keys(start, i)]
'''
CORPUS = '''    Corpus(
        "toy-books", "MIT, written by this package", "embedded", generator=synthetic.BOOKS,
        read=readers.generated_books,
        splits={"test": Split("books", n_documents=2, n_words=2 * synthetic.BOOKS.book_words)}),
'''
SCRIPT = '''"""Fetch the toy: python data_scripts/toy2024.py [FOLDER]."""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["toy-books"], __doc__)
'''
INIT = '''"""Doe and Roe (2024), *Toys*: what its chapter shows."""

from repro.study.paper import Finding, Paper
from repro.study.registry import register

__all__: list[str] = []

register(Paper(id="toy2024", name="Toys", cite="doe2024toys", idea="play first", part="Playing", chapters=(24, 25),
               says="Toys are enough.", finding=Finding("The toy allows {0.effect:.0f} pairs.",
                                                        {"toy2024-table1-fewer": "reproduced"})))
'''
EXPERIMENTS = '''"""How many pairs a toy pattern allows, and a text read with a toy memory."""

from repro.study import Estimate, Experiment, Outcome, RunConfig, register

PAPER, CHAPTER = "toy2024", "24_toys"


class Config(RunConfig):
    block: int = 4


def execute(config, context):
    import torch

    from repro.attention import Sink
    from repro.models import gpt2_mini, save_model
    from repro.recurrence import with_memory

    torch.manual_seed(config.seed)
    save_model(gpt2_mini(n_layer=2, n_embd=8, n_head=2, vocab_size=9), context.folder / "base")
    model = with_memory(context.folder / "base", "last-state")
    ids = torch.arange(32)[None] % 9
    with torch.no_grad():
        loss = model(ids, window=8, labels=ids).loss.item()
    return Outcome({"loss": loss, "pairs": Sink(config.block).count(32)}, {"loss": "nats", "pairs": "pairs"}, "toy")


EXPERIMENT = Experiment(
    name="count-toys", paper=PAPER, summary="Count pairs.", config=Config, scales={"smoke": {"corpus": "toy-books"}},
    grid=lambda scale: [{"block": block} for block in (4, 8)], execute=execute,
    estimate=lambda config: Estimate(0, 0, 0.0, 2**28, 1.0))
register(EXPERIMENT)
'''
TABLES = '''"""The table of the toys."""

from repro.papers.toy2024.experiments import CHAPTER, EXPERIMENT, PAPER
from repro.study import Artifact, published, register


def table(context):
    frame = published("toy2024_table1")
    frame["ours"] = [context.value("pairs", 0, block=int(block)) for block in frame["block"]]
    return frame


register(Artifact(id="toy2024-table1", paper=PAPER, title="Pairs", chapter=CHAPTER, experiment=EXPERIMENT.name,
                  source="Table 1", build=table))
'''
CLAIMS = '''"""The claim of the toys."""

from repro.papers.toy2024.experiments import EXPERIMENT, PAPER
from repro.study import Claim, Measured, register


def fewer(records):
    small, large = (record.metrics["pairs"] for record in sorted(records, key=lambda one: one.config["block"]))
    return Measured([[small - large]])


register(Claim(id="toy2024-table1-fewer", paper=PAPER, sentence="Smaller blocks allow fewer pairs.", source="Table 1",
               experiment=EXPERIMENT.name, about=("toy2024-table1",), measure=fewer, direction="lower", unit="exact",
               means_at=("smoke",), paper_effect=lambda: -60.0))
'''
PRINTED = "block,pairs,source,confidence\n4,108,Table 1,exact\n8,168,Table 1,exact\n"
REFERENCE = "@misc{doe2024toys,\n  title = {Toys},\n  author = {Doe, A. and Roe, B.},\n  year = {2024}\n}\n"
NOTEBOOK = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
PAPER_TEST = '''from repro.study import experiment


def test_it_plans_a_run_for_each_block():
    assert [config.block for config in experiment("count-toys").plan("smoke")] == [4, 8]
'''

# A row -> the word that replaces NAME in its files, and a toy for each file: a text, or an edit of what is there.
TOYS = {
    "a memory": ("last_state", {
        "src/repro/recurrence/memories/NAME.py": MEMORY, "tests/recurrence/test_NAME.py": MEMORY_TEST}),
    "an attention pattern": ("sink", {
        "src/repro/attention/patterns.py": added(PATTERN),
        "src/repro/attention/__init__.py": inserted("    Sink,\n", after="    Rows,\n"),
        "tests/attention/test_patterns.py": lambda before: inserted(
            "    (Sink(4), lambda i, j: j <= i and (i // 4 == j // 4 or j == 0)),\n", after="who sees whom by its "
            "definition\n")(inserted("    Sink,\n", after="    Rows,\n")(before))}),
    "a corpus": ("toy2024", {
        "src/repro/data/registry.py": inserted(CORPUS, after="TEXT = [\n"), "data_scripts/NAME.py": SCRIPT}),
    "a paper": ("toy2024", {
        "src/repro/papers/NAME/__init__.py": INIT, "src/repro/papers/NAME/experiments.py": EXPERIMENTS,
        "src/repro/papers/NAME/tables.py": TABLES, "src/repro/papers/NAME/claims.py": CLAIMS,
        "src/repro/study/published/NAME_table1.csv": PRINTED, "book/references.bib": added(REFERENCE),
        "notebooks/NN_name.ipynb": NOTEBOOK, "tests/papers/NAME/test_NAME.py": PAPER_TEST}),
}


def files(row):
    """The files that a row of CONTRIBUTING names."""
    return {name for name in re.findall(r"`([^`]+)`", ROWS[row]) if re.fullmatch(r"[\w./-]+/[\w.-]+\.\w+", name)}


@pytest.mark.parametrize("row", TOYS)
def test_a_row_names_every_file_to_touch(row):
    name, toys = TOYS[row]
    assert files(row) == set(toys)
    assert all(callable(toy) == (ROOT / file).exists() for file, toy in toys.items())


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the tree with every toy in it."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in ("src", "book", "tests", "data_scripts"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for file in ("README.md", "pyproject.toml", "_config.yml"):
        shutil.copy(ROOT / file, copy)
    for row, (name, toys) in TOYS.items():
        for file in files(row):
            path, toy = copy / file.replace("NAME", name).replace("NN_name", "24_toys"), toys[file]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(toy(path.read_text()) if callable(toy) else toy)
    return copy


def done(copy, *command):
    """What a command of Python prints in the copy."""
    environment = os.environ | {"PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy / 'book'}", "REPRO_HOME": str(copy),
                                "REPRO_WORK": str(copy / "work"), "COLUMNS": "200"}
    environment.pop("REPRO_DATA", None)
    found = subprocess.run([sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


SEEN = """
import json, sys, landing, teaser, toc, torch
from transformers import GPT2Config, GPT2LMHeadModel
from repro.attention import Sink, register
from repro.data import corpora
from repro.plotting import draw_memories, draw_patterns
from repro.recurrence import MEMORIES

register()
config = GPT2Config(vocab_size=9, n_layer=1, n_head=2, n_embd=8, sink_block=4, attn_implementation="repro_sink")
shape = GPT2LMHeadModel(config)(torch.zeros(1, 20, dtype=torch.int64)).logits.shape
print(json.dumps({
    "memories": list(MEMORIES), "drawn": draw_memories().alt, "words": [
        text.get_text() for text in draw_memories().axes[0].texts],
    "pattern": draw_patterns({"sink": Sink(4)}, n=32).alt, "shape": list(shape),
    "corpora": [one.name for one in corpora()], "row": landing.table().splitlines()[-1], "cards": landing.cards(),
    "missing": landing.missing(), "readme": teaser.listed().splitlines()[-1], "contents": toc.parts()}))
"""


def test_what_was_added_is_found_listed_and_drawn(copy):
    seen = json.loads(done(copy, "-c", SEEN))
    assert "last-state" in seen["memories"] and "last-state" in seen["words"]
    assert seen["drawn"].startswith(f"What each of {len(seen['memories'])} memories carries")
    assert seen["pattern"] == "Who sees whom among 32 positions. Allowed pairs: sink 108."
    assert seen["shape"] == [1, 20, 9] and "toy-books" in seen["corpora"]
    assert "<p>Toys are enough.</p><p><b>Here:</b> No claim has runs yet.</p>" in seen["cards"]
    assert "24 and" not in seen["missing"] and "25" in seen["missing"]
    row = "| **Toys**, {cite:t}`doe2024toys`: play first | **in part**: chapters 24 of 24 to 25; 1 tables"
    assert seen["row"].startswith(row)
    assert seen["readme"] == "| Toys | Doe and Roe (2024), Toys | play first | 24 to 25 |"
    assert seen["contents"] == [{"caption": "Playing (chapters 24 to 25)", "chapters": [{"file": "notebooks/24_toys"}]}]


def test_what_was_added_runs_at_smoke_and_is_judged(copy):
    listed = json.loads(done(copy, "-m", "repro", "list", "toy2024", "--json"))
    ids = [one["id"] for one in (*listed["artifacts"], *listed["claims"])]
    assert ids == ["toy2024-table1", "toy2024-table1-fewer"]
    done(copy, "-m", "repro", "run", "count-toys")
    rows = [line.split("│")[1:-1] for line in done(copy, "-m", "repro", "show", "toy2024-table1").splitlines()]
    assert [[row[0].strip(), row[-1].strip()] for row in rows if row] == [["4", "108"], ["8", "168"]]
    assert "reproduced" in done(copy, "-m", "repro", "show", "toy2024-table1-fewer")
    assert "toy-books" in done(copy, "-m", "repro", "data", "check", "toy-books")


def test_the_tests_that_a_row_names_pass_and_those_of_all_memories_too(copy):
    tests = ["tests/recurrence/test_last_state.py", "tests/recurrence/test_memories.py",
             "tests/attention/test_patterns.py", "tests/papers/toy2024"]
    said = done(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests, "-k",
                "last-state or last_state or Sink or toy2024")
    assert int(re.search(r"(\d+) passed", said)[1]) > 10
