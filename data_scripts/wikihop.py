"""Fetch WikiHop (48,867 questions with candidates) from the hub: python data_scripts/wikihop.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets wikihop/*.parquet and a manifest with their
sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["wikihop"], __doc__)
