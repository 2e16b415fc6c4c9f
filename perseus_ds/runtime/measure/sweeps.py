"""Every group's sweep over its own clocks, all in step."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.profile import Sweep
from perseus_ds.runtime.measure.pooling import Pooled, both


class Sweeps:
    """Each rank keeps all of them, fed alike: so all know when the last one is finished.

    A group that is through with its clocks stays at its highest until the others are. With one group this is
    its sweep and nothing else.

    Shape: ``sweeps`` and ``windows`` [groups].
    """

    def __init__(self, sweeps: Sequence[Sweep], *, mine: int = 0) -> None:
        self.sweeps = sweeps
        self.windows: list[list[Pooled]] = [[] for _ in sweeps]
        self._mine = sweeps[mine]

    @property
    def clock_mhz(self) -> int:
        """The clock that this rank measures now."""
        return self._mine.clocks_mhz[0] if self._mine.finished else self._mine.clock_mhz

    @property
    def done(self) -> int:
        """How many windows were measured."""
        return max(sweep.done for sweep in self.sweeps)

    @property
    def total(self) -> int:
        """How many windows there are, as far as is known."""
        return max(len(sweep.clocks_mhz) for sweep in self.sweeps)

    @property
    def slower(self) -> float:
        """How many times as long an iteration lasts at the clocks that are measured now, at most."""
        return max((one.slower(one.clock_mhz) for one in self.sweeps if not one.finished), default=1.0)

    @property
    def finished(self) -> bool:
        """Whether every group is through."""
        return all(sweep.finished for sweep in self.sweeps)

    def back(self) -> Sweeps:
        """Begin the same clocks from the last to the first, each to be measured once more.

        Every clock is then measured as early as late on average. What changes steadily meanwhile (batches
        that grow, a GPU that warms up) changes no clock's mean.
        """
        clocks = [sweep.clocks_mhz[: sweep.done][::-1] for sweep in self.sweeps]
        own = self.sweeps.index(self._mine)
        return Sweeps([Sweep(one) for one in clocks], mine=own)

    def go_on(self, clocks_mhz: Sequence[int | None]) -> None:
        """Measure another clock of every group that has one. Shape: [groups]."""
        for sweep, clock_mhz in zip(self.sweeps, clocks_mhz, strict=True):
            if clock_mhz is not None:
                sweep.go_on(clock_mhz)

    def first_again(self) -> Sweeps:
        """Measure the highest clock once more, on a GPU that has just run the lowest and is cooler."""
        own = self.sweeps.index(self._mine)
        return Sweeps([Sweep(one.clocks_mhz[:1]) for one in self.sweeps], mine=own)

    def joined(self, back: Sweeps) -> Sweeps:
        """Average the windows of both ways, clock by clock; what was refused on the way back is left out."""
        whole = Sweeps(
            [
                Sweep(there.clocks_mhz[: there.done], refused_mhz=there.refused_mhz | again.refused_mhz)
                for there, again in zip(self.sweeps, back.sweeps, strict=True)
            ]
        )
        for index, sweep in enumerate(whole.sweeps):
            ways = zip(sweep.clocks_mhz, self.windows[index], strict=True)
            kept = {mhz: there for mhz, there in ways if mhz not in sweep.refused_mhz}
            sweep.clocks_mhz = tuple(kept)
            whole.windows[index] = [
                both(*pair) for pair in zip(kept.values(), back.windows[index][::-1], strict=True)
            ]
            for pooled in whole.windows[index]:
                whole.sweeps[index].record(pooled.points)
        return whole

    @property
    def spread(self) -> float:
        """The widest spread in any window so far."""
        return max((one.spread for windows in self.windows for one in windows), default=0.0)

    def record(self, seen: Sequence[Pooled | None]) -> None:
        """Take one window of every group; of those that were finished before it reports nothing new.

        None is a clock that some GPU of the group refused: it is left out.
        """
        for sweep, windows, pooled in zip(self.sweeps, self.windows, seen, strict=True):
            if sweep.finished:
                continue
            if pooled is None:
                sweep.refuse()
            else:
                sweep.record(pooled.points)
                windows.append(pooled)
