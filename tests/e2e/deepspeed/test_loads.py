"""A real pipeline of two stages and two replicas whose microbatches have log-normal lengths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jobs import SURE, UNEVEN, block, events, lines
from ranks import Said, batches, build, config, run_ranks
from varied_loads import SIMULATED, lengths_of

import perseus_ds
from perseus_ds.profile import read_profile
from perseus_ds.runtime import user_loads
from perseus_ds.schedule import Kind

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES, RANKS, STEPS = 2, 4, 200


def trained(rank: int, content: Mapping[str, Any], steps: int) -> list[str]:
    engine, data = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches()
    user_loads.LIMIT_S = 60.0  # other work may hold this host up
    perseus_ds.set_load(lengths_of(engine.grid.get_data_parallel_rank()))
    del rank
    return [float(engine.train_batch(data)).hex() for _ in range(steps)]


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("loads")
    course = block(
        run_dir,
        simulated=SIMULATED,
        straggler={"pacing": "never"},  # saves more than is expected of the plan: test_pacing.py
        profile={"min_window_s": 10.0, "max_clocks": 3, "warmup_iterations": 2},
        audit={"every_iterations": 12, "iterations": 12, "settle_s": 0.0},
    )
    return run_dir, run_ranks(RANKS, trained, config(perseus=course), STEPS)


def test_losses_are_those_without_us(varied: tuple[Path, list[Said]]) -> None:
    plain = run_ranks(RANKS, trained, config(), STEPS)
    assert [one.value for one in varied[1]] == [one.value for one in plain]


def test_the_profile_finds_what_loads_cost_on_every_stage(varied: tuple[Path, list[Said]]) -> None:
    """Stages after the first see no lengths and are fitted on those that the first one counts."""
    profile = read_profile(varied[0] / "profile.json")
    fixed, tokens, squares = SIMULATED["load_terms"]
    for stage in range(STAGES):
        for kind in (Kind.FORWARD, Kind.BACKWARD):
            fit = profile.loads[stage, kind]
            assert fit.r2 > 0.99
            assert fit.scatter < 0.02
            assert (fit.base, fit.tokens, fit.squares) == pytest.approx((fixed, tokens, squares), abs=0.1)
    (line,) = [one["line"] for one in events(varied[0]) if one["event"] == "loads"]
    assert "follow" in line


def test_measured_is_what_was_expected(varied: tuple[Path, list[Said]]) -> None:
    summary = json.loads((varied[0] / "summary.json").read_text())
    facts = summary["facts"]
    within = SURE * summary["saving_se_pct"] + facts["predicted_saving_within_pct"]
    assert summary["saving_pct"] == pytest.approx(summary["predicted_saving_pct"], abs=within)
    within = SURE * summary["slowdown_se_pct"] + facts["predicted_slowdown_within_pct"]
    assert summary["slowdown_pct"] == pytest.approx(facts["predicted_slowdown_pct"], abs=within)
    assert facts["predicted_slowdown_pct"] < 0.2


def test_nobody_is_called_slow(varied: tuple[Path, list[Said]]) -> None:
    said = lines(varied[1][0])
    assert not any("straggler" in line or "off" in line.split() for line in said)
