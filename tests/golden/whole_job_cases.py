"""Whole jobs for one seed: what they leave in their run directory, and how a job of eight ranks goes.

Values that differ from run to run (names of runs and hosts, moments, digests of whole files) are left out.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from perseus_ds.plan import PlanSet, Switching, read_plans
from perseus_ds.plan import build as build_plans
from perseus_ds.profile import read_profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.gpt3 import gpt3_profile

ROOT = Path(__file__).parents[2]
DIGITS = 6
VOLATILE = ("run", "host", "sha256", "digest", "outside", "version")


def left_by(run_dir: Path) -> dict[str, Any]:
    """Read what a job leaves: points of the profile, sums of the plan, summary, names of events in order."""
    profile, plans = read_profile(run_dir / "profile.json"), read_plans(run_dir / "plan.json")
    events = [json.loads(line)["event"] for line in (run_dir / "events.jsonl").read_text().splitlines()]
    return {
        "profile": {
            f"{stage}{kind.value}": [[p.clock_mhz, _round(p.time_s), _round(p.energy_j)] for p in points]
            for (stage, kind), points in sorted(profile.points.items(), key=str)
        },
        "plan": plan_sums(plans),
        "summary": _steady(json.loads((run_dir / "summary.json").read_text())),
        "events": events,
    }


def plan_sums(plans: PlanSet) -> dict[str, Any]:
    """Sums over all plans of a file."""
    return {
        "plans": len(plans),
        "time_s": _round(float(plans.iteration_time_s.sum())),
        "energy_j": _round(float(plans.effective_energy_j.sum())),
        "bound_j": _round(float(plans.lower_bound_j.sum())),
        "saving_pct": _round(plans.plan(0).saving_pct),
    }


def _round(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _steady(value: Any, name: str = "") -> Any:  # noqa: ANN401
    """All keys, and what does not depend on how many iterations pass while the plan is made."""
    if isinstance(value, dict):
        return {key: _steady(own, key) for key, own in value.items() if key not in VOLATILE}
    if isinstance(value, float):
        return _round(value) if name.startswith(("planned", "predicted", "certified")) else "measured"
    return "count" if name in ("iterations", "freedom", "time_freedom") else value


def _lifecycle(folder: Path) -> dict[str, Any]:
    """Four stages from an empty run directory to the first measured saving."""
    from jobs import STAGES, block, happened, train_until
    from ranks import config, run_ranks

    content = config(gradient_clipping=1.0, perseus=block(folder / "run"))
    said = run_ranks(4, train_until, content, STAGES, happened("measured"))
    return {
        **left_by(folder / "run"),
        "losses": hashlib.sha256(" ".join(said[0].value.losses[:20]).encode()).hexdigest(),
    }


def _demo(folder: Path) -> dict[str, Any]:
    """``scripts/demo_job`` by DeepSpeed's launcher, as ``scripts/demo`` starts it."""
    from ranks import free_port

    run_dir = folder / "run"
    words = ["--num_gpus", "4", "--master_port", str(free_port()), "--log_level", "error"]
    script = ["scripts/demo_job/train.py", "--deepspeed_config", "configs/demo.json"]
    subprocess.run(
        [str(Path(sys.executable).with_name("deepspeed")), *words, *script],
        cwd=ROOT,
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PERSEUS_RUN_DIR": str(run_dir),
            "OMP_NUM_THREADS": "1",
            "DS_ACCELERATOR": "cpu",
        },
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return left_by(run_dir)


FORWARD_S = (0.4, 0.5, 0.45, 0.42)
SLOW_FROM, SLOW_TO, KILLED_AT = 20, 40, 60


def _eight_ranks(folder: Path) -> dict[str, Any]:
    """Two replicas of four stages: one is 1.2 times slower for a while, then a rank vanishes."""
    from jobs import events
    from ranks import run_ranks
    from replicas import planned_job

    content = planned_job(folder, ranks=8, forward_s=FORWARD_S)
    said = run_ranks(8, _until_killed, content)
    seen = [one["event"] for one in events(folder / "run")]
    return {
        "events": seen,
        "losses": hashlib.sha256(" ".join(said[0].value[0]).encode()).hexdigest(),
        "others": [[outcome, clock_mhz] for _, outcome, clock_mhz in (one.value for one in said[:-1])],
    }


