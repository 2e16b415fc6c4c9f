"""Estimates against the ground truth of a simulated GPU: noise on, in virtual time."""

from dataclasses import dataclass, replace
from random import Random

import pytest

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.physics import BLOCKED, Work, duration_s, energy_j
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import CounterTrace, Interval, Window
from perseus_ds.profile.estimate import estimate
from perseus_ds.schedule import Instruction, Kind

# One rank's window of 1F1B-like iterations on a simulated GPU in virtual time, and what was really true.

LETTERS = {"F": Kind.FORWARD, "B": Kind.BACKWARD}
READS_PER_PERIOD = 2


@dataclass(frozen=True)
class Played:
    """The window as a rank sees it, and the GPU that knows better."""

    window: Window
    gpu: SimulatedGpu
    works: dict[Kind, Work]


def play(
    order: str,
    *,
    clock_mhz: int,
    forward_s: float = 0.4,
    backward_s: float = 0.8,
    wait_s: float = 0.15,
    settings: SimulatedSettings | None = None,
) -> Played:
    """Run instructions one after another (F, B; a dot waits) and watch the counter as a thread would."""
    time = VirtualTime()
    gpu = SimulatedGpu(settings or SimulatedSettings(), time=time)
    works = {Kind.FORWARD: Work(forward_s, intensity=0.7), Kind.BACKWARD: Work(backward_s, intensity=0.85)}
    gpu.lock_clock(clock_mhz)
    watch = _Watch(gpu, time)
    watch.pass_s(1.0)
    start_s = time.now_s()
    intervals = [_run(letter, gpu, works, watch, wait_s) for letter in order]
    end_s = time.now_s()
    watch.pass_s(0.3)
    kept = tuple(interval for interval in intervals if interval is not None)
    trace = CounterTrace(watch.times_s, watch.energies_j)
    return Played(Window(clock_mhz, start_s, end_s, kept, trace, achieved_mhz=clock_mhz), gpu, works)


class _Watch:
    """Reads the counter twice per period of virtual time and keeps its changes."""

    def __init__(self, gpu: SimulatedGpu, time: VirtualTime) -> None:
        period_s = gpu.capabilities().counter_period_s
        assert period_s is not None
        self._gpu, self._time = gpu, time
        self._every_s = period_s / READS_PER_PERIOD
        self._next_s = time.now_s()
        self._last_j: float | None = None
        self.times_s: list[float] = []
        self.energies_j: list[float] = []

    def pass_s(self, elapsed_s: float) -> None:
        end_s = self._time.now_s() + elapsed_s
        while self._next_s <= end_s:
            self._time.pass_s(max(0.0, self._next_s - self._time.now_s()))
            self._read()
            self._next_s += self._every_s
        self._time.pass_s(end_s - self._time.now_s())

    def _read(self) -> None:
        energy_j = self._gpu.energy_j()
        if self._last_j is not None and energy_j != self._last_j:
            self.times_s.append(self._time.now_s())
            self.energies_j.append(energy_j)
        self._last_j = energy_j


def _run(
    letter: str, gpu: SimulatedGpu, works: dict[Kind, Work], watch: _Watch, wait_s: float
) -> Interval | None:
    if letter == ".":
        watch.pass_s(wait_s)
        return None
    kind = LETTERS[letter]
    task = gpu.begin(works[kind])
    gpu.release(task)
    start_s = gpu.now_s()
    while task.ended_s is None:
        watch.pass_s(min(1e-3, max(1e-6, gpu._timeline.finish_s() - gpu.now_s())))
        gpu.true_now()
    gpu.wait(task)
    return Interval(Instruction(0, kind, 0), start_s, task.ended_s)


WITHIN = 0.02
ORDER = "FFF..F.B.F.B.F.BB.B" * 3


@pytest.mark.thorough
@pytest.mark.parametrize("clock_mhz", [1410, 1200, 900, 705])
def test_time_and_energy_are_the_true_ones(clock_mhz: int) -> None:
    played = play(ORDER, clock_mhz=clock_mhz)
    found = estimate(played.window)
    assert set(found.points) == {(0, Kind.FORWARD), (0, Kind.BACKWARD)}
    for kind, work in played.works.items():
        point = found.points[0, kind]
        assert point.clock_mhz == clock_mhz
        assert point.time_s == pytest.approx(duration_s(played.gpu.model, clock_mhz, work), rel=WITHIN)
        assert point.energy_j == pytest.approx(energy_j(played.gpu.model, clock_mhz, work), rel=WITHIN)


