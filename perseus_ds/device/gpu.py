"""The interface of a GPU (`GpuReader`, `Gpu`), the records that it returns, and conflicts over its clock."""

from __future__ import annotations

import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from perseus_ds.device.clock_agenda import DatedClocks
from perseus_ds.errors import DeviceError, DeviceUnsupportedError, ValueRefusedError

if TYPE_CHECKING:
    from perseus_ds.device.simulated.settings import SimulatedSettings


class EventReason(IntFlag):
    """Reasons for the clock's present value, with NVML's own bits.

    Source: nvml.h 13, ``nvmlClocksEventReason*``.
    """

    NONE = 0x0
    GPU_IDLE = 0x1
    APPLICATIONS_CLOCKS = 0x2
    SW_POWER_CAP = 0x4
    HW_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    HW_POWER_BRAKE = 0x80
    DISPLAY_CLOCK = 0x100

    @property
    def spoils(self) -> bool:
        """Return whether a measurement under these reasons was not taken at the requested clock."""
        return bool(self & (_THERMAL | _HARDWARE | EventReason.SW_POWER_CAP))


_THERMAL = EventReason.SW_THERMAL | EventReason.HW_THERMAL
_HARDWARE = EventReason.HW_SLOWDOWN | EventReason.HW_POWER_BRAKE


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a device; ``index`` is the backend's own numbering, never CUDA's."""

    name: str
    uuid: str
    pci_bus_id: str
    driver: str
    index: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities of a device.

    ``clocks_mhz`` descends. ``why_not`` is the reason when ``can_lock`` is false. A
    ``counter_period_s`` of ``None`` means that there is no energy counter. ``switch_latency_s`` is
    call plus settle, declared or measured; ``switch_call_s`` is the part of it that the call takes.
    With ``persistence`` off a lock may silently not hold; ``None`` where there is no such mode.
    ``memory_why_not`` is why the memory clock cannot be locked, reported without trying; ``None``: it can.
    """

    clocks_mhz: tuple[int, ...]
    memory_clocks_mhz: tuple[int, ...]
    can_lock: bool
    why_not: str | None
    counter_period_s: float | None
    switch_latency_s: float
    switch_call_s: float = 0.0
    persistence: bool | None = None
    memory_why_not: str | None = "this backend does not set memory clocks"

    @property
    def default_clock_mhz(self) -> int:
        """The clock that the device takes when nobody locks it: its maximum (0 without a grid)."""
        return self.clocks_mhz[0] if self.clocks_mhz else 0

    @property
    def grid(self) -> str:
        """The clocks in a few words, for a refusal: ``210 to 1410 MHz in steps of 15``."""
        if not self.clocks_mhz:
            return "no clocks at all"
        low, high = self.clocks_mhz[-1], self.clocks_mhz[0]
        steps = {above - below for above, below in pairwise(self.clocks_mhz)}
        if len(steps) == 1:
            return f"{low} to {high} MHz in steps of {steps.pop()}"
        return f"{len(self.clocks_mhz)} clocks from {low} to {high} MHz"


@dataclass(frozen=True, slots=True)
class Achieved:
    """The clock that the device runs at just now, and the reasons."""

    clock_mhz: int
    event_reasons: EventReason


# Settings of a GPU's power and clocks that operators and their tools have made, and how two readings differ.

