"""The claims on Longformer: memory of windows, character models, converted RoBERTa, documents read whole, summaries."""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

from repro.papers.longformer2020 import attention_memory, classification, context_lengths, led, led_tables
from repro.papers.longformer2020.attention_memory import LINEAR, QUADRATIC, WINDOWED
from repro.papers.longformer2020.charlm import ABLATION, PAPER
from repro.papers.longformer2020.charlm_choices import ALL_HEADS, CHOICES, TWO_HEADS, choice
from repro.papers.longformer2020.charlm_phases import FIVE, ONE, PHASES, RATES, way
from repro.papers.longformer2020.charlm_tables import (
    ANY_SIZE,
    NARROW,
    ROWS,
    difference,
    fewer_bits,
    printed_difference,
    wide_beats_narrow,
    window_layout,
)
from repro.papers.longformer2020.classification_tables import printed_difference as printed_gain
from repro.papers.longformer2020.classification_tables import whole_or_beginning
from repro.papers.longformer2020.conversion import EXPERIMENT
from repro.papers.longformer2020.conversion_tables import (
    TABLE_5,
    book_bits,
    books_of,
    is_main,
    only,
    printed_bits,
)
from repro.study import Assay, Claim, Measured, Record, register

COUNTS = {"paper": PAPER, "experiment": context_lengths.EXPERIMENT.name, "about": (context_lengths.TABLE.id,),
          "unit": "exact", "direction": "lower", "margin": True,
          "why_no_paper_effect": "the effect is the distance from the number that the paper prints"}
FAR = 1.0  # bits per masked token
ASSAY = Assay("how much growing windows gain over the narrowest window in all layers",
              lambda config: window_layout(config) in (NARROW, ROWS["Increasing w"]), wide_beats_narrow)
COUNTED = {"paper": PAPER, "experiment": attention_memory.EXPERIMENT.name, "unit": "exact"}
SHARED = {"paper": PAPER, "experiment": EXPERIMENT.name, "source": "Table 5", "about": (TABLE_5.id,), "unit": "book",
          "direction": "lower", "unit_shown": "bits per masked token", "family": "longformer2020-conversion"}
NO_ASSAY = "no assay, so it ignored how much long text could help this base model"  # before
NO_CONTROL = "the other configuration is the control: nothing else differs"


def growth_of(*names):
    """The largest exponent of these implementations; counted, so without chance."""
    return lambda records: Measured([[max(record.metrics["growth"] for record in records
                                          if record.config["implementation"] in names)]])


def bytes_of_chunks(records):
    """Ratio of bytes at the longest text, chunks to loop; the loop computes no unnecessary score."""
    found = {record.config["implementation"]: record.metrics["bytes_per_token"] for record in records}
    return Measured([[found["chunks"] / found["loop"]]])


def off_by(dataset: str, *metrics: str) -> Callable:
    """The largest distance of these counts from the printed ones, as a share of the printed ones."""
    printed = context_lengths.PRINTED[dataset]
    return lambda records: Measured([[max(abs(record.metrics[name] / float(printed[name]) - 1)
                                          for record in records for name in metrics)]])


def share_off(limit: int, percent: float) -> Callable:
    """How far the percentage of texts with more than `limit` wordpieces is from a printed one, in half-widths of its
    95% interval: our texts are a sample, and up to 1 may be chance."""
    def measure(records):
        found = []
        for record in records:
            lengths = record.documents["all"]["wordpieces"]
            share = sum(length > limit for length in lengths) / len(lengths)
            found.append(abs(100 * share - percent) / (196 * sqrt(share * (1 - share) / len(lengths))))
        return Measured([[max(found)]])
    return measure


def counts_of(*corpora: str) -> Callable:
    """Selects the runs that count one of these corpora."""
    return lambda config: config.corpus in corpora


IMDB = COUNTS | {"null": 1.0, "where": counts_of("imdb", "imdb-subset"),
                 "unit_shown": "times our margin of error from the printed share (allowed: 1)",
                 "criterion_before": "exact to the printed digits, as if our reviews were all of IMDB"}

