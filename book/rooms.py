"""Draw the packages of src/repro on the design page, in the layers of the contract in pyproject.toml."""

import ast
import html
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = "<!-- rooms -->"


def filled(text: str) -> str:
    """The page with the drawing inserted."""
    before, after = text.split(PLACE)
    return before + drawing() + after


def drawing() -> str:
    """Every package in its layer, the highest first, as HTML; each box lists its modules."""
    floors = "".join(f'<div class="floor">{"".join(map(box, rooms))}</div>' for rooms in layers())
    return (f'<figure class="rooms">{floors}<figcaption>The packages of <code>src/repro</code>. Each may import '
            "only from the rows below it.</figcaption></figure>")


def layers() -> list[list[str]]:
    """The names of the packages in each layer, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [floor.replace(":", "|").split(" | ") for floor in floors]


def box(room: str) -> str:
    """One package: its name, its purpose, and the modules in it."""
    folder = ROOT / "src/repro" / room
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    inside = sorted(path.stem for path in folder.iterdir() if not path.name.startswith("_") and (
        path.suffix == ".py" or (path / "__init__.py").exists())) if folder.is_dir() else []
    listed = f'<span class="inside">{html.escape(" · ".join(inside))}</span>' if inside else ""
    return f'<div class="room"><b>{html.escape(room)}</b> <span>{html.escape(purpose(file))}</span>{listed}</div>'


def purpose(file: Path) -> str:
    """The first sentence of a module's docstring, without its markup."""
    first = ast.get_docstring(ast.parse(file.read_text())).split("\n\n")[0].replace("\n", " ")
    sentence = re.split(r"(?<! al)\. ", first)[0]
    return sentence.split(": `")[0].rstrip(".").replace("`", "").replace("*", "")
