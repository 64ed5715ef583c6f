"""Fetch WikiText-103 (raw) from the hub: python data_scripts/wikitext103.py [--corpus NAME] [FOLDER].

NAME is wikitext-103-full (all of it: 540 MB of text) or wikitext-103 (its training text cut to WikiText-2's, which the
study uses at its smaller scales). FOLDER, by default $REPRO_DATA or `data` in the project's root, gets
wikitext-103-full/ or wikitext/ with wiki.{valid,test}.raw.xz, the training text as parquet and a manifest with their
sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["wikitext-103-full", "wikitext-103"], __doc__)
