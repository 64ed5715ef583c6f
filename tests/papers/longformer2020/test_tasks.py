"""Texts read whole, in pieces, or cut: against the plain encoder, piece by piece."""

from copy import deepcopy

import pytest
import torch
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from repro.attention import Full
from repro.errors import ReproError
from repro.models import longformer_from
from repro.models.long_reader import Reader, padded, reader_from
from repro.papers.longformer2020.tasks.reader import Example, Words

SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 24}
SEP, PIECE = 2, 16
BASES = {"bert": lambda: BertModel(BertConfig(max_position_embeddings=PIECE, **SIZES)),
         "roberta": lambda: RobertaModel(RobertaConfig(max_position_embeddings=PIECE + 2, **SIZES))}


@pytest.fixture(params=BASES)
def base(request):
    torch.manual_seed(0)
    return BASES[request.param]().eval()


def text(before: int, n: int, **more) -> Example:
    return Example(None, [4, *range(5, 4 + before)], [10 + k % 30 for k in range(n)], **more)


def by_hand(base, example: Example) -> tuple[list, torch.Tensor]:
    """The states of the prefix in each piece, and of the context, by the plain encoder."""
    room, prefixes, states = PIECE - 1 - len(example.prefix), [], []
    for start in range(0, max(1, len(example.context)), room):
        part = list(example.context[start:start + room])
        found = base(torch.tensor([[*example.prefix, *part, SEP]])).last_hidden_state[0]
        prefixes.append(found[:len(example.prefix)])
        states.append(found[len(example.prefix):-1])
    return prefixes, torch.cat(states)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_pieces_equal_the_plain_encoder_piece_by_piece_and_lose_no_token(base, precision):
    reader = Reader(longformer_from(base, PIECE, Full()), SEP, PIECE)
    rooms = {before: PIECE - 1 - before for before in (1, 4)}
    examples = [text(before, n) for before, room in rooms.items()
                for n in (0, 1, room - 1, room, room + 1, 2 * room, 2 * room + 1, 3 * room - 1)]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        read = reader(padded(examples))
        expected = [by_hand(base, example) for example in examples]
    close = {"atol": 2e-5} if precision == "float32" else {"atol": 0.1}
    for k, (example, (prefixes, states)) in enumerate(zip(examples, expected, strict=True)):
        n = len(example.context)
        assert read.in_context[k].sum() == n and read.pieces[k].sum() == len(prefixes)
        assert torch.allclose(read.context[k, :n].float(), states.float(), **close)
        assert not read.context[k, n:].any() and not read.prefix[k, len(prefixes):].any()
        for piece, prefix in enumerate(prefixes):
            assert torch.allclose(read.prefix[k, piece, :len(prefix)].float(), prefix.float(), **close)
        assert torch.equal(read.first[k], read.prefix[k, 0, 0])


def test_a_longformer_equals_the_plain_encoder_where_its_window_holds_the_text(base):
    examples = [text(3, 12, global_prefix=[0, 2], global_context=[5]), text(1, 4)]
    for window, same in ((2 * PIECE, True), (4, False)):
        read = Reader(longformer_from(base, 64, window).eval(), SEP)(padded(examples))
        for k, example in enumerate(examples):
            prefixes, states = by_hand(base, example)
            assert torch.allclose(read.context[k, :len(states)], states, atol=2e-5) is same
            assert torch.allclose(read.prefix[k, 0, :len(prefixes[0])], prefixes[0], atol=2e-5) is same


@pytest.mark.parametrize(("piece", "window"), [(PIECE, Full()), (None, 4)])
def test_texts_without_a_context_have_the_states_of_their_prefix(base, piece, window):
    reader = Reader(longformer_from(base, PIECE if piece else 64, window).eval(), SEP, piece)
    alone = reader(padded([text(2, 0), text(1, 0)]))
    assert alone.context.shape[:2] == (2, 0) == alone.in_context.shape and alone.pieces.sum(1).tolist() == [1, 1]
    among = reader(padded([text(2, 0), text(1, 40)]))
    assert among.in_context.sum(1).tolist() == [0, 40]
    want = base(torch.tensor([[*text(2, 0).prefix, SEP]])).last_hidden_state[0, :2]
    for read in (alone, among):
        assert torch.allclose(read.prefix[0, 0], want, atol=2e-5)


