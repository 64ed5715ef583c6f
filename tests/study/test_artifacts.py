"""Artifacts: records beside printed values, and an honest caption."""

from types import SimpleNamespace

import pytest

from repro.errors import ReproError
from repro.markup import signed
from repro.pages.listing import standing
from repro.study import ADDED, Artifact, Claim, Experiment, Measured, artifact, claim, register, run
from repro.study.artifacts import ArtifactContext, paired, same_seeds
from repro.study.registry import lookup


def build(context):
    import pandas

    rows = []
    for overlap in (0, 5):
        row = {"overlap": overlap, "paper": "<30.40>"}
        for scale in context.scales:
            for model in ("baseline", "recurrent"):
                row[f"{scale} {model}"] = context.value("test_word_perplexity", scale=scale, model=model,
                                                        overlap=overlap)
        rows.append(row)
    return pandas.DataFrame(rows)


def figure(context):
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(1, 1))
    drawn.subplots().plot([record.metrics["test_word_perplexity"] for record in context.records()])
    return drawn


@pytest.fixture
def table(toy):
    declared = [Artifact(f"toy-{kind}", "toy2020", "Toy <values>", "06_toy", "toy-recurrence", how, source, kind)
                for kind, how, source in [("table", build, "Table 1"), ("figure", figure, "Figure 1")]]
    register(*declared)
    return declared[0]


def test_cells_without_records_say_not_run_and_the_caption_names_the_command(table):
    shown = artifact("toy-table").render()
    assert shown.table.iloc[:, 2:].to_numpy().tolist() == 2 * [4 * ["not run"]]
    assert shown.caption == ("Table 1 of toy2020: Toy <values>.\n"
                             "smoke: all not run: `repro run toy-recurrence --scale smoke`.\n"
                             "small: all not run: `repro run toy-recurrence --scale small`.")


def test_cells_hold_the_mean_over_seeds(table, toy):
    ids = []
    for seed in (0, 1):
        for config in toy.experiment.plan("smoke", seeds=(seed,)):
            ids.append(run(config, progress=False).id)
    shown = table.render(also=())
    # 30 - overlap / 10 - (model == "recurrent") + seed / 4, averaged over seeds 0 and 1
    assert list(shown.table["smoke baseline"]) == ["30.12", "29.62"]
    assert list(shown.table["smoke recurrent"]) == ["29.12", "28.62"]
    line = shown.caption.splitlines()[1]
    assert line.startswith("smoke: toy-text (part of toy: 1 of 9 texts); 2 seeds; records ")
    assert sorted(line.removesuffix(".").partition("records ")[2].split(", ")) == sorted(ids)
    run(toy.experiment.plan("smoke", seeds=(2,))[0], progress=False)
    assert "; 2 to 3 seeds; records " in table.render(also=()).caption


def test_seeds_that_all_groups_have_are_kept():
    def group(*seeds):
        return [SimpleNamespace(seed=seed) for seed in seeds]

    def kept(*groups):
        return [[record.seed for record in group] for group in same_seeds(groups)]

    assert kept(group(0, 1, 2, 3), group(3, 2, 1), group()) == [[1, 2, 3], [3, 2, 1], []]
    assert kept(group(0, 1), group(1), group()) == [[1], [1], []]
    assert kept(group(0, 1), group(5), group()) == [[0, 1], [5], []], "no seed is common: as they are"
    assert kept(group(0, 1, 2), group(2, 3), group(7)) == [[0, 1, 2], [2], [7]], "fewer than three take none away"
    assert kept() == [] and kept(group()) == [[]]


def test_paired_records_have_the_same_seeds_in_the_same_order():
    """Also if one group has enough seeds for a verdict and the other does not, where `same_seeds` leaves them apart."""
    def group(*seeds):
        return [SimpleNamespace(seed=seed) for seed in seeds]

    def kept(*groups):
        return [[record.seed for record in group] for group in paired(*groups)]

    assert kept(group(0, 1, 2), group(2, 1)) == [[1, 2], [1, 2]]
    assert kept(group(3, 0, 1), group(1, 2, 3), group(3)) == [[3], [3], [3]]
    assert kept(group(0), group(1)) == kept(group(0), group()) == [[], []]


