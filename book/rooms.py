"""The drawing of the rooms on the page about the design: its floors are those of the contract in pyproject.toml."""

import ast
import html
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = "<!-- rooms -->"


def filled(text: str) -> str:
    """The page with the drawing in its place."""
    before, after = text.split(PLACE)
    return before + drawing() + after


def drawing() -> str:
    """Every room on its floor, the highest first, as HTML; those of `papers` and `study` stand inside it."""
    floors = "".join(f'<div class="floor">{"".join(map(box, rooms))}</div>' for rooms in layers())
    return (f'<figure class="rooms">{floors}<figcaption>The rooms of <code>src/repro</code>. A room may import those '
            "on the floors below it, and no other.</figcaption></figure>")


def layers() -> list[list[str]]:
    """The names of the rooms on each floor, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [floor.replace(":", "|").split(" | ") for floor in floors]


def box(room: str) -> str:
    """One room: its name, what it is for, and for a folder the modules in it."""
    folder = ROOT / "src/repro" / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    inside = sorted(path.stem for path in folder.iterdir() if not path.name.startswith("_") and (
        path.suffix == ".py" or (path / "__init__.py").exists())) if folder.is_dir() else []
    listed = f'<span class="inside">{html.escape(" · ".join(inside))}</span>' if inside else ""
    return f'<div class="room"><b>{html.escape(room)}</b> <span>{html.escape(purpose(file))}</span>{listed}</div>'


def purpose(file: Path) -> str:
    """The first sentence of a module's docstring, without its marks."""
    first = ast.get_docstring(ast.parse(file.read_text())).split("\n\n")[0].replace("\n", " ")
    sentence = re.split(r"(?<! al)\. ", first)[0]
    return sentence.split(": `")[0].rstrip(".").replace("`", "").replace("*", "")
