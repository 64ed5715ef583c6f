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
    FILE.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(kept)} passages, {FILE.stat().st_size:,} bytes in {FILE}")


if __name__ == "__main__":
    main()
