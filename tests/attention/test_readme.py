"""The ten lines of the README: a model of transformers windowed, trained, saved, loaded and writing."""

import re
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]


def test_the_lines_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    exec(code, names)
    assert names["model"].config._attn_implementation == "near_and_first"
    ids, model = names["text"], names["model"].eval()
    changed = ids.clone()
    changed[0, 300] += 1 - 2 * (changed[0, 300] == 255).long()
    with torch.no_grad():
        moved = (model(ids).logits - model(changed).logits).abs().amax(-1)[0] > 0
    assert moved[300] and not moved[:300].any() and not moved[300 + 2 * 255 + 1:].any()  # two layers of 256 keys
