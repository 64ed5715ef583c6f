"""Rows of one table that different optimizers trained say so."""

import pytest

from repro.papers.base.pretraining import with_optimizer
from repro.study import artifact


def test_a_row_names_its_optimizer_only_where_they_differ():
    assert with_optimizer("T-D", "adamw", ["adamw", "adamw"]) == "T-D"
    assert with_optimizer("T-D", "adamw", ["adamw", "muon"]) == "T-D (AdamW)"


@pytest.mark.parametrize(("id", "column", "wanted"), [
    ("liu2018-table4", "model", {"seq2seq-attention (AdamW)", "T-ED (Muon)", "T-D (Muon)", "T-DMCA (Muon)",
                                 "T-D, pretrained (AdamW)"}),
    ("liu2018-table3", "model", {"T-ED (Muon)", "T-D, pretrained (AdamW)"}),
    ("longformer2020-table5", "configuration", {
        "RoBERTa", "Longformer, random new positions", "+ copied positions", "+ short training (Muon)",
        "+ long training (Muon)", "only the extra positions trained (AdamW)",
        "control: RoBERTa, short training (Muon)", "control: RoBERTa, long training (Muon)"})])
def test_tables_that_mix_optimizers_name_them(id, column, wanted, tmp_path):
    shown = artifact(id).render("small", (), tmp_path).table
    ours = shown[~shown.iloc[:, 0].str.startswith("the paper")]
    assert set(ours[column]) == wanted
