"""Compare executed chapters with the outputs stored in notebooks/: python book/compare.py build/chapters/smoke/*.ipynb.

`make check` calls it after the chapters ran for the book, so that nothing runs twice. Like
`pytest --nbval-lax`, it compares the cells tagged `nbval-check-output`, except images, after applying `sanitize.cfg`.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[1]
SANITIZE = ROOT / "tests" / "notebooks" / "sanitize.cfg"
COMMENT = re.compile(r"^\s*#+\s*NBVAL_CHECK_OUTPUT\s*$", re.MULTILINE)
LEFT_OUT = {"data", "metadata", "traceback", "prompt_number", "output_type", "name", "execution_count", "image/png",
            "image/jpeg", "application/vnd.jupyter.widget-view+json"}


def checked(cell: nbformat.NotebookNode) -> bool:
    """Whether the output of a cell must match the stored one."""
    return cell.cell_type == "code" and ("nbval-check-output" in cell.metadata.get("tags", [])
                                         or COMMENT.search(cell.source) is not None)


def patterns(text: str) -> list[tuple[str, str]]:
    """The (regex, replacement) pairs of a file such as `sanitize.cfg`."""
    return re.findall(r"^regex: (.*)$\n^replace: (.*)$", text, re.MULTILINE)


def fields(outputs: list, sanitize: list[tuple[str, str]]) -> dict[str, list]:
    """The compared parts of a cell's outputs: the text of each stream, and the values of each MIME type in order."""
    streams, found = defaultdict(str), defaultdict(list)
    for output in outputs:
        if output["output_type"] == "stream":
            streams[output["name"]] += output["text"]
            continue
        for name, value in {**output, **output.get("data", {})}.items():
            if name not in LEFT_OUT:
                found[name].append(value)
    for name, text in streams.items():
        found[name].append(re.sub(r"^.*\r(?=[^\n])", "", text, flags=re.MULTILINE))  # the last state of a progress bar
    for regex, replacement in sanitize:
        found = {name: [re.sub(regex, replacement, value) if isinstance(value, str) else value for value in values]
                 for name, values in found.items()}
    return dict(found)


def differences(executed: nbformat.NotebookNode, stored: nbformat.NotebookNode,
                sanitize: list[tuple[str, str]]) -> list[str]:
    """One line for each checked cell whose output differs from the stored one; or one line if the cells differ."""
    if [cell.source for cell in executed.cells] != [cell.source for cell in stored.cells]:
        return ["its cells are not those that were executed. Run `make check` again"]
    found = []
    for number, (one, other) in enumerate(zip(executed.cells, stored.cells, strict=True)):
        if checked(other):
            now, before = fields(one.outputs, sanitize), fields(other.outputs, sanitize)
            found += [f"cell {number}: {name} is {now.get(name)}; stored is {before.get(name)}"
                      for name in sorted(now.keys() | before.keys()) if now.get(name) != before.get(name)]
    return found


def main(executed: list[str], notebooks: Path = ROOT / "notebooks") -> None:
    """Compare each executed chapter with the stored chapter of the same name. Exits with 1 if an output differs."""
    sanitize, found, n = patterns(SANITIZE.read_text()), [], 0
    for path in map(Path, executed):
        stored = nbformat.read(notebooks / path.name, 4)
        n += sum(map(checked, stored.cells))
        found += [f"{path.stem}: {line}" for line in differences(nbformat.read(path, 4), stored, sanitize)]
    if found:
        sys.exit("\n".join([*found, f"{len(found)} outputs differ. If they should, store them with `make notebooks`."]))
    print(f"{len(executed)} chapters, {n} outputs compared: equal to the stored ones")


if __name__ == "__main__":
    main(sys.argv[1:])
