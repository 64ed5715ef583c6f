"""Bad input ends in one clear line: every public function and class is called with values that it must refuse.

What is tried is found in the rooms: a new public name is in it. Where it needs what no other name needs, `GOOD` says
what; then each argument in turn is replaced by bad ones.
"""

import inspect
import math
import os
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from torch import nn

from repro import models, recurrence
from repro.attention import Causal, Pattern
from repro.checked import fits, hints
from repro.errors import ReproError
from repro.study.rule import Verdict

ROOMS = "attention", "models", "recurrence", "evaluation", "training", "data", "study", "pages", "loss"
IDS, LONGER = torch.tensor([[4, 5, 6, 7]]), torch.arange(4, 13)[None]
NUMBERS = [0, -1, 2.5, -2.5, math.inf, -10**30]  # where one is accepted, ACCEPTED says so
BAD = [*NUMBERS, None, True, math.nan, "", "x", [], [1], ["x"], {}, np.zeros(0),
       np.float64(math.nan), torch.zeros(2), torch.zeros(0, dtype=torch.int64), torch.tensor([[9_999]]),
       torch.zeros(1, 0, dtype=torch.int64), torch.ones(1, 99, dtype=torch.int64)]
RECORDS = {"run", "costs", "explored", "model_folder", "kept_model", "verdict_table", "claims", "artifacts", "command",
           "experiments", "tally", "run_id", "register", "metric", "in_short", "Documents", "tokens", "drawn"}
# these read experiments, records or whole corpora: they have tests of their own
METHODS = ("forward", "extend", "generate", "hidden", "encode")


@cache
def built(name):
    """What a call needs that is no plain value."""
    from transformers import BertConfig, GPT2Config, LEDConfig, LongformerConfig, RobertaConfig

    from repro.data import NgramFilter, Tokens, train_bpe
    from repro.models.long_reader import Reader, TaskReader
    from repro.models.task_heads import LabelHead
    from repro.recurrence.memories import complete
    from repro.training import Sequences, TrainConfig

    torch.manual_seed(0)
    small = {"vocab_size": 300, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
             "intermediate_size": 8}
    gpt2 = GPT2Config(vocab_size=300, n_layer=2, n_head=2, n_embd=8, n_positions=16)
    module = recurrence.RecurrenceConfig(hidden_size=4)
    return {
        "tokeniser": lambda: train_bpe(["a cat sat. a dog ran."], 260), "filter": lambda: NgramFilter(100, 2),
        "GPT": lambda: models.GPT(models.GPTConfig(300, 16, 1, 8, 2)),
        "LSTM": lambda: models.LSTM(models.LSTMConfig(300, 8, 8)),
        "Decoder": lambda: models.Decoder(models.DecoderConfig(300, 8, 2, (Causal(),))),
        "TDMCA": lambda: models.TDMCA(models.TDMCAConfig(300, 8, 2, "LM")),
        "SparseTransformer": lambda: models.SparseTransformer(models.SparseConfig(300, 16, 1, 2, 8)),
        "Encoder": lambda: models.Encoder(models.EncoderConfig(300, 8, 2, models.classifier_patterns(4, 1))),
        "EncoderDecoder": lambda: models.EncoderDecoder(models.EncoderDecoderConfig(300, 8, 2, 1)),
        "Seq2Seq": lambda: models.Seq2Seq(models.Seq2SeqConfig(300, 8)),
        "OneText": lambda: models.OneText(built("Decoder")), "Experts": lambda: models.Experts(8, 2),
        "Pretrained": lambda: models.Pretrained(models.gpt2_mini(1, 8, 2, 300, 16)),
        "TaskModel": lambda: models.TaskModel(built("GPT"), "classification", 2),
        "Longformer": lambda: models.Longformer(LongformerConfig(**small, attention_window=[4, 4])),
        "LED": lambda: models.LED(LEDConfig(
            vocab_size=300, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, attention_window=4,
            max_encoder_position_embeddings=32, max_decoder_position_embeddings=32)),
        "RecurrentLM": lambda: recurrence.RecurrentLM(gpt2, module), "MaskedOut": lambda: recurrence.MaskedOut(
            built("RecurrentLM")),
        "RecurrentRoberta": lambda: recurrence.RecurrentRoberta(RobertaConfig(**small), module),
        "RecurrentBert": lambda: recurrence.RecurrentBert(BertConfig(**small), module),
        "RecurrentEncoder": lambda: built("RecurrentBert"), "BertConfig": lambda: BertConfig(**small),
        "Recurrence": lambda: recurrence.Recurrence(module, 2, 8),
        "MemoryLM": lambda: recurrence.MemoryLM(gpt2, complete("gated", hidden_size=4)),
        "memory": lambda: complete("gated", hidden_size=4),
        "Tokens": lambda: Tokens(np.array([0, 5, 6, 7, 0, 4, 5, 6, 7], np.int32), np.array([1, 5]), np.array([3, 4]),
                                 np.array([3, 4]), 0, False),
        "GPT2Config": lambda: gpt2, "LongformerConfig": lambda: LongformerConfig(**small, attention_window=[4, 4]),
        "RobertaConfig": lambda: RobertaConfig(**small),
        "roberta": lambda: models.roberta_mini(1, 8, 2, 300, 32),
        "Coreference": lambda: models.Coreference(8, hidden=4, feature=2),
        "TaskReader": lambda: TaskReader(Reader(models.longformer_from(built("roberta"), 64, 4), 2), LabelHead(8, 2)),
        "Sequences": lambda: Sequences(np.arange(200) % 9, 8, 2),
        "TrainConfig": lambda: TrainConfig(16, 0.1, validate_every=16)}[name]()


