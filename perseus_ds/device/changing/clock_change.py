"""What happens between asking for a clock and having it: the one model of a change that all of us use."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields

from perseus_ds.device.changing.calibration import Calibration
from perseus_ds.device.record import Capabilities
from perseus_ds.errors import DeviceError


@dataclass(frozen=True, slots=True)
class ClockChange:
    """One change of clock, in device seconds; the old clock runs on until the new one is in force.

    ``call_s`` is how long the driver's call takes for the caller. ``settle_up_s`` and ``settle_down_s`` are
    how long after it the higher or the lower clock is in force. ``queue_s`` is the part of a call in which
    the driver serves no other GPU of the node: calls that coincide take their turns. For ``stall_s`` from the
    moment that the new clock is in force the GPU does no work.

    Raises:
        DeviceError: a number that is negative or not finite, or a queue longer than the call.
    """

    call_s: float = 0.0
    settle_up_s: float = 0.0
    settle_down_s: float = 0.0
    queue_s: float = 0.0
    stall_s: float = 0.0

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if not (math.isfinite(value) and value >= 0.0):
                raise DeviceError(
                    f"clock change: {part.name} is {value!r}", hint="expected a finite number, 0 or more"
                )
        if self.queue_s > self.call_s:
            raise DeviceError(
                f"clock change: queue_s is {self.queue_s:g}, more than call_s, {self.call_s:g}",
                hint="a call holds the driver for no longer than it takes",
            )

    @classmethod
    def lasting(cls, latency_s: float) -> ClockChange:
        """Take all of a known latency as settling, the same both ways."""
        return cls(settle_up_s=latency_s, settle_down_s=latency_s)

    @classmethod
    def of(cls, able: Capabilities, calibration: Calibration | None = None, *, gpus: int = 1) -> ClockChange:
        """Read the model off a calibration, where it states nothing off what the device declares.

        ``gpus`` is how many were measured together: what the last of them waited longer than one alone
        is the queue.
        """
        call_s, latency_s = able.switch_call_s, able.switch_latency_s
        up_s = down_s = latency_s
        together_s = None
        if calibration is not None:
            call_s = call_s if calibration.call_s is None else calibration.call_s
            up_s = latency_s if calibration.up_s is None else calibration.up_s
            down_s = latency_s if calibration.down_s is None else calibration.down_s
            together_s = calibration.together_s
        queue_s = 0.0
        if together_s is not None and gpus > 1:
            queue_s = min(max(0.0, together_s - max(up_s, down_s)) / (gpus - 1), call_s)
        return cls(call_s, max(0.0, up_s - call_s), max(0.0, down_s - call_s), queue_s)

    @property
    def longest_s(self) -> float:
        """The latency of the slower direction, without waiting for others."""
        return self.call_s + max(self.settle_up_s, self.settle_down_s)

    def latency_s(self, from_mhz: float, to_mhz: float) -> float:
        """From asking to being in force, without waiting for others."""
        return self.call_s + (self.settle_up_s if to_mhz > from_mhz else self.settle_down_s)


@dataclass(slots=True)
class ChangeQueue:
    """The calls of one node's GPUs: when each change that is asked for comes into force.

    Each GPU makes one call after the other; while one call holds the driver, those of other GPUs wait.
    """

    change: ClockChange
    _driver_free_s: float = -math.inf
    _gpu_free_s: dict[int, float] = field(default_factory=dict)
    _in_force_s: dict[int, float] = field(default_factory=dict)

    def ask(self, gpu: int, asked_s: float, *, from_mhz: float, to_mhz: float) -> float:
        """Return when the clock is in force; calls must come in ascending time of asking.

        A change never overtakes an older one of the same GPU.
        """
        self._gpu_free_s[gpu], self._driver_free_s, self._in_force_s[gpu] = queued(
            asked_s,
            self._gpu_free_s.get(gpu, -math.inf),
            self._driver_free_s,
            self._in_force_s.get(gpu, -math.inf),
            self.change.call_s,
            self.change.latency_s(from_mhz, to_mhz),
            self.change.queue_s,
        )
        return self._in_force_s[gpu]


def queued(  # noqa: PLR0917 - compiled code knows no names
    asked_s: float,
    gpu_free_s: float,
    driver_free_s: float,
    in_force_s: float,
    call_s: float,
    latency_s: float,
    queue_s: float,
) -> tuple[float, float, float]:
    """Return when GPU and driver are free again, and when the clock that is asked for is in force.

    ``in_force_s`` is when the GPU's change before comes into force. Floats alone, so that the emulator can
    compile it for thousands of GPUs.
    """
    begins_s = max(asked_s, gpu_free_s)
    if queue_s > 0.0:
        begins_s = max(begins_s, driver_free_s)
        driver_free_s = begins_s + queue_s
    return begins_s + call_s, driver_free_s, max(begins_s + latency_s, in_force_s)