def _until_killed(rank: int, content: Mapping[str, Any]) -> tuple[list[str], str, float]:
    """Train until the last rank leaves as if killed; return losses, the way it ended, the clock then."""
    from ranks import batches, build

    import perseus_ds
    from perseus_ds.device.simulated.gpu import opened_gpus

    engine, data = build(content, stages=len(FORWARD_S)), batches()
    slow = engine.grid.get_data_parallel_rank() == 1
    losses, outcome = [], "trained"
    for iteration in range(KILLED_AT + 10):
        if iteration == KILLED_AT and rank == 7:
            return losses, "killed", 0.0
        for gpu in opened_gpus():
            gpu.slowness = 1.2 if slow and SLOW_FROM <= iteration < SLOW_TO else 1.0
        try:
            loss = float(engine.train_batch(data)).hex()
        except RuntimeError:
            outcome = "raised"
            break
        losses.append(loss)
    perseus_ds.detach(engine)
    gpu = opened_gpus()[-1]
    for _ in range(500):
        if gpu.true_now().clock_mhz == gpu.model.max_clock_mhz:
            break
        gpu.sleep(0.01)
        time.sleep(0.001)
    return losses[:KILLED_AT], outcome, gpu.true_now().clock_mhz


CUT_AT, GAP_S = 8, 10.0


def _lost_link(folder: Path) -> dict[str, Any]:
    """Eight ranks on two hosts in scaled time: of two networks the one that carries our exchange is cut."""
    from hosts import hosts
    from jobs import events
    from replicas import planned_job

    simulated = {"forward_s": list(FORWARD_S), "switch_latency_s": 0.0, "transfer_s": 0.0}
    scaled = {"simulated": simulated | {"time": "scaled", "time_scale": 0.01}}
    content = planned_job(folder, ranks=8, forward_s=FORWARD_S, perseus=scaled)
    plan = Path(content["perseus"]["run_dir"], "plan.json").read_text()
    with hosts(ranks_each=4) as network:
        run_dir, seen_dir = network.disk / "run", network.outside() / "run"
        seen_dir.mkdir()
        (seen_dir / "plan.json").write_text(plan)
        content = content | {"perseus": content["perseus"] | {"run_dir": str(run_dir)}}
        with network.cutting(1, GAP_S, once=seen_dir / "cut", net=1):
            said = network.run(_through_the_gap, content, run_dir)
        names = [one["event"] for one in events(seen_dir)]
    at_pace = {"straggler", "straggler_gone"}  # in scaled time a busy host is one
    digests = {hashlib.sha256(" ".join(one.value).encode()).hexdigest() for one in said}
    return {"events": sorted(set(names) - at_pace), "alone": names.count("alone"), "losses": sorted(digests)}


def _through_the_gap(rank: int, content: Mapping[str, Any], run_dir: Path) -> list[str]:
    """Train; rank 0 asks for the cut after some iterations of the plan."""
    from hosts import forget_interface
    from ranks import batches, build

    import perseus_ds

    engine = build(content, stages=len(FORWARD_S))
    forget_interface("eth1")
    data, losses = batches(), list[str]()
    for iteration in range(CUT_AT + 20):
        if rank == 0 and iteration == CUT_AT:
            (run_dir / "cut").touch()
            time.sleep(1.0)  # the cable is out by now, whatever is under way
        losses.append(float(engine.train_batch(data)).hex())
    perseus_ds.detach(engine)
    return losses


def _budget(sizes: str, per_s: float | None, split: str, _: Path) -> dict[str, Any]:
    """Plan the simulated GPU's GPT-3 within a budget of changes, or with one clock per computation."""
    from perseus_ds.device.clock_change import ClockChange
    from perseus_ds.plan import ChangeBudget

    stages, microbatches = map(int, sizes.split("x"))
    switching = Switching(
        ClockChange(0.005, 0.005, 0.005),
        split,  # type: ignore[arg-type]
        budget=ChangeBudget(per_gpu_per_s=per_s),
    )
    schedule = textbook("1f1b", stages=stages, microbatches=microbatches)
    return plan_sums(build_plans(gpt3_profile(), schedule, blocking_power_w=83.64, switching=switching))


SLOW = ("demo", "eight ranks, a lost control link")
"""Cases of the long tests."""

CASES = {
    "lifecycle": _lifecycle,
    "demo": _demo,
    "eight ranks, a straggler, a killed rank": _eight_ranks,
    "eight ranks, a lost control link": _lost_link,
    "plans 8x12 at 5 changes per s": partial(_budget, "8x12", 5.0, "automatic"),
    "plans 8x8 of whole clocks": partial(_budget, "8x8", None, "never"),
}
