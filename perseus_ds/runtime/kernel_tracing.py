"""A few iterations of a job under PyTorch's profiler, cut into instructions by the hook's own marks."""

from __future__ import annotations

import ast
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from itertools import pairwise
from pathlib import Path

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.profiler import ProfilerActivity, profile, record_function

from perseus_ds.errors import DeviceUnavailableError, ProfileError
from perseus_ds.kernels.trace import (
    ABSENT,
    KERNEL_TRACES,
    MARK,
    TENSOR,
    KernelClass,
    KernelTrace,
    Launch,
    split_trace_by_instruction,
    trace_of,
    unattributed_pct,
)
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.schedule import Instruction, Kind, Load, Order

SETTLING = 3
"""Iterations before the first traced one; the last two show what an untraced one takes."""


class KernelTracing(PassingListener):
    """A listener in front of the session's that traces some iterations.

    To the session a traced iteration is one that does not train: it runs at default clocks and counts for no
    measurement. All ranks count these iterations alike. A profiler that fails on one of them is a line there,
    and that rank leaves out the same iterations as the others.
    """

    def __init__(
        self,
        listener: InstructionListener,
        *,
        order: Order,
        iterations: int,
        path: Path | None,
        fingerprint: Mapping[str, str],
        log: EventLog,
    ) -> None:
        super().__init__(listener)
        self._computations = [one for one in order if one.kind.is_computation]
        self._microbatches = 1 + max((i.microbatch for i in self._computations), default=0)
        self._left = iterations
        self._path, self._fingerprint, self._log = path, fingerprint, log
        self._begun_s: list[float] = []
        self._traced: list[dict[Instruction, tuple[Launch, ...]]] = []
        self._unattributed: list[float] = []
        self._profiler: profile | None = None
        self._mark: AbstractContextManager[object] | None = None
        self._next = 0
        self._tracing = self._failed = False

    def iteration_begins(self, batch: Batch) -> bool:
        """Trace this iteration, or leave it to the listener."""
        if not self._left:
            return self._listener.iteration_begins(batch)
        self._begun_s.append(time.monotonic())
        if len(self._begun_s) <= SETTLING or batch.microbatches != self._microbatches:
            return self._listener.iteration_begins(batch)
        self._listener.other_schedule_begins()
        self._next, self._tracing = 0, True
        if not self._failed:
            self._attempt(self._start)
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Mark the beginning of a computation, where traced."""
        if not self._tracing:
            self._listener.before(kind, load)
        elif self._profiler is not None and kind.is_computation and self._next < len(self._computations):
            self._attempt(self._begin_mark)
            self._next += 1

    def after(self, kind: Kind) -> None:
        if not self._tracing:
            self._listener.after(kind)
        elif self._mark is not None:
            self._attempt(self._end_mark)

    def iteration_ends(self) -> None:
        """Cut the trace into instructions; after the last iteration write it."""
        if not self._tracing:
            self._listener.iteration_ends()
            return
        self._tracing = False
        self._left -= 1
        if self._profiler is not None:
            self._attempt(self._finish)

    def iteration_broke(self) -> None:
        self._tracing = False
        self._drop_profiler()
        super().iteration_broke()

    def fail(self, error: Exception) -> bool:
        self._tracing = False
        self._drop_profiler()
        return super().fail(error)

    def _attempt(self, act: Callable[[], None]) -> None:
        """Run a part of the tracing; what fails ends it on this rank and never reaches the host's step."""
        try:
            act()
        except Exception as error:  # noqa: BLE001  # see above
            self._failed = True
            self._drop_profiler()
            self._log.line_here(f"kernels are not traced: {error}")

    def _start(self) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities, record_shapes=True)
        self._profiler.start()

    def _begin_mark(self) -> None:
        self._mark = record_function(f"{MARK}{self._computations[self._next]}")
        self._mark.__enter__()  # type: ignore[no-untyped-call]  # torch's own

    def _end_mark(self) -> None:
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.__exit__(None, None, None)

    def _drop_profiler(self) -> None:
        profiler, self._profiler, self._mark = self._profiler, None, None
        if profiler is not None:
            with suppress(Exception):
                profiler.stop()

    def _finish(self) -> None:
        profiler, self._profiler = self._profiler, None
        assert profiler is not None
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(file))
            events = json.loads(file.read_text())["traceEvents"]
        self._unattributed.append(unattributed_pct(events) or 0.0)
        self._traced.append(split_trace_by_instruction(events))
        if not self._left:
            self._write()

    def _write(self) -> None:
        trace = trace_of(
            self._traced,
            overhead_pct=self._overhead_pct(),
            fingerprint=self._fingerprint,
            unattributed_pct=max(self._unattributed),
        )
        if self._path is not None:
            KERNEL_TRACES.write(trace, self._path)
        self._log.event("kernels_traced", _summary_line(trace), overhead_pct=trace.overhead_pct)
        if trace.shortfall:
            self._log.line_here(trace.shortfall)

    def _overhead_pct(self) -> float | None:
        """Return how much longer traced iterations took; those between begin at their predecessors' ends."""
        took_s = [after - before for before, after in pairwise(self._begun_s)]
        took_s.append(time.monotonic() - self._begun_s[-1])
        plain_s = took_s[1:SETTLING]
        traced_s = took_s[SETTLING:]
        if not plain_s or min(plain_s) <= 0.0:
            return None
        return 100.0 * (sum(traced_s) / len(traced_s) / min(plain_s) - 1.0)


