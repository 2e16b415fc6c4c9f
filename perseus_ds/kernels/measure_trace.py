"""Measure what a trace is made of: every class at every pair of clocks, then again what would be chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from perseus_ds.device.gpu import DEFAULT_PAIR, Capabilities, ClockPair, Gpu
from perseus_ds.errors import DeviceError, DeviceUnsupportedError, ProfileError
from perseus_ds.kernels.choose.choose import EDP, Goal, Scope, choose
from perseus_ds.kernels.choose.smooth import smoothed
from perseus_ds.kernels.choose.table import Level, cost_table, launch_costs
from perseus_ds.kernels.counter_window import Replay
from perseus_ds.kernels.measure import WindowPatience, measure
from perseus_ds.kernels.profile import KernelProfile
from perseus_ds.kernels.trace import KernelClass, KernelTrace

CORE_CLOCKS = 9
_LOWEST_SHARE = 0.3
_TAU = 0.1
Find = Callable[[KernelClass], Replay]
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


def measure_trace(
    gpu: Gpu,
    trace: KernelTrace,
    find: Find,
    *,
    pairs: Sequence[ClockPair] | None = None,
    core_clocks: int = CORE_CLOCKS,
    patience: WindowPatience | None = None,
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
    patience = patience or WindowPatience()
    replays, left_out = _replays(trace, find)
    points = {}
    for done, (kernel, replay) in enumerate(replays.items()):
        points[kernel] = measure(gpu, replay, tried, patience)
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
    second = {kernel: measure(gpu, replays[kernel], again[kernel], patience) for kernel in replays}
    if progress is not None:
        progress(1.0)
    spared_w = () if why_not is not None else spared_at_rest_w(gpu, patience)  # last: it cools
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


def _replays(trace: KernelTrace, find: Find) -> tuple[dict[KernelClass, Replay], dict[KernelClass, str]]:
    replays: dict[KernelClass, Replay] = {}
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


def spared_at_rest_w(gpu: Gpu, patience: WindowPatience) -> tuple[tuple[int, float], ...]:
    """Watts that each memory clock below the device's own spares while nothing runs.

    How much a waiting GPU takes beside that depends on how it waits; the memory's share does not.

    Raises:
        DeviceError: a clock was refused, or there is no energy counter.
    """
    lower = gpu.capabilities().memory_clocks_mhz[1:]
    if not lower:
        return ()
    found = measure(gpu, _Rest(gpu), [DEFAULT_PAIR, *(ClockPair(mhz, None) for mhz in lower)], patience)
    own_w, *others_w = (one.energy_j / one.time_s for one in found)
    return tuple((mhz, max(0.0, own_w - watts)) for mhz, watts in zip(lower, others_w, strict=True))
