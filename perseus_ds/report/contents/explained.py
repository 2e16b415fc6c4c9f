"""One saving, explained: measured, expected, and in one sentence why they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator

from perseus_ds.report.contents.figures import Figures, Saving
from perseus_ds.report.contents.reading import Contents
from perseus_ds.report.number import signed

_WORTH_SAYING_PCT = 1.0  # of all changes of clock


def with_error(value: float, within: float | None, *, decimals: int = 1, sign: bool = False) -> str:
    """Write ``19.8 ± 0.4 %``; without a known error the number alone."""
    shown = signed(value, decimals=decimals) if sign else f"{value:.{decimals}f}"
    return f"{shown} %" if within is None else f"{shown} \N{PLUS-MINUS SIGN} {within:.{decimals}f} %"


def missed_pct(contents: Contents) -> float:
    """Of how many changes of clock the moment was missed, in percent of all."""
    missed = sum(one.missed for one in contents.ranks)
    return 100.0 * missed / max(1, missed, sum(one.changes for one in contents.ranks))


def explanation(contents: Contents, found: Figures) -> str:
    """State in one sentence whether the measurement agrees with what was expected, and why not."""
    measured, predicted = found.measured, found.predicted
    if predicted is None:
        return ""
    if measured is None:
        return f"Nothing is measured yet: {predicted.saving_pct:.1f} % is what the plan is expected to save."
    difference = measured.saving_pct - predicted.saving_pct
    if abs(difference) <= _error_of(measured, predicted):
        return (
            f"The expected saving, {predicted.saving_pct:.1f} %, was computed from the profile before the"
            " plan ran; the measurement agrees with it within their errors."
        )
    how = "more" if difference > 0 else "less"
    reasons = list(_reasons(contents)) or [
        "the profile may no longer describe these GPUs: delete profile.json to measure it again"
    ]
    return f"Measured is {abs(difference):.1f} points {how} than expected: {'; '.join(reasons)}."


def why_not_as_planned(found: Figures) -> str:
    """Explain why the expected saving is not the plan's own; empty where they are one number."""
    planned, predicted = found.planned, found.predicted
    if planned is None or predicted is None or abs(planned.saving_pct - predicted.saving_pct) < 0.05:  # noqa: PLR2004
        return ""
    return (
        f"The plan file itself states {planned.saving_pct:.1f} %, without the time that clock changes take,"
        " without waiting at the clock in force, and without the energy that cooler GPUs do not leak. The"
        " expected saving counts all three."
    )


def _error_of(measured: Saving, predicted: Saving) -> float:
    """Of the difference, 95 times in 100; an unknown error counts as half a point."""
    first, second = (0.5 if one.within_pct is None else one.within_pct for one in (measured, predicted))
    return math.hypot(first, second)


def _reasons(contents: Contents) -> Iterator[str]:
    names = [event.get("event") for event in contents.events]
    if (late_pct := missed_pct(contents)) > _WORTH_SAYING_PCT:
        yield f"{late_pct:.1f} % of the clock changes missed their moment"
    if "straggler" in names:
        yield "a straggler was present"
    if "conflict" in names:
        yield "other programs worked on these GPUs or set their clocks"
