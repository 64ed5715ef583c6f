"""Questions about ten paragraphs, with their evidence, in two stages (Beltagy et al. 2020, appendix D, HotpotQA).

The context is `<t> title </t> sentence [s] sentence [s] ... <t> ...`. One head finds the answer, one on the first token
says whether it is a span, yes or no, one on each `<t>` scores the paragraph, and one on each `[s]` the sentence. The
first stage reads all paragraphs and keeps a few; the second, trained in the same way, reads only those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from repro.data.examples import ANSWER_TYPES
from repro.papers.longformer2020.tasks.frame import encoded, fit, new_model, read_with, recovered, words_of
from repro.papers.longformer2020.tasks.reader import Example, Words
from repro.papers.longformer2020.tasks.spans import (
    PRETRAINED,
    PUBLISHED,
    SMOKE,
    Answers,
    Laid,
    SpanTask,
    best_answers,
    set_apart,
    span_targets,
)
from repro.study import Outcome

if TYPE_CHECKING:
    from torch import Tensor, nn

MARKERS = "[q]", "[/q]", "<t>", "</t>", "[s]"
KINDS = "paragraphs", "sentences"  # of evidence


class Marks(NamedTuple):
    """Where the evidence of a question may be, and where it is; positions count in the context."""

    paragraphs: list[tuple[int, int]]  # the position of its <t>, and 1 for one with evidence, 0 without
    sentences: list[tuple[int, int]]  # the position of its [s], and 1, 0, or -1 where the evidence is not known
    facts: list[tuple[int, int]]  # for each of `sentences`: its paragraph, and its number there
    type: int  # of the answer, an index of ANSWER_TYPES


class Reply(NamedTuple):
    """A reader's response to a question: the answer, the facts as (paragraph, sentence), and logits of paragraphs."""

    answer: str
    facts: list[tuple[int, int]]
    paragraph_logits: list[float]


@dataclass(frozen=True)
class HotpotQA(SpanTask):
    """Questions whose evidence is in two paragraphs. Question, titles and sentences attend globally."""

    special: Sequence[str] = MARKERS
    units: Mapping[str, str] = field(default_factory=lambda: {"paragraphs_kept": "paragraphs per question"})
    cost: float = 1.8  # the second stage reads less than half; the first one also reads what it trained on

    def rows(self, config: Any) -> dict[str, list]:
        """Training questions whose paragraphs with evidence are not known are left out; of some, the sentences are not
        known."""
        from repro.data import corpus

        source = corpus(config.corpus)
        return set_apart(config, (row for row in source.examples("train") if row.supporting)) | {
            "test": list(source.examples("validation"))}

    def example(self, row: Any, words: Words) -> Example:
        prefix = [words.cls, words["[q]"], *words.encode(row.question), words["[/q]"]]
        laid, paragraphs, sentences, facts = Laid(words), [], [], []
        told = set(row.supporting)
        for number, (title, part) in enumerate(zip(row.titles, row.paragraphs, strict=True)):
            unknown = (number, None) in told
            paragraphs.append((laid.mark(words["<t>"]), int(any(fact[0] == number for fact in told))))
            laid.add(title)
            laid.mark(words["</t>"])
            for k, (sentence, (start, _)) in enumerate(zip(part.sentences, part.places, strict=True)):
                laid.add(sentence, number, start)
                sentences.append((laid.mark(words["[s]"]), -1 if unknown else int((number, k) in told)))
                facts.append((number, k))
        spans = laid.spans((one.paragraph, one.start, one.stop) for one in row.supported_spans)
        return Example(row, prefix, laid.ids, range(len(prefix)), [at for at, _ in paragraphs + sentences],
                       Answers(spans, laid.places, [one.text for one in row.paragraphs],
                               Marks(paragraphs, sentences, facts, ANSWER_TYPES.index(row.answer_type))))

    def head(self, config: Any, width: int) -> "nn.Module":
        from repro.models.task_heads import EvidenceHeads

        return EvidenceHeads(width, len(ANSWER_TYPES), KINDS)

    def targets(self, examples: Sequence[Example]) -> "dict[str, Tensor]":
        """Those of spans, `types` (B,), and `paragraphs` (B, P, 2) and `sentences` (B, S, 2): the position of each in
        the context, or -1 where it was cut off, and its label."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        found = span_targets(examples) | {"types": torch.tensor([one.targets.rest.type for one in examples])}
        for kind in KINDS:
            rows = [torch.tensor([(at, label) if at < len(one.context) else (-1, -1) for at, label in getattr(
                one.targets.rest, kind)], dtype=torch.int64).reshape(-1, 2) for one in examples]
            found[kind] = pad_sequence(rows, batch_first=True, padding_value=-1)
        return found

    def predictions(self, outputs: "Mapping[str, Tensor]", examples: Sequence[Example]) -> list[Reply]:
        types, found = outputs["type"].argmax(-1).tolist(), []
        for k, (one, answer) in enumerate(zip(examples, best_answers(outputs, examples), strict=True)):
            marks = one.targets.rest
            logits = outputs["sentences"][k, :len(marks.sentences)].tolist()
            found.append(Reply(answer if types[k] == 0 else ANSWER_TYPES[types[k]], evidence(logits, marks.facts),
                               outputs["paragraphs"][k, :len(marks.paragraphs)].tolist()))
        return found

    def score(self, rows: Sequence[Any], predictions: Sequence[Reply]) -> tuple[dict[str, float], dict[str, list]]:
        from repro.evaluation import hotpotqa_scores

        found = [hotpotqa_scores(told.answer, named(row, told.facts), row.answer, named(row, row.supporting))
                 for row, told in zip(rows, predictions, strict=True)]
        by_question = {"joint_f1": [100 * one.joint_f1 for one in found],
                       "answer_f1": [100 * one.f1 for one in found],
                       "support_f1": [100 * one.sp_f1 for one in found]}
        return {name: sum(values) / len(values) for name, values in by_question.items()}, {
            "id": [row.id for row in rows]} | by_question

    def execute(self, config: Any, context: Any) -> Outcome:
        """Train and read twice: with all paragraphs, and with those that the first reader keeps. Training questions
        also keep those with evidence."""
        words, rows = words_of(config, self), self.rows(config)
        examples = {split: encoded(config, self, found, words) for split, found in rows.items()}
        lengths = [len(one) for one in examples["test"]]
        first, replies, metrics = self._stage(config, context, words, examples, "stage one")
        kept = {split: [kept_of(reply) for reply in found] for split, found in replies.items()}
        of_evidence = {split: [{number for number, _ in row.supporting} for row in found]
                       for split, found in rows.items()}
        examples = {split: [only(one, {*some, *gold} if split == "train" else some)
                            for one, some, gold in zip(found, kept[split], of_evidence[split], strict=True)]
                    for split, found in examples.items()}
        second, answers, _ = self._stage(config, context, words, examples, "stage two")
        (one_stage, before), (scores, documents) = (self.score(rows["test"], found["test"])
                                                    for found in (replies, answers))
        whole = [gold <= set(some) for gold, some in zip(of_evidence["test"], kept["test"], strict=True)]
        metrics |= scores | {
            "one_stage_joint_f1": one_stage["joint_f1"], "both_paragraphs_kept": 100 * sum(whole) / len(whole),
            "paragraphs_kept": sum(map(len, kept["test"])) / len(whole),
            "tokens_read": sum(lengths) / len(lengths), "train_examples": len(rows["train"])}
        metrics |= recovered(scores[self.metric], self.known(config, rows))
        return Outcome(metrics, {name: self.unit_of(name) for name in metrics}, config.model,
                       first.curves | {f"stage_two_{name}": curve for name, curve in second.curves.items()},
                       {"test": documents | {"one_stage_joint_f1": before["joint_f1"]}},
                       {"tokeniser": words.coder.fingerprint, "chosen": [first.best, second.best]})

    def _stage(self, config: Any, context: Any, words: Words, examples: Mapping[str, list[Example]],
               name: str) -> tuple[Any, dict[str, list[Reply]], dict[str, float]]:
        """The result of training one reader, its replies to the examples of each split, and its size."""
        model = new_model(config, context, self, words)
        result = fit(config, context, self, model, examples["train"], examples["validation"], name)
        with context.progress(sum(map(len, examples.values())), f"reading {name}", "examples") as bar:
            replies = {split: read_with(config, self, model, found, bar)[0] for split, found in examples.items()}
        return result, replies, {"parameters": sum(weight.numel() for weight in model.parameters())}


def evidence(logits: Sequence[float], facts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The facts that a reader chooses among those that it read (a logit above -inf), as `two_paragraph_evidence`; all
    from one paragraph if it read only one."""
    from repro.evaluation import two_paragraph_evidence

    read = [(logit, fact) for logit, fact in zip(logits, facts, strict=True) if logit > float("-inf")]
    if len({paragraph for _, (paragraph, _) in read}) > 1:
        return [read[k][1] for k in two_paragraph_evidence([logit for logit, _ in read], [fact[0] for _, fact in read])]
    best = max(read, default=(0.0, None))[0]
    return [fact for logit, fact in read if logit > 0 or logit == best]


