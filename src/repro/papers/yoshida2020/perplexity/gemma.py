"""Recurrence in a real pretrained model: Gemma 3 270M on books, in windows of 64 tokens. Not in the paper.

The base models of `small` have 7 million weights and gain little from context, so a memory has little effect to
measure. Gemma gains much from context. Three modules are compared with a baseline fine-tuned in the same way:

1. The paper's own: at the second layer, randomly initialized.
2. In the middle of the 18 layers, starting as the mean token of the previous window.
3. The second with normalized states, trained at a lower rate. It was added after the first two had failed on test text.

A control separates the two changes of the third module: the second module at the third one's rate. Rates, layer and
initialization were chosen in trial runs on validation books; these runs left no record.

The third module and the control train on a CPU, the other models on a GPU. The two devices round differently, so these
two are compared with a baseline of their own, trained on the CPU, too. The control's CPU is of another make than the
CPU of the third module and this baseline.
"""

from repro.papers.yoshida2020.perplexity import finetuning
from repro.papers.yoshida2020.perplexity.evaluation import evaluation, table_rows, trained
from repro.papers.yoshida2020.perplexity.tables import LITERAL, UNSCALED, change, perplexity, row_kind
from repro.study import Artifact, register
from repro.study.artifacts import NOT_RUN

TABLE = "yoshida2020_table2_pg19"
OVERLAP = 10  # of 64 tokens, about a sixth
RATE = 1e-4  # of the module that reads normalized states
# 80 steps of 1,280 targets, 102,400 in all: about half an hour of one CPU core.
SCALES = {"pretrained": finetuning.SCALES["pretrained"] | {
    "corpus": "pg19-subset", "window": 64, "batch_size": 1, "windows_per_sequence": 20, "steps": 80,
    "train_documents": 60, "learning_rate": 4e-5, "modules": (), "warmup_steps": 10, "validation_head": 1024,
    "validation_tokens": 10_000, "test_head": 1536, "splits": ("test",), "normalize": False}}
# Each row: the kind of model, whether it is trained on the CPU, and the module in words.
ROWS = (("baseline", False, "no module"), (LITERAL, False, "second layer, randomly initialized (the paper's)"),
        (UNSCALED, False, "middle layer, mean token"), ("baseline", True, "no module, trained on the CPU"),
        ("recurrent", True, "middle layer, mean token, normalized; trained on the CPU"),
        (UNSCALED, True, "middle layer, mean token, at the normalized module's rate; trained on the CPU"))


def grid(scale: str) -> list[dict]:
    """The modules and the baseline on disjoint windows, and the baseline with an overlap of a sixth; then the models
    trained on the CPU: a baseline, the normalized module, and the mean token at its rate. `normalize` changes nothing
    in a baseline; it marks the device."""
    rows = [row | ({"module_learning_rate": 3e-3} if row["model"] == "recurrent" else {})
            for row in table_rows((0, OVERLAP), (0,), literal=(0,))]
    return [*rows, {"model": "baseline", "overlap": 0, "normalize": True},
            {"model": "recurrent", "overlap": 0, "normalize": True, "module_learning_rate": RATE},
            {"model": "recurrent", "overlap": 0, "module_learning_rate": RATE}]


def on_cpu(config) -> bool:
    """Whether a row is trained on the CPU, like the baseline it is compared with."""
    return config.normalize or config.module_learning_rate == RATE


def place(config) -> tuple[str, bool, int]:
    """The kind of model, whether it is trained on the CPU, and the overlap."""
    return row_kind(config), on_cpu(config), config.overlap


def level(records: list) -> dict[str, str]:
    """The cells for the seeds and the test perplexity of some records."""
    return {"seeds": str(len(records)), "test": perplexity(records, "test") or NOT_RUN}


def gains(context):
    """A row per model: its test perplexity, and its change against the baseline of the same seed on disjoint windows,
    with its own memory and under its controls, with 95% intervals over seeds and books."""
    import pandas

    rows = []
    for scale in context.scales:
        found = {place(config): context.records_of(config) for config in context.plan(scale)}
        overlapped, base = (found["baseline", False, overlap] for overlap in (OVERLAP, 0))
        rows.append({"model": "baseline", "module": "none; windows overlap by a sixth",
                     "change": change(overlapped, base)} | level(overlapped))
        for kind, cpu, module in ROWS:
            records, base = found[kind, cpu, 0], found["baseline", cpu, 0]
            row = {"model": kind.split(",")[0], "module": module} | level(records)
            if kind != "baseline":
                row |= {"change": change(records, base), "masked out": change(records, base, "nll_masked"),
                        "another book's state": change(records, base, "nll_other_document")}
            rows.append(row)
    return pandas.DataFrame(rows, columns=["module", "change", "masked out", "another book's state", "test", "seeds",
                                           "model"]).fillna("–")


EVALUATION = evaluation("recurrence-gemma", "Recurrence in Gemma 3 270M, in windows of 64 tokens.", SCALES, grid,
                        {"pretrained": 66_000})
ARTIFACT = Artifact(id="recurrence-gemma", paper="yoshida2020", chapter="07_pg19", experiment=EVALUATION.name,
                    title="Recurrence in a pretrained model, Gemma 3 270M, on books in windows of 64 tokens",
                    source="not in the paper; each module was declared before its runs", build=gains)
register(EVALUATION, ARTIFACT)


def tuned(model: str, seed: int, **sets) -> finetuning.Config:
    """The fine-tuning, on the CPU, of the normalized module or of its baseline. sets: other values of its settings."""
    own = {"model": model, "overlap": 0, "normalize": True,
           "module_learning_rate": RATE if model == "recurrent" else None}
    return trained(EVALUATION.plan("pretrained", own | sets, [seed])[0])
