"""The cost column of Tables 1 and 2 (Yoshida et al. 2020)."""

from decimal import ROUND_HALF_EVEN, Decimal

import pytest
import torch

from repro.errors import ReproError
from repro.evaluation import flops_per_token
from repro.evaluation.flops import decoder_flops
from repro.study import published

TABLES = ("yoshida2020_table1_wikitext103", "yoshida2020_table2_pg19")


def printed():
    """(overlap, value as printed) of all 24 rows."""
    tables = [published(name) for name in TABLES]
    return [(int(row.overlap_tokens), row.flops_per_token_1e8) for table in tables for row in table.itertuples()]


def test_gpt2_small_costs_exactly_this_many_operations():
    weights = 12 * (768 * 3 * 768 + 768 * 768 + 2 * 768 * 4 * 768)  # queries, keys, values; output; feedforward
    attention = 12 * (300 * 768)  # scores or mixing: one multiplication per key and channel
    assert flops_per_token(12, 768, 300, 0) == 2 * weights + 2 * attention == 175398912.0


@pytest.mark.parametrize("overlap", [0, 1, 5, 75, 150, 200, 299])
def test_overlap_multiplies_the_cost(overlap):
    assert flops_per_token(12, 768, 300, overlap) == pytest.approx(175398912 * 300 / (300 - overlap), rel=1e-15)


def test_layers_count_linearly_and_width_in_both_terms():
    assert flops_per_token(24, 768, 300, 0) == 2 * 175398912
    assert flops_per_token(1, 2, 3, 0) == 2 * 12 * 4 + 2 * 3 * 2
    assert flops_per_token(1, 2, 3, 2) == 3 * (2 * 12 * 4 + 2 * 3 * 2)


def test_the_rounded_base_gives_all_24_printed_values():
    rows = printed()
    assert len(rows) == 24
    for overlap, value in rows:
        exact = Decimal("1.75") * 300 / (300 - overlap)
        assert str(exact.quantize(Decimal("0.01"), ROUND_HALF_EVEN)) == value
        assert f"{1.75e8 * 300 / (300 - overlap) / 1e8:.2f}" == value


def test_one_printed_value_is_a_tie_and_was_rounded_to_even():
    ties = {(overlap, value) for overlap, value in printed()
            if (Decimal("1.75") * 300 / (300 - overlap) * 1000) % 10 == 5}
    assert ties == {(100, "2.62")}  # 2.625


def test_the_exact_base_shows_that_the_paper_rounded_before_scaling():
    differing = {overlap for overlap, value in printed()
                 if f"{flops_per_token(12, 768, 300, overlap) / 1e8:.2f}" != value}
    assert differing == {30, 75, 100, 150, 200}


@pytest.mark.parametrize(("window", "overlap"), [(300, 300), (300, -1), (0, 0)])
def test_impossible_windows_are_refused(window, overlap):
    with pytest.raises(ReproError, match="window|overlap"):
        flops_per_token(12, 768, window, overlap)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_other_decoders_count_two_for_each_weight_of_their_blocks(family):
    """The counter of torch sees the products of a forward pass; it counts all pairs of positions, we count half."""
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, vocab_size=29, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
                                  num_attention_heads=4, num_key_value_heads=2, head_dim=16, pad_token_id=0)
    model, window = AutoModelForCausalLM.from_config(config, attn_implementation="eager"), 24
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.base_model(torch.zeros(1, window, dtype=torch.int64))
    counted = sum(flops for operation, flops in counter.get_flop_counts()["Global"].items()
                  if operation in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm))
    rotary = sum(flops for name, flops in counter.get_flop_counts().items() if name.endswith("rotary_emb")
                 for flops in flops.values())
    pairs = 2 * window * 4 * 16 * 3  # of attention, the half that is not counted, per token
    assert decoder_flops(config, window, 0) == (counted - rotary) / window - pairs
    assert decoder_flops(config, window, 12) == 2 * decoder_flops(config, window, 0)
