"""Table 11 and Figure 3: ROUGE of summaries, by model and by how much of a text is read; and how claims measure it."""

from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.markup import bounded, percentage
from repro.papers.longformer2020.led import CHAPTER, EXPERIMENT, PAPER
from repro.study import Artifact, ArtifactContext, Measured, Record, judge, register
from repro.study.artifacts import NOT_RUN, paired
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas

SHOWN = {"rouge1": "R-1", "rouge2": "R-2", "rougeL": "R-L"}
DRAWN = "rouge1", "rouge2"  # in Figure 3
BASES = {"small": "bart-mini, from roberta-mini", "pretrained": "an encoder-decoder from MiniLM", "paper": "BART-large"}
EXTRACTS = {"lead": "extract: the first sentences", "oracle": "extract: the best sentences, by an oracle"}


def table_11(context: ArtifactContext) -> "pandas.DataFrame":
    """ROUGE in %, printed and ours; ours with 95% intervals over seeds and texts. Where the best possible reader of as
    many tokens is known, the last column has its ROUGE-1 and LED's share of it."""
    import pandas

    rows = [["the paper, arXiv", row["model"], row["sequence_length_tokens"] or "–",
             *(row[key] for key in SHOWN), "–", "–"] for row in printed_rows("longformer2020_table11_led_arxiv")]
    for scale in reversed(context.scales):
        plan = context.plan(scale)
        lengths = [config for config in plan if config.model == "led"]  # compared with each other, so at the same seeds
        same = {config.max_input: found
                for config, found in zip(lengths, context.at_common_seeds(lengths), strict=True)}
        for config in plan:
            found = same[config.max_input] if config.model == "led" else context.records_of(config)
            source = f"{scale}, {config.corpus}"
            seeds = str(len(found)) if found else NOT_RUN
            if config.model != "led":
                rows.append([source, EXTRACTS[config.model], "whole", *_cells(found), seeds, "–"])
                continue
            rows.append([source, "LED", f"{config.max_input:,}", *_cells(found), seeds, _possible(found)])
            rows.append([source, "control: LED reads another text", f"{config.max_input:,}", *_cells(found, "other_"),
                         seeds, "–"])
    return pandas.DataFrame(rows, columns=["source", "model", "tokens read", *SHOWN.values(), "seeds",
                                           "best possible R-1"])


def figure_3(context: ArtifactContext) -> Any:
    """ROUGE-1 and ROUGE-2 of LED on development texts by how much it reads of a text, and of another as a control."""
    import pandas

    from repro.plotting import draw_table_curves

    rows = [{"source": "paper", "model": name, "length": 1_024 * int(row["input_length_tokens"].removesuffix("K")),
             "value": row[key]} for row in printed_rows("longformer2020_figure3_led_input_length")
            for key, name in SHOWN.items() if key in DRAWN]
    for scale in reversed(context.scales):
        plan = context.plan(scale, model="led")
        for config, found in zip(plan, context.at_common_seeds(plan), strict=True):
            if found:
                rows += [{"source": scale, "model": SHOWN[key] + more, "length": config.max_input,
                          "value": 100 * fmean(record.metrics[f"validation_{first}{key}"] for record in found)}
                         for key in DRAWN for first, more in (("", ""), ("other_", ", another text"))]
    return draw_table_curves(pandas.DataFrame(rows), "length", "value", ("tokens read", "ROUGE F1 (%)"), log_x=True)


