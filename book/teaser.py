"""Write the papers and the results between the markers of README.md, from the papers' packages and the committed
records: python book/teaser.py."""

from pathlib import Path
from textwrap import fill

from landing import exact, spans

from repro.paths import write_atomic
from repro.study import ADDED, Store, artifact, claims, experiment
from repro.study.claims import tally
from repro.study.paper import papers
from repro.study.registry import title
from repro.study.rule import NOT_RUN, OPEN

MARKERS = "<!-- {}:begin -->", "<!-- {}:end -->"


def teaser(scale: str = "small") -> str:
    """The gain from recurrence at each overlap, in the paper and here, as a Markdown table."""
    frame = artifact("yoshida2020-table1-gain").render(scale, also=()).content
    lines = [list(frame.columns), ["---"] * len(frame.columns), *frame.values.tolist()]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def weights(scale: str = "small") -> str:
    """The size of the base model of a scale, from the record of its pretraining."""
    base = Store.for_scale(scale).get(experiment("pretrain-gpt2-mini").plan(scale)[0])
    return f"{base.metrics['parameters'] / 1e6:.1f} million weights"


def seeds(scale: str = "small") -> str:
    """How many seeds the rows of the table have, such as "3 to 5 seeds"."""
    plan = experiment("recurrence-wikitext103").plan(scale)
    counts = sorted({len(Store.for_scale(scale).seeds(config)) for config in plan} - {0})
    return (" to ".join(map(str, (counts[0], counts[-1]))) if len(counts) > 1 else f"{counts[0]}") + " seeds"


def lead() -> str:
    """How many claims are judged, how many got each verdict, and how small the models are."""
    chosen = [one for one in claims() if {*one.scales} - {"smoke"}]  # without those of the reading guide
    counted = tally(chosen)
    every, left, waiting = sum(counted.values()), counted.pop(NOT_RUN, 0), counted.pop(OPEN, 0)
    words = ", ".join(f"{n} {verdict}{exact(verdict, chosen)}" for verdict, n in counted.items())
    table = artifact("yoshida2020-table1").render("small", also=()).content
    row = table[(table["model"] == "baseline") & (table["overlap / T"] == "0.0%")].iloc[0]
    ours, theirs = (row[f"{who}: test"] for who in ("small", "paper"))
    perplexity = f"a word perplexity of {ours.split()[0]} on WikiText-103, against {theirs} in the paper"
    own = sum(one.source.startswith(ADDED) for one in chosen)
    lacking = " or ".join(f"{what} ({n})" for n, what in ((waiting, "more seeds"), (left, "their runs")) if n)
    text = (f"{sum(counted.values())} of {every} claims are judged, all by one rule: {words}. "
            f"{f'The other {waiting + left} wait for {lacking}. ' * bool(lacking)}The papers make {every - own} of the "
            f"claims; {own} are ours. The base models are small: {weights()}, against 124 million in the paper's "
            f"GPT-2. So levels differ widely: {perplexity}. \"Not testable here\" means that the interval leaves the "
            "question open for one of three reasons: the control shows the effect too, this setup leaves no room for "
            "it, or the noise would hide it.")
    return fill(text, 120)


def listed() -> str:
    """The papers as a Markdown table: method, paper, idea, chapters."""
    rows = ["| method | paper | idea | chapters |", "| --- | --- | --- | --- |"]
    rows += [f"| {paper.name} | {title(paper.id)} | {paper.idea} | {spans(paper.planned)} |" for paper in papers()]
    return "\n".join(rows)


def results() -> str:
    """What came out, in a paragraph and a table."""
    above = ("How much recurrence changes word perplexity on WikiText-103 at equal overlap (Yoshida et al., Table 1).\n"
             f"Brackets are 95 % intervals over documents and {seeds()}; our model has {weights()} and is fine-tuned\n"
             "on WikiText-2's training text.")
    below = ("`T` is the window length. `module` compares the test perplexity of the recurrent model with the same\n"
             "model after its module is masked out; below zero, the module helps. `first block` puts the module at\n"
             "the first of six blocks, at the same relative depth as the paper's second of twelve.\n"
             "`against the control` compares with a baseline trained at the same overlap. Chapter 6 shows the window\n"
             "at which the module does help; chapter 4 shows it on text whose best possible perplexity is known.")
    return f"{lead()}\n\n{above}\n\n{teaser()}\n\n{below}"


def filled(text: str) -> str:
    """`text` with both parts written anew between their markers."""
    for name, write in (("papers", listed), ("results", results)):
        begin, end = (marker.format(name) for marker in MARKERS)
        before, after = text.split(begin)[0], text.split(end)[1]
        text = f"{before}{begin}\n{write()}\n{end}{after}"
    return text


if __name__ == "__main__":
    readme = Path(__file__).parents[1] / "README.md"
    write_atomic(readme, filled(readme.read_text()))
