"""WikiSum from articles, the texts that they cite and search results (Liu et al. 2018, section 2 and Appendix A.2).

Its makers never published the texts, only how to gather them again. So this module starts from gathered texts, one JSON
object per line: {"title": ..., "lead": ..., "citations": [text, ...], "search": [text, ...]}. By the medians of the
paper's Table 2, an article has 51,500 words, some 0.3 MB, and all 2.3 million take 0.7 TB. The module leaves out clones
of the article, and writes at most `most_words` words for each article to parquet files.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from repro.data.extraction import words
from repro.errors import ReproError
from repro.paths import write_atomic

CLONE = 0.5  # unigram recall above which a document is a copy of the article (Appendix A.2.1)
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


def article(row: dict, most_words: int = 20_000) -> dict[str, str] | None:
    """The columns title, document and summary of one line; None if no text is left without the clones.

    A clone is a document that repeats the lead, such as a mirror of the article: some part of it, as long as three
    leads, has more than half of the lead's words. (The paper compares whole documents with each section of the article,
    which the lines here do not have. So a mirror that leaves out the lead is not found.)
    Raises ReproError for a row that is not an object, has no title or no lead, or has anything but text where texts
    belong.
    """
    if not isinstance(row, dict):
        raise ReproError(f"an article is {_short(row)}; it must be an object of title, lead, citations and search.")
    for name in ("title", "lead"):
        if isinstance(row.get(name), str) and not row[name].strip() or not row.get(name):
            raise ReproError(f"an article has no {name}: {_short(row)}; every one needs a title and a lead.")
        if not _is_text(row[name]):
            raise ReproError(f"the {name} of an article is {_short(row[name])}; it must be text.")
    kept, left = [], most_words
    for text in (*_texts(row, "citations"), *_texts(row, "search")):
        if left <= 0:
            break
        if not is_clone(row["lead"], text):
            kept.append(re.match(rf"(?:\s*\S+){{0,{left}}}", text)[0])
            left -= len(text.split())
    document = "\n".join(filter(str.strip, kept))
    return {"title": row["title"], "document": document, "summary": row["lead"]} if document else None


def _texts(row: dict, name: str) -> list[str]:
    texts = row.get(name, [])
    if not isinstance(texts, (list, tuple)):
        raise ReproError(f"{name} of an article is {_short(texts)}; it must be a list of texts, [] if there are none.")
    if odd := [text for text in texts if not _is_text(text)]:
        raise ReproError(f"{name} of an article has {_short(odd[0])} in it; it must be a list of texts alone.")
    return texts


def _is_text(value) -> bool:
    """Whether a value is text that can be written as UTF-8; JSON strings can hold halves of characters."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _short(value) -> str:
    return repr(value)[:80]


def is_clone(lead: str, document: str) -> bool:
    """Whether any stretch of three times the lead's length, wherever it begins, has more than `CLONE` of the lead's
    different words. Lengths are counted in words between spaces; a shorter document is a single stretch."""
    pieces, size, wanted = document.split(), 3 * max(len(lead.split()), 1), set(words(lead))
    found = {piece: wanted & set(words(piece)) for piece in set(pieces)}
    within: Counter[str] = Counter()  # how often each of the lead's words is in the stretch that ends here
    for at, piece in enumerate(pieces):
        within.update(found[piece])
        for word in found[pieces[at - size]] if at >= size else ():
            within[word] -= 1
            if not within[word]:
                del within[word]
        if len(within) > CLONE * len(wanted):
            return True
    return False


def split_of(title: str) -> str:
    """The split of an article, by a hash of its title, so that it is the same on every machine and in every subset."""
    place = int(hashlib.sha256(title.encode()).hexdigest()[:8], 16) / 16**8
    return "train" if place < SHARES["train"] else "validation" if place < 1 - SHARES["test"] else "test"


