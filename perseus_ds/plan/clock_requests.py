"""From a plan to what one rank asks its GPU for, and when: every change ahead by its own latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perseus_ds.device import ClockChange
from perseus_ds.plan.play import Played, play
from perseus_ds.plan.record import FrequencyPlan
from perseus_ds.plan.waits import WaitClock


@dataclass(frozen=True, slots=True)
class ClockRequest:
    """Ask for a clock ``offset_s`` after the start of a computation, or after its end when ``over``.

    ``position`` counts a rank's computations in running order.
    """

    position: int
    over: bool
    offset_s: float
    clock_mhz: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A clock that is to be in force at ``at_s``, and was not before."""

    at_s: float
    clock_mhz: int
    latency_s: float


def first_clock_mhz(plan: FrequencyPlan, rank: int) -> int:
    """The clock that a rank's first computation starts at."""
    column, instruction = plan.of.computations_of(rank)[0]
    options = plan.of.options[instruction.stage, instruction.kind]
    return int(options.clock_mhz[plan.of.choice[plan.index, column]])


def clock_requests(plan: FrequencyPlan, rank: int, change: ClockChange) -> tuple[ClockRequest, ...]:
    """List one rank's requests of one iteration in the order of asking.

    A higher clock is asked for so that it is in force at the end of what runs before; where there is a wait
    of at least its latency, that end is the moment to ask. A lower clock is asked for at the end of what
    runs before, never earlier: a computation that takes longer than planned (on a slow GPU, or by chance)
    would be slowed for its last part.
    The last requests are for the next iteration's first computation. Two requests are apart by at least the
    time that a call takes; what that delays comes late.

    Shape: ``position`` from 0 to the rank's computations less one.
    Cost: one pass over the schedule's graph.
    """
    played = [one for one in play(plan) if one.parts]
    mine = {instruction for _, instruction in plan.of.computations_of(rank)}
    own = [one for one in played if one.instruction in mine]
    low = plan.of.waits.of_plan(plan.index)
    waits = [column in low for column, _ in plan.of.computations_of(rank)]
    return requests_of(own, plan.iteration_time_s, change, waits=waits, wait_clock=plan.of.wait_clock)


def requests_of(
    own: Sequence[Played],
    iteration_time_s: float,
    change: ClockChange,
    *,
    waits: Sequence[bool] = (),
    wait_clock: WaitClock | None = None,
) -> tuple[ClockRequest, ...]:
    """List the requests of one rank's computations as they are played, over and over again.

    ``waits`` says after which of them the clock goes down to ``wait_clock``.
    """
    requests = []
    free_s = -iteration_time_s
    low = waits if wait_clock is not None and waits else [False] * len(own)
    for wanted in _wanted(own, iteration_time_s, change, low, wait_clock):
        ask_s = max(wanted.at_s - wanted.latency_s, free_s)
        free_s = ask_s + change.call_s
        position = max((p for p, one in enumerate(own) if one.start_s <= ask_s), default=-1)
        if position < 0:
            position, ask_s = len(own) - 1, ask_s + iteration_time_s
        over = ask_s >= own[position].end_s
        since_s = own[position].end_s if over else own[position].start_s
        requests.append(ClockRequest(position, over, max(ask_s - since_s, 0.0), wanted.clock_mhz))
    return tuple(sorted(requests, key=lambda one: (one.position, one.over, one.offset_s)))


def _wanted(
    own: Sequence[Played],
    iteration_time_s: float,
    change: ClockChange,
    low: Sequence[bool],
    wait_clock: WaitClock | None,
) -> list[_Wanted]:
    """When which clock is to be in force, from the first computation to the next iteration's first."""
    wanted = []
    for one, following, goes_down in zip(own, [*own[1:], None], low, strict=True):
        at_s = one.start_s
        for here, there in zip(one.parts, one.parts[1:], strict=False):
            at_s += here.duration_s
            if here.clock_mhz != there.clock_mhz:
                latency_s = change.latency_s(here.clock_mhz, there.clock_mhz)
                wanted.append(_Wanted(at_s, there.clock_mhz, latency_s))
        from_mhz = one.parts[-1].clock_mhz
        to_mhz = (following or own[0]).parts[0].clock_mhz
        start_s = own[0].start_s + iteration_time_s if following is None else following.start_s
        if goes_down and wait_clock is not None:
            wait_s = start_s - one.end_s
            back_s = start_s - float(wait_clock.guard_s(np.array(wait_s)))
            wanted.append(_Wanted(one.end_s + wait_clock.down_s, wait_clock.clock_mhz, wait_clock.down_s))
            wanted.append(_Wanted(back_s, to_mhz, wait_clock.up_s))
            continue
        if from_mhz == to_mhz:
            continue
        latency_s = change.latency_s(from_mhz, to_mhz)
        roomy = start_s - one.end_s >= latency_s
        lower = to_mhz < from_mhz
        wanted.append(_Wanted(one.end_s + latency_s * (roomy or lower), to_mhz, latency_s))
    return wanted
