"""Coreference as a task of Longformer: batches by hand, metrics, intervals by document, and a generated corpus."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from repro.data import corpus
from repro.data.examples import Coreference as Row
from repro.errors import ReproError
from repro.evaluation import coreference_scores
from repro.models.long_reader import TaskReader, reader_from
from repro.papers.longformer2020.tasks.coreference import COREFERENCE as TASK
from repro.papers.longformer2020.tasks.coreference import Resolved, average_f1_by_document
from repro.papers.longformer2020.tasks.frame import collate
from repro.study import experiment
from repro.training import HeadLoss

SMALL = SimpleNamespace(corpus="litbank", max_words=3, kept=1.0, head_hidden=8, head_dropout=0.0)
ROW = Row("x", (("Ann", "loves", "long-haired", "cats"), ("She", "has", "3")), (((0, 1), (4, 5)), ((2, 4),), ((6, 7),)))


class Letters:
    """A tokenizer of letters; blanks and digits are left out. It has the tokens that a task asks for."""

    cls, sep, unknown, coder, added = 0, 1, 2, SimpleNamespace(vocab_size=40), ()

    def encode(self, text):
        return [10 + ord(letter) % 29 for letter in text if letter.isalpha() or letter == "-"]


def test_a_word_has_tokens_of_its_own_and_none_is_empty():
    example = TASK.example(ROW, Letters())
    assert example.targets == [(0, 3), (3, 8), (8, 19), (19, 23), (23, 26), (26, 29), (29, 30)]
    assert example.context[-1] == Letters.unknown and example.prefix == [0] and len(example.context) == 30
    assert not example.global_prefix and not example.global_context


def test_a_cut_leaves_out_words_and_mentions_that_are_not_whole():
    example = TASK.example(ROW, Letters())
    whole, cut = (TASK.targets([one]) for one in (example, example.cut(25)))
    assert whole["mentions"].tolist() == [[[0, 1, 0], [4, 5, 0], [2, 4, 1], [6, 7, 2]]]
    assert whole["sentences"].tolist() == [[0, 0, 0, 0, 1, 1, 1]]
    assert cut["words"].tolist() == [[[0, 3], [3, 8], [8, 19], [19, 23]]]  # "She" ends at 26
    assert cut["mentions"].tolist() == [[[0, 1, 0], [2, 4, 1]]]
    nothing = TASK.targets([example.cut(2), example])
    assert nothing["words"].dtype == torch.int64 and not nothing["words"][0].any() and nothing["mentions"].shape[1] == 4
    both = TASK.targets([example.cut(25), example])
    assert both["words"].shape == (2, 7, 2) and not both["words"][0, 4:].any()


@pytest.fixture(params=["short", "longformer"])
def model(request):
    torch.manual_seed(0)
    base = BertModel(BertConfig(vocab_size=40, hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
                                intermediate_size=12, max_position_embeddings=16))
    reader = reader_from(base, Letters(), request.param, 64, 8, piece=12)
    return TaskReader(reader, TASK.head(SMALL, 12)).eval()


@pytest.mark.parametrize("bf16", [False, True])
def test_a_batch_gives_what_each_document_gives_alone(model, bf16):
    examples = [TASK.example(ROW, Letters()), TASK.example(ROW, Letters()).cut(20)]
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        together = model.head.losses(model(batch := collate(TASK, examples)), batch)
        alone = [HeadLoss(model, "x")(collate(TASK, [one])) for one in examples]
        found = TASK.predictions(model(batch), examples)
    assert together.tolist() == pytest.approx([one.item() for one in alone], abs=3e-2 if bf16 else 1e-5)
    assert all(stop <= 3 for start, stop in found[1].singletons) and len(found) == 2
    together.sum().backward()
    weights = [*model.head.parameters(), model.reader.encoder.get_input_embeddings().weight]
    assert all(weight.grad.isfinite().all() for weight in weights if weight.grad is not None)
    assert weights[-1].grad.any() and {*map(id, model.added_parameters())} == {*map(id, model.head.parameters())}


def test_pieces_are_as_long_as_the_task_asks():
    base = BertModel(BertConfig(vocab_size=40, hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
                                intermediate_size=12, max_position_embeddings=16))
    lengths = [reader_from(base, Letters(), "short", 64, 8, piece=piece).piece for piece in (12, None, 384)]
    assert lengths == [12, 16, 16]


def test_pieces_meet_in_refinement_alone():
    """A piece changes the states of no other; a first score of two spans sees their own pieces, and refinement lets
    a third piece in."""
    torch.manual_seed(0)
    base = BertModel(BertConfig(vocab_size=40, hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
                                intermediate_size=12, max_position_embeddings=16)).eval()
    model = TaskReader(reader_from(base, Letters(), "short", 64, 8, piece=12), TASK.head(SMALL, 12)).eval()
    batch = collate(TASK, [TASK.example(ROW, Letters())])
    read = model.reader(batch)
    read.context.retain_grad()
    output, = model.head(read, batch)
    last = len(output.spans) - 1
    first_piece = 12 - 2  # tokens of the context, between the prefix and the separator
    near = next(k for k, number in enumerate(output.antecedents[last].tolist())
                if batch["words"][0, output.spans[number, 0], 0] >= first_piece)
    output.scores[last, 1 + near].backward()
    assert read.context.grad[0, :first_piece].any()  # neither of both spans has a token there
    read = model.reader(batch)
    table = model.reader.encoder.get_input_embeddings().weight
    table.grad = None
    only_first = set(batch["context"][0, :first_piece].tolist()) - set(batch["context"][0, first_piece:].tolist())
    read.context[0, first_piece:].square().sum().backward()
    assert not any(table.grad[token].any() for token in only_first) and only_first


def test_scores_with_and_without_singletons():
    rows = [ROW, Row("y", (("a", "b", "c"),), (((0, 1), (2, 3)),))]
    predictions = [Resolved([[(0, 1), (4, 5)]], [(2, 4)]), Resolved([[(0, 1), (1, 2)]], [])]
    metrics, documents = TASK.score(rows, predictions)
    gold = [[[(0, 1), (4, 5)]], [[(0, 1), (2, 3)]]]
    assert metrics["average_f1"] == 100 * coreference_scores(gold, [one.clusters for one in predictions]).average_f1
    every = coreference_scores([row.clusters for row in rows], [[[(0, 1), (4, 5)], [(2, 4)]], [[(0, 1), (1, 2)]]])
    assert metrics["average_f1_with_singletons"] == pytest.approx(100 * every.average_f1)
    assert metrics["mentions_found"] == pytest.approx(100 * 4 / 6)  # of six right mentions
    assert documents["id"] == ["x", "y"] and documents["average_f1"][0] == 100
    assert documents["muc"] == [[1, 1, 1, 1], [0, 1, 0, 1]]


def test_numbers_by_document_have_the_score_as_mean_and_move_like_it():
    draw = np.random.default_rng(0)
    counts = {name: np.stack([found := draw.uniform(1, 9, 40), found + draw.uniform(1, 5, 40),
                              right := draw.uniform(1, 9, 40), right + draw.uniform(1, 5, 40)], 1)
              for name in ("muc", "b_cubed", "ceaf_e")}

    def score(weights):
        total = 0
        for numbers in counts.values():
            a, b, c, d = weights @ numbers
            total += 2 / (b / a + d / c) / 3
        return total

    values, equal = average_f1_by_document(counts), np.ones(40)
    assert values.mean() == pytest.approx(score(equal))
    for k in (0, 7, 39):  # counting one document a little more often moves the score as its number says
        more = equal.copy()
        more[k] += 1e-6
        assert (score(more) - score(equal)) / 1e-6 * 40 == pytest.approx(values[k] - values.mean(), abs=1e-3)
    assert average_f1_by_document({name: [[0, 3, 0, 2]] * 2 for name in counts}).tolist() == [0, 0]


def test_the_best_answer_without_the_story_links_one_person_or_two():
    rows = list(corpus("synthetic-coreference").examples("test"))
    known = TASK.known(SimpleNamespace(corpus="synthetic-coreference"), {"test": rows})
    assert known["best"] == 100 and 43 < known["best_short"] < 52  # 43.9 if all topics were equally frequent
    perfect = [Resolved([cluster for cluster in row.clusters if len(cluster) > 1], []) for row in rows]
    assert TASK.score(rows, perfect)[0]["average_f1"] == 100
    people = map(corpus("synthetic-coreference").generator.people, rows)
    first = [Resolved([[mentions[0], mentions[-1]]], []) for mentions in people]
    assert TASK.score(rows, first)[0]["average_f1"] <= known["best_short"] + 1e-9


def test_ontonotes_gives_the_head_genres_and_speakers():
    row = Row("bn/x/0", ROW.sentences, ROW.clusters, speakers=("A",) * 4 + ("B",) * 3, genre=1)
    batch = TASK.targets([TASK.example(row, Letters())])
    assert batch["speakers"].tolist() == [[0] * 4 + [1] * 3] and batch["genre"].tolist() == [1]
    head = TASK.head(SimpleNamespace(**{**vars(SMALL), "corpus": "ontonotes"}), 12)
    read = SimpleNamespace(context=torch.randn(1, 30, 12))
    assert head.losses(head(read, batch), batch).shape == (1,)
    batch.pop("genre")
    with pytest.raises(ReproError, match="genre is None"):
        head(read, batch)


def test_a_set_task_selects_its_grid_points():
    plan = experiment("longformer-tasks").plan("smoke", {"task": "coreference", "model": "short", "epochs": 9})
    assert [(one.corpus, one.model, one.epochs) for one in plan] == [("synthetic-coreference", "short", 9)]
    plan = experiment("longformer-tasks").plan("pretrained", {"task": "coreference"})
    assert [one.model for one in plan] == ["short", "longformer", "longformer-cut"]
    assert {(one.corpus, one.head_learning_rate, one.best) for one in plan} == {("litbank", 5e-4, "average_f1")}
    with pytest.raises(ReproError, match="unknown task 'coref'"):
        experiment("longformer-tasks").plan("smoke", {"task": "coref"})


def test_at_paper_it_reads_ontonotes_from_a_folder():
    config, *_ = experiment("longformer-tasks").plan("paper", {"task": "coreference", "model": "longformer"})
    assert (config.corpus, config.window, config.head_hidden) == ("ontonotes", 512, 3_000)
    assert TASK.head(config, 12).model.genres.num_embeddings == 7


@pytest.mark.parametrize(("n_train", "given"), [(7, 7), (None, 240), (1_000, 240)])
def test_so_many_texts_are_for_training(n_train, given):
    rows = TASK.rows(SimpleNamespace(corpus="synthetic-coreference", n_train=n_train))
    assert [len(rows[split]) for split in ("train", "validation", "test")] == [given, 50, 200]
