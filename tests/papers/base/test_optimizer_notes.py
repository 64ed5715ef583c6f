"""Rows of one table that different optimizers trained say so."""

import pytest

from repro.papers.base.pretraining import with_optimizer
from repro.study import artifact


def test_a_row_names_its_optimizer_only_where_they_differ():
    assert with_optimizer("T-D", "adamw", ["adamw", "adamw"]) == "T-D"
    assert with_optimizer("T-D", "adamw", ["adamw", "muon"]) == "T-D (AdamW)"


def test_the_conversion_names_what_trained_each_row(tmp_path):
    shown = artifact("longformer2020-table5").render("small", (), tmp_path).table
    assert set(shown[shown["source"] == "this study, small"]["configuration"]) == {
        "RoBERTa", "Longformer, random new positions", "+ copied positions", "+ short training (Muon)",
        "+ long training (Muon)", "only the extra positions trained (AdamW)",
        "control: RoBERTa, short training (Muon)", "control: RoBERTa, long training (Muon)"}
    paper = artifact("longformer2020-table5").render("paper", (), tmp_path).table  # AdamW trains all of them there
    assert not paper["configuration"].str.contains("AdamW").any()


@pytest.mark.parametrize("id", ["liu2018-table3", "liu2018-table4"])
def test_summarisers_have_a_column_of_optimizers(id, tmp_path):
    shown = artifact(id).render("small", (), tmp_path).table
    ours = shown[shown["scale"] == "small"]
    assert dict(zip(ours["model"], ours["optimizer"], strict=True)) == {
        model: "AdamW" if model in ("seq2seq-attention", "T-D, pretrained") else "Muon" for model in ours["model"]}
