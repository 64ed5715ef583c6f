"""Variations of the recurrence module that the paper names (Yoshida et al. 2020, sections 3.1 and 6, footnote 3).

They are compared on disjoint windows of validation books. `small` uses the short window of `finetuning.SECOND`, because
the module has an effect only there, with half as many steps as the other models in that window.
"""

from typing import Any

from repro.papers.yoshida2020.perplexity import finetuning, pg19
from repro.papers.yoshida2020.perplexity.evaluation import evaluation
from repro.papers.yoshida2020.perplexity.pg19_tables import variation_table
from repro.study import Artifact, register

SCALES = {scale: settings | {"splits": ("validation",)} for scale, settings in pg19.SCALES.items()}
SCALES["small"] |= finetuning.SECOND["small"] | {"sequence": None, "steps": 150}
SCALES["smoke"] |= {"epochs": 0.1}  # only shows that all of the many rows run

VARIATIONS: dict[str, dict[str, Any]] = {  # section 3.1, footnote 3, and the first idea of section 6
    "as in the paper": {},
    "max pooling": {"pool": "max"},
    "attention pooling": {"pool": "attention"},
    "2 embeddings": {"n_embeddings": 2},
    "4 embeddings": {"n_embeddings": 4},
    "inserted at every layer": {"insert": "every"},
    "final layer only": {"layers": "last"},
    "h_prev detached": {"truncate": 1},
    "higher capacity": {"hidden_size": 800},
}


NAMES = {0: "inserted at the first layer", 2: "inserted at the third layer", 3: "inserted at the fourth layer",
         -1: "inserted at the last layer"}
PLACES = {"smoke": (-1,)}  # the places that are tried; at other scales all in NAMES
LEFT_OUT = dict.fromkeys(("smoke", "small"), ("2 embeddings",))


def variations(scale: str) -> dict[str, dict[str, Any]]:
    """Name of each row -> the settings that it changes: in the module, on disjoint windows; then in the training of
    models tested with overlap."""
    last = finetuning.PRETRAINING.plan(scale)[0].n_layer - 1
    rows = {name: change for name, change in VARIATIONS.items() if name not in LEFT_OUT.get(scale, ())}
    for place in PLACES.get(scale, NAMES):
        rows[NAMES[place]] = {"insert_layer": last if place == -1 else place}
    sixth = SCALES[scale].get("window", finetuning.Config.model_fields["window"].default) // 6
    for positions in ("all", "passed"):
        rows[f"trained on disjoint windows, tested with overlap {sixth}, {positions} positions pooled"] = {
            "overlap": sixth, "train_overlap": 0, "test_positions": positions}
    return rows | {f"trained and tested with overlap {sixth}, all positions pooled": {"overlap": sixth}}


def grid(scale: str) -> list[dict[str, Any]]:
    """A run for each row."""
    return [{"model": "recurrent", "overlap": 0} | change for change in variations(scale).values()]

SCORED = {scale: tokens // 5 for scale, tokens in pg19.SCORED.items()} | {"small": 78_000}
EVALUATION = evaluation("variations-pg19", "Variations of the recurrence module, on books.", SCALES, grid,
                        SCORED)
register(
    EVALUATION,
    Artifact(id="yoshida2020-variations", paper="yoshida2020", title="Variations of the recurrence module",
             chapter="07_pg19", experiment=EVALUATION.name, source="Section 3.1",
             build=lambda context: variation_table(context, variations)))
