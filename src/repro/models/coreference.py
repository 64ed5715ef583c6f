"""Coreference, coarse to fine (Lee et al. 2018; Joshi et al. 2019): which words of a document refer to the same thing.

Every span of a few words is a candidate mention. The spans with the best scores are kept. For each, a bilinear product
picks likely antecedents among the earlier spans, and a network scores these. "None" is an antecedent whose score is 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repro.checked import checked
from repro.errors import ReproError, check_number, check_whole, is_series, short
from repro.ids import what

Mention = tuple[int, int]
Clusters = Sequence[Sequence[Mention]]
DISTANCES = (2, 3, 4, 5, 8, 16, 32, 64)  # buckets, in kept spans: 1, 2, 3, 4, 5-7, 8-15, ..., 64 and more


@dataclass
class CoreferenceOutput:
    """The output of `Coreference` for a document with M kept spans, each with up to K antecedents.

    spans (M, 2): words start:stop, in the order of the text. mention_scores (M,). antecedents (M, K): numbers of kept
    spans. scores (M, 1 + K) float32: for "none", always 0, then for each antecedent; -inf for missing antecedents.
    loss: nats per kept span, () float32; None without clusters.
    """

    spans: Tensor
    mention_scores: Tensor
    antecedents: Tensor
    scores: Tensor
    loss: Tensor | None = None

    @cached_property
    def clusters(self) -> list[list[Mention]]:
        """Clusters of at least two mentions (start, stop): each span is linked to its best antecedent."""
        cluster_of: list[list[Mention]] = []
        for mention, best, antecedents in zip(self._mentions, self.scores.argmax(1).tolist(), self.antecedents.tolist(),
                                              strict=True):
            cluster_of.append(cluster_of[antecedents[best - 1]] if best else [])
            cluster_of[-1].append(mention)
        return [one for one in {id(one): one for one in cluster_of}.values() if len(one) > 1]

    @property
    def singletons(self) -> list[Mention]:
        """The kept spans outside all clusters whose mention score is above 0."""
        linked = {mention for cluster in self.clusters for mention in cluster}
        return [mention for mention, score in zip(self._mentions, self.mention_scores.tolist(), strict=True)
                if score > 0 and mention not in linked]

    @property
    def _mentions(self) -> list[Mention]:
        return [(start, stop) for start, stop in self.spans.tolist()]


@checked
class Coreference(nn.Module):
    """Find clusters of mentions in a document, given the states (N, d) of its tokens from any encoder.

    A span is described by the states of its first and last token, the attention-weighted mean of its tokens, and its
    number of words. The best spans that do not cross are kept, `kept` per word. Mention scores and a bilinear score
    pick up to `antecedents` earlier spans for each. A network then adds a score of the pair and its distance. In one
    refinement step, a gate mixes each span with its expected antecedent, and the network scores the pairs again. The
    loss is -log of the probability of any right antecedent, or of "none" if no right one is left, as a mean over kept
    spans (Lee et al. 2018, sections 2 to 4). The code of Joshi et al. counts in tokens, often parts of words: it scores
    spans of up to 30 tokens, keeps 0.4 per token and sums the loss over kept spans.

    width: d. max_words: of a span. hidden: the hidden size of both networks. feature: the size of each embedding, of
    span length, distance, genre and same speaker. genres: how many there are, 0 for none. speakers: whether the words
    have speakers.
    Raises ReproError for settings out of range.

    >>> model = Coreference(width=8, hidden=16).eval()
    >>> words = torch.tensor([[1, 2], [2, 4], [4, 5]])  # the first and last token of a text are in no word
    >>> output = model(torch.randn(6, 8), words, clusters=[[(0, 1), (1, 3)]])
    >>> output.spans.shape, output.loss.ndim
    (torch.Size([1, 2]), 0)
    """

    def __init__(self, width: int, max_words: int = 10, kept: float = 0.4, antecedents: int = 50, hidden: int = 150,
                 feature: int = 20, dropout: float = 0.3, genres: int = 0, speakers: bool = False):
        super().__init__()
        self.arguments = {"width": width, "max_words": max_words, "kept": kept, "antecedents": antecedents,
                          "hidden": hidden, "feature": feature, "dropout": dropout, "genres": genres,
                          "speakers": speakers}  # for `save_model`; some attributes of these names are layers
        for name, value in (("width", width), ("max_words", max_words), ("antecedents", antecedents),
                            ("hidden", hidden), ("feature", feature)):
            check_whole(value, name)
        check_whole(genres, "genres", 0)
        check_number(dropout, "dropout", 0.0, 1.0)
        if not 0 < kept <= max_words:
            raise ReproError(f"kept is {kept} spans per word; it must be above 0 and at most max_words, {max_words}.")
        self.width, self.max_words, self.kept, self.most_antecedents = width, max_words, kept, antecedents
        self.dropout, size = nn.Dropout(dropout), 3 * width + feature
        self.attention = nn.Linear(width, 1)
        self.widths, self.distances = nn.Embedding(max_words, feature), nn.Embedding(len(DISTANCES) + 1, feature)
        self.genres = nn.Embedding(genres, feature) if genres else None
        self.same_speaker = nn.Embedding(2, feature) if speakers else None
        self.mention_layer, self.mention_score = nn.Linear(size, hidden), _Score(hidden, dropout)
        self.bilinear, self.gate = nn.Linear(size, size, bias=False), nn.Linear(2 * size, size)
        nn.init.normal_(self.bilinear.weight, std=1 / size)  # scores of about 1, so that "none" has a chance
        self.of_span, self.of_antecedent, self.of_product = (nn.Linear(size, hidden, bias=False) for _ in range(3))
        self.of_features = nn.Linear(feature * (1 + bool(genres) + speakers), hidden)
        self.pair_score = _Score(hidden, dropout)

    def forward(self, states: Tensor, words: Tensor, sentences: Tensor | None = None, clusters: Clusters | None = None,
                speakers: Tensor | None = None, genre: int | None = None) -> CoreferenceOutput:
        """Score the spans of a document; with `clusters`, lists of mentions as words (start, stop), add the loss.

        states (N, d). words (W, 2) int64: the tokens start:stop of each word, in order; tokens outside all words are
        in no span. sentences (W,): the sentence number of each word, since no span crosses sentences; None: one
        sentence. speakers (W,): the number of each word's speaker. genre: counted from 0. Mentions in `clusters` that
        cannot be candidates, such as long ones, are ignored.
        Raises ReproError for tensors that do not match, an empty cluster, a missing or unexpected genre or speakers,
        and a mention that is outside the words, stops before it starts or is in two clusters.
        """
        self._check(states, words, sentences, speakers, genre)
        right = None if clusters is None else _cluster_numbers(clusters, len(words))
        tokens = _Tokens.of(self, self.dropout(states), words)
        spans, scores = self._mention_scores(tokens, sentences)
        chosen = non_crossing(spans, scores, max(1, int(self.kept * len(words))))
        spans, mention_scores = spans[chosen], scores[chosen]
        described = self._described(tokens, spans)

        number = torch.arange(len(spans), device=states.device)
        coarse = mention_scores[:, None] + mention_scores + (self.bilinear(described) @ described.T).float()
        earlier = coarse.masked_fill(number >= number[:, None], -torch.inf)
        coarse, antecedents = earlier.topk(min(self.most_antecedents, len(spans) - 1))
        features = self._features(spans, antecedents, speakers, genre)
        fine = self._with_none(coarse, self._pairs(described, antecedents, features))
        fine = self._with_none(coarse, self._pairs(self._refined(described, antecedents, fine), antecedents, features))
        output = CoreferenceOutput(spans, mention_scores, antecedents, fine)
        if right is not None:
            output.loss = _loss(output, right)
        return output

    def _mention_scores(self, tokens: "_Tokens", sentences: Tensor | None) -> tuple[Tensor, Tensor]:
        """All spans (S, 2) of up to `max_words` words of one sentence, and their scores (S,) float32.

        The result is that of the network for what `_described` returns. Its first layer is linear, so it can be
        applied before the mean over words: here it reads tokens and words, of which there are fewer than spans.
        """
        d, n = self.width, len(tokens.total)
        of_first, of_last, of_mean, of_width = self.mention_layer.weight.split([d, d, d, self.widths.embedding_dim], 1)
        first, last = F.linear(tokens.first, of_first), F.linear(tokens.last, of_last)
        of_word = F.linear(tokens.mean, of_mean)
        width = F.linear(self.widths.weight, of_width, self.mention_layer.bias)
        mean, total, spans, hidden = of_word, tokens.total, [], []
        for more in range(min(self.max_words, n)):  # words after the first
            if more:  # add one word: combine the means of both parts
                both = torch.logaddexp(total[:-1], tokens.total[more:])
                mean = ((total[:-1] - both).exp()[:, None] * mean[:-1]
                        + (tokens.total[more:] - both).exp()[:, None] * of_word[more:])
                total = both
            start = torch.arange(n - more, device=first.device)
            same = slice(None) if sentences is None else sentences[:n - more] == sentences[more:]
            spans.append(torch.stack([start, start + more + 1], 1)[same])
            hidden.append((first[:n - more] + last[more:] + mean + width[more])[same])
        return torch.cat(spans), self.mention_score(torch.cat(hidden))

    def _described(self, tokens: "_Tokens", spans: Tensor) -> Tensor:
        """The description (M, size) of each span: first token, last token, weighted mean, number of words."""
        start, stop = spans.T
        word = start[:, None] + torch.arange(self.max_words, device=spans.device)
        inside, word = word < stop[:, None], word.clamp(max=len(tokens.total) - 1)
        share = tokens.total[word].masked_fill(~inside, -torch.inf).softmax(1)
        mean = (share[..., None] * tokens.mean[word]).sum(1)
        parts = tokens.first[start], tokens.last[stop - 1], mean, self.widths(stop - start - 1)
        return torch.cat([part.to(tokens.first.dtype) for part in parts], 1)

    def _features(self, spans: Tensor, antecedents: Tensor, speakers: Tensor | None, genre: int | None) -> Tensor:
        """The part of the pairs' first layer that reads distance, speakers and genre, (M, K, hidden)."""
        apart = torch.arange(len(spans), device=spans.device)[:, None] - antecedents
        found = [self.distances(torch.bucketize(apart, torch.tensor(DISTANCES, device=spans.device), right=True))]
        if self.same_speaker is not None:
            of_span = speakers[spans[:, 0]]
            found.append(self.same_speaker((of_span[:, None] == of_span[antecedents]).long()))
        if self.genres is not None:
            found.append(self.genres.weight[genre].expand(*apart.shape, -1))
        return self.of_features(self.dropout(torch.cat(found, -1)))

    def _pairs(self, described: Tensor, antecedents: Tensor, features: Tensor) -> Tensor:
        """The network's scores (M, K) of spans and antecedents, each described by (size,) numbers.

        Its first layer reads the span, the antecedent, their product and the features. It is computed as a sum of four
        layers, so that spans are not copied for every pair.
        """
        if torch.is_autocast_enabled(described.device.type):  # products of pairs are large
            described = described.to(torch.get_autocast_dtype(described.device.type))
        product = self.of_product(described[:, None] * F.embedding(antecedents, described))
        of_antecedent = F.embedding(antecedents, self.of_antecedent(described))
        return self.pair_score(self.of_span(described)[:, None] + of_antecedent + product + features)

    def _with_none(self, coarse: Tensor, pairs: Tensor) -> Tensor:
        """Scores (M, 1 + K): 0 for "none", then one for each antecedent."""
        return F.pad(coarse + pairs, (1, 0))

    def _refined(self, described: Tensor, antecedents: Tensor, scores: Tensor) -> Tensor:
        """Spans (M, size), each mixed with its expected antecedent, which for "none" is the span itself."""
        chance = scores.softmax(1)
        chances = torch.diag(chance[:, 0]).scatter_add(1, antecedents, chance[:, 1:])
        expected = chances.to(described) @ described
        gate = self.gate(torch.cat([described, expected], 1)).sigmoid()
        return gate * described + (1 - gate) * expected

    def _check(self, states: Tensor, words: Tensor, sentences: Tensor | None, speakers: Tensor | None,
               genre: int | None) -> None:
        """Raise ReproError unless a document's parts fit together."""
        if not isinstance(states, Tensor) or states.ndim != 2 or states.shape[1] != self.width or (
                not states.is_floating_point()):
            raise ReproError(f"states are {what(states)}; give floats (N, {self.width}), of one document.")
        if not isinstance(words, Tensor) or words.ndim != 2 or words.shape[1] != 2 or not len(words) or (
                words.dtype != torch.int64):
            raise ReproError(f"words are {what(words)}; give int64 (W, 2), the tokens start:stop of each word, with at "
                             "least one word.")
        start, stop = words.T
        wrong = (start >= stop) | (start < F.pad(stop[:-1], (1, 0))) | (stop > len(states))
        if wrong.any():
            number = int(wrong.nonzero()[0])
            raise ReproError(f"word {number} is tokens {int(start[number])}:{int(stop[number])}; words must follow each"
                             f" other, hold a token and stop within the {len(states)} tokens.")
        for name, given in (("sentences", sentences), ("speakers", speakers)):
            if given is not None and (not isinstance(given, Tensor) or given.shape != words.shape[:1]):
                raise ReproError(f"{name} are {what(given)}; give a number for each of the {len(words)} words.")
        if (speakers is None) != (self.same_speaker is None):
            raise ReproError("the words have speakers, but this model was made with speakers=False." if speakers
                             is not None else "this model reads speakers, but the words have none; give a number for "
                                              "each.")
        if self.genres is None and genre is not None:
            raise ReproError(f"genre is {genre}, but this model was made with genres=0; leave it out.")
        if self.genres is not None:
            check_whole(genre, "genre", 0, self.genres.num_embeddings - 1)


