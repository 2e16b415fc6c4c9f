"""Control traffic is cut while a job profiles: training goes on at default clocks, and says so once."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import OurTime, forget_interface, hosts
from jobs import STAGES, UNEVEN, agreed, block, lines, names, plain_losses
from ranks import batches, build, config

from perseus_ds.runtime.attach import session_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

AT, AFTER_S, MOST = 20, 10.0, 20_000
SCALED = {"time": "scaled", "time_scale": 0.05}
"""In scaled time nothing but our own exchange crosses the control network."""
LONG = {"min_window_s": 40.0, "max_clocks": 3, "warmup_iterations": 2, "max_slower_pct": 30.0}
"""Two seconds of the host's for a window: the link breaks before the profile is there."""


@dataclass(frozen=True)
class Course:
    """One rank's losses, and how long each of its iterations waited in calls of ours."""

    losses: list[str]
    ours_s: list[float]


def profile_through(rank: int, content: dict[str, Any], run_dir: Path, gap_s: float) -> Course:
    engine = build(content, stages=STAGES, inner=UNEVEN)
    forget_interface("eth1")
    data, losses, ours, ours_s = batches(), list[str](), OurTime(), list[float]()
    cut_s, over = float("inf"), False
    while not over:
        losses.append(float(engine.train_batch(data)).hex())
        ours_s.append(ours.take())
        if (session := session_of(engine)) is not None:
            ours.put_around(session)
        time.sleep(0.02)  # alone, an iteration takes no time here
        seen = names(run_dir)
        if rank == 0 and cut_s == float("inf") and seen.count("profiling") and len(losses) > AT:
            (run_dir / "cut").touch()
            cut_s = time.monotonic()
        since_s = time.monotonic() - cut_s
        over = agreed(since_s > gap_s + AFTER_S or len(losses) > MOST, already=False)
    return Course(losses, ours_s)


@pytest.mark.parametrize("gap_s", [1.0, 3.0, 10.0, 60.0])
def test_a_profile_that_lost_half_of_the_ranks_leaves_default_clocks(gap_s: float) -> None:
    with hosts() as network:
        run_dir = network.disk / "run"
        perseus = block(run_dir, simulated=SCALED, profile=LONG)
        with network.cutting(1, gap_s, when=network.outside() / "run" / "cut", net=1):
            said = network.run(profile_through, config(perseus=perseus), run_dir, gap_s)
        seen = names(network.outside() / "run")
    losses = [one.value.losses for one in said]
    longest_s = sorted((round(ours_s, 2) for one in said for ours_s in one.value.ours_s), reverse=True)
    sys.stdout.write(f"gap {gap_s:.0f} s, longest waits in ours {longest_s[:9]}: {seen}\n")
    assert losses == plain_losses(len(losses[0]))
    assert "disabled" not in seen
    assert seen.count("alone") <= 1
    if gap_s > 5.0:
        assert seen[-1] == "alone", "nothing is measured, planned or run from then on"
        assert any("job restarts" in line for line in lines(said[0]))
