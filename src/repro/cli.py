"""The command line `repro`: list, run and show the study, manage its data and models, benchmark, check the machine.

Each command imports what it needs inside its function, so that `repro --help` and `repro list` start at once.
"""

import json
import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
    from typer.core import TyperGroup
except ModuleNotFoundError:  # `pip install repro` only installs what repro.attention needs
    sys.exit("repro: error: the commands need the study's packages. Run: pip install 'repro[study]'.")

from repro.errors import ReproError, readable, unknown
from repro.openmp import sleep_while_waiting

if TYPE_CHECKING:
    import pandas
    from rich.console import Console

    from repro.data.base import Corpus
    from repro.papers.base.models import BaseModel
    from repro.study import Claim, Experiment, RunConfig


class OneLine(TyperGroup):
    """Prints every usage error and every ReproError as one line on stderr, and exits with code 2."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        sleep_while_waiting()  # before a command loads torch
        try:
            sys.exit(super().main(*args, standalone_mode=False, **extra))
        except ReproError as error:
            message = str(error)
        except typer.TyperException as error:
            message = f"{error.format_message()} Try 'repro --help'."
        sys.stderr.write(f"repro: error: {readable(' '.join(message.split()))}\n")
        sys.exit(2)


main = typer.Typer(cls=OneLine, help="Reproduce papers on long-context language models: run, measure, compare.",
                   add_completion=False, pretty_exceptions_enable=False)
data = typer.Typer(help="List, download and verify corpora.", no_args_is_help=True)
main.add_typer(data, name="data")
models = typer.Typer(help="List, fetch, verify and install models.", no_args_is_help=True)
main.add_typer(models, name="models")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Scale = Annotated[str | None, typer.Option(help="smoke (default), small, pretrained, medium or paper.")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=(
    "Set a key in every grid point; KEY=5,10 makes several points. Repeat for more keys."))]
Results = Annotated[Path | None, typer.Option(file_okay=False, help=(
    "Folder of records; default: results/ (smoke: build/results/)."))]
KINDS = "table", "figure", "claim"
Read = Annotated[Path | None, typer.Option("--results", exists=True, file_okay=False, help=(
    "Only the records in this folder; default: results/ (smoke: build/results/)."))]


@main.command("list")
def list_study(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help=(
        "Keep entries that match all words: a paper, name, chapter, scale with records, or verdict."))] = None,
    as_json: AsJson = False,
    results: Read = None,
) -> None:
    """List experiments, artifacts and claims: paper, id, chapter, scales with records, verdict."""
    from repro.pages.listing import listing
    from repro.pages.verdicts import LOOKS
    from repro.study import SCALES

    if blank := [word for word in words or [] if not word.strip()]:
        raise ReproError(f"'{blank[0]}' is no word; leave it out, or give one to list only what matches it.")
    whole, words = listing(results), _whole(words or [], LOOKS)
    listed = _with(whole, words)
    known = {*KINDS, *SCALES, *LOOKS, *(name for some in whole.values() for one in some for name in _names(one))}
    for word in words:
        if word.casefold() not in known and not any(_with(whole, [word]).values()):
            raise unknown("word", word, known)
    if as_json:
        return _print_json(listed)
    _print_table("Experiments: repro run NAME", ["name", "scales", "summary"], map(_planned, listed["experiments"]))
    _print_table("Artifacts and claims: repro show ID", ["id", "kind", "chapter", "source", "runs done",
                                                           "verdict (of a table: the worst of its claims)"],
                 map(_judged, (*listed["artifacts"], *listed["claims"])))
    found = [entry["verdict"] for entry in listed["claims"]]
    verdicts = ", ".join(f"{found.count(verdict)} {verdict}" for verdict in LOOKS if verdict in found)
    typer.echo(f"{len(listed['experiments'])} experiments, {len(listed['artifacts'])} artifacts, "
               f"{len(listed['claims'])} claims{': ' * bool(verdicts)}{verdicts}")


def _whole(words: list[str], verdicts: Iterable[str]) -> list[str]:
    """The words, with those that form a verdict joined, so that "not reproduced" needs no quotes."""
    found, rest = [], list(words)
    while rest:
        n = next((len(parts) for parts in map(str.split, verdicts)
                  if [word.casefold() for word in rest[:len(parts)]] == parts), 1)
        found.append(" ".join(rest[:n]))
        rest = rest[n:]
    return found


def _with(listed: dict[str, list], words: list[str]) -> dict[str, list]:
    """The listed entries that match all of `words`."""
    return {kind: [entry for entry in some if all(_has(entry, word.casefold()) for word in words)]
            for kind, some in listed.items()}


def _has(entry: dict[str, Any], word: str) -> bool:
    """Whether a word appears in an entry's paper, name, chapter, source or experiment, or is its kind, scale or
    verdict."""
    part = [entry.get(name, "") for name in ("paper", "id", "name", "chapter", "source", "summary")]
    read = entry.get("experiment", ())
    part += [read] if isinstance(read, str) else read
    scales = entry["scales"] if isinstance(entry["scales"], list) else [
        scale for scale, status in entry["scales"].items() if status["done"]]
    return word in " ".join(part).casefold() or word in (entry.get("kind"), entry.get("verdict"), *scales)


def _names(entry: dict[str, Any]) -> set[str]:
    """The names by which one word finds an entry."""
    return {entry[name] for name in ("paper", "id", "name", "chapter") if entry.get(name)}


def _planned(experiment: dict[str, Any]) -> list[str]:
    """The line of an experiment in `repro list`."""
    return [experiment["name"], " ".join(experiment["scales"]), experiment["summary"]]


def _judged(entry: dict[str, Any]) -> list[str]:
    """The line of an artifact or a claim in `repro list`."""
    done = [f"{scale} {status['done']}/{status['planned']}" for scale, status in entry["scales"].items()
            if status["done"]]
    verdict = entry["verdict"] + (f" at {entry['verdict_scale']}" if entry["verdict_scale"] else "")
    return [entry["id"], entry["kind"], entry["chapter"].partition("_")[0], entry["source"],
            ", ".join(done) or "none",
            verdict if any(status["verdict"] for status in entry["scales"].values()) else "no claim"]


@main.command()
def run(
    name: Annotated[str | None, typer.Argument(metavar="EXPERIMENT", help=(
        "See `repro list`. Optional with --budget, which then covers every run of the scale."))] = None,
    scale: Annotated[str | None, typer.Option(help="smoke (default), small, pretrained, medium or paper.")] = None,
    sets: Sets = None,
    seeds: Annotated[list[str] | None, typer.Option("--seed", metavar="N", help="0 (default), or 0,1,2.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would run: data, parameters, "
                                          "FLOPs, memory and time.")] = False,
    results: Results = None,
    only: Annotated[list[str] | None, typer.Option(metavar="ID", help="Keep only the run with this id.")] = None,
    as_json: AsJson = False,
    force: Annotated[bool, typer.Option("--force", help="Run again even if a record exists.")] = False,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help=(
        "Stop after this time, such as 90s, 12m or 1h30m. Runs that decide the most claims come first; runs that do "
        "not fit are skipped; a training in progress continues in the next budget."))] = None,
) -> None:
    """Run an experiment: every grid point and seed that has no record yet."""
    from repro import processes
    from repro.study import Store, artifacts, experiment, plan, run, run_id

    if budget is not None and force:
        raise ReproError("--force repeats runs that have a record, but --budget makes only missing ones; leave one "
                         "of them out.")
    if name is None:
        given = [f" for {flag}" for flag, value in (("--set", sets), ("--seed", seeds), ("--only", only)) if value]
        if budget is None or given:
            raise ReproError(f"Missing argument 'EXPERIMENT'{given[0] if given else ''}; `repro list` names them, and "
                             "--budget TIME alone makes the missing runs of a whole scale.")
        return _spend(budget, None, "smoke" if scale is None else scale, results, dry_run, as_json)
    chosen = experiment(name)
    runs: list[Any] = []
    others = ""
    if scale is None and not (dry_run and only):  # an id says its scale
        scale = "smoke" if not dry_run or "smoke" in chosen.scales else next(iter(chosen.scales))
        others = ", ".join(name for name in chosen.scales if name != scale)
    for one in (chosen.scales if scale is None else [scale]):
        runs += chosen.plan(one, _pairs(sets or []), _numbers(seeds or ["0"]))
    if only:
        ids = {plan.known_id(config, results): config for config in runs}
        for wanted in only:
            if wanted not in ids:
                raise unknown(f"run of {name}", wanted, filter(None, ids))
        runs = [ids[wanted] for wanted in dict.fromkeys(only)]
    if budget is not None:
        return _spend(budget, runs, scale, results, dry_run, as_json)
    if dry_run:
        _dry_run(chosen, runs, results, as_json, force)
        if others and not as_json:
            typer.echo(f"{name} has other scales: {others}. To see the runs of one: --scale SCALE.")
        return None
    records = []
    for number, config in enumerate(runs, 1):
        if not as_json and sys.stderr.isatty() and processes.is_first():
            sys.stderr.write(f"{number}/{len(runs)} {name} {run_id(config)} {plan.point(config, runs)}\n")
        records.append(run(config, results, progress=not as_json, force=force))
    processes.leave()
    if not processes.is_first():
        return
    if as_json:
        return _print_json([asdict(record) for record in records])
    _print_table(f"{name} at {runs[0].scale}", ["id", "run", "metric", "value", "unit"],
                 [[record.id, plan.point(config, runs), metric.replace("_", " "), _number(value), record.units[metric]]
                  for config, record in zip(runs, records, strict=True) for metric, value in record.metrics.items()])
    typer.echo(f"Records are in {Store.for_scale(runs[0].scale, results).path(records[0]).parent}")
    shown = next((one for one in artifacts() if chosen in one.experiments and runs[0].scale in one.scales), None)
    if shown:
        planned = shown.plan(runs[0].scale)
        needed = [] if all(one.model_copy(update={"seed": planned[0].seed}) in planned for one in runs) else sets or []
        words = ["--scale", runs[0].scale, *(word for item in needed for word in ("--set", item)),
                 *(["--results", str(results)] if results else [])]
        typer.echo(f"Show them with: repro show {shown.id} {shlex.join(words)}")


@main.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of an artifact or a claim, see `repro list`.")],
    scale: Scale = None,
    sets: Sets = None,
    results: Read = None,
    save: Annotated[Path | None, typer.Option(help="Save a figure as PNG, or its values or a table as CSV.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a table or figure with the paper's numbers next to ours, or a claim with its verdict and records."""
    from repro.paths import write_atomic
    from repro.study import artifact, artifacts, claim, claims

    if name in [one.id for one in claims()]:
        if sets:
            raise ReproError(f"--set {sets[0]}: {name} is a claim, which fixes its runs; use --set only with a table "
                             "or a figure.")
        return _show_claim(claim(name), scale, results, save, as_json)
    if name not in (known := [one.id for one in artifacts()]):
        raise unknown("artifact or claim", name, known + [one.id for one in claims()])
    also = () if results else None  # a reader's folder holds the runs of one scale; others would only be "not run"
    shown = artifact(name).render("smoke" if scale is None else scale, also, results, _pairs(sets or []))
    is_figure = shown.artifact.kind == "figure"
    if save:
        suffixes = (".png", ".csv") if is_figure else (".csv",)
        if save.suffix not in suffixes:
            raise ReproError(f"--save {save}: {name} is a {shown.artifact.kind}; give a file name ending in "
                             f"{' or '.join(suffixes)}.")
        write_atomic(save, shown.png() if save.suffix == ".png" else shown.as_csv())
    if as_json:
        rows = [] if is_figure else _rows(shown.table)
        return _print_json({"id": name, "caption": shown.caption, "rows": rows})
    _console().print(shown)
    if is_figure and not save:
        typer.echo(f"This is a figure. To save it: repro show {name} --save FILE.png, or its values: FILE.csv"
                   if hasattr(shown.content, "savefig") else
                   f"This figure is made of words; see it in its chapter, {shown.artifact.chapter}.")


