"""Bfloat16 as the operating system tells it, and as the clock does."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from repro.processor import bf16_slowdown, has_bf16

CPUINFO = Path("/proc/cpuinfo")


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


def test_the_slowdown_is_the_ratio_of_the_fastest_products(monkeypatch):
    ticks = iter([0, 9, 10, 16, 20, 26, 30, 37, 100, 190, 200, 204, 210, 212, 220, 223])  # 6 against 2; 9 and 90 first
    monkeypatch.setattr("repro.processor.time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    assert bf16_slowdown(8) == 3.0


def test_the_slowdown_is_measured():
    assert 0.01 < bf16_slowdown() < 10_000
