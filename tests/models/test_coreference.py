"""`repro.models.Coreference` against a slow version that reads span by span and pair by pair."""

import itertools
import random

import pytest
import torch
from torch.nn import functional as F

from repro.errors import ReproError
from repro.models import Coreference
from repro.models.coreference import CoreferenceOutput, non_crossing

D = 5
WORDS = torch.tensor([[1, 2], [2, 4], [4, 5], [5, 8], [8, 9], [9, 10], [11, 12]])  # tokens 0, 10 and 12 are in none
SENTENCES = torch.tensor([0, 0, 0, 0, 1, 1, 1])
CLUSTERS = [[(0, 1), (2, 4), (6, 7)], [(1, 2), (4, 6)], [(3, 4)]]


def model_and_states(seed=0, **settings):
    torch.manual_seed(seed)
    model = Coreference(**{"width": D, "max_words": 3, "kept": 1.0, "antecedents": 3, "hidden": 6, "feature": 4}
                        | settings).eval()
    for weight in model.parameters():
        weight.data.normal_(std=0.5)
    return model, torch.randn(13, D)


def feedforward(layers, second, parts):
    """One output of a network whose first layer reads all parts, one after another."""
    weight = torch.cat([layer.weight for layer in layers], 1)
    bias = sum(layer.bias for layer in layers if layer.bias is not None)
    return second.layer(torch.relu(weight @ torch.cat(parts) + bias))[0]


def slow(model, states, words, sentences=None, speakers=None, genre=None):
    """Kept spans, and for each the scores of "none" and of every earlier kept span, by loops over spans and pairs."""
    n = len(words)
    described, scores = {}, {}
    for start, stop in itertools.combinations(range(n + 1), 2):
        if stop - start > model.max_words or sentences is not None and len(set(sentences[start:stop].tolist())) > 1:
            continue
        tokens = [k for word in range(start, stop) for k in range(*words[word].tolist())]
        weights = torch.stack([model.attention(states[k])[0] for k in tokens]).softmax(0)
        head = sum(weight * states[k] for weight, k in zip(weights, tokens, strict=True))
        span = described[start, stop] = torch.cat([states[tokens[0]], states[tokens[-1]], head,
                                                   model.widths.weight[stop - start - 1]])
        scores[start, stop] = feedforward([model.mention_layer], model.mention_score, [span])
    kept = []
    for a, b in sorted(scores, key=scores.get, reverse=True):
        if len(kept) < max(1, int(model.kept * n)) and not any(a < c < b < d or c < a < d < b for c, d in kept):
            kept.append((a, b))
    kept.sort()
    coarse = {(i, j): scores[i] + scores[j] + described[i] @ model.bilinear.weight.T @ described[j]
              for j, i in itertools.combinations(kept, 2)}
    antecedents = {i: sorted((j for j in kept if j < i), key=lambda j: -coarse[i, j])[:model.most_antecedents]
                   for i in kept}

    def all_scores(described):
        layers = model.of_features, model.of_span, model.of_antecedent, model.of_product
        found = {}
        for i in kept:
            for j in antecedents[i]:
                apart = kept.index(i) - kept.index(j)
                features = [model.distances.weight[sum(apart >= least for least in (2, 3, 4, 5, 8, 16, 32, 64))]]
                if speakers is not None:
                    features.append(model.same_speaker.weight[int(speakers[i[0]] == speakers[j[0]])])
                if genre is not None:
                    features.append(model.genres.weight[genre])
                parts = [torch.cat(features), described[i], described[j], described[i] * described[j]]
                found[i, j] = coarse[i, j] + feedforward(layers, model.pair_score, parts)
        return found

    first, refined = all_scores(described), {}
    for i in kept:
        chance = torch.stack([torch.tensor(0.0).to(states), *(first[i, j] for j in antecedents[i])]).softmax(0)
        mean = sum(p * described[j] for p, j in zip(chance, [i, *antecedents[i]], strict=True))
        gate = torch.sigmoid(model.gate.weight @ torch.cat([described[i], mean]) + model.gate.bias)
        refined[i] = gate * described[i] + (1 - gate) * mean
    return kept, antecedents, all_scores(refined), scores


def slow_loss(kept, antecedents, scores, clusters):
    cluster_of = {mention: number for number, cluster in enumerate(clusters) for mention in cluster}
    total = 0
    for i in kept:
        chance = torch.stack([torch.zeros_like(next(iter(scores.values()))),
                              *(scores[i, j] for j in antecedents[i])]).softmax(0)
        hits = [k for k, j in enumerate(antecedents[i], 1) if cluster_of.get(i, -1) == cluster_of.get(j, -2)]
        total = total - sum(chance[k] for k in hits or [0]).log()
    return total / len(kept)


