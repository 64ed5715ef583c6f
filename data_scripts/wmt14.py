"""Fetch the development and test sentences of WMT-14 from the hub: python data_scripts/wmt14.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets wmt14/*.parquet, which are read in both directions,
and a manifest with their sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["wmt14-en-fr"], __doc__)
