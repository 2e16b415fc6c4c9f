"""The figures of a report, computed once: what the table, the page and the pictures all print."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from statistics import fmean

from perseus_ds.errors import ConfigError
from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.plan.clock_requests import Played, play, play_baseline
from perseus_ds.report.read import Contents, count, read_contents, short, signed
from perseus_ds.run_directory import CourseRow, MeasuredSide, RankRecord, Summary

TimeAndEnergy = tuple[float, float]


class Quantity(Enum):
    """What is compared, in words."""

    TIME = "time per iteration"
    ENERGY = "energy per iteration"
    POWER = "average power"


@dataclass(frozen=True, slots=True)
class Compared:
    """One quantity before and after; ``difference_pct`` is positive for more."""

    quantity: Quantity
    unit: str
    baseline: float
    perseus: float

    @property
    def name(self) -> str:
        """The quantity in words."""
        return self.quantity.value

    @property
    def difference_pct(self) -> float:
        """Change against the baseline."""
        return 100.0 * (self.perseus / self.baseline - 1.0)


@dataclass(frozen=True, slots=True)
class Saving:
    """A saving and its price in time, and where the two numbers come from.

    ``within_pct`` and ``slowdown_within_pct`` are half of the intervals that hold the true ones 95 times in
    100, None where that is not known.
    """

    saving_pct: float
    slowdown_pct: float
    source: str
    within_pct: float | None = None
    slowdown_within_pct: float | None = None

    def factor(self, quantity: Quantity) -> float:
        """What it multiplies the baseline's quantity by."""
        energy, time = 1.0 - self.saving_pct / 100.0, 1.0 + self.slowdown_pct / 100.0
        return {Quantity.TIME: time, Quantity.ENERGY: energy, Quantity.POWER: energy / time}[quantity]


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is known; ``measured`` and ``predicted`` never stand in for each other.

    ``planned`` is the plan's own figure, ``predicted`` what is expected of it on these GPUs.
    """

    job: str
    simulated: bool
    rows: tuple[Compared, ...]
    measured: Saving | None
    predicted: Saving | None
    planned: Saving | None
    gap_pct: float | None


def figures(contents: Contents) -> Figures:
    """Compute the figures of whatever the run directory holds."""
    return Figures(
        job=job_line(contents),
        simulated=contents.simulated,
        rows=_rows(contents),
        measured=_measured(contents),
        predicted=_predicted(contents),
        planned=_planned(contents),
        gap_pct=None if contents.chosen is None else float(contents.chosen.of.gap_pct[contents.chosen.index]),
    )


def job_line(contents: Contents) -> str:
    """Describe the job in a few words: stages, microbatches, schedule, GPU."""
    words = []
    if contents.plans is not None:
        schedule = contents.plans.schedule
        words += [
            count(schedule.stages, "stage"),
            count(schedule.microbatches, "microbatch", "es"),
            schedule.name,
        ]
    elif contents.profile is not None:
        words.append(count(contents.profile.stages, "stage"))
    if gpu := gpu_name(contents):
        words.append(gpu)
    return ", ".join(words) or contents.run_dir.name


def gpu_name(contents: Contents) -> str:
    """Name the GPU, and mark it when it is simulated."""
    facts = {} if contents.summary is None else contents.summary.facts
    name = str(facts.get("gpu") or contents.fingerprint.get("gpu") or "")
    if not contents.simulated or "simulated" in name.lower():
        return name
    return f"simulated {name or 'GPU'}"


def _rows(contents: Contents) -> tuple[Compared, ...]:
    summary = contents.summary
    if summary is None:
        return ()
    baseline, perseus = summary.baseline, summary.perseus
    return (
        Compared(Quantity.TIME, "s", baseline.iteration_time_s, perseus.iteration_time_s),
        Compared(Quantity.ENERGY, "J", baseline.energy_j, perseus.energy_j),
        Compared(Quantity.POWER, "W", _power_w(baseline), _power_w(perseus)),
    )


def _power_w(measured: MeasuredSide) -> float:
    return measured.energy_j / measured.iteration_time_s


def _measured(contents: Contents) -> Saving | None:
    summary = contents.summary
    if summary is None:
        return None
    source = f"{summary.baseline.iterations} + {summary.perseus.iterations} iterations"
    within = summary.saving_within_pct, summary.slowdown_within_pct
    return Saving(summary.saving_pct, summary.slowdown_pct, source, *within)


def _predicted(contents: Contents) -> Saving | None:
    planned, summary = _planned(contents), contents.summary
    if planned is None or summary is None:
        return planned
    slowdown_pct = _fact(summary, "predicted_slowdown_pct")
    return replace(
        planned,
        saving_pct=summary.predicted_saving_pct,
        slowdown_pct=planned.slowdown_pct if slowdown_pct is None else slowdown_pct,
        within_pct=_fact(summary, "predicted_saving_within_pct"),
        slowdown_within_pct=_fact(summary, "predicted_slowdown_within_pct"),
    )


def _fact(summary: Summary, key: str) -> float | None:
    """A number that summaries of older jobs do not have."""
    value = summary.facts.get(key)
    return None if value is None else float(str(value))


def _planned(contents: Contents) -> Saving | None:
    plan = contents.chosen
    if plan is None:
        return None
    return Saving(plan.saving_pct, plan.slowdown_pct, plan_name(plan))


def plan_name(plan: FrequencyPlan) -> str:
    """Name a plan by its place on the frontier: the fastest of 282 plans, plan 12 of 282."""
    if plan.index == 0:
        return f"the fastest of {count(len(plan.of), 'plan')}"
    return f"plan {plan.index} of {len(plan.of)} (0 is the fastest)"


def headline(found: Figures) -> str:
    """State the measured saving, else the predicted one, and which of the two it is."""
    if found.measured is not None:
        how = "measured on a simulated GPU" if found.simulated else "measured"
        return f"{_in_words(found.measured)}, {how}"
    if found.predicted is not None:
        how = "predicted from a simulated GPU" if found.simulated else "predicted, not yet measured"
        return f"{_in_words(found.predicted)}, {how}"
    return "Profile of a simulated GPU" if found.simulated else "Profile"


def _in_words(saving: Saving) -> str:
    within = "" if saving.within_pct is None else f" \N{PLUS-MINUS SIGN} {saving.within_pct:.1f}"
    less = f"{abs(saving.saving_pct):.1f}{within} % {'less' if saving.saving_pct >= 0 else 'more'} energy"
    slower = signed(saving.slowdown_pct, decimals=1)
    return f"{less} at the same speed" if slower == "+0.0" else f"{less} at {slower} % time"


@dataclass(frozen=True, slots=True)
class PerPipeline:
    """Measured points of one pipeline.

    Units: (seconds, joules).
    """

    baseline: TimeAndEnergy
    perseus: TimeAndEnergy


def per_pipeline(summary: Summary, plans: PlanSet) -> PerPipeline | None:
    """Divide the job's energy by its pipelines; None if the number of GPUs is not known.

    A plan covers one GPU per pipeline rank. A job of ``gpus`` runs ``gpus / ranks`` of them, data-parallel
    replicas and the GPUs of a tensor-parallel rank alike.
    """
    gpus = summary.facts.get("gpus")
    if not isinstance(gpus, int) or gpus < plans.schedule.ranks or gpus % plans.schedule.ranks:
        return None
    pipelines = gpus // plans.schedule.ranks
    return PerPipeline(_of_one(summary.baseline, pipelines), _of_one(summary.perseus, pipelines))


def _of_one(measured: MeasuredSide, pipelines: int) -> TimeAndEnergy:
    return measured.iteration_time_s, measured.energy_j / pipelines


# One saving, explained: measured, expected, and in one sentence why they differ.

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


# What a measured saving is worth: joules, kilowatt-hours, and with prices money and CO2.

_DAY_S = 86_400.0
_J_PER_KWH = 3.6e6
KEYS = ("price_per_kwh", "gco2_per_kwh", "pue")


@dataclass(frozen=True, slots=True)
class EnergyPrices:
    """What a kilowatt-hour costs and emits, and what the building takes for each that GPUs take.

    Raises:
        ConfigError: a number that is not finite, below 0, or a power usage effectiveness below 1.
    """

    price_per_kwh: float | None = None
    gco2_per_kwh: float | None = None
    pue: float | None = None

    def __post_init__(self) -> None:
        for key, least in (("price_per_kwh", 0.0), ("gco2_per_kwh", 0.0), ("pue", 1.0)):
            value = getattr(self, key)
            if value is not None and not (math.isfinite(value) and value >= least):
                raise ConfigError(f"{key} is {value}", hint=f"expected a number from {least:g} on")


@dataclass(frozen=True, slots=True)
class Worth:
    """The whole job's saving per iteration and per day of training at its present pace; None: no price."""

    per_iteration_j: float
    per_day_kwh: float
    per_day_money: float | None
    per_day_kgco2: float | None


