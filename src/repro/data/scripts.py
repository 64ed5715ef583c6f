"""Shared code of the scripts in data_scripts."""

import argparse
import sys
from collections.abc import Sequence

from repro.data.registry import corpus
from repro.errors import ReproError


def main(names: Sequence[str], description: str) -> None:
    """The command line of a script in data_scripts: fetch one of `names` (by default the first)."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if len(names) > 1:
        parser.add_argument("--corpus", choices=names, default=names[0])
    parser.add_argument("folder", nargs="?", metavar="FOLDER")
    arguments = parser.parse_args()
    try:
        corpus(getattr(arguments, "corpus", names[0])).fetch(arguments.folder)
    except ReproError as error:
        sys.exit(f"{parser.prog}: error: {error}")
