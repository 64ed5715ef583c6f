"""Verdicts on what is propagated, their control, and the tables, from records written by hand."""

import re
from types import SimpleNamespace

import pandas
import pytest

from repro.papers.yoshida2020.claims.propagation import by_book
from repro.papers.yoshida2020.propagation import tables as propagation_tables
from repro.papers.yoshida2020.propagation.tables import (
    by_distance,
    consistency,
    controls,
    distance_names,
    divergences,
    known_gain,
    marked,
    mean,
    reach,
    reach_by_reader,
    reach_curves,
    side_by_side,
)
from repro.study import artifact, claim

BOOKS = [0, 0, 0, 2, 2, 2, 2, 3, 3, 3]  # book 1 was too short
WAVES = [0.01, -0.02, 0.03, 0.0, 0.02, -0.01, 0.01, -0.03, 0.02, -0.01]


def jsd(level):
    """Ten divergences around `level`; the same wave for everyone, so paired differences are exact."""
    return [level + wave for wave in WAVES]


def record(recurrent=(0.2, 0.5), baseline=(0.4, 0.5), **changes):
    documents = {"contexts": {"book": BOOKS}}
    for writer, (own, other) in {"recurrent": recurrent, "baseline": baseline, "masked": (0.4, 0.5),
                                 "book": (0.1, 0.6)}.items():
        documents[writer] = {"jsd own": jsd(own), "jsd other": jsd(other)}
    values = {"id": "a", "scale": "smoke", "seed": 0, "data": {"name": "toy", "part_of": None},
              "config": {"continuation": 30, "topics": 20},
              "notes": {"topic_books": 7, "without_topic_words": {"recurrent": 1, "baseline": 3}}}
    return SimpleNamespace(documents=documents, **values | changes)


def test_a_mean_is_over_contexts_and_its_interval_over_books():
    values = [1, 1, 1, 2, 2, 2, 2, 6, 6, 6]
    found = mean([record()], lambda documents: values)
    assert found.value == pytest.approx(29 / 10)
    assert (found.low, found.high) == pytest.approx((1, 6))  # every book drawn three times is one of the resamples
    assert mean([record()], lambda documents: values, lambda documents: [2] * 10).value == pytest.approx(1.45)


def test_seeds_are_put_together_by_book():
    found = mean([record(), record()], lambda documents: documents["recurrent"]["jsd own"])
    assert found == mean([record()], lambda documents: documents["recurrent"]["jsd own"])


def over_seeds(make, *values):
    return [make(*values, seed=seed) for seed in range(3)]


@pytest.mark.parametrize(("recurrent", "baseline", "verdict"), [
    ((0.2, 0.5), (0.4, 0.5), "reproduced"),
    ((0.35, 0.49), (0.4, 0.5), "reproduced"),  # a fiftieth of it is there against other books, too
    ((0.2, 0.25), (0.4, 0.5), "not reproduced"),  # all of it: the text is closer to anything
    ((0.2, 0.2), (0.4, 0.5), "not reproduced"),
    ((0.45, 0.5), (0.4, 0.5), "not reproduced"),
    ((0.4, 0.5), (0.4, 0.5), "not testable here"),  # no difference in any book
])
def test_a_lower_divergence_counts_if_it_goes_in_other_contexts(recurrent, baseline, verdict):
    judged = claim("yoshida2020-topic-jsd-lower").judge(over_seeds(record, recurrent, baseline))
    assert judged.verdict == verdict
    assert judged.effect == pytest.approx(recurrent[0] / baseline[0] - 1, abs=0.01)
    assert judged.control == pytest.approx(recurrent[1] / baseline[1] - 1, abs=0.01)
    assert judged.paper_effect == pytest.approx(0.5331 / 0.5951 - 1)


def with_shares(own, other, seed=0):
    """A record in which the recurrent continuation is the closer one as often as `own` and `other` say, per context."""
    made = record((0.2, 0.5), (0.2, 0.5), seed=seed)
    for against, closer in (("own", own), ("other", other)):
        made.documents["recurrent"][f"jsd {against}"] = [
            value - (0.3 if against == "own" else 0.1) * (2 * one - 1)
            for value, one in zip(made.documents["baseline"][f"jsd {against}"], closer, strict=True)]
    return made