ACCEPTED = {  # numbers that an argument may be: every other call with one of `NUMBERS` must fail
    0: """badge.n Coreference.dropout Coreference.genres
        Fixed.sub_block Prefix.n attend.scale attend.dropout LongformerSelfAttention.dropout gpt2_mini.bos
        roberta_mini.sinusoids longformer_patterns.dilated_heads DecoderConfig.dropout TDMCAConfig.n_experts
        TDMCAConfig.k TDMCAConfig.dropout EncoderDecoderConfig.dropout Seq2SeqConfig.dropout EncoderConfig.dropout
        GPTConfig.dropout LSTMConfig.dropout SparseConfig.dropout TaskModel.dropout TaskModel.forward.lm_weight
        Task.lm_weight sample.n_new sample.seed RecurrenceConfig.insert_layer RecurrentLM.forward.overlap
        RecurrentLM.generate.max_new_tokens RecurrentLM.generate.overlap MemoryLM.forward.overlap
        MemoryLM.generate.max_new_tokens MemoryLM.generate.overlap bootstrap.seed score_documents.overlap
        RecurrentLM.generate.eos_token_id RecurrentLM.generate.pad_token_id MemoryLM.generate.eos_token_id
        MemoryLM.generate.pad_token_id
        score_other_document.overlap reach_windows.overlap reach_windows.tolerance question_windows.bos
        question_windows.sep flops_per_token.overlap perplexity.overlap windows.n_tokens windows.overlap
        WindowedLM.overlap WindowedLM.before Sequences.before LengthBuckets.seed Masked.seed Sequences.seed
        TrainConfig.seed Summaries.input_weight Summaries.balance TrainConfig.warmup_steps TrainConfig.weight_decay
        TrainConfig.checkpoint_every webtext.karma judge.effects judge.room judge.null""",
    -1: "attend.scale webtext.karma judge.effects judge.paper_effect judge.room judge.null",
    -2.5: "attend.scale webtext.karma judge.effects judge.paper_effect judge.room judge.null",
    2.5: """Coreference.kept
        attend.scale reach_windows.tolerance roberta_mini.sinusoids TaskModel.forward.lm_weight Task.lm_weight
        sample.temperature RecurrentLM.generate.temperature MemoryLM.generate.temperature perplexity.n_words
        perplexity.n_bytes Summaries.input_weight Summaries.balance TrainConfig.learning_rate
        TrainConfig.weight_decay TrainConfig.clip TrainConfig.checkpoint_every TrainConfig.module_learning_rate
        webtext.karma judge.effects judge.room judge.null judge.paper_room""",
    math.inf: "", -10**30: "judge.effects judge.paper_effect judge.room judge.null"}
ACCEPTED = {(number, place) for number, places in ACCEPTED.items() for place in places.split()}
OTHERS = {"sample.progress": {"None"}, "continuation_nll.progress": {"None"}, "lambada.progress": {"None"},
          "perplexity.progress": {"None"}, "score_documents.progress": {"None"}, "bootstrap.against": {"None"},
          "score_other_document.progress": {"None"}, "train.progress": {"None"}, "judge.control": {"None"},
          "Sequences.targets": {"None"}, "perplexity.tokens": {"(1, 99)"},
          "judge.effects": {"True", "[1]", "(2,)", "(1, 1)", "(1, 99)"}} | {  # a tensor of one number is a number
    f"TrainConfig.{name}": {"(1, 1)"} for name in ("learning_rate", "weight_decay", "clip", "checkpoint_every",
                                                   "module_learning_rate")}
