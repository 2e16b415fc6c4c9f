"""Exact frontiers and plans of many profiles and schedules: a digest and the sum of every array."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from profile_cases import all_cases

LATER = (" per s", "per node", "never")
"""Parts of names of cases whose plans may change: budgets of changes, one clock for each computation."""


def cases(data: Path) -> dict[str, Callable[[], Any]]:
    """Return the cases of `profile_cases` without a budget or whole clocks, and its graphs."""
    return {
        name: lambda make=make: _digests(make())
        for name, make in all_cases(data).items()
        if not any(part in name for part in LATER)
    }


def _digests(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, list[Any]]:
    found = {}
    for name, array in arrays.items():
        if name.startswith("whole_"):
            continue
        plain = np.ascontiguousarray(array + 0 if array.dtype.kind == "f" else array)  # -0.0 is 0.0
        digest = hashlib.sha256(plain.tobytes()).hexdigest()[:16]
        found[name] = [list(plain.shape), digest, float(plain.sum()) if plain.dtype.kind in "fiub" else 0.0]
    return found
