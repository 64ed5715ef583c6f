"""A corpus that is a zip file on the web: fetched whole, resumed, held against its published checksum."""

import hashlib
import io
import lzma
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from repro.data import corpus, fetch, tokens
from repro.data.tokenisation import Bytes
from repro.errors import ReproError

TEXT = bytes(range(256)) * 400  # not UTF-8, as a text that is cut inside a character


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("enwik8", content)
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    """A web server on this machine with one file. `stop`: send no byte of it from there on. `ranges`: honour them."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.file, self.stop, self.ranges, self.asked = zipped(TEXT), None, True, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/enwik8.zip"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        served, told = self.server, self.headers.get("Range")
        start = int(told.removeprefix("bytes=").removesuffix("-")) if told and served.ranges else 0
        served.asked.append(start)
        if start >= len(served.file):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(served.file) - start))
        self.end_headers()
        self.wfile.write(served.file[start:served.stop])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.01,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_DATA", str(tmp_path))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    return tmp_path / "enwik8"


def get(server, folder, content=TEXT):
    archive = fetch.Archive(server.url, "enwik8", hashlib.md5(content, usedforsecurity=False).hexdigest())
    fetch.fetch("enwik8", folder, archive, progress=False)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_member_is_kept_and_noted(server, folder):
    get(server, folder)
    assert names(folder) == ["enwik8", "manifest-enwik8.json"]
    assert (folder / "enwik8").read_bytes() == TEXT
    assert fetch.verify("enwik8", folder) == {"enwik8": True}
    get(server, folder)
    assert server.asked == [0]  # what is there is not asked for again
    (folder / "enwik8").write_bytes(TEXT[:-1])
    get(server, folder)
    assert (folder / "enwik8").read_bytes() == TEXT


def test_of_a_prefix_the_first_bytes_are_kept(server, folder):
    archive = fetch.Archive(server.url, "enwik8", hashlib.md5(TEXT, usedforsecurity=False).hexdigest(), first=1001)
    fetch.fetch("enwik8-prefix", folder, archive, progress=False)
    assert names(folder) == ["enwik8-first-1001-bytes.xz", "manifest-enwik8-prefix.json"]
    assert lzma.decompress((folder / "enwik8-first-1001-bytes.xz").read_bytes()) == TEXT[:1001]
    fetch.fetch("enwik8-prefix", folder, archive, progress=False)
    assert server.asked == [0]


@pytest.mark.parametrize("name", ["text8", "enwik8"])
def test_the_file_of_a_prefix_is_the_one_that_its_corpus_reads(name):
    part, whole = (corpus(one).origin() for one in (f"{name}-prefix", name))
    splits = corpus(f"{name}-prefix").splits.values()
    assert {split.files for split in splits} == {part.name}
    assert sum(split.n_bytes for split in splits) == part.first
    assert (part.url, part.md5) == (whole.url, whole.md5) and whole.first is None


@pytest.mark.parametrize("ranges", [True, False])
def test_it_goes_on_where_it_was_stopped(server, folder, ranges):
    server.stop = 30_000
    with pytest.raises(ReproError, match=r"ended after 30,000 of [\d,]+ bytes.*Run `repro data fetch enwik8` again"):
        get(server, folder)
    assert names(folder) == [".enwik8.zip"]
    server.stop, server.ranges = None, ranges
    get(server, folder)
    assert server.asked == [0, 30_000 if ranges else 0]
    assert (folder / "enwik8").read_bytes() == TEXT and names(folder) == ["enwik8", "manifest-enwik8.json"]


def test_another_file_than_published_is_not_kept(server, folder):
    with pytest.raises(ReproError, match="does not have the md5"):
        get(server, folder, content=TEXT[1:])
    assert names(folder) == []


@pytest.mark.parametrize("spoilt", [b"no zip file at all", b"\x00" * 200_000], ids=["short", "longer than the file"])
def test_what_an_earlier_try_left_damaged_is_fetched_anew(server, folder, spoilt):
    folder.mkdir()
    (folder / ".enwik8.zip").write_bytes(spoilt)
    if len(spoilt) < len(server.file):
        with pytest.raises(ReproError, match="is damaged or has changed"):
            get(server, folder)
    get(server, folder)
    assert (folder / "enwik8").read_bytes() == TEXT


def test_no_server(folder):
    archive = fetch.Archive("http://127.0.0.1:1/enwik8.zip", "enwik8", "")
    with pytest.raises(ReproError, match="stopped .URLError"):
        fetch.fetch("enwik8", folder, archive, progress=False)


def test_splits_that_are_cut_inside_a_character_lose_no_byte(folder):
    text = ("æ" * 50).encode()
    folder.mkdir()
    (folder / "enwik8").write_bytes(text)
    sizes = {"train": 51, "validation": 48, "test": 1}
    whole = corpus("enwik8")
    source = replace(whole, splits={name: replace(whole.splits[name], n_bytes=n) for name, n in sizes.items()})
    coder = Bytes(bytes(sorted(set(text))))
    read = {split: tokens(source, split, coder) for split in sizes}
    assert b"".join(bytes(coder.known[i - 1] for i in read[split].ids[1:]) for split in sizes) == text
    assert {split: int(part.n_bytes[0]) for split, part in read.items()} == sizes
    assert coder.decode(read["train"].ids) == source.documents("train")[0].text
    assert all(row.ok for row in source.check())
