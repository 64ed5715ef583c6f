"""The status of every entry, as `repro list` and the downloads give it."""


from repro import paths
from repro.pages.listing import as_rows, listing
from repro.study import Record, claim, run


def test_the_listing_has_every_artifact_and_claim_at_every_scale(toy, judged):
    for index in (1, 3):
        run(toy.experiment.plan("smoke")[index], progress=False)
    listed = listing()
    assert [one["name"] for one in listed["experiments"]] == ["toy-base", "toy-recurrence"]
    rows = {(row["id"], row["scale"]): row for row in as_rows(listed)}
    assert [id for id, scale in rows if scale == "smoke"] == [  # artifacts before claims
        "toy-table10", "toy-table1", "toy-table1-other", "toy-gain", "toy-cost"]
    assert {scale for _, scale in rows} == {"smoke", "small"} and len({tuple(row) for row in rows.values()}) == 1
    # the base model was run on the way; the artifact has the verdict of the claim about Table 1, not of the other one
    assert {id: (row["verdict"], row["done"], row["planned"]) for (id, scale), row in rows.items() if scale == "smoke"
            } == {"toy-table10": ("not run", 2, 4), "toy-table1": ("reproduced", 2, 4), "toy-table1-other": ("", 1, 1),
                  "toy-gain": ("reproduced", 2, 2), "toy-cost": ("not run", 2, 4)}
    gain, told = rows["toy-gain", "smoke"], claim("toy-gain").verdict()
    assert (gain["effect"], gain["low"], gain["text"], gain["kind"]) == (told.effect, told.low, told.text, "claim")
    assert rows["toy-table1", "smoke"]["effect"] is None and rows["toy-gain", "small"]["verdict"] == "not run"


def test_everything_is_looked_at_once_when_everything_is_asked_for(toy, judged, monkeypatch):
    for config in toy.experiment.plan("smoke"):
        run(config, progress=False)
    before, read = listing(), []
    original = Record.read.__func__
    monkeypatch.setattr(Record, "read", classmethod(lambda kind, path: read.append(path) or original(kind, path)))
    assert listing() == before
    assert set(read) == set((paths.results("smoke") / "smoke").rglob("*.json"))
    assert len(read) <= 3 * len(set(read)), "listed, found by its id, and as what another stands on"
