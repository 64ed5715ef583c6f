"""Fetch enwik8 (100,000,000 bytes of an English Wikipedia dump of 2006): python data_scripts/enwik8.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets enwik8/enwik8, held against the md5 that its author
publishes, and a manifest. Stopped and started again, it goes on. The splits are the first 90 million bytes, the next 5
and the last 5. With --corpus enwik8-prefix only the first 4,154,399 bytes are kept, cut into 90, 5 and 5 per cent.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["enwik8", "enwik8-prefix"], __doc__)