ALL, NONE, HALF = [1] * 10, [0] * 10, [0.5] * 10
MOST = [1, 1, 0, 1, 1, 1, 0, 1, 1, 0]  # 2/3, 3/4 and 2/3 of the contexts of the books


@pytest.mark.parametrize(("own", "other", "verdict", "share"), [
    (ALL, NONE, "reproduced", 1), (MOST, HALF, "reproduced", 0.7), (MOST, ALL, "not reproduced", 0.7),
    (MOST, MOST, "not reproduced", 0.7), (HALF, NONE, "not testable here", 0.5), (NONE, NONE, "not reproduced", 0)])
def test_the_share_counts_ties_half_and_needs_the_control(own, other, verdict, share):
    judged = claim("yoshida2020-topic-jsd-share").judge(over_seeds(with_shares, own, other))
    assert judged.verdict == verdict
    assert (judged.effect, judged.null, judged.paper_effect) == (pytest.approx(share), 0.5, 0.6)
    assert judged.text.startswith(f"{share:.3g}")


def test_the_true_text_says_how_much_closer_a_continuation_can_be():
    found = claim("yoshida2020-topic-jsd-lower").judge([record()], [record()])
    assert found.room == pytest.approx(1 - 0.102 / 0.402), "the book's own continuation against the baseline's"
    assert claim("yoshida2020-topic-jsd-share").judge([record()], [record()]).room == pytest.approx(0.5)


@pytest.mark.parametrize("what", ["pronouns", "names"])
def test_what_fits_is_counted_by_book(what):
    made = record()
    for writer, own in (("recurrent", [[3, 4], [1, 1], [0, 0]]), ("baseline", [[1, 2], [0, 2], [0, 0]]),
                        ("book", [[2, 2], [1, 1], [4, 4]])):
        made.documents[writer] |= {f"{what} own": own, f"{what} other": [[1, 2], [1, 2], [0, 0]]}
    found = claim(f"yoshida2020-{what}").judge([made], [made])
    assert found.effect == pytest.approx((3 + 2) / 10) and found.n_units == 3
    assert (found.control, found.room) == (0, pytest.approx((7 + 2) / 10))


def test_effects_are_by_book():
    values = [1, 1, 1, 2, 2, 2, 2, 6, 6, 6]
    found = by_book([record(), record()], lambda documents: values)
    assert found.shape == (2, 3) and found.mean() == pytest.approx(29 / 10)


class Shown:
    """An ArtifactContext with records given by scale."""

    def __init__(self, **records):
        self.scales, self.given = tuple(records), records

    def records(self, scale=None):
        return self.given[scale or self.scales[0]]


def column(frame, name, where):
    return dict(zip(frame[where], frame[name], strict=True))


def test_the_papers_numbers_stand_beside_ours():
    found = divergences(Shown(smoke=[record()], small=[]))
    paper, smoke, small = (column(found, name, "what") for name in found.columns[1:][[0, 2, 1]])
    assert (paper["mean JSD, recurrent"], paper["mean JSD, baseline"]) == ("0.5331", "0.5951")
    assert paper["recurrent / baseline"] == "0.896" and paper["recurrent closer, ties half"] == "at least 60%"
    assert paper["sign test, two-sided p"] == "< 0.00001" and paper["contexts"] == "8000"
    assert (paper["topics"], paper["books behind the topics"]) == ("20", "5000")
    assert paper["tokens of a continuation"] == "30"
    assert smoke["mean JSD, recurrent"].startswith("0.2020 [") and smoke["mean JSD, baseline"].startswith("0.4020 [")
    assert smoke["recurrent / baseline"].startswith("0.502 [")
    assert smoke["recurrent closer, ties half"].startswith("100.0%") and smoke["tied"] == "0.0%"
    assert smoke["sign test, two-sided p"] == f"{2 / 2**10:.2g}"
    assert smoke["recurrent without topic words"] == "10.0%" and smoke["baseline without topic words"] == "30.0%"
    assert (smoke["contexts"], smoke["books behind the topics"]) == ("10", "7")
    assert set(small.values()) == {"not run"}


