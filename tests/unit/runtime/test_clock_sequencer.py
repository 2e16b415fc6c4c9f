"""Clock requests by instruction: ahead by the latency, also across the end of an iteration."""

from typing import cast

import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.plan.clock_requests import OPENING, Part, Played, requests_of
from perseus_ds.runtime.clocks import Ask, ClockSchedule, ClockSequencer, ClockThread, fixed_clock
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


# A rank that waits for its first computation: what it asks for meanwhile is in force in time, every time.

LATENCY_S, WAIT_S, WORK_S, ITERATION_S = 0.3, 1.0, 0.5, 2.5
"""The change inside the first computation is asked for before it begins."""


def own(*clocks_mhz: tuple[int, ...]) -> list[Played]:
    """Computations one behind the other after a wait; several clocks share theirs equally."""
    return [
        Played(
            Instruction(0, Kind.FORWARD, place),
            WAIT_S + place * WORK_S,
            WORK_S,
            1.0,
            tuple(Part(mhz, WORK_S / len(clocks), 1.0) for mhz in clocks),
        )
        for place, clocks in enumerate(clocks_mhz)
    ]


@pytest.mark.parametrize("rest_s", [None, 0.2, 30.0], ids=["no rest", "at rest in the wait", "long rest"])
def test_the_first_computation_runs_at_its_clocks_in_every_iteration(rest_s: float | None) -> None:
    """A change inside the first computation was cancelled when its iteration began: all of it ran slowly."""
    clock = VirtualTime()
    gpu = SimulatedGpu(SimulatedSettings(switch_latency_s=LATENCY_S), time=clock)
    played = own((1200, 1410), (1410, 1200))
    requests = requests_of(played, ITERATION_S, ClockChange.of_latency(LATENCY_S))
    policy = ClockSchedule.of(requests, (requests[-1].clock_mhz, None), len(played))
    sequencer = ClockSequencer(ClockThread(gpu, clock), gpu.now_s, moment=lambda: None)
    for iteration in range(3):
        begin_s = iteration * ITERATION_S
        clock.pass_to(begin_s)
        sequencer.begin(policy)
        for one in played:
            clock.pass_to(begin_s + one.start_s)
            sequencer.before(Kind.FORWARD)
            for place, part in enumerate(one.parts):
                clock.pass_to(begin_s + one.start_s + (place + 0.5) * part.duration_s)
                if iteration:
                    assert gpu.achieved().clock_mhz == part.clock_mhz
            clock.pass_to(begin_s + one.end_s)
            sequencer.after(Kind.FORWARD)
        if rest_s is not None:
            sequencer.request((Ask(None, rest_s),))


def test_what_can_wait_for_the_iteration_to_begin_does() -> None:
    requests = requests_of(own((1200, 1410), (1410, 1200)), ITERATION_S, ClockChange.of_latency(WAIT_S / 2))
    (asked,) = [one for one in requests if one.position == OPENING]
    assert (asked.clock_mhz, asked.offset_s) == (1410, pytest.approx(WAIT_S / 2 + WORK_S / 2))


# Core and memory clock of one device: what is new is asked for, and both are given back.

SETTLE_S = 0.01


def opened(gpu: str) -> tuple[SimulatedGpu, VirtualTime, ClockThread]:
    clock = VirtualTime()
    device = SimulatedGpu(SimulatedSettings(gpu=gpu, switch_latency_s=SETTLE_S), time=clock)
    return device, clock, ClockThread(device, clock)


def in_force(gpu: SimulatedGpu, clock: VirtualTime) -> tuple[int, int]:
    clock.pass_s(3 * SETTLE_S)
    return gpu.achieved().clock_mhz, gpu.true_now().memory_mhz


def test_both_clocks_are_set_and_given_back() -> None:
    gpu, clock, requests = opened("rtx-3080-ti")
    default = in_force(gpu, clock)
    sequencer = ClockSequencer(requests, gpu.now_s, moment=lambda: None)
    sequencer.request((Ask(1200, memory_mhz=5001),))
    assert in_force(gpu, clock) == (1200, 5001)
    sequencer.request((Ask(1200, 0.5),))
    assert in_force(gpu, clock) == (1200, 5001)
    clock.pass_s(0.5)
    assert in_force(gpu, clock) == (1200, default[1]), "the memory's own clock, after the delay"
    sequencer.request((Ask(1200, memory_mhz=810),))
    assert requests.counts.changes == 3
    requests.close()
    assert in_force(gpu, clock) == default


def test_a_memory_clock_that_cannot_be_set_is_kept_as_the_error() -> None:
    gpu, clock, requests = opened("a100-sxm4-80gb")
    requests.put((Ask(1200, memory_mhz=810),), clock.now_s())
    clock.pass_s(1.0)
    assert isinstance(requests.error, DeviceUnsupportedError)
    assert "memory clock" in str(requests.error)
    assert gpu.achieved().clock_mhz == 1200
