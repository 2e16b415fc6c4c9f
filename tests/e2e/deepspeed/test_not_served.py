"""Jobs that we recognise and stay away from, each with a clear line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deepspeed
import pytest
from jobs import block, lines
from ranks import build, config, losses, run_ranks

from perseus_ds.adapters.deepspeed_settings import crashes_with_timers

pytestmark = pytest.mark.e2e


def built_only(rank: int, content: Mapping[str, Any]) -> bool:
    return "_exec_schedule" in vars(build(content, stages=2))  # autotuning turns on the timers that crash it


def test_autotuning_switches_us_off(tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path / "run"), autotuning={"enabled": True})
    said = run_ranks(2, built_only, content)
    assert [one.value for one in said] == [False, False]
    [line] = lines(said[0])
    assert "autotuning" in line
    assert not (tmp_path / "run").exists()


def timed(rank: int, perseus: Mapping[str, Any] | None) -> str:
    try:
        losses(build(config(perseus=perseus, wall_clock_breakdown=True), stages=2), 1)
    except (AssertionError, RuntimeError) as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_deepspeeds_timers_crash_the_job_without_us() -> None:
    """The reason for our line. When this fails DeepSpeed is mended: change `crashes_with_timers`."""
    assert crashes_with_timers(deepspeed.__version__)
    assert any("already been" in one.value for one in run_ranks(2, timed, None))


def test_the_user_is_told_beforehand(tmp_path: Path) -> None:
    said = run_ranks(2, timed, block(tmp_path))
    assert "wall_clock_breakdown" in lines(said[0])[0]
    assert "both off" in lines(said[0])[0]


def of_another_release(rank: int, content: Mapping[str, Any]) -> list[str]:
    deepspeed.__version__ = "99.0"  # as that of an image that is newer than this package
    return losses(build(content, stages=2), 2)


def test_a_release_that_was_not_tested_is_served_and_said(tmp_path: Path) -> None:
    said = run_ranks(2, of_another_release, config(perseus=block(tmp_path / "run", mode="observe")))
    assert [line for line in lines(said[0]) if "DeepSpeed 99.0" in line] != []
    assert "2 stages" in lines(said[0])[0]
    assert lines(said[1]) == []
