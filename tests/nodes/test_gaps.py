"""The way between two hosts is cut for a while as a plan runs: the plan runs on, and losses are the same."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hosts import OurTime, forget_interface, hosts
from jobs import agreed, names
from ranks import batches, build, run_ranks
from replicas import planned_job

from perseus_ds.runtime.attach import session_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

AT, MORE, MOST = 8, 12, 3_000
FORWARD_S = (0.4, 0.5)


@dataclass(frozen=True)
class Ride:
    """One rank's losses, how long each of its iterations took here, and how long of that we did."""

    losses: list[str]
    wall_s: list[float]
    ours_s: list[float]


def ride(rank: int, content: dict[str, Any], run_dir: Path) -> Ride:
    """Train on after the gap."""
    engine = build(content, stages=len(FORWARD_S))
    forget_interface()
    data, losses, wall_s, ours_s, left = batches(), list[str](), list[float](), list[float](), MOST
    ours = OurTime()
    while left > 0:
        if rank == 0 and len(losses) == AT:
            (run_dir / "cut").touch()
            time.sleep(1.0)  # the cable is out by now, whatever is under way
        began_s = time.monotonic()
        losses.append(float(engine.train_batch(data)).hex())
        wall_s.append(time.monotonic() - began_s)
        ours_s.append(ours.take())
        if (session := session_of(engine)) is not None:
            ours.put_around(session)
        left = min(left - 1, MORE) if agreed(len(losses) > AT + 20, left <= MORE) else left - 1
    return Ride(losses, wall_s, ours_s)


def plainly(rank: int, content: dict[str, Any], steps: int) -> list[str]:
    del rank
    engine, data = build(content, stages=len(FORWARD_S)), batches()
    return [float(engine.train_batch(data)).hex() for _ in range(steps)]


@pytest.mark.parametrize("gap_s", [1.0, 3.0, 10.0, 60.0])
def test_a_gap_costs_no_more_than_straggler_answers_and_audits(gap_s: float, tmp_path: Path) -> None:
    content = planned_job(tmp_path, ranks=4, forward_s=FORWARD_S)
    plan = (Path(content["perseus"]["run_dir"]) / "plan.json").read_text()
    with hosts() as network:
        run_dir = network.disk / "run"
        content = content | {"perseus": content["perseus"] | {"run_dir": str(run_dir)}}
        outside = network.outside() / "run"
        outside.mkdir()
        (outside / "plan.json").write_text(plan)
        with network.cutting(1, gap_s, when=outside / "cut"):
            said = network.run(ride, content, run_dir)
        seen = names(outside)
    losses = [one.value.losses for one in said]
    plain = run_ranks(4, plainly, content | {"perseus": {"enabled": False}}, len(losses[0]))
    longest_s, ours_s = (
        max(max(of(one.value)) for one in said)
        for of in (lambda one: one.wall_s, lambda one: one.ours_s[AT:])
    )
    sys.stdout.write(f"longest iteration {longest_s:.2f} s, of it {ours_s:.2f} s at most in ours: {seen}\n")
    assert losses == [one.value for one in plain]
    assert seen.count("alone") <= 1
    assert "disabled" not in seen
