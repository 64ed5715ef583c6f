"""Beam search against trying every text, ROUGE-L and repetition by hand, log-likelihoods one summary at a time."""

import random
from itertools import product

import pytest
import torch
from rouge_score import rouge_scorer

from repro.attention import Causal, SlidingWindow
from repro.errors import ReproError
from repro.evaluation.summaries import (
    _OneText,
    beam_search,
    nats,
    oracle,
    padded,
    repetition,
    rouge,
    rouge_l,
    written,
)
from repro.models import (
    TDMCA,
    Decoder,
    DecoderConfig,
    EncoderDecoder,
    EncoderDecoderConfig,
    OneText,
    Pretrained,
    Seq2Seq,
    Seq2SeqConfig,
    TDMCAConfig,
)

END = 0


def language(seed, vocab=3, longest=4):
    """Log-probabilities of the next token after each prefix, drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    table = {prefix: torch.randn(vocab, generator=generator).mul(2).log_softmax(0)
             for n in range(longest) for prefix in product(range(vocab), repeat=n)}
    return lambda prefixes: torch.stack([table[tuple(row[1:].tolist())] for row in prefixes])


def every_text(follow, alpha, vocab=3, longest=4):
    """The best text of all, with its score."""
    found = []
    for n in range(longest + 1):
        for text in product(range(1, vocab), repeat=n):
            tokens = [*text, END][:longest]
            score = sum(float(follow(torch.tensor([[END, *tokens[:k]]]))[0, tokens[k]]) for k in range(len(tokens)))
            found.append((score / ((5 + len(tokens)) / 6)**alpha, list(text)))
    return max(found)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_the_best_text_of_all(alpha):
    lengths = set()
    for seed in range(12):
        follow = language(seed)
        best = every_text(follow, alpha)[1]
        assert beam_search(follow, END, END, 81, alpha, 4) == best, seed
        lengths.add(len(best))
    assert len(lengths) > 1


def test_a_beam_of_one_is_greedy():
    for seed in range(8):
        follow, text = language(seed), []
        for _ in range(4):
            token = int(follow(torch.tensor([[END, *text]]))[0].argmax())
            if token == END:
                break
            text.append(token)
        assert beam_search(follow, END, END, 1, 0.0, 4) == text


def test_rouge_and_repetition_by_hand():
    # longest common subsequence "the cat sat": 3 of 4 and 3 of 6 words; F1 = 2 * .75 * .5 / 1.25
    assert rouge_l("the cat sat down", "the big cat had sat there") == pytest.approx(0.6)
    assert rouge_l("Cats!", "cats") == 1 and rouge_l("a", "b") == rouge_l("", "b") == 0
    assert repetition("a b c a b c a".split()) == pytest.approx(2 / 5)
    assert repetition("a b".split()) == 0


def test_rouge_is_that_of_the_package():
    scorer = rouge_scorer.RougeScorer(["rougeL"])
    draw = random.Random(0)
    for _ in range(50):
        wanted, told = (" ".join(draw.choices("a b c dog's co-op 12 Z".split(), k=draw.randint(0, 12))) for _ in "12")
        assert rouge_l(wanted, told) == pytest.approx(scorer.score(wanted, told)["rougeL"].fmeasure)


def models():
    torch.manual_seed(0)
    yield OneText(TDMCA(TDMCAConfig(9, 8, 2, block=4)))
    yield EncoderDecoder(EncoderDecoderConfig(9, 8, 2, 2))
    yield Seq2Seq(Seq2SeqConfig(9, 8))


PAIRS = [([3, 4, 5, 6, 7], [1, 2]), ([2], [5, 5, 5, 1]), ([8, 7, 6], [])]


def test_likelihoods_are_those_of_one_summary_at_a_time():
    """Whatever else stands in the batch."""
    for model in models():
        model.double().eval()
        found = nats(model, PAIRS, END, 3)
        for (source, target), told in zip(PAIRS, found, strict=True):
            logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[END, *target]]))
            wanted = -logits[0].log_softmax(-1)[range(len(target) + 1), [*target, END]].sum()
            assert told == pytest.approx(wanted.item())


def test_a_written_summary_is_the_one_that_its_likelihood_says():
    for model in models():
        with torch.no_grad():
            getattr(model, "decoder", model).bias[0] += 2  # so that it ends sometime
        told = written(model.eval(), [3, 4, 5], END, 90, 0.0, 6)
        best = nats(model, [([3, 4, 5], told)], END)[0] if len(told) < 6 else None
        others = nats(model, [([3, 4, 5], [k]) for k in range(1, 9)] + [([3, 4, 5], [])], END)
        assert best is None or best <= others.min() + 1e-4


def decoders():
    """Each decoder that keeps what it has read, its weights drawn."""
    transformers = pytest.importorskip("transformers")
    sizes = transformers.GPT2Config(vocab_size=9, n_embd=8, n_layer=2, n_head=2, n_positions=40, bos_token_id=0,
                                    eos_token_id=0)
    for decoder in (
            TDMCA(TDMCAConfig(9, 8, 2, block=4, n_experts=3)), Decoder(DecoderConfig(9, 8, 2, (Causal(),) * 2)),
            Decoder(DecoderConfig(9, 8, 2, (SlidingWindow(3), Causal()), positions="absolute", details=("scaled",))),
            Pretrained(transformers.GPT2LMHeadModel(sizes))):
        for weight in decoder.parameters():
            weight.data.normal_(generator=torch.Generator().manual_seed(weight.numel()))
        yield decoder.double().eval()


def test_what_is_kept_of_beams_says_what_reading_all_again_says():
    """Beams change places, come twice and go; inputs end inside a block and a group, and at their ends."""
    draw = torch.Generator().manual_seed(0)
    for decoder in decoders():
        for n in (1, 3, 8):
            given, prefixes = torch.randint(9, (1, n), generator=draw), torch.tensor([[END]])
            with torch.no_grad():
                follow = _OneText(decoder, given)
                for _ in range(9):
                    told, k = follow(prefixes), len(prefixes)
                    wanted = OneText(decoder)(given.expand(k, -1), torch.full((k,), n), prefixes)[:, -1].log_softmax(-1)
                    torch.testing.assert_close(told, wanted.float())
                    rows = torch.randint(k, (4,), generator=draw)
                    prefixes = torch.cat([prefixes[rows], torch.randint(9, (4, 1), generator=draw)], 1)


def test_decoders_write_as_if_they_read_all_again():
    for decoder in decoders():
        given = torch.tensor([[3, 4, 5, 6, 7]])

        def follow(prefixes, model=OneText(decoder), given=given):  # noqa: B008
            many = given.expand(len(prefixes), -1), torch.full((len(prefixes),), 5), prefixes
            return model(*many)[:, -1].float().log_softmax(-1)

        with torch.no_grad():
            wanted = beam_search(follow, END, END, 4, 0.6, 12)
        assert written(OneText(decoder), given[0].tolist(), END, 4, 0.6, 12) == wanted


def test_padding_is_no_target():
    batch = padded(PAIRS, END)
    assert batch["ids"].tolist() == [[0, 1, 2, 0, 0], [0, 5, 5, 5, 1], [0, 0, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2, 0, -100, -100], [5, 5, 5, 1, 0], [0, -100, -100, -100, -100]]
    assert batch["source"].shape == (3, 5) and batch["lengths"].tolist() == [5, 1, 3]


def test_no_beam_is_refused():
    with pytest.raises(ReproError, match="size is 0; it must be a whole number"):
        beam_search(language(0), END, END, 0)


def test_a_summary_that_was_cut_has_no_end():
    pairs = [([3, 4], [5, 6, 7], False), ([3], [8], True), ([3], [8])]
    batch = padded(pairs, END)
    assert batch["labels"].tolist() == [[5, 6, 7, -100], [8, END, -100, -100], [8, END, -100, -100]]
    assert batch["ids"].tolist() == [[END, 5, 6, 7], [END, 8, 0, 0], [END, 8, 0, 0]]
    assert batch["id_lengths"].tolist() == [4, 2, 2]
    model = next(models()).eval()
    with torch.no_grad():
        logits = model(batch["source"], batch["lengths"], batch["ids"]).log_softmax(-1)
    wanted = [-sum(float(logits[k, i, token]) for i, token in enumerate(tokens))
              for k, tokens in enumerate(([5, 6, 7], [8, END], [8, END]))]
    assert nats(model, pairs, END) == pytest.approx(wanted, abs=1e-5)


def test_rouge_with_stemming_is_that_of_the_package_and_by_hand():
    found = rouge("The cats sat down", "a cat was sitting")
    assert found["rouge1"] == found["rougeL"] == pytest.approx(2 * 1 / (4 + 4)) and found["rouge2"] == 0
    scorer = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL", "rougeLsum"], use_stemmer=True)
    pair = "Dogs run fast.\nBirds fly.", "birds flying\na dog runs"
    assert rouge(*pair) == {name: one.fmeasure for name, one in scorer.score(*pair).items()}


def test_the_oracle_takes_what_raises_rouge_and_stops():
    texts = ["of the and", "red cats sleep", "big dogs run", "cats sleep"]
    assert oracle("red cats sleep and big dogs run", texts) == [1, 2]  # the last would repeat
    assert oracle("birds", texts) == [] and oracle("cats", []) == []
