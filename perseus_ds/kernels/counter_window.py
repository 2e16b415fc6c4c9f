"""A window of launches between two steps of the energy counter: `measure` takes time and power from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple, Protocol

from perseus_ds.device.gpu import Gpu
from perseus_ds.errors import DeviceError

_LOOKS = 50
_STEPS = 5
_FEWEST_PERIODS = 3
_LONGEST_S, _LONGEST_PERIODS = 10.0, 10


class Replay(Protocol):
    """One kernel class that can be launched at will."""

    def run(self, launches: int) -> None:
        """Launch it so often, back to back, and return when the device has done them."""


@dataclass(frozen=True, slots=True)
class ClockWindow:
    """Seconds of one launch, the mean power meanwhile, and how warm it was (None: nobody can read that)."""

    time_s: float
    power_w: float
    temperature_c: float | None


class CounterStep(NamedTuple):
    """When a step of the counter was seen, and its readings before and after."""

    seen_s: float
    before_j: float
    after_j: float


@dataclass(frozen=True, slots=True)
class SteppingCounter:
    """An energy counter whose steps are ``period_s`` apart.

    Who looks at it between launches alone sees a step late by up to a launch. So nothing runs while it is
    awaited: the device is looked at fifty times a period.
    """

    gpu: Gpu
    period_s: float

    @classmethod
    def of(cls, gpu: Gpu, declared_s: float) -> SteppingCounter:
        """Find the period; the declared one decides how often to look.

        Raises:
            DeviceError: the counter stands still.
        """
        steps = cls(gpu, declared_s).steps()
        seen_s = [next(steps).seen_s for _ in range(_STEPS)]
        return cls(gpu, median(later - earlier for earlier, later in pairwise(seen_s)))

    def window(self, replay: Replay, launches: int, window_s: float) -> ClockWindow:
        """Run from a step on for so long, and wait for another one.

        All steps but that last one are of periods in which launches ran. A period's length is that between
        both steps over their number.

        Raises:
            DeviceError: the counter stands still.
        """
        begin = next(self.steps())
        before_c, start_s, blocks = self.gpu.temperature_c(), self.gpu.now_s(), 0
        least_s, now_s = max(window_s, _FEWEST_PERIODS * self.period_s), start_s
        while now_s - start_s < least_s:
            replay.run(launches)
            blocks += 1
            now_s = self.gpu.now_s()
        read_c = [one for one in (before_c, self.gpu.temperature_c()) if one is not None]
        end = next(self.steps())
        between_s = end.seen_s - begin.seen_s
        periods = max(2, round(between_s / self.period_s))
        power_w = (end.before_j - begin.after_j) / (between_s * (periods - 1) / periods)
        time_s = (now_s - start_s) / (blocks * launches)
        return ClockWindow(time_s, power_w, fmean(read_c) if read_c else None)

    def steps(self) -> Iterator[CounterStep]:
        """Wait for one step after the other."""
        last_j, last_s = self.gpu.energy_j(), self.gpu.now_s()
        while True:
            self.gpu.sleep(self.period_s / _LOOKS)
            now_j, now_s = self.gpu.energy_j(), self.gpu.now_s()
            if now_j != last_j:
                yield CounterStep(now_s, last_j, now_j)
                last_j, last_s = now_j, now_s
            elif now_s - last_s > _LONGEST_S + _LONGEST_PERIODS * self.period_s:
                raise DeviceError(f"{self.gpu.identify().name}: the energy counter stands still")
