"""Is a profile that has become wrong found in time, and nothing where nothing changed? See README.md.

python scripts/bench/drift/main.py results.json [--seeds 8] [--first-seed 0] [--only ROW]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "uncertainty"))

from bare_host import BareHost, on_ranks, one_f_one_b
from main import planned

from perseus_ds.device import SimulatedGpu
from perseus_ds.device.simulated import opened
from perseus_ds.profile import Profile, read_profile
from perseus_ds.run_directory import RunDirectory, read_events

GPU, FORWARD_S, MICROBATCHES, NOISE = "a100-sxm4-80gb", 0.26, 4, 0.02
ITERATIONS, EVERY, STEPS, WITHIN = 5000, 250, 8, 20
MORE, WARMER_K = 1.03, 15.0
MOVED_STAGE, ANSWERED_EVERY, LASTS = 2, 100, 30
FOUR = (1.0, 1.0, 1.0, 1.0)

Change = Callable[[SimulatedGpu, bool], None]


def nothing(gpu: SimulatedGpu, moved: bool) -> None:  # noqa: FBT001  # two states
    """Leave everything as it is."""


def slower(gpu: SimulatedGpu, moved: bool) -> None:  # noqa: FBT001  # two states
    """Make everything last 3 % longer, and back."""
    gpu.slowness = MORE if moved else 1.0


def hungrier(gpu: SimulatedGpu, moved: bool) -> None:  # noqa: FBT001  # two states
    """Make everything take 3 % more power and no more time, and back."""
    gpu.grow_hungry(MORE if moved else 1.0)


def warmer(gpu: SimulatedGpu, moved: bool) -> None:  # noqa: FBT001  # two states
    """Make the room 15 K warmer, and cooler again."""
    gpu.warm_room(WARMER_K if moved else 0.0)


@dataclass(frozen=True)
class Row:
    """What changes under a plan, on a GPU of all stages or of `MOVED_STAGE`; what microbatches are of.

    Where several stages run, what moved is measured again and planned anew (`profile.drift: automatic`).
    """

    change: Change
    noise: float = NOISE
    sizes: Sequence[int] = ()
    gpu: str = GPU
    forward_s: float = FORWARD_S
    weights: Sequence[float] = (1.0,)
    everywhere: bool = False

    @property
    def stages(self) -> int:
        """How many stages there are, each on a GPU of its own."""
        return len(self.weights)

    @property
    def steps(self) -> int:
        """How often something changes: once where it is answered, else there and back."""
        return 0 if self.change is nothing else STEPS if self.stages == 1 else 1

    @property
    def every(self) -> int:
        """Iterations before each change."""
        return EVERY if self.stages == 1 else ANSWERED_EVERY

    @property
    def moved(self) -> frozenset[int]:
        """The stages whose GPUs change."""
        return frozenset(range(self.stages)) if self.everywhere or self.stages == 1 else {MOVED_STAGE}

    def block(self, run_dir: str, seed: int) -> dict[str, object]:
        """Return the job's block: audits only where nothing changes."""
        simulated = {"gpu": self.gpu, "mean_forward_s": self.forward_s, "noise": self.noise, "seed": seed}
        whole: dict[str, object] = {"run_dir": run_dir, "device": "simulated"}
        if self.change is not nothing:
            whole["audit"] = {"every_iterations": 0}
        if self.steps and self.stages > 1:
            whole["profile"] = {"drift": "automatic"}
        return {**whole, "simulated": {**simulated, "host_step_s": 600.0}}


