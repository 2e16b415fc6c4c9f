"""A pipeline of which no hook sees the inside, as where one graph holds the iteration: a whole job."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jobs import Trained, block, events, happened, names, plain_losses, train_until
from ranks import Said, config, run_ranks

from perseus_ds.adapters.deepspeed import DeepSpeedAdapter
from perseus_ds.plan import read_plans
from perseus_ds.profile import read_profile
from perseus_ds.runtime.adapter import Place

pytestmark = pytest.mark.e2e

STAGES = 4
FORWARD_S = (0.1, 0.1, 0.1, 0.13)
MICROBATCHES = 8


def train(rank: int, content: Mapping[str, Any], more: int) -> Trained:
    """Train as DeepSpeed does, by an adapter that tells that its iterations are replayed."""
    place = DeepSpeedAdapter.place

    def replayed(adapter: DeepSpeedAdapter) -> Place:
        return replace(place(adapter), replayed=True)

    DeepSpeedAdapter.place = replayed
    return train_until(rank, content, STAGES, happened("measured"), more=more)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Said]]:
    run_dir = tmp_path_factory.mktemp("replayed") / "run"
    perseus = block(
        run_dir,
        objective={"policy": "max_slowdown", "max_slowdown_pct": 2.0},
        profile={"min_window_s": 4.0, "warmup_iterations": 2, "max_slower_pct": 50.0, "settle_s": 5.0},
        simulated={"forward_s": FORWARD_S, "transfer_s": 0.001},
    )
    return run_dir, run_ranks(STAGES, train, config(MICROBATCHES, perseus=perseus), 12)


def test_it_goes_the_whole_course_and_loses_what_it_would_without_us(job: tuple[Path, list[Said]]) -> None:
    order = ["weighing", "weighed", "profiling", "profiled", "planning", "running", "measured"]
    assert list(dict.fromkeys(name for name in names(job[0]) if name in order)) == order
    losses = [said.value.losses for said in job[1]]
    assert losses == plain_losses(len(losses[0]), microbatches=MICROBATCHES)


def test_times_within_an_iteration_are_found(job: tuple[Path, list[Said]]) -> None:
    """Transfers count as part of the computation before them."""
    profile = read_profile(job[0] / "profile.json")
    time_s = [
        sum(profile.of(stage, kind)[0].time_s for kind in {kind for _, kind in profile.points})
        for stage in range(STAGES)
    ]
    shares = [one / time_s[3] for one in time_s[:3]]
    assert shares == pytest.approx([FORWARD_S[0] / FORWARD_S[3]] * 3, rel=0.03)


def test_each_gpu_saves_what_is_expected_by_a_lower_clock_between_dates(job: tuple[Path, list[Said]]) -> None:
    run_dir, _ = job
    plans = read_plans(run_dir / "plan.json")
    running = events(run_dir, "running")[0]
    plan = plans.plan(running["plan"])
    clocks = {
        rank: [int(plans.options[i.stage, i.kind].clock_mhz[plan.portions()[i][0].option]) for _, i in own]
        for rank in range(STAGES)
        if (own := plans.computations_of(rank))
    }
    changes = {rank: sum(a != b for a, b in pairwise(own)) for rank, own in clocks.items()}
    assert plans.budget.dated
    assert set(changes.values()) <= {0, 2}
    assert max(changes.values()) == 2
    assert min(min(clocks[rank]) for rank in range(3)) < min(clocks[3])
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["saving_pct"] > 8.0
    assert summary["saving_pct"] == pytest.approx(running["predicted_saving_pct"], abs=2.0)
    assert summary["slowdown_pct"] == pytest.approx(running["predicted_slowdown_pct"], abs=1.0)
    assert summary["slowdown_pct"] < 2.1