def test_instructions_shorter_than_the_counters_period_keep_the_sum_of_all() -> None:
    """The split is uncertain then (the counter samples a quarter of its period); the whole is right."""
    waiting_s = 0.03
    played = play("FB." * 60, clock_mhz=1200, forward_s=0.025, backward_s=0.05, wait_s=waiting_s)
    found, model = estimate(played.window), played.gpu.model
    told_j = sum(point.energy_j for point in found.points.values()) + found.blocking_power_w * waiting_s
    true_j = sum(energy_j(model, 1200, work) for work in played.works.values())
    true_j += BLOCKED.power_w(model, 1200, model.memory_clocks_mhz[0]) * waiting_s
    assert told_j == pytest.approx(true_j, rel=0.05)


def synthetic(intervals: list[Interval], *, end_s: float, steps: int = 100, power_w: float = 100.0) -> Window:
    times = [end_s * step / steps for step in range(steps + 1)]
    trace = CounterTrace(times, [power_w * time for time in times])
    return Window(1000, 0.0, end_s, tuple(intervals), trace)


def row(kind: Kind, *durations_s: float, gap_s: float = 0.0) -> list[Interval]:
    intervals, now_s = [], 0.0
    for lasts_s in durations_s:
        intervals.append(Interval(Instruction(0, kind, 0), now_s, now_s + lasts_s))
        now_s += lasts_s + gap_s
    return intervals


def test_one_hiccup_does_not_move_the_time() -> None:
    found = estimate(synthetic(row(Kind.FORWARD, *[1.0] * 19, 30.0, gap_s=0.5), end_s=60.0))
    assert found.points[0, Kind.FORWARD].time_s == pytest.approx(1.0)


@pytest.mark.parametrize("durations_s", [(1.0,), (1.0, 1.2), (1.0, 1.2, 1.1), (1.0, 1.2, 1.1, 1.1)])
def test_few_measurements_tell_their_mean(durations_s: tuple[float, ...]) -> None:
    """Two of them leave nothing between their quantiles: a window of a job without accumulation."""
    point = estimate(synthetic(row(Kind.FORWARD, *durations_s, gap_s=0.5), end_s=10.0)).points[
        0, Kind.FORWARD
    ]
    assert point.time_s == pytest.approx(sum(durations_s) / len(durations_s))
    assert point.energy_j == pytest.approx(100.0 * point.time_s)
    assert point.samples == len(durations_s)


@pytest.mark.thorough
@pytest.mark.parametrize("runs", [2, 3, 5, 9, 10, 12, 20])
def test_the_spread_of_few_measurements_is_not_taken_for_less(runs: int) -> None:
    random = Random(runs)
    found = [
        estimate(synthetic(row(Kind.FORWARD, *[random.gauss(1.0, 0.02) for _ in range(runs)]), end_s=30.0))
        for _ in range(200)
    ]
    squared = [(one.points[0, Kind.FORWARD].time_sd_s or 0.0) ** 2 for one in found]
    assert (sum(squared) / len(squared)) ** 0.5 == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("skipped", [1, 2, 3])
def test_steps_that_were_skipped_are_not_the_step(skipped: int) -> None:
    """A gradient that overflows ends an iteration without its step; a window holds a few iterations."""
    steps_s = [0.002] * skipped + [0.05] * (8 - skipped)
    steps = [Interval(Instruction(0, Kind.STEP, 0), 20.0 + i, 20.0 + i + s) for i, s in enumerate(steps_s)]
    found = estimate(synthetic([*row(Kind.FORWARD, *[1.0] * 5), *steps], end_s=30.0))
    assert found.fixed_s[0, Kind.STEP] == pytest.approx(0.05)


def test_what_no_clock_changes_is_told_without_its_waiting() -> None:
    """Fixed durations are the short ones; transfers come one by one, for both ends to compare."""
    loads = [
        Interval(Instruction(0, Kind.LOAD, 0), 20.0 + i, 20.0 + i + (0.1 if i < 5 else 0.9))
        for i in range(10)
    ]
    sends = [
        Interval(Instruction(0, Kind.SEND_ACTIVATION, 0), 40.0 + i, 40.0 + i + 0.1 * (i + 1))
        for i in range(3)
    ]
    window = synthetic([*row(Kind.FORWARD, *[1.0] * 5), *loads, *sends], end_s=50.0)
    found = estimate(window)
    assert found.fixed_s == {(0, Kind.LOAD): pytest.approx(0.1)}
    assert found.transfers_s[0, Kind.SEND_ACTIVATION] == pytest.approx((0.1, 0.2, 0.3))


def test_too_few_steps_of_the_counter_are_refused() -> None:
    window = synthetic(row(Kind.FORWARD, 0.1, 0.1), end_s=0.4, steps=4)
    with pytest.raises(IncompleteProfileError, match=r"5 times") as refused:
        estimate(window)
    assert refused.value.hint is not None
    assert "min_window_s" in refused.value.hint


