"""Where every rank of a job is: its pipeline, its place in it, its host and its GPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import (
    MOST,
    MOST_COUNT,
    Content,
    flag,
    line,
    listed,
    mapping,
    read_json,
    real,
    real_or_none,
    reason_of,
    record,
    rows,
    whole,
    within,
)
from perseus_ds.run_directory.paths import write_json
from perseus_ds.schedule import Instruction

_MOST_PLACES_BYTES = 64 << 20
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RankPlace:
    """One rank: its pipeline (data-parallel replica, as announced), its rank in that, its host and GPU."""

    pipeline: int
    pipeline_rank: int
    host: str
    gpu: str


def write_places(places: Sequence[RankPlace], path: Path) -> None:
    """Write the places of all ranks, in the order of ranks."""
    write_json(path, {"ranks": [asdict(place) for place in places]})


def read_places(path: Path) -> list[RankPlace]:
    """Read what ``write_places`` wrote.

    Raises:
        PerseusError: naming the file, and the row and key that are wrong.
    """
    try:
        content = mapping(read_json(path, most_bytes=_MOST_PLACES_BYTES), "it")
        return list(rows(content.get("ranks"), "ranks", _place))
    except (OSError, PerseusError) as error:
        raise PerseusError(f"{path} {reason_of(error)}") from error


def _place(row: Content) -> RankPlace:
    return RankPlace(
        whole(row, "pipeline", least=0, most=_MOST),
        whole(row, "pipeline_rank", least=0, most=_MOST),
        line(row, "host"),
        line(row, "gpu"),
    )


# What one rank measured: ``ranks/rank_00000.json``, as the report's table and courses need it.

SIDES = ("baseline", "perseus")
_MOST_RANK_BYTES = 16 << 20
_MOST_RANKS = 1 << 20
_MOST_C = 1000.0
_ROW = ("first", "time_s", "energy_j")


@dataclass(frozen=True, slots=True)
class CourseRow:
    """Neighbouring iterations of one side: the index of the first, and the means of one iteration."""

    first: int
    time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class RankSide:
    """One side's means, of one GPU; no iterations: not measured."""

    iterations: int
    iteration_time_s: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class RankRecord:
    """One rank's own measurements.

    ``changes`` of its clock reached the GPU; of them and of the ``overtaken`` ones, ``missed`` missed their
    moment. ``run`` names the run that wrote it, empty in files of older versions. ``temperature_c`` is the
    mean of either side, where a sensor was read.
    """

    rank: int
    stage: int
    replica: int
    sides: Mapping[str, RankSide]
    course: Mapping[str, tuple[CourseRow, ...]]
    changes: int
    missed: int
    run: str = ""
    temperature_c: Mapping[str, float] = field(default_factory=dict)


def read_ranks(folder: Path) -> list[RankRecord]:
    """Read every rank's file that has totals, by rank; empty if no file has them.

    Raises:
        PerseusError: naming the file and what is wrong in it.
    """
    return [one for path in sorted(folder.glob("rank_*.json")) if (one := _read(path)) is not None]


def _read(path: Path) -> RankRecord | None:
    try:
        content = mapping(read_json(path, most_bytes=_MOST_RANK_BYTES), "it")
        return _record(content) if "totals" in content else None
    except OSError as error:
        raise PerseusError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise PerseusError(f"{path} is not a rank's file: {error.message}", hint=error.hint) from error


def _record(content: Content) -> RankRecord:
    totals = mapping(content["totals"], "totals")
    course = mapping(content.get("course", {}), "course")
    requests = mapping(content.get("clock_requests", {}), "clock_requests")
    changes, late, overtaken = (
        whole({key: 0, **requests}, key, least=0, most=MOST_COUNT) for key in ("changes", "late", "overtaken")
    )
    return RankRecord(
        rank=whole(content, "rank", least=0, most=_MOST_RANKS),
        stage=whole(content, "stage", least=0, most=_MOST_RANKS),
        replica=whole(content, "replica", least=0, most=_MOST_RANKS),
        sides={side: within(side, _side, mapping(totals.get(side), side)) for side in SIDES},
        course={side: _course(course.get(side, []), side) for side in SIDES},
        changes=changes,
        missed=late + overtaken,
        run=str(content.get("run", "")),
        temperature_c=within(
            "temperature_c", _temperatures, mapping(content.get("temperature_c", {}), "temperature_c")
        ),
    )


def _temperatures(content: Content) -> dict[str, float]:
    return {side: real(content, side, least=0, most=_MOST_C) for side in SIDES if side in content}


def _side(content: Content) -> RankSide:
    return RankSide(
        iterations=whole(content, "iterations", least=0, most=MOST_COUNT),
        iteration_time_s=real(content, "iteration_time_s", least=0, most=MOST),
        energy_j=real(content, "energy_j", least=0, most=MOST),
    )


def _course(value: object, side: str) -> tuple[CourseRow, ...]:
    return tuple(within(side, _course_row, listed(row, "a row")) for row in listed(value, side))


