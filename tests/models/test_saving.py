"""One pair of functions saves and loads every model: the same kind, the same settings, the same numbers."""

import copy
import inspect
import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from killed import left_by_a_kill
from torch import nn
from transformers import BertConfig, BertModel, GPT2Config, LEDConfig, LongformerConfig, RobertaConfig

from repro import models
from repro.attention import (
    BlockLocal,
    Causal,
    Columns,
    Document,
    Fixed,
    Global,
    Keys,
    Pattern,
    Prefix,
    SlidingWindow,
    Strided,
)
from repro.checkpoints import reading, whole_folder
from repro.errors import ReproError
from repro.models import (
    GPT,
    LED,
    LSTM,
    TDMCA,
    Coreference,
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    Experts,
    GPTConfig,
    Longformer,
    LSTMConfig,
    OneText,
    Pretrained,
    Seq2Seq,
    Seq2SeqConfig,
    SparseConfig,
    SparseTransformer,
    TaskModel,
    TDMCAConfig,
    classifier_patterns,
    gpt2_mini,
    load_model,
    roberta_mini,
    save_model,
)
from repro.models.saving import described, made
from repro.recurrence import RecurrenceConfig, RecurrentBert, RecurrentLM, RecurrentRoberta

V, IDS = 9, torch.tensor([[4, 5, 6, 7], [8, 4, 4, 5]])
GPT2 = GPT2Config(vocab_size=V, n_layer=2, n_head=2, n_embd=8, n_positions=16)
ROBERTA = {"vocab_size": V, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
LENGTHS = torch.tensor([4, 2])
MAKE = {  # name: the model, and what it reads
    "GPT": (lambda: GPT(GPTConfig(V, 16, 2, 8, 2, dropout=0.1), "dense", recompute=True), (IDS,)),
    "LSTM": (lambda: LSTM(LSTMConfig(V, 8, 8)), (IDS,)),
    "Decoder": (lambda: Decoder(DecoderConfig(V, 8, 2, (Causal(), (SlidingWindow(2), BlockLocal(2) | Columns([0]))),
                                              details=("shared",))), (IDS,)),
    "TDMCA": (lambda: TDMCA(TDMCAConfig(V, 8, 2, "LM", n_experts=2, expert_layers=(1,))), (IDS,)),
    "SparseTransformer": (lambda: SparseTransformer(SparseConfig(V, 16, 2, 2, 8, Fixed(4, 2), "multi-head")), (IDS,)),
    "Encoder": (lambda: Encoder(EncoderConfig(V, 8, 2, classifier_patterns(4, 1), n_labels=3)), (IDS, LENGTHS)),
    "EncoderDecoder": (lambda: EncoderDecoder(EncoderDecoderConfig(V, 8, 2, 1)), (IDS, LENGTHS, IDS)),
    "Seq2Seq": (lambda: Seq2Seq(Seq2SeqConfig(V, 8)), (IDS, LENGTHS, IDS)),
    "OneText": (lambda: OneText(TDMCA(TDMCAConfig(V, 8, 2, "LM"))), (IDS, LENGTHS, IDS)),
    "Pretrained": (lambda: Pretrained(gpt2_mini(2, 8, 2, V, 16)), (IDS,)),
    "TaskModel": (lambda: TaskModel(GPT(GPTConfig(V, 16, 1, 8, 2)), "classification", 3, 0.2),
                  (IDS[:, None], torch.tensor([[2], [3]]))),
    "Experts": (lambda: Experts(8, 3, 1, 16), (torch.linspace(-1, 1, 16).view(2, 8),)),
    "Coreference": (lambda: Coreference(8, 3, 0.9, 4, 6, 5, 0.0, 2, True), (
        torch.linspace(-1, 1, 56).view(7, 8), torch.tensor([[k, k + 1] for k in range(7)]), None, [[(0, 1), (3, 5)]],
        torch.tensor([0, 0, 0, 1, 1, 1, 1]), 1)),
    "Longformer": (lambda: Longformer(LongformerConfig(**ROBERTA, attention_window=[4, 4])), (IDS,)),
    "gpt2_mini": (lambda: gpt2_mini(2, 8, 2, V, 16), (IDS,)),
    "roberta_mini": (lambda: roberta_mini(2, 8, 2, V), (IDS,)),
    "LED": (lambda: LED(LEDConfig(
        vocab_size=V, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8, max_encoder_position_embeddings=16,
        max_decoder_position_embeddings=16, attention_window=4, pad_token_id=1)), (IDS,)),
    "RecurrentLM": (lambda: RecurrentLM(GPT2, RecurrenceConfig(hidden_size=4)), (IDS, 2)),
    "RecurrentRoberta": (lambda: RecurrentRoberta(RobertaConfig(**ROBERTA)), (IDS[:, None],)),
    "RecurrentBert": (lambda: RecurrentBert(BertConfig(**ROBERTA)), (IDS[:, None],))}
PATTERNS = [Causal(), SlidingWindow(4, 2, causal=False) | Global([0, 3]), Strided(3), Fixed(4, 2, 1),
            Prefix(2) | Causal(), Document([0, 0, 1]) & Causal(), (BlockLocal(2) | Columns([1])) & SlidingWindow(3)]


def told(model, given):
    with torch.no_grad():
        return parts(model.eval()(*given))


def parts(found):
    return [part for part in (found.values() if isinstance(found, dict) else vars(found).values() if hasattr(
        found, "__dict__") and not isinstance(found, torch.Tensor) else found if isinstance(found, tuple) else [found])
            if isinstance(part, torch.Tensor)]


def test_every_public_model_is_tried():
    public = {name for name in models.__all__ if inspect.isclass(kind := getattr(models, name))
              and issubclass(kind, nn.Module)}
    assert public <= MAKE.keys()


@pytest.mark.parametrize("name", MAKE)
def test_a_model_comes_back_with_the_same_numbers(name, tmp_path):
    torch.manual_seed(0)
    model, given = MAKE[name][0](), MAKE[name][1]
    for weight in model.parameters():  # output layers that start at 0 would hide a fault
        nn.init.normal_(weight, std=0.3)
    before = told(model, given)
    save_model(model, tmp_path / "model")
    assert {file.name for file in (tmp_path / "model").iterdir()} >= {"config.json", "model.safetensors"}
    again = load_model(tmp_path / "model")
    assert type(again) is type(model) and not again.training and before
    for one, other in zip(before, told(again, given), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    if hasattr(model, "config") and not hasattr(model.config, "save_pretrained"):
        assert again.config == model.config
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}
    assert getattr(again, "implementation", None) == getattr(model, "implementation", None)


@pytest.mark.parametrize("name", MAKE)
def test_a_model_is_copied_and_saved_after_a_training_step(name, tmp_path):
    torch.manual_seed(0)
    model, given = MAKE[name][0]().train(), MAKE[name][1]
    sum(part[part.isfinite()].sum() for part in parts(model(*given)) if part.requires_grad).backward()
    average = torch.optim.swa_utils.AveragedModel(model)
    save_model(model, tmp_path / "model", weights="bf16")
    for again in (copy.deepcopy(model), average.module, pickle.loads(pickle.dumps(model))):
        assert all(torch.equal(one, other) for one, other in zip(again.parameters(), model.parameters(), strict=True))
        for one, other in zip(told(model, given), told(again, given), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    for again, part in zip(load_model(tmp_path / "model").parameters(), model.parameters(), strict=True):
        assert torch.equal(again, part.bfloat16().float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", MAKE)
def test_a_model_reads_in_16_bits(name, dtype):
    """Against the same rounded weights in float32, forward and backward."""
    torch.manual_seed(0)
    model, given = MAKE[name][0]().eval(), MAKE[name][1]
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.1)
    found = []
    for wanted in (dtype, torch.float32):
        model.to(dtype).to(wanted).zero_grad()
        rounded = [one.to(wanted) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
                   for one in given]
        out = [part.masked_fill(part.isinf(), 0) for part in parts(model(*rounded)) if part.requires_grad]
        sum(part.float().square().sum() for part in out).backward()
        found.append([part.float() for part in (*out, *(weight.grad for weight in model.parameters()
                                                        if weight.grad is not None))])
    for one, other in zip(*found, strict=True):
        assert torch.linalg.norm(one - other) < 0.1 * torch.linalg.norm(other) + 0.05


@pytest.mark.parametrize("name", ["GPT", "gpt2_mini"])
def test_rounded_weights_take_half_the_space(name, tmp_path):
    model = MAKE[name][0]()
    for weights in ("fp32", "bf16"):
        save_model(model, tmp_path / weights, weights)
    sizes = [(tmp_path / weights / "model.safetensors").stat().st_size for weights in ("bf16", "fp32")]
    assert sizes[0] < 0.75 * sizes[1]
    again = load_model(tmp_path / "bf16")
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert other.dtype == torch.float32 and torch.equal(one.bfloat16().float(), other)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
def test_a_pattern_survives_json(pattern):
    again = made(json.loads(json.dumps(described(pattern))))
    assert again == pattern and torch.equal(again.mask(4 if "Document" not in str(pattern) else 3),
                                            pattern.mask(4 if "Document" not in str(pattern) else 3))


@dataclass(frozen=True)
class Sink(Pattern):
    def keys(self, i):
        return [Keys(i, i)]

    looks_ahead = False


@pytest.mark.parametrize(("model", "words"), [
    (lambda: nn.Linear(2, 2), "Linear is not from repro.models or transformers"),
    (lambda: Decoder(DecoderConfig(V, 8, 2, (Sink(),))), "Sink is not from repro.attention"),
    (lambda: GPT(GPTConfig(V, 16, 1, 8, 2)).to("meta"), "on no device")])
def test_what_cannot_be_saved_is_refused_and_leaves_nothing(model, words, tmp_path):
    with pytest.raises(ReproError, match=words) as raised:
        save_model(model(), tmp_path / "model")
    assert "\n" not in str(raised.value) and not list(tmp_path.iterdir())
    with pytest.raises(ReproError, match="unknown weights 'fp16'"):
        save_model(MAKE["LSTM"][0](), tmp_path / "model", "fp16")


@pytest.mark.parametrize("harm", [
    lambda folder: (folder / "config.json").unlink(), lambda folder: (folder / "model.safetensors").unlink(),
    lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 40),
    lambda folder: (folder / "config.json").write_text("{"), lambda folder: (folder / "config.json").write_text("3"),
    lambda folder: (folder / "config.json").write_text('{"repro": "GPU"}'),
    lambda folder: (folder / "config.json").write_text('{"repro": "GPT"}'),
    lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}'),
    lambda folder: (folder / "config.json").write_text((folder / "config.json").read_text().replace("16", "15"))])
