"""From intervals and counter steps, made from known powers, back to those powers."""

import numpy as np
import pytest

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile import CounterTrace, Interval, Window
from perseus_ds.profile.estimate import estimate
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
    with pytest.raises(IncompleteProfileError, match=r"min_window_s"):
        estimate(Window(1200, long.start_s, long.end_s, long.intervals, few_ticks))
    with pytest.raises(IncompleteProfileError, match="1200 MHz"):
        estimate(Window(1200, long.start_s, long.end_s, (), long.counter))


def test_counter_is_read_between_its_steps_and_not_beyond_them() -> None:
    trace = CounterTrace([1.0, 2.0, 4.0], [10.0, 20.0, 60.0])
    assert trace.energy_between(1.5, 3.0) == pytest.approx(25.0)
    assert trace.covers(1.0, 4.0)
    assert not trace.covers(0.9, 2.0)
    with pytest.raises(IncompleteProfileError, match="sides"):
        trace.energy_between(2.0, 5.0)
    with pytest.raises(IncompleteProfileError, match="0 times"):
        CounterTrace([], []).energy_between(0.0, 1.0)
