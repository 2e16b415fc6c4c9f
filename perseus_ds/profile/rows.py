"""One row of a file for each computation, and for each point of it."""

from __future__ import annotations

from dataclasses import asdict

from perseus_ds.errors import PerseusError
from perseus_ds.files import Content, line, record, whole
from perseus_ds.profile.record import MOST_STAGES, Computation, Point
from perseus_ds.schedule import Kind

OF_KEY = ("stage", "kind")
_KINDS = {kind.value: kind for kind in Kind}
_MOST_WORD = 40


def computation_row(key: Computation) -> dict[str, object]:
    """Write which computation a row is of."""
    return {"stage": key[0], "kind": key[1].value}


def point_row(point: Point) -> dict[str, object]:
    """Write a point; a temperature that nobody read is left out."""
    row = asdict(point)
    if point.temperature_c is None:
        del row["temperature_c"]
    return row


def key_of(row: Content) -> Computation:
    """Read which computation a row is of.

    Raises:
        PerseusError: there is no such one.
    """
    stage, kind = whole(row, "stage", least=0, most=MOST_STAGES - 1), line(row, "kind", most=_MOST_WORD)
    if kind not in _KINDS:
        raise PerseusError(f"kind is {kind!r}", hint=f"one of {' '.join(_KINDS)}")
    return stage, _KINDS[kind]


def point_of(row: Content) -> tuple[Computation, Point]:
    """Read a point, and of which computation it is.

    Raises:
        PerseusError: naming the key.
    """
    return key_of(row), record(Point, {key: value for key, value in row.items() if key not in OF_KEY})
