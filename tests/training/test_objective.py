"""The training loss against the loss transformers computes itself, window by window."""

import re

import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import perplexity
from repro.models import roberta_mini
from repro.training import Labels, MaskedLM, NextToken, Task, WindowedLM, model_settings

SIZES = [(13, 4, 0), (12, 4, 0), (9, 4, 0), (14, 5, 2), (13, 4, 3), (4, 4, 1), (5, 4, 1), (30, 15, 0), (2, 4, 0)]


def text(n, seed=0):
    return torch.randint(29, (3, n), generator=torch.Generator().manual_seed(seed))


def loss_of_transformers(model, tokens, window, overlap):
    """Each window on its own, with the token after its last input as last label, and old targets masked."""
    total, count, scored = 0.0, 0, 1
    n = tokens.shape[1]
    while scored < n:
        start = 0 if scored == 1 else scored - 1 - overlap
        stop = min(start + window, n - 1)
        piece = tokens[:, start:stop + 1]
        labels = piece.clone()
        labels[:, :scored - start] = -100  # transformers shifts: label k belongs to input k - 1
        counted = (stop + 1 - scored) * len(tokens)
        total = total + model(input_ids=piece, labels=labels).loss * counted
        count, scored = count + counted, stop + 1
    assert count == (n - 1) * len(tokens)
    return total / count


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_plain_loss_and_its_gradients_are_those_of_transformers(tiny_gpt2, size):
    n, window, overlap = size
    model, tokens = tiny_gpt2(dtype=torch.float64), text(n)
    loss = WindowedLM(model, window, overlap)(tokens)
    expected = loss_of_transformers(model, tokens, window, overlap)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    weights = list(model.parameters())
    for a, b in zip(torch.autograd.grad(loss, weights), torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * b.abs().max().item())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_plain_loss_is_the_recurrent_one_with_the_module_masked_out(tiny_gpt2, tiny_recurrent, size):
    n, window, overlap = size
    recurrent, tokens = tiny_recurrent(dtype=torch.float64), text(n)
    plain = tiny_gpt2(dtype=torch.float64, seed=1)
    plain.load_state_dict({k: v for k, v in recurrent.state_dict().items() if not k.startswith("recurrence.")})
    with torch.no_grad():
        loss = WindowedLM(plain, window, overlap)(tokens).item()
        masked = recurrent(tokens, window=window, overlap=overlap, labels=tokens, recurrent=False).loss.item()
        full = WindowedLM(recurrent, window, overlap)(tokens).item()
        direct = recurrent(tokens, window=window, overlap=overlap, labels=tokens).loss.item()
    assert loss == pytest.approx(masked, rel=1e-12)
    assert full == pytest.approx(direct, rel=1e-12)
    if n > window + 1:
        assert abs(full - loss) > 1e-3


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_training_and_evaluation_agree_on_one_text(tiny_gpt2, tiny_recurrent, recurrent, size):
    n, window, overlap = size
    model, tokens = (tiny_recurrent if recurrent else tiny_gpt2)(), text(n)
    with torch.no_grad():
        loss = WindowedLM(model, window, overlap)(tokens).item()
    score = sum(perplexity(model, row, window, overlap).nll for row in tokens) / (3 * (n - 1))
    assert loss == pytest.approx(score, rel=1e-5)


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize(("n", "window", "overlap"), [(13, 4, 1), (12, 4, 3), (9, 4, 2), (14, 5, 2), (30, 15, 4),
                                                      (3, 8, 2)])
def test_with_tokens_before_the_same_targets_count_each_with_its_whole_overlap(tiny_gpt2, tiny_recurrent, recurrent, n,
                                                                                window, overlap):
    """Written out target by target: which window scores it, and what is read there; `n` tokens after those before."""
    model = (tiny_recurrent if recurrent else tiny_gpt2)(dtype=torch.float64)
    tokens = text(overlap + n)
    stride, total, z = window - overlap, 0.0, None
    for start in range(0, n - 1, stride):  # scores the targets start + 1 .. start + stride after the tokens before
        ids = tokens[:, start:min(start + window, overlap + n - 1)]
        if recurrent:
            hidden, z = model._read_window(ids, z, stride)
            scores = model.lm_head(hidden)
        else:
            scores = model(ids).logits
        for target in range(overlap + start + 1, min(overlap + start + stride, overlap + n - 1) + 1):
            wanted = scores[:, target - 1 - start].log_softmax(-1)
            total = total - wanted.gather(1, tokens[:, target:target + 1]).sum()
    expected = total / (3 * (n - 1))
    loss = WindowedLM(model, window, overlap, before=overlap)(tokens)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-9)
    weights = [weight for name, weight in model.named_parameters() if "layer_scores" not in name]
    pairs = zip(torch.autograd.grad(loss, weights, allow_unused=True),
                torch.autograd.grad(expected, weights, allow_unused=True), strict=True)
    for a, b in pairs:
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert WindowedLM(model, window, overlap, before=overlap).settings()["before"] == overlap
    assert "before" not in WindowedLM(model, window, overlap).settings()


