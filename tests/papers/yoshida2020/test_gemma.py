"""Recurrence in Gemma 3 270M: what is compared with what, and its table, from records made up here."""

from types import SimpleNamespace

import numpy as np
import pytest

from repro.errors import ReproError
from repro.papers.yoshida2020.perplexity import gemma
from repro.papers.yoshida2020.perplexity.evaluation import trained
from repro.papers.yoshida2020.perplexity.tables import LITERAL, UNSCALED, row_kind
from repro.study import claim, experiment

PLAN = experiment("recurrence-gemma").plan("pretrained")
WORDS = [100, 200, 50]


def test_the_models_differ_in_the_module_alone():
    kinds = [(row_kind(config), config.overlap) for config in PLAN]
    assert kinds == [("baseline", 0), ("baseline", 10), (UNSCALED, 0), (LITERAL, 0), ("baseline", 0), ("recurrent", 0),
                     (UNSCALED, 0)]
    tuned = [trained(config).model_dump() for config in PLAN]
    own = tuned.pop(4)  # the normalized module's baseline, the same training with a name of its own
    assert {key for key in own if own[key] != tuned[0][key]} == {"normalize"}
    assert tuned[0] == tuned[1]  # the overlap is of the test alone
    module = {"model", "insert_layer", "residual", "zero_init", "module_learning_rate", "normalize"}
    for other in tuned[2:]:
        assert {key for key in other if other[key] != tuned[0][key]} <= module
    changed = {key for key in tuned[4] if tuned[4][key] != tuned[2][key]}
    assert changed == {"normalize", "module_learning_rate"} and tuned[4]["normalize"]
    assert {key for key in tuned[5] if tuned[5][key] != tuned[4][key]} == {"normalize"}  # the control: one rate
    paper = tuned[3]
    kept = [paper[name] for name in ("insert_layer", "residual", "zero_init", "hidden_size")]
    assert kept == [1, False, False, 200]


def test_each_claim_reads_its_module_and_the_baseline_without_overlap():
    mean, papers, normalized = (claim(f"yoshida2020-gemma-gain{end}") for end in ("", "-papers-module", "-normalized"))
    assert [mean.where(config) for config in PLAN] == [True, False, True, False, False, False, False]
    assert [papers.where(config) for config in PLAN] == [True, False, False, True, False, False, False]
    assert [normalized.where(config) for config in PLAN] == [False, False, False, False, True, True, False]
    assert [mean.assay.where(config) for config in PLAN] == [True, True] + [False] * 5
    assert [claim("yoshida2020-gemma-normalization").where(config) for config in PLAN] == [False] * 4 + [True] * 3


def record(config, seed, ratio, masked=None):
    """A record whose word perplexity is `ratio` times 100, and that of its controls `masked` times."""
    nll = {"nll": np.log(100 * ratio) * np.array(WORDS)}
    nll |= {f"nll_{name}": np.log(100 * value) * np.array(WORDS) for name, value in (masked or {}).items()}
    return SimpleNamespace(id=str(seed), seed=seed, scale="pretrained", config=config.model_dump(), documents={
        "test": {name: values.tolist() for name, values in nll.items()} | {"n_words": WORDS}})


def test_a_state_of_its_own_book_is_held_against_another_books():
    own = claim("yoshida2020-gemma-own-state")
    assert [own.where(config) for config in PLAN] == [False] * 5 + [True, False]
    effects = own.measure([record(PLAN[5], seed, 1.0, {"masked": 1.2, "other_document": 1.05}) for seed in (0, 1)])[0]
    assert effects.shape == (2, len(WORDS)) and np.allclose(effects.mean(1), -np.log(1.05), atol=1e-9)


def test_a_module_is_compared_with_the_one_baseline_of_its_device():
    from repro.papers.yoshida2020.perplexity.gain_by_window import _baseline

    disjoint = [config for config in PLAN if not config.overlap]
    assert [PLAN.index(_baseline(PLAN[k], disjoint)) for k in (2, 3, 5, 6)] == [0, 0, 4, 4]
    assert _baseline(PLAN[5], disjoint[:3]) is None  # not that of the other device
    with pytest.raises(ReproError, match="2 baselines on pg19-subset in windows of 64 tokens"):
        _baseline(PLAN[5], [*disjoint, PLAN[4]])


