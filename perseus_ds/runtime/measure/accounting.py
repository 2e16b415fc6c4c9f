"""Time and energy of this rank's iterations, kept apart by what they ran at."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean

from perseus_ds.profile import CounterTrace
from perseus_ds.runtime.measure.energy_watch import EnergyWatch

_RECENT = 1000


class Mode(Enum):
    """What an iteration counts for."""

    BASELINE = "baseline"
    PERSEUS = "perseus"
    NEITHER = "neither"
    BASELINE_BESIDE = "baseline beside a straggler"
    PERSEUS_BESIDE = "perseus beside a straggler"


def beside(mode: Mode) -> Mode:
    """What an iteration counts for while others wait for a straggler: its time is not the plan's doing."""
    return {Mode.BASELINE: Mode.BASELINE_BESIDE, Mode.PERSEUS: Mode.PERSEUS_BESIDE}.get(mode, mode)


@dataclass(slots=True)
class Total:
    """Sums over whole iterations of one mode, and the durations of the last of them."""

    iterations: int = 0
    time_s: float = 0.0
    energy_j: float = 0.0
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))

    @property
    def iteration_time_s(self) -> float:
        """Mean of the middle half of the durations: a hiccup of the host belongs to neither side.

        0 before the first iteration.
        """
        ordered = sorted(self.recent_s)
        quarter = len(ordered) // 4
        return fmean(ordered[quarter : len(ordered) - quarter] or [0.0])


@dataclass(frozen=True, slots=True)
class _Block:
    mode: Mode
    start_s: float
    end_s: float
    iterations: int


class EnergyAccount:
    """Join neighbouring iterations into blocks and settle each when the energy counter has passed it.

    ``latest`` is what the last settled iterations took: energy (J) of one of them, mean power (W).
    """

    def __init__(self, watch: EnergyWatch) -> None:
        self._watch = watch
        self._open: list[_Block] = []
        self.totals: dict[Mode, Total] = {mode: Total() for mode in Mode if mode is not Mode.NEITHER}
        self.latest: tuple[float, float] | None = None

    def add(self, mode: Mode, start_s: float, end_s: float) -> None:
        """Enter one iteration; those before it are settled first, so that blocks stay short."""
        self._settle()
        last = self._open[-1] if self._open else None
        if last is not None and last.mode is mode and last.end_s == start_s:
            self._open[-1] = _Block(mode, last.start_s, end_s, last.iterations + 1)
        else:
            self._open.append(_Block(mode, start_s, end_s, 1))

    def _settle(self) -> None:
        if not self._open or not self._watch.watching:
            self._open.clear()
            return
        trace = self._watch.trace(self._open[0].start_s)
        while self._open and _decided(trace, self._open[0]):
            self._book(self._open.pop(0), trace)
        if self._open:
            self._watch.forget(self._open[0].start_s)

    def _book(self, block: _Block, trace: CounterTrace) -> None:
        if block.mode is Mode.NEITHER or not trace.covers(block.start_s, block.end_s):
            return
        total = self.totals[block.mode]
        total.iterations += block.iterations
        total.time_s += block.end_s - block.start_s
        total.recent_s.extend([(block.end_s - block.start_s) / block.iterations] * block.iterations)
        energy_j = trace.energy_between(block.start_s, block.end_s)
        total.energy_j += energy_j
        self.latest = energy_j / block.iterations, energy_j / (block.end_s - block.start_s)


def _decided(trace: CounterTrace, block: _Block) -> bool:
    """Whether more of the trace would change nothing: it has passed the block, or missed its beginning."""
    return len(trace) > 0 and bool(trace.time_s[-1] >= block.end_s or trace.time_s[0] > block.start_s)