def _rows(table: "pandas.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table for JSON. Columns of numbers hold numbers, with their interval as "low" and "high"; all other
    columns hold text."""
    import pandas

    from repro.markup import as_data, numeric

    columns = {}
    for k, name in enumerate(table.columns):
        cells = [None if pandas.isna(cell) else cell for cell in table.iloc[:, k].tolist()]
        texts = [cell for cell in cells if isinstance(cell, str)]
        key = " / ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        columns[key] = [as_data(cell) if isinstance(cell, str) and numeric(texts) else cell for cell in cells]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _show_claim(shown: "Claim", scale: str | None, results: Path | None, save: Path | None, as_json: bool) -> None:
    """Print a claim: one row per scale (or for `scale` only) with verdict, effect, interval and records."""
    if save:
        raise ReproError(f"--save {save}: {shown.id} is a claim; only a table or a figure can be saved.")
    from repro.pages.listing import standing
    from repro.study.registry import cited

    rows = []
    for one in shown.scales if scale is None else [scale]:
        found = [record.id for _, records in shown.records(one, results) for record in records]
        rows.append({"scale": one, **standing(shown, results, [one])[one], "records": found})
    if as_json:
        return _print_json({"id": shown.id, "sentence": shown.sentence, "paper": shown.paper, "source": shown.source,
                            "criterion_before": shown.criterion_before, "verdicts": rows})
    _print_table("\n".join(filter(None, (shown.sentence, f"{shown.id}: {shown.source} of {cited(shown.paper)}",
                                         shown.late))),
                 ["scale", "verdict", "effect [95% interval], or what is missing", "records"],
                 [[row["scale"], row["verdict"], row["text"], " ".join(row["records"])] for row in rows])


def _list_judgeable(wanted: bool) -> None:
    """Print the claims that a reader's text can decide, then leave."""
    if not wanted:
        return
    from repro.study.replication import judgeable, training

    here, learning = judgeable("small")
    _print_table("Claims that get a verdict on your text: repro replicate CLAIM --data FOLDER --scale small",
                 ["claim", "scale", "needs", "sentence"],
                 [[one.id, "small", "the models here, no training", one.brief] for one in here]
                 + [[one.id, "small", training(one, "small"), one.brief] for one in learning])
    raise typer.Exit


@main.command("replicate")
def replicate_claim(
    name: Annotated[str, typer.Argument(metavar="CLAIM", help="The id of a claim, see `repro list`.")],
    folder: Annotated[Path, typer.Option("--data", metavar="FOLDER", help=(
        "A folder of .txt files in UTF-8, one document each."))],
    scale: Annotated[str | None, typer.Option(help=(
        "Default: small for claims that only score text, smoke, without a verdict, for those whose models learn "
        "from it."))] = None,
    results: Annotated[Path | None, typer.Option(file_okay=False, help=(
        "Folder of the new records; default: one in build/replications/."))] = None,
    listed: Annotated[bool, typer.Option("--list", is_eager=True, callback=_list_judgeable, help=(
        "List the claims that get a verdict on your text at small, and what each needs."))] = False,
    as_json: AsJson = False,
) -> None:
    """Judge a claim on your own text by the study's rule, and print both verdicts."""
    from repro.study import claim
    from repro.study.replication import replicate

    made = replicate(claim(name), folder, scale, results, progress=not as_json)
    if as_json:
        return _print_json(made.as_json())
    rows = made.rows()
    _print_table(f"{made.claim.sentence}\n{name}, on {made.n_documents} documents of {folder}",
                 ["text", "scale", "verdict", "effect [95% interval]", "units", "notes"],
                 [list(row.values()) for row in rows])
    typer.echo(f"Records are in {made.folder}")


@data.command("list")
def data_list(as_json: AsJson = False) -> None:
    """List every corpus: kind, source, license, splits, and whether it is on this machine."""
    from repro.data import corpora

    rows = [{"name": one.name, "kind": one.content_kind, "source": one.source, "licence": one.licence,
             "part_of": one.part_of,
             "available": one.available(), "fetch": one.origin is not None,
             "files": one.layout,
             "splits": {name: {"description": split.description, "words": split.n_words, "examples": split.n_examples}
                        for name, split in one.splits.items()}} for one in corpora()]
    if as_json:
        return _print_json(rows)
    _print_table("Corpora. One with its source, license and splits: repro data show NAME",
                 ["name", "kind", "here", "fetch", "complete", "splits"],
                 [[row["name"], row["kind"], *("yes" if one else "no" for one in (
                     row["available"], row["fetch"], not row["part_of"])), ", ".join(row["splits"])] for row in rows])


@data.command("show")
def data_show(name: Annotated[str, typer.Argument(metavar="NAME", help="See `repro data list`.")]) -> None:
    """Show one corpus: source, license, what it is a part of, its splits, and how to get it."""
    from repro.data import corpus

    one = corpus(name)
    sizes = {split: f"{words:,} words" if (words := about.n_words) else
             f"{about.n_examples:,} examples" if about.n_examples else "size not published"
             for split, about in one.splits.items()}
    for field, text in {"kind": one.content_kind, "source": one.source, "license": one.licence,
                        "part of": one.part_of or "nothing: it is complete",
                        "here": "yes" if one.available() else f"no; {one.way}",
                        **{f"split {split}": ": ".join(filter(None, (sizes[split], about.description)))
                           for split, about in one.splits.items()}}.items():
        typer.echo(f"{field}: {text}")


@data.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `repro data list`.")],
    folder: Annotated[Path | None, typer.Argument(help="Default: $REPRO_DATA, else data/.")] = None,
) -> None:
    """Download a corpus from its source; resumes where it was interrupted."""
    from repro.data import corpus

    if corpus(name).source == "embedded":
        typer.echo(f"{name} is generated by the library; there is nothing to fetch.")
    else:
        corpus(name).fetch(folder)


