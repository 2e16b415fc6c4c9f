"""Connections of the control channel and its cost on the training thread, by number of ranks; see README.md.

python scripts/bench/control_channel/main.py [--ranks 2 4 8 16 32 64] [--iterations 100] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from time import sleep, thread_time_ns

import numpy as np
import torch
import torch.distributed as dist

from perseus_ds.runtime.comm.control_channel import ControlChannel

MOST_CONNECTIONS, MOST_TIMES = 20, 1.1
NUMBERS = 36  # what a job of three replicas posts
PAUSE_S = 0.02  # stands for an iteration of training
_ESTABLISHED = "01"


def connections() -> set[str]:
    """Return the inodes of this process's TCP connections that stand."""
    tables = [Path("/proc/self/net", name).read_text().splitlines() for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    standing = {row[9] for row in rows if row[3] == _ESTABLISHED}
    own = set()
    for handle in Path("/proc/self/fd").iterdir():
        try:
            own.add(str(handle.readlink()).removeprefix("socket:[").rstrip("]"))
        except FileNotFoundError:  # the folder's own handle
            continue
    return own & standing


def cpu_us(act: Callable[[], object]) -> float:
    """Return how long this thread worked."""
    began_ns = thread_time_ns()
    act()
    return (thread_time_ns() - began_ns) / 1e3


class Mesh:
    """The exchange as it was before: a group of torch.distributed, from every rank to every other."""

    def __init__(self) -> None:
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=60))._get_backend(  # noqa: SLF001
            torch.device("cpu")
        )
        self._numbers = np.zeros(NUMBERS)
        self._tensor = torch.from_numpy(self._numbers)
        self._greatest = dist.AllreduceOptions()
        self._greatest.reduceOp = dist.ReduceOp.MAX
        self._work: dist.Work | None = None

    def turn(self, numbers: np.ndarray) -> None:
        """Collect what was posted last, and post."""
        if self._work is not None:
            self._work.wait(timedelta(seconds=60))
            self._numbers.copy()
        self._numbers[:] = numbers
        self._work = self._group.allreduce([self._tensor], self._greatest)


def measured(rank: int, iterations: int) -> dict[str, float]:
    """One rank's figures."""
    before = connections()
    channel = ControlChannel("bench")
    start_us = cpu_us(lambda: (channel.connect(), channel.gather(rank), channel.broadcast(rank)))
    numbers = np.full(NUMBERS, float(rank))
    channel.post(numbers)
    channel.collect()
    ours = len(connections() - before)
    before = connections()
    mesh = Mesh()
    mesh.turn(numbers)
    meshed = len(connections() - before)
    new_us, old_us = [], []
    for _ in range(iterations):
        sleep(PAUSE_S)
        new_us.append(cpu_us(lambda: (channel.collect(), channel.post(numbers))))
        sleep(PAUSE_S)
        old_us.append(cpu_us(lambda: mesh.turn(numbers)))
    channel.collect()
    dist.barrier()
    return {
        "connections": ours,
        "mesh_connections": meshed,
        "start_us": start_us,
        "turn_us": statistics.median(new_us),
        "mesh_turn_us": statistics.median(old_us),
    }


def rank_of(
    rank: int, ranks: int, iterations: int, folder: str, answers: SimpleQueue[dict[str, float]]
) -> None:
    """Run one process."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    answers.put(measured(rank, iterations))
    os._exit(0)


def of_job(ranks: int, iterations: int) -> dict[str, float]:
    """Start a job of real processes; return the worst rank's connections and medians of the rest."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        answers: SimpleQueue[dict[str, float]] = context.SimpleQueue()
        processes = [
            context.Process(target=rank_of, args=(rank, ranks, iterations, folder, answers))
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        found = [answers.get() for _ in processes]
        for process in processes:
            process.join()
    folds = {"connections": max, "mesh_connections": max}
    row = {key: folds.get(key, statistics.median)([one[key] for one in found]) for key in found[0]}
    return {
        "ranks": ranks,
        **row,
        "median_connections": statistics.median(one["connections"] for one in found),
        "ratio": row["turn_us"] / row["mesh_turn_us"],
    }


def main() -> int:
    """Measure every size, print a row for each, and state whether the bars are met at the largest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = []
    for ranks in options.ranks:
        rows.append(of_job(ranks, options.iterations))
        print(json.dumps({key: round(value, 3) for key, value in rows[-1].items()}), flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
    last = rows[-1]
    return int(last["connections"] > MOST_CONNECTIONS or last["ratio"] > MOST_TIMES)


if __name__ == "__main__":
    sys.exit(main())