EVERYTHING = {"kept": 3.0, "antecedents": 99}
CASES = {"all pairs": (EVERYTHING, {}), "all pairs within sentences": (EVERYTHING, {"sentences": SENTENCES}),
         "pruned": ({}, {}), "one antecedent": ({"antecedents": 1, "kept": 0.6}, {"sentences": SENTENCES}),
         "one span": ({"kept": 0.1}, {}), "single words": ({"max_words": 1}, {}),
         "speakers and a genre": ({"speakers": True, "genres": 3, **EVERYTHING},
                                  {"speakers": torch.tensor([4, 4, 1, 1, 1, 4, 4]), "genre": 2})}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_it_gives_the_scores_and_the_loss_of_the_slow_version(case, seed):
    settings, given = CASES[case]
    model, states = model_and_states(seed, **settings)
    output = model(states, WORDS, clusters=CLUSTERS, **given)
    kept, antecedents, scores, mention_scores = slow(model, states, WORDS, **given)
    assert output.spans.tolist() == [list(span) for span in kept]
    assert output.mention_scores.tolist() == pytest.approx([mention_scores[span].item() for span in kept], abs=1e-5)
    for i, span in enumerate(kept):
        row = {kept[j]: score.item() for j, score in zip(output.antecedents[i], output.scores[i, 1:], strict=True)
               if score.isfinite()}
        assert row == pytest.approx({j: scores[span, j].item() for j in antecedents[span]}, abs=1e-5)
    assert (output.scores[:, 0] == 0).all()
    right = slow_loss(kept, antecedents, scores, CLUSTERS) if scores else torch.tensor(0.0)
    assert output.loss.item() == pytest.approx(right.item(), abs=1e-5)


def test_gradients_are_those_of_the_slow_version():
    model, states = model_and_states(1, kept=1.5, antecedents=4)
    model, states = model.double(), states.double()
    weights = [*model.parameters(), states.requires_grad_()]
    loss = model(states, WORDS, SENTENCES, CLUSTERS).loss
    kept, antecedents, scores, _ = slow(model, states, WORDS, SENTENCES)
    ours = torch.autograd.grad(loss, weights)
    theirs = torch.autograd.grad(slow_loss(kept, antecedents, scores, CLUSTERS), weights, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, torch.zeros_like(one) if other is None else other, atol=1e-6)
        assert one.isfinite().all()
    assert sum(int(one.abs().sum() > 0) for one in ours) == len(ours)  # everything learns


@pytest.mark.parametrize("token, spans", [(0, []), (1, [(0, 1)]), (2, [(1, 2)]), (3, [(1, 2)]), (8, [(4, 5)]),
                                          (10, []), (11, [(6, 7)]), (12, [])])
def test_a_span_ends_at_the_last_token_of_its_last_word(token, spans):
    """Changing one token changes the scores of exactly the spans that hold it."""
    model, states = model_and_states(max_words=1, kept=1.0)
    before = model(states, WORDS)
    changed = states.clone()
    changed[token] += 1
    after = model(changed, WORDS)
    assert before.spans.tolist() == after.spans.tolist() == [[k, k + 1] for k in range(7)]
    found = [tuple(span) for span, x, y in zip(before.spans.tolist(), before.mention_scores, after.mention_scores,
                                               strict=True) if x != y]
    assert found == spans


def test_pruning_by_hand():
    spans = torch.tensor([[0, 2], [1, 3], [1, 2], [0, 5], [4, 6], [2, 3], [5, 7]])
    scores = torch.tensor([5.0, 9.0, 1.0, 8.0, 7.0, 6.0, 4.0])
    # 1:3 is best and crosses 0:2; 0:5 holds it and crosses 4:6; 5:7 crosses nothing that is left
    assert [spans[k].tolist() for k in non_crossing(spans, scores, 9)] == [[0, 5], [1, 2], [1, 3], [2, 3], [5, 7]]
    assert [spans[k].tolist() for k in non_crossing(spans, scores, 3)] == [[0, 5], [1, 3], [2, 3]]
    assert non_crossing(spans, torch.zeros(7), 2).tolist() == [0, 2]  # equal scores: in the order given


def test_pruning_compares_with_every_chosen_span():
    draw = random.Random(0)
    for _ in range(200):
        every = list(itertools.combinations(range(8), 2))
        spans = draw.sample(every, draw.randint(1, len(every)))
        scores = torch.tensor([draw.random() for _ in spans])
        kept = []
        for number in scores.argsort(descending=True).tolist():
            a, b = spans[number]
            if len(kept) < 6 and not any(a < c < b < d or c < a < d < b for c, d in kept):
                kept.append((a, b))
        assert [spans[k] for k in non_crossing(torch.tensor(spans), scores, 6)] == sorted(kept)


def test_clusters_follow_best_antecedents():
    spans = torch.tensor([[0, 1], [1, 2], [2, 4], [3, 4], [5, 6]])
    inf = torch.inf
    scores = torch.tensor([[0, -inf, -inf], [0, -1, -inf], [0, 2, 1], [0, -1, 0.5], [0, -2, -3]])
    antecedents = torch.tensor([[0, 1], [0, 1], [0, 1], [0, 2], [3, 2]])
    output = CoreferenceOutput(spans, torch.tensor([1.0, -1, 1, 1, 2]), antecedents, scores)
    assert output.clusters == [[(0, 1), (2, 4), (3, 4)]]  # 3:4 is linked to 2:4, which is linked to 0:1
    assert output.singletons == [(5, 6)]  # 1:2 has a negative score