def test_a_caption_counts_and_names_only_the_records_of_common_seeds(table, toy):
    base, ours, *_ = toy.experiment.plan("smoke")
    for config, seeds in ((base, range(4)), (ours, range(3))):
        for seed in seeds:
            run(config.model_copy(update={"seed": seed}), progress=False)
    context = ArtifactContext(table, ("smoke",))
    shown = context.at_common_seeds([base, ours])
    assert [[record.seed for record in some] for some in shown] == [[0, 1, 2], [0, 1, 2]]
    assert "; 3 seeds; records " in context.caption()
    assert sorted(context.used) == sorted(record.id for some in shown for record in some)


def test_one_missing_run_is_named_by_its_own_command(table, toy):
    configs = toy.experiment.plan("small")
    for config in configs[:3]:
        run(config, progress=False)
    shown = table.render("small", results=None)
    assert list(shown.table["small recurrent"]) == ["29.00", "not run"]
    assert shown.caption.endswith("; 1 run not run: `repro run toy-recurrence --scale small --set model=recurrent "
                                  "--set overlap=5`.")
    run(configs[3], progress=False)
    assert list(table.render("small").table["small recurrent"]) == ["29.00", "28.50"]


def test_records_lie_in_the_folder_that_was_asked_for(table, toy, tmp_path):
    run(toy.experiment.plan("smoke")[0], results=tmp_path / "mine", progress=False)
    assert "not run" not in table.render(also=(), results=tmp_path / "mine").table["smoke baseline"][0]
    assert table.render(also=()).table["smoke baseline"][0] == "not run"
    assert f"--results {tmp_path / 'mine'}`" in table.render(also=(), results=tmp_path / "mine").caption


def test_sets_change_the_plan_of_the_scale_asked_for(toy):
    import pandas

    asked = []

    def overlaps(context):
        asked.append({scale: [config.overlap for config in context.plan(scale)] for scale in context.scales})
        context.records()
        return pandas.DataFrame()

    register(Artifact("toy-sets", "toy2020", "Sets", "06_toy", "toy-recurrence", overlaps, "Table 2"))
    shown = artifact("toy-sets").render(sets={"overlap": [7, 9], "model": "baseline"})
    assert asked == [{"smoke": [7, 9], "small": [0, 5, 0, 5]}]
    assert "`repro run toy-recurrence --scale smoke --set overlap=7,9 --set model=baseline`" in shown.caption


@pytest.mark.parametrize(("ask", "words"), [
    (lambda c: c.value("test_word_perplexity", model="baseline"), "matches 2 configs of the plan"),
    (lambda c: c.value("test_word_perplexty", model="baseline", overlap=0), "Did you mean 'test_word_perplexity'"),
    (lambda c: c.records(overlop=0), "unknown key of toy-recurrence 'overlop'. Did you mean 'overlap'"),
])
def test_questions_that_have_no_one_answer_are_refused(toy, ask, words):
    run(toy.experiment.plan("smoke")[0], progress=False)
    register(Artifact("toy-bad", "toy2020", "Bad", "06_toy", "toy-recurrence", ask, "Table 3"))
    with pytest.raises(ReproError, match=words):
        artifact("toy-bad").render()


def test_unknown_artifacts_and_scales_suggest_the_nearest(table):
    with pytest.raises(ReproError, match="unknown artifact 'toy-tabel'. Did you mean 'toy-table'"):
        lookup(Artifact, "toy-tabel")
    with pytest.raises(ReproError, match="unknown scale 'smal'. Did you mean 'small'"):
        table.render("smal")
    with pytest.raises(ReproError, match="unknown scale of toy-recurrence 'paper'"):
        table.render("paper")
    assert list(table.render("smoke", also=("paper", "smoke")).table.columns) == [
        "overlap", "paper", "smoke baseline", "smoke recurrent"]


def test_a_notebook_shows_the_table_with_its_caption_escaped_and_always_alike(table):
    page = table.render()._repr_html_()
    assert "Toy &lt;values&gt;" in page
    assert "<code>repro run toy-recurrence --scale smoke</code>" in page
    assert page.count(">not run</span></td>") == 8
    assert "<td>&lt;30.40&gt;</td>" in page
    assert page == table.render()._repr_html_()
    assert '<table id="toy-table"><thead><tr>' in page


def test_a_notebook_names_the_records_behind_a_table_and_folds_their_ids(table, toy):
    ids = [run(config, progress=False).id for config in toy.experiment.plan("smoke")[:2]]
    page = table.render()._repr_html_()
    assert "1 seed; 2 runs not run: <code>repro run toy-recurrence --scale smoke</code>." \
           f"<details><summary>records</summary>{ids[0]}, {ids[1]}</details></div>" in page
    assert f"records {ids[0]}, {ids[1]}" in table.render().caption


