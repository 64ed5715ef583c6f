"""WikiSum from articles, what they cite and what a search finds (Liu et al. 2018, section 2 and Appendix A.2).

Its makers never published the texts, only how to gather them again. So this begins with them gathered, a JSON object a
line: {"title": ..., "lead": ..., "citations": [text, ...], "search": [text, ...]}. By the medians of the paper's Table
2 that is 51,500 words an article, some 0.3 MB, and 0.7 TB for all 2.3 million. Written is what is left without clones
of the article, at most `most_words` words of each, in parquet files.
"""

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from repro.data.extraction import words
from repro.errors import ReproError
from repro.paths import write_atomic

CLONE = 0.5  # unigram recall above which a document is a copy of the article (Appendix A.2.1)
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


def recall(lead: str, document: str) -> float:
    """Which share of the lead's different words the document has."""
    wanted = set(words(lead))
    return len(wanted & set(words(document))) / max(len(wanted), 1)


def article(row: dict, most_words: int = 20_000) -> dict[str, str] | None:
    """The columns title, document and summary of one line; None where nothing but clones is left.

    A clone is a short document that repeats the lead, or a mirror of the article: one of which a part as long as three
    leads has more than half of the lead's words. (The paper holds whole documents against each section of the article,
    which the lines here do not have: a mirror that leaves out the lead is not found.)
    Raises ReproError for a line without a title or a lead.
    """
    if not row.get("title") or not row.get("lead"):
        raise ReproError(f"an article has no {'title' if not row.get('title') else 'lead'}: {str(row)[:80]}; every "
                         "line needs title, lead, citations and search.")
    kept, left = [], most_words
    for text in (*row.get("citations", ()), *row.get("search", ())):
        if left <= 0:
            break
        if not is_clone(row["lead"], text):
            kept.append(re.match(rf"(?:\s*\S+){{0,{left}}}", text)[0])
            left -= len(text.split())
    document = "\n".join(filter(str.strip, kept))
    return {"title": row["title"], "document": document, "summary": row["lead"]} if document else None


def is_clone(lead: str, document: str) -> bool:
    """Whether any stretch of three times the lead's length has more than `CLONE` of its words."""
    told, size = document.split(), 3 * max(len(lead.split()), 1)
    step = max(size // 3, 1)
    return any(recall(lead, " ".join(told[start:start + size])) > CLONE
               for start in range(0, max(len(told) - size, 0) + step, step))


def split_of(title: str) -> str:
    """The split of an article, by a hash of its title: the same whoever builds it, and however much."""
    place = int(hashlib.sha256(title.encode()).hexdigest()[:8], 16) / 16**8
    return "train" if place < SHARES["train"] else "validation" if place < 1 - SHARES["test"] else "test"


def build(source: Path, folder: Path, shard: int = 10_000, most_words: int = 20_000) -> dict[str, int]:
    """Write `folder`/SPLIT-NNNNN.parquet from a file of lines (.jsonl or .jsonl.gz): articles of each split.

    Lines are taken `shard` at a time; what such a stretch gives is written whole or not at all, and a stretch that is
    there already is not read again, so that a build that was stopped goes on. Raises ReproError for a missing file, a
    line that is no JSON, and what `article` refuses.
    """
    if not source.exists():
        raise ReproError(f"there is no {source}; name a .jsonl or .jsonl.gz file of articles.")
    counts, lines = dict.fromkeys(SHARES, 0), _lines(source)
    for number in range(10**9):
        done, taken = folder / f"stretch-{number:05d}.json", list(islice(lines, shard))
        if not taken:
            return counts
        if not done.exists():
            write_atomic(done, json.dumps(_write(taken, folder, number, most_words)))
        for split, n in json.loads(done.read_text()).items():
            counts[split] += n
    return counts


def _write(taken: list[tuple[int, str]], folder: Path, number: int, most_words: int) -> dict[str, int]:
    import io

    import pyarrow
    import pyarrow.parquet

    rows: dict[str, list] = {split: [] for split in SHARES}
    for at, line in taken:
        try:
            told = json.loads(line)
        except json.JSONDecodeError as error:
            raise ReproError(f"line {at} is no JSON ({error}); take it out.") from None
        if found := article(told, most_words):
            rows[split_of(found["title"])].append({"id": str(at)} | found)
    for split, found in rows.items():
        if found:
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(found), buffer, compression="zstd")
            write_atomic(folder / f"{split}-{number:05d}.parquet", buffer.getvalue())
    return {split: len(found) for split, found in rows.items()}


def _lines(source: Path) -> Iterator[tuple[int, str]]:
    with gzip.open(source, "rt") if source.suffix == ".gz" else source.open() as file:
        for at, line in enumerate(file, 1):
            if line.strip():
                yield at, line