def kept_of(reply: Reply) -> list[int]:
    """The paragraphs that the first stage keeps, among those that it read."""
    from repro.evaluation.hops import kept_paragraphs

    read = [number for number, logit in enumerate(reply.paragraph_logits) if logit > float("-inf")]
    return read if len(read) < 2 else [
        read[k] for k in kept_paragraphs([reply.paragraph_logits[number] for number in read])]


def only(example: Example, kept: Sequence[int]) -> Example:
    """The same question about the paragraphs `kept` alone, which keep their numbers. Tokens that were cut off stay
    away."""
    marks, places = example.targets.rest, example.targets.places
    starts = [at for at, _ in marks.paragraphs]
    stops = [*starts[1:], len(places)]
    old = [at for number in sorted(kept) for at in range(starts[number], stops[number])]
    new = {at: k for k, at in enumerate(old)}
    inside = [k for k, (at, _) in enumerate(marks.sentences) if at in new]
    left = Marks([(new.get(at, len(old)), label) for at, label in marks.paragraphs],
                 [(new[marks.sentences[k][0]], marks.sentences[k][1]) for k in inside],
                 [marks.facts[k] for k in inside], marks.type)
    spans = [(new[first], new[last]) for first, last in example.targets.spans if first in new and last in new]
    read = [at for at in old if at < len(example.context)]
    return replace(
        example, context=[example.context[at] for at in read],
        global_context=[new[at] for at in example.global_context if at in new], whole=example.whole or len(example),
        targets=Answers(spans, [places[at] for at in old], example.targets.sources, left))


def named(row: Any, facts: Sequence[tuple[int, int | None]]) -> list[tuple[str, int]]:
    """Facts by the title of their paragraph."""
    return [(row.titles[paragraph], sentence) for paragraph, sentence in facts if sentence is not None]


HOTPOTQA = HotpotQA("hotpotqa", {
    "smoke": SMOKE, "pretrained": PRETRAINED,
    "paper": PUBLISHED | {"corpus": "hotpotqa", "learning_rate": 5e-5, "warmup_share": 0.07}}, "HotpotQA", "joint_f1")
