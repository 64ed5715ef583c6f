"""Recurrence in a real pretrained model: Gemma 3 270M on books, in windows of 64 tokens. Not in the paper.

The base models of `small` have 7 million weights and gain little from context, so little can be measured of a memory.
Gemma gains much. Three modules are compared with a baseline fine-tuned in the same way. The first is the paper's own
(second layer, fresh). The second is in the middle of the 18 layers and starts as the mean token of the window before.
The third is the second with normalized states. Rates, layer and start were chosen in trial runs on validation books
that left no record. The third was added after the test runs of the other two had failed. It also trains at a lower
rate, so its runs alone cannot tell normalization from rate.
"""

from repro.papers.yoshida2020.perplexity import finetuning
from repro.papers.yoshida2020.perplexity.evaluation import evaluation, table_rows
from repro.papers.yoshida2020.perplexity.tables import LITERAL, UNSCALED, change, perplexity, row_kind
from repro.study import Artifact, register
from repro.study.artifacts import NOT_RUN

TABLE = "yoshida2020_table2_pg19"
OVERLAP = 10  # of 64 tokens, a sixth
RATE = 1e-4  # of the module that reads normalized states
# 80 steps of 1,280 targets, 102,400 in all: about half an hour of one CPU core.
SCALES = {"pretrained": finetuning.SCALES["pretrained"] | {
    "corpus": "pg19-subset", "window": 64, "batch_size": 1, "windows_per_sequence": 20, "steps": 80,
    "train_documents": 60, "learning_rate": 4e-5, "modules": (), "warmup_steps": 10, "validation_head": 1024,
    "validation_tokens": 10_000, "test_head": 1536, "splits": ("test",), "normalize": False}}
MODELS = {"baseline": "no module", LITERAL: "second layer, randomly initialized (the paper's)",
          UNSCALED: "middle layer, mean token", "recurrent": "middle layer, mean token, normalized"}


def grid(scale: str) -> list[dict]:
    """The modules and the baseline on disjoint windows, and the baseline with a sixth of overlap."""
    rows = [row | ({"module_learning_rate": 3e-3} if row["model"] == "recurrent" else {})
            for row in table_rows((0, OVERLAP), (0,), literal=(0,))]
    return [*rows, {"model": "recurrent", "overlap": 0, "normalize": True, "module_learning_rate": RATE}]


def gains(context):
    """A row per model: its test perplexity, and its change against the baseline of the same seed on disjoint windows,
    as it is and under its controls, with 95 % intervals over seeds and books."""
    import pandas

    rows = []
    for scale in context.scales:
        found = {(row_kind(config), config.overlap): context.records_of(config) for config in context.plan(scale)}
        base = found["baseline", 0]
        overlapped = change(found["baseline", OVERLAP], base)
        rows.append({"model": "baseline", "module": "none; windows overlap by a sixth", "change": overlapped,
                     "seeds": str(len(base)), "test": perplexity(found["baseline", OVERLAP], "test") or NOT_RUN})
        for model, module in MODELS.items():
            records = found[model, 0]
            row = {"model": model.split(",")[0], "module": module, "seeds": str(len(records)),
                   "test": perplexity(records, "test") or NOT_RUN}
            if model != "baseline":
                row |= {"change": change(records, base), "masked out": change(records, base, "nll_masked"),
                        "another book's state": change(records, base, "nll_other_document")}
            rows.append(row)
    return pandas.DataFrame(rows, columns=["model", "module", "seeds", "test", "change", "masked out",
                                           "another book's state"]).fillna("–")


EVALUATION = evaluation("recurrence-gemma", "Recurrence in Gemma 3 270M, in windows of 64 tokens.", SCALES, grid,
                        {"pretrained": 66_000})
ARTIFACT = Artifact(id="recurrence-gemma", paper="yoshida2020", chapter="07_pg19", experiment=EVALUATION.name,
                    title="Recurrence in a pretrained model, Gemma 3 270M, on books in windows of 64 tokens",
                    source="not in the paper; each module was declared before its runs", build=gains)
register(EVALUATION, ARTIFACT)
