"""Answers cut from long texts and two-stage evidence: formats by hand, losses by definition, runs on a tiny base."""

import importlib
import math
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from repro.attention import Full
from repro.data import Corpus, Split, registry, tokeniser
from repro.data import example_readers as readers
from repro.data.examples import Paragraph, Question, Span
from repro.data.synthetic_hops import FarHops
from repro.errors import ReproError
from repro.evaluation import hotpotqa_scores
from repro.models import longformer_from
from repro.models.long_reader import Read, Reader, padded
from repro.models.task_heads import EvidenceHeads, SpanHead
from repro.papers.longformer2020.tasks import experiment as tasks
from repro.papers.longformer2020.tasks import frame, spans
from repro.papers.longformer2020.tasks.hotpotqa import HOTPOTQA, KINDS, evidence, kept_of, only
from repro.papers.longformer2020.tasks.hotpotqa import Reply as Told
from repro.papers.longformer2020.tasks.reader import Words
from repro.papers.longformer2020.tasks.spans import Laid, best_answers, span_targets
from repro.papers.longformer2020.tasks.triviaqa import TRIVIAQA, document_of, matches
from repro.study import experiment, run
from repro.study.published import printed_rows
from repro.study.settings import as_text

EXPERIMENT = experiment("longformer-tasks")
MAST = Paragraph("Mast", ("Robin saw the anchor .", " The sail was red ."))
BARN = Paragraph("Barn", ("A barn .", " Robin saw the sail .", " It was old ."))
OVEN = Paragraph("Oven", ("The oven of Sam .",))
SAIL = Question("1", "what was red", (OVEN, MAST, BARN), "sail", (Span(1, 27, 31), Span(2, 23, 27)),
                ((1, 1), (2, 0)))


@pytest.fixture(scope="module")
def words(home):
    return Words(tokeniser("masked-bpe", 300, "synthetic-books"), HOTPOTQA.special)


def text_of(words, ids) -> str:
    names = {words[name]: f"|{name}|" for name in words.added} | {words.cls: "|CLS|", words.sep: "|SEP|"}
    return "".join(names.get(k) or words.coder.decode([k]) for k in ids)


def test_the_format_of_hotpotqa(words):
    one = HOTPOTQA.example(SAIL, words)
    assert text_of(words, one.prefix) == "|CLS||[q]|what was red|[/q]|"
    assert text_of(words, one.context) == (
        "|<t>|Oven|</t>|The oven of Sam .|[s]|"
        "|<t>|Mast|</t>|Robin saw the anchor .|[s]| The sail was red .|[s]|"
        "|<t>|Barn|</t>|A barn .|[s]| Robin saw the sail .|[s]| It was old .|[s]|")
    marks = one.targets.rest
    assert [one.context[at] for at, _ in marks.paragraphs] == [words["<t>"]] * 3
    assert [one.context[at] for at, _ in marks.sentences] == [words["[s]"]] * 6
    assert [label for _, label in marks.paragraphs] == [0, 1, 1]
    assert dict(zip(marks.facts, [label for _, label in marks.sentences], strict=True)) == {
        (0, 0): 0, (1, 0): 0, (1, 1): 1, (2, 0): 1, (2, 1): 0, (2, 2): 0}
    assert list(one.global_prefix) == list(range(len(one.prefix)))
    assert sorted(one.global_context) == [k for k, token in enumerate(one.context)
                                          if token in (words["<t>"], words["[s]"])]
    (first, last), = one.targets.spans  # the sail of the supporting sentence alone
    assert one.targets.words(first, last) == "sail" and text_of(words, one.context[first:last + 1]).strip() == "sail"
    assert text_of(words, one.context[:first]).endswith("|[s]| The")


def test_the_format_of_triviaqa(words):
    one = TRIVIAQA.example(SAIL, words)
    assert text_of(words, one.prefix) == "|CLS|what was red|SEP|"
    assert text_of(words, one.context) == ("Oven\nThe oven of Sam .\nMast\nRobin saw the anchor . The sail was red .\n"
                                           "Barn\nA barn . Robin saw the sail . It was old .")
    assert [one.targets.words(*pair) for pair in one.targets.spans] == ["sail", "sail"]
    assert list(one.global_prefix) == list(range(len(one.prefix))) and not one.global_context


