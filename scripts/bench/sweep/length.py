"""How long does a sweep take in a job, and how much slower is training meanwhile? See README.md.

python scripts/bench/sweep/length.py results.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from bare_host import BareHost, on_ranks, one_f_one_b

from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory

MICROBATCHES = 8
MOST_S = {2.0: 120.0, 15.0: 360.0}
MOST_SLOWER_PCT = 8.0
AT_ONCE = 5


@dataclass(frozen=True)
class Job:
    """Stages, and the mean forward of one of them (s)."""

    stages: int
    forward_s: float


JOBS = (Job(2, 0.072), Job(2, 0.076), Job(4, 0.445))


def profiled(rank: int, run_dir: str, job: Job) -> None:
    """Train until the profile is written."""
    del rank
    host = BareHost(one_f_one_b(job.stages, MICROBATCHES), weights=[1.0] * job.stages)
    host.begin(
        {
            "run_dir": run_dir,
            "device": "simulated",
            "mode": "profile",
            "simulated": {"gpu": "a100-sxm4-80gb", "mean_forward_s": job.forward_s},
        }
    )
    directory = RunDirectory(Path(run_dir))
    while not agreed(there=directory.profile.exists()):
        host.train(AT_ONCE)
    host.end()


def agreed(*, there: bool) -> bool:
    """What rank 0 sees, for everyone."""
    seen = torch.tensor([float(there)])
    dist.broadcast(seen, 0)
    return bool(seen.item())


def measured(job: Job) -> Mapping[str, object]:
    """One job's row."""
    with tempfile.TemporaryDirectory() as folder:
        on_ranks(job.stages, profiled, folder, job)
        found = {str(event["event"]): event for event in read_events(RunDirectory(Path(folder)).events)}
        clocks = json.loads((Path(folder) / "profile.json").read_text())["points"]
    course = found["profiled"]
    return {
        "stages": job.stages,
        "forward_s": job.forward_s,
        "clocks": len({point["clock_mhz"] for point in clocks}),
        "took_s": course["took_s"],
        "slower_pct": course["slower_pct"],
    }


def main() -> None:
    """Measure all, one after the other."""
    rows = [measured(job) for job in JOBS]
    text = json.dumps({"rows": rows, "most_s": MOST_S, "most_slower_pct": MOST_SLOWER_PCT}, indent=1)
    Path(sys.argv[1]).write_text(text + "\n") if sys.argv[1:] else sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
