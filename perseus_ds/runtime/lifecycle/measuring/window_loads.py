"""The loads that a window's microbatches had, on every rank: counted by the first stage, shared by all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import Interval, LoadFit, differ
from perseus_ds.runtime.lifecycle.job_context import JobContext
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.schedule import Kind, Load, mean_load

_MOST_SHARED = 256  # microbatches of a window and replica: 10 kB
_EXPLAINS = 0.25
_MOST_REFUSED = 3  # windows of a sweep, each twice as long as the one before

_Key = tuple[int, int]  # iteration, microbatch
_ALL = -1, -1


@dataclass(frozen=True, slots=True)
class Counted:
    """What one rank of a replica's first stage counted, by (iteration, microbatch).

    Of ``shared`` microbatches; one entry stands for all where their loads are alike.
    """

    replica: int
    loads: Mapping[_Key, tuple[float, float]]
    shared: int

    def each(self) -> list[Load]:
        """Return the load of every microbatch that is shared."""
        found = [Load(*load) for load in self.loads.values()]
        return found * self.shared if _ALL in self.loads else found

    def of(self, key: _Key) -> Load | None:
        """Return the load of a microbatch; None where it was not shared."""
        found = self.loads.get(_ALL, self.loads.get(key))
        return None if found is None else Load(*found)


class WindowLoads:
    """Share the loads of every window, so that all stages' durations are held against the same numbers.

    Only the first stage sees lengths. A later one sees at most the shape of what it receives, which proves
    nothing where sequences are packed. Where no first stage counts, each rank keeps what it saw itself.
    ``mean`` is what durations of all windows are brought to: the mean load of the first one.

    A window of one load alone does not show how durations follow loads. Where batches have other loads for
    some iterations on end, clocks would be held against each other by a law that nobody measured.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._mean: Load | None = None
        self._own_means: dict[int, Load] | None = None
        self._seen: list[Load] = []
        self._refused = 0

    def shared(self, window: Sequence[Iteration]) -> tuple[list[Iteration], dict[int, Load]]:
        """Return a window with its loads, and by model stage the load to bring it to; collective.

        Raises:
            EngineError: a rank fell silent.
            IncompleteProfileError: all of it was of one load, and others were seen before.
        """
        own = self._context.job.replica
        everyone = cast("list[Counted | None]", self._context.channel.gather(_counted(own, window)))
        counted = [one for one in everyone if one is not None]
        loads = [load for one in counted for load in one.each()]
        self._see(loads)
        self._refuse_one_load(loads)
        mine = next((one for one in counted if one.replica == own), None)
        if self._mean is None or mine is None:
            self._own_means = self._own_means or _means(window)
            return list(window), self._own_means
        told = list(window) if _holds_first(window) else [_with_loads(one, mine) for one in window]
        return told, dict.fromkeys(_stages(told), self._mean)

    def _refuse_one_load(self, loads: Sequence[Load]) -> None:
        if self._refused < _MOST_REFUSED and not _differ(loads) and _differ(self._seen):
            self._refused += 1
            raise IncompleteProfileError("all microbatches had one load, which was another before")

    def log_mean(self) -> None:
        """State for which load the profile holds, where loads differ."""
        if _differ(self._seen):
            mean = mean_load(self._seen).tokens
            self._context.log.event(
                "mean_size",
                f"the profile, and what is expected of plans, is for microbatches of {mean:.0f} tokens, the "
                "mean of those seen",
                tokens=mean,
            )

    def log_fits(self, fits: Mapping[tuple[int, Kind], LoadFit]) -> None:
        """Report once how much of what durations vary by the loads explain."""
        if not fits:
            return
        best = max(fits.values(), key=lambda fit: fit.r2)
        if best.r2 < _EXPLAINS:
            line = (
                f"the loads of microbatches explain {100.0 * best.r2:.0f} % at most of how durations vary: "
                "nothing is held against them"
            )
        else:
            scatter = max(fit.scatter for fit in fits.values())
            line = (
                f"durations follow the loads of microbatches: these explain {100.0 * best.r2:.0f} % of how "
                f"they vary, and leave {100.0 * scatter:.1f} % of scatter at most"
            )
        self._context.log.event(
            "loads", line, r2={f"{s}{kind.value}": fit.r2 for (s, kind), fit in fits.items()}
        )

    def _see(self, loads: Sequence[Load]) -> None:
        self._seen += loads
        if self._mean is None and loads:
            self._mean = mean_load(loads)
            tokens = np.array([load.tokens for load in loads])
            if differ(tokens):
                times = tokens.max() / tokens.min()
                self._context.log.event(
                    "sizes_differ",
                    f"microbatches differ in size, by {times:.2g} times so far: measurements are brought "
                    "to one size, and the plan is for the mean size",
                )


def _counted(replica: int, window: Sequence[Iteration]) -> Counted | None:
    """What this rank counted on the first stage; None where it is another one, or loads are unknown."""
    loads = {
        (one.index, interval.instruction.microbatch): interval.load
        for one in window
        for interval in one.intervals
        if interval.kind is Kind.FORWARD and interval.instruction.stage == 0 and interval.load is not None
    }
    found = {key: (load.tokens, load.squares) for key, load in list(loads.items())[:_MOST_SHARED]}
    shared = len(found)
    if len(set(loads.values())) == 1:
        found = {_ALL: next(iter(found.values()))}
    return Counted(replica, found, shared) if found else None


def _differ(loads: Sequence[Load]) -> bool:
    return bool(loads) and differ(np.array([load.tokens for load in loads]))


def _holds_first(window: Sequence[Iteration]) -> bool:
    """Whether this rank runs the first stage and no other, so that it counted itself."""
    return _stages(window) == {0}


def _stages(window: Sequence[Iteration]) -> set[int]:
    return {interval.instruction.stage for one in window for interval in one.intervals}


def _with_loads(iteration: Iteration, known: Counted) -> Iteration:
    return replace(
        iteration, intervals=tuple(_told(one, iteration.index, known) for one in iteration.intervals)
    )


def _told(interval: Interval, index: int, known: Counted) -> Interval:
    if not interval.kind.is_computation:
        return interval
    return replace(interval, load=known.of((index, interval.instruction.microbatch)))


def _means(window: Sequence[Iteration]) -> dict[int, Load]:
    """Mean load of the microbatches of every model stage of this rank; empty where nobody counts them."""
    counted: dict[int, list[Load]] = {}
    for iteration in window:
        for interval in iteration.intervals:
            if interval.load is not None:
                counted.setdefault(interval.instruction.stage, []).append(interval.load)
    return {stage: mean_load(loads) for stage, loads in counted.items()}