def test_matches_are_whole_words_in_any_case():
    assert matches("Sail sails SAIL. a mainsail, the sail's", ["sail"]) == [(0, 4), (11, 15), (33, 37)]
    assert matches("New York City", ["York", "New York"]) == [(0, 8)]
    assert matches("a (b) c", ["(b)"]) == [(2, 5)] and matches("text", [" "]) == []


def test_questions_of_triviaqa_are_learned_document_by_document_and_answered_from_all(monkeypatch):
    """Documents of a question stay on one side of what is held out; those without an answer are left out."""
    def asked(name, *texts):
        return Question(name, "Who?", tuple(Paragraph(f"T{k}", (text,)) for k, text in enumerate(texts)), "Ann",
                        aliases=("A. Lee",))

    texts = "Ann ran.", "Nobody.", "By A. Lee!"
    rows = {"train": [asked("lost", "Hanna."), *(asked(f"q{k}", *texts) for k in range(9))],
            "validation": [asked("v", "Ann.", "Ben."), asked("w", "Ben.")]}
    monkeypatch.setattr("repro.data.corpus", lambda name: SimpleNamespace(examples=rows.__getitem__))
    found = TRIVIAQA.rows(SimpleNamespace(corpus="triviaqa", held_out=2, n_train=None))
    held, train = ({row.id.partition("/")[0] for row in found[split]} for split in ("validation", "train"))
    assert len(held) == 2 and len(train) == 7 and not held & train and "lost" not in held | train
    assert sorted(row.id for row in found["train"] + found["validation"]) == [
        f"q{k}/{number}" for k in range(9) for number in (0, 2)]
    assert {document_of(row) for row in found["train"]} == {"T0\nAnn ran.", "T2\nBy A. Lee!"}
    assert found["test"] == rows["validation"] and document_of(rows["validation"][0]) == "T0\nAnn.\nT1\nBen."
    whole = TRIVIAQA.rows(SimpleNamespace(corpus="hotpotqa-subset", held_out=2, n_train=3))
    assert [len(whole[split]) for split in ("train", "validation")] == [3, 2]
    assert all(len(row.paragraphs) == 3 for row in whole["train"])


def test_at_paper_both_tasks_have_the_settings_of_table_14():
    """Its warmup of 1,000 steps, as a share of the steps, to within 2%."""
    printed = {row["parameter"]: row for row in printed_rows("longformer2020_table14_qa_hyperparameters")}
    plan = [config for config in EXPERIMENT.plan("paper") if config.task in ("triviaqa", "hotpotqa")]
    assert [(one.task, one.model) for one in plan] == [
        (task, model) for task in ("triviaqa", "hotpotqa") for model in ("short", "longformer", "longformer-cut")]
    for config in plan:
        assert config.corpus == config.task and (config.max_positions, config.window) == (4_096, 512)
        assert config.epochs == int(printed["Epochs"][config.task])
        assert config.batch_size == int(printed["Batch size"][config.task])
        assert config.learning_rate == float(printed["Learning rate"][config.task])
        steps = config.epochs * frame.KNOWN[config.corpus][0] / config.batch_size
        assert config.warmup_share * steps == pytest.approx(int(printed["Warmup steps"][config.task]), rel=0.02)
        assert printed["Optimizer"][config.task] == "Adam" and config.optimizer == "adamw"
    hours = {(one.task, one.model): EXPERIMENT.estimate(one).seconds / 3_600 for one in plan}
    assert 0.5 < hours["triviaqa", "longformer"] < 48 and 0.5 < hours["hotpotqa", "longformer"] < 48


