"""Runs on images, text and sound: settings of the paper, what a record holds, bad input, what claims measure."""

import base64
import math
from math import log
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.markup import signed
from repro.papers.sparse2019 import density, effects, tables
from repro.papers.sparse2019.claims import is_pattern
from repro.papers.sparse2019.data import read
from repro.papers.sparse2019.settings import LENGTHS, PATTERN_SEEDS, SEEDS, TEXT, is_as_large_as_fits
from repro.study import artifact, claim, experiment, model_folder, published, run

TINY = {"n_layer": 1, "n_embd": 8, "steps": 3, "held_out": 3, "scored": 4}


def planned(name, wanted, **changes):
    return next(one for one in experiment(name).plan("smoke", TINY | changes) if wanted(one))


@pytest.fixture(scope="module")
def image(home):
    """A tiny run on images, with its config."""
    config = planned("sparse-density", is_pattern(True, "fixed"), drawn=2)
    return config, run(config, progress=False)


@pytest.fixture(scope="module")
def text(home):
    """A tiny run on text."""
    config = planned("sparse-density", is_pattern(False, "fixed"))
    return config, run(config, progress=False)


def test_a_record_of_images_has_the_loss_of_every_image(image):
    config, record = image
    kept = record.documents["test"]
    assert kept["n_bytes"] == [192] * 4 and len(kept["nll"]) == 4
    assert record.metrics["test_bits_per_byte"] == pytest.approx(sum(kept["nll"]) / log(2) / (4 * 192))
    model = density.trained(config, model_folder(config, progress=False))
    rows = torch.from_numpy(read(config).test[:4])
    logs = model(rows[:, :-1]).log_softmax(-1).gather(-1, rows[:, 1:, None])
    assert kept["nll"] == pytest.approx((-logs.sum((1, 2))).tolist(), rel=1e-4)


def test_drawn_images_keep_the_upper_half_that_they_complete(image):
    config, record = image
    drawn = {name: [density.unpacked(one) for one in many] for name, many in record.notes["drawn"].items()}
    assert {name: len(many) for name, many in drawn.items()} == {"samples": 2, "completions": 2, "originals": 2}
    for completed, original in zip(drawn["completions"], drawn["originals"], strict=True):
        assert len(completed) == 192 and (completed[:96] == original[:96]).all()
    assert (drawn["originals"][1] == read(config).test[1, 1:]).all()


def test_a_record_of_text_is_scored_at_every_least_context(text):
    config, record = text
    assert config.contexts == TEXT["smoke"]["contexts"]
    model = density.trained(config, model_folder(config, progress=False))
    test = read(config).test[:4 * config.length + 1]
    for least in config.contexts:
        losses = density.nats(model, config, test, None, least)
        assert len(losses) == 4 * config.length  # every byte once
        assert record.metrics[f"test_bits_at_{least}"] == pytest.approx(losses.mean() / log(2))
        start = config.length + 3 * (config.length - least)  # of a window's targets; by hand, from the window alone
        inputs = torch.from_numpy(test[start - least:start - least + config.length].astype(np.int64))[None]
        if inputs.shape[1] == config.length:
            logs = model(inputs).log_softmax(-1)[0, least:least + 1]
            assert losses[start] == pytest.approx(-logs[0, test[start + 1]].item(), rel=1e-3)
    assert sum(record.documents["test at 96"]["n_bytes"]) == 4 * config.length


def test_a_model_starts_where_it_knows_nothing(home):
    config = planned("sparse-density", is_pattern(True, "strided"))
    data = read(config)
    torch.manual_seed(0)
    from repro.models import SparseTransformer

    losses = density.nats(SparseTransformer(density.model_config(config, data.vocab_size)), config, data.test, 2)
    assert losses.mean() == pytest.approx(math.log(257), rel=1e-5)


