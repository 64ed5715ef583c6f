"""The Sparse Transformer: its patterns, how it starts, what it recomputes, and what it draws."""

import math
from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from repro.attention import BlockLocal, Causal, Fixed, Full, SlidingWindow, Strided
from repro.attention.patterns import Multiples, Summary
from repro.errors import ReproError
from repro.models import Decoder, DecoderConfig, SparseConfig, SparseTransformer, integrated, sample
from repro.models.sparse import INTEGRATIONS, Cache
from repro.recompute import flops, peak_memory

N = 23
CONFIG = {"vocab_size": 11, "length": N, "n_layer": 3, "n_head": 2, "n_embd": 8, "pattern": Strided(5), "columns": 5}


def model(seed=0, implementation="auto", recompute=False, **changes):
    """In double precision, with weights that are all large enough to matter."""
    torch.manual_seed(seed)
    made = SparseTransformer(SparseConfig(**CONFIG | changes), implementation, recompute).double()
    for parameter in made.parameters():
        parameter.data = torch.randn_like(parameter) / math.sqrt(parameter.shape[-1])
    return made


def ids(batch=2, n=N, seed=1):
    return torch.randint(11, (batch, n), generator=torch.Generator().manual_seed(seed))


def step(made):
    """The loss of one batch and the gradients of every weight."""
    torch.manual_seed(3)  # for dropout
    loss = F.cross_entropy(made(ids())[:, :-1].flatten(0, 1), ids()[:, 1:].flatten())
    return [loss, *torch.autograd.grad(loss, list(made.parameters()))]


def test_integrations():
    near, far = Strided(5).heads
    assert integrated(Strided(5), "interleaved", 3, 2) == ((near, near), (far, far), (near, near))
    assert integrated(Strided(5), "merged", 2, 2) == ((Strided(5),) * 2,) * 2
    assert integrated(Strided(5), "multi-head", 2, 3) == ((near, far, near),) * 2
    assert integrated(Causal(), "interleaved", 2, 2) == ((Causal(),) * 2,) * 2
    assert (near, far) == (SlidingWindow(5), Multiples(5))


@pytest.mark.parametrize(("integration", "layers", "heads", "said"), [
    ("multi-head", 4, 1, "integration is multi-head with 1 heads; a pattern of 2 parts needs at least 2"),
    ("interleaved", 1, 4, "integration is interleaved with 1 layers; a pattern of 2 parts")])
def test_no_part_of_a_pattern_is_lost(integration, layers, heads, said):
    with pytest.raises(ReproError, match=said):
        integrated(Strided(5), integration, layers, heads)
    assert integrated(Causal(), integration, layers, heads) == ((Causal(),) * heads,) * layers


def test_heads_of_a_layer_take_different_sub_blocks():
    fixed, block = Fixed(8, 2), BlockLocal(8)
    assert integrated(fixed, "merged", 1, 5) == ((Fixed(8, 2), Fixed(8, 2, 1), Fixed(8, 2, 2), Fixed(8, 2, 3),
                                                  Fixed(8, 2)),)
    assert integrated(fixed, "multi-head", 1, 4) == ((block, Summary(8, 2), block, Summary(8, 2, 1)),)
    assert integrated(fixed, "interleaved", 2, 2) == ((block, block), (Summary(8, 2), Summary(8, 2, 1)))


def test_the_other_decoder_takes_them_too():
    made = Decoder(DecoderConfig(11, 8, 2, integrated(Strided(5), "interleaved", 2, 2)))
    assert made(ids()).shape == (2, N, 11)


@pytest.mark.parametrize("integration", INTEGRATIONS)
@pytest.mark.parametrize("pattern", [Strided(5), Fixed(6, 2)], ids=repr)
def test_blocked_gives_what_dense_gives(pattern, integration):
    changes = {"pattern": pattern, "integration": integration, "key_size": 3}
    for one, other in zip(*(step(model(implementation=name, **changes)) for name in ("blocked", "dense")),
                          strict=True):
        torch.testing.assert_close(one, other)


def test_merged_layers_are_the_formulas_written_out():
    made, x = model(n_layer=1, n_head=1), torch.randn(1, N, 8, dtype=torch.float64)
    block = made.layers[0]
    query, key, value = block.attention.project(F.layer_norm(x, (8,), block.attention.norm.weight,
                                                             block.attention.norm.bias)).split(8, -1)
    scores = (query @ key.mT / math.sqrt(8)).masked_fill(~Strided(5).mask(N), -torch.inf)
    wanted = x + block.attention.out(scores.softmax(-1) @ value)
    inner = block.feedforward.inner(F.layer_norm(wanted, (8,), block.feedforward.norm.weight,
                                                 block.feedforward.norm.bias))
    wanted = wanted + block.feedforward.out(inner / (1 + torch.exp(-1.702 * inner)))
    torch.testing.assert_close(block(x, "dense", False), wanted)


