"""The planner page, driven in a browser: what it says is what `repro.recompute.Plan` says."""

import json
import random

import pytest
from chromium import Chromium, needs_chromium

from repro.errors import ReproError
from repro.models import parameters
from repro.plotting import Planner
from repro.plotting.planner import (
    BATCHES,
    CARDS,
    MODELS,
    PRECISIONS,
    START,
    VOCABULARY,
    WINDOWS,
    longest,
    plan_of,
    shares,
    weights,
    width,
)
from repro.recompute import RECOMPUTE


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planner")
    (folder / "page.html").write_text(f'<!doctype html><meta charset="utf-8">{Planner()._repr_html_()}')
    with Chromium(folder / "profile") as browser:
        browser.open((folder / "page.html").as_uri())
        yield browser


def choices(n, seed=0):
    draw = random.Random(seed)
    return [{"model": draw.choice(list(MODELS)), "precision": draw.choice(list(PRECISIONS)), "card": draw.choice(CARDS),
             "window": draw.randint(*WINDOWS), "batch": draw.randint(*BATCHES)} for _ in range(n)]


def test_the_weights_are_those_of_gpt2():
    assert all(weights(*size) == parameters(*size, VOCABULARY) for size in MODELS.values())


def test_what_fits_is_the_last_length_whose_peak_does():
    for one in choices(20):
        for kind, tokens in longest(one).items():
            plan, n = plan_of(one, kind), tokens // one["window"]
            room, text = 0.9e9 * one["card"], 8 * one["window"] * one["batch"]

            def takes(n, plan=plan, text=text):
                from dataclasses import replace
                return replace(plan, n_windows=n).peak + n * text
            assert (n == 0 or takes(n) <= room) and takes(n + 1) > room
            assert n == 0 or shares(one)[kind] <= 1


def test_an_unknown_model_is_refused_with_those_there_are():
    with pytest.raises(ReproError, match="GPT-2 small"):
        longest(START | {"model": "GPT-5"})


@pytest.mark.parametrize(("tokens", "at"), [(0, 0), (10, 0), (10_000, 50), (10**7, 100), (10**9, 100)])
def test_bars_are_logarithmic(tokens, at):
    assert width(tokens) == pytest.approx(at)


@needs_chromium
def test_its_lengths_are_those_of_python_on_200_random_choices(page):
    every = choices(200, seed=1)
    ours = page.evaluate(f"""{json.dumps(every)}.map((one) => Object.fromEntries({json.dumps(RECOMPUTE)}.map((kind) =>
        [kind, document.querySelector(".planner").longest(one, kind)])))""")
    assert ours == [longest(one) for one in every]


@needs_chromium
def test_sliders_move_the_table(page):
    look = """({told: document.querySelector(".told").textContent, rows: [...document.querySelectorAll("tbody tr")].map(
        (row) => [row.cells[2].textContent, row.cells[4].textContent, row.querySelector("i").style.width])})"""

    def written(one):
        told, taken = longest(one), shares(one)
        return [[f"{told[kind]:,}", f"{100 * taken[kind]:.0f}%"] for kind in RECOMPUTE]
    first = page.evaluate(look)
    assert [row[:2] for row in first["rows"]] == written(START) and first["told"].startswith("GPT-2 small, single")
    page.evaluate("""(() => { const set = (name, value) => { const one = document.querySelector(`[name=${name}]`);
        one.value = value; one.dispatchEvent(new Event("input")); };
        set("model", "GPT-2 xl"); set("precision", "bf16"); set("card", 0); set("batch", 8); })()""")
    moved = START | {"model": "GPT-2 xl", "precision": "bf16", "card": 4, "batch": 8}
    found = page.evaluate(look)
    assert [row[:2] for row in found["rows"]] == written(moved) and found["rows"][0][::2] == ["0", "0%"]
    assert found["told"] == "GPT-2 xl, bfloat16, 4 GB, windows of 300 tokens, 8 at once."
    assert page.complaints() == []


def test_without_a_script_the_table_is_there():
    text = Planner({"card": 8})._repr_html_()
    assert "8 GB" in text and "<noscript>" in text and "https://" not in text
    assert all(f"{tokens:,}" in text for tokens in longest(START | {"card": 8}).values())
