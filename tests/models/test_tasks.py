"""GPT fine-tuned: how examples are read, what is lost of long ones, the losses by hand, padding, and candidates."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from repro.errors import ReproError
from repro.models import GPT, LSTM, GPTConfig, LSTMConfig, TaskModel, collate, encode_example
from repro.recompute import flops

V = 29
S, D, E = V, V + 1, V + 2  # start, delimiter, extract
CODER = SimpleNamespace(vocab_size=V, encode=lambda text: [ord(letter) - ord("a") + 1 for letter in text])
TEXTS = {"classification": ("abc",), "entailment": ("abc", "de"), "similarity": ("abc", "de"),
         "multiple-choice": ("abc", "de", "f", "gh", "ijk")}


def model(form, n_outputs=1, base=None, dropout=0.0, **changes):
    """In double precision, with weights that are all large enough to matter."""
    torch.manual_seed(0)
    made = TaskModel(base or GPT(GPTConfig(**{"vocab_size": V, "n_positions": 24, "n_layer": 2, "n_embd": 8,
                                              "n_head": 2} | changes)), form, n_outputs, dropout).double()
    for weight in made.parameters():
        weight.data = torch.randn_like(weight) / weight.shape[-1]**0.5
    return made


def examples(form, n=4, candidates=3, seed=0):
    """Encoded examples of different lengths."""
    draw = torch.Generator().manual_seed(seed)

    def text(longest):
        letters = torch.randint(26, (int(torch.randint(1, longest + 1, (1,), generator=draw)),), generator=draw)
        return "".join(chr(ord("a") + k) for k in letters.tolist())
    sizes = {"classification": (9,), "entailment": (6, 4), "similarity": (6, 4)}.get(form, (9, 3, *[4] * candidates))
    return [encode_example(form, [text(size) for size in sizes], CODER, 20) for _ in range(n)]


def test_how_each_form_is_read():
    assert encode_example("classification", ("abc",), CODER, 9) == [[S, 1, 2, 3, E]]
    assert encode_example("classification", "abc", CODER, 9) == [[S, 1, 2, 3, E]]
    assert encode_example("entailment", ("abc", "de"), CODER, 9) == [[S, 1, 2, 3, D, 4, 5, E]]
    assert encode_example("similarity", ("abc", "de"), CODER, 9) == [[S, 1, 2, 3, D, 4, 5, E], [S, 4, 5, D, 1, 2, 3, E]]
    assert encode_example("multiple-choice", ("ab", "c", "d", "ef"), CODER, 9) == [
        [S, 1, 2, 3, D, 4, E], [S, 1, 2, 3, D, 5, 6, E]]


def test_of_candidates_only_the_document_loses_its_end():
    assert encode_example("multiple-choice", ("abcde", "f", "g", "hi"), CODER, 8) == [
        [S, 1, 2, 3, 6, D, 7, E], [S, 1, 2, 6, D, 8, 9, E]]
    assert encode_example("multiple-choice", ("abcde", "f", "g", "hi"), CODER, 6)[1] == [S, 6, D, 8, 9, E]


def test_a_document_or_a_question_may_be_missing():
    assert encode_example("multiple-choice", ("", "f", "g", "h"), CODER, 8) == [[S, 6, D, 7, E], [S, 6, D, 8, E]]
    assert encode_example("multiple-choice", ("f", "", "g", "h"), CODER, 8) == [[S, 6, D, 7, E], [S, 6, D, 8, E]]


def test_blanks_alone_are_no_text(tiny_bpe):
    for form, texts in (("classification", (" ",)), ("entailment", ("a", "\n ")),
                        ("multiple-choice", (" ", "", "c", "d")), ("multiple-choice", ("a", "b", "c", " "))):
        with pytest.raises(ReproError, match="is empty"):
            encode_example(form, texts, tiny_bpe, 20)
    assert len(encode_example("multiple-choice", ("a", " ", "c", "d"), tiny_bpe, 20)) == 2


def test_without_candidates_the_longer_text_loses_its_end():
    for first, second, room in itertools.product(range(1, 8), range(1, 8), range(2, 14)):
        a, b = list(range(1, first + 1)), list(range(11, second + 11))
        texts = ["".join(chr(ord("a") + k - 1) for k in ids) for ids in (a, b)]
        while len(a) + len(b) > room:  # one token after the other
            (a if len(a) > len(b) else b).pop()
        one = [S, *a, D, *b, E]
        assert encode_example("entailment", texts, CODER, room + 3) == [one]
        assert encode_example("similarity", texts, CODER, room + 3) == [one, [S, *b, D, *a, E]]
    assert encode_example("classification", ("abcdefg",), CODER, 5) == [[S, 1, 2, 3, E]]


def test_what_looks_like_a_special_token_is_text(tiny_bpe):
    [ids] = encode_example("classification", ("so <|endoftext|>",), tiny_bpe, 99)
    assert ids[0] == 270 and ids[-1] == 272 and tiny_bpe.bos not in ids
    assert tiny_bpe.decode(ids[1:-1]) == "so <|endoftext|>"


def test_a_tokeniser_of_words_cannot_tell_a_special_token_from_text():
    from repro.data import tokeniser

    coder = tokeniser("word", corpus="synthetic-books")
    with pytest.raises(ReproError, match="text 2 of 2 has <.endoftext.>, which tokenizer word"):
        encode_example("entailment", ("the", "the <|endoftext|>"), coder, 9)


@pytest.mark.parametrize(("form", "texts", "limit", "words"), [
    ("clasification", ("a",), 9, "unknown form 'clasification'. Did you mean 'classification'"),
    ("classification", ("a", "b"), 9, "there are 2 texts; an example of classification has a text"),
    ("entailment", ("a",), 9, "there are 1 texts"), ("similarity", ("a", "b", "c"), 9, "there are 3 texts"),
    ("multiple-choice", ("a", "b", "c"), 9, "at least two candidates"),
    ("classification", ("",), 9, "text 1 of 1 is empty"), ("entailment", ("a", ""), 9, "text 2 of 2 is empty"),
    ("similarity", ("", "a"), 9, "text 1 of 2 is empty"), ("multiple-choice", ("a", "b", "c", ""), 9, "text 4 of 4 is"),
    ("multiple-choice", ("", "", "c", "d"), 9, "text 1 of 4 is empty"),
    ("classification", ("abc",), 2, "limit is 2 tokens; an example of classification has at least 3"),
    ("entailment", ("abc", "de"), 4, "limit is 4 tokens; an example of entailment has at least 5"),
    ("classification", ("abc",), -1, "limit is -1"), ("classification", ("abc",), 4.0, "limit is 4.0; it must be"),
    ("classification", ("abc",), "9", "limit is '9'; it must be a whole number"),
    ("classification", ("abc",), None, "limit is None"), ("classification", (7,), 9, "text 1 of 1 is int, not"),
    ("multiple-choice", ("a", "bc", "d", "efg"), 7, "limit is 7 tokens; .* take 8")])
def test_examples_that_cannot_be_read(form, texts, limit, words):
    with pytest.raises(ReproError, match=words):
        encode_example(form, texts, CODER, limit)


def test_a_batch_has_zeros_behind_each_end():
    ids, lengths = collate([[[S, 1, E], [S, 1, 2, E]], [[S, 3, E], [S, E]]])
    assert ids.tolist() == [[[S, 1, E, 0], [S, 1, 2, E]], [[S, 3, E, 0], [S, E, 0, 0]]]
    assert lengths.tolist() == [[3, 4], [3, 2]] and ids.dtype == lengths.dtype == torch.int64


@pytest.mark.parametrize(("batch", "words"), [
    ([[[S, E]], [[S, E], [S, E]]], "have 1 and 2 sequences"), ([], "have no sequences"), ([[]], "have 0 sequences"),
    ([[[]]], "a sequence of this batch has no tokens"), ([[[S, E], []]], "has no tokens")])
def test_a_batch_needs_as_many_sequences_of_each(batch, words):
    with pytest.raises(ReproError, match=words):
        collate(batch)


def test_a_batch_may_be_told_one_by_one():
    batch = [[[S, 1, E]], [[S, 1, 2, E]]]
    assert torch.equal(collate(iter(batch))[0], collate(batch)[0])


def test_all_that_is_new_are_three_embeddings_and_a_matrix():
    base = GPT(GPTConfig(V, 24, 2, 8, 2))
    made = TaskModel(base, "entailment", 3)
    assert made.special.weight.shape == (3, 8) and made.head.weight.shape == (3, 8) and made.head.bias is None
    new = {id(made.special.weight), id(made.head.weight)}
    assert {id(weight) for weight in made.parameters()} == new | {id(weight) for weight in base.parameters()}


def test_special_tokens_begin_as_large_as_the_embeddings():
    torch.manual_seed(0)
    base = GPT(GPTConfig(V, 24, 1, 512, 2))
    for times in (1, 10):
        base.embed.weight.data.mul_(times)
        made = TaskModel(base, "entailment", 3)
        assert made.special.weight.std().item() == pytest.approx(base.embed.weight.std().item(), rel=0.1)
        assert made.special.weight.requires_grad and made.head.weight.std().item() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize(("form", "n_outputs", "labels"), [
    ("classification", 2, [1, 0, 1, 1]), ("entailment", 3, [2, 0, 1, 1]), ("similarity", 1, [0.5, 3.0, 0.0, 4.5]),
    ("classification", 1, [1, 2, 0, 5]), ("multiple-choice", 1, [2, 0, 1, 1])])
def test_logits_and_losses_written_out(form, n_outputs, labels):
    made, batch = model(form, n_outputs), examples(form)
    table = torch.cat([made.base.embed.weight, made.special.weight])
    logits, told = [], []
    for example in batch:
        states = []
        for sequence in example:
            x = made.base.read(table[sequence][None])[0]
            states.append(x[-1])
            told.append(F.cross_entropy(x[:-1] @ table.T, torch.tensor(sequence[1:])))
        one = [state @ made.head.weight[0] for state in states] if form == "multiple-choice" else (
            sum(states) @ made.head.weight.T)
        logits.append(torch.stack(tuple(one)))
    logits, lm_loss = torch.stack(logits), sum(told) / len(told)
    wanted = torch.tensor(labels)
    task_loss = ((logits[:, 0] - wanted)**2).mean() if logits.shape[1] == 1 else F.cross_entropy(logits, wanted)
    found = made(*collate(batch), wanted)
    for one, other in ((found.logits, logits), (found.task_loss, task_loss), (found.lm_loss, lm_loss),
                       (found.loss, task_loss + 0.5 * lm_loss),
                       (made(*collate(batch), wanted, lm_weight=2.0).loss, task_loss + 2 * lm_loss),
                       (made(*collate(batch), wanted, lm_weight=0).loss, task_loss),
                       (made(*collate(batch), wanted, lm_weight=0).lm_loss, lm_loss)):
        torch.testing.assert_close(one, other)
    silent = made(*collate(batch))
    assert silent.task_loss is silent.loss is None
    torch.testing.assert_close(silent.logits, logits)
    torch.testing.assert_close(silent.lm_loss, lm_loss)


def test_the_loss_of_tokens_is_worked_out_only_where_it_counts():
    made, batch = model("classification", 2), collate(examples("classification"))
    labels = torch.tensor([0, 1, 0, 1])
    costs = [flops(lambda weight=weight: made(*batch, labels, weight)) for weight in (0, 0.5)]
    assert costs[1] - costs[0] == 2 * int((batch[1] - 1).sum()) * (V + 3) * 8


def gradients(made, losses):
    weights = list(made.parameters())
    return [sum(parts) for parts in zip(*(torch.autograd.grad(loss, weights) for loss in losses), strict=True)]


@pytest.mark.parametrize("lstm", [False, True])
@pytest.mark.parametrize("form", TEXTS)
def test_padding_changes_no_number(form, lstm):
    made = model(form, 3 if form == "entailment" else 1, LSTM(LSTMConfig(V, 8, 6)) if lstm else None)
    batch, labels = examples(form), torch.tensor([1, 0, 2, 1])
    ids, lengths = collate(batch)
    alone = [made(*collate([one]), label[None]) for one, label in zip(batch, labels, strict=True)]
    for pad in (0, 3, 30):  # beyond the context, too
        told = made(F.pad(ids, (0, pad), value=pad and V + 1), lengths, labels)
        torch.testing.assert_close(told.logits, torch.cat([one.logits for one in alone]), rtol=0, atol=1e-5)
        other = torch.arange(ids.shape[2]) >= lengths[..., None]
        for number in (-100, 10**6):  # what stands behind an end is never looked at
            padded = ids.masked_fill(other, number)
            assert torch.equal(made(padded, lengths, labels).loss, made(ids, lengths, labels).loss)
        for name in ("task_loss", "lm_loss", "loss"):
            wanted = sum(getattr(one, name) for one in alone) / len(alone)
            torch.testing.assert_close(getattr(told, name), wanted, rtol=0, atol=1e-5)
    for one, other in zip(gradients(made, [told.loss]), gradients(made, [one.loss / 4 for one in alone]), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_what_candidates_share_is_read_once_and_changes_no_number(norm):
    made, batch = model("multiple-choice", norm=norm), examples("multiple-choice", candidates=10)
    labels, found, costs = torch.tensor([1, 9, 2, 0]), [], []
    for made.shared in (False, True):
        told = made(*collate(batch), labels)
        found.append([told.logits, told.task_loss, told.lm_loss, told.loss, *gradients(made, [told.loss])])
        costs.append(flops(lambda: made(*collate(batch), labels).loss.backward()))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert costs[1] < 0.7 * costs[0]


def test_candidates_that_share_all_or_nothing():
    made, labels = model("multiple-choice"), torch.tensor([1])
    for example in ([[S, 1, D, 2, E]] * 3, [[S, 1, D, 2, E], [S, 3, D, 2, E]], [[3, 1, E], [S, 1, D, 2, E]]):
        told = [made(*collate([example]), labels) for made.shared in (False, True)]
        torch.testing.assert_close(told[0].logits, told[1].logits)
        torch.testing.assert_close(told[0].lm_loss, told[1].lm_loss)


def test_dropout_is_on_the_state_that_the_answer_is_told_from():
    made, batch = model("classification", 2, dropout=0.5), collate(examples("classification", 200))
    assert not torch.equal(made(*batch).logits, made(*batch).logits)
    torch.testing.assert_close(made(*batch).lm_loss, made(*batch).lm_loss)
    with torch.no_grad():
        made.base.norm.weight.zero_()
        made.base.norm.bias.fill_(1)
        made.head.weight.fill_(1)
    seen = made(*batch).logits / 8  # shares of the eight features, each 0 or 2
    assert seen.mean().item() == pytest.approx(1, abs=0.1) and len(seen.unique()) > 3
    made.eval()
    torch.testing.assert_close(made(*batch).logits, torch.full((200, 2), 8.0, dtype=torch.float64))


def test_sixteen_bits_are_close_to_what_they_round():
    made, batch = model("multiple-choice").float(), collate(examples("multiple-choice"))
    labels = torch.tensor([1, 0, 2, 1])
    with torch.autocast("cpu", torch.bfloat16):
        near = made(*batch, labels)
    assert near.logits.dtype == torch.float32
    far = made(*batch, labels)
    assert near.loss.item() == pytest.approx(far.loss.item(), rel=0.05) and near.loss.item() != far.loss.item()
    assert made(*batch).lm_loss.item() == pytest.approx(near.lm_loss.item(), rel=0.05)


@pytest.mark.parametrize(("arguments", "words"), [
    (("entailmnt",), "unknown form 'entailmnt'. Did you mean 'entailment'"), (("entailment", 0), "n_outputs is 0"),
    (("multiple-choice", 2), "n_outputs is 2; it must be .* 1 for multiple-choice"),
    (("entailment", 2, 1.0), "dropout is 1.0"), (("entailment", 2, -0.5), "dropout is -0.5"),
    (("entailment", 2, "x"), "dropout is 'x'"), (("entailment", 2.5), "n_outputs is 2.5; it must be a whole number"),
    (("entailment", True), "n_outputs is True"), ((["entailment"],), "form is")])
def test_models_that_cannot_be(arguments, words):
    with pytest.raises(ReproError, match=words):
        TaskModel(GPT(GPTConfig(V, 24, 1, 8, 2)), *arguments)


@pytest.mark.parametrize(("examples", "told"), [
    ([[1, 2, 3]], "an example of this batch is a list of ids; it must be a list of sequences"),
    ([[[1.5, 2]]], "a sequence of this batch has torch.float32 instead of ids")])
def test_what_are_no_sequences_of_ids(examples, told):
    with pytest.raises(ReproError, match=told):
        collate(examples)


BATCH = collate([[[S, 1, E]], [[S, 1, 2, E]]])


@pytest.mark.parametrize(("form", "n_outputs", "given", "words"), [
    ("classification", 2, (*BATCH, torch.tensor([0, 2])), "labels are torch.int64 from 0 to 2; .* from 0 to 1"),
    ("classification", 2, (*BATCH, torch.tensor([-1, 0])), "from -1 to 0"),
    ("classification", 2, (*BATCH, torch.tensor([0.0, 1.0])), "labels are torch.float32"),
    ("classification", 2, (*BATCH, torch.tensor([0])), "give one for each of the 2 examples"),
    ("classification", 1, (*BATCH, torch.tensor([0.0, float("nan")])), "not finite"),
    ("classification", 2, (*BATCH, None, -0.5), "lm_weight is -0.5"),
    ("classification", 2, (*BATCH, None, float("inf")), "lm_weight is inf"),
    ("classification", 2, (*BATCH, None, 10**400), "lm_weight is 1000"),
    ("classification", 2, (*BATCH, None, "x"), "lm_weight is 'x'"),
    ("classification", 2, (*BATCH, ["a", "b"]), r"labels are \['a', 'b'\]; give a tensor or a list of numbers"),
    ("classification", 2, (BATCH[0] > 0, BATCH[1]), "ids are torch.bool"),
    ("classification", 2, (BATCH[0].float(), BATCH[1]), "ids are torch.float32 and lengths torch.int64; both must be"),
    ("similarity", 1, BATCH, "the examples have 1 sequences; those of similarity have 2"),
    ("multiple-choice", 1, BATCH, "at least two candidates"),
    ("classification", 2, (BATCH[0][:0], BATCH[1][:0]), r"ids are \(0, 1, 4\) .* with at least one example"),
    ("classification", 2, (BATCH[0][:, 0], BATCH[1]), r"ids are \(2, 4\)"),
    ("classification", 2, (BATCH[0], BATCH[1][0]), r"lengths \(1,\)"),
    ("classification", 2, (BATCH[0], torch.tensor([[3], [5]])), "lengths are 3 to 5; they must be 2 to 4"),
    ("classification", 2, (BATCH[0], torch.tensor([[3], [1]])), "lengths are 1 to 3"),
    ("classification", 2, (BATCH[0] + 3, BATCH[1]), "encode them with the tokenizer of the base"),
    ("classification", 2, collate([[[19, 1, 21]], [[19, 2, 3, 21]]]), "starts? with 19, but the base has 29 ids"),
    ("classification", 2, collate([[[S, *[1] * 23, E]]]), "a text has 25 tokens, but the model's context ends at 24")])
def test_batches_that_cannot_be_read(form, n_outputs, given, words):
    with pytest.raises(ReproError, match=words):
        model(form, n_outputs)(*given)


def test_labels_may_be_a_list():
    made = model("classification", 2).eval()
    assert torch.equal(made(*BATCH, [1, 0]).loss, made(*BATCH, torch.tensor([1, 0])).loss)
