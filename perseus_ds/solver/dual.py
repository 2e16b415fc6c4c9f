"""What a flow proves: no choice of options costs less within a given time (Lagrange's bound)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.solver.parametric.frontier import Frontier
from perseus_ds.solver.problem import Floats, Problem

AT_ONCE = 64
"""So many flows are looked at together: what numpy costs by the call is shared, and memory stays small."""


def precedence_flow(frontier: Frontier, snapshot: int | Sequence[int]) -> Floats:
    """Flow on every precedence in watts; where events were merged, that of the only activity concerned.

    Shape: returns [precedences], or [snapshots, precedences] of several.
    """
    problem, flow = frontier.whole.problem, frontier.flow[snapshot]
    count = len(problem)
    lone = np.bincount(problem.before, minlength=count)[problem.before] == 1
    onward = lone & (frontier.whole.delay == 0)
    carried = np.where(onward, flow.take(problem.before, axis=-1), flow.take(problem.after, axis=-1))
    carried[..., frontier.crossing] = flow[..., count:]
    return frontier.whole.price.real(carried)


def activity_flow(frontier: Frontier, snapshot: int | Sequence[int]) -> Floats:
    """Flow on every activity in watts.

    Shape: returns [activities], or [snapshots, activities] of several.
    """
    return frontier.whole.price.real(frontier.flow[snapshot][..., : len(frontier.whole.problem)])


def dual_value(problem: Problem, through_w: Floats, across_w: Floats) -> tuple[float, float]:
    """Return one flow's bound at time zero, and how much it falls per second (`dual_values`)."""
    bases_j, worths_w = dual_values(problem, members_of(problem), through_w[None], across_w[None])
    return float(bases_j[0]), float(worths_w[0])


def members_of(problem: Problem) -> list[NDArray[np.intp]]:
    """The activities of every table."""
    counts = np.bincount(problem.table_of, minlength=len(problem.tables))
    return np.split(np.argsort(problem.table_of, kind="stable"), np.cumsum(counts)[:-1])


def dual_values(
    problem: Problem, members: Sequence[NDArray[np.intp]], through_w: Floats, across_w: Floats
) -> tuple[Floats, Floats]:
    """Return the bounds' values at time zero, and how much each falls per second.

    For a flow that is conserved, every plan within ``T`` costs at least the first less ``T`` times the
    second. A plan's cost plus its flow-weighted durations and delays is at least the sum of the least that
    each activity can have. All paths together carry the flow for at most ``T``.

    Shape: ``members`` [tables], the activities of each; ``through_w`` [flows, activities]; ``across_w``
    [flows, precedences]; returns [flows] twice.
    """
    totals_j = np.array([row_w @ problem.delay_s for row_w in across_w])  # rounded alike in any company
    for table, where in zip(problem.tables, members, strict=True):
        flow_w = through_w.take(where, axis=1)
        options_j = table.cost_j[:, None, None] + table.duration_s[:, None, None] * flow_w
        totals_j += options_j.min(axis=0).sum(axis=1)
    starts = np.bincount(problem.after, minlength=len(problem)) == 0
    return totals_j, through_w[:, starts].sum(axis=1)


def bounds_at(frontier: Frontier, times_s: Floats) -> Floats:
    """Return the best bound that the snapshots around each time prove."""
    snapshots = {at for time_s in times_s for at in frontier.bracket(float(time_s))[:2]}
    lines = _lines(frontier, snapshots)
    best = [
        max(lines[at][0] - lines[at][1] * time_s for at in frontier.bracket(float(time_s))[:2])
        for time_s in times_s
    ]
    return np.array(best)


def total_bounds(frontier: Frontier, times_s: Floats, base_power_w: float) -> Floats:
    """Bound cost plus ``base_power_w`` times duration, over all plans that take at most each time.

    A flow's line falls with the time as long as the flow is worth more than the base power. Its least value
    is then the one at the wanted time, else the one at T_min. Two flows on either side of the base power mix
    to one that is worth exactly that: a bound that holds for every duration.
    """
    worth_w = np.append(frontier.price_w, 0.0)[frontier.kept]
    turn = int(np.searchsorted(-worth_w, -base_power_w))
    around = {at for at in (turn - 1, turn) if 0 <= at < len(frontier.kept)}
    times_s = np.maximum(times_s, frontier.t_min_s)
    near = [set(frontier.bracket(float(time_s))[:2]) | around for time_s in times_s]
    lines = _lines(frontier, set().union(*near))
    always_j = _mixed([lines[at] for at in sorted(around)], base_power_w)
    return np.array(
        [
            max(always_j, *(_least(lines[at], base_power_w, frontier.t_min_s, time_s) for at in snapshots))
            for snapshots, time_s in zip(near, times_s.tolist(), strict=True)
        ]
    )


def _least(line: tuple[float, float], base_power_w: float, t_min_s: float, time_s: float) -> float:
    """The least value of one flow's line between T_min and ``time_s``, base power included."""
    base_j, worth_w = line
    return base_j + (base_power_w - worth_w) * (time_s if worth_w >= base_power_w else t_min_s)


def _mixed(lines: list[tuple[float, float]], base_power_w: float) -> float:
    """What two flows prove, mixed so that they are worth the base power; nothing where it is not between."""
    (high_j, high_w), (low_j, low_w) = lines[0], lines[-1]
    if not high_w >= base_power_w >= low_w:
        return -np.inf
    share = (base_power_w - low_w) / (high_w - low_w) if high_w > low_w else 1.0
    return share * high_j + (1.0 - share) * low_j


def _lines(frontier: Frontier, snapshots: Iterable[int]) -> dict[int, tuple[float, float]]:
    """What each snapshot's flow proves at time zero, and how much that falls per second."""
    problem, every = frontier.whole.problem, sorted(snapshots)
    members = members_of(problem)
    lines: dict[int, tuple[float, float]] = {}
    for some in (every[first : first + AT_ONCE] for first in range(0, len(every), AT_ONCE)):
        through_w, across_w = activity_flow(frontier, some), precedence_flow(frontier, some)
        bases_j, worths_w = dual_values(problem, members, through_w, across_w)
        lines |= dict(zip(some, zip(bases_j.tolist(), worths_w.tolist(), strict=True), strict=True))
    return lines
