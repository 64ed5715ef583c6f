"""The character language models in the explorer: bits per character against attended pairs."""

from repro.pages import Chart
from repro.papers.longformer2020.charlm import ABLATION, COST, PAPER
from repro.papers.longformer2020.charlm_tables import METRIC, ROWS, window_layout
from repro.study.published import published
from repro.study.registry import register


def line(config) -> str:
    """How the windows change from the bottom layer to the top, in words."""
    order, dilated = window_layout(config)
    order = {"narrow": "fixed"}.get(order, order)
    windows = "full attention" if order == "full" else f"{order} windows"
    return windows + (f", dilated on {config.dilated_heads} heads" if dilated else "")


def settings(config) -> dict[str, float]:
    """The settings that a reader can choose; full attention has a window as long as its sequences."""
    return {"window of the top layer, characters": config.windows[-1] or config.length}


def printed(metric: str) -> list[dict]:
    """The rows of Table 4: bits per character on the development text; the paper gives no costs."""
    if metric != METRIC:
        return []
    found = []
    for row in published("longformer2020_table4_ablation").to_dict("records"):
        order, dilated = ROWS[row["configuration"]]
        name = f"{order} windows" + ", dilated on 2 heads" * dilated
        found.append({"line": name, "match": name, "quality": [float(row["dev_bpc"])], "settings": {}, "costs": {},
                      "source": row["source"]})
    return found


register(
    Chart(id="charlm-ablation", paper=PAPER, title="Characters, windows across layers", experiment=ABLATION.name,
          line=line, settings=settings, match=line, printed=printed),
    Chart(id="charlm-cost", paper=PAPER, title="Characters, width of the window", experiment=COST.name, line=line,
          settings=settings))
