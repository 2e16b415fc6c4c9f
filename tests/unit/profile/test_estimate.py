"""Windows whose truth is known: what the counter saw is split into time and power of each computation.

Recorded windows of a simulated GPU, with its noise, are golden results.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random

import numpy as np
import pytest

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import CounterTrace, Interval, Point, Window
from perseus_ds.profile.estimate import WHOLE, Sampling, best_sampling, estimate
from perseus_ds.profile.loads import differ, spread, variation
from perseus_ds.schedule import Instruction, Kind, Load, last_backwards, textbook

PERIOD_S = 0.1  # of the counter
TRACE = CounterTrace([1.0, 2.0, 4.0], [100.0, 200.0, 300.0])


def test_energy_is_interpolated_between_steps_and_parts_add_up() -> None:
    found = [TRACE.energy_between(*when_s) for when_s in ((1.0, 4.0), (1.5, 2.0), (1.5, 3.0), (2.0, 2.0))]
    assert found == pytest.approx([200.0, 50.0, 100.0, 0.0])
    parts = TRACE.energy_between(1.2, 1.9) + TRACE.energy_between(1.9, 3.7)
    assert parts == pytest.approx(TRACE.energy_between(1.2, 3.7))


@pytest.mark.parametrize(
    ("trace", "start_s", "end_s"),
    [
        *((TRACE, *when_s) for when_s in ((0.9, 2.0), (2.0, 4.1), (0.0, 9.0))),
        *((trace, 1.0, 1.0) for trace in (CounterTrace([], []), CounterTrace([1.0], [5.0]))),
    ],
)
def test_what_was_not_watched_is_refused(trace: CounterTrace, start_s: float, end_s: float) -> None:
    assert not trace.covers(start_s, end_s)
    with pytest.raises(IncompleteProfileError, match=f"{len(trace)} times"):
        trace.energy_between(start_s, end_s)


def window(
    intervals: Sequence[Interval],
    power_w: float | Callable[[Interval], float] = 100.0,
    *,
    waiting_w: float = 100.0,
    end_s: float | None = None,
) -> Window:
    """Return a window with an exact counter: computations at their power, and waiting between them."""
    end_s = intervals[-1].end_s if end_s is None else end_s
    ticks_s = np.linspace(0.0, end_s, 1 + round(end_s / PERIOD_S))
    energy_j = waiting_w * ticks_s
    for one in intervals:
        above_w = (power_w if isinstance(power_w, float) else power_w(one)) - waiting_w
        energy_j += above_w * np.clip(ticks_s - one.start_s, 0.0, one.duration_s)
    return Window(1000, 0.0, end_s, tuple(intervals), CounterTrace(ticks_s, energy_j))


def row(kind: Kind, *durations_s: float, gap_s: float = 0.0) -> list[Interval]:
    intervals, now_s = [], 0.0
    for duration_s in durations_s:
        intervals.append(Interval(Instruction(0, kind, 0), now_s, now_s + duration_s))
        now_s += duration_s + gap_s
    return intervals


FORWARD = 0, Kind.FORWARD


def forward_of(seen: Window) -> Point:
    return estimate(seen).points[FORWARD]


def test_one_hiccup_does_not_move_the_time() -> None:
    point = forward_of(window(row(Kind.FORWARD, *[1.0] * 19, 30.0, gap_s=0.5), end_s=60.0))
    assert point.time_s == pytest.approx(1.0)


@pytest.mark.parametrize("durations_s", [(1.0,), (1.0, 1.2), (1.0, 1.2, 1.1), (1.0, 1.2, 1.1, 1.1)])
def test_few_measurements_tell_their_mean(durations_s: tuple[float, ...]) -> None:
    """Two of them leave nothing between their quantiles: a window of a job without accumulation."""
    point = forward_of(window(row(Kind.FORWARD, *durations_s, gap_s=0.5), end_s=10.0))
    assert point.time_s == pytest.approx(sum(durations_s) / len(durations_s))
    assert point.energy_j == pytest.approx(100.0 * point.time_s)
    assert point.samples == len(durations_s)


@pytest.mark.thorough
@pytest.mark.parametrize("runs", [2, 3, 5, 9, 10, 12, 20])
def test_the_spread_of_few_measurements_is_not_taken_for_less(runs: int) -> None:
    random = Random(runs)
    runs_s = [[random.gauss(1.0, 0.02) for _ in range(runs)] for _ in range(200)]
    found = [forward_of(window(row(Kind.FORWARD, *own_s), end_s=30.0)) for own_s in runs_s]
    squared = [(point.time_sd_s or 0.0) ** 2 for point in found]
    assert (sum(squared) / len(squared)) ** 0.5 == pytest.approx(0.02, rel=0.1)


def spaced(kind: Kind, from_s: float, *durations_s: float) -> list[Interval]:
    """One a second."""
    begin_s = [from_s + number for number in range(len(durations_s))]
    name = Instruction(0, kind, 0)
    return [Interval(name, at_s, at_s + own_s) for at_s, own_s in zip(begin_s, durations_s, strict=True)]


@pytest.mark.parametrize("skipped", [1, 2, 3])
def test_steps_that_were_skipped_are_not_the_step(skipped: int) -> None:
    """A gradient that overflows ends an iteration without its step; a window holds a few iterations."""
    steps = spaced(Kind.STEP, 20.0, *[0.002] * skipped, *[0.05] * (8 - skipped))
    found = estimate(window([*row(Kind.FORWARD, *[1.0] * 5), *steps], end_s=30.0))
    assert found.fixed_s[0, Kind.STEP] == pytest.approx(0.05)


def test_what_no_clock_changes_is_told_without_its_waiting() -> None:
    """Fixed durations are the short ones; transfers come one by one, for both ends to compare."""
    loads = spaced(Kind.LOAD, 20.0, *[0.1] * 5, *[0.9] * 5)
    sends = spaced(Kind.SEND_ACTIVATION, 40.0, 0.1, 0.2, 0.3)
    found = estimate(window([*row(Kind.FORWARD, *[1.0] * 5), *loads, *sends], end_s=50.0))
    assert found.fixed_s == {(0, Kind.LOAD): pytest.approx(0.1)}
    assert found.transfers_s[0, Kind.SEND_ACTIVATION] == pytest.approx((0.1, 0.2, 0.3))


def test_too_few_steps_of_the_counter_and_windows_without_computations_are_refused() -> None:
    with pytest.raises(IncompleteProfileError, match=r"5 times") as refused:
        estimate(window(row(Kind.FORWARD, 0.1, 0.1), end_s=0.4))
    assert "min_window_s" in str(refused.value.hint)
    with pytest.raises(IncompleteProfileError, match="1000 MHz"):
        estimate(window(row(Kind.LOAD, 1.0), end_s=10.0))


def test_what_the_host_did_between_iterations_is_no_power_of_a_computation() -> None:
    """Steps of the counter in which the GPU did something else for the host would pass for dear waiting."""
    outside = ((3.0, 4.0), (7.25, 8.0), (11.0, 11.5))
    intervals = [Interval(Instruction(0, Kind.FORWARD, n), 0.5 * n, 0.5 * n + 0.3) for n in range(24)]
    ran = [one for one in intervals if not any(one.end_s > a and one.start_s < b for a, b in outside)]
    elsewhere = [Interval(Instruction(0, Kind.LOAD, 0), *when) for when in outside]
    seen = window([*ran, *elsewhere], lambda one: 300.0 if one in ran else 900.0, waiting_w=60.0, end_s=12.0)
    found = estimate(replace(seen, intervals=tuple(ran), outside=outside))
    assert found.points[FORWARD].energy_j == pytest.approx(0.3 * 300.0, rel=0.02)
    assert found.blocking_power_w == pytest.approx(60.0, rel=0.02)


def test_the_error_of_a_time_is_that_of_a_mean_and_that_of_an_energy_contains_it() -> None:
    """Half last 0.9 s, half 1.1 s: 0.1 s apart from the mean, of 16 values and 15 degrees of freedom."""
    point = forward_of(window(row(Kind.FORWARD, *[0.9, 1.1] * 8, gap_s=0.5), end_s=30.0))
    assert point.time_se_s == pytest.approx(0.1 * (16 / 15) ** 0.5 / 16**0.5)
    assert point.energy_se_j == pytest.approx(100.0 * point.time_se_s, rel=1e-6), "exactly 100 W"


def test_the_error_of_an_energy_contains_that_of_its_power() -> None:
    """All last 1 s and fill every step; steps are 90 or 110 J: of 16 the mean is known to 10 / sqrt(15)."""
    runs = tuple(row(Kind.FORWARD, *[1.0] * 16))
    steps_j = [0.0, *([90.0] * 4 + [110.0] * 4) * 2]
    point = forward_of(Window(1000, 0.0, 16.0, runs, CounterTrace(range(17), list(accumulate(steps_j)))))
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
    counter = CounterTrace([3.0 * n for n in range(21)], [0.0, *accumulate([330.0, 270.0] * 10)])
    points = estimate(Window(1000, 0.0, 60.0, tuple(runs), counter)).points
    assert points[FORWARD].energy_j == pytest.approx(100.0, rel=0.02)
    assert points[0, Kind.BACKWARD].energy_j == pytest.approx(200.0, rel=0.02)


def test_where_nobody_waits_rounding_is_no_power_of_waiting() -> None:
    """Computations side by side and a counter with noise: what is left of a step is a few bits."""
    random = Random(1)
    seen = window(row(Kind.FORWARD, *[0.4 + 0.001 * (n * 7919 % 13) / 13 for n in range(42)]), 300.0)
    noisy_j = [float(energy_j) + random.gauss(0.0, 0.1) for energy_j in seen.counter.energy_j]
    seen = replace(seen, counter=CounterTrace(seen.counter.time_s.tolist(), noisy_j))
    assert estimate(seen).blocking_power_w < 1000.0


# A rank that runs several model stages, with split backwards, measures each of them by itself.

WAITING_W = 80.0
TRUTH = {  # watts and seconds of rank 0 of a ZBV pipeline: the first stage and the last, which is heavier
    (0, Kind.FORWARD): (300.0, 0.31),
    (0, Kind.BACKWARD_INPUT): (280.0, 0.37),
    (0, Kind.BACKWARD_WEIGHT): (330.0, 0.29),
    (3, Kind.FORWARD): (320.0, 0.53),
    (3, Kind.BACKWARD_INPUT): (290.0, 0.61),
    (3, Kind.BACKWARD_WEIGHT): (310.0, 0.43),
}
ORDER = textbook("zbv", stages=4, microbatches=6).orders[0]


def run_order(*, waits_in: frozenset[Instruction] = frozenset(), wait_s: float = 0.0) -> Window:
    """Run the order four times with gaps that differ; instructions in ``waits_in`` wait at their end."""
    computed, runs, now_s = list[Interval](), list[Interval](), 0.0
    for step, instruction in enumerate(ORDER * 4):
        end_s = now_s + TRUTH[instruction.stage, instruction.kind][1]
        computed.append(Interval(instruction, now_s, end_s))
        runs.append(Interval(instruction, now_s, end_s + (wait_s if instruction in waits_in else 0.0)))
        now_s = runs[-1].end_s + 0.01 * (step % 7)
    seen = window(computed, lambda one: TRUTH[one.computation][0], waiting_w=WAITING_W, end_s=now_s)
    return replace(seen, intervals=tuple(runs))


def without(seen: Window, left_out: frozenset[Instruction]) -> Window:
    return replace(seen, intervals=tuple(replace(i, waits=i.instruction in left_out) for i in seen.intervals))


def test_what_contains_a_wait_is_left_out_of_time_and_power_unless_all_do() -> None:
    last = last_backwards(ORDER)
    waiting = run_order(waits_in=last, wait_s=2.0)
    left, kept = estimate(without(waiting, last)), estimate(waiting)
    for computation in {(i.stage, i.kind) for i in last}:
        watts, seconds = TRUTH[computation]
        assert left.points[computation].time_s == pytest.approx(seconds)
        assert left.points[computation].energy_j == pytest.approx(watts * seconds, rel=0.02)
        assert left.points[computation].samples == 5 * 4
        assert kept.points[computation].time_s > 1.2 * seconds
    every = frozenset(i for i in ORDER if i.kind is Kind.BACKWARD_WEIGHT and i.stage == 0)
    assert estimate(without(run_order(), every)).points[0, Kind.BACKWARD_WEIGHT].samples == 6 * 4


# A counter that looks at a quarter of its period: what it did not see is not blamed on what ran then.

POWER_W = {Kind.FORWARD: 380.0, Kind.BACKWARD: 400.0}


def one_wait_behind_every_forward(iterations: int = 40) -> list[Interval]:
    """Backwards follow forwards after a wait: a counter read late takes waiting for forwards, always."""
    intervals, now_s = [], 0.05
    for index in range(iterations):
        for kind, lasts_s, wait_s in ((Kind.FORWARD, 0.283, 0.171), (Kind.BACKWARD, 0.561, 0.0)):
            intervals.append(Interval(Instruction(0, kind, index), now_s, now_s + lasts_s))
            now_s += lasts_s + wait_s
    return intervals


def seen_by(sampling: Sampling, intervals: list[Interval]) -> Window:
    """Return a window as such a counter sees it, without noise."""
    ticks_s = np.arange(0.0, intervals[-1].end_s, PERIOD_S)
    steps_j = np.full(len(ticks_s) - 1, WAITING_W * PERIOD_S)
    for kind, power_w in POWER_W.items():
        busy_s = sampling.busy_s([i for i in intervals if i.kind is kind], ticks_s)
        steps_j += (power_w - WAITING_W) * busy_s
    trace = CounterTrace(ticks_s.tolist(), np.concatenate([[0.0], steps_j.cumsum()]).tolist())
    return Window(1000, 0.0, intervals[-1].end_s, tuple(intervals), trace)


@pytest.mark.parametrize("lag", [-0.2, 0.0, 0.14, 0.3])
@pytest.mark.parametrize("width", [0.25, 0.5])
def test_powers_are_the_true_ones_whenever_in_its_period_the_counter_looks(width: float, lag: float) -> None:
    found = estimate(seen_by(Sampling(width, lag), one_wait_behind_every_forward()))
    for (_, kind), point in found.points.items():
        assert point.energy_j / point.time_s == pytest.approx(POWER_W[kind], rel=0.003)
    assert found.blocking_power_w == pytest.approx(WAITING_W, rel=0.02)


def test_what_chance_explains_as_well_changes_nothing() -> None:
    assert best_sampling(lambda one: 100.0 if one == WHOLE else 99.0, steps=50) == WHOLE
    assert best_sampling(lambda one: 100.0 if one == WHOLE else 50.0, steps=50) != WHOLE


# Batches of different shapes are compared at one size, and variation that nobody explains is seen.


def sized(sizes: list[int], *, told: bool, clock: float = 1.0) -> Window:
    """Return a window of forwards one after another, each as long as its size asks, at 100 W."""
    lasting = row(Kind.FORWARD, *(size / 100.0 * clock for size in sizes))
    runs = [replace(one, load=Load(size) if told else None) for one, size in zip(lasting, sizes, strict=True)]
    return replace(window(runs), loads={0: Load(100.0)})


def test_windows_of_other_batches_at_other_clocks_tell_the_clocks_alone() -> None:
    """Small batches at one clock, large ones at a slower one: without sizes they would differ threefold."""
    high = forward_of(sized([50, 100, 100, 50], told=True))
    low = forward_of(sized([200, 100, 200, 100], told=True, clock=1.2))
    assert low.time_s / high.time_s == pytest.approx(1.2)
    assert low.energy_j / high.energy_j == pytest.approx(1.2, rel=0.01)


def test_what_varies_beyond_its_size_is_seen_and_what_was_seen_has_a_mean() -> None:
    """Microbatches of twice the size, and of half and twice it: as much more work on average."""
    sizes = [50, 100, 150, 100] * 3
    assert estimate(sized(sizes, told=True)).spread < 0.01
    assert estimate(sized(sizes, told=False)).spread > 0.5
    assert spread(np.full(10, 2.0)) == 0.0
    seen = estimate(sized([100, 300, 100, 300], told=True))
    assert seen.larger[FORWARD] == pytest.approx(2.0)
    assert seen.larger[FORWARD] * seen.points[FORWARD].time_s == pytest.approx(2.0), "the mean of 1 and 3 s"


def test_sizes_differ_by_more_than_rounding_and_vary_within_an_iteration_or_not_at_all() -> None:
    sizes = ([100.0, 110.0], True), ([0.0, 5.0], False), ([100.0, 101.0], False)
    assert all(differ(np.array(own)) == differs for own, differs in sizes)
    random = np.random.default_rng(1)
    numbers = np.tile(np.arange(4.0), 1000)
    assert variation(random.normal(100.0, 20.0, 4000), numbers) == pytest.approx(0.2, rel=0.05)
    assert variation(np.repeat([100.0, 140.0], 4), numbers[:8]) == 0.0, "batches of one size each"
    assert variation(np.zeros(10), numbers[:10]) == 0.0
    assert variation(np.array([100.0, 140.0]), np.zeros(2)) == 0.0, "one microbatch in an iteration"


def test_durations_are_brought_to_the_size_of_their_own_stage() -> None:
    """Forwards of 2 s on 200 elements: 1 s where stage 1 counts 100, whatever stage 0 counts."""
    names = [Instruction(1, Kind.FORWARD, n) for n in range(8)]
    runs = [Interval(name, 2.0 * n, 2.0 * n + 2.0, Load(200)) for n, name in enumerate(names)]
    seen = estimate(replace(window(runs), loads={0: Load(400.0), 1: Load(100.0)}))
    assert seen.points[1, Kind.FORWARD].time_s == pytest.approx(1.0)
    assert seen.larger[1, Kind.FORWARD] == pytest.approx(2.0)
