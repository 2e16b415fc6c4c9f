"""Who works against us on a GPU: from what was locked and what was seen to one line and an action each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from perseus_ds.device.clock_agenda import AskedClocks
from perseus_ds.device.record import Achieved, Capabilities, EventReason


class Reaction(Enum):
    """What to do about a conflict."""

    KNOW = "go on"
    GO_ON = "go on; samples taken meanwhile are not used"
    AS_REACHED = "go on; samples count for the clock that was reached"
    GIVE_UP = "give up control and put the clock back"


class ConflictKind(Enum):
    """What can be in the way; the value is the line a user reads and the action."""

    FOREIGN_CLOCK = (
        "somebody else changed the clock (dcgmi config --enforce, EAR, another job?)",
        Reaction.GIVE_UP,
    )
    NOT_HELD = ("the clock was stored and never reached, with no reason given", Reaction.KNOW)
    POWER_CAP = ("the power cap holds the clock down", Reaction.AS_REACHED)
    THERMAL = ("the GPU is too hot for this clock", Reaction.AS_REACHED)
    HW_SLOWDOWN = ("the hardware slows the GPU down (power brake or supply)", Reaction.AS_REACHED)
    POWER_PROFILE = (
        "the workload power profile changed, so that clock and power may no longer be as profiled",
        Reaction.KNOW,
    )
    POWER_LIMIT = (
        "the enforced power limit changed, so that clocks may no longer hold as profiled",
        Reaction.KNOW,
    )
    APPLICATION_CLOCK = ("somebody changed the application clock or the customer boost", Reaction.KNOW)
    POWER_SMOOTHING = (
        "power smoothing changed, so that power may no longer be as profiled",
        Reaction.KNOW,
    )
    PERSISTENCE_OFF = (
        "persistence mode is off, so a locked clock may not hold (nvidia-smi -pm 1)",
        Reaction.KNOW,
    )
    PREEXISTING_LOCK = (
        "looked locked before this job came, and gets its default clocks (to keep it: restore_clock_mhz)",
        Reaction.KNOW,
    )
    KILLED_TOGETHER = (
        "who kills the job's whole control group leaves its clock locked (perseus-ds clocks reset)",
        Reaction.KNOW,
    )
    CONTROL_LOST = (
        "the node's clock service is gone or hangs: no clock is set until it is back",
        Reaction.GO_ON,
    )
    CONTROL_BACK = ("the node's clock service is back and has handed the GPU over again", Reaction.KNOW)
    NOT_STORED = ("the driver did not take a higher clock in time", Reaction.GO_ON)
    CLOCK_REFUSED = (
        "the driver refuses a clock of its own list: the next higher one is asked for instead",
        Reaction.KNOW,
    )
    BAD_JOURNAL = ("what an earlier guard left cannot be relied on", Reaction.KNOW)
    GPU_LOST = ("the GPU has fallen off the bus (NVML error 15)", Reaction.GIVE_UP)

    @property
    def text(self) -> str:
        """The line."""
        return self.value[0]

    @property
    def action(self) -> Reaction:
        """The action."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Conflict:
    """One conflict, with the clocks where it was seen."""

    kind: ConflictKind
    locked_mhz: int
    seen_mhz: int

    @property
    def action(self) -> Reaction:
        """What to do about it."""
        return self.kind.action

    @property
    def line(self) -> str:
        """What is reported to the user."""
        return f"{self.kind.text}: {self.locked_mhz} MHz asked, {self.seen_mhz} MHz seen"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One kind of conflict as seen so far: its latest line, and how often it was seen."""

    kind: ConflictKind
    line: str
    count: int


_TOLERANCE_MHZ = 30  # assumed: two steps of the grid, for parts whose clock wavers with temperature

_THERMAL = EventReason.SW_THERMAL | EventReason.HW_THERMAL
_BY_REASON = (
    (EventReason.SW_POWER_CAP, ConflictKind.POWER_CAP),
    (_THERMAL, ConflictKind.THERMAL),
    (EventReason.HW_SLOWDOWN | EventReason.HW_POWER_BRAKE, ConflictKind.HW_SLOWDOWN),
)


def is_at(locked_mhz: int, achieved: Achieved) -> bool:
    """Whether a clock is the locked one, as closely as parts hold it."""
    return abs(achieved.clock_mhz - locked_mhz) <= _TOLERANCE_MHZ


def is_held(asked_mhz: int, seen_mhz: int) -> bool:
    """Whether a clock that was seen is no lower than the one asked for, as closely as parts hold it."""
    return seen_mhz >= asked_mhz - _TOLERANCE_MHZ


def conflicts(
    locked_mhz: int, achieved: Achieved, *, held_mhz: float = 0.0, idle: bool = False, settled: bool = True
) -> tuple[Conflict, ...]:
    """Judge one look at a GPU; ``settled``: its lock has had time, ``idle``: no process works on it.

    Only somebody else puts a clock above its lock. One below it has mostly been lowered by the device, which
    gives a reason or does not: that is normal under full load. It was another process where the device gives
    no reason and was measured to hold this clock or a higher one (``held_mhz``) under load. A reason without
    effect does not count, and heat is always worth a line. An idle GPU may clock down, lock or not.
    """
    above = achieved.clock_mhz > locked_mhz + _TOLERANCE_MHZ
    below = not is_held(locked_mhz, achieved.clock_mhz)
    seen = _with_reason(achieved.event_reasons, below=below)
    unexplained = below and not (seen or idle or achieved.event_reasons & EventReason.GPU_IDLE)
    if settled and (above or unexplained):
        foreign = above or locked_mhz <= held_mhz
        seen.append(ConflictKind.FOREIGN_CLOCK if foreign else ConflictKind.NOT_HELD)
    return tuple(Conflict(kind, locked_mhz, achieved.clock_mhz) for kind in seen)


def _with_reason(reasons: EventReason, *, below: bool) -> list[ConflictKind]:
    return [kind for bits, kind in _BY_REASON if reasons & bits and (below or bits is _THERMAL)]


def is_capped(looks: Sequence[tuple[float, Achieved]], asked: AskedClocks, *, settle_s: float) -> bool:
    """Whether the median look stands below the clock that was asked for, once that has had time to settle.

    Reasons prove nothing here. SW_POWER_CAP is the normal state of a loaded GPU at clocks that it holds, and
    a GPU at its ceiling may give none. What the device chooses by itself is no cap.
    """
    held = []
    for time_s, achieved in looks:
        clock_mhz = asked.steady_mhz(time_s - settle_s, time_s)
        if clock_mhz is not None:
            held.append(is_held(clock_mhz, achieved.clock_mhz))
    return bool(held) and not median(held)


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