def test_a_damaged_folder_is_told_in_one_line(harm, tmp_path):
    save_model(MAKE["GPT"][0](), tmp_path / "model")
    harm(tmp_path / "model")
    with pytest.raises(ReproError) as raised:
        load_model(tmp_path / "model")
    assert "\n" not in str(raised.value)


def test_a_checkpoint_of_another_kind_is_refused(tmp_path):
    save_model(BertModel(BertConfig(**ROBERTA)), tmp_path / "model")
    with pytest.raises(ReproError, match="is a checkpoint of bert; load it with transformers"):
        load_model(tmp_path / "model")
    for bad in (tmp_path / "nowhere", None, 3):
        with pytest.raises(ReproError):
            load_model(bad)


SAVE_TWICE = """
from pathlib import Path
from repro.checkpoints import whole_folder
for content in ("old", "new"):
    with whole_folder("model") as unfinished:
        unfinished.mkdir()
        for name in ("config.json", "b"):
            (unfinished / name).write_text(content)
    watch()
"""


KILLS = [("os.rename", 1, "old"), ("os.rename", 2, "old"), ("os.rename", 3, "new"), ("os.remove", 1, "new"),
         ("os.remove", 2, "new")]  # the third name that is changed, and what is removed, are those of the old model


def contents(folder):
    return {path.name: path.read_text() for path in folder.glob("*")}


