"""Flow along critical paths: the path that a search found, or a maximum flow over all of them."""

from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inlined, inner, number
from perseus_ds.solver.parametric.levels import extended, measured
from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.parametric.state import BOUNDLESS, DEPTH, NO_WAY_BACK, PATHS, PATIENCE, State

FIRST, MORE, MOST = 1, 3, 12
"""Flows of one path in a row that are borne with: at first, more for each flow of several paths, at most."""


@inner
def send_along(state: State) -> int:
    """Send what fits along the whole path; return the units sent."""
    moves, path, depth = state.moves, state.path, state.tally[DEPTH]
    units = moves[path[0].step].room
    for place in range(1, depth):
        units = min(units, moves[path[place].step].room)
    for place in range(depth):
        _send(state, path[place].step, units)
    return int(units)


@inner
def exhaust(state: State) -> int:
    """Send flow over steps without wait until no path has room; return the units sent.

    The shortest paths come first, all of one length at once. So no path walks through a part of the graph
    from which the sink cannot be reached.

    What leads to the sink is known then: while it stays so, only what is new is levelled to begin with.

    Source: Dinic 1970; Ahuja, Magnanti, Orlin 1993, 7.5.
    """
    tally, sent = state.tally, number(0)
    is_known = tally[PATIENCE] > 0
    tally[PATHS] = 0
    leads = extended(state) if is_known else measured(state)
    while leads:
        sent += _block(state)
        leads = measured(state)
    if is_known:
        lone = tally[PATHS] == 1
        tally[PATIENCE] = tally[PATIENCE] - 1 if lone else min(tally[PATIENCE] + MORE, MOST)
    else:
        tally[PATIENCE] = FIRST
    return sent


@inner
def _block(state: State) -> int:
    """Send flow over steps that lead one nearer to the sink, depth first; return the units sent.

    A node is left for good when its last step is. What was sent along a path is written to a step only when
    the path leaves that step. So a step costs one writing, however many paths in a row share it.
    """
    nodes, steps, moves, path = state.nodes, state.steps, state.moves, state.path
    sent, depth, node, most = number(0), number(0), number(SOURCE), number(BOUNDLESS)
    while True:
        at = _nearer(state, node)
        if at >= 0:
            most = min(most, sent + moves[at].room)
            place = path[depth]
            place.before, place.most, place.step, place.node = sent, most, at, node
            depth += 1
            node = steps[at].to
            if node != SINK:
                continue
            sent = most
            state.tally[PATHS] += 1
            depth = _stands(state, depth, sent)
        elif depth == 0:
            return sent
        else:
            depth -= 1
            nodes[path[depth].node].step += 1
            _settle(state, depth, sent)
        node = path[depth].node
        most = path[depth - 1].most if depth > 0 else number(BOUNDLESS)


@inlined
def _nearer(state: State, node: int) -> int:
    """Return the node's next step without wait that leads one nearer to the sink; below zero if none does."""
    nodes, steps, here = state.nodes, state.steps, state.nodes[node]
    at, end, time, wanted = here.step, here.end, here.time, here.level - 1
    while at < end:
        other = nodes[steps[at].to]
        if other.level == wanted and other.time - time + steps[at].gap == 0:
            break
        at += 1
    here.step = at
    return at if at < end else -1


@inner
def _stands(state: State, depth: int, sent: int) -> int:
    """Leave all from the first step on that is full; return how many steps of the path still stand."""
    path = state.path
    stands = depth - 1
    _settle(state, stands, sent)
    while stands > 0 and path[stands - 1].most == sent:
        stands -= 1
        _settle(state, stands, sent)
    return stands


@inlined
def _settle(state: State, depth: int, sent: int) -> None:
    """Write what was sent since a place was entered to its step."""
    place = state.path[depth]
    if sent > place.before:
        _send(state, place.step, sent - place.before)


@inlined
def _send(state: State, which: int, units: int) -> None:
    """Move ``units`` over one step, at most its room."""
    move = state.moves[which]
    if units < move.room and move.is_within:  # the arc stays within its rung: no gap changes
        move.room -= units
        state.moves[state.steps[which].twin].room += units
    else:
        _climb(state, move.arc, units if state.arcs[move.arc].ahead == which else -units)


@inner
def _climb(state: State, which: int, units: int) -> None:
    """Change an arc's flow from or to the edge of a rung, and what its steps wait and have room for."""
    arc, top, length = state.arcs[which], state.top, state.length
    ahead, back = state.moves[arc.ahead], state.moves[arc.back]
    flow, rung, bottom = flow_of(state, which) + units, arc.rung, arc.bottom
    if units < 0 and rung > bottom and not back.is_within:
        rung -= 1
    if flow == top[rung]:
        rung += 1
    low = top[rung - 1] if rung > bottom else 0
    last = rung - 1 if rung > bottom and flow == low else rung  # the rung of the last unit
    arc.rung, arc.low = rung, low
    ahead.is_within = back.is_within = 1 if flow > low else 0
    state.steps[arc.ahead].gap, ahead.room = -length[rung], min(top[rung] - flow, BOUNDLESS)
    state.steps[arc.back].gap = length[last] if flow > 0 else NO_WAY_BACK
    back.room = flow - (top[last - 1] if last > bottom else 0)


@inlined
def flow_of(state: State, which: int) -> int:
    """The flow on an arc."""
    arc = state.arcs[which]
    back = state.moves[arc.back]
    return int(arc.low + back.room if back.is_within else arc.low)
