"""Tables 5 and 13 with our results, and the loss by position."""

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from repro.markup import bounded
from repro.papers.base.pretraining import with_optimizer
from repro.papers.base.roberta_mini import chain
from repro.papers.longformer2020 import conversion
from repro.papers.longformer2020.conversion import CHAPTER, EXPERIMENT, PAPER, SCALES
from repro.study import ADDED, Artifact, ArtifactContext, Record, judge, register
from repro.study.artifacts import NOT_RUN
from repro.study.published import printed_rows

if TYPE_CHECKING:
    import numpy as np
    import pandas

TABLE = "longformer2020_table5_mlm_bpc"
PRINTED = {"roberta": "RoBERTa", "random": "Longformer, random new position embeddings",
           "copied": "+ copy position embeddings", "short": "+ 2K gradient updates", "long": "+ 65K gradient updates",
           "frozen": "Longformer (train extra position embeddings only)"}
NAMES = {"roberta": "RoBERTa", "random": "Longformer, random new positions", "copied": "+ copied positions",
         "short": "+ short training", "long": "+ long training", "frozen": "only the extra positions trained",
         "roberta-short": "control: RoBERTa, short training", "roberta-long": "control: RoBERTa, long training"}
SEAMS = ("roberta", "copied", "short", "long")


def masked_language_model(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 5: the printed values, then ours: bits per masked token, with 95% intervals over seeds and books.

    "in pieces" scores the same model on as many tokens at a time as RoBERTa reads. For models without training and
    random positions, seeds differ only in which tokens are masked.
    """
    import pandas

    rows = [["the paper, base / large", NAMES[name], "512",
             f"{printed_bits(name):.3f} / {printed_bits(name, 'large'):.3f}",
             "–", _length(name), "–", "–"] for name in PRINTED]
    for scale in reversed(context.scales):
        trained = [conversion.optimizer_of(config) for config in context.plan(scale) if config.tokens]
        for config in context.plan(scale):
            found, plain = context.records_of(config), config.configuration.startswith("roberta")
            name = NAMES[config.configuration]
            if config.tokens:
                name = with_optimizer(name, conversion.optimizer_of(config), trained)
            rows.append([f"this study, {scale}" + (f", {config.source}" if config.source else ""),
                         name, "–" if plain else str(config.window), *_with_interval(found),
                         f"{config.max_positions:,}" if not plain else "as RoBERTa's",
                         f"{config.tokens:,}" if config.tokens else "–", str(len(found)) if found else NOT_RUN])
    return pandas.DataFrame(rows, columns=["source", "configuration", "window", "bits per masked token", "in pieces",
                                           "tokens read at once", "tokens trained on", "seeds"])


def training_text(context: ArtifactContext) -> "pandas.DataFrame":
    """Table 13: the paper's kinds of text, then the text that our models are trained on."""
    import pandas

    rows = [["the paper", row["corpus"], f"{row['tokens_billions']} billion", row["average_document_length_tokens"]]
            for row in printed_rows("longformer2020_table13_pretraining_data")]
    for scale in reversed(context.scales):
        plan = [config for config in context.plan(scale) if config.configuration == "long"]
        found = [record.notes for config in plan for record in context.records_of(config)[:1]]
        sizes = [f"{found[0]['train_tokens']:,}", f"{found[0]['train_tokens'] / found[0]['train_documents']:,.0f}"
                ] if found else [NOT_RUN, NOT_RUN]
        rows.append([f"this study, {scale}", plan[0].corpus, *sizes])
    return pandas.DataFrame(rows, columns=["source", "text", "tokens", "mean tokens per document"])


def seams(context: ArtifactContext):
    """Loss by distance from either end of a copy of the positions, minus the loss of its middle half.

    RoBERTa's text ends there; the text of the other models continues.
    """
    from math import log

    import pandas

    from repro.plotting import draw_table_curves

    rows = []
    for scale in reversed(context.scales):
        main = {config.configuration: config for config in context.plan(scale) if is_main(config)}
        n = conversion.base_of(main["roberta"]).n_positions
        for name, records in zip(SEAMS, context.at_common_seeds([main[name] for name in SEAMS]), strict=True):
            curve = _curve(records)
            middle = fmean([y for x, y in curve.items() if n / 4 < x < 3 * n / 4] or [0.0])
            for end, away in (("start", lambda x: x), ("end", lambda x, n=n: n - x)):
                rows += [{"source": f"{scale}: {end}", "model": NAMES[name], "away": away(x),
                          "loss": (y - middle) / log(2)} for x, y in curve.items() if away(x) < n / 2]
    return draw_table_curves(pandas.DataFrame(rows, columns=["source", "model", "away", "loss"]), "away", "loss",
                             ("tokens from that end", "bits more than in the middle"), log_x=2)


def _curve(records: Sequence[Record]) -> dict[float, float]:
    """Nats by position, averaged over seeds."""
    found: dict[float, list[float]] = {}
    for record in records:
        for x, y in record.curves["loss_by_position"]:
            found.setdefault(x, []).append(y)
    return {x: fmean(ys) for x, ys in found.items()}


def by_position(context: ArtifactContext) -> "pandas.DataFrame":
    """Bits per masked token, averaged over seeds: at the positions that short sequences of RoBERTa's pre-training also
    had, and at the rest, which only its longest sequences had."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        for config in context.plan(scale):
            edge = _edge(config)
            if edge is None or not is_main(config):
                continue
            found = context.records_of(config)
            near, far = _sides(found, edge)
            rows.append([f"this study, {scale}", NAMES[config.configuration],
                         f"0 to {edge - 1:,} / {edge:,} to {conversion.base_of(config).n_positions - 1:,}",
                         *(NOT_RUN if value is None else f"{value:.3f}" for value in (near, far)),
                         str(len(found)) if found else NOT_RUN])
    return pandas.DataFrame(rows, columns=["source", "configuration", "positions", "early positions", "late positions",
                                           "seeds"])


def _edge(config: Any) -> int | None:
    """The length of the shorter sequences of the base's pre-training, or of the first run of its chain; None if all
    sequences had one length."""
    base = conversion.base_of(config)
    growing = chain(base)[0].growing
    return growing[-1][0] if growing else None


def _sides(records: Sequence[Record], edge: int) -> tuple[float | None, float | None]:
    """Bits per masked token before position `edge`, and from `edge` on."""
    import numpy as np

    if not records:
        return None, None
    bits = []
    for record in records:
        (places, nats), ones = np.array(record.curves["loss_by_position"]).T, np.ones(len(_curve([record])))
        counts = np.array(record.curves["tokens_by_position"])[:, 1] if "tokens_by_position" in record.curves else ones
        bits.append([np.average(nats[side], weights=counts[side]) / np.log(2) for side in (places < edge,
                                                                                           places > edge)])
    near, far = np.mean(bits, 0).tolist()
    return near, far


def is_main(config: Any) -> bool:
    """Whether a run belongs to the main table: the window of its scale and the first base model."""
    return config.window == SCALES[config.scale]["window"] and not (config.source or "").endswith("-large")


def _with_interval(records: Sequence[Record]) -> list[str]:
    """Bits per masked token with intervals, for books read in long stretches and in pieces."""
    if not records:
        return [NOT_RUN, NOT_RUN]
    found = []
    for key in ("nats", "pieces_nats"):
        if key in books_of(records[0]):
            mean = judge([book_bits(record, key) for record in records], "lower", seeds=1)
            found.append(bounded(mean.effect, mean.low, mean.high, ".3f"))
    return [*found, *["–"] * (2 - len(found))]


def books_of(record: Record) -> dict[str, list]:
    return record.documents[record.config["scored_split"]]


def book_bits(record: Record, key: str = "nats", per: str = "tokens") -> "np.ndarray":
    """One number per book; their mean is the bits per masked token over all books (`linearised`)."""
    import numpy as np

    from repro.evaluation.bootstrap import linearised

    return linearised(np.array(books_of(record)[key]) / np.log(2), books_of(record)[per])


def _length(name: str) -> str:
    row, = (row for row in printed_rows(TABLE) if row["configuration"] == PRINTED[name])
    return f"{int(row['sequence_length_tokens']):,}"


def printed_bits(name: str, size: str = "base") -> float:
    """The paper's bits per masked token of a configuration."""
    row, = (row for row in printed_rows(TABLE) if row["configuration"] == PRINTED[name])
    return float(row[f"{size}_mlm_bpc"])


def only(records: Sequence[Record], name: str) -> list[Record]:
    return [record for record in records if record.config["configuration"] == name]


OF = {"paper": PAPER, "chapter": CHAPTER, "experiment": EXPERIMENT.name}
TABLE_5 = Artifact(
    id="longformer2020-table5", **OF, source="Table 5", build=masked_language_model,
    title="From RoBERTa to Longformer: bits per masked token, which the paper prints as BPC",
    look_for="Ours have our own base model, tokenizer and books.")
TABLE_13 = Artifact(id="longformer2020-table13", **OF, source="Table 13", build=training_text,
                    title="Text that the converted models are trained on")
FIGURE = Artifact(id="longformer2020-seams", **OF, source=ADDED, kind="figure", build=seams,
                  title="Loss by distance from the ends of a copy of RoBERTa's positions, relative to its middle half",
                  look_for="Compare the lines near the left edge. A Longformer that rises there as much as RoBERTa "
                           "makes no use of neighbors across a seam; a flat line means that seams cost nothing.")
BY_POSITION = Artifact(
    id="longformer2020-by-position", **OF, source=ADDED, build=by_position,
    title="Table 5 at early and late positions",
    look_for="Short sequences in the base model's pre-training trained only the early positions.")
register(TABLE_5, TABLE_13, FIGURE, BY_POSITION)
