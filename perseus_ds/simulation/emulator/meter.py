"""Energy of every GPU, booked by cause up to a moment: compiled."""

from __future__ import annotations

from perseus_ds.simulation.emulator.records import PEERS, WORKING, Floats, Ints, Play, PowerTrace
from perseus_ds.solver.compiling.compiled import compiled, inner


@inner
def spread(trace: PowerTrace, from_s: float, until_s: float, power_w: float) -> None:
    """Put a power into the bins of the job's trace; what lies beyond the last bin is left out."""
    place = int(from_s / trace.bin_s)
    while from_s < until_s and place < len(trace.energy_j):
        edge_s = min(until_s, (place + 1) * trace.bin_s)
        trace.energy_j[place] += power_w * (edge_s - from_s)
        from_s, place = edge_s, place + 1


@inner
def book(
    books: tuple[Floats, Floats, PowerTrace], gpu: int, cause: int, power_w: float, until_s: float
) -> None:
    """Spend a power from where the books end until a moment."""
    since_s, energy_j, trace = books
    if until_s > since_s[gpu]:
        if cause >= 0:
            energy_j[gpu, cause] += power_w * (until_s - since_s[gpu])
            if len(trace.energy_j):
                spread(trace, since_s[gpu], until_s, power_w)
        since_s[gpu] = until_s


@inner
def account(play: Play, gpu: int, cap: int, until_s: float) -> None:
    """Book a GPU up to a moment: stalled by a change, working, waiting for its peers, or waiting."""
    gpus, tables = play.gpus, play.tables
    books = (gpus.since_s, gpus.energy_j, play.trace)
    clock = min(gpus.clock[gpu], cap)
    row, waiting_w = gpus.row[gpu], tables.waiting_w[clock]
    if row < 0:
        book(books, gpu, gpus.cause[gpu], waiting_w, until_s)
        return
    book(books, gpu, PEERS, waiting_w, min(until_s, gpus.paused_s[gpu]))
    worked_s = min(until_s, gpus.done_s[gpu]) - gpus.since_s[gpu]
    if worked_s > 0.0:
        gpus.left[gpu] = max(0.0, gpus.left[gpu] - worked_s / tables.time_s[row, clock])
        book(books, gpu, WORKING, tables.power_w[row, clock], min(until_s, gpus.done_s[gpu]))
    book(books, gpu, PEERS, waiting_w, until_s)


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
        release_s = until_s[gpu // play.shape.tensor]
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
