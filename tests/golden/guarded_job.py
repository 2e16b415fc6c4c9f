"""A training process on a GPU of the fake driver, alone in its group under a launcher: for ``guard_cases``.

usage: guarded_job.py launch|train RUN_DIR STATE
"""

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perseus_ds.plan import build, write_plans
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind, textbook

ATTACHED, DETACHED = "attached", "detached"
"""States that last until somebody ends the process; any other one is ``locked``."""


def launch() -> None:
    """Start the training process and wait for it, as launchers do."""
    subprocess.run([sys.executable, __file__, "train", *sys.argv[2:]], check=False)


def _write_plan(fingerprint: Mapping[str, str], run_dir: Path) -> None:
    """A plan for this very job, by a table: the slower, the less energy."""
    points = {
        (0, kind): tuple(Point(mhz, time_s * 1410 / mhz, time_s * 0.2 * mhz) for mhz in (1410, 1200, 1005))
        for kind, time_s in ((Kind.FORWARD, 0.01), (Kind.BACKWARD, 0.02))
    }
    schedule = textbook("1f1b", stages=1, microbatches=4)
    plans = build(Profile(points, blocking_power_w=70.0), schedule, blocking_power_w=70.0)
    run_dir.mkdir()
    write_plans(replace(plans, fingerprint=fingerprint), run_dir / "plan.json")


def train() -> None:
    """Train one stage: without a request for a clock (``attached``), with, or until it detaches."""
    run_dir, state = Path(sys.argv[2]), sys.argv[3]
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    warnings.simplefilter("ignore")
    import torch
    from pipelines import Pipeline

    import perseus_ds

    os.environ.update(RANK="0", WORLD_SIZE="1")
    method = f"file://{run_dir}.rendezvous"
    torch.distributed.init_process_group("gloo", init_method=method, rank=0, world_size=1)
    pipeline = Pipeline("1F1B", 4)
    block = {
        "enabled": True,
        "device": "nvml",
        "objective": {"policy": "max_slowdown", "max_slowdown_pct": 40.0},
        "profile": {"warmup_iterations": 10_000 if state == ATTACHED else 2},
    }
    observed = run_dir.with_suffix(".observed")
    perseus_ds.attach(pipeline.schedule, config={**block, "mode": "observe", "run_dir": str(observed)})
    for _ in range(4):
        pipeline.train()
    perseus_ds.detach(pipeline.schedule)
    attached = json.loads((observed / "events.jsonl").read_text().splitlines()[0])
    _write_plan(attached["fingerprint"], run_dir)
    perseus_ds.attach(pipeline.schedule, config={**block, "mode": "run", "run_dir": str(run_dir)})
    until_s = time.monotonic() + 120.0
    while time.monotonic() < until_s:
        pipeline.train()
        (run_dir.parent / f"{run_dir.name}.trained").touch()
        if state == DETACHED and (run_dir.parent / f"{run_dir.name}.locked").exists():
            perseus_ds.detach(pipeline.schedule)
            (run_dir.parent / f"{run_dir.name}.detached").touch()
        time.sleep(0.05)  # four such jobs share the host


if __name__ == "__main__":
    launch() if sys.argv[1] == "launch" else train()
