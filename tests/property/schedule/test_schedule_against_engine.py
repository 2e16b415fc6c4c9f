"""The graph against ranks that simply run: the same orders end, every instruction at the same time."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import run

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule import TEXTBOOK, Kind, Schedule, dag_of, textbook, validate, with_rendezvous


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    name = draw(st.sampled_from(sorted(TEXTBOOK)))
    ranks = draw(st.integers(1, 5))
    chunks = TEXTBOOK[name].chunks or draw(st.integers(1, 3))
    rounds = draw(st.integers(1, 3))
    least = ranks * max(1, TEXTBOOK[name].microbatches_per_rank)
    whole = name in {"interleaved", "interleaved-zb", "interleaved-fb"}
    microbatches = least * rounds if whole else least + draw(st.integers(0, 5))
    return textbook(name, stages=ranks * chunks, microbatches=microbatches, chunks=chunks)


def words(schedule: Schedule) -> list[list[str]]:
    return [[str(instruction) for instruction in order] for order in schedule.orders]


def places(schedule: Schedule) -> bool:
    try:
        validate(schedule)
    except ScheduleError:
        return False
    return True


def ends_alike(schedule: Schedule, seed: int) -> None:
    chosen = random.Random(seed)
    lengths: dict[str, float] = {}
    delays: dict[tuple[int, str], float] = {}
    alike = any("+" in word for order in words(schedule) for word in order)  # both ways between two FB

    def lasts(word: str) -> float:
        return lengths.setdefault(word, chosen.uniform(0.1, 3.0))

    def delay_s(stage: int, kind: str) -> float:
        return delays.setdefault((stage, kind), 0.25 if alike else chosen.uniform(0.0, 0.5))

    theirs = run(words(schedule), lasts, delay_s)
    dag = dag_of(schedule)
    fixed_s = {(stage, Kind(letters)): seconds for (stage, letters), seconds in delays.items()}
    starts = dag.earliest_starts([lengths[str(node)] for node in dag.nodes], fixed_s)
    for node, start in zip(dag.nodes, starts, strict=True):
        assert start + lengths[str(node)] == pytest.approx(theirs[str(node)]), node


@settings(max_examples=150, deadline=None)
@given(schedules(), st.integers(0, 10**6))
def test_every_instruction_ends_when_an_engine_would_end_it(schedule: Schedule, seed: int) -> None:
    ends_alike(schedule, seed)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 8), st.sampled_from(["1f1b", "gpipe", "zb-h1"]), st.integers(0, 99))
def test_transfers_that_wait_hold_both_ends(ranks: int, microbatches: int, name: str, seed: int) -> None:
    bare = textbook(name, stages=ranks, microbatches=microbatches)
    assert places(with_rendezvous(bare)) == (run(words(with_rendezvous(bare)), lambda word: 1.0) is not None)
    if places(with_rendezvous(bare)):
        ends_alike(with_rendezvous(bare), seed)


@settings(max_examples=300, deadline=None)
@given(schedules(), st.data())
def test_an_order_is_accepted_exactly_when_it_runs_to_its_end(
    schedule: Schedule, data: st.DataObject
) -> None:
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    order = list(schedule.orders[rank])
    first, second = (data.draw(st.integers(0, len(order) - 1)) for _ in range(2))
    order.insert(first, order.pop(second))
    changed = replace(schedule, orders=(*schedule.orders[:rank], tuple(order), *schedule.orders[rank + 1 :]))
    assert places(changed) == (run(words(changed), lambda word: 1.0) is not None)


@settings(max_examples=100, deadline=None)
@given(schedules(), st.data())
def test_an_order_with_a_computation_less_is_refused(schedule: Schedule, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    order = list(schedule.orders[rank])
    del order[data.draw(st.integers(0, len(order) - 1))]
    orders = (*schedule.orders[:rank], tuple(order), *schedule.orders[rank + 1 :])
    assert not places(replace(schedule, orders=orders))


@settings(max_examples=100, deadline=None)
@given(schedules(), st.data())
def test_an_instruction_on_another_rank_is_refused(schedule: Schedule, data: st.DataObject) -> None:
    if schedule.ranks == 1:
        return
    giving, taking = data.draw(st.permutations(range(schedule.ranks)))[:2]
    orders = [list(order) for order in schedule.orders]
    moved = orders[giving].pop(data.draw(st.integers(0, len(orders[giving]) - 1)))
    orders[taking].insert(data.draw(st.integers(0, len(orders[taking]))), moved)
    with pytest.raises(ScheduleError):
        validate(replace(schedule, orders=tuple(map(tuple, orders))))
