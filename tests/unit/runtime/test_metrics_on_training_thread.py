"""Metrics add nothing to the training thread: it makes the same calls with them and without."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import pytest
from lone_job import Loop, alone, begun, block_of, train

from perseus_ds.runtime.energy_monitor import EnergyWatch

# Every call of the product that a training thread makes, counted; for tests and benches.

_SETTLED = 20
_LOOK = EnergyWatch.look.__code__
"""A simulated GPU in virtual time is looked at by whoever lets its time pass; a real one by a thread."""


def planned(run_dir: Path) -> Path:
    """Leave a plan; return its folder."""
    loop = Loop()
    session = begun(loop, block_of(run_dir))
    train(loop, run_dir, lambda names: "measured" in names)
    session.end(well=True)
    return run_dir


def calls_at_a_plan(
    plan: Path, run_dir: Path, metrics: Mapping[str, object], iterations: int
) -> Counter[str]:
    """Train by a plan that is there; return the calls as ``FILE: NAME``."""
    run_dir.mkdir()
    for file in ("profile.json", "plan.json"):
        shutil.copy(plan / file, run_dir / file)
    loop, made, looks = Loop(), Counter[str](), [0]

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code is _LOOK:
            looks[0] += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not looks[0] and "perseus_ds" in code.co_filename:
            made[f"{Path(code.co_filename).name}: {code.co_qualname}"] += 1

    session = begun(loop, block_of(run_dir, mode="run", metrics=metrics))
    for _ in range(_SETTLED):
        loop.step()
    sys.setprofile(note)
    try:
        for _ in range(iterations):
            loop.step()
    finally:
        sys.setprofile(None)
        session.end(well=True)
    return made


ITERATIONS = 60


@pytest.mark.slow
def test_the_training_thread_makes_the_same_calls(tmp_path: Path) -> None:
    with alone(tmp_path / "store"):
        plan = planned(tmp_path / "planned")
        without = calls_at_a_plan(plan, tmp_path / "without", {"enabled": False}, ITERATIONS)
        more = calls_at_a_plan(plan, tmp_path / "with", {"enabled": True}, ITERATIONS)
    assert without.total() > 100 * ITERATIONS
    assert without == more
