"""Baseline against plan, as measured in the job: ``summary.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.run_directory.whole_file import write_json


@dataclass(frozen=True, slots=True)
class Measured:
    """Whole iterations of one side.

    ``iteration_time_s`` is the mean of the middle half of their durations (hiccups of the host left out),
    ``energy_j`` the mean energy of all GPUs of the job over one iteration (nothing left out).
    """

    iteration_time_s: float
    energy_j: float
    iterations: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What the job saved, measured side by side: blocks of audit iterations against blocks at the plan.

    ``predicted_*`` is what the plan promised, kept beside the measurement and never in its place.
    ``facts`` holds what a reader wants beside it (GPU, stages, plan, gap, host cost of an instruction).
    """

    baseline: Measured
    perseus: Measured
    simulated: bool
    predicted_saving_pct: float
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def saving_pct(self) -> float:
        """Energy saved per iteration."""
        return 100.0 * (1.0 - self.perseus.energy_j / self.baseline.energy_j)

    @property
    def slowdown_pct(self) -> float:
        """How much longer an iteration takes."""
        return 100.0 * (self.perseus.iteration_time_s / self.baseline.iteration_time_s - 1.0)


def write_summary(summary: Summary, path: Path) -> None:
    """Write the contract's keys first, then ours."""
    content = asdict(summary)
    ordered = {
        "baseline": content.pop("baseline"),
        "perseus": content.pop("perseus"),
        "saving_pct": summary.saving_pct,
        "slowdown_pct": summary.slowdown_pct,
        "measured": True,
    }
    write_json(path, ordered | content)


def read_summary(path: Path) -> Summary:
    """Read what ``write_summary`` wrote.

    Raises:
        PerseusError: naming the file and what is wrong in it.
    """
    try:
        content = json.loads(path.read_text())
        return Summary(
            baseline=Measured(**content["baseline"]),
            perseus=Measured(**content["perseus"]),
            simulated=bool(content["simulated"]),
            predicted_saving_pct=float(content["predicted_saving_pct"]),
            facts=dict(content["facts"]),
        )
    except OSError as error:
        raise PerseusError(
            f"{path}: {error.strerror}", hint="the job has not measured its plan yet"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise PerseusError(f"{path} is not a summary: {type(error).__name__} {error}") from error
