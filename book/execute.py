"""Execute a chapter and write it with its outputs: python book/execute.py notebooks/NAME.ipynb TARGET SCALE."""

import re
import sys

import nbformat
import papermill

from repro.paths import write_atomic


def execute(source: str, target: str, scale: str) -> None:
    """Exits with the chapter, the cell and one line if the library raises an error for a cell."""
    try:
        notebook = papermill.execute_notebook(
            source, None, {"scale": scale}, kernel_name="python3", cwd="notebooks", progress_bar=False,
            extra_arguments=["--log-level=CRITICAL"],
        )
    except papermill.PapermillExecutionError as error:
        if error.ename != "ReproError":
            raise
        sys.exit(f"{source}, cell [{error.exec_count}]: {error.evalue}")
    write_atomic(target, nbformat.writes(tidy(notebook, scale)))


def tidy(notebook: nbformat.NotebookNode, scale: str) -> nbformat.NotebookNode:
    """Drop papermill's injected cell, times, paths, widgets and addresses of objects; the `parameters` cell shows the
    scale that ran."""
    tags = {cell.id: cell.metadata.get("tags", []) for cell in notebook.cells}
    notebook.cells = [cell for cell in notebook.cells if "injected-parameters" not in tags[cell.id]]
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = number
        cell.outputs = joined(cell.outputs)
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
            data = output.get("data", {})
            data.pop("application/vnd.jupyter.widget-view+json", None)
            if len(data) > 1 and data.get("text/plain", "").startswith("<"):
                del data["text/plain"]  # the name of a class, and an address that is another in every run
    for cell in notebook.cells:
        kept = {"tags": tags[cell.id], "mystnb": cell.metadata.get("mystnb")}  # the latter: what a fold is called
        cell.metadata = nbformat.from_dict({name: value for name, value in kept.items() if value})
        if "parameters" in tags[cell.id]:
            cell.source = re.sub(r'^scale = "\w+"', f'scale = "{scale}"', cell.source, flags=re.MULTILINE)
    notebook.metadata = nbformat.from_dict({"kernelspec": notebook.metadata.kernelspec})
    return notebook


def joined(outputs: list) -> list:
    """Outputs in which what was printed in one go is one output, however many pieces it arrived in, and none is empty,
    as the line of a progress bar is when its work is done."""
    found = []
    for output in outputs:
        if list(output.get("data", {})) == ["text/plain"] and not output.data["text/plain"].strip():
            continue
        if output.output_type == "stream" and found and found[-1].get("name") == output.name:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


if __name__ == "__main__":
    execute(*sys.argv[1:])
