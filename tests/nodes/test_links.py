"""Links between two hosts are cut for a while: training is as without us."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import Hosts, forget_interface, hosts
from jobs import UNEVEN, agreed, block, lines, names, plain_losses
from ranks import Said, batches, build, config
from replicas import losses_without_us, planned_job

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

AT, AFTER_S, MOST = 8, 10.0, 20_000
FORWARD_S = (0.4, 0.5)
PATIENCE_S = 5.0  # of our exchange
SCALED = {"time": "scaled", "time_scale": 0.05}
"""In scaled time nothing but our own exchange crosses the control network."""
LONG = {"min_window_s": 40.0, "max_clocks": 3, "warmup_iterations": 2, "max_slower_pct": 30.0}
"""Two seconds of the host's for a window: the link breaks before the profile is there."""


@dataclass(frozen=True)
class Gap:
    """Duration of a network's cut, some iterations after an event, and the widths of the job's stages."""

    lasts_s: float
    event: str
    inner: tuple[int, ...]
    net: int


def ride(rank: int, content: dict[str, Any], gap: Gap) -> list[str]:
    """Train until some seconds after the gap."""
    engine, data, seen = build(content, stages=len(gap.inner), inner=gap.inner), batches(), list[str]()
    forget_interface(f"eth{gap.net}" if gap.net else None)
    run_dir, cut_s, over = Path(content["perseus"]["run_dir"]), float("inf"), False
    while not over:
        seen.append(float(engine.train_batch(data)).hex())
        if rank == 0 and cut_s == float("inf") and len(seen) >= AT and gap.event in names(run_dir):
            (run_dir / "cut").touch()
            time.sleep(1.0)  # the cable is out by now, whatever is under way
            cut_s = time.monotonic()
        time.sleep(0.02)  # alone, an iteration takes no time here
        over = agreed(time.monotonic() > cut_s + gap.lasts_s + AFTER_S or len(seen) > MOST)
    return seen


def through(network: Hosts, content: dict[str, Any], gap: Gap) -> tuple[list[Said], list[str]]:
    """Run a job over a network that is cut: what its ranks said, and what happened."""
    outside = network.outside() / "run"
    perseus = content["perseus"] | {"run_dir": str(network.disk / "run")}
    with network.cutting(1, gap.lasts_s, once=outside / "cut", net=gap.net):
        said = network.run(ride, content | {"perseus": perseus}, gap)
    seen = names(outside)
    sys.stdout.write(f"{gap}: {seen}\n")
    assert "disabled" not in seen
    assert seen.count("alone") <= 1
    return said, seen


@pytest.mark.parametrize("gap_s", [3.0, 60.0])
def test_a_gap_costs_no_more_than_straggler_answers_and_audits(gap_s: float, tmp_path: Path) -> None:
    content = planned_job(tmp_path, ranks=4, forward_s=FORWARD_S)
    with hosts() as network:
        (network.outside() / "run").mkdir()
        plan = (Path(content["perseus"]["run_dir"]) / "plan.json").read_text()
        (network.outside() / "run" / "plan.json").write_text(plan)
        said, _ = through(network, content, Gap(gap_s, "running", (8, 8), 0))
    assert [one.value for one in said] == losses_without_us(content, len(FORWARD_S), 4, len(said[0].value))


@pytest.mark.parametrize("gap_s", [3.0, 60.0])
def test_a_profile_that_lost_half_of_the_ranks_leaves_default_clocks(gap_s: float, tmp_path: Path) -> None:
    content = config(perseus=block(tmp_path, simulated=SCALED, profile=LONG))
    with hosts() as network:
        said, seen = through(network, content, Gap(gap_s, "profiling", UNEVEN, 1))
    assert [one.value for one in said] == plain_losses(len(said[0].value))
    if gap_s > PATIENCE_S:
        assert seen[-1] == "alone", "nothing is measured, planned or run from then on"
        assert any("job restarts" in line for line in lines(said[0]))
