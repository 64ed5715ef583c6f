"""The explorer page, driven in a browser: its windows and FLOPs are Python's, and it tells what it has no record of."""

import json
import math
import re

import pytest
from chromium import Chromium, needs_chromium

from repro.errors import ReproError
from repro.evaluation import flops_per_token
from repro.plotting import Explorer
from repro.windows import windows

MODELS = [{"scale": "small", "name": "mini", "n_layer": 4, "d_model": 128, "n_positions": 1024},
          {"scale": "paper", "name": "GPT-2 small", "n_layer": 12, "d_model": 768, "n_positions": 400}]


def point(model, window, overlap, value, **more):
    return {"model": model, "window": window, "overlap": overlap, "perplexity": [value, value - 2, value + 2],
            "records": [f"{model[0]}{window}-{overlap}"]} | more


SERIES = [
    {"id": "toy/small", "experiment": "toy", "scale": "small", "data": "toy-text", "part_of": "toys </script><b>",
     "split": "test",
     "points": [point("baseline", 300, 0, 20), point("baseline", 300, 50, 19), point("baseline", 200, 40, 150),
                point("recurrent", 300, 0, 18, difference=[-0.1, -0.125, -0.04], module=-0.0215)]},
    {"id": "other/paper", "experiment": "other", "scale": "paper", "data": "other-text", "part_of": None,
     "split": "validation",
     "points": [point("recurrent", 100, 3, 7)]},
]
CHOICES = [(300, 50), (300, 299), (2, 0), (7, 3), (1024, 1023), (640, 0)]

# Moves the sliders like a reader and writes down the page after each move.
DRIVER = """(() => {
const seen = [], texts = (selector) => [...document.querySelectorAll(selector)].map((one) => one.textContent);
const look = () => seen.push({
  status: texts(".status")[0], counts: [...document.querySelectorAll(".windows caption data")].map((one) => +one.value),
  spans: [...document.querySelectorAll(".windows tbody tr")].map((row) => [...row.children].slice(0, 3).map(
    (one) => one.textContent)), bars: [...document.querySelectorAll(".bar i")].map((one) => one.getAttribute("style")),
  flops: [...document.querySelectorAll(".cost tbody tr")].map((row) => row.querySelector("data")?.value ?? null),
  costs: texts(".cost tbody td:last-child"), measured: texts(".measured tbody tr"), caption: texts(".measured caption"),
  links: [...document.querySelectorAll(".measured a")].map((one) => one.getAttribute("href")),
  said: [...document.querySelectorAll("input")].map((one) => one.getAttribute("aria-valuetext")),
  wide: document.querySelector(".explorer").scrollWidth, bold: texts(".chosen th")});
const set = (name, value) => {
  const control = document.querySelector(`[name=${name}]`);
  control.value = value;
  control.dispatchEvent(new Event("input", {bubbles: true}));
};
look();
for (const [name, value] of MOVES) { set(name, value); look(); }
return seen; })()"""


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    """What the page shows at first and after each (control, value) of `moves`."""
    folder = tmp_path_factory.mktemp("explorer")
    with Chromium(folder / "profile") as browser:
        def driven(moves=(), fragment="", explorer=None, style=""):
            page = explorer or Explorer(SERIES, MODELS, 300, 0)
            file = folder / "page.html"
            file.write_text(f'<!doctype html><meta charset="utf-8"><body style="{style}">' + page._repr_html_())
            browser.open("about:blank")  # or another fragment of the same page would not load it anew
            browser.open(f"{file.as_uri()}{fragment}")
            seen = browser.evaluate(DRIVER.replace("MOVES", json.dumps(moves)))
            assert browser.complaints() == []
            return seen
        yield driven


def shown(cover):
    """The rows of the table for these windows: all of them, or the first eight and the last."""
    def span(first, last):
        return f"{first}–{last}" if last > first else str(first)
    rows = [[str(k), span(w.start, w.stop - 1), span(w.first_target, w.stop)] for k, w in enumerate(cover, 1)]
    return rows if len(rows) < 9 else [*rows[:8], *[[f"… {len(rows) - 9} more …"]] * (len(rows) > 9), rows[-1]]


@pytest.fixture(scope="module")
def moved(drive):
    """The page after the sliders were moved to each of CHOICES."""
    moves = [move for window, overlap in CHOICES for move in (("window", window), ("overlap", overlap))]
    return drive(moves)[2::2]


