"""The claims on the Sparse Transformer: what depth and length cost, and which patterns predict best."""

from repro.papers.sparse2019 import cost, depth, effects
from repro.papers.sparse2019.settings import (
    PATTERN_SEEDS,
    PATTERNS,
    SEEDS,
    WINDOW,
    is_as_large_as_fits,
    is_image,
    is_plain,
)
from repro.papers.sparse2019.tasks import AUDIO, DENSITY, PAPER
from repro.study import ADDED, Assay, Claim, register

MOST = 1.6  # the largest exponent that counts as n * sqrt(n)
COUNTED = {"paper": PAPER, "experiment": cost.EXPERIMENT.name, "unit": "exact", "direction": "lower",
           "null": MOST, "margin": True, "where": lambda config: config.pattern != "dense",
           "about": ("sparse2019-cost",),
           "paper_effect": lambda: 1.5, "unit_shown": "as exponent of the length"}
DEPTH = {"paper": PAPER, "experiment": depth.EXPERIMENT.name}
# Section 5.2 explains the scaling but measures nothing, so these claims are ours.
NO_NUMBER = {"why_no_paper_effect": "the paper gives the reason and prints no number"}
STARTS = {"unit": "seed", "direction": "lower", "relative": True,
          "why_no_control": "the other initialization is the control", "why_no_assay": "nothing is trained",
          "criterion_before": "a single number without seeds, as if chance played no part"}


def is_pattern(image: bool, *names: str):
    """A filter for rows of Table 2 on images or text, with one of these patterns."""
    return lambda config: is_image(config) is image and config.pattern in names and is_plain(config)


def is_text(config) -> bool:
    """Whether a config is the text model that Table 3 scores."""
    return is_pattern(False, "fixed")(config)


ROOM = {image: Assay("gain of dense attention over the last `stride` positions alone, at common seeds",
                     is_pattern(image, "dense", WINDOW), effects.worth_of_reach) for image in (True, False)}
SOURCE = {True: "CIFAR-10", False: "Enwik8"}
EITHER = {"why_no_assay": "the paper prints no number, and the claim asks for a difference of any size"}


def better(image: bool, one: str, other: str) -> dict:
    """The fields of the claim that one pattern of Table 2 gives fewer bits per byte than another."""
    return {"paper": PAPER, "source": "Table 2", "experiment": DENSITY.name, "about": ("sparse2019-table2",),
            "unit": "document" if image else "stretch", "direction": "lower", "unit_shown": "bits per byte",
            "family": f"sparse2019-table2-{'images' if image else 'text'}", "where": is_pattern(image, one, other),
            "seeds": PATTERN_SEEDS if image else SEEDS, "measure": effects.fewer_bits(effects.has("pattern", one)),
            "paper_effect": effects.printed_patterns(SOURCE[image], one, other),
            "why_no_control": "the other row is the control: the same model with other pairs", "assay": ROOM[image],
            "criterion_before": "its room compared means over all seeds, not only over common seeds"}


def cheaper(image: bool, pattern: str) -> Claim:
    """The claim that a pattern takes fewer operations than dense attention; `repro bench` measures time."""
    kind = "images" if image else "text"
    return Claim(
        id=f"sparse2019-table2-{kind}-{pattern}-cost", paper=PAPER, source=ADDED, experiment=DENSITY.name,
        about=("sparse2019-table2",), unit="exact", direction="lower", relative=True,
        unit_shown="in operations per byte",
        sentence=f"On {kind}, a {pattern} pattern takes fewer operations per byte than dense attention.",
        short=f"On {kind}, a {pattern} pattern takes fewer operations.",
        where=is_pattern(image, pattern, "dense"), measure=effects.log_ratio("flops_per_byte", pattern),
        criterion_before="compared with the paper's change in time per iteration" if image else "",
        why_no_paper_effect="the paper prints times for longer sequences on its own GPUs, and no operations")


register(
    Claim(id="sparse2019-scaled-variance", **DEPTH, **NO_NUMBER, source=ADDED, about=("sparse2019-depth",),
          sentence="With scaled output weights, the variance grows less through the layers of the deepest model.",
          short="Scaled output weights limit the growth of the variance.",
          unit_shown="in the growth of the variance", **STARTS, measure=effects.grown),
    Claim(id="sparse2019-scaled-gradients", **DEPTH, **NO_NUMBER, source=ADDED, about=("sparse2019-depth",),
          sentence="With scaled output weights, the gradients of the first and last layer are closer in size.",
          short="Scaled output weights even gradients out over the layers.",
          unit_shown="in the ratio of gradients", **STARTS, measure=effects.evened),
    Claim(id="sparse2019-scaled-loss", **DEPTH, **NO_NUMBER, source=ADDED, about=("sparse2019-depth",),
          sentence="At the largest depth, scaled output weights give a lower loss after the same number of steps, each "
                   "initialization at its best learning rate.",
          short="Scaled output weights lower the loss at the largest depth.", unit="stretch",
          direction="lower", unit_shown="bits per byte", measure=effects.deepest(effects.bits),
          why_no_control="the other initialization is the control",
          why_no_assay="the claim asks for a difference of any size"),
    Claim(id="sparse2019-recomputation-memory", **DEPTH, **NO_NUMBER, source="Section 5.4", unit="exact",
          about=("sparse2019-recomputation",), direction="lower", relative=True, where=lambda config: config.scaled,
          unit_shown="in bytes per token",
          sentence="Recomputing attention and feedforward layers takes less memory per token.",
          short="Recomputation takes less memory per token.", measure=effects.saved))
