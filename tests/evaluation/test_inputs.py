"""Metrics of bad input end in one line, never in a number: each is tried with what is not what it asks for."""

import math

import numpy as np
import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import answer_scores, bootstrap, flops_per_token, normalise_answer, pareto_front
from repro.evaluation.answers import best_spans
from repro.evaluation.bootstrap import bootstrap_ratio, draws, linearised, over_seeds, together
from repro.evaluation.classification import interval, log_probabilities, score
from repro.evaluation.classification import padded as padded_documents
from repro.evaluation.consistency import common_words, genders, kept_genders, kept_names, names
from repro.evaluation.inputs import numbers
from repro.evaluation.positions import by_position, stretches
from repro.evaluation.summaries import beam_search, nats, padded, repetition, rouge_l, rouge_n, written
from repro.evaluation.topics import fit_topics, from_other_books, jensen_shannon, keywords, sign_test
from repro.evaluation.words import kind_of, spans, whole_words, word_of
from repro.models import Encoder, EncoderConfig, EncoderDecoder, EncoderDecoderConfig, classifier_patterns

NAN, INF = math.nan, math.inf
NO_NUMBERS = [None, "abc", [1.0, NAN, 2.0], [1.0, INF, 2.0], [[1.0, 2.0]], ["a", "b"], [1j, 2], [[1], [2, 3]], 3.0]
NO_TEXT = [None, 3, b"ab", ["ab"], NAN]
NO_TEXTS = ["one string", None, 3, ["a", 3], [None]]
P = np.array([[0.5, 0.5]])
TEXT = torch.ones(1, 1, 3, dtype=torch.bool)
LOGITS = torch.zeros(1, 1, 3)


