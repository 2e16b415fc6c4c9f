"""Two replicas of two stages, the second on other and slower GPUs: a frontier each, one time to meet at."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from jobs import (
    block,
    copy_of,
    events,
    happened,
    lines,
    names,
    plain_losses,
    train,
    train_until,
)
from planned_by_physics import deepspeed_schedule, perseus_block, write_plan
from ranks import Said, config, losses, run_ranks
from ranks import build as build_engine
from replicas import look_once, straggle

from perseus_ds.config import Objective
from perseus_ds.device.simulated.models import MODELS
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.plan import PlanSet, read_plans
from perseus_ds.profile import read_profile
from perseus_ds.runtime.measure.accounting import Mode
from perseus_ds.straggler.frontier_index import FrontierIndex

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES = REPLICAS = 2
RANKS = STAGES * REPLICAS
GPUS = ("a100-sxm4-80gb", "a40")
SLOWER = 1.2
FORWARD_S = (0.4, 0.5)
ITERATIONS = 40
SETTLED = 12


def mixed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The same job where the second replica's GPUs are other ones, that need 1.2 times as long."""
    simulated = content["perseus"].get("simulated", {})
    theirs: dict[str, object] = {
        "gpu": GPUS[1],
        "mean_forward_s": SLOWER * SimulatedSettings().mean_forward_s,
    }
    if "forward_s" in simulated:
        theirs["forward_s"] = [SLOWER * seconds for seconds in simulated["forward_s"]]
    ranks = {str(rank): theirs for rank in range(RANKS) if rank % REPLICAS}
    return {**content, "perseus": {**content["perseus"], "simulated": {**simulated, "ranks": ranks}}}


def frontiers(run_dir: Path) -> list[PlanSet]:
    return [read_plans(run_dir / name) for name in ("plan.json", "plan.1.json")]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    """A whole lifecycle from an empty run directory: each kind of GPU with a grid of its own."""
    run_dir = tmp_path_factory.mktemp("mixed") / "run"
    content = config(gradient_clipping=1.0, perseus=block(run_dir))
    return run_dir, run_ranks(RANKS, train_until, mixed(content), STAGES, happened("measured"))


def test_each_kind_is_measured_and_planned_by_itself(profiled: tuple[Path, list[Said]]) -> None:
    run_dir, said = profiled
    for gpu, plans, name in zip(GPUS, frontiers(run_dir), ("profile.json", "profile.1.json"), strict=True):
        model = MODELS[gpu]
        profile = read_profile(run_dir / name)
        assert profile.fingerprint["gpu"] == plans.fingerprint["gpu"] == model.name
        for points in profile.points.values():
            assert points[0].clock_mhz == model.max_clock_mhz
            assert len(points) > 1
            assert {point.clock_mhz for point in points} <= set(model.clocks_mhz)
    first, second = (read_profile(run_dir / name).points for name in ("profile.json", "profile.1.json"))
    assert sum(points[0].time_s for points in second.values()) > sum(
        points[0].time_s for points in first.values()
    )
    assert all(one.value.attached for one in said)
    assert any("each type" in line for line in lines(said[0]))


def test_a_mixed_job_measures_its_saving(profiled: tuple[Path, list[Said]]) -> None:
    run_dir, said = profiled
    assert (run_dir / "summary.json").exists()
    steps = len(said[0].value.losses)
    plain = plain_losses(steps, ranks=RANKS, stages=STAGES)
    assert [one.value.losses for one in said] == plain


def test_a_second_start_finds_both_plans(profiled: tuple[Path, list[Said]], tmp_path: Path) -> None:
    again = copy_of(profiled[0], tmp_path / "again")
    for name in ("profile.1.json", "plan.1.json"):
        (again / name).write_bytes((profiled[0] / name).read_bytes())
    run_ranks(RANKS, train, mixed(config(gradient_clipping=1.0, perseus=block(again))), STAGES, 6)
    assert events(again)[0]["start"] == "run"
    assert names(again).count("running") == len(GPUS)
    assert "profiling" not in names(again)


def test_a_plan_that_is_missing_is_made_from_the_profiles(
    profiled: tuple[Path, list[Said]], tmp_path: Path
) -> None:
    again = copy_of(profiled[0], tmp_path / "again")
    (again / "profile.1.json").write_bytes((profiled[0] / "profile.1.json").read_bytes())
    content = config(gradient_clipping=1.0, perseus=block(again))
    run_ranks(RANKS, train_until, mixed(content), STAGES, happened("running"))
    assert events(again)[0]["start"] == "plan"
    assert "profiling" not in names(again)
    assert len(frontiers(again)[1]) > 1


