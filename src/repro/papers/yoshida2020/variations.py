"""Variations of the recurrence module that the paper names (Yoshida et al. 2020, sections 3.1 and 6, footnote 3).

They are compared on disjoint windows of validation books. `small` uses the short window of `finetuning.SECOND`, where
the module changes anything at all, with half the steps of the rows there.
"""

from math import log
from typing import Any

from repro.papers.yoshida2020 import finetuning, pg19
from repro.papers.yoshida2020.effects import without_module
from repro.papers.yoshida2020.evaluation import evaluation
from repro.papers.yoshida2020.pg19_tables import variation_table
from repro.papers.yoshida2020.tables import log_ratio, module_effect
from repro.study import ADDED, Artifact, Assay, Claim, Measured, register

SCALES = {scale: settings | {"splits": ("validation",)} for scale, settings in pg19.SCALES.items()}
SCALES["small"] |= finetuning.SECOND["small"] | {"sequence": None, "steps": 150}
SCALES["smoke"] |= {"epochs": 0.1}  # only shows that every row runs, and there are many

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
PLACES = {"smoke": (-1,)}  # of these; elsewhere all
LEFT_OUT = dict.fromkeys(("smoke", "small"), ("2 embeddings",))


def variations(scale: str) -> dict[str, dict[str, Any]]:
    """The change in each row: the module, on disjoint windows; then the training of models tested with overlap."""
    last = finetuning.PRETRAINING.plan(scale)[0].n_layer - 1
    rows = {name: change for name, change in VARIATIONS.items() if name not in LEFT_OUT.get(scale, ())}
    for place in PLACES.get(scale, NAMES):
        rows[NAMES[place]] = {"insert_layer": last if place == -1 else place}
    sixth = SCALES[scale].get("window", finetuning.Config.model_fields["window"].default) // 6
    for positions in ("all", "passed"):
        rows[f"trained on disjoint windows, tested with overlap {sixth}, {positions} positions pooled"] = {
            "overlap": sixth, "train_overlap": 0, "test_positions": positions}
    return rows | {f"trained on such windows, tested with overlap {sixth}, all positions pooled": {"overlap": sixth}}


def grid(scale: str) -> list[dict[str, Any]]:
    """A run for each row."""
    return [{"model": "recurrent", "overlap": 0} | change for change in variations(scale).values()]


def passed_or_all(records) -> Measured:
    """Only the passed positions pooled in testing, against all of them, on validation text."""
    passed, every = ([record for record in records if record.config["test_positions"] == name]
                     for name in ("passed", "all"))
    return Measured(log_ratio(passed, every, "validation"))


def helps(records) -> Measured:
    """A model against itself without what its module carries (`without_module`), on validation text."""
    return Measured(-without_module(records, records, "validation"))


def module_counts(records) -> float:
    """The largest effect of masking the module out; no choice of pooling can matter more."""
    return max(log(1 / (1 + module_effect([record], "validation"))) for record in records)


def row_helps(id: str, place: str, short: str, where) -> Claim:
    """The claim that the module of one row of the table lowers perplexity; `where`: the runs of that row."""
    return Claim(id=f"yoshida2020-variations-{id}", paper="yoshida2020", source=ADDED, experiment="variations-pg19",
                 about=("yoshida2020-variations",), unit="book", direction="lower", relative=True, measure=helps,
                 where=where, family="yoshida2020-variations-module", short=short,
                 sentence=f"Inserted at {place}, the module lowers the perplexity of books on disjoint windows.",
                 why_no_paper_effect="no numbers are printed", why_no_assay="a difference of any size counts",
                 why_no_control="the effect already compares the same weights with and without what they carry",
                 criterion_before="none: declared after the results were known, for the only two rows with an "
                                  "interval below zero")


SCORED = {scale: tokens // 5 for scale, tokens in pg19.SCORED.items()} | {"small": 78_000}
EVALUATION = evaluation("variations-pg19", "Variations of the recurrence module, on books.", SCALES, grid,
                        SCORED)
register(
    EVALUATION,
    Artifact(id="yoshida2020-variations", paper="yoshida2020", title="Variations of the recurrence module",
             chapter="07_pg19", experiment=EVALUATION.name, source="Section 3.1",
             build=lambda context: variation_table(context, variations)),
    Claim(id="yoshida2020-variations-passed", paper="yoshida2020", source="Footnote 3", experiment=EVALUATION.name,
          about=("yoshida2020-variations",), unit="book", direction="lower", relative=True, same_weights=True,
          sentence="A model trained on disjoint windows has a lower perplexity on overlapping ones if it pools only "
                   "the positions that the next window does not read again.",
          short="With overlap, pool only positions that are not read again.",
          where=lambda config: config.overlap > 0 and config.train_overlap == 0, measure=passed_or_all,
          why_no_paper_effect="no numbers are printed",
          why_no_control="the same weights; only the pooling differs",
          assay=Assay("the loss from masking the module out", lambda config: config.overlap > 0, module_counts)),
    row_helps("every-layer", "every layer", "Inserted at every layer, the module helps.",
              lambda config: config.insert == "every"),
    row_helps("first-layer", "the first layer", "Inserted at the first layer, the module helps.",
              lambda config: config.insert_layer == 0 and config.insert == "one"))