@needs_chromium
@pytest.mark.parametrize("k", range(len(CHOICES)), ids=str)
def test_windows_and_flops_are_those_of_python(moved, k):
    (window, overlap), page = CHOICES[k], moved[k]
    n_tokens = math.ceil(3.5 * window)
    cover = windows(n_tokens, window, overlap)
    assert page["counts"] == [n_tokens, len(cover)]
    assert page["spans"] == shown(cover)
    some = cover[:8] + cover[8:][-1:]
    places = [float(value) for style in page["bars"] for value in re.findall(r"[\d.]+(?=%)", style)]
    assert places == pytest.approx([100 * value / n_tokens for w in some for value in (
        w.start, w.stop - w.start, w.first_target, w.n_scored)])
    costs = [flops_per_token(m["n_layer"], m["d_model"], window, overlap) for m in MODELS]
    assert page["flops"] == [str(cost) if window <= m["n_positions"] else None for cost, m in
                             zip(map(_javascript, costs), MODELS, strict=True)]
    assert page["costs"][0] == re.sub(r"e\+0?", "e", f"{costs[0]:.3e}")
    assert ("its context ends at 400" in page["costs"][1]) == (window > 400)
    assert page["said"] == [f"{window} tokens", f"{overlap} token" + "s" * (overlap != 1)]


def _javascript(value):
    """A float as JavaScript writes it: whole numbers without a point."""
    return int(value) if value == int(value) else value


@needs_chromium
def test_a_point_with_a_record_shows_it_and_another_names_the_nearest(drive):
    first, away, other = drive([("overlap", 40), ("records", "other/paper")])
    assert first["measured"] == ["baseline20.00 [18.00, 22.00]record b300-0",
                                 "recurrent18.00 [16.00, 20.00]record r300-0the baseline: −10.0 % [−12.5 %, −4.0 %]; "
                                 "itself without the module: −2.15 %"]
    assert first["caption"][0].startswith(
        "Measured on the test text of toy-text, part of toys </script><b>; scale small")
    assert other["caption"][0].startswith("Measured on the validation text of other-text, scale paper")
    assert first["bold"] == ["mini"] and other["bold"] == ["GPT-2 small"]
    baseline, recurrent = away["measured"]
    assert away["status"] == ("Window 300, overlap 40. baseline: no record here; recurrent: no record here.")
    assert baseline == ("baselineno record at this point; those fewest tokens away:window 300, overlap 50: 19.00 "
                        "[17.00, 21.00] window 300, overlap 0: 20.00 [18.00, 22.00] "
                        "window 200, overlap 40: 150 [148, 152] ")
    assert recurrent.count("window ") == 1
    assert away["links"][0] == "#records=toy%2Fsmall&window=300&overlap=50"
    assert other["measured"] == ["recurrentno record at this point; those fewest tokens away:"
                                 "window 100, overlap 3: 7.00 [5.00, 9.00] "]


@needs_chromium
@pytest.mark.parametrize(("fragment", "status"), [
    ("#records=other%2Fpaper&window=100&overlap=3", "Window 100, overlap 3. recurrent: 7.00 [5.00, 9.00]."),
    ("#window=200&overlap=200", "Window 200, overlap 199. baseline: no record here; recurrent: no record here."),
    ("#records=nothing&window=x&overlap=-3", "Window 300, overlap 0. baseline: 20.00 [18.00, 22.00]; "
                                             "recurrent: 18.00 [16.00, 20.00]."),
])
def test_the_address_sets_the_sliders(drive, fragment, status):
    assert drive(fragment=fragment)[0]["status"] == status


@needs_chromium
def test_a_smaller_window_lowers_the_overlap_and_a_narrow_page_holds_everything(drive):
    pages = drive([("overlap", 250), ("window", 100), ("window", 1024)], style="margin: 0; width: 340px")
    assert [page["status"].split(".")[0] for page in pages] == [
        "Window 300, overlap 0", "Window 300, overlap 250", "Window 100, overlap 99", "Window 1024, overlap 99"]
    assert max(page["wide"] for page in pages) <= 340


@needs_chromium
def test_without_records_it_still_shows_windows_and_cost(drive):
    (page,) = drive(explorer=Explorer([], MODELS, 10, 5))
    assert page["counts"] == [35, len(windows(35, 10, 5))]
    assert page["status"] == "Window 10, overlap 5. There are no records to show."


def test_the_page_loads_nothing_from_elsewhere_and_every_control_has_a_name():
    page = Explorer(SERIES, MODELS, 300, 50)._repr_html_()
    assert not re.findall(r"https?:|//\w|\bsrc=|@import|<link|url\(", page)
    assert page.count("<label>") == len(re.findall("<(?:input|select)", page)) == 3
    assert "{{" not in page and page.count("</script>") == 2
    assert repr(Explorer(SERIES, MODELS, 300, 50)) == "Explorer at window 300, overlap 50; 5 measured points."


@pytest.mark.parametrize(("window", "overlap", "words"), [(300, 300, "smaller than the window"), (
    1025, 0, "context ends at 1024"), (300, -1, "at least 0")])
def test_a_start_out_of_range_is_refused(window, overlap, words):
    with pytest.raises(ReproError, match=words):
        Explorer(SERIES, MODELS, window, overlap)
