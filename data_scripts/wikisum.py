"""Build WikiSum from gathered articles: python data_scripts/wikisum.py ARTICLES [FOLDER].

ARTICLES: a .jsonl or .jsonl.gz file, a line {"title", "lead", "citations": [text], "search": [text]} an article (see
src/repro/data/wikisum.py); some 0.7 TB for all of them. FOLDER, by default $REPRO_DATA or `data` in the project's root,
gets wikisum/*.parquet. Stopped and started again, it goes on; what it has read must still be the same.
"""

import argparse
import sys
from pathlib import Path

from repro.data import root
from repro.data.wikisum import build
from repro.errors import ReproError

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("articles", type=Path)
    parser.add_argument("folder", nargs="?", type=Path)
    told = parser.parse_args()
    try:
        counts = build(told.articles, (told.folder or root()) / "wikisum")
    except ReproError as error:
        sys.exit(f"{parser.prog}: error: {error}")
    print(", ".join(f"{n:,} {split}" for split, n in counts.items()), "articles")