@pytest.mark.parametrize("recompute", ["layer", "window"])
def test_recomputation_reaches_the_model(tiny_recurrent, recompute):
    model, tokens = tiny_recurrent(dtype=torch.float64).train(), text(14)
    seen = []
    model.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs["recompute"]), with_kwargs=True)
    weights = list(model.parameters())
    plain = torch.autograd.grad(WindowedLM(model, 4, 1)(tokens), weights)
    other = torch.autograd.grad(WindowedLM(model, 4, 1, recompute=recompute)(tokens), weights)
    assert seen == ["none", recompute]
    for a, b in zip(other, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * b.abs().max().item())


def test_truncation_reaches_the_model(tiny_recurrent):
    model, tokens = tiny_recurrent(dtype=torch.float64).train(), text(14)
    weights = list(model.parameters())
    found = torch.autograd.grad(WindowedLM(model, 4, 1, truncate=2)(tokens), weights)
    expected = torch.autograd.grad(model(tokens, window=4, overlap=1, labels=tokens, truncate=2).loss, weights)
    whole = torch.autograd.grad(WindowedLM(model, 4, 1)(tokens), weights)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
    assert (found[0] - whole[0]).abs().max() > 1e-6


@pytest.mark.parametrize("lm_weight", [-1, float("nan"), float("inf"), 1e39, "x", True])
def test_impossible_weights_of_tokens_are_refused(lm_weight):
    with pytest.raises(ReproError, match=re.escape(f"lm_weight is {lm_weight!r}; it must be ")):
        Task(torch.nn.Linear(1, 1), lm_weight)


def test_texts_that_a_masked_model_has_no_positions_for_are_refused():
    batch = {"ids": torch.full((2, 20), 7), "positions": torch.tensor([[3], [19]]), "targets": torch.ones(2, 1).long()}
    with pytest.raises(ReproError, match="a text has 20 tokens, but this model has 19 positions"):
        MaskedLM(roberta_mini(1, 8, 2, 50, n_positions=19))(batch)
    assert MaskedLM(roberta_mini(1, 8, 2, 50, n_positions=20))(batch).isfinite()


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize(("window", "overlap", "words"), [
    (17, 0, "context ends at 16"), (4, 4, "overlap is 4"), (4, -1, "overlap is -1"), (0, 0, "window is 0")])
def test_impossible_windows_are_refused(tiny_gpt2, tiny_recurrent, recurrent, window, overlap, words):
    with pytest.raises(ReproError, match=words):
        WindowedLM((tiny_recurrent if recurrent else tiny_gpt2)(), window, overlap)(text(20))


def test_next_token_is_the_mean_over_all_targets():
    logits = torch.randn(3, 7, 29, generator=torch.Generator().manual_seed(1))
    tokens, read = text(8), []
    objective = NextToken(torch.nn.Identity())
    objective.model.forward = lambda ids: read.append(ids) or logits
    wanted = -logits.log_softmax(-1).gather(2, tokens[:, 1:, None]).mean()
    torch.testing.assert_close(objective(tokens), wanted)
    assert torch.equal(read[0], tokens[:, :-1])


