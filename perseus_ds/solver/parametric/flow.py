"""Moving flow over one step, and what that does to the arc's rung and gaps."""

# ruff: noqa: PLR0917 - flat arrays by position: records of arrays make inner loops three times slower
from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inner
from perseus_ds.solver.parametric.state import NO_WAY_BACK
from perseus_ds.solver.problem import Indices, Ints


@inner
def last_rung(at: int, flow: int, bottom: int, top: Ints) -> int:
    """Return the rung that the last unit of flow uses, where one more would use ``at``."""
    return at - 1 if at > bottom and top[at - 1] == flow else at


@inner
def room(
    step: int, arc: Indices, ahead: Indices, bottom: Indices, top: Ints, flow: Ints, rung: Indices
) -> int:
    """How many units fit before the arc changes its rung."""
    which = arc[step]
    if ahead[which] == step:
        return int(top[rung[which]] - flow[which])
    last = last_rung(rung[which], flow[which], bottom[which], top)
    below = top[last - 1] if last > bottom[which] else 0
    return int(flow[which] - below)


@inner
def send(
    step: int,
    units: int,
    arc: Indices,
    ahead: Indices,
    back: Indices,
    bottom: Indices,
    length: Ints,
    top: Ints,
    flow: Ints,
    rung: Indices,
    gap: Ints,
) -> None:
    """Move ``units`` over one step; at most what there is room for."""
    which = arc[step]
    if ahead[which] == step:
        flow[which] += units
        if flow[which] == top[rung[which]]:
            rung[which] += 1
    else:
        rung[which] = last_rung(rung[which], flow[which], bottom[which], top)
        flow[which] -= units
    last = last_rung(rung[which], flow[which], bottom[which], top)
    gap[ahead[which]] = -length[rung[which]]
    gap[back[which]] = length[last] if flow[which] > 0 else NO_WAY_BACK
