"""A GPU's own lateness, read off an energy counter that the books have read before and let go of."""

import pytest
from runtime_fakes import NotingGpu

from perseus_ds.profile import Interval
from perseus_ds.runtime.measure.accounting import EnergyAccount, Mode
from perseus_ds.runtime.measure.energy.energy_watch import EnergyWatch, Look
from perseus_ds.runtime.measure.own_lateness import BEHIND, OwnLateness
from perseus_ds.runtime.measure.recorder import Iteration
from perseus_ds.schedule import Instruction, Kind

PERIOD_S, USUAL_S, WATTS = 0.1, 4.0, 300.0
USUAL, SLOW = 8, 4
"""Iterations of a job as planned, and of one whose GPU takes a twentieth longer."""


class Rank:
    """A GPU that draws one power, and what reads its counter, in the order of a job."""

    def __init__(self) -> None:
        self._gpu = NotingGpu(counter_period_s=PERIOD_S)
        self._look: Look = lambda: None
        watch = EnergyWatch(self._gpu, repeat=self._repeat)
        watch.start()
        self._account = EnergyAccount(watch)
        self._lateness = OwnLateness(watch.trace, lambda _: False)
        watch.keep_for(lambda: self._lateness.unread_s)
        self._lateness.expect(80.0)
        self._ended_s = 0.0
        self._ran = 0

    def _repeat(self, every_s: float, look: Look) -> Look:
        self._look = look
        return lambda: None

    def run(self, *lasts_s: float) -> list[float | None]:
        """Iterations that the host sees pass all at once; how late this rank was in those known by then."""
        passed = []
        for length_s in lasts_s:
            start_s, self._ended_s = self._ended_s, self._ended_s + length_s
            computing = Interval(Instruction(0, Kind.FORWARD, 0), start_s, self._ended_s)
            passed.append(Iteration(self._ran, start_s, self._ended_s, (computing,)))
            self._lateness.will_run(self._ran, "one plan")
            self._ran += 1
        while self._gpu.time_s < self._ended_s:
            self._gpu.time_s += PERIOD_S / 4.0
            self._gpu.counter_j = WATTS * PERIOD_S * (self._gpu.time_s // PERIOD_S)
            self._look()
        for iteration in passed:
            self._account.add(Mode.PERSEUS, iteration)
        self._lateness.note(passed)
        return [self._lateness.of(iteration.index - BEHIND) for iteration in passed]


@pytest.mark.parametrize("at_once", [1, 2, 4])
def test_it_is_known_of_every_iteration(at_once: int) -> None:
    lasts_s = [USUAL_S] * USUAL + [1.05 * USUAL_S] * (SLOW + at_once)
    rank, late = Rank(), []
    for first in range(0, len(lasts_s), at_once):
        late += rank.run(*lasts_s[first : first + at_once])
    known = late[USUAL + BEHIND : USUAL + BEHIND + SLOW]
    assert known == [pytest.approx(0.05, abs=0.005)] * SLOW
