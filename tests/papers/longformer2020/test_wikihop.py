"""Questions with candidates: the format token by token, logits against a plain encoder, and the nine configurations."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from repro.attention import Full
from repro.data.clozes import BLANK
from repro.data.examples import MultipleChoice
from repro.errors import ReproError
from repro.models import longformer_from
from repro.models.long_reader import Reader, TaskReader
from repro.models.task_heads import CandidateHead
from repro.papers.longformer2020.tasks import ablation, continued, frame
from repro.papers.longformer2020.tasks.frame import collate
from repro.papers.longformer2020.tasks.reader import Words
from repro.papers.longformer2020.tasks.wikihop import SPECIAL, Candidates

KNOWN = "[PAD] [CLS] [SEP] [MASK] who ran home ann ben cid . then and saw".split()
PIECE, WIDTH = 24, 16


class Coder:
    """Words separated by blanks; "ann-lee" has two tokens."""

    name, vocab_size, bos = "toy", len(KNOWN), 1

    def special(self, kind):
        return KNOWN.index(f"[{kind.upper()}]")

    def encode(self, text):
        return np.array([KNOWN.index(word) for word in text.replace("-lee", " ran").split()], int)


WORDS = Words(Coder(), SPECIAL)
ROW = MultipleChoice("1", f"who {BLANK} home", ("ann-lee", "ben", "cid"), 1, ("then ann saw ben .", "ben ran ."))


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    size = Coder.vocab_size + len(SPECIAL)
    return BertModel(BertConfig(vocab_size=size, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2,
                                intermediate_size=24, max_position_embeddings=PIECE)).eval()


def test_question_and_candidates_come_first_and_paragraphs_are_separated():
    names = [*KNOWN, *SPECIAL]
    one = Candidates("wikihop", {}).example(ROW, WORDS)
    assert " ".join(names[k] for k in one.prefix) == (
        "[CLS] [q] who [MASK] home [/q] [ent] ann ran [/ent] [ent] ben [/ent] [ent] cid [/ent] [SEP] [SEP]")
    assert " ".join(names[k] for k in one.context) == "then ann saw ben . [SEP] ben ran ."
    places, answer = one.targets
    assert [names[one.prefix[k]] for k in places] == ["[ent]"] * 3 and answer == 1
    assert list(one.global_prefix) == list(range(16)) and not one.global_context
    word = Candidates("wikihop", {}, state="word", global_tokens=False).example(ROW, WORDS)
    assert [names[word.prefix[k]] for k in word.targets[0]] == ["ann", "ben", "cid"] and not word.global_prefix


def test_logits_are_averages_over_the_pieces_of_a_plain_encoder(encoder):
    task = Candidates("wikihop", {})
    few = MultipleChoice("2", "who ran", ("ann", "ben"), 0, ("cid saw ben . " * 3,))
    examples = [task.example(row, WORDS) for row in (ROW, few)]
    torch.manual_seed(1)
    model = TaskReader(Reader(longformer_from(encoder, PIECE, Full()), WORDS.sep, PIECE), CandidateHead(WIDTH))
    batch = collate(task, examples)
    with torch.no_grad():
        logits = model(batch)
        for row, one in zip(logits, examples, strict=True):
            room, places = PIECE - 1 - len(one.prefix), one.targets[0]
            starts = range(0, len(one.context), room)
            pieces = [torch.tensor([[*one.prefix, *one.context[k:k + room], WORDS.sep]]) for k in starts]
            assert len(pieces) > 1
            by_hand = torch.stack([model.head.output(encoder(ids).last_hidden_state[0, places])[:, 0]
                                   for ids in pieces]).mean(0)
            assert torch.allclose(row[:len(places)], by_hand, atol=1e-5)
            assert torch.isinf(row[len(places):]).all()
        losses = model.head.losses(logits, batch)
    expected = [-logits[k][:len(one.targets[0])].log_softmax(0)[one.targets[1]] for k, one in enumerate(examples)]
    assert torch.allclose(losses, torch.stack(expected), atol=1e-6)
    assert task.predictions(logits, examples) == [int(row[:n].argmax()) for row, n in zip(logits, (3, 2), strict=True)]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_gradients_are_finite_where_a_question_has_fewer_candidates(encoder, precision):
    task = Candidates("wikihop", {})
    few = MultipleChoice("2", "who ran", ("ann", "ben"), 0, ("cid saw ben .",))
    model = TaskReader(Reader(longformer_from(encoder, 64, 4), WORDS.sep), CandidateHead(WIDTH))
    batch = collate(task, [task.example(row, WORDS) for row in (ROW, few)])
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = model.head.losses(model(batch), batch).mean()
    loss.backward()
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert torch.isfinite(loss) and all(torch.isfinite(grad).all() for grad in grads)


@pytest.mark.parametrize("name", ["short", "full-attention", "longformer"])
def test_too_many_candidates_are_named_before_training_begins(name, monkeypatch):
    """The question ROW has 18 tokens before its context; one of the context and a separator make 20."""
    config, = ablation.EXPERIMENT.plan("smoke", {"configuration": name})
    few = MultipleChoice("2", "who ran", ("ann", "ben"), 0, ("cid saw ben .",))
    task, rows = ablation.task_of(config), [few, ROW, replace(ROW, id="x7")]

    def encoded(positions):
        monkeypatch.setattr(frame, "base_of", lambda config: SimpleNamespace(n_positions=positions))
        length = positions if name == "longformer" else 60
        return frame.encoded(config.model_copy(update={"length": length}), task, rows, WORDS)

    assert [len(one.context) for one in encoded(20)] == ([4, 1, 1] if name == "longformer" else [4, 9, 9])
    with pytest.raises(ReproError, match=r"^2 of 3 examples of synthetic-candidates .* reads 19 tokens at once, .* "
                                         r"more than 17: 1 \(18 tokens\), x7 \(18 tokens\); leave them out"):
        encoded(19)


def test_an_error_names_ten_questions_at_most():
    config, = ablation.EXPERIMENT.plan("smoke", {"configuration": "longformer"})
    rows = [replace(ROW, id=f"q{k}") for k in range(12)]
    with pytest.raises(ReproError, match=r"12 of 12 .* q9 \(18 tokens\) and 2 more; leave them out"):
        frame.encoded(config.model_copy(update={"length": 9}), ablation.task_of(config), rows, WORDS)


def test_scores_count_right_answers_and_keep_each_question():
    metrics, documents = Candidates("wikihop", {}).score([ROW, ROW, ROW, ROW], [1, 0, 1, 1])
    assert metrics == {"accuracy": 75.0}
    assert documents == {"id": ["1"] * 4, "prediction": [1, 0, 1, 1], "accuracy": [100, 0, 100, 100]}


def test_shared_projections_are_one_weight_and_change_global_tokens_only(encoder):
    longformer = longformer_from(encoder, 64, 4)
    attention = longformer.longformer.encoder.layer[0].attention.self
    hidden, chosen = torch.randn(1, 30, WIDTH), torch.zeros(1, 30, dtype=torch.bool)
    chosen[0, :3] = True
    with torch.no_grad():
        attention.query_global.weight.normal_()
        before = attention(hidden, None, chosen)
        ablation.share_projections(attention)
        after = attention(hidden, None, chosen)
    assert attention.query_global is attention.query
    assert torch.allclose(before[:, 3:], after[:, 3:]) and not torch.allclose(before[:, :3], after[:, :3])


def test_each_configuration_differs_from_longformer_in_one_thing():
    plan = {config.configuration: config for config in ablation.EXPERIMENT.plan("pretrained")}
    assert len(plan) == 9 == len(ablation.EXPERIMENT.plan("paper")) == len(ablation.EXPERIMENT.plan("smoke"))
    main = plan["longformer"]
    assert plan["epochs-15"].epochs == 3 * main.epochs and 2 * plan["short-sequence"].length == main.length
    starts = {name: ablation.start_of(config) for name, config in plan.items()}
    assert starts["short"] == starts["no-mlm"] == ablation.base_of(main)
    assert starts["positions-only"].stage == "positions"
    rest = [name for name in plan if name not in ("short", "no-mlm", "positions-only")]
    assert {starts[name].stage for name in rest} == {"all"}
    assert [name for name, config in plan.items() if config.model == "short"] == ["short", "full-attention"]
    assert [name for name, config in plan.items() if not ablation.task_of(config).global_tokens] == ["no-global"]
    one, = ablation.EXPERIMENT.plan("paper", {"configuration": "epochs-15"})
    assert one.epochs == 15 and one.length == 4_096


def test_an_odd_window_is_refused_in_one_line():
    with pytest.raises(ReproError, match="window is 7 keys; it must be even"):
        ablation.EXPERIMENT.plan("smoke", {"window": 7})


class Bert:
    """Twelve ids with BERT's special tokens at places of their own."""

    vocab_size, bos = 12, 5
    special = {"pad": 0, "sep": 6, "unk": 4, "mask": 7}.__getitem__


