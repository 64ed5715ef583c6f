"""The bad inputs of the campaign, part by part."""

import copy
import json
import lzma
import shutil
import struct
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import nbformat
import numpy as np
import pyarrow
import pyarrow.parquet
from bad_inputs import HOSTILE, NOT_NUMBERS
from watched import Accepted, Case, command

IMPORTED = ("torch", "transformers", "scipy.stats", "pandas", "matplotlib.pyplot", "safetensors.torch",
            "repro.pages", "repro.papers.yoshida2020", "repro.bench.attention", "IPython.display", "tokenizers",
            "huggingface_hub", "repro.data.own_text", "repro.study.replication")
GOOD = "yoshida2020-table1-overlap"
HUGE = 10**9


def prepare(place: Path, home: Path, data: Path | None) -> None:
    """What the commands find: some records, a file where a folder belongs, and matplotlib without a window."""
    import matplotlib

    from repro.study import claims

    matplotlib.use("Agg")
    from repro.models import load_causal_lm, load_masked_lm

    for name in ("choose-window", "pretrain-gpt2-mini", "pretrain-roberta-mini"):
        shutil.copytree(home / "results/small" / name, place / "home/results/small" / name)
    for name, load in (("pretrain-gpt2-mini", load_causal_lm), ("pretrain-roberta-mini", load_masked_lm)):
        load(next((home / "results/small" / name).glob("*/model")))  # the first pays for imports
    (place / "cwd/file").write_text("a file\n")
    (place / "cwd/empty").mkdir()
    for one in claims():
        assert one.scales  # plans are cached: the first command of a process pays for them


# The command line.

def commands(place: Path, home: Path, data: Path | None) -> Iterator[Case]:
    """Every command with hostile names, options and folders."""
    def case(*words: object, calm: bool = False) -> Case:
        return Case("command line", " ".join(map(str, words)), lambda: command(*words), calm)

    for name in HOSTILE:
        for words in (("run",), ("show",), ("data", "show"), ("data", "fetch"), ("data", "check"), ("models", "fetch"),
                      ("models", "check"), ("models", "install"), ("bench",), ("list",)):
            yield case(*words, "--", name, calm=words == ("list",) and name in ("-", "0"))  # part of some names
        yield case("replicate", "--data", place / "cwd/empty", "--", name)
        yield case("replicate", GOOD, f"--data={name}")
        yield case("replicate", GOOD, "--data", place / "cwd/empty", f"--scale={name}")
        for command_ in (("run", "recurrence-pg19", "--dry-run"), ("show", "yoshida2020-table1"), ("show", GOOD)):
            yield case(*command_, f"--scale={name}")
        yield case("run", "recurrence-pg19", "--dry-run", f"--set={name}")
        yield case("run", "recurrence-pg19", "--dry-run", f"--set={name}=1")
        yield case("show", "yoshida2020-table1", f"--set={name}=1")
        yield case("show", GOOD, f"--set={name}=1")
        yield case("run", "recurrence-pg19", "--dry-run", f"--only={name}")
        yield case("show", "yoshida2020-table1", f"--save={name}.pdf")
        yield case("show", "yoshida2020-figure4", f"--save={name}.csv")
        yield case("show", GOOD, f"--save={name}.csv")
        for command_ in (("list",), ("show", GOOD), ("models", "list"), ("models", "check")):
            yield case(*command_, f"--results={place}/missing/{name}".replace("\n", "n")[:200] + "!")
        yield case(name)
        yield case("--" + name)
        yield case("run", "recurrence-pg19", "--" + (name or "x"))
    for value in NOT_NUMBERS:
        yield case("run", "recurrence-pg19", "--dry-run", f"--seed={value}")
        yield case("run", "recurrence-pg19", "--dry-run", f"--budget={value}")
        yield case("bench", "attention", f"--length={value}")
        yield case("bench", "attention", f"--rounds={value}")
        yield case("bench", "attention", f"--budget={value}")
        yield case("bench", "attention", f"--pass={value}")
    for value in ("-1", "1.5", "0,-2", ",", "1,,2", "0.0", "9" * 5_000):
        yield case("run", "recurrence-pg19", "--dry-run", f"--seed={value}")
    for value in ("0", "-5m", "5", "5x", "1h1", "m", "9" * 400 + "h", "-1s", "1h-1m", "0s", "1d"):
        yield case("run", "recurrence-pg19", "--dry-run", f"--budget={value}", calm=value in ("5", "9" * 400 + "h"))
    for value in ("0", "-1", "1.5"):
        yield case("bench", "attention", f"--rounds={value}")
        yield case("bench", "attention", f"--length={value}")
    for words in (("run",), ("run", "--set", "window=3"), ("run", "--budget", "5m", "--only", "x"), ("show",),
                  ("data",), ("data", "nope"), ("models",), ("models", "nope"), ("replicate",), ("replicate", GOOD),
                  ("run", "recurrence-pg19", "--budget", "5m", "--force"), ("doctor", "x"), ("doctor", "--nope"),
                  ("list", "--results", "file"), ("show", GOOD, "--results", "file"),
                  ("run", "recurrence-pg19", "--results", "file"), ("models", "install", "file"),
                  ("models", "install", "empty"), ("data", "fetch", "pg19-subset", "file"),
                  ("data", "check", "pg19-subset"), ("data", "check", "wikitext-103"), ("data", "fetch", "imdb-subset"),
                  ("replicate", GOOD, "--data", "file"), ("replicate", GOOD, "--data", "/dev/null"),
                  ("replicate", GOOD, "--data", "empty", "--results", "file"),
                  ("bench", "memory", "--budget", "5s"), ("bench", "memory", "--length", "5"),
                  ("run", "recurrence-pg19", "--set", "window=3", "--set", "window=4", "--dry-run")):
        yield case(*words)