def test_a_terminal_shows_the_table_and_its_caption(table):
    from rich.console import Console

    console = Console(width=120, record=True, file=open("/dev/null", "w"))
    console.print(table.render())
    text = console.export_text()
    assert text.count("not run") == 10
    assert "repro run toy-recurrence --scale smoke." in text


def test_a_figure_is_a_picture_with_a_caption(table, toy):
    run(toy.experiment.plan("smoke")[0], progress=False)
    shown = artifact("toy-figure").render()
    assert shown.png().startswith(b"\x89PNG")
    assert shown.png() == artifact("toy-figure").render().png()
    page = shown._repr_html_()
    assert page == artifact("toy-figure").render()._repr_html_()
    assert 'role="img" aria-label="Toy &lt;values&gt;" viewBox=' in page and "<text " in page and "<img" not in page
    assert "3 runs not run: <code>repro run toy-recurrence --scale smoke</code>" in page
    with pytest.raises(ReproError, match="toy-figure is a figure"):
        shown.table  # noqa: B018


def test_a_named_index_becomes_the_first_column(toy):
    import pandas

    register(Artifact("toy-index", "toy2020", "Index", "06_toy", "toy-recurrence",
                      lambda context: pandas.DataFrame({"x": [1]}, index=pandas.Index(["a"], name="what")), "Table 4"))
    assert artifact("toy-index").render().table.to_dict("records") == [{"what": "a", "x": 1}]


@pytest.mark.parametrize(("value", "style", "text"), [
    (0.0123, ".2%", "+1.23%"), (-0.0123, ".1%", "-1.2%"), (-0.00004, ".2%", "0.00%"), (0.00004, ".2%", "0.00%"),
    (-0.00005001, ".2%", "-0.01%"), (-1e-9, ".3f", "0.000"), (0.0, ".3g", "0"), (-1e-9, ".3g", "-1e-09")])
def test_what_rounds_to_nothing_has_no_sign(value, style, text):
    assert signed(value, style) == text


@pytest.fixture
def both(toy):
    """An artifact that rests on two experiments, and the claim about it."""
    import pandas

    def cells(context):
        return pandas.DataFrame([{
            "loss of the base": context.value("loss", experiment="toy-base"),
            "of its width": context.value("loss", width=8),
            **{f"overlap {overlap}": context.value("test_word_perplexity", model="recurrent", overlap=overlap)
               for overlap in (0, 5)},
            "of a limit that none has": len(context.plan(limit=None)),
            "of all": len(context.records())}])

    def count(records):
        return Measured([[len({record.experiment for record in records})]], note=f"{len(records)} records")

    register(Artifact("toy-both", "toy2020", "Both", "06_toy", ("toy-base", "toy-recurrence"), cells, "Table 5"),
             Claim(id="toy-both-count", paper="toy2020", sentence="There are two.", source="Table 5",
                   experiment=("toy-base", "toy-recurrence"), measure=count, direction="higher", unit="exact",
                   why_no_paper_effect="a toy", means_at=("smoke",),
                   where=lambda config: getattr(config, "model", "baseline") == "baseline", about=("toy-both",)))
    return artifact("toy-both")


def test_an_artifact_may_rest_on_several_experiments(both, toy):
    assert both.scales == ("smoke", "small")
    assert both.plan("smoke") == [*toy.base.plan("smoke"), *toy.experiment.plan("smoke")]
    empty = both.render(also=())
    assert empty.table.loc[0].tolist() == 4 * ["not run"] + [0, 0]
    assert empty.caption.splitlines()[1] == ("smoke: all not run: `repro run toy-base --scale smoke`, "
                                             "`repro run toy-recurrence --scale smoke`.")
    needed = toy.experiment.plan("smoke")[3]
    ids = [run(config, progress=False).id for config in (toy.base.plan("smoke")[0], needed)]
    shown = both.render(also=())
    # 30 - 5 / 10 - 1; the base has no limit, so it is not among those whose limit is None
    assert shown.table.loc[0].tolist() == ["3.00", "3.00", "not run", "28.50", 0, 2]
    assert shown.caption.splitlines()[1] == (
        f"smoke: toy-books, toy-text (part of toy: 1 of 9 texts); 1 seed; records {', '.join(ids)}; "
        "3 runs not run: `repro run toy-recurrence --scale smoke`.")


