"""Is a profile that has become wrong found in time, and nothing where nothing changed? See README.md.

python scripts/bench/drift/main.py results.json [--seeds 6] [--only ROW]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "uncertainty"))

from bare_host import BareHost, on_ranks, one_f_one_b
from main import planned

from perseus_ds.device import SimulatedGpu
from perseus_ds.device.simulated import opened
from perseus_ds.run_directory import RunDirectory, read_events

GPU, FORWARD_S, MICROBATCHES, NOISE = "a100-sxm4-80gb", 0.26, 4, 0.02
ITERATIONS, EVERY, STEPS, WITHIN = 5000, 250, 8, 20
WARMER_K = 15.0

Change = Callable[[SimulatedGpu, bool], None]


def nothing(gpu: SimulatedGpu, moved: bool) -> None:  # noqa: FBT001  # two states
    """Leave everything as it is."""


def slower(gpu: SimulatedGpu, moved: bool) -> None:  # noqa: FBT001  # two states
    """Make everything last 3 % longer, and back."""
    gpu.slowness = 1.03 if moved else 1.0


def warmer(gpu: SimulatedGpu, moved: bool) -> None:  # noqa: FBT001  # two states
    """Make the room 15 K warmer, and cooler again."""
    gpu.warm_room(WARMER_K if moved else 0.0)


@dataclass(frozen=True)
class Row:
    """What changes under a plan, and what microbatches are of."""

    change: Change
    noise: float = NOISE
    sizes: Sequence[int] = ()
    gpu: str = GPU
    forward_s: float = FORWARD_S


ROWS: Mapping[str, Row] = {
    "quiet": Row(nothing),
    "quiet, GPUs vary by 0.5 %": Row(nothing, noise=0.005),
    "quiet, loads of 2 to 5": Row(nothing, sizes=(2, 3, 4, 5)),
    "quiet, A40": Row(nothing, gpu="a40"),
    "3 % longer": Row(slower),
    "3 % longer, loads of 2 to 5": Row(slower, sizes=(2, 3, 4, 5)),
    "3 % longer, iterations of 1.2 s": Row(slower, forward_s=0.1),
    "15 K": Row(warmer),
    "15 K, A40": Row(warmer, gpu="a40"),
}


@dataclass
class Seen:
    """What a job reported: false alarms, and of each step after how many iterations it was found."""

    iterations: int = 0
    false: int = 0
    delays: list[int | None] = field(default_factory=list)


def job(rank: int, run_dir: str, row: Row, seed: int) -> Seen:
    """Run one job; levels are learned anew after each drift, and so is the next step's."""
    del rank
    host = BareHost(one_f_one_b(1, MICROBATCHES), weights=[1.0], sizes=row.sizes)
    simulated = {"gpu": row.gpu, "mean_forward_s": row.forward_s, "noise": row.noise, "seed": seed}
    audit = {} if row.change is nothing else {"audit": {"every_iterations": 0}}
    whole = {"run_dir": run_dir, "device": "simulated", **audit}
    host.begin({**whole, "simulated": {**simulated, "host_step_s": 600.0}})
    while not planned(host):
        host.train(5)
    seen, events = Seen(), RunDirectory(Path(run_dir)).events
    if row.change is nothing:
        host.train(ITERATIONS)
        seen.iterations, seen.false = ITERATIONS, drifts(events)
    for step in range(0 if row.change is nothing else STEPS):
        host.train(EVERY)
        seen.iterations, before = seen.iterations + EVERY, drifts(events)
        row.change(opened()[-1], step % 2 == 0)
        seen.delays.append(delay(host, events, before + 1))
    host.end()
    if seen.delays:
        seen.false = drifts(events) - sum(one is not None for one in seen.delays)
    return seen


def delay(host: BareHost, events: Path, wanted: int) -> int | None:
    """Train until a drift is reported; None where it is not."""
    for count in range(1, EVERY):
        host.train(1)
        if drifts(events) >= wanted:
            return count
    return None


def drifts(events: Path) -> int:
    """How many were reported so far."""
    return sum(event["event"] == "drift" for event in read_events(events))


def measured(name: str, seeds: int) -> Mapping[str, object]:
    """One row."""
    seen: list[Seen] = []
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            seen += on_ranks(1, job, folder, ROWS[name], seed)
            lines = [e for e in read_events(RunDirectory(Path(folder)).events) if "drift" in str(e["event"])]
        sys.stderr.write(f"{name} {seed}: {seen[-1]} {[one.get('line', one['event']) for one in lines]}\n")
    delays = [one for several in seen for one in several.delays]
    found = sorted(one for one in delays if one is not None)
    return {
        "row": name,
        "iterations": sum(one.iterations for one in seen),
        "false": sum(one.false for one in seen),
        "steps": len(delays),
        "found": len(found),
        "found_within": sum(one <= WITHIN for one in found),
        "median": found[len(found) // 2] if found else None,
        "most": found[-1] if found else None,
    }


def main() -> None:
    """Write a line for every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = []
    for name in (one for one in ROWS if options.only in one):
        rows.append(measured(name, options.seeds))
        sys.stderr.write(f"{rows[-1]}\n")
        options.results.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
