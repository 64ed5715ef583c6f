"""Texts classified by their first token, from corpus to table and verdict, on a tiny base."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from repro.data import Corpus, Split, registry
from repro.data import example_readers as readers
from repro.data.examples import LabelledText
from repro.data.synthetic_documents import REVIEWS, SyntheticReviews
from repro.errors import ReproError
from repro.evaluation.classification import score
from repro.models.long_reader import Reader
from repro.papers.longformer2020.tasks import experiment as tasks
from repro.papers.longformer2020.tasks import frame, tables
from repro.papers.longformer2020.tasks.classification import FOLDS, HYPERPARTISAN, IMDB, fold, unseen
from repro.study import artifact, claim, experiment, run
from repro.study.settings import as_text
from repro.training import LengthBuckets

EXPERIMENT = experiment("longformer-tasks")
TINY = {"n_layer": 2, "n_embd": 16, "n_head": 2, "sequence": 32, "n_positions": 32, "batch_size": 4, "growing": [],
        "tokens": 1_000, "warmup_steps": 2, "validate_every": 1_000, "vocab_size": 300, "optimizer": "adamw"}


@pytest.mark.parametrize(("sets", "said"), [
    ({"window": 7}, "window is 7 keys; it must be even"), ({"max_positions": 32}, "the base already has 64"),
    ({"task": "imd"}, "task 'imd'"), ({"model": "long"}, "model 'long'"), ({"epochs": 0}, "epochs"),
])
def test_settings_that_cannot_be(sets, said):
    with pytest.raises(ReproError, match=said):
        EXPERIMENT.plan("smoke", sets)


def test_the_plan_of_pretrained():
    plan = [config for config in EXPERIMENT.plan("pretrained") if config.task in ("imdb", "hyperpartisan")]
    assert [(config.task, config.model) for config in plan] == [
        (task, model) for task in ("imdb", "hyperpartisan") for model in tables.MODELS]
    for config in plan:
        same = config.model_dump(exclude={"model"})
        assert same == plan[0 if config.task == "imdb" else 4].model_dump(exclude={"model"})
        told = EXPERIMENT.estimate(config)
        assert told.parameters > 22e6 and told.seconds > 0 and told.memory_bytes > 2**30
    flops = {config.model: EXPERIMENT.estimate(config).flops for config in plan if config.task == "hyperpartisan"}
    assert flops["longformer-cut"] < flops["longformer-short"] < flops["longformer"]


def test_no_text_is_trained_and_tested(monkeypatch):
    train, test = ([LabelledText(name, text, 0) for name, text in rows.items()] for rows in (
        {"a": "one  text\n", "b": "another", "c": "one text more"}, {"d": "one text"}))
    assert [row.id for row in unseen(train, test)] == ["b", "c"]
    splits = {"train": train, "validation": train[1:2], "test": test}
    corpora = {"fixed": SimpleNamespace(splits=splits, examples=splits.get),
               "in folds": SimpleNamespace(splits={"all": None}, examples=lambda split: [
                   LabelledText(str(k), "often" if k < 6 else f"text {k}", 0) for k in range(20)])}
    monkeypatch.setattr("repro.data.corpus", corpora.get)
    config = EXPERIMENT.plan("smoke", {"task": "imdb"})[0]
    rows = IMDB.rows(config.model_copy(update={"corpus": "fixed", "n_train": None}))
    assert {split: [row.id for row in some] for split, some in rows.items()} == {
        "train": ["b", "c"], "validation": ["b"], "test": ["d"]}
    sizes = []
    for seed in range(FOLDS):
        rows = HYPERPARTISAN.rows(config.model_copy(update={"corpus": "in folds", "n_train": None, "held_out": 2,
                                                            "seed": seed}))
        learned = {row.text for split in ("train", "validation") for row in rows[split]}
        assert not learned & {row.text for row in rows["test"]}
        sizes.append(len(rows["train"]) + len(rows["validation"]))
    assert sum(sizes) < FOLDS * 16  # a fold tests 4 texts, so two of them or more test a text that occurs 6 times


@pytest.fixture(scope="module")
def study(home):
    """The four models on a few short texts."""
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"train": 24, "validation": 8, "test": 12}
        patch.setitem(registry._BY_NAME, "tiny-reviews", Corpus(
            "tiny-reviews", "MIT", "embedded", {name: Split("", n_examples=n) for name, n in sizes.items()},
            readers.generated[LabelledText], generator=SyntheticReviews(n_words=20, far=12), labels=("no", "yes")))
        base, = frame.PRETRAINING.plan("smoke", {name: as_text(value) for name, value in TINY.items()})
        for module in (frame, tasks):
            patch.setattr(module, "base_of", lambda config: base)
        plans = importlib.import_module("repro.study.experiment")
        patch.setattr(plans, "_plan", plans._plan.__wrapped__)
        smoke = {"corpus": "tiny-reviews", "batch_size": 4, "epochs": 2, "max_positions": 128, "cut": 9,
                 "precision": "bf16"}
        patch.setitem(IMDB.scales, "smoke", IMDB.scales["smoke"] | smoke)
        plan = EXPERIMENT.plan("smoke", {"task": "imdb"})[:4]
        yield SimpleNamespace(plan=plan, folder=home / "results", found=[
            run(config, home / "results", progress=False) for config in plan])


def test_what_a_record_keeps(study):
    short, long, cut, as_short = study.found
    assert [one.model for one in study.found] == ["short", "longformer", "longformer-cut", "longformer-short"]
    for record in study.found:
        test = record.documents["test"]
        assert test["id"] == [f"test-{k}" for k in range(12)]
        assert record.metrics["test_accuracy"] == 100 * score(test["label"], test["prediction"], "accuracy")
        assert record.units["test_accuracy"] == "per cent" and record.units["test_nats"] == "nats per example"
        chosen = max(value for _, value in record.curves["validation_accuracy"])
        assert record.metrics["validation_accuracy"] == chosen and len(record.curves["validation_accuracy"]) == 2
        assert record.metrics["best_short"] == 50 < record.metrics["best"]
        share = (record.metrics["accuracy"] - 50) / (record.metrics["best"] - 50)
        assert record.metrics["share_recovered"] == pytest.approx(share)
        assert record.units["share_recovered"] == "of what long context can give"
    assert (short.metrics["tokens_read"], cut.metrics["tokens_read"]) == (32, 11)  # 9 of them, and two special ones
    assert as_short.metrics["tokens_read"] == 32 and as_short.metrics["parameters"] == long.metrics["parameters"]
    assert 40 < long.metrics["tokens_read"] < 128
    assert short.documents["test"]["label"] == cut.documents["test"]["label"]


def test_a_killed_training_ends_in_the_same_record(study, tmp_path, monkeypatch, killed_at):
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    assert killed_at(LengthBuckets, study.plan[1], 8, 12).digest == study.found[1].digest


def test_all_models_learn_from_the_same_texts_in_the_same_order(study, monkeypatch):
    orders = {}
    for config in study.plan:
        words = frame.words_of(config, IMDB)
        examples = frame.encoded(config, IMDB, IMDB.rows(config)["train"], words)
        lengths = [one.whole or len(one) for one in examples]
        batches = LengthBuckets(examples, lengths, lambda some: [one.row.id for one in some], 4, config.seed)
        orders[config.model] = [batches.batch(step) for step in range(6)]
    assert orders["short"] == orders["longformer"] == orders["longformer-cut"] == orders["longformer-short"]


def test_the_control_reads_the_tokens_of_the_short_models_first_piece(study):
    """Also a text that fits, and is not cut."""
    class Seen(torch.nn.Module):
        config = SimpleNamespace(pad_token_id=0)

        def encode(self, ids, mask, marks):
            self.ids = ids[mask.bool()].tolist()
            return torch.zeros(*ids.shape, 1)

    short, *_, as_short = study.plan
    words, rows = frame.words_of(short, IMDB), IMDB.rows(short)["train"]
    lengths = set()
    for row in (*rows[:3], LabelledText("fits", " ".join(rows[0].text.split()[:5]), 1)):
        read = []
        for config, piece in ((short, 32), (as_short, None)):
            encoder, examples = Seen(), frame.encoded(config, IMDB, [row], words)
            Reader(encoder, words.sep, piece, piece is not None)(frame.collate(IMDB, examples))
            read.append(encoder.ids)
        assert read[0] == read[1] and read[0][-1] == words.sep
        lengths.add(len(read[0]))
    assert len(lengths) == 2 and max(lengths) == 32


def test_only_tasks_with_one_piece_have_that_control():
    assert {config.task for config in EXPERIMENT.plan("pretrained") if config.model == "longformer-short"} == {
        "imdb", "hyperpartisan"}
    with pytest.raises(ReproError, match="unknown model 'longformer-short'"):
        EXPERIMENT.plan("pretrained", {"task": "coreference", "model": "longformer-short"})
    plan = {(config.task, config.model): config for config in EXPERIMENT.plan("pretrained")}
    given = plan["coreference", "longformer"].model_dump() | {"model": "longformer-short"}
    with pytest.raises(ValueError, match="on coreference the short model reads every piece of a text"):
        tasks.Config(**given)


def test_a_gain_is_compared_with_that_of_a_longformer_that_reads_as_little():
    """Accuracies of 80, 60 and 40: a gain of 40 points, of which the control has 20."""
    right = {"longformer": [1, 1, 1, 1, 0], "longformer-short": [1, 1, 1, 0, 0], "short": [1, 1, 0, 0, 0]}
    records = [scored("imdb", model, seed, [1] * 5, guessed) for seed in range(3) for model, guessed in right.items()]
    found = claim("longformer2020-imdb-above-short").measure(records)
    assert np.mean(found.effects) == pytest.approx(40) and np.mean(found.control) == pytest.approx(20)
    for task, controlled in (("imdb", True), ("hyperpartisan", True), ("coreference", False)):
        declared = claim(f"longformer2020-{task}-above-short")
        plan = [one.model for one in EXPERIMENT.plan("pretrained") if declared.where(one)]
        assert plan == ["short", "longformer", *["longformer-short"] * controlled]
        assert bool(declared.control) is controlled and bool(declared.why_no_control) is not controlled


def test_the_table_and_the_claim_show_them(study):
    table = artifact("longformer2020-table7").render("smoke", (), study.folder).table
    row, = (row for _, row in table.iterrows() if row["source"] == "this study, smoke: tiny-reviews")
    for name, record in zip(("short", "Longformer", "Longformer, text cut", "Longformer, cut like short"), study.found,
                            strict=True):
        assert row[name].startswith(f"{record.metrics['test_accuracy']:.1f} [")
    assert row["best possible"] == f"{study.found[0].metrics['best']:.1f}" and row["seeds"] == "1"
    assert row["recovered"] == f"{study.found[1].metrics['share_recovered']:.0%}"
    printed = {row["task"]: row["gain"] for _, row in table.iterrows() if row["source"] == "the paper"}
    assert printed == {"WikiHop": "+2.6", "TriviaQA": "+0.9", "HotpotQA": "+0.9", "OntoNotes": "+0.2", "IMDB": "+0.4",
                       "Hyperpartisan": "+7.4"}
    verdict = claim("longformer2020-imdb-above-short").verdict("smoke", study.folder)
    short, long, cut, as_short = (one.metrics["test_accuracy"] for one in study.found)
    assert verdict.verdict == "machinery works" and verdict.effect == pytest.approx(long - short)
    assert verdict.control == pytest.approx(as_short - short)
    assert tables.loss_from_cut(study.found) == pytest.approx(max(0, long - cut))
    assert claim("longformer2020-hyperpartisan-above-short").expected() == pytest.approx(7.4)


def test_gains_need_the_same_texts_in_the_same_order():
    ours, theirs = (scored("imdb", model, 1, [1, 0], [1, 1]) for model in ("longformer", "short"))
    for one, ids in ((ours, ["a", "b"]), (theirs, ["b", "a"])):
        one.documents["test"]["id"], one.id = ids, "".join(ids)
    with pytest.raises(ReproError, match="records ab, ba scored different texts"):
        tables.same_texts(IMDB, [ours], [theirs])
    theirs.documents["test"]["id"] = ["a", "b"]
    assert tables.same_texts(IMDB, [ours], [theirs]) == [[ours], [theirs]]
    assert tables.same_texts(IMDB, [ours], []) == [[], []]


def test_what_the_beginning_alone_loses_is_measured_at_common_seeds():
    right = {("longformer", 0): [1, 1], ("longformer", 1): [1, 0], ("longformer-cut", 1): [0, 0]}
    records = [scored("imdb", model, seed, [1, 1], guessed) for (model, seed), guessed in right.items()]
    assert tables.loss_from_cut(records) == pytest.approx(50)
    assert tables.loss_from_cut(records[:1]) is None


def test_five_folds_test_every_article_once_whatever_their_order():
    rows = [LabelledText(f"article {k}", "text", k % 2) for k in range(645)]
    parts = [fold(rows, seed) for seed in range(FOLDS)]
    assert sorted(row.id for part in parts for row in part["test"]) == sorted(row.id for row in rows)
    for part in parts:
        assert len(part["test"]) == 129 and len(part["train"]) == 516
        assert not {row.id for row in part["test"]} & {row.id for row in part["train"]}
    again = fold(rows[::-1], 3)
    assert [row.id for row in again["test"]] == [row.id for row in parts[3]["test"]]
    assert fold(rows, 0)["test"][:9] != rows[:9], "they are shuffled"


def test_the_f1_of_all_folds_is_that_of_all_articles_together():
    draw = np.random.default_rng(0)
    labels, predictions = draw.integers(0, 2, (2, 5, 129))
    records = [SimpleNamespace(documents={"test": {"label": label.tolist(), "prediction": told.tolist()}})
               for label, told in zip(labels, predictions, strict=True)]
    assert HYPERPARTISAN.values(records).shape == (5, 129)
    assert HYPERPARTISAN.values(records).mean() == pytest.approx(
        100 * score(labels.ravel().tolist(), predictions.ravel().tolist(), "f1"))
    assert IMDB.values(records).mean() == pytest.approx(100 * (labels == predictions).mean())


def scored(task, model, seed, labels, predictions):
    return SimpleNamespace(config={"task": task, "model": model, "seed": seed}, seed=seed, documents={"test": {
        "label": labels, "prediction": predictions}})


def gains(articles, reviews, seeds):
    """Records of seeds: for each task, labels and the predictions of both models; and of the control, by default as the
    short model's."""
    return [scored(task, model, seed, labels, predictions) for seed in range(seeds)
            for task, (labels, long, short, *control) in (("hyperpartisan", articles), ("imdb", reviews))
            for model, predictions in (("longformer", long), ("short", short),
                                       ("longformer-short", [*control, short][0]))]


