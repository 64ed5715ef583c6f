"""The modules of `repro.data`: no circle among them, and nothing heavy loaded with them."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import repro.data


def imported(path, names):
    """The modules of the room that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "repro.data":
            found |= {alias.name for alias in node.names} & names
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("repro.data."):
            found.add(node.module.removeprefix("repro.data."))
    return found


def test_no_module_leads_back_to_itself():
    files = {path.stem: path for path in Path(repro.data.__file__).parent.glob("*.py") if path.stem != "__init__"}
    graph = {name: imported(path, set(files)) for name, path in files.items()}
    assert {"base", "readers"} <= graph["registry"] and "fetch" in graph["base"]
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_importing_it_loads_nothing_heavy():
    code = ("import sys, repro.data; found = {'torch', 'pandas', 'datasets', 'pyarrow', 'transformers', 'tokenizers'};"
            "print(sorted(found & set(sys.modules)))")
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
