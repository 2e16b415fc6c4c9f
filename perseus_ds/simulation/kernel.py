"""The emulator's inner loop, compiled: an iteration of some pipelines, event after event."""
# ruff: noqa: C901, PLR0917 - compiled code: loops written out, arguments by position

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.clock_change import queue_call
from perseus_ds.solver.compiled import allocating, compiled, inner

# What the compiled kernel reads and writes: plain arrays, grouped by what they describe.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

WORKING, BUBBLE, BARRIER, PEERS = range(4)
LOST = -1
CAUSES = ("working", "waiting for other stages", "waiting for other pipelines", "waiting for tensor peers")
"""Causes of a GPU's energy."""
PENDING = 8
"""Most changes of one GPU under way at the end of an iteration."""


class Program(NamedTuple):
    """Program of a pipeline's iteration up to where it meets the others: ranks of nodes, and what follows.

    ``row`` is -1 for what no clock changes, which takes ``fixed_s``; ``crosses`` marks data that travels
    between ranks.

    Shape: ``rank``, ``row``, ``fixed_s``, ``waits_for`` [nodes]; ``first`` [nodes + 1] bounds each node's
    part of ``after``, ``delay_s``, ``crosses`` [edges].
    """

    rank: Ints
    row: Ints
    fixed_s: Floats
    waits_for: Ints
    first: Ints
    after: Ints
    delay_s: Floats
    crosses: NDArray[np.bool_]


class Tables(NamedTuple):
    """Duration and power of work at every clock of the grid, ascending.

    Shape: ``clock_mhz``, ``waiting_w`` [clocks]; ``time_s``, ``power_w`` [rows, clocks].
    """

    clock_mhz: Ints
    waiting_w: Floats
    time_s: Floats
    power_w: Floats


class Change(NamedTuple):
    """`perseus_ds.device.clock_change.ClockChange` for compiled code."""

    call_s: float
    settle_up_s: float
    settle_down_s: float
    queue_s: float
    stall_s: float


class PlannedRequests(NamedTuple):
    """Requests of each rank for clocks in every plan that is run.

    ``offset_s`` counts from the node's start; infinite is at its end, negative that long after
    it. Clocks are places in the grid.
    ``opening`` is asked for as an iteration begins; what a rank asks for some time after that stands
    behind all nodes.

    Shape: ``first`` [plans, nodes + ranks + 1] bounds each part of ``offset_s``, ``clock`` [requests];
    ``opening`` [plans, ranks].
    """

    first: Ints
    offset_s: Floats
    clock: Ints
    opening: Ints


class Gpus(NamedTuple):
    """The state of every GPU, and what it has used.

    ``clock`` is in force, ``wanted`` was asked for last. ``row`` is the work at hand (-1: waiting, for
    ``cause``, LOST: using nothing), of which ``left`` remains until ``done_s`` as things stand. ``since_s``
    is up to when energy is booked; no work is done before ``paused_s``. ``free_s`` and ``force_s`` are the
    queue's.

    Shape: [gpus]; ``pending_s``, ``pending`` [gpus, PENDING]; ``energy_j`` [gpus, causes]; ``driver_s``
    [nodes].
    """

    clock: Ints
    wanted: Ints
    row: Ints
    cause: Ints
    left: Floats
    since_s: Floats
    done_s: Floats
    paused_s: Floats
    free_s: Floats
    force_s: Floats
    pending_s: Floats
    pending: Ints
    energy_j: Floats
    changes: Ints
    driver_s: Floats


class EmulatedIteration(NamedTuple):
    """State of an iteration: what is given, then how far it has come.

    ``plan`` is a place in ``PlannedRequests``. ``factor`` multiplies durations, ``slow`` those of one GPU.
    ``cap`` is the highest place in the grid that a GPU reaches. ``link_s`` delays what a rank sends,
    ``input_s`` the first instruction; a rank that is not ``alive`` takes no part. Results: when each rank has
    come to where it meets the other pipelines, and whether some GPU was held below its clock.

    What a node ``waits_for`` is counted, and it is ``ready_s`` at the earliest. Of a rank: the node that is
    ``running``, when to look next whether it has ended, how many are ``left``. ``asked`` numbers the requests
    of a rank, ``newest`` is the last of those that were due so far.

    Shape: ``plan``, ``alive``, ``input_s``, ``capped`` [pipelines]; ``factor``, ``waits_for``, ``ready_s``
    [pipelines, nodes]; ``slow``, ``cap`` [gpus]; the others [pipelines, ranks].
    """

    plan: Ints
    alive: NDArray[np.bool_]
    input_s: Floats
    factor: Floats
    slow: Floats
    cap: Ints
    start_s: Floats
    link_s: Floats
    arrival_s: Floats
    capped: NDArray[np.bool_]
    waits_for: Ints
    ready_s: Floats
    running: Ints
    due_s: Floats
    left: Ints
    asked: Ints
    newest: Ints


