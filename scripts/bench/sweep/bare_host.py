"""A training job without its training: ranks that walk a pipeline's order as fast as they can.

Everything of ours is the product's: rendezvous, calibration, sweep, planner, clock requests, audits, account.
Only the framework and its computations are left out; the simulated GPUs are as busy as with them.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from random import Random
from typing import TypeVar

import torch
import torch.distributed as dist

from perseus_ds.runtime.adapter import Batch, InstructionListener, Place, SyncPoint
from perseus_ds.runtime.attach import activate, deactivate
from perseus_ds.runtime.place import join_orders
from perseus_ds.schedule import Instruction, Kind, Load, Schedule, textbook, with_rendezvous

T = TypeVar("T")


def one_f_one_b(stages: int, microbatches: int) -> Schedule:
    """The textbook's order with its transfers, and what every rank does at the end of an iteration."""
    bare = with_rendezvous(textbook("1f1b", stages=stages, microbatches=microbatches))
    tails = [
        (*order, Instruction(stage, Kind.REDUCE_GRADS, 0), Instruction(stage, Kind.STEP, 0))
        for stage, order in enumerate(bare.orders)
    ]
    return replace(bare, orders=tuple(tails))


class BareHost:
    """One rank's engine, and its own adapter."""

    name = "bare"
    sync_point = SyncPoint.REDUCTION
    device = torch.device("cpu")
    scalars_every = None

    def __init__(self, schedule: Schedule, *, weights: Sequence[float], sizes: Sequence[int] = ()) -> None:
        self.local_rank = dist.get_rank()
        self._replica, self._stage = divmod(self.local_rank, len(weights))
        self._order = schedule.orders[self._stage]
        self._weight = weights[self._stage]
        self._batch = Batch(schedule.microbatches)
        self._sizes = sizes
        self._trained = 0
        self._listener: InstructionListener | None = None

    def place(self) -> Place:
        """State where this rank stands."""
        stage = self._stage
        return Place(stage, self._replica, self._order, {stage: 1}, {stage: self._weight}, dtypes="none")

    def schedule(self, places: Sequence[Place]) -> Schedule:
        """Join the orders of all ranks."""
        return join_orders(places, name="bare")

    def traits(self) -> Mapping[str, str]:
        """Return nothing more."""
        return {}

    def install(self, listener: InstructionListener) -> None:
        """Report to it from now on."""
        self._listener = listener

    def remove(self) -> None:
        """Report to nobody any more."""
        self._listener = None

    def write_scalars(self, scalars: Mapping[str, float]) -> None:
        """Show them nowhere."""

    def train(self, iterations: int) -> None:
        """Walk the order so many times."""
        for _ in range(iterations):
            self._trained += 1
            listener = self._listener
            if listener is None or not listener.iteration_begins(self._batch):
                continue
            for instruction in self._order:
                listener.before(instruction.kind, self._load(instruction))
                listener.after(instruction.kind)
            listener.iteration_ends()

    def _load(self, instruction: Instruction) -> Load | None:
        """Count what a forward works on, alike on all stages; None where loads are not counted."""
        if not self._sizes or instruction.kind is not Kind.FORWARD:
            return None
        return Load(Random(f"{self._trained}/{instruction.microbatch}").choice(self._sizes))  # noqa: S311

    def begin(self, block: Mapping[str, object]) -> None:
        """Be served from here on, beginning with the same batches each time."""
        self._trained = 0
        activate(self, lambda: self, block={"enabled": True, "on_error": "raise", **block})

    def end(self) -> None:
        """Be served no more."""
        deactivate(self)


def on_ranks(ranks: int, body: Callable[..., T], *args: object) -> list[T]:
    """Call ``body(rank, *args)`` in one process for each rank, communicators ready."""
    context = multiprocessing.get_context("fork")
    answers: SimpleQueue[tuple[int, T]] = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder, "meeting").as_uri()
        begin = partial(_rank, ranks=ranks, meeting=meeting, answers=answers, body=body, args=args)
        processes = [context.Process(target=begin, args=(rank,)) for rank in range(ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"exit codes {[process.exitcode for process in processes]}")
    found = dict(answers.get() for _ in range(ranks))
    return [found[rank] for rank in range(ranks)]


def _rank(
    rank: int,
    *,
    ranks: int,
    meeting: str,
    answers: SimpleQueue[tuple[int, T]],
    body: Callable[..., T],
    args: tuple[object, ...],
) -> None:
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the job says is no part of the JSON
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    answers.put((rank, body(rank, *args)))
    dist.destroy_process_group()
