"""Which clock is asked for at which instruction: raised early, lowered late, round the corner to the next."""

from typing import cast

import pytest

from perseus_ds.runtime.control.clock_requests import ClockRequests, Request
from perseus_ds.runtime.control.clock_sequencer import ClockSchedule, ClockSequencer, ClockStep, FixedClock
from perseus_ds.schedule import Kind

LEAD_S = 0.02


class Kept:
    """Requests as they are put."""

    def __init__(self) -> None:
        self.all: list[Request] = []

    def put(self, request: Request) -> None:
        self.all.append(request)

    @property
    def said(self) -> list[str]:
        """Each as ``clock`` or ``clock+delay``, and what was said before is forgotten."""
        words = [f"{r.clock_mhz}+{r.delay_s:g}" if r.delay_s else str(r.clock_mhz) for r in self.all]
        self.all.clear()
        return words


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def sequencer(kept: Kept) -> ClockSequencer:
    return ClockSequencer(cast("ClockRequests", kept), lambda: 0.0, event=lambda: None)


def planned(*clocks_mhz: int, duration_s: float = 1.0) -> ClockSchedule:
    return ClockSchedule(tuple(ClockStep(clock, duration_s) for clock in clocks_mhz), LEAD_S)


def iteration(sequencer: ClockSequencer, kept: Kept, computations: int) -> list[list[str]]:
    """Run one iteration; what was asked for before and after each computation."""
    said = []
    for _ in range(computations):
        sequencer.before(Kind.FORWARD)
        before = kept.said
        sequencer.after(Kind.FORWARD)
        said.append([*before, "|", *kept.said])
    return said


def test_a_lower_clock_is_asked_for_when_the_computation_is_over(
    sequencer: ClockSequencer, kept: Kept
) -> None:
    sequencer.begin(planned(1000, 900, 800))
    assert kept.said == ["1000"]
    assert iteration(sequencer, kept, 3) == [["|", "900"], ["|", "800"], ["1000+0.98", "|"]]


def test_a_higher_clock_is_asked_for_so_that_it_is_there_in_time(
    sequencer: ClockSequencer, kept: Kept
) -> None:
    sequencer.begin(planned(800, 900, 1000))
    assert kept.said == ["800"]
    assert iteration(sequencer, kept, 3) == [["900+0.98", "|"], ["1000+0.98", "|"], ["|", "800"]]


def test_a_computation_shorter_than_the_lead_raises_at_once(sequencer: ClockSequencer, kept: Kept) -> None:
    sequencer.begin(planned(800, 900, duration_s=LEAD_S / 2))
    kept.said.clear()
    assert iteration(sequencer, kept, 1) == [["900+1e-06", "|"]]


def test_the_next_iteration_finds_its_first_clock_asked_for(sequencer: ClockSequencer, kept: Kept) -> None:
    clock_policy = planned(1000, 800)
    sequencer.begin(clock_policy)
    assert kept.said == ["1000"]
    iteration(sequencer, kept, 2)
    sequencer.begin(clock_policy)
    assert kept.said == []
    assert iteration(sequencer, kept, 2) == [["|", "800"], ["1000+0.98", "|"]]


def test_one_clock_all_over_is_asked_for_once(sequencer: ClockSequencer, kept: Kept) -> None:
    for _ in range(3):
        sequencer.begin(planned(900, 900, 900))
        iteration(sequencer, kept, 3)
    sequencer.begin(FixedClock(900))
    assert kept.said == []


def test_only_computations_count(sequencer: ClockSequencer, kept: Kept) -> None:
    sequencer.begin(planned(1000, 800))
    assert kept.said == ["1000"]
    for kind in Kind:
        if not kind.is_computation:
            sequencer.before(kind)
            sequencer.after(kind)
    assert kept.said == []
    assert sequencer.position == 0


def test_a_broken_off_iteration_starts_again_at_its_first_step(sequencer: ClockSequencer, kept: Kept) -> None:
    clock_policy = planned(1000, 900, 800)
    sequencer.begin(clock_policy)
    iteration(sequencer, kept, 2)
    sequencer.begin(FixedClock(None))
    assert kept.said == ["None"]
    sequencer.begin(clock_policy)
    assert kept.said == ["1000"]
    assert iteration(sequencer, kept, 1) == [["|", "900"]]


def test_steady_asks_once_and_default_is_nothing_new(sequencer: ClockSequencer, kept: Kept) -> None:
    sequencer.begin(FixedClock(None))
    assert kept.said == []
    sequencer.begin(FixedClock(700))
    sequencer.begin(FixedClock(700))
    assert kept.said == ["700"]
    assert iteration(sequencer, kept, 2) == [["|"], ["|"]]