def cases():
    """(what is tried, a call)."""
    for bad in NO_NUMBERS:
        yield from ((f"{name} of {bad!r}", call) for name, call in {
            "bootstrap": lambda b=bad: bootstrap(b, [1, 2, 3]), "words": lambda b=bad: bootstrap([1, 2, 3], b),
            "against": lambda b=bad: bootstrap([1., 2, 3], [1, 2, 3], against=b if b is not None else "x"),
            "ratio": lambda b=bad: bootstrap_ratio(b, [1, 2, 3]), "below": lambda b=bad: bootstrap_ratio([1, 2, 3], b),
            "linearised": lambda b=bad: linearised(b, [1, 2, 3]), "over_seeds": lambda b=bad: over_seeds(b),
            "by_position": lambda b=bad: by_position(b, 2), "books": lambda b=bad: from_other_books(b),
            "divergence": lambda b=bad: jensen_shannon(b, P), "its other": lambda b=bad: jensen_shannon(P, b)}.items())
    for bad in [*NO_NUMBERS[:3], *NO_NUMBERS[5:]]:  # infinity is larger than others
        yield f"sign of {bad!r}", lambda b=bad: sign_test(b, [1, 2, 3])
        yield f"pareto of {bad!r}", lambda b=bad: pareto_front(b)
    yield "a pair for a sign", lambda: sign_test([[1.0, 2.0]], [1, 2])
    yield "a loss of nan", lambda: pareto_front([(1, 2.0), (1, NAN)])
    for bad in NO_TEXT:
        yield from ((f"{name} of {bad!r}", call) for name, call in {
            "normalise": lambda b=bad: normalise_answer(b), "answer": lambda b=bad: answer_scores(b, "a"),
            "rouge_l": lambda b=bad: rouge_l(b, "a"), "rouge_l told": lambda b=bad: rouge_l("a", b),
            "rouge_n": lambda b=bad: rouge_n(b, "a", 1), "names": lambda b=bad: names(b, set()),
            "genders": lambda b=bad: genders(b), "kept": lambda b=bad: kept_names("a", b, set()),
            "kept_genders": lambda b=bad: kept_genders(b, "he"), "keywords": lambda b=bad: keywords(b, ["a"]),
            "spans": lambda b=bad: spans(b), "kind": lambda b=bad: kind_of(b, (), ())}.items())
    for bad in NO_TEXTS:
        yield from ((f"{name} of {bad!r}", call) for name, call in {
            "common": lambda b=bad: common_words(b), "topics": lambda b=bad: fit_topics(b),
            "others": lambda b=bad: keywords("a", b)}.items())
    for bad in (0, -1, 1.5, NAN, "2", None, True):
        yield from ((f"{name} of {bad!r}", call) for name, call in {
            "rouge": lambda b=bad: rouge_n("a", "a", b), "repetition": lambda b=bad: repetition(["a"], b),
            "stretches": lambda b=bad: stretches(b), "window": lambda b=bad: by_position([1.0] * 4, b),
            "layers": lambda b=bad: flops_per_token(b, 8, 4, 0), "width": lambda b=bad: flops_per_token(2, b, 4, 0),
            "samples": lambda b=bad: bootstrap([1, 2], [1, 2], samples=b), "draws": lambda b=bad: draws(b, 5, 0),
            "longest": lambda b=bad: best_spans(LOGITS, LOGITS, TEXT, b),
            "pieces": lambda b=bad: fit_topics(["a"], 2, b),
            "topics": lambda b=bad: fit_topics(["abc"], b), "stop": lambda b=bad: whole_words(np.arange(3), 0, b),
            "beams": lambda b=bad: beam_search(lambda x: torch.zeros(len(x), 3), 0, 0, b),
            "longest text": lambda b=bad: beam_search(lambda x: torch.zeros(len(x), 3), 0, 0, 2, 0.6, b)}.items())
    for bad in (0, 1, 1.5, -0.5, NAN, "0.9", None):
        yield f"level {bad!r}", lambda b=bad: bootstrap([1, 2], [1, 2], level=b)
        yield f"level of labels {bad!r}", lambda b=bad: interval([0, 1], [[0, 1]], "accuracy", level=b)
        yield f"level of seeds {bad!r}", lambda b=bad: over_seeds([1.0, 2.0], b)
    for bad in ([], [0, 1, 0], [0.5, 1.0], ["a", "b"], None, "ab", [None, 1], [[0], [1, 2]]):
        yield f"predictions {bad!r}", lambda b=bad: score([0, 1], b, "accuracy")
        yield f"labels {bad!r}", lambda b=bad: score(b, [0, 1], "f1")
        yield f"predictions of seeds {bad!r}", lambda b=bad: interval([0, 1], [b], "f1")
    yield "seeds", lambda: interval([0, 1], np.array([[0, 1]]), "f1", against=np.array([[0, 1], [0, 1]]))
    for bad in ([], None, "ab", [3], [([1], 2, 3)], [([1.5], 0)], [("ab", 0)]):
        yield f"documents {bad!r}", lambda b=bad: padded_documents(b)
        yield f"documents read {bad!r}", lambda b=bad: log_probabilities(encoder(), b)
        yield f"pairs {bad!r}", lambda b=bad: padded(b, 0)
        yield f"pairs read {bad!r}", lambda b=bad: nats(summariser(), b, 0)
    yield "a label", lambda: padded_documents([([1], 0.5)])
    yield "a summary", lambda: padded([([1], [0.5])], 0)
    for bad in ([], [1.5], "ab", None, [[1]]):
        yield f"an input {bad!r}", lambda b=bad: written(summariser(), b, 0)
    yield "bounds", lambda: together(1.0, (NAN, 2.0))
    yield "no bounds", lambda: together(1.0, (1.0,))
    yield "no words", lambda: bootstrap([1, 2], [0, 0])
    yield "words below 0", lambda: bootstrap([1, 2], [-1, 3])
    yield "no distribution", lambda: jensen_shannon([[0.5, 0.6]], P)
    yield "below 0", lambda: jensen_shannon([[1.5, -0.5]], P)
    yield "two topics and three", lambda: jensen_shannon([[0.2, 0.3, 0.5]], P)
    yield "no passages", lambda: from_other_books([])
    yield "too few targets", lambda: by_position([1.0], 2)
    yield "a word beyond", lambda: whole_words(np.arange(3), 0, 4)
    yield "a page after the end", lambda: whole_words(np.arange(3), 3, 3)
    yield "one string of words", lambda: kind_of("a", "the", ())
    yield "spans of one number", lambda: word_of(np.arange(3), np.zeros((1, 2)))
    yield "a text in place of tokens", lambda: repetition("a b c")
    yield "a share", lambda: fit_topics(["abc"], max_share=0.0)
    yield "spans of other shapes", lambda: best_spans(LOGITS, LOGITS[:, :, :2], TEXT)
    yield "text that is no bool", lambda: best_spans(LOGITS, LOGITS, LOGITS)
    yield "logits that are NaNs", lambda: best_spans(LOGITS * NAN, LOGITS, TEXT)
    yield "beams of nan", lambda: beam_search(lambda x: torch.full((len(x), 3), NAN), 0, 0)
    yield "beams of another shape", lambda: beam_search(lambda x: torch.zeros(3), 0, 0)
    yield "alpha", lambda: beam_search(lambda x: torch.zeros(len(x), 3), 0, 0, alpha=NAN)
    for reference in ("日本語", "Привет, мир", "؟", "..."):
        yield f"rouge of {reference}", lambda one=reference: rouge_l(one, one)
        yield f"rouge-1 of {reference}", lambda one=reference: rouge_n(one, "a", 1)


