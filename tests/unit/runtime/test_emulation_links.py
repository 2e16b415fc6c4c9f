"""Virtual time of several ranks, each a thread: an iteration ends when the schedule's own graph says."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from lone_job import Post, Wanting

from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.emulation import EmulatedRank, works_of
from perseus_ds.runtime.emulation_links import Links, Neighbours, routes_of
from perseus_ds.schedule import (
    Instruction,
    Kind,
    Schedule,
    dag_of,
    textbook,
    with_rendezvous,
)

SETTINGS = SimulatedSettings(
    noise=0.0, forward_s=(0.4, 0.1, 0.3), reduce_grads_s=0.05, step_s=0.02, transfer_s=0.007
)
BATCH = Batch(4)
KINDS_OF_TAIL = (Kind.REDUCE_GRADS, Kind.STEP)


def with_tail(schedule: Schedule) -> Schedule:
    orders = tuple(
        (*order, *(Instruction(min(i.stage for i in order), kind, 0) for kind in KINDS_OF_TAIL))
        for order in schedule.orders
    )
    return Schedule(schedule.name, schedule.microbatches, orders)


def run(
    schedule: Schedule,
    replicas: int = 1,
    *,
    unheard: frozenset[Kind] = frozenset(),
    iterations: int = 1,
    host_s: float = 0.0,
    settings: SimulatedSettings = SETTINGS,
) -> list[Wanting]:
    """Run iterations on a thread per rank; the second replica's work takes half as long again."""
    post, sessions, threads = Post(), [], []
    for rank in range(replicas * schedule.ranks):
        pipeline_rank, replica = rank % schedule.ranks, rank // schedule.ranks
        clock = VirtualTime()
        gpu = SimulatedGpu(SETTINGS, time=clock)
        session = Wanting(clock)
        works = works_of(dict.fromkeys(range(3), 1.0), SETTINGS)
        slower = 1.5 if replica else 1.0
        works = {s: type(w)(w.forward.times(slower), w.backward.times(slower)) for s, w in works.items()}
        order = schedule.orders[pipeline_rank]
        neighbours = Neighbours(
            tuple(replica * schedule.ranks + r for r in range(schedule.ranks)),
            tuple(one * schedule.ranks + pipeline_rank for one in range(replicas) if one != replica),
            tuple(replica * schedule.ranks + r for r in range(schedule.ranks) if r != pipeline_rank),
        )
        links = Links(clock, post.of(rank), neighbours, settings)
        carried = EmulatedRank(session, gpu, works, links=links)
        carried.learn(order, routes_of(schedule, pipeline_rank), microbatches=BATCH.microbatches)
        kinds = [i.kind for i in order if i.kind not in unheard]
        threads.append(threading.Thread(target=several, args=(carried, kinds, iterations, host_s)))
        sessions.append(session)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive(), "ranks wait for each other"
    return sessions


def several(carried: EmulatedRank, kinds: list[Kind], iterations: int, host_s: float) -> None:
    for _ in range(iterations):
        iteration(carried, kinds)
        time.sleep(host_s)


def iteration(carried: EmulatedRank, kinds: list[Kind]) -> None:
    assert carried.iteration_begins(BATCH)
    for kind in kinds:
        carried.before(kind)
        carried.after(kind)
    carried.iteration_ends()


def ends_by_the_graph(schedule: Schedule) -> dict[Instruction, float]:
    """The oracle: the longest path through the graph that plans are made on."""
    graph = dag_of(schedule)
    own = {Kind.FORWARD: 1.0, Kind.BACKWARD: 2.0}
    forward_s = SETTINGS.forward_s
    assert forward_s is not None
    fixed = {Kind.REDUCE_GRADS: SETTINGS.reduce_grads_s, Kind.STEP: SETTINGS.step_s}

    def lasts_s(node: Instruction) -> float:
        if node.kind in own:
            return own[node.kind] * forward_s[node.stage]
        return SETTINGS.transfer_s if node.kind.is_transfer else fixed.get(node.kind, 0.0)

    durations = [lasts_s(node) for node in graph.nodes]
    delays = dict.fromkeys(graph.buffered.values(), SETTINGS.transfer_s)
    starts = graph.earliest_starts(durations, delays)
    return {
        node: start + duration for node, start, duration in zip(graph.nodes, starts, durations, strict=True)
    }