def worth(summary: Summary, prices: EnergyPrices) -> Worth:
    """Count what GPUs save, times what the building takes with them."""
    saved_j = summary.baseline.energy_j - summary.perseus.energy_j
    per_day_kwh = (prices.pue or 1.0) * saved_j * _DAY_S / summary.perseus.iteration_time_s / _J_PER_KWH
    money, grams = prices.price_per_kwh, prices.gco2_per_kwh
    return Worth(
        per_iteration_j=saved_j,
        per_day_kwh=per_day_kwh,
        per_day_money=None if money is None else money * per_day_kwh,
        per_day_kgco2=None if grams is None else grams * per_day_kwh / 1000.0,
    )


# What every GPU took and ran at, before and after; a row per stage where there are many GPUs.

MOST_ROWS = 64
"""GPUs that have a row each; of more, those of a stage share one."""


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU, or the mean of a stage's: energy and time of an iteration on both sides, and clocks.

    ``clock_mhz`` is the requested clock, the mean over the time computed, at default clocks and at the plan;
    None where no plan is there. ``temperature_c`` is the mean of either side; None where no sensor was read.
    """

    name: str
    gpus: int
    energy_j: tuple[float, float]
    time_s: tuple[float, float]
    clock_mhz: tuple[float, float] | None
    changes: int
    missed: int
    temperature_c: tuple[float, float] | None = None

    @property
    def saving_pct(self) -> float:
        """Energy saved."""
        before, after = self.energy_j
        return 100.0 * (1.0 - after / before) if before else 0.0


def gpu_rows(contents: Contents) -> list[GpuRow]:
    """Return a row per GPU that measured both sides, by replica and stage."""
    ranks = [one for one in contents.ranks if all(side.iterations for side in one.sides.values())]
    clocks = clocks_of_ranks(contents)
    if len(ranks) <= MOST_ROWS:
        ordered = sorted(ranks, key=lambda one: (one.replica, one.stage, one.rank))
        return [_gpu_row(_name(one, ranks), [one], clocks) for one in ordered]
    stages = sorted({one.stage for one in ranks})
    return [_gpu_row(f"stage {s}", [one for one in ranks if one.stage == s], clocks) for s in stages]


def clocks_of_ranks(contents: Contents) -> Mapping[int, tuple[float, float]]:
    """Mean requested clock of every pipeline rank, weighed by time: default clocks, the plan (MHz)."""
    if contents.chosen is None:
        return {}
    sides = [_clocks(played) for played in (play_baseline(contents.chosen.of), play(contents.chosen))]
    ranks = contents.chosen.of.schedule.rank_of_stages()
    found: dict[int, tuple[float, float]] = {}
    for rank in sorted(set(ranks.values())):
        stages = [stage for stage, its in ranks.items() if its == rank]
        before, after = (
            _mean_mhz([part for stage in stages for part in side.get(stage, [])]) for side in sides
        )
        found[rank] = before, after
    return found


def _clocks(played: Sequence[Played]) -> dict[int, list[tuple[int, float]]]:
    """Clock and seconds of every part of every computation, by stage."""
    found: dict[int, list[tuple[int, float]]] = {}
    for one in played:
        parts = [(part.clock_mhz, part.duration_s) for part in one.parts]
        found.setdefault(one.instruction.stage, []).extend(parts)
    return found


def _mean_mhz(parts: Sequence[tuple[int, float]]) -> float:
    whole_s = sum(duration_s for _, duration_s in parts)
    return sum(mhz * duration_s for mhz, duration_s in parts) / whole_s if whole_s else 0.0


def _name(one: RankRecord, ranks: Sequence[RankRecord]) -> str:
    replica = f", replica {one.replica}" if any(other.replica for other in ranks) else ""
    return f"GPU {one.rank}: stage {one.stage}{replica}"


def _gpu_row(name: str, ranks: Sequence[RankRecord], clocks: Mapping[int, tuple[float, float]]) -> GpuRow:
    sides = [[one.sides[side] for one in ranks] for side in ("baseline", "perseus")]
    before_j, after_j = (fmean(one.energy_j for one in side) for side in sides)
    before_s, after_s = (fmean(one.iteration_time_s for one in side) for side in sides)
    return GpuRow(
        name=name if len(ranks) == 1 else f"{name}, mean of {len(ranks)} GPUs",
        gpus=len(ranks),
        energy_j=(before_j, after_j),
        time_s=(before_s, after_s),
        clock_mhz=clocks.get(ranks[0].stage),
        changes=sum(one.changes for one in ranks),
        missed=sum(one.missed for one in ranks),
        temperature_c=_temperatures_c(ranks),
    )


def _temperatures_c(ranks: Sequence[RankRecord]) -> tuple[float, float] | None:
    """Mean temperatures of both sides, over the ranks that know both; None where none does."""
    warm = [one.temperature_c for one in ranks if len(one.temperature_c) == 2]  # noqa: PLR2004 - sides
    return (fmean(one["baseline"] for one in warm), fmean(one["perseus"] for one in warm)) if warm else None


@dataclass(frozen=True, slots=True)
class Course:
    """One side over the run: of every sample the first iteration, its time, and the power of all GPUs.

    ``clock_mhz`` is the requested clock of all GPUs, mean over the time computed; None without a plan.
    """

    side: str
    iteration: tuple[int, ...]
    time_s: tuple[float, ...]
    power_w: tuple[float, ...]
    clock_mhz: float | None


def courses(contents: Contents) -> list[Course]:
    """Join the ranks' courses, where all of them have the same samples: the slowest's time, all power."""
    clocks = list(clocks_of_ranks(contents).values())
    found = []
    for place, side in enumerate(("baseline", "perseus")):
        by_first = [{row.first: row for row in one.course[side]} for one in contents.ranks]
        shared = sorted(set.intersection(*map(set, by_first))) if by_first else []
        if shared:
            samples = [[course[first] for course in by_first] for first in shared]
            times_s = tuple(max(row.time_s for row in rows) for rows in samples)
            power_w = tuple(map(_course_power_w, samples, times_s))
            clock_mhz = fmean(pair[place] for pair in clocks) if clocks else None
            found.append(Course(side, tuple(shared), times_s, power_w, clock_mhz))
    return found


def _course_power_w(rows: Sequence[CourseRow], time_s: float) -> float:
    return sum(row.energy_j for row in rows) / time_s if time_s else 0.0


# Two runs beside each other, row by row.

NOT_KNOWN = "-"


@dataclass(frozen=True, slots=True)
class Run:
    """One of the two: where it lies, what it holds, its figures."""

    name: str
    contents: Contents
    found: Figures


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, row by row, and in a sentence whether their measured savings differ."""

    runs: tuple[Run, Run]
    rows: tuple[tuple[str, str, str], ...]
    verdict: str


