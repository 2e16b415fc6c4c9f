"""Compute what a report states: the saving and what it is worth, each GPU, the course of the run, two runs.

The table on a terminal and the page print the same `Figures`. Measured and predicted savings never stand in
for each other.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from perseus_ds.errors import PerseusError
from perseus_ds.plan import PlanSet
from perseus_ds.plan.clock_requests import Played, play, play_baseline
from perseus_ds.plan.select import count_of
from perseus_ds.report.read import Event, RunData, load_run, short
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.run_directory.records import SIDES, Summary, read_places

MAX_GPU_ROWS = 64
"""GPUs that have a row each; of more, those of a stage share one."""
UNKNOWN = "-"
_DAY_S = 86_400.0
_J_PER_KWH = 3.6e6
_MISSED_PCT = 1.0  # of all changes of clock: from here on they explain a difference


@dataclass(frozen=True, slots=True)
class Saving:
    """A saving and its price in time, and the source of the two numbers.

    ``within_pct`` and ``slowdown_within_pct`` are half of the intervals that hold the true ones 95 times in
    100, None where that is not known.
    """

    saving_pct: float
    slowdown_pct: float
    source: str
    within_pct: float | None = None
    slowdown_within_pct: float | None = None

    @property
    def energy(self) -> str:
        """The saving with its error: ``19.83 ± 0.41 %``."""
        return with_error(f"{self.saving_pct:.2f}", self.within_pct, 2)

    @property
    def time(self) -> str:
        """The change of the iteration time with its error."""
        return with_error(f"{self.slowdown_pct:+z.2f}", self.slowdown_within_pct, 2)


@dataclass(frozen=True, slots=True)
class Row:
    """A quantity at default clocks and at the plan, of all GPUs of the job."""

    name: str
    baseline: float
    plan: float

    @property
    def cells(self) -> list[str]:
        """Return name, values and difference for a table."""
        difference = f"{100.0 * (self.plan / self.baseline - 1.0):+z.2f} %"
        return [self.name, short(self.baseline, digits=5), short(self.plan, digits=5), difference]


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is known of a run.

    ``planned`` is the plan's own figure, ``predicted`` what is expected of it on these GPUs. ``scope`` states
    what the energies count: "GPU boards only, 32 GPUs on 4 nodes".
    """

    job: str
    scope: str
    simulated: bool
    rows: tuple[Row, ...]
    measured: Saving | None
    predicted: Saving | None
    planned: Saving | None
    gap_pct: float | None


def with_error(value: str, within: float | None, decimals: int) -> str:
    """Write ``19.8 ± 0.4 %``; without a known error the number alone."""
    return f"{value} %" if within is None else f"{value} \N{PLUS-MINUS SIGN} {within:.{decimals}f} %"


def figures(contents: RunData) -> Figures:
    """Compute the figures of whatever the run directory holds."""
    summary, plan = contents.summary, contents.chosen
    planned = measured = None
    if plan is not None:
        plans = count_of(len(plan.of), "plan")
        name = f"plan {plan.index} of {plans} (0 is the fastest)" if plan.index else f"the fastest of {plans}"
        planned = Saving(plan.saving_pct, plan.slowdown_pct, name)
    if summary is not None:
        measured = Saving(
            summary.saving_pct,
            summary.slowdown_pct,
            f"{summary.baseline.iterations} + {summary.perseus.iterations} iterations",
            summary.saving_within_pct,
            summary.slowdown_within_pct,
        )
    return Figures(
        job=_job_line(contents),
        scope=_scope(contents),
        simulated=contents.simulated,
        rows=() if summary is None else tuple(_rows(summary)),
        measured=measured,
        predicted=planned if planned is None or summary is None else _predict(planned, summary),
        planned=planned,
        gap_pct=None if plan is None else float(plan.of.gap_pct[plan.index]),
    )


