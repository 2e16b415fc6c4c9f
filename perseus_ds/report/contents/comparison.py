"""Two runs beside each other, row by row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perseus_ds.report.contents.explained import missed_pct, with_error
from perseus_ds.report.contents.figures import Figures, Saving, figures
from perseus_ds.report.contents.reading import Contents, read_contents
from perseus_ds.report.number import short

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
