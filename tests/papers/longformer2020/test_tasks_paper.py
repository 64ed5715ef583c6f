"""The plans at `paper`: printed settings, which Longformer is fine-tuned, large models, and texts read to their end."""

from types import SimpleNamespace

import pytest
import torch
from transformers import RobertaConfig, RobertaModel

from repro.errors import ReproError
from repro.models import longformer_from
from repro.models.long_reader import Reader, TaskReader, padded
from repro.models.task_heads import CandidateHead
from repro.papers.longformer2020.tasks import ablation, experiment, frame
from repro.papers.longformer2020.tasks.reader import Example, Words
from repro.study.published import printed_rows

LARGE = "FacebookAI/roberta-large"
TOLD = {(row["topic"], row["parameter"]): row["value"] for row in printed_rows("longformer2020_text_settings")}
TASKS = experiment.EXPERIMENT
WIKIHOP = ablation.EXPERIMENT


def plan(**sets):
    return TASKS.plan("paper", sets)


def test_every_task_has_its_printed_settings():
    found = {config.task: config for config in plan(model="longformer")}
    assert found.keys() == experiment.TASKS.keys()
    assert len(plan()) == 3 * len(found) + 2  # the control of classification
    for column in ("triviaqa", "hotpotqa"):
        printed = {row["parameter"]: row[column] for row in printed_rows("longformer2020_table14_qa_hyperparameters")}
        assert (found[column].epochs, found[column].batch_size) == (int(printed["Epochs"]), int(printed["Batch size"]))
        assert found[column].learning_rate == float(printed["Learning rate"])
    rate, epochs = TOLD["IMDB, Hyperpartisan", "learning rate / epochs"].split(" / ")
    for name in ("imdb", "hyperpartisan"):
        one = found[name]
        assert (one.learning_rate, one.epochs) == (float(rate), int(epochs))
        assert (one.batch_size, one.warmup_share, one.corpus) == (32, 0.1, name)
    encoder, task = (float(part.split()[0]) for part in TOLD["OntoNotes", "learning rates"].split(", "))
    assert (found["coreference"].learning_rate, found["coreference"].head_learning_rate) == (encoder, task)
    assert {one.window for one in found.values()} == {512} and {one.max_positions for one in found.values()} == {4_096}


@pytest.mark.parametrize(("source", "width"), [(None, 768), (LARGE, 1_024)])
def test_longformer_starts_from_more_masked_training_and_the_short_model_from_roberta(source, width):
    for config in plan(**{} if source is None else {"source": source}):
        base, start = frame.base_of(config), frame.start_of(config)
        assert base.n_embd == width and base.source == (source or "FacebookAI/roberta-base")
        assert set(frame.needs(config)) == {base, start}
        if config.model == "short":
            assert start == base
        else:
            assert (start.experiment, start.configuration) == ("roberta-to-longformer", "long")
            assert start.source == base.source and start.window == config.window
    for config in WIKIHOP.plan("paper", {} if source is None else {"source": source}):
        start = ablation.start_of(config)
        assert start.source == (source or "FacebookAI/roberta-base")
        assert start in WIKIHOP.needs(config) and ablation.base_of(config) in WIKIHOP.needs(config)


def test_large_models_read_the_first_piece_of_wikihop_alone():
    base, large = (WIKIHOP.plan("paper", {"configuration": "longformer"} | more)[0] for more in ({}, {"source": LARGE}))
    assert (base.reads_on, large.reads_on) == (True, False) and base.length == large.length == 4_096
    row = SimpleNamespace(id="1", candidates=("a", "b"), question="q", paragraphs=("x",), answer=0)
    words = Words(SimpleNamespace(vocab_size=9, bos=0, special=lambda kind: 2,
                                  encode=lambda text: torch.arange(9_000) % 5 if text == "x" else torch.tensor([3])),
                  ablation.Ablation.special)
    read = [len(frame.encoded(config, ablation.task_of(config), [row], words)[0]) for config in (base, large)]
    assert read == [9_013, 4_096]  # 12 tokens before the context and one after it
    assert "reads_on" not in WIKIHOP.plan("pretrained")[0].settings()