# other values that arguments without annotation may be, or that theirs does not name; tensors by shape
NO_ARGUMENTS = {"Causal", "Full", "corpora", "root"}
GOOD = {  # of an argument by its name, where a call has to have it; or, first, by what it is of
    "block": 4, "stride": 4, "summary": 2, "window": 4, "n": 3, "positions": [0], "ids": IDS, "documents": None,
    "columns": None, "first": 0, "last": 3, "hidden_size": 8, "num_heads": 2, "pattern": Causal(), "name": "bytes",
    "query": torch.ones(1, 2, 4, 8), "key": torch.ones(1, 2, 4, 8), "value": torch.ones(1, 2, 4, 8),
    "n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 300, "n_positions": 16, "d_model": 8, "windows": (4, 4),
    "name_or_folder": Path("nowhere"), "folder": Path("nowhere"), "patterns": (Causal(),), "n_experts": 2, "units": 4,
    "length": 8, "tokens": 10, "learning_rate": 0.1, "form": "classification", "texts": ["a cat"], "limit": 8,
    "examples": [[[1, 2, 3]]], "n_new": 1, "integration": "merged", "other": IDS, "question": [5], "context": [6, 7],
    "prediction": "a", "answers": ["a"], "nll": np.ones((2, 4)), "n_words": np.ones(4), "prefixes": [[4, 5]],
    "continuations": [[6]], "passages": ["a cat sat"], "text": "a", "points": [(1.0, 2.0)], "overlap": 0,
    "quantity": "loss", "found": Verdict("inconclusive", effect=0.1),
    "n_tokens": 10, "logits": torch.zeros(3, 5), "targets": torch.tensor([1, 2, -100]), "rows": np.full((2, 8), 5),
    "draw": np.random.default_rng(0), "lengths": torch.tensor([4]), "collate": list, "batch_size": 1,
    "stages": lambda: [(built("Sequences"), 2)], "batches": lambda: built("Sequences"), "source": IDS,
    "objective": lambda: import_module("repro.training").NextToken(built("GPT")), "model": lambda: built("GPT"),
    "base": lambda: built("GPT"), "decoder": lambda: built("Decoder"), "tokeniser": lambda: built("tokeniser"),
    "filter": lambda: built("filter"), "config": lambda: recurrence.RecurrenceConfig(hidden_size=4),
    "corpus_name": "synthetic-books", "split": "test", "seed": 0, "style": "lambada", "capacity": 10, "pages": [],
    "scale": "smoke", "id": "yoshida2020-table1", "verdict": "not run", "template": "a", "effects": np.ones((3, 4)),
    "direction": "lower", "input_ids": IDS, "max_new_tokens": 1, "x": torch.ones(2, 8), "index": 0, "step": 0,
    "i": torch.tensor([0, 1]), "z": torch.ones(1, 8), "hidden": torch.ones(1, 4, 8), "layers": "LM",
    "labelled.examples": [([[1, 2]], 0)], "receptive_field.patterns": [[Causal()]], "measured_field.ids": IDS[0],
    "Document.ids": [0, 0, 1], "Fixed.stride": 4, "LongformerSelfAttention.window": 4, "task.name": "mnli",
    "corpus.name": "synthetic-books", "experiment.name": "charlm", "published.name": "yoshida2020_table1_wikitext103",
    "claim.id": "yoshida2020-table1-gain-disjoint", "verdict_of.id": "yoshida2020-table1-gain-disjoint",
    "reach_windows.model": lambda: built("RecurrentLM"),
    "MaskedOut.model": lambda: built("RecurrentLM"), "sample.model": lambda: built("SparseTransformer"),
    "measured_field.model": lambda: built("Decoder"), "answers.model": lambda: built("TaskModel"),
    "LengthBuckets.examples": [1, 2, 3], "LengthBuckets.lengths": [1, 2, 3], "TaskModel.form": "classification",
    "RecurrentLM.config": lambda: built("GPT2Config"), "MemoryLM.config": lambda: built("GPT2Config"),
    "reach_windows.tokens": LONGER, "Memory.config": lambda: built("GPT2Config"),
    "RecurrentRoberta.config": lambda: built("RobertaConfig"), "RecurrentBert.config": lambda: built("BertConfig"),
    "RecurrentEncoder.config": lambda: built("BertConfig"), "Longformer.config": lambda: built("LongformerConfig"),
    "WindowedLM.model": lambda: built("RecurrentLM"), "Answers.model": lambda: built("RecurrentRoberta"),
    "Labels.model": lambda: built("Encoder"), "MaskedLM.model": lambda: built("roberta"),
    "Task.model": lambda: built("TaskModel"), "Summaries.model": lambda: built("OneText"),
    "train.config": lambda: built("TrainConfig"), "train_bpe.texts": ["a cat sat."], "encode_example.texts": ("a",),
    "overlap.texts": ["a cat sat"], "register.name": "x", "Sequences.tokens": np.arange(200) % 9,
    "TaskModel.forward.ids": IDS[:, None], "TaskModel.forward.lengths": torch.tensor([[4]]), "Pretrained.model":
    lambda: built("Pretrained").model, "RecurrentRoberta.forward.windows": IDS[:, None],
    "RecurrentBert.forward.windows": IDS[:, None], "RecurrentEncoder.forward.windows": IDS[:, None],
    "perplexity.tokens": IDS[0],
    "Recurrence.forward.z": torch.ones(1, 8), "pad": 0, "Experts.forward.x": torch.ones(2, 8),
    "score_documents.tokens": lambda: built("Tokens"), "score_other_document.tokens": lambda: built("Tokens"),
    "score_other_document.model": lambda: built("RecurrentLM"), "answers.examples": [[[300, 1, 2, 302]]],
    "MemoryLM.memory": lambda: built("memory"), "bootstrap.nll": np.array([3.0, 4.0, 5.0, 6.0]),
    "reach_windows.other": LONGER + 1, "tokeniser.name": "byte", "masked.vocab_size": 9,
    "Masked.vocab_size": 9, "beside.scale": "smoke", "root": None, "Sequences.length": 8, "Sequences.batch_size": 2,
    "train_bpe.vocab_size": 257, "Keys.step": 1, "SparseConfig.length": 16,
    "with_memory.memory": "gated", "gold": [[[(0, 1)]]], "predicted": [[[(0, 1)]]], "answer": "a", "facts": [("a", 0)],
    "gold_answer": "a", "gold_facts": [("a", 0)], "sentence_logits": [0.5, 1.0], "paragraph_of": [0, 1],
    "start_logits": torch.zeros(1, 3), "end_logits": torch.zeros(1, 3), "spans": [[(0, 1)]],
    "LED.forward.input_ids": IDS, "LED.generate.inputs": IDS, "longformer_from.model": lambda: built("roberta"),
    "HeadLoss.model": lambda: built("TaskReader"), "HeadLoss.task": "reviews", "width": 8,
    "Coreference.forward.states": torch.ones(4, 8), "words": torch.tensor([[0, 1], [1, 2], [2, 4]])}