def test_an_answer_has_all_tokens_that_hold_it(words):
    laid = Laid(words)
    laid.add("untold stories", 0)
    laid.mark(words["[s]"])
    laid.add(" anchor", 0, start=14)
    places = laid.places
    for start in range(21):
        for stop in range(start + 1, 22):
            inside = [k for k, (source, a, b) in enumerate(places) if source == 0 and set(range(a, b)) & set(
                range(start, stop))]
            if inside:
                assert laid.spans([(0, start, stop)]) == [(inside[0], inside[-1])]
    with pytest.raises(ReproError, match="characters 0 to 3 of text 1 are in no token"):
        laid.spans([(1, 0, 4)])


def test_a_span_that_is_cut_off_does_not_count(words):
    one = HOTPOTQA.example(SAIL, words)
    last = one.targets.spans[0][1]
    found = span_targets([one.cut(last + 1), one.cut(last), one])
    assert found["spans"].tolist() == [[list(one.targets.spans[0])], [[-1, -1]], [list(one.targets.spans[0])]]
    marks = one.targets.rest
    assert found["text"][2].nonzero().flatten().tolist() == [
        k for k, token in enumerate(one.context) if token < words.coder.vocab_size and not any(
            at < k <= at + len(words.encode(title)) for (at, _), title in zip(marks.paragraphs, SAIL.titles,
                                                                              strict=True))]
    cut = HOTPOTQA.targets([one.cut(marks.sentences[2][0])])
    assert (cut["sentences"][0, :, 0] >= 0).tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("kept", [(1, 2), (0, 2), (2,), (0, 1, 2)])
def test_the_second_stage_reads_what_a_question_about_those_paragraphs_would(words, kept):
    found = only(HOTPOTQA.example(SAIL, words), kept)
    new = {old: k for k, old in enumerate(kept)}
    alone = HOTPOTQA.example(Question(
        "1", SAIL.question, tuple(SAIL.paragraphs[k] for k in kept), SAIL.answer,
        tuple(Span(new[one.paragraph], one.start, one.stop) for one in SAIL.supported_spans if one.paragraph in new),
        tuple((new[paragraph], sentence) for paragraph, sentence in SAIL.supporting if paragraph in new)), words)
    assert list(found.context) == list(alone.context) and found.global_context == alone.global_context
    assert found.targets.spans == alone.targets.spans and found.targets.rest.sentences == alone.targets.rest.sentences
    assert [new[paragraph] for paragraph, _ in found.targets.rest.facts] == [
        paragraph for paragraph, _ in alone.targets.rest.facts]
    left, want = (HOTPOTQA.targets([one])["paragraphs"][0] for one in (found, alone))
    assert left[list(kept)].tolist() == want.tolist() and len(left) == 3
    assert (left[[k for k in range(3) if k not in kept]] == -1).all()
    assert [found.targets.words(*pair) for pair in found.targets.spans] == ["sail"] * (1 in kept)


def test_what_was_cut_off_stays_away_in_the_second_stage(words):
    one = HOTPOTQA.example(SAIL, words)
    barn = one.targets.rest.paragraphs[2][0]
    found = only(one.cut(barn + 4), [0, 2])
    assert found.context == [*one.context[:one.targets.rest.paragraphs[1][0]], *one.context[barn:barn + 4]]
    assert found.whole == len(one)


def test_kept_paragraphs_are_among_those_read():
    gone = -math.inf
    assert kept_of(Told("", [], [1.0, gone, -9.0, -2.0])) == [0, 3]
    assert kept_of(Told("", [], [-9.0, gone, -8.0, -9.5])) == [0, 2]
    assert kept_of(Told("", [], [gone, -9.0])) == [1] and kept_of(Told("", [], [gone])) == []
    assert kept_of(Told("", [], [float(k) for k in range(10)])) == [5, 6, 7, 8, 9]


def test_evidence_of_what_was_read():
    facts, gone = [(0, 0), (0, 1), (1, 0), (2, 0)], -math.inf
    assert evidence([1.0, -1.0, -2.0, -3.0], facts) == [(0, 0), (1, 0)]
    assert evidence([0.5, 2.0, gone, gone], facts) == [(0, 0), (0, 1)]
    assert evidence([-5.0, -2.0, gone, gone], facts) == [(0, 1)]
    assert evidence([gone] * 4, facts) == []


