"""A kernel class launched again: the same operator on tensors of the same shapes and type."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch._ops import OpOverload, OpOverloadPacket

from perseus_ds.errors import DeviceUnavailableError, ProfileError
from perseus_ds.kernels import KernelClass
from perseus_ds.kernels.cut import ABSENT, TENSOR

_CHUNK = 64


@dataclass(frozen=True, slots=True)
class OperatorReplay:
    """Launches of one class on one device; on CUDA many at a time, from a captured graph where possible."""

    launch: Callable[[], object]
    many: Callable[[], object] | None
    device: torch.device

    def run(self, launches: int) -> None:
        """Launch it so often, back to back, and wait for the device."""
        chunks = launches // _CHUNK if self.many is not None else 0
        for _ in range(chunks):
            assert self.many is not None
            self.many()
        for _ in range(launches - chunks * _CHUNK):
            self.launch()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


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


def replay_of(kernel: KernelClass, *, device: torch.device) -> OperatorReplay:
    """Build the operator's arguments and launch it once.

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
        return OperatorReplay(launch, _captured(launch) if device.type == "cuda" else None, device)
    raise ProfileError(f"{kernel.name} cannot be replayed: {reason}")


def _overloads(kernel: KernelClass) -> list[OpOverload]:
    """The operator's overloads that write into nothing that they are given."""
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
    """Tensors for tensors, what the trace noted for all else."""
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


def _captured(launch: Callable[[], object]) -> Callable[[], object] | None:
    """Capture a chunk of launches in a CUDA graph; an operator that cannot be captured is launched singly."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(_CHUNK):
                launch()
    except RuntimeError:
        return None
    return graph.replay