def order(better: str, other: str) -> dict:
    """The fields of a claim that compares two rows of Table 4."""
    kinds = ROWS[better], ROWS[other]
    return {
        "paper": PAPER, "source": "Table 4", "experiment": ABLATION.name, "unit": "stretch",
        "about": ("longformer2020-table4",), "direction": "lower", "unit_shown": "bits",
        "family": "longformer2020-table4",
        "where": lambda config: window_layout(config) in kinds,
        "seeds": 5, "measure": fewer_bits(kinds[0]), "paper_effect": printed_difference(better, other),
        "why_no_control": "the other row is the control: as many keys in other places",
        "assay": ASSAY,
        "criterion_before": "its room was full attention's gain over the narrowest window, at other lengths"}


def later_phases(records: Sequence[Record]) -> Measured:
    """Five phases against one; the control compares the same five rates without growth with that one."""
    five, one, rates = ([record for record in records if way(record.config) == name] for name in (FIVE, ONE, RATES))
    both = "validation", "test"
    return Measured(difference(five, one, both), difference(rates, one, both))


def two_heads(records: Sequence[Record]) -> Measured:
    """Bits per character with dilation on two heads minus those with dilation on all heads."""
    two, every = ([record for record in records if (record.experiment == ABLATION.name) is wanted]
                  for wanted in (True, False))
    return Measured(difference(two, every, ("validation", "test")))


def is_one_of(*names: str) -> Callable[[Any], bool]:
    """A filter for the runs of these configurations."""
    return lambda config: config.configuration in names and is_main(config)


def compared(first: str, second: str, *control: str) -> dict[str, Any]:
    """The fields of a claim that the first configuration needs fewer bits per masked token than the second.

    control: two other configurations; the claimed difference must exceed theirs.
    """
    def measure(records: list[Record]) -> Measured:
        pairs = ((first, second), *([control] if control else []))
        return Measured(*([book_bits(ours) - book_bits(other)
                           for ours, other in zip(only(records, one), only(records, less), strict=True)]
                          for one, less in pairs))
    return {"measure": measure, "where": is_one_of(first, second, *control),
            "paper_effect": lambda: printed_bits(first) - printed_bits(second)}


def beyond_far(records: list[Record]) -> float:
    """The loss from random positions, beyond FAR. A base model that ignores positions loses nothing by random ones, so
    it cannot show whether copies are good."""
    import numpy as np

    roberta, random = (np.mean([book_bits(one) for one in only(records, name)]) for name in ("roberta", "random"))
    return max(0.0, float(random - roberta) - FAR)


def repairable(trained: str) -> Assay:
    """The loss from copying: how much better RoBERTa, trained as long, is than copied positions. If it is no better,
    there is nothing to repair. The paper reports no RoBERTa with further training."""
    import numpy as np

    def room(records: list[Record]) -> float:
        copied, roberta = (np.mean([book_bits(one) for one in only(records, name)]) for name in ("copied", trained))
        return max(0.0, float(copied - roberta))
    longer = " trained as long" if trained != "roberta" else ""
    return Assay(f"how much better RoBERTa{longer} is than copied positions", is_one_of("copied", trained), room,
                 (lambda: printed_bits("copied") - printed_bits("roberta")) if trained == "roberta" else None)


def far_context(records: list[Record]) -> float:
    """The base model's gain from context beyond half a window, in its own pieces: how much better RoBERTa is there than
    its copy with a window. If that is little, longer texts cannot add much."""
    import numpy as np

    copied, roberta = (np.mean([book_bits(one, key) for one in only(records, name)])
                       for name, key in (("copied", "pieces_nats"), ("roberta", "nats")))
    return max(0.0, float(copied - roberta))


