"""What one rank measured of its iterations, and what it reports of them after an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perseus_ds.device.clock_agenda import RequestCounts
from perseus_ds.device.gpu import Sighting
from perseus_ds.errors import PerseusError
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.measure.accounting import EnergyAccount, Mode, Outside, Total
from perseus_ds.runtime.measure.energy.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Iteration


@dataclass(frozen=True, slots=True)
class RankReport:
    """What one rank reports after an audit.

    ``period_s`` is its energy counter's, ``skipped`` how many iterations ended without an optimizer step.
    ``temperature_c`` is how warm it was on either side, where a sensor is read. ``troubles`` are what is
    wrong with its energy counter.
    """

    rank: int
    pipeline_rank: int
    replica: int
    totals: Mapping[Mode, Total]
    outside: Outside
    durations_s: Mapping[Mode, Sequence[float]]
    conflicts: tuple[Sighting, ...] = ()
    overrun_share: float = 0.0
    clock_requests: RequestCounts = field(default_factory=RequestCounts)
    period_s: float | None = None
    skipped: int = 0
    temperature_c: Mapping[Mode, float] = field(default_factory=dict)
    troubles: Sequence[str] = ()


@dataclass(slots=True)
class Durations:
    """Running mean duration of every computation of one rank, kept apart by size of batch and mode."""

    iterations: dict[tuple[int, Mode], int] = field(default_factory=dict)
    sums_s: dict[tuple[int, Mode], list[float]] = field(default_factory=dict)

    def add(self, mode: Mode, iteration: Iteration) -> None:
        """Enter one iteration; one that stopped half-way is left out."""
        seen = [interval.duration_s for interval in iteration.intervals if interval.kind.is_computation]
        side = iteration.microbatches, mode
        sums = self.sums_s.setdefault(side, [0.0] * len(seen))
        if len(sums) == len(seen):
            self.sums_s[side] = [total + one for total, one in zip(sums, seen, strict=True)]
            self.iterations[side] = self.iterations.get(side, 0) + 1

    def forget(self, mode: Mode, *, microbatches: int) -> None:
        """Begin a side anew: another plan runs from here on."""
        self.sums_s.pop((microbatches, mode), None)
        self.iterations.pop((microbatches, mode), None)

    def means_s(self, mode: Mode, *, microbatches: int) -> list[float]:
        """Mean durations in running order, in batches of one size; empty before the first iteration."""
        count = self.iterations.get((microbatches, mode), 0)
        return [total / count for total in self.sums_s[microbatches, mode]] if count else []


class RankBooks:
    """One rank's time and energy, iteration by iteration, by what each counts for.

    ``sightings`` are those of others at work on its GPU, ``clock_requests`` what it asked of its GPU.
    ``overrun_share`` is of how many of its computations in scaled time the host was too slow.
    """

    def __init__(
        self,
        watch: EnergyWatch,
        *,
        sightings: Callable[[], tuple[Sighting, ...]],
        overrun_share: Callable[[], float],
        clock_requests: RequestCounts,
    ) -> None:
        self._watch = watch
        self._account = EnergyAccount(watch)
        self._durations = Durations()
        self._modes: dict[int, Mode] = {}
        self._skipped = 0
        self._warm: dict[Mode, list[float]] = {}
        self._sightings = sightings
        self._overrun_share = overrun_share
        self._clock_requests = clock_requests

    @property
    def error(self) -> PerseusError | None:
        """Why nothing is measured any more."""
        return self._watch.error

    def trouble(self) -> str:
        """Report what is wrong with the energy counter, each once."""
        return self._watch.trouble()

    @property
    def latest(self) -> tuple[float, float] | None:
        """Energy (J) and mean power (W) of the iterations settled last."""
        return self._account.latest

    @property
    def at_plan(self) -> Mapping[int, int]:
        """How many iterations at the plan were measured, by the size of their batches."""
        return self._account.at_plan

    def ran(self, index: int, mode: Mode, *, known: bool) -> None:
        """Note what iteration ``index`` counts for; where clocks are not ``known``, for nothing.

        Nor do those before it then that the device has not passed yet.
        """
        self._modes[index] = mode
        if not known:
            self._modes = dict.fromkeys(self._modes, Mode.NEITHER)

    def enter(self, passed: Sequence[Iteration]) -> None:
        """Enter iterations that the device has passed."""
        for iteration in passed:
            mode = self._modes.pop(iteration.index)
            self._skipped += iteration.skipped
            if iteration.resumed or iteration.skipped:
                mode = Mode.NEITHER
            if iteration.intervals:
                self._feel(mode, iteration)
                self._account.add(mode, iteration)
                if mode is not Mode.NEITHER:
                    self._durations.add(mode, iteration)

    def _feel(self, mode: Mode, iteration: Iteration) -> None:
        """Add to the running mean of a side's temperature, where a sensor is read."""
        mean_c = self._watch.temperatures.mean_c(iteration.start_s, iteration.end_s)
        if mean_c is not None:
            count, so_far_c = self._warm.get(mode, [0, 0.0])
            self._warm[mode] = [count + 1, so_far_c + (mean_c - so_far_c) / (count + 1)]

    def totals_of(self, microbatches: int) -> Mapping[Mode, Total]:
        """Return what was measured in batches of one size."""
        return self._account.totals_of(microbatches)

    def forget_plan(self, job: Job) -> None:
        """Begin the plan's side anew: another plan runs from here on."""
        for side in (self._account, self._durations):
            side.forget(Mode.PERSEUS, microbatches=job.schedule.microbatches)
        self._warm.pop(Mode.PERSEUS, None)

    def report(self, job: Job) -> RankReport:
        """What there is to report of batches of this job's size."""
        microbatches = job.schedule.microbatches
        return RankReport(
            rank=job.rank,
            pipeline_rank=job.pipeline_rank,
            replica=job.replica,
            totals=self._account.totals_of(microbatches),
            outside=self._account.outside,
            durations_s={
                mode: self._durations.means_s(mode, microbatches=microbatches)
                for mode in (Mode.BASELINE, Mode.PERSEUS)
            },
            conflicts=self._sightings(),
            overrun_share=self._overrun_share(),
            clock_requests=self._clock_requests,
            period_s=self._account.counter_period_s,
            skipped=self._skipped,
            temperature_c={mode: mean_c for mode, (_, mean_c) in self._warm.items()},
            troubles=tuple(self._watch.troubles),
        )
