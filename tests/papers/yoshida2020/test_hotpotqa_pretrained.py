"""Readers of questions that start from a published encoder: a tiny BERT in the place of MiniLM, and the real one where
it is."""

from types import SimpleNamespace

import pytest
import tiny_bert
import torch

from repro.data import Corpus, Split, Tokeniser, corpus, registry
from repro.data import example_readers as readers
from repro.data.examples import Question
from repro.data.synthetic_hops import SyntheticHops
from repro.errors import ReproError
from repro.models import pretrained
from repro.papers.base.pretraining import tokeniser_of
from repro.papers.yoshida2020.hotpotqa import experiment as hotpotqa
from repro.papers.yoshida2020.hotpotqa import tables
from repro.papers.yoshida2020.hotpotqa.reading import asked, padded, read_by
from repro.recurrence import RecurrenceConfig, RecurrentBert, RecurrentEncoder
from repro.study import experiment, run
from repro.study.settings import as_text

EXPERIMENT = experiment("recurrence-hotpotqa")
PLAN = EXPERIMENT.plan("pretrained")
HOPS = SyntheticHops(story_words=8, n_names=1)
WORDS = sorted({word.lower() for word in HOPS.lexicon()})
FEW = {"corpus": "tiny-hops", "window": 50, "n_train": 20, "held_out": 6, "hidden_size": 8}


def test_the_readers_differ_in_the_module_alone():
    baseline, paper, mean = PLAN
    changed = [{name for name, value in one.model_dump().items() if value != getattr(baseline, name)}
               for one in (paper, mean)]
    assert changed == [{"model"}, {"model", "insert_layer", "mean_token"}]
    assert (paper.insert_layer, paper.hidden_size, paper.hidden_layers, paper.window) == (1, 768, 1, 512)
    assert [tables.is_main(config) for config in PLAN] == [True, True, False]
    assert [tables._module(config) for config in PLAN] == [
        "–", "1 hidden x 768, index 1", "1 hidden x 768, index 3; starts as the mean token"]
    assert not hotpotqa.rates_of(baseline) and baseline.epochs == 1
    base = hotpotqa.base_of(baseline)
    assert (base.source, base.n_layer, base.n_embd, base.n_positions) == ("minilm-l6", 6, 384, 512)


