"""The table of a chapter's claims, and what a cell looks up."""

from types import SimpleNamespace

import pytest
from bs4 import BeautifulSoup

from repro.errors import ReproError
from repro.pages import in_short, verdict_of, verdict_table
from repro.pages.verdicts import LOOKS
from repro.study import Artifact, Verdict, artifact, claim, register, run, runs


def test_verdicts_stand_in_a_table_scale_by_scale(toy, judged):
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    shown = verdict_table("smoke")
    found = shown.frame
    assert found[["claim", "scale", "verdict"]].to_numpy().tolist() == [
        ["Recurrence lowers perplexity.", "small", "not run"], ["Recurrence is free.", "small", "not run"],
        ["Recurrence lowers perplexity.", "smoke", "reproduced"], ["Recurrence is free.", "smoke", "not run"]]
    rows = BeautifulSoup(shown._repr_html_(), "html.parser").select("tbody tr")
    assert [row.get("id") for row in rows] == ["toy-gain", "toy-cost", None, None]  # a link leads to the first
    assert found["effect"][2] == claim("toy-gain").verdict().text
    assert list(found.columns) == ["claim", "scale", "verdict", "effect", "the paper's", "seeds x units", "detectable",
                                   "room"]
    assert found.loc[2, "the paper's":].tolist() == ["–", "1 x 3 books", "0.162", "–"]
    assert found.loc[3, "the paper's":].tolist() == ["–", "–", "–", "–"]
    assert verdict_table("smoke", "10_toy").frame["claim"].tolist() == 2 * ["Recurrence is free."]
    assert verdict_table("small", "06_toy").frame["scale"].tolist() == ["small"]
    with pytest.raises(ReproError, match="unknown chapter with claims '6_toy'. Did you mean '06_toy'?"):
        verdict_table("smoke", "6_toy")


@pytest.mark.parametrize("cell", [lambda: in_short("toy", "why?", "so", also=["toy-gain"]),
                                  lambda: verdict_table("small"), lambda: claim("toy-gain").verdict("small"),
                                  lambda: artifact("toy-read").render("small")])
def test_a_cell_asks_once_for_the_files_of_a_corpus(toy, judged, monkeypatch, cell):
    for index in (1, 3):
        run(toy.experiment.plan("small")[index], progress=False)
    register(Artifact("toy-read", "toy2020", "Table", "06_toy", "toy-recurrence",
                      lambda context: context.records() + context.records() and None, "Table 1"))
    asked, named = [], runs.corpus_named

    def counted(name):
        found = named(name)
        return SimpleNamespace(fingerprint=found.fingerprint, available=lambda: asked.append(name) or found.available())

    monkeypatch.setattr(runs, "corpus_named", counted)
    cell()
    assert asked and len(asked) == len(set(asked)), asked


def test_a_sentence_gets_the_verdict_of_a_claim_by_its_id(toy, judged):
    assert verdict_of("toy-gain").commands == ("repro run toy-recurrence --scale small",)
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    assert verdict_of("toy-gain", "smoke") == claim("toy-gain").verdict("smoke")
    with pytest.raises(ReproError, match="unknown claim 'toy-gane'. Did you mean 'toy-gain'?"):
        verdict_of("toy-gane")


def test_every_verdict_has_its_own_look():
    marks = [look.mark for look in LOOKS.values()]
    assert len(set(marks)) == len(LOOKS) and set(LOOKS) == set(Verdict.__dataclass_fields__["verdict"].type.__args__)
    assert all(look.color.startswith("#") for look in LOOKS.values())
