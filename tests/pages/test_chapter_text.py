"""What a chapter says out of records."""

import re
from itertools import combinations
from math import log
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.errors import ReproError
from repro.markup import written
from repro.pages import InShort, Sentence, badge, effect_on, in_short, metric, sentence
from repro.pages.chapter_text import SHOWN
from repro.pages.verdicts import LOOKS, css_class
from repro.study import Artifact, Claim, Measured, Verdict, claim, register, run
from repro.study.artifacts import ADDED

RUN = "repro run toy-recurrence --scale smoke --set model=recurrent --set overlap=5"
CSS = (Path(__file__).parents[2] / "book/_static/book.css").read_text()


def measure(records):
    by_model = {record.model: record.metrics["test_word_perplexity"] for record in records}
    effect = log(by_model["recurrent"] / by_model["baseline"])
    return Measured([[effect - 0.01, effect + 0.01, effect]])


DECLARED = {"paper": "toy2020", "experiment": "toy-recurrence", "measure": measure, "direction": "lower",
            "unit": "book", "relative": True, "same_weights": True, "means_at": ("smoke", "small"),
            "why_no_paper_effect": "a toy", "why_no_control": "a toy", "why_no_assay": "a toy"}


@pytest.fixture
def claimed(toy):
    register(Claim(id="toy-gain", sentence="Recurrence lowers <it>.", source="Table 1", **DECLARED,
                   where=lambda config: config.overlap == 5, about=("toy-table1",)),
             Claim(id="toy-other", sentence="It is free.", source="Table 2", **DECLARED,
                   where=lambda config: config.overlap == 0, about=("toy-table2",)),
             *(Artifact(f"toy-table{n}", "toy2020", "Table", f"0{n}_toy", "toy-recurrence", lambda context: None, "T")
               for n in (1, 2)))
    return toy


def test_a_sentence_takes_its_numbers_from_records(claimed):
    for index in (1, 3):
        run(claimed.experiment.plan("smoke")[index], progress=False)
    perplexity = metric("toy-recurrence", "test_word_perplexity", "smoke", model="recurrent", overlap=5)
    said = sentence("**{n}** models: {ppl}, or {ppl:.0f}; {gain}. So it is {gain.verdict}: {gain.effect:+.1%} from "
                    "{gain.low:.1%}.", n=2, ppl=perplexity, gain=claim("toy-gain").verdict("smoke"))
    assert said.markdown == ("**2** models: 28.50, or 28; -3.39% [-5.76%, -0.96%]. So it is reproduced: -3.4% from "
                             "-5.8%.")
    assert said._repr_markdown_() == said.markdown
    assert repr(said) == said.markdown.replace("*", "")


def test_a_metric_is_the_mean_over_seeds(toy):
    for seed in (0, 2):
        run(toy.experiment.plan("smoke", seeds=(seed,))[3], progress=False)
    found = metric("toy-recurrence", "test_word_perplexity", "smoke", ".3f", model="recurrent", overlap=5)
    assert found.value == (28.5 + 29.0) / 2
    assert f"{found}" == "28.750"


def test_what_is_missing_is_said_with_its_command(claimed):
    run(claimed.experiment.plan("smoke")[1], progress=False)
    missing = metric("toy-recurrence", "test_word_perplexity", "smoke", model="recurrent", overlap=5)
    gain = claim("toy-gain").verdict("smoke")
    said = sentence("From {a:.1f} by {gain.effect:+.1%} ({gain.verdict}) to {ppl:.1f}.", a=3, gain=gain, ppl=missing)
    assert said.markdown == f"From 3.0 by *not run* (*not run*) to *not run*. (not run: `{RUN}`)"
    assert "`" not in repr(said)
    assert repr(said).endswith(f"(not run: {RUN})")
    both = sentence("{gain}", gain=claim("toy-gain").verdict("small")).markdown
    gain = claim("toy-gain").verdict("small")
    one = sentence("It costs 3.5 hours. It gains {gain.effect:+.1%}, {gain}! Why?", gain=gain)
    assert one.markdown == "It costs 3.5 hours. Why? (not run: `repro run toy-recurrence --scale small`)"
    assert both == ("No record exists yet for what this sentence reports. To make it, run `repro run toy-recurrence "
                    "--scale small`.")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"model": "recurrent"}, "match 2 runs"),
    ({"model": "recurrent", "overlap": 7}, "match 0 runs"),
    ({"modell": "recurrent"}, "unknown key of toy-recurrence 'modell'. Did you mean 'model'?"),
    ({"name": "perplexity", "model": "recurrent", "overlap": 5}, "unknown metric of toy-recurrence 'perplexity'"),
    ({"scale": "tiny"}, "unknown scale"),
    ({"experiment_name": "toy-recurrent"}, "Did you mean 'toy-recurrence'"),
])
def test_a_metric_that_cannot_be_is_refused(toy, arguments, message):
    run(toy.experiment.plan("smoke")[3], progress=False)
    given = {"experiment_name": "toy-recurrence", "name": "test_word_perplexity", "scale": "smoke"} | arguments
    with pytest.raises(ReproError, match=re.escape(message)):
        metric(**given)


