"""Fetch text8 (100,000,000 letters a to z and blanks, from the same dump): python data_scripts/text8.py [FOLDER].

FOLDER, by default $REPRO_DATA or `data` in the project's root, gets text8/text8, held against the md5 that its author
publishes, and a manifest. Stopped and started again, it goes on. The splits are the first 90 million bytes, the next 5
and the last 5. With --corpus text8-prefix only the first 6,877,825 bytes are kept, cut into 90, 5 and 5 per cent.
"""

from repro.data.scripts import main

if __name__ == "__main__":
    main(["text8", "text8-prefix"], __doc__)
