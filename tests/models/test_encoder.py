"""The encoder: what each token sees, padding that nobody sees, and its size."""

import pytest
import torch

from repro.attention import Global, SlidingWindow
from repro.errors import ReproError
from repro.models import Encoder, EncoderConfig, classifier_patterns

N, WIDTH = 11, 12


PATTERNS = classifier_patterns(4, 2)


def make(patterns=PATTERNS, **settings):
    torch.manual_seed(0)
    model = Encoder(EncoderConfig(7, WIDTH, 3, patterns, **{"position_size": 6} | settings)).double()
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter) / 3
    return model.eval()


def documents(*lengths, n=None):
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(7, (n or max(lengths),), generator=generator) for _ in lengths]
    return torch.stack(rows), torch.tensor(lengths)


def test_a_classifiers_patterns_are_a_window_on_both_sides_and_a_first_token_that_sees_all():
    patterns = classifier_patterns(4, 3)
    assert len(patterns) == 3
    for pattern in patterns:
        for i in range(N):
            for j in range(N):
                assert bool(pattern(i, j)) == (abs(i - j) <= 2 or 0 in (i, j))


def test_padding_changes_nothing():
    model = make()
    ids, lengths = documents(11, 6, 1)
    together = model(ids, lengths)
    for row, length, told in zip(ids, lengths, together, strict=True):
        torch.testing.assert_close(model(row[None, :length])[0], told, rtol=1e-12, atol=1e-12)
    changed = ids.clone()
    changed[1, 6:] = (changed[1, 6:] + 1) % 7
    assert torch.equal(model(changed, lengths), together)
    changed[1, 5] = (changed[1, 5] + 1) % 7  # the last of its own
    assert (model(changed, lengths)[1] - together[1]).abs().max() > 1e-3


@pytest.mark.parametrize(("pattern", "n_layer", "seen"), [
    (SlidingWindow(4, causal=False), 1, 3), (SlidingWindow(4, causal=False), 2, 5),
    (SlidingWindow(4, causal=False) | Global([0]), 1, N)])
def test_the_first_token_depends_on_what_the_patterns_let_it_see(pattern, n_layer, seen):
    model = make((pattern,) * n_layer)
    embedded = []
    model.embed.register_forward_hook(lambda module, given, out: embedded.append(out))
    told = model(documents(N)[0])[0, 0]
    gradient = torch.autograd.grad(told, embedded[0])[0][0].abs().sum(-1)
    assert (gradient > 0).tolist() == [True] * seen + [False] * (N - seen)


def test_windows_change_the_logits_from_two_layers_on():
    ids = documents(N)[0]
    told = {(window, n_layer): make(classifier_patterns(window, n_layer))(ids)
            for window in (2, 4, 8) for n_layer in (1, 2)}
    for narrow, wide in ((2, 4), (4, 8)):
        assert torch.equal(told[narrow, 1], told[wide, 1])  # read off a token that sees all anyway
        assert (told[narrow, 2] - told[wide, 2]).abs().max() > 1e-3


def test_every_implementation_gives_the_same():
    model = make()
    ids, lengths = documents(300, 280)
    found = {}
    for name in ("dense", "loop", "blocked"):
        model.implementation = name
        found[name] = model(ids, lengths)
    torch.testing.assert_close(found["loop"], found["dense"], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found["blocked"], found["dense"], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"n_labels": 5, "position_size": None}, {"dropout": 0.5}])
def test_the_size_that_is_told_is_the_size_it_has(settings):
    model = make(classifier_patterns(2, 3), **settings)
    assert model.config.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert model(documents(4, 2)[0]).shape == (2, model.config.n_labels)


def test_dropout_acts_in_training_only():
    model, ids = make(dropout=0.5), documents(N)[0]
    assert torch.equal(model(ids), model(ids))
    model.train()
    assert not torch.equal(model(ids), model(ids))


def test_operations_are_those_of_the_layers_alone():
    """No output layer for every token: 2 for each weight and each product of a score and of a sum of values."""
    config = EncoderConfig(7, WIDTH, 3, classifier_patterns(4, 2), position_size=6)
    pairs = 2 * 3 * sum(abs(i - j) <= 2 or 0 in (i, j) for i in range(N) for j in range(N)) / N
    matrices = 2 * (12 * WIDTH + 6) * WIDTH
    assert config.flops_per_token(N) == pytest.approx(2 * matrices + 2 * (4 + 4 + 6) * pairs)


@pytest.mark.parametrize(("make", "told"), [
    (lambda: EncoderConfig(7, 12, 3, classifier_patterns(4, 1), n_labels=1), "n_labels is 1"),
    (lambda: EncoderConfig(7, 10, 3, classifier_patterns(4, 1)), "n_embd is 10 and n_head 3"),
    (lambda: classifier_patterns(3, 1), "window is 3; a bidirectional window has half on each side"),
])
def test_settings_that_cannot_be(make, told):
    with pytest.raises(ReproError, match=told):
        make()
