"""Measure what a trace is made of: every class at every pair of clocks, then again what would be chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import NamedTuple, Protocol

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.device.gpu import Capabilities, Gpu
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.operators import work_of_operator
from perseus_ds.device.simulated.physics import KernelWork
from perseus_ds.errors import DeviceError, DeviceUnsupportedError, ProfileError
from perseus_ds.kernels.choose import EDP, Goal, Level, Scope, choose, cost_table, launch_costs, smoothed
from perseus_ds.kernels.profile import KernelPoint, KernelProfile
from perseus_ds.kernels.trace import KernelClass, KernelTrace

# A window of launches between two steps of the energy counter: `measure` takes time and power from it.

_LOOKS = 50
_STEPS = 5
_FEWEST_PERIODS = 3
_LONGEST_S, _LONGEST_PERIODS = 10.0, 10


class KernelRunner(Protocol):
    """A kernel class that can be launched at will."""

    def run(self, launches: int) -> None:
        """Launch it so often, back to back, and return when the device has done them."""


@dataclass(frozen=True, slots=True)
class ClockWindow:
    """Seconds of one launch, the mean power meanwhile, and how warm it was (None: nobody can read that)."""

    time_s: float
    power_w: float
    temperature_c: float | None


class CounterStep(NamedTuple):
    """Moment of a step of the counter, and its readings before and after."""

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

    def window(self, replay: KernelRunner, launches: int, window_s: float) -> ClockWindow:
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


# Measure one kernel class at a pair of clocks: launched again and again until time and power stand still.

_MOST_LAUNCHES = 2**24


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """Durations of a measurement, with launches in blocks of ``block_s`` or more.

    A pair is warmed up in stretches of ``warmup_s`` until the power of two that follow each other agrees to
    ``steady_pct``, or ``most_warmups`` have passed. Then ``windows`` of ``window_s`` each are measured.
    """

    warmup_s: float = 1.0
    steady_pct: float = 0.5
    most_warmups: int = 25
    window_s: float = 2.0
    windows: int = 3
    block_s: float = 0.01

    def __post_init__(self) -> None:
        if min(self.warmup_s, self.window_s, self.steady_pct, self.block_s) <= 0:
            raise ProfileError("warm-up, window, steadiness and block must be above 0")
        if self.windows < 2 or self.most_warmups < 1:  # noqa: PLR2004  # a spread needs two
            raise ProfileError(
                f"{self.windows} windows, {self.most_warmups} warm-ups", hint="2 and 1 or more"
            )


def measure(
    gpu: Gpu, replay: KernelRunner, pairs: Sequence[ClockPair], settings: MeasurementSettings
) -> tuple[KernelPoint, ...]:
    """Measure at every pair; both clocks are given back at the end, whatever happens.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
    """
    declared_s = gpu.capabilities().counter_period_s
    if declared_s is None:
        raise DeviceUnsupportedError(
            f"{gpu.identify().name} has no energy counter", hint="kernels are measured by it"
        )
    try:
        counter = SteppingCounter.of(gpu, declared_s)
        return tuple(_measured(counter, replay, pair, settings) for pair in pairs)
    finally:
        set_pair(gpu, ClockPair())


def set_pair(gpu: Gpu, pair: ClockPair) -> None:
    """Ask for both clocks, or give them back."""
    if pair.memory_mhz is None:
        gpu.reset_memory_clock()
    else:
        gpu.lock_memory_clock(pair.memory_mhz)
    if pair.clock_mhz is None:
        gpu.reset_clock()
    else:
        gpu.lock_clock(pair.clock_mhz)
    gpu.sync()


def _measured(
    counter: SteppingCounter, replay: KernelRunner, pair: ClockPair, settings: MeasurementSettings
) -> KernelPoint:
    gpu = counter.gpu
    set_pair(gpu, pair)
    launches = _block(gpu, replay, settings.block_s)
    before = counter.window(replay, launches, settings.warmup_s + gpu.capabilities().switch_latency_s)
    for _ in range(settings.most_warmups - 1):
        now = counter.window(replay, launches, settings.warmup_s)
        if abs(now.power_w / before.power_w - 1.0) <= settings.steady_pct / 100.0:
            break
        before = now
    windows = [counter.window(replay, launches, settings.window_s) for _ in range(settings.windows)]
    times_s = [window.time_s for window in windows]
    energies_j = [window.time_s * window.power_w for window in windows]
    read_c = [window.temperature_c for window in windows if window.temperature_c is not None]
    return KernelPoint(
        pair,
        fmean(times_s),
        fmean(energies_j),
        _error(times_s),
        _error(energies_j),
        len(windows),
        fmean(read_c) if len(read_c) == len(windows) else None,
    )


def _block(gpu: Gpu, replay: KernelRunner, block_s: float) -> int:
    """Count launches that last so long that their start and end do not matter, and short against a window."""
    launches = 1
    while launches < _MOST_LAUNCHES:
        start_s = gpu.now_s()
        replay.run(launches)
        if gpu.now_s() - start_s >= block_s:
            return launches
        launches *= 2
    return launches


def _error(values: Sequence[float]) -> float:
    return stdev(values) / math.sqrt(len(values))


CORE_CLOCKS = 9
_LOWEST_SHARE = 0.3
_TAU = 0.1
Find = Callable[[KernelClass], KernelRunner]
Progress = Callable[[float], None]
_REST_S = 0.001


def memory_probe(gpu: Gpu) -> str | None:
    """Try to set the memory clock that is there by default, and give it back; state why it cannot be set.

    For a device of one's own only: what another has locked would be lost.
    """
    able = gpu.capabilities()
    if able.memory_why_not is not None:
        return able.memory_why_not
    try:
        gpu.lock_memory_clock(able.memory_clocks_mhz[0])
        gpu.reset_memory_clock()
    except DeviceError as error:
        return error.message
    return None


def candidate_pairs(
    able: Capabilities, *, memory: bool, core_clocks: int = CORE_CLOCKS
) -> tuple[ClockPair, ...]:
    """The default pair first, then each memory clock (and the device's own choice) with each core clock.

    Core clocks are spread evenly from the highest to 30 % of it.

    Raises:
        DeviceUnsupportedError: the device locks no core clock.
    """
    if not able.clocks_mhz:
        raise DeviceUnsupportedError(f"no core clock can be locked: {able.why_not}")
    top_mhz = able.clocks_mhz[0]
    useful = [clock for clock in able.clocks_mhz if clock >= _LOWEST_SHARE * top_mhz]
    count = min(core_clocks, len(useful))
    span = len(useful) - 1
    cores = [useful[round(place * span / max(1, count - 1))] for place in range(count)]
    memories = (None, *able.memory_clocks_mhz[1:]) if memory else (None,)
    pairs = [ClockPair(mem, core) for mem in memories for core in (None, *cores)]
    return (DEFAULT_PAIR, *(pair for pair in pairs if pair != DEFAULT_PAIR))


def measure_kernels(
    gpu: Gpu,
    trace: KernelTrace,
    find: Find,
    *,
    pairs: Sequence[ClockPair] | None = None,
    core_clocks: int = CORE_CLOCKS,
    settings: MeasurementSettings | None = None,
    progress: Progress | None = None,
) -> KernelProfile:
    """Measure every class that ``find`` can replay; it raises a `ProfileError` for one that it cannot.

    After the first measurement the pairs that would be chosen are measured once more, with the default pair.
    Choices are strict, with tolerance `_TAU`, or by least product; local and global; per kernel and per
    pass.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
        ProfileError: no class of the trace can be replayed.
    """
    why_not = memory_probe(gpu)
    tried = pairs or candidate_pairs(gpu.capabilities(), memory=why_not is None, core_clocks=core_clocks)
    settings = settings or MeasurementSettings()
    replays, left_out = _replays(trace, find)
    points = {}
    for done, (kernel, replay) in enumerate(replays.items()):
        points[kernel] = measure(gpu, replay, tried, settings)
        if progress is not None:
            progress(0.9 * (done + 1) / len(replays))
    identity = gpu.identify()
    profile = KernelProfile(
        points,
        left_out=left_out,
        why_not_memory=why_not,
        fingerprint={**trace.fingerprint, "gpu": identity.name, "driver": identity.driver},
    )
    again = chosen_pairs(profile, trace)
    second = {kernel: measure(gpu, replays[kernel], again[kernel], settings) for kernel in replays}
    if progress is not None:
        progress(1.0)
    spared_w = () if why_not is not None else idle_power_reduction_w(gpu, settings)  # last: it cools
    return replace(profile, second=second, spared_w=spared_w)


def chosen_pairs(profile: KernelProfile, trace: KernelTrace) -> Mapping[KernelClass, tuple[ClockPair, ...]]:
    """The pairs that some goal chooses for each class, the default one first."""
    costs = launch_costs(smoothed(profile), trace)
    wanted: dict[KernelClass, dict[ClockPair, None]] = {
        kernel: {DEFAULT_PAIR: None} for kernel in profile.points
    }
    for level in Level:
        table = cost_table(costs, trace, level)
        for goal in (Goal(), Goal(_TAU), EDP):
            for scope in Scope:
                pair_of = dict(zip(table.rows, choose(table, goal, scope).pairs, strict=True))
                for sequence in trace.sequences:
                    for place in sequence.counts:
                        kernel = trace.classes[place]
                        if kernel in wanted:
                            wanted[kernel][pair_of[level.row_of(sequence, kernel)]] = None
    return {kernel: tuple(pairs) for kernel, pairs in wanted.items()}


def _replays(
    trace: KernelTrace, find: Find
) -> tuple[dict[KernelClass, KernelRunner], dict[KernelClass, str]]:
    replays: dict[KernelClass, KernelRunner] = {}
    left_out: dict[KernelClass, str] = {}
    for kernel in trace.classes:
        try:
            replays[kernel] = find(kernel)
        except ProfileError as error:
            left_out[kernel] = error.message
    if not replays:
        raise ProfileError(
            f"none of the trace's {len(left_out)} kernel classes can be replayed",
            hint=next(iter(left_out.values())),
        )
    return replays, left_out


@dataclass(frozen=True, slots=True)
class _Rest:
    """Milliseconds in which nothing is launched."""

    gpu: Gpu

    def run(self, launches: int) -> None:
        """Let so many pass."""
        self.gpu.sleep(launches * _REST_S)


def idle_power_reduction_w(gpu: Gpu, settings: MeasurementSettings) -> tuple[tuple[int, float], ...]:
    """Watts that each memory clock below the device's own spares while nothing runs.

    How much a waiting GPU takes beside that depends on how it waits; the memory's share does not.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
    """
    lower = gpu.capabilities().memory_clocks_mhz[1:]
    if not lower:
        return ()
    found = measure(gpu, _Rest(gpu), [DEFAULT_PAIR, *(ClockPair(mhz, None) for mhz in lower)], settings)
    own_w, *others_w = (one.energy_j / one.time_s for one in found)
    return tuple((mhz, max(0.0, own_w - watts)) for mhz, watts in zip(lower, others_w, strict=True))


# Replays on a simulated GPU: a kernel class is the work that its operator asks for on its shapes.


@dataclass(frozen=True, slots=True)
class SimulatedRunner:
    """Launches of one class on a simulated GPU."""

    gpu: SimulatedGpu
    work: KernelWork

    def run(self, launches: int) -> None:
        """Launch it so often, back to back."""
        task = self.gpu.begin(self.work.times(launches))
        self.gpu.release(task)
        self.gpu.wait(task)


def simulated_runner(gpu: SimulatedGpu, kernel: KernelClass) -> SimulatedRunner:
    """Find the replay of a class."""
    return SimulatedRunner(gpu, work_of_operator(gpu.model, kernel.name, kernel.shapes, kernel.dtype))
