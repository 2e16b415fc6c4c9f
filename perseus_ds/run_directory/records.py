"""Records that a job leaves in its run directory, each with its reader and its writer.

`RankPlace` (``places.json``), `RankRecord` (``ranks/rank_00000.json``), `Summary` (``summary.json``) and
`RecordedIteration` (``timelines.json``). Readers ignore keys that they do not know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
)

from perseus_ds.errors import PerseusError
from perseus_ds.files import MOST
from perseus_ds.run_directory.paths import read_json_as, write_json
from perseus_ds.schedule import Instruction

_MOST_WORD = 40
_ROUNDING = 1e-6


def _one_line(text: str) -> str:
    """Refuse what a reader could not print."""
    if not text.isprintable():
        raise ValueError("expected text of one line")
    return text


def _instruction(text: object) -> Instruction:
    if not isinstance(text, str) or len(text) > _MOST_WORD:
        raise ValueError("expected an instruction like 0F0")
    try:
        return Instruction.parse(text)
    except PerseusError as error:
        raise ValueError(error.message) from error


Line = Annotated[str, Field(max_length=4096), AfterValidator(_one_line)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Number = Annotated[float, Field(ge=0.0, le=MOST)]
Positive = Annotated[float, Field(gt=0.0, le=MOST)]
Celsius = Annotated[float, Field(ge=0.0, le=1000.0)]
Rank = Annotated[int, Field(ge=0, lt=2**31)]
_REMEDY = "the job writes it anew"


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A rank: its pipeline (data-parallel replica, as announced), its rank in that, its host and GPU."""

    pipeline: Rank
    pipeline_rank: Rank
    host: Line
    gpu: Line


@dataclass(frozen=True, slots=True)
class _Places:
    ranks: list[RankPlace]


def write_places(places: Sequence[RankPlace], path: Path) -> None:
    """Write the places of all ranks, in the order of ranks."""
    write_json(path, {"ranks": [asdict(place) for place in places]})


def read_places(path: Path) -> list[RankPlace]:
    """Read what ``write_places`` wrote."""
    return read_json_as(path, _Places, remedy=_REMEDY).ranks


SIDES = ("baseline", "perseus")


@dataclass(frozen=True, slots=True)
class RankSide:
    """A side's means, of one GPU; no iterations: not measured."""

    iterations: Count
    iteration_time_s: Number
    energy_j: Number


@dataclass(frozen=True, slots=True)
class _Requests:
    """Changes of a clock that reached the GPU, the late ones of these, and those that were overtaken."""

    changes: Count = 0
    late: Count = 0
    overtaken: Count = 0

    @property
    def missed(self) -> int:
        return self.late + self.overtaken


@dataclass(frozen=True, slots=True)
class RankRecord:
    """A rank's own measurements, by side.

    ``run`` names the run that wrote it, empty in files of older versions. ``temperature_c`` is a mean, where
    a sensor was read. ``totals``, and the rank's place, are missing where nothing was measured.
    """

    rank: Rank
    stage: Rank = 0
    replica: Rank = 0
    totals: Mapping[str, RankSide] = field(default_factory=dict)
    clock_requests: _Requests = _Requests()
    run: str = ""
    temperature_c: Mapping[str, Celsius | None] = field(default_factory=dict)


def read_ranks(folder: Path) -> list[RankRecord]:
    """Read every rank's file that has totals, by rank; empty if no file has them."""
    found = [read_json_as(path, RankRecord, remedy=_REMEDY) for path in sorted(folder.glob("rank_*.json"))]
    return [one for one in found if one.totals.keys() >= set(SIDES)]


@dataclass(frozen=True, slots=True)
class MeasuredSide:
    """Iterations of one side, each from its first instruction to its last.

    Duration and energy (of all GPUs of the job) are means of the middle half. They have standard errors (None
    where too few were measured to show) and degrees of freedom. ``time_freedom`` is the duration's, where it
    differs from the energy's.
    """

    iteration_time_s: Positive
    energy_j: Positive
    iterations: Annotated[int, Field(ge=1)]
    iteration_time_se_s: Number | None = None
    energy_se_j: Number | None = None
    freedom: Number = 0
    time_freedom: Number = 0


@dataclass(frozen=True, slots=True)
class Spent:
    """Time and energy between iterations (checkpoints, evaluations, sampling); all GPUs together."""

    time_s: Number = 0.0
    energy_j: Number = 0.0


_Size = Annotated[int, Field(ge=0, le=10**7)]


class _Facts(BaseModel):
    """Facts that a report computes with or prints, in their ranges; others are kept as they are."""

    model_config = ConfigDict(extra="allow")
    gpu: Line | None = None
    gpus: Annotated[_Size, Field(ge=1)] | None = None
    ranks: Annotated[_Size, Field(ge=1)] | None = None
    stages: Annotated[_Size, Field(ge=1)] | None = None
    microbatches: Annotated[_Size, Field(ge=1)] | None = None
    plan: _Size | None = None
    predicted_saving_within_pct: Number | None = None
    predicted_slowdown_pct: Annotated[float, Field(ge=-100.0, le=MOST)] | None = None
    predicted_slowdown_within_pct: Number | None = None


@dataclass(frozen=True, slots=True)
class _CheckedFacts:
    measured: Literal[True] = True
    facts: _Facts = field(default_factory=_Facts)


