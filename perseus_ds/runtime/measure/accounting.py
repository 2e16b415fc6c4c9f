"""Time and energy of this rank's iterations, kept apart by what they ran at."""

from __future__ import annotations

from collections import deque
from dataclasses import astuple, dataclass, field, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile import CounterTrace
from perseus_ds.runtime.measure.energy.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Iteration

_RECENT = 1000
_OPEN = 2000
_SAMPLE_PERIODS = 30  # of the counter: what a sample's ends leave open is then far below a hundredth of it
_SHORT_GAP = 0.05


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


@dataclass(frozen=True, slots=True)
class Sample:
    """Neighbouring iterations of one mode, long enough for the energy counter: means of one of them.

    ``first`` is the index of the first: the same on all ranks, as ``iterations`` is. ``size`` is how much one
    worked on (elements), 0 where it is unknown.
    """

    first: int
    iterations: int
    time_s: float
    energy_j: float
    size: float = 0.0


@dataclass(slots=True)
class Total:
    """What was measured of one mode: how many iterations ever, and samples of the last of them."""

    iterations: int = 0
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def __reduce__(self) -> tuple[object, ...]:
        """Travel to rank 0 as one array: a thousand ranks' samples as objects take seconds to read."""
        return _unpacked, (self.iterations, np.array([astuple(one) for one in self.samples]))


def _unpacked(iterations: int, rows: NDArray[np.float64]) -> Total:
    total = Total(iterations)
    total.samples.extend(Sample(int(row[0]), int(row[1]), *row[2:]) for row in rows.tolist())
    return total


@dataclass(slots=True)
class Outside:
    """What this rank's GPU took while the host did something else than train."""

    time_s: float = 0.0
    energy_j: float = 0.0


@dataclass(frozen=True, slots=True)
class _Block:
    """Some iterations, or (``mode`` None) what lies between two; ``time_s`` is without what is between."""

    mode: Mode | None
    first: int
    start_s: float
    end_s: float
    time_s: float
    iterations: int
    microbatches: int = 0
    size: float = 0.0


class EnergyAccount:
    """Book every iteration, and what lies between, when the energy counter has passed it.

    Batches of every size have a book of their own. Iterations shorter than ``_SAMPLE_PERIODS`` of the counter
    are joined with their neighbours of the same mode. ``latest`` is what the last settled iterations took:
    energy (J) of one of them, mean power (W). ``at_plan`` counts iterations that a plan ran, whichever plan,
    by the size of their batches.
    """

    def __init__(self, watch: EnergyWatch) -> None:
        self._watch = watch
        self._open: list[_Block] = []
        self._books: dict[int, dict[Mode, Total]] = {}
        self.outside = Outside()
        self.at_plan: dict[int, int] = {}
        self.latest: tuple[float, float] | None = None

    @property
    def counter_period_s(self) -> float | None:
        """How long the counter takes from one change to the next."""
        return self._watch.seen_period_s

    def totals_of(self, microbatches: int) -> dict[Mode, Total]:
        """Return what was measured in batches of one size."""
        blank: dict[Mode, Total] = {mode: Total() for mode in Mode if mode is not Mode.NEITHER}
        return self._books.setdefault(microbatches, blank)

    def forget(self, mode: Mode, *, microbatches: int) -> None:
        """Begin a side anew: another plan runs from here on."""
        self.totals_of(microbatches)[mode] = Total()

    def add(self, mode: Mode, iteration: Iteration) -> None:
        """Enter one iteration; those before it are settled first."""
        self._settle()
        outside_s = iteration.outside_s or 0.0
        start_s = iteration.start_s
        if outside_s > 0:
            self._open.append(_Block(None, iteration.index, start_s - outside_s, start_s, outside_s, 0))
        new = _Block(
            mode,
            iteration.index,
            start_s,
            iteration.end_s,
            iteration.duration_s,
            1,
            iteration.microbatches,
            iteration.size,
        )
        last = next((block for block in reversed(self._open) if block.mode is not None), None)
        if last is not None and self._joins(last, new):
            between = [block for block in self._open if block.first > last.first and block.mode is None]
            for block in (last, *between):
                self._open.remove(block)
            self.outside.time_s += sum(block.time_s for block in between)
            new = replace(
                new,
                first=last.first,
                start_s=last.start_s,
                time_s=last.time_s + new.time_s,
                iterations=last.iterations + 1,
                size=last.size + new.size,
            )
        self._open.append(new)
        del self._open[:-_OPEN]  # where the counter stands still nothing is ever settled

    def _joins(self, last: _Block, new: _Block) -> bool:
        """Whether the first is too short to stand alone, and nothing of length lies between them."""
        gap_s = new.start_s - last.end_s
        alike = last.mode is new.mode and last.microbatches == new.microbatches
        return alike and self._is_short(last) and gap_s <= _SHORT_GAP * new.time_s

    def _is_short(self, block: _Block) -> bool:
        return block.time_s < _SAMPLE_PERIODS * (self._watch.period_s or 0.0)

    def _grows(self, block: _Block) -> bool:
        """Whether the next iteration may still join it."""
        return block is self._open[-1] and block.mode is not None and self._is_short(block)

    def _settle(self) -> None:
        if not self._open or not self._watch.watching:
            self._open.clear()
            return
        trace = self._watch.trace(self._open[0].start_s)
        settled = None
        while self._open and _decided(trace, self._open[0]) and not self._grows(self._open[0]):
            settled = self._open.pop(0)
            self._book(settled, trace)
        oldest = self._open[0] if self._open else settled
        if oldest is not None and oldest.mode not in {None, Mode.NEITHER}:
            # what counts for neither may be a profile's window
            self._watch.forget(oldest.start_s if self._open else oldest.end_s)

    def _book(self, block: _Block, trace: CounterTrace) -> None:
        if block.mode is Mode.NEITHER or not trace.covers(block.start_s, block.end_s):
            return
        power_w = trace.energy_between(block.start_s, block.end_s) / (block.end_s - block.start_s)
        if block.mode is None:
            self.outside.time_s += block.time_s
            self.outside.energy_j += power_w * block.time_s
            return
        total = self.totals_of(block.microbatches)[block.mode]
        time_s, size = block.time_s / block.iterations, block.size / block.iterations
        total.iterations += block.iterations
        if block.mode in {Mode.PERSEUS, Mode.PERSEUS_BESIDE}:
            self.at_plan[block.microbatches] = self.at_plan.get(block.microbatches, 0) + block.iterations
        total.samples.append(Sample(block.first, block.iterations, time_s, power_w * time_s, size))
        self.latest = power_w * time_s, power_w


def _decided(trace: CounterTrace, block: _Block) -> bool:
    """Whether more of the trace would change nothing: it has passed the block, or missed its beginning."""
    return len(trace) > 0 and bool(trace.time_s[-1] >= block.end_s or trace.time_s[0] > block.start_s)