def masked(tokens, seed=3):
    """A batch with a third of its tokens never predicted, as `Sequences` gives it."""
    never = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(seed)) < 1 / 3
    labels = tokens.masked_fill(never, -100)
    n = max(1, int((~never[:, 1:]).sum()))
    return {"input_ids": tokens, "labels": labels, "n_targets": torch.full((len(tokens),), n / len(tokens))}, ~never


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("kind", ["plain", "recurrent", "whole"])
def test_what_is_no_target_is_left_out_of_the_mean(tiny_gpt2, tiny_recurrent, size, kind):
    """Against the sum over single targets, each told by a batch that predicts nothing else."""
    n, window, overlap = size
    model = (tiny_recurrent if kind == "recurrent" else tiny_gpt2)(dtype=torch.float64)
    objective = NextToken(Logits(model)) if kind == "whole" else WindowedLM(model, window, overlap)
    tokens = text(min(n, 16))
    batch, counts = masked(tokens)
    total = 0.0
    for row, column in counts[:, 1:].nonzero().tolist():
        labels = torch.full_like(tokens, -100)
        labels[row, column + 1] = tokens[row, column + 1]
        one = {"input_ids": tokens, "labels": labels, "n_targets": torch.full((3,), 1 / 3)}
        with torch.no_grad():
            total += objective(one).item()
    found = objective(batch)
    assert found.item() == pytest.approx(total / max(1, int(counts[:, 1:].sum())), rel=1e-6)
    gradients = torch.autograd.grad(found, objective.parameters(), allow_unused=True)
    everything = torch.autograd.grad(objective(tokens), objective.parameters(), allow_unused=True)
    assert (gradients[0] - everything[0]).abs().max() > 1e-6 or not counts[:, 1:].any()


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids).logits


@pytest.mark.parametrize("kind", ["plain", "recurrent"])
def test_a_batch_of_targets_alone_gives_the_same_loss(tiny_gpt2, tiny_recurrent, kind):
    model, tokens = (tiny_gpt2 if kind == "plain" else tiny_recurrent)(dtype=torch.float64), text(14)
    batch = {"input_ids": tokens, "labels": tokens, "n_targets": torch.full((3,), 13.0)}
    objective = WindowedLM(model, 4, 1)
    torch.testing.assert_close(objective(batch), objective(tokens), rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", ["plain", "recurrent"])
def test_the_halves_of_a_batch_add_up_to_its_loss(tiny_gpt2, tiny_recurrent, kind):
    """Processes average their losses: rows with fewer targets must not count for more."""
    model, tokens = (tiny_gpt2 if kind == "plain" else tiny_recurrent)(dtype=torch.float64), text(14)
    objective = WindowedLM(model, 4, 1)
    labels = tokens.clone()
    labels[0, 2:] = -100
    batch = {"input_ids": tokens, "labels": labels, "n_targets": torch.full((3,), 27 / 3)}
    rows = [objective({name: x[k:k + 1] for name, x in batch.items()}).item() for k in range(3)]
    assert sum(rows) / 3 == pytest.approx(objective(batch).item(), rel=1e-6)


def test_nothing_to_predict_is_a_loss_of_nothing(tiny_gpt2, tiny_recurrent):
    tokens = text(14)
    batch = {"input_ids": tokens, "labels": torch.full_like(tokens, -100), "n_targets": torch.full((3,), 1 / 3)}
    for model in (tiny_gpt2(), tiny_recurrent()):
        assert WindowedLM(model, 4, 1)(batch).item() == 0


def test_labels_is_the_mean_over_all_documents():
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    batch, read = {"ids": text(8), "lengths": torch.tensor([1, 2]), "labels": torch.tensor([2, 0, 1, 1])}, []
    objective = Labels(torch.nn.Identity())
    objective.model.forward = lambda *given: read.extend(given) or logits
    wanted = -sum(logits.log_softmax(-1)[k, label] for k, label in enumerate([2, 0, 1, 1])) / 4
    torch.testing.assert_close(objective(batch), wanted)
    assert read[0] is batch["ids"]
    assert read[1] is batch["lengths"]


def test_settings_are_all_that_decides_the_loss_besides_the_weights(tiny_recurrent):
    model = tiny_recurrent()
    settings = WindowedLM(model, 4, 1, recompute="window", truncate=2).settings()
    assert settings == {"window": 4, "overlap": 1, "truncate": 2, "model": model_settings(model)}
    assert settings["model"]["n_head"] == 2
    assert NextToken(model).settings() == {"model": model_settings(model)}
    assert Labels(model).settings() == {"model": model_settings(model)}


def test_the_settings_of_a_model_do_not_say_where_it_came_from(tiny_gpt2, tmp_path):
    model = tiny_gpt2()
    model.save_pretrained(tmp_path)
    assert model_settings(type(model).from_pretrained(tmp_path)) == model_settings(model)
    assert model_settings(torch.nn.Linear(2, 2)) == {}
