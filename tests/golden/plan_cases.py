"""Exact frontiers and plans of many profiles and schedules: a digest and the sum of every array."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BENCH = Path(__file__).parents[2] / "scripts" / "bench" / "unchanged" / "cases.py"
LATER = (" per s", "dwell", "per node", "never")
"""Parts of names of cases whose plans may change: budgets of changes, one clock for each computation."""


def cases(data: Path) -> dict[str, Callable[[], Any]]:
    """Return the cases of ``scripts/bench/unchanged/cases.py`` without a budget or whole clocks, and its graphs."""
    spec = importlib.util.spec_from_file_location("unchanged_cases", BENCH)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    return {
        name: lambda make=make: _digests(make())
        for name, make in bench.all_cases(data).items()
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
