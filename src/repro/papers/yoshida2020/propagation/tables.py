"""Tables of what crosses a window boundary: topics, names, pronouns, and how far back it comes from.

Intervals are over books: contexts of one book are not independent of each other.
"""

import html
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from repro import markup
from repro.study.artifacts import NOT_RUN, ArtifactContext, heading
from repro.study.published import published
from repro.study.record import Record

if TYPE_CHECKING:
    import pandas

    from repro.evaluation import Interval
    from repro.evaluation.topics import SignTest

WRITERS = {"baseline": "baseline", "recurrent": "recurrent", "masked": "recurrent, module masked out",
           "book": "the book itself"}
READERS = {"baseline": "baseline", "overlap": "baseline with overlap", "recurrent": "recurrent"}
CARRIED = {"topic": "topic words", "name": "names", "pronoun": "pronouns"}
TABLE = "yoshida2020_topic_jsd"


def mean(records: list[Record], value: Callable[[dict], Sequence[float]],
         over: Callable[[dict], Sequence[float]] | None = None) -> "Interval":
    """Mean over contexts, with its 95% interval over books, of what `value(documents)` gives for each context.

    over: gives the values of another such mean; the result is then the ratio of the two means and its interval.
    """
    books, *values = ([one for record in records for one in given(record.documents)] for given in (
        lambda documents: documents["contexts"]["book"], value, *([over] if over else [])))
    return mean_over_books(books, *values)


def mean_over_books(books: Sequence[int], values: Sequence[float], over: Sequence[float] | None = None) -> "Interval":
    """Mean of `values`, or its ratio to the mean of `over`, with a 95% interval over the books that they come from."""
    import numpy as np

    from repro.evaluation.bootstrap import bootstrap_ratio

    n = np.bincount(books)
    per_book = np.bincount(books, values), n if over is None else np.bincount(books, over)
    return bootstrap_ratio(*(sums[n > 0] for sums in per_book))


def rate(records: list[Record], writer: str, measure: str, against: str) -> "Interval | None":
    """Share of a writer's names or pronouns that fit a context; None if it wrote none."""
    import numpy as np

    from repro.evaluation.bootstrap import bootstrap_ratio

    kept, n = np.concatenate([record.documents[writer][f"{measure} {against}"] for record in records]).T
    return bootstrap_ratio(kept, n) if n.sum() else None


def jsd(writer: str, against: str) -> Callable[[dict], Sequence[float]]:
    return lambda documents: documents[writer][f"jsd {against}"]


def is_closer(against: str, writer: str = "recurrent") -> Callable[[dict], Sequence[float]]:
    """1 where the writer's continuation is closer than the baseline's, 0 where it is not, 1/2 for a tie."""
    further = _minus(jsd(writer, against), jsd("baseline", against))
    return lambda documents: [(1 - (value > 0) + (value < 0)) / 2 for value in further(documents)]


def _minus(first: Callable, second: Callable) -> Callable[[dict], Sequence[float]]:
    return lambda documents: [a - b for a, b in zip(first(documents), second(documents), strict=True)]


def _sign_test(records: list[Record]) -> "SignTest":
    """Recurrent against baseline over all contexts."""
    from repro.evaluation.topics import sign_test

    return sign_test(*([value for record in records for value in record.documents[writer]["jsd own"]]
                       for writer in ("recurrent", "baseline")))


def divergences(context: ArtifactContext) -> "pandas.DataFrame":
    """The paper's numbers next to ours, one per row. Only the ratio is the same in any base of the logarithm."""
    import pandas

    table = published(TABLE).set_index("quantity")
    printed, share = table["value"], "share of contexts where the recurrent continuation has the lower JSD"
    ours, base = printed["mean Jensen-Shannon divergence between context and continuation topics"]
    table = {
        "mean JSD, recurrent": ours, "mean JSD, baseline": base,
        "recurrent / baseline": f"{float(ours) / float(base):.3f}",
        "recurrent closer, ties half": f"at least {printed[share]}%", "tied": "–",
        "sign test, two-sided p": table["note"][share].removeprefix("p "),
        "recurrent without topic words": "–", "baseline without topic words": "–",
        "contexts": printed["number of sampled contexts"],
        "tokens of a continuation": printed["continuation length"], "topics": printed["LDA topics"],
        "books behind the topics": printed["LDA training books"]}
    frame = pandas.DataFrame({"what": table.keys(), "paper: base not stated": table.values()})
    for scale in reversed(context.scales):
        records = context.records(scale)
        frame[f"{heading(scale)}: nats"] = _ours(records) if records else NOT_RUN
    return frame


def _ours(records: list[Record]) -> list[str]:
    """Our column of `divergences`."""
    levels = [jsd(writer, "own") for writer in ("recurrent", "baseline")]
    test, config = _sign_test(records), records[0].config
    wordless = [sum(record.notes["without_topic_words"][writer] for record in records) / test.n
                for writer in ("recurrent", "baseline")]
    return [*(_interval(mean(records, one), 4) for one in levels), _interval(mean(records, *levels)),
            _rate(mean(records, is_closer("own"))), f"{test.ties / test.n:.1%}", f"{test.p:.2g}",
            *(f"{share:.1%}" for share in wordless), f"{test.n}", f"{config['continuation']}", f"{config['topics']}",
            f"{records[0].notes['topic_books']}"]


