"""Fill the landing page from the records: its headline, a chart, a card for each paper, model sizes and compute."""

import html
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import gain

from repro.models.pretrained import PRETRAINED
from repro.pages import badge
from repro.pages.board import LATE, LATE_LEGEND, LEGEND, place_of, strip
from repro.pages.costs import as_hours, hours
from repro.pages.verdicts import LOOKS, css_class
from repro.study import SCALES, Claim, Record, Store, Verdict, artifacts, claims, experiment, experiments, tally
from repro.study.cache import caching
from repro.study.claims import latest
from repro.study.paper import Paper, papers
from repro.study.registry import cited
from repro.study.rule import NOT_RUN, OPEN, REPRODUCED

ROOT = Path(__file__).parents[1]
BASE = "pretrain-gpt2-mini"
BRANCH = "colab"  # the branch whose chapters install the library themselves (book/colab.py)
FIRST = "notebooks/04_recurrence_module.ipynb"  # the chapter that the Colab and Binder buttons open
READ = "notebooks/01_reading_guide.html"
NAMES = {"gemma-3-270m": "Gemma 3 270M", "minilm-l6": "MiniLM-L6"}  # as the publishers write them


def filled(text: str) -> str:
    """The landing page, with each placeholder replaced by text made from the records."""
    with caching():
        for place, write in (("headline", headline), ("actions", actions), ("chart", gain.chart), ("lead", lead),
                             ("cards", cards), ("late", late), ("papers", table), ("time", time),
                             ("chapters that are missing", missing)):
            before, after = text.split(f"<!-- {place} -->")
            text = before + write() + after
    return text


def headline() -> str:
    """The study's headline finding; a pointer to the cards, if its verdicts changed."""
    found = (paper.headline.written() for paper in papers())
    return next(filter(None, found), "The cards below say which claims hold here, and which do not.")


def lead() -> str:
    """How many claims are judged, the size of the models, and how many claims got each verdict."""
    counted = tally(claims())
    every = sum(counted.values())
    waiting = {verdict: counted.pop(verdict) for verdict in (OPEN, NOT_RUN) if verdict in counted}
    words = ", ".join(f"**{n}** {verdict}{exact(verdict, claims())}" for verdict, n in counted.items())
    rest = " and ".join(f"**{n}** {verdict}" + " (too few seeds)" * (verdict == OPEN) for verdict, n in waiting.items())
    names = {each.name for one, *_ in judged() for each in one.experiments}
    made = [record for name in names for record in recorded(name)]
    sizes = weights(made)
    own = [f"models of {min(sizes):.2g} to {max(sizes):.2g} million weights"] if sizes else []
    models = own + published(made)
    size = f", with {' and '.join(filter(None, (', '.join(models[:-1]), models[-1])))}" if models else ""
    done = sum(counted.values())
    return (f"So far, {done} of {every} claims are judged{size}" + f": {words}" * bool(words) + "."
            + f" The rest: {rest}." * bool(rest))


def late() -> str:
    """How many claims, and how many reproduced ones, had their criterion changed after their runs."""
    changed = [one for one in claims() if one.late]
    good, of = (tally(chosen).get(REPRODUCED, 0) for chosen in (changed, claims()))
    return (f"For {len(changed)} of the {len(claims())} claims, {good} of the {of} reproduced ones among them, "
            "we changed the criterion after seeing results.")


def exact(verdict: str, chosen: Sequence[Claim]) -> str:
    """How many of the reproduced claims are exact counts, such as operations or bytes, with no sampling error."""
    found = sum(one in chosen and one.unit == "exact" and each.exact and each.verdict == verdict == REPRODUCED
                for one, _, each in judged())
    return f" ({found} of them exact counts)" if found else ""


