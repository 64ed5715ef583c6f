"""Fetch the large tasks of GPT from the hub: python data_scripts/gpt1_tasks.py [--corpus NAME] [FOLDER].

MultiNLI, QNLI, QQP, SNLI and SciTail. FOLDER, by default $REPRO_DATA or `data` in the project's root, gets
NAME/*.parquet and a manifest with their sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["multinli", "qnli", "qqp", "snli", "scitail"], __doc__)