MORE = "longformer2020-long-tasks-gain-more"


def test_the_gain_on_long_articles_is_compared_with_that_on_reviews():
    """F1 of 100 and 66.7 on Hyperpartisan, accuracy of 80 and 60 on IMDB."""
    articles, reviews = ([1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]), ([1] * 5, [1, 1, 1, 1, 0], [1, 1, 1, 0, 0])
    declared = claim(MORE)
    found = declared.measure(gains(articles, reviews, 2))
    assert np.shape(found.effects) == (2, 4 + 5)
    assert np.mean(found.effects) == pytest.approx(100 / 3 - 20)
    assert found.note == "gains: hyperpartisan +33.3, imdb +20.0"
    # Accuracy gains 0, 0, 0, 100 and 0 in five reviews of nine documents, so each deviation counts 9 / 5 times.
    assert found.effects[0, 4:] == pytest.approx(100 / 3 - 20 - 9 / 5 * np.array([-20, -20, -20, 80, -20]))
    assert declared.expected() == pytest.approx(7.4 - 0.4)
    plan = EXPERIMENT.plan("pretrained")
    assert {(one.task, one.model) for one in plan if declared.where(one)} == {
        (task, model) for task in ("hyperpartisan", "imdb") for model in ("short", "longformer", "longformer-short")}
    assert not np.any(found.control)
    controlled = declared.measure(gains((*articles, [1, 1, 1, 0]), (*reviews, [1, 1, 1, 0, 0]), 2))
    assert np.mean(controlled.control) == pytest.approx(80 - 100 * 2 / 3) and np.shape(controlled.control) == (2, 9)
    assert np.mean(controlled.effects) == pytest.approx(np.mean(found.effects))
    assert {one.model for one in plan if declared.assay.where(one)} == {"longformer", "longformer-cut"}
    assert not any(map(declared.where, EXPERIMENT.plan("smoke")))  # no articles are generated
    assert declared.verdict("pretrained", "nowhere").verdict == "not run"


