"""Lanes: the boxes and the gaps of a timeline."""

from dataclasses import replace

import pytest

from perseus_ds.report.timeline.lanes import Gap, energy_j, height, lanes
from perseus_ds.report.timeline.power_scale import power_scale
from perseus_ds.run_directory import RecordedIteration, Span
from perseus_ds.schedule import Instruction, Kind


def _timeline(*spans: tuple[str, float, float, float | None]) -> RecordedIteration:
    rows = tuple(
        Span(Instruction.parse(text), start, long, None, watts) for text, start, long, watts in spans
    )
    return RecordedIteration("baseline", 1.0, 50.0, simulated=False, spans=rows)


def test_gaps_are_what_no_span_covers() -> None:
    lane = lanes(_timeline(("0B0", 0.6, 0.2, 300.0), ("0F0", 0.1, 0.3, 200.0)))[0]
    assert [str(span.instruction) for span in lane.spans] == ["0F0", "0B0"]
    assert [(g.start_s, round(g.duration_s, 9)) for g in lane.gaps] == [(0.0, 0.1), (0.4, 0.2), (0.8, 0.2)]


def test_a_full_lane_has_no_gap() -> None:
    assert lanes(_timeline(("0F0", 0.0, 1.0, 200.0)))[0].gaps == ()


def test_overlapping_spans_leave_no_negative_gap() -> None:
    lane = lanes(_timeline(("0F0", 0.0, 0.8, 200.0), ("0L0", 0.1, 0.1, None)))[0]
    assert lane.gaps == (Gap(0.8, pytest.approx(0.2)),)


def test_energy_counts_work_at_its_power_and_all_else_at_blocking_power() -> None:
    timeline = _timeline(("0F0", 0.0, 0.5, 200.0), ("0AR0", 0.5, 0.3, None), ("1F0", 0.5, 0.5, 100.0))
    assert energy_j(timeline) == pytest.approx(0.5 * 200 + 0.5 * 100 + 50 * (2.0 - 1.0))


def test_backward_stands_taller_than_forward_and_both_above_the_rest() -> None:
    assert height(Kind.BACKWARD) > height(Kind.FORWARD) > height(Kind.STEP)


def test_the_palest_colour_lies_below_waiting_in_all_panels() -> None:
    """Waiting takes 50 W in one panel and 80 W in the other: equal ink is equal power."""
    scale = power_scale(
        [
            _timeline(("0F0", 0.0, 0.5, 200.0)),
            replace(_timeline(("0F0", 0.0, 0.5, 300.0)), blocking_power_w=80.0),
        ]
    )
    assert scale.lowest_w == pytest.approx(0.8 * 50.0)
    assert scale.highest_w == pytest.approx(300.0 + 0.02 * 250.0)
    assert len({scale.colour(50.0), scale.colour(80.0), scale.colour(200.0), scale.colour(300.0)}) == 4
