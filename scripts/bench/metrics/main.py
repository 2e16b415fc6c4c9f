"""What metrics cost a rank: CPU time of their own thread, calls of the training thread; see README.md.

python scripts/bench/metrics/main.py [--seconds 30]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from lone_job import Loop, alone, begun, block_of, names_of  # noqa: E402  # a job of one rank
from own_calls import calls_at_a_plan, planned  # noqa: E402

BAR_MS_PER_S = 1.0
PAUSE_S = 0.01
ITERATIONS = 400


def cpu_s(thread: threading.Thread) -> float:
    """Read what a thread has computed so far.

    Source: Linux, Documentation/scheduler/sched-stats.rst, ``schedstat``: nanoseconds on the CPU first.
    """
    return int(Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]) / 1e9


def measured(metrics: Mapping[str, object], seconds: float) -> dict[str, float]:
    """Train until a plan runs and is measured, then for some seconds at a hundred iterations a second."""
    with tempfile.TemporaryDirectory() as folder:
        loop, run_dir = Loop(), Path(folder) / "run"
        session = begun(loop, block_of(run_dir, metrics=metrics))
        while "measured" not in names_of(run_dir):
            loop.step()
        own = [one for one in threading.enumerate() if one.name == "perseus-metrics"]
        before_s, began_s = sum(map(cpu_s, own)), time.monotonic()
        while time.monotonic() < began_s + seconds:
            loop.step()
            time.sleep(PAUSE_S)
        lasted_s, spent_s = time.monotonic() - began_s, sum(map(cpu_s, own)) - before_s
        session.end(well=True)
    return {"metrics_ms_per_s": 1e3 * spent_s / lasted_s}


def counted(folder: Path) -> dict[str, object]:
    """Calls of the training thread over so many iterations at a plan, and those that are not alike."""
    plan = planned(folder / "planned")
    without = calls_at_a_plan(plan, folder / "without", {"enabled": False}, ITERATIONS)
    more = calls_at_a_plan(plan, folder / "with", {"enabled": True, "every_s": 1.0}, ITERATIONS)
    return {
        "iterations": ITERATIONS,
        "calls_without": without.total(),
        "calls_with": more.total(),
        "only_with": dict(more - without),
        "only_without": dict(without - more),
    }


def main() -> int:
    """Measure with and without, in turns; the exit code states whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    settings = {"without": {"enabled": False}, "every_s 1": {"enabled": True, "every_s": 1.0}}
    with tempfile.TemporaryDirectory() as folder, alone(Path(folder) / "store"):
        rows = [(name, measured(block, seconds)) for _ in range(2) for name, block in settings.items()]
        calls = counted(Path(folder))
    told = {"threads": [{"metrics": name, **row} for name, row in rows], "training_thread": calls}
    sys.stdout.write(json.dumps(told, indent=1) + "\n")
    return int(any(row["metrics_ms_per_s"] > BAR_MS_PER_S for _, row in rows))


if __name__ == "__main__":
    sys.exit(main())
