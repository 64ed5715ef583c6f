"""Chapters that run at Colab: python book/colab.py FOLDER writes them there, each with a first cell that fetches the
repository, installs it and goes where chapters run. Publishing keeps them on the branch `colab`, which the buttons
of the pages open; the chapters of the main branch know nothing of it."""

import sys
from pathlib import Path

import landing
import nbformat

ROOT = Path(__file__).parents[1]
CELL = '''\
import os, subprocess, sys

if "google.colab" in sys.modules:  # a fresh machine: some minutes, once
    home, book = "{home}", "{address}"
    if not os.path.exists(home):
        clone = ["git", "clone", "-q", "--depth=1", book, home]
        subprocess.run(clone, check=True)
        pip = [sys.executable, "-m", "pip", "install", "-q"]
        what = ["-c", "constraints.txt", "-e", ".[study,webtext,bench]"]
        subprocess.run(pip + what, cwd=home, check=True)
    sys.path.insert(0, home + "/src")
    os.environ["REPRO_HOME"] = home
    os.chdir(home + "/notebooks")
'''


def write(folder: str | Path, address: str, home: str = "/content/repro") -> None:
    """Put every chapter with its set-up cell into `folder`. address: of the repository. home: where it is cloned to."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for file in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        notebook = nbformat.read(file, as_version=4)
        first = nbformat.v4.new_code_cell(CELL.format(address=address, home=home), id="set-up",
                                          metadata={"tags": ["set-up"]})
        notebook.cells.insert(1, first)  # after the title
        nbformat.write(notebook, Path(folder) / file.name)


if __name__ == "__main__":
    if not landing.repository():
        sys.exit("There is no public repository that Colab could fetch: set the remote `origin`.")
    write(sys.argv[1], landing.repository())