def read_of(states) -> Read:
    batch, n, _ = states.shape
    return Read(states[:, None, :1], states, torch.ones(batch, 1, dtype=torch.bool),
                torch.ones(batch, n, dtype=torch.bool), torch.ones(batch, 1, dtype=torch.bool))


def test_the_four_losses_of_hotpotqa(words):
    """Each by its definition, in double precision, for an answer that is a span, and for yes, which has none."""
    torch.manual_seed(0)
    yes = Question("2", "was it", SAIL.paragraphs, "yes", (), ((0, 0), (1, None)))
    examples = [HOTPOTQA.example(row, words) for row in (SAIL, yes)]
    batch = padded(examples) | HOTPOTQA.targets(examples)
    heads = EvidenceHeads(6, 3, KINDS).double()
    states = torch.randn(2, batch["context"].shape[1], 6, dtype=torch.float64, requires_grad=True)
    found = heads.losses(heads(read_of(states), batch), batch)
    for k, one in enumerate(examples):
        marks, text = one.targets.rest, batch["text"][k]
        ends = heads.span.ends(states[k]).T.masked_fill(~text, -math.inf).log_softmax(-1)
        want = -sum(ends[side, one.targets.spans[0][side]] for side in (0, 1)) / 2 if one.targets.spans else 0
        want = want - heads.answer_type(states[k, 0]).log_softmax(-1)[marks.type]
        for kind in ("paragraphs", "sentences"):
            nats = [F.softplus(-score if label else score) for at, label in getattr(marks, kind) if label >= 0
                    for score in heads.evidence[kind](states[k, at])]
            want = want + sum(nats) / len(nats)
        assert found[k].item() == pytest.approx(want.item(), rel=1e-5)
    assert [label for _, label in examples[1].targets.rest.sentences] == [1, -1, -1, 0, 0, 0]
    found.sum().backward()
    assert states.grad.isfinite().all() and states.grad[:, 0].any()


def test_a_batch_without_a_right_span_still_trains(words):
    one = TRIVIAQA.example(SAIL, words).cut(3)
    head, batch = SpanHead(6), padded([one]) | span_targets([one])
    states = torch.randn(1, 3, 6, requires_grad=True)
    loss = head.losses(head(read_of(states), batch), batch)
    loss.mean().backward()
    assert loss.tolist() == [0.0] and not states.grad.any()
    empty = TRIVIAQA.example(SAIL, words).cut(0)
    assert best_answers({name: torch.zeros(1, 0) for name in ("start", "end")} | {
        "text": torch.zeros(1, 0, dtype=torch.bool)}, [empty]) == [""]


def test_questions_of_which_nothing_was_read_train_and_answer_beside_others(words):
    """The second stage of a question none of whose paragraphs was read has no paragraphs at all."""
    torch.manual_seed(0)
    whole = HOTPOTQA.example(SAIL, words)
    nothing = only(whole, [])
    assert nothing.context == [] and nothing.targets.rest.sentences == [] and nothing.targets.spans == []
    heads, states = EvidenceHeads(6, 3, KINDS), torch.randn(2, len(whole.context), 6)
    for examples in ([nothing], [nothing, whole], [whole, nothing]):
        batch = padded(examples) | HOTPOTQA.targets(examples)
        assert batch["text"].dtype == torch.bool and batch["sentences"].dtype == torch.int64
        read = read_of(states[:len(examples), :batch["context"].shape[1]].clone().requires_grad_())
        read = replace(read, prefix=torch.ones(len(examples), 1, 1, 6), in_context=torch.stack([
            torch.arange(batch["context"].shape[1]) < len(one.context) for one in examples]))
        found = heads(read, batch)
        losses = heads.losses(found, batch)
        losses.sum().backward()
        assert all(weight.grad.isfinite().all() for weight in heads.parameters() if weight.grad is not None)
        k = examples.index(nothing)
        assert losses[k].item() == pytest.approx(-found["type"][k].log_softmax(-1)[0].item(), abs=1e-6)
        reply = HOTPOTQA.predictions({name: x.detach() for name, x in found.items()}, examples)[k]
        assert reply.facts == [] and kept_of(reply) == [] and reply.answer in ("", "yes", "no")
        if len(examples) == 2:  # the other question costs what it costs alone
            alone = padded([whole]) | HOTPOTQA.targets([whole])
            rest = replace(read_of(states[1 - k:2 - k]), prefix=torch.ones(1, 1, 1, 6))
            torch.testing.assert_close(losses[1 - k:2 - k], heads.losses(heads(rest, alone), alone))


