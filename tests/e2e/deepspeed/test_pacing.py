"""A real pipeline of two stages and two replicas with log-normal lengths, paced to the longer one."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import UNEVEN, block, events, lines
from ranks import Said, batches, build, config, run_ranks
from varied_loads import SIMULATED, lengths_of

import perseus_ds

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES, RANKS, STEPS, PERIOD = 2, 4, 110, 3


def trained(rank: int, content: Mapping[str, Any], steps: int) -> list[str]:
    engine, data = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches()
    perseus_ds.set_load(lengths_of(engine.grid.get_data_parallel_rank(), period=PERIOD))
    del rank
    return [float(engine.train_batch(data)).hex() for _ in range(steps)]


def course(run_dir: Path, pacing: str) -> dict[str, Any]:
    return block(
        run_dir,
        simulated=SIMULATED,
        straggler={"load_limit_s": 60.0, "pacing": pacing},
        profile={"min_window_s": 10.0, "max_clocks": 3, "warmup_iterations": 2},
        audit={"every_iterations": 12, "iterations": 12, "settle_s": 0.0},
    )


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said], list[Said]]:
    """The same job with and without, from one profile and plan."""
    run_dir = tmp_path_factory.mktemp("paced")
    without = run_ranks(RANKS, trained, config(perseus=course(run_dir, "never")), STEPS)
    for file in ("summary.json", "events.jsonl"):
        (run_dir / file).rename(run_dir / f"without_{file}")
    return run_dir, run_ranks(RANKS, trained, config(perseus=course(run_dir, "loads")), STEPS), without


def test_losses_are_those_without_it(paced: tuple[Path, list[Said], list[Said]]) -> None:
    _, with_it, without = paced
    assert [one.value for one in with_it] == [one.value for one in without]


def test_replicas_were_paced_and_it_is_written_down(paced: tuple[Path, list[Said], list[Said]]) -> None:
    answers = json.loads((paced[0] / "summary.json").read_text())["facts"]["answers"]
    assert answers["paced_iterations"] >= 20
    assert answers["mean_slowed_pct"] >= 2.0
    assert answers["cost_pct"] <= 0.2
    assert answers["followed_iterations"] == answers["load_iterations"]


def test_the_job_saves_more_and_takes_no_longer(paced: tuple[Path, list[Said], list[Said]]) -> None:
    with_it, without = (
        json.loads((paced[0] / name).read_text()) for name in ("summary.json", "without_summary.json")
    )
    for name in ("saving_pct", "slowdown_pct"):
        sys.stdout.write(f"\n{name}: {without[name]:.2f}, paced {with_it[name]:.2f}")
    assert with_it["saving_pct"] > without["saving_pct"] + 8.0
    within = 2.0 * with_it["slowdown_se_pct"] + 2.0 * without["slowdown_se_pct"]
    assert with_it["slowdown_pct"] <= without["slowdown_pct"] + 0.2 + within


def test_nobody_is_called_slow(paced: tuple[Path, list[Said], list[Said]]) -> None:
    assert not any(one["event"] in {"straggler", "disabled", "alone"} for one in events(paced[0]))
    assert not any("straggler" in line for line in lines(paced[1][0]))
