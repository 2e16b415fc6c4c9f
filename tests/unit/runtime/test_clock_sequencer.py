"""Clock requests by instruction: ahead by the latency, also across the end of an iteration."""

from typing import cast

import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan.clock_requests import Part, Played, requests_of
from perseus_ds.runtime.clock_sequencer import ClockSchedule, ClockSequencer, fixed_clock
from perseus_ds.runtime.clock_thread import Ask, ClockThread
from perseus_ds.schedule import Instruction, Kind

LEAD_S = 0.02


class Kept:
    def __init__(self) -> None:
        self.all: list[Ask] = []

    def put(self, asks: tuple[Ask, ...], issued_s: float, moment: object) -> None:
        assert (issued_s, moment) == (0.0, None)
        self.all += asks

    @property
    def said(self) -> list[str]:
        """Return the requests as ``clock`` or ``clock+delay``, and forget them."""
        words = [
            f"{one.clock_mhz}+{one.delay_s:g}" if one.delay_s else str(one.clock_mhz) for one in self.all
        ]
        self.all.clear()
        return words


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def sequencer(kept: Kept) -> ClockSequencer:
    return ClockSequencer(cast("ClockThread", kept), lambda: 0.0, moment=lambda: None)


def planned(*clocks_mhz: int | tuple[int, ...], duration_s: float = 1.0) -> ClockSchedule:
    """Computations follow without a wait; several clocks share their computation equally."""
    own = []
    for position, given in enumerate(clocks_mhz):
        clocks = given if isinstance(given, tuple) else (given,)
        parts = tuple(Part(clock, duration_s / len(clocks), 1.0) for clock in clocks)
        instruction = Instruction(0, Kind.FORWARD, position)
        own.append(Played(instruction, position * duration_s, duration_s, 1.0, parts))
    change = ClockChange.of_latency(LEAD_S)
    requests = requests_of(own, len(own) * duration_s, change)
    return ClockSchedule.of(requests, own[0].parts[0].clocks, len(own))


def iteration(sequencer: ClockSequencer, kept: Kept, computations: int) -> list[list[str]]:
    said = []
    for _ in range(computations):
        sequencer.before(Kind.FORWARD)
        before = kept.said
        sequencer.after(Kind.FORWARD)
        said.append([*before, "|", *kept.said])
    return said


def test_a_higher_clock_is_asked_for_ahead_and_a_lower_one_never(
    sequencer: ClockSequencer, kept: Kept
) -> None:
    sequencer.begin(planned(1000, 900, 950))
    assert kept.said == ["1000"]
    assert iteration(sequencer, kept, 3) == [["|"], ["900", "950+0.98", "|"], ["1000+0.98", "|"]]


def test_a_split_computation_changes_its_clock_while_it_runs(sequencer: ClockSequencer, kept: Kept) -> None:
    sequencer.begin(planned(800, (900, 1000)))
    assert kept.said == ["800"]
    assert iteration(sequencer, kept, 2) == [["900+0.98", "|"], ["1000+0.48", "|", "800"]]


def test_what_is_longer_ahead_than_its_computation_is_asked_for_in_an_earlier_one(
    sequencer: ClockSequencer, kept: Kept
) -> None:
    sequencer.begin(planned(800, 800, 900, duration_s=LEAD_S / 1.25))
    assert kept.said == ["800"]
    first, second, third = iteration(sequencer, kept, 3)
    assert first == ["900+0.012", "|"]
    assert second == ["|"]
    assert third == ["800", "|"], "down, not before it has begun"


def test_the_next_iteration_finds_its_first_clock_asked_for(sequencer: ClockSequencer, kept: Kept) -> None:
    clock_policy = planned(1000, 800)
    sequencer.begin(clock_policy)
    assert kept.said == ["1000"]
    iteration(sequencer, kept, 2)
    sequencer.begin(clock_policy)
    assert kept.said == []
    assert iteration(sequencer, kept, 2) == [["|"], ["800", "1000+0.98", "|"]]


def test_one_clock_all_over_is_asked_for_once(sequencer: ClockSequencer, kept: Kept) -> None:
    sequencer.begin(fixed_clock(None))
    assert kept.said == [], "the default is nothing new"
    for _ in range(3):
        sequencer.begin(planned(900, 900, 900))
        iteration(sequencer, kept, 3)
    sequencer.begin(fixed_clock(900))
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
    sequencer.begin(fixed_clock(None))
    assert kept.said == ["None"]
    sequencer.begin(clock_policy)
    assert kept.said == ["1000"]
    assert iteration(sequencer, kept, 2)[1][0] == "900"