@data.command("check")
def data_check(name: Annotated[str, typer.Argument(metavar="NAME", help="See `repro data list`.")],
               as_json: AsJson = False) -> None:
    """Compare a corpus's counts with the published ones, and list passages left out because an evaluation text contains
    them; exit code 2 if the corpus is incomplete."""
    from repro.data import corpus

    rows = [{"split": row.split, "what": row.what, "expected": row.expected, "found": row.found, "ok": row.ok}
            for row in corpus(name).check()]
    left_out = [{"split": split, **asdict(one)} for split in corpus(name).splits for one in corpus(name).dropped(split)]
    if as_json:
        _print_json({"name": name, "fingerprint": corpus(name).fingerprint(), "rows": rows, "left_out": left_out})
    else:
        _print_table(f"{name}, fingerprint {corpus(name).fingerprint()[:16]}",
                     ["split", "what", "expected", "found", ""],
                     [[row["split"], row["what"], f"{row['expected']:,}", f"{row['found']:,}",
                       "ok" if row["ok"] else "WRONG"] for row in rows])
        if left_out:
            _print_left_out(left_out)
    wrong = [f"{row['found']:,} {row['what']} in {row['split']} instead of {row['expected']:,}"
             for row in rows if not row["ok"]]
    if wrong:
        raise ReproError(f"{name} is incomplete: {'; '.join(wrong)}. To fix it: {corpus(name).way}.")