@pytest.mark.parametrize("integration", INTEGRATIONS)
@pytest.mark.parametrize("pattern", [Strided(5), Fixed(6, 2)], ids=repr)
def test_three_layers_reach_every_earlier_position_and_no_later_one(pattern, integration):
    made = model(pattern=pattern, integration=integration)
    x = made.embedded(ids(1)).detach().requires_grad_()
    out = x
    for layer in made.layers:
        out = layer(out, "auto", False)
    for i in (0, 7, N - 1):
        moved = torch.autograd.grad(out[0, i].sum(), x, retain_graph=True)[0][0].abs().sum(-1)
        assert (moved[:i + 1] > 1e-9).all() and (moved[i + 1:] == 0).all()


@pytest.mark.parametrize("changes", [{}, {"key_size": 2, "inner": 2}, {"embeddings": ("data", "attention")},
                                     {"embeddings": ("data",), "length": 24, "shape": (4, 2, 3)}, {"embeddings": ()}])
def test_weights_are_counted(changes):
    made = model(**changes)
    assert made.config.parameters == sum(weight.numel() for weight in made.parameters())
    inside = sum(weight.numel() for name, weight in made.layers.named_parameters() if weight.ndim == 2)
    assert made.config.matrices == inside


def test_weights_start_as_in_the_paper():
    torch.manual_seed(0)
    config = SparseConfig(200, 64, 8, 2, 128, embeddings=("data", "attention"), columns=8)
    made = SparseTransformer(config)

    def spread(weight):
        return weight.std().item() * math.sqrt(weight.shape[-1]) / 0.125

    assert spread(made.embed.weight) == pytest.approx(1, rel=0.05)
    assert [spread(table.weight) for table in made.places.values()] == pytest.approx([1 / math.sqrt(3)] * 3, rel=0.1)
    for block in made.layers:
        assert spread(block.attention.project.weight) == pytest.approx(1, rel=0.05)
        assert spread(block.feedforward.inner.weight) == pytest.approx(1, rel=0.05)
        assert spread(block.attention.out.weight) == pytest.approx(1 / 4, rel=0.05)
        assert spread(block.feedforward.out.weight) == pytest.approx(1 / 4, rel=0.05)
    assert not any(module.bias.any() for module in made.modules() if isinstance(module, nn.Linear | nn.LayerNorm))
    loss = F.cross_entropy(made(ids())[:, :-1].flatten(0, 1), ids()[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(200), abs=1e-5)


def test_without_scaling_output_weights_start_like_all_others():
    torch.manual_seed(0)
    made = SparseTransformer(SparseConfig(20, 64, 8, 2, 128, scaled=False))
    assert made.layers[3].feedforward.out.weight.std().item() * math.sqrt(512) == pytest.approx(0.125, rel=0.05)


def test_dropout_is_at_the_end_of_residual_branches_and_nowhere_else():
    made = model(dropout=0.5)
    names = Counter(name.partition("layers.")[2][2:] for name, module in made.named_modules()
                    if isinstance(module, nn.Dropout))
    assert names == {"attention.dropout": 3, "feedforward.dropout": 3}
    with torch.no_grad():  # a branch that is dropped whole adds nothing
        for module in made.modules():
            if isinstance(module, nn.Dropout):
                module.p = 1.0
        torch.testing.assert_close(made(ids()), made.output(made.norm(made.embedded(ids()))))


def test_recomputation_changes_no_gradient():
    for one, other in zip(step(model(dropout=0.3)), step(model(dropout=0.3, recompute=True)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_recomputation_costs_the_layers_forward_once_more_and_saves_memory():
    plain, again = model(n_layer=6), model(n_layer=6, recompute=True)
    with torch.no_grad():
        x = plain.embedded(ids())
        layers = flops(lambda: [layer(x, "auto", False) for layer in plain.layers])
    results = 6 * 2 * 2 * N * (8 * 8 + 8 * 32)  # of the output weights: nobody needs them in the backward pass
    assert flops(lambda: step(again)) - flops(lambda: step(plain)) == layers - results > 0
    assert peak_memory(lambda: step(again)) < 0.6 * peak_memory(lambda: step(plain))


def test_flops_are_counted_by_pairs_and_weights():
    config = SparseConfig(**CONFIG | {"pattern": Causal(), "key_size": 3})
    pairs = (N + 1) / 2 * 6
    assert config.pairs_per_token(N) == pairs
    assert config.flops_per_token(N) == 2 * config.matrices + 2 * 8 * 11 + 2 * (3 + 4) * pairs


def test_places_of_an_image_and_of_a_pattern():
    made = model(embeddings=("data", "attention"), length=24, shape=(4, 2, 3), columns=5)
    row, column, channel, above, beside = (index[[0, 5, 7, 23]].tolist() for index in made.indices(0, 24))
    assert (row, column, channel) == ([0, 0, 1, 3], [0, 1, 0, 1], [0, 2, 1, 2])
    assert (above, beside) == ([0, 1, 1, 4], [0, 0, 2, 3])
    assert made.config.tables == (4, 2, 3, 5, 5)
    assert [index.tolist() for index in made.indices(7, 8)] == [[1], [0], [1], [1], [2]]


def test_without_embeddings_a_first_layer_knows_no_order():
    made = model(embeddings=(), pattern=Causal(), n_layer=1)
    swapped = ids(1).clone()
    swapped[0, [2, 5]] = swapped[0, [5, 2]]
    torch.testing.assert_close(made(swapped)[:, -1], made(ids(1))[:, -1])
    placed = model(embeddings=("attention",), pattern=Causal(), n_layer=1)
    assert (placed(swapped)[:, -1] - placed(ids(1))[:, -1]).abs().max() > 1e-3


@pytest.mark.parametrize("integration", INTEGRATIONS)
@pytest.mark.parametrize("pattern", [Strided(5), Fixed(6, 2), Causal()], ids=repr)
def test_a_cache_gives_the_same_logits_position_by_position(pattern, integration):
    made = model(pattern=pattern, integration=integration).eval()
    with torch.no_grad():
        cache = Cache(made, 2)
        found = [made(part, cache) for part in ids().split([4] + [1] * (N - 4), 1)]
        torch.testing.assert_close(torch.cat(found, 1), made(ids()))


@pytest.mark.parametrize("implementation", ["dense", "blocked", "products"])
def test_samples_do_not_depend_on_how_a_model_was_trained(implementation):
    drawn = [sample(model(implementation=name), ids(2, 3), N - 3, seed=1) for name in ("auto", implementation)]
    assert drawn[0].equal(drawn[1])


def test_samples_are_drawn_from_the_model():
    made = model(vocab_size=3, n_layer=1, length=4, pattern=Strided(2))
    given = torch.zeros(4_000, 1, dtype=torch.int64)
    drawn = sample(made, given, 2, seed=1)
    assert drawn.shape == (4_000, 3) and drawn.equal(sample(made, given, 2, seed=1))
    assert not drawn.equal(sample(made, given, 2, seed=2))
    first = made(given[:1])[0, -1].softmax(-1)
    then = made(torch.tensor([[0, 2]]))[0, -1].softmax(-1)
    after = drawn[drawn[:, 1] == 2, 2]
    for column, chances in ((drawn[:, 1], first), (after, then)):
        shares = torch.bincount(column, minlength=3) / len(column)
        assert (shares - chances).abs().max() < 3 * 0.5 / math.sqrt(len(column))
    only = sample(made, given, 3, allowed=torch.tensor([False, True, False]))
    assert only[:, 1:].eq(1).all()


@pytest.mark.parametrize(("changes", "told"), [
    ({"pattern": Strided(24)}, "stride is 24, but a sequence has 23 positions; choose a stride of 1 to 23"),
    ({"integration": "merge"}, "Did you mean 'merged'"), ({"embeddings": ("date",)}, "Did you mean 'data'"),
    ({"shape": (2, 3)}, r"shape is \(2, 3\), 6 numbers, but a sequence has 23 positions"),
    ({"pattern": Full()}, "which sees later positions"), ({"n_embd": 7}, "the width must be a multiple"),
    ({"key_size": 0}, "key_size is 0; it must be at least 1"), ({"key_size": -1}, "key_size is -1"),
    ({"dropout": 1.0}, "dropout is 1.0"), ({"n_layer": 0}, "n_layer is 0; it must be at least 1")])
def test_what_does_not_fit_is_refused(changes, told):
    with pytest.raises(ReproError, match=told):
        SparseConfig(**CONFIG | changes)


def test_a_key_of_one_feature_is_one():
    assert [SparseConfig(**CONFIG | {"key_size": size}).of_key for size in (1, None)] == [1, 4]


def test_sequences_beyond_the_embeddings_are_refused():
    with pytest.raises(ReproError, match="there are 24 positions, but this model has embeddings for 23"):
        model()(ids(n=24))
    with pytest.raises(ReproError, match="2 given and 23 sampled tokens are more than the 23 positions"):
        sample(model(), ids(1, 2), 23)
    with pytest.raises(ReproError, match="temperature is 0; it must be above 0"):
        sample(model(), ids(1, 2), 3, temperature=0)


@pytest.mark.parametrize(("pattern", "columns", "width"), [
    (Strided(6), None, 6), (Fixed(4, 1), None, 4), (Causal(), None, 5), (Strided(6), 3, 3)])
def test_positions_are_embedded_by_row_and_column_of_the_stride(pattern, columns, width):
    """Unless told otherwise; a pattern without a stride has about the root of the 24 positions."""
    config = SparseConfig(11, 24, 2, 2, 8, pattern, columns=columns)
    rows, column = SparseTransformer(config).indices(0, 24)
    assert config.tables == (-(-24 // width), width)
    assert rows.tolist() == [i // width for i in range(24)] and column.tolist() == [i % width for i in range(24)]