def actions() -> str:
    """The navigation buttons; those that need a public repository only where one is known."""
    known = [("Read", READ), ("What we learned", "what-we-learned.html"), ("Explore", "notebooks/23_explorer.html"),
             ("Run a chapter", "how-to-run.html")]
    if "//github.com/" in repository():
        name = repository().partition("//github.com/")[2]
        known += [("at Colab", f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{FIRST}"),
                  ("at Binder", f"https://mybinder.org/v2/gh/{name}/{BRANCH}?urlpath=lab/tree/{FIRST}")]
    known += [("Source", repository())] * bool(repository()) + [("Cite", "references.html#cite-this-book")]
    links = "".join(f'<a href="{address}">{name}</a>' for name, address in known)
    return f'<nav class="actions" aria-label="Where to go">{links}</nav>'


@cache
def repository() -> str:
    """The URL of the book's repository, without ".git"; "" if there is no public one."""
    if "GITHUB_REPOSITORY" in os.environ:
        return f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{os.environ['GITHUB_REPOSITORY']}"
    asked = subprocess.run(["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True)
    found = re.fullmatch(r"(?:https://|git@)([\w.-]+)[/:]([\w./-]+?)(?:\.git)?", asked.stdout.strip())
    return f"https://{found[1]}/{found[2]}" if found else ""


def site() -> str:
    """The URL of the published book on GitHub Pages, ending in a slash; "" if the repository is not on GitHub."""
    owner, _, name = repository().partition("//github.com/")[2].partition("/")
    root = f"{owner.lower()}.github.io"
    return f"https://{root}/" + (f"{name}/" if name.lower() != root else "") if name else ""


def judged() -> list[tuple[Claim, str, Verdict]]:
    """The claims that have runs, judged or open, with scale and verdict, ordered by paper and chapter."""
    rows = [(one, *latest(one)) for one in claims()]
    order = dict.fromkeys([*(paper.id for paper in papers()), *(one.paper for one, *_ in rows)])
    return [row for paper in order for row in rows if row[0].paper == paper and row[2].verdict != NOT_RUN]


def cards() -> str:
    """A card for each paper: what it claims, what came out, the claims behind that, all verdicts, and where to go."""
    signs = " ".join(f"{badge(verdict)}" for verdict in tally(claims()))
    return (f'<p class="legend">{signs} {LATE_LEGEND}</p><div class="outcomes">{"".join(map(card, papers()))}</div>'
            f'<p class="legend">{LEGEND}</p>')


def card(paper: Paper) -> str:
    rows = {one.id: (one, found) for one, _, found in judged() if one.paper == paper.id}
    chosen = [rows[id] for id in paper.finding.verdicts if id in rows] or list(rows.values())[:2]
    found = paper.finding.written() or ("" if rows else "No claim has runs yet.")
    lines = "".join(f"<li>{line(*row)}</li>" for row in chosen)
    here = sorted(path.stem for n in paper.planned for path in (ROOT / "notebooks").glob(f"{n:02d}_*.ipynb"))
    links = f'<a href="notebooks/{here[0]}.html">Read</a>' if here else "<span>planned</span>"
    links += f'<a href="{paper.id}.html">On one page</a>' * (ROOT / f"book/{paper.id}.md").exists()
    if chosen:
        name, (scale, _) = chosen[0][0].experiments[0].name, latest(chosen[0][0])
        links += (f'<details><summary>Run</summary><code>repro run {name} --scale {scale} --results mine</code>'
                  "</details>")
    return (f'<section class="outcome"><h3>{html.escape(paper.name)} <small>{html.escape(cited(paper.id))}</small></h3>'
            f"<p>{html.escape(paper.says, quote=False)}</p><p><b>Here:</b> {html.escape(found, quote=False)}</p>"
            f'<ul class="claims">{lines}</ul><p class="counts">{counts(paper.id)}</p><p class="go">{links}</p>'
            "</section>")


def counts(paper: str) -> str:
    """How many claims of a paper got each verdict, each a link to them on the scoreboard."""
    found = tally([claim for claim in claims() if claim.paper == paper])
    return " ".join(
        f'<a class="verdict {css_class(verdict)}" title="{verdict}" href="notebooks/22_scoreboard.html#'
        f'{html.escape(urlencode({"paper": paper, "verdict": verdict}))}"><span aria-hidden="true">'
        f'{LOOKS[verdict].sign}</span> {n}<span class="visually-hidden"> {verdict}</span></a>'
        for verdict, n in found.items())


def line(one: Claim, found: Verdict) -> str:
    """One claim: sign, sentence, strip, effect."""
    sign = (f'<span class="verdict {css_class(found.verdict)}"><span aria-hidden="true">'
            f'{LOOKS[found.verdict].sign}</span><span class="visually-hidden">{found.verdict}:</span></span>')
    late = LATE.removeprefix(", ") if one.late else ""
    text = (f'{sign}<span class="sentence">{html.escape(one.brief)} {late}</span>{strip(one, found)}'
            f"<small>{html.escape(f'{found.measured} {found.unit}'.strip())}</small>")
    address = place_of(one)
    about = html.escape(f"{found.verdict}: {one.sentence} {found.text} ({one.source})")
    return f'<a href="notebooks/{address}" title="{about}">{text}</a>' if address else f"<span>{text}</span>"


def table() -> str:
    """A Markdown table with a row for each paper; the size of its largest model is "not printed" if it names none."""
    rows = ["| paper | in this book | our largest model | the paper's |", "| --- | --- | --- | --- |"]
    for paper in papers():
        here = paper.planned & chapters()
        chapter = f"chapter{'s' * (len(paper.planned) > 1)} {spans(paper.planned)}"
        shown = sum(one.paper == paper.id for one in artifacts())
        state_here = f"**planned**: {chapter}" + f"; {shown} tables and figures declared" * (shown > 0)
        if here:
            part = f"chapters {spans(here)} of {spans(paper.planned)}"
            made = runs(paper.id)
            state, which = ("written", chapter) if here == paper.planned else ("in part", part)
            took = f"{len(made)} recorded runs ({spent(made)})" if made else "runs still to be made"
            state_here = f"**{state}**: {which}; {shown} tables and figures from {took}"
        sizes = max(weights(runs(paper.id)), default=None), paper.weights() if paper.weights else None
        own, theirs = (f"{size:{',.0f' if size >= 1000 else '.3g'}} M" if size else absent
                       for size, absent in zip(sizes, ("–", "not printed"), strict=True))
        own += "".join(f", {name}" for name in published(runs(paper.id)))
        rows.append(f"| **{paper.name}**, {{cite:t}}`{paper.cite}`: {paper.idea} | {state_here} | {own} | {theirs} |")
    return "\n".join(rows)


def weights(made: Iterable[Record]) -> list[float]:
    """The sizes of our own models in some records, in millions of weights, and of the base model they start from."""
    made = [record for record in made if record.scale != "pretrained"]
    if any("base" in record.config for record in made):
        made += recorded(BASE)
    return [record.metrics["parameters"] / 1e6 for record in made if "parameters" in record.metrics]


def published(made: Iterable[Record]) -> list[str]:
    """The published models in some records of `pretrained`: named in their configs, or as the source of their base."""
    found = set()
    for record in made:
        if record.scale == "pretrained":
            bases = [experiment(f"pretrain-{record.config['base']}").scales] if "base" in record.config else []
            one = experiment(record.experiment)
            needed = one.needs(one.config(**record.config))
            found |= {base["pretrained"]["source"] for base in bases if "pretrained" in base}
            found |= {record.config.get("model"), *(getattr(config, "source", None) for config in needed)}
    return [NAMES.get(name, name) for name in sorted(found & PRETRAINED.keys())]


def spent(made: Iterable[Record]) -> str:
    """The hours that some records took, by device: a run has one core to itself, or shares a GPU."""
    took = Counter()
    for record in made:
        took[record.environment["device"]] += hours(record)
    return ", ".join(f"{as_hours(value)} h on " + ("one core" if device == "cpu" else f"a shared {device.split()[1]}")
                     for device, value in sorted(took.items(), key=lambda one: (one[0] != "cpu", one[0])))


def time() -> str:
    """A drawing of the way from corpus to page: the counts at each step, and the hours by kind of run."""
    took: dict[str, float] = {}
    every = [record for one in experiments() for record in recorded(one.name)]
    for record in every:
        name, trained = record.experiment, "learning_rate" in record.config and "base" not in record.config
        kind = ("base models, pretrained" if name.startswith("pretrain") else "base models, fine-tuned"
                if name.startswith("finetune") else "models for one task, trained" if trained
                else "evaluated and measured")
        took[kind] = took.get(kind, 0) + hours(record)
    longest = max(took.values(), default=1)
    bars = "".join(f'<li><span>{kind}</span><i style="width: {100 * value / longest:.0f}%"></i>'
                   f"<b>{as_hours(value)} h</b></li>" for kind, value in sorted(took.items(), key=lambda at: -at[1]))
    rebuilt = "rebuilt each time"
    steps = [(len({record.data["name"] for record in every}), "corpora", "fetched once"),
             (len(every), "records", f"{as_hours(sum(took.values()))} hours: {spent(every)}"),
             (len(artifacts()), "tables and figures", rebuilt),
             (len(claims()), "claims", rebuilt), (len(chapters()), "chapters", rebuilt)]
    boxes = "".join(f"<li><b>{n:,}</b> {what} <small>{how}</small></li>" for n, what, how in steps)
    return (f'<figure class="time"><ol>{boxes}</ol><ul>{bars}</ul><figcaption>From corpus to page. Nearly all '
            "compute goes into the records, which the repository keeps; the bars show hours by kind of run. The rest "
            "is rebuilt each time.</figcaption></figure>")


def missing() -> str:
    """A sentence on the planned chapters, such as those "9 to 15 and 18 to 21"; "" if all are written."""
    planned = set().union(*(paper.planned for paper in papers())) - chapters()
    plural = len(planned) > 1
    return (f"Chapter{'s' * plural} {spans(planned)} {'are' if plural else 'is'} planned, so the sidebar skips "
            f"{'their numbers' if plural else 'its number'}. ") * bool(planned)


def chapters() -> set[int]:
    return {int(path.name[:2]) for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}


def runs(paper: str) -> list[Record]:
    """The records of a paper's experiments, except those of `smoke`."""
    return [record for one in experiments() if one.paper == paper for record in recorded(one.name)]


def recorded(name: str) -> list[Record]:
    """The records of an experiment, except those of `smoke`."""
    return [record for scale in SCALES if scale != "smoke" and scale in experiment(name).scales
            for record in Store.for_scale(scale).find(name, scale)]


def spans(numbers: set[int]) -> str:
    """Numbers in words, such as "9 to 15 and 18"."""
    starts = sorted(n for n in numbers if n - 1 not in numbers)
    ends = sorted(n for n in numbers if n + 1 not in numbers)
    parts = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return " and ".join([", ".join(parts[:-1])] * (len(parts) > 1) + parts[-1:])


def social(file: Path) -> None:
    """The preview image for links to the book: every claim with runs, and the counts (1200 x 630)."""
    from matplotlib.figure import Figure

    from repro.plotting import house

    with house():
        figure = Figure(figsize=(12, 6.3), dpi=100, layout="none")
        axes = figure.add_axes((0.48, 0.06, 0.49, 0.88))
        rows = judged()
        for k, (one, _, found) in enumerate(rows):
            sign = 1 if one.direction == "higher" else -1
            expected = one.expected()
            ends = [end for end in (found.effect, found.low, found.high, expected) if end is not None]
            widest = max(abs(end - found.null) for end in ends) or 1
            at = {end: sign * (end - found.null) / widest for end in ends}
            look = LOOKS[found.verdict]
            if found.detectable:
                reach = min(1.06, found.detectable / widest)
                axes.plot([-reach, reach], [-k, -k], color="#dddddd", linewidth=8, solid_capstyle="butt", zorder=0)
            if found.low is not None:
                axes.plot([at[found.low], at[found.high]], [-k, -k], color=look.color, linewidth=2.5)
            if expected is not None:
                axes.plot(at[expected], -k, "D", markerfacecolor="none", markeredgecolor="#444444", markersize=6)
            axes.plot(at[found.effect], -k, look.marker, color=look.color, markersize=7)
        axes.axvline(0, color="#999999", linewidth=1)
        axes.set_axis_off()
        figure.text(0.04, 0.78, "Long context,\nre-run", fontsize=38, fontweight="bold", va="center")
        for k, (verdict, n) in enumerate(tally(claims()).items()):
            figure.text(0.04, 0.53 - 0.07 * k, f"{n} {verdict}", fontsize=20, color=LOOKS[verdict].color)
        figure.text(0.04, 0.06, "claims from papers on long context, judged by one rule", fontsize=13)
        figure.savefig(file, dpi=100, metadata={"Software": None})
