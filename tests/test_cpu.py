"""Bfloat16 as the operating system tells it; exact products beside float64; and what is chosen, from told speeds."""

import json
import multiprocessing
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from repro import cpu
from repro.bf16 import has_bf16
from repro.cpu import exact_products, float32_path
from repro.evaluation import perplexity

CPUINFO = Path("/proc/cpuinfo")
SETTING = torch.backends.mkldnn.matmul
ROWS = cpu.LARGE // 2**16  # of an input, with which a layer of 256 x 256 is just large enough


@pytest.fixture
def through_onednn(monkeypatch):
    """As on a machine where that is the fastest exact path."""
    monkeypatch.setattr(cpu, "float32_path", lambda: "onednn")


@pytest.fixture
def told(monkeypatch):
    """Whatever is measured, it comes out as told: speeds and the error of oneDNN."""
    def tell(speeds, error=0.0):
        monkeypatch.setattr(cpu, "rates", lambda kinds, rounds: dict(zip(kinds, speeds, strict=True)))
        monkeypatch.setattr(cpu, "error", lambda kind: error)
    yield tell


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Where the path is kept, of a machine that has kept none and has no GPU."""
    monkeypatch.setenv("REPRO_WORK", str(tmp_path / "work"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    float32_path.cache_clear()
    yield tmp_path / "work/float32.json"
    float32_path.cache_clear()


def anew():
    """What a process that starts now takes."""
    float32_path.cache_clear()
    return float32_path()


def first_use(speeds, together, answers):
    """In a process of its own: its first use of the path, at the same time as another's."""
    cpu.rates = lambda kinds, rounds: dict(zip(kinds, speeds, strict=True))
    cpu.error = lambda kind: 0.0
    together.wait()
    answers.put(anew())


class Watched(nn.Linear):
    """A layer that notes the setting under which it is computed."""

    def forward(self, x):
        self.seen = SETTING.fp32_precision
        return super().forward(x)


@pytest.mark.skipif(not CPUINFO.exists(), reason="no /proc/cpuinfo here")
def test_the_instructions_are_those_that_linux_lists():
    listed = re.search(r"^(?:flags|Features)\s*:(.*)$", CPUINFO.read_text(), re.MULTILINE).group(1).split()
    assert has_bf16() == bool({"avx512_bf16", "amx_bf16", "bf16", "svebf16"} & set(listed))


