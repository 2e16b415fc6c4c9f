"""One iteration of some pipelines, event after event: the emulator's inner loop, compiled."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.clock_change import queued
from perseus_ds.simulation.emulator.meter import account, expect
from perseus_ds.simulation.emulator.records import (
    BARRIER,
    BUBBLE,
    LOST,
    Change,
    Gpus,
    Ints,
    Iteration,
    PowerTrace,
    Program,
    Requests,
    Tables,
)
from perseus_ds.solver.compiled import compiled, inner

# At one moment things happen in this order: a clock that comes into force serves the work that begins.
FORCE, DONE, RELEASE, START, ASK = range(5)
AT_END = np.inf

Heap = list[tuple[float, int, int, int]]
"""(when, what, where, which): a GPU and its clock, or a place (pipeline x ranks + rank) and a node or clock."""

_queued = inner(queued)


class Shape(NamedTuple):
    """Pipelines ``first`` to ``end - 1``, which share nodes with no others; sizes of the job."""

    first: int
    end: int
    ranks: int
    tensor: int
    per_node: int


class Progress(NamedTuple):
    """How far the iteration is; ``version`` tells a node's latest expected end from older ones.

    Shape: ``waits_for``, ``ready_s``, ``version`` [pipelines, nodes]; ``running``, ``left`` [pipelines, ranks].
    """

    waits_for: Ints
    ready_s: NDArray[np.float64]
    version: Ints
    running: Ints
    left: Ints


@compiled
def play_pipelines(
    shape: Shape,
    program: Program,
    tables: Tables,
    change: Change,
    requests: Requests,
    now: Iteration,
    gpus: Gpus,
    trace: PowerTrace,
) -> None:
    """Play until every rank has come to where it meets the other pipelines (``now.arrival_s``).

    Cost: logarithmic in ranks, per event; a few events per computation and change of clock.
    """
    heap = [(0.0, 0, 0, 0) for _ in range(0)]
    progress = _begun(shape, program, now, gpus, heap)
    while len(heap):
        when_s, what, where, which = heappop(heap)
        if what == FORCE:
            _force(heap, progress, shape, tables, change, now, gpus, trace, when_s, where, which)
        elif what == START:
            _start(heap, progress, shape, program, tables, requests, now, gpus, trace, when_s, where, which)
        elif what == DONE:
            version, node = divmod(which, len(program.rank))
            if version == progress.version[where // shape.ranks - shape.first, node]:
                _done(heap, progress, shape, program, tables, requests, now, gpus, trace, when_s, where, node)
        elif what == RELEASE:
            _release(heap, shape, tables, requests, now, gpus, trace, when_s, where)
        else:
            _ask(heap, shape, change, gpus, when_s, where, which)


@inner
def _begun(shape: Shape, program: Program, now: Iteration, gpus: Gpus, heap: Heap) -> Progress:
    """Put what is under way, the releases and the first instructions on the heap."""
    count, nodes = shape.end - shape.first, len(program.rank)
    left = np.zeros((count, shape.ranks), dtype=np.int64)
    waits_for = np.zeros((count, nodes), dtype=np.int64)
    ready_s = np.zeros((count, nodes))
    for p in range(count):
        pipeline = shape.first + p
        for rank in range(shape.ranks):
            now.arrival_s[pipeline, rank] = now.start_s[pipeline, rank]
            place = pipeline * shape.ranks + rank
            heappush(heap, (now.start_s[pipeline, rank], RELEASE, place, 0))
            for gpu in range(place * shape.tensor, (place + 1) * shape.tensor):
                for k in range(gpus.pending.shape[1]):
                    if gpus.pending[gpu, k] >= 0:
                        heappush(heap, (gpus.pending_s[gpu, k], FORCE, gpu, gpus.pending[gpu, k]))
                        gpus.pending[gpu, k] = -1
        if not now.alive[pipeline]:
            continue
        for node in range(nodes):
            rank = program.rank[node]
            left[p, rank] += 1
            waits_for[p, node] = program.waits_for[node]
            ready_s[p, node] = now.start_s[pipeline, rank]
            if program.waits_for[node] == 0:
                ready_s[p, node] += now.input_s[pipeline]
                heappush(heap, (ready_s[p, node], START, pipeline * shape.ranks + rank, node))
    version = np.zeros((count, nodes), dtype=np.int64)
    return Progress(waits_for, ready_s, version, np.full((count, shape.ranks), -1, dtype=np.int64), left)


@inner
def _force(
    heap: Heap,
    progress: Progress,
    shape: Shape,
    tables: Tables,
    change: Change,
    now: Iteration,
    gpus: Gpus,
    trace: PowerTrace,
    when_s: float,
    gpu: int,
    clock: int,
) -> None:
    """A clock comes into force: in the next iteration, where this one has nothing left for the rank."""
    place = gpu // shape.tensor
    p, rank = place // shape.ranks - shape.first, place % shape.ranks
    if progress.left[p, rank] == 0:
        for k in range(gpus.pending.shape[1]):
            if gpus.pending[gpu, k] < 0:
                gpus.pending_s[gpu, k], gpus.pending[gpu, k] = when_s, clock
                return
    account(gpus, tables, gpu, now.cap[gpu], when_s, trace)
    gpus.clock[gpu], gpus.paused_s[gpu] = clock, when_s + change.stall_s
    node = progress.running[p, rank]
    if node >= 0:
        progress.version[p, node] += 1
        expect(gpus, tables, gpu, now.cap[gpu], when_s)
        end_s = max(when_s, gpus.done_s[place * shape.tensor : (place + 1) * shape.tensor].max())
        nodes = progress.version.shape[1]
        heappush(heap, (end_s, DONE, place, node + nodes * progress.version[p, node]))


@inner
def _release(
    heap: Heap,
    shape: Shape,
    tables: Tables,
    requests: Requests,
    now: Iteration,
    gpus: Gpus,
    trace: PowerTrace,
    when_s: float,
    place: int,
) -> None:
    """A rank is let into the iteration."""
    pipeline = place // shape.ranks
    for gpu in range(place * shape.tensor, (place + 1) * shape.tensor):
        account(gpus, tables, gpu, now.cap[gpu], when_s, trace)
        gpus.cause[gpu] = BUBBLE if now.alive[pipeline] else LOST
    if now.alive[pipeline]:
        heappush(heap, (when_s, ASK, place, requests.opening[now.plan[pipeline], place % shape.ranks]))


@inner
def _start(
    heap: Heap,
    progress: Progress,
    shape: Shape,
    program: Program,
    tables: Tables,
    requests: Requests,
    now: Iteration,
    gpus: Gpus,
    trace: PowerTrace,
    when_s: float,
    place: int,
    node: int,
) -> None:
    """A node begins; what a clock changes begins on all GPUs of the rank at once."""
    pipeline = place // shape.ranks
    p, row = pipeline - shape.first, program.row[node]
    now.begun_s[pipeline, node] = when_s
    if row < 0:
        heappush(heap, (when_s + program.fixed_s[node], DONE, place, node))
        return
    progress.running[p, place % shape.ranks], end_s = node, when_s
    for gpu in range(place * shape.tensor, (place + 1) * shape.tensor):
        account(gpus, tables, gpu, now.cap[gpu], when_s, trace)
        gpus.row[gpu], gpus.left[gpu] = row, now.factor[pipeline, node] * now.slow[gpu]
        expect(gpus, tables, gpu, now.cap[gpu], when_s)
        end_s = max(end_s, gpus.done_s[gpu])
    heappush(heap, (end_s, DONE, place, node))
    plan = now.plan[pipeline]
    for k in range(requests.first[plan, node], requests.first[plan, node + 1]):
        if requests.offset_s[k] < AT_END:
            heappush(heap, (when_s + requests.offset_s[k], ASK, place, requests.clock[k]))


@inner
def _done(
    heap: Heap,
    progress: Progress,
    shape: Shape,
    program: Program,
    tables: Tables,
    requests: Requests,
    now: Iteration,
    gpus: Gpus,
    trace: PowerTrace,
    when_s: float,
    place: int,
    node: int,
) -> None:
    """A node ends, and those that waited for it alone can begin."""
    pipeline, rank = place // shape.ranks, place % shape.ranks
    p = pipeline - shape.first
    now.ended_s[pipeline, node] = when_s
    now.arrival_s[pipeline, rank] = max(now.arrival_s[pipeline, rank], when_s)
    if program.row[node] >= 0:
        progress.running[p, rank] = -1
        for gpu in range(place * shape.tensor, (place + 1) * shape.tensor):
            account(gpus, tables, gpu, now.cap[gpu], when_s, trace)
            gpus.row[gpu] = -1
        plan = now.plan[pipeline]
        for k in range(requests.first[plan, node], requests.first[plan, node + 1]):
            if requests.offset_s[k] == AT_END:
                heappush(heap, (when_s, ASK, place, requests.clock[k]))
    progress.left[p, rank] -= 1
    if progress.left[p, rank] == 0:
        for gpu in range(place * shape.tensor, (place + 1) * shape.tensor):
            account(gpus, tables, gpu, now.cap[gpu], when_s, trace)
            gpus.cause[gpu] = BARRIER
    for edge in range(program.first[node], program.first[node + 1]):
        after = program.after[edge]
        late_s = now.link_s[pipeline, rank] if program.crosses[edge] else 0.0
        ready_s = max(progress.ready_s[p, after], when_s + program.delay_s[edge] + late_s)
        progress.ready_s[p, after] = ready_s
        progress.waits_for[p, after] -= 1
        if progress.waits_for[p, after] == 0:
            heappush(heap, (ready_s, START, pipeline * shape.ranks + program.rank[after], after))


@inner
def _ask(
    heap: Heap, shape: Shape, change: Change, gpus: Gpus, when_s: float, place: int, clock: int
) -> None:
    """All GPUs of a rank ask for a clock, one after the other; what was asked for last is not asked again."""
    for gpu in range(place * shape.tensor, (place + 1) * shape.tensor):
        if gpus.wanted[gpu] == clock or clock < 0:
            continue
        settle_s = change.settle_up_s if clock > gpus.wanted[gpu] else change.settle_down_s
        node = gpu // shape.per_node
        gpus.free_s[gpu], gpus.driver_s[node], gpus.force_s[gpu] = _queued(
            when_s,
            gpus.free_s[gpu],
            gpus.driver_s[node],
            gpus.force_s[gpu],
            change.call_s,
            change.call_s + settle_s,
            change.queue_s,
        )
        gpus.wanted[gpu] = clock
        gpus.changes[gpu] += 1
        heappush(heap, (gpus.force_s[gpu], FORCE, gpu, clock))
