"""The profile on the page: curves with errors, what was left out and why, predicted and measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from perseus_ds.plan import FrequencyPlan
from perseus_ds.profile import Computation, Point, Profile, smoothed
from perseus_ds.report.contents import Contents
from perseus_ds.report.number import short, signed
from perseus_ds.report.page import alt_texts
from perseus_ds.report.page.figure_data import profile_data
from perseus_ds.report.page.render import figure, section
from perseus_ds.schedule import Kind

_UNKNOWN = "-"
_COLUMNS = (
    "Errors are the largest of a curve. Off curve is the largest distance from a smooth curve through all"
    " points, in standard errors. A clock is never worth it where another one is as fast and needs no more"
    " energy."
)


def profile_sections(contents: Contents, data: dict[str, object]) -> Iterator[dict[str, object]]:
    """Yield the curves, a row for each of them, and predicted against measured durations."""
    profile, plan = contents.profile, contents.chosen
    if profile is None:
        return
    data["profile"] = profile_data(profile)
    words = sorted({kind.words for _, kind in profile.points}, reverse=True)
    legend = [("before" if place % 2 else "accent", name) for place, name in enumerate(words)]
    if plan is not None:
        legend.append(("ring", "clocks that the chosen plan uses"))
    caption = "Energy (J) against time (s) of every computation, a point per clock, with standard errors."
    drawn = figure("profile", caption, alt=alt_texts.of_profile(profile), legend=legend)
    yield section("The profile", figures=[drawn])
    yield section(
        "Each curve of the profile",
        words=_words(profile, contents),
        header=[
            "",
            "clocks, MHz",
            "the plan uses",
            "never worth it",
            "error s",
            "error J",
            "off curve",
            "°C",
        ],
        rows=_rows(profile, plan),
        numbers=1,
    )
    if plan is not None and (rows := _against(contents, plan)):
        yield section(
            "Predicted and measured durations",
            words="Mean durations of one iteration at the plan: as its profile predicts, and as recorded.",
            header=["", "predicted, s", "measured, s", "difference"],
            rows=rows,
            numbers=1,
        )


def _words(profile: Profile, contents: Contents) -> str:
    """What the columns are, and what of the sweep is not in the profile, with the reason."""
    told = [_COLUMNS]
    if not _states_errors(profile):
        told.append("This profile states no errors.")
    lost = sorted(
        {
            clock
            for event in contents.events
            if event.get("event") == "not_held"
            for clock in _clocks(event.get("clocks_mhz"))
        },
        reverse=True,
    )
    if lost:
        told.append(f"Left out, since they did not hold under load: {', '.join(map(str, lost))} MHz.")
    short_windows = sum(event.get("event") == "window_too_short" for event in contents.events)
    if short_windows:
        again = "window was" if short_windows == 1 else "windows were"
        told.append(f"{short_windows} {again} too short and measured again.")
    told += _left_out(contents)
    return " ".join(told)


def _left_out(contents: Contents) -> list[str]:
    """How many iterations counted for nothing in the sweep, and why."""
    profiled = next((one for one in reversed(contents.events) if one.get("event") == "profiled"), {})
    reasons = {
        "first_iterations": "first ones",
        "after_something_else": "after an evaluation or a checkpoint",
        "void_or_skipped": "without marks or optimizer step",
    }
    counts = {words: profiled.get(key) for key, words in reasons.items()}
    left = [f"{count} {words}" for words, count in counts.items() if isinstance(count, int) and count]
    return [f"Iterations left out of the sweep: {', '.join(left)}."] if left else []


def _clocks(value: object) -> list[int]:
    return [one for one in value if isinstance(one, int)] if isinstance(value, list) else []


def _states_errors(profile: Profile) -> bool:
    return any(one.time_se_s or one.energy_se_j for points in profile.points.values() for one in points)


def _rows(profile: Profile, plan: FrequencyPlan | None) -> list[list[str]]:
    curves = smoothed(profile) if _states_errors(profile) else profile
    used = {} if plan is None else _used(plan)
    return [
        [
            f"stage {stage} {kind.words}",
            _range([one.clock_mhz for one in points]),
            _range(used.get((stage, kind), [])),
            _range(_beaten(points)),
            _percent([one.time_se_s / one.time_s for one in points]),
            _percent([one.energy_se_j / one.energy_j for one in points]),
            _off(points, curves.of(stage, kind)),
            _temperatures(points),
        ]
        for stage, kind in sorted(profile.points, key=lambda key: (key[0], key[1].value))
        for points in [profile.of(stage, kind)]
    ]


def _used(plan: FrequencyPlan) -> dict[Computation, list[int]]:
    """The clocks that a plan uses of each computation, timelines with all of theirs."""
    found: dict[Computation, set[int]] = defaultdict(set)
    for one, portions in plan.portions().items():
        options = plan.of.options[one.stage, one.kind]
        for portion in portions:
            found[one.stage, one.kind] |= {segment.clock_mhz for segment in options.segments(portion.option)}
    return {key: list(clocks) for key, clocks in found.items()}


def _beaten(points: Sequence[Point]) -> list[int]:
    """Clocks at which another one is as fast and needs no more."""
    return [
        one.clock_mhz
        for one in points
        if any(
            other.time_s <= one.time_s and other.energy_j <= one.energy_j and other.clock_mhz != one.clock_mhz
            for other in points
        )
    ]


def _range(clocks_mhz: Sequence[int]) -> str:
    if not clocks_mhz:
        return _UNKNOWN
    low, high = min(clocks_mhz), max(clocks_mhz)
    return str(low) if low == high else f"{len(set(clocks_mhz))}: {low} to {high}"


def _percent(shares: Sequence[float]) -> str:
    return f"{100.0 * max(shares):.2f} %" if max(shares) > 0.0 else _UNKNOWN


def _off(points: Sequence[Point], curve: Sequence[Point]) -> str:
    """The largest residual of times and energies, in standard errors of the point; unknown without any."""
    at = {one.clock_mhz: one for one in curve}
    found = [
        abs(value - on) / error
        for one in points
        for other in [at[one.clock_mhz]]
        for value, on, error in (
            (one.time_s, other.time_s, one.time_se_s),
            (one.energy_j, other.energy_j, one.energy_se_j),
        )
        if error > 0.0
    ]
    return f"{max(found):.1f}" if found else _UNKNOWN


def _temperatures(points: Sequence[Point]) -> str:
    """How warm GPUs were over all clocks, where the profile has it."""
    read = [getattr(one, "temperature_c", None) for one in points]
    known = [float(one) for one in read if one is not None]
    if not known:
        return _UNKNOWN
    low, high = f"{min(known):.0f}", f"{max(known):.0f}"
    return low if low == high else f"{low} to {high}"


def _against(contents: Contents, plan: FrequencyPlan) -> list[list[str]]:
    """A row for each (stage, kind): what the plan predicts of its durations, and what was recorded."""
    recorded = contents.timelines.get("perseus")
    if recorded is None:
        return []
    columns = {one: column for column, one in enumerate(plan.of.computations())}
    sums: dict[tuple[int, Kind], list[tuple[float, float]]] = defaultdict(list)
    for span in recorded.spans:
        one = span.instruction
        if one in columns:
            options = plan.of.options[one.stage, one.kind]
            predicted_s = float(plan.of.blended(columns[one], options.time_s)[plan.index])
            sums[one.stage, one.kind].append((predicted_s, span.duration_s))
    rows = []
    for (stage, kind), pairs in sorted(sums.items(), key=lambda item: (item[0][0], item[0][1].value)):
        predicted_s, measured_s = np.mean(pairs, axis=0).tolist()
        difference = f"{signed(100.0 * (measured_s / predicted_s - 1.0), decimals=2)} %"
        rows.append([f"stage {stage} {kind.words}", short(predicted_s), short(measured_s), difference])
    return rows
