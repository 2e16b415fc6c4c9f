"""Where every rank of a job is: its pipeline, its place in it, its host and its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perseus_ds.errors import PerseusError
from perseus_ds.files import read_json, reason_of
from perseus_ds.files.fields import Content, line, mapping, rows, whole
from perseus_ds.run_directory.whole_file import write_json

_MOST_BYTES = 64 << 20
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
        content = mapping(read_json(path, most_bytes=_MOST_BYTES), "it")
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
