"""Claims on a reader's text: the measure and verdict against numbers computed here, and every refusal."""

import json
import random
from math import expm1

import pytest
from typer.testing import CliRunner

from repro import cli, paths
from repro.errors import ReproError
from repro.study import claim, claims
from repro.study.replication import known_words, replicate, why_not

OVERLAP = "yoshida2020-table1-overlap"
WORDS = ("the of and to a in that he was it his with as had for at her she on not but be which him they all said were "
         "from this when my so there an or one would who if been their what up could then into out man very").split()


def put_texts(folder, n=5, words=500, seed=0):
    draw = random.Random(seed)
    folder.mkdir()
    for k in range(n):
        text = " ".join(draw.choice(WORDS) + "." * (draw.random() < 0.1) for _ in range(words + 40 * k))
        (folder / f"text-{k}.txt").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of five English-looking texts of 500 words and more."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    return put_texts(tmp_path / "mine")


def call(*words):
    done = CliRunner().invoke(cli.main, ["replicate", *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_the_effect_is_that_of_the_base_model_on_these_texts(folder, tmp_path):
    from repro.evaluation import perplexity
    from repro.models import load_causal_lm
    from repro.papers.base.models import EXPERIMENTS
    from repro.papers.base.pretraining import tokeniser_of
    from repro.study import kept_model

    base = EXPERIMENTS["gpt2-mini"].plan("small")[0]
    model, coder, n_words = load_causal_lm(kept_model(base)), tokeniser_of(base), 0
    nats = {0: 0.0, 50: 0.0}
    for file in sorted(folder.iterdir()):
        ids = [coder.bos, *coder.encode(file.read_text()).tolist()]
        n_words += len(file.read_text().split())
        for overlap in nats:
            nats[overlap] += perplexity(model, ids, 300, overlap).nll

    found = replicate(claim(OVERLAP), folder, results=tmp_path / "out", progress=False)
    assert (found.scale, found.n_documents, found.found.n_units, found.found.n_seeds) == ("small", 5, 5, 1)
    assert found.found.effect == pytest.approx(expm1((nats[50] - nats[0]) / n_words), rel=1e-4)
    assert found.found.low < found.found.effect < found.found.high
    assert found.study == claim(OVERLAP).verdict("small") and found.study_corpus == "wikitext-103"
    assert found.note == "by the base model, without fine-tuning"

    written = json.loads((tmp_path / "out" / "small" / f"{OVERLAP}.json").read_text())
    assert written["yours"]["records"] == list(found.records) and written["yours"]["corpus"] == "mine"
    records = sorted((tmp_path / "out" / "small" / "recurrence-wikitext103").glob("*.json"))
    assert sorted(found.records) == [file.stem for file in records] and len(records) == 2
    assert json.loads(records[0].read_text())["data"]["reads"] == {"mine": found.fingerprint}

    lines = call(OVERLAP, "--data", folder, "--results", tmp_path / "out").stdout.splitlines()  # from the records
    assert lines[3].startswith("the study: wikitext-103") and lines[4].startswith("yours: mine")
    assert found.study.measured in lines[3] and found.found.measured in lines[4] and "5 documents, 1 seed" in lines[4]


def test_a_claim_whose_models_learn_trains_them_on_these_texts(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    name, folder = "sparse2019-table3-context", put_texts(tmp_path / "long", words=2_500)
    (folder / "text-4.txt").write_text((folder / "text-4.txt").read_text() + " café")  # letters of the last part only
    done = call(name, "--data", folder, "--results", tmp_path / "out", "--json")
    found = json.loads(done.stdout)
    assert found["yours"]["scale"] == "smoke" and found["yours"]["verdict"] == "machinery works"
    assert found["verdicts"]["yours"]["n_units"] > 1
    assert found["study"]["verdict"] == claim(name).verdict("small").verdict
    record, = (tmp_path / "out" / "smoke" / "sparse-density").glob("*.json")
    assert json.loads(record.read_text())["data"]["name"] == "long"
    short = put_texts(tmp_path / "short", words=300)
    assert "is too short: its validation part has" in call(name, "--data", short).stderr


def test_the_same_words_give_the_same_share():
    from repro.data import train_bpe

    coder = train_bpe(["the cat sat"] * 9, 300)
    assert known_words(coder, ["the cat", "sat on 3 mats"]) == 3 / 5
    assert known_words(coder, [""]) == 0


@pytest.mark.parametrize(("name", "reason"), [
    ("sparse2019-pairs", "it compares counts or printed numbers"),
    ("longformer2020-table6-imdb", "it compares counts or printed numbers"),
    ("sparse2019-merged", "it reads examples of the kind 'image' (synthetic-images), not running text"),
    ("liu2018-figure2-tfidf", "it reads examples of the kind 'summary'"),
    ("yoshida2020-table2-more-on-books", "it compares several texts (pg19-subset, wikitext-103)"),
    ("yoshida2020-pronouns", "the experiment propagation-pg19 reads only its own text")])
def test_a_claim_that_cannot_be_replicated_says_why(folder, name, reason):
    done = call(name, "--data", folder)
    assert done.exit_code == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert f"{name} cannot be replicated: {reason}" in done.stderr and "claims can be, such as" in done.stderr


def test_every_other_claim_reads_text():
    able = [one for one in claims() if not why_not(one)]
    assert len(able) > 50 and {one.unit for one in able} == {"document", "book", "stretch", "seed"}
    assert claim(OVERLAP) in able and claim("longformer2020-copied-positions") in able


def put_german(folder):
    for file in folder.iterdir():
        file.write_text("Der alte Bauer verließ sein Haus und ging über die kalten Felder. " * 40)


def put_one_short(folder):
    (folder / "text-3.txt").write_text("he said that it was so " * 20)


def leave_four(folder):
    (folder / "text-0.txt").unlink()


def put_latin1(folder):
    (folder / "text-2.txt").write_bytes(b"na\xefve " * 400)


def put_folder(folder):
    for file in folder.iterdir():
        file.unlink()


@pytest.mark.parametrize(("change", "line"), [
    (put_german, "knows 17% of the words in"), (put_one_short, "1 of 5 documents in"),
    (put_one_short, "than the 301 that"),
    (leave_four, "has 4 documents; an interval needs at least 5"), (put_latin1, "text-2.txt is not UTF-8: byte 2 is"),
    (put_folder, "has no .txt file among its 0 entries")])
def test_bad_text_is_refused_in_one_line(folder, tmp_path, change, line):
    change(folder)
    done = call(OVERLAP, "--data", folder, "--results", tmp_path / "out")
    assert done.exit_code == 2 and done.stdout == "" and line in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_a_text_as_long_as_needed_is_read(folder, tmp_path, monkeypatch):
    from repro.data.own_text import own_text
    from repro.papers.base.models import EXPERIMENTS
    from repro.papers.base.pretraining import tokeniser_of
    from repro.study.replication import check_text

    coder = tokeniser_of(EXPERIMENTS["gpt2-mini"].plan("small")[0])
    text = "he said that it was so " * 100
    while len(coder.encode(text)) > 301:
        text = text[:-1]
    (folder / "text-3.txt").write_text(text)
    assert len(coder.encode(text)) == 301
    check_text(claim(OVERLAP), "small", own_text(folder))
    while len(coder.encode(text)) > 300:
        text = text[:-1]
    (folder / "text-3.txt").write_text(text)
    with pytest.raises(ReproError, match=r"text-3 \(300\)"):
        check_text(claim(OVERLAP), "small", own_text(folder))


def test_scales_models_and_folders_that_do_not_fit_are_refused(folder, tmp_path):
    for words, line in (
            ((OVERLAP, "--scale", "smoke"), "at smoke they only know generated text; take --scale small"),
            ((OVERLAP, "--scale", "huge"), "unknown scale"),
            (("yoshida2020-table1-gain-disjoint",), "models of finetune-gpt2 at small are not here, and a replication "
             "trains none; make the first one with: repro run finetune-gpt2 --scale small"),
            (("longformer2020-short-training",), "train a model on the study's text first"),
            ((OVERLAP, "--results", paths.home() / "results" / "mine"), "the study's own records; choose another"),
            ((OVERLAP + "s",), f"Did you mean '{OVERLAP}'?")):
        done = call(*words, "--data", folder)
        assert done.exit_code == 2 and line in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert not (paths.home() / "results" / "mine").exists()
    done = call(OVERLAP, "--data", tmp_path / "missing")
    assert "is not here; give a folder with .txt files" in done.stderr
    assert "Missing option '--data'" in call(OVERLAP).stderr
