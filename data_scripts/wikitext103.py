"""Fetch WikiText-103 (raw, all of it: 540 MB of text) from the hub: python data_scripts/wikitext103.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets wikitext/wiki.{valid,test}.raw.xz,
wikitext/wikitext-103.train-*-of-19.parquet and a manifest with their sha256. Stopped and started again, it goes on.
"""

from repro.data.fetch import main

if __name__ == "__main__":
    main(["wikitext-103"], __doc__)
