"""Write the papers and the results between the markers of README.md, from the papers' packages and the committed
records: python book/teaser.py."""

from pathlib import Path
from textwrap import fill

from gain import changed
from landing import exact, spans

from repro.markup import signed
from repro.papers.yoshida2020.perplexity.gain_by_window import gains_by_window
from repro.paths import write_atomic
from repro.study import ADDED, Store, artifact, claims, experiment
from repro.study.claims import tally
from repro.study.paper import papers
from repro.study.registry import title
from repro.study.rule import NOT_RUN, OPEN

MARKERS = "<!-- {}:begin -->", "<!-- {}:end -->"


def teaser() -> str:
    """The gain from recurrence on test text, here and in the paper, as a Markdown table."""
    rows = [["window", "text", "base model", "module", "change in perplexity", "with the module masked out"]]
    rows += [["---"] * len(rows[0])]
    for gain in gains_by_window():
        if gain.split == "test":
            masked = "–" if gain.masked is None else signed(gain.masked, ".1%")
            rows.append([f"{gain.window} tokens", gain.text, gain.base, gain.module, changed(gain), masked])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def findings() -> str:
    """The findings of each paper, in a sentence or two, as a Markdown list."""
    return "\n".join(fill(f"- **{paper.name}**: {found}", 120, subsequent_indent="  ")
                     for paper in papers() if (found := paper.finding.written()))


def weights(scale: str = "small") -> str:
    """The size of the base model of a scale, from the record of its pre-training."""
    base = Store.for_scale(scale).get(experiment("pretrain-gpt2-mini").plan(scale)[0])
    return f"{base.metrics['parameters'] / 1e6:.1f} million weights"


def lead() -> str:
    """How many claims are judged, how many got each verdict, and how small the models are."""
    chosen = [one for one in claims() if {*one.scales} - {"smoke"}]  # without those of the reading guide
    counted = tally(chosen)
    every, left, waiting = sum(counted.values()), counted.pop(NOT_RUN, 0), counted.pop(OPEN, 0)
    words = "; ".join(f"{n} {verdict}{exact(verdict, chosen)}" for verdict, n in counted.items())
    table = artifact("yoshida2020-table1").render("small", also=()).content
    row = table[(table["model"] == "baseline") & (table["overlap / T"] == "0.0%")].iloc[0]
    ours, theirs = (row[f"{who}: test"] for who in ("small", "paper"))
    perplexity = f"a word perplexity of {ours.split()[0]} on WikiText-103, against {theirs} in the paper"
    own = sum(one.source.startswith(ADDED) for one in chosen)
    lacking = " or ".join(f"{what} ({n})" for n, what in ((waiting, "more seeds"), (left, "their runs")) if n)
    text = (f"{sum(counted.values())} of {every} claims are judged, all by one rule: {words}. "
            f"{f'The other {waiting + left} wait for {lacking}. ' * bool(lacking)}The papers make {every - own} of the "
            f"claims; {own} are ours. Most base models are small: {weights()}, against 124 million in the paper's "
            f"GPT-2. So levels differ widely: {perplexity}. We use a release of Gemma 3 270M with 4-bit weights and "
            "keep only the tokens that our texts use. \"Not testable here\" means that the interval leaves the "
            "question open for one of three reasons: the control shows the effect too, this setup leaves no room for "
            "it, or the noise would hide it.")
    return fill(text, 120)


def listed() -> str:
    """The papers as a Markdown table: method, paper, idea, chapters."""
    rows = ["| method | paper | idea | chapters |", "| --- | --- | --- | --- |"]
    rows += [f"| {paper.name} | {title(paper.id)} | {paper.idea} | {spans(paper.planned)} |" for paper in papers()]
    return "\n".join(rows)


def results() -> str:
    """The results: the findings, the verdicts, and the gains from recurrence."""
    above = fill(
        "The table shows how much recurrence changes word perplexity on test text, read in windows that do not "
        "overlap; below zero, recurrence helps. Brackets are 95% intervals over seeds and documents, each for its row "
        "alone; verdicts use wider ones where several claims are judged together. The last column is the same model "
        "with its module masked out: only the difference between the two columns comes from the memory.", 120)
    return f"{findings()}\n\n{lead()}\n\n{above}\n\n{teaser()}"


def filled(text: str) -> str:
    """`text` with both parts between their markers replaced."""
    for name, write in (("papers", listed), ("results", results)):
        begin, end = (marker.format(name) for marker in MARKERS)
        before, after = text.split(begin)[0], text.split(end)[1]
        text = f"{before}{begin}\n{write()}\n{end}{after}"
    return text


if __name__ == "__main__":
    readme = Path(__file__).parents[1] / "README.md"
    write_atomic(readme, filled(readme.read_text()))