def _print_left_out(passages: list[dict[str, Any]]) -> None:
    """Print one line per document with passages left out, the most words first."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in passages:
        found.setdefault((one["split"], one["document"]), []).append(one)
    words = {key: sum(one["n_words"] for one in some) for key, some in found.items()}
    _print_table("Left out because an evaluation text contains it",
                 ["split", "document", "passages", "words", "shared with"],
                 [[*key, f"{len(found[key]):,}", f"{words[key]:,}",
                   ", ".join(dict.fromkeys(one["shared_with"] for one in found[key]))]
                  for key in sorted(found, key=lambda key: (-words[key], key))])


@models.command("list")
def models_list(as_json: AsJson = False, results: Read = None) -> None:
    """List our base models that have a record, with their held-out loss, and published models, with their license.

    --json has more: training, sizes, sources, checksums, folders.
    """
    from repro.models import pretrained
    from repro.papers.base.models import base_models

    _print_models(base_models(results), {name: pretrained.HERE if pretrained.is_here(name) else pretrained.NOT_HERE
                                         for name in pretrained.PRETRAINED}, as_json)


@models.command("fetch")
def models_fetch(name: Annotated[str, typer.Argument(metavar="NAME", help="See `repro models list`.")]) -> None:
    """Download a published model; resumes where it was interrupted, and does nothing if the model is here."""
    from repro.models import pretrained

    model = pretrained.declared(name)
    typer.echo(f"{name}: {model.architecture}, for {model.serves}{'; ' * bool(model.note)}{model.note}", err=True)
    typer.echo(f"License: {model.licence}, {model.terms}. The weights belong to their authors: do not commit them.",
               err=True)
    typer.echo(pretrained.fetch(name))


@models.command("check")
def models_check(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help=(
        "A model of `repro models list`; default: every one that is here."))] = None,
    as_json: AsJson = False, results: Read = None,
) -> None:
    """Load models: of ours the stored weights, compared with their records; of published ones every file, compared with
    its checksum. Exit code 2 if one is damaged."""
    from repro.models import pretrained
    from repro.papers.base.models import EXPERIMENTS, KEPT, NOT_KEPT, check

    if name is not None and name not in (known := [*EXPERIMENTS, *pretrained.PRETRAINED]):
        raise unknown("model", name, known)
    found = [] if name in pretrained.PRETRAINED else [one for one in check(results) if name in (None, one.name)]
    states = {one: pretrained.check(one) for one in pretrained.PRETRAINED if name in (None, one)}
    _print_models(found, states, as_json)
    wrong = [one for one in (*(one.state for one in found), *states.values())
             if one not in (KEPT, NOT_KEPT, pretrained.HERE, pretrained.NOT_HERE)]
    if name in states and states[name] == pretrained.NOT_HERE:
        pretrained.folder(name)  # raises, with the command that gets it
    if wrong:
        raise ReproError(" ".join(wrong))


@models.command("install")
def models_install(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run, with record.json and model/.")],
    results: Results = None,
) -> None:
    """Install a base model that was trained elsewhere: copy its record and weights to the records of its scale."""
    from repro.papers.base.models import install

    typer.echo(f"Installed the weights in {install(folder, results)}")


def _print_models(found: "list[BaseModel]", states: dict[str, str], as_json: bool) -> None:
    """Print our base models, and the published ones with their states, in two tables of 80 columns."""
    from repro.models.pretrained import HERE, NOT_HERE, PRETRAINED, home
    from repro.papers.base.models import KEPT, NOT_KEPT

    published = [PRETRAINED[name] for name in states]
    if as_json:
        return _print_json({"base": [asdict(one) for one in found], "published": [
            asdict(one) | {"sources": list(map(str, one.sources)), "folder": str(home() / one.name),
                           "state": states[one.name]} for one in published]})
    if found:
        _print_table("Base models of the study", ["model", "scale", "id", "loss on held-out text", "weights"],
                     [[one.name, one.scale, one.id, "" if one.loss is None else f"{one.loss:.3f} {one.unit}",
                       one.state if one.state in (KEPT, NOT_KEPT) else "damaged"] for one in found])
    if published:
        _print_table("Published models, in $REPRO_MODELS: repro models fetch NAME",
                     ["model", "weights", "fetch", "license", "here"],
                     [[one.name, f"{one.parameters / 1e6:.0f} M", f"{one.size / 1e6:,.0f} MB", one.licence,
                       {HERE: "yes", NOT_HERE: "no"}.get(states[one.name], "damaged")] for one in published])


def _benchmarks() -> list[str]:
    """The benchmarks: the modules of repro.bench."""
    import pkgutil

    from repro import bench

    return [module.name for module in pkgutil.iter_modules(bench.__path__)]


def _passes(named: list[str]) -> tuple[str, ...]:
    """The passes of the attention benchmark, in its order."""
    from repro.bench.attention import PASSES

    for one in named:
        if one not in PASSES:
            raise unknown("pass", one, PASSES)
    return tuple(one for one in PASSES if one in named)


@main.command()
def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(_benchmarks())}.")],
    json_path: Annotated[Path | None, typer.Option("--json", metavar="FILE", help=(
        "Write the numbers to this file."))] = None,
    lengths: Annotated[list[int] | None, typer.Option("--length", metavar="N", min=1, help=(
        "attention only: time this length; repeat for several. Default: 512 to 32,768."))] = None,
    rounds: Annotated[int, typer.Option(metavar="N", min=1, help="attention only: timed runs per implementation.")] = 5,
    passes: Annotated[list[str] | None, typer.Option("--pass", metavar="PASS", help=(
        "attention only: forward or forward+backward. Default: both."))] = None,
    budget: Annotated[str | None, typer.Option(metavar="TIME", help=(
        "attention only: stop within this time, such as 90s. Lengths for the printed ratios come first."))
        ] = None,
) -> None:
    """Compare speed with peers in one process, and print ratios.

    On two CPU cores, attention takes about a quarter of an hour and the others a few minutes. Contention needs a quiet
    machine.
    """
    import importlib
    import time

    began = time.monotonic()
    if name not in _benchmarks():
        raise unknown("benchmark", name, _benchmarks())
    if lengths and name != "attention":
        raise ReproError(f"--length is {lengths[0]}, but the benchmark {name} has no lengths; leave it out.")
    if budget is not None and name != "attention":
        raise ReproError(f"--budget is {budget}, but the benchmark {name} takes none; leave it out.")
    chosen: dict[str, Any] = {"lengths": tuple(sorted(set(lengths)))} if lengths else {}
    if budget is not None:
        from repro.study.budget import seconds_of

        chosen |= {"budget": seconds_of(budget), "began": began}
    if name == "attention":
        chosen |= {"rounds": rounds} | ({"passes": _passes(passes)} if passes else {})
    importlib.import_module(f"repro.bench.{name}").main(json_path, **chosen)


@main.command("plan")
def plan_paper_runs(
    gpu: Annotated[str, typer.Option(metavar="NAME", help="A100 (default), H100 or V100.")] = "A100",
    utilization: Annotated[float, typer.Option(metavar="SHARE", help=(
        "The share of the GPU's half-precision peak that training sustains."))] = 0.3,
    price: Annotated[float, typer.Option(metavar="DOLLARS", help="The price of a GPU for an hour.")] = 1.75,
    as_json: AsJson = False,
) -> None:
    """Show what the papers' own runs need on 8 GPUs and on 64: memory, hours and cost; and published times."""
    from repro.pages.paper_runs import COUNTS, RUNS, Cluster, need, needs, times

    cluster = Cluster(gpu, utilization, price)
    if as_json:
        return _print_json({"cluster": asdict(cluster), "times": _rows(times()), "needs": [
            {"run": run.name, "experiment": run.experiment, "parameters": run.estimate.parameters,
             "tokens": run.estimate.training_tokens, "flops": run.estimate.flops,
             "gpus": {n: asdict(need(run, n, cluster)) for n in COUNTS}} for run in RUNS]})
    title = f"On {gpu} GPUs at {utilization:.0%} of their peak and ${price:.2f} an hour"
    for name, rows in ((title, needs(cluster)), ("Published times: our FLOPs as a share of the GPUs' peak", times())):
        _print_table(name, list(rows.columns), rows.values.tolist())


