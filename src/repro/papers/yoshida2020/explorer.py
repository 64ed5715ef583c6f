"""The explorer's charts of the recurrence chapters: perplexity against cost, next to Tables 1 and 2."""

from typing import Any

from repro.pages import Chart
from repro.papers.base.gpt2_mini import EXPERIMENT as PRETRAINING
from repro.papers.yoshida2020.memories import experiment as memories
from repro.papers.yoshida2020.perplexity import pg19, variations, wikitext103
from repro.papers.yoshida2020.perplexity.tables import CONTROL, FIRST, row_kind
from repro.study.published import published
from repro.study.registry import register

PAPER = "yoshida2020"
STATE, PAIRS, FLOPS = "state carried on, numbers", "attended pairs per scored token", "FLOPs per scored token"
WIDTH = 768  # of the paper's GPT-2
LINES = {"baseline": "without recurrence", "recurrent": "with recurrence",
         CONTROL: "without recurrence, trained on overlapping windows",
         FIRST: "with recurrence, module at the first layer"}
MEMORIES = {
    "none": "no memory", "overlap": "no memory, overlapping windows", "yoshida": "recurrence module",
    "yoshida-first": "recurrence module at the first layer", "embeddings-4": "recurrence module, 4 embeddings",
    "gated": "gated state", "rmt": "memory tokens", "block-recurrent": "block-recurrent state",
    "infini": "compressive matrix", "compressed": "compressed past", "knn": "nearest neighbors",
    "cache": "cache of the previous window",
}


def line(config) -> str:
    """The kind of model of a run, in plain words."""
    return LINES.get(row_kind(config), row_kind(config))


def varied(config) -> str:
    """The variation of the module that a run has."""
    plan, names = variations.EVALUATION.plan(config.scale), list(variations.variations(config.scale))
    return names[plan.index(config)] if len(plan) == len(names) and config in plan else line(config)


def settings(config) -> dict[str, float]:
    """The settings that a reader may choose."""
    return {"window, tokens": config.window, "overlap, tokens": config.overlap}


def costs(config) -> dict[str, float]:
    """Costs that follow from the settings: attended pairs of a scored token, and the size of h_prev."""
    state = PRETRAINING.plan(config.scale)[0].n_embd * config.n_embeddings if config.model == "recurrent" else 0
    return {PAIRS: pairs(config.window, config.overlap), STATE: state}


def pairs(window: int, overlap: int) -> float:
    """Causal pairs in a full window, per token that the window scores."""
    return window * (window + 1) / 2 / (window - overlap)


def match(config) -> str:
    """The row of a table that a run repeats: the model, and the overlap as a share of the window."""
    return f"{line(config)}, {config.overlap / config.window:.4f}"


def printed(table: str, metric: str) -> list[dict[str, Any]]:
    """The points of Table 1 or 2 for a metric."""
    column = metric.replace("word_perplexity", "perplexity_per_word")
    rows = published(table)
    if column not in rows:
        return []
    found = []
    for row in rows.to_dict("records"):
        name = LINES["recurrent" if "recurrence" in row["model"] else "baseline"]
        window, overlap = int(row["window_tokens"]), int(row["overlap_tokens"])
        at = f"{name}, {overlap / window:.4f}"
        found.append({"line": name, "match": at, "quality": [float(row[column])],
                      "settings": {"window, tokens": window, "overlap, tokens": overlap},
                      "costs": {FLOPS: 1e8 * float(row["flops_per_token_1e8"]), PAIRS: pairs(window, overlap),
                                STATE: WIDTH * (name == LINES["recurrent"])}, "source": row["source"]})
    return found


COMMON = {"paper": PAPER, "settings": settings}
register(
    Chart(id="recurrence-wikitext103", **COMMON, title="Articles", experiment=wikitext103.EVALUATION.name, line=line,
          costs=costs, match=match, printed=lambda metric: printed("yoshida2020_table1_wikitext103", metric)),
    Chart(id="recurrence-pg19", **COMMON, title="Books", experiment=pg19.EVALUATION.name, line=line, costs=costs,
          match=match, printed=lambda metric: printed("yoshida2020_table2_pg19", metric)),
    Chart(id="memories-pg19", **COMMON, title="Books, memories of other papers", experiment=memories.EXPERIMENT.name,
          line=lambda config: MEMORIES.get(config.memory, config.memory),
          costs=lambda config: {PAIRS: pairs(config.window, config.overlap)}),
    Chart(id="variations-pg19", **COMMON, title="Books, variations of the module",
          experiment=variations.EVALUATION.name, line=varied, costs=costs))