def headline(found: Figures) -> str:
    """State the measured saving, else the predicted one, and which of the two it is."""
    if saving := found.measured:
        source = "measured on a simulated GPU" if found.simulated else "measured"
    elif saving := found.predicted:
        source = "predicted from a simulated GPU" if found.simulated else "predicted, not yet measured"
    else:
        return "Profile of a simulated GPU" if found.simulated else "Profile"
    energy = with_error(f"{abs(saving.saving_pct):.1f}", saving.within_pct, 1)
    less = f"{energy} {'less' if saving.saving_pct >= 0 else 'more'} energy"
    slower = f"{saving.slowdown_pct:+z.1f}"
    return f"{less} at {'the same speed' if slower == '+0.0' else f'{slower} % time'}, {source}"


def _job_line(contents: RunData) -> str:
    words = [] if contents.profile is None else [count_of(contents.profile.stages, "stage")]
    if contents.plans is not None:
        own = contents.plans.schedule
        words = [count_of(own.stages, "stage"), count_of(own.microbatches, "microbatch", "es"), own.name]
    facts = {} if contents.summary is None else contents.summary.facts
    gpu = str(facts.get("gpu") or contents.fingerprint.get("gpu") or "")
    if contents.simulated and "simulated" not in gpu.lower():
        gpu = f"simulated {gpu or 'GPU'}"
    return ", ".join([*words, *filter(None, [gpu])]) or contents.run_dir.name


def _scope(contents: RunData) -> str:
    """State what energies count: the boards, as NVML and its like read them, of so many GPUs."""
    gpus = None if contents.summary is None else contents.summary.facts.get("gpus")
    if not isinstance(gpus, int):
        return "GPU boards only"
    try:
        nodes = len({place.host for place in read_places(RunDirectory(contents.run_dir).places)})
    except PerseusError:
        return f"GPU boards only, {count_of(gpus, 'GPU')}"
    return f"GPU boards only, {count_of(gpus, 'GPU')} on {count_of(nodes, 'node')}"


def _rows(summary: Summary) -> Iterator[Row]:
    before, after = summary.baseline, summary.perseus
    yield Row("time per iteration, s", before.iteration_time_s, after.iteration_time_s)
    yield Row("energy per iteration, J", before.energy_j, after.energy_j)
    yield Row(
        "average power, W", before.energy_j / before.iteration_time_s, after.energy_j / after.iteration_time_s
    )
    counted = summary.facts.get("worth")
    sides = [counted.get(name) if isinstance(counted, Mapping) else None for name in SIDES]
    for unit in ("token", "sample"):
        values = [side.get(f"energy_per_{unit}_j") if isinstance(side, Mapping) else None for side in sides]
        known = [value for value in values if isinstance(value, int | float) and value > 0]
        if len(known) == len(SIDES):
            yield Row(f"energy per {unit}, J", *known)


def _predict(planned: Saving, summary: Summary) -> Saving:
    """Take what the job expected of its plan; summaries of older jobs know less."""
    names = ("predicted_slowdown_pct", "predicted_saving_within_pct", "predicted_slowdown_within_pct")
    stated = [summary.facts.get(name) for name in names]
    slowdown_pct, *errors_pct = (None if one is None else float(str(one)) for one in stated)
    slowdown_pct = planned.slowdown_pct if slowdown_pct is None else slowdown_pct
    return Saving(summary.predicted_saving_pct, slowdown_pct, planned.source, *errors_pct)


def per_pipeline(summary: Summary, plans: PlanSet) -> list[tuple[float, float]]:
    """Return seconds and joules of one pipeline, before and at the plan; empty for an unknown number of GPUs.

    A plan covers one GPU per pipeline rank. A job of ``gpus`` runs ``gpus / ranks`` of them, data-parallel
    replicas and the GPUs of a tensor-parallel rank alike.
    """
    gpus = summary.facts.get("gpus")
    if not isinstance(gpus, int) or gpus < plans.schedule.ranks or gpus % plans.schedule.ranks:
        return []
    pipelines = gpus // plans.schedule.ranks
    sides = (summary.baseline, summary.perseus)
    return [(side.iteration_time_s, side.energy_j / pipelines) for side in sides]