def beyond_roberta(records: list[Record]) -> Measured:
    """Long training against RoBERTa; the control is the better of RoBERTa trained as long and the model in pieces."""
    import numpy as np

    roberta, long, longer = (np.array([book_bits(one) for one in only(records, name)])
                             for name in ("roberta", "long", "roberta-long"))
    pieces = np.array([book_bits(one, "pieces_nats") for one in only(records, "long")])
    best, name = min((longer, "RoBERTa trained as long"), (pieces, "the same model in pieces"),
                     key=lambda one: one[0].mean())
    note = f"control: {name}"
    if all("inside_nats" in books_of(one) for one in only(records, "roberta") + only(records, "long")):
        inside = [np.mean([book_bits(one, "inside_nats", "inside_tokens") for one in only(records, name)])
                  for name in ("long", "roberta")]
        note += f"; at least half a window from the ends of RoBERTa's pieces: {inside[0] - inside[1]:+.3g}"
    return Measured(long - roberta, best - roberta, note)


def unchanged(records: list[Record]) -> Measured:
    """The largest difference of a logit, over short texts, between the base and the model with trained positions.

    The note gives the difference for texts with one more token, which the window changes.
    """
    beyond = [record.metrics["difference_beyond"] for record in records if "difference_beyond" in record.metrics]
    note = f"with one token more: a difference of at least {min(beyond):.2g} in logits" if beyond else (
        "longer texts: not measured, because RoBERTa reads no longer ones")
    return Measured([[record.metrics["largest_difference"]] for record in records], note=note)


FAR_CONTEXT = Assay("RoBERTa's gain, in its own pieces, from context beyond half a window",
                    is_one_of("copied", "roberta"), far_context)
register(
    Claim(id="longformer2020-table4-increasing", **order("Increasing w", "Fixed w"),
          sentence="Windows that grow from the bottom layer to the top give fewer bits per character than one window, "
                   "their mean, in all layers.", short="Windows that grow with depth beat equal windows."),
    Claim(id="longformer2020-table4-decreasing", **order("Fixed w", "Decreasing w"),
          sentence="One window in all layers gives fewer bits per character than windows that shrink from the bottom "
                   "layer to the top.", short="Equal windows beat windows that shrink with depth."),
    Claim(id="longformer2020-table4-order", **order("Increasing w", "Decreasing w"),
          sentence="Windows that grow from the bottom layer to the top give fewer bits per character than the same "
                   "windows in the opposite order.", short="Windows that grow with depth beat windows that shrink."),
    Claim(id="longformer2020-table4-dilation", **order("Dilation on 2 heads", "No dilation"),
          sentence="Dilation on two heads of the higher layers gives fewer bits per character than none.",
          short="Dilation on two heads of the higher layers beats none."))
register(
    Claim(id="longformer2020-later-phases", paper=PAPER, source="Section 4.2", experiment=PHASES.name,
          direction="lower", about=("longformer2020-phases",), unit="stretch", unit_shown="bits",
          family="longformer2020-character-text", measure=later_phases,
          where=lambda config: way(config) in (FIVE, ONE, RATES),
          sentence="Later phases, with wider windows and longer sequences, give fewer bits per character than one "
                   "phase that reads as much.", short="Later, wider phases beat one phase that reads as much.",
          control="the same five learning rates with the windows and sequences of the first phase",
          why_no_paper_effect="the paper trains in five phases only", why_no_assay=ANY_SIZE,
          criterion_before="with an assay: the gain of growing windows over the narrowest window in all layers"))
register(
    Claim(id="longformer2020-figure1-linear", **COUNTED, source="Figure 1", about=("longformer2020-figure1",),
          sentence="Memory of windowed attention grows linearly with the text.", unit_shown="as exponent of the length",
          where=lambda config: config.implementation in WINDOWED, measure=growth_of(*WINDOWED), direction="lower",
          null=LINEAR, margin=True, paper_effect=lambda: 1.0),
    Claim(id="longformer2020-figure1-quadratic", **COUNTED, source="Figure 1", about=("longformer2020-figure1",),
          sentence="Memory of full attention that keeps its scores grows quadratically with the text.",
          short="Memory of full attention grows quadratically with the text.",
          where=lambda config: config.implementation == "full", measure=growth_of("full"), direction="higher",
          null=QUADRATIC, margin=True, paper_effect=lambda: 2.0, unit_shown="as exponent of the length"),
    Claim(id="longformer2020-appendix-a-chunks", **COUNTED, source="Appendix A",
          about=("longformer2020-appendix-a",),
          sentence="Chunks take more memory than needed (the paper: twice that of a perfect implementation).",
          short="Chunks take more memory than needed.",
          where=lambda config: config.implementation in ("chunks", "loop"), measure=bytes_of_chunks,
          direction="higher", null=1.0, paper_effect=lambda: 2.0, unit_shown="times the bytes of the loop"))