def _summary_line(trace: KernelTrace) -> str:
    overhead = "" if trace.overhead_pct is None else f"; traced iterations took {trace.overhead_pct:+.0f} %"
    deviating = sum(one.deviating for one in trace.sequences)
    other = f", {deviating} instructions launched something else" if deviating else ""
    return (
        f"traced {trace.iterations} iterations: {trace.launches} launches of {len(trace.classes)} kernel "
        f"classes on this rank{other}{overhead}"
    )


# A kernel class launched again: the same operator on tensors of the same shapes and type.

_CHUNK = 64


def cuda_device() -> tuple[torch.device, str]:
    """Return the current CUDA device and its UUID as NVML writes it.

    Raises:
        DeviceUnavailableError: there is no such device.
    """
    if not torch.cuda.is_available():
        raise DeviceUnavailableError(
            "no CUDA device to measure kernels on", hint="--simulated GPU measures on a simulated one"
        )
    device = torch.device("cuda", torch.cuda.current_device())
    return device, f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def replay_of(kernel: KernelClass, *, device: torch.device) -> Callable[[int], None]:
    """Build the operator's arguments and launch it once; return what launches it so often, back to back.

    That waits for the device at its end. On CUDA it replays a captured graph of many launches where possible.

    Raises:
        ProfileError: there is no such operator, or it does not take these arguments.
    """
    reason = "PyTorch has no such operator"
    for overload in _overloads(kernel):
        try:
            launch = _launch(kernel, overload, device)
            launch()
        except Exception as error:  # noqa: BLE001  # whatever an operator raises, it is not this overload
            reason = str(error).splitlines()[0][:120]
            continue
        return _repeat(launch, device)
    raise ProfileError(f"{kernel.name} cannot be replayed: {reason}")


def _repeat(launch: Callable[[], object], device: torch.device) -> Callable[[int], None]:
    on_cuda = device.type == "cuda"
    chunk = _capture_chunk(launch) if on_cuda else None

    def run(launches: int) -> None:
        chunks, rest = (0, launches) if chunk is None else divmod(launches, _CHUNK)
        for _ in range(chunks):
            assert chunk is not None
            chunk()
        for _ in range(rest):
            launch()
        if on_cuda:
            torch.cuda.synchronize(device)

    return run


def _overloads(kernel: KernelClass) -> list[OpOverload]:
    space, _, name = kernel.name.partition("::")
    packet = getattr(getattr(torch.ops, space, None), name, None) if name else None
    if not isinstance(packet, OpOverloadPacket):
        return []
    overloads = [getattr(packet, one) for one in packet.overloads()]  # type: ignore[no-untyped-call]  # torch's own
    return [one for one in overloads if not any(argument.is_out for argument in _schema(one))]


def _schema(overload: OpOverload) -> list[torch.Argument]:
    arguments: list[torch.Argument] = overload._schema.arguments  # noqa: SLF001  # torch has no other way to ask
    return arguments


def _launch(kernel: KernelClass, overload: OpOverload, device: torch.device) -> Callable[[], object]:
    """Bind the arguments: the profiler notes them in the schema's order, those by keyword too.

    It notes no strings: they have their defaults.
    """
    schema = _schema(overload)
    values = _arguments(kernel, device)
    filled = [
        argument.default_value if value is None and argument.has_default_value() else value
        for value, argument in zip(values, schema, strict=False)
    ]
    given = [value for value, argument in zip(filled, schema, strict=False) if not argument.kwarg_only]
    named = {a.name: value for value, a in zip(filled, schema, strict=False) if a.kwarg_only}
    if len(values) > len(schema):
        raise TypeError(f"it takes {len(schema)} arguments, {len(values)} were noted")

    def launch() -> object:
        with torch.no_grad():
            return overload(*given, **named)

    return launch


def _arguments(kernel: KernelClass, device: torch.device) -> list[object]:
    """Return tensors for tensors, and the noted value for all else."""
    words = kernel.note.split(";") if kernel.note else [TENSOR] * len(kernel.shapes)
    shapes = iter(kernel.shapes)
    return [_tensor(next(shapes), kernel.dtype, device) if word == TENSOR else _value(word) for word in words]


def _tensor(shape: tuple[int, ...], dtype: str, device: torch.device) -> torch.Tensor:
    kind: torch.dtype = getattr(torch, dtype)
    if kind.is_floating_point:
        return torch.rand(shape, device=device).to(kind)
    return torch.zeros(shape, device=device, dtype=kind)


def _value(word: str) -> object:
    if word == ABSENT:
        return None
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def _capture_chunk(launch: Callable[[], object]) -> Callable[[], object] | None:
    """Capture a chunk of launches in a CUDA graph; an operator that cannot be captured is launched singly."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_CHUNK):
                launch()
    except RuntimeError:
        return None
    return graph.replay