def test_controls_show_own_and_other_contexts_and_what_lies_between():
    found = controls(Shown(smoke=[record()], small=[]))
    own, other, between = (column(found, f"smoke: {name}", "continued by")["recurrent"]
                           for name in ("own context", "other book's", "difference"))
    assert own.startswith("0.202") and other.startswith("0.502") and between == "-0.300 [-0.300, -0.300]"
    assert set(found["small: difference"]) == {"not run"}


def test_rates_are_kept_of_all_and_none_is_none():
    made = record()
    for writer in propagation_tables.WRITERS:
        made.documents[writer] |= {f"{what} {against}": [[0, 0]] * 3 for what in ("names", "pronouns")
                                   for against in ("own", "other")}
    made.documents["recurrent"] |= {"names own": [[2, 4], [1, 1], [0, 3]], "names other": [[0, 4], [1, 1], [0, 3]]}
    found = consistency(Shown(smoke=[made])).set_index(["what", "continued by"])
    row = found.loc["names", "recurrent"]
    assert row["smoke: own context"].startswith("37.5% [") and row["smoke: other book's"].startswith("12.5% [")
    assert row["smoke: n"] == "8"
    assert found.loc["pronouns", "recurrent"].tolist() == ["–", "–", "0"]


def test_the_known_gain_is_told_apart_by_what_carries_it():
    nll = {"window": (10, 20, 30), "unlimited": (6, 10, 20), "baseline": (12, 21, 33), "recurrent": (10, 21, 28),
           "masked": (14, 20, 33)}
    made = record()
    made.documents["known_gain"] = {reader: {"topic": [a, a], "name": [b, b], "pronoun": [c, c], "other": [9, 9]}
                                    for reader, (a, b, c) in nll.items()}
    found = known_gain(Shown(smoke=[made], small=[], medium=[record()])).set_index("carried by")
    assert found["smoke: possible, nats"].to_dict() == {"topic words": "8", "names": "20", "pronouns": "20",
                                                        "all three": "48"}
    # against the better of the baseline and the masked module: of names that is the second
    recovered = {"topic words": 2 / 4, "names": -1 / 10, "pronouns": 5 / 10, "all three": 7 / 24}
    module = {"topic words": 4 / 4, "names": -1 / 10, "pronouns": 5 / 10, "all three": 8 / 24}
    for name, expected in (("recovered", recovered), ("by the module", module)):
        assert {key: cell.split(" ")[0] for key, cell in found[f"smoke: {name}"].items()} == {
            key: f"{share:.1%}" for key, share in expected.items()}
    assert set(found["small: recovered"]) == {"not run"} and set(found["medium: recovered"]) == {"–"}


def test_reach_is_a_mean_over_texts_and_zero_is_zero():
    made = record()
    made.documents["reach"] = {"book": [0, 0, 2]} | {
        f"{reader} {kind}": rows for reader, rows in (("baseline", [[0, 0, 0], [0, 0, 0]]),
                                                      ("overlap", [[3, 3, 3], [0, 0, 0]]),
                                                      ("recurrent", [[1, 2, 6], [0.5, 0.5, 0.5]]))
        for kind in ("absolute", "signed")}
    curves = reach_curves([made])
    assert [point.value for point in curves["recurrent absolute"]] == [3, 0.5]
    assert curves["recurrent absolute"][0][1:] == (1.5, 6)  # both books are drawn, or one of them twice
    named = reach_by_reader([made])
    assert list(named) == ["baseline", "baseline with overlap", "recurrent"]
    assert named["recurrent"] == curves["recurrent absolute"] and reach_by_reader([]) == {}
    found = reach(Shown(smoke=[made], small=[])).set_index(["read by", "windows back"])
    shown = found["smoke: mean |change|"]
    assert shown["baseline"].tolist() == ["0", "0"] and shown["baseline with overlap"].tolist() == ["3 [3, 3]", "0"]
    assert shown["recurrent"].tolist() == ["3 [1.5, 6]", "0.5 [0.5, 0.5]"]
    assert set(found["small: mean change"]) == {"not run"}


