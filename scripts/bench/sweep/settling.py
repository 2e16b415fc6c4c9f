"""How long must cold GPUs warm up before a sweep, and what do temperatures mend? See README.md.

python scripts/bench/sweep/settling.py results.json [--seeds 8] [--first-seed 0] [--settle-s 60 20]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from bare_host import BareHost, on_ranks, one_f_one_b

from perseus_ds.device.simulated.gpu import SimulatedGpu, opened
from perseus_ds.device.simulated.physics import Work, held_clock_mhz, work_power_w, work_rate
from perseus_ds.profile import read_profile
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.schedule import Kind

GPUS = ("a100-sxm4-80gb", "h100-sxm")
FORWARDS_S = (0.076, 0.27)
WEIGHTS = (1.0, 1.25)
MICROBATCHES, NOISE, BACKWARD = 8, 0.02, 2.0
IDLE_S, WARM_S, COUNTED = 600.0, 400.0, 20


@dataclass(frozen=True)
class Job:
    """One job: its GPUs, the mean forward of a stage (s), how long GPUs are to settle, its noise's seed."""

    gpu: str
    forward_s: float
    settle_s: float
    seed: int

    @property
    def block(self) -> dict[str, object]:
        """Return the block but for the run directory."""
        simulated = {"gpu": self.gpu, "mean_forward_s": self.forward_s, "noise": NOISE, "seed": self.seed}
        return {
            "device": "simulated",
            "mode": "profile",
            "profile": {"settle_s": self.settle_s},
            "simulated": {**simulated, "backward_over_forward": BACKWARD, "host_step_s": 600.0},
        }


@dataclass(frozen=True)
class Row:
    """One point: its clock, and by how many percent it misses the true energy as it was seen, and brought."""

    clock_mhz: int
    seen_pct: float
    brought_pct: float


def swept(rank: int, run_dir: str, job: Job) -> list[Row]:
    """Sweep on GPUs that have idled; hold the profile against the truth where default clocks settle."""
    host = BareHost(one_f_one_b(len(WEIGHTS), MICROBATCHES), weights=WEIGHTS)
    host.begin({"run_dir": run_dir, **job.block})
    own, directory = opened()[-1], RunDirectory(Path(run_dir))
    own.sleep(IDLE_S)
    windows = list[Mapping[str, object]]()
    while not agreed(there=directory.profile.exists()):
        host.train(1)
        if agreed(there=directory.sweep.exists()):
            windows = json.loads(directory.sweep.read_text())["groups"][0]["windows"]
    ends_c = settled_c(own, host)
    host.end()
    forward_s = job.forward_s * WEIGHTS[rank] / statistics.fmean(WEIGHTS)
    forward = Work(forward_s, own.settings.memory_bound, own.settings.intensity)
    works = {Kind.FORWARD: forward, Kind.BACKWARD: forward.scaled(BACKWARD)}
    seen_j = {
        (row["kind"], row["clock_mhz"]): row["energy_j"]
        for window in windows
        for row in window["points"]
        if row["stage"] == rank
    }
    return [
        Row(
            point.clock_mhz,
            off_pct(seen_j[kind.value, point.clock_mhz], true_j),
            off_pct(point.energy_j, true_j),
        )
        for kind, work in works.items()
        for point in read_profile(directory.profile).of(rank, kind)
        for true_j in [true_energy_j(own, point.clock_mhz, work, ends_c)]
    ]


def off_pct(energy_j: float, true_j: float) -> float:
    """By how many percent an energy misses the true one."""
    return 100.0 * (energy_j / true_j - 1.0)


def settled_c(gpu: SimulatedGpu, host: BareHost) -> float:
    """Train on at default clocks until the GPU is warm; its mean power states at which temperature it is."""
    begun_s = gpu.now_s()
    while agreed(there=gpu.now_s() - begun_s < WARM_S):
        host.train(1)
    before = gpu.true_now()
    host.train(COUNTED)
    after = gpu.true_now()
    mean_w = (after.energy_j - before.energy_j) / (after.time_s - before.time_s)
    return gpu.model.ambient_c + gpu.model.thermal_k_per_w * mean_w


def true_energy_j(gpu: SimulatedGpu, clock_mhz: int, work: Work, at_c: float) -> float:
    """What a computation takes at a clock on a GPU of a temperature."""
    model = gpu.model
    held_mhz = held_clock_mhz(model, clock_mhz, work.intensity, model.power_cap_w)
    leaks_w = model.leakage_w_per_k * (at_c - model.reference_c)
    return (
        (work_power_w(model, held_mhz, work.intensity) + leaks_w)
        * work.seconds
        / work_rate(model, held_mhz, work.memory_bound)
    )


def agreed(*, there: bool) -> bool:
    """What rank 0 sees, for everyone."""
    seen = torch.tensor([float(there)])
    dist.broadcast(seen, 0)
    return bool(seen.item())


def measured(one: Job, seeds: range) -> Mapping[str, object]:
    """One row of the table: means over seeds, with the standard error of a mean."""
    took_s, per_seed = list[float](), list[Sequence[Row]]()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(len(WEIGHTS), swept, folder, replace(one, seed=seed))
            events = {str(one["event"]): one for one in read_events(RunDirectory(Path(folder)).events)}
        took_s.append(float(str(events["profiled"]["took_s"])))
        per_seed.append([row for rank in ranks for row in rank])
    return {
        "gpu": one.gpu,
        "forward_s": one.forward_s,
        "settle_s": one.settle_s,
        "seeds": len(per_seed),
        "took_s": statistics.fmean(took_s),
        **{
            f"{what}_{clocks}": mean_and_error(
                [statistics.fmean(chosen(rows, clocks, what)) for rows in per_seed]
            )
            for what in ("seen_pct", "brought_pct")
            for clocks in ("all", "highest", "lower")
        },
    }


def chosen(rows: Sequence[Row], clocks: str, what: str) -> list[float]:
    """The errors at the highest clock, at those below it, or at all."""
    top_mhz = max(row.clock_mhz for row in rows)
    wanted = {"all": (True, False), "highest": (True,), "lower": (False,)}[clocks]
    return [float(getattr(row, what)) for row in rows if (row.clock_mhz == top_mhz) in wanted]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """A mean, and its standard error; infinite of one value."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return statistics.fmean(values), error


def main() -> None:
    """Write a line for every GPU, iteration and time of settling."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--settle-s", type=float, nargs="*", default=(60.0, 20.0))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    rows = []
    for gpu in (one for one in GPUS if options.only in one):
        for forward_s in FORWARDS_S:
            for settle_s in options.settle_s:
                seeds = range(options.first_seed, options.first_seed + options.seeds)
                rows.append(measured(Job(gpu, forward_s, settle_s, 0), seeds))
                sys.stderr.write(f"{rows[-1]}\n")
                options.results.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
