"""The figures of a report, computed once: what the table, the page and the pictures all print."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from perseus_ds.report.contents import Contents
from perseus_ds.run_directory import Measured, Summary


class Quantity(Enum):
    """What is compared, in words."""

    TIME = "time per iteration"
    ENERGY = "energy per iteration"
    POWER = "average power"


@dataclass(frozen=True, slots=True)
class Row:
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

    ``planned`` is what the plan says of itself, ``predicted`` what is to be expected of it on these GPUs.
    """

    job: str
    simulated: bool
    rows: tuple[Row, ...]
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
        words.append(f"{schedule.stages} stages, {schedule.microbatches} microbatches, {schedule.name}")
    elif contents.profile is not None:
        words.append(f"{contents.profile.stages} stages")
    if gpu := gpu_name(contents):
        words.append(gpu)
    return ", ".join(words) or contents.run_dir.name


def gpu_name(contents: Contents) -> str:
    """Name the GPU, and say so when it is simulated."""
    facts = {} if contents.summary is None else contents.summary.facts
    name = str(facts.get("gpu") or contents.fingerprint.get("gpu") or "")
    if not contents.simulated or "simulated" in name.lower():
        return name
    return f"simulated {name or 'GPU'}"


def _rows(contents: Contents) -> tuple[Row, ...]:
    summary = contents.summary
    if summary is None:
        return ()
    baseline, perseus = summary.baseline, summary.perseus
    return (
        Row(Quantity.TIME, "s", baseline.iteration_time_s, perseus.iteration_time_s),
        Row(Quantity.ENERGY, "J", baseline.energy_j, perseus.energy_j),
        Row(Quantity.POWER, "W", _power_w(baseline), _power_w(perseus)),
    )


def _power_w(measured: Measured) -> float:
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
    return Saving(plan.saving_pct, plan.slowdown_pct, f"plan {plan.index} of {len(plan.of)}")
