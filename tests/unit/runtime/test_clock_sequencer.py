"""Clock requests by instruction: ahead by the latency, also across the end of an iteration."""

import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import DeviceUnsupportedError
from perseus_ds.plan.clock_requests import OPENING, Part, Played, requests_of
from perseus_ds.runtime.clocks import Ask, ClockSchedule, ClockSequencer, ClockThread, fixed_clock
from perseus_ds.schedule import Instruction, Kind

LEAD_S = 0.02


class Asking:
    """A sequencer, whose requests come back as words: ``clock`` or ``clock+delay``."""

    def __init__(self) -> None:
        self.sequencer = ClockSequencer(self, lambda: 0.0, moment=lambda: None)
        self._words: list[str] = []

    def put(self, asks: tuple[Ask, ...], issued_s: float, moment: object) -> None:
        assert (issued_s, moment) == (0.0, None)
        self._words += [f"{a.clock_mhz}+{a.delay_s:g}" if a.delay_s else str(a.clock_mhz) for a in asks]

    def said(self) -> list[str]:
        words, self._words = self._words, []
        return words

    def begin(self, schedule: ClockSchedule) -> list[str]:
        self.sequencer.begin(schedule)
        return self.said()

    def run(self, computations: int) -> list[list[str]]:
        """Return what is said at the beginning of each and, after a line, at its end."""
        rows = []
        for _ in range(computations):
            self.sequencer.before(Kind.FORWARD)
            rows.append([*self.said(), "|"])
            self.sequencer.after(Kind.FORWARD)
            rows[-1] += self.said()
        return rows


@pytest.fixture
def asking() -> Asking:
    return Asking()


def planned(*clocks_mhz: int | tuple[int, ...], duration_s: float = 1.0) -> ClockSchedule:
    """Computations follow without a wait; several clocks share their computation equally."""
    computed = played(0.0, duration_s, *((mhz,) if isinstance(mhz, int) else mhz for mhz in clocks_mhz))
    requests = requests_of(computed, len(computed) * duration_s, ClockChange(0.0, LEAD_S, LEAD_S))
    return ClockSchedule.of(requests, computed[0].parts[0].clocks, len(computed))


def played(wait_s: float, duration_s: float, *clocks_mhz: tuple[int, ...]) -> list[Played]:
    """Computations one behind the other after a wait; several clocks share theirs equally."""
    return [
        Played(
            Instruction(0, Kind.FORWARD, place),
            wait_s + place * duration_s,
            duration_s,
            1.0,
            tuple(Part(mhz, duration_s / len(clocks), 1.0) for mhz in clocks),
        )
        for place, clocks in enumerate(clocks_mhz)
    ]


def test_a_higher_clock_is_asked_for_ahead_and_a_lower_one_never(asking: Asking) -> None:
    assert asking.begin(planned(1000, 900, 950)) == ["1000"]
    assert asking.run(3) == [["|"], ["900", "950+0.98", "|"], ["1000+0.98", "|"]]


def test_a_split_computation_changes_its_clock_while_it_runs(asking: Asking) -> None:
    assert asking.begin(planned(800, (900, 1000))) == ["800"]
    assert asking.run(2) == [["900+0.98", "|"], ["1000+0.48", "|", "800"]]


def test_what_is_longer_ahead_than_its_computation_is_asked_for_in_an_earlier_one(asking: Asking) -> None:
    """A lower one is not asked for before its computation has begun."""
    assert asking.begin(planned(800, 800, 900, duration_s=LEAD_S / 1.25)) == ["800"]
    assert asking.run(3) == [["900+0.012", "|"], ["|"], ["800", "|"]]


def test_the_next_iteration_finds_its_first_clock_asked_for(asking: Asking) -> None:
    clock_policy = planned(1000, 800)
    assert asking.begin(clock_policy) == ["1000"]
    asking.run(2)
    assert asking.begin(clock_policy) == []
    assert asking.run(2) == [["|"], ["800", "1000+0.98", "|"]]


def test_one_clock_all_over_is_asked_for_once(asking: Asking) -> None:
    assert asking.begin(fixed_clock(None)) == [], "the default is nothing new"
    for _ in range(3):
        asking.begin(planned(900, 900, 900))
        asking.run(3)
    assert asking.begin(fixed_clock(900)) == []


def test_only_computations_count(asking: Asking) -> None:
    assert asking.begin(planned(1000, 800)) == ["1000"]
    for kind in Kind:
        if not kind.is_computation:
            asking.sequencer.before(kind)
            asking.sequencer.after(kind)
    assert asking.said() == []
    assert asking.sequencer.position == 0


def test_a_broken_off_iteration_starts_again_at_its_first_step(asking: Asking) -> None:
    clock_policy = planned(1000, 900, 800)
    asking.begin(clock_policy)
    asking.run(2)
    assert asking.begin(fixed_clock(None)) == ["None"]
    assert asking.begin(clock_policy) == ["1000"]
    assert asking.run(2)[1][0] == "900"


# A rank that waits for its first computation: what it asks for meanwhile is in force in time, every time.

LATENCY_S, WAIT_S, WORK_S, ITERATION_S = 0.3, 1.0, 0.5, 2.5
"""The change inside the first computation is asked for before it begins."""


@pytest.mark.parametrize("rest_s", [None, 0.2, 30.0], ids=["no rest", "at rest in the wait", "long rest"])
def test_the_first_computation_runs_at_its_clocks_in_every_iteration(rest_s: float | None) -> None:
    """A change inside the first computation was cancelled when its iteration began: all of it ran slowly."""
    clock = VirtualTime()
    gpu = SimulatedGpu(SimulatedSettings(switch_latency_s=LATENCY_S), time=clock)
    computed = played(WAIT_S, WORK_S, (1200, 1410), (1410, 1200))
    requests = requests_of(computed, ITERATION_S, ClockChange(0.0, LATENCY_S, LATENCY_S))
    policy = ClockSchedule.of(requests, (requests[-1].clock_mhz, None), len(computed))
    sequencer = ClockSequencer(ClockThread(gpu, clock), gpu.now_s, moment=lambda: None)
    for iteration in range(3):
        begin_s = iteration * ITERATION_S
        clock.pass_to(begin_s)
        sequencer.begin(policy)
        for one in computed:
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
    computed = played(WAIT_S, WORK_S, (1200, 1410), (1410, 1200))
    requests = requests_of(computed, ITERATION_S, ClockChange(0.0, WAIT_S / 2, WAIT_S / 2))
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
