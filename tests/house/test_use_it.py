"""For those who use the library and not the book: the page's lines run, the reference has every name, one version."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import api
import pytest
import yaml

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "book/use-it.md").read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a tiny GPT-2 with a tokeniser of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    coder = Tokenizer(models.WordLevel({f"w{k}": k for k in range(29)} | {"<unk>": 29}, unk_token="<unk>"))
    coder.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=coder, unk_token="<unk>").save_pretrained(folder)
    GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=16, n_head=2, vocab_size=30, n_positions=256, bos_token_id=0,
                               eos_token_id=0)).save_pretrained(folder)
    return folder


def test_the_lines_of_the_page_run_one_after_the_other(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"NAME": str(model), "text": " ".join(f"w{k * k % 29}" for k in range(200))}
    for code in BLOCKS:
        exec(code, names)
    words, judged = capsys.readouterr().out.strip().splitlines()
    assert words.endswith(" a word, 199 tokens scored") and judged.startswith("reproduced -0.032 [-0.0")
    assert names["windowed"].config._attn_implementation == "near_and_first" and len(BLOCKS) == 4
    perplexity = BLOCKS[0].strip().splitlines()
    assert len([line for line in perplexity if line and "import" not in line]) <= 5


@pytest.mark.parametrize("room", api.ROOMS)
def test_the_reference_has_every_public_name_with_what_the_code_says(room):
    text, module = api.room(room).replace(r"\<", "<"), importlib.import_module(f"repro.{room}")
    headings = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    assert sorted(headings) == sorted(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        told = value.__doc__ if inspect.isclass(value) or inspect.isroutine(value) else None
        if told and "(" not in told.splitlines()[0]:
            assert told.strip().splitlines()[0] in text, name


class Base:
    """A base of its own."""

    def kept(self):
        """Of the base."""

    def changed(self):
        """Of the base, too."""


class Thing(Base):
    """A thing."""

    @classmethod
    def made(cls, name: str | Path = "x") -> "Thing":
        """Make one
        of a <name>.

        At length.
        """

    def changed(self, n: int, *, m=2):
        """Of its own."""

    def _hidden(self):
        """Not told."""

    def bare(self):
        pass


def test_a_class_has_its_public_methods_and_a_room_an_index_whose_links_arrive(monkeypatch):
    monkeypatch.setattr(Base, "__module__", "repro.toy")
    monkeypatch.setattr(Thing, "__module__", "repro.toy")
    assert api.methods(Thing, "Thing").split("\n") == [
        "", "- `.kept()`: Of the base.", "- `.changed(n: int, m=2)`: Of its own.",
        "- `.made(name: str | Path = 'x')`: Make one of a \\<name>.", "", ""]
    assert api.methods(test_a_long_signature_has_a_line_for_each_argument, "f") == ""
    text = api.room("recurrence")
    links = re.findall('href="#([^"]+)"', text)
    assert links == re.findall('<span id="([^"]+)">', text) and len(links) == len(set(links)) > 5
    assert re.findall("single: (.*);", text) == [one.removeprefix("repro.recurrence.") for one in links]
    assert "- `.generate(input_ids: Tensor, max_new_tokens: int = 20, " in text.partition("### RecurrentLM\n")[2]


def test_a_long_signature_has_a_line_for_each_argument():
    def short(a, b: int = 2): ...

    def long(first_argument: "tuple[int, ...]", second_argument: float = 0.5, *, third_argument: str = "x" * 30): ...

    def worded(*some: "int | str", d="x", e: "str | None" = "auto", f=short): ...

    assert api.signature(short) == "(a, b: int = 2)" and api.signature(3) == ": int"
    assert api.signature(worded) == "(*some: int | str, d='x', e: str | None = 'auto', f=...)"
    assert api.signature(long).splitlines()[1:3] == ["    first_argument: tuple[int, ...],",
                                                     "    second_argument: float = 0.5,"]


def test_what_looks_like_a_tag_in_a_docstring_is_none():
    def told():
        """Reads <s> and `<s>`, and n < 3:

            x = "<s>"

        Ends.
        """

    assert api.docstring(told) == 'Reads \\<s> and `<s>`, and n \\< 3:\n\n    x = "<s>"\n\nEnds.'


def test_there_is_one_version_and_the_changelog_begins_with_it():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version
    assert str(yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]) == version
