"""Microbatches of log-normal lengths, known before each iteration, and the simulated work that they are."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jobs import SURE, UNEVEN, block
from ranks import Said, batches, build, config, run_ranks

import perseus_ds
from perseus_ds.runtime import user_loads
from perseus_ds.runtime.user_loads import LoadFunction

Train = Callable[[int, Mapping[str, Any], int], object]
"""A rank's training: rank, DeepSpeed's configuration with our block, steps."""
Course = Callable[[Path, str], dict[str, Any]]
"""A job's block: where it writes, and its pacing."""
STAGES, PERIOD = 2, 3

SEQUENCES, MEDIAN, SIGMA = 4, 512.0, 0.6
_MEAN = MEDIAN * float(np.exp(SIGMA**2 / 2.0))
_MEAN_SQUARE = MEDIAN**2 * float(np.exp(2.0 * SIGMA**2))

SIMULATED = {
    "mean_forward_s": 0.1,
    "load_terms": [0.1, 0.7, 0.2],
    "mean_load": [SEQUENCES * _MEAN, SEQUENCES * _MEAN_SQUARE],
}
"""Settings by which simulated GPUs take as long as these loads ask for."""


def lengths_of(replica: int, *, period: int | None = None) -> LoadFunction:
    """What one replica trains: four sequences in each microbatch, other ones each iteration.

    After ``period`` iterations the same ones come again, so that the mean of as many is always the same.
    """

    def lengths(iteration: int, microbatches: int) -> list[list[float]]:
        random = np.random.default_rng([replica, iteration % period if period else iteration])
        drawn = np.round(MEDIAN * random.lognormal(0.0, SIGMA, (microbatches, SEQUENCES)))
        return [[float(length) for length in one] for one in drawn]

    return lengths


def trained(rank: int, content: Mapping[str, Any], steps: int) -> list[str]:
    del rank
    engine, data = build(content, stages=STAGES, inner=UNEVEN[-STAGES:]), batches()
    user_loads.LIMIT_S = 60.0  # other work may hold this host up
    perseus_ds.set_load(lengths_of(engine.grid.get_data_parallel_rank(), period=PERIOD))
    return [float(engine.train_batch(data)).hex() for _ in range(steps)]


def course(
    run_dir: Path, pacing: str, *, simulated: Mapping[str, object] = SIMULATED, read_ahead: bool = False
) -> dict[str, Any]:
    return block(
        run_dir,
        simulated=simulated,
        straggler={"pacing": pacing} | ({"loads": "read_ahead"} if read_ahead else {}),
        profile={"min_window_s": 10.0, "max_clocks": 3, "warmup_iterations": 2},
        audit={"every_iterations": 12, "iterations": 12, "settle_s": 0.0},
    )


@dataclass(frozen=True)
class BothWays:
    """The same job without pacing by loads and with it, from one profile and plan."""

    run_dir: Path
    without: list[Said]
    with_it: list[Said]

    @property
    def summaries(self) -> tuple[dict[str, Any], dict[str, Any]]:
        without, with_it = (self.run_dir / f"{name}_summary.json" for name in ("without", "with"))
        return json.loads(without.read_text()), json.loads(with_it.read_text())

    @property
    def events(self) -> set[str]:
        written = (self.run_dir / "with_events.jsonl").read_text()
        return {json.loads(line)["event"] for line in written.splitlines()}

    @property
    def answers(self) -> dict[str, Any]:
        found: dict[str, Any] = self.summaries[1]["facts"]["answers"]
        return found


def as_expected(summary: Mapping[str, Any]) -> None:
    """Compare what was measured with what was expected of it, both with their errors."""
    facts = summary["facts"]
    for name, expected_pct in (
        ("saving", summary["predicted_saving_pct"]),
        ("slowdown", facts["predicted_slowdown_pct"]),
    ):
        within_pct = SURE * summary[f"{name}_se_pct"] + facts[f"predicted_{name}_within_pct"]
        assert abs(summary[f"{name}_pct"] - expected_pct) <= within_pct


def was_paced_and_saves(job: BothWays, *, more_pct: float) -> None:
    """Check that pacing saved energy and cost no time; without it all is as expected."""
    assert job.answers["paced_iterations"] >= 20
    assert not job.events & {"straggler", "disabled", "alone", "contradicted", "slower", "paced_no_more"}
    without, with_it = job.summaries
    for name in ("saving_pct", "slowdown_pct"):
        sys.stdout.write(f"\n{name}: {without[name]:.2f}, paced {with_it[name]:.2f}")
    as_expected(without)
    assert with_it["saving_pct"] > without["saving_pct"] + more_pct
    within = SURE * math.hypot(with_it["slowdown_se_pct"], without["slowdown_se_pct"])
    assert with_it["slowdown_pct"] <= without["slowdown_pct"] + 0.2 + within


def both_ways(
    run_dir: Path,
    *,
    replicas: int,
    steps: int,
    train: Train = trained,
    pacing: str = "automatic",
    course: Course = course,
) -> BothWays:
    ranks, said = STAGES * replicas, []
    for name, how in (("with_", pacing), ("without_", "never")):
        said.append(run_ranks(ranks, train, config(perseus=course(run_dir, how)), steps))
        for file in ("summary.json", "events.jsonl"):
            (run_dir / file).rename(run_dir / f"{name}{file}")
    return BothWays(run_dir, with_it=said[0], without=said[1])
