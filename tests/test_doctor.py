"""The rows of `repro doctor` that measure, from told speeds; and that they are asked for."""

import pytest

from repro import bf16, cpu, doctor


@pytest.fixture
def rows(monkeypatch):
    """The rows of a machine without a GPU, of so many cores and these speeds."""
    def told(native=True, path="onednn", error=4e-7, training=(1000.0, 2500.0), sharing=(300.0, 2000.0), cores=2):
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        monkeypatch.setattr(doctor, "_cores", lambda: cores)
        monkeypatch.setattr(bf16, "has_bf16", lambda: native)
        monkeypatch.setattr(cpu, "rates", lambda: dict(zip(cpu.KINDS, (39.0, 124.0, 222.0), strict=True)))
        monkeypatch.setattr(cpu, "float32_path", lambda: path)
        monkeypatch.setattr(cpu, "error", lambda kind: error)
        monkeypatch.setattr(cpu, "training_rates", lambda: dict(zip(("no", "bf16"), training, strict=False)))
        asked = []
        monkeypatch.setattr(cpu, "sharing_rates",
                            lambda *given: asked.append(given) or dict(zip((1, 2), sharing, strict=True)))
        return {row.what: row for row in doctor._speed()}, asked
    return told


def test_what_is_fast_and_which_path_is_taken(rows):
    found, asked = rows()
    assert found["matrix products"].found == (
        "float32 39, float32 through oneDNN 124, bfloat16 222 GFLOP/s, one thread")
    assert found["scoring"].found == (
        "float32 through oneDNN: the fastest exact way (oneDNN is 4e-07 off float64, exact)")
    assert (found["training"].found, found["training"].lack) == (
        "fp32 1,000, bf16 2,500 tokens/s, one thread", "set precision=bf16")
    assert (found["processes"].found, found["processes"].lack) == (
        "1 of 2 threads 300, 2 of 1 together 2,000 tokens/s", "run 2 at a time, with OMP_NUM_THREADS=1")
    assert asked == [(2, "bf16")]
    assert found["bf16"] == doctor.Finding("bf16", "the CPU's instructions")


def test_a_machine_on_which_all_is_the_other_way_round(rows):
    found, asked = rows(False, "default", 2e-3, (1000.0, 990.0), (2000.0, 1999.0), 8)
    assert found["scoring"].found == (
        "float32 through torch's default path: the fastest exact way (oneDNN is 2e-03 off float64, not exact)")
    assert (found["training"].found, found["training"].lack) == (
        "fp32 1,000, bf16 990 tokens/s, one thread", "set precision=no")
    assert found["processes"].lack == "run 1 at a time, with OMP_NUM_THREADS=8"
    assert asked == [(8, "no")]
    assert found["bf16"] == doctor.Finding(
        "bf16", "no instructions for it: training works its products out in float32")


def test_one_core_is_not_shared_and_a_gpu_is_asked_nothing(rows, monkeypatch):
    found, asked = rows(cores=1)
    assert "processes" not in found and asked == []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert list(doctor._speed()) == []


def test_the_doctor_asks_for_the_speed(monkeypatch):
    monkeypatch.setattr(doctor, "_corpora", lambda each: [])
    monkeypatch.setattr(doctor, "_speed", lambda: [doctor.Finding("speed", "high")])
    found = doctor.findings()
    assert doctor.Finding("speed", "high") in found
    assert not any("slow on a CPU" in row.found for row in found)


def test_the_doctor_tells_which_attention_is_taken(monkeypatch):
    found = {row.what: row.found for row in doctor._attention()}
    assert found["tiles on a CPU"] == "many at once, in PyTorch's fused kernel"
    assert found["attention, causal"] == "cpu dense, cuda dense"
    assert found["attention, window of 256"] == found["attention, window of 256, 16 global"] == "cpu blocked, cuda flex"
    assert found["attention, window of 256, 200 positions"] == "cpu dense, cuda dense"
    assert found["attention, window of 256, heads of 576"] == "cpu blocked, cuda blocked"
    assert found["attention, window of 256, float64"] == "cpu blocked, cuda blocked"
    monkeypatch.setattr("repro.attention.flash.FORWARD", "a_name_that_pytorch_has_not")
    first = next(doctor._attention())
    assert first.found == "one after the other" and first.lack.endswith("has no such kernel")
