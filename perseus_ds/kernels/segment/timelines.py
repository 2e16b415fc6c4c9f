"""An instruction's own frontier: a few timelines of pairs, from its fastest to its cheapest."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from perseus_ds.kernels.choose.table import LaunchCosts
from perseus_ds.kernels.segment.bounded import runs_at
from perseus_ds.kernels.segment.dynamic import cheapest_runs
from perseus_ds.kernels.segment.runs import ChangeCost, Runs, Sequence
from perseus_ds.kernels.trace import KernelTrace
from perseus_ds.plan.record import AtDefault, ClockSegments, InstructionTimelines, TimelineStep

MOST = 12
STEADY_SHARE = 0.15
"""Of an instruction's duration: who runs a timeline knows moments, not kernels. Small errors of duration
shift kernels across clock boundaries; a pair that is held for longer is robust against this.
"""


def timelines(sequence: Sequence) -> tuple[ClockSegments, ...]:
    """Find corners of the frontier, each best at some price of time, fastest first.

    Between two corners the next price is that of their chord; the chord that spans the most energy is
    looked at first.

    Cost: one pass over the sequence for each corner.
    """
    corners = [_fastest(sequence), runs_at(sequence, 0.0)]
    closed: set[tuple[float, float]] = set()
    while len(corners) < MOST:
        chords = [
            (fast, slow)
            for fast, slow in pairwise(corners)
            if slow.time_s > fast.time_s and (fast.time_s, slow.time_s) not in closed
        ]
        if not chords:
            break
        fast, slow = max(chords, key=lambda chord: chord[0].energy_j - chord[1].energy_j)
        price_w = (fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s)
        between = runs_at(sequence, price_w)
        value_j = between.energy_j + price_w * between.time_s
        below = value_j < (fast.energy_j + price_w * fast.time_s) * (1.0 - 1e-12)
        if below and fast.time_s < between.time_s < slow.time_s:
            corners.insert(corners.index(slow), between)
        else:
            closed.add((fast.time_s, slow.time_s))
    return tuple(_timeline(sequence, runs) for runs in _falling(corners))


def timelines_of(
    costs: LaunchCosts,
    trace: KernelTrace,
    change: ChangeCost,
    *,
    spared_w: tuple[tuple[int, float], ...] = (),
) -> tuple[InstructionTimelines, ...]:
    """Find the frontier of every instruction of a trace, each pair held for ``STEADY_SHARE`` of it.

    ``spared_w`` is of the profile that the costs come from.
    """
    found = []
    for one in trace.sequences:
        kernels = np.array(one.kernels)
        steady_s = STEADY_SHARE * Sequence(kernels, costs).default_s
        held = replace(change, dwell_s=max(change.dwell_s, steady_s))
        sequence = Sequence(kernels, costs, held)
        default = AtDefault(sequence.default_s, sequence.default_j)
        lines = timelines(sequence)
        found.append(InstructionTimelines(one.stage, one.kind, lines, default, spared_w))
    return tuple(found)


def _falling(corners: list[Runs]) -> list[Runs]:
    """Leave out what takes as long or longer and saves nothing."""
    kept: list[Runs] = []
    for runs in sorted(corners, key=lambda runs: (runs.time_s, runs.energy_j)):
        if not kept or runs.energy_j < kept[-1].energy_j:
            kept.append(runs)
    return kept


def _fastest(sequence: Sequence) -> Runs:
    costs, change = sequence.costs, sequence.change
    finite_s = np.where(np.isfinite(costs.time_s), costs.time_s, 0.0)
    starts, option = cheapest_runs(
        sequence.kernels, finite_s, costs.time_s, change.change.stall_s, change.shortest_run_s
    )
    return sequence.runs(starts, option)


def _timeline(sequence: Sequence, runs: Runs) -> ClockSegments:
    stall_s = sequence.change.change.stall_s
    begins_s = np.append(0.0, np.cumsum(sequence.durations_s(runs) + stall_s))[:-1]
    steps = tuple(
        TimelineStep(int(launch), float(offset_s), sequence.costs.pairs[option])
        for launch, offset_s, option in zip(runs.starts, begins_s, runs.option, strict=True)
    )
    return ClockSegments(runs.time_s, runs.energy_j, steps)
