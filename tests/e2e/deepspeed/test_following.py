"""One real pipeline of two stages with log-normal lengths, each iteration run by a plan of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import UNEVEN, block, events
from ranks import Said, batches, build, config, run_ranks
from varied_loads import SIMULATED, lengths_of

import perseus_ds

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES, STEPS, PERIOD = 2, 100, 3


def trained(rank: int, content: Mapping[str, Any], steps: int) -> list[str]:
    del rank
    engine, data = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches()
    perseus_ds.set_load(lengths_of(0, period=PERIOD))
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
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said], list[Said]]:
    """The same job without and with, from one profile and plan."""
    run_dir = tmp_path_factory.mktemp("followed")
    without = run_ranks(STAGES, trained, config(perseus=course(run_dir, "never")), STEPS)
    for file in ("summary.json", "events.jsonl"):
        (run_dir / file).rename(run_dir / f"without_{file}")
    with_it = run_ranks(STAGES, trained, config(perseus=course(run_dir, "loads")), STEPS)
    return run_dir, with_it, without


def test_losses_are_those_without_it(followed: tuple[Path, list[Said], list[Said]]) -> None:
    _, with_it, without = followed
    assert [one.value for one in with_it] == [one.value for one in without]


def test_every_iteration_followed_its_loads(followed: tuple[Path, list[Said], list[Said]]) -> None:
    answers = json.loads((followed[0] / "summary.json").read_text())["facts"]["answers"]
    assert answers["load_iterations"] >= 20
    assert answers["followed_iterations"] == answers["load_iterations"]
    assert not any(one["event"] in {"disabled", "alone", "not_followed"} for one in events(followed[0]))


def test_slack_between_unequal_microbatches_is_saved(followed: tuple[Path, list[Said], list[Said]]) -> None:
    with_it, without = (
        json.loads((followed[0] / name).read_text()) for name in ("summary.json", "without_summary.json")
    )
    for name in ("saving_pct", "slowdown_pct"):
        sys.stdout.write(
            f"\n{name}: {without[name]:.2f} +- {without[name.replace('_pct', '_se_pct')]:.2f}, following "
            f"{with_it[name]:.2f} +- {with_it[name.replace('_pct', '_se_pct')]:.2f}"
        )
    assert with_it["saving_pct"] > without["saving_pct"] + 3.0
    within = 2.0 * with_it["slowdown_se_pct"] + 2.0 * without["slowdown_se_pct"]
    assert with_it["slowdown_pct"] <= without["slowdown_pct"] + 0.2 + within
