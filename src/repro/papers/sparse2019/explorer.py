"""The Sparse Transformer in the explorer: bits per byte against attended pairs."""

from repro.pages import Chart
from repro.papers.sparse2019.settings import is_image
from repro.papers.sparse2019.tasks import DENSITY, PAPER
from repro.study.published import published
from repro.study.registry import register

PATTERNS = {"dense": "dense attention", "fixed": "fixed pattern", "strided": "strided pattern",
            "window": "local window only"}


def line(config) -> str:
    """The pattern, the use of its two heads, and other differences from Table 2, in plain words."""
    words = [PATTERNS[config.pattern]]
    two_heads = config.pattern in ("fixed", "strided")
    words += [f"heads {config.integration}"] * (two_heads and config.integration != "merged")
    words += ["no position embeddings"] * (not config.embeddings)
    return ", ".join(words)


def match(config) -> str:
    """The row of Table 2 that a run repeats."""
    return f"{'CIFAR-10' if is_image(config) else 'Enwik8'}, {line(config)}"


def printed(metric: str) -> list[dict]:
    """The rows of Table 2, for bits per byte only: the times per iteration come from other machines."""
    rows = published("sparse2019_table2_patterns").to_dict("records")
    name = {row["model"]: PATTERNS[next(word for word in PATTERNS if word in row["model"].lower())] for row in rows}
    return [{"line": name[row["model"]], "match": f"{row['dataset']}, {name[row['model']]}", "settings": {},
             "costs": {}, "quality": [float(row["bits_per_byte"])], "source": row["source"]}
            for row in rows if metric == "test_bits_per_byte"]


register(Chart(id="sparse-density", paper=PAPER, title="Images and text, patterns", experiment=DENSITY.name, line=line,
               settings=lambda config: {"length, bytes": config.length, "stride, positions": config.stride},
               match=match, printed=printed))
