"""The training benchmark at a tiny size: that all contenders do the same work, and what it makes of the speeds."""

import inspect
import json
import shutil
import time

import pytest
import tiny_gemma
import torch
from safetensors.torch import load_file

from repro.bench import read, training
from repro.errors import ReproError
from repro.models.pretrained import write_manifest
from repro.models.vocabulary import cut
from repro.study import experiment

TINY = {"n_layer": 3, "n_embd": 16, "n_head": 2, "n_positions": 300, "sequence": 32, "batch_size": 2}
@pytest.fixture
def gemma(tmp_path, monkeypatch):
    """The folders of a tiny Gemma that was fetched, and of the same with a cut vocabulary."""
    monkeypatch.setenv("REPRO_MODELS", str(tmp_path / "models"))
    whole = tmp_path / "models" / training.PUBLISHED
    tiny_gemma.folder(whole)
    config = json.loads((whole / "config.json").read_text())
    (whole / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 300, "opening_token": 2}))
    write_manifest(whole, {"name": whole.name})
    return whole, cut(whole, tmp_path / "cut", ["the cat"])


@pytest.fixture
def tiny(monkeypatch):
    """The base models at the size of a toy."""
    plan = experiment("pretrain-gpt2-mini").plan
    monkeypatch.setattr(type(experiment("pretrain-gpt2-mini")), "plan",
                        lambda self, scale: [one.model_copy(update=TINY) for one in plan(scale)])


def test_all_contenders_train_on_the_same_tokens(monkeypatch):
    works, seen, forward = training.contenders(2, 16, 2, 50, 3, 8, steps=4), [], torch.nn.Embedding.forward

    def reading(self, ids):
        if self.num_embeddings == 50 and len(ids) == 3:  # a check for models that see later tokens reads other batches
            seen[-1].append(ids.flatten())
        return forward(self, ids)

    monkeypatch.setattr(torch.nn.Embedding, "forward", reading)
    for work in works.values():
        seen.append([])
        assert work() == 4 * 3 * 8
        assert len(seen[-1]) == 4
    first, *others = (torch.cat(batches).sort().values for batches in seen)  # the Trainer shuffles
    assert len(others) == 3 and all(torch.equal(first, other) for other in others)


def test_the_trainer_is_made_before_it_is_timed_and_trains_at_every_turn(monkeypatch):
    import transformers

    works, made = training.contenders(2, 16, 2, 50, 3, 8, steps=2), []
    monkeypatch.setattr(transformers, "Trainer", made.append)
    model = inspect.getclosurevars(works[training.TRAINER]).nonlocals["peer"].model
    for _ in range(2):
        before = [weight.clone() for weight in model.parameters()]
        assert works[training.TRAINER]() == 2 * 3 * 8
        assert not any(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True) if pair[0].any())
    assert not made


@pytest.mark.parametrize("native", [False, True])
def test_gemma_is_trained_on_the_same_windows_by_all(gemma, monkeypatch, native):
    monkeypatch.setattr("repro.bf16.has_bf16", lambda: native)
    works = training.gemma(gemma[1], window=6, n_windows=3, batch_size=2)
    peers = {name: inspect.getclosurevars(works[name]).nonlocals["peer"] for name in works if "Trainer" in name}
    assert {name: peer.args.bf16 for name, peer in peers.items()} == {training.TRAINER: False} | (
        {training.TRAINER_HALF: True} if native else {})
    assert list(works) == [*peers, "plain", "recurrent"]
    models = {name: inspect.signature(works[name]).parameters["model"].default for name in ("plain", "recurrent")}
    models |= {name: peer.model for name, peer in peers.items()}
    assert len(set(map(id, models.values()))) == len(works)
    assert {name: model.config._attn_implementation for name, model in models.items()} == {
        name: "repro_memory" if name == "recurrent" else "eager" for name in models}
    assert {weight.dtype for model in models.values() for weight in model.parameters()} == {torch.float32}
    for name, work in works.items():
        before = [weight.clone() for weight in models[name].model.layers.parameters()]
        assert work() == 2 * 3 * 6
        assert not any(torch.equal(*pair) for pair in zip(before, models[name].model.layers.parameters(), strict=True))
    assert models["recurrent"].recurrence.config.insert_layer == 1 and not hasattr(models["plain"], "recurrence")
    loaded = load_file(gemma[1] / "model.safetensors")["model.embed_tokens.weight"].float()
    fresh = inspect.signature(training.gemma(gemma[1])["plain"]).parameters["model"].default
    assert torch.equal(fresh.model.embed_tokens.weight, loaded)  # the folder's own weights


@pytest.mark.parametrize(("native", "own"), [(True, "ours, bf16"), (False, "ours, fp32")])
def test_where_gemma_is_not_here_its_rows_say_how_to_get_it(monkeypatch, tmp_path, native, own):
    monkeypatch.setenv("REPRO_MODELS", str(tmp_path))
    monkeypatch.setattr("repro.bf16.has_bf16", lambda: native)
    with pytest.raises(ReproError) as absent:
        training.study_folders()
    speeds, rows = training.gemma_rows(None, str(absent.value), 1, time.process_time)
    assert speeds == {} and {row[0] for row in rows.values()} == {"not here: repro models fetch gemma-3-270m"}
    ratios = [f"Gemma: {own} / transformers.Trainer", *[f"Gemma: {own} / transformers.Trainer, bf16"] * native]
    assert list(rows)[:-4] == ratios
    assert [row[1:] for row in rows.values()] == [(2.0 if native else None,), *[(None,)] * native, (0.9,),
                                                  (10.0, "at most"), (10.0, "at most"), (0.1, "at most")]