def test_a_tie_with_none_is_no_link():
    output = CoreferenceOutput(torch.tensor([[0, 1], [1, 2]]), torch.zeros(2), torch.tensor([[0], [0]]),
                               torch.tensor([[0, -torch.inf], [0, 0.0]]))
    assert output.clusters == [] and output.singletons == []


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_in_16_bits_it_gives_about_the_same(dtype):
    model, states = model_and_states(2, **EVERYTHING)
    exact = model(states, WORDS, SENTENCES, CLUSTERS)
    exact.loss.backward()
    gradient = model.of_product.weight.grad.clone()
    model.zero_grad()
    if dtype is None:
        with torch.autocast("cpu", torch.bfloat16):
            output = model(states, WORDS, SENTENCES, CLUSTERS)
    else:
        model, states = model.to(dtype), states.to(dtype)
        output = model(states, WORDS, SENTENCES, CLUSTERS)
    output.loss.backward()
    assert output.loss.dtype == output.scores.dtype == output.mention_scores.dtype == torch.float32
    assert {tuple(span) for span in output.spans.tolist()} == {tuple(span) for span in exact.spans.tolist()}
    assert output.loss.item() == pytest.approx(exact.loss.item(), rel=0.05)
    found = model.of_product.weight.grad.float()
    assert F.cosine_similarity(found.flatten(), gradient.flatten(), 0) > 0.98


def test_dropout_is_off_in_evaluation_and_on_in_training():
    model, states = model_and_states()
    assert torch.equal(model(states, WORDS).scores, model(states, WORDS).scores)
    model.train()
    assert len({model(states, WORDS, clusters=CLUSTERS).loss.item() for _ in range(3)}) == 3


def test_it_learns_a_document_by_heart():
    model, states = model_and_states(**EVERYTHING, hidden=30)
    clusters = [[(0, 1), (2, 4), (6, 7)], [(1, 2), (4, 5)]]
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        loss = model(states, WORDS, SENTENCES, clusters).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert model(states, WORDS, SENTENCES).clusters == clusters


GENRES = {"genres": 2}
SPEAKERS = {"speakers": True}


@pytest.mark.parametrize("settings, given, said", [
    ({}, {"states": torch.zeros(13, 4)}, "states are torch.float32 of shape (13, 4); give floats (N, 5)"),
    ({}, {"states": torch.zeros(1, 13, 5)}, "give floats (N, 5), of one document"),
    ({}, {"words": torch.zeros(0, 2, dtype=torch.int64)}, "at least one word"),
    ({}, {"words": torch.tensor([[0, 2], [1, 3]])}, "word 1 is tokens 1:3"),
    ({}, {"words": torch.tensor([[0, 2], [2, 2]])}, "word 1 is tokens 2:2"),
    ({}, {"words": torch.tensor([[12, 14]])}, "word 0 is tokens 12:14"),
    ({}, {"words": torch.tensor([[-1, 1]])}, "word 0 is tokens -1:1"),
    ({}, {"sentences": SENTENCES[1:]}, "give a number for each of the 7 words"),
    ({}, {"clusters": [[(0, 1)], [(1, 2), (0, 1)]]}, "words 0:1 occurs twice, in clusters 0 and 1"),
    ({}, {"clusters": [[]]}, "cluster 0 is []; give a list of at least one mention"),
    ({}, {"clusters": [[(6, 8)]]}, "words 6:8; it must hold a word and stay within the 7 words"),
    ({}, {"clusters": [[(3, 3)]]}, "words 3:3; it must hold a word"),
    ({}, {"clusters": [[(-1, 2)]]}, "words -1:2"),
    ({}, {"clusters": [[(0.5, 2)]]}, "give two whole numbers"),
    ({}, {"clusters": [(0, 1)]}, "a mention in cluster 0 is 0; give two whole numbers"),
    ({}, {"clusters": 3}, "clusters are 3; give a list of clusters"),
    ({}, {"genre": 0}, "this model was made with genres=0"),
    (GENRES, {"genre": 2}, "genre is 2; it must be a whole number from 0 to 1"),
    (GENRES, {}, "genre is None"),
    (SPEAKERS, {}, "the words have none"),
    ({}, {"speakers": SENTENCES}, "made with speakers=False"),
    ({"kept": 0.0}, {}, "kept is 0.0 spans per word"), ({"kept": 4.0}, {}, "at most max_words, 3"),
    ({"max_words": 0}, {}, "max_words is 0"), ({"antecedents": 0}, {}, "antecedents is 0"),
    ({"dropout": 1.0}, {}, "dropout is 1.0"), ({"genres": -1}, {}, "genres is -1")])
def test_bad_input_is_one_line(settings, given, said):
    with pytest.raises(ReproError) as error:
        model, states = model_and_states(**settings)
        model(**{"states": states, "words": WORDS} | given)
    assert said in str(error.value)