def own_and_other(records: list[Record]) -> "dict[str, tuple[Interval, Interval]]":
    """Writer -> its mean divergence, in nats, from its own contexts and from contexts of other books."""
    return {name: tuple(mean(records, jsd(writer, against)) for against in ("own", "other"))
            for writer, name in WRITERS.items() if records}


def controls(context: ArtifactContext) -> "pandas.DataFrame":
    """Mean divergence, in nats, of each writer's continuations from their own contexts and from other books'."""
    import pandas

    rows = []
    for writer, name in WRITERS.items():
        row = {"continued by": name}
        for scale in reversed(context.scales):
            records = context.records(scale)
            own, other = jsd(writer, "own"), jsd(writer, "other")
            for column, value in (("own context", own), ("other book's", other), ("difference", _minus(own, other))):
                row[f"{heading(scale)}: {column}"] = _interval(mean(records, value)) if records else NOT_RUN
        rows.append(row)
    return pandas.DataFrame(rows)


def consistency(context: ArtifactContext) -> "pandas.DataFrame":
    """The share of names and of gendered pronouns in continuations that fit their context, and other contexts.

    A name fits if it occurs in the context. A pronoun fits if it has the gender of the context's pronouns; only
    contexts whose pronouns are all of one gender count. "n" is how many names or pronouns were written.
    """
    import pandas

    rows = []
    for measure in ("names", "pronouns"):
        for writer, name in WRITERS.items():
            row = {"what": measure, "continued by": name}
            for scale in reversed(context.scales):
                records = context.records(scale)
                for against, column in (("own", "own context"), ("other", "other book's")):
                    row[f"{heading(scale)}: {column}"] = (
                        _rate(rate(records, writer, measure, against)) if records else NOT_RUN)
                n = sum(n for record in records for _, n in record.documents[writer][f"{measure} own"])
                row[f"{heading(scale)}: n"] = f"{n:,}" if records else NOT_RUN
            rows.append(row)
    return pandas.DataFrame(rows)


def known_gain(context: ArtifactContext) -> "pandas.DataFrame":
    """The share of the possible gain from long context that recurrence recovers, on generated books.

    "possible": the nats between the best reader of one window and the best reader of the book. "by the module": the
    nats that the recurrent model saves relative to itself with the module masked out. "recovered": the nats that it
    saves relative to the better of the masked model and the baseline. Both are in % of the possible nats.
    """
    import numpy as np
    import pandas

    from repro.evaluation.bootstrap import bootstrap_ratio

    rows = []
    for kinds, name in [*(((kind,), name) for kind, name in CARRIED.items()), (tuple(CARRIED), "all three")]:
        row = {"carried by": name}
        for scale in reversed(context.scales):
            records = context.records(scale)
            known = [record.documents["known_gain"] for record in records if "known_gain" in record.documents]
            nll = {reader: np.concatenate([sum(np.array(one[reader][kind]) for kind in kinds) for one in known])
                   for reader in (known[0] if known else ())}
            possible = nll["window"] - nll["unlimited"] if known else None
            row[f"{heading(scale)}: possible, nats"] = f"{possible.sum():,.0f}" if known else _absent(records)
            best = min(("baseline", "masked"), key=lambda reader: nll[reader].sum()) if known else ""
            for column, reader in (("recovered", best), ("by the module", "masked")):
                row[f"{heading(scale)}: {column}"] = _rate(bootstrap_ratio(nll[reader] - nll["recurrent"], possible)
                                                  ) if known else _absent(records)
        rows.append(row)
    return pandas.DataFrame(rows)


def reach(context: ArtifactContext) -> "pandas.DataFrame":
    """Change of loss, in nats per token of the last window, if an earlier window is replaced by another book's, by the
    number of windows back."""
    import pandas

    records = {scale: context.records(scale) for scale in reversed(context.scales)}
    curves = {scale: reach_curves(found) for scale, found in records.items()}
    depth = max((len(points) for found in curves.values() for points in found.values()), default=1)
    rows = []
    for reader, name in READERS.items():
        for back in range(1, depth + 1):
            row = {"read by": name, "windows back": str(back)}
            for scale, found in curves.items():
                for kind, column in (("absolute", "mean |change|"), ("signed", "mean change")):
                    points = found.get(f"{reader} {kind}", [])
                    row[f"{heading(scale)}: {column}"] = (_small(points[back - 1]) if back <= len(points) else
                                                          _absent(records[scale]))
            rows.append(row)
    return pandas.DataFrame(rows)


