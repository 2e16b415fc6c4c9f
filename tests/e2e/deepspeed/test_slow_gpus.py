"""Jobs with a GPU that is held down, beside the same job at default clocks: never slower, and named.

The whole campaign is ``scripts/bench/straggler/slow_gpus.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from replicas import CAPS, SPELLS, Case, compare

pytestmark = pytest.mark.e2e

QUICK = Case("ZeRO-1 dp 2", "clock", "always")
CASES = [
    Case(layout, cap, spell)
    for layout in ("ZeRO-1 dp 2", "pipeline 2 x dp 2")
    for cap in CAPS
    for spell in SPELLS
]
CASES.append(Case("light last stage 2 x dp 2", "clock", "always"))


@pytest.mark.parametrize(
    "case", [case if case == QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES], ids=str
)
def test_a_job_with_a_slow_gpu_is_no_slower_than_at_default_clocks(tmp_path: Path, case: Case) -> None:
    found = compare(case, tmp_path)
    sys.stdout.write(f"\n{case}: {found}")
    assert found.is_met(case), found
