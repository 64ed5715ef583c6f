"""Table 12 of Longformer and its text's settings of the character model, next to the settings of every scale."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from repro.papers.longformer2020.charlm import (
    ABLATION,
    CHAPTER,
    LONGEST_WARMUP,
    PAPER,
    STAGED,
    decoder_config,
    phase_length,
    training_tokens,
)
from repro.papers.longformer2020.charlm_tables import told_text
from repro.study import Artifact, ArtifactContext, experiment, published, register
from repro.study.artifacts import heading
from repro.study.settings import DEVICES

if TYPE_CHECKING:
    import pandas

BYTES = 205  # distinct bytes in enwik8, the larger of the two alphabets
OPTIMISERS = {"adamw": "AdamW", "muon": "Muon for matrices, AdamW for the rest"}
ATTENTION = {"auto": "attention in fp32", "products": "attention too; text scored in fp32"}
IN_TABLE_12 = ("training phases", "first-phase sequence length", "last-phase sequence length")  # printed twice


def settings(context: ArtifactContext):
    """One row per setting: as printed, at our `paper` scale, and at the scales of `context`."""
    import pandas

    scales = dict.fromkeys(("paper", *reversed(context.scales)))
    ours = {scale: settings_as_printed(context.plan(scale)) for scale in scales}
    return pandas.DataFrame([
        {"setting": name if source == "Table 12" else f"{name} ({source})", "paper": text}
        | {heading(scale): values.get(name, "–") for scale, values in ours.items()}
        for name, text, source in printed()])


def printed() -> list[tuple[str, str, str]]:
    """Name, value and source of each printed setting; a misprint is followed by the value we read."""
    table = published("longformer2020_table12_char_lm_hyperparameters").to_dict("records")
    text = published("longformer2020_text_settings").query("topic == 'character LM'").to_dict("records")
    return [(row["parameter"], row["value_as_printed"] + (f" [read as {value}]" if value else ""), row["source"])
            for row in table for value in [row["value_interpreted"]]] + [
           (row["parameter"], f"{row['value']} {row['unit']}".strip(), row["source"]) for row in text
           if row["parameter"] not in IN_TABLE_12]


def settings_as_printed(plan: list) -> dict[str, str]:
    """The settings of a plan of `charlm`, with the paper's names and wording."""
    one, models = plan[0], {config.model: config for config in plan}
    last = len(one.steps) - 1
    values = {
        "Position embeddings": "Relative and sinusoidal as in Dai et al. (2019)",
        "Optimizer": OPTIMISERS[one.optimizer],
        "Dropout": ", ".join(f"{config.dropout} ({name} model)" for name, config in models.items()),
        "Gradient clipping": f"{one.clip}",
        "Weight decay": f"{one.weight_decay}",
        "Layernorm location": "pre-layernorm",
        "Activation": "GeLU",
        "Number of phases": f"{len(one.steps)}",
        "Batch size per phase": ", ".join(map(str, one.batch_sizes)),
        "Warmup": f"{one.warmup_share:.0%} of the phase steps with maximum {_count(LONGEST_WARMUP)} steps",
        "LR scheduler": {"none": "constant throughout each phase", "linear": "falls to 0 in each phase"}[one.decay],
        "Dilation heads": f"{one.dilated_heads} heads only",
        "evaluation sequence length": f"{one.eval_length} characters",
        "evaluation step": f"{one.eval_step} characters",
        "data": "; ".join(dict.fromkeys(_data(config.corpus) for config in plan)),
        "precision": {"no": "fp32", "bf16": f"bf16/fp32 mixed, {ATTENTION[one.attention]}"}[one.precision],
        "gradient checkpointing": "yes" if one.recompute else "no",
        "ablation length": f"{experiment(ABLATION.name).plan(one.scale)[0].steps[0]} steps",
    }
    for phase, name in ((0, "Phase 1"), (last, "Phase 5")):
        windows = [layer[-1].window for layer in decoder_config(one, 2, phase).patterns]
        values |= {f"{name} window sizes": f"{windows[0]:,} (bottom layer) - {windows[-1]:,} (top layer)",
                   f"{name} sequence length": f"{phase_length(one, phase):,}",
                   f"{name} LR": f"{one.learning_rate / 2**phase:.12f}".rstrip("0")}
    for name, config in models.items():
        values |= {f"{name.capitalize()} model config": f"{len(config.windows)} layers, {config.n_head} heads, "
                                                        f"{config.n_embd} hidden size",
                   f"Steps per phase ({name})": ", ".join(map(_count, config.steps)),
                   f"Dilation ({name} model)": _dilation(config), f"hardware {name}": DEVICES[one.scale]}
    return values


