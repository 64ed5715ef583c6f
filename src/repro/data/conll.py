"""Coreference in the layout of CoNLL 2012: one line per token of OntoNotes, with its speaker and its mentions."""

import re
from collections.abc import Iterable, Iterator

from repro.data import files
from repro.data.base import Corpus, Reader
from repro.data.examples import BadField, Coreference
from repro.errors import ReproError

BEGIN = re.compile(r"#begin document \((.+)\); part (\d+)")
WORD, SPEAKER = 3, 9  # columns; the last column has the mentions
GENRES = ("bc", "bn", "mz", "nw", "pt", "tc", "wb")  # the first two letters of a document's name


def documents(lines: Iterable[str], genres: tuple[str, ...] = GENRES) -> Iterator[Coreference]:
    """The documents of a file; each part of a document counts as one. A mention in two clusters stays in the first.

    Raises ReproError, with the number of the line, for a line with too few columns, a mention that never starts or
    never ends, an unknown genre, and a file that ends inside a document.

    >>> rows = [f"bc/x 0 {k} {word} - - - - - Ann - {mention}" for k, (word, mention) in enumerate(
    ...     [("I", "(1)"), ("saw", "-"), ("my", "(2|(1)"), ("dog", "2)")])]
    >>> next(documents(["#begin document (bc/x); part 000", *rows, "", "#end document"])).clusters
    (((0, 1), (2, 3)), ((2, 4),))
    """
    name, number = None, 0
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if begin := BEGIN.match(line):
            name = f"{begin[1]}/{int(begin[2])}"
            sentences, speakers, clusters, open_at = [[]], [], {}, {}
        elif line.startswith("#end"):
            if left := [cluster for cluster, starts in open_at.items() if starts]:
                raise ReproError(f"line {number}: cluster {left[0]} of document {name} has a mention that never ends.")
            if name[:2] not in genres:
                raise ReproError(f"line {number}: document {name} is of an unknown genre; known are "
                                 f"{', '.join(genres)}.")
            try:
                yield Coreference(name, tuple(tuple(one) for one in sentences if one), _each_once(clusters.values()),
                                  tuple(speakers), genres.index(name[:2]))
            except BadField as error:
                raise ReproError(f"line {number}: document {name}: {error}") from None
            name = None
        elif not line and name:
            sentences.append([])
        elif line and not line.startswith("#"):
            columns = line.split()
            if name is None or len(columns) <= SPEAKER + 1:
                raise ReproError(f"line {number} has {len(columns)} columns"
                                 f"{'' if name else ' outside a document'}; CoNLL 2012 has {SPEAKER + 2} or more, "
                                 "inside a document.")
            place = len(speakers)
            sentences[-1].append(columns[WORD])
            speakers.append(columns[SPEAKER])
            for part in columns[-1].split("|"):
                cluster = part.strip("()")
                if part.startswith("("):
                    open_at.setdefault(cluster, []).append(place)
                if part.endswith(")"):
                    if not open_at.get(cluster):
                        raise ReproError(f"line {number}: a mention of cluster {cluster} ends that never started.")
                    clusters.setdefault(cluster, []).append((open_at[cluster].pop(), place + 1))
    if name is not None:
        raise ReproError(f"line {number}: the file ends inside document {name}; it was cut.")


def _each_once(clusters: Iterable[list[tuple[int, int]]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The clusters, with their mentions in order and without mentions that an earlier cluster has."""
    seen: set[tuple[int, int]] = set()
    found = []
    for cluster in clusters:
        found.append(tuple(sorted(set(cluster) - seen)))
        seen.update(cluster)
    return tuple(one for one in found if one)


def _rows(corpus: Corpus, split: str) -> Iterator[Coreference]:
    for path in corpus.paths(split):
        try:
            yield from documents(files.content(path).decode(errors="replace").splitlines(), corpus.labels)
        except ReproError as error:
            raise ReproError(f"corpus {corpus.name}, {split}, {path}: {error}") from error


READER = Reader(Coreference, _rows, "CoNLL 2012: words, speakers, mentions")
