"""Whole jobs on a node of fake NVIDIA GPUs: the real pynvml, real guards, clocks seen from outside."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fake_nvml"))

import fake_nvml
from fake_nvml import FakeNvml
from jobs import STAGES, UNEVEN, Done, agreed, give_way
from ranks import Said, batches, build, run_ranks
from torch.distributed import get_world_size

from perseus_ds import detach

PATIENCE_S = 200.0


@dataclass(frozen=True)
class Lived:
    """What one rank can tell after a job on a node."""

    losses: list[str]
    left_after: int | None


def node_at(folder: Path, stages: int = STAGES, **numbers: int) -> FakeNvml:
    """A node with a GPU for every stage, whose calls and counters are quick unless said otherwise."""
    why_not = fake_nvml.missing_compiler()
    if why_not is not None:
        pytest.skip(why_not)
    fake_nvml.build()
    return FakeNvml(folder / "gpus", stages, **{"settle_us": 3000, "period_us": 20_000, **numbers})


def block(run_dir: Path, **changes: object) -> dict[str, Any]:
    """A perseus block for this node whose whole course takes seconds."""
    return {
        "enabled": True,
        "run_dir": str(run_dir),
        "device": "nvml",
        "profile": {"min_window_s": 1.5, "max_clocks": 3, "warmup_iterations": 2},
        "audit": {"every_iterations": 4, "iterations": 3},
        "objective": {"node_changes_per_s": 1e6},  # calls that queue on a busy host are no budget of changes
        **changes,
    }


def live(
    rank: int,
    content: Mapping[str, Any],
    done: Done,
    more: int,
    computes_s: float = 0.0,
    *,
    steps: int = 100_000,
) -> Lived:
    """Train until rank 0 sees that it is done, a few steps more, and leave as at the end of a script.

    Every rank is a stage, whose host waits ``computes_s`` for each microbatch, as for a GPU that computes.
    """
    fake_nvml.load()
    engine = build(content, stages=get_world_size(), inner=UNEVEN[-get_world_size() :])
    if computes_s:
        engine.module.register_forward_pre_hook(lambda *_: time.sleep(computes_s))
    data, losses, left_after = batches(), [], None
    until_s, run_dir, over = time.monotonic() + PATIENCE_S, Path(content["perseus"]["run_dir"]), False
    while steps > 0:
        losses.append(float(engine.train_batch(data)).hex())
        if rank == 0:
            give_way(run_dir)
        if left_after is None and "_exec_schedule" not in vars(engine):
            left_after = len(losses)
        steps -= 1
        if not over and agreed(done(run_dir) or time.monotonic() > until_s, already=False):
            over, steps = True, more
    detach(engine)
    return Lived(losses, left_after)


def lived(
    node: FakeNvml,
    content: Mapping[str, Any],
    done: Done,
    *,
    stages: int = STAGES,
    more: int = 3,
    computes_s: float = 0.0,
) -> list[Said]:
    """Run a job on a node until something is in its run directory."""
    return run_ranks(stages, live, content, done, more, computes_s, environment=node.environment())


def clocks_reset(node: FakeNvml) -> subprocess.CompletedProcess[str]:
    """``perseus-ds clocks reset`` on a node."""
    command = [sys.executable, "-m", "perseus_ds.cli", "clocks", "reset"]
    return subprocess.run(
        command, env=node.environment(), capture_output=True, text=True, check=False, timeout=60
    )


@contextmanager
def beside(act: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run something beside the job; it is signalled when the job is over."""
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def when(true: Callable[[], bool], act: Callable[[], None]) -> Callable[[threading.Event], None]:
    """Wait beside the job until something is so, then do something, once."""

    def watch(over: threading.Event) -> None:
        while not over.wait(0.005):
            if true():
                act()
                return

    return watch
