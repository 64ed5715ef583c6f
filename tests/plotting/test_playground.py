"""The playground's patterns, driven in a browser: those of `repro.attention`, on five hundred random settings."""

import json
import random

import pytest
import torch
from chromium import Chromium, needs_chromium

from repro.errors import ReproError
from repro.plotting import Playground
from repro.plotting.playground import PATTERNS, RANGES, START, cells, pattern_of

BEGINS = "SlidingWindow(12) | Global([0]) & Causal()"


def settings(how_many: int, seed: int = 0) -> list[dict]:
    """Random choices: every pattern, any numbers in range, up to three global positions anywhere."""
    draw = random.Random(seed)
    found = []
    for k in range(how_many):
        one = {name: draw.randint(low, high) for name, (low, high) in RANGES.items()}
        one["pattern"] = list(PATTERNS)[k % len(PATTERNS)]
        one["window"] -= one["window"] % 2 if one["pattern"] == "both sides" else 0
        one["summary"] = min(one["summary"], one["stride"])
        one["global"] = sorted(draw.sample(range(one["n"]), draw.randint(0, 3)))
        found.append(one)
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("playground")
    (folder / "page.html").write_text(f'<!doctype html><meta charset="utf-8">{Playground()._repr_html_()}')
    with Chromium(folder / "profile") as browser:
        def opened(fragment=""):
            browser.open("about:blank")
            browser.open((folder / "page.html").as_uri() + fragment)
            return browser
        yield opened


@needs_chromium
def test_its_masks_are_those_of_python_on_500_random_settings(page):
    every = settings(500)
    ours = page().evaluate(f"""{json.dumps(every)}.map((one) => Array.from({{length: one.n}},
        (_, i) => document.querySelector(".playground").keys(one, i)))""")
    for one, rows in zip(every, ours, strict=True):
        mask = pattern_of(one).mask(one["n"])
        assert rows == [row.nonzero().flatten().tolist() for row in mask], one
        assert sum(map(len, rows)) == pattern_of(one).count(one["n"])


@needs_chromium
def test_its_reach_is_that_of_masks_multiplied(page):
    every = settings(60, seed=1)
    ours = page().evaluate(f"""{json.dumps(every)}.map((one) =>
        document.querySelector(".playground").reach(one, one.n - 1, 4))""")
    for one, sizes in zip(every, ours, strict=True):
        mask = pattern_of(one).mask(one["n"]).float()
        known, counted = torch.eye(one["n"])[-1], []
        for _ in range(4):
            known = (known @ mask).clamp(max=1)
            counted.append(int(known.sum()))
        assert sizes == counted, one


@needs_chromium
def test_controls_and_the_address_move_the_picture(page):
    look = """({told: document.querySelector(".told").textContent, code: document.querySelector(".written").textContent,
        path: document.querySelector(".cells").getAttribute("d"),
        shown: [...document.querySelectorAll(".controls label:not([hidden]) [name]")].map((one) => one.name)})"""
    browser = page()
    first = browser.evaluate(look)
    assert first["code"] == "SlidingWindow(12) | Global([0]) & Causal()"
    assert first["path"] == cells(pattern_of(START | {"global": [0]}).mask(64))  # what Python drew is drawn again
    assert first["told"].startswith("754 pairs, 18.4% of full attention. Query 40 sees 13 keys: 0, 29–40.")
    assert first["shown"] == ["pattern", "n", "window", "dilation", "globals"]
    browser.evaluate("""document.querySelector("svg.mask").dispatchEvent(
        new KeyboardEvent("keydown", {key: "ArrowUp", cancelable: true}))""")
    assert "Query 39 sees 13 keys: 0, 28–39." in browser.evaluate(look)["told"]
    browser = page("#pattern=fixed&n=32&stride=8&summary=2&globals=2&apart=5&query=9")
    other = browser.evaluate(look)
    assert other["code"] == "Fixed(8, 2) | Global([0, 5]) & Causal()"
    assert other["told"].endswith("Query 9 sees 6 keys: 0, 5–9.")
    fixed = pattern_of({"pattern": "fixed", "stride": 8, "summary": 2, "global": [0, 5]})
    assert other["path"] == cells(fixed.mask(32))
    assert browser.complaints() == []


@needs_chromium
@pytest.mark.parametrize(("fragment", "code", "told"), [
    ("#pattern=knitted", BEGINS, "Unknown pattern “knitted”; another one is shown. 754 "),
    ("#pattern=toString", BEGINS, "Unknown pattern “toString”; another one is shown. 754"),
    ("#pattern=strided&stride=abc&globals=0", "Strided(8)",
     "stride or block is “abc”; it must be 1 to 32. 8 is used. "),
    ("#pattern=sliding&window=49&globals=0&query=-1", "SlidingWindow(12)",
     "window is “49”; it must be 2 to 48. 12 is used. query is “-1”; it must be 0 to 95. 40 is used. "),
    ("#pattern=causal&globals=0&colour=50%", "Causal()", "Unknown name “colour” in the address. 2080 pairs"),
    ("#pattern=%E0%A4%A", BEGINS, "Unknown pattern “\ufffd%A”; another one is shown. "),
    ("#colour=red", BEGINS, "754 pairs"),  # not its address
])
def test_a_wrong_address_is_reported(page, fragment, code, told):
    browser = page(fragment)
    assert browser.evaluate("document.querySelector('.written').textContent") == code
    assert browser.evaluate("document.querySelector('.told').textContent").startswith(told)
    assert browser.complaints() == []


@pytest.mark.parametrize("name", PATTERNS)
def test_what_looks_back_sees_no_later_position_whatever_is_global(name):
    """As it begins, and with global positions in the middle; the two that look both ways keep Longformer's."""
    for places in ([0], [5, 20]):
        mask = pattern_of(START | {"pattern": name, "n": 32, "global": places}).mask(32)
        both_ways = name in ("both sides", "full")
        assert bool(mask.triu(1).any()) is both_ways
        wanted = mask.new_ones(32, 32) if both_ways else mask.new_ones(32, 32).tril()
        assert mask[places].equal(wanted[places]) and mask[:, places].equal(wanted[:, places])  # they see, and are seen


def test_it_loads_nothing_from_elsewhere_and_has_its_picture_without_a_script():
    text = Playground({"pattern": "strided", "globals": 0})._repr_html_()
    mask = pattern_of({"pattern": "strided", "stride": 8, "global": []}).mask(64)
    assert f'd="{cells(mask)}"' in text and f"{int(mask.sum())} pairs" in text and "{{" not in text
    assert "https:" not in text and "src=" not in text and "<noscript>" in text


def test_stretches_of_keys_are_rectangles():
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]]).bool()
    assert cells(mask) == "M0 0h1v1h-1zM0 1h2v1h-2zM0 2h1v1h-1zM2 2h1v1h-1z"


def test_an_unknown_pattern_is_refused():
    with pytest.raises(ReproError, match="unknown pattern 'stridden'. Did you mean 'strided'?"):
        pattern_of({"pattern": "stridden"})
