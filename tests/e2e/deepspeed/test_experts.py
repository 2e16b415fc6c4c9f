"""DeepSpeed-MoE under a pipeline and ZeRO: one coupled set, measured, planned, run, training unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from expert_hosts import train_pipeline, train_zero
from jobs import SURE, block, events, lines
from ranks import Said, run_ranks

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLOWER: dict[str, Any] = {"objective": {"policy": "max_slowdown", "max_slowdown_pct": 10.0}}
AUDIT: dict[str, Any] = {"audit": {"every_iterations": 20, "iterations": 10}}

Body = Callable[..., object]
JOBS: dict[str, tuple[int, Body, tuple[int, ...], dict[str, Any], str]] = {
    "pipeline": (4, train_pipeline, (), {}, "2 replicas (coupled"),
    "ZeRO-0": (2, train_zero, (0,), SLOWER, "2 replicas (coupled"),
    "ZeRO-1": (2, train_zero, (1,), SLOWER, "2 replicas (coupled"),
    "ZeRO-2": (2, train_zero, (2,), SLOWER, "2 replicas (coupled"),
}

Done = tuple[str, Path, list[Said]]


@pytest.fixture(scope="module", params=JOBS)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    ranks, body, first, changes, _ = JOBS[request.param]
    run_dir = tmp_path_factory.mktemp("experts") / "run"
    return request.param, run_dir, run_ranks(ranks, body, *first, block(run_dir, **AUDIT, **changes))


def test_replicas_with_common_experts_are_one_set(finished: Done) -> None:
    name, run_dir, said = finished
    assert JOBS[name][-1] in lines(said[0])[0]
    assert events(run_dir)[0]["fingerprint"]["coupled"] == "2 pipelines"


def test_training_is_what_it_would_be_without_us(finished: Done) -> None:
    name, _, said = finished
    ranks, body, first, *_ = JOBS[name]
    served = [one.value for one in said]
    steps = len(served[-1].losses) // (1 if name == "pipeline" else 3)
    assert served == [one.value for one in run_ranks(ranks, body, *first, None, steps)]


def test_the_sets_plan_saves_what_was_expected(finished: Done) -> None:
    run_dir = finished[1]
    running = next(event for event in events(run_dir) if event["event"] == "running")
    summary = json.loads((run_dir / "summary.json").read_text())
    within = running["predicted_saving_within_pct"] + SURE * summary["saving_se_pct"]
    assert summary["saving_pct"] == pytest.approx(running["predicted_saving_pct"], abs=within + 0.3)
    assert summary["saving_pct"] > 2.0
    late = running["predicted_slowdown_pct"] + running["predicted_slowdown_within_pct"]
    assert summary["slowdown_pct"] < late + SURE * summary["slowdown_se_pct"] + 0.1
