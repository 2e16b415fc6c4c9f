"""Flow along critical paths: the path that a search found, or all that depth-first passes find."""

from __future__ import annotations

from perseus_ds.solver.compiling.compiled import inlined, inner, number
from perseus_ds.solver.parametric.network import SINK, SOURCE
from perseus_ds.solver.parametric.state import BOUNDLESS, NO_WAY_BACK, State

PATIENCE = 12
"""Passes that may take any path before the widest come first."""
WIDEST = 1 << 36
NARROWER = 8


@inner
def send_along(state: State) -> int:
    """Send what fits along the whole path; return the units sent."""
    moves, path, depth = state.moves, state.path, state.tally[2]
    units = moves[path[0].step].room
    for place in range(1, depth):
        units = min(units, moves[path[place].step].room)
    for place in range(depth):
        _send(state, path[place].step, units)
    return int(units)


@inner
def exhaust(state: State) -> int:
    """Send flow over steps without wait until depth-first passes find no more; return the units sent.

    Where a few passes do not suffice, the widest paths come first. Passes that take what they meet would send
    two units at a time through many equal stages, thousands of times.

    Source: capacity scaling, Gabow 1985; Ahuja, Magnanti, Orlin 1993, 7.3.
    """
    sent, passes, least = number(0), number(0), number(1)
    while least > 0:
        state.tally[0] += 1
        passes += 1
        more = _pass(state, state.tally[0], least)
        sent += more
        if passes == PATIENCE and more > 0:
            least = number(WIDEST)
        elif more == 0:
            least //= NARROWER
    return sent


@inner
def _pass(state: State, stamp: int, least: int) -> int:
    """Send flow over steps without wait that have room for ``least``, depth first; return the units sent.

    No step is looked at twice in one pass, so a pass is linear in the steps; it may leave some flow to the
    next. What was sent along a path is written to a step only when the pass leaves that step. From there on
    no path of this pass can use it. So a step costs one writing, however many paths share it.
    """
    nodes, steps, moves, path = state.nodes, state.steps, state.moves, state.path
    sent, depth, node, most = number(0), number(0), number(SOURCE), number(BOUNDLESS)
    nodes[SOURCE].mark, nodes[SOURCE].next = stamp, nodes[SOURCE].first
    while True:
        at = _open_step(state, node, stamp, least)
        if at >= 0:
            most = min(most, sent + moves[at].room)
            place = path[depth]
            place.before, place.most, place.step, place.node = sent, most, at, node
            depth += 1
            node = steps[at].to
            if node != SINK:
                there = nodes[node]
                if there.mark != -stamp:
                    there.next = there.first
                there.mark = stamp
                continue
            sent = most
            depth = _stands(state, depth, sent, stamp, least)
        elif depth == 0:
            return sent
        else:
            depth -= 1
            if sent > path[depth].before:
                _send(state, path[depth].step, sent - path[depth].before)
        node = path[depth].node
        most = path[depth - 1].most if depth > 0 else number(BOUNDLESS)


@inlined
def _open_step(state: State, node: int, stamp: int, least: int) -> int:
    """Return the next step without wait that has room, to a node not yet entered; below zero if none does."""
    nodes, steps, moves, here = state.nodes, state.steps, state.moves, state.nodes[node]
    at, end, time = here.next, here.end, here.time
    while at < end:
        other = nodes[steps[at].to]
        if other.mark != stamp and other.time - time + steps[at].gap == 0 and moves[at].room >= least:
            break
        at += 1
    here.next = at
    return at if at < end else -1


@inner
def _stands(state: State, depth: int, sent: int, stamp: int, least: int) -> int:
    """Leave all from the first step on that is full, reopen the nodes behind it; return what still stands."""
    nodes, steps, path = state.nodes, state.steps, state.path
    stands = depth - 1
    _send(state, path[stands].step, sent - path[stands].before)
    while stands > 0 and path[stands - 1].most - sent < least:
        stands -= 1
        place = path[stands]
        nodes[steps[place.step].to].mark = -stamp
        if sent > place.before:
            _send(state, place.step, sent - place.before)
    return stands


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
