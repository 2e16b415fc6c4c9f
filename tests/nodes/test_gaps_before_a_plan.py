"""Control traffic is cut while a job profiles: training goes on, and the profile begins anew."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import forget_interface, hosts
from jobs import STAGES, UNEVEN, agreed, block, lines, names, plain_losses
from ranks import batches, build, config

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

GAP_S, MOST = 45.0, 20_000
SCALED = {"time": "scaled", "time_scale": 0.05}
"""In scaled time nothing but our own exchange crosses the control network."""


@dataclass(frozen=True)
class Course:
    """One rank's losses, and the longest of its iterations."""

    losses: list[str]
    longest_s: float


def began_anew(seen: list[str]) -> bool:
    """Whether a clock was profiled after all had met again: first comes the line of the beginning."""
    return "together" in seen and seen[seen.index("together") :].count("profiling") > 1


def profile_through(rank: int, content: dict[str, Any], run_dir: Path) -> Course:
    engine = build(content, stages=STAGES, inner=UNEVEN)
    forget_interface("eth1")
    data, losses, longest_s, over = batches(), list[str](), 0.0, False
    while not over:
        began_s = time.monotonic()
        losses.append(float(engine.train_batch(data)).hex())
        longest_s = max(longest_s, time.monotonic() - began_s)
        time.sleep(0.02)  # alone, an iteration takes no time here
        if rank == 0 and names(run_dir).count("profiling") > 1:
            (run_dir / "cut").touch()
        over = agreed(began_anew(names(run_dir)) or len(losses) > MOST, already=False)
    return Course(losses, longest_s)


def test_a_profile_that_lost_half_of_the_ranks_begins_anew() -> None:
    with hosts() as network:
        run_dir = network.disk / "run"
        perseus = block(run_dir, simulated=SCALED)
        with network.cutting(1, GAP_S, when=network.outside() / "run" / "cut", net=1):
            said = network.run(profile_through, config(perseus=perseus), run_dir)
        seen = names(network.outside() / "run")
    losses = [one.value.losses for one in said]
    sys.stdout.write(f"longest iteration {max(one.value.longest_s for one in said):.1f} s: {seen}\n")
    assert losses == plain_losses(len(losses[0]))
    assert "disabled" not in seen
    assert seen.index("together") > seen.index("alone")
    assert began_anew(seen)
    assert any("clocks are the default until all ranks answer again" in line for line in lines(said[0]))
