"""Schedules of torch.distributed.pipelining, really run: what we hear, and what stays as it was."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from adapter_contract import Noting
from pipelines import SCHEDULES, Pipeline, calls_of
from ranks import run_ranks

from perseus_ds.adapters.torch_pipelining import PipeliningAdapter, check
from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.place import join_orders
from perseus_ds.schedule import dag_of

pytestmark = pytest.mark.e2e

STEPS = 3
RANKS, MICROBATCHES = 4, 8
EVALUATES = ("1F1B", "GPipe", "Interleaved", "LoopedBFS")  # torch's own evaluation fails in the others


@dataclass(frozen=True)
class Heard:
    same: bool
    called: list[str]
    place: Place
    noting: Noting
    clean: bool


def train(pipeline: Pipeline) -> tuple[list[list[str]], str]:
    return [pipeline.train() for _ in range(STEPS)], pipeline.weights()


def both_ways(rank: int, name: str) -> Heard:
    plain, pipeline = train(Pipeline(name, MICROBATCHES)), Pipeline(name, MICROBATCHES)
    called, held = calls_of(pipeline), [pipeline.schedule, *pipeline.stages]
    before = [dict(vars(one)) for one in held]
    adapter, noting = PipeliningAdapter(check(pipeline.schedule)), Noting()
    adapter.install(noting)
    same = train(pipeline) == plain
    if name in EVALUATES:
        pipeline.evaluate()
    adapter.remove()
    ours = {"step", "_maybe_compute_loss", *(n for n in dir(pipeline.stages[0]) if n.endswith("_chunk"))}
    clean = all(
        vars(one).get(key) is old.get(key)
        for one, old in zip(held, before, strict=True)
        for key in ours | {"perform_reduce_grad"}
    )
    return Heard(same, called, adapter.place(), noting, clean)


@pytest.mark.parametrize("name", SCHEDULES)
def test_heard_is_what_the_order_says_and_what_torch_ran(name: str) -> None:
    """And all ranks together make one schedule that runs to its end."""
    heard = [one.value for one in run_ranks(RANKS, both_ways, name)]
    for one in heard:
        assert one.same
        order = [instruction for instruction in one.place.order if instruction.kind.is_computation]
        assert [iteration.kinds for iteration in one.noting.iterations] == [[i.kind for i in order]] * STEPS
        assert not any(iteration.unpaired for iteration in one.noting.iterations)
        assert one.called[: STEPS * len(order)] == [str(instruction) for instruction in order] * STEPS
        assert one.clean
        assert one.noting.others == (1 if name in EVALUATES else 0)
    schedule = join_orders([one.place for one in heard], name=name)
    assert (schedule.microbatches, schedule.ranks) == (MICROBATCHES, RANKS)
    assert schedule.stages == RANKS * SCHEDULES[name][1]
    dag = dag_of(schedule)
    assert len(dag.topological()) == len(dag.nodes)
