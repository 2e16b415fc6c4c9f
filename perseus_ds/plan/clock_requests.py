"""From a plan to what one rank asks its GPU for, and when: every change ahead by its own latency."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan.record import FrequencyPlan, Options, PlanSet, Portion
from perseus_ds.plan.waits import BEGINNING, Idle, WaitClock
from perseus_ds.schedule import Instruction, dag_of

# When every instruction of a plan runs if nothing waits longer than it must: the plan run on paper.


class Part(NamedTuple):
    """A part of a computation at one clock; ``memory_mhz`` None is the device's own memory clock."""

    clock_mhz: int
    duration_s: float
    energy_j: float
    memory_mhz: int | None = None

    @property
    def clocks(self) -> tuple[int, int | None]:
        return self.clock_mhz, self.memory_mhz


@dataclass(frozen=True, slots=True)
class Played:
    """An instruction at its place in the iteration, as planned.

    ``parts`` are its clocks in the order of time, each with its duration and energy (of a timeline's energy
    as its share of the time). There is one part unless the clock changes while it runs, and none for what no
    clock changes. With ``kernels`` the parts are different kernels, so that each clock has its own.
    ``energy_j`` is what the work itself uses (waiting is counted apart, at blocking power), 0 where it was
    not measured.
    """

    instruction: Instruction
    start_s: float
    duration_s: float
    energy_j: float
    parts: tuple[Part, ...] = ()
    kernels: bool = False

    @property
    def clock_mhz(self) -> int | None:
        """The clock of its longest part; None for what no clock changes."""
        return max(self.parts, key=lambda part: part.duration_s).clock_mhz if self.parts else None

    @property
    def end_s(self) -> float:
        """End, in seconds from the iteration's begin."""
        return self.start_s + self.duration_s


def play(plan: FrequencyPlan) -> list[Played]:
    """Start each instruction at the end of the longest path to it.

    A transfer appears once, under its sender. The last end is ``plan.iteration_time_s``, less its
    reserve.

    Shape: rank after rank, each in running order.
    Cost: linear in the nodes and edges of the schedule's graph.
    """
    return _play(plan.of, plan.portions())


def play_baseline(plans: PlanSet) -> list[Played]:
    """Run the same schedule with every computation at its highest clock."""
    return _play(plans, dict.fromkeys(plans.computations(), (Portion(0, 1.0),)))


def _play(plans: PlanSet, portions: dict[Instruction, tuple[Portion, ...]]) -> list[Played]:
    dag, own = dag_of(plans.schedule), []
    for node in dag.nodes:
        key = node.stage, node.kind
        if node not in portions:
            own.append(Played(node, 0.0, plans.fixed_s[key], 0.0))
            continue
        options = plans.options[key]
        parts = tuple(
            Part(
                segment.clock_mhz,
                share * segment.duration_s,
                share * segment.duration_s * float(options.energy_j[option] / options.time_s[option]),
                segment.memory_mhz,
            )
            for option, share in portions[node]
            for segment in options.segments(option)
        )
        duration_s, energy_j = sum(part.duration_s for part in parts), sum(part.energy_j for part in parts)
        kernels = any(option >= len(options.clock_mhz) for option, _ in portions[node])
        own.append(Played(node, 0.0, duration_s, energy_j, parts, kernels))
    starts = dag.earliest_starts([one.duration_s for one in own], plans.fixed_s)
    placed = {one.instruction: replace(one, start_s=at_s) for one, at_s in zip(own, starts, strict=True)}
    return [placed[i] for order in plans.schedule.orders for i in order if i in placed]


Clocks = tuple[int, int | None]
"""A core clock and a memory clock, in MHz; None is the device's own."""


@dataclass(frozen=True, slots=True)
class ClockRequest:
    """Ask for a clock ``offset_s`` after the start of a computation, or after its end when ``over``.

    ``position`` counts a rank's computations in running order; at ``OPENING`` the offset counts from the
    moment that the iteration begins, before any of them. ``memory_mhz`` is the memory clock that goes with
    it, None the device's own.
    """

    position: int
    over: bool
    offset_s: float
    clock_mhz: int
    memory_mhz: int | None = None


class _DueClock(NamedTuple):
    """A clock that must be in force at ``at_s``, and was not before."""

    at_s: float
    clocks: Clocks
    latency_s: float


GUARD = 0.02
"""Delay of a lower clock, as a share of the computation before it: durations vary by as much."""
DATE_GUARD_S = 0.02
"""Delay of a lower clock and lead of a higher one at a date, where nobody sees what runs then."""
OPENING = BEGINNING
"""The position of what is asked for while a rank waits for its first computation."""


def opening_clocks(plan: FrequencyPlan, rank: int, requests: Sequence[ClockRequest]) -> Clocks:
    """The clocks that a rank has asked for last when an iteration begins.

    That is what it asks for last in the iteration before; the first computation's, where it never changes.
    """
    if requests:
        return requests[-1].clock_mhz, requests[-1].memory_mhz
    column, instruction = plan.of.computations_of(rank)[0]
    options = plan.of.options[instruction.stage, instruction.kind]
    return options.segments(int(plan.of.choice[plan.index, column]))[0][:2]


