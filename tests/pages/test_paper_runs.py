"""What the papers' own runs need, held against sums worked out by hand and published times."""

import re
from pathlib import Path

import pytest
import scale

from repro.errors import ReproError
from repro.pages.paper_runs import COUNTS, OTHERS, PLAUSIBLE, RUNS, Cluster, PaperRun, need, needs, shares, times

ROOT = Path(__file__).parents[2]
OF = {run.name: run for run in (*RUNS, *OTHERS)}


def test_gpt_by_hand():
    run = OF["GPT"]
    weights = (40_478 + 512) * 768 + 12 * (12 * 768**2 + 13 * 768)
    per_token = 3 * (2 * 12 * 12 * 768**2 + 2 * 12 * 512 * 768 + 2 * 768 * 40_478)
    assert run.estimate.parameters == weights == 116_534_784
    assert run.estimate.flops == pytest.approx(per_token * 1e11, rel=0.001) == pytest.approx(7.25e19, rel=0.01)
    assert run.phases(8) == [(3_051_758, 64, run.estimate.flops)]  # 1e11 tokens in steps of 64 x 512, rounded up
    found = need(run, 8)
    # 7.245e19 / (8 x 312e12 x 0.3) = 96,760 s; 3,051,758 steps x 2 x 7/8 x 4 x 116.5 MB / 200 GB/s = 12,447 s
    assert found.hours == pytest.approx((96_760 + 12_447) / 3600, rel=1e-3)
    assert found.waiting == pytest.approx(12_447 / (96_760 + 12_447), rel=1e-3)
    assert found.dollars == pytest.approx(30.335 * 8 * 1.75, rel=1e-3)
    assert found.memory_bytes == 2**30 + 16 * weights + 8 * 512 * 4 * (34 * 12 * 768 + 3 * 40_478)


def test_between_nodes_the_all_reduce_takes_the_network():
    found = need(OF["GPT"], 64)  # 2 x 63/64 x 4 x 116.5 MB / 50 GB/s = 18.36 ms a step
    assert found.hours * found.waiting * 3600 == pytest.approx(3_051_758 * 0.018356, rel=1e-3)
    assert found.hours * (1 - found.waiting) * 3600 == pytest.approx(96_760 / 8, rel=1e-3)


def test_one_gpu_sends_nothing_and_the_fullest_decides():
    run, whole = OF["GPT"], OF["GPT"].estimate.flops / (312e12 * 0.3) / 3600
    assert need(run, 1).waiting == 0 and need(run, 1).hours == pytest.approx(whole)
    seven = need(run, 7)  # 64 sequences on 7 GPUs: one trains on 10
    assert seven.hours * (1 - seven.waiting) == pytest.approx(whole * 10 / 64)


def test_a_step_of_16_sequences_keeps_16_gpus_busy():
    run = OF["Longformer, characters, small"]
    phases = run.phases(64)
    assert [(steps, batch) for steps, batch, _ in phases] == [
        (430_000, 32), (50_000, 32), (50_000, 16), (35_000, 16), (5_000, 16)]  # Table 12
    assert sum(flops for *_, flops in phases) == pytest.approx(run.estimate.flops, rel=1e-6)
    tokens = [430_000 * 32 * 2_048, 50_000 * 32 * 4_096, 50_000 * 16 * 8_192, 35_000 * 16 * 16_384, 5_000 * 16 * 23_040]
    assert run.estimate.training_tokens == sum(tokens)
    each = [flops / n for (*_, flops), n in zip(phases, tokens, strict=True)]
    assert each == sorted(each)  # windows and lengths double: a character costs more
    found = need(run, 64)
    busy = sum(flops / min(64, batch) for _, batch, flops in phases)
    assert found.hours * (1 - found.waiting) * 3600 == pytest.approx(busy / (312e12 * 0.3))
    assert found.dollars == pytest.approx(found.hours * 64 * 1.75)  # idle ones are paid for, too
    large = run.memory(1) - run.memory(64)
    assert large == pytest.approx(4 * (23_040 * 16 - 23_040) * (12 * 512 + 2 * 206))


