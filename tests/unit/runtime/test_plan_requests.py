"""Timelines that a job is given: those that its GPU cannot run are left out, counted, with a reason."""

import pytest

from perseus_ds.device.clock_change import ClockPair
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.plan.record import ClockSegments, InstructionTimelines, TimelineStep
from perseus_ds.runtime.plans import playable
from perseus_ds.schedule import Kind


def line(*pairs: ClockPair) -> ClockSegments:
    steps = tuple(TimelineStep(place, 0.1 * place, pair) for place, pair in enumerate(pairs))
    return ClockSegments(1.0, 100.0, steps)


WHOLE, LOW, SLOW_MEMORY = (
    line(ClockPair()),
    line(ClockPair(), ClockPair(None, 900)),
    line(ClockPair(5001, 900)),
)


def sorted_out(
    *lines: ClockSegments, gpu: str = "rtx-3080-ti", memory: bool = True, stage: int = 0
) -> tuple[list[InstructionTimelines], list[str]]:
    able = SimulatedGpu(SimulatedSettings(gpu=gpu), time=VirtualTime()).capabilities()
    given = [InstructionTimelines(stage, Kind.FORWARD, lines)]
    return playable(given, able, memory=memory, stages=2)


def test_what_the_gpu_can_run_is_kept_as_it_is() -> None:
    whole = [InstructionTimelines(0, Kind.FORWARD, (WHOLE, LOW, SLOW_MEMORY))]
    assert sorted_out(WHOLE, LOW, SLOW_MEMORY) == (whole, [])


@pytest.mark.parametrize(
    ("gpu", "memory", "reason"),
    [
        ("a100-sxm4-80gb", True, "1593 MHz"),
        ("rtx-3080-ti", False, "simulated"),
    ],
)
def test_memory_clocks_that_are_not_set_are_left_out(gpu: str, *, memory: bool, reason: str) -> None:
    kept, (left_out,) = sorted_out(WHOLE, LOW, SLOW_MEMORY, gpu=gpu, memory=memory)
    assert [one.timelines for one in kept] == [(WHOLE, LOW)]
    assert reason in left_out


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (ClockPair(None, 901), "901 MHz"),
        (ClockPair(5002, 900), "5002 MHz"),
    ],
)
def test_clocks_that_the_gpu_has_not_are_named(pair: ClockPair, reason: str) -> None:
    kept, (left_out,) = sorted_out(line(ClockPair(), pair))
    assert kept == []
    assert reason in left_out


def test_a_stage_that_is_not_there_is_left_out() -> None:
    kept, (left_out,) = sorted_out(WHOLE, stage=2)
    assert kept == []
    assert "stage 2" in left_out