def test_bert_is_masked_as_roberta_is_with_its_own_ids():
    order = continued.roberta_order(Bert())
    assert order.tolist() == [5, 0, 6, 4, 1, 2, 3, 8, 9, 10, 11, 7]
    text = np.array([1, 2, 3, 8, 9, 10, 11, 5] * 60)  # documents open with [CLS]
    batches = continued.MaskedBert(text, order, 42, 4, 0)
    shown = set()
    for step in range(3):
        batch = batches.batch(step)
        ids, targets = batch["ids"], batch["targets"]
        assert (ids[:, 0] == 5).all() and (ids[:, -1] == 6).all() and not (ids[:, 1:] == 5).any()
        assert {int(k) for k in targets.flatten()} <= {1, 2, 3, 8, 9, 10, 11, -100}
        shown |= set(ids.gather(1, batch["positions"]).flatten().tolist())
    assert 7 in shown and not shown & {0, 4, 5}


def test_only_the_head_learns_while_the_body_is_frozen(encoder):
    model = longformer_from(encoder, PIECE, Full())
    continued.train_head_only(model)
    learned = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert learned and all(name.startswith("lm_head.") for name in learned)
    assert "lm_head.decoder.weight" not in learned
    assert not model.longformer.embeddings.word_embeddings.weight.requires_grad
