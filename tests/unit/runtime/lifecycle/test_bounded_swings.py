"""A job whose power may not swing: which plans it may run, what it reports, and what another bound costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lone_job import Loop, alone, begun, block_of, events_of, train

from perseus_ds.plan import read_plans
from perseus_ds.plan.playing.costs import swing_w


@pytest.fixture(scope="module", autouse=True)
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with alone(tmp_path_factory.mktemp("group") / "store"):
        yield


def run(run_dir: Path, most_w: float | None) -> list[dict[str, object]]:
    """Train until a plan runs; return what this start reported."""
    before = len(events_of(run_dir)) if (run_dir / "events.jsonl").exists() else 0
    loop = Loop()
    session = begun(loop, block_of(run_dir, power={"max_swing_w": most_w}))
    train(loop, run_dir, lambda names: "running" in names[before:])
    session.end(well=True)
    return events_of(run_dir)[before:]


@pytest.mark.slow
def test_only_plans_within_the_bound_run_and_another_bound_needs_no_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = tmp_path / "run"
    assert "power_swing" not in {event["event"] for event in run(run_dir, None)}
    free = read_plans(run_dir / "plan.json")
    swings_w = [swing_w(free.plan(index)) for index in range(len(free))]
    bound_w = (min(swings_w) + max(swings_w)) / 2.0

    told = run(run_dir, bound_w)
    assert "profiling" not in {event["event"] for event in told}
    [event] = (event for event in told if event["event"] == "power_swing")
    plans = read_plans(run_dir / "plan.json")
    assert 0 < len(plans) < len(free)
    assert all(swing_w(plans.plan(index)) <= bound_w for index in range(len(plans)))
    assert event["swing_w"] == pytest.approx(swing_w(plans.plan(int(str(event["plan"])))))

    [event] = (event for event in run(run_dir, 0.001) if event["event"] == "power_swing")
    assert event["swing_w"] == pytest.approx(min(swings_w), rel=0.01)
    assert "no plan stays within power.max_swing_w = 0.001 W" in capsys.readouterr().err
