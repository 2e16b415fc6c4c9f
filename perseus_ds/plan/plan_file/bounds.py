"""How large the parts of a plan file may be: asked before any work is done with them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PerseusError
from perseus_ds.plan.options import Segment
from perseus_ds.schedule import Instruction

MOST_BYTES = 32 << 20
MOST_INSTRUCTIONS = 400_000
MOST_INFLATED_BYTES = 64 << 20  # 100 000 computations x 640 plans
MOST_MHZ = 100_000
MOST_SEGMENTS = 1_000_000  # of one computation
MOST_MEMORY_CLOCKS = 1000
MOST = 1e12  # seconds, joules, watts: the sums of what is more are not finite


def parsed_orders(orders: Sequence[str]) -> tuple[tuple[Instruction, ...], ...]:
    """Parse the stages' orders.

    Raises:
        PerseusError: too many instructions, or a text that is not an instruction.
    """
    if not isinstance(orders, list) or not all(isinstance(order, str) for order in orders):
        raise PerseusError("orders is no list of texts")
    count = sum(order.count(" ") + 1 for order in orders)
    if count > MOST_INSTRUCTIONS:
        raise PerseusError(f"{count} instructions, {MOST_INSTRUCTIONS} are allowed")
    return tuple(tuple(map(Instruction.parse, order.split(" ") if order else ())) for order in orders)


def reals(content: Mapping[str, object], key: str, *, least: float = -MOST) -> NDArray[np.float64]:
    """Return a column of finite numbers.

    Raises:
        PerseusError: naming the key.
    """
    values = _numbers(content, key)
    column = np.array(values, np.float64)
    _check_range(column, key, least, MOST)
    return column


def clocks_mhz(content: Mapping[str, object], key: str) -> NDArray[np.int64]:
    """Return a column of clocks.

    Raises:
        PerseusError: naming the key.
    """
    values = _numbers(content, key)
    column = np.array(values, np.float64)
    _check_range(column, key, 1, MOST_MHZ)
    if any(isinstance(value, float) for value in values):
        raise PerseusError(f"{key} has a clock that is no whole number of MHz")
    return np.array(values, np.int64)


def timelines_of(content: Mapping[str, object]) -> tuple[tuple[Segment, ...], ...]:
    """Return the timelines of one computation; none where the file names none.

    Raises:
        PerseusError: one that is no list of core clock, memory clock or null, and seconds.
    """
    lines = content.get("timelines", [])
    if not isinstance(lines, list) or not all(isinstance(line, list) and line for line in lines):
        raise PerseusError("timelines is no list of lists")
    if sum(map(len, lines)) > MOST_SEGMENTS:
        raise PerseusError(f"timelines of {sum(map(len, lines))} segments, {MOST_SEGMENTS} are allowed")
    return tuple(tuple(map(_segment, line)) for line in lines)


def spared_of(content: Mapping[str, object]) -> dict[int, float]:
    """Return what waiting spares by memory clock; nothing where the file states nothing.

    Raises:
        PerseusError: not a list of (MHz, watts).
    """
    rows = content.get("spared_w", [])
    if not isinstance(rows, list) or len(rows) > MOST_MEMORY_CLOCKS:
        raise PerseusError("spared_w is no list of memory clocks")
    found = {}
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:  # noqa: PLR2004  # MHz and watts
            raise PerseusError("spared_w has a row that is not memory clock and watts")
        memory_mhz, watts = row
        if not (type(memory_mhz) is int and 1 <= memory_mhz <= MOST_MHZ):
            raise PerseusError(f"spared_w has a clock of {memory_mhz!r:.40}, expected whole MHz")
        if type(watts) not in {int, float} or not 0.0 <= watts <= MOST:
            raise PerseusError(f"spared_w has {watts!r:.40} W, expected 0 or more")
        found[memory_mhz] = float(watts)
    return found


def _segment(row: object) -> Segment:
    if not isinstance(row, list) or len(row) != len(Segment._fields):
        raise PerseusError("timelines has a segment that is not core clock, memory clock and seconds")
    for clock in row[:2]:
        if clock is not None and not (type(clock) is int and 1 <= clock <= MOST_MHZ):
            raise PerseusError(f"timelines has a clock of {clock!r:.40}, expected whole MHz")
    clock_mhz, memory_mhz, duration_s = row
    if clock_mhz is None or type(duration_s) not in {int, float} or not 0.0 < duration_s <= MOST:
        raise PerseusError("timelines has a segment without a core clock or without a duration above 0")
    return Segment(clock_mhz, memory_mhz, float(duration_s))


def inflated(
    packed: bytes, shape: Sequence[int], dtype: np.dtype[np.uint8] | np.dtype[np.uint16]
) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Inflate what must have this shape, and not a byte more.

    Raises:
        PerseusError: the shape is too large, or not that of the data.
        zlib.error: the data is damaged.
    """
    if not isinstance(shape, list) or any(type(length) is not int or length < 0 for length in shape):
        raise PerseusError("shape is no list of lengths")
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > MOST_INFLATED_BYTES:
        raise PerseusError(f"choices of {wanted} bytes, {MOST_INFLATED_BYTES} are allowed")
    raw = zlib.decompressobj().decompress(packed, wanted + 1)
    if len(raw) != wanted:
        raise PerseusError(f"choices that are not {'x'.join(map(str, shape))}")
    return cast("NDArray[np.uint8]", np.frombuffer(raw, dtype).reshape(shape))


def _numbers(content: Mapping[str, object], key: str) -> list[int | float]:
    values = content[key]
    if not isinstance(values, list) or any(type(value) not in {int, float} for value in values):
        raise PerseusError(f"{key} is no list of numbers")
    return values


def _check_range(column: NDArray[np.float64], key: str, least: float, most: float) -> None:
    wrong = ~((column >= least) & (column <= most))
    if wrong.any():
        raise PerseusError(f"{key} has {column[wrong][0]:g}, expected {least:g} to {most:g}")