def test_records_without_reach_show_a_dash_not_a_missing_run():
    assert reach_by_reader([record()]) == reach_by_reader([record()], "distance") == {}
    assert distance_names([record()]) == []
    assert set(reach(Shown(smoke=[record()]))["smoke: mean change"]) == {"–"}
    assert by_distance(Shown(smoke=[record()])).iloc[0].tolist() == ["smoke"] + ["–"] * 4


def test_distance_keeps_the_bins_of_each_scale_apart():
    def made(bins, *levels):
        rows = [[level] * 3 for level in levels]
        found = record()
        found.documents["distance"] = {"book": [0, 1, 2], "tokens back": bins} | {
            f"{reader} {kind}": rows for reader in ("baseline", "overlap", "recurrent")
            for kind in ("absolute", "signed")}
        return found

    found = by_distance(Shown(smoke=[made([[1, 1], [2, 2]], 0.5, 0)], small=[made([[1, 1], [2, 3], [4, 4]], 4, 2, 1)]))
    found = found.set_index(["scale", "tokens back"])
    assert sorted(found.index) == [("small", "1"), ("small", "2–3"), ("small", "4"), ("smoke", "1"), ("smoke", "2")]
    assert found["recurrent"].loc["smoke"].to_dict() == {"1": "0.5 [0.5, 0.5]", "2": "0"}
    assert found["baseline with overlap"].loc[("small", "2–3")] == "2 [2, 2]"
    found = by_distance(Shown(smoke=[], small=[])).set_index("scale")
    assert found.loc["small"].tolist() == ["not run"] * 4


EXAMPLE = {"context": "Robin & the <b>old</b> sail. She saw Alex", "first": " <she>", "names": ["Alex", "Robin", "Sam"],
           "topic_words": ["sail"], "continuations": {"baseline": "Sam's sail < his", "recurrent": "Robin_",
                                                      "book": "He sailed"}}


def test_words_are_marked_and_text_is_escaped():
    found = marked("a <i> & sail's sail_", {"sail": "b", "i": "u"})
    assert found == "a &lt;<u>i</u>&gt; &amp; <b>sail</b>&#x27;s sail_"
    page = side_by_side([EXAMPLE], "smoke: a & b.\nrun")
    for cell in ("… <i>Robin</i> &amp; the &lt;b&gt;old&lt;/b&gt; <b>sail</b>. <u>She</u> saw <i>Alex</i> "
                 "<mark>&lt;she&gt;</mark>", "Sam&#x27;s <b>sail</b> &lt; <u>his</u>", "Robin_", "<u>He</u> sailed"):
        assert f">{cell}</td>" in page
    assert page.count("<tr") == 2 and page.count("<th>") == page.count("<td ") == 4
    assert re.findall("<th>(.*?)</th>", page) == re.findall('data-head="(.*?)"', page)  # a phone shows these
    assert page.endswith("a gender</div><div>smoke: a &amp; b.</div><div>run</div></figcaption></figure>")
    assert "… <i>Alex</i> <mark>" in side_by_side([EXAMPLE], last_words=1)


def test_texts_are_shown_in_the_terminal_too():
    found = propagation_tables.texts_beside(Shown(smoke=[record(notes={"examples": [EXAMPLE] * 2})]))
    assert list(found.columns) == ["context ends", "given", "baseline", "recurrent", "the book itself"]
    assert found["context ends"][1] == "… " + EXAMPLE["context"] and found["the book itself"][0] == "He sailed"


@pytest.mark.parametrize("name", ["topic-jsd", "topic-controls", "continuations", "consistency", "known-gain", "reach",
                                  "distance"])
def test_every_table_shows_that_nothing_was_run(name, tmp_path):
    rendered = artifact(f"yoshida2020-{name}").render("smoke", results=tmp_path)
    assert isinstance(rendered.content, pandas.DataFrame) and len(rendered.content)
    assert "not run" in rendered.content.astype(str).to_string()
    assert "repro run propagation-pg19 --scale smoke" in rendered.caption