def test_answers_across_a_seam_of_pieces(words):
    """States of a text in pieces: by the plain encoder, piece by piece; the best span may continue in the next one."""
    from transformers import RobertaConfig, RobertaModel

    torch.manual_seed(1)
    base = RobertaModel(RobertaConfig(
        vocab_size=words.coder.vocab_size + 5, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=26)).eval()
    one = HOTPOTQA.example(SAIL, words)
    batch, room = padded([one]) | HOTPOTQA.targets([one]), 24 - 1 - len(one.prefix)
    heads = EvidenceHeads(8, 3, KINDS).eval()
    seam = (one.targets.spans[0][0] // room + 1) * room
    with torch.no_grad():
        found = heads(Reader(longformer_from(base, 24, Full()).eval(), words.sep, 24)(batch), batch)
        parts = [one.context[k:k + room] for k in range(0, len(one.context), room)]
        states = torch.cat([base(torch.tensor([[*one.prefix, *part, words.sep]])).last_hidden_state[0, len(
            one.prefix):-1] for part in parts])
        for kind in ("paragraphs", "sentences"):
            at = [place for place, _ in getattr(one.targets.rest, kind)]
            torch.testing.assert_close(found[kind][0], heads.evidence[kind](states[at]).squeeze(-1), atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.stack([found["start"][0], found["end"][0]], 1), heads.span.ends(states),
                                   atol=1e-5, rtol=0)
    text = one.targets.places
    pair = next((k, k + 1) for k in range(seam - 1, len(text) - 1) if text[k][0] == text[k + 1][0] >= 0)
    found["start"], found["end"] = torch.zeros(2, 1, len(text)).unbind(0)
    found["start"][0, pair[0]] = found["end"][0, pair[1]] = 9.0
    source, start, _ = text[pair[0]]
    assert best_answers(found, [one]) == [SAIL.paragraphs[source].text[start:text[pair[1]][2]].strip()]


TINY = {"n_layer": 2, "n_embd": 16, "n_head": 2, "sequence": 32, "n_positions": 32, "batch_size": 4, "growing": [],
        "tokens": 1_000, "warmup_steps": 2, "validate_every": 1_000, "vocab_size": 300, "optimizer": "adamw"}


@pytest.fixture(scope="module")
def study(home):
    """Both tasks on a few short texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry._BY_NAME, "tiny-hops", Corpus(
            "tiny-hops", "MIT", "embedded", {name: Split("", n_examples=n) for name, n in (
                ("train", 24), ("validation", 16))}, readers.generated[Question],
            generator=FarHops(story_words=12, n_names=2)))
        base, = frame.PRETRAINING.plan("smoke", {name: as_text(value) for name, value in TINY.items()})
        for module in (frame, tasks, spans):
            patch.setattr(module, "base_of", lambda config: base)
        plans = importlib.import_module("repro.study.experiment")
        patch.setattr(plans, "_plan", plans._plan.__wrapped__)
        smoke = {"corpus": "tiny-hops", "n_train": 8, "held_out": 4, "batch_size": 4, "max_positions": 128,
                 "precision": "bf16", "cut": 20}
        for task in (HOTPOTQA, TRIVIAQA):
            patch.setitem(task.scales, "smoke", task.scales["smoke"] | smoke)
        ways = ("hotpotqa", "short"), ("hotpotqa", "longformer-cut"), ("triviaqa", "longformer")
        plan = [config for config in EXPERIMENT.plan("smoke") if (config.task, config.model) in ways]
        yield SimpleNamespace(plan=plan, folder=home / "results", found={
            (config.task, config.model): run(config, home / "results", progress=False) for config in plan})


def test_what_a_record_of_two_stages_keeps(study):
    for model in ("short", "longformer-cut"):
        record = study.found["hotpotqa", model]
        documents, metrics = record.documents["test"], record.metrics
        assert documents["id"] == [f"validation-{k}" for k in range(16)]
        for name in ("joint_f1", "answer_f1", "support_f1", "one_stage_joint_f1"):
            assert metrics[name] == pytest.approx(sum(documents[name]) / 16) and record.units[name] == "per cent"
        assert 2 <= metrics["paragraphs_kept"] <= 4 or model == "longformer-cut"
        assert metrics["best"] == 100 and metrics["train_examples"] == 8
        alone = metrics["best_short"]
        assert metrics["share_recovered"] == pytest.approx((metrics["joint_f1"] - alone) / (100 - alone))
        assert {"train_loss", "stage_two_train_loss"} <= record.curves.keys()


def test_what_a_record_of_answers_keeps(study):
    record = study.found["triviaqa", "longformer"]
    documents = record.documents["test"]
    assert record.metrics["f1"] == pytest.approx(sum(documents["f1"]) / len(documents["f1"]))
    assert 0 < len(documents["id"]) < 16  # without those answered by yes or no
    assert record.metrics["best"] == 100 and record.metrics["best_short"] < 100


def test_the_best_reader_of_pieces_sees_the_pieces_that_the_model_reads(words, monkeypatch):
    """Markers take room in a piece, although they say nothing."""
    seen = []
    generator = SimpleNamespace(best_score=lambda row, windows=None: seen.append(windows) or 1.0)
    monkeypatch.setattr("repro.data.corpus", lambda name: SimpleNamespace(generator=generator))
    monkeypatch.setattr(spans, "words_of", lambda config, task: words)
    one, room = HOTPOTQA.example(SAIL, words), 7
    base = SimpleNamespace(n_positions=len(one.prefix) + room + 1)
    monkeypatch.setattr(spans, "base_of", lambda config: base)
    assert spans.best_scores(SimpleNamespace(corpus="made"), HOTPOTQA, [SAIL]) == {"best": 100, "best_short": 100}
    told, = filter(None, seen)
    pieces = [one.context[k:k + room] for k in range(0, len(one.context), room)]
    assert told == [re.sub(r"\|.*?\|", "", text_of(words, piece)) for piece in pieces]


def test_scores_are_those_of_the_official_rules():
    told = [Told("the sail", [(1, 1), (2, 2)], []), Told("no", [(0, 0)], [])]
    rows = [SAIL, Question("2", "was it", SAIL.paragraphs, "yes", (), ((0, 0), (1, 0)))]
    metrics, by_question = HOTPOTQA.score(rows, told)
    want = [hotpotqa_scores("the sail", [("Mast", 1), ("Barn", 2)], "sail", [("Mast", 1), ("Barn", 0)]),
            hotpotqa_scores("no", [("Oven", 0)], "yes", [("Oven", 0), ("Mast", 0)])]
    assert by_question["joint_f1"] == [100 * one.joint_f1 for one in want] == [50.0, 0.0]
    assert metrics["support_f1"] == pytest.approx(100 * (1 / 2 + 2 / 3) / 2)
    found = TRIVIAQA.score([Question("3", "q", (), "Ann", aliases=("Ann-Marie Smith",))], ["ann marie"])
    assert found[0]["f1"] == pytest.approx(80.0) and found[0]["exact_match"] == 0


def test_the_plan_of_pretrained_questions():
    plan = [config for config in EXPERIMENT.plan("pretrained") if config.task in ("hotpotqa", "triviaqa")]
    assert len(plan) == 6 and {config.corpus for config in plan} == {"hotpotqa-subset"}
    seconds = {(config.task, config.model): EXPERIMENT.estimate(config).seconds for config in plan}
    assert seconds["hotpotqa", "longformer"] > seconds["triviaqa", "longformer"] > 0