@pytest.mark.parametrize(("changes", "told"), [
    ({"stride": 193}, "stride is 193, longer than the 192 positions of a sequence; choose one of 1 to 192"),
    ({"summary": 25}, r"summary is 25; choose 1 to the stride \(24\)"),
    ({"side": 7}, "length is 192, but an image of side 7 has 147 bytes"),
    ({"n_head": 3}, "the width must be a multiple of the heads"), ({"contexts": "[192]"}, "must be below the length"),
    ({"growing": "[[80, 0.5]]"}, "growing has sequences of 80 tokens; they must .* divide the 1536 tokens of a batch"),
    ({"growing": "[[64, 0.3], [32, 0.3]]"}, "sequences of 64, 32 tokens; they must not become shorter"),
    ({"growing": "[[32, 0.3], [64, 0.3], [96, 0.4]]"}, "growing takes all of the steps")])
def test_settings_that_do_not_fit_are_refused(changes, told):
    with pytest.raises(ReproError, match=told):
        [one for one in experiment("sparse-density").plan("smoke", changes) if is_pattern(True, "fixed")(one)]


def test_sequences_of_text_grow_while_every_step_reads_as_many_bytes():
    plain = planned("sparse-density", is_pattern(False, "dense"), steps=10)
    config = type(plain).model_validate(plain.model_dump() | {"growing": [[32, 0.2], [64, 0.3]]})
    data = read(config)
    batches = density.batches_of(config, data)
    shapes = [tuple(batches.batch(step).shape) for step in range(10)]
    assert shapes == [(32, 33)] * 2 + [(16, 65)] * 3 + [(8, 129)] * 5
    fixed = density.batches_of(plain, data)
    assert (fixed.batch(4) == batches.batch(9)).all() and "stages" not in fixed.settings()


def test_images_are_read_whole():
    with pytest.raises(ReproError, match=r"growing is \(\(64, 0.5\),\), but an image is read whole; leave growing out"):
        planned("sparse-density", is_pattern(True, "dense"), growing="[[64, 0.5]]")


def test_a_corpus_of_another_kind_is_refused():
    with pytest.raises(ReproError, match="corpus synthetic-documents holds .*; this model reads images, audio and te"):
        read(SimpleNamespace(corpus="synthetic-documents"))


def test_plans_at_every_scale():
    sizes = {scale: len(experiment("sparse-density").plan(scale)) for scale in ("smoke", "small", "medium", "paper")}
    assert sizes == {"smoke": 11, "small": 12, "medium": 11, "paper": 11}
    for scale in sizes:
        for name in ("sparse-density", "sparse-audio", "sparse-depth", "factorised-cost"):
            for config in experiment(name).plan(scale):
                told = experiment(name).estimate(config)
                assert told.flops >= 0 and told.seconds > 0 and told.memory_bytes > 0


def test_what_other_contexts_cost_is_foreseen():
    """A least context of 3/4 of the length reads every byte four times."""
    plan = [next(one for one in experiment("sparse-density").plan("smoke", {"contexts": contexts, "steps": 1})
                 if is_pattern(False, "fixed")(one)) for contexts in ("[]", "[96]")]
    without, with_it = (experiment("sparse-density").estimate(one).flops for one in plan)
    scored, rest = 30 * 128, (3 * 8 + 2) * 128  # one step of training, and a text that is drawn
    assert with_it / without == pytest.approx((rest + 5 * scored) / (rest + scored))