ROWS: Mapping[str, Row] = {
    "quiet": Row(nothing),
    "quiet, GPUs vary by 0.5 %": Row(nothing, noise=0.005),
    "quiet, loads of 2 to 5": Row(nothing, sizes=(2, 3, 4, 5)),
    "quiet, A40": Row(nothing, gpu="a40"),
    "quiet, iterations of 1.2 s": Row(nothing, forward_s=0.1),
    "quiet, 4 stages": Row(nothing, weights=FOUR),
    "3 % longer": Row(slower),
    "3 % longer, loads of 2 to 5": Row(slower, sizes=(2, 3, 4, 5)),
    "3 % longer, iterations of 1.2 s": Row(slower, forward_s=0.1),
    "3 % more energy": Row(hungrier),
    "3 % more energy, A40": Row(hungrier, gpu="a40"),
    "3 % more energy, iterations of 1.2 s": Row(hungrier, forward_s=0.1),
    "15 K": Row(warmer),
    "15 K, A40": Row(warmer, gpu="a40"),
    "one of 4 stages 3 % longer": Row(slower, weights=FOUR),
    "one of 4 stages with slack 3 % longer": Row(slower, weights=(1.0, 1.0, 1.0, 1.25)),
    "one of 4 stages 3 % more energy": Row(hungrier, weights=FOUR),
    "all of 4 stages 3 % longer": Row(slower, weights=FOUR, everywhere=True),
}


@dataclass
class Seen:
    """What a job reported: false alarms, and of each step after how many iterations it was found.

    ``named_right`` and ``only_moved`` count the steps whose line names the stages that changed, and after
    which the profile has new points of these alone. ``off_pct`` is by how much times and energies measured
    again miss the old ones with the change (`slower` alone). ``longer_pct`` is by how much longer iterations
    lasted than before the change: until it was found, and with the new plan.
    """

    iterations: int = 0
    false: int = 0
    delays: list[int | None] = field(default_factory=list)
    named_right: int = 0
    only_moved: int = 0
    off_pct: list[tuple[float, float]] = field(default_factory=list)
    longer_pct: list[tuple[float, float]] = field(default_factory=list)


def job(rank: int, run_dir: str, row: Row, seed: int) -> Seen:
    """Run one job; levels are learned anew after each drift, and so is the next step's."""
    host = BareHost(one_f_one_b(row.stages, MICROBATCHES), weights=row.weights, sizes=row.sizes)
    host.begin(row.block(run_dir, seed))
    seen, directory = Seen(), RunDirectory(Path(run_dir))
    until_planned(host, directory)
    if not row.steps:
        host.train(ITERATIONS)
        seen.iterations, seen.false = ITERATIONS, count(directory, "drift")
    for step in range(row.steps):
        host.train(row.every - LASTS)
        before_s = lasts_s(host)
        seen.iterations += row.every
        if rank in row.moved:
            row.change(opened()[-1], step % 2 == 0)
        answered(row, host, directory, seen, before_s)
    host.end()
    if seen.delays:
        seen.false = count(directory, "drift") - sum(one is not None for one in seen.delays)
    return seen


def lasts_s(host: BareHost, iterations: int = LASTS) -> float:
    """How long an iteration takes on this rank's clock: the mean of some."""
    gpu = opened()[-1]
    began_s = gpu.now_s()
    host.train(iterations)
    return (gpu.now_s() - began_s) / iterations


def answered(row: Row, host: BareHost, directory: RunDirectory, seen: Seen, before_s: float) -> None:
    """Train until the change is found, and, where it is answered, until the new plan runs."""
    profile, gpu = read_profile(directory.profile), opened()[-1]
    began_s = gpu.now_s()
    delay = until(host, directory, "drift", count(directory, "drift") + 1)
    seen.delays.append(delay)
    if delay is None:
        return
    found_s = (gpu.now_s() - began_s) / delay
    judge(row, host, directory, seen, profile)
    if row.stages > 1:
        longer = found_s / before_s, lasts_s(host) / before_s
        seen.longer_pct.append((100.0 * (longer[0] - 1.0), 100.0 * (longer[1] - 1.0)))


