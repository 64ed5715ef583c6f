"""Fetch TriviaQA with articles of Wikipedia (69,881 questions) from the hub: python data_scripts/triviaqa.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets triviaqa/*.parquet and a manifest with their
sha256. Stopped and started again, it goes on.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["triviaqa"], __doc__)