def test_the_papers_settings_are_those_of_section_7():
    printed = {(row["experiment"], row["parameter"]): row["value"]
               for row in published("sparse2019_hyperparameters").to_dict("records")}
    plan = experiment("sparse-density").plan("paper")
    image = next(one for one in plan if is_pattern(True, "strided")(one))
    text = next(one for one in plan if is_pattern(False, "fixed")(one))
    assert f"{image.n_layer} / {image.n_head} / {image.n_embd}" == printed["CIFAR-10", "layers / heads / d"]
    assert f"{text.n_layer} / {text.n_head} / {text.n_embd}" == printed["Enwik8", "layers / heads / d"]
    assert f"{text.stride} / {text.summary}" == printed["Enwik8", "stride / c"]
    assert (str(image.length), str(text.length)) == (printed["CIFAR-10", "sequence length"],
                                                      printed["Enwik8", "context length"])
    assert (image.dropout, text.dropout) == (float(printed["CIFAR-10", "dropout"]), float(printed["Enwik8", "dropout"]))
    assert image.learning_rate == float(printed["CIFAR-10", "learning rate"])
    assert [str(k) for k in text.contexts] == published("sparse2019_table3_context_length")[
        "minimum_context_length_tokens"].tolist()
    sizes = [density.model_config(one, one_size).parameters / 1e6 for one, one_size in ((image, 257), (text, 206))]
    assert sizes == pytest.approx([59, 95], rel=0.2)  # Table 1


def test_longer_sound_has_smaller_models_that_keep_as_many_numbers():
    for scale in ("smoke", "small", "medium"):
        kept = {row["length"] * row["n_embd"] * row["n_layer"] for row in LENGTHS[scale]}
        assert max(kept) <= 1.1 * min(kept)
    assert len({row["length"] * row["scored"] for row in LENGTHS["small"]}) == 1  # all are scored on the same sound


def record(seed, nll, corpus="synthetic-images", **config):
    values = {"corpus": corpus, "scale": "smoke", "seed": seed} | config
    return SimpleNamespace(seed=seed, config=values, documents={"test": {"nll": nll, "n_bytes": [10] * len(nll)}},
                           metrics={"test_bits_per_byte": sum(nll) / log(2) / 10 / len(nll)})


def test_patterns_are_compared_image_by_image_and_seed_by_seed():
    records = [record(seed, [10 * log(2) * (k + seed - lead) for k in (1, 2, 3)], pattern=name)
               for name, lead in (("strided", 0.25), ("dense", 0)) for seed in (0, 1)]
    found = effects.fewer_bits(effects.has("pattern", "strided"))(records).effects
    np.testing.assert_allclose(found, np.full((2, 3), -0.25))


def test_text_is_compared_in_stretches_of_two_blocks():
    one = record(0, [log(2) * 10 * k for k in (1, 3, 5, 7, 4)], "synthetic-books")
    assert len(effects.bits(one)) == 3
    assert effects.bits(one).mean() == pytest.approx(4)


def test_the_longest_are_compared_with_the_shortest():
    records = [record(seed, [10 * log(2) * (bits + seed)] * 24, "piano-bach", length=n)
               for n, bits in ((4, 1.0), (16, 5.0), (64, 1.5)) for seed in (0, 1)]
    found = effects.longest_and_shortest(effects.bits)(records).effects
    np.testing.assert_allclose(found, np.full((2, 2), 0.5))


@pytest.mark.parametrize(("id", "effect"), [
    ("sparse2019-table2-images-strided-dense", -0.02), ("sparse2019-table2-images-strided-fixed", -0.05),
    ("sparse2019-table2-text-fixed-strided", -0.14), ("sparse2019-table2-text-fixed-dense", -0.01),
    ("sparse2019-table3-context", -0.0044), ("sparse2019-table4-bits", 1.02),
    ("sparse2019-table4-size", 3 / 152 - 1)])
def test_the_papers_effects_are_those_that_are_printed(id, effect):
    assert claim(id).expected() == pytest.approx(effect)


