"""Claims on a reader's text: the measure and verdict against numbers computed here, and every refusal."""

import json
import random
from math import expm1
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from repro import cli, paths
from repro.errors import ReproError
from repro.study import claim, claims
from repro.study.replication import judgeable, known_words, replicate, training, why_not
from repro.study.rule import Verdict

OVERLAP = "yoshida2020-table1-overlap"
WORDS = ("the of and to a in that he was it his with as had for at her she on not but be which him they all said were "
         "from this when my so there an or one would who if been their what up could then into out man very").split()


def put_texts(folder, n=5, words=1_300, seed=0):
    draw = random.Random(seed)
    folder.mkdir()
    for k in range(n):
        text = " ".join(draw.choice(WORDS) + "." * (draw.random() < 0.1) for _ in range(words + 40 * k))
        (folder / f"text-{k}.txt").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of five English-looking texts of 1,300 words and more."""
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
    assert found.note == (
        "by the base model, without fine-tuning; at most the first 4,000 tokens of each document; 1 seed, the study "
        "has 3")

    written = json.loads((tmp_path / "out" / "small" / f"{OVERLAP}.json").read_text())
    assert written["yours"]["records"] == list(found.records) and written["yours"]["corpus"] == "mine"
    records = sorted((tmp_path / "out" / "small" / "recurrence-wikitext103").glob("*.json"))
    assert sorted(found.records) == [file.stem for file in records] and len(records) == 2
    assert json.loads(records[0].read_text())["data"]["reads"] == {"mine": found.fingerprint}
    assert json.loads(records[0].read_text())["data"]["name"] == "mine"  # no corpus of the study is needed

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
    assert "smoke gives no verdict" in found["yours"]["notes"]
    assert "take --scale small, which trains 1 model on the text, about " in found["yours"]["notes"]
    letters = [file.read_bytes() for file in sorted(folder.iterdir())]
    train = b"".join(one.decode()[:int(0.8 * len(one.decode()))].encode() for one in letters)
    assert (f"its training part has {len(train):,} bytes of {len({*train})} different values, the study's "
            "synthetic-books has ") in found["yours"]["notes"]
    record, = (tmp_path / "out" / "smoke" / "sparse-density").glob("*.json")
    assert json.loads(record.read_text())["data"]["name"] == "long"
    short = put_texts(tmp_path / "short", words=300)
    assert "is too short: its validation part has" in call(name, "--data", short).stderr
    (folder / "text-4.txt").unlink()
    assert "has 4 documents; a replication needs at least 5" in call(name, "--data", folder).stderr


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
    assert f"{name} cannot be replicated: {reason}" in done.stderr
    assert "at small 4 can with the models here: " in done.stderr and OVERLAP in done.stderr
    assert "12 can after training on your text: " in done.stderr


def test_the_claims_that_get_a_verdict_are_those_without_training_and_those_that_train_on_the_text(
        tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    here, learning = judgeable("small")
    overlaps = {OVERLAP, "yoshida2020-table1-overlap-falls", "yoshida2020-table2-overlap-falls"}
    assert {one.id for one in here} == {*overlaps, "longformer2020-copied-positions"}
    assert len(learning) == 12 and all(one.experiments[0].rereading.trains for one in learning)
    assert judgeable("smoke") == ([], [])
    lines = CliRunner().invoke(cli.main, ["replicate", "--list"]).stdout.splitlines()
    assert {line.split()[0] for line in lines[2:]} == {one.id for one in (*here, *learning)}
    assert lines[1].split() == ["claim", "scale", "needs", "sentence"]
    assert {line.split()[1] for line in lines[2:]} == {"small"}
    assert all(("no training" in line) == (line.split()[0] in {one.id for one in here}) for line in lines[2:])
    monkeypatch.setenv("REPRO_DATA", str(tmp_path / "nothing"))
    assert {one.id for one in judgeable("small")[0]} == overlaps  # the other one's run reads the study's corpora


def test_a_training_is_announced_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    one = claim("sparse2019-table3-context")
    config, = one.needed("small")
    minutes = one.experiments[0].estimate(config).seconds / 60
    assert training(one, "small") == f"trains 1 model on the text, about {minutes:.0f} min at small (an estimate)"
    folder = put_texts(tmp_path / "long", words=2_500)

    def stop(*args, **named):
        raise ReproError("it started")
    monkeypatch.setattr("repro.study.replication.run", stop)
    lines = call(one.id, "--data", folder).stderr.splitlines()
    assert lines[0].startswith("trains 1 model on the text, about ") and "its training part has" in lines[0]
    assert lines[-1] == "repro: error: it started"


def test_a_verdict_on_one_text_shares_its_error_with_no_family(folder, tmp_path, monkeypatch):
    one, asked = claim("longformer2020-copied-positions"), []
    assert one.sharing("small") > 1
    monkeypatch.setattr(type(one), "judge", lambda self, records, positive=None, family=1: (
        asked.append((records[0], family)) or Verdict("open", 0.0)))
    mine = SimpleNamespace(id="0")
    monkeypatch.setattr("repro.study.replication.run", lambda config, *_, **__: mine)
    monkeypatch.setattr("repro.study.replication.check_text", lambda *_: None)
    note = replicate(one, folder, results=tmp_path / "out", progress=False).note
    assert [family for record, family in asked if record is mine] == [1]
    assert "your text is judged alone, the study's verdict shares its error of 5% with its family of claims" in note


def test_the_study_is_named_by_the_corpus_that_it_scored(folder, tmp_path, monkeypatch):
    one = claim("longformer2020-copied-positions")
    scored, = {config.scored_corpus for config in one.needed("small")}
    assert scored not in {config.corpus for config in one.needed("small")}
    monkeypatch.setattr("repro.study.replication.check_text", lambda *_: None)
    monkeypatch.setattr("repro.study.replication._judged", lambda *_: (Verdict("open", 0.0), []))
    assert replicate(one, folder, results=tmp_path / "out", progress=False).study_corpus == scored


def test_two_folders_of_one_name_keep_their_records_apart(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("repro.study.replication._judged", lambda *_: (Verdict("open", 0.0), []))
    monkeypatch.setattr(paths, "write_atomic", lambda *_: None)
    (tmp_path / "other").mkdir()
    two = [replicate(claim(OVERLAP), one, progress=False)
           for one in (folder, put_texts(tmp_path / "other" / "mine", seed=1))]
    assert [one.folder.name for one in two] == [f"mine-{one.fingerprint[:8]}" for one in two]
    assert two[0].folder != two[1].folder


def test_every_other_claim_reads_text():
    able = [one for one in claims() if not why_not(one)]
    assert len(able) > 50 and {one.unit for one in able} == {"document", "book", "stretch", "seed"}
    assert claim(OVERLAP) in able and claim("longformer2020-copied-positions") in able


def put_german(folder):
    line = "Der alte Bauer verließ sein Haus und ging über die kalten Felder.".split()
    for k, file in enumerate(sorted(folder.iterdir())):
        draw = random.Random(k)
        file.write_text(" ".join(word for _ in range(40) for word in draw.sample(line, len(line))))


def put_one_german(folder):
    """Of all words, the tokenizer still knows more than 40%."""
    english = {file: file.read_text() for file in folder.iterdir()}
    put_german(folder)
    (folder / "text-0.txt").rename(folder / "text-5.txt")
    for file, text in english.items():
        file.write_text(text)


def put_near_copy(folder):
    (folder / "text-9.txt").write_text((folder / "text-2.txt").read_text() + " And more.")


def put_one_short(folder):
    (folder / "text-3.txt").write_text("he said that it was so " * 150)


def leave_four(folder):
    (folder / "text-0.txt").unlink()


def put_latin1(folder):
    (folder / "text-2.txt").write_bytes(b"na\xefve " * 400)


def put_folder(folder):
    for file in folder.iterdir():
        file.unlink()


@pytest.mark.parametrize(("change", "line"), [
    (put_german, "fewer than 40% of the words in 5 of 5 documents in"), (put_german, "text-2.txt (17%) and 2 more."),
    (put_one_german, "of the words in 1 of 6 documents in"), (put_one_german, ": text-5.txt (17%). The models read"),
    (put_one_short, "1 of 5 documents in"),
    (put_one_short, "than the 1,200 that"),
    (put_near_copy, "text-2.txt shares 100% of its runs of 13 words with text-9.txt"),
    (leave_four, "has 4 documents; a replication needs at least 5"), (put_latin1, "text-2.txt is not UTF-8: byte 2 is"),
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
    text = "he said that it was so " * 201
    while len(coder.encode(text)) > 1_200:
        text = text[:-1]
    (folder / "text-3.txt").write_text(text)
    assert len(coder.encode(text)) == 1_200
    check_text(claim(OVERLAP), "small", own_text(folder))
    while len(coder.encode(text)) > 1_199:
        text = text[:-1]
    (folder / "text-3.txt").write_text(text)
    with pytest.raises(ReproError, match=r"text-3.txt \(1,199\)"):
        check_text(claim(OVERLAP), "small", own_text(folder))


def test_scales_models_and_folders_that_do_not_fit_are_refused(folder, tmp_path):
    for words, line in (
            ((OVERLAP, "--scale", "smoke"), "The models of smoke read generated text alone: take --scale small"),
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