register(
    Claim(id="longformer2020-two-heads", paper=PAPER, source="Section 4.1",
          sentence="Dilation on two heads of the higher layers gives fewer bits per character than dilation on all of "
                   "their heads.", short="Dilation on two heads beats dilation on all heads.",
          experiment=(CHOICES.name, ABLATION.name), about=("longformer2020-choices",), direction="lower",
          unit="stretch", unit_shown="bits", family="longformer2020-character-text", measure=two_heads,
          where=lambda config: (config.experiment == CHOICES.name and choice(config) == ALL_HEADS
                                or config.experiment == ABLATION.name and window_layout(config) == TWO_HEADS),
          why_no_paper_effect="the paper names it as the reason for two heads, without a number",
          why_no_control="the other row is the control: the same windows and dilation, on all heads",
          why_no_assay=ANY_SIZE,
          criterion_before="with an assay: the gain of growing windows over the narrowest window in all layers"))
register(Claim(
    id="longformer2020-table7-length", paper=PAPER, source="Table 7", experiment=classification.EXPERIMENT.name,
    about=(classification.TABLE.id,), where=lambda config: config.model == "encoder",
    measure=whole_or_beginning, direction="higher", unit="document",
    paper_effect=printed_gain, unit_shown="in F1 (0 to 1)",
    why_no_control="the model that reads only the beginning is the control",
    why_no_assay="the most that the rest of these articles could contribute is not known",
    sentence="A model that reads more of a long document classifies it with a higher F1 than one that reads only its "
             "beginning.", short="Reading more of a document classifies it better."))
register(
    Claim(id="longformer2020-copied-positions", **SHARED | compared("copied", "random") | {"paper_effect": None},
          null=-FAR, criterion_before="at first no assay; then as many bits fewer as in the paper",
          why_no_paper_effect="random positions cost at most a little more than predicting token frequencies, and a "
                              "weak base model is close to that",
          why_no_control=NO_CONTROL,
          assay=Assay("how much worse than RoBERTa random positions are, beyond one bit",
                      is_one_of("roberta", "random"), beyond_far,
                      lambda: printed_bits("random") - printed_bits("roberta") - FAR),
          sentence="A Longformer with positions copied from RoBERTa needs far fewer bits per masked token, at least "
                   "one bit fewer, than one with random positions.",
          short="Copied positions need far fewer bits than random ones."),
    Claim(id="longformer2020-short-training", **SHARED, **compared("short", "copied", "roberta-short", "roberta"),
          control="RoBERTa's gain from as many more tokens at its own length", assay=repairable("roberta-short"),
          sentence="Short training improves the model with copied positions.",
          short="Short training improves the converted model."),
    Claim(id="longformer2020-long-training", **SHARED, **compared("long", "short", "roberta-long", "roberta-short"),
          control="RoBERTa's gain from as many more tokens at its own length",
          assay=FAR_CONTEXT, criterion_before=NO_ASSAY,
          sentence="Long training makes the Longformer better than short training does.",
          short="Long training beats short training."),
    Claim(id="longformer2020-beyond-roberta", **SHARED, measure=beyond_roberta,
          where=is_one_of("roberta", "long", "roberta-long"),
          paper_effect=lambda: printed_bits("long") - printed_bits("roberta"),
          assay=FAR_CONTEXT, criterion_before=NO_ASSAY,
          control="the better of RoBERTa trained on as many more tokens and the long model in RoBERTa's pieces",
          sentence="After long training, Longformer needs fewer bits per masked token than RoBERTa.",
          short="After long training, Longformer beats RoBERTa."),
    Claim(id="longformer2020-frozen", **SHARED, **compared("frozen", "copied"),
          why_no_control="RoBERTa's gain from training only its own positions as long is not measured",
          assay=repairable("roberta"),
          sentence="Training only the positions beyond RoBERTa's improves the model with copied positions.",
          short="Training the new positions alone improves the model."),
    Claim(id="longformer2020-all-weights", **SHARED, **compared("long", "frozen", "roberta-long", "roberta"),
          control="RoBERTa's gain from as many more tokens at its own length", assay=FAR_CONTEXT,
          criterion_before=NO_ASSAY,
          sentence="Training all weights makes the Longformer better than training the positions alone does.",
          short="Training all weights beats training positions alone."),
    Claim(id="longformer2020-roberta-kept", paper=PAPER, experiment=EXPERIMENT.name, source="Section 5",
          about=(TABLE_5.id,), unit="exact", direction="lower", null=1e-4, measure=unchanged, where=is_one_of("frozen"),
          why_no_paper_effect="the paper says it in words", unit_shown="as largest difference in logits",
          sentence="Training only the new positions leaves RoBERTa's logits unchanged on texts of up to half a window "
                   "plus one token (257 tokens at the paper's window).",
          short="Trained positions keep RoBERTa's outputs on short texts."))