def _course_row(row: object) -> CourseRow:
    found = listed(row, "a row")
    if len(found) != len(_ROW):
        raise PerseusError(f"a row has {len(found)} values", hint="expected first iteration, s, J")
    content = dict(zip(_ROW, found, strict=True))
    return CourseRow(
        first=whole(content, "first", least=0, most=MOST_COUNT),
        time_s=real(content, "time_s", least=0, most=MOST),
        energy_j=real(content, "energy_j", least=0, most=MOST),
    )


# Baseline against plan, as measured in the job: ``summary.json``.

_MOST_SUMMARY_BYTES = 4 << 20
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
        content = read_json(path, most_bytes=_MOST_SUMMARY_BYTES)
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


# One iteration, instruction by instruction: ``timelines.json`` holds the one before and the one after.

_MOST_TIMELINES_BYTES = 128 << 20
_MOST_VALUES = 3_000_000  # 200 000 instructions in each of two iterations
_MOST_WORD = 40
_MOST_MHZ = 100_000
_LEAST_S = 1e-9
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Span:
    """One instruction's place on the time axis; start counted from the iteration's first instruction.

    ``clock_mhz`` is what was asked for, ``power_w`` the measured mean power of that computation there;
    both None for what no clock changes.
    """

    instruction: Instruction
    start_s: float
    duration_s: float
    clock_mhz: int | None
    power_w: float | None


@dataclass(frozen=True, slots=True)
class RecordedIteration:
    """All ranks of one pipeline over one iteration.

    ``name`` is ``baseline`` or ``perseus``; ``blocking_power_w`` colours the gaps between the spans.

    Shape: ``rank_of_stage`` [model stages]; empty where every stage has a rank of its own.
    """

    name: str
    iteration_time_s: float
    blocking_power_w: float
    simulated: bool
    spans: tuple[Span, ...]
    rank_of_stage: tuple[int, ...] = ()

    def rank_of(self, instruction: Instruction) -> int:
        """The rank that ran an instruction."""
        return self.rank_of_stage[instruction.stage] if self.rank_of_stage else instruction.stage


def write_timelines(timelines: Sequence[RecordedIteration], path: Path) -> None:
    """Write all timelines to one file."""
    write_json(path, [asdict(t) | {"spans": [_row(span) for span in t.spans]} for t in timelines])


def read_timelines(path: Path) -> list[RecordedIteration]:
    """Read what ``write_timelines`` wrote.

    Raises:
        PerseusError: naming the file and what is wrong in it.
    """
    try:
        content = read_json(path, most_bytes=_MOST_TIMELINES_BYTES, most_values=_MOST_VALUES)
        found = list(rows(content, "timelines", _timeline))
    except OSError as error:
        raise PerseusError(f"{path}: {error.strerror}") from error
    except PerseusError as error:
        raise PerseusError(f"{path} is not a list of timelines: {error.message}", hint=error.hint) from error
    if not found or len({one.name for one in found}) < len(found):
        raise PerseusError(f"{path} is not a list of timelines: it holds none, or two of one name")
    return found


def _timeline(row: Content) -> RecordedIteration:
    iteration_time_s = real(row, "iteration_time_s", least=_LEAST_S, most=MOST)
    timeline = RecordedIteration(
        name=line(row, "name", most=100),
        iteration_time_s=iteration_time_s,
        blocking_power_w=real(row, "blocking_power_w", least=0, most=MOST),
        simulated=flag(row, "simulated"),
        spans=tuple(rows(row.get("spans"), "spans", _span)),
        rank_of_stage=_ranks(row.get("rank_of_stage", [])),
    )
    for span in timeline.spans:
        _check_place(span, timeline)
    if len({span.instruction for span in timeline.spans}) < len(timeline.spans):
        raise PerseusError("spans has an instruction twice")
    return timeline


def _check_place(span: Span, timeline: RecordedIteration) -> None:
    """Refuse a span that ends after its iteration, or whose stage has no rank."""
    if span.start_s + span.duration_s > timeline.iteration_time_s * (1.0 + _ROUNDING):
        raise PerseusError(f"{span.instruction} ends after its iteration")
    if timeline.rank_of_stage and span.instruction.stage >= len(timeline.rank_of_stage):
        raise PerseusError(f"{span.instruction} is of a stage that rank_of_stage does not name")


def _ranks(value: object) -> tuple[int, ...]:
    ranks = listed(value, "rank_of_stage")
    found = [whole({"rank_of_stage": rank}, "rank_of_stage", least=0, most=_MOST_RANKS) for rank in ranks]
    return tuple(found)


def _row(span: Span) -> dict[str, object]:
    return asdict(span) | {"instruction": str(span.instruction)}


def _span(row: Content) -> Span:
    clock_mhz = None
    if row.get("clock_mhz") is not None:
        clock_mhz = whole(row, "clock_mhz", least=1, most=_MOST_MHZ)
    return Span(
        Instruction.parse(line(row, "instruction", most=_MOST_WORD)),
        start_s=real(row, "start_s", least=0, most=MOST),
        duration_s=real(row, "duration_s", least=0, most=MOST),
        clock_mhz=clock_mhz,
        power_w=real_or_none(row, "power_w", least=0, most=MOST),
    )