@dataclass(frozen=True, slots=True)
class EnergyPrices:
    """Price and emission of a kilowatt-hour, and the building's share beyond what GPUs take."""

    price_per_kwh: float | None = None
    gco2_per_kwh: float | None = None
    pue: float | None = None

    def per_day(self, summary: Summary) -> dict[str, str]:
        """Return what the whole job saves in a day of training at its present pace, in words."""
        saved_j = summary.baseline.energy_j - summary.perseus.energy_j
        kwh = (self.pue or 1.0) * saved_j * _DAY_S / summary.perseus.iteration_time_s / _J_PER_KWH
        building = "" if self.pue in {None, 1.0} else f", the building's share with it (PUE {self.pue:g})"
        found = {f"energy per day of training{building}": f"{short(kwh)} kWh"}
        if (price := self.price_per_kwh) is not None:
            found["money per day"] = f"{short(price * kwh)} at {price:g} per kWh"
        if (grams := self.gco2_per_kwh) is not None:
            found["CO2 per day"] = f"{short(grams * kwh / 1000.0)} kg at {grams:g} g per kWh"
        return found


def missed_pct(contents: RunData) -> float:
    """Return which share of all changes of clock missed its moment, in percent."""
    counts = [one.clock_requests for one in contents.ranks]
    requested = sum(one.changes + one.overtaken for one in counts)
    return 100.0 * sum(one.missed for one in counts) / max(1, requested)


def compare_measured_expected(contents: RunData, found: Figures) -> str:
    """State in one sentence whether the measurement agrees with what was expected, and why not."""
    measured, predicted = found.measured, found.predicted
    if predicted is None:
        return ""
    if measured is None:
        return f"Nothing is measured yet: {predicted.saving_pct:.1f} % is what the plan is expected to save."
    difference = measured.saving_pct - predicted.saving_pct
    # An unknown error counts as half a point.
    errors = (0.5 if one.within_pct is None else one.within_pct for one in (measured, predicted))
    if abs(difference) <= math.hypot(*errors):
        return (
            f"The expected saving, {predicted.saving_pct:.1f} %, was computed from the profile before the"
            " plan ran; the measurement agrees with it within their errors."
        )
    names = [event.get("event") for event in contents.events]
    missed = missed_pct(contents)
    reasons = [
        text
        for text, holds in (
            (f"{missed:.1f} % of the clock changes missed their moment", missed > _MISSED_PCT),
            ("a straggler was present", "straggler" in names),
            ("other programs worked on these GPUs or set their clocks", "conflict" in names),
        )
        if holds
    ] or ["the profile may no longer describe these GPUs: delete profile.json to measure it again"]
    more = "more" if difference > 0 else "less"
    return f"Measured is {abs(difference):.1f} points {more} than expected: {'; '.join(reasons)}."


def plan_vs_expected_note(found: Figures) -> str:
    """Explain why the expected saving is not the plan's own; empty where they are one number."""
    planned, predicted = found.planned, found.predicted
    if planned is None or predicted is None or f"{planned.saving_pct - predicted.saving_pct:z.1f}" == "0.0":
        return ""
    return (
        f"The plan file itself states {planned.saving_pct:.1f} %, without the time that clock changes take,"
        " without waiting at the clock in force, and without the energy that cooler GPUs do not leak. The"
        " expected saving counts all three."
    )