def test_only_the_scales_and_keys_of_its_experiments_count(both, toy):
    third = Experiment("toy-third", "toy2020", "Only small.", toy.base.config,
                       {"small": {"corpus": "toy-books"}}, toy.execute_base, toy.base.estimate)
    register(third, Artifact("toy-three", "toy2020", "Three", "06_toy", ("toy-base", "toy-third"),
                             lambda context: None, "Table 6"))
    assert artifact("toy-three").scales == ("small",)
    with pytest.raises(ReproError, match="unknown scale of toy-base and toy-third 'smoke'"):
        artifact("toy-three").plan("smoke")
    assert [type(config) for config in artifact("toy-three").plan("small")] == 2 * [toy.base.config]
    with pytest.raises(ReproError, match="unknown key of toy-base and toy-recurrence 'widht'. Did you mean 'width'"):
        both.render(sets={"widht": 4})


def test_each_experiment_takes_the_keys_that_it_has(both, toy):
    plan = both.plan("smoke", {"width": [8, 16], "overlap": 7})
    assert [config.width for config in plan[:2]] == [8, 16]
    assert [(config.model, config.overlap) for config in plan[2:]] == [("baseline", 7), ("recurrent", 7)]
    register(Artifact("toy-all", "toy2020", "All", "06_toy", ("toy-base", "toy-recurrence"),
                      lambda context: context.records(), "Table 7"))
    caption = artifact("toy-all").render(also=(), sets={"width": [8, 16], "overlap": 7}, results="mine").caption
    assert caption.splitlines()[1] == (
        "smoke: all not run: `repro run toy-base --scale smoke --set width=8,16 --results mine`, "
        "`repro run toy-recurrence --scale smoke --set overlap=7 --results mine`.")


def test_what_the_paper_does_not_have_says_so(toy):
    for k, source in enumerate((ADDED, f"{ADDED}; asked here")):
        register(Artifact(f"toy-{k}", "toy2020", "What else", "06_toy", "toy-base", lambda context: None, source))
        assert artifact(f"toy-{k}").render("smoke").caption.splitlines()[0] == f"What else ({source})."


def test_a_claim_may_rest_on_several_experiments(both, toy):
    found = claim("toy-both-count")
    assert found.chapter == "06_toy"
    assert found.verdict().text == ("3 of 3 runs missing: repro run toy-base --scale smoke; "
                                    "repro run toy-recurrence --scale smoke")
    run(toy.experiment.plan("smoke")[0], progress=False)  # and the base that it needs
    assert found.verdict().text == (
        "1 of 3 runs missing: repro run toy-recurrence --scale smoke --set model=baseline --set overlap=5")
    assert standing(both)["smoke"] == {"planned": 5, "done": 2, "verdict": "not run", "text": found.verdict().text}
    run(toy.experiment.plan("smoke")[1], progress=False)
    assert (found.verdict().verdict, found.verdict().effect, found.verdict().text) == (
        "reproduced", 2, "2; 3 records")
    assert standing(found)["smoke"]["planned"] == 3
    told = standing(both)["smoke"]
    assert (told["verdict"], told["done"]) == ("reproduced", 3)


@pytest.mark.parametrize("error", [KeyError("a"), IndexError("b"), ValueError("c"), StopIteration()], ids=repr)
def test_settings_that_leave_out_what_is_compared_are_refused_in_one_line(toy, error):
    def build(context):
        if {one.model for one in context.plan()} == {"baseline"}:
            raise error
        return "both"

    made = Artifact("toy-compared", "toy2020", "t", "06_toy", "toy-recurrence", build, "Table 1")
    assert made.render("smoke").content == made.render("smoke", sets={"overlap": 0}).content == "both"
    with pytest.raises(ReproError, match="toy-compared cannot be shown with model=baseline alone, because it compares"):
        made.render("smoke", sets={"model": "baseline"})


def test_an_error_without_settings_stays_as_it_is(toy):
    def build(context):
        raise KeyError("a fault") if context.sets == {} else ReproError("what and why")

    made = Artifact("toy-fault", "toy2020", "t", "06_toy", "toy-recurrence", build, "Table 1")
    with pytest.raises(KeyError, match="a fault"):
        made.render("smoke")
    with pytest.raises(ReproError, match="^what and why$"):
        made.render("smoke", sets={"model": "baseline"})
