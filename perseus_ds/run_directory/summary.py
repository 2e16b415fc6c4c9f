"""Baseline against plan, as measured in the job: ``summary.json``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import read_json
from perseus_ds.files.fields import MOST, Content, flag, line, mapping, real, record, within
from perseus_ds.run_directory.whole_file import write_json

_MOST_BYTES = 4 << 20
_FACTS = {
    "gpus": (1, 1e7),
    "ranks": (1, 1e7),
    "stages": (1, 1e7),
    "microbatches": (1, 1e7),
    "plan": (0, 1e7),
    "predicted_saving_within_pct": (0, MOST),
    "predicted_slowdown_pct": (-100, MOST),
    "predicted_slowdown_within_pct": (0, MOST),
}
"""Facts that a report computes with, and their ranges."""


@dataclass(frozen=True, slots=True)
class MeasuredSide:
    """Iterations of one side, each from its first instruction to its last.

    Duration and energy (of all GPUs of the job) are means of the middle half. They have standard errors (None
    where too few were measured to show) and degrees of freedom. ``time_freedom`` is the duration's, where it
    differs from the energy's.
    """

    iteration_time_s: float
    energy_j: float
    iterations: int
    iteration_time_se_s: float | None = None
    energy_se_j: float | None = None
    freedom: float = 0
    time_freedom: float = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """What the job took between its iterations: checkpoints, evaluations, sampling; all GPUs together."""

    time_s: float = 0.0
    energy_j: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What the job saved, measured side by side: blocks of audit iterations against blocks at the plan.

    ``predicted_*`` is what was expected, kept beside the measurement and never in its place.
    ``facts`` holds what a reader wants beside it (GPU, stages, plan, gap, host cost of an instruction).
    """

    baseline: MeasuredSide
    perseus: MeasuredSide
    simulated: bool
    predicted_saving_pct: float
    facts: Mapping[str, object] = field(default_factory=dict)
    outside: Spent = field(default_factory=Spent)

    @property
    def saving_pct(self) -> float:
        """Energy saved per iteration."""
        return 100.0 * (1.0 - self.perseus.energy_j / self.baseline.energy_j)

    @property
    def slowdown_pct(self) -> float:
        """How much longer an iteration takes."""
        return 100.0 * (self.perseus.iteration_time_s / self.baseline.iteration_time_s - 1.0)

    @property
    def saving_se_pct(self) -> float | None:
        """The standard error of the saving, in points; None where it is not known."""
        return _ratio_se_pct(
            (self.baseline.energy_j, self.baseline.energy_se_j),
            (self.perseus.energy_j, self.perseus.energy_se_j),
        )

    @property
    def slowdown_se_pct(self) -> float | None:
        """The standard error of the slowdown, in points; None where it is not known."""
        return _ratio_se_pct(
            (self.baseline.iteration_time_s, self.baseline.iteration_time_se_s),
            (self.perseus.iteration_time_s, self.perseus.iteration_time_se_s),
        )

    @property
    def saving_within_pct(self) -> float | None:
        """Half of the interval that holds the true saving 95 times in 100, in points."""
        se_pct = self.saving_se_pct
        if se_pct is None:
            return None
        sides = self.baseline, self.perseus
        shares = [(side.energy_se_j or 0.0) / side.energy_j for side in sides]
        return _quantile(shares, [side.freedom for side in sides]) * se_pct

    @property
    def slowdown_within_pct(self) -> float | None:
        """Half of the interval that holds the true slowdown 95 times in 100, in points."""
        se_pct = self.slowdown_se_pct
        if se_pct is None:
            return None
        sides = self.baseline, self.perseus
        shares = [(side.iteration_time_se_s or 0.0) / side.iteration_time_s for side in sides]
        return _quantile(shares, [side.time_freedom or side.freedom for side in sides]) * se_pct


def _quantile(shares: Sequence[float], freedoms: Sequence[float]) -> float:
    """Of Student's distribution, for the errors of both sides together (Welch and Satterthwaite)."""
    from scipy.special import stdtrit  # noqa: PLC0415  # heavy, and seldom asked for

    below = sum(share**4 / max(1.0, freedom) for share, freedom in zip(shares, freedoms, strict=True))
    freedom = sum(share**2 for share in shares) ** 2 / below if below else freedoms[0]
    return float(stdtrit(max(1.0, freedom), 0.975))


def _ratio_se_pct(first: tuple[float, float | None], second: tuple[float, float | None]) -> float | None:
    (one, one_se), (other, other_se) = first, second
    if one_se is None or other_se is None:
        return None
    return 100.0 * other / one * math.hypot(one_se / one, other_se / other)


def write_summary(summary: Summary, path: Path) -> None:
    """Write the contract's keys first, then ours."""
    content = asdict(summary)
    ordered = {
        "baseline": content.pop("baseline"),
        "perseus": content.pop("perseus"),
        "saving_pct": summary.saving_pct,
        "saving_se_pct": summary.saving_se_pct,
        "slowdown_pct": summary.slowdown_pct,
        "slowdown_se_pct": summary.slowdown_se_pct,
        "measured": True,
    }
    write_json(path, ordered | content)


def read_summary(path: Path) -> Summary:
    """Read what ``write_summary`` wrote.

    Raises:
        PerseusError: naming the file and what is wrong in it.
    """
    try:
        content = read_json(path, most_bytes=_MOST_BYTES)
        return _summary(mapping(content, "it"))
    except OSError as error:
        raise PerseusError(
            f"{path}: {error.strerror}", hint="the job has not measured its plan yet"
        ) from error
    except PerseusError as error:
        raise PerseusError(f"{path} is not a summary: {error.message}", hint=error.hint) from error


def _summary(content: Content) -> Summary:
    if not flag({"measured": True, **content}, "measured"):
        raise PerseusError("measured is False", hint="only what was measured stands in a summary")
    baseline, perseus = (_measured(content, side) for side in ("baseline", "perseus"))
    facts = mapping({"facts": {}, **content}["facts"], "facts")
    within("facts", _check_facts, facts)
    return Summary(
        baseline=baseline,
        perseus=perseus,
        simulated=flag(content, "simulated"),
        predicted_saving_pct=real(content, "predicted_saving_pct", least=-MOST, most=100.0),
        outside=within("outside", record, Spent, mapping(content.get("outside", {}), "outside")),
        facts=dict(facts),
    )


def _measured(content: Content, side: str) -> MeasuredSide:
    found: MeasuredSide = within(side, record, MeasuredSide, mapping(content.get(side), side))
    for key in ("iteration_time_s", "energy_j", "iterations"):
        if not getattr(found, key) > 0:
            raise PerseusError(f"{side}.{key} is {getattr(found, key)}", hint="expected a number above 0")
    return found


def _check_facts(facts: Content) -> None:
    """Refuse a fact that a report would compute with or print, and could not."""
    for key, value in facts.items():
        if key in _FACTS and value is not None:
            least, most = _FACTS[key]
            real(facts, key, least=least, most=most)
    if "gpu" in facts:
        line(facts, "gpu")
