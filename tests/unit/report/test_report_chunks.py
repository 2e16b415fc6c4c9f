"""A V schedule with split backwards in the pictures: a lane per rank, a stripe per chunk, every kind."""

import re
from pathlib import Path

import pytest
from matplotlib.image import imread

from perseus_ds.plan import FrequencyPlan, build
from perseus_ds.plan.playing.play import play, play_baseline
from perseus_ds.profile import Point, Profile
from perseus_ds.report import theme
from perseus_ds.report.page.timeline_svg import timelines_svg
from perseus_ds.report.pictures.clocks import clocks_mhz, draw_clocks
from perseus_ds.report.pictures.timeline import draw_timelines
from perseus_ds.report.timeline.lanes import chunks, energy_j, lanes
from perseus_ds.run_directory import RecordedIteration, Span, read_timelines, write_timelines
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
    assert [(lane.name, lane.stages) for lane in lanes(both[1])] == [
        ("rank 0", (0, 7)),
        ("rank 1", (1, 6)),
        ("rank 2", (2, 5)),
        ("rank 3", (3, 4)),
    ]
    assert chunks(both[1]) == 2
    assert energy_j(both[1]) == pytest.approx(plan.energy_j)


def test_boxes_tell_kind_and_chunk_under_the_pointer(both: list[RecordedIteration]) -> None:
    drawn = timelines_svg(both)
    assert "7I3: backward input of microbatch 3" in drawn
    assert "2W0: backward weight of microbatch 0" in drawn
    for chunk in range(2):
        assert len(re.findall(f'fill="{theme.CHUNKS[chunk]}"', drawn)) == 2 * 4 * 8 * 3
    assert f'fill="{theme.CHUNKS[2]}"' not in drawn


def test_pictures_of_chunks_are_drawn(
    both: list[RecordedIteration], plan: FrequencyPlan, tmp_path: Path
) -> None:
    timeline = draw_timelines(both, tmp_path / "timeline.png", title="zbv", subtitle="8 stages on 4 ranks")
    clocks = draw_clocks(plan, tmp_path / "clocks.png", title="zbv", subtitle="8 stages on 4 ranks")
    assert imread(timeline).shape[2] == imread(clocks).shape[2] == 4
    assert clocks_mhz(plan).shape == (3, 8, 8)


def test_ranks_of_stages_survive_the_file(both: list[RecordedIteration], tmp_path: Path) -> None:
    write_timelines(both, tmp_path / "timelines.json")
    assert read_timelines(tmp_path / "timelines.json") == both
