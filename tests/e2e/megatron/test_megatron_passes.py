"""Megatron-core's own passes, heard: the derived order on every rank, and not one bit of training changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from ranks import run_ranks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

import torch.distributed as dist
from megatron_jobs import Job, Shape, adapter_of

from perseus_ds.runtime.adapter import Batch, Place
from perseus_ds.runtime.job import coupled_sets
from perseus_ds.schedule import Kind, Load, Schedule

pytestmark = pytest.mark.e2e

STEPS_TRAINED = 3
SHAPES = {
    "1F1B 2 x 8": Shape(2, microbatches=8),
    "1F1B 4 x 8": Shape(4, microbatches=8),
    "1F1B 4 x 2, fewer microbatches than ranks": Shape(4, microbatches=2),
    "interleaved 2 x 2 x 8": Shape(2, 2, 8),
    "interleaved 4 x 2 x 8, overlapped": Shape(4, 2, 8, overlap_p2p=True),
    "interleaved 2 x 3 x 9, groups of 3": Shape(2, 3, 9, group=3, overlap_p2p=True),
    "no pipeline": Shape(microbatches=4),
    "1F1B 2 x 4 x 2 replicas": Shape(2, microbatches=4, data=2),
    "1F1B 2 x 4 x 2 replicas, overlapped reduction": Shape(2, microbatches=4, data=2, overlap_reduce=True),
    "interleaved 2 x 2 x 4 x 2 replicas": Shape(2, 2, 4, data=2, overlap_p2p=True, overlap_reduce=True),
    "distributed optimizer": Shape(2, microbatches=4, data=2, distributed_optimizer=True),
    "no pipeline, 2 replicas": Shape(microbatches=4, data=2, distributed_optimizer=True),
    "2 expert x 2 pipeline ranks": Shape(2, microbatches=4, data=2, experts=2),
    "2 context x 2 pipeline ranks": Shape(2, microbatches=4, context=2),
    "sequences of several lengths": Shape(2, microbatches=4, settings={"variable_seq_lengths": True}),
    "2 expert ranks, no pipeline": Shape(microbatches=4, data=2, experts=2),
}
LARGE = {
    "2 pipeline x 2 data x 2 tensor ranks": Shape(2, microbatches=4, data=2, tensor=2),
    "2 sets of 2 expert ranks, 2 stages": Shape(2, microbatches=4, data=4, experts=2),
}


class Notes:
    """A listener that writes down what it hears."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.iterations: list[list[tuple[str, Kind]]] = []
        self.others = 0
        self.ended = 0

    def iteration_begins(self, batch: Batch) -> bool:
        self.batches.append(batch)
        self.iterations.append([])
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.iterations[-1].append(("begins", kind))

    def after(self, kind: Kind) -> None:
        self.iterations[-1].append(("ends", kind))

    def iteration_ends(self) -> None:
        self.ended += 1

    def other_schedule_begins(self) -> None:
        self.others += 1

    def iteration_broke(self) -> None:
        raise AssertionError


@dataclass(frozen=True)
class Trained:
    losses: list[list[str]]
    weights: str
    place: Place | None = None
    schedule: Schedule | None = None
    notes: Notes | None = None


def everyone(place: Place) -> list[Place]:
    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, place)
    return places


def train(rank: int, shape: Shape, listens: bool) -> Trained:  # noqa: FBT001
    job = Job(shape, seed=1)
    if not listens:
        return Trained([job.step() for _ in range(STEPS_TRAINED)], job.weights())
    adapter, notes = adapter_of(job), Notes()
    place = adapter.place()
    schedule = adapter.schedule(everyone(place))
    adapter.install(notes)
    job.run_pass = job.schedules.get_forward_backward_func()
    losses = [job.step() for _ in range(STEPS_TRAINED)]
    adapter.remove()
    return Trained(losses, job.weights(), place, schedule, notes)


def both_ways(rank: int, shape: Shape) -> tuple[Trained, Trained]:
    return train(rank, shape, False), train(rank, shape, True)


@pytest.mark.parametrize(
    "shape",
    [*SHAPES.values(), *(pytest.param(shape, marks=pytest.mark.slow) for shape in LARGE.values())],
    ids=[*SHAPES, *LARGE],
)
def test_the_derived_order_runs_and_nothing_else_changes(shape: Shape) -> None:
    plain, served = zip(*(said.value for said in run_ranks(shape.ranks, both_ways, shape)), strict=True)
    assert [one.losses for one in served] == [one.losses for one in plain]
    assert [one.weights for one in served] == [one.weights for one in plain]
    assert len(coupled_sets([one.place for one in served])) == shape.data // shape.experts
    for rank, one in enumerate(served):
        assert one.place
        assert one.schedule
        assert one.notes
        wanted = [
            (when, i.kind)
            for i in one.schedule.orders[one.place.pipeline_rank]
            if i.kind.is_computation or i.kind is Kind.REDUCE_GRADS
            for when in ("begins", "ends")
        ]
        assert one.notes.iterations == [wanted] * STEPS_TRAINED, f"rank {rank}"
        assert one.notes.batches == [Batch(shape.microbatches, "2 x 8")] * STEPS_TRAINED
        assert one.notes.ended == STEPS_TRAINED