def test_what_normalization_adds_is_a_difference_of_gains_and_of_their_controls():
    level = {4: 1.0, 5: 0.9, 6: 0.96}
    made = [record(PLAN[k], seed, scale * level[k], {"masked": scale * (0.98 if k == 5 else 1.03),
                                                     "other_document": scale * 1.1} if k > 4 else None)
            for k in level for seed, scale in ((0, 1.0), (1, 1.2))]
    effects, control, _ = claim("yoshida2020-gemma-normalization").measure(made)
    assert effects.shape == control.shape == (2, len(WORDS))
    assert np.allclose(effects.mean(1), np.log(0.9 / 0.96), atol=1e-9)
    assert np.allclose(control.mean(1), np.log(0.98 / 1.03), atol=1e-9)


def test_the_table_gives_each_change_against_the_baseline_of_the_same_seed():
    made = {id(config): [] for config in PLAN}
    for seed, level in ((0, 1.0), (1, 1.1)):
        for config, ratio in zip(PLAN, (1.0, 0.9, 0.95, 1.01, 1.1, 0.99, 1.045), strict=True):
            made[id(config)].append(record(config, seed, level * ratio, {
                "masked": level * 1.2, "other_document": level * 1.05} if config.model == "recurrent" else None))
    context = SimpleNamespace(scales=("pretrained",), plan=lambda scale: PLAN, records_of=lambda one: made[id(one)])
    table = gemma.gains(context)
    assert list(table["model"]) == ["baseline"] * 2 + ["recurrent"] * 2 + ["baseline"] + ["recurrent"] * 2
    assert [cell.split(" ")[0].rstrip("%") for cell in table["change"]] == ["-10.0", "–", "+1.0", "-5.0", "–", "-10.0",
                                                                             "-5.0"]
    assert [cell.split(" ")[0].rstrip("%") for cell in table["another book's state"][[2, 3, 5]]] == [
        "+5.0", "+5.0", "-4.5"]
    assert table["masked out"][2].startswith("+20.0") and set(table["seeds"]) == {"2"}
    assert table["test"][1].startswith("104") or table["test"][1].startswith("105")


def test_nothing_run_is_said_so():
    context = SimpleNamespace(scales=("pretrained",), plan=lambda scale: PLAN, records_of=lambda one: [])
    table = gemma.gains(context)
    assert set(table["test"]) == {"not run"}
    assert list(table["change"]) == ["not run", "–", "not run", "not run", "–", "not run", "not run"]


@pytest.mark.parametrize("config", PLAN, ids=row_kind)
def test_rates_are_fixed_so_no_candidate_is_tried(config):
    from repro.papers.yoshida2020.perplexity.finetuning import candidates

    assert candidates(trained(config)) == []


def test_the_papers_own_module_has_candidates_of_its_own_form():
    from repro.papers.yoshida2020.perplexity.finetuning import candidates

    forms = {}
    for config in experiment("recurrence-pg19").plan("pretrained"):
        if config.model == "recurrent":
            tried = candidates(trained(config))
            forms.setdefault(row_kind(config), set()).update(one.key for one in tried)
            for name in ("insert_layer", "residual", "normalize"):
                assert {getattr(one, name) for one in tried} == {getattr(config, name)}
            assert {one.zero_init for one in tried} == {row_kind(config) != LITERAL} and len(tried) == 4
    assert set(forms) == {"recurrent", LITERAL} and not forms["recurrent"] & forms[LITERAL]
    assert len(forms["recurrent"]) == len(forms[LITERAL]) == 4


@pytest.mark.parametrize("given", [{"train_documents": 61}, {"train_documents": None}, {"train_draw": "random"},
                                   {"corpus": "synthetic-books"}], ids=str)
def test_texts_whose_tokens_were_cut_away_are_refused(given):
    fewer = experiment("recurrence-gemma").plan("pretrained", {"train_documents": 59})
    assert {one.train_documents for one in fewer} == {59}
    with pytest.raises(ReproError, match="has the tokens of other texts only; use corpus=pg19-subset with "
                                         "train_documents=60 or fewer, train_draw=first; corpus=wikitext-103"):
        experiment("recurrence-gemma").plan("pretrained", given)
    assert experiment("recurrence-wikitext103").plan("pretrained", {"train_documents": 500})
