"""What a person installs: `repro.attention` with PyTorch alone, and the ten lines of the README with transformers."""

import re
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
ALONE = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in %r:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import torch
from repro.attention import Global, LongformerSelfAttention, SlidingWindow, attend

x = [torch.randn(1, 2, 400, 8, requires_grad=True) for _ in range(3)]
pattern = SlidingWindow(16) | Global([3])
found = [attend(*x, pattern, name) for name in ("blocked", "dense", "loop")]
for one in found[1:]:
    torch.testing.assert_close(one, found[0])
found[0].sum().backward()
LongformerSelfAttention(16, 2, window=4)(torch.randn(1, 9, 16))
print("read", x[0].grad.shape[2])
"""


def test_with_pytorch_alone():
    """All that the study installs is made absent, and NumPy, which PyTorch does without."""
    absent = ("transformers", "numpy", "scipy", "pandas", "pyarrow", "matplotlib", "pydantic", "typer", "rich",
              "gensim", "accelerate", "tokenizers", "safetensors", "datasets", "huggingface_hub")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE % (absent,)], capture_output=True, text=True)
    assert done.stdout == "read 400\n", done.stderr


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
