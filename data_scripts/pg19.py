"""Fetch PG-19 from the hub: python data_scripts/pg19.py [--corpus NAME] [FOLDER].

NAME is pg19 (all of it: 28,752 books, 11 GB of text), pg19-subset or gutenberg-pretrain (the books the study uses at
its smaller scales; the whole of PG-19 is read to find them). FOLDER, by default $REPRO_DATA or `data` in the project's
root, gets NAME/*.parquet and a manifest with their sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["pg19", "pg19-subset", "gutenberg-pretrain"], __doc__)