@main.command()
def doctor(
    as_json: AsJson = False,
    each_corpus: Annotated[bool, typer.Option("--corpora", help="Show one line per corpus.")] = False,
) -> None:
    """Show what this machine can run, and what it lacks."""
    from repro.doctor import findings

    if not as_json:
        typer.echo("Measuring this machine takes a minute if it is idle, and several if it is not.", err=True)
    rows = findings(each_corpus)
    if as_json:
        return _print_json([asdict(row) for row in rows])
    _print_table("This machine", ["", "found", "what to do"], [[row.what, row.found, row.lack] for row in rows])


def _dry_run(chosen: "Experiment", runs: "list[RunConfig]", results: Path | None, as_json: bool, force: bool) -> None:
    """Print what would run: one table per scale, or JSON [{id, config, command, needs, estimate, done, state}]."""
    from repro.data import corpus
    from repro.study import Run, command, plan
    from repro.study.budget import duration
    from repro.study.settings import DEVICES
    from repro.study.store import where

    if as_json:
        return _print_json([
            {"id": plan.known_id(config, results), "config": config.model_dump(mode="json"),
             "command": command(config), "needs": [command(need) for need in chosen.needs(config)],
             "estimate": asdict(chosen.estimate(config)), "done": state == "done", "state": state}
            for config in runs for state in ["to do" if force else plan.state(config, results)]])
    for scale in dict.fromkeys(config.scale for config in runs):
        here = [config for config in runs if config.scale == scale]
        needed, device = plan.needed(here), DEVICES[scale]
        again = plan.models_to_make(here, results, force)
        lines, flops, seconds, read = [], 0.0, 0.0, {}
        for config in [*needed, *here]:
            one, place = Run(config).experiment, results if config in here else where(config, results)
            state = "to do" if force and config in here else plan.state(config, place)
            if config.key in again:
                state = "to do again: its weights are missing"
            estimate, missing = one.estimate(config), state != "done"
            flops, seconds = flops + missing * estimate.flops, seconds + missing * estimate.seconds
            read |= dict.fromkeys((config.corpus, *one.reads(config)))
            words = [plan.point(config, here if config in here else needed), estimate.note]
            if one is not chosen:
                words.insert(0, f"needed: {config.experiment}")
            lines.append([plan.known_id(config, place) or "", " ".join(filter(None, words)), config.corpus,
                          f"{estimate.parameters:,}", f"{estimate.training_tokens:,}", f"{estimate.flops:.2e}",
                          f"{estimate.memory_bytes / 2**30:.2f} GiB", duration(estimate.seconds), state])
        header = ["id", "run", "data", "parameters", "training tokens", "FLOPs", "memory", "time", ""]
        hidden = 0 if any(line[0] for line in lines) else 1  # a run without its data has no id yet
        count = f"{len(here)} run{'s' * (len(here) != 1)}" + (f" and {len(needed)} that they need" if needed else "")
        _print_table(f"{chosen.name} at {scale}: {count}; to do: {flops:.2e} FLOPs, {duration(seconds)} of "
                     f"computing on {device}",
                     header[hidden:], [line[hidden:] for line in lines])
        for name in read:
            typer.echo(f"  data {name}: {_availability(corpus(name))}")
        for line in _settings(here):
            typer.echo(f"  {line}")
        typer.echo()