@pytest.mark.parametrize("dropped", ["states and attention", "attention alone"])
@pytest.mark.parametrize(("piece", "window"), [(PIECE, Full()), (None, 4)])
def test_recomputed_layers_have_the_same_losses_and_gradients(base, piece, window, dropped):
    """With dropout, which has to be the same in the second computation."""
    batch, found = padded([text(2, 30, global_prefix=[0]), text(1, 4)]), []
    for recompute in (False, True):
        reader = Reader(longformer_from(deepcopy(base), PIECE if piece else 64, window), SEP, piece).train()
        attention, calls = reader.encoder.longformer.encoder.layer[0].attention.self, []
        attention.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        assert attention.dropout == 0.1
        for module in reader.modules() if dropped == "attention alone" else ():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        if recompute:
            reader.encoder.activation_checkpointing_enable()
        torch.manual_seed(5)
        read = reader(batch)
        loss = sum((states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum()
                   for states in (read.context, read.prefix))
        loss.backward()
        assert len(calls) == 1 + recompute  # the layer runs again in the backward pass
        found.append((loss.detach(), {name: weight.grad for name, weight in reader.named_parameters()}))
    (loss, grads), (again, others) = found
    assert torch.equal(loss, again) and grads.keys() == others.keys()
    assert grads["encoder.longformer.embeddings.word_embeddings.weight"].abs().max() > 0.01
    for name, grad in grads.items():
        torch.testing.assert_close(grad, others[name], atol=1e-4, rtol=1e-4)


def test_only_global_tokens_reach_far_ones_and_gradients_flow_back(base):
    for chosen, reached in (([0], True), ([], False)):
        reader = Reader(longformer_from(base, 64, 4).eval(), SEP)
        embeddings = reader.encoder.get_input_embeddings().weight
        example = Example(None, [4], [10] * 40 + [30], global_prefix=chosen)
        reader(padded([example])).first[0, 0].backward()
        assert bool(embeddings.grad[30].any()) is reached  # the last token of the context, 41 tokens away
        assert embeddings.grad[10].any()  # near ones always
    # the other way round, far tokens see a global one
    example = Example(None, [4], [10] * 40 + [30], global_context=[40])
    reader.zero_grad()
    reader(padded([example])).first[0, 0].backward()
    assert embeddings.grad[30].any()


def test_bf16_has_gradients_close_to_float32(base):
    grads = []
    for enabled in (False, True):
        reader = Reader(longformer_from(base, PIECE, Full()), SEP, PIECE)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = reader(padded([text(2, 30), text(4, 5)])).context[..., 0].float().sum()
        loss.backward()
        grads.append(reader.encoder.get_input_embeddings().weight.grad)
    assert torch.isfinite(grads[1]).all()
    assert (grads[0] - grads[1]).norm() < 0.05 * grads[0].norm()


def test_the_mean_over_pieces_counts_only_those_that_a_text_has(base):
    reader = Reader(longformer_from(base, PIECE, Full()), SEP, PIECE)
    read = reader(padded([text(1, 14), text(1, 15), text(1, 42)]))
    assert read.pieces.sum(1).tolist() == [1, 2, 3]
    values = torch.arange(1.0, 4).expand(3, 3)
    assert read.over_pieces(values).tolist() == [1.0, 1.5, 2.0]
    assert torch.allclose(read.over_pieces(read.prefix)[1], read.prefix[1, :2].mean(0), atol=1e-6)


def test_the_first_piece_alone_is_the_same_first_piece(base):
    example = text(2, 40)
    ways = [Reader(longformer_from(base, PIECE, Full()), SEP, PIECE, first)(padded([example])) for first in (0, 1)]
    assert torch.allclose(ways[0].first, ways[1].first, atol=1e-6)
    assert [int(read.in_context.sum()) for read in ways] == [40, PIECE - 1 - 2]


def test_a_cut_keeps_the_beginning_and_its_global_tokens():
    example = Example("row", [1, 2], range(20), global_prefix=[0], global_context=[3, 9, 10], targets=[12])
    cut = example.cut(10)
    assert (list(cut.context), cut.global_context, cut.global_prefix) == (list(range(10)), [3, 9], [0])
    assert cut.targets == [12] and cut.row == "row"
    assert len(cut) == 13 and cut.cut(4).whole == cut.whole == len(example) == 23


def test_added_tokens_get_the_first_free_ids_and_the_same_drawn_rows_in_every_model(base):
    class Coder:
        vocab_size = SIZES["vocab_size"]

    words, kind = Words(Coder(), ("[q]", "[ent]")), type(base)
    rows = []
    for model in ("short", "longformer"):
        torch.manual_seed(1)
        made = kind(base.config)
        torch.manual_seed(7)
        reader = reader_from(made, _with_ends(words), model, 64, 4)
        rows.append(reader.encoder.get_input_embeddings().weight)
        base.config.vocab_size = 40
    assert (words["[q]"], words["[ent]"]) == (40, 41)
    assert len(rows[0]) == 42 and torch.equal(*rows) and rows[0][40:].any(1).all()


def _with_ends(words: Words) -> Words:
    words.coder.special = {"sep": SEP}.get
    return words


def test_no_room_for_the_context_is_one_clear_line(base):
    reader = Reader(longformer_from(base, PIECE, Full()), SEP, PIECE)
    with pytest.raises(ReproError, match="a prefix has 15 tokens, which leaves no room"):
        reader(padded([text(15, 3)]))
    with pytest.raises(ReproError, match="64 positions"):
        Reader(longformer_from(base, 64, 4), SEP)(padded([text(2, 70)]))
