"""Megatron-core's own passes, heard: the derived order on every rank, and not one bit of training changed."""

from __future__ import annotations

from typing import Any

import pytest
from adapter_contract import Noting
from ranks import run_ranks

pytest.importorskip("megatron.core", reason="megatron-core is not installed")

import torch.distributed as dist
from megatron_jobs import Job, Shape, adapter_of

from perseus_ds.runtime.adapter import Batch, Place
from perseus_ds.runtime.job import coupled_sets
from perseus_ds.schedule import Kind, Schedule

pytestmark = pytest.mark.e2e

STEPS_TRAINED = 3
SHAPES = {
    "1F1B 4 x 8": Shape(4, microbatches=8),
    "1F1B 4 x 2, fewer microbatches than ranks": Shape(4, microbatches=2),
    "interleaved 4 x 2 x 8, overlapped": Shape(4, 2, 8, overlap_p2p=True),
    "interleaved 2 x 3 x 9, groups of 3": Shape(2, 3, 9, group=3, overlap_p2p=True),
    "1F1B 2 x 4 x 2 replicas, overlapped reduction": Shape(2, microbatches=4, data=2, overlap_reduce=True),
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


Told = tuple[Place, Schedule, Noting]


def everyone(place: Place) -> list[Place]:
    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, place)
    return places


def train(job: Job) -> tuple[list[list[str]], str]:
    return [job.step() for _ in range(STEPS_TRAINED)], job.weights()


def both_ways(rank: int, shape: Shape) -> tuple[bool, Told]:
    plain, job = train(Job(shape)), Job(shape)
    adapter, noting = adapter_of(job), Noting()
    place = adapter.place()
    schedule = adapter.schedule(everyone(place))
    adapter.install(noting)
    job.run_pass = job.schedules.get_forward_backward_func()
    served = train(job)
    adapter.remove()
    return served == plain, (place, schedule, noting)


@pytest.mark.parametrize(
    "shape",
    [*SHAPES.values(), *(pytest.param(shape, marks=pytest.mark.slow) for shape in LARGE.values())],
    ids=[*SHAPES, *LARGE],
)
def test_the_derived_order_runs_and_nothing_else_changes(shape: Shape) -> None:
    same, told = zip(*(said.value for said in run_ranks(shape.ranks, both_ways, shape)), strict=True)
    assert all(same)
    assert len(coupled_sets([place for place, _, _ in told])) == shape.data // shape.experts
    for rank, (place, schedule, noting) in enumerate(told):
        order = schedule.orders[place.pipeline_rank]
        wanted = [i.kind for i in order if i.kind.is_computation or i.kind is Kind.REDUCE_GRADS]
        for iteration in noting.iterations:
            assert iteration.kinds == wanted, f"rank {rank}"
            assert (iteration.ended, iteration.unpaired) == ("ends", False)
            assert iteration.batch == Batch(shape.microbatches, "2 x 8")
        assert len(noting.iterations) == STEPS_TRAINED
