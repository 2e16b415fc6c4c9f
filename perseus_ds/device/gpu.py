"""One GPU as this package needs it: who it is, what it can do, its clock and its energy."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from perseus_ds.device.clock_agenda import DatedClocks
from perseus_ds.device.conflict import ConflictKind, Sighting
from perseus_ds.device.operator_settings import OperatorSettings
from perseus_ds.device.record import Achieved, Capabilities, Identity
from perseus_ds.errors import DeviceError, DeviceUnsupportedError


class Gpu(ABC):
    """A device behind one backend.

    Every method may raise a `DeviceError`; none raises a vendor's error. Methods may be called from
    several threads. A backend ships when it passes `GpuContract` (tests/support/gpu_contract.py).
    """

    @abstractmethod
    def identify(self) -> Identity:
        """Return which device this is."""

    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return what the device can do; the answer does not change while it is open."""

    @abstractmethod
    def lock_clock(self, clock_mhz: int) -> None:
        """Ask for a fixed core clock; success means "stored", the clock follows after the switch latency.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid, or this device locks no clocks.
            ValueRefusedError: the driver lists this clock and refuses it; `refused_mhz` has it from then on.
            DevicePermissionError: the right to set clocks is missing.
        """

    @abstractmethod
    def reset_clock(self) -> None:
        """Give the choice of the clock back to the device; harmless when nothing is locked.

        Raises:
            DevicePermissionError: the right to set clocks is missing: what is locked stays locked.
        """

    def refused_mhz(self) -> frozenset[int]:
        """Return the clocks of the grid that the driver has refused so far."""
        return frozenset()

    def granted_mhz(self, clock_mhz: int) -> int | None:
        """Return the clock to ask for in place of one: itself, or the next higher one if it was refused.

        None is the device's own choice, where every higher one was refused too. Work is never slower for it.
        """
        refused_mhz = self.refused_mhz()
        if clock_mhz not in refused_mhz:
            return clock_mhz
        higher_mhz = (mhz for mhz in self.capabilities().clocks_mhz if mhz > clock_mhz)
        return min((mhz for mhz in higher_mhz if mhz not in refused_mhz), default=None)

    def lock_memory_clock(self, memory_mhz: int) -> None:
        """Ask for a fixed memory clock, as `lock_clock` does for the core's.

        Raises:
            DeviceUnsupportedError: this device locks no memory clocks (``capabilities().memory_why_not``).
        """
        del memory_mhz
        raise DeviceUnsupportedError(f"{self.identify().name}: {self.capabilities().memory_why_not}")

    def reset_memory_clock(self) -> None:  # noqa: B027 - most devices have none to reset
        """Give the choice of the memory clock back to the device; harmless when nothing is locked."""

    def dated_clocks(self) -> DatedClocks | None:
        """Whoever asks this device for clocks at moments to come; None: only this process could."""
        return None

    def expect(self, *, call_s: float, latency_s: float, held_mhz: int = 0) -> None:  # noqa: B027
        """Take note of what plans reckon with: how long a call takes, and until its clock is in force.

        ``held_mhz`` is the highest clock that was seen to hold under the job's load, 0 where not known.
        """

    def sync(self) -> None:  # noqa: B027 - most devices have nothing to wait for
        """Wait until every clock asked for so far is stored in the driver.

        Raises:
            DeviceError: refused, or no answer.
        """

    @abstractmethod
    def achieved(self) -> Achieved:
        """Read the clocks in force now."""

    @abstractmethod
    def energy_j(self) -> float:
        """Read the energy counter: joules since some fixed start, updated about every 100 ms.

        Raises:
            DeviceUnsupportedError: the device has no counter (``counter_period_s`` is ``None``).
        """

    def power_w(self) -> float | None:
        """Read what this GPU alone takes at this instant; ``None`` where it does not show."""
        return None

    def temperature_c(self) -> float | None:
        """Read the temperature of this GPU's chip; ``None`` where it does not show."""
        return None

    def operator_settings(self) -> OperatorSettings | None:
        """Read what operators have set of this GPU's power and clocks; ``None`` where there is no such thing.

        Raises:
            DeviceLostError: the GPU has fallen off the bus.
        """
        return None

    @abstractmethod
    def now_s(self) -> float:
        """Read the time base of this device's energy and instructions."""

    def wall_s(self, device_s: float) -> float:
        """How long a stretch of this device's time lasts on the host's clock."""
        return device_s

    def sleep(self, device_s: float) -> None:
        """Let a stretch of this device's time pass."""
        time.sleep(self.wall_s(device_s))

    def standing_lock_mhz(self) -> int | None:
        """Return at which clock this device is locked, by whomever; ``None``: it is not.

        Raises:
            DeviceUnsupportedError: it cannot be asked, as NVML cannot.
        """
        raise DeviceUnsupportedError(f"{self.identify().name} does not report whether its clock is locked")

    def device_file(self) -> str | None:
        """Name the device file that a user of this device opens; ``None``: no such file is known."""
        return None

    def busy(self) -> str | None:
        """Return who works on this device just now; ``None`` where nobody does, or nobody can show."""
        return None

    def load_pct(self) -> int | None:
        """Return how busy this device has been of late; ``None`` where it cannot be asked.

        An idle device clocks as it likes, lock or not, and does not always state that it is idle.
        """
        return None

    def conflicts(self) -> tuple[Sighting, ...]:
        """Return what was seen at work against us on this device; nothing but refusals where nobody looks."""
        refused_mhz = sorted(self.refused_mhz())
        line = f"{ConflictKind.CLOCK_REFUSED.text}: {', '.join(map(str, refused_mhz))} MHz"
        return (Sighting(ConflictKind.CLOCK_REFUSED, line, len(refused_mhz)),) if refused_mhz else ()

    def given_up(self) -> DeviceError | None:
        """Return why no clock is set through this device any more, if that is so."""
        return None

    def in_control(self) -> bool:
        """Whether clocks that are asked for are set just now, as far as is known."""
        return self.given_up() is None

    def opened_elsewhere(self) -> tuple[str, str] | None:
        """By which backend and UUID another process opens this device too, to read it; None: none can."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of the device; the second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