@pytest.mark.parametrize(("name", "scale", "sets", "said"), [
    ("tasks", "smoke", {"source": LARGE}, "source is .*large, but scale smoke has an encoder of its own; leave it out"),
    ("wikihop", "pretrained", {"source": LARGE}, "source is .*large, but scale pretrained has"),
    ("tasks", "paper", {"source": "roberta-huge"}, "unknown source 'roberta-huge'. Did you mean"),
    ("tasks", "paper", {"max_positions": 8_192, "model": "longformer"}, "max_positions is 8192, but .* has 4096"),
    ("wikihop", "smoke", {"length": 257, "configuration": "longformer"}, "length is 257, but .* has 256 positions"),
])
def test_what_no_model_of_a_scale_can_do(name, scale, sets, said):
    with pytest.raises(ReproError, match=said) as caught:
        {"tasks": TASKS, "wikihop": WIKIHOP}[name].plan(scale, sets)
    assert "\n" not in str(caught.value)


SIZES = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24,
         "max_position_embeddings": 26}


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return longformer_from(RobertaModel(RobertaConfig(**SIZES)), 48, window=4).eval()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_pieces_with_global_tokens_are_those_of_the_encoder_one_by_one(encoder, precision):
    piece, example = 20, Example(None, [0, 5, 6, 7], list(range(8, 30)) * 2, global_prefix=[0, 1, 3],
                                 global_context=[2, 17])
    few = Example(None, [0, 9], [4] * 6, global_prefix=[1])
    reader = Reader(encoder, 2, piece, global_tokens=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        read, plain = (one(padded([example, few])) for one in (reader, Reader(encoder, 2, piece)))
        room, states = piece - 1 - 4, []
        for k in range(0, 44, room):
            part = example.context[k:k + room]
            ids = torch.tensor([[*example.prefix, *part, 2]])
            chosen = torch.zeros_like(ids)
            chosen[0, [0, 1, 3, *(4 + at - k for at in (2, 17) if k <= at < k + room)]] = 1
            states.append(encoder.encode(ids, global_attention_mask=chosen)[0, 4:4 + len(part)])
    close = {"atol": 2e-5} if precision == "float32" else {"atol": 0.1}
    assert len(states) == 3 and torch.allclose(read.context[0].float(), torch.cat(states).float(), **close)
    assert (read.context[0] - plain.context[0]).abs().max() > 1e-3, "without global tokens"


def test_the_saved_longformer_is_fine_tuned_with_the_window_that_is_set(encoder, tmp_path):
    encoder.save_pretrained(tmp_path / "model")
    config, = TASKS.plan("paper", {"task": "hotpotqa", "model": "longformer", "window": 8})
    words = Words(SimpleNamespace(vocab_size=30, special=lambda kind: 2), ("[q]", "[/q]"))
    context = SimpleNamespace(need=lambda run: (None, tmp_path))
    made = frame.new_model(config, context, experiment.TASKS["hotpotqa"], words)
    assert made.reader.piece is None and made.reader.global_tokens
    kept = made.reader.encoder
    assert [layer.attention.self.pattern.window for layer in kept.longformer.encoder.layer] == [8, 8]
    assert kept.config.vocab_size == 32 and kept.n_positions == 48
    for name, weight in encoder.state_dict().items():
        if name.startswith("longformer.encoder."):
            assert torch.equal(weight, kept.state_dict()[name])


def test_wikihop_in_pieces_keeps_the_weights_and_the_window(encoder, tmp_path):
    encoder.save_pretrained(tmp_path / "model")
    config, = WIKIHOP.plan("paper", {"configuration": "longformer", "window": 8, "length": 24})
    words = Words(SimpleNamespace(vocab_size=30, special=lambda kind: 2), ablation.Ablation.special)
    made = ablation.new_model(config, SimpleNamespace(need=lambda run: (None, tmp_path)), ablation.task_of(config),
                              words)
    assert isinstance(made, TaskReader) and isinstance(made.head, CandidateHead)
    assert made.reader.piece == 24 and made.reader.global_tokens
    assert {layer.attention.self.pattern.window for layer in made.reader.encoder.longformer.encoder.layer} == {8}


def test_the_share_recovered_runs_from_no_context_to_the_best_reader():
    known = {"best": 90.0, "best_short": 50.0}
    for score, share in ((50.0, 0), (70.0, 0.5), (90.0, 1), (40.0, -0.25)):
        assert frame.recovered(score, known) == known | {"share_recovered": share}
    assert frame.recovered(60.0, {"best": 90.0, "best_without_context": 30.0})["share_recovered"] == 0.5
    for others in ({}, {"chance": 2.0}, {"best": 90.0, "best_short": 90.0}):
        assert frame.recovered(60.0, others) == others
    assert frame.recovered(None, known) == known
    assert experiment.TASKS["imdb"].unit_of("share_recovered") == "of what long context can give"

