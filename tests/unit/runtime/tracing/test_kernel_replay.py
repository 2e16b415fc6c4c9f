import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

from perseus_ds.errors import DeviceUnavailableError, ProfileError
from perseus_ds.kernels.trace import KernelClass, cut
from perseus_ds.runtime.kernel_tracing import cuda_device, replay_of
from perseus_ds.schedule import Instruction

CPU = torch.device("cpu")


def traced(folder: Path) -> dict[Instruction, list[KernelClass]]:
    """A small layer forward and backward, under the real profiler."""
    layer = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 8)
    )
    inputs = torch.randn(4, 8)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        with record_function("perseus.0F0"):
            loss = layer(inputs).softmax(-1).square().sum()
        with record_function("perseus.0B0"):
            loss.backward()
    profiler.export_chrome_trace(str(folder / "trace.json"))
    found = cut(json.loads((folder / "trace.json").read_text())["traceEvents"])
    return {instruction: [one.kernel for one in launches] for instruction, launches in found.items()}


def test_what_a_real_profiler_noted_is_launched_again(tmp_path: Path) -> None:
    found = traced(tmp_path)
    forward = [kernel.name for kernel in found[Instruction.parse("0F0")]]
    assert forward[:4] == ["aten::addmm", "aten::gelu", "aten::native_layer_norm", "aten::addmm"]
    backward = {kernel.name for kernel in found[Instruction.parse("0B0")]}
    assert {"aten::mm", "aten::gelu_backward", "aten::native_layer_norm_backward"} <= backward
    products = [k for kernels in found.values() for k in kernels if k.name in {"aten::addmm", "aten::mm"}]
    for kernel in (*products, *found[Instruction.parse("0F0")][1:3]):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
            replay_of(kernel, device=CPU).run(3)
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
