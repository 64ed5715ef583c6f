"""How to cite the book, from CITATION.cff."""

from pathlib import Path

import landing
import yaml

ROOT = Path(__file__).parents[1]
PLACE = "<!-- cite -->"


def filled(text: str) -> str:
    """The page of references with the text from CITATION.cff inserted."""
    before, after = text.split(PLACE)
    return before + citation() + after


def citation() -> str:
    """The request for a citation, and an entry for a list of references (Markdown)."""
    known = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    return (f"{known['message']}\n\n```bibtex\n{entry(known)}\n```\n\n"
            "`CITATION.cff` in the repository root is the machine-readable version.")


def entry(known: dict) -> str:
    """The BibTeX entry of the book, with its URL if it has a public one."""
    authors = " and ".join(f"{{{one['name']}}}" if "name" in one else f"{one['family-names']}, {one['given-names']}"
                           for one in known["authors"])
    fields = {"author": authors, "title": f"{{{known['title']}}}", "version": known["version"],
              "license": known["license"], "url": landing.site() or landing.repository()}
    lines = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items() if value)
    return f"@software{{repro,\n{lines}}}"
