"""Fetch HotpotQA in its distractor setting (97,852 questions) from the hub: python data_scripts/hotpotqa.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets hotpotqa-full/*.parquet and a manifest with their
sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["hotpotqa"], __doc__)
