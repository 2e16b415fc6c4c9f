"""The figures of a report, computed once: what the table, the page and the pictures all print."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.report.contents import Contents
from perseus_ds.report.number import count, signed
from perseus_ds.run_directory import MeasuredSide, Summary

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