def compare(first: Path, second: Path) -> Comparison:
    """Read both.

    Raises:
        PerseusError: one of them does not exist, or holds nothing of a job.
    """
    one, other = (_run(path) for path in (first, second))
    rows = tuple((name, value(one), value(other)) for name, value in _ROWS.items())
    shown = tuple(row for row in rows if {row[1], row[2]} != {NOT_KNOWN})
    return Comparison((one, other), shown, _verdict(one, other))


def _run(path: Path) -> Run:
    contents = read_contents(path)
    return Run(str(path), contents, figures(contents))


def _started(run: Run) -> str:
    time = str(run.contents.attached.get("time") or "")
    return f"{time[:10]} {time[11:16]}" if time else NOT_KNOWN


def _attached(key: str) -> Callable[[Run], str]:
    return lambda run: str(run.contents.attached.get(key) or NOT_KNOWN)


def _saving(saving: Saving | None) -> str:
    return NOT_KNOWN if saving is None else with_error(saving.saving_pct, saving.within_pct)


def _slowdown(run: Run) -> str:
    saving = run.found.measured
    if saving is None:
        return NOT_KNOWN
    return with_error(saving.slowdown_pct, saving.slowdown_within_pct, decimals=2, sign=True)


def _side(side: str, quantity: str) -> Callable[[Run], str]:
    def value(run: Run) -> str:
        summary = run.contents.summary
        return NOT_KNOWN if summary is None else short(getattr(getattr(summary, side), quantity), digits=5)

    return value