def by_distance(context: ArtifactContext) -> "pandas.DataFrame":
    """Mean |change of loss|, in nats per token, by the number of tokens since a single token that is replaced."""
    import pandas

    rows = []
    for scale in reversed(context.scales):
        records = context.records(scale)
        curves = reach_curves(records, "distance", ["absolute"])
        for place, back in enumerate(distance_names(records) or [_absent(records)]):
            rows.append({"scale": scale, "tokens back": back, **{
                name: _small(curves[f"{reader} absolute"][place]) if curves else _absent(records)
                for reader, name in READERS.items()}})
    return pandas.DataFrame(rows)


def distance_names(records: list[Record]) -> list[str]:
    """The bins of `by_distance`, such as "4–7"."""
    bins = next((record.documents["distance"]["tokens back"] for record in records if "distance" in record.documents),
                ())
    return [str(near) if near == far else f"{near}–{far}" for near, far in bins]


def reach_curves(records: list[Record], by: str = "reach", kinds: Sequence[str] = ("absolute", "signed")
                 ) -> "dict[str, list[Interval]]":
    """"baseline absolute", "recurrent signed", ... -> the mean for each place, with its interval over books.

    by: "reach" for windows back, "distance" for tokens back. Records without this measurement are left out.
    """
    records = [record for record in records if by in record.documents]
    books = [book for record in records for book in record.documents[by]["book"]]
    names = [f"{reader} {kind}" for reader in READERS for kind in kinds if records]
    return {name: [mean_over_books(books, [change for row in rows for change in row]) for rows in zip(
        *(record.documents[by][name] for record in records), strict=True)] for name in names}


def reach_by_reader(records: list[Record], by: str = "reach") -> "dict[str, list[Interval]]":
    """The curves of `draw_reach`: name of the reader -> its mean |change of loss| at each distance; {} if it was not
    measured."""
    curves = reach_curves(records, by, ["absolute"])
    return {name: curves[f"{reader} absolute"] for reader, name in READERS.items() if curves}


def texts_beside(context: ArtifactContext) -> "pandas.DataFrame":
    """The end of each context in the record, and how the book, the baseline and the recurrent model continue."""
    import pandas

    rows = [{"context ends": "… " + " ".join(one["context"].split()[-25:]), "given": one["first"],
             **{WRITERS[name]: one["continuations"][name] for name in ("baseline", "recurrent", "book")}}
            for record in context.records()[:1] for one in record.notes["examples"]]
    return pandas.DataFrame(rows or [{"context ends": NOT_RUN}])


def side_by_side(examples: Sequence[dict], caption: str = "", last_words: int = 50, id: str = "") -> str:
    """The examples of a record as an HTML table: the end of each context, and the continuations side by side.

    Topic words of the context are bold, names that occur in it are in italics, gendered pronouns are underlined. A
    legend and `caption` follow the table. id: the id of the artifact that the table shows.
    """
    from repro.evaluation.consistency import GENDERS

    columns = ("baseline", "recurrent", "book")
    names = [html.escape(name) for name in ("end of the context, and the given token",
                                            *(WRITERS[name] for name in columns))]
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = []
    for one in examples:
        marks = {**dict.fromkeys(GENDERS, "u"), **dict.fromkeys(map(str.capitalize, GENDERS), "u"),
                 **dict.fromkeys(set(one["names"]) & set(re.findall(r"\w+", one["context"])), "i"),
                 **dict.fromkeys(one["topic_words"], "b")}
        context = "… " + " ".join(one["context"].split()[-last_words:])
        cells = [f"{marked(context, marks)} <mark>{html.escape(one['first'].strip())}</mark>",
                 *(marked(one["continuations"][name], marks) for name in columns)]
        rows.append("".join(f'<td data-head="{name}">{cell}</td>' for name, cell in zip(names, cells, strict=True)))
    body = "".join(f"<tr style='vertical-align: top; text-align: left'>{row}</tr>" for row in rows)
    legend = "<b>topic words</b> of the context, <i>names</i> that occur in it, <u>pronouns</u> with a gender"
    lines = "".join(f"<div>{line}</div>" for line in (legend, *html.escape(caption).splitlines()))
    head = f"<thead><tr style='text-align: left'>{head}</tr></thead>"
    return markup.framed(f'<table class="texts"{markup.named(id)}>{head}<tbody>{body}</tbody></table>', lines)


def marked(text: str, marks: dict[str, str]) -> str:
    """`text` as HTML, with each word of `marks` inside the tag given for it; everything else is escaped."""
    parts = re.split(r"(\w+)", text)
    return "".join(f"<{marks[part]}>{html.escape(part)}</{marks[part]}>" if part in marks else html.escape(part)
                   for part in parts)


def _interval(value: "Interval", digits: int = 3) -> str:
    return f"{value.value:.{digits}f} [{value.low:.{digits}f}, {value.high:.{digits}f}]"


def _rate(value: "Interval | None") -> str:
    return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}]" if value else "–"


def _small(value: "Interval") -> str:
    return "0" if not any(value) else f"{value.value:.2g} [{value.low:.2g}, {value.high:.2g}]"


def _absent(records: list[Record]) -> str:
    return "–" if records else NOT_RUN