def test_claims_read_the_runs_that_they_compare():
    plan = experiment("sparse-density").plan("small")
    assert [(one.corpus, one.pattern) for one in plan if claim("sparse2019-table2-images-strided-fixed").where(one)
            ] == [("cifar10-subset", "fixed"), ("cifar10-subset", "strided")]
    assert sorted(one.integration for one in plan if claim("sparse2019-merged").where(one)) == ["interleaved", "merged"]
    assay = claim("sparse2019-table2-text-fixed-dense").assay
    assert [(one.corpus, one.pattern) for one in plan if assay.where(one)] == [
        ("enwik8-prefix", "dense"), ("enwik8-prefix", "window")]
    names = "multi-head", "table4-bits", "table2-text-fixed-dense", "table2-images-strided-dense"
    assert [claim(f"sparse2019-{name}").seeds for name in names] == [SEEDS, SEEDS, SEEDS, PATTERN_SEEDS] == [3, 3, 3, 5]


def test_rows_of_one_scale_differ_in_what_they_compare_alone():
    """The same steps, rates, sizes and data in all rows of Table 2, and as many steps for every length of sound."""
    for scale in ("smoke", "small", "medium", "paper"):
        for image in (True, False):
            rows = [one.model_dump(exclude={"pattern", "drawn", "contexts"}) for one in
                    experiment("sparse-density").plan(scale)
                    if is_pattern(image, "dense", "fixed", "strided", "window")(one)]
            assert len(rows) == 4 and all(row == rows[0] for row in rows)
        assert len({one.steps for one in experiment("sparse-audio").plan(scale)}) == 1


def test_the_room_is_what_dense_attention_has_beyond_a_window():
    def told(pattern, seed, bits):
        return SimpleNamespace(config={"pattern": pattern}, seed=seed, metrics={"test_bits_per_byte": bits})

    records = [told("dense", 0, 2.0), told("window", 0, 2.5), told("dense", 1, 3.0), told("window", 1, 3.25)]
    assert effects.worth_of_reach(records) == 0.375


def test_the_smallest_model_is_heard_on_the_shortest_sound_too():
    for scale in ("smoke", "small", "medium", "paper"):
        plan = experiment("sparse-audio").plan(scale)
        *rows, control = plan
        assert [is_as_large_as_fits(one) for one in plan] == [True] * len(rows) + [False]
        assert (control.length, control.n_embd, control.n_layer) == (rows[0].length, rows[-1].n_embd, rows[-1].n_layer)
        assert not control.drawn and [one for one in plan if claim("sparse2019-table4-bits").where(one)] == plan


@pytest.mark.parametrize(("alone", "verdict"), [(1.2, "reproduced"), (2.5, "not reproduced")])
def test_longer_sound_counts_only_beyond_what_the_smaller_model_costs_on_the_shortest(alone, verdict):
    *rows, control = experiment("sparse-audio").plan("small")
    bits = [(rows[0], 1.0), (rows[1], 9.0), (rows[-1], 2.5), (control, alone)]
    records = [SimpleNamespace(seed=seed, config=one.model_dump(mode="json"), documents={
        "test": {"nll": [10 * log(2) * (b + seed / 100 + k / 50) for k in range(24)], "n_bytes": [10] * 24}})
        for one, b in bits for seed in range(3)]
    found = claim("sparse2019-table4-bits").judge(records)
    assert (found.effect, found.control) == pytest.approx((1.5, alone - 1))
    assert found.verdict == verdict


def test_a_smaller_model_is_told_with_the_memory_that_both_take():
    rows = [SimpleNamespace(seed=0, config={"length": n}, metrics={"parameters": size, "memory_per_sequence": kept})
            for n, size, kept in ((64, 1.0, 3 * 2**20), (4, 8.0, 2 * 2**20), (16, 4.0, 9.0))]
    found = effects.smaller(rows)
    np.testing.assert_allclose(found.effects, [[log(1 / 8)]])
    assert found.note == "a sequence takes 2 MiB at 4 and 3 MiB at 64 samples"
    rows[0].metrics["memory_per_sequence"] = 4 * 2**20
    unequal = effects.smaller(rows)
    assert unequal.note.endswith("4 MiB at 64 samples: 2.0 times, so memory was not held equal")
    assert unequal.effects == [[0]]  # which no claim can rest on