SCHEDULES = {
    "rendezvous": with_rendezvous(textbook("1f1b", stages=3, microbatches=4)),
    "buffered": textbook("1f1b", stages=3, microbatches=4),
    "gpipe, buffered": textbook("gpipe", stages=3, microbatches=4),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_computation_ends_when_the_graph_says(name: str) -> None:
    schedule = with_tail(SCHEDULES[name])
    ends_s = ends_by_the_graph(schedule)
    for order, session in zip(schedule.orders, run(schedule), strict=True):
        for instruction, end_s in zip(order, session.ends_s, strict=True):
            if instruction.kind.is_computation or instruction.kind is Kind.REDUCE_GRADS:
                assert end_s == pytest.approx(ends_s[instruction], abs=1e-9), instruction


def test_the_ranks_of_a_pipeline_step_together() -> None:
    """The norm of the gradients waits for the last of them, within the iteration."""
    sessions = run(with_tail(SCHEDULES["buffered"]))
    assert len({round(session.ends_s[-1], 9) for session in sessions}) == 1
    assert len({round(session.starts_s[-1], 9) for session in sessions}) == len(sessions)


@pytest.mark.thorough
def test_transfers_that_are_not_announced_take_their_time_all_the_same() -> None:
    schedule = with_tail(SCHEDULES["rendezvous"])
    silent = frozenset({*(k for k in Kind if k.is_transfer), Kind.COMMIT})
    for announced, session in zip(run(schedule), run(schedule, unheard=silent), strict=True):
        assert session.ends_s[-1] == pytest.approx(announced.ends_s[-1], abs=1e-9)


def test_replicas_leave_the_reduction_together() -> None:
    schedule = with_tail(SCHEDULES["buffered"])
    sessions = run(schedule, replicas=2)
    for rank in range(schedule.ranks):
        fast, slow = sessions[rank], sessions[schedule.ranks + rank]
        assert fast.ends_s[-2] == pytest.approx(slow.ends_s[-2], abs=1e-9)
        assert fast.starts_s[-2] < slow.starts_s[-2]


def test_no_rank_begins_an_iteration_before_all_ended_the_last() -> None:
    schedule = SCHEDULES["buffered"]
    sessions = run(schedule, iterations=2)
    ends_s = [
        session.ends_s[len(order) - 1] for session, order in zip(sessions, schedule.orders, strict=True)
    ]
    assert max(ends_s) > 1.2 * min(ends_s)
    assert all(session.begins_s[1] >= max(ends_s) for session in sessions)


def test_transfers_behind_the_last_announced_instruction_are_carried_out() -> None:
    """An order that ends with a send which nobody announces: its receiver waits for it."""
    schedule = SCHEDULES["rendezvous"]
    silent = frozenset({*(k for k in Kind if k.is_transfer), Kind.COMMIT})
    ends_s = ends_by_the_graph(schedule)
    for order, session in zip(schedule.orders, run(schedule, unheard=silent), strict=True):
        computed = [i for i in order if i.kind.is_computation]
        for instruction, end_s in zip(computed, session.ends_s, strict=True):
            assert end_s == pytest.approx(ends_s[instruction], abs=1e-9), instruction


def gap_s(**words: object) -> float:
    """Virtual seconds between two iterations of a rank alone."""
    alone = with_tail(textbook("1f1b", stages=1, microbatches=4))
    settings = replace(SETTINGS, forward_s=(0.4,), **words)
    (session,) = run(alone, iterations=2, host_s=0.12, settings=settings)
    return session.begins_s[1] - session.ends_s[len(alone.orders[0]) - 1]


def test_what_a_host_does_between_iterations_counts_in_whole_steps() -> None:
    """A busy host sleeps longer than asked, never less; what is shorter than a step is its own pace."""
    found_s = gap_s(host_step_s=0.05, time_scale=0.1)
    assert found_s >= 1.0 - 1e-9
    assert found_s / 0.5 == pytest.approx(round(found_s / 0.5))
    assert gap_s(host_step_s=60.0) == 0.0


# Ranks that meet within computations, each a thread: all are as late as the slowest, and wait at no work.

KINDS = [Kind.FORWARD, Kind.BACKWARD, Kind.FORWARD, Kind.BACKWARD]
ORDER = [Instruction(0, kind, place // 2) for place, kind in enumerate(KINDS)]
COUPLED_BATCH = Batch(2)
ONE = SimulatedSettings(noise=0.0, forward_s=(0.4,))


class Unwanting(Wanting):
    """A session that wants nothing: its ranks wait for each other all the same."""

    def iteration_begins(self, batch: object) -> bool:
        self.begins_s.append(self.clock.now_s())
        return False


def run_coupled(
    slowness: list[float], *, wanting: type[Wanting] = Wanting
) -> list[tuple[Wanting, SimulatedGpu]]:
    post, ranks, threads = Post(), [], []
    for rank, slower in enumerate(slowness):
        clock = VirtualTime()
        gpu, session = SimulatedGpu(ONE, time=clock), wanting(clock)
        gpu.slowness = slower
        neighbours, coupled = Neighbours((rank,), ()), range(len(slowness))
        links = Links(clock, post.of(rank), neighbours, ONE, rank=rank, coupled=coupled)
        work = EmulatedRank(session, gpu, works_of({0: 1.0}, ONE), links=links)
        work.learn(ORDER, microbatches=COUPLED_BATCH.microbatches)
        threads.append(threading.Thread(target=computed, args=(work,)))
        ranks.append((session, gpu))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive(), "ranks wait for each other"
    return ranks


def computed(work: EmulatedRank) -> None:
    assert work.iteration_begins(COUPLED_BATCH)
    for kind in KINDS:
        work.before(kind)
        work.after(kind)
    work.iteration_ends()


def test_every_computation_is_as_long_as_that_of_the_slowest() -> None:
    alone = run_coupled([1.05])[0][0].ends_s
    for session, _ in run_coupled([1.0, 1.05, 0.9]):
        assert session.ends_s == pytest.approx(alone, abs=1e-9)


def test_who_waits_burns_the_power_of_waiting() -> None:
    (slow, alone), fast = (
        (gpu.true_now() for _, gpu in run_coupled([1.05, 1.0])),
        run_coupled([1.0])[0][1].true_now(),
    )
    assert slow.time_s == pytest.approx(alone.time_s)
    waited_j = alone.energy_j - fast.energy_j
    waiting_w = waited_j / (alone.time_s - fast.time_s)
    assert 0.0 < waiting_w < 0.5 * fast.energy_j / fast.time_s


def test_who_is_not_listened_to_meets_as_well() -> None:
    for session, gpu in run_coupled([1.0, 1.05], wanting=Unwanting):
        assert session.ends_s == []
        assert gpu.true_now().time_s == pytest.approx(run_coupled([1.05])[0][0].ends_s[-1])