def test_indented_lines_are_prose_and_not_code():
    assert sentence("""One
        and {two}.

        Three.""", two=2).markdown == "One\nand 2.\n\nThree."


def test_a_name_without_a_value_is_refused():
    with pytest.raises(ReproError, match="unknown value of the sentence 'gian'. Did you mean 'gain'?"):
        sentence("{gian.effect}", gain=3)


@pytest.mark.parametrize(("value", "style", "text"), [
    (-0.0001, ".1%", "0.0%"), (-0.0001, "+.1%", "0.0%"), (0.012, "+.1%", "+1.2%"), (1039.4, ",.0f", "1,039"),
    (-1039.4, "+,.0f", "-1,039"), (-2e-5, ".1e", "-2.0e-05")])
def test_what_rounds_to_nothing_has_no_sign(value, style, text):
    assert written(value, style) == text


def test_in_short_shows_each_claim_of_the_chapter_at_its_largest_scale(claimed):
    for scale in ("smoke", "small"):
        for config in claimed.experiment.plan(scale)[1::2]:
            run(config, progress=False)
    told = in_short("01_toy", "Does it <help>?", Sentence("It *does*."), also=["toy-other"])
    assert told.text.markdown == "**Does it <help>?**\n\nIt *does*."
    own, other = re.findall("<li>.*?</li>", told.badges["text/html"])
    assert "verdict-reproduced" in own and "Recurrence lowers &lt;it&gt;." in own and "Table 1, small" in own
    assert 'href="#claims-and-verdicts"' in own
    assert "verdict-not-run" in other and 'href="02_toy.html#claims-and-verdicts"' in other
    assert "repro run toy-recurrence --scale small" in other
    assert told.badges["text/plain"].splitlines() == ["reproduced: Recurrence lowers <it>. (Table 1, small)",
                                                      "not run: It is free. (Table 2, small)"]
    assert in_short("02_toy", "Q", "A").badges["text/html"].count("<li>") == 1
    assert in_short("03_toy", "Q", "A").badges == {}


def test_in_short_shows_its_parts_one_below_the_other(claimed, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda one, raw=False: shown.append(one))
    picture = object()
    told = in_short("01_toy", "Q?", "A.", picture)
    told._ipython_display_()
    assert shown[0].markdown == "**Q?**\n\nA."
    assert shown[1:] == [picture, told.badges]


def test_a_caption_takes_the_place_of_a_drawings_own(toy, monkeypatch):
    from repro.plotting import draw_windows

    shown = []
    monkeypatch.setattr("IPython.display.display", lambda one, raw=False: shown.append(one))
    drawn = draw_windows(12, 5, 0)
    in_short("01_toy", "Q?", "A.", drawn, "Three <windows>.")._ipython_display_()
    text, figure = shown
    assert figure["text/plain"] == "Three <windows>."
    assert figure["text/html"].endswith("<figcaption>Three &lt;windows&gt;.</figcaption></figure>")
    assert 'class="moving"' not in figure["text/html"]
    drawn.frames = [draw_windows(12, 5, 0)]
    in_short("01_toy", "Q?", "A.", drawn, "Three <windows>.")._ipython_display_()
    assert shown[-1]["text/html"].count("<svg") == 2 and 'class="moving"' in shown[-1]["text/html"]
    assert drawn.svg() in figure["text/html"]


def test_badges_differ_in_sign_and_class_and_lead_somewhere():
    assert badge("not reproduced", "#there", 'a "claim"') == (
        '<a class="verdict verdict-not-reproduced" href="#there" title="a &quot;claim&quot;">'
        '<span aria-hidden="true">✗</span> not reproduced</a>')
    assert badge("open").startswith('<span class="verdict verdict-open">')
    assert len({look.sign for look in LOOKS.values()}) == len(LOOKS)
    with pytest.raises(ReproError, match="unknown verdict 'reproducd'. Did you mean 'reproduced'?"):
        badge("reproducd")
    assert set(Verdict.__dataclass_fields__["verdict"].type.__args__) <= set(LOOKS)