def gpu_rows(contents: RunData) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row for each GPU that measured both sides, by replica and stage.

    Of more than `MAX_GPU_ROWS` those of a stage share a row of means. Clocks are the requested ones, means
    over the time computed. Temperatures are those of GPUs with a sensor.
    """
    ranks = [one for one in contents.ranks if all(one.totals[side].iterations for side in SIDES)]
    groups = {
        f"GPU {one.rank}: stage {one.stage}, replica {one.replica}": [one]
        for one in sorted(ranks, key=lambda one: (one.replica, one.stage, one.rank))
    }
    if len(ranks) > MAX_GPU_ROWS:
        stages = {one.stage: [other for other in ranks if other.stage == one.stage] for one in ranks}
        groups = {
            f"stage {stage}, mean of {count_of(len(own), 'GPU')}": own
            for stage, own in sorted(stages.items())
        }
    clocks, units = _mean_clocks(contents), ["J", "s", "MHz", "\N{DEGREE SIGN}C"]
    header = [f"{unit} {side}" for unit in units for side in ("before", "at the plan")]
    rows = []
    for name, own in groups.items():
        before, after = ([one.totals[side] for one in own] for side in SIDES)
        energy_j = [fmean(one.energy_j for one in side) for side in (before, after)]
        warm_c = [[one.temperature_c.get(side) for side in SIDES] for one in own]
        cells = [
            *map(short, energy_j),
            *(short(fmean(one.iteration_time_s for one in side)) for side in (before, after)),
            *(f"{mhz:.0f}" if mhz else UNKNOWN for mhz in clocks.get(own[0].stage, (0.0, 0.0))),
            *(
                f"{fmean(c):.0f}" if (c := [*filter(None, side)]) else UNKNOWN
                for side in zip(*warm_c, strict=True)
            ),
            f"{100.0 * (1.0 - energy_j[1] / energy_j[0]):.1f} %" if energy_j[0] else UNKNOWN,
            str(sum(one.clock_requests.changes for one in own)),
            str(sum(one.clock_requests.missed for one in own)),
        ]
        rows.append([name, *cells])
    return ["", *header, "saved", "changes", "missed"], rows


def _mean_clocks(contents: RunData) -> dict[int, tuple[float, float]]:
    """Return the mean requested clocks of every pipeline rank, weighed by time: default clocks, the plan."""
    plan = contents.chosen
    if plan is None:
        return {}
    ranks = plan.of.schedule.rank_of_stages()
    before, after = (_clocks_by_rank(played, ranks) for played in (play_baseline(plan.of), play(plan)))
    return {rank: (before.get(rank, 0.0), after.get(rank, 0.0)) for rank in sorted(set(ranks.values()))}


def _clocks_by_rank(played: Sequence[Played], ranks: Mapping[int, int]) -> dict[int, float]:
    cycles, time_s = defaultdict[int, float](float), defaultdict[int, float](float)
    for one in played:
        for part in one.parts:
            cycles[ranks[one.instruction.stage]] += part.clock_mhz * part.duration_s
            time_s[ranks[one.instruction.stage]] += part.duration_s
    return {rank: cycles[rank] / total_s for rank, total_s in time_s.items() if total_s}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs side by side, and a sentence on whether their measured savings differ."""

    labels: tuple[str, str]
    rows: tuple[tuple[str, str, str], ...]
    verdict: str


def compare(first: Path, second: Path) -> Comparison:
    """Compare two run directories.

    Raises:
        PerseusError: one of them does not exist, or holds nothing of a job.
    """
    runs = [(one, figures(one)) for one in map(load_run, (first, second))]
    cells, others = (_cells(*one) for one in runs)
    rows = [(name, cell or UNKNOWN, others[name] or UNKNOWN) for name, cell in cells.items()]
    names = (first.name, second.name) if first.name != second.name else (str(first), str(second))
    shown = tuple(row for row in rows if {row[1], row[2]} != {UNKNOWN})
    return Comparison(names, shown, _verdict(names, *(found.measured for _, found in runs)))


def _cells(run: RunData, found: Figures) -> dict[str, str]:
    """Return a run's column of the comparison; empty where it does not know."""
    time, plan, measured = str(run.attached.get("time") or ""), run.chosen, found.measured
    sides = (
        {} if run.summary is None else {"before": run.summary.baseline, "at the plan": run.summary.perseus}
    )
    return {
        "started (UTC)": f"{time[:10]} {time[11:16]}".strip(),
        "host of rank 0": str(run.attached.get("host") or ""),
        "perseus_ds": str(run.attached.get("version") or ""),
        "job": found.job,
        "counted": found.scope,
        "plan (0 is the fastest)": "" if plan is None else f"{plan.index} of {len(plan.of)}",
        "energy saved, measured": "" if measured is None else measured.energy,
        "energy saved, expected": "" if found.predicted is None else found.predicted.energy,
        "iteration time, measured": "" if measured is None else measured.time,
        **{
            f"{unit} per iteration {name}": short(getattr(sides[name], quantity), digits=5) if sides else ""
            for unit, quantity in (("s", "iteration_time_s"), ("J", "energy_j"))
            for name in ("before", "at the plan")
        },
        "missed clock changes": f"{missed_pct(run):.1f} %" if run.ranks else "",
    }


