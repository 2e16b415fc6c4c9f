"""Whole iterations are booked when the energy counter has passed them, to the side that they belong to."""

import pickle
from typing import cast

import pytest

from perseus_ds.profile import CounterTrace
from perseus_ds.runtime.accounting import EnergyAccount, Mode, Sample, Total
from perseus_ds.runtime.energy_monitor import EnergyWatch
from perseus_ds.runtime.recorder import Iteration

WATTS = 100.0


class Watched:
    """A counter that has moved every ``period_s`` up to ``until_s``, at constant power."""

    def __init__(self, *, since_s: float = 0.0, period_s: float = 0.1) -> None:
        self.watching = True
        self.period_s = period_s
        self.until_s = since_s
        self._since_s = since_s
        self._period_s = period_s
        self.forgotten_s = 0.0

    def trace(self, since_s: float) -> CounterTrace:
        steps = int((self.until_s - self._since_s) / self._period_s + 1e-9)
        times = [self._since_s + step * self._period_s for step in range(steps + 1)]
        kept = [time for time in times if time > since_s]
        before = [time for time in times if time <= since_s]
        times = before[-1:] + kept
        return CounterTrace(times, [WATTS * time for time in times])

    def forget(self, before_s: float) -> None:
        self.forgotten_s = before_s


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def account(watched: Watched) -> EnergyAccount:
    return EnergyAccount(cast("EnergyWatch", watched))


def iteration(index: int, start_s: float, end_s: float, *, outside_s: float = 0.0) -> Iteration:
    return Iteration(index, start_s, end_s, (), outside_s=outside_s)


def enter(
    account: EnergyAccount, watched: Watched, modes: str, *, length_s: float = 1.0, first: int = 0
) -> None:
    """One iteration after another, B baseline, P perseus, N neither; the counter runs along."""
    letters = {"B": Mode.BASELINE, "P": Mode.PERSEUS, "N": Mode.NEITHER}
    for index, letter in enumerate(modes, start=first):
        watched.until_s = (index + 1) * length_s
        account.add(letters[letter], iteration(index, index * length_s, (index + 1) * length_s))


def energy_j(total: Total) -> float:
    return sum(one.iterations * one.energy_j for one in total.samples)


def test_each_side_gets_its_own_iterations(account: EnergyAccount, watched: Watched) -> None:
    enter(account, watched, "PPPNBBNP", length_s=4.0)
    baseline, perseus = account.totals_of(0)[Mode.BASELINE], account.totals_of(0)[Mode.PERSEUS]
    assert (baseline.iterations, perseus.iterations) == (2, 3)
    assert [one.first for one in perseus.samples] == [0, 1, 2]
    assert energy_j(baseline) == pytest.approx(8.0 * WATTS)
    assert energy_j(perseus) == pytest.approx(12.0 * WATTS)


def test_nothing_is_booked_before_the_counter_has_passed_it(account: EnergyAccount, watched: Watched) -> None:
    account.add(Mode.PERSEUS, iteration(0, 0.0, 1.0))
    watched.until_s = 0.9
    account.add(Mode.PERSEUS, iteration(1, 1.0, 2.0))
    assert account.totals_of(0)[Mode.PERSEUS].iterations == 0
    watched.until_s = 2.1
    account.add(Mode.NEITHER, iteration(2, 2.0, 3.0))
    account.add(Mode.NEITHER, iteration(3, 3.0, 4.0))
    assert account.totals_of(0)[Mode.PERSEUS].iterations == 2


def test_iterations_shorter_than_the_counters_period_are_booked_together(
    account: EnergyAccount, watched: Watched
) -> None:
    enter(account, watched, "P" * 220, length_s=0.03)
    perseus = account.totals_of(0)[Mode.PERSEUS]
    assert perseus.iterations >= 200
    assert {one.iterations for one in perseus.samples} <= {100, 101}, "three seconds each: thirty periods"
    for one in perseus.samples:
        assert one.time_s == pytest.approx(0.03)
        assert one.energy_j == pytest.approx(0.03 * WATTS)


