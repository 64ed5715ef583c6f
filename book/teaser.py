"""Write the table of results between the markers of README.md, from the committed records: python book/teaser.py."""

from pathlib import Path
from textwrap import fill

from landing import exact

from repro.paths import write_atomic
from repro.study import ADDED, Store, artifact, claims, experiment
from repro.study.claims import tally
from repro.study.rule import NOT_RUN, OPEN

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"


def teaser(scale: str = "small") -> str:
    """The gain of recurrence at each overlap, the paper beside ours, as a Markdown table."""
    frame = artifact("yoshida2020-table1-gain").render(scale, also=()).content
    lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.values.tolist()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def weights(scale: str = "small") -> str:
    """How large the base model of a scale is, from the record of its pretraining."""
    base = Store.for_scale(scale).get(experiment("pretrain-gpt2-mini").plan(scale)[0])
    return f"{base.metrics['parameters'] / 1e6:.1f} million weights"


def seeds(scale: str = "small") -> str:
    """How many seeds stand behind the rows of the table, such as "3 to 5 seeds"."""
    plan = experiment("recurrence-wikitext103").plan(scale)
    counts = sorted({len(Store.for_scale(scale).seeds(config)) for config in plan} - {0})
    return (" to ".join(map(str, (counts[0], counts[-1]))) if len(counts) > 1 else f"{counts[0]}") + " seeds"


def lead() -> str:
    """What was tested, with models of which size, and how many claims came out how."""
    chosen = [one for one in claims() if {*one.scales} - {"smoke"}]  # those of the reading guide apart
    counted = tally(chosen)
    every, left, waiting = sum(counted.values()), counted.pop(NOT_RUN, 0), counted.pop(OPEN, 0)
    words = ", ".join(f"{n} {verdict}{exact(verdict, chosen)}" for verdict, n in counted.items())
    table = artifact("yoshida2020-table1").render("small", also=()).content
    row = table[(table["model"] == "baseline") & (table["overlap / T"] == "0.0%")].iloc[0]
    ours, theirs = (row[f"{who}: test"] for who in ("small", "paper"))
    perplexity = f"{ours.split()[0]} word perplexity on WikiText-103 where the paper has {theirs}"
    own = sum(one.source.startswith(ADDED) for one in chosen)
    told = (f"{sum(counted.values())} of {every} claims were judged, all by one rule: {words}. Of the "
            f"others {waiting} are open (their runs lack seeds) and {left} not run. {every - own} claims are these "
            f"papers', {own} our own. The base models are "
            f"small ({weights()}; the paper's GPT-2 has 124 million), and so is what they can show: {perplexity}. "
            "\"Not testable here\" means that the interval leaves the question open and that "
            "the control shows the effect too, that there is no room for it, or that it is too noisy to be seen.")
    return fill(told, 120)


def with_results(text: str) -> str:
    """`text` with a fresh table between its markers."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    told = ("How recurrence changes word perplexity on WikiText-103 at equal overlap (Yoshida et al., Table 1; 95 % "
            f"intervals\nover documents and {seeds()}; ours with a model of {weights()}, fine-tuned on WikiText-2's "
            "training text):")
    below = ("`T` is the length of a window. `module` is the test perplexity of the recurrent model against the same\n"
             "with its module masked out; below zero the module helps. `first block`: the module at the first of six\n"
             "blocks, as deep as the paper's second of twelve. `against the control`: against a baseline trained with\n"
             "the same overlap. Chapter 6 tells at which window the module does help, and chapter 4 shows it at work\n"
             "on text whose best possible perplexity is known.")
    return f"{before}{BEGIN}\n{lead()}\n\n{told}\n\n{teaser()}\n\n{below}\n{END}{after}"


if __name__ == "__main__":
    readme = Path(__file__).parents[1] / "README.md"
    write_atomic(readme, with_results(readme.read_text()))