def rules(verdict, dark):
    before = 'html[data-theme="dark"] ' if dark else ""
    return re.search(rf'^{re.escape(before)}\.{css_class(verdict)} {{(.*?)}}', CSS, re.MULTILINE)[1]


def luminance(colour):
    parts = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("verdict", LOOKS)
def test_badges_can_be_read_in_both_modes(verdict, dark):
    """Contrast of at least 7:1, by the formula of WCAG 2.1."""
    light, deep = sorted((luminance(colour) for colour in re.findall("#[0-9a-f]{6}", rules(verdict, dark))),
                         reverse=True)
    assert (light + 0.05) / (deep + 0.05) >= 7


def test_badges_differ_in_shape():
    shapes = {verdict: re.findall("border[^;]*;", rules(verdict, dark=False)) for verdict in LOOKS}
    assert all(shapes[one] != shapes[other] for one, other in combinations(LOOKS, 2))


def test_many_verdicts_are_folded_behind_the_first_few(claimed):
    found = (claim("toy-gain"), "small", Verdict("open"))
    few, many = (InShort("Q?", "A.", (found,) * n).badges["text/html"] for n in (SHOWN, SHOWN + 2))
    assert "<details>" not in few and few.count("<li>") == SHOWN
    shown, folded = many.split("<details><summary>2 more claims</summary>")
    assert shown == few and folded.count("<li>") == 2


def test_what_the_paper_does_not_say_comes_last_and_what_failed_is_folded_last(claimed):
    ours = SimpleNamespace(id="ours", sentence="Ours.", source=f"{ADDED}, after section 5", chapter="", late="")
    papers = SimpleNamespace(id="papers", sentence="The paper's.", source="Table 1", chapter="", late="")
    rows = [(ours, "small", Verdict("reproduced"))] * 2 + [(papers, "small", Verdict("open"))] * SHOWN
    told = InShort("Q?", "A.", (*rows, (papers, "small", Verdict("not reproduced")))).badges
    shown, folded = told["text/html"].split("<details>")
    assert shown.count("The paper's.") == SHOWN and "not reproduced" in shown and "Ours." not in shown
    assert folded.count("Ours.") == 2
    assert [line.split(": ")[1].split(" (")[0] for line in told["text/plain"].splitlines()] == [
        *["The paper's."] * (SHOWN + 1), "Ours.", "Ours."]
    rows = [(papers, "small", Verdict("reproduced"))] + [(papers, "small", Verdict("not reproduced"))] * (SHOWN + 2)
    shown, folded = InShort("Q?", "A.", tuple(rows)).badges["text/html"].split("<details>")
    assert shown.count("✗") == SHOWN and "✓" not in shown
    assert folded.startswith("<summary>3 more claims, 2 of them not reproduced</summary>")
    shown, folded = InShort("Q?", "A.", (*rows, (ours, "small", Verdict("reproduced"))),
                            first=("ours",)).badges["text/html"].split("<details>")
    assert shown.count("<li>") == 1 and "Ours." in shown
    assert folded.startswith("<summary>6 more claims, 5 of them not reproduced</summary>")
    told = InShort("Q?", "A.", ((papers, "smoke", Verdict("not run")),) * 2).badges["text/html"]
    assert told.startswith("<details><summary>2 claims, 2 of them not run</summary>") and told.count("<li>") == 2


def test_the_claims_that_are_shown_first_are_claims_of_the_chapter(claimed):
    assert in_short("01_toy", "Q", "A", first=["toy-gain"]).first == ("toy-gain",)
    with pytest.raises(ReproError, match="unknown claim of 01_toy 'toy-gian'. Did you mean 'toy-gain'?"):
        in_short("01_toy", "Q", "A", first=["toy-gian"])


def test_an_effect_is_told_with_its_direction_only_if_the_interval_excludes_zero():
    assert effect_on("loss", Verdict("reproduced", effect=0.25, low=0.1, high=0.4), ".2f", " nats") == (
        "raises loss by 0.25 nats")
    assert effect_on("loss", Verdict("open", effect=-0.25), ".2f") == "changes loss by -0.25, which may be chance"
    assert effect_on("loss", Verdict("not reproduced", effect=0.0, low=0.0, high=0.0), ".2f").startswith("changes loss")
    missing = Verdict("not run", commands=("repro run it",))
    assert sentence("It {it}.", it=effect_on("loss", missing)).markdown.endswith("To make it, run `repro run it`.")