def _spend(time_given: str, only: "list[RunConfig] | None", scale: str, results: Path | None, dry_run: bool,
           as_json: bool) -> None:
    """Make the missing runs of a scale, or of `only`, within a time budget; with `dry_run`, only list them."""
    import time

    from repro import processes
    from repro.study import SCALES, budget
    from repro.study.runs import command

    seconds = budget.seconds_of(time_given)
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    if processes.count() > 1:
        raise ReproError(f"--budget runs in one process, but torchrun started {processes.count()}; leave one "
                         "of them out.")
    runs, jobs, decides = budget.missing(scale, results, only)
    order = budget.ordered(jobs, decides, seconds)
    if dry_run:
        found = budget.rehearse(jobs, order, seconds)
    else:
        import torch  # noqa: F401  imported before the first run is timed

        found = budget.spend(jobs, order, seconds, lambda key, deadline: budget.make(
            runs[key], results, lambda: time.monotonic() >= deadline, not as_json),
            report=lambda line: None if as_json else sys.stderr.write(line + "\n"))
    claims = [set(budget.with_needs(jobs, keys)) for keys in decides.values()]
    rows = [{"command": command(runs[key]), "claims": sum(key in some for some in claims),
             "estimate": jobs[key].seconds, "state": state, "reason": reason}
            for key in order for state, reason in [found.state(key)]]
    words = {"made": "fits" if dry_run else "made", "stopped": "stopped", "skipped": "skipped", "failed": "failed"}
    counts = {state: [row["state"] for row in rows].count(state) for state in words}
    if as_json:
        _print_json({"scale": scale, "seconds": seconds, "dry_run": dry_run, **counts, "runs": rows})
    else:
        _print_table(f"{scale}: {len(rows)} missing runs, {budget.duration(seconds)}",
                     ["run", "claims", "estimate", ""],
                     [[row["command"], str(row["claims"]), budget.duration(row["estimate"]),
                       f"{words[row['state']]}: {row['reason']}"] for row in rows])
        typer.echo(", ".join(f"{n} {words[state]}" for state, n in counts.items()))
    if found.failed:
        raise ReproError(f"{len(found.failed)} of the runs failed, the first with: "
                         f"{next(iter(found.failed.values()))}")