CASES = dict(cases())


def encoder():
    torch.manual_seed(0)
    return Encoder(EncoderConfig(9, 8, 2, classifier_patterns(window=4, n_layer=1)))


def summariser():
    torch.manual_seed(0)
    return EncoderDecoder(EncoderDecoderConfig(9, 8, 2, 1))


@pytest.mark.parametrize("case", CASES)
def test_bad_input_ends_in_one_line(case):
    with pytest.raises(ReproError) as error:
        CASES[case]()
    assert "\n" not in str(error.value) and 10 < len(str(error.value)) < 400


def test_as_many_cases_as_were_written():
    assert len(CASES) > 300


def test_good_input_of_other_types_is_taken():
    assert numbers([True, 2], "x").tolist() == [1, 2] and numbers([], "x").tolist() == []
    assert numbers(torch.tensor([1, 2]), "x").tolist() == [1, 2] and numbers(3, "x", ()) == 3
    assert rouge_l("", "a") == 0 and rouge_l("über 20", "über 20") == 1 and pareto_front([]) == []
    assert score(["a", "b"], np.array(["a", "c"]), "accuracy") == 0.5 and score([True], [1], "accuracy") == 1
    assert interval([0, 1], np.array([[0, 1]]), "f1", against=np.array([[0, 1]]), samples=10).value == 0
    assert together(1.0, (-INF, 2.0), None) == (-INF, 2.0)


def test_a_draw_without_words_says_nothing():
    found = bootstrap([1.0, 2.0, 0.0], [2, 4, 0], samples=400)
    assert all(math.isfinite(x) for x in found) and found.value == pytest.approx(math.exp(0.5))


@pytest.mark.parametrize(("made", "read"), [
    (encoder, lambda model: log_probabilities(model, [([1, 2], 0)])),
    (summariser, lambda model: nats(model, [([1, 2], [3])], 0))])
def test_losses_that_are_no_numbers(made, read):
    model = made().train()
    for weight in model.parameters():
        weight.data.fill_(NAN)
    with pytest.raises(ReproError, match="NaN"):
        read(model)
    assert model.training


def test_a_summary_does_not_depend_on_dropout():
    torch.manual_seed(0)
    model = EncoderDecoder(EncoderDecoderConfig(9, 8, 2, 1, dropout=0.5)).train()
    found = {tuple(written(model, [1, 2, 3], 0, longest=9)) for _ in range(4)}
    assert found == {tuple(written(model.eval(), [1, 2, 3], 0, longest=9))}
