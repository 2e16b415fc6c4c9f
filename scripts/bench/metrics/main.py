"""CPU time that metrics cost a rank: of their own thread and of the training thread; see README.md.

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

BAR_MS_PER_S = 1.0
PAUSE_S = 0.01


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
        main = threading.current_thread()
        own = [one for one in threading.enumerate() if one.name == "perseus-metrics"]

        threads = {"training": [main], "metrics": own}
        before = {name: sum(map(cpu_s, of)) for name, of in threads.items()}
        began_s, iterations = time.monotonic(), 0
        while time.monotonic() < began_s + seconds:
            loop.step()
            iterations += 1
            time.sleep(PAUSE_S)
        lasted_s = time.monotonic() - began_s
        spent_s = {name: sum(map(cpu_s, of)) - before[name] for name, of in threads.items()}
        session.end(well=True)
    return {
        "metrics_ms_per_s": 1e3 * spent_s["metrics"] / lasted_s,
        "training_us_per_iteration": 1e6 * spent_s["training"] / iterations,
    }


def main() -> int:
    """Measure with and without, in turns; the exit code states whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    settings = {"without": {"enabled": False}, "every_s 1": {"enabled": True, "every_s": 1.0}}
    with tempfile.TemporaryDirectory() as folder, alone(Path(folder) / "store"):
        rows = [(name, measured(block, seconds)) for _ in range(2) for name, block in settings.items()]
    sys.stdout.write(json.dumps([{"metrics": name, **row} for name, row in rows], indent=1) + "\n")
    return int(any(row["metrics_ms_per_s"] > BAR_MS_PER_S for _, row in rows))


if __name__ == "__main__":
    sys.exit(main())
