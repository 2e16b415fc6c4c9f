"""From intervals and counter steps, made from known powers, back to those powers."""

import numpy as np
import pytest

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import (
    CounterTrace,
    Interval,
    Point,
    Sweep,
    Window,
    candidate_clocks,
)
from perseus_ds.profile.estimating.estimate import estimate
from perseus_ds.schedule import Instruction, Kind

FORWARD_W, BACKWARD_W, WAITING_W = 300.0, 250.0, 80.0
POWER_W = {Kind.FORWARD: FORWARD_W, Kind.BACKWARD: BACKWARD_W}
PERIOD_S = 0.1


def intervals(iterations: int) -> tuple[Interval, ...]:
    """Per iteration two forwards of 0.40 s and two backwards of 0.77 s, with gaps and a reduction between."""
    run = []
    now_s = 0.05
    for _ in range(iterations):
        for kind, duration_s, gap_s in [
            (Kind.FORWARD, 0.40, 0.11),
            (Kind.FORWARD, 0.40, 0.23),
            (Kind.BACKWARD, 0.77, 0.07),
            (Kind.BACKWARD, 0.77, 0.0),
            (Kind.REDUCE_GRADS, 0.05, 0.3),
        ]:
            run.append(Interval(Instruction(0, kind, 0), now_s, now_s + duration_s))
            now_s += duration_s + gap_s
    return tuple(run)


def counter(run: tuple[Interval, ...]) -> CounterTrace:
    """The exact energy of ``run``, seen every ``PERIOD_S``."""
    ticks_s = np.arange(0.0, run[-1].end_s + 1.0, PERIOD_S)
    energy_j = WAITING_W * ticks_s
    for interval in run:
        extra_w = POWER_W.get(interval.kind, WAITING_W) - WAITING_W
        energy_j += extra_w * np.clip(ticks_s - interval.start_s, 0.0, interval.duration_s)
    return CounterTrace(ticks_s, energy_j)


def window(iterations: int = 8) -> Window:
    run = intervals(iterations)
    return Window(1200, 0.0, run[-1].end_s, run, counter(run), achieved_mhz=1185, event_reasons=4)


def test_powers_that_made_the_counter_move_are_found() -> None:
    told = estimate(window())
    forward, backward = told.points[0, Kind.FORWARD], told.points[0, Kind.BACKWARD]
    assert forward.energy_j == pytest.approx(FORWARD_W * 0.40, rel=0.01)
    assert backward.energy_j == pytest.approx(BACKWARD_W * 0.77, rel=0.01)
    assert told.blocking_power_w == pytest.approx(WAITING_W, rel=0.01)
    assert (forward.time_s, forward.samples) == (pytest.approx(0.40), 16)
    assert (forward.clock_mhz, forward.achieved_mhz, forward.event_reasons) == (1200, 1185, 4)
    assert told.fixed_s[0, Kind.REDUCE_GRADS] == pytest.approx(0.05)


def test_one_hiccup_does_not_move_the_time() -> None:
    calm = window()
    *others, last = (i for i in calm.intervals if i.kind is Kind.FORWARD)
    slow = Interval(Instruction(0, Kind.FORWARD, 0), last.start_s, last.end_s + 5.0)
    rest = tuple(i for i in calm.intervals if i.kind is not Kind.FORWARD)
    told = estimate(Window(1200, calm.start_s, calm.end_s, (*others, slow, *rest), calm.counter))
    assert told.points[0, Kind.FORWARD].time_s == pytest.approx(0.40)


def test_too_little_to_tell_is_refused_with_what_to_raise() -> None:
    long = window()
    few_ticks = CounterTrace(long.counter.time_s[:3], long.counter.energy_j[:3])
    with pytest.raises(IncompleteProfileError, match=r"moved 3 times in .*min_window_s"):
        estimate(Window(1200, long.start_s, long.end_s, long.intervals, few_ticks))
    with pytest.raises(IncompleteProfileError, match="no forward or backward ran in the window at 1200 MHz"):
        estimate(Window(1200, long.start_s, long.end_s, (), long.counter))


def test_counter_is_read_between_its_steps_and_not_beyond_them() -> None:
    trace = CounterTrace([1.0, 2.0, 4.0], [10.0, 20.0, 60.0])
    assert trace.energy_between(1.5, 3.0) == pytest.approx(25.0)
    assert trace.covers(1.0, 4.0)
    assert not trace.covers(0.9, 2.0)
    with pytest.raises(IncompleteProfileError, match="not on both sides of the 3 s measured"):
        trace.energy_between(2.0, 5.0)
    with pytest.raises(IncompleteProfileError, match="moved 0 times"):
        CounterTrace([], []).energy_between(0.0, 1.0)


A100 = range(210, 1411, 15)


def test_candidates_go_from_the_highest_clock_to_half_of_it_on_the_grid() -> None:
    clocks = candidate_clocks(A100, 8)
    assert (len(clocks), clocks[0], clocks[-1]) == (8, 1410, 705)
    assert list(clocks) == sorted(set(clocks), reverse=True)
    assert set(clocks) <= set(A100)
    assert len(candidate_clocks(A100, None)) == 12
    assert candidate_clocks([1410], 8) == (1410,)
    assert candidate_clocks([1410, 1395], 8) == (1410, 1395)


def sweep_over(energies_j: list[float]) -> Sweep:
    """Record a point per clock until the sweep has had enough; each takes 1 s and blocking costs nothing."""
    sweep = Sweep(tuple(range(1400, 1400 - 100 * len(energies_j), -100)))
    for energy_j in energies_j:
        if sweep.finished:
            break
        point = Point(sweep.clock_mhz, 1.0, energy_j)
        sweep.record({(0, Kind.FORWARD): point}, blocking_power_w=0.0)
    return sweep


def test_a_sweep_that_keeps_paying_goes_to_the_end() -> None:
    sweep = sweep_over([9.0, 8.0, 7.0, 6.0, 5.0])
    assert (sweep.finished, sweep.done) == (True, 5)


def test_a_sweep_stops_two_clocks_after_the_best() -> None:
    sweep = sweep_over([9.0, 8.0, 7.0, 7.5, 7.6, 7.7, 7.8])
    assert (sweep.finished, sweep.done) == (True, 5)
    assert [point.clock_mhz for point in sweep.points[0, Kind.FORWARD]] == [1400, 1300, 1200, 1100, 1000]


def test_one_clock_that_does_not_pay_is_forgiven() -> None:
    assert sweep_over([9.0, 8.0, 8.1, 7.0, 6.0]).done == 5


def test_what_waiting_would_cost_anyway_is_not_a_gain() -> None:
    sweep = Sweep((1400, 1300, 1200, 1100))
    for time_s, energy_j in [(1.0, 100.0), (2.0, 150.0), (3.0, 220.0)]:
        point = Point(sweep.clock_mhz, time_s, energy_j)
        sweep.record({(0, Kind.FORWARD): point}, blocking_power_w=80.0)
    assert not sweep.finished  # effective: 20, -10, -20 J
    late = Sweep((1400, 1300, 1200, 1100))
    for time_s, energy_j in [(1.0, 100.0), (2.0, 190.0), (3.0, 280.0)]:
        point = Point(late.clock_mhz, time_s, energy_j)
        late.record({(0, Kind.FORWARD): point}, blocking_power_w=80.0)
    assert late.finished  # effective: 20, 30, 40 J
