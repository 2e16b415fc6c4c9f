"""Does any clock stay locked, whoever dies, whenever, and whatever else goes wrong? On fake NVIDIA GPUs.

    python scripts/bench/random_kills/main.py [--kills 1000] [--seed 1] [--json FILE]

Real processes, real signals, the real pynvml on a fake driver; no clock of a real GPU is touched. Needs root
(PID namespaces, a small disk). The exit code states whether a clock stayed locked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from campaign import Outcome, run, summary
from node import Node


def main() -> int:
    """Kill, count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="leave the figures in this file")
    options = parser.parse_args()
    for one in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):  # a shell's background ignores them, and so
        signal.signal(one, signal.SIG_DFL)  # would everybody whom we start: nobody would die of them
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        try:
            for outcome in run(node, options.kills, options.seed):
                outcomes.append(outcome)
                if outcome.failed:
                    print(f"left locked: {outcome}", flush=True)
        finally:
            node.close()
    found = summary(outcomes) | {"load_average": os.getloadavg()[0], "cpus": os.cpu_count() or 0}
    text = json.dumps(found, indent=1, default=str)
    print(text)
    if options.json is not None:
        options.json.write_text(text + "\n")
    return int(bool(found["failures"]))


if __name__ == "__main__":
    sys.exit(main())