@pytest.fixture
def fetched(tmp_path, monkeypatch):
    """A folder for models with a tiny BERT under the name of MiniLM, and questions of known words."""
    monkeypatch.setenv("REPRO_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    made = tiny_bert.folder(tmp_path / "models" / "minilm-l6", WORDS)
    monkeypatch.setitem(registry._BY_NAME, "tiny-hops", Corpus(
        "tiny-hops", "MIT", "embedded", {"train": Split("", n_examples=24), "validation": Split("", n_examples=10)},
        readers.generated[Question], generator=HOPS))
    base, = hotpotqa.PRETRAINING.plan("pretrained", {name: as_text(value) for name, value in {
        "corpus": "tiny-hops", "n_layer": 4, "n_embd": 16, "n_head": 2, "n_positions": 100, "sequence": 100,
        "vocab_size": made.config.vocab_size}.items()})
    monkeypatch.setattr(hotpotqa, "base_of", lambda config: base)
    return made


def test_every_run_on_a_tiny_bert(fetched, tmp_path):
    plan = EXPERIMENT.plan("pretrained", {name: as_text(value) for name, value in FEW.items()})
    found = [run(config, tmp_path / "results", progress=False) for config in plan]
    assert [record.model for record in found] == ["baseline", "recurrent", "recurrent"]
    for config, record in zip(plan, found, strict=True):
        assert record.metrics["parameters"] == EXPERIMENT.estimate(config).parameters
        assert record.metrics["train_questions"] == 14 and record.metrics["learning_rate"] == config.rates[0]
        assert len(record.documents["validation"]["answer_nats"]) == 10
        assert record.data["name"] == "tiny-hops"
    assert len({record.digest for record in found}) == 3
    again = run(plan[2], tmp_path / "again", progress=False, force=True)
    assert again.digest == found[2].digest
    saved = RecurrentEncoder.from_pretrained(next((tmp_path / "work").glob(f"runs/{found[2].id}")) / "model")
    assert type(saved) is RecurrentBert and saved.config.hidden_dropout_prob == 0
    assert saved.recurrence.config == RecurrenceConfig(3, 8, 1, layers="last", zero_init=True, residual=True)


def test_a_run_without_the_model_names_the_command(fetched, tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_MODELS", str(tmp_path / "empty"))
    config, *_ = EXPERIMENT.plan("pretrained", {name: as_text(value) for name, value in FEW.items()})
    with pytest.raises(ReproError, match="minilm-l6 is not in .*; run `repro models fetch minilm-l6`"):
        run(config, tmp_path / "results", progress=False)


def test_windows_have_the_models_own_special_tokens(fetched):
    coder, row = tokeniser_of(hotpotqa.base_of(None)), next(corpus("tiny-hops").examples("train"))
    one = asked(row, coder, 14)
    assert len(one.windows) > 1 and one.pad == 0
    question = coder.encode(row.question).tolist()
    for window in one.windows:
        assert window.ids[:len(question) + 2] == [2, *question, 3] and window.ids[-1] == 3
    assert sum(window.stop - window.start for window in one.windows) == len(coder.encode(one.context))
    short = one._replace(windows=one.windows[:1])
    batch = padded([one, short])
    assert not batch["windows"][1, 1:].any() and not batch["attention_mask"][1, 1:].any()
    assert "[UNK]" not in coder.backend.encode(one.context).tokens


def test_scores_in_bfloat16_are_near_those_in_float32(fetched):
    coder = tokeniser_of(hotpotqa.base_of(None))
    questions = [asked(row, coder, 50, must_stand=False) for row in corpus("tiny-hops").examples("validation")]
    model = RecurrentEncoder.from_pretrained(pretrained.folder("minilm-l6"))
    exact = [nats for _, nats in read_by(model, questions)]
    with hotpotqa.scoring(SimpleNamespace(scored_in="no"), model):
        assert [nats for _, nats in read_by(model, questions)] == exact
    with hotpotqa.scoring(SimpleNamespace(scored_in="bf16"), model):
        near = [nats for _, nats in read_by(model, questions)]
    assert near != exact and near == pytest.approx(exact, abs=0.05)


def test_a_tokenizer_without_a_separator(fetched):
    from repro.data import train_bpe

    row = next(corpus("tiny-hops").examples("train"))
    with pytest.raises(ReproError, match=r"tokeniser .* has none of </s>, \[SEP\]; take that of RoBERTa or BERT"):
        asked(row, train_bpe(["a cat sat."], 260), 50)


def test_the_real_encoder_where_it_is():
    """A single window is MiniLM's own, and h_prev reaches the second."""
    if not pretrained.is_here("minilm-l6"):
        pytest.skip(f"minilm-l6 is not in {pretrained.home()}: repro models fetch minilm-l6")
    plain, _ = pretrained.load("minilm-l6")
    coder = Tokeniser.read(pretrained.folder("minilm-l6") / "tokenizer.json")
    model = RecurrentEncoder.from_pretrained(pretrained.folder("minilm-l6"))
    row = next(corpus("synthetic-hops").examples("train"))
    batch = padded([asked(row, coder, 40)])
    with torch.no_grad():
        read = model(batch["windows"], batch["attention_mask"])
        first = plain(batch["windows"][:, 0], attention_mask=batch["attention_mask"][:, 0].long()).last_hidden_state
        torch.testing.assert_close(read.last_hidden_state[:, 0], first, rtol=1e-4, atol=1e-5)
        masked = model(batch["windows"], batch["attention_mask"], recurrent=False)
    real = batch["attention_mask"][0, 1]
    assert not torch.allclose(read.last_hidden_state[0, 1, real], masked.last_hidden_state[0, 1, real], atol=1e-4)