def clock_requests(
    plan: FrequencyPlan,
    rank: int,
    change: ClockChange,
    *,
    on_pace: bool = True,
    played: Sequence[Played] | None = None,
) -> tuple[ClockRequest, ...]:
    """List one rank's requests of one iteration in the order of asking.

    A higher clock is asked for so that it is in force at the end of what runs before. Where there is a wait
    of at least its latency, that end is the moment to ask. A lower clock is in force a little later
    (``GUARD``), and is not asked for before what runs before has begun. Durations vary, and what takes longer
    than planned would be slowed for its last part. Where everything does, ``on_pace`` False, or where loads
    vary, it is asked for at that end. The last requests are for the next iteration's first computation, as
    far as they cannot wait until that iteration has begun. Two requests are apart by at least the time that a
    call takes; what that delays comes late. Within a ``dated`` budget all count from the iteration's begin.
    ``played`` is the plan as `play` runs it, where it is known.

    Shape: ``position`` from ``OPENING`` to the rank's computations less one.
    Cost: one pass over the schedule's graph.
    """
    mine = {instruction for _, instruction in plan.of.computations_of(rank)}
    own = [one for one in played or play(plan) if one.parts and one.instruction in mine]
    if plan.of.budget.dated:
        return dates_of(own, change)
    on_pace = on_pace and plan.of.load_variation <= GUARD  # else microbatches differ by more than that
    low, wait_clock = plan.low_waits(rank), plan.of.wait_clock
    return requests_of(own, plan.iteration_time_s, change, low=low, wait_clock=wait_clock, on_pace=on_pace)


def requests_of(
    own: Sequence[Played],
    iteration_time_s: float,
    change: ClockChange,
    *,
    low: Sequence[Idle] = (),
    wait_clock: WaitClock | None = None,
    on_pace: bool = True,
) -> tuple[ClockRequest, ...]:
    """List the requests of one rank's computations as they are run, over and over again.

    In the idle times ``low`` the clock goes down to ``wait_clock``; ``on_pace`` states whether computations
    last as long as planned.
    """
    lowered = frozenset(idle.position for idle in low)
    due = _due_clocks(own, iteration_time_s, change, on_pace=on_pace, low=lowered)
    if wait_clock is not None:
        due += [one for idle in low for one in _lower_idle(own, iteration_time_s, idle, wait_clock)]
    requests, free_s = [], -iteration_time_s
    for at_s, clocks, latency_s in sorted(due, key=lambda one: one.at_s):
        ask_s = max(at_s - latency_s, free_s)
        free_s = ask_s + change.call_s
        requests.append(_place_moment(own, ask_s, iteration_time_s, clocks))
    return tuple(sorted(requests, key=lambda one: (one.position, one.over, one.offset_s)))


def dates_of(own: Sequence[Played], change: ClockChange) -> tuple[ClockRequest, ...]:
    """List the requests of one rank whose computations nobody sees, from the moment that an iteration begins.

    A lower clock is in force ``DATE_GUARD_S`` after its computation begins, a higher one as much before: so
    far an iteration may be ahead of its plan or behind and lose no time. What would be over by then is
    left out. The last clock is that of the next iteration's begin.
    """
    dates: list[ClockRequest] = []
    for before, one in pairwise(own):
        if (clocks := one.parts[0].clocks) != (last := before.parts[-1].clocks):
            late_s = DATE_GUARD_S if clocks[0] < last[0] else -max(DATE_GUARD_S, GUARD * one.start_s)
            ask_s = max(one.start_s + late_s - _latency_s(change, last, clocks), 0.0)
            while dates and dates[-1].offset_s + change.call_s > ask_s:
                dates.pop()
            dates.append(ClockRequest(OPENING, False, ask_s, *clocks))
    return tuple(dates)


def _place_moment(
    own: Sequence[Played], ask_s: float, iteration_time_s: float, clocks: Clocks
) -> ClockRequest:
    """Count a moment of the iteration, its end included, from what began or ended last before it."""
    if ask_s < 0.0:
        ask_s += iteration_time_s
    elif ask_s - iteration_time_s > _ROUNDING * iteration_time_s:
        ask_s -= iteration_time_s
    position = max((p for p, one in enumerate(own) if one.start_s <= ask_s), default=OPENING)
    if position == OPENING:
        return ClockRequest(OPENING, False, ask_s, *clocks)
    over = ask_s >= own[position].end_s * (1.0 - _ROUNDING)
    since_s = own[position].end_s if over else own[position].start_s
    return ClockRequest(position, over, max(ask_s - since_s, 0.0), *clocks)


_ROUNDING = 1e-12