class _Tokens(NamedTuple):
    """The states of a document, word by word."""

    first: Tensor  # (W, d): of the first token
    last: Tensor  # (W, d)
    mean: Tensor  # (W, d): weighted by attention
    total: Tensor  # (W,) float32: the log of the sum of its tokens' weights

    @classmethod
    def of(cls, model: Coreference, states: Tensor, words: Tensor) -> "_Tokens":
        """From the states (N, d) of tokens and the tokens start:stop of each word, (W, 2)."""
        start, stop = words.T
        token = start[:, None] + torch.arange(int((stop - start).max()), device=words.device)
        inside, token = token < stop[:, None], token.clamp(max=len(states) - 1)
        weight = model.attention(states).float().squeeze(-1)[token].masked_fill(~inside, -torch.inf)
        mean = (weight.softmax(1)[..., None] * states[token]).sum(1)
        return cls(states[start], states[stop - 1], mean.to(states), weight.logsumexp(1))


class _Score(nn.Module):
    """The second layer of a network, with one output: (..., hidden) to (...,), in float32 even under autocast."""

    def __init__(self, hidden: int, dropout: float):
        super().__init__()
        self.dropout, self.layer = nn.Dropout(dropout), nn.Linear(hidden, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.dropout(hidden.relu())
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(hidden.float(), self.layer.weight.float(), self.layer.bias.float()).squeeze(-1)


def non_crossing(spans: Tensor, scores: Tensor, most: int) -> Tensor:
    """Choose up to `most` spans that do not cross, best scores first; return their numbers in the order of the text.

    spans (S, 2): start:stop. scores (S,). A span is left out if it crosses a better one: they share words, and each
    has words that the other lacks. Equal scores are chosen in the given order.
    """
    ends, order = spans.tolist(), scores.detach().float().argsort(descending=True, stable=True).tolist()
    farthest: dict[int, int] = {}  # start of chosen spans: stop of the longest
    earliest: dict[int, int] = {}  # stop of chosen spans: start of the longest
    chosen: list[int] = []
    for number in order:
        if len(chosen) == most:
            break
        start, stop = ends[number]
        if any(farthest.get(word, stop) > stop or earliest.get(word, start) < start for word in range(start + 1, stop)):
            continue
        chosen.append(number)
        farthest[start] = max(stop, farthest.get(start, stop))
        earliest[stop] = min(start, earliest.get(stop, start))
    return torch.tensor(sorted(chosen, key=lambda number: ends[number]), device=spans.device)


def _cluster_numbers(clusters: Clusters, n_words: int) -> dict[Mention, int]:
    """The cluster of each mention, counted from 1."""
    if not is_series(clusters):
        raise ReproError(f"clusters are {short(clusters, 60)}; give a list of clusters, each a list of words (start, "
                         "stop).")
    found: dict[Mention, int] = {}
    for number, cluster in enumerate(clusters):
        mentions = list(cluster) if is_series(cluster) else []
        if not mentions:
            raise ReproError(f"cluster {number} is {short(cluster, 60)}; give a list of at least one mention, or leave "
                             "the cluster out.")
        for mention in mentions:
            if not is_series(mention) or len(mention) != 2 or not all(
                    isinstance(end, Integral) and not isinstance(end, bool) for end in mention):
                raise ReproError(f"a mention in cluster {number} is {short(mention, 60)}; give two whole numbers, the "
                                 "words start:stop.")
            start, stop = mention = int(mention[0]), int(mention[1])
            if not 0 <= start < stop <= n_words:
                raise ReproError(f"a mention in cluster {number} is words {start}:{stop}; it must hold a word and stay "
                                 f"within the {n_words} words.")
            if mention in found:
                raise ReproError(f"the mention of words {start}:{stop} occurs twice, in clusters {found[mention] - 1} "
                                 f"and {number}; keep one of them.")
            found[mention] = number + 1
    return found


def _loss(output: CoreferenceOutput, right: dict[Mention, int]) -> Tensor:
    """The mean over kept spans of -log of the probability of any right antecedent, or of "none" if there is none."""
    scores = output.scores
    cluster = torch.tensor([right.get(mention, 0) for mention in output._mentions], device=scores.device)
    hits = (cluster[:, None] == cluster[output.antecedents]) & (cluster > 0)[:, None] & scores[:, 1:].isfinite()
    hits = torch.cat([~hits.any(1, keepdim=True), hits], 1)
    return (scores.logsumexp(1) - scores.masked_fill(~hits, -torch.inf).logsumexp(1)).mean()