def _verdict(names: Sequence[str], one: Saving | None, other: Saving | None) -> str:
    """Return whether the difference of the savings is beyond both errors."""
    if one is None or other is None:
        missing = [name for name, saving in zip(names, (one, other), strict=True) if saving is None]
        return f"No saving was measured in {' and '.join(missing)}: nothing to compare yet."
    difference = other.saving_pct - one.saving_pct
    text = f"The second run saves {abs(difference):.1f} points {'more' if difference >= 0 else 'less'}"
    if one.within_pct is None or other.within_pct is None:
        return f"{text}; the errors are not known."
    within = math.hypot(one.within_pct, other.within_pct)
    beyond = "more than" if abs(difference) > within else "within"
    return f"{text}, {beyond} the error of that difference ({within:.1f} points)."


def event_row(event: Event) -> list[str]:
    """Return time (UTC), name and facts of an event; unknown ones too."""
    line = event.get("line")
    facts = {key: value for key, value in event.items() if key not in {"time", "event"}}
    text = str(line) if line is not None else ", ".join(" ".join(row) for row in fact_rows(facts))
    return [clock_of(event.get("time")), str(event.get("event", "?")).replace("_", " "), text]


def fact_rows(facts: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield names and values for reading; the unit moves from the end of a name behind its number."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            words = name.replace("_", " ")
            yield from ((f"{words}, {inner}", text) for inner, text in fact_rows(value))
            continue
        ending = next((one for one in _UNITS if name.endswith(one)), "")
        unit = "" if value is None or isinstance(value, str | bool) else _UNITS.get(ending, "")
        yield name.removesuffix(ending).replace("_", " "), _in_words(value) + unit


_UNITS = {"_s": " s", "_j": " J", "_w": " W", "_mhz": " MHz", "_pct": " %", "_us": " us", "_ms": " ms"}


def _in_words(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({', '.join(' '.join(row) for row in fact_rows(value))})"
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_words, value)) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def clock_of(time: object) -> str:
    """Return HH:MM:SS of an ISO time; anything else as it is."""
    text = str(time or "")
    return text[11:19] if len(text) >= len("2025-01-01T00:00:00") else text


def straggler_rows(events: Sequence[Event]) -> list[list[str]]:
    """Join each straggler's appearance, changes and end to one row: from, to, who, meeting time, events."""
    rows: list[list[str]] = []
    begun, changes = "", 0
    for event in events:
        name, time = event.get("event"), clock_of(event.get("time"))
        if name == "straggler":
            begun, changes = begun if changes else time, changes + 1
            rows[len(rows) - (changes > 1) :] = [[begun, "still there", *_slow(event), str(changes)]]
        elif changes and name in {"straggler_gone", "ended", "finished"}:
            rows[-1][1], changes = time, 0
    return rows


def _slow(event: Event) -> tuple[str, str]:
    """Return who is slow, and the iteration time at which all meet."""
    stragglers, sync_s = event.get("stragglers"), event.get("sync_time_s")
    who = [
        f"replica {one.get('replica')} x{one.get('slowdown'):.2f} ({one.get('cause')})"
        for one in (stragglers if isinstance(stragglers, list) else [])
        if isinstance(one, Mapping) and isinstance(one.get("slowdown"), int | float)
    ]
    return ", ".join(who) or UNKNOWN, f"{sync_s:.4g} s" if isinstance(sync_s, int | float) else UNKNOWN
