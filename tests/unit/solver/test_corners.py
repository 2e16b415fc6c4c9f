"""Corners of the optimal face, beside a slow reference that follows the definition word by word."""

from __future__ import annotations

import numpy as np
import pytest

from perseus_ds.schedule import dag_of, textbook
from perseus_ds.solver.frontier import Frontier, solve_frontier
from perseus_ds.solver.problem import Ints, OptionTable, Problem
from perseus_ds.solver.splits import OPEN, TICKS, corner_durations

SOURCE, SINK = 0, 1


def pipeline(seed: int) -> Problem:
    """A small pipeline, every stage and kind with a curve of its own."""
    draw, dag = np.random.default_rng(seed), dag_of(textbook("1f1b", stages=4, microbatches=6))
    keys = sorted({(node.stage, node.kind.value) for node in dag.nodes})
    tables = []
    for _ in keys:
        stretch = np.linspace(0.0, 0.6, 6)
        scale_s = draw.uniform(0.05, 0.1)
        tables.append(OptionTable(scale_s * (1.0 + stretch), scale_s * (1.0 + 1.5 * np.exp(-5.0 * stretch))))
    before, after = np.array(dag.edges, np.int32).T
    table_of = np.array([keys.index((node.stage, node.kind.value)) for node in dag.nodes], np.int32)
    return Problem(tuple(tables), table_of, before, after, np.zeros(len(before)))


def windows(frontier: Frontier, snapshot: int) -> list[tuple[int, int, int, int]]:
    """Tail, head, and between which lengths each arc may be at this flow."""
    network, found = frontier.network, []
    for arc, flow in enumerate(frontier.flow[snapshot].tolist()):
        rung = bottom = int(network.bottom[arc])
        while network.top[rung] <= flow:
            rung += 1
        least = most = int(network.length[rung])
        if flow == 0:
            most = OPEN
        elif rung > bottom and network.top[rung - 1] == flow:
            most = int(network.length[rung - 1])
        found.append((int(network.to[network.back[arc]]), int(network.to[network.ahead[arc]]), least, most))
    return found


def reference(frontier: Frontier, time_s: float) -> Ints:
    """Move sets of events that closed windows hold together, each as far as the next window lets it."""
    left, right, share = frontier.bracket(time_s)
    way = frontier.event[right] - frontier.event[left]
    event = frontier.event[left] + np.floor(way * share).astype(np.int64)
    arcs = windows(frontier, left)
    for node in range(len(event)):
        while SOURCE not in (group := _held(event, arcs, node)):
            later, earlier = [OPEN], [OPEN]
            for tail, head, least, most in arcs:
                if (tail in group) == (head in group):
                    continue
                window = int(event[head] - event[tail])
                shorter, longer = window - least, OPEN if most == OPEN else most - window
                later.append(shorter if tail in group else longer)
                earlier.append(longer if tail in group else shorter)
            event[list(group)] += min(later) if min(later) < min(earlier) else -min(earlier)
    count, network = len(frontier.whole.problem), frontier.network
    lasts = event[network.to[network.ahead[:count]]] - event[network.to[network.back[:count]]]
    return np.asarray(np.clip(lasts, frontier.whole.fastest, frontier.whole.slowest))


def _held(event: Ints, arcs: list[tuple[int, int, int, int]], node: int) -> set[int]:
    """All events that closed windows join to one; source and sink stand together."""
    closed = [(SOURCE, SINK)]
    for tail, head, least, most in arcs:
        window = event[head] - event[tail]
        if window <= least + TICKS or window >= most - TICKS:
            closed.append((tail, head))
    group = {node}
    while grown := {end for pair in closed if not group.isdisjoint(pair) for end in pair} - group:
        group |= grown
    return group


@pytest.mark.parametrize("seed", range(3))
def test_durations_are_those_of_the_definition(seed: int) -> None:
    frontier = solve_frontier(pipeline(seed))
    times_s = np.random.default_rng(seed).uniform(frontier.t_min_s, frontier.t_star_s, 4)
    for time_s in times_s.tolist():
        assert corner_durations(frontier, time_s).tolist() == reference(frontier, time_s).tolist()