def settings(place: Path, home: Path, data: Path | None) -> Iterator[Case]:
    """`--set` of every setting of every experiment with values that it cannot have."""
    from repro.study import experiments

    for experiment in experiments():
        scale = next(iter(experiment.scales))
        plain = experiment.plan(scale)[0].model_dump(mode="json")
        for name, value in plain.items():
            if name in ("experiment", "scale"):
                continue
            bad = ["-1", "1.5x", "[[[]]]", '{"a": 1}'] if isinstance(value, (int, float)) else [
                "../../x", '["nope", [1]]', '{"a": 1}']
            for one in bad:
                words = ("run", experiment.name, "--scale", scale, "--dry-run", f"--set={name}={one}")
                later = name in ("base", "source", "best")  # names of models and of metrics, which a run looks up
                yield Case("settings", " ".join(words[1:]), partial(command, *words), later)
        for name in ("experiment", "scale", "window ", "Corpus", "__class__"):
            words = ("run", experiment.name, "--scale", scale, "--dry-run", f"--set={name}=1")
            yield Case("settings", " ".join(words[1:]), partial(command, *words))


def folders(place: Path, home: Path, data: Path | None) -> Iterator[Case]:
    """`repro replicate` with folders that hold no text it can measure."""
    words = "the old man said that he had seen it on the road in the morning and that it was very large "
    good = {f"{k}.txt": (words * 40).encode() for k in range(5)}
    german = "Der alte Bauer verließ sein Haus und ging über die kalten Felder nach Süden. " * 60
    made = {
        "empty": {}, "other files": {"a.md": b"text", "b.pdf": b"%PDF"}, "one": {"a.txt": good["0.txt"]},
        "four": dict(list(good.items())[:4]), "one short": good | {"3.txt": b"he said so"},
        "one empty": good | {"3.txt": b""}, "one blank": good | {"3.txt": b" \n \t\n"},
        "latin1": good | {"3.txt": b"na\xefve " * 900}, "utf16": good | {"3.txt": (words * 40).encode("utf-16")},
        "utf32": good | {"3.txt": (words * 40).encode("utf-32")}, "png": good | {"3.txt": b"\x89PNG\r\n\x1a\n\0" * 99},
        "gzip": good | {"3.txt": b"\x1f\x8b\x08" + bytes(range(256)) * 9}, "zeros": good | {"3.txt": b"\0" * 5_000},
        "cut character": good | {"3.txt": (words * 40).encode() + "é".encode()[:1]},
        "surrogate": good | {"3.txt": b"\xed\xa0\x80 " * 400}, "german": {name: german.encode() for name in good},
        "russian": {name: ("старый крестьянин вышел из дома " * 90).encode() for name in good},
        "chinese": {name: ("老农夫离开了家 " * 300).encode() for name in good},
        "base64": {name: ("TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5IGJ5IGhpcyBy" * 60).encode() for name in good},
        "numbers": {name: ("3 14 159 2653 " * 400).encode() for name in good},
        "one letter": {name: b"x" * 20_000 for name in good}, "signs": {name: b"!? -- ;" * 400 for name in good},
        "one long word": {name: bytes(97 + (k * 7919) % 26 for k in range(60_000)) for name in good}}
    for name, contents in made.items():
        folder = place / "cwd" / f"texts {name}"
        folder.mkdir()
        for file, content in contents.items():
            (folder / file).write_bytes(content)
        for claim, scale in ((GOOD, "small"), ("longformer2020-copied-positions", "small"),
                             ("yoshida2020-table1-gain-disjoint", "smoke")):
            yield Case("folders", f"{claim} {name}", partial(command, "replicate", claim, "--scale", scale, "--data",
                                                             folder, "--results", place / "out"))
        if name in ("empty", "other files", "latin1", "utf16", "png", "zeros", "one empty"):
            yield Case("folders", f"sparse2019-table3-context {name}", partial(
                command, "replicate", "sparse2019-table3-context", "--data", folder, "--results", place / "out"))
    folder = place / "cwd" / "texts large"
    folder.mkdir()
    with (folder / "a.txt").open("wb") as file:
        file.truncate(10**11)  # a file with a hole takes no space
    yield Case("folders", "10^11 bytes", partial(command, "replicate", GOOD, "--data", folder))


