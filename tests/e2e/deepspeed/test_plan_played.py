"""The clocks that the GPU really held are those of the plan, and audits run at the maximum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from jobs import MICROBATCHES, STAGES, UNEVEN, Lifecycle, block, copy_of
from ranks import batches, build, config, run_ranks

from perseus_ds.config import Objective
from perseus_ds.device.simulated.gpu import SimulatedGpu, Task, opened_gpus
from perseus_ds.plan import read_plans, select
from perseus_ds.runtime.attach import session_of

pytestmark = pytest.mark.e2e

COMPUTATIONS = 2 * MICROBATCHES
STEPS = 16
MHZ = 12.0  # what noise in a time of this length can hide
TOP_MHZ = 1410.0


@dataclass(frozen=True)
class Held:
    """Per iteration: what it counted for, and the mean clock held in each computation, in order."""

    modes: list[str]
    clocks_mhz: list[list[float]]


def mean_clock_mhz(gpu: SimulatedGpu, task: Task) -> float:
    """Ground truth: how fast the work went tells the clock, since ``rate = 1 / ((1 - m) f_max / f + m)``."""
    assert task.finished_s is not None
    slowness = (task.finished_s - task.started_s) / task.work.seconds
    memory_bound = task.work.memory_bound
    return gpu.model.max_clock_mhz * (1 - memory_bound) / (slowness - memory_bound)


def play(rank: int, content: Mapping[str, Any]) -> Held:
    modes: list[str] = []
    engine = build(content, stages=STAGES, inner=UNEVEN)
    data = batches()
    for _ in range(STEPS):
        engine.train_batch(data)
        session = session_of(engine)
        assert session is not None
        modes.append(session.settings.mode.value)
    gpu = opened_gpus()[-1]
    clocks = [mean_clock_mhz(gpu, task) for task in gpu.truth.tasks]
    return Held(modes, [clocks[i : i + COMPUTATIONS] for i in range(0, len(clocks), COMPUTATIONS)])


@pytest.fixture(scope="module")
def held(lifecycle: Lifecycle, tmp_path_factory: pytest.TempPathFactory) -> list[Held]:
    run_dir = copy_of(lifecycle.run_dir, tmp_path_factory.mktemp("played") / "run")
    audit = {"every_iterations": 3, "iterations": 3}
    said = run_ranks(4, play, config(perseus=block(run_dir, mode="run", audit=audit)))
    return [one.value for one in said]


def test_plan_iterations_hold_the_clocks_of_the_plan(lifecycle: Lifecycle, held: list[Held]) -> None:
    """A switch takes time, so a computation may begin at its neighbours' clock; most do not."""
    plan = select(read_plans(lifecycle.run_dir / "plan.json"), Objective())
    exact = total = 0
    for stage, seen in enumerate(held):
        planned = [
            [int(plan.of.options[i.stage, i.kind].clock_mhz[option]) for option, _ in portions]
            for i, portions in plan.portions().items()
            if i.stage == stage
        ]
        around = [planned[-1], *planned, planned[0]]
        for mode, clocks in zip(seen.modes, seen.clocks_mhz, strict=True):
            if mode != "perseus":
                continue
            for place, clock in enumerate(clocks):
                near = [mhz for clocks_there in around[place : place + 3] for mhz in clocks_there]
                assert min(near) - MHZ <= clock <= max(near) + MHZ
                exact += min(planned[place]) - MHZ <= clock <= max(planned[place]) + MHZ
                total += 1
    assert total >= STAGES * COMPUTATIONS * 4
    assert exact >= 0.8 * total


def test_audits_run_at_the_maximum_and_a_change_of_mode_counts_for_neither(held: list[Held]) -> None:
    audits = list[float]()
    for seen in held:
        assert {"perseus", "baseline"} <= set(seen.modes)
        assert not {("perseus", "baseline"), ("baseline", "perseus")} & set(pairwise(seen.modes))
        for mode, clocks in zip(seen.modes, seen.clocks_mhz, strict=True):
            audits += clocks if mode == "baseline" else []
    assert len(audits) >= STAGES * COMPUTATIONS * 3
    assert min(audits) >= TOP_MHZ - MHZ
