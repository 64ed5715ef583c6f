"""Keep the passages that committed figures show: `REPRO_DATA=… python data_scripts/excerpts.py`.

It reads the records of `small` and their corpora, checks each passage against its record, and writes
src/repro/data/excerpts.json anew. Run it when such a record is added or replaced.
"""

import json
from pathlib import Path

from repro.data import corpus
from repro.data.excerpts import digest
from repro.papers.sparse2019.pictures import drawn_text, text_notes
from repro.papers.yoshida2020.words.figure import text_of
from repro.study import Store, experiment

FILE = Path(__file__).parents[1] / "src/repro/data/excerpts.json"
NOVEL, SENTENCES = "4276_north_and_south", 7  # of LitBank: the page of chapter 20


def main() -> None:
    kept = {}
    for config in experiment("words-saved").plan("small"):
        source = corpus(config.corpus)
        for record in Store.for_scale("small").seeds(config):
            if text := text_of(record):
                kept[record.notes["sha256"]] = {"text": text, "source": record.notes["text"], "license": source.licence}
    config, notes = text_notes("small")
    kept[digest(notes["clip"][0])] = {"text": drawn_text("small"), "source": f"written by a model of {config.corpus}",
                                      "license": "MIT"}
    write_page()
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(kept)} passages, {FILE.stat().st_size:,} bytes in {FILE}")


def write_page() -> None:
    """Write the first sentences of a novel, with the mentions that lie in them."""
    source = corpus("litbank")
    row = next(row for row in source.examples("test") if row.id == NOVEL)
    n = sum(map(len, row.sentences[:SENTENCES]))
    clusters = [[mention for mention in one if mention[1] <= n] for one in row.clusters]
    kept = {"id": row.id, "license": source.licence, "sentences": row.sentences[:SENTENCES],
            "clusters": [one for one in clusters if one]}
    text = json.dumps(kept, ensure_ascii=False)
    (FILE.parent / "novel_page.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
