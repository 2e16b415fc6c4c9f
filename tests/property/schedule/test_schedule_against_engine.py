"""Graphs, and plans of them, against ranks that simply run: the same orders end, all at the same time."""

import random
from dataclasses import replace

import pytest
from cli_program import BLOCKING_W, points
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import run

from perseus_ds.errors import ScheduleError
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.clock_requests import play, play_baseline
from perseus_ds.profile import Profile
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
def test_an_order_is_accepted_exactly_when_it_runs_through(schedule: Schedule, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, schedule.ranks - 1))
    order = list(schedule.orders[rank])
    first, second = (data.draw(st.integers(0, len(order) - 1)) for _ in range(2))
    order.insert(first, order.pop(second))
    changed = replace(schedule, orders=(*schedule.orders[:rank], tuple(order), *schedule.orders[rank + 1 :]))
    assert places(changed) == (run(words(changed), lambda word: 1.0) is not None)


@settings(max_examples=200, deadline=None)
@given(schedules(), st.data())
def test_an_instruction_that_is_away_or_elsewhere_is_refused(schedule: Schedule, data: st.DataObject) -> None:
    giving, taking = (data.draw(st.integers(0, schedule.ranks - 1)) for _ in range(2))
    orders = [list(order) for order in schedule.orders]
    moved = orders[giving].pop(data.draw(st.integers(0, len(orders[giving]) - 1)))
    if taking != giving:
        orders[taking].insert(data.draw(st.integers(0, len(orders[taking]))), moved)
    with pytest.raises(ScheduleError):
        validate(replace(schedule, orders=tuple(map(tuple, orders))))


# Plans of schedules with chunks, split backwards and buffered transfers.

SECONDS = {
    Kind.FORWARD: 0.05,
    Kind.BACKWARD: 0.1,
    Kind.BACKWARD_INPUT: 0.055,
    Kind.BACKWARD_WEIGHT: 0.045,
    Kind.FORWARD_BACKWARD: 0.135,
}


def profile_of(schedule: Schedule) -> Profile:
    """Later stages are heavier, and what they send is longer on its way."""
    stages = range(schedule.stages)
    return Profile(
        {(s, k): points(t * (1 + 0.05 * s)) for s in stages for k, t in SECONDS.items()},
        fixed_s={(s, k): 0.004 + 0.001 * s for s in stages for k in (Kind.SEND_ACTIVATION, Kind.SEND_GRAD)},
        blocking_power_w=BLOCKING_W,
    )


SCHEDULES = {
    "interleaved": textbook("interleaved", stages=6, microbatches=4, chunks=3),
    "interleaved-zb": textbook("interleaved-zb", stages=4, microbatches=4, chunks=2),
    "interleaved-fb": textbook("interleaved-fb", stages=6, microbatches=6, chunks=2),
    "zb-h1": textbook("zb-h1", stages=3, microbatches=5),
    "zbv": textbook("zbv", stages=4, microbatches=4),
    "dualpipe-v": textbook("dualpipe-v", stages=4, microbatches=5),
    "megatron's 1f1b": with_rendezvous(textbook("1f1b", stages=3, microbatches=5)),
}


@pytest.fixture(scope="module", params=SCHEDULES)
def plans(request: pytest.FixtureRequest) -> PlanSet:
    schedule = SCHEDULES[request.param]
    return build(profile_of(schedule), schedule, blocking_power_w=BLOCKING_W, verify=True)


def test_planned_times_are_those_of_an_engine(plans: PlanSet) -> None:
    """Every tenth plan run step by step; the baseline as well. What is sent takes its time."""
    assert plans.fixed_s[0, Kind.SEND_ACTIVATION] == 0.004
    for played, iteration_s in [
        (play_baseline(plans), plans.baseline.iteration_time_s),
        *((play(plans.plan(n)), plans.iteration_time_s[n]) for n in range(0, len(plans), 10)),
    ]:
        lasts = {str(one.instruction): one.duration_s for one in played}
        ends = run(
            words(plans.schedule),
            lambda word, lasts=lasts: lasts.get(word, 0.0),
            lambda stage, letters: plans.fixed_s.get((stage, Kind(letters)), 0.0),
        )
        assert max(ends.values()) == pytest.approx(iteration_s)
        for one in played:
            assert ends[str(one.instruction)] == pytest.approx(one.end_s)


def test_waiting_is_paid_for_every_rank_not_for_every_stage(plans: PlanSet) -> None:
    played = play(plans.plan(0))
    working_s = sum(one.duration_s for one in played if one.instruction.kind.is_computation)
    waiting_s = plans.schedule.ranks * plans.plan(0).iteration_time_s - working_s
    spent_j = sum(one.energy_j for one in played) + BLOCKING_W * waiting_s
    assert plans.plan(0).energy_j == pytest.approx(spent_j)
    assert plans.blocking_total_w == BLOCKING_W * len(plans.schedule.orders)
