"""Columns of numbers inside the page: compressed, in base64, unpacked by the page's own script."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
from numpy.typing import ArrayLike

_TYPES = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f4": np.float32}


def packed(values: ArrayLike, kind: str) -> dict[str, str]:
    """Pack a column, or a table row by row, as little-endian numbers of ``kind`` (u1, u2, u4 or f4)."""
    column = np.ascontiguousarray(np.asarray(values), dtype=np.dtype(_TYPES[kind]).newbyteorder("<"))
    return {"as": kind, "packed": base64.b64encode(zlib.compress(column.tobytes(), 9)).decode()}


def as_script(content: object) -> str:
    """Write JSON that may stand inside a script element: nothing in it ends the element."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def rounded(values: ArrayLike, digits: int = 7) -> list[float]:
    """Numbers as short as a reader needs them."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, np.float64).ravel().tolist()]