def _settings(configs: "list[RunConfig]") -> list[str]:
    """One line for the settings that all `configs` share, then one per group of runs with further settings that the
    table does not show; a group is named by its first run, with a count."""
    from repro.study.plan import point
    from repro.study.settings import as_text

    first, *rest = every = [{key: f"{key}={as_text(value)}" for key, value in config.model_dump(mode="json").items()
                             if key not in ("experiment", "scale", "corpus")} for config in configs]
    common = [text for key, text in first.items() if all(other[key] == text for other in rest)]
    lines = [f"settings of every run: {', '.join(common)}"]
    groups: dict[str, list[str]] = {}
    for config, settings in zip(configs, every, strict=True):
        apart = point(config, configs)
        if own := [text for text in settings.values() if text not in [*common, *apart.split(" ")]]:
            groups.setdefault(", ".join(own), []).append(apart)
    return lines + [f"settings of {runs[0]}{f' and {len(runs) - 1} more' * (len(runs) > 1)}: {own}"
                    for own, runs in groups.items()]


def _availability(corpus: "Corpus") -> str:
    """Whether a corpus is whole, whether it is on this machine, and how to get it."""
    here = "on this machine" if corpus.available() else f"not here, {corpus.way}"
    return f"{f'part of {corpus.part_of}' if corpus.part_of else 'whole'}; {here}"


