"""Whole jobs through the fork harness: what they trained, what the plugin said and did, what the GPU saw."""

import fcntl
import os
import pickle
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from lone_job import events_of as events
from lone_job import names_of as names
from ranks import PipelineEngine, Said, batches, build, config, losses, run_ranks

from perseus_ds.device.simulated.gpu import opened_gpus

T = TypeVar("T")

STAGES = 4
MICROBATCHES = 4
UNEVEN = (8, 8, 8, 16)
TRACED = 2
"""Iterations of the whole lifecycle whose kernels are traced."""
SURE = 4.0
"""Standard errors by which a figure may be off: two would fail one comparison in twenty by chance alone."""

Done = Callable[[Path], bool]
Built = Callable[[PipelineEngine], object]
"""What is done with an engine before it trains."""


@dataclass(frozen=True)
class Trained:
    """What one rank can tell after a job."""

    losses: list[str]
    attached: bool
    locks: int


@dataclass(frozen=True)
class Lifecycle:
    """A job that warmed up, profiled, planned, ran its plan and audited it."""

    run_dir: Path
    said: list[Said]


def locks() -> int:
    """Number of clock requests of training in this process, calibration not counted."""
    return sum(gpu.truth.locks for gpu in opened_gpus())


def block(run_dir: Path, **changes: object) -> dict[str, Any]:
    """A perseus block whose whole lifecycle takes seconds."""
    return {
        "enabled": True,
        "run_dir": str(run_dir),
        "device": "simulated",
        "profile": {"min_window_s": 4.0, "max_clocks": 3, "warmup_iterations": 2, "max_slower_pct": 30.0},
        "audit": {"every_iterations": 4, "iterations": 3},
        **changes,
    }


def train(
    rank: int,
    content: Mapping[str, Any] | str,
    stages: int,
    steps: int,
    flags: Mapping[str, str] | None = None,
    *,
    built: Built = lambda _: None,
) -> Trained:
    """Train a fixed number of steps; ``flags`` stand in rank 0's environment alone."""
    if rank == 0:
        os.environ.update(flags or {})
    engine = build(content, stages=stages, inner=UNEVEN[-stages:])
    built(engine)
    return Trained(losses(engine, steps), "_exec_schedule" in vars(engine), locks())


def train_until(
    rank: int,
    content: Mapping[str, Any],
    stages: int,
    done: Done,
    *,
    more: int = 3,
    at_most: int = 600,
    built: Built = lambda _: None,
) -> Trained:
    """Train until rank 0 sees something in the run directory, and a few steps more."""
    engine = build(content, stages=stages, inner=UNEVEN[-stages:])
    built(engine)
    data, seen = batches(), []
    run_dir = Path(content["perseus"]["run_dir"])
    left = at_most
    while left > 0:
        seen.append(float(engine.train_batch(data)).hex())
        if rank == 0:
            give_way(run_dir)
        left = min(left - 1, more) if agreed(done(run_dir), more >= left) else left - 1
    return Trained(seen, "_exec_schedule" in vars(engine), locks())


def until_measured(step: Callable[[], T], perseus: Mapping[str, Any] | None, at_most: int) -> list[T]:
    """What each step returns until rank 0 sees that a saving was measured; without a block all of them."""
    measured, seen = happened("measured"), list[T]()
    while len(seen) < at_most:
        seen.append(step())
        if perseus is not None and agreed(measured(Path(perseus["run_dir"]))):
            break
    return seen


def give_way(run_dir: Path) -> None:
    last = next((name for name in reversed(names(run_dir)) if name in {"planning", "running"}), "")
    if last == "planning":
        time.sleep(0.2)


def agreed(mine: bool, already: bool = False) -> bool:  # noqa: FBT001, FBT002
    if already:
        return False
    said = torch.tensor([float(mine)])
    torch.distributed.broadcast(said, src=0)
    return bool(said.item())


def happened(name: str) -> Done:
    return lambda run_dir: bool(events(run_dir, name))


def lines(said: Said) -> list[str]:
    return [line for line in said.output.splitlines() if line.startswith("perseus: ")]


@cache
def plain_losses(
    steps: int, ranks: int = 4, stages: int = STAGES, microbatches: int = MICROBATCHES, clipping: float = 1.0
) -> list[list[str]]:
    """The exact losses of the same job without a perseus block, rank by rank."""
    content = config(microbatches, gradient_clipping=clipping)
    return [said.value.losses for said in run_ranks(ranks, train, content, stages, steps)]


def copy_of(run_dir: Path, to: Path, *, without: tuple[str, ...] = ()) -> Path:
    """A run directory with an earlier run's profile and plan, and none of its journal."""
    to.mkdir(parents=True)
    for name in ("profile.json", "plan_request.json", "plan.json"):
        if name not in without:
            shutil.copy(run_dir / name, to / name)
    return to


# Sequences of log-normal lengths, and the work that they are.

PERIOD = 3
"""Iterations after which the same lengths come again: the mean of a period is always the same."""
SEQUENCES, MEDIAN, SIGMA, LONGEST = 4, 12.0, 0.6, 64


def lengths_of(replica: int, iteration: int, microbatches: int) -> list[list[int]]:
    """Lengths of the sequences in each microbatch of an iteration."""
    random = np.random.default_rng([replica, iteration % PERIOD])
    drawn = np.round(MEDIAN * random.lognormal(0.0, SIGMA, (microbatches, SEQUENCES)))
    return [[int(length) for length in one] for one in np.clip(drawn, 1, LONGEST)]


def by_lengths(microbatches: int, replicas: int = 2) -> dict[str, object]:
    """Settings by which simulated GPUs take as long as these loads ask for."""
    packs = [pack for r in range(replicas) for n in range(PERIOD) for pack in lengths_of(r, n, microbatches)]
    mean = [sum(length**power for pack in packs for length in pack) / len(packs) for power in (1, 2)]
    return {"mean_forward_s": 0.1, "load_terms": [0.1, 0.7, 0.2], "mean_load": mean}


# What is dear to make and only read: made by one worker of a run, shared by all.


def made_once(folders: pytest.TempPathFactory, name: str, make: Callable[[Path], T]) -> T:
    """Return what ``make`` returns for a folder of this name; whoever comes later reads it there.

    The others wait meanwhile. Where it fails, the next tries again.
    """
    root = folders.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder = root / name
    folder.mkdir(exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = folder / "kept.pickle"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(kept.read_bytes())
