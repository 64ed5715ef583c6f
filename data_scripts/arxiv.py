"""Fetch arXiv's papers with their abstracts from the hub: python data_scripts/arxiv.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets arxiv/*.parquet and a manifest with their sha256.
Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["arxiv"], __doc__)
