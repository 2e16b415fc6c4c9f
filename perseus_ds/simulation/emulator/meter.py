"""Energy of every GPU, booked by cause up to a moment: compiled."""

from __future__ import annotations

from perseus_ds.simulation.emulator.records import PEERS, WORKING, Floats, Gpus, Ints, PowerTrace, Tables
from perseus_ds.solver.compiled import compiled, inner


@inner
def spread(trace: PowerTrace, from_s: float, until_s: float, power_w: float) -> None:
    """Put a power into the bins of the job's trace; what lies beyond the last bin is left out."""
    place = int(from_s / trace.bin_s)
    while from_s < until_s and place < len(trace.energy_j):
        edge_s = min(until_s, (place + 1) * trace.bin_s)
        trace.energy_j[place] += power_w * (edge_s - from_s)
        from_s, place = edge_s, place + 1


@inner
def book(gpus: Gpus, gpu: int, cause: int, power_w: float, until_s: float, trace: PowerTrace) -> None:
    """Spend a power from where the books end until a moment."""
    if until_s > gpus.since_s[gpu]:
        if cause >= 0:
            gpus.energy_j[gpu, cause] += power_w * (until_s - gpus.since_s[gpu])
            if len(trace.energy_j):
                spread(trace, gpus.since_s[gpu], until_s, power_w)
        gpus.since_s[gpu] = until_s


@inner
def account(gpus: Gpus, tables: Tables, gpu: int, cap: int, until_s: float, trace: PowerTrace) -> None:
    """Book a GPU up to a moment: stalled by a change, working, waiting for its peers, or waiting."""
    clock = min(gpus.clock[gpu], cap)
    row, waiting_w = gpus.row[gpu], tables.waiting_w[clock]
    if row < 0:
        book(gpus, gpu, gpus.cause[gpu], waiting_w, until_s, trace)
        return
    book(gpus, gpu, PEERS, waiting_w, min(until_s, gpus.paused_s[gpu]), trace)
    worked_s = min(until_s, gpus.done_s[gpu]) - gpus.since_s[gpu]
    if worked_s > 0.0:
        gpus.left[gpu] = max(0.0, gpus.left[gpu] - worked_s / tables.time_s[row, clock])
        book(gpus, gpu, WORKING, tables.power_w[row, clock], min(until_s, gpus.done_s[gpu]), trace)
    book(gpus, gpu, PEERS, waiting_w, until_s, trace)


@inner
def expect(gpus: Gpus, tables: Tables, gpu: int, cap: int, now_s: float) -> None:
    """Foretell when a GPU that is booked up to now will be done with what it does, if its clock stays."""
    if gpus.left[gpu] > 0.0:
        begins_s = max(now_s, gpus.paused_s[gpu])
        clock = min(gpus.clock[gpu], cap)
        gpus.done_s[gpu] = begins_s + gpus.left[gpu] * tables.time_s[gpus.row[gpu], clock]


@compiled
def settle(
    gpus: Gpus, tables: Tables, cap: Ints, stall_s: float, until_s: Floats, tensor: int, trace: PowerTrace
) -> None:
    """Book every GPU up to its rank's release; clocks that come into force before that count from then on.

    Shape: ``until_s`` [pipelines x ranks].
    """
    for gpu in range(len(gpus.clock)):
        release_s = until_s[gpu // tensor]
        while True:
            first = -1
            for k in range(gpus.pending.shape[1]):
                soon = gpus.pending[gpu, k] >= 0 and gpus.pending_s[gpu, k] <= release_s
                if soon and (first < 0 or gpus.pending_s[gpu, k] < gpus.pending_s[gpu, first]):
                    first = k
            if first < 0:
                break
            account(gpus, tables, gpu, cap[gpu], gpus.pending_s[gpu, first], trace)
            gpus.clock[gpu] = gpus.pending[gpu, first]
            gpus.paused_s[gpu] = gpus.pending_s[gpu, first] + stall_s
            gpus.pending[gpu, first] = -1
        account(gpus, tables, gpu, cap[gpu], release_s, trace)
