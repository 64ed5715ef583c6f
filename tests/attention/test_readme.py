"""The code of the README: a model of transformers windowed, trained, saved, loaded and writing; one with a memory."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def blocks():
    """The blocks of Python, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def attention(blocks, tmp_path_factory):
    """The names that the first block leaves."""
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readme"))
        exec(blocks[0], names)
    return names


def test_the_lines_on_attention(attention):
    ids, model = attention["text"], attention["model"].eval()
    assert model.config._attn_implementation == "near_and_first"
    changed = ids.clone()
    changed[0, 300] += 1 - 2 * (changed[0, 300] == 255).long()
    with torch.no_grad():
        moved = (model(ids).logits - model(changed).logits).abs().amax(-1)[0] > 0
    assert moved[300] and not moved[:300].any() and not moved[300 + 2 * 255 + 1:].any()  # two layers of 256 keys


def test_the_lines_on_memory_follow_those_on_attention(blocks, attention, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = dict(attention)
    exec(blocks[1], names)
    ids, model = names["text"], names["model"].eval()
    changed = ids.clone()
    changed[0, 0] = (changed[0, 0] + 1) % 256
    with torch.no_grad():
        moved = (model(ids, window=256).logits - model(changed, window=256).logits).abs().amax(-1)[0] > 0
    assert moved[:512].all() and len(blocks) == 2  # also in the second window, which sees the first through h_prev
