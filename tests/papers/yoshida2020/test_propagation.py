"""The experiment on the embedded books with tiny untrained models: what its record holds, and what it refuses."""

from types import SimpleNamespace

import numpy as np
import pytest

from repro.errors import ReproError
from repro.study import experiment
from repro.study.progress import Progress
from repro.study.settings import canonical

SETS = {"contexts": 40, "topic_books": 20, "topic_piece": 200, "topic_passes": 1, "windows_back": 3, "reach_texts": 12,
        "reach_changes": 2, "examples": 3}
CONFIG = experiment("propagation-pg19").plan("smoke", SETS)[0]


@pytest.fixture(scope="module")
def context(tmp_path_factory, shake):
    """A run's context whose two fine-tuned models are untrained ones, and `folder / "model"` of each."""
    import torch

    from repro.data import tokeniser
    from repro.models import gpt2_mini, save_causal_lm
    from repro.recurrence import RecurrenceConfig, RecurrentLM

    coder = tokeniser("word", corpus="synthetic-books")
    torch.manual_seed(0)
    baseline = gpt2_mini(3, 16, 2, coder.vocab_size, 64)
    models = {"baseline": baseline, "recurrent": RecurrentLM(baseline.config, RecurrenceConfig(1, 12, 2))}
    folders = {}
    for name, model in models.items():
        folders[name] = tmp_path_factory.mktemp(name)
        save_causal_lm(shake(model), folders[name] / "model")
    return SimpleNamespace(folder=None, progress=Progress(False), need=lambda run: (
        SimpleNamespace(id=f"{run.model}-{run.overlap}-{run.window}"), folders[run.model]))