def _plan(run: Run) -> str:
    plan = run.contents.chosen
    return NOT_KNOWN if plan is None else f"{plan.index} of {len(plan.of)}"


def _missed(run: Run) -> str:
    return f"{missed_pct(run.contents):.1f} %" if run.contents.ranks else NOT_KNOWN


_ROWS: dict[str, Callable[[Run], str]] = {
    "started (UTC)": _started,
    "host of rank 0": _attached("host"),
    "perseus_ds": _attached("version"),
    "job": lambda run: run.found.job,
    "plan (0 is the fastest)": _plan,
    "energy saved, measured": lambda run: _saving(run.found.measured),
    "energy saved, expected": lambda run: _saving(run.found.predicted),
    "iteration time, measured": _slowdown,
    "s per iteration before": _side("baseline", "iteration_time_s"),
    "s per iteration at the plan": _side("perseus", "iteration_time_s"),
    "J per iteration before": _side("baseline", "energy_j"),
    "J per iteration at the plan": _side("perseus", "energy_j"),
    "missed clock changes": _missed,
}


def _verdict(one: Run, other: Run) -> str:
    """Whether the difference of the savings is beyond both errors."""
    first, second = one.found.measured, other.found.measured
    if first is None or second is None:
        missing = [run.name for run, saving in ((one, first), (other, second)) if saving is None]
        return f"No saving was measured in {' and '.join(missing)}: nothing to compare yet."
    difference = second.saving_pct - first.saving_pct
    how = f"The second run saves {abs(difference):.1f} points {'more' if difference >= 0 else 'less'}"
    if first.within_pct is None or second.within_pct is None:
        return f"{how}; the errors are not known."
    within = math.hypot(first.within_pct, second.within_pct)
    beyond = "more than" if abs(difference) > within else "within"
    return f"{how}, {beyond} the error of that difference ({within:.1f} points)."