def build(source: Path, folder: Path, shard: int = 10_000, most_words: int = 20_000) -> dict[str, int]:
    """Write `folder`/SPLIT-NNNNN.parquet from a file of lines (.jsonl or .jsonl.gz): articles of each split.

    Lines are read in stretches of `shard`. A stretch is complete once its stretch-NNNNN.json exists, which is written
    last. Complete stretches are not built again, so a build that was stopped resumes, even after a later line was
    repaired. Returns how many articles each split has. Raises ReproError for a missing, empty or broken file, and, with
    the line, for a line that is not JSON or that `article` refuses. The same for a folder that was begun with another
    shard, another `most_words` or other lines.
    """
    for name, value in (("shard", shard), ("most_words", most_words)):
        if value < 1:
            raise ReproError(f"{name} is {value}; it must be at least 1.")
    if not source.exists():
        raise ReproError(f"there is no {source}; name a .jsonl or .jsonl.gz file of articles.")
    counts, lines = dict.fromkeys(SHARES, 0), _lines(source)
    for number in range(10**9):
        done, taken = folder / f"stretch-{number:05d}.json", list(islice(lines, shard))
        if not taken:
            if more := sorted(folder.glob(f"[!.]*-{number:05d}.*")):
                raise ReproError(f"{more[0]} was built from lines that {source} no longer has; name the old source, or "
                                 f"delete {folder} and build it again.")
            if not number:
                raise ReproError(f"{source} has no articles; name a file with an article a line.")
            break
        made = {"shard": shard, "most_words": most_words, "lines": _digest(taken)}
        if done.exists():
            _check(done, made, source, taken)
        else:
            write_atomic(done, json.dumps(made | {"articles": _write(taken, source, folder, number, most_words)}))
        for split, n in json.loads(done.read_text())["articles"].items():
            counts[split] += n
    return counts


def _digest(taken: list[tuple[int, str]]) -> str:
    """The checksum of lines and of their numbers, which become ids; a line feed at the end makes no difference."""
    found = hashlib.sha256()
    for at, line in taken:
        found.update(f"{at} {line.strip()}\n".encode())
    return found.hexdigest()


def _check(done: Path, made: dict, source: Path, taken: list[tuple[int, str]]) -> None:
    """Raise ReproError for a complete stretch that was built from other lines or with other settings."""
    old, remedy = json.loads(done.read_text()), f"delete {done.parent} and build it again"
    if not {*made, "articles"} <= old.keys():
        raise ReproError(f"{done} does not say what it was built from; {remedy}.")
    for name in ("shard", "most_words"):
        if old[name] != made[name]:
            raise ReproError(f"{done} was built with {name}={old[name]}, not {made[name]}; pass {name}={old[name]}, "
                             f"or {remedy}.")
    if old["lines"] != made["lines"]:
        raise ReproError(f"lines {taken[0][0]} to {taken[-1][0]} of {source} are not those that {done} was built from; "
                         f"name the old source, or {remedy}.")


def _write(taken: list[tuple[int, str]], source: Path, folder: Path, number: int, most_words: int) -> dict[str, int]:
    import io

    import pyarrow
    import pyarrow.parquet

    rows: dict[str, list] = {split: [] for split in SHARES}
    for at, line in taken:
        try:
            found = article(json.loads(line), most_words)
        except ReproError as error:
            raise ReproError(f"{source}, line {at}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise ReproError(f"{source}, line {at}: it is no JSON ({error}); take it out.") from None
        if found:
            rows[split_of(found["title"])].append({"id": str(at)} | found)
    for split, found in rows.items():
        path, buffer = folder / f"{split}-{number:05d}.parquet", io.BytesIO()
        if found:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(found), buffer, compression="zstd")
            write_atomic(path, buffer.getvalue())
        else:
            path.unlink(missing_ok=True)  # left by a build that was stopped between a stretch's files
    return {split: len(found) for split, found in rows.items()}


def _lines(source: Path) -> Iterator[tuple[int, str]]:
    at = 0
    try:
        with gzip.open(source, "rt", encoding="utf-8") if source.suffix == ".gz" else source.open(
                encoding="utf-8") as file:
            for at, line in enumerate(file, 1):
                if line.strip():
                    yield at, line
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ReproError(f"cannot read {source} behind line {at}: {error}; gather or copy it again.") from error
