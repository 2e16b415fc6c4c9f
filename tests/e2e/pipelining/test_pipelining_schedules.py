"""All schedules of torch.distributed.pipelining, really run: what we hear, and what stays as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pipelines import SCHEDULES, Pipeline, calls_of
from ranks import run_ranks

from perseus_ds.adapters.torch_pipelining import PipeliningAdapter, check
from perseus_ds.runtime.adapter import Batch, Place
from perseus_ds.runtime.place import join_orders
from perseus_ds.schedule import Kind, Load, dag_of

pytestmark = pytest.mark.e2e

STEPS = 3
SIZES = [(name, ranks, microbatches) for name in SCHEDULES for ranks, microbatches in ((2, 4), (4, 8))]
EVALUATES = ("1F1B", "GPipe", "Interleaved", "LoopedBFS")  # torch's own evaluation fails in the others


class Noting:
    """A listener that notes, iteration by iteration."""

    def __init__(self) -> None:
        self.iterations: list[list[Kind]] = []
        self.batches: list[Batch] = []
        self.others = 0

    def iteration_begins(self, batch: Batch) -> bool:
        self.iterations.append([])
        self.batches.append(batch)
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        self.iterations[-1].append(kind)

    def after(self, kind: Kind) -> None:
        assert self.iterations[-1][-1] is kind

    def iteration_ends(self) -> None:
        pass

    def other_schedule_begins(self) -> None:
        self.others += 1

    def iteration_broke(self) -> None:
        raise AssertionError("nothing failed")


@dataclass(frozen=True)
class Trained:
    losses: list[list[str]]
    weights: str
    called: list[str]
    place: Any = None
    iterations: Any = None
    others: int = 0
    clean: bool = True


def plain(rank: int, name: str, microbatches: int) -> Trained:
    pipeline = Pipeline(name, microbatches)
    return Trained([pipeline.train() for _ in range(STEPS)], pipeline.weights(), [])


def listened(rank: int, name: str, microbatches: int) -> Trained:
    pipeline = Pipeline(name, microbatches)
    called = calls_of(pipeline)
    held = [pipeline.schedule, *pipeline.stages]
    before = [dict(vars(one)) for one in held]
    adapter = PipeliningAdapter(check(pipeline.schedule))
    listener = Noting()
    adapter.install(listener)
    losses = [pipeline.train() for _ in range(STEPS)]
    weights = pipeline.weights()
    if name in EVALUATES:
        pipeline.evaluate()
    adapter.remove()
    ours = {"step", "_maybe_compute_loss", *(n for n in dir(pipeline.stages[0]) if n.endswith("_chunk"))}
    clean = all(
        vars(one).get(key) is old.get(key)
        for one, old in zip(held, before, strict=True)
        for key in ours | {"perform_reduce_grad"}
    )
    return Trained(losses, weights, called, adapter.place(), listener.iterations, listener.others, clean)


def both_ways(rank: int, name: str, microbatches: int) -> tuple[Trained, Trained]:
    return plain(rank, name, microbatches), listened(rank, name, microbatches)


@pytest.mark.parametrize(("name", "ranks", "microbatches"), SIZES)
def test_heard_is_what_the_order_says_and_what_torch_ran(name: str, ranks: int, microbatches: int) -> None:
    said = run_ranks(ranks, both_ways, name, microbatches)
    without, with_us = zip(*(one.value for one in said), strict=True)
    assert [one.losses for one in with_us] == [one.losses for one in without]
    assert [one.weights for one in with_us] == [one.weights for one in without]
    for one in with_us:
        order = [instruction for instruction in one.place.order if instruction.kind.is_computation]
        assert one.iterations == [[instruction.kind for instruction in order]] * STEPS
        called = one.called[: STEPS * len(order)]
        assert called == [str(instruction) for instruction in order] * STEPS
        assert one.clean
        assert one.others == (1 if name in EVALUATES else 0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_all_ranks_together_make_one_schedule_that_runs_to_its_end(name: str) -> None:
    ranks, microbatches = 2, 4
    places = [said.value for said in run_ranks(ranks, place_of, name, microbatches)]
    schedule = join_orders(places, name=name)
    assert schedule.microbatches == microbatches
    dag = dag_of(schedule)
    assert len(dag.topological()) == len(dag.nodes)
    assert (schedule.ranks, schedule.stages) == (ranks, ranks * SCHEDULES[name][1])


def place_of(rank: int, name: str, microbatches: int) -> Place:
    return PipeliningAdapter(check(Pipeline(name, microbatches).schedule)).place()
