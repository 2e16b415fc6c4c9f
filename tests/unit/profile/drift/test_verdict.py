"""What has moved, and why: from what ranks report to one sentence."""

from dataclasses import replace

import pytest

from perseus_ds.device import EventReason
from perseus_ds.profile.drift.verdict import PER_K, GpuConditions, LevelSeries, RankLevels, judge

QUIET = LevelSeries((0.001, -0.002) * 20)


def moved(by: float, *, proved: bool = True, lasted: int = 14) -> LevelSeries:
    return LevelSeries((0.0,) * 20 + (by,) * lasted, lasted=lasted if proved else 0)


def rank(
    pipeline_rank: int, time: LevelSeries = QUIET, energy: LevelSeries = QUIET, *, replica: int = 0
) -> RankLevels:
    return RankLevels(pipeline_rank, replica, time, energy)


def test_one_stage_is_named_with_what_moved() -> None:
    found = judge([rank(0), rank(1, moved(0.03), moved(0.031)), rank(2)])
    assert list(found.moved) == [1]
    assert found.line == (
        "the profile is not true any more: stage 1: +3.0 % time and +3.1 % energy at equal load "
        "(work lasts longer at the same power: no reason is shown)"
    )


def test_all_stages_are_one_finding() -> None:
    found = judge([rank(0, moved(0.03)), rank(1, moved(0.034, proved=False))])
    assert found.everywhere
    assert "all stages: +3.2 % time at equal load" in found.line


def test_all_stages_by_different_amounts_are_not_everywhere() -> None:
    found = judge([rank(0, moved(0.03)), rank(1, moved(0.09))])
    assert sorted(found.moved) == [0, 1]
    assert not found.everywhere


def test_a_rank_within_its_noise_has_not_moved_with_the_others() -> None:
    found = judge([rank(0, moved(0.03)), rank(1, moved(0.015, proved=False, lasted=4))])
    assert list(found.moved) == [0]


def test_energy_alone_is_more_power() -> None:
    found = judge([rank(0, energy=moved(0.04)), rank(1)])
    assert (found.moved[0].time, found.cause) == (0.0, "more power")


def test_one_slow_replica_is_left_to_the_stragglers() -> None:
    found = judge([rank(0, moved(0.03)), rank(0, replica=1)])
    assert not found.moved
    assert found.slow_replicas


def test_a_stage_that_moved_in_every_replica_is_drift() -> None:
    found = judge([rank(0, moved(0.03)), rank(0, moved(0.04), replica=1), rank(1), rank(1, replica=1)])
    assert list(found.moved) == [0]
    assert found.moved[0].time == pytest.approx(0.035)


def test_nothing_moved_is_nothing() -> None:
    assert judge([rank(0), rank(1)]) == judge([])


def test_replicas_that_moved_apart_have_nothing_in_common() -> None:
    assert not judge([rank(0, moved(0.03)), rank(0, moved(-0.03), replica=1)]).moved


COLD = GpuConditions(power_limit_w=400.0, temperature_c=50.0)


@pytest.mark.parametrize(
    ("now", "cause"),
    [
        (replace(COLD, capped=1.0, reasons=EventReason.SW_POWER_CAP), "the power cap holds the clock down"),
        (replace(COLD, capped=0.9, reasons=EventReason.SW_THERMAL), "heat holds the clock down"),
        (replace(COLD, capped=0.9, reasons=EventReason.HW_SLOWDOWN), "the hardware slows the GPU down"),
        (replace(COLD, capped=0.9), "clocks are not reached, and no reason is given: somebody else's lock?"),
        (replace(COLD, power_limit_w=350.0), "the power limit is 350 W, it was 400 W"),
        (replace(COLD, temperature_c=65.0), "15 K warmer"),
        (replace(COLD, temperature_c=42.0), "8 K cooler"),
        (replace(COLD, conflicts=("another job locks clocks",)), "another job locks clocks"),
        (replace(COLD, temperature_c=51.0), "work lasts longer, at another power: no reason is shown"),
    ],
)
def test_the_cause_is_what_the_backends_show(now: GpuConditions, cause: str) -> None:
    assert judge([replace(rank(0, moved(0.03)), then=COLD, now=now)]).cause == cause


def test_what_was_capped_before_is_no_cause() -> None:
    held = replace(COLD, capped=0.9, reasons=EventReason.SW_POWER_CAP)
    assert "cap" not in judge([replace(rank(0, moved(0.03)), then=held, now=held)]).cause


def in_samples(by: float, *, moved: int) -> LevelSeries:
    """Numbers of three iterations each, the last of which are of what moved."""
    return LevelSeries((0.001, -0.001) * 20 + (by,) * moved, per=3.0)


def test_energy_that_is_known_of_three_iterations_at_once_is_looked_at_over_the_same_iterations() -> None:
    found = judge([rank(0, moved(0.03, lasted=16), in_samples(0.031, moved=5))])
    assert "+3.0 % time and +3.1 % energy" in found.line
    assert found.cause == "work lasts longer at the same power: no reason is shown"


def test_nothing_is_said_of_the_power_while_too_little_of_it_is_known() -> None:
    late = replace(in_samples(0.0, moved=0), noise=0.04)
    found = judge([rank(0, moved(0.03, lasted=12), late)])
    assert found.cause == "work lasts longer: no reason is shown"
    few = judge([rank(0, moved(0.03, lasted=8), in_samples(0.0, moved=2))])
    assert few.cause == "work lasts longer: no reason is shown"


def test_a_warmer_room_is_found_by_the_temperature_alone() -> None:
    warm = RankLevels(0, 0, QUIET, QUIET, moved(11 * PER_K), COLD, replace(COLD, temperature_c=64.0))
    found = judge([warm, rank(1)])
    assert list(found.moved) == [0]
    assert found.line == ("the profile is not true any more: stage 0: +11 K at equal load (14 K warmer)")
    assert not judge([replace(warm, warmth=moved(2 * PER_K, proved=False))]).moved, "less than 3 K"