# Chapters.

UNLIKE = ("x", -1, 0, None, [], {}, float("nan"), float("inf"), [-1], ["x"], [None], True, "../../x", 1.5, -1e308, "")


def chapters(place: Path, home: Path, data: Path | None) -> Iterator[Case]:
    """Each number among the parameters of a chapter with values outside its comment. The first cell after them must
    refuse it, before anything is computed."""
    for path in sorted((home / "notebooks").glob("*.ipynb")):
        cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
        first = next(k for k, cell in enumerate(cells) if "parameters" in cell.metadata.get("tags", []))
        names: dict = {}
        exec(cells[first].source, names)
        exec(cells[first + 1].source, dict(names))  # as it is; the first pays for imports
        for name, value in names.items():
            one = value[0] if isinstance(value, (list, tuple)) else value
            if name == "__builtins__" or isinstance(one, (str, tuple)):
                continue
            for bad in UNLIKE:
                if bad == 0 and not isinstance(bad, bool) and name in ZERO or bad == 1.5 and (
                        isinstance(one, float) or name == "cards"):
                    continue
                yield Case("chapters", f"{path.stem} {name}={bad!r}", partial(
                    _chapter, cells[first].source, cells[first + 1].source, name, bad))


ZERO = ("seed", "overlap", "overlaps", "insert_layer", "lm_weight", "contexts")  # 0 is one of their values


def _chapter(parameters: str, source: str, name: str, bad: object) -> None:
    names: dict = {"__name__": "__main__"}
    exec(parameters, names)
    names[name] = bad
    exec(source, names)
    raise Accepted("the first cell takes it")


# Records.

