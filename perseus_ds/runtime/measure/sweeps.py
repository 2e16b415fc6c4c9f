"""A sweep over clocks, and the windows that were measured in it."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.profile import Sweep
from perseus_ds.runtime.measure.pooling import Pooled, both


class MeasuredSweep:
    """The clocks of a sweep with their windows; all ranks are fed alike and so finish together.

    Shape: ``windows`` [measured clocks].
    """

    def __init__(self, sweep: Sweep, windows: Sequence[Pooled] = ()) -> None:
        self.sweep = sweep
        self.windows = list(windows)

    @property
    def slower(self) -> float:
        """How many times as long an iteration lasts at the clock that is measured now, at most."""
        return 1.0 if self.sweep.finished else self.sweep.slower(self.sweep.clock_mhz)

    @property
    def spread(self) -> float:
        """The widest spread in any window so far."""
        return max((one.spread for one in self.windows), default=0.0)

    def record(self, seen: Pooled | None) -> None:
        """Take one window; None is a clock that some GPU refused, which is left out."""
        if seen is None:
            self.sweep.refuse()
        else:
            self.sweep.record(seen.points)
            self.windows.append(seen)

    def back(self) -> MeasuredSweep:
        """Begin the same clocks from the last to the first, each to be measured once more.

        Every clock is then measured as early as late on average. What changes steadily meanwhile (batches
        that grow, a GPU that warms up) changes no clock's mean.
        """
        return MeasuredSweep(Sweep(self.sweep.clocks_mhz[: self.sweep.done][::-1]))

    def first_again(self) -> MeasuredSweep:
        """Measure the highest clock once more, on a GPU that has just run the lowest and is cooler."""
        return MeasuredSweep(Sweep(self.sweep.clocks_mhz[:1]))

    def joined(self, back: MeasuredSweep) -> MeasuredSweep:
        """Average the windows of both ways, clock by clock; what was refused on the way back is left out."""
        refused_mhz = self.sweep.refused_mhz | back.sweep.refused_mhz
        ways = zip(self.sweep.clocks_mhz, self.windows, strict=False)
        kept = {mhz: there for mhz, there in ways if mhz not in refused_mhz}
        windows = [both(*pair) for pair in zip(kept.values(), back.windows[::-1], strict=True)]
        whole = MeasuredSweep(Sweep(tuple(kept), refused_mhz=refused_mhz), windows)
        for window in windows:
            whole.sweep.record(window.points)
        return whole