register(
    Claim(id="longformer2020-table6-hyperpartisan", **COUNTS, source="Table 6", null=0.001,
          where=counts_of("hyperpartisan"),
          unit_shown="as largest relative difference from a printed count (allowed: 0.001)",
          measure=off_by("Hyperpartisan news", context_lengths.AVERAGE, context_lengths.PERCENTILE),
          sentence="Hyperpartisan's articles have 705 wordpieces on average and 1,975 at the 95th percentile, to "
                   "within 0.1%.",
          short="Hyperpartisan: 705 wordpieces, 1,975 at the 95th percentile."),
    Claim(id="longformer2020-table6-imdb", **IMDB, source="Table 6",
          measure=share_off(int(context_lengths.PRINTED["IMDB"][context_lengths.PERCENTILE]), 5.0),
          sentence="95% of IMDB's reviews have at most 705 wordpieces, within the sampling error of the reviews here.",
          short="IMDB: 95% of reviews have at most 705 wordpieces."),
    Claim(id="longformer2020-imdb-above-512", **IMDB, source="Section 6.3",
          measure=share_off(context_lengths.LIMIT, context_lengths.printed_share()),
          sentence="13.6% of IMDB's reviews have more than 512 wordpieces, within the sampling error of the reviews "
                   "here.",
          short="13.6% of IMDB's reviews have more than 512 wordpieces."))
SUMMARIES = {"paper": PAPER, "experiment": led.EXPERIMENT.name, "direction": "higher", "unit": "document",
             "unit_shown": "in ROUGE F1 (0 to 1), the mean of ROUGE-1 and ROUGE-2"}
register(
    Claim(id="longformer2020-figure3-length", **SUMMARIES, source="Figure 3", about=(led_tables.FIGURE_3.id,),
          where=lambda config: config.model == "led", measure=led_tables.longer, paper_effect=led_tables.printed_step,
          control="the same step when LED reads another text",
          assay=Assay("what LED gains from the text itself, compared with another text",
                      lambda config: config.model == "led", led_tables.reading),
          sentence="Every longer input raises the ROUGE of LED's summaries.",
          short="Every longer input raises LED's ROUGE."),
    Claim(id="longformer2020-table11-lead", **SUMMARIES, source="Table 11", about=(led_tables.TABLE_11.id,),
          where=lambda config: config.model == "led" and config.max_input == max(led.LENGTHS[config.scale])
          or config.model == "lead",
          measure=led_tables.above_the_lead, control="LED with another text as input",
          why_no_paper_effect="the paper prints no ROUGE of the first sentences",
          assay=Assay("what the best sentences gain over the first ones",
                      lambda config: config.model in ("lead", "oracle"), led_tables.room),
          sentence="At its longest input, LED's summaries have a higher ROUGE than the first sentences of a text.",
          short="LED's summaries beat the first sentences of a text."))