def labels(runs: Sequence[Run]) -> list[str]:
    """Short names of the runs, different from each other."""
    names = [Path(run.name).name for run in runs]
    return names if len(set(names)) == len(names) else [run.name for run in runs]


# The journal in words: one readable line per event, one row per straggler.

Event = Mapping[str, object]

MOST_LINES = 500
"""Of events, and of stragglers, on a page; the file has all."""
STRAGGLER_HEADER = ("from", "to", "who", "meet at", "events")


@dataclass(frozen=True, slots=True)
class JournalLine:
    """One event: when (UTC), what, and the facts that explain it."""

    time: str
    event: str
    facts: str


def journal_lines(events: Iterable[Mapping[str, object]]) -> Iterator[JournalLine]:
    """Put every event into words, unknown ones too."""
    for event in events:
        yield JournalLine(clock_of(event.get("time")), str(event.get("event", "?")), in_words(event))


def in_words(event: Mapping[str, object]) -> str:
    """Return the line that the job printed for the event, else its facts."""
    if "line" in event:
        return str(event["line"])
    return facts_in_words({key: value for key, value in event.items() if key not in {"time", "event"}})


def facts_in_words(facts: Mapping[str, object]) -> str:
    """Return ``name value, name value``."""
    return ", ".join(" ".join(row) for row in fact_rows(facts))


def fact_rows(facts: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield names and values for reading; the unit moves from the end of a name behind its number."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            words = name.replace("_", " ")
            yield from ((f"{words}, {inner}", text) for inner, text in fact_rows(value))
            continue
        ending = next((one for one in _UNITS if name.endswith(one)), "")
        unit = "" if value is None or isinstance(value, str | bool) else _UNITS.get(ending, "")
        yield name.removesuffix(ending).replace("_", " "), _shown(value) + unit


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({facts_in_words(value)})"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.5g}" if isinstance(value, float) else str(value)


_UNITS = {"_s": " s", "_j": " J", "_w": " W", "_mhz": " MHz", "_pct": " %", "_us": " us", "_ms": " ms"}


def clock_of(time: object) -> str:
    """Return HH:MM:SS of an ISO time; anything else as it stands."""
    text = str(time or "")
    return text[11:19] if len(text) >= len("2025-01-01T00:00:00") else text


def straggler_rows(events: Sequence[Event]) -> list[list[str]]:
    """Join each straggler's appearance, changes and end to one row."""
    return [list(row) for row in _straggler_rows(events)]


def _straggler_rows(events: Sequence[Event]) -> Iterator[tuple[str, ...]]:
    began: Event | None = None
    last: Event = {}
    changes = 0
    for event in events:
        if event.get("event") == "straggler":
            began, last, changes = began or event, event, changes + 1
        elif event.get("event") in {"straggler_gone", "ended", "finished"} and began is not None:
            yield _straggler_row(began, last, clock_of(event.get("time")), changes)
            began, changes = None, 0
    if began is not None:
        yield _straggler_row(began, last, "still there", changes)


def _straggler_row(began: Event, last: Event, end: str, changes: int) -> tuple[str, ...]:
    found = last.get("stragglers")
    slow = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    who = ", ".join(
        f"replica {s.get('replica')} x{_number(s.get('slowdown'))} ({s.get('cause')})" for s in slow
    )
    sync_s = last.get("sync_time_s")
    meet = f"{sync_s:.4g} s" if isinstance(sync_s, int | float) else "-"
    return clock_of(began.get("time")), end, who or "-", meet, str(changes)


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "?"