@pytest.mark.parametrize("event,number,whole", KILLS)
def test_a_kill_while_a_model_is_replaced_keeps_one_of_the_two_for_readers(tmp_path, event, number, whole):
    left_by_a_kill(tmp_path, SAVE_TWICE, event, number)
    under_its_name = contents(tmp_path / "model")
    assert under_its_name == ({} if (event, number) == ("os.rename", 2) else {"config.json": whole, "b": whole})
    with reading(tmp_path / "model", "gpt2") as found:
        assert contents(found) == {"config.json": whole, "b": whole}


@pytest.mark.parametrize("event,number,whole", KILLS)
def test_a_kill_while_a_model_is_replaced_keeps_one_of_the_two_for_the_next_save(tmp_path, event, number, whole):
    left_by_a_kill(tmp_path, SAVE_TWICE, event, number)
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "model"):
        assert contents(tmp_path / "model") == {"config.json": whole, "b": whole}
        raise ZeroDivisionError
    assert contents(tmp_path / "model") == {"config.json": whole, "b": whole}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]  # and what was left is gone
    with whole_folder(tmp_path / "model") as unfinished:
        unfinished.mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["model"]


def test_a_model_is_loaded_after_a_kill_took_its_name(tiny_gpt2, tmp_path):
    model = tiny_gpt2()
    save_model(model, tmp_path / "model")
    (tmp_path / "model").rename(tmp_path / ".model.before")
    assert torch.equal(load_model(tmp_path / "model").lm_head.weight, model.lm_head.weight)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(("name", "what"), [("thesis.tex", "a file"), ("to-a-file", "a link"),
                                            ("to-a-folder", "a link"), ("to-nothing", "a link")])
