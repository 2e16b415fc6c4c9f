"""The job of ``scripts/versions``: profile, plan and run on two stages; losses as without us."""

from __future__ import annotations

import importlib.metadata
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import ranks

from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory

STEPS = 100


def train(rank: int, perseus: dict[str, object] | None) -> list[str]:
    """Return the exact losses of one rank."""
    del rank
    engine = ranks.build(ranks.config(4, perseus=perseus), stages=2, inner=(8, 14))
    return ranks.losses(engine, STEPS)


def serve(job: Callable[..., object], *arguments: object) -> list[object]:
    """Return what two ranks of a job with us return; end where no saving was measured."""
    with tempfile.TemporaryDirectory() as folder:
        block = {
            "enabled": True,
            "run_dir": folder,
            "device": "simulated",
            "on_error": "raise",
            "profile": {"min_window_s": 1.0, "max_clocks": 4},
            "audit": {"every_iterations": 4, "iterations": 2},
        }
        served = [one.value for one in ranks.run_ranks(2, job, block, *arguments)]
        events = [event["event"] for event in read_events(RunDirectory(Path(folder)).events)]
    if "measured" not in events:
        sys.exit(f"no measured saving; events: {' '.join(events)}")
    return served


def main(release: str) -> None:
    """Run with and without, compare, and print what happened."""
    if (imported := importlib.metadata.version("deepspeed")) != release:
        sys.exit(f"imported deepspeed {imported}, wanted {release}")
    if serve(train) != [one.value for one in ranks.run_ranks(2, train, None)]:
        sys.exit("losses differ")
    print("losses identical; profiled, planned, ran, measured")


if __name__ == "__main__":
    main(sys.argv[1])