def schedule() -> "pandas.DataFrame":
    """The paper's small model, one row per phase. "reach": how many characters back the last layer can look; a window
    of w keys with dilation d adds d (w - 1)."""
    import pandas

    config, rows = STAGED.plan("paper")[0], []
    for k, steps in enumerate(config.steps):
        layers = [layer[0] for layer in decoder_config(config, BYTES, k).patterns]  # the first head has the dilation
        rows.append({"phase": k + 1, "windows": f"{layers[0].window:,} to {layers[-1].window:,}",
                     "reach": sum(layer.dilation * (layer.window - 1) for layer in layers),
                     "characters": phase_length(config, k), "sequences": config.batch_sizes[k], "steps": steps,
                     "learning rate": f"{config.learning_rate / 2**k:g}"})
    return pandas.DataFrame(rows)


def counted_weights() -> "pandas.DataFrame":
    """Weights of both of the paper's models in millions, as printed and as counted in ours."""
    import pandas

    plan, rows = {config.model: config for config in STAGED.plan("paper")}, []
    for model, table in (("small", "table2_small_char_lm"), ("large", "table3_large_enwik8")):
        printed = published(f"longformer2020_{table}").query("model == 'Longformer (ours)'").iloc[0]
        ours = decoder_config(plan[model], BYTES).parameters / 1e6
        rows.append({"model": model, "paper": printed["parameters_millions"], "our count": f"{ours:.1f}"})
    return pandas.DataFrame(rows)


def one_run(scales: Sequence[str]) -> "pandas.DataFrame":
    """Text, size and training of a run of Table 4: one row per setting, one column per scale."""
    import pandas

    columns = {}
    for scale in scales:
        config = ABLATION.plan(scale)[2]
        columns[scale] = {"text": told_text(config.corpus), "layers": len(config.windows), "width": config.n_embd,
                          "widest window": f"{max(config.windows):,}", "length": f"{config.length:,}",
                          "batch": config.batch_sizes[0], "optimizer": OPTIMISERS[config.optimizer],
                          "learning rate": f"{config.learning_rate:g}", "decay": config.decay,
                          "characters read in training": f"{sum(training_tokens(config)):,}"}
    return pandas.DataFrame(columns)


def _dilation(config) -> str:
    """Positions skipped between two keys, as the paper counts them: our dilation minus one."""
    layers = [(layer[0].dilation - 1, number) for number, layer in enumerate(decoder_config(config, 2).patterns)]
    runs = [(gap, [number for _, number in some]) for gap, some in groupby(layers, key=lambda layer: layer[0])]
    return ", ".join(f"{gap} (layers {numbers[0]}-{numbers[-1]})" if len(numbers) > 1 else f"{gap} (layer {numbers[0]})"
                     for gap, numbers in runs)


def _count(n: int) -> str:
    return f"{n // 1000}K" if n >= 1000 and n % 1000 == 0 else f"{n}"


def _data(name: str) -> str:
    from repro.data import corpus

    sizes = [split.n_bytes for split in corpus(name).splits.values()]
    if None in sizes:
        return f"{name}: generated"
    millions = [f"{size / 1e6:.3g}M" for size in (sum(sizes), *sizes)]
    return f"{millions[0]} characters split {' / '.join(millions[1:])}"


register(
    Artifact(id="longformer2020-table12", paper=PAPER, chapter=CHAPTER, experiment=STAGED.name, source="Table 12",
             title="Settings of the character language models; below, those given in the text", build=settings))