def test_a_smaller_gain_on_long_articles_is_not_reproduced_and_all_folds_count():
    """F1 rises from 99.8 to 100 on articles, accuracy from 96 to 100 on reviews."""
    labels, reviews = [1] * 100 + [0] * 29, [1] * 100
    articles = labels, labels, [0] + labels[1:]
    small = gains(articles, (reviews, reviews, [0] * 4 + [1] * 96), FOLDS)
    assert claim(MORE).judge(small).verdict == "not reproduced"
    large = gains((labels, labels, [0] * 50 + labels[50:]), (reviews, reviews, reviews), FOLDS)
    assert claim(MORE).judge(large).verdict == "reproduced"
    assert claim(MORE).judge([one for one in large if one.config["seed"] < 4]).because[0] == "4 of 5 seeds"


def test_most_of_five_words_in_the_second_half_decide_a_generated_review():
    cues = set(sum(REVIEWS.cues, ()))
    for index in range(40):
        words = REVIEWS.example("train", index).text.split()
        assert len(words) == 128
        assert [place >= 64 for place, word in enumerate(words) if word in cues] == [True] * 5
    rows = [REVIEWS.example("test", index) for index in range(400)]
    assert 0.99 < np.mean(REVIEWS.best_hits(rows)) <= 1  # at most two of five are wrong in 99.9% of texts
    assert set(REVIEWS.best_hits(rows, 64)) == {0.5}
    assert cues <= set(REVIEWS.lexicon())


@pytest.mark.parametrize(("n_train", "given"), [(7, 7), (None, 1_200), (5_000, 1_200)])
def test_so_many_reviews_are_for_training(n_train, given):
    config, = EXPERIMENT.plan("smoke", {"task": "imdb", "model": "short"})
    rows = IMDB.rows(config.model_copy(update={"corpus": "synthetic-reviews", "n_train": n_train}))
    assert len({row.id for row in rows["train"]}) == given and len(rows["test"]) == 200
