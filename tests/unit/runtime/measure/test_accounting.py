"""Whole iterations are booked when the energy counter has passed them, to the side that they belong to."""

from typing import cast

import pytest

from perseus_ds.profile import CounterTrace
from perseus_ds.runtime.measure.accounting import EnergyAccount, Mode, Total
from perseus_ds.runtime.measure.energy_watch import EnergyWatch

WATTS = 100.0


class Watched:
    """A counter that has moved every ``period_s`` up to ``until_s``, at constant power."""

    def __init__(self, *, since_s: float = 0.0, period_s: float = 0.1) -> None:
        self.watching = True
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


def enter(
    account: EnergyAccount, watched: Watched, modes: str, *, length_s: float = 1.0, first: int = 0
) -> None:
    """One iteration after another, B baseline, P perseus, N neither; the counter runs along."""
    letters = {"B": Mode.BASELINE, "P": Mode.PERSEUS, "N": Mode.NEITHER}
    for index, letter in enumerate(modes, start=first):
        watched.until_s = (index + 1) * length_s
        account.add(letters[letter], index * length_s, (index + 1) * length_s)


def test_each_side_gets_its_own_iterations(account: EnergyAccount, watched: Watched) -> None:
    enter(account, watched, "PPPNBBNP")
    baseline, perseus = account.totals[Mode.BASELINE], account.totals[Mode.PERSEUS]
    assert (baseline.iterations, perseus.iterations) == (2, 3)
    assert baseline.time_s == pytest.approx(2.0)
    assert baseline.energy_j == pytest.approx(2.0 * WATTS)
    assert perseus.energy_j == pytest.approx(3.0 * WATTS)


def test_nothing_is_booked_before_the_counter_has_passed_it(account: EnergyAccount, watched: Watched) -> None:
    account.add(Mode.PERSEUS, 0.0, 1.0)
    watched.until_s = 0.9
    account.add(Mode.PERSEUS, 1.0, 2.0)
    assert account.totals[Mode.PERSEUS].iterations == 0
    watched.until_s = 2.1
    account.add(Mode.NEITHER, 2.0, 3.0)
    assert account.totals[Mode.PERSEUS].iterations == 2
    assert account.totals[Mode.PERSEUS].energy_j == pytest.approx(2.0 * WATTS)


def test_iterations_shorter_than_the_counters_period_are_booked_together(
    account: EnergyAccount, watched: Watched
) -> None:
    enter(account, watched, "P" * 50, length_s=0.03)
    perseus = account.totals[Mode.PERSEUS]
    assert perseus.iterations >= 45
    assert perseus.energy_j == pytest.approx(perseus.time_s * WATTS)
    assert perseus.iteration_time_s == pytest.approx(0.03)


def test_a_beginning_that_the_counter_missed_holds_up_nothing() -> None:
    """The watch starts within the first iteration: that one is lost, the others are not."""
    watched = Watched(since_s=0.5)
    account = EnergyAccount(cast("EnergyWatch", watched))
    enter(account, watched, "BNPPPN")
    assert account.totals[Mode.BASELINE].iterations == 0
    assert account.totals[Mode.PERSEUS].iterations == 3


def test_a_gap_parts_blocks_of_one_mode(account: EnergyAccount, watched: Watched) -> None:
    enter(account, watched, "PP")
    enter(account, watched, "PPN", first=5)
    perseus = account.totals[Mode.PERSEUS]
    assert perseus.iterations == 4
    assert perseus.time_s == pytest.approx(4.0)
    assert perseus.energy_j == pytest.approx(4.0 * WATTS)


def test_without_a_counter_nothing_is_booked(account: EnergyAccount, watched: Watched) -> None:
    watched.watching = False
    enter(account, watched, "PPPP")
    assert account.totals[Mode.PERSEUS].iterations == 0


def test_a_hiccup_of_the_host_does_not_move_the_iteration_time() -> None:
    total = Total()
    total.recent_s.extend([1.0] * 9 + [30.0])
    assert total.iteration_time_s == 1.0
    total.recent_s.clear()
    total.recent_s.append(2.0)
    assert total.iteration_time_s == 2.0
