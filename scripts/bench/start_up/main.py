"""CPU seconds of a start of the program and of a plan, printed as JSON; see README.md.

python scripts/bench/start_up/main.py [--runs 5] [--profile FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

BARS_S = {
    "--help": 0.4,
    "show --help": 0.4,
    "doctor": 1.5,
    "plan 8x12, nothing compiled yet": 4.0,
    "plan 8x12, compiled before": 1.5,
}
"""CPU seconds, with those of the children."""


def main() -> int:
    """Measure, print, and state on stderr and by the exit code which bars are missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="starts of each, the least counts; default: 5")
    parser.add_argument("--profile", type=Path, help="profile of 8 stages; default: the simulated GPU's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), options.profile or made(Path(folder)), options.runs)
    missed = {name: seconds for name, seconds in found.items() if seconds > BARS_S.get(name, seconds)}
    print(
        json.dumps({"cpu_s": found, "bars_s": BARS_S, "met": not missed, "load": os.getloadavg()}, indent=1)
    )
    for name, seconds in missed.items():
        print(f"bar missed: {name} takes {seconds:.2f} CPU s, bar {BARS_S[name]:g} s", file=sys.stderr)
    return int(bool(missed))


def measured(folder: Path, profile: Path, runs: int) -> dict[str, float]:
    """CPU seconds of every line, the least of some runs: what others do on the machine only adds."""
    plan = ["plan", str(profile), "--stages", "8", "--microbatches", "12", "--blocking-power-w", "83.64"]
    long_plan = [*plan[:4], "--microbatches", "96", *plan[6:]]
    one_clock = [*plan, "--split", "never"]
    warm = folder / "warm"
    spent_s(long_plan, warm)  # compiles what 8x12 alone would have interpreted
    found = {
        name: min(spent_s(name.split(), warm) for _ in range(runs))
        for name in ("--help", "show --help", "doctor")
    }
    found["plan 8x12, nothing compiled yet"] = min(spent_s(plan, folder / f"{n}") for n in range(runs))
    found["plan 8x12, compiled before"] = min(spent_s(plan, warm) for _ in range(runs))
    found["plan 8x12 --split never, nothing compiled yet"] = spent_s(one_clock, folder / "never")
    found["plan 8x12 --split never, compiled before"] = min(
        spent_s(one_clock, folder / "never") for _ in range(runs)
    )
    return {name: round(seconds, 3) for name, seconds in found.items()}


def made(folder: Path) -> Path:
    """Write the simulated GPU's profile."""
    profile = folder / "gpt3.csv"
    subprocess.run([sys.executable, "-m", "perseus_ds.simulation.gpt3", str(profile)], check=True)
    return profile


def spent_s(words: list[str], machine_code: Path) -> float:
    """User and system seconds of one run of the program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "perseus_ds.cli", *words],
        check=False,  # a doctor without a GPU refuses
        capture_output=True,
        env=os.environ | {"NUMBA_CACHE_DIR": str(machine_code)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