def carries(kind):
    """Whether a class only holds values: what is put into it is checked where it is used."""
    plain = is_dataclass(kind) and not hasattr(kind, "__pydantic_fields__") and not issubclass(kind, Pattern)
    return plain or hasattr(kind, "_fields") or getattr(kind, "_is_protocol", False)


def public():
    """(label, function) of everything public that can be called with arguments."""
    for room in ROOMS:
        module = import_module(f"repro.{room}")
        for name in getattr(module, "__all__", ["cross_entropy", "any_span_loss", "check_lm_weight"]):
            one = getattr(module, name)
            if not callable(one) or not hasattr(one, "__name__") or name in RECORDS or inspect.isclass(one) and (
                    carries(one) or one is Pattern or issubclass(one, recurrence.Memory) or room in ("study", "pages")):
                continue
            if name not in ("save_model", "save_causal_lm", "check_lm_weight"):
                yield name, one
            if inspect.isclass(one) and issubclass(one, nn.Module) and room in ("models", "recurrence"):
                for method in METHODS:
                    if callable(getattr(one, method, None)) and (name, method) not in (("MaskedOut", "generate"),):
                        yield f"{name}.{method}", getattr(one, method)


PUBLIC = dict(public())


def needed(label, name, part):
    if name == "config" and label in models.__all__ and label != "Longformer":
        return built(label).config
    for key in (f"{label}.{name}", f"{label.split('.')[0]}.{name}", name):
        if key in GOOD:
            found = GOOD[key]
            return found() if inspect.isfunction(found) and found.__name__ == "<lambda>" else found
    raise AssertionError(f"{label} needs {name}: say in GOOD what is right there")