def test_a_batch_that_is_not_printed_grows_with_the_gpus():
    run = OF["Recurrence, WikiText-103"]
    assert (run.config.batch_size, run.phases(8)[0][1], run.phases(64)[0][1]) == (4, 8, 64)
    assert run.memory(8) == run.memory(64)  # one sequence each


def test_every_run_is_one_of_its_experiment_and_counts_what_the_paper_prints():
    printed = {"GPT-2, 117M": (124_439_808, 294_912_000_000), "GPT-2, 1542M": (1_557_611_200, 294_912_000_000),
               "Longformer, MLM, base": (148_711_257, 65_000 * 2**18),
               "Longformer, characters, large": (102_511_822, None),
               "Sparse Transformer, enwik8": (94_950_657, 18_300 * 32 * 12_288)}
    for name, (weights, tokens) in printed.items():
        assert OF[name].estimate.parameters == weights
        assert tokens in (None, OF[name].estimate.training_tokens)
    images = OF["Sparse Transformer, ImageNet 64"].estimate
    assert images.parameters == pytest.approx(152e6, rel=0.01)  # as section 7.3 prints
    assert images.training_tokens == pytest.approx(70 * 1_281_149 * 12_288, rel=1e-5)
    with pytest.raises(ReproError, match="no run of charlm at paper has {'model': 'huge'}"):
        need(PaperRun("none", "charlm", 2_048, where={"model": "huge"}), 8)


def test_published_times_leave_a_plausible_share_of_the_peak_or_say_why():
    by_name = {(row["run"], row["source"]): share for row, _, share, _ in shares()}
    assert by_name["GPT", "radford2018announcement"] == pytest.approx(7.245e19 / (8 * 720 * 3600 * 12e12), rel=1e-3)
    assert by_name["GPT-2, 117M", "karpathy2024llmc"] == pytest.approx(0.592, abs=0.001)  # "up to ~60%"
    low, high = PLAUSIBLE
    for row, flops, share, other in shares():
        assert flops > 0 and row["confidence"] in ("exact", "quoted")
        if share < low:
            assert row["note"].startswith("below 10%:") and low <= other <= high
        else:
            assert row["note"].startswith("above 60%:") == (share > high)
    assert len(times()) == len(shares()) == 10


@pytest.mark.parametrize(("wrong", "said"), [
    ({"gpu": "A10"}, "unknown GPU 'A10'"), ({"utilization": 0}, "utilization is 0; it is a share"),
    ({"utilization": 1.1}, "utilization is 1.1"), ({"price": -1}, "price is -1"),
    ({"price": 1e308}, r"price is 1e\+308; it must be a number of at least 0 and below 1e\+06"),
    ({"utilization": 1e-320}, "from 0.001 to 1, such as 0.3")])
def test_an_assumption_out_of_range_is_refused(wrong, said):
    with pytest.raises(ReproError, match=said):
        Cluster(**wrong)


def test_the_page_shows_both_tables_and_says_what_they_say():
    page = scale.filled((ROOT / "book/paper-scale.md").read_text())
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(lines) == len(needs()) + len(times()) + 4 and "<!--" not in page
    assert len({line.count("|") for line in lines}) == 2
    cited = set(re.findall(r"{cite:t}`(\w+)`", page))
    assert cited == {row["source"].split(",")[0] for row, *_ in shares()}
    assert all(f"{{{key}," in (ROOT / "book/references.bib").read_text() for key in cited)
    found = {n: [need(run, n) for run in RUNS] for n in COUNTS}
    assert "ten of the twelve runs below take less than four days" in " ".join(page.split())
    assert (len(RUNS), sum(one.hours < 96 for one in found[8])) == (12, 10)
    assert all(few.hours > many.hours and few.dollars < many.dollars
               for few, many in zip(found[8], found[64], strict=True))
    large = [run.name for run, one in zip(RUNS, found[8], strict=True) if one.memory_bytes > 80e9]
    assert large == ["GPT-2, 117M", "GPT-2, 1542M"]
    half = next(share for row, _, share, _ in shares() if row["source"].startswith("child2019sparse, Table")) / 2
    assert f"half the share, {half:.0%}," in page
