"""Lanes: the boxes and the gaps of a timeline."""

import pytest

from perseus_ds.report.timeline import Gap, energy_j, lanes
from perseus_ds.run_directory import RecordedIteration, Span
from perseus_ds.schedule import Instruction


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