def records(place: Path, home: Path, data: Path | None) -> Iterator[Case]:
    """A committed record, changed in each of its parts: with its digest made to fit, and without."""
    from repro.study.record import Record, digest

    source = next((home / "results/small/choose-window").glob("*.json"))
    whole = json.loads(source.read_text())
    folder = place / "out/records"
    number = 0

    def put(content: bytes, name: str = source.name) -> Path:
        nonlocal number
        number += 1
        path = folder / str(number) / "small/choose-window" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        return path

    def read(path: Path) -> None:
        Record.read(path)
        raise Accepted(str(path))

    def shown(path: Path) -> str:
        return command("list", "choose-window", "--results", path.parents[2])

    text = source.read_bytes()
    raw = {"empty": b"", "cut": text[:len(text) // 2], "last brace": text.rstrip()[:-1],
           "binary": bytes(range(256)) * 4, "utf-16": text.decode().encode("utf-16"),
           "bom": b"\xef\xbb\xbf" + text, "list": b"[]", "null": b"null",
           "number": b"1", "text": b'"x"', "twice": text + text, "deep": b"[" * 100_000 + b"]" * 100_000,
           "nan": text.replace(b'"seed": 0', b'"seed": NaN'), "huge number": text.replace(
               b'"seed": 0', b'"seed": ' + b"9" * 5_000), "schema 2": text.replace(b'"schema": 1', b'"schema": 2'),
           "schema text": text.replace(b'"schema": 1', b'"schema": "1"'), "latin1": text[:-5] + b"\xe9" + text[-5:]}
    for name, content in raw.items():
        path = put(content)
        yield Case("records", name, partial(read, path))
        yield Case("records", f"{name}, listed", partial(shown, path))
    strange = (None, "x", "../../x", -1, 1e308, [], {}, True, ["x"], {"a": 1}, "0" * 16)
    for key in whole:
        for value in strange:
            for sealed in (False, True):
                parts = copy.deepcopy(whole) | {key: value}
                if parts[key] == whole[key] or key == "cost" and isinstance(value, dict):
                    continue
                if key == "carried_from" and isinstance(value, str) or key == "model" and isinstance(value, str):
                    continue
                if sealed and key != "digest":
                    try:
                        parts["digest"] = digest(parts)
                    except Exception:
                        continue
                elif sealed:
                    continue
                calm = sealed and key in ("metrics", "units", "curves", "documents", "notes", "environment", "needs",
                                          "cost", "model") or key == "cost"
                yield Case("records", f"{key}={value!r} {'sealed' if sealed else ''}", partial(
                    read, put(json.dumps(parts).encode())), calm)
        without = {name: value for name, value in whole.items() if name != key}
        yield Case("records", f"without {key}", partial(read, put(json.dumps(without).encode())), key == "cost")
    yield Case("records", "unknown key", partial(read, put(json.dumps(whole | {"extra": 1}).encode())))
    yield Case("records", "other name", partial(read, put(text, "0123456789abcdef.json")))
    yield from installed(place, home)


def installed(place: Path, home: Path) -> Iterator[Case]:
    """`repro models install` of folders whose record names other places, and whose weights are damaged."""
    from repro.study.record import digest
    from repro.study.settings import identify

    source = next((home / "results/small/pretrain-gpt2-mini").glob("*.json"))
    whole, model = json.loads(source.read_text()), source.with_suffix("") / "model"
    changes = [(key, value) for key in ("scale", "experiment", "id") for value in (
        "../../x", "/srv/x", "..", "", None, 7, "a/b", "small/x", "paper", "charlm")]
    for number, (key, value) in enumerate(changes):
        folder = place / f"out/install-{number}"
        folder.mkdir(parents=True)
        parts = whole | {key: value}
        (folder / "record.json").write_text(json.dumps(parts | {"digest": digest(parts)}))
        shutil.copytree(model, folder / "model")
        yield Case("records", f"install with {key}={value!r}", partial(
            command, "models", "install", folder, "--results", place / "out/there"))
    for number, (name, change) in enumerate(damages().items()):
        folder = place / f"out/damaged-{number}"
        shutil.copytree(model, folder / "model")
        shutil.copy(source, folder / "record.json")
        change(folder / "model")
        yield Case("records", f"install with {name}", partial(
            command, "models", "install", folder, "--results", place / "out/there"), name == "remote code")
    for number, (key, value) in enumerate((("scale", "../../x"), ("scale", "/srv/x"), ("experiment", "../../x"),
                                           ("experiment", ".."), ("experiment", "/srv/x"), ("seed", "../x"))):
        folder = place / f"out/consistent-{number}"
        folder.mkdir()
        parts = whole | {key: value, "config": whole["config"] | {key: value}}
        parts["id"] = identify(parts["config"], parts["data"]["fingerprint"], parts["needs"],
                               parts["data"].get("reads"), parts.get("revision", 0))
        (folder / "record.json").write_text(json.dumps(parts | {"digest": digest(parts)}))
        shutil.copytree(model, folder / "model")
        yield Case("records", f"install with {key}={value!r} in its config too", partial(
            command, "models", "install", folder, "--results", place / "out/there"))
    folder = place / "out/no-model"
    folder.mkdir()
    shutil.copy(source, folder / "record.json")
    yield Case("records", "install without weights", partial(
        command, "models", "install", folder, "--results", place / "out/there"))


# Weights.

def damages() -> dict:
    """Ways to damage a folder of weights, by name."""
    def header(change):
        def apply(folder: Path) -> None:
            path = folder / "model.safetensors"
            content = path.read_bytes()
            size = struct.unpack("<Q", content[:8])[0]
            head = json.loads(content[8:8 + size])
            change(head)
            new = json.dumps(head).encode()
            path.write_bytes(struct.pack("<Q", len(new)) + new + content[8 + size:])
        return apply

    def first(head: dict) -> dict:
        return head[next(name for name in head if name != "__metadata__")]

    def rewrite(name: str, change):
        def apply(folder: Path) -> None:
            (folder / name).write_bytes(change((folder / name).read_bytes()))
        return apply

    def setting(**values):
        def apply(folder: Path) -> None:
            path = folder / "config.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | values))
        return apply

    weights = "model.safetensors"
    layers, width = ("n_layer", "num_hidden_layers"), ("n_embd", "hidden_size")
    return {
        "no weights": lambda folder: (folder / weights).unlink(), "empty weights": rewrite(weights, lambda x: b""),
        "cut weights": rewrite(weights, lambda x: x[:len(x) // 2]), "7 bytes": rewrite(weights, lambda x: x[:7]),
        "header of 2^63 bytes": rewrite(weights, lambda x: struct.pack("<Q", 2**63) + x[8:]),
        "header of 2^64 bytes": rewrite(weights, lambda x: b"\xff" * 8 + x[8:]),
        "header of 10^9 bytes": rewrite(weights, lambda x: struct.pack("<Q", HUGE) + x[8:]),
        "no JSON": rewrite(weights, lambda x: x[:8] + b"!" * 64 + x[72:]),
        "10^9 rows": header(lambda head: first(head).update(shape=[HUGE, 8192])),
        "a negative shape": header(lambda head: first(head).update(shape=[-1, 4])),
        "offsets of 10^15": header(lambda head: first(head).update(data_offsets=[0, 10**15])),
        "offsets backwards": header(lambda head: first(head).update(data_offsets=[100, 0])),
        "an unknown type": header(lambda head: first(head).update(dtype="F7")),
        "other names": header(lambda head: head.update({f"{k}x": head.pop(k) for k in list(head)[:3]})),
        "hostile names": header(lambda head: head.update({"../../x": head.pop(next(iter(head)))})),
        "no tensors": header(lambda head: head.clear()),
        "no config": lambda folder: (folder / "config.json").unlink(),
        "an empty config": rewrite("config.json", lambda x: b""),
        "a cut config": rewrite("config.json", lambda x: x[:40]),
        "a list as config": rewrite("config.json", lambda x: b"[]"), "10^9 layers": setting(
            **dict.fromkeys(layers, HUGE)),
        "width 10^9": setting(**dict.fromkeys(width, HUGE)), "vocabulary 10^12": setting(vocab_size=10**12),
        "positions 10^12": setting(n_positions=10**12, max_position_embeddings=10**12),
        "width 0": setting(**dict.fromkeys(width, 0)),
        "layers -1": setting(**dict.fromkeys(layers, -1)), "layers as text": setting(**dict.fromkeys(layers, "six")),
        "no heads": setting(n_head=0, num_attention_heads=0),
        "an unknown architecture": setting(model_type="nope", architectures=["Nope"]),
        "a path as type": setting(model_type="../../x"), "remote code": setting(auto_map={"AutoModel": "x--y.z"}),
        "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(missing_ok=True),
        "an empty tokenizer": rewrite("tokenizer.json", lambda x: b""),
        "a cut tokenizer": rewrite("tokenizer.json", lambda x: x[:len(x) // 2]),
        "another tokenizer": rewrite("tokenizer.json", lambda x: x.replace(b'"the"', b'"teh"', 1).replace(
            b"\xc4\xa0the", b"\xc4\xa0teh", 1) + b" "),
        "a further file": lambda folder: (folder / "pickle.bin").write_bytes(b"\x80\x04."),
    }


def weights(place: Path, home: Path, data: Path | None) -> Iterator[Case]:
    """Damaged folders of weights, loaded as a decoder and as an encoder."""
    from repro.data import Tokeniser
    from repro.models import load_causal_lm, load_masked_lm

    silent = ("no tokenizer", "an empty tokenizer", "a cut tokenizer", "another tokenizer", "a further file",
              "remote code", "layers -1", "an unknown architecture")
    for experiment, load in (("pretrain-gpt2-mini", load_causal_lm), ("pretrain-roberta-mini", load_masked_lm)):
        model = next((home / f"results/small/{experiment}").glob("*/model"))
        for number, (name, change) in enumerate(damages().items()):
            folder = place / f"out/{experiment}-{number}"
            shutil.copytree(model, folder)
            change(folder)
            yield Case("weights", f"{experiment}: {name}", lambda load=load, folder=folder: load(folder) and None,
                       name in silent)
            if "tokenizer" in name and name != "another tokenizer":
                yield Case("weights", f"{experiment}: {name}, read", lambda folder=folder: Tokeniser.read(
                    folder / "tokenizer.json") and None)
    for name in HOSTILE[:12]:
        yield Case("weights", f"a model called {name!r}", lambda name=name: load_causal_lm(
            str(place / "cwd/empty" / name.strip("/\0").replace("\n", "")[:100])) and None)


# Corpora.

@cache
def _bomb(place: Path) -> Path:
    """A parquet file of 10^9 rows with one text, which takes little space."""
    path = place / "out/bomb.parquet"
    one = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(10**6, np.int8)), pyarrow.array(["a word"]))
    table = pyarrow.table({name: one for name in ("id", "text")})
    with pyarrow.parquet.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(1_000):
            writer.write_table(table)
    return path


def corpora(place: Path, home: Path, data: Path | None) -> Iterator[Case]:
    """The files of every corpus, damaged in each way that their format allows."""
    from repro.data import corpora as declared

    for corpus in declared():
        if corpus.generator or corpus.made_of:
            continue
        split = next(iter(corpus.splits))
        pattern = corpus.split(split).files
        for file in (pattern,) if isinstance(pattern, str) else pattern:
            yield from _damaged_files(corpus, split, file, place, data)


def _damaged_files(corpus, split: str, pattern: str, place: Path, data: Path | None) -> Iterator[Case]:
    name = pattern.replace("-*-of-*", "-00-of-01").replace("*", "0")
    path = place / "data" / corpus.folder / name
    real = sorted((Path(data) / corpus.folder).glob(pattern))[:1] if data else []

    def read() -> None:
        rows = corpus.stream(split) if corpus.is_text else corpus.examples(split)
        for number, _ in enumerate(rows):
            if number == 200_000:
                raise Accepted("200,000 rows")

    def case(what: str, content: bytes | Path, calm: bool = False) -> Case:
        def put() -> None:
            shutil.rmtree(path.parent, ignore_errors=True)
            path.parent.mkdir(parents=True)
            if isinstance(content, Path):
                shutil.copy(content, path)
            else:
                path.write_bytes(content)
            read()
        return Case("corpora", f"{corpus.name} {name}: {what}", put, calm)

    yield case("empty", b"")
    yield case("noise", bytes((k * 7919 + k // 256) % 256 for k in range(50_000)), path.suffix not in (".parquet",
                                                                                                   ".npz", ".xz"))
    yield case("text", b"not a file of this format\n" * 99, path.suffix not in (".parquet", ".npz", ".xz"))
    if real:
        with real[0].open("rb") as file:
            start = file.read(2_000_000)
        size = real[0].stat().st_size
        yield case("cut", start[:min(len(start), size) // 2], path.suffix not in (".parquet", ".npz", ".xz"))
        if size <= len(start):
            flipped = bytearray(start)
            for at in range(200, len(flipped), max(200, len(flipped) // 40)):
                flipped[at] ^= 0x55
            yield case("flipped bytes", bytes(flipped), True)
    if path.suffix == ".parquet":
        columns = pyarrow.parquet.read_schema(real[0]).names if real else ["id", "text"]
        yield case("no columns", _parquet({"x": [1]}))
        yield case("no rows", _parquet({one: pyarrow.array([], pyarrow.string()) for one in columns}))
        for what, values in (("nulls", [None]), ("numbers", [7]), ("lists", [[1.5]]), ("bytes", [b"\xff"]),
                             ("nested", [{"a": [{"b": 1}]}])):
            yield case(f"{what} in every column", _parquet({one: values for one in columns}))
        for one in columns[:6]:
            rest = {name: ["x"] for name in columns if name != one}
            yield case(f"no column {one}", _parquet(rest or {"x": [1]}), True)
        if {"id", "text"} >= set(columns):
            yield case("10^9 rows", _bomb(place))
    if path.suffix == ".npz":
        names = list(np.load(real[0]).files) if real else ["images", "labels"]
        for what, array in (("no rows", np.zeros(0)), ("numbers", np.zeros(3)), ("text", np.array(["x"])),
                            ("objects", np.array([{}], object)), ("no dimensions", np.float64(3))):
            yield case(what, _npz(dict.fromkeys(names, array)))
        yield case("10^9 rows", _npz(dict.fromkeys(names, np.zeros(4, np.uint8)), "(4,)", f"({HUGE},)"))
    if path.suffix == ".xz":
        yield case("10^10 zeros", _zeros())
        yield case("no words", lzma.compress(b" \n"))
        yield case("no text", lzma.compress(bytes(range(256)) * 99), corpus.name.startswith(("enwik8", "text8")))
    shutil.rmtree(path.parent, ignore_errors=True)


def _parquet(columns: dict) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


def _npz(arrays: dict, before: str = "", after: str = "") -> bytes:
    import io

    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    content = buffer.getvalue()
    if not before:
        return content
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            body = old.read(name)
            end = 10 + struct.unpack("<H", body[8:10])[0]
            head = body[10:end].replace(before.encode(), after.encode()).rstrip() + b"\n"
            new.writestr(name, body[:8] + struct.pack("<H", len(head)) + head + body[end:])
    return out.getvalue()


@cache
def _zeros() -> bytes:
    """10^10 zeros, compressed: 10,000 streams of the same million."""
    return lzma.compress(bytes(10**6)) * 10_000


PARTS = {"command line": commands, "settings": settings, "folders": folders, "chapters": chapters, "records": records,
         "weights": weights, "corpora": corpora}
