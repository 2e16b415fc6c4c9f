"""Traced iterations of a listener's host: real operators under the real profiler, cut into instructions."""

import json
from pathlib import Path

import pytest
import torch
from adapter_contract import CallNotes
from lone_job import events_of, logging_in
from torch.profiler import ProfilerActivity, profile, record_function

from perseus_ds.errors import DeviceUnavailableError, ProfileError
from perseus_ds.kernels.trace import KERNEL_TRACES, KernelClass, split_trace_by_instruction
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.kernel_tracing import SETTLING, KernelTracing, cuda_device, replay_of
from perseus_ds.schedule import Instruction, Kind

ORDER = tuple(Instruction.parse(text) for text in ("0F0", "0F1", "0B0", "0B1"))
BATCH = Batch(microbatches=2)


def iterate(tracing: KernelTracing, batch: Batch = BATCH) -> None:
    """A product in a forward, two in a backward."""
    assert tracing.iteration_begins(batch)
    for instruction in ORDER:
        tracing.before(instruction.kind)
        for _ in range(1 if instruction.kind is Kind.FORWARD else 2):
            torch.mm(torch.ones(16, 16), torch.ones(16, 16))
        tracing.after(instruction.kind)
    tracing.iteration_ends()


PLAIN = ["begins 2", *["<F", "F>", "<F", "F>", "<B", "B>", "<B", "B>", "ends"]]


def settled(folder: Path, iterations: int = 2) -> tuple[KernelTracing, CallNotes]:
    """A tracing that begins with the next iteration, and what its listener hears."""
    heard = CallNotes()
    tracing = KernelTracing(
        heard,
        order=ORDER,
        iterations=iterations,
        path=folder / "rank0.json",
        fingerprint={"gpu": "none"},
        log=logging_in(folder),
    )
    for _ in range(SETTLING):
        iterate(tracing)
    return tracing, heard


def test_a_traced_iteration_is_kept_from_the_listener(tmp_path: Path) -> None:
    tracing, heard = settled(tmp_path)
    for _ in range(3):
        iterate(tracing)
    assert heard.calls == PLAIN * SETTLING + ["other"] * 2 + PLAIN
    trace = KERNEL_TRACES.read(tmp_path / "rank0.json")
    assert trace.iterations == 2
    kinds = {(one.stage, one.kind): one.times for one in trace.sequences}
    assert kinds == {(0, Kind.FORWARD): 2, (0, Kind.BACKWARD): 2}
    for one in trace.sequences:
        names = [trace.classes[kernel].name for kernel in one.kernels]
        assert names.count("aten::mm") == (1 if one.kind is Kind.FORWARD else 2)
    [told] = events_of(tmp_path, "kernels_traced")
    assert "2 iterations" in told["line"]
    assert "something else" not in told["line"]


def test_a_batch_of_another_size_is_left_to_the_listener(tmp_path: Path) -> None:
    tracing, heard = settled(tmp_path, iterations=1)
    iterate(tracing, Batch(microbatches=4))
    assert heard.calls == PLAIN * SETTLING + ["begins 4", *PLAIN[1:]]


def fails(*_: object) -> None:
    raise RuntimeError("CUPTI is taken by another tool")


@pytest.mark.parametrize("fails_in", ["start", "export_chrome_trace"])
def test_where_the_profiler_fails_the_same_iterations_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_in: str
) -> None:
    """The other ranks trace theirs: a listener that hears one of these alone waits for them in vain."""
    tracing, heard = settled(tmp_path)
    monkeypatch.setattr(f"torch.profiler.profile.{fails_in}", fails)
    for _ in range(3):
        iterate(tracing)
    assert heard.calls == PLAIN * SETTLING + ["other"] * 2 + PLAIN
    assert not (tmp_path / "rank0.json").exists()


@pytest.mark.parametrize("fails_to_stop", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_an_iteration_that_breaks_ends_the_profiler_and_reaches_the_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails_to_stop: bool
) -> None:
    tracing, heard = settled(tmp_path, iterations=2 if fails_to_stop else 1)
    assert tracing.iteration_begins(BATCH)
    tracing.before(Kind.FORWARD)
    stop = torch.profiler.profile.stop
    if fails_to_stop:
        monkeypatch.setattr(torch.profiler.profile, "stop", lambda self: (stop(self), fails()))
    tracing.iteration_broke()
    assert heard.calls == [*PLAIN * SETTLING, "other", "broke"]
    assert not torch.autograd._profiler_enabled()
    iterate(tracing)
    assert heard.calls[-1] == "other", "the other ranks trace this one"
    assert (tmp_path / "rank0.json").exists() is not fails_to_stop


CPU = torch.device("cpu")


def test_what_a_real_profiler_noted_is_launched_again(tmp_path: Path) -> None:
    """A small layer forward and backward, under the real profiler."""
    parts = torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 8)
    inputs = torch.randn(4, 8)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        with record_function("perseus.0F0"):
            loss = torch.nn.Sequential(*parts)(inputs).softmax(-1).square().sum()
        with record_function("perseus.0B0"):
            loss.backward()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    found = split_trace_by_instruction(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    forward, backward = ([one.kernel for one in found[Instruction.parse(name)]] for name in ("0F0", "0B0"))
    names = [kernel.name for kernel in forward]
    assert names[:4] == ["aten::addmm", "aten::gelu", "aten::native_layer_norm", "aten::addmm"]
    names = {kernel.name for kernel in backward}
    assert {"aten::mm", "aten::gelu_backward", "aten::native_layer_norm_backward"} <= names
    products = [kernel for kernel in (*forward, *backward) if kernel.name in {"aten::addmm", "aten::mm"}]
    for kernel in (*products, *forward[1:3]):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            replay_of(kernel, device=CPU)(3)
        seen = [event for event in profiler.events() or [] if event.name == kernel.name]
        assert len(seen) == 4, "once to try, three times as asked"
        assert all([tuple(s) for s in event.input_shapes if s] == list(kernel.shapes) for event in seen)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (KernelClass("aten::no_such_thing", ((2, 2),), "float32"), "no such"),
        (KernelClass("gemm", ((2, 2),), "float32"), "no such"),
        (KernelClass("aten::mm", ((2, 3), (2, 3)), "float32"), "aten::mm"),
        (KernelClass("aten::mm", ((2, 2), (2, 2)), "float9"), "aten::mm"),
    ],
    ids=str,
)
def test_what_cannot_be_launched_again_says_why(kernel: KernelClass, reason: str) -> None:
    with pytest.raises(ProfileError, match=reason):
        replay_of(kernel, device=CPU)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_there_is_nothing_to_measure_on() -> None:
    with pytest.raises(DeviceUnavailableError, match="CUDA device"):
        cuda_device()
