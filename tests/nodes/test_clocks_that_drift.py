"""Clocks of two hosts run 100 ppm apart, and ten days: a job's figures stay within their stated errors."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from hosts import hosts
from jobs import agreed, block, names, plain_losses
from ranks import batches, build, config

from perseus_ds.runtime import attach
from perseus_ds.runtime.emulation_links import TimeMessages

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

STAGES, UNEVEN, AUDITS = 4, (8, 8, 8, 16), 3
PPM = 50.0  # of one host ahead, of the other behind
SURE = 5.0  # standard errors: beyond by chance once in ten thousand runs
AUDIT = {"every_iterations": 6, "iterations": 6}


class Drifting(TimeMessages):
    """A rank of which the clock runs faster or slower: moments of others are read by its own."""

    rate = 1.0

    def send(self, to: int, tag: int, moment_s: float) -> None:
        super().send(to, tag, moment_s / self.rate)

    def receive(self, source: int, tag: int) -> float:
        return super().receive(source, tag) * self.rate


def live(rank: int, content: dict[str, Any], run_dir: Path, ppm: float) -> list[str]:
    """Train until a plan has been audited a few times."""
    Drifting.rate = 1.0 + 1e-6 * (ppm if rank < STAGES // 2 else -ppm)
    setattr(attach, "TimeMessages", Drifting)  # noqa: B010  # this process ends with its job
    engine = build(content, stages=STAGES, inner=UNEVEN)
    data, seen, over = batches(), list[str](), False
    while not over:
        seen.append(float(engine.train_batch(data)).hex())
        over = agreed(names(run_dir).count("measured") >= AUDITS or len(seen) > 600, already=False)
    return seen


def summary(ppm: float) -> tuple[dict[str, Any], list[list[str]]]:
    with hosts(days_apart=10.0) as network:
        run_dir = network.disk / "run"
        said = network.run(live, config(perseus=block(run_dir, audit=AUDIT)), run_dir, ppm)
        found = json.loads((network.outside() / "run" / "summary.json").read_text())
    return found, [one.value for one in said]


def figures(summary: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """What is printed, each with its standard error."""
    sides = {
        f"{side} {name}": (summary[side][name], summary[side][f"{name.rpartition('_')[0]}_se_{name[-1]}"])
        for side in ("baseline", "perseus")
        for name in ("iteration_time_s", "energy_j")
    }
    shares = {name: (summary[f"{name}_pct"], summary[f"{name}_se_pct"]) for name in ("saving", "slowdown")}
    return sides | shares


def test_figures_of_drifting_clocks_are_within_their_errors() -> None:
    (true, _), (found, losses) = summary(0.0), summary(PPM)
    pairs = {name: (one, figures(found)[name]) for name, one in figures(true).items()}
    sys.stdout.write("".join(f"{name}: {one} {other}\n" for name, (one, other) in pairs.items()))
    assert losses == plain_losses(len(losses[0]))
    apart = {
        name: abs(one - other) / math.hypot(one_se, other_se)
        for name, ((one, one_se), (other, other_se)) in pairs.items()
    }
    assert max(apart.values()) < SURE, apart
