"""Tables and figures of the papers, built from records and printed values, for notebooks, terminals and files."""

import html
import io
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from repro import markup
from repro.checked import checked
from repro.errors import ReproError, unknown
from repro.study.cache import caching
from repro.study.experiment import Experiment, corpus_named, experiment
from repro.study.record import Record
from repro.study.registry import cited, declared, lookup
from repro.study.rule import NOT_RUN, SEEDS
from repro.study.runs import Run
from repro.study.settings import SCALES, RunConfig, as_text
from repro.study.store import Store

if TYPE_CHECKING:
    import pandas
    from rich.console import RenderableType

ADDED = "not in the paper"  # the source of a table or figure that this study adds


def heading(scale: str) -> str:
    """The column heading of our results at a scale: its name, but "full" for the scale `paper`."""
    return "full" if scale == "paper" else scale


class Based:
    """Base of artifacts and claims: something that needs the runs of one or more experiments."""

    experiment: str | tuple[str, ...]

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """The experiments whose runs it needs."""
        names = (self.experiment,) if isinstance(self.experiment, str) else self.experiment
        return tuple(map(experiment, names))

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales that all of its experiments have."""
        return tuple(scale for scale in SCALES if all(scale in one.scales for one in self.experiments))

    def plan(self, scale: str, sets: Mapping[str, Any] | None = None) -> list[RunConfig]:
        """The planned configs of its experiments at `scale`; each experiment uses the keys in `sets` that it has.

        Raises ReproError for an unknown scale, and for a key that none of them has.
        """
        if scale not in self.scales:
            raise unknown("scale" if scale not in SCALES else f"scale of {self._names()}", scale, self.scales)
        self.check_keys(sets or {})
        return [config for one in self.experiments for config in one.plan(
            scale, {key: value for key, value in (sets or {}).items() if key in one.config.model_fields})]

    def check_keys(self, keys: Iterable[str]) -> None:
        """Raise ReproError, with the nearest name, for a key that no experiment has."""
        known = {key for one in self.experiments for key in one.config.model_fields}
        for key in keys:
            if key not in known:
                raise unknown(f"key of {self._names()}", key, known)

    def _names(self) -> str:
        return " and ".join(one.name for one in self.experiments)


@dataclass(frozen=True)
class Artifact(Based):
    """One table or figure of a paper. `build(context)` returns a pandas DataFrame, a matplotlib Figure or a
    `ColouredText`.

    >>> table = Artifact(id="toy", paper="this book", title="Toys", chapter="", experiment="recurrence-pg19",
    ...     source="Table 1", build=lambda context: [config.overlap for config in context.plan()])
    >>> table.build(ArtifactContext(table, ("smoke",)))[:3]
    [0, 3, 5]
    """

    id: str
    paper: str
    title: str
    chapter: str
    experiment: str | tuple[str, ...]  # whose runs it needs, one or several
    build: Callable[["ArtifactContext"], Any]
    source: str  # where in the paper, e.g. "Table 1", or text that starts with ADDED
    kind: Literal["table", "figure"] = "table"
    shows: tuple[str, ...] = ("corpus",)  # the settings that name the shown data
    look_for: str = ""  # what to see in it, or how to read a table, in a few sentences; no results, which go stale

    @property
    def heading(self) -> str:
        """The first line of its caption."""
        name = (f"{self.title} ({self.source})." if self.source.startswith(ADDED) else
                f"{self.source} of {cited(self.paper)}: {self.title}.")
        return f"{name} {self.look_for}".strip()

    @caching()
    def render(self, scale: str = "smoke", also: Sequence[str] | None = None, results: Path | str | None = None,
               sets: Mapping[str, Any] | None = None) -> "Rendered":
        """The artifact from the records of `scale`, next to those of the scales in `also` (default: `beside(scale)`).

        `sets` changes the plan of `scale` as `repro run --set` does. Missing records never raise: their cells say
        "not run" and the caption names the command. Raises ReproError for an unknown scale or key, for `sets` that
        leave out a run without which nothing can be shown, and for records that cannot be trusted.
        """
        also = beside(scale) if also is None else also
        for name in (scale, *also):
            if name not in SCALES:
                raise unknown("scale", name, SCALES)
        if scale not in self.scales:
            raise unknown(f"scale of {self._names()}", scale, self.scales)
        shown = dict.fromkeys([scale, *(name for name in also if name in self.scales)])
        context = ArtifactContext(self, tuple(shown), results, dict(sets or {}))
        try:
            built = self.build(context)
        except (LookupError, ValueError, StopIteration) as error:  # a value or a row that the artifact requires
            if not sets or isinstance(error, ReproError):
                raise
            given = ", ".join(f"{key}={value}" for key, value in sets.items())
            raise ReproError(f"{self.id} cannot be shown with {given} alone, because it compares runs that this leaves "
                             "out; show it without.") from error
        return Rendered(self, built, context.caption())


@dataclass
class ArtifactContext:
    """Gives `build` its records, and remembers for the caption which were used and which were missing.

    >>> context = ArtifactContext(artifact("yoshida2020-table1"), ("small",), results=folder)
    >>> context.value("test_word_perplexity", scale="small", model="recurrent", overlap=0, insert_layer=1)
    'not run'
    """

    artifact: Artifact
    scales: tuple[str, ...]  # the requested scale, then those shown with it
    results: Path | str | None = None
    sets: dict[str, Any] = field(default_factory=dict)
    used: dict[str, Record] = field(default_factory=dict)  # by id
    missing: dict[str, RunConfig] = field(default_factory=dict)  # by command

    def plan(self, scale: str | None = None, **fields: Any) -> list[RunConfig]:
        """The planned configs of `scale` (default: the requested scale) that have these field values.

        If the artifact needs several experiments, `experiment="NAME"` selects one; a config that lacks one of these
        fields is left out.
        """
        scale = scale or self.scales[0]
        self.artifact.check_keys(fields)
        return [config for config in self.artifact.plan(scale, self.sets if scale == self.scales[0] else {})
                if all(key in type(config).model_fields and getattr(config, key) == value
                       for key, value in fields.items())]

    def records(self, scale: str | None = None, **fields: Any) -> list[Record]:
        """The records of `plan(scale, **fields)` at all available seeds."""
        return [record for config in self.plan(scale, **fields) for record in self.records_of(config)]

    def records_of(self, config: RunConfig) -> list[Record]:
        """The records of one config at all available seeds; [] if it was not run."""
        return self.at_common_seeds([config])[0]

    def at_common_seeds(self, configs: Sequence[RunConfig]) -> list[list[Record]]:
        """The records of each config at their `same_seeds`, for levels that are shown side by side."""
        found = same_seeds([Store.for_scale(config.scale, self.results).seeds(config) for config in configs])
        for config, records in zip(configs, found, strict=True):
            self.used |= {record.id: record for record in records}
            if not records:
                self.missing[Run(config).command] = config
        return found

    def value(self, metric: str, digits: int = 2, scale: str | None = None, **fields: Any) -> str:
        """One cell: the metric's mean over seeds with `digits` decimals, or "not run".

        Raises ReproError if `fields` match more than one config of the plan, and for an unknown metric.
        """
        plan = self.plan(scale, **fields)
        if len(plan) > 1:
            raise ReproError(f"{self.artifact.id}: {fields} matches {len(plan)} configs of the plan; give more fields.")
        found = [record for config in plan for record in self.records_of(config)]
        for record in found:
            if metric not in record.metrics:
                raise unknown(f"metric of {record.experiment}", metric, record.metrics)
        return f"{fmean(record.metrics[metric] for record in found):.{digits}f}" if found else NOT_RUN

    def caption(self) -> str:
        """The source; then for each scale its data, seeds and records, and a command for missing records."""
        lines = [self.artifact.heading]
        for scale in self.scales:
            used = [record for record in self.used.values() if record.scale == scale]
            missing = [(line, config) for line, config in self.missing.items() if config.scale == scale]
            parts = []
            if used:
                data = sorted({name for record in used for name in self._data(record)})
                parts.append(f"{', '.join(data)}; {_seeds(used)}; "
                             f"record{'s' * (len(used) > 1)} {', '.join(record.id for record in used)}")
            if missing:
                runs = f"{len(missing)} run{'s' * (len(missing) > 1)}" if used else "all"
                parts.append(f"{runs} {NOT_RUN}: {', '.join(f'`{line}`' for line in self._commands(missing))}")
            if parts:
                lines.append(f"{scale}: {'; '.join(parts)}.")
        return "\n".join(lines)

    def _data(self, record: Record) -> list[str]:
        """The data in a record that this artifact shows; parts of a corpus are called parts."""
        names = {record.config[key] for key in self.artifact.shows if record.config.get(key)}
        parts = {name: record.data["part_of"] if name == record.data["name"] else corpus_named(name).part_of
                 for name in names}
        return [name + (f" (part of {part})" if part else "") for name, part in parts.items()]

    def _commands(self, missing: list[tuple[str, RunConfig]]) -> list[str]:
        """One command per experiment that makes its missing runs at a scale (and reuses existing records)."""
        found = []
        for name in dict.fromkeys(config.experiment for _, config in missing):
            lines = [line for line, config in missing if config.experiment == name]
            found.append(lines[0] if len(lines) == 1 else self._command(name, missing[0][1].scale))
        return [line + (f" --results {shlex.quote(str(self.results))}" if self.results else "") for line in found]

    def _command(self, name: str, scale: str) -> str:
        """The command that runs the whole plan of one experiment at a scale."""
        sets = self.sets if scale == self.scales[0] else {}
        own = [_set(key, value) for key, value in sets.items() if key in experiment(name).config.model_fields]
        return " ".join([shlex.join(["repro", "run", name, "--scale", scale]), *own])


def same_seeds(groups: Sequence[list[Record]]) -> list[list[Record]]:
    """The records of each group at the seeds that all groups share, so that levels side by side use the same seeds.

    A group with fewer seeds than a verdict needs does not restrict the others; it keeps the seeds that it shares with
    them. A group that shares no seed stays as it is.
    """
    seeds = [{record.seed for record in group} for group in groups if group]
    enough = [some for some in seeds if len(some) >= SEEDS] or seeds
    common = set.intersection(*enough) if enough else set()
    return [[record for record in group if record.seed in common] or group for group in groups]


def paired(*groups: Sequence[Record]) -> list[list[Record]]:
    """The records of each group at the seeds that every group has, in the order of seeds, so that the groups can be
    subtracted; empty lists if they share no seed."""
    found = [{record.seed: record for record in group} for group in groups]
    common = sorted(set.intersection(*map(set, found)))
    return [[one[seed] for seed in common] for one in found]


def _seeds(used: Sequence[Record]) -> str:
    """The number of seeds shown: "3 seeds", or "1 to 5 seeds" if some configs have fewer."""
    found: dict[str, set[int]] = {}
    for record in used:
        settings = {key: value for key, value in record.config.items() if key != "seed"}
        found.setdefault(json.dumps(settings, sort_keys=True, default=str), set()).add(record.seed)
    counts = sorted({len(seeds) for seeds in found.values()})
    fewest = f"{counts[0]} to " if len(counts) > 1 else ""
    return f"{fewest}{counts[-1]} seed{'s' * (counts[-1] > 1)}"


def _set(key: str, value: Any) -> str:
    """One item of `sets` as a `--set` option."""
    values = value if isinstance(value, list) else [value]
    text = value if isinstance(value, str) else ",".join(map(as_text, values))
    return f"--set {shlex.quote(f'{key}={text}')}"


@dataclass(frozen=True)
class Rendered:
    """A rendered artifact. `content` is the DataFrame or Figure; notebooks and rich show it with its caption.

    >>> rendered = artifact("yoshida2020-table1").render("small")
    >>> rendered.caption.partition(":")[0]
    'Table 1 of Yoshida et al. (2020)'
    """

    artifact: Artifact
    content: Any
    caption: str

    @property
    def table(self) -> "pandas.DataFrame":
        """The table, with a named index as its first columns. Raises ReproError for a figure."""
        if self.artifact.kind == "figure":
            raise ReproError(f"{self.artifact.id} is a figure, not a table.")
        return self.content if self.content.index.names == [None] else self.content.reset_index()

    def as_csv(self) -> str:
        """The table, or the values that the figure shows, as CSV. Raises ReproError for a figure without values."""
        if self.artifact.kind == "table":
            return self.table.to_csv(index=False)
        if not self._values:
            raise ReproError(f"{self.artifact.id} has no values to save: it shows pictures or diagrams, or its runs "
                             "are missing. See its caption.")
        return markup.as_csv(self._values)

    @property
    def _values(self) -> Sequence[Mapping[str, Any]]:
        return getattr(self.content, "values", ())  # a figure that does not come from `canvas` has none

    def __repr__(self) -> str:  # stored in notebooks, so it must be the same at every execution
        return self.caption

    def _repr_html_(self) -> str:
        caption = "".join(f"<div>{_line(line)}</div>" for line in self.caption.splitlines())
        if self.artifact.kind == "table":
            return markup.table(self.table, caption, self.artifact.id)
        import matplotlib.pyplot as plt

        from repro.plotting import ColouredText, Drawing, as_svg

        figure = self.content
        if isinstance(figure, ColouredText):
            return markup.figure(figure.html(), caption, id=self.artifact.id, values=self._values)
        picture = figure.svg() if isinstance(figure, Drawing) else as_svg(figure, self.artifact.title)
        plt.close(figure)  # otherwise the notebook would show it a second time
        return markup.figure(picture, caption, id=self.artifact.id, values=self._values)

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        caption = Text(self.caption.replace("`", ""))
        return caption if self.artifact.kind == "figure" else Group(self._as_rich_table(), caption)

    def _as_rich_table(self) -> "RenderableType":
        from rich.table import Table
        from rich.text import Text

        table = Table()
        for name in self.table.columns:
            table.add_column(Text(name if isinstance(name, str) else " / ".join(map(str, name))), overflow="fold")
        for row in self.table.itertuples(index=False):
            table.add_row(*(Text(str(cell), style="dim" if cell == NOT_RUN else "") for cell in row))
        return table

    def png(self) -> bytes:
        """The figure as PNG, the same bytes for the same figure."""
        import matplotlib.pyplot as plt

        from repro.plotting import ColouredText

        if isinstance(self.content, ColouredText):
            raise ReproError(f"{self.artifact.id} is made of words and cannot be saved as a picture; see it in its "
                             f"chapter, {self.artifact.chapter}.")
        buffer = io.BytesIO()
        self.content.savefig(buffer, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
        plt.close(self.content)  # otherwise the notebook would show it a second time
        return buffer.getvalue()


def _line(line: str) -> str:
    """One line of a caption as HTML: commands as code, record ids folded below it."""
    line = re.sub("`([^`]*)`", r"<code>\1</code>", html.escape(line, quote=False))
    found = re.search("; (records?) ([0-9a-f]{16}(?:, [0-9a-f]{16})*)", line)
    if not found:
        return line
    ids = f"<details><summary>{found[1]}</summary>{found[2]}</details>"
    return line[:found.start()] + line[found.end():] + ids


@checked
def beside(scale: str) -> tuple[str, ...]:
    """The scales that a page at `scale` shows first: `small`, whose records are in the repository.

    >>> beside("smoke"), beside("small")
    (('small',), ())
    """
    return tuple(name for name in ("small",) if name != scale)


@checked
def artifact(id: str) -> Artifact:
    """The artifact with this id. Raises ReproError, with the nearest id, when there is none.

    >>> artifact("yoshida2020-table1").kind
    'table'
    """
    return lookup(Artifact, id)


def artifacts() -> list[Artifact]:
    """All artifacts of the papers.

    >>> {"yoshida2020-table1", "longformer2020-table4"} <= {one.id for one in artifacts()}
    True
    """
    return list(declared(Artifact).values())