_Mean = tuple[float, float | None, float]
"""A mean, its standard error, and its degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Saving of the job, measured side by side: blocks of audit iterations against blocks at the plan.

    ``predicted_*`` is what was expected, kept beside the measurement and never in its place.
    ``facts`` holds what a reader wants beside it (GPU, stages, plan, gap, host cost of an instruction).
    """

    baseline: MeasuredSide
    perseus: MeasuredSide
    simulated: bool
    predicted_saving_pct: Annotated[float, Field(ge=-MOST, le=100.0)]
    facts: Mapping[str, object] = field(default_factory=dict)
    outside: Spent = field(default_factory=Spent)

    @property
    def saving_pct(self) -> float:
        """Energy saved per iteration."""
        return 100.0 * (1.0 - self.perseus.energy_j / self.baseline.energy_j)

    @property
    def slowdown_pct(self) -> float:
        """Return how much longer an iteration takes."""
        return 100.0 * (self.perseus.iteration_time_s / self.baseline.iteration_time_s - 1.0)

    # Standard errors, and halves of the intervals that hold the true values 95 times in 100: in points, None
    # where they are not known.

    @property
    def saving_se_pct(self) -> float | None:
        return _ratio_se_pct(*self._energies)

    @property
    def slowdown_se_pct(self) -> float | None:
        return _ratio_se_pct(*self._times)

    @property
    def saving_within_pct(self) -> float | None:
        return _within_pct(*self._energies)

    @property
    def slowdown_within_pct(self) -> float | None:
        return _within_pct(*self._times)

    @property
    def _energies(self) -> tuple[_Mean, _Mean]:
        one, other = (
            (side.energy_j, side.energy_se_j, side.freedom) for side in (self.baseline, self.perseus)
        )
        return one, other

    @property
    def _times(self) -> tuple[_Mean, _Mean]:
        one, other = (
            (side.iteration_time_s, side.iteration_time_se_s, side.time_freedom or side.freedom)
            for side in (self.baseline, self.perseus)
        )
        return one, other


def _ratio_se_pct(one: _Mean, other: _Mean) -> float | None:
    if one[1] is None or other[1] is None:
        return None
    return 100.0 * other[0] / one[0] * math.hypot(one[1] / one[0], other[1] / other[0])


def _within_pct(one: _Mean, other: _Mean) -> float | None:
    """Multiply the error by Student's quantile for both sides together (Welch and Satterthwaite)."""
    from scipy.special import stdtrit  # noqa: PLC0415  # heavy, and seldom asked for

    if (se_pct := _ratio_se_pct(one, other)) is None:
        return None
    shares = [((error or 0.0) / mean, freedom) for mean, error, freedom in (one, other)]
    below = sum(share**4 / max(1.0, freedom) for share, freedom in shares)
    freedom = sum(share**2 for share, _ in shares) ** 2 / below if below else one[2]
    return float(stdtrit(max(1.0, freedom), 0.975)) * se_pct


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
    """Read what ``write_summary`` wrote."""
    remedy = "the job has not measured its plan yet"
    read_json_as(path, _CheckedFacts, remedy=remedy)
    return read_json_as(path, Summary, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Span:
    """An instruction's place on the time axis; start counted from the iteration's first instruction.

    ``clock_mhz`` is what was asked for, ``power_w`` the measured mean power of that computation there;
    both None for what no clock changes.
    """

    instruction: Annotated[Instruction, PlainValidator(_instruction), PlainSerializer(str)]
    start_s: Number
    duration_s: Number
    clock_mhz: Annotated[int, Field(ge=1, le=100_000)] | None
    power_w: Number | None


@dataclass(frozen=True, slots=True)
class RecordedIteration:
    """All ranks of one pipeline over one iteration.

    ``name`` is ``baseline`` or ``perseus``; ``blocking_power_w`` colours the gaps between the spans.

    Shape: ``rank_of_stage`` [model stages]; empty where every stage has a rank of its own.
    """

    name: Line
    iteration_time_s: Annotated[float, Field(ge=1e-9, le=MOST)]
    blocking_power_w: Number
    simulated: bool
    spans: tuple[Span, ...]
    rank_of_stage: tuple[Rank, ...] = ()

    def rank_of(self, instruction: Instruction) -> int:
        """The rank that ran an instruction."""
        return self.rank_of_stage[instruction.stage] if self.rank_of_stage else instruction.stage


def write_timelines(timelines: Sequence[RecordedIteration], path: Path) -> None:
    """Write all timelines to one file."""
    write_json(path, TypeAdapter(list[RecordedIteration]).dump_python(list(timelines), mode="json"))


def read_timelines(path: Path) -> list[RecordedIteration]:
    """Read what ``write_timelines`` wrote; names are different, and spans lie within their iteration."""
    found = read_json_as(path, list[RecordedIteration], remedy=_REMEDY)
    why_not = next(filter(None, map(_why_inconsistent, found)), "")
    if not found or len({one.name for one in found}) < len(found):
        why_not = "it holds none, or two of one name"
    if why_not:
        raise PerseusError(f"{path} is not a list of timelines: {why_not}")
    return found


def _why_inconsistent(timeline: RecordedIteration) -> str:
    """Name a span that is there twice, ends after its iteration, or whose stage has no rank."""
    if len({span.instruction for span in timeline.spans}) < len(timeline.spans):
        return "spans has an instruction twice"
    end_s, ranks = timeline.iteration_time_s * (1.0 + _ROUNDING), len(timeline.rank_of_stage)
    for span in timeline.spans:
        if span.start_s + span.duration_s > end_s:
            return f"{span.instruction} ends after its iteration"
        if ranks and span.instruction.stage >= ranks:
            return f"{span.instruction} is of a stage that rank_of_stage does not name"
    return ""
