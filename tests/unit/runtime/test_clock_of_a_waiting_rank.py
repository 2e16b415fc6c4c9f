"""A rank that waits for its first computation: what it asks for meanwhile is in force in time, every time."""

import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.plan.clock_requests import OPENING, Part, Played, requests_of
from perseus_ds.runtime.clock_sequencer import ClockSchedule, ClockSequencer
from perseus_ds.runtime.clock_thread import Ask, ClockThread
from perseus_ds.schedule import Instruction, Kind

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
