"""One iteration, instruction by instruction: ``timelines.json`` holds the one before and the one after."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perseus_ds.errors import PerseusError, ScheduleError
from perseus_ds.run_directory.whole_file import write_json
from perseus_ds.schedule import Instruction


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
class Timeline:
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


def write_timelines(timelines: Sequence[Timeline], path: Path) -> None:
    """Write all timelines to one file."""
    write_json(path, [asdict(t) | {"spans": [_row(span) for span in t.spans]} for t in timelines])


_NO_TIMELINE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    RecursionError,
    ScheduleError,
)


def read_timelines(path: Path) -> list[Timeline]:
    """Read what ``write_timelines`` wrote.

    Raises:
        PerseusError: naming the file and what is wrong in it.
    """
    try:
        content = json.loads(path.read_text())
        if not (isinstance(content, list) and content):
            raise TypeError("it holds no timeline")
        return [_timeline(row) for row in content]
    except OSError as error:
        raise PerseusError(f"{path}: {error.strerror}") from error
    except _NO_TIMELINE as error:
        raise PerseusError(f"{path} is not a list of timelines: {type(error).__name__} {error}") from error


def _timeline(row: dict[str, Any]) -> Timeline:
    ranks = tuple(int(rank) for rank in row.get("rank_of_stage", ()))
    timeline = Timeline(**row | {"spans": tuple(map(_span, row["spans"])), "rank_of_stage": ranks})
    for span in timeline.spans:
        timeline.rank_of(span.instruction)
    return timeline


def _row(span: Span) -> dict[str, object]:
    return asdict(span) | {"instruction": str(span.instruction)}


def _span(row: dict[str, object]) -> Span:
    return Span(**row | {"instruction": Instruction.parse(str(row["instruction"]))})  # type: ignore[arg-type]
