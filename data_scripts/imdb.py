"""Fetch IMDB's 50,000 labelled reviews from the hub: python data_scripts/imdb.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets imdb-full/*.parquet and a manifest with their
sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["imdb"], __doc__)