@pytest.fixture(scope="module")
def outcome(context, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_WORK", str(tmp_path_factory.mktemp("work")))
        yield experiment("propagation-pg19").execute(CONFIG, context)


def test_at_pretrained_it_needs_gemma_with_and_without_the_normalized_module():
    from repro.papers.yoshida2020.perplexity import gemma
    from repro.papers.yoshida2020.perplexity.evaluation import trained

    ran = experiment("recurrence-gemma").plan("pretrained", None, [2])
    for config in experiment("propagation-pg19").plan("pretrained", None, [2]):
        assert experiment("propagation-pg19").needs(config) == [
            next(trained(run) for run in ran if gemma.place(run) == (model, True, 0))
            for model in ("baseline", "recurrent")]


@pytest.fixture(scope="module")
def from_gemma(tmp_path_factory):
    """An outcome at `pretrained`, of tiny random Gemmas on the embedded books, and the Gemma with a module."""
    import tiny_gemma

    from repro.data import tokeniser
    from repro.models import load_causal_lm, save_causal_lm
    from repro.papers.yoshida2020.propagation import experiment as module
    from repro.recurrence import RecurrenceConfig

    coder, folder = tokeniser("word", corpus="synthetic-books"), tmp_path_factory.mktemp("gemma")
    base = tiny_gemma.model(coder.vocab_size)
    base.config.opening_token = coder.bos
    base.save_pretrained(folder / "baseline" / "model")
    settings = RecurrenceConfig(1, 12, 2, zero_init=True, residual=True, normalize=True)
    recurrent = load_causal_lm(folder / "baseline" / "model", settings)
    save_causal_lm(recurrent, folder / "recurrent" / "model")
    sets = SETS | {"corpus": "synthetic-books", "reach_texts": 0, "continuation": 8}
    this = SimpleNamespace(folder=None, progress=Progress(False), need=lambda run: (
        SimpleNamespace(id=run.model), folder / run.model))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_WORK", str(tmp_path_factory.mktemp("work")))
        patch.setattr(module, "tokeniser_of", lambda config: coder)
        patch.setattr(module, "gained", lambda *args: {})  # real books have no bounds
        patch.setattr("repro.models.vocabulary.covers", lambda *text: True)  # tiny Gemma has all tokens of these books
        config = experiment("propagation-pg19").plan("pretrained", sets)[0]
        outcome = experiment("propagation-pg19").execute(config, this)
    return outcome, base, recurrent


def test_gemma_opens_the_context_and_the_continuation(from_gemma):
    """The baseline and the module read <bos> before the one token, the module also the window before."""
    import torch

    from repro.data import tokeniser

    outcome, base, recurrent = from_gemma
    coder = tokeniser("word", corpus="synthetic-books")
    one = outcome.notes["examples"][1]
    context, first = (torch.from_numpy(coder.encode(one[name])).long()[None] for name in ("context", "first"))
    assert context.shape == (1, 64) and first.shape == (1, 1)
    ids = torch.cat([torch.full((1, 1), coder.bos), first], 1)
    text = torch.cat([context, first], 1)
    with torch.no_grad():
        for _ in range(8):
            ids = torch.cat([ids, base(ids, use_cache=False).logits[:, -1:].argmax(-1)], 1)
            text = torch.cat([text, recurrent(text, window=64).logits[:, -1:].argmax(-1)], 1)
    written = one["continuations"]
    assert written["baseline"] == written["masked"] == coder.decode(ids[0, 2:].numpy())  # the module starts at zero
    assert written["recurrent"] == coder.decode(text[0, 65:].numpy()) != written["baseline"]


def test_gemma_leaves_out_how_far_back_it_reaches(from_gemma):
    outcome = from_gemma[0]
    assert not {"reach", "distance"} & set(outcome.documents)
    assert all(len(outcome.documents[writer]["jsd own"]) == 40 for writer in ("baseline", "recurrent", "masked"))
    assert outcome.notes["trained_by"] == {"baseline": "baseline", "recurrent": "recurrent"}


def test_it_needs_both_models_trained_without_overlap_on_its_window():
    for config in (CONFIG, CONFIG.model_copy(update={"window": 20, "seed": 3})):
        needs = experiment("propagation-pg19").needs(config)
        assert [(run.model, run.overlap, run.window, run.seed, run.scale) for run in needs] == [
            (name, 0, config.window, config.seed, "smoke") for name in ("baseline", "recurrent")]


def test_what_is_counted_adds_up_to_the_corpus(outcome):
    notes = outcome.notes
    assert notes["books"] == {"read": 6, "too short for a context": []}
    assert notes["tokens"] == {"in contexts": 40 * 30, "in the books": 6 * 2500}
    assert notes["topic_books"] == 20 and len(notes["topics"]) == 20
    assert notes["trained_by"] == {"baseline": "baseline-0-30", "recurrent": "recurrent-0-30"}


def test_every_context_has_a_divergence_of_every_writer(outcome):
    documents = outcome.documents
    books = documents["contexts"]["book"]
    assert len(books) == 40 and books == sorted(books) and set(books) <= set(range(6))
    for writer in ("baseline", "recurrent", "masked", "book"):
        own, other = (np.array(documents[writer][f"jsd {against}"]) for against in ("own", "other"))
        assert own.shape == other.shape == (40,) and (own >= 0).all() and (other <= 0.6932).all()
        assert outcome.metrics[f"jsd_{writer}"] == pytest.approx(own.mean())
        assert outcome.metrics[f"jsd_{writer}_other_book"] == pytest.approx(other.mean())
        for measure in ("names", "pronouns"):
            kept, n = np.array(documents[writer][f"{measure} own"]).T
            assert len(n) == len(set(books)) and (kept <= n).all()
    assert outcome.metrics["jsd_book"] + 0.2 < outcome.metrics["jsd_book_other_book"]  # the books keep their topics
    names, other = (np.sum(documents["book"][f"names {against}"], 0) for against in ("own", "other"))
    assert names[0] / names[1] > 2 * other[0] / other[1]
    assert names[1] == other[1]


def test_divergences_belong_to_their_context_and_their_partner(outcome):
    from repro.data import corpus, tokeniser, tokens
    from repro.evaluation.continuations import sample_passages
    from repro.evaluation.topics import fit_topics, from_other_books, jensen_shannon

    coder = tokeniser("word", corpus="synthetic-books")
    passages = sample_passages(tokens("synthetic-books", "validation", coder), 30, 31, 40, 0)
    texts = [book.text for book in corpus("synthetic-books").documents("train", 20)]
    topics = fit_topics(texts, 20, 200)
    contexts = [coder.decode(row[:30]) for row in passages.ids]
    written = topics.distributions([coder.decode(row[31:]) for row in passages.ids])
    partner = from_other_books(passages.books)
    for against, chosen in (("own", range(40)), ("other", partner)):
        expected = jensen_shannon(topics.distributions([contexts[i] for i in chosen]), written)
        np.testing.assert_allclose(outcome.documents["book"][f"jsd {against}"], expected, atol=1e-6)


def test_examples_are_whole(outcome):
    assert len(outcome.notes["examples"]) == 3
    for one in outcome.notes["examples"]:
        assert len(one["context"].split()) == 30 and len(one["first"].split()) == 1
        assert {name: len(text.split()) for name, text in one["continuations"].items()} == dict.fromkeys(
            ("book", "baseline", "recurrent", "masked"), 30)
        together = " ".join([one["context"], one["first"], *one["continuations"].values()]).split()
        assert set(one["names"]) <= set(together) and set(one["topic_words"]) <= set(together)
        assert all(name.istitle() for name in one["names"]) and all(word.islower() for word in one["topic_words"])


def test_loss_depends_on_earlier_windows_only_with_recurrence(outcome):
    found = outcome.documents["reach"]
    changes = {name: np.array(rows) for name, rows in found.items() if name != "book"}
    assert all(rows.shape == (3, 12) for rows in changes.values()) and len(found["book"]) == 12
    assert not changes["baseline absolute"].any() and not changes["overlap absolute"][1:].any()
    assert (changes["overlap absolute"][0] > 0).all() and (changes["recurrent absolute"][0] > 0).all()
    assert (abs(changes["recurrent signed"]) <= changes["recurrent absolute"] + 1e-12).all()


def test_loss_depends_on_a_token_far_back_only_with_recurrence(outcome):
    found = outcome.documents["distance"]
    assert found["tokens back"] == [(1, 1), (2, 3), (4, 7), (8, 15), (16, 30), (31, 60)]
    changes = {name: np.array(rows) for name, rows in found.items() if name not in ("book", "tokens back")}
    assert all(rows.shape == (6, 12) for rows in changes.values()) and len(found["book"]) == 12
    for reader in ("baseline", "overlap"):  # their windows end after 30 tokens
        assert changes[f"{reader} absolute"][:4].any(1).all() and not changes[f"{reader} absolute"][5].any()
    assert (changes["recurrent absolute"] > 0).all()
    assert (abs(changes["recurrent signed"]) <= changes["recurrent absolute"] + 1e-12).all()


def test_the_known_gain_adds_up_over_kinds_to_the_losses_of_the_books(outcome, context):
    from repro.data import corpus, tokeniser, tokens
    from repro.data.synthetic import bounds
    from repro.evaluation import score_documents
    from repro.models import load_causal_lm

    found = outcome.documents["known_gain"]
    totals = {reader: np.sum([kinds[kind] for kind in kinds], 0) for reader, kinds in found.items()}
    best = bounds(corpus("synthetic-books").documents("test"), 30, 0)
    assert sum(totals["window"]) == pytest.approx(best.window_nll.sum())
    assert sum(found["unlimited"]["name"]) == pytest.approx(best.by_kind["name"]["unlimited"])
    text = tokens("synthetic-books", "test", tokeniser("word", corpus="synthetic-books"))
    _, nll = score_documents(load_causal_lm(context.need(SimpleNamespace(model="recurrent", overlap=0, window=30))[1]
                                            / "model"), text, 30, 0)
    np.testing.assert_allclose(totals["recurrent"], nll, rtol=1e-6)
    assert abs(totals["masked"] - totals["recurrent"]).max() > 1


def test_it_runs_again_to_the_same_bit(outcome, context):
    again = experiment("propagation-pg19").execute(CONFIG, context)
    assert canonical(again.__dict__) == canonical(outcome.__dict__)


@pytest.mark.parametrize(("sets", "words"), [
    ({"continuation": 31}, "continuation is 31 tokens; it must fit the window"),
    ({"reach_overlap": 30}, "reach_overlap is 30"), ({"contexts": 5}, "examples is 12; there are only 5"),
    ({"reach_texts": 1}, "use 2 or more, or 0"), ({"topics": 1}, "topics is 1"),
    ({"window": 1}, "window is 1"), ({"corpus": "pg20"}, "pg19")])
def test_settings_that_do_not_fit_are_refused_before_anything_runs(sets, words):
    with pytest.raises(ReproError, match=words):
        experiment("propagation-pg19").plan("smoke", sets)


def test_too_many_contexts_and_topics_of_nothing_are_refused(context):
    this = experiment("propagation-pg19")
    for sets, words in (({"contexts": 1000}, "only 492"), ({"topic_books": 3, "topic_piece": 2500}, "no words left")):
        with pytest.raises(ReproError, match=words):
            this.execute(this.plan("smoke", SETS | sets)[0], context)


@pytest.mark.parametrize("scale", ["smoke", "small", "pretrained", "medium", "paper"])
def test_every_scale_can_be_estimated(scale):
    config = experiment("propagation-pg19").plan(scale)[0]
    estimate = experiment("propagation-pg19").estimate(config)
    assert estimate.training_tokens == 0 and estimate.flops > 0 and 0 < estimate.seconds < 3600
    assert estimate.parameters > 100_000


def test_paper_asks_for_what_the_paper_did():
    config = experiment("propagation-pg19").plan("paper")[0]
    assert (config.window, config.continuation, config.contexts) == (300, 30, 8000)
    assert (config.corpus, config.topics, config.topic_books) == ("pg19", 20, 5000)
