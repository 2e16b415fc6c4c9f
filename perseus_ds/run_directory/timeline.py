"""One iteration, instruction by instruction: ``timelines.json`` holds the one before and the one after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import read_json
from perseus_ds.files.fields import MOST, Content, flag, line, listed, real, real_or_none, rows, whole
from perseus_ds.run_directory.whole_file import write_json
from perseus_ds.schedule import Instruction

_MOST_BYTES = 128 << 20
_MOST_VALUES = 3_000_000  # 200 000 instructions in each of two iterations
_MOST_WORD = 40
_MOST_MHZ = 100_000
_MOST_RANKS = 1 << 20
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
        content = read_json(path, most_bytes=_MOST_BYTES, most_values=_MOST_VALUES)
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