def test_a_window_without_computations_is_refused() -> None:
    with pytest.raises(IncompleteProfileError, match="1000 MHz"):
        estimate(synthetic(row(Kind.LOAD, 1.0), end_s=10.0))


def test_what_the_host_did_between_iterations_is_no_power_of_a_computation() -> None:
    """Steps of the counter in which the GPU did something else for the host would pass for dear waiting."""
    step_s, waiting_w, working_w, elsewhere_w = 0.1, 60.0, 300.0, 900.0
    times_s = [round(step_s * step, 9) for step in range(121)]
    outside = [(3.0, 4.0), (7.25, 8.0), (11.0, 11.5)]
    intervals = [Interval(Instruction(0, Kind.FORWARD, n), 0.5 * n, 0.5 * n + 0.3) for n in range(24)]
    ran = [one for one in intervals if not any(one.end_s > a and one.start_s < b for a, b in outside)]

    def power_w(at_s: float) -> float:
        if any(start_s <= at_s < end_s for start_s, end_s in outside):
            return elsewhere_w
        return working_w if any(one.start_s <= at_s < one.end_s for one in ran) else waiting_w

    grain = 100
    energies_j, total_j = [0.0], 0.0
    for step in range(120):
        total_j += sum(power_w(step_s * (step + (k + 0.5) / grain)) for k in range(grain)) * step_s / grain
        energies_j.append(total_j)
    trace = CounterTrace(times_s, energies_j)
    found = estimate(Window(1200, 0.0, 12.0, tuple(ran), trace, outside=tuple(outside)))
    assert found.points[0, Kind.FORWARD].energy_j == pytest.approx(0.3 * working_w, rel=0.02)
    assert found.blocking_power_w == pytest.approx(waiting_w, rel=0.02)


def test_the_error_of_a_time_is_that_of_a_mean_and_that_of_an_energy_contains_it() -> None:
    """Half last 0.9 s, half 1.1 s: 0.1 s apart from the mean, of 16 values and 15 degrees of freedom."""
    found = estimate(synthetic(row(Kind.FORWARD, *[0.9, 1.1] * 8, gap_s=0.5), end_s=30.0))
    point = found.points[0, Kind.FORWARD]
    assert point.time_se_s == pytest.approx(0.1 * (16 / 15) ** 0.5 / 16**0.5)
    assert point.energy_se_j == pytest.approx(100.0 * point.time_se_s, rel=1e-6), "exactly 100 W"


def test_the_error_of_an_energy_contains_that_of_its_power() -> None:
    """All last 1 s and fill every step; steps are 90 or 110 J: of 16 the mean is known to 10 / sqrt(15)."""
    runs = tuple(row(Kind.FORWARD, *[1.0] * 16))
    steps_j = [0.0, *([90.0] * 4 + [110.0] * 4) * 2]
    counter = CounterTrace(list(range(17)), [sum(steps_j[: n + 1]) for n in range(17)])
    point = estimate(Window(1000, 0.0, 16.0, runs, counter)).points[0, Kind.FORWARD]
    assert point.time_se_s == 0.0
    assert point.energy_j == pytest.approx(100.0)
    assert point.energy_se_j == pytest.approx(10.0 / 14**0.5, rel=0.05)


def test_computations_that_no_step_tells_apart_draw_alike() -> None:
    """Every step holds 1 s of forwards and 2 s of backwards: 300 J on average say 100 W, of either."""
    runs = [
        Interval(Instruction(0, kind, n), 3.0 * n + start_s, 3.0 * n + end_s)
        for n in range(20)
        for kind, start_s, end_s in ((Kind.FORWARD, 0.0, 1.0), (Kind.BACKWARD, 1.0, 3.0))
    ]
    steps_j = [330.0, 270.0] * 10
    counter = CounterTrace([3.0 * n for n in range(21)], [sum(steps_j[:n]) for n in range(21)])
    points = estimate(Window(1000, 0.0, 60.0, tuple(runs), counter)).points
    assert points[0, Kind.FORWARD].energy_j == pytest.approx(100.0, rel=0.02)
    assert points[0, Kind.BACKWARD].energy_j == pytest.approx(200.0, rel=0.02)


def test_where_nobody_waits_rounding_is_no_power_of_waiting() -> None:
    """Computations side by side and a counter with noise: what is left of a step is a few bits."""
    random = Random(1)
    intervals = row(Kind.FORWARD, *[0.4 + 0.001 * (n * 7919 % 13) / 13 for n in range(42)])
    window = synthetic(intervals, end_s=intervals[-1].end_s, power_w=300.0)
    noisy_j = [float(energy_j) + random.gauss(0.0, 0.1) for energy_j in window.counter.energy_j]
    window = replace(window, counter=CounterTrace(window.counter.time_s.tolist(), noisy_j))
    assert estimate(window).blocking_power_w < 1000.0