@pytest.fixture(scope="module")
def meeting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    """In virtual time, with plans from the physics of each GPU: figures are exact."""
    folder = tmp_path_factory.mktemp("meeting")
    playing = perseus_block(folder / "run", FORWARD_S)
    seen = playing | {"mode": "observe", "run_dir": str(folder / "seen")}
    run_ranks(RANKS, look_once, mixed(config(perseus=seen, gradient_clipping=1.0)), STAGES)
    announced = events(folder / "seen")[0]
    schedule = deepspeed_schedule(microbatches=4, stages=STAGES)
    for gpu, group, name, slower in zip(
        GPUS, announced["hardware_groups"], ("plan.json", "plan.1.json"), (1.0, SLOWER), strict=True
    ):
        seconds = [slower * s for s in FORWARD_S]
        write_plan(folder / "run" / name, schedule, seconds, announced["fingerprint"] | group["own"], gpu=gpu)
    content = mixed(config(perseus=playing, gradient_clipping=1.0))
    return folder / "run", run_ranks(RANKS, straggle, content, STAGES, {}, ITERATIONS)


def test_all_ranks_decide_alike(meeting: tuple[Path, list[Said]]) -> None:
    books = [one.value for one in meeting[1]]
    for other in books[1:]:
        assert other.plans == books[0].plans
        assert other.own_s == books[0].own_s


def test_the_faster_meets_the_slower_at_its_own_frontier(meeting: tuple[Path, list[Said]]) -> None:
    """As planned, and truly: the best plan for the slower one's time against what the GPUs took."""
    run_dir, said = meeting
    book = said[0].value
    fast, slow = frontiers(run_dir)
    frontier_index, its = FrontierIndex.of(fast, Objective()), FrontierIndex.of(slow, Objective())
    assert frontier_index.objective_s < its.objective_s
    first, second = np.array(book.plans[SETTLED:]).T
    assert set(second) == {its.objective}
    cost_j = fast.effective_energy_j + fast.blocking_total_w * its.objective_s
    best_j = cost_j[frontier_index.expected_s <= its.objective_s].min()
    above_pct = 100.0 * (cost_j[first].max() / best_j - 1.0)
    took_s = (book.end_s[-1] - book.end_s[SETTLED]) / (ITERATIONS - 1 - SETTLED)
    excess_pct = 100.0 * (took_s / fmean(own[1] for own in book.own_s[SETTLED:]) - 1.0)
    energy_j = sum(np.array(one.value.energy_j) for one in said if one.rank % REPLICAS == 0)
    unanswered_j, answered_j = energy_j[1], energy_j[SETTLED:].mean()
    sys.stdout.write(
        f"\nT' = {its.objective_s:.4g} s, alone {frontier_index.objective_s:.4g} s: plan {first[-1]} is "
        f"{above_pct:.2f} % above the best; the job {excess_pct:+.3f} % above the slower one's own; truly "
        f"{answered_j:.0f} J per iteration, unanswered {unanswered_j:.0f} J\n"
    )
    assert frontier_index.objective not in first
    assert frontier_index.expected_s[first].max() <= its.objective_s
    assert above_pct <= 1.0
    assert excess_pct <= 0.5
    assert answered_j < unanswered_j


def test_it_is_told_as_structural_and_booked_as_ordinary(meeting: tuple[Path, list[Said]]) -> None:
    run_dir, said = meeting
    announced = [event for event in events(run_dir) if event["event"] == "straggler"]
    assert {(one["replica"], one["cause"]) for event in announced for one in event["stragglers"]} == {
        (1, "structural")
    }
    assert set(said[0].value.modes[SETTLED:]) <= {Mode.PERSEUS, Mode.NEITHER}


def test_losses_are_the_same_bits(meeting: tuple[Path, list[Said]]) -> None:
    plain = run_ranks(RANKS, train_plain, config(gradient_clipping=1.0))
    for one, other in zip(plain, meeting[1], strict=True):
        assert other.value.losses == one.value[: len(other.value.losses)]


def train_plain(rank: int, content: Mapping[str, Any]) -> list[str]:
    del rank
    return losses(build_engine(content, stages=STAGES), ITERATIONS + 8)