def _pairs(sets: list[str]) -> dict[str, str]:
    pairs = {}
    for item in sets:
        key, equals, value = item.partition("=")
        if not equals:
            raise ReproError(f"--set {item}: write KEY=VALUE, for example --set overlap=5.")
        if key in pairs:
            raise ReproError(f"--set {key} is given twice; for several values write --set {key}=5,10.")
        pairs[key] = value
    return pairs


def _numbers(seeds: list[str]) -> list[int]:
    try:
        return [int(seed) for item in seeds for seed in item.split(",")]
    except ValueError as error:
        raise ReproError(f"--seed {' '.join(seeds)}: seeds must be whole numbers, as in --seed 0,1,2.") from error


def _console() -> "Console":
    """The console for tables: as wide as the terminal; lines in a file or a pipe are not wrapped."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=100_000, soft_wrap=True)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=1))


def _print_table(title: str, header: list[str], rows: Iterable[list[str]]) -> None:
    """Print a table whose first column never wraps; in a file or a pipe, print one plain line per row."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    console = _console()
    if not console.is_terminal:
        lines = [[" ".join(cell.split("\n")) for cell in line] for line in (header, *rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        typer.echo(title)
        for line in lines:
            typer.echo("  ".join(cell + " " * (width - cell_len(cell))
                                 for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    table = Table()
    for number, name in enumerate(header):
        table.add_column(name, overflow="fold", no_wrap=not number)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(Text(title, style="italic"))
    console.print(table)


def _number(value: float) -> str:
    """A number with five significant digits, or as a whole number from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.5g}"


if __name__ == "__main__":
    main()
