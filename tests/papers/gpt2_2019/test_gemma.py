"""Gemma on the zero-shot sets: the plan, runs with a tiny Gemma in its place, and the table."""

import math
from types import SimpleNamespace

import pytest
import tiny_gemma
import torch

from repro.data import Tokeniser, corpus, detokeniser
from repro.errors import ReproError
from repro.models import pretrained
from repro.models.opened import Opened
from repro.papers.gpt2_2019 import gemma, sets
from repro.study import artifact, experiment, run

PLAN = experiment("zero-shot-gemma").plan("pretrained")
WINDOW = 200  # tokens
HOME = pretrained.home()  # before a tiny model takes the place of the real one
TINY = {"lambada": "synthetic-last-words", "wikitext2": "synthetic-books", "enwik8": "synthetic-web",
        "names": "synthetic-clozes", "reading": "synthetic-questions", "questions": "synthetic-questions",
        "articles": "synthetic-summaries"}
LITTLE = {"window": WINDOW, "documents": 1, "examples": 4, "sample": 2, "summary_tokens": 8}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Where a tiny Gemma lies under the name of the real one, and results and work go: (results, model, tokenizer)."""
    place = tmp_path_factory.mktemp("gemma")
    here = place / "models" / "gemma-3-270m"
    here.mkdir(parents=True)
    model, backend = tiny_gemma.folder(here)
    pretrained.write_manifest(here, {"name": here.name})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("models", "work"):
            patch.setenv(f"REPRO_{name.upper()}", str(place / name))
        patch.setenv("REPRO_HOME", str(place))
        yield place / "results", model, Tokeniser("tiny", backend)


def of(task, **settings):
    return experiment("zero-shot-gemma").plan("pretrained", {"task": task, "corpus": TINY[task]} | LITTLE | settings)[0]


def test_every_set_is_read_once_in_windows_as_long_as_gpt2s():
    assert [config.task for config in PLAN] == list(gemma.READ) and set(gemma.READ) == set(gemma.SETS)
    assert {config.window for config in PLAN} == {1024}
    for config in PLAN:
        cost = experiment("zero-shot-gemma").estimate(config)
        assert cost.flops > 0 and cost.memory_bytes > 2 * cost.parameters
    with pytest.raises(ReproError, match="wikitext-103, which has the kind text; lambada needs the kind last word"):
        experiment("zero-shot-gemma").plan("pretrained", {"task": "lambada", "corpus": "wikitext-103"})
    with pytest.raises(ReproError, match=r"overlap is 9 tokens; it must be smaller than the window \(9\)"):
        experiment("zero-shot-gemma").plan("pretrained", {"window": 9, "overlap": 9})


def test_losses_of_text_are_those_of_transformers(tiny):
    results, model, coder = tiny
    record = run(of("wikitext2", precision="no"), results, progress=False)
    assert not any(name.startswith("sample") for name in record.metrics)
    ids, plain = [coder.bos], detokeniser("wikitext").apply
    for one in corpus("synthetic-books").documents("test")[:1]:
        ids += coder.encode(plain(one.text)).tolist()
    nats = 0.0
    for start in range(0, len(ids) - 1, WINDOW):
        window = ids[start:start + WINDOW + 1]
        opened = torch.tensor([[coder.bos] * (start > 0) + window])
        targets = opened.clone()
        targets[0, :1 + (start > 0)] = -100
        nats += model(opened, labels=targets).loss.item() * (len(window) - 1)
    n_words = sum(len(one.text.split()) for one in corpus("synthetic-books").documents("test")[:1])
    assert record.metrics["wikitext2_word_perplexity"] == pytest.approx(math.exp(nats / n_words), rel=1e-4)
    assert sum(record.documents["wikitext2"]["n_words"]) == n_words


@pytest.mark.parametrize(("task", "metric"), [
    ("lambada", "lambada_perplexity"), ("enwik8", "enwik8_bits_per_byte"), ("names", "cloze_names_accuracy_percent"),
    ("reading", "reading_f1_percent"), ("questions", "questions_exact_percent"), ("articles", "summary_hint_rouge1")])
def test_each_set_is_scored_and_its_beginning_again_in_float32(tiny, task, metric):
    record = run(of(task), tiny[0], progress=False)
    names = (metric, f"sample_{metric}", f"sample_float32_{metric}")
    assert {record.units[name] for name in names} == {record.units[metric]}
    whole, sample, exact = (record.metrics[name] for name in names)
    assert record.metrics["parameters"] == sum(one.numel() for one in tiny[1].parameters())
    assert all(len(values) == (1 if task == "enwik8" else 4) for values in record.documents[task].values())
    if task in ("lambada", "enwik8"):
        assert sample == pytest.approx(exact, rel=0.05) and sample != exact
        assert whole == (sample if task == "enwik8" else pytest.approx(whole))
    assert ("answers" in record.notes) == (task == "questions")


def test_the_float32_sample_is_what_float32_gives_alone(tiny):
    results, model, coder = tiny
    record = run(of("lambada"), results, progress=False)
    rows = list(corpus("synthetic-last-words").examples("test"))[:2]
    alone = sets.last_words(Opened(model, coder.bos, WINDOW), coder, [row.text for row in rows])
    assert record.metrics["sample_float32_lambada_perplexity"] == pytest.approx(math.exp(sum(alone["nll"]) / 2))
    first = record.documents["lambada"]["nll"][:2]
    assert record.metrics["sample_lambada_perplexity"] == pytest.approx(math.exp(sum(first) / 2))


def test_without_the_model_a_run_names_the_command_that_fetches_it(tmp_path, monkeypatch):
    for name in ("MODELS", "WORK", "HOME"):
        monkeypatch.setenv(f"REPRO_{name}", str(tmp_path))
    with pytest.raises(ReproError, match="run `repro models fetch gemma-3-270m`"):
        run(of("lambada"), tmp_path / "results", progress=False)


def test_the_table_has_the_papers_numbers_next_to_ours():
    numbers = {row.metric: 10.0 + k for k, row in enumerate(gemma.ROWS)}
    numbers |= {f"sample_{name}": value + 0.1 for name, value in numbers.items()} | {
        f"sample_float32_{name}": value + 0.2 for name, value in numbers.items()}
    numbers |= {row.control: 5.0 for row in gemma.ROWS if row.control and row.control not in numbers}
    numbers |= {f"summary_{kind}_{measure}": n for measure, n in (("rouge1", 3), ("rouge2", 1), ("rougeL", 2))
                for kind in ("hint", "no_hint", "scrambled", "random_3")}
    made = SimpleNamespace(metrics=numbers)
    context = SimpleNamespace(scales=("pretrained",), plan=lambda scale: PLAN, records_of=lambda config: [made])
    table = gemma.levels(context).set_index("set")
    row = table.loc["LAMBADA: accuracy, stop words barred (%)"]
    assert (row["paper: 117M"], row["paper: 1542M"], row["Gemma 3 270M"]) == ("45.99", "63.24", "11.0")
    assert row["control"] == "5.0 (nothing barred)" and row["read here"] == "lambada-cased, the first 2,000 examples"
    assert (row["a sample in bfloat16"], row["the sample in float32"]) == ("11.1", "11.2")
    assert table.loc["enwik8: bits per byte"]["read here"].endswith("the first 10 stretches of 10,000 characters")
    assert table.loc["questions about a text (paper: CoQA): F1 (%)"]["paper: 1542M"] == "55"
    hint = table.loc["summaries with TL;DR: hint (paper: news): ROUGE"]
    assert (hint["paper: 1542M"], hint["Gemma 3 270M"]) == ("21.40", "2.0")
    assert hint["control"] == "2.0 (three random sentences)"


def test_a_table_without_records_says_so(tmp_path):
    table = artifact("gpt2_2019-gemma").render("pretrained", results=tmp_path).table
    assert set(table["Gemma 3 270M"]) == {"not run"} and set(table["paper: 117M"]) > {"35.13", "–"}
    some = artifact("gpt2_2019-gemma").render("pretrained", results=tmp_path, sets={
        "task": "enwik8", "corpus": "enwik8-prefix", "documents": 3}).table
    assert list(some["set"]) == ["enwik8: bits per byte"]
    assert list(some["read here"]) == ["enwik8-prefix, the first 3 stretches of 10,000 characters"]


def test_the_real_model_where_it_lies(monkeypatch):
    monkeypatch.setenv("REPRO_MODELS", str(HOME))
    if not pretrained.is_here("gemma-3-270m"):
        pytest.skip(f"gemma-3-270m is not in {pretrained.home()}: repro models fetch gemma-3-270m")
    model, coder = pretrained.load("gemma-3-270m")
    opened = Opened(model, coder.bos, 1024, exact_output=True)
    passage = "It was the best of times, it was the worst of times"
    found = sets.last_words(opened, coder, [passage])
    ids = torch.tensor([[coder.bos, *coder.encode(passage).tolist()]])
    targets = torch.full_like(ids, -100)
    targets[0, -1] = ids[0, -1]
    with torch.no_grad():
        assert found["nll"][0] == pytest.approx(model(ids, labels=targets).loss.item(), rel=1e-4)
    assert found["correct"] == [1] and found["nll"][0] < 1
