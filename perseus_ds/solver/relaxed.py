"""The relaxed optimum at one time, as a dive reads it: where events stand and what moving them is worth."""

from __future__ import annotations

import numpy as np

from perseus_ds.solver.dive import Relaxed
from perseus_ds.solver.dual import precedence_flow
from perseus_ds.solver.frontier import Frontier
from perseus_ds.solver.problem import Floats


def relaxed_at(frontier: Frontier, time_s: float) -> Relaxed:
    """Interpolate event times between snapshots; price precedences by the flow of the faster one."""
    network, count = frontier.network, len(frontier.whole.problem)
    left, right, share = frontier.bracket(time_s)
    low, high = (frontier.event[at] - frontier.event[at][0] for at in (left, right))
    event = low + ((high - low) * share).astype(np.int64)
    start = event[network.to[network.back[:count]]]
    duration = frontier.whole.tick.whole(frontier.durations_at(time_s))
    return Relaxed(start, start + duration, _worth(frontier, left))


def _worth(frontier: Frontier, snapshot: int) -> Floats:
    """Cost per tick of every precedence."""
    return precedence_flow(frontier, snapshot) * float(frontier.whole.tick.real(np.array(1)))