FIELDS = ("power_limit", "application_clock", "power_smoothing", "power_profiles")
"""Names of `OperatorSettings.fields`."""


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """A reading of a device; ``None``: its driver does not state it.

    ``limit_w`` is the power limit in force, the least of the user's, the board's and the module's.
    ``ceiling_mhz`` is the application clock, or a customer's boost, where somebody has set one, else 0.
    ``smoothing`` is whether power smoothing is on, ``profiles`` are the workload power profiles in force.
    """

    limit_w: float | None = None
    default_limit_w: float | None = None
    ceiling_mhz: int | None = None
    smoothing: bool | None = None
    profiles: tuple[int, ...] | None = None

    def fields(self) -> dict[str, str]:
        """Name what is stated, as fingerprints have it: watts without fractions, so that they stay alike."""
        found = {}
        if self.limit_w is not None:
            found["power_limit"] = f"{self.limit_w:.0f} W"
        if self.ceiling_mhz is not None:
            found["application_clock"] = f"{self.ceiling_mhz} MHz" if self.ceiling_mhz else "default"
        if self.smoothing is not None:
            found["power_smoothing"] = "on" if self.smoothing else "off"
        if self.profiles is not None:
            found["power_profiles"] = ", ".join(map(str, self.profiles)) or "none"
        return found

    def unusual(self) -> Iterator[str]:
        """Return in words each setting that is not a GPU's own default."""
        usual_w = self.default_limit_w
        if self.limit_w is not None and usual_w is not None and abs(self.limit_w - usual_w) >= 1.0:
            yield f"power limit {self.limit_w:.0f} W instead of {usual_w:.0f} W"
        if self.ceiling_mhz:
            yield f"application clock or customer boost {self.ceiling_mhz} MHz"
        if self.smoothing:
            yield "power smoothing on"
        if self.profiles:
            yield f"workload power profile {self.fields()['power_profiles']}"


def setting_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """Return in words each field that both readings state, and differently."""
    for name in FIELDS:
        if name in before and name in now and before[name] != now[name]:
            yield f"{name.replace('_', ' ')} {before[name]} before, {now[name]} now"


# Conflicts: from what was locked and what was seen to one line and a reaction each.


class Reaction(Enum):
    """Reaction to a conflict."""

    KNOW = "go on"
    GO_ON = "go on; samples taken meanwhile are not used"
    AS_REACHED = "go on; samples count for the clock that was reached"
    GIVE_UP = "give up control and put the clock back"


_KNOW, _GO_ON, _AS_REACHED, _GIVE_UP = Reaction