def test_the_claim_on_context_says_what_it_compares(text):
    config, record = text
    least, most = min(config.contexts), max(config.contexts)
    found = effects.last_context([record])
    assert found.note == f"at least {most} bytes of context against {least}"
    assert np.mean(found.effects) == pytest.approx(record.metrics[f"test_bits_at_{most}"]
                                                   - record.metrics[f"test_bits_at_{least}"])


def test_tables_have_the_papers_rows_and_ours_where_nothing_was_run(home):
    wanted = {"sparse2019-table1": 15, "sparse2019-table2": 6, "sparse2019-table3": 6, "sparse2019-table4": 3}
    for id, printed in wanted.items():
        frame = artifact(id).render("medium", also=()).content
        column = "bits per byte"
        paper = frame["source"].str.startswith("the paper")
        assert frame.columns[2] == column or id in ("sparse2019-table3", "sparse2019-table4")
        assert paper.sum() == printed and (frame.loc[~paper, column] == "not run").all() and (~paper).any()
    assert artifact("sparse2019-samples").render("medium", also=()).content.alt.count("not run") == 3


def test_text_that_was_drawn_is_told_without_what_was_given(monkeypatch):
    from repro.data import tokeniser
    from repro.papers.sparse2019 import drawn_text, pictures

    coder = tokeniser("byte", corpus="synthetic-books")
    given, whole = ([base64.b64encode(bytes(coder.encode(text))).decode()] for text in ("the ", "the cat"))
    monkeypatch.setattr(pictures, "_notes", lambda config: {"given": given, "clip": whole})
    assert drawn_text("smoke") == "cat"


def test_committed_text_is_told_without_the_corpus_as_with_it(monkeypatch):
    monkeypatch.setenv("REPRO_HOME", str(Path(__file__).parents[3]))  # not that of other tests here
    from repro.data import corpus
    from repro.papers.sparse2019 import drawn_text

    def words():
        with monkeypatch.context() as patch:
            patch.delenv("REPRO_DATA", raising=False)
            return drawn_text("small")

    assert "[[" in words() and "decoding needs" not in words()
    if corpus("enwik8-prefix").available():
        assert words() == drawn_text("small")


def test_text_that_was_drawn_is_not_told_without_the_text_that_tells_its_ids(monkeypatch):
    from repro.data import Corpus
    from repro.papers.sparse2019 import drawn_text, pictures

    monkeypatch.setattr(pictures, "_notes", lambda config: {"given": ["AQI="], "clip": ["AQID"]})
    monkeypatch.setattr(Corpus, "available", lambda self: False)
    assert drawn_text("small") == ("run, but decoding needs enwik8-prefix, which is not here. Get it: repro data fetch "
                                   "enwik8-prefix")


def test_sound_grows_by_fours_to_its_own_length():
    for one in experiment("sparse-audio").plan("small"):
        lengths, shares = zip(*one.growing, strict=True)
        assert [*lengths, one.length] == [64 * 4**k for k in range(len(lengths) + 1)]
        assert shares[:2] == (0.3, 0.2) and len(set(shares[2:])) == 1
        assert sum(shares) == pytest.approx(0.8, abs=2e-3)


def test_what_a_pattern_is_worth_is_one_number_in_the_table_and_in_the_claims(monkeypatch):
    """The committed rows: dense attention less a window, at common seeds, is the room of the claims."""
    monkeypatch.setenv("REPRO_HOME", str(Path(__file__).parents[3]))
    frame = artifact("sparse2019-table2").render("small", also=()).table
    for image, name in ((True, "images-strided-dense"), (False, "text-fixed-strided")):
        row = frame[(frame["pattern"] == "dense") & frame["source"].str.startswith("this")
                    & frame["data"].str.startswith("cifar10" if image else "enwik8")]
        room = claim(f"sparse2019-table2-{name}").verdict("small").room
        assert row[tables.WORTH].item() == signed(-room, ".3f")