class PowerTrace(NamedTuple):
    """Energy of the job in bins of time; no bins, no trace.

    Shape: ``energy_j`` [bins].
    """

    bin_s: float
    energy_j: Floats


class Play(NamedTuple):
    """All that the kernel is given, but for the iteration itself.

    Pipelines ``first`` to ``end - 1``, which share nodes with no others, have ``ranks`` of ``tensor`` GPUs.
    """

    first: int
    end: int
    ranks: int
    tensor: int
    per_node: int
    program: Program
    tables: Tables
    change: Change
    requests: PlannedRequests
    gpus: Gpus
    trace: PowerTrace


# Energy of every GPU, booked by cause up to a moment: compiled.


@inner
def book(play: Play, gpu: int, cause: int, power_w: float, until_s: float) -> None:
    """Spend a power from where a GPU's books end until a moment; beyond the last bin nothing is traced."""
    gpus, trace, from_s = play.gpus, play.trace, play.gpus.since_s[gpu]
    if until_s <= from_s:
        return
    gpus.since_s[gpu] = until_s
    if cause < 0:
        return
    gpus.energy_j[gpu, cause] += power_w * (until_s - from_s)
    place = int(from_s / trace.bin_s)
    while from_s < until_s and place < len(trace.energy_j):
        edge_s = min(until_s, (place + 1) * trace.bin_s)
        trace.energy_j[place] += power_w * (edge_s - from_s)
        from_s, place = edge_s, place + 1


@inner
def account(play: Play, gpu: int, cap: int, until_s: float) -> None:
    """Book a GPU up to a moment: stalled by a change, working, waiting for its peers, or waiting."""
    gpus, tables = play.gpus, play.tables
    clock = min(gpus.clock[gpu], cap)
    row, waiting_w = gpus.row[gpu], tables.waiting_w[clock]
    if row < 0:
        book(play, gpu, gpus.cause[gpu], waiting_w, until_s)
        return
    book(play, gpu, PEERS, waiting_w, min(until_s, gpus.paused_s[gpu]))
    worked_s = min(until_s, gpus.done_s[gpu]) - gpus.since_s[gpu]
    if worked_s > 0.0:
        gpus.left[gpu] = max(0.0, gpus.left[gpu] - worked_s / tables.time_s[row, clock])
        book(play, gpu, WORKING, tables.power_w[row, clock], min(until_s, gpus.done_s[gpu]))
    book(play, gpu, PEERS, waiting_w, until_s)


@inner
def expect(play: Play, gpu: int, cap: int, now_s: float) -> None:
    """Foretell when a GPU that is booked up to now will be done with what it does, if its clock stays."""
    gpus, tables = play.gpus, play.tables
    if gpus.left[gpu] > 0.0:
        begins_s = max(now_s, gpus.paused_s[gpu])
        clock = min(gpus.clock[gpu], cap)
        gpus.done_s[gpu] = begins_s + gpus.left[gpu] * tables.time_s[gpus.row[gpu], clock]