@cache
def calls(label):
    """(the function, right arguments, and the annotation of each argument: `empty` where it has none)."""
    one, function = label.split(".")[0], PUBLIC[label]
    bound = getattr(built(one), label.split(".")[1]) if "." in label else function
    parts = inspect.signature(bound).parameters
    found = {name: part.annotation for name, part in parts.items()}
    if not hasattr(bound, "__pydantic_fields__"):  # the signature of a config has its annotations resolved
        found |= hints(bound.__init__ if inspect.isclass(bound) else inspect.unwrap(getattr(bound, "__func__", bound)))
    kinds = {name: found[name] for name, part in parts.items() if part.kind not in (part.VAR_KEYWORD,
                                                                                    part.VAR_POSITIONAL)}
    right = {name: needed(label, name, part) for name, part in parts.items()
             if (part.default is part.empty or f"{label}.{name}" in GOOD) and name in kinds}
    return bound, right, kinds


def tried(label, name, bad):
    """What a call with one bad value ends in: None for an error of one line, "accepted", or what is wrong."""
    function, right, _ = calls(label)
    np.random.seed(0)
    try:
        function(**right | {name: bad})
    except ReproError as error:
        return None if "\n" not in str(error) and str(error) else f"several lines: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def is_number(value):
    """Whether it is one of NUMBERS, so that `ACCEPTED` decides."""
    return any(value is number for number in NUMBERS)


def allowed(label, name, value):
    """Whether an argument may be this value: numbers as `ACCEPTED` says, others as `OTHERS` does or the annotation."""
    if is_number(value):
        return (value, f"{label}.{name}") in ACCEPTED
    shown = str(tuple(value.shape)) if isinstance(value, torch.Tensor) else repr(value)
    kind = calls(label)[2][name]
    return shown in OTHERS.get(f"{label}.{name}", ()) or kind is not inspect.Parameter.empty and fits(value, kind)


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    """What a call writes is written there."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("fuzz"))
    yield
    os.chdir(before)


CASES = [(label, name) for label in PUBLIC for name in calls(label)[2]]


def test_there_are_many_cases_of_every_room():
    assert len(CASES) * len(BAD) >= 5_000
    assert {label for label in PUBLIC if not calls(label)[2]} == NO_ARGUMENTS
    assert {("GPTConfig", "dropout"), ("TrainConfig", "clip"), ("perplexity", "model"), ("judge", "effects"),
            ("Sequences", "tokens"), ("reach_windows", "model"), ("lambada", "tokeniser")} <= set(CASES)
    assert not {place for _, place in ACCEPTED} - {".".join(case) for case in CASES}


@pytest.mark.parametrize("label", [label for label in PUBLIC if label not in NO_ARGUMENTS])
def test_one_bad_value_ends_in_one_line(label):
    wrong = {}
    for name in calls(label)[2]:
        for bad in BAD:
            found, may = tried(label, name, bad), allowed(label, name, bad)
            if found not in (None, "accepted") or found and not may or not found and may and is_number(bad):
                wrong[f"{name}={' '.join(repr(bad).split()):.40}"] = found or "refused"
    assert not wrong


VALUES = some.one_of(
    some.none(), some.booleans(), some.integers(-2**70, 1), some.floats(), some.text(max_size=4),
    some.lists(some.one_of(some.integers(-3, 3), some.floats(), some.text(max_size=2)), max_size=3),
    some.builds(lambda shape, dtype: torch.zeros(shape, dtype=dtype), some.lists(some.integers(0, 3), max_size=3),
                some.sampled_from([torch.int64, torch.float32, torch.bool])))


@settings(max_examples=300, derandomize=True, deadline=None, database=None,
          suppress_health_check=[HealthCheck.too_slow])
@given(case=some.sampled_from(CASES), value=VALUES)
def test_whatever_hypothesis_finds_ends_in_one_line(case, value):
    assert tried(*case, value) in (None, "accepted")


READS_FILES = {"load_causal_lm", "load_masked_lm", "load_model", "with_memory", "tokeniser"}  # have tests of their own


@pytest.mark.parametrize("label", [label for label in PUBLIC if label not in READS_FILES])
def test_what_is_right_is_answered(label):
    """Otherwise every bad value beside it would be refused, too."""
    function, right, _ = calls(label)
    assert function(**right) is not None
