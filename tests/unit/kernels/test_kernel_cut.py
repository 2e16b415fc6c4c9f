from itertools import product

import pytest

from perseus_ds.errors import ProfileError
from perseus_ds.kernels.trace import (
    KernelClass,
    merge,
    split_trace_by_instruction,
    trace_of,
    unattributed_pct,
)
from perseus_ds.schedule import Instruction, Kind

Span = dict[str, object]


def span(cat: str, name: str, start: float, length: float, tid: int = 1, **args: object) -> Span:
    return {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": length, "tid": tid, "args": args}


def mark(text: str, start: float, length: float) -> Span:
    return span("user_annotation", f"perseus.{text}", start, length)


def operator(name: str, start: float, length: float, *dims: list[int], tid: int = 1, number: int = 0) -> Span:
    args = {"Input Dims": list(dims), "Input type": ["float"] * len(dims), "External id": number}
    return span("cpu_op", name, start, length, tid, **args | {"Concrete Inputs": [""] * len(dims)})


def kernel(start: float, length: float, **args: int) -> Span:
    return span("kernel", "sgemm", start, length, 7, **args)


FORWARD = Instruction.parse("1F0")
BACKWARD = Instruction.parse("1B0")
ON_CPU = [
    mark("1F0", 0, 100),
    operator("aten::linear", 10, 30, [4, 8], [16, 8]),
    operator("aten::t", 11, 2, [16, 8]),
    operator("aten::addmm", 14, 20, [16], [4, 8], [8, 16]),
    operator("aten::copy_", 15, 3, [4, 16], [16]),
    operator("aten::gelu", 50, 5, [4, 16]),
    operator("aten::to", 59, 7, [4, 16]),
    operator("aten::copy_", 60, 5, [4, 16], [4, 16]),
    mark("1B0", 100, 100),
    operator("aten::gelu_backward", 110, 5, [4, 16], [4, 16], tid=2),
    operator("aten::mm", 300, 5, [4, 16], [16, 8]),
    {"ph": "M", "name": "process_name"},
]


def test_operators_that_compute_are_launches_and_those_outside_a_mark_are_none() -> None:
    found = split_trace_by_instruction(ON_CPU)
    assert [launch.kernel.name for launch in found[FORWARD]] == ["aten::addmm", "aten::gelu", "aten::copy_"]
    assert found[FORWARD][0].kernel == KernelClass("aten::addmm", ((16,), (4, 8), (8, 16)), "float32")
    assert found[FORWARD][0].duration_s == pytest.approx(20e-6)
    assert [launch.kernel.name for launch in found[BACKWARD]] == ["aten::gelu_backward"]


def test_on_cuda_operators_last_as_long_as_their_kernels() -> None:
    events = [
        mark("1F0", 0, 100),
        operator("aten::linear", 10, 30, [4, 8], [16, 8], number=1),
        operator("aten::addmm", 14, 20, [16], [4, 8], [8, 16], number=2),
        operator("aten::dropout", 60, 20, [4, 16], number=3),
        kernel(500, 40, **{"External id": 2}),
        kernel(540, 10, **{"External id": 2}),
    ]
    (launch,) = split_trace_by_instruction(events)[FORWARD]
    assert (launch.kernel.name, launch.duration_s) == ("aten::addmm", pytest.approx(50e-6))


def test_kernels_of_no_operator_are_summed_within_instructions() -> None:
    events = [
        mark("1F0", 0, 100),
        operator("aten::mm", 10, 30, [4, 8], [8, 8], number=1),
        kernel(600, 60, **{"External id": 1}),
        *(span("cuda_runtime", "launch", at, 1, correlation=number) for at, number in ((50, 5), (300, 6))),
        kernel(500, 30, correlation=5),
        kernel(530, 10, **{"External id": 99}),
        kernel(900, 1000, correlation=6),
    ]
    assert unattributed_pct(events) == pytest.approx(40.0)
    assert unattributed_pct(ON_CPU) is None
    trace = trace_of([split_trace_by_instruction(events)], unattributed_pct=40.0)
    assert "40" in trace.shortfall
    assert merge([trace, trace_of([split_trace_by_instruction(ON_CPU)])]).unattributed_pct == 40.0


def test_a_device_whose_kernels_all_lack_an_operator_is_not_taken_for_a_cpu() -> None:
    events = [mark("1F0", 0, 100), operator("aten::mm", 10, 30, [4, 8], [8, 8], number=1), kernel(500, 30)]
    assert unattributed_pct(events) == 100.0
    with pytest.raises(ProfileError, match="kernel"):
        trace_of([split_trace_by_instruction(events)])


def test_scalars_tell_classes_apart() -> None:
    args = {"Input type": ["c10::BFloat16", "Scalar", "Scalar"], "Concrete Inputs": ["", "-1", "False"]}
    softmax = span("cpu_op", "aten::_softmax", 10, 5, **{"Input Dims": [[4, 16], [], []]}, **args)
    (launch,) = split_trace_by_instruction([mark("1F0", 0, 100), softmax])[FORWARD]
    assert launch.kernel == KernelClass("aten::_softmax", ((4, 16),), "bfloat16", "T;-1;False")


def test_the_usual_sequence_is_kept_and_others_are_counted() -> None:
    usual = split_trace_by_instruction(ON_CPU)
    odd = {FORWARD: usual[FORWARD][:1], BACKWARD: usual[BACKWARD]}
    trace = trace_of([usual, usual, odd], overhead_pct=20.0)
    forward = trace.of(1, Kind.FORWARD)
    assert [trace.classes[k].name for k in forward.kernels] == ["aten::addmm", "aten::gelu", "aten::copy_"]
    assert (forward.times, forward.deviating) == (1, 1)
    assert trace.iterations == 3


def test_ranks_are_joined_by_class() -> None:
    first = trace_of([split_trace_by_instruction(ON_CPU)], overhead_pct=5.0)
    other = [dict(one, name=str(one["name"]).replace("perseus.1", "perseus.0")) for one in ON_CPU]
    both = merge([first, trace_of([split_trace_by_instruction(other)], overhead_pct=7.0), first])
    assert both.classes == first.classes
    joined = {(one.stage, one.kind) for one in both.sequences}
    assert joined == set(product((0, 1), (Kind.FORWARD, Kind.BACKWARD)))
    assert both.overhead_pct == 7.0


def test_a_trace_without_kernels_or_marks_is_refused() -> None:
    with pytest.raises(ProfileError, match="instruction"):
        split_trace_by_instruction(ON_CPU[1:7])
    with pytest.raises(ProfileError, match="forward"):
        trace_of([split_trace_by_instruction([mark("1F0", 0, 100)])])
    with pytest.raises(ProfileError, match="rank"):
        merge([])