@compiled
def settle(play: Play, cap: Ints, until_s: Floats) -> None:
    """Book every GPU up to its rank's release; clocks that come into force before that count from then on.

    Shape: ``until_s`` [pipelines x ranks].
    """
    gpus = play.gpus
    for gpu in range(len(gpus.clock)):
        release_s = until_s[gpu // play.tensor]
        while True:
            first = -1
            for k in range(gpus.pending.shape[1]):
                soon = gpus.pending[gpu, k] >= 0 and gpus.pending_s[gpu, k] <= release_s
                if soon and (first < 0 or gpus.pending_s[gpu, k] < gpus.pending_s[gpu, first]):
                    first = k
            if first < 0:
                break
            account(play, gpu, cap[gpu], gpus.pending_s[gpu, first])
            gpus.clock[gpu] = gpus.pending[gpu, first]
            gpus.paused_s[gpu] = gpus.pending_s[gpu, first] + play.change.stall_s
            gpus.pending[gpu, first] = -1
        account(play, gpu, cap[gpu], release_s)


# At one moment things happen in this order: a clock that comes into force serves the work that begins.
FORCE, DONE, RELEASE, START, ASK = range(5)
AT_END = np.inf

Event = tuple[float, int, int, int]
"""(when, what, where, which): a GPU and its clock, or a place (pipeline x ranks + rank) and node or clock."""
Heap = list[Event]

_queued = inner(queue_call)


_CLOCKS = 1 << 20  # more than a grid has: a request's number and its clock share an integer


@compiled
def play_pipelines(play: Play, now: EmulatedIteration) -> None:
    """Run until every rank has come to where it meets the other pipelines (``now.arrival_s``).

    Cost: logarithmic in ranks, per event; a few events per computation and change of clock.
    """
    heap = [(0.0, 0, 0, 0) for _ in range(0)]
    _begin(heap, play, now)
    while heap:
        event = heappop(heap)
        if event[1] == FORCE:
            _force(heap, play, now, event)
        elif event[1] == START:
            _start(heap, play, now, event)
        elif event[1] == DONE:
            _done(heap, play, now, event)
        elif event[1] == RELEASE:
            _release(heap, play, now, event)
        else:
            _ask(heap, play, now, event)


@allocating
def _begin(heap: Heap, play: Play, now: EmulatedIteration) -> None:
    """Put what is under way, the releases and the first instructions on the heap."""
    program, gpus = play.program, play.gpus
    for pipeline in range(play.first, play.end):
        for rank in range(play.ranks):
            place = pipeline * play.ranks + rank
            heappush(heap, (now.start_s[pipeline, rank], RELEASE, place, 0))
            for gpu in range(place * play.tensor, (place + 1) * play.tensor):
                for k in range(gpus.pending.shape[1]):
                    if gpus.pending[gpu, k] >= 0:
                        heappush(heap, (gpus.pending_s[gpu, k], FORCE, gpu, gpus.pending[gpu, k]))
                        gpus.pending[gpu, k] = -1
        for node in range(len(program.rank) if now.alive[pipeline] else 0):
            if program.waits_for[node] == 0:
                now.ready_s[pipeline, node] += now.input_s[pipeline]
                place = pipeline * play.ranks + program.rank[node]
                heappush(heap, (now.ready_s[pipeline, node], START, place, node))


@allocating
def _force(heap: Heap, play: Play, now: EmulatedIteration, event: Event) -> None:
    """A clock comes into force: in the next iteration, where this one has nothing left for the rank."""
    when_s, _, gpu, clock = event
    gpus, place = play.gpus, gpu // play.tensor
    pipeline, rank = place // play.ranks, place % play.ranks
    if now.left[pipeline, rank] == 0:
        for k in range(gpus.pending.shape[1]):
            if gpus.pending[gpu, k] < 0:
                gpus.pending_s[gpu, k], gpus.pending[gpu, k] = when_s, clock
                return
    account(play, gpu, now.cap[gpu], when_s)
    gpus.clock[gpu], gpus.paused_s[gpu] = clock, when_s + play.change.stall_s
    if now.running[pipeline, rank] >= 0:
        expect(play, gpu, now.cap[gpu], when_s)
        end_s = max(when_s, gpus.done_s[place * play.tensor : (place + 1) * play.tensor].max())
        if end_s < now.due_s[pipeline, rank]:
            now.due_s[pipeline, rank] = end_s
            heappush(heap, (end_s, DONE, place, now.running[pipeline, rank]))


@allocating
def _due(heap: Heap, play: Play, now: EmulatedIteration, when_s: float, place: int, clock: int) -> None:
    """Number a rank's request for a clock, and put it on the heap."""
    if clock >= 0:
        pipeline, rank = place // play.ranks, place % play.ranks
        now.asked[pipeline, rank] += 1
        heappush(heap, (when_s, ASK, place, now.asked[pipeline, rank] * _CLOCKS + clock))


@allocating
def _release(heap: Heap, play: Play, now: EmulatedIteration, event: Event) -> None:
    """A rank is let into the iteration."""
    when_s, _, place, _ = event
    gpus, requests, pipeline = play.gpus, play.requests, place // play.ranks
    for gpu in range(place * play.tensor, (place + 1) * play.tensor):
        account(play, gpu, now.cap[gpu], when_s)
        gpus.cause[gpu] = BUBBLE if now.alive[pipeline] else LOST
    if now.alive[pipeline]:
        plan, rank = now.plan[pipeline], place % play.ranks
        _due(heap, play, now, when_s, place, requests.opening[plan, rank])
        row = len(play.program.rank) + rank
        for k in range(requests.first[plan, row], requests.first[plan, row + 1]):
            _due(heap, play, now, when_s + requests.offset_s[k], place, requests.clock[k])


@allocating
def _start(heap: Heap, play: Play, now: EmulatedIteration, event: Event) -> None:
    """A node begins; what a clock changes begins on all GPUs of the rank at once."""
    when_s, _, place, node = event
    gpus, requests, pipeline = play.gpus, play.requests, place // play.ranks
    row, plan, rank = play.program.row[node], now.plan[pipeline], place % play.ranks
    if row < 0:
        heappush(heap, (when_s + play.program.fixed_s[node], DONE, place, node))
        return
    now.running[pipeline, rank], end_s = node, when_s
    for gpu in range(place * play.tensor, (place + 1) * play.tensor):
        account(play, gpu, now.cap[gpu], when_s)
        gpus.row[gpu], gpus.left[gpu] = row, now.factor[pipeline, node] * now.slow[gpu]
        if gpus.clock[gpu] > now.cap[gpu]:
            now.capped[pipeline] = True
        expect(play, gpu, now.cap[gpu], when_s)
        end_s = max(end_s, gpus.done_s[gpu])
    now.due_s[pipeline, rank] = end_s
    heappush(heap, (end_s, DONE, place, node))
    for k in range(requests.first[plan, node], requests.first[plan, node + 1]):
        if 0.0 <= requests.offset_s[k] < AT_END:
            _due(heap, play, now, when_s + requests.offset_s[k], place, requests.clock[k])


@allocating
def _done(heap: Heap, play: Play, now: EmulatedIteration, event: Event) -> None:
    """A node ends if nothing has changed meanwhile, and those that waited for it alone can begin.

    What its rank asks for at its end, or after it, is due then.
    """
    when_s, _, place, node = event
    program, gpus, requests = play.program, play.gpus, play.requests
    pipeline, rank = place // play.ranks, place % play.ranks
    plan = now.plan[pipeline]
    gpu, end = place * play.tensor, (place + 1) * play.tensor
    if program.row[node] >= 0:
        if now.running[pipeline, rank] != node or when_s != now.due_s[pipeline, rank]:
            return
        end_s = gpus.done_s[gpu:end].max()
        if end_s > when_s:  # a clock fell: look again when it should have ended
            now.due_s[pipeline, rank] = end_s
            heappush(heap, (end_s, DONE, place, node))
            return
        now.running[pipeline, rank] = -1
        for own in range(gpu, end):
            account(play, own, now.cap[own], when_s)
            gpus.row[own] = -1
        for k in range(requests.first[plan, node], requests.first[plan, node + 1]):
            if requests.offset_s[k] < 0.0 or requests.offset_s[k] == AT_END:
                after_s = max(0.0, -requests.offset_s[k])
                _due(heap, play, now, when_s + after_s, place, requests.clock[k])
    now.arrival_s[pipeline, rank] = max(now.arrival_s[pipeline, rank], when_s)
    now.left[pipeline, rank] -= 1
    if now.left[pipeline, rank] == 0:
        for own in range(gpu, end):
            account(play, own, now.cap[own], when_s)
            gpus.cause[own] = BARRIER
    for edge in range(program.first[node], program.first[node + 1]):
        after = program.after[edge]
        late_s = now.link_s[pipeline, rank] if program.crosses[edge] else 0.0
        ready_s = max(now.ready_s[pipeline, after], when_s + program.delay_s[edge] + late_s)
        now.ready_s[pipeline, after] = ready_s
        now.waits_for[pipeline, after] -= 1
        if now.waits_for[pipeline, after] == 0:
            heappush(heap, (ready_s, START, pipeline * play.ranks + program.rank[after], after))


@allocating
def _ask(heap: Heap, play: Play, now: EmulatedIteration, event: Event) -> None:
    """All GPUs of a rank ask for a clock in turn; what was asked for last is not asked for again.

    Nor is what was superseded: a later request was due before it, as where a computation ends early.
    """
    when_s, _, place, request = event
    gpus, change = play.gpus, play.change
    pipeline, rank = place // play.ranks, place % play.ranks
    number, clock = request // _CLOCKS, request % _CLOCKS
    if number < now.newest[pipeline, rank]:
        return
    now.newest[pipeline, rank] = number
    for gpu in range(place * play.tensor, (place + 1) * play.tensor):
        if gpus.wanted[gpu] == clock:
            continue
        settle_s = change.settle_up_s if clock > gpus.wanted[gpu] else change.settle_down_s
        node = gpu // play.per_node
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
