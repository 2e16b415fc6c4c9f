"""What one rank measured: ``ranks/rank_00000.json``, as the report's table and courses need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import read_json
from perseus_ds.files.fields import MOST, MOST_COUNT, Content, listed, mapping, real, whole, within

SIDES = ("baseline", "perseus")
_MOST_BYTES = 16 << 20
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
        content = mapping(read_json(path, most_bytes=_MOST_BYTES), "it")
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