def example(context: ArtifactContext) -> "pandas.DataFrame":
    """The reference summary of one test text, and what each model writes with the first seed."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        runs = [(config, context.records_of(config)) for config in context.plan(scale)]
        samples = [found[0].notes["samples"][0] for _, found in runs if found]
        rows.append([scale, "the reference", samples[0]["wanted"] if samples else NOT_RUN])
        for config, found in runs:
            writer = EXTRACTS.get(config.model) or f"LED, {config.max_input:,} tokens"
            written = found[0].notes["samples"][0]["told"] if found else NOT_RUN
            rows.append([scale, writer, written.replace("\n", " ")])
    return pandas.DataFrame(rows, columns=["scale", "writer", "summary"])


def bases(context: ArtifactContext) -> "pandas.DataFrame":
    """ROUGE in %, the mean of ROUGE-1 and ROUGE-2, of LED and of the first sentences on development texts, by how much
    LED reads and by the base that it starts from, with 95% intervals over seeds and texts."""
    import numpy as np
    import pandas

    rows = []
    for scale in reversed(context.scales):
        lead, = context.plan(scale, model="lead")
        for led in context.plan(scale, model="led"):
            found = paired(*context.at_common_seeds([led, lead]))
            cells = [NOT_RUN] * 4
            if all(found):
                ours, theirs = (100 * np.array([_scores(record, split="validation") for record in one])
                                for one in found)
                both = (judge(values, "higher", seeds=1) for values in (ours, theirs))
                change = judge(ours - theirs, "higher", seeds=1)
                cells = [*(percentage(one.effect, one.low, one.high) for one in both),
                         bounded(change.effect, change.low, change.high, "+.1f"), str(len(ours))]
            rows.append([scale, BASES.get(scale, "bart-mini"), f"{led.max_input:,}", *cells])
    return pandas.DataFrame(rows, columns=["scale", "base", "tokens read", "LED", "the first sentences", "difference",
                                           "seeds"])


def longer(records: list[Record]) -> Measured:
    """The gain in ROUGE, the mean of ROUGE-1 and ROUGE-2, of the step to a longer input that gains least, by text; the
    control is the same step of the same models with another text as input."""
    import numpy as np

    lengths = sorted({record.config["max_input"] for record in records})
    steps = []
    for short, long in zip(lengths, lengths[1:], strict=False):
        steps.append([_between(records, short, long, first) for first in ("", "other_")])
    if not steps:
        return Measured(np.zeros((1, 1)), np.zeros((1, 1)), "there is one length alone")
    least = min(range(len(steps)), key=lambda k: steps[k][0].mean())
    return Measured(*steps[least], f"the step from {lengths[least]:,} to {lengths[least + 1]:,} tokens")


def above_the_lead(records: list[Record]) -> Measured:
    """ROUGE, the mean of ROUGE-1 and ROUGE-2, of LED at its longest input minus that of the first sentences, by text;
    the control is LED with another text as input."""
    import numpy as np

    most = max(record.config["max_input"] for record in records)
    led = [record for record in records if record.config["model"] == "led" and record.config["max_input"] == most]
    lead = [record for record in records if record.config["model"] == "lead"]
    return Measured(*(np.array([_scores(ours, first) - _scores(theirs) for ours, theirs in zip(led, lead, strict=True)])
                      for first in ("", "other_")))


def room(records: list[Record]) -> float:
    """How much the oracle's extract gains over the first sentences."""
    import numpy as np

    oracle, lead = (np.mean([_scores(record) for record in records if record.config["model"] == name])
                    for name in ("oracle", "lead"))
    return max(0.0, float(oracle - lead))


def reading(records: list[Record]) -> float:
    """How much LED gains at its longest input from the text itself, against another text."""
    import numpy as np

    most = max(record.config["max_input"] for record in records)
    return max(0.0, float(np.mean([_scores(record) - _scores(record, "other_") for record in records
                                   if record.config["max_input"] == most])))


def printed_step() -> float:
    """The smallest gain of a longer input in Figure 3, as `longer` measures it."""
    means = [sum(float(row[key]) for key in DRAWN) / len(DRAWN) / 100
             for row in printed_rows("longformer2020_figure3_led_input_length")]
    return min(after - before for before, after in zip(means, means[1:], strict=False))


def _between(records: list[Record], short: int, long: int, first: str) -> "np.ndarray":
    import numpy as np

    found = {n: [_scores(record, first) for record in records if record.config["max_input"] == n]
             for n in (short, long)}
    return np.array([after - before for before, after in zip(found[short], found[long], strict=True)])


def _scores(record: Record, first: str = "", split: str = "test") -> "np.ndarray":
    """The mean of ROUGE-1 and ROUGE-2 of every text of a split."""
    import numpy as np

    return np.mean([record.documents[split][first + key] for key in DRAWN], 0)


def _cells(records: list[Record], first: str = "") -> list[str]:
    """R-1, R-2 and R-L in %, each with its interval over seeds and texts."""
    import numpy as np

    if not records:
        return [NOT_RUN] * len(SHOWN)
    found = [judge(100 * np.array([record.documents["test"][first + key] for record in records]), "higher", seeds=1)
             for key in SHOWN]
    return [percentage(one.effect, one.low, one.high) for one in found]


def _possible(records: list[Record]) -> str:
    """The ROUGE-1 of the best possible reader in %, and LED's share of it."""
    found = [record.metrics for record in records if "best_rouge1" in record.metrics]
    if not found:
        return "–"
    best = fmean(one["best_rouge1"] for one in found)
    return f"{100 * best:.1f} (LED: {fmean(one['rouge1'] for one in found) / best:.0%})"


OF = {"paper": PAPER, "chapter": CHAPTER, "experiment": EXPERIMENT.name}
TABLE_11 = Artifact(
    id="longformer2020-table11", **OF, source="Table 11", build=table_11,
    title="Summaries of long texts: ROUGE F1 in %",
    look_for="The paper's models summarize arXiv; ours are small and summarize other texts, so compare differences, "
             "not levels. For comparison: the first and the best sentences, and LED scored against another text.")
FIGURE_3 = Artifact(
    id="longformer2020-figure3", **OF, source="Figure 3", build=figure_3, kind="figure",
    title="ROUGE of LED by how much of a text it reads",
    look_for="Lines that rise to the right, while those of another text stay level, mean that LED uses what it reads.")
EXAMPLE = Artifact(
    id="longformer2020-summaries", **OF, source="section 7", build=example,
    title="One test text: its reference summary, and what LED and the extracts write (ours)")
STARTS = Artifact(
    id="longformer2020-led-bases", **OF, source="section 7", build=bases,
    title="Which base writes better: ROUGE in % against the first sentences",
    look_for="Compare differences of the same number of tokens read: the base with the larger one is the better. Rows "
             "may have different seeds.")
register(TABLE_11, FIGURE_3, EXAMPLE, STARTS)
