"""Short passages that committed figures show, stored in the package so that pages need no corpora.

`data_scripts/excerpts.py` takes them from the corpora. Each is looked up by its digest, so they cannot be mixed up.
"""

import hashlib
import json
from importlib.resources import files

from repro.data.examples import Coreference


def digest(text: str) -> str:
    """sha256 (hex) of a text.

    >>> digest("ran")[:8]
    'c8fc6bf2'
    """
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def excerpt(key: str) -> str | None:
    """The passage kept under this key, the digest of what a record says of it; None if there is none.

    >>> excerpt("no digest") is None
    True
    """
    found = excerpts().get(key)
    return found["text"] if found else None


def excerpts() -> dict[str, dict[str, str]]:
    """All passages by key: `text`, `source` and `license`.

    >>> sorted(next(iter(excerpts().values())))
    ['license', 'source', 'text']
    """
    return json.loads((files("repro.data") / "excerpts.json").read_text(encoding="utf-8"))


def novel_page() -> Coreference:
    """The beginning of *North and South* (Gaskell 1855) with its mentions as LitBank annotates them (CC BY 4.0).

    >>> novel_page().clusters[0][0]
    (22, 23)
    """
    found = json.loads((files("repro.data") / "novel_page.json").read_text(encoding="utf-8"))
    return Coreference(found["id"], *(tuple(tuple(map(tuple, one)) if name == "clusters" else tuple(one) for one in
                                            found[name]) for name in ("sentences", "clusters")))
