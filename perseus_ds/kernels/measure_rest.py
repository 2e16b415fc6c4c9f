"""What a GPU at rest spares at lower memory clocks: waits behind a timeline are spent at its last pair."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.device import Gpu
from perseus_ds.device.clock_pair import DEFAULT_PAIR, ClockPair
from perseus_ds.kernels.measure import Patience, measure

_REST_S = 0.001


@dataclass(frozen=True, slots=True)
class _Rest:
    """Milliseconds in which nothing is launched."""

    gpu: Gpu

    def run(self, launches: int) -> None:
        """Let so many pass."""
        self.gpu.sleep(launches * _REST_S)


def spared_at_rest_w(gpu: Gpu, patience: Patience) -> tuple[tuple[int, float], ...]:
    """Watts that each memory clock below the device's own spares while nothing runs.

    How much a waiting GPU takes beside that depends on how it waits; the memory's share does not.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
    """
    lower = gpu.capabilities().memory_clocks_mhz[1:]
    if not lower:
        return ()
    own, *others = measure(
        gpu, _Rest(gpu), [DEFAULT_PAIR, *(ClockPair(mhz, None) for mhz in lower)], patience
    )
    own_w = own.energy_j / own.time_s
    return tuple(
        (mhz, max(0.0, own_w - one.energy_j / one.time_s)) for mhz, one in zip(lower, others, strict=True)
    )