class ConflictKind(Enum):
    """Kinds of conflict; the value is the line that a user reads and the reaction."""

    FOREIGN_CLOCK = ("somebody else changed the clock (dcgmi config --enforce, EAR, another job?)", _GIVE_UP)
    NOT_HELD = ("the clock was stored and never reached, with no reason given", _KNOW)
    POWER_CAP = ("the power cap holds the clock down", _AS_REACHED)
    THERMAL = ("the GPU is too hot for this clock", _AS_REACHED)
    HW_SLOWDOWN = ("the hardware slows the GPU down (power brake or supply)", _AS_REACHED)
    SETTING_CHANGED = ("somebody changed a setting of power or clocks that the profile relies on", _KNOW)
    PERSISTENCE_OFF = ("persistence mode is off, so a locked clock may not hold (nvidia-smi -pm 1)", _KNOW)
    PREEXISTING_LOCK = (
        "looked locked before, and gets default clocks (to keep it: restore_clock_mhz)",
        _KNOW,
    )
    KILLED_TOGETHER = ("killing the job's control group leaves its clock locked (clocks reset)", _KNOW)
    CONTROL_LOST = ("the node's clock service is gone or hangs: no clock is set until it is back", _GO_ON)
    CONTROL_BACK = ("the node's clock service is back and has handed the GPU over again", _KNOW)
    NOT_STORED = ("the driver did not take a higher clock in time", _GO_ON)
    CLOCK_REFUSED = ("the driver refuses a clock that it lists: the next higher one is set instead", _KNOW)
    BAD_JOURNAL = ("what an earlier guard left cannot be relied on", _KNOW)
    GPU_LOST = ("the GPU has fallen off the bus (NVML error 15)", _GIVE_UP)

    @property
    def text(self) -> str:
        return self.value[0]

    @property
    def action(self) -> Reaction:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A kind of conflict as seen so far: its latest line, and how often it was seen."""

    kind: ConflictKind
    line: str
    count: int = 1


_TOLERANCE_MHZ = 30  # assumed: two steps of the grid, for parts whose clock wavers with temperature
_BY_REASON = (
    (EventReason.SW_POWER_CAP, ConflictKind.POWER_CAP),
    (_THERMAL, ConflictKind.THERMAL),
    (_HARDWARE, ConflictKind.HW_SLOWDOWN),
)


def is_at(locked_mhz: int, achieved: Achieved) -> bool:
    """Return whether a clock is the locked one, as closely as parts hold it."""
    return abs(achieved.clock_mhz - locked_mhz) <= _TOLERANCE_MHZ


def is_held(asked_mhz: int, seen_mhz: int) -> bool:
    """Return whether the achieved clock is no lower than requested, as closely as parts hold it."""
    return seen_mhz >= asked_mhz - _TOLERANCE_MHZ


def conflicts(
    locked_mhz: int, achieved: Achieved, *, held_mhz: float = 0.0, idle: bool = False, settled: bool = True
) -> tuple[Sighting, ...]:
    """Judge one look at a GPU; ``settled``: its lock has had time, ``idle``: no process works on it.

    Only somebody else puts a clock above its lock. One below it has mostly been lowered by the device, which
    gives a reason or does not: that is normal under full load. It was another process where the device gives
    no reason and was measured to hold this clock or a higher one (``held_mhz``) under load. A reason without
    effect does not count, and heat is always worth a line. An idle GPU may clock down, lock or not.
    """
    above = achieved.clock_mhz > locked_mhz + _TOLERANCE_MHZ
    below = not is_held(locked_mhz, achieved.clock_mhz)
    reasons = achieved.event_reasons
    kinds = [kind for bits, kind in _BY_REASON if reasons & bits and (below or bits is _THERMAL)]
    unexplained = below and not (kinds or idle or reasons & EventReason.GPU_IDLE)
    if settled and (above or unexplained):
        foreign = above or locked_mhz <= held_mhz
        kinds.append(ConflictKind.FOREIGN_CLOCK if foreign else ConflictKind.NOT_HELD)
    clocks = f"{locked_mhz} MHz asked, {achieved.clock_mhz} MHz seen"
    return tuple(Sighting(kind, f"{kind.text}: {clocks}") for kind in kinds)


def apparent_lock_mhz(samples: Sequence[Achieved], able: Capabilities, *, idle: bool = False) -> int | None:
    """Return the clock at which a GPU looks locked, for a warning only: NVML cannot be asked.

    A clock that stands still on a grid point below the maximum, with no reason given (not idle, not
    throttled), may be locked, or just on its way up. An ``idle`` GPU may stand far below for no reason.
    """
    seen = {(sample.clock_mhz, sample.event_reasons & ~EventReason.APPLICATIONS_CLOCKS) for sample in samples}
    if len(seen) != 1:
        return None
    clock_mhz, reasons = seen.pop()
    held = reasons is EventReason.NONE and able.clocks_mhz[-1:] != (clock_mhz,)
    low = idle and 2 * clock_mhz < able.default_clock_mhz
    return clock_mhz if held and not low and clock_mhz in able.clocks_mhz[1:] else None


class GpuReader(ABC):
    """A device that is read: which one it is, its clocks, energy, power and temperature.

    Every method may raise a `DeviceError`; none raises a vendor's error. Methods may be called from several
    threads. What a device does not show is ``None``.
    """

    @abstractmethod
    def identify(self) -> Identity:
        """Return which device this is."""

    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return what the device can do; the answer does not change while it is open."""

    @abstractmethod
    def achieved(self) -> Achieved:
        """Read the clocks in force now, and the reasons."""

    @abstractmethod
    def energy_j(self) -> float:
        """Read the energy counter: joules since some fixed start, updated about every 100 ms.

        A `DeviceUnsupportedError`: there is none (``counter_period_s`` is ``None``).
        """

    def power_w(self) -> float | None:
        """Read what this GPU alone takes at this instant."""
        return None

    def temperature_c(self) -> float | None:
        """Read the temperature of this GPU's chip."""
        return None

    def operator_settings(self) -> OperatorSettings:
        """Read what operators have set of this GPU's power and clocks; a lost GPU alone is an error."""
        return OperatorSettings()

    def now_s(self) -> float:
        """Read the time base of this device's energy and instructions: the host's monotonic clock."""
        return time.monotonic()

    def wall_s(self, device_s: float) -> float:
        """Return how long a stretch of this device's time lasts on the host's clock."""
        return device_s

    def sleep(self, device_s: float) -> None:
        """Let a stretch of this device's time pass."""
        time.sleep(self.wall_s(device_s))

    def device_file(self) -> str | None:
        """Name the device file that a user of this device opens."""
        return None

    def busy(self) -> str | None:
        """Return who works on this device just now; ``None`` where nobody does, or nobody can show."""
        load_pct = self.load_pct()
        return f"its load is {load_pct} %" if load_pct else None

    def load_pct(self) -> int | None:
        """Return how busy this device has been of late.

        An idle device clocks as it likes, lock or not, and does not always state that it is idle.
        """
        return None

    def opened_elsewhere(self) -> tuple[str, str] | None:
        """Return backend and UUID by which another process can open this device; ``None``: none can."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of the device; the second call does nothing. Clocks stay: restoring is the guard's work."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Gpu(GpuReader):
    """A device behind one backend, whose clocks can be set if `capabilities` states so.

    A backend ships when it passes `GpuContract` (tests/contract/gpu_contract.py).
    """

    @abstractmethod
    def lock_clock(self, clock_mhz: int) -> None:
        """Ask for a fixed core clock; success means "stored", the clock follows after the switch latency.

        Raises:
            DeviceUnsupportedError: the clock is not on the grid, or this device locks no clocks.
            ValueRefusedError: the driver lists this clock and refuses it; `refused_mhz` has it from then on.
            DevicePermissionError: the right to set clocks is missing.
            DeviceLostError: the GPU has fallen off the bus.
        """

    @abstractmethod
    def reset_clock(self) -> None:
        """Give the choice of the clock back to the device; harmless when nothing is locked."""

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
        """Ask for a fixed memory clock, as `lock_clock` does, unless ``memory_why_not`` states why not."""
        del memory_mhz
        raise DeviceUnsupportedError(f"{self.identify().name}: {self.capabilities().memory_why_not}")

    def reset_memory_clock(self) -> None:
        """Give the choice of the memory clock back to the device; harmless when nothing is locked."""

    def dated_clocks(self) -> DatedClocks | None:
        """Whoever asks this device for clocks at moments to come; None: only this process could."""
        return None

    def expect(self, *, call_s: float, latency_s: float, held_mhz: int = 0) -> None:
        """Take note of what plans reckon with: how long a call takes, and until its clock is in force.

        ``held_mhz`` is the highest clock that was seen to hold under the job's load, 0 where not known.
        """

    def sync(self) -> None:
        """Wait until every clock asked for so far is stored in the driver, or raise why it is not."""

    def standing_lock_mhz(self) -> int | None:
        """Return at which clock this device is locked, by whomever; ``None``: it is not.

        A `DeviceUnsupportedError`: it cannot be asked, as NVML cannot.
        """
        raise DeviceUnsupportedError(f"{self.identify().name} does not report whether its clock is locked")

    def conflicts(self) -> tuple[Sighting, ...]:
        """Return what was seen at work against us on this device; nothing but refusals where nobody looks."""
        refused_mhz = sorted(self.refused_mhz())
        if not refused_mhz:
            return ()
        line = f"{ConflictKind.CLOCK_REFUSED.text}: {', '.join(map(str, refused_mhz))} MHz"
        return (Sighting(ConflictKind.CLOCK_REFUSED, line, len(refused_mhz)),)

    def given_up(self) -> DeviceError | None:
        """Return why no clock is set through this device any more, if that is so."""
        return None

    def in_control(self) -> bool:
        """Return whether clocks that are asked for are set just now, as far as is known."""
        return self.given_up() is None

    def check_clock(self, clock_mhz: int) -> None:
        """Refuse a clock that is not on the grid."""
        able = self.capabilities()
        if clock_mhz not in able.clocks_mhz:
            what = f"{clock_mhz} MHz is not a clock of {self.identify().name}"
            raise DeviceUnsupportedError(f"{what}: it has {able.grid}")


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """The device that one rank wants, as `guard.open.choose` is asked for it.

    ``uuid`` or ``pci_bus_id`` is torch's own device on CUDA or HIP. Without either, ``automatic`` takes no
    GPU, and a backend that is asked for by name takes ``local_rank`` as its index. ``lock``: clocks will be
    set, not only read. ``allow_unguarded_container``: they are set even where the guard would be killed with
    its container and leave a clock locked. ``restore_clock_mhz`` is what our own guard puts back (None: the
    default).
    """

    setting: str = "automatic"
    local_rank: int = 0
    uuid: str | None = None
    pci_bus_id: str | None = None
    simulated: SimulatedSettings | None = None
    lock: bool = True
    allow_unguarded_container: bool = False
    restore_clock_mhz: int | None = None


T = TypeVar("T")


class LibraryGpu(Gpu):
    """A GPU behind a vendor's library, opened, asked and let go of in one way.

    A backend names the library's error, how it becomes ours, and how the library is stopped; its constructor
    finds the GPU and reads what it is and can.
    """

    backend: str
    _what: str
    _identity: Identity
    _capabilities: Capabilities
    _open = False
    _refused_mhz: frozenset[int] = frozenset()
    _vendor_error: type[Exception]
    _code_of: Callable[[Exception], int]

    @abstractmethod
    def _error_of(self, code: int, what: str) -> DeviceError: ...

    @abstractmethod
    def _shut_down(self) -> None: ...

    def identify(self) -> Identity:
        return self._identity

    def capabilities(self) -> Capabilities:
        return self._capabilities

    def refused_mhz(self) -> frozenset[int]:
        return self._refused_mhz

    def opened_elsewhere(self) -> tuple[str, str]:
        return self.backend, self._identity.uuid

    def close(self) -> None:
        if self._open:
            self._open = False
            with contextlib.suppress(DeviceError):  # there is nothing that could be done about it
                self._ask(self._shut_down, name="stop the library")

    @contextlib.contextmanager
    def _open_library(self, start: Callable[[], object]) -> Iterator[None]:
        """Start the library, and let go of it where the device cannot be opened."""
        self._ask(start, name="start the library")
        self._open = True
        try:
            yield
        except DeviceError:
            self.close()
            raise

    def _lock(self, clock_mhz: int, call: Callable[[], object]) -> None:
        self.check_clock(clock_mhz)
        try:
            self._ask(call, name=f"lock {clock_mhz} MHz")
        except ValueRefusedError:
            self._refused_mhz |= {clock_mhz}
            raise

    def _ask(self, call: Callable[[], T], *, name: str) -> T:
        try:
            return call()
        except self._vendor_error as error:
            raise self._error_of(self._code_of(error), f"{self._what}: {name}") from error

    def _optional(self, call: Callable[[], T]) -> T | None:
        try:
            return self._ask(call, name="ask")
        except DeviceUnsupportedError:
            return None


# The right to set the clocks of a GPU: the driver asks for CAP_SYS_ADMIN on the node itself.
#
# Source: capabilities(7); user_namespaces(7): the maker of a namespace has every capability in it and none
# outside. The node's own shows all numbers as they are.

_CAP_SYS_ADMIN = 21  # linux/capability.h
_ALL_AS_THEY_ARE = ["0", "0", "4294967295"]


def missing_right() -> str | None:
    """Return why this process may not set clocks, or ``None`` when it may."""
    status, numbers = "", ""
    with contextlib.suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        numbers = Path("/proc/self/uid_map").read_text(encoding="ascii")
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    if not int(effective, 16) >> _CAP_SYS_ADMIN & 1:
        who = "root of a container" if os.geteuid() == 0 else f"user {os.geteuid()}"
        return f"{who} without CAP_SYS_ADMIN"
    return None if numbers.split() == _ALL_AS_THEY_ARE else "CAP_SYS_ADMIN in a user namespace alone"