register(
    Claim(id="sparse2019-table2-images-strided-dense", **better(True, "strided", "dense"),
          sentence="On images, a strided pattern gives fewer bits per byte than dense attention.",
          short="On images, a strided pattern beats dense attention."),
    Claim(id="sparse2019-table2-images-strided-fixed", **better(True, "strided", "fixed"),
          sentence="On images, a strided pattern gives fewer bits per byte than a fixed one.",
          short="On images, a strided pattern beats a fixed one."),
    Claim(id="sparse2019-table2-text-fixed-strided", **better(False, "fixed", "strided"),
          sentence="On text, a fixed pattern gives fewer bits per byte than a strided one.",
          short="On text, a fixed pattern beats a strided one."),
    Claim(id="sparse2019-table2-text-fixed-dense", **better(False, "fixed", "dense"),
          sentence="On text, a fixed pattern gives fewer bits per byte than dense attention.",
          short="On text, a fixed pattern beats dense attention."),
    *(cheaper(image, pattern) for image in (True, False) for pattern in PATTERNS[1:]),
    Claim(id="sparse2019-table3-context", paper=PAPER, source="Table 3", experiment=DENSITY.name,
          about=("sparse2019-table3",), unit="stretch", direction="lower", unit_shown="bits per byte", where=is_text,
          sentence="The same model needs fewer bits for the same bytes when more bytes precede each of them.",
          short="The same bytes need fewer bits after more context.",
          measure=effects.last_context, same_weights=True,
          paper_effect=effects.printed_ends("sparse2019_table3_context_length", "enwik8_bits_per_byte",
                                           "minimum_context_length_tokens"),
          why_no_control="the same weights read the same bytes; only the context differs",
          why_no_assay="the effect is itself the value of longer context"),
    Claim(id="sparse2019-table4-bits", paper=PAPER, source="Table 4", experiment=AUDIO.name,
          about=("sparse2019-table4",), unit="stretch", direction="higher", unit_shown="bits per byte",
          sentence="Longer sound, with the smaller model that fits into memory, needs more bits per byte.",
          short="Longer sound with a smaller model needs more bits per byte.",
          measure=effects.beyond_size,
          paper_effect=effects.printed_ends("sparse2019_table4_audio", "bits_per_byte", "sequence_length"),
          control="the cost of size alone: the smallest model on the shortest sound",
          criterion_before="no control: the cost of length and size together",
          why_no_assay="the claim compares only rows of the table"),
    Claim(id="sparse2019-table4-size", paper=PAPER, source="Table 4", experiment=AUDIO.name,
          about=("sparse2019-table4",), unit="exact", direction="lower", relative=True,
          unit_shown="in weights", sentence="In about equal memory, longer sound needs a smaller model.",
          where=is_as_large_as_fits, measure=effects.smaller, paper_effect=effects.printed_weights),
    Claim(id="sparse2019-multi-head", paper=PAPER, source=ADDED, experiment=DENSITY.name,
          about=("sparse2019-variants",), unit="document", direction="lower", unit_shown="bits per byte",
          sentence="Separate heads for each pattern give fewer bits per byte than patterns that alternate by layer.",
          short="Separate heads for each pattern beat alternating patterns.",
          where=lambda config: is_image(config) and config.pattern == "strided"
          and config.integration in ("multi-head", "interleaved"),
          measure=effects.fewer_bits(effects.has("integration", "multi-head")),
          why_no_paper_effect="the paper says that several heads work well and prints no number",
          why_no_control="the other way is the control: the same pairs, assigned differently", **EITHER),
    Claim(id="sparse2019-merged", paper=PAPER, source=ADDED, experiment=DENSITY.name,
          about=("sparse2019-variants",), unit="document", direction="lower", unit_shown="bits per byte",
          sentence="Heads that see both patterns give fewer bits per byte than patterns that alternate by layer.",
          short="Heads that see both patterns beat alternating patterns.",
          where=lambda config: is_pattern(True, "strided")(config)
          or is_image(config) and config.integration == "interleaved",
          measure=effects.fewer_bits(effects.has("integration", "merged")),
          why_no_paper_effect="the paper names both and prints no number",
          why_no_control="the other way is the control; it sees fewer pairs", **EITHER))
register(
    Claim(id="sparse2019-pairs", **COUNTED, source="Section 4.2", measure=effects.worst("growth_of_pairs"),
          sentence="Pairs of factorized attention grow as n to the power of 1.5 if the stride is about sqrt(n).",
          short="Pairs of factorized attention grow as n to the power of 1.5."),
    Claim(id="sparse2019-memory", **COUNTED, source="Abstract", measure=effects.worst("growth_of_peak"),
          sentence="Memory of factorized attention grows no faster than n to the power of 1.5.",
          short="Memory grows no faster than n to the power of 1.5."))
