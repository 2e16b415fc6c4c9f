"""Covering the graph with chains, and the order in which to fix them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from perseus_ds.solver.compiled import compiled
from perseus_ds.solver.paths import Graph
from perseus_ds.solver.problem import Indices, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """Every activity in one chain of direct followers, and how many precedences join two chains.

    Shape: ``activities``, ``chain_of`` [activities]; ``first`` [chains + 1]; ``bonds`` [chains, chains].
    """

    activities: Indices
    first: Indices
    chain_of: Ints
    bonds: csr_array


@compiled
def _cover(graph: Graph) -> tuple[Indices, Indices]:
    """Link every activity to its first follower that is still free."""
    count = len(graph.order)
    link = np.full(count, -1, dtype=np.int32)
    headed = np.zeros(count, dtype=np.bool_)
    for activity in graph.order:
        for row in range(graph.first_after[activity], graph.first_after[activity + 1]):
            after = graph.after[row]
            if not headed[after]:
                link[activity], headed[after] = after, True
                break
    chains, first = np.empty(count, dtype=np.int32), np.zeros(count + 1, dtype=np.int32)
    filled, number = 0, 0
    for head in graph.order:
        if headed[head]:
            continue
        member = head
        while member >= 0:
            chains[filled] = member
            filled += 1
            member = link[member]
        number += 1
        first[number] = filled
    return chains, first[: number + 1]


def chains_of(graph: Graph) -> Chains:
    """Cover the graph, and count the precedences between every two chains."""
    activities, first = _cover(graph)
    count = len(first) - 1
    chain_of = np.empty(len(activities), dtype=np.int64)
    chain_of[activities] = np.repeat(np.arange(count), np.diff(first))
    tail = np.repeat(np.arange(len(activities)), np.diff(graph.first_after))
    one, other = chain_of[tail], chain_of[graph.after]
    weight = np.ones(2 * len(one))
    pair = (np.concatenate((one, other)), np.concatenate((other, one)))
    return Chains(activities, first, chain_of, csr_array((weight, pair), shape=(count, count)))


def ordered(chains: Chains, room: Ints) -> tuple[Indices, Indices]:
    """Put the chain with the least room to move first, then always the one most bound to those before it.

    Returns the activities, chain after chain, and where each chain begins (and the last one ends).

    Shape: ``room`` [activities], ticks that each could still be faster.
    Cost: quadratic in chains.
    """
    sizes = np.diff(chains.first)
    slack = np.bincount(chains.chain_of, weights=room.astype(np.float64)) / sizes
    order: list[int] = []
    bound, taken = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=np.bool_)
    while len(order) < len(sizes):
        nearest = int(np.lexsort((slack, -bound, taken))[0])
        order.append(nearest)
        taken[nearest] = True
        bound += chains.bonds[[nearest]].toarray()[0]
    activities = [chains.activities[chains.first[c] : chains.first[c + 1]] for c in order]
    return np.concatenate(activities), np.append(0, np.cumsum(sizes[order])).astype(np.int32)
