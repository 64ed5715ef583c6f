"""The corpora that committed records were made from are still the corpora of these names."""

import json
import os

import pytest

from repro import paths
from repro.data import corpora, corpus


def committed():
    """Corpus name -> the fingerprints that the committed records tell for it."""
    found = {}
    for path in paths.results("small").glob("*/*/*.json"):
        told = json.loads(path.read_text())
        if isinstance(told, dict) and "data" in told:
            data = told["data"]
            for name, fingerprint in [(data["name"], data["fingerprint"]), *(data.get("reads") or {}).items()]:
                found.setdefault(name, set()).add(fingerprint)
    return found


def test_the_embedded_books_are_those_of_the_records():
    assert committed()["synthetic-books"] == {corpus("synthetic-books").fingerprint()}


@pytest.mark.skipif("REPRO_DATA" not in os.environ, reason="needs the real corpora: REPRO_DATA is not set")
def test_every_available_corpus_has_the_fingerprint_of_its_records():
    here = {one.name: {one.fingerprint()} for one in corpora() if one.available()}
    told = {name: fingerprints for name, fingerprints in committed().items() if name in here}
    assert {"wikitext-103", "pg19-subset", "gutenberg-pretrain", "text8-prefix", "enwik8-prefix"} <= told.keys()
    assert told == {name: here[name] for name in told}
