"""`python -m repro.batch 'repro run …' 'repro run …'`: one after the other in one process, which imports torch once.

Stops at the first that fails, with its exit status.
"""

import shlex
import sys

from repro.cli import main


def batch(commands: list[str]) -> None:
    """Run each of `commands`, shell lines that begin with `repro`. Raises SystemExit at the first that fails."""
    for command in commands:
        try:
            main(shlex.split(command)[1:])
        except SystemExit as end:
            if end.code:
                raise


if __name__ == "__main__":
    batch(sys.argv[1:])
