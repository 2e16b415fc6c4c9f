"""Time and energy of this rank's computations at its plan, by iteration, against their own levels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from perseus_ds.device import EventReason, Gpu
from perseus_ds.profile.drift.cusum import LEARNING, CusumLevel
from perseus_ds.profile.drift.verdict import PER_K, GpuConditions, LevelSeries, RankLevels
from perseus_ds.runtime.job import Job
from perseus_ds.runtime.measure.accounting import Mode, Sample
from perseus_ds.runtime.measure.energy.energy_watch import EnergyWatch
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.schedule import Instruction, Load

_KEPT = 4096
_JUST_NOW = 4

Factor = Callable[[Instruction, Load], float]


@dataclass(frozen=True, slots=True)
class Promise:
    """What a plan has every computation of this rank take; ``factor`` is how many times that at a load.

    Units: seconds, joules; ``waiting_w`` is what this GPU takes while it waits.
    """

    plan: int
    planned: Mapping[Instruction, tuple[float, float]]
    waiting_w: float
    factor: Factor = lambda _one, _load: 1.0


@dataclass(slots=True)
class _RanNode:
    busy_s: float
    promised_j: float


@dataclass(slots=True)
class _OwnLevels:
    time: CusumLevel = field(default_factory=CusumLevel)
    energy: CusumLevel = field(default_factory=CusumLevel)
    warmth: CusumLevel = field(default_factory=CusumLevel)
    begins_c: float | None = None
    sampled: int = 0

    @property
    def all(self) -> tuple[CusumLevel, CusumLevel, CusumLevel]:
        """All three series."""
        return self.time, self.energy, self.warmth


class StageLevels:
    """The levels of what one plan promises; begun anew with another plan, and wherever they are `forget`.

    Iterations count that the plan ran by itself (`Mode.PERSEUS`): none beside a straggler, under a ceiling,
    at another plan, or in which clocks change. The energy of waiting is taken away: how long this rank waits
    is the others' doing. The temperature shows sooner than the energy that a GPU leaks more.
    """

    def __init__(self, gpu: Gpu, watch: EnergyWatch, capped: Callable[[Iteration], bool]) -> None:
        self._gpu = gpu
        self._watch = watch
        self._capped = capped
        self._conflicts: Callable[[], tuple[str, ...]] = lambda: tuple(
            one.kind.text for one in gpu.conflicts()
        )
        self._promise: Promise | None = None
        self._plans: dict[int, int] = {}
        self.forget()

    @property
    def drifted(self) -> bool:
        """Whether any series is proved to have left its level."""
        return any(one.drifted for one in self._levels.all)

    def expect(self, promise: Promise | None) -> None:
        """Begin anew with what another plan promises; None: nothing is looked at."""
        self._promise = promise
        self.forget()

    def forget(self) -> None:
        """Learn all levels anew."""
        self._levels = _OwnLevels()
        self._ran: dict[int, _RanNode] = {}
        self._last_sample = -1
        self._held_down: deque[bool] = deque(maxlen=_JUST_NOW)
        self._reasons = 0
        self._then: GpuConditions | None = None

    def will_run(self, index: int, plan: int) -> None:
        """Note the plan that iteration ``index`` is run by."""
        self._plans[index] = plan
        if len(self._plans) > _KEPT:
            self._plans.pop(next(iter(self._plans)))

    def enter(self, mode: Mode, iteration: Iteration) -> None:
        """Take in one iteration that the device has passed."""
        promise, plan = self._promise, self._plans.pop(iteration.index, None)
        if promise is None or mode is not Mode.PERSEUS or plan != promise.plan:
            return
        rows = list(_promised(promise, iteration))
        if not rows:
            return
        busy_s, promised_s, promised_j = (sum(column) for column in zip(*rows, strict=True))
        self._levels.time.observe(busy_s / promised_s)
        self._ran[iteration.index] = _RanNode(busy_s, promised_j)
        if len(self._ran) > _KEPT:
            self._ran.pop(next(iter(self._ran)))
        self._note_warmth(iteration)
        self._note_conditions(iteration)

    def book(self, sample: Sample) -> None:
        """Take in what neighbouring iterations took in energy, each once."""
        if self._promise is None or sample.first <= self._last_sample:
            return
        self._last_sample = sample.first
        ran = [self._ran.pop(sample.first + n, None) for n in range(sample.iterations)]
        known = [one for one in ran if one is not None]
        if len(known) < sample.iterations:
            return
        busy_s, promised_j = sum(one.busy_s for one in known), sum(one.promised_j for one in known)
        waited_s = max(0.0, sample.iterations * sample.time_s - busy_s)
        spent_j = sample.iterations * sample.energy_j - self._promise.waiting_w * waited_s
        if spent_j > 0.0:
            if not self._levels.energy.seen:
                self._levels.energy.per = sample.iterations
            self._levels.energy.observe(spent_j / promised_j)
            self._levels.sampled += sample.iterations

    def report(self, job: Job) -> RankLevels:
        """Return what this rank reports where some rank has left its levels."""
        levels, now = self._levels, self._conditions()
        return RankLevels(
            job.pipeline_rank,
            job.replica,
            _series(levels.time),
            _series(levels.energy, iterations=levels.sampled),
            _series(levels.warmth),
            self._then or now,
            now,
        )

    def _note_warmth(self, iteration: Iteration) -> None:
        read_c = self._watch.temperatures.mean_c(iteration.start_s, iteration.end_s)
        if read_c is None:
            return
        if self._levels.begins_c is None:
            self._levels.begins_c = read_c
        self._levels.warmth.observe(1.0 + PER_K * (read_c - self._levels.begins_c))

    def _note_conditions(self, iteration: Iteration) -> None:
        self._held_down.append(self._capped(iteration))
        if self._held_down[-1]:
            self._reasons = self._watch.clock_between(iteration.start_s, iteration.end_s)[1]
        if self._levels.time.count == LEARNING and self._then is None:
            self._then = self._conditions()

    def _conditions(self) -> GpuConditions:
        settings = self._gpu.operator_settings()
        return GpuConditions(
            capped=sum(self._held_down) / max(1, len(self._held_down)),
            reasons=int(EventReason(self._reasons)),
            power_limit_w=None if settings is None else settings.limit_w,
            temperature_c=self._gpu.temperature_c(),
            conflicts=self._conflicts(),
        )


def _promised(promise: Promise, iteration: Iteration) -> Iterator[tuple[float, float, float]]:
    """Seconds, and promised seconds and joules at its load, of every computation that shows a clock."""
    for interval in iteration.intervals:
        if not interval.kind.is_computation or interval.waits:
            continue
        planned = promise.planned.get(interval.instruction)
        if planned is None:
            continue
        factor = 1.0 if interval.load is None else promise.factor(interval.instruction, interval.load)
        yield interval.duration_s, factor * planned[0], factor * planned[1]


def _series(level: CusumLevel, *, iterations: int = 0) -> LevelSeries:
    """What is reported of one series, whose numbers are of so many iterations in all; 0: of one each."""
    per = iterations / level.seen if iterations and level.seen else 1.0
    lasted = level.sums.lasted if level.drifted else 0
    return LevelSeries(tuple(level.recent), level.noise, lasted, per)
