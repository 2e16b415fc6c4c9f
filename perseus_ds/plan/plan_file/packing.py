"""Matrices and vectors of a plan file as text: differences, compressed, in base 85."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PerseusError
from perseus_ds.files.fields import whole
from perseus_ds.plan.plan_file.bounds import MOST_INFLATED_BYTES, inflated
from perseus_ds.plan.splits import Splits
from perseus_ds.plan.waits import Waits
from perseus_ds.solver import GRAIN

Choice = NDArray[np.uint8] | NDArray[np.uint16]
_DIFFERENCES, _GRAINS = "zlib_b85_row_differences", "share_in_2_to_minus_20"


def pack_matrix(choice: Choice) -> dict[str, object]:
    """Neighbouring plans differ in few places: store differences from row to row."""
    little = choice.astype(choice.dtype.newbyteorder("<"))
    first = np.zeros((1, choice.shape[1]), little.dtype)
    steps = np.diff(little, axis=0, prepend=first)
    return {"dtype": choice.dtype.name, "shape": list(choice.shape), _DIFFERENCES: _text(steps)}


def unpack_matrix(packed: Mapping[str, object]) -> Choice:
    """Read back what ``pack_matrix`` wrote.

    Raises:
        PerseusError: another type or shape.
        zlib.error: damaged data.
    """
    name, shape = str(packed["dtype"]), cast("list[int]", packed["shape"])
    if name not in {"uint8", "uint16"}:
        raise PerseusError(f"choice is of type {name!r:.20}")
    dtype = np.dtype(name).newbyteorder("<")
    steps = inflated(base64.b85decode(cast("str", packed[_DIFFERENCES])), shape, dtype)
    return cast("NDArray[np.uint8]", np.cumsum(steps, axis=0, dtype=dtype.newbyteorder("=")))


def pack_splits(splits: Splits, plans: int) -> dict[str, object]:
    """Keep where the splits stand as steps from one to the next, shares as whole grains."""
    return {
        "count": len(splits),
        "steps": _steps(splits.column, splits.plan, plans),
        "option": _text(splits.option.astype("<u2")),
        _GRAINS: _text(np.rint(splits.share * GRAIN).astype("<u4")),
    }


def unpack_splits(packed: Mapping[str, object], plans: int, computations: int) -> Splits:
    """Read back what ``pack_splits`` wrote.

    Raises:
        PerseusError: a split that no plan has, two of one computation, or an impossible share. zlib.error:
        damaged data.
    """
    count = whole(packed, "count", least=0, most=MOST_INFLATED_BYTES // 16)
    column, plan = _places(packed, count, plans, computations)
    share = _vector(packed, _GRAINS, count, "<u4") / GRAIN
    if not ((share > 0.0) & (share < 1.0)).all():
        raise PerseusError("splits have a share that is not between 0 and 1")
    option = _vector(packed, "option", count, "<u2").astype(np.uint16)
    return Splits(plan, column, option, share)


def pack_waits(waits: Waits, plans: int) -> dict[str, object]:
    """Keep where the low waits stand, and how long each is low."""
    steps = _steps(waits.column, waits.plan, plans)
    return {"count": len(waits), "steps": steps, "low_s": _text(waits.low_s.astype("<f8"))}


def unpack_waits(packed: Mapping[str, object], plans: int, computations: int, ranks: int) -> Waits:
    """Read back what ``pack_waits`` wrote.

    Raises:
        PerseusError: a wait that no plan has, two of one, or an impossible time. zlib.error: damaged data.
    """
    count = whole(packed, "count", least=0, most=MOST_INFLATED_BYTES // 16)
    column, plan = _places(packed, count, plans, computations + ranks)
    low_s = _vector(packed, "low_s", count, "<f8").astype(np.float64)
    if not (np.isfinite(low_s) & (low_s > 0.0)).all():
        raise PerseusError("waits have a time that is not above 0")
    return Waits(plan, column, low_s)


def _steps(column: NDArray[np.int32], plan: NDArray[np.int32], plans: int) -> str:
    """Places in the matrix, column by column, as steps from one to the next."""
    return _text(np.diff(column.astype(np.int64) * plans + plan, prepend=0).astype("<u4"))


def _places(
    packed: Mapping[str, object], count: int, plans: int, computations: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    steps = _vector(packed, "steps", count, "<u4").astype(np.int64)
    place = np.cumsum(steps)
    if count and ((steps[1:] == 0).any() or place[-1] >= plans * computations):
        raise PerseusError("splits or waits name a computation twice, or one that is not there")
    column, plan = np.divmod(place, max(plans, 1))
    return column.astype(np.int32), plan.astype(np.int32)


def _text(values: NDArray[np.generic]) -> str:
    return base64.b85encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 6)).decode()


def _vector(packed: Mapping[str, object], key: str, count: int, dtype: str) -> NDArray[np.uint32]:
    text = packed[key]
    if not isinstance(text, str):
        raise PerseusError(f"splits: {key} is no text")
    return cast("NDArray[np.uint32]", inflated(base64.b85decode(text), [count], np.dtype(dtype)))
