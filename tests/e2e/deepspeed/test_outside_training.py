"""Work of the host between iterations is no part of what is measured, however often it comes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ranks import batches, build, run_ranks
from replicas import planned_job

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FORWARD_S = (0.3, 0.4)
STEPS = 130
PAUSE_S = 6.0
TIME_SCALE = 0.02


def job(folder: Path) -> dict[str, Any]:
    """Two stages whose plan is there; a fiftieth of a second on the host is one of the device."""
    simulated = {
        "forward_s": list(FORWARD_S),
        "transfer_s": 0.0,
        "switch_latency_s": 0.0,
        "time_scale": TIME_SCALE,
        "host_step_s": 0.05,
    }
    perseus = {"audit": {"every_iterations": 8, "iterations": 8}, "simulated": simulated}
    return planned_job(folder, ranks=2, forward_s=FORWARD_S, perseus=perseus)


def with_pauses(rank: int, content: Mapping[str, Any], every: int) -> None:
    del rank
    engine, data = build(content, stages=len(FORWARD_S)), batches()
    for step in range(1, STEPS + 1):
        engine.train_batch(data)
        if every and step % every == 0:
            time.sleep(PAUSE_S * TIME_SCALE)


def summary_of(folder: Path, body: Callable[..., None], *args: object) -> dict[str, Any]:
    run_ranks(2, body, job(folder), *args)
    found: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return summary_of(tmp_path_factory.mktemp("undisturbed"), with_pauses, 0)


@pytest.mark.parametrize("every", [3, 8])
def test_a_pause_after_every_few_steps_changes_no_figure(
    undisturbed: dict[str, Any], tmp_path: Path, every: int
) -> None:
    found = summary_of(tmp_path, with_pauses, every)
    paused_s = PAUSE_S * (STEPS // every)
    assert found["outside"]["time_s"] > 0.6 * paused_s
    assert found["saving_pct"] == pytest.approx(undisturbed["saving_pct"], abs=0.3)
    assert found["slowdown_pct"] == pytest.approx(undisturbed["slowdown_pct"], abs=0.2)