@pytest.mark.parametrize(("capabilities", "expected"), [
    ({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"bf16": True}, True),
    ({"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False), ({}, False)], ids=str)
def test_any_of_the_instructions_will_do(monkeypatch, capabilities, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert has_bf16() is expected


def test_rates_take_the_fastest_turn_after_the_first(monkeypatch):
    monkeypatch.setattr(cpu, "SHAPE", (100, 1000, 50))  # 1e7 operations
    ticks = iter([0, 0, 2, 2.5, 3, 3.25, 4, 4.1, 5, 5.2])  # the first turn only starts
    monkeypatch.setattr(cpu, "time", SimpleNamespace(thread_time=lambda: next(ticks)))
    threads = torch.get_num_threads()
    rates = cpu.rates(("float32", "bfloat16"), rounds=2)
    assert rates == pytest.approx({"float32": 0.1, "bfloat16": 0.05})
    assert torch.get_num_threads() == threads


def test_the_bound_lets_float32_pass_and_catches_lost_digits():
    left, right = (x.double() for x in cpu._matrices())
    exact = left @ right
    for kind, lost in [(torch.float32, False), (torch.bfloat16, True), (torch.float16, True)]:
        rounded = left.to(kind).double() @ right.to(kind).double()  # inputs of this kind, all else in float64
        assert ((rounded - exact).norm() / exact.norm() > cpu.EXACT) == lost
    assert cpu.error("float32") <= cpu.EXACT < 1e-3 < cpu.error("bfloat16")


def test_the_chosen_path_is_exact():
    chosen = {"onednn": "float32 through oneDNN", "default": "float32"}[float32_path()]
    assert cpu.error(chosen) <= cpu.EXACT


@pytest.mark.parametrize(("speeds", "error", "expected"), [
    ((30, 60), 4e-7, "onednn"), ((30, 60), 2e-3, "default"), ((60, 30), 4e-7, "default"),
    ((30, 31), 4e-7, "default"), ((30, 60), 2.1e-6, "default")], ids=str)
def test_onednn_is_chosen_where_it_is_clearly_faster_and_exact(told, kept, speeds, error, expected):
    told(speeds, error)
    assert float32_path() == expected


def test_the_path_is_kept(told, kept, monkeypatch):
    told((30, 60))
    assert float32_path() == "onednn"
    assert json.loads(kept.read_text()) == {f"{cpu.model_name()}, torch {torch.__version__}": "onednn"}
    monkeypatch.setattr(cpu, "rates", None)  # called, it would raise
    assert anew() == "onednn"


def test_another_version_or_processor_is_measured_anew_and_both_are_kept(told, kept, monkeypatch):
    told((30, 60))
    float32_path()
    told((60, 30))
    monkeypatch.setattr(torch, "__version__", "9.9")
    assert anew() == "default"
    monkeypatch.setattr(cpu, "model_name", lambda: "Z80")
    assert anew() == "default"
    assert list(json.loads(kept.read_text()).values()) == ["onednn", "default", "default"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b'{"MACHINE": "fast"}', b'{"MACHINE": ["onednn"]}'])
def test_a_damaged_file_is_measured_anew_and_mended(told, kept, content):
    told((30, 60))
    machine = f"{cpu.model_name()}, torch {torch.__version__}"
    kept.parent.mkdir()
    kept.write_bytes(content.replace(b"MACHINE", machine.encode()))
    assert float32_path() == "onednn"
    assert json.loads(kept.read_text()) == {machine: "onednn"}


def test_where_nothing_can_be_kept_it_is_measured(told, kept):
    kept.parent.write_text("a file where the folder should be")
    told((30, 60))
    assert float32_path() == "onednn"
    told((60, 30))
    assert anew() == "default"


def test_with_a_gpu_nothing_is_measured(kept, monkeypatch):
    monkeypatch.setattr(cpu, "rates", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert float32_path() == "default" and not kept.exists()


def test_two_processes_that_start_at_once_agree(kept):
    """One measures that oneDNN is faster, the other that it is not."""
    fork = multiprocessing.get_context("fork")
    together, answers = fork.Barrier(2), fork.Queue()
    both = [fork.Process(target=first_use, args=(speeds, together, answers)) for speeds in ((30, 60), (60, 30))]
    for one in both:
        one.start()
    found = [answers.get(timeout=60) for _ in both]
    for one in both:
        one.join()
    assert found[0] == found[1] and list(json.loads(kept.read_text()).values()) == found[:1]


def test_the_second_takes_what_the_first_has_kept_meanwhile(told, kept):
    """It found nothing when it looked, and waits for the lock while the first measures."""
    told((60, 30))
    machine = f"{cpu.model_name()}, torch {torch.__version__}"
    assert cpu._keep(kept, machine) == "default"
    told((30, 60))
    assert cpu._keep(kept, machine) == "default"


def test_only_large_products_of_layers_go_through_onednn(through_onednn):
    before, layer = SETTING.fp32_precision, Watched(256, 256)
    for rows, expected in [(ROWS, "bf16"), (ROWS - 1, before)]:
        with torch.no_grad(), exact_products(layer, ROWS):
            assert SETTING.fp32_precision == before
            layer(torch.zeros(2, rows // 2, 256) if rows % 2 == 0 else torch.zeros(rows, 256))
        assert layer.seen == expected
        assert SETTING.fp32_precision == before
    with exact_products(layer, ROWS - 1):
        layer(torch.zeros(ROWS, 256))
    assert layer.seen == before  # inputs were announced to be smaller
    layer(torch.zeros(ROWS, 256))
    assert layer.seen == before and not layer._forward_pre_hooks and not layer._forward_hooks


def test_elsewhere_nothing_changes(through_onednn, monkeypatch):
    layer = Watched(256, 256)
    with exact_products(layer, ROWS, "cuda"):
        assert not layer._forward_pre_hooks
    with exact_products(lambda ids: ids, ROWS), exact_products(nn.Embedding(256, 256), ROWS):
        pass
    monkeypatch.setattr(cpu, "float32_path", lambda: "default")
    with exact_products(layer, ROWS):
        assert not layer._forward_pre_hooks


def test_the_setting_comes_back_after_an_error(through_onednn):
    before, layer = SETTING.fp32_precision, nn.Linear(256, 256)
    with pytest.raises(RuntimeError, match="shapes"), exact_products(layer, ROWS):
        layer(torch.zeros(2 * ROWS, 255))
    assert SETTING.fp32_precision == before
    assert torch.get_float32_matmul_precision() == "highest"  # raises where the setting was left


def test_scores_are_those_of_float64(tiny_gpt2, monkeypatch):
    """Of a model whose products all count as large, through the path that this machine chooses."""
    monkeypatch.setattr(cpu, "LARGE", 1)
    model = tiny_gpt2().eval()
    tokens = torch.arange(40) % model.config.vocab_size
    found = perplexity(model, tokens, 8, 4).nll
    assert found == pytest.approx(perplexity(model.double(), tokens, 8, 4).nll, rel=1e-6)


def test_perplexity_takes_the_exact_path(tiny_gpt2, monkeypatch):
    asked = []
    monkeypatch.setattr("repro.evaluation.scoring.exact_products", lambda *given: asked.append(given) or exact_products(
        *given))
    model = tiny_gpt2()
    perplexity(model, torch.zeros(20, dtype=torch.long), 8, 0, batch_size=3)
    assert [(one is model, rows, torch.device(device).type) for one, rows, device in asked] == [(True, 24, "cpu")]


def test_training_rates_are_of_each_precision_in_turn(monkeypatch):
    calls = []
    rates = iter([90, 90, 10, 20, 11, 19])
    monkeypatch.setattr(cpu, "training_rate", lambda *given: calls.append(given) or next(rates))
    assert cpu.training_rates(rounds=2, seconds=0.1) == {"no": 11, "bf16": 20}
    assert calls == 3 * [("no", 1, 0.1), ("bf16", 1, 0.1)]


def test_a_training_is_timed_and_leaves_no_trace(monkeypatch):
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    monkeypatch.setattr(cpu, "VOCABULARY", 16)
    cpu._trainee.cache_clear()
    ticks = iter([0, 0, 1, 2.5, 4])  # started, two steps begun in time, the third not, read once more
    monkeypatch.setattr(cpu, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert cpu.training_rate("bf16", 1, 2.0) == 2 * 4 * 256 / 4
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)
    cpu._trainee.cache_clear()


@pytest.mark.parametrize(("text", "name", "generation"), [
    ("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel\t: 1\n",
     "AMD EPYC", "family 25, model 17"),
    ("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n", "as Python says", "")])
def test_a_processor_is_told_as_linux_reports_it(tmp_path, monkeypatch, text, name, generation):
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(cpu.platform, "processor", lambda: "as Python says")
    assert (cpu.model_name(), cpu.generation()) == (name, generation)
