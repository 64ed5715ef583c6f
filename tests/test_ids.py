"""What is no batch of ids is refused by every model alike, and a model trains again after whatever was evaluated."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, LongformerConfig, RobertaConfig

from repro.attention import Causal, SlidingWindow
from repro.errors import ReproError
from repro.evaluation.summaries import nats, padded, written
from repro.ids import check_ids, check_lengths, embedded, evaluating, looked_at
from repro.models import (
    GPT,
    LSTM,
    TDMCA,
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    GPTConfig,
    Longformer,
    LSTMConfig,
    OneText,
    Pretrained,
    Seq2Seq,
    Seq2SeqConfig,
    SparseConfig,
    SparseTransformer,
    TDMCAConfig,
    classifier_patterns,
    gpt2_mini,
    measured_field,
    sample,
)
from repro.recurrence import MaskedOut, RecurrenceConfig, RecurrentLM, RecurrentRoberta

V, DROPPED = 9, {"dropout": 0.5}
GPT2 = GPT2Config(vocab_size=V, n_layer=2, n_head=2, n_embd=8, n_positions=16)
LONG = LongformerConfig(vocab_size=V, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
                        attention_window=[4], max_position_embeddings=34)
MODELS = {
    "GPT": lambda: GPT(GPTConfig(V, 16, 1, 8, 2)), "LSTM": lambda: LSTM(LSTMConfig(V, 8, 8)),
    "Decoder": lambda: Decoder(DecoderConfig(V, 8, 2, (SlidingWindow(4),))),
    "TDMCA": lambda: TDMCA(TDMCAConfig(vocab_size=V, n_embd=8, n_head=2)),
    "SparseTransformer": lambda: SparseTransformer(SparseConfig(V, 16, 1, 2, 8)),
    "Encoder": lambda: Encoder(EncoderConfig(V, 8, 2, classifier_patterns(4, 1), n_labels=V)),
    "Pretrained": lambda: Pretrained(gpt2_mini(1, 8, 2, V, 16)), "Longformer": lambda: Longformer(LONG),
    "RecurrentLM": lambda: RecurrentLM(GPT2, RecurrenceConfig(hidden_size=4)),
    "MaskedOut": lambda: MaskedOut(RecurrentLM(GPT2, RecurrenceConfig(hidden_size=4)))}
PAIRED = {
    "OneText": lambda: OneText(Decoder(DecoderConfig(V, 8, 2, (Causal(),), **DROPPED))),
    "T-DMCA": lambda: OneText(TDMCA(TDMCAConfig(V, 8, 2, "LM", block=4, **DROPPED))),
    "EncoderDecoder": lambda: EncoderDecoder(EncoderDecoderConfig(V, 8, 2, 1, **DROPPED)),
    "Seq2Seq": lambda: Seq2Seq(Seq2SeqConfig(V, 8, **DROPPED))}
NO_IDS = [
    (torch.zeros(5, dtype=torch.int64), r"torch.int64 of shape \(5,\); give .* \(B, N\)"),
    (torch.zeros(1, 2, 5, dtype=torch.int64), r"of shape \(1, 2, 5\)"), (torch.zeros(1, 5), "are torch.float32"),
    (torch.ones(1, 5, dtype=torch.bool), "are torch.bool"), ([[1, 2]], r"are a list|is \[\[1, 2\]\]; it must be"),
    (None, "are a NoneType|is None; it must be"),
    (torch.zeros(1, 0, dtype=torch.int64), "has no tokens"), (torch.zeros(0, 3, dtype=torch.int64), "at least one"),
    (torch.tensor([[3, 9]]), "go from 3 to 9, but the model knows 0 to 8"), (torch.tensor([[-1, 8]]), "from -1 to 8")]


def ids(*rows):
    return torch.tensor(rows)


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    return {name: make() for name, make in (MODELS | PAIRED).items()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("given", "words"), NO_IDS)
def test_what_is_no_batch_of_ids_is_refused(models, name, given, words):
    found = models[name](ids([0, 8]))
    assert getattr(found, "logits", found).shape[-1] == V
    with pytest.raises(ReproError, match=words) as raised:
        models[name](given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", MODELS)
def test_ids_may_be_int32(models, name):
    wide, narrow = (models[name].eval()(given) for given in (ids([0, 8, 3, 3]), ids([0, 8, 3, 3]).int()))
    assert torch.equal(getattr(wide, "logits", wide), getattr(narrow, "logits", narrow))


@pytest.mark.parametrize("name", ["RecurrentLM", "Longformer"])
def test_labels_may_be_int32(models, name):
    given, grads = ids([0, 8, 3, 3], [5, 1, 1, 7]), []
    labels = given.masked_fill(given == 1, -100)
    for kind in (torch.int64, torch.int32):
        models[name].eval().zero_grad()
        models[name](given.to(kind), labels=labels.to(kind)).loss.backward()
        grads.append([weight.grad for weight in models[name].parameters() if weight.grad is not None])
    assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))


@pytest.mark.parametrize("name", ["GPT", "Pretrained", "SparseTransformer"])
def test_texts_beyond_the_context_are_refused(models, name):
    assert models[name](torch.zeros(1, 16, dtype=torch.int64)).shape == (1, 16, V)
    with pytest.raises(ReproError, match="16"):
        models[name](torch.zeros(1, 17, dtype=torch.int64))


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize(("source", "lengths", "start", "words"), [
    (ids([3, 4], [5, 6]), ids(2, 1), ids([0, 7]), "2 source and 1 ids"),
    (ids([3, 4]), ids(2), ids([0, 7], [0, 7]), "1 source and 2 ids"), (ids([3, 4]), ids(2, 2), ids([0, 7]), "2 leng"),
    (ids([3, 4]), ids(3), ids([0, 7]), "lengths are 3 to 3; they must be 1 to 2"),
    (ids([3, 4]), ids(0), ids([0, 7]), "lengths are 0 to 0"), (ids([3, 4]), torch.tensor([2.0]), ids([0, 7]), "float"),
    (ids([3, 4]), ids([2]), ids([0, 7]), r"lengths are torch.int64 of shape \(1, 1\)"),
    (ids([3, 4]), [2], ids([0, 7]), "lengths are a list"), (ids([3, 99]), ids(2), ids([0, 7]), "99"),
    (ids([3, 4]), ids(2), ids([0, 99]), "99"), (ids(3, 4), ids(2), ids([0, 7]), "source are torch.int64 of shape"),
    (ids([3, 4]), ids(2), torch.zeros(1, 0, dtype=torch.int64), "no tokens")])
def test_pairs_that_do_not_fit_are_refused(models, name, source, lengths, start, words):
    with pytest.raises(ReproError, match=words):
        models[name](source, lengths, start)


@pytest.mark.parametrize("name", ["Decoder", "TDMCA", "Pretrained"])
def test_a_past_of_other_texts_is_refused(models, name):
    _, past = models[name].extend(ids([1, 2], [3, 4]))
    for given in (ids([1, 9]), ids(1), None, torch.zeros(1, 0, dtype=torch.int64)):
        with pytest.raises(ReproError):
            models[name].extend(given, past)
    if name != "Pretrained":
        with pytest.raises(ReproError, match="ids have 1 texts, but past has 2"):
            models[name].extend(ids([1]), past)
        with pytest.raises(ReproError, match="past is a tuple"):
            models[name].extend(ids([1]), (2, past.layers))


def test_lengths_of_an_encoder(models):
    for bad in (ids(3), ids(0), ids(1, 1), torch.tensor([1.0]), 2):
        with pytest.raises(ReproError, match="lengths"):
            models["Encoder"](ids([1, 2]), bad)


@pytest.mark.parametrize("change", [
    {"n_new": -1}, {"n_new": 2.5}, {"n_new": 17}, {"temperature": 0}, {"temperature": float("nan")},
    {"allowed": torch.zeros(V, dtype=torch.bool)}, {"allowed": torch.ones(V)}, {"seed": -1}, {"seed": "x"},
    {"allowed": torch.ones(V - 1, dtype=torch.bool)}, {"ids": ids([1, 9])}, {"ids": ids(1, 2)}, {"ids": [[1]]}])
def test_a_sample_that_cannot_be(models, change):
    with pytest.raises(ReproError):
        sample(models["SparseTransformer"], **{"ids": ids([1, 2]), "n_new": 3} | change)
    assert sample(models["SparseTransformer"], ids([1, 2]), 0).tolist() == [[1, 2]]


@pytest.mark.parametrize("change", [
    {"max_new_tokens": -1}, {"max_new_tokens": 1.5}, {"input_ids": ids([9])}, {"input_ids": ids(1)},
    {"do_sample": True, "temperature": float("inf")}, {"window": 0}, {"overlap": 16}])
def test_text_that_cannot_be_generated(models, change):
    with pytest.raises(ReproError):
        models["RecurrentLM"].generate(**{"input_ids": ids([1, 2]), "max_new_tokens": 2} | change)


def test_windows_of_a_reader():
    model = RecurrentRoberta(RobertaConfig(vocab_size=V, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                                           intermediate_size=8, max_position_embeddings=18))
    assert model(ids([[4, 5], [6, 7]])).start_logits.shape == (1, 2, 2)
    for bad in (ids([4, 5]), ids([[4, 9]]), torch.ones(1, 1, 3), None, torch.zeros(0, 1, 2, dtype=torch.int64),
                torch.full((1, 1, 17), 4)):
        with pytest.raises(ReproError):
            model(bad)
    with pytest.raises(ReproError, match=r"attention_mask is \[\[\[1, 1\]\]\]; it must be"):
        model(ids([[4, 5]]), [[[1, 1]]])


@pytest.mark.parametrize("name", PAIRED)
def test_what_is_written_does_not_depend_on_dropout(models, name):
    model = models[name].train()
    text = written(model, [3, 4, 5], 0, size=3, longest=8)
    assert text == written(model, [3, 4, 5], 0, size=3, longest=8) and all(part.training for part in model.modules())
    assert text == written(model.eval(), [3, 4, 5], 0, size=3, longest=8) and not model.training


@pytest.mark.parametrize("given", [
    ([], 0), ([[]], 0), ([3, 99], 0), (["a"], 0), ("abc", 0), ([1.5], 0), (None, 0), ([3], 99)])
@pytest.mark.parametrize("name", PAIRED)
def test_an_input_that_cannot_be_summarised_leaves_the_mode_as_it_was(models, name, given):
    model = models[name].train()
    with pytest.raises(ReproError):
        written(model, *given, longest=3)
    assert all(part.training for part in model.modules())


def test_pairs_without_tokens():
    batch = padded([([3, 4], [5]), ([6], [])], 0)
    assert batch["source"].tolist() == [[3, 4], [6, 0]] and batch["labels"].tolist() == [[5, 0], [0, -100]]
    for pairs in ([], [([], [1])], [([1.5], [1])], [([1], ["a"])], [(3, [1])]):
        with pytest.raises(ReproError):
            padded(pairs, 0)
        with pytest.raises(ReproError):
            nats(OneText(Decoder(DecoderConfig(V, 8, 2, (Causal(),)))), pairs, 0)


def test_an_error_leaves_every_part_as_it_was():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Dropout()))
    model[1].eval()
    for _ in range(2):
        with pytest.raises(KeyError), evaluating(model):
            assert not any(part.training for part in model.modules())
            raise KeyError
        assert [part.training for part in model.modules()] == [True, True, False, False, False]
    with evaluating(len):
        pass
    decoder = MODELS["Decoder"]().train()
    with pytest.raises(ReproError):
        measured_field(decoder, ids(1, 99))
    with pytest.raises(ReproError, match="give one text"):
        measured_field(decoder, ids([1, 2]))
    assert decoder.training


def test_nothing_is_looked_at_while_a_model_is_compiled():
    embed = nn.Embedding(V, 4)

    def read(given, lengths):
        check_lengths(lengths, given)
        return embedded(embed, given)

    compiled = torch.compile(read, backend="eager", fullgraph=True)
    for given in (ids([1, 2, 3]), ids([4, 5, 6, 7])):
        torch.testing.assert_close(compiled(given, ids(2)), embed(given))


def test_a_model_whose_weights_are_moved_at_the_call():
    from accelerate import cpu_offload

    for name in ("GPT", "LSTM", "Encoder", "Pretrained", "RecurrentLM"):
        model = MODELS[name]().eval()
        expected = model(ids([1, 2, 3]))
        offloaded = cpu_offload(model, execution_device=torch.device("cpu"))
        assert next(offloaded.parameters()).is_meta
        found = offloaded(ids([1, 2, 3]))
        torch.testing.assert_close(getattr(found, "logits", found), getattr(expected, "logits", expected))


def test_offloaded_weights_that_two_layers_share_are_refused():
    from accelerate import cpu_offload

    with pytest.raises(ReproError, match="offloaded"):
        cpu_offload(MODELS["Decoder"]().eval(), execution_device=torch.device("cpu"))(ids([1, 2, 3]))


@torch.no_grad()
def test_nothing_is_looked_at_on_the_meta_device():
    given, model = torch.zeros(2, 5, dtype=torch.int64, device="meta"), MODELS["RecurrentLM"]().to("meta")
    check_lengths(torch.ones(2, dtype=torch.int64, device="meta"), given)
    assert embedded(nn.Embedding(V, 4, device="meta"), given).shape == (2, 5, 4)
    assert model(given).logits.shape == (2, 5, V)


@torch.no_grad()
def test_nothing_is_looked_at_in_vmap():
    given, embed = torch.arange(6).view(3, 1, 2), nn.Embedding(V, 4)

    def read(one):
        check_ids(one, V)
        check_lengths(one[:, 0] * 0 + 1, one)
        return embedded(embed, one)

    torch.testing.assert_close(torch.vmap(read)(given), embed(given))
    torch.testing.assert_close(torch.vmap(torch.vmap(read))(given[None]), embed(given[None]))


class OnGpu:
    """Token ids on a GPU, as far as the checks ask."""

    device, is_cuda, is_meta = torch.device("cuda"), True, False


@torch.no_grad()
def test_nothing_is_looked_at_while_a_cuda_graph_is_captured(monkeypatch):
    monkeypatch.setattr(torch._C._functorch, "is_functorch_wrapped_tensor", lambda values: False)
    for capturing in (True, False):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda capturing=capturing: capturing)
        assert looked_at(OnGpu()) is not capturing


class Merging(nn.Module):
    """Merged into its weight while it is evaluated, as adapters are."""

    merged = False

    def train(self, mode=True):
        self.merged = not mode
        return super().train(mode)


@pytest.mark.parametrize("off", [(), ("0",), ("1",), ("1.0",), ("", "0"), ("", "1.0"), ("", "0", "1", "1.0")])
def test_modes_are_restored_through_train(off):
    model = nn.Sequential(Merging(), nn.Sequential(Merging(), nn.Dropout()))
    parts = dict(model.named_modules())
    for name in off:  # parents first
        parts[name].eval()
        for inner in (one for one in parts if one.startswith(f"{name}.") or not name and one):
            parts[inner].train(inner not in off)
    before = [(part.training, getattr(part, "merged", None)) for part in parts.values()]
    with evaluating(model):
        assert all(part.merged for part in model.modules() if isinstance(part, Merging))
    assert [(part.training, getattr(part, "merged", None)) for part in parts.values()] == before


def test_a_shared_part_that_was_off_stays_off():
    shared = nn.Dropout()
    model = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared))
    model.training = shared.training = False
    with evaluating(model):
        assert not model[0].training
    assert [part.training for part in model.modules()] == [False, True, False, True]


def test_the_checks_by_themselves():
    check_ids(ids([0, 8]), 9, 2)
    check_lengths(ids(1, 2), ids([0, 1], [2, 3]))
    for bad in ((ids([0, 9]), 9), (ids([0, -1]), 9), (ids([0, 1, 2]), 9, 2), (ids([0]), 9, 2, "ids", 2)):
        with pytest.raises(ReproError):
            check_ids(*bad)
