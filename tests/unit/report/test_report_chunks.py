"""A V schedule with split backwards in the pictures: a lane per rank, a stripe per chunk, every kind."""

import pytest

from perseus_ds.plan import FrequencyPlan, build
from perseus_ds.plan.clock_requests import play, play_baseline
from perseus_ds.profile import Point, Profile
from perseus_ds.report.page import clocks_mhz
from perseus_ds.report.timeline import energy_j, rank_rows
from perseus_ds.run_directory.records import RecordedIteration, Span
from perseus_ds.schedule import Kind, textbook

pytestmark = pytest.mark.thorough

KINDS = {Kind.FORWARD: 0.05, Kind.BACKWARD_INPUT: 0.055, Kind.BACKWARD_WEIGHT: 0.045}


def points(time_s: float) -> tuple[Point, ...]:
    return tuple(
        Point(mhz, time_s * (0.2 + 0.8 * 1410 / mhz), time_s * (90 + 260 * (mhz / 1410) ** 3))
        for mhz in (1410, 1290, 1170, 1050, 930)
    )


@pytest.fixture(scope="module")
def plan() -> FrequencyPlan:
    profile = Profile({(s, k): points(t * (1 + 0.1 * s)) for s in range(8) for k, t in KINDS.items()})
    schedule = textbook("zbv", stages=8, microbatches=8)
    return build(profile, schedule, blocking_power_w=70.0).plan(0)


@pytest.fixture(scope="module")
def both(plan: FrequencyPlan) -> list[RecordedIteration]:
    ranks = plan.of.schedule.rank_of_stages()
    return [
        RecordedIteration(
            name,
            seconds,
            70.0,
            simulated=True,
            spans=tuple(
                Span(p.instruction, p.start_s, p.duration_s, p.clock_mhz, p.energy_j / p.duration_s)
                for p in played
            ),
            rank_of_stage=tuple(ranks[stage] for stage in range(8)),
        )
        for name, seconds, played in (
            ("baseline", plan.of.baseline.iteration_time_s, play_baseline(plan.of)),
            ("perseus", plan.iteration_time_s, play(plan)),
        )
    ]


def test_a_lane_for_every_rank_with_both_its_chunks(
    both: list[RecordedIteration], plan: FrequencyPlan
) -> None:
    assert [(lane.name, lane.stages) for lane in rank_rows(both[1])] == [
        ("rank 0", (0, 7)),
        ("rank 1", (1, 6)),
        ("rank 2", (2, 5)),
        ("rank 3", (3, 4)),
    ]
    assert energy_j(both[1]) == pytest.approx(plan.energy_j)


def test_clocks_of_three_kinds_have_a_row_per_model_stage(plan: FrequencyPlan) -> None:
    found = clocks_mhz(plan.of, [plan.index])[0]
    assert found.shape == (3 * 8, 8)
    portions = plan.portions()
    for one, shares in portions.items():
        options = plan.of.options[one.stage, one.kind]
        row = list(KINDS).index(one.kind) * 8 + one.stage
        mhz = sum(share * options.mean_mhz(option) for option, share in shares)
        assert found[row, one.microbatch] == round(mhz)
