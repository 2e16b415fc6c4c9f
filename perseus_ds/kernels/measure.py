"""Measure what a trace is made of: every class at every pair of clocks, then again what would be chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median, stdev

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.device.gpu import Capabilities, Gpu
from perseus_ds.device.simulated.gpu import SimulatedGpu
from perseus_ds.device.simulated.operators import work_of_operator
from perseus_ds.errors import DeviceError, DeviceUnsupportedError, ProfileError
from perseus_ds.kernels.choose import EDP, Goal, Level, Scope, choose, cost_table, launch_costs, smooth
from perseus_ds.kernels.profile import KernelPoint, KernelProfile, LeftOut, MeasuredKernel
from perseus_ds.kernels.trace import KernelClass, KernelTrace

KernelRunner = Callable[[int], None]
"""Launches a kernel class so often, back to back, and returns when the device has done them."""
Find = Callable[[KernelClass], KernelRunner]
CORE_CLOCKS = 9
_LOWEST_SHARE = 0.3
_TAU = 0.1
_REST_S = 0.001

# A window of launches between two steps of the energy counter. Who looks at it between launches alone sees a
# step late by up to a launch. So nothing runs while a step is awaited: the device is looked at fifty times a
# period.

_LOOKS = 50
_STEPS = 5
_FEWEST_PERIODS = 3
_LONGEST_S, _LONGEST_PERIODS = 10.0, 10
_WARMUP_S = 1.0
_MOST_WARMUPS = 25
_STEADY_SHARE = 0.005
_BLOCK_S = 0.01  # launches between two looks at the clock
_MOST_LAUNCHES = 2**24


def _next_step(gpu: Gpu, period_s: float) -> tuple[float, float, float]:
    """Wait for a step of the counter; return when it was seen, and the joules before and after it."""
    before_j, since_s = gpu.energy_j(), gpu.now_s()
    while True:
        gpu.sleep(period_s / _LOOKS)
        after_j, now_s = gpu.energy_j(), gpu.now_s()
        if after_j != before_j:
            return now_s, before_j, after_j
        if now_s - since_s > _LONGEST_S + _LONGEST_PERIODS * period_s:
            raise DeviceError(f"{gpu.identify().name}: the energy counter stands still")


def _window(
    gpu: Gpu, period_s: float, run: KernelRunner, *, launches: int, window_s: float
) -> tuple[float, float]:
    """Launch from a step on for so long, and wait for another; return seconds of a launch and mean power.

    All steps but that last one are of periods in which launches ran. A period's length is that between
    both steps over their number.
    """
    begin_s, _, begin_j = _next_step(gpu, period_s)
    start_s = now_s = gpu.now_s()
    blocks = 0
    while now_s - start_s < max(window_s, _FEWEST_PERIODS * period_s):
        run(launches)
        blocks += 1
        now_s = gpu.now_s()
    end_s, end_j, _ = _next_step(gpu, period_s)
    periods = max(2, round((end_s - begin_s) / period_s))
    power_w = (end_j - begin_j) / ((end_s - begin_s) * (periods - 1) / periods)
    return (now_s - start_s) / (blocks * launches), power_w


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """``windows`` of ``window_s`` each for a pair, once its power stands still."""

    window_s: float = 2.0
    windows: int = 3

    def __post_init__(self) -> None:
        if self.window_s <= 0 or self.windows < 2:  # noqa: PLR2004  # a spread needs two
            raise ProfileError(f"{self.windows} windows of {self.window_s} s", hint="2 or more, above 0 s")


def measure(
    gpu: Gpu, run: KernelRunner, pairs: Sequence[ClockPair], settings: MeasurementSettings
) -> tuple[KernelPoint, ...]:
    """Measure at every pair; both clocks are given back at the end, whatever happens.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter, or it stands still.
    """
    declared_s = gpu.capabilities().counter_period_s
    if declared_s is None:
        raise DeviceUnsupportedError(
            f"{gpu.identify().name} has no energy counter", hint="kernels are measured by it"
        )
    try:
        seen_s = [_next_step(gpu, declared_s)[0] for _ in range(_STEPS)]
        period_s = median(later - earlier for earlier, later in pairwise(seen_s))
        return tuple(_measure(gpu, period_s, run, pair, settings) for pair in pairs)
    finally:
        _set_pair(gpu, DEFAULT_PAIR)


def _set_pair(gpu: Gpu, pair: ClockPair) -> None:
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


def _measure(
    gpu: Gpu, period_s: float, run: KernelRunner, pair: ClockPair, settings: MeasurementSettings
) -> KernelPoint:
    """Warm up until the power of two windows agrees, then measure."""
    _set_pair(gpu, pair)
    launches, start_s = 1, gpu.now_s()
    run(launches)
    while gpu.now_s() - start_s < _BLOCK_S and launches < _MOST_LAUNCHES:
        launches, start_s = 2 * launches, gpu.now_s()
        run(launches)
    warmup_s, before_w = _WARMUP_S + gpu.capabilities().switch_latency_s, math.inf
    for _ in range(_MOST_WARMUPS):
        _, power_w = _window(gpu, period_s, run, launches=launches, window_s=warmup_s)
        if abs(power_w / before_w - 1.0) <= _STEADY_SHARE:
            break
        warmup_s, before_w = _WARMUP_S, power_w
    windows = [
        _window(gpu, period_s, run, launches=launches, window_s=settings.window_s)
        for _ in range(settings.windows)
    ]
    times_s, energies_j = [time_s for time_s, _ in windows], [time_s * power_w for time_s, power_w in windows]
    time_se_s, energy_se_j = (stdev(values) / math.sqrt(len(values)) for values in (times_s, energies_j))
    return KernelPoint(pair, fmean(times_s), fmean(energies_j), time_se_s, energy_se_j, len(windows))


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
    useful = [clock for clock in able.clocks_mhz if clock >= _LOWEST_SHARE * able.clocks_mhz[0]]
    count, span = min(core_clocks, len(useful)), len(useful) - 1
    cores = [useful[round(place * span / max(1, count - 1))] for place in range(count)]
    memories = (None, *able.memory_clocks_mhz[1:]) if memory else (None,)
    return tuple(ClockPair(mhz, core) for mhz in memories for core in (None, *cores))


def measure_kernels(
    gpu: Gpu,
    trace: KernelTrace,
    find: Find,
    *,
    pairs: Sequence[ClockPair] | None = None,
    core_clocks: int = CORE_CLOCKS,
    settings: MeasurementSettings = MeasurementSettings(),
    progress: Callable[[float], None] | None = None,
) -> KernelProfile:
    """Measure every class that ``find`` can replay; it raises a `ProfileError` for one that it cannot.

    After the first measurement the pairs that would be chosen are measured once more, with the default pair.
    Choices are strict, with tolerance `_TAU`, or by least product; local and global; at every level.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
        ProfileError: no class of the trace can be replayed.
    """
    why_not = memory_probe(gpu)
    tried = pairs or candidate_pairs(gpu.capabilities(), memory=why_not is None, core_clocks=core_clocks)
    runners: dict[KernelClass, KernelRunner] = {}
    left_out = []
    for kernel in trace.classes:
        try:
            runners[kernel] = find(kernel)
        except ProfileError as error:
            left_out.append(LeftOut(kernel, error.message))
    if not runners:
        raise ProfileError(
            f"none of the trace's {len(left_out)} kernel classes can be replayed", hint=left_out[0].reason
        )
    measured = []
    for kernel, run in runners.items():
        measured.append(MeasuredKernel(kernel, measure(gpu, run, tried, settings)))
        if progress is not None:
            progress(0.9 * len(measured) / len(runners))
    identity = gpu.identify()
    fingerprint = {**trace.fingerprint, "gpu": identity.name, "driver": identity.driver}
    profile = KernelProfile(tuple(measured), tuple(left_out), why_not, fingerprint)
    again = _chosen_pairs(profile, trace)
    measured = [
        replace(one, second=measure(gpu, runners[one.kernel], again[one.kernel], settings))
        for one in measured
    ]
    if progress is not None:
        progress(1.0)
    spared_w = () if why_not is not None else idle_power_reduction_w(gpu, settings)  # last: it cools
    return replace(profile, measured=tuple(measured), spared_w=spared_w)


def _chosen_pairs(profile: KernelProfile, trace: KernelTrace) -> Mapping[KernelClass, list[ClockPair]]:
    """The pairs that some goal chooses for each class, the default one first."""
    costs = launch_costs(smooth(profile), trace)
    wanted = {kernel: [DEFAULT_PAIR] for kernel in trace.classes}
    for level in Level:
        table = cost_table(costs, trace, level)
        for goal in (Goal(), Goal(_TAU), EDP):
            for scope in Scope:
                pair_of = dict(zip(table.rows, choose(table, goal, scope).pairs, strict=True))
                for sequence in trace.sequences:
                    for place in sequence.counts:
                        kernel = trace.classes[place]
                        wanted[kernel].append(pair_of[level.row_of(sequence, kernel)])
    return {kernel: list(dict.fromkeys(pairs)) for kernel, pairs in wanted.items()}


def idle_power_reduction_w(gpu: Gpu, settings: MeasurementSettings) -> tuple[tuple[int, float], ...]:
    """Watts that each memory clock below the device's own spares while nothing runs.

    How much a waiting GPU takes beside that depends on how it waits; the memory's share does not.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
    """
    lower = gpu.capabilities().memory_clocks_mhz[1:]
    if not lower:
        return ()
    pairs = [DEFAULT_PAIR, *(ClockPair(mhz, None) for mhz in lower)]
    found = measure(gpu, lambda launches: gpu.sleep(launches * _REST_S), pairs, settings)
    own_w, *others_w = (one.energy_j / one.time_s for one in found)
    return tuple((mhz, max(0.0, own_w - watts)) for mhz, watts in zip(lower, others_w, strict=True))


def simulated_runner(gpu: SimulatedGpu, kernel: KernelClass) -> KernelRunner:
    """Replay a class on a simulated GPU: the work that its operator asks for on its shapes."""
    work = work_of_operator(gpu.model, kernel.name, kernel.shapes, kernel.dtype)

    def run(launches: int) -> None:
        task = gpu.begin(work.times(launches))
        gpu.release(task)
        gpu.wait(task)

    return run
