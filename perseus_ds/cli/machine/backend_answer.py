"""What every backend states when ``device: automatic`` asks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from perseus_ds.device import DeviceRequest
from perseus_ds.device.choose import backends
from perseus_ds.errors import DeviceError


@dataclass(frozen=True, slots=True)
class BackendAnswer:
    """What one backend states when ``auto`` asks it; ``refusal`` is empty where it can serve."""

    name: str
    summary: str
    priority: float | None
    refusal: str


def answers() -> Iterator[BackendAnswer]:
    """Ask every backend as a training job would."""
    for backend in backends():
        try:
            priority = backend.priority(DeviceRequest("auto"))
        except DeviceError as error:
            yield BackendAnswer(backend.name, backend.summary, None, str(error))
        else:
            yield BackendAnswer(backend.name, backend.summary, priority, "")