def test_a_beginning_that_the_counter_missed_holds_up_nothing() -> None:
    """The watch starts within the first iteration: that one is lost, the others are not."""
    watched = Watched(since_s=0.5)
    account = EnergyAccount(cast("EnergyWatch", watched))
    enter(account, watched, "BNPPPN")
    assert account.totals_of(0)[Mode.BASELINE].iterations == 0
    assert account.totals_of(0)[Mode.PERSEUS].iterations == 3


def test_what_the_host_does_between_two_iterations_is_booked_apart(
    account: EnergyAccount, watched: Watched
) -> None:
    watched.until_s = 100.0
    account.add(Mode.PERSEUS, iteration(0, 0.0, 2.0))
    account.add(Mode.PERSEUS, iteration(1, 7.0, 9.0, outside_s=5.0))
    account.add(Mode.NEITHER, iteration(2, 9.0, 11.0))
    account.add(Mode.NEITHER, iteration(3, 11.0, 13.0))
    perseus = account.totals_of(0)[Mode.PERSEUS]
    assert [(one.time_s, one.energy_j) for one in perseus.samples] == [(2.0, pytest.approx(2.0 * WATTS))] * 2
    assert (account.outside.time_s, account.outside.energy_j) == (5.0, pytest.approx(5.0 * WATTS))


def test_what_we_do_ourselves_counts_on_our_side(account: EnergyAccount, watched: Watched) -> None:
    watched.until_s = 100.0
    account.add(Mode.PERSEUS, Iteration(0, 1.0, 3.0, (), own_s=0.5, outside_s=0.5))
    account.add(Mode.NEITHER, iteration(1, 3.0, 4.0))
    account.add(Mode.NEITHER, iteration(2, 4.0, 5.0))
    (sample,) = account.totals_of(0)[Mode.PERSEUS].samples
    assert (sample.time_s, sample.energy_j) == (2.5, pytest.approx(2.5 * WATTS))


def test_without_a_counter_nothing_is_booked(account: EnergyAccount, watched: Watched) -> None:
    watched.watching = False
    enter(account, watched, "PPPP")
    assert account.totals_of(0)[Mode.PERSEUS].iterations == 0


@pytest.mark.parametrize(("modes", "until_s"), [("PPP", 12.0), ("PNN", 4.0), ("BBB", 12.0), ("NNN", 0.0)])
def test_long_iterations_are_forgotten_once_they_are_booked(
    account: EnergyAccount, watched: Watched, modes: str, until_s: float
) -> None:
    """None of them waits for another: nothing is open, and a job of hours kept all that it had read."""
    enter(account, watched, modes, length_s=4.0)
    watched.until_s = 12.1
    account.add(Mode.NEITHER, iteration(3, 12.1, 16.1))
    assert watched.forgotten_s == pytest.approx(until_s)


def test_the_trace_of_iterations_that_count_for_neither_is_kept(
    account: EnergyAccount, watched: Watched
) -> None:
    """They may be a profile's window, which reads the trace when it is full."""
    enter(account, watched, "N" * 30)
    assert watched.forgotten_s == 0.0
    enter(account, watched, "P" * 30, first=30)
    assert watched.forgotten_s >= 50.0


def test_a_thousand_samples_travel_as_numbers() -> None:
    total = Total(iterations=1203)
    total.samples.extend(Sample(3 * first, 3, 1.0 / (first + 1), 250.5) for first in range(1000))
    packed = pickle.dumps(total)
    assert len(packed) < 1000 * 41 + 1000
    assert Sample.__name__.encode() not in packed
    found = pickle.loads(packed)
    assert (found.iterations, found.samples, found.samples.maxlen) == (1203, total.samples, 1000)
    assert pickle.loads(pickle.dumps(Total())) == Total()