def judge(row: Row, host: BareHost, directory: RunDirectory, seen: Seen, before: Profile) -> None:
    """See what the line names, and, where it is measured again, what is new in the profile."""
    moved = [event["moved"] for event in read_events(directory.events) if event["event"] == "drift"][-1]
    seen.named_right += frozenset(map(int, moved)) == row.moved
    if row.stages == 1:
        return
    until(host, directory, "drift_measured", count(directory, "drift_measured") + 1)
    until_planned(host, directory)
    after = read_profile(directory.profile)
    new = {stage for stage, kind in after.points if after.of(stage, kind) != before.of(stage, kind)}
    seen.only_moved += new == row.moved
    if row.change is slower:
        times = MORE if len(seen.delays) % 2 else 1.0 / MORE
        seen.off_pct.append(off_pct(before, after, new, times))


def off_pct(before: Profile, after: Profile, stages: set[int], times: float) -> tuple[float, float]:
    """By how many percent times and energies of the clocks in both miss the old ones ``times`` as high."""
    both = [
        (old, new)
        for stage, kind in after.points
        if stage in stages
        for old in before.of(stage, kind)
        for new in after.of(stage, kind)
        if old.clock_mhz == new.clock_mhz
    ]
    time, energy = (
        fmean(100.0 * (getattr(new, unit) / getattr(old, unit) / times - 1.0) for old, new in both)
        for unit in ("time_s", "energy_j")
    )
    return time, energy


def until_planned(host: BareHost, directory: RunDirectory) -> None:
    """Train until the plan runs.

    Raises:
        SystemExit: ranks lost each other, as they do on a crowded host.
    """
    while not planned(host):
        host.train(5)
        if agreed(there=count(directory, "alone") > 0):
            raise SystemExit("ranks fell silent: no figure. Run this seed again")


def until(host: BareHost, directory: RunDirectory, event: str, wanted: int) -> int | None:
    """Train until there are so many events; for how many iterations, None where there are not."""
    for iterations in range(1, EVERY):
        host.train(1)
        if agreed(there=count(directory, event) >= wanted):
            return iterations
    return None


def agreed(*, there: bool) -> bool:
    """What rank 0 sees, for everyone."""
    seen = torch.tensor([float(there)])
    dist.broadcast(seen, 0)
    return bool(seen.item())


def count(directory: RunDirectory, event: str) -> int:
    """How many events of a name there are so far."""
    return sum(one["event"] == event for one in read_events(directory.events))


def measured(name: str, seeds: range) -> Mapping[str, object]:
    """One row."""
    row, seen = ROWS[name], list[Seen]()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            seen.append(on_ranks(row.stages, job, folder, row, seed)[0])
            events = read_events(RunDirectory(Path(folder)).events)
            lines = [e for e in events if "drift" in str(e["event"]) or e["event"] == "disabled"]
        sys.stderr.write(f"{name} {seed}: {seen[-1]} {[one.get('line', one['event']) for one in lines]}\n")
    delays = [one for several in seen for one in several.delays]
    found = sorted(one for one in delays if one is not None)
    off = [one for several in seen for one in several.off_pct]
    longer = [one for several in seen for one in several.longer_pct]
    return {
        "row": name,
        "seeds": len(seen),
        "iterations": sum(one.iterations for one in seen),
        "false": sum(one.false for one in seen),
        "steps": len(delays),
        "found": len(found),
        "found_within": sum(one <= WITHIN for one in found),
        "median": found[len(found) // 2] if found else None,
        "most": found[-1] if found else None,
        "named_right": sum(one.named_right for one in seen),
        "only_moved": sum(one.only_moved for one in seen) if row.stages > 1 and row.steps else None,
        "off_pct": [fmean(column) for column in zip(*off, strict=True)] or None,
        "longer_pct": [fmean(column) for column in zip(*longer, strict=True)] or None,
        "off_most_pct": [max(map(abs, column)) for column in zip(*off, strict=True)] or None,
    }


def main() -> None:
    """Write a line for every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = []
    for name in [options.only] if options.only in ROWS else [one for one in ROWS if options.only in one]:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        rows.append(measured(name, seeds))
        sys.stderr.write(f"{rows[-1]}\n")
        options.results.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