def _due_clocks(
    own: Sequence[Played], iteration_time_s: float, change: ClockChange, *, on_pace: bool, low: frozenset[int]
) -> list[_DueClock]:
    """Return the due clocks, from the first computation to the next iteration's first."""
    wanted: list[_DueClock] = []
    stretches = [_stretches(one) for one in own]
    nexts = [*stretches[1:], stretches[0]]
    starts_s = [*(one.start_s for one in own[1:]), own[0].start_s + iteration_time_s]
    for position, (one, here, after, start_s) in enumerate(zip(own, stretches, nexts, starts_s, strict=True)):
        wanted += [
            _DueClock(one.start_s + since_s, there, _latency_s(change, before, there))
            for (_, before), (since_s, there) in pairwise(here)
        ]
        before, clocks = here[-1][1], after[0][1]
        if before == clocks or position in low:
            continue
        latency_s = _latency_s(change, before, clocks)
        late_s = latency_s
        if start_s - one.end_s < latency_s:
            lowers = clocks[0] < before[0] or _memory_mhz(clocks) < _memory_mhz(before)
            if not lowers:
                late_s = 0.0
            elif on_pace:  # asked for while the computation runs
                late_s = min(latency_s, max(GUARD * one.duration_s, latency_s - one.duration_s))
        at_s = one.end_s + late_s
        if len(after) == 1 or at_s < start_s + after[1][0]:  # else over before it is in force
            wanted.append(_DueClock(at_s, clocks, latency_s))
    return wanted


def _stretches(one: Played) -> list[tuple[float, Clocks]]:
    """The clocks of a computation, each with when it begins, counted from the computation's start.

    Kernels come earlier or later than planned, as durations vary. Each has the higher of two clocks from
    ``GUARD`` of the time so far before it is due until as much after it.
    """
    ends_s = list(accumulate(part.duration_s for part in one.parts))
    spans = list(zip([0.0, *ends_s[:-1]], ends_s, one.parts, strict=True))
    share = GUARD if one.kernels else 0.0
    edges_s = {begin_s * (1.0 - share) for begin_s, _, _ in spans}
    edges_s |= {end_s * (1.0 + share) for _, end_s, _ in spans if end_s * (1.0 + share) < one.duration_s}
    found: list[tuple[float, Clocks]] = []
    for edge_s in sorted(edges_s):
        here = [
            part
            for begin_s, end_s, part in spans
            if begin_s * (1.0 - share) <= edge_s < end_s * (1.0 + share)
        ]
        memory_mhz = max(part.memory_mhz or math.inf for part in here)  # None is the default, the highest
        clocks = max(part.clock_mhz for part in here), None if memory_mhz == math.inf else int(memory_mhz)
        if not found or found[-1][1] != clocks:
            found.append((edge_s, clocks))
    return found


def guarding_j(one: Played, options: Options, spared_w: Mapping[int, float]) -> float:
    """Return the extra energy of a timeline of kernels, for clocks that go up earlier and down later.

    What its kernels take at clocks of others is not known: the whole computation's power by core clock stands
    for it, and what a waiting GPU spares by its memory clock.
    """

    def power_w(clocks: Clocks) -> float:
        at = int(abs(options.clock_mhz - clocks[0]).argmin())
        return float(options.energy_j[at] / options.time_s[at]) - spared_w.get(clocks[1] or 0, 0.0)

    stretches = _stretches(one)
    ends_s = [*(since_s for since_s, _ in stretches[1:]), one.duration_s]
    guarded_j = sum(
        (end_s - since_s) * power_w(clocks)
        for (since_s, clocks), end_s in zip(stretches, ends_s, strict=True)
    )
    return guarded_j - sum(part.duration_s * power_w(part.clocks) for part in one.parts)


def _lower_idle(own: Sequence[Played], total_s: float, idle: Idle, clock: WaitClock) -> list[_DueClock]:
    """Down as an idle time begins, and up again a little before it ends."""
    times_s = np.array([one.start_s for one in own]), np.array([one.end_s for one in own])
    begin_s, until_s = (float(moment) for moment in idle.span_s(*times_s, np.array(total_s)))
    back_s = until_s - float(clock.guard_s(np.array(until_s - begin_s)))
    low_clocks = clock.clock_mhz, own[idle.position].parts[-1].clocks[1]
    return [
        _DueClock(begin_s + clock.down_s, low_clocks, clock.down_s),
        _DueClock(back_s, own[idle.until or 0].parts[0].clocks, clock.up_s),
    ]


def _latency_s(change: ClockChange, before: Clocks, after: Clocks) -> float:
    """Return the latency of the core clock, or of the memory clock where the core's stays."""
    if before[0] != after[0]:
        return change.latency_s(before[0], after[0])
    return change.latency_s(_memory_mhz(before), _memory_mhz(after))


def _memory_mhz(clocks: Clocks) -> float:
    """The device's own memory clock counts as the highest."""
    return float("inf") if clocks[1] is None else clocks[1]