def test_only_the_folder_that_is_asked_for_is_fetched_again(monkeypatch, gemma, tmp_path):
    asked, other = [], tmp_path / "elsewhere" / training.PUBLISHED
    shutil.copytree(gemma[0], other)
    monkeypatch.setattr("repro.models.pretrained.fetch", lambda name, progress: asked.append(name))
    for whole, said in ((gemma[0], float), (other, str)):
        rows = training.gemma_rows((whole, gemma[1]), "", 1, time.process_time)[1]
        assert isinstance(rows["Gemma: seconds to fetch it again"][0], said)
        assert asked == [training.PUBLISHED] * 2  # of the first folder alone


def test_the_seconds_of_a_call_are_those_after_the_first(monkeypatch):
    clock = iter([0, 100, 200, 203, 300, 301, 400, 402])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    calls = []
    assert training.seconds(lambda: calls.append(1), 3) == 2 and len(calls) == 4


def test_the_plain_loop_and_ours_end_in_the_same_weights(monkeypatch):
    from repro.models import gpt2_mini
    from repro.training import Sequences

    sequences = Sequences(torch.arange(200) % 50, 8, 3)
    models = []
    for train in (training.loop, lambda *given: training.ours(*given, 8)):
        torch.manual_seed(0)
        models.append(gpt2_mini(2, 16, 2, 50))
        start = [weight.clone() for weight in models[-1].parameters()]
        train(models[-1], sequences, 3)
    assert not all(torch.equal(*pair) for pair in zip(start, models[0].parameters(), strict=True))
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-5)  # AdamW divides by small gradients


def test_the_report_has_a_ratio_to_the_trainer_and_the_optimisers(tiny, gemma, tmp_path):
    path, threads = tmp_path / "training.json", torch.get_num_threads()
    found = training.main(path, widths={16: 2, 256: 4}, n_layer=1, vocabulary=50, batch_size=2, length=8, steps=1,
                          rounds=1, optimiser_tokens=640, scale="smoke", gemma_folders=gemma)
    assert read(path) == found and torch.get_num_threads() == threads
    assert found["environment"]["threads"] == 1 and found["settings"]["scale"] == "smoke"
    speed = {name: value["tokens_per_second"] for name, value in found["speeds"].items()}
    for name in (training.LOOP, training.SINGLE, training.HALF):
        ratio = found["ratios"][f"width 16: {name} / transformers.Trainer"]
        assert ratio["measured"] == speed[f"width 16: {name}"] / speed["width 16: transformers.Trainer"]
        assert ratio["wanted"] is None
    native = found["environment"]["bf16"] == "native"
    own = "ours, bf16" if native else "ours, fp32"
    for peer, wanted in ((training.TRAINER, 2.0), (training.TRAINER_HALF, None))[:1 + native]:
        ratio = found["ratios"][f"Gemma: {own} / {peer}"]
        assert ratio["measured"] == speed["Gemma: plain"] / speed[f"Gemma: {peer}"]
        assert ratio["wanted"] == (wanted if native else None)
    assert found["settings"]["gemma"] == training.PUBLISHED and "eager attention" in found["notes"]["peers"]
    assert found["ratios"]["Gemma: recurrent / plain"]["measured"] == speed["Gemma: recurrent"] / speed["Gemma: plain"]
    for name, bound in (("seconds to load it again, whole", 10.0), ("seconds to fetch it again", 0.1),
                        ("seconds to load it again, with a cut vocabulary", 10.0)):
        ratio = found["ratios"][f"Gemma: {name}"]
        assert 0 < ratio["measured"] < 10 and (ratio["wanted"], ratio["bound"]) == (bound, "at most")
    assert found["ratios"]["width 256: ours, bf16 / transformers.Trainer"]["wanted"] == (2.0 if native else None)
    assert found["ratios"]["recurrent / plain"]["measured"] == speed["windows: recurrent"] / speed["windows: plain"]
    muon = found["notes"]["optimisers"]
    assert "\n" not in found["notes"]["peers"] and "falls to 0" in found["notes"]["peers"]
    curves = {name: dict(curve) for name, curve in muon["curves"].items()}
    assert muon["equal tokens"] == {name: curve[640] for name, curve in curves.items()}
    share = min(1, speed["smoke: Muon"] / speed["smoke: AdamW"])
    assert muon["equal seconds"] == {"AdamW": curves["AdamW"][640],
                                     "Muon": pytest.approx(training.after(muon["curves"]["Muon"], share * 640))}
    for at in ("equal tokens", "equal seconds"):
        assert found["ratios"][f"loss, Muon / AdamW, {at}"] == {
            "measured": muon[at]["Muon"] / muon[at]["AdamW"], "wanted": 1.0, "bound": "at most"}


def test_a_curve_is_read_between_its_points():
    curve = [[100, 5.0], [200, 4.0], [400, 3.0]]
    assert [training.after(curve, n) for n in (100, 150, 300, 400)] == [5.0, 4.5, 3.5, 3.0]