def test_a_file_or_a_link_is_never_replaced_by_a_model(tmp_path, tiny_gpt2, name, what):
    (tmp_path / "thesis.tex").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/notes").write_text("mine, too")
    for link, target in (("to-a-file", "thesis.tex"), ("to-a-folder", "folder"), ("to-nothing", "nothing")):
        (tmp_path / link).symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ReproError, match=f"/{name} is {what}; it was left as it is. Give the name of a new") as raised:
        save_model(tiny_gpt2(), tmp_path / name)
    assert "\n" not in str(raised.value) and sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "thesis.tex").read_text() == "mine" and (tmp_path / name).is_symlink() == (what == "a link")


@pytest.mark.parametrize("name", ["x" * 201, "a\0b", None, 3], ids=["long", "zero", "none", "number"])
def test_what_no_folder_can_be_called_is_refused_in_one_line(tiny_gpt2, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReproError, match="cannot be one .*; give a path such as 'models/mine'") as raised:
        save_model(tiny_gpt2(), name)
    assert "\n" not in str(raised.value) and list(tmp_path.iterdir()) == []
    save_model(tiny_gpt2(), "x" * 200)
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 200]


def test_weights_that_would_run_code_are_refused_in_one_line(tiny_gpt2, tmp_path):
    import os

    save_model(tiny_gpt2(), tmp_path / "model")
    (tmp_path / "model/model.safetensors").unlink()
    torch.save({"x": os.getcwd}, tmp_path / "model/pytorch_model.bin")
    with pytest.raises(ReproError, match="is damaged .*; delete the folder and make it again") as raised:
        load_model(tmp_path / "model")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


def test_the_current_folder_is_never_replaced_by_a_model(tmp_path, tiny_gpt2, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReproError, match=r"but \. is the current folder; it was left as it is"):
        save_model(tiny_gpt2(), ".")
    assert list(tmp_path.iterdir()) == []


def test_a_model_stays_where_the_new_one_cannot_be_put_in_its_place(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("old")
    rename = Path.rename

    def refuse(path, target):
        if path.parent.name.endswith(".unfinished"):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ReproError, match="cannot write .*Input/output error"):
        with whole_folder(tmp_path / "model") as unfinished:
            unfinished.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model/config.json").read_text() == "old"


def written(folder, content):
    folder.mkdir()
    (folder / "config.json").write_text(content)


def test_two_processes_that_save_under_one_name_each_write_a_folder_of_their_own(tmp_path):
    """Locks belong to an open folder, so two saves of one process stand for two processes."""
    place = tmp_path / "model"
    with whole_folder(place) as second:
        written(second, "second")
        with whole_folder(place) as first:
            written(first, "first")
        assert contents(place) == {"config.json": "first"} and contents(second) == {"config.json": "second"}
        with pytest.raises(ZeroDivisionError), whole_folder(place) as third:
            written(third, "third")
            raise ZeroDivisionError
        assert contents(place) == {"config.json": "first"} and contents(second) == {"config.json": "second"}
    assert contents(place) == {"config.json": "second"}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_next_save_deletes_what_a_kill_left_unfinished_and_nothing_else(tmp_path):
    code = SAVE_TWICE.replace("unfinished.mkdir()", "unfinished.mkdir(); watch()")
    (left,) = left_by_a_kill(tmp_path, code, "open")
    assert left.startswith(".model.") and left.endswith(".unfinished")
    (tmp_path / ".notes.unfinished").mkdir()
    with whole_folder(tmp_path / "model") as unfinished:
        written(unfinished, "new")
    assert {path.name for path in tmp_path.iterdir()} == {"model", ".notes.unfinished"}


def test_a_folder_of_other_files_is_not_replaced(tiny_gpt2, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/notes.txt").write_text("mine")
    with pytest.raises(ReproError, match="thesis holds files that are no model, which saving one there would delete"):
        save_model(tiny_gpt2(), tmp_path / "thesis")
    assert [path.name for path in tmp_path.rglob("*")] == ["thesis", "notes.txt"]
    (tmp_path / "empty").mkdir()
    save_model(tiny_gpt2(), tmp_path / "empty")
    assert (tmp_path / "empty/config.json").exists()
