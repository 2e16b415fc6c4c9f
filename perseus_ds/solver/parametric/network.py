"""The solver's network: events as nodes, activities and precedences as arcs, events that coincide merged."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.problem import Indices, Ints
from perseus_ds.solver.whole import UNBOUNDED, Whole

SOURCE, SINK = 0, 1


class Network(NamedTuple):
    """Arcs with rungs, and for every node the steps that leave it.

    An arc can be walked ahead and back: two steps, each the other's ``twin``. The steps from node ``v``
    are ``first[v]`` to ``first[v + 1]``; each leads to node ``to``. The first arcs are the activities, in
    the problem's order, the others precedences; ``ahead`` and ``back`` are an arc's steps, ``bottom`` its
    slowest rung.

    Shape: ``first`` [nodes + 1]; ``to``, ``twin``, ``arc`` [steps]; ``ahead``, ``back``, ``bottom`` [arcs];
    ``length``, ``top`` [rungs].
    """

    first: Indices
    to: Indices
    twin: Indices
    arc: Indices
    ahead: Indices
    back: Indices
    bottom: Indices
    length: Ints
    top: Ints


def network_of(whole: Whole) -> tuple[Network, Indices]:
    """Build the network; also show which precedence each arc behind the activities stands for.

    Cost: linear, after sorting.
    """
    start, end, crossing = _events(whole)
    problem, rungs = whole.problem, whole.rungs
    tail = np.concatenate((start, end[problem.before[crossing]]))
    head = np.concatenate((end, start[problem.after[crossing]]))
    delays, which = np.unique(whole.delay[crossing], return_inverse=True)
    network = Network(
        *_steps(tail, head),
        bottom=np.concatenate((rungs.first[problem.table_of], len(rungs.length) + which)).astype(np.int32),
        length=np.concatenate((rungs.length, delays)),
        top=np.concatenate((rungs.top, np.full(len(delays), UNBOUNDED))),
    )
    return network, crossing


def _events(whole: Whole) -> tuple[Indices, Indices, Indices]:
    """Number the events side by side; name the precedences that still join two different ones.

    An activity with one follower may as well end when that one starts. One with a single predecessor may as
    well start when that one ends. All that nothing precedes start at the source, all that nothing follows end
    at the sink.

    Passes walk along what one machine does: two to three times faster where that is one stretch of memory.
    """
    problem = whole.problem
    count = len(problem)
    out, into = np.bincount(problem.before, minlength=count), np.bincount(problem.after, minlength=count)
    prompt = whole.delay == 0
    only_follower = prompt & (out[problem.before] == 1)
    only_before = prompt & (into[problem.after] == 1) & ~only_follower
    start, end = np.arange(count) + 2, np.arange(count) + 2 + count
    start[into == 0], end[out == 0] = SOURCE, SINK
    end[problem.before[only_follower]] = start[problem.after[only_follower]]
    start[problem.after[only_before]] = end[problem.before[only_before]]
    events = np.concatenate(([SOURCE, SINK], np.column_stack((start, end)).ravel()))
    _, first, which = np.unique(events, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int32)
    number[np.argsort(first)] = np.arange(len(first))
    crossing = np.flatnonzero(~(only_follower | only_before))
    return number[which[2::2]], number[which[3::2]], crossing.astype(np.int32)


def _steps(tail: Indices, head: Indices) -> tuple[Indices, Indices, Indices, Indices, Indices, Indices]:
    """Sort both steps of every arc by the node they leave, those ahead first: they lead to the sink."""
    leaves, leads = np.column_stack((tail, head)).ravel(), np.column_stack((head, tail)).ravel()
    order = np.lexsort((np.arange(len(leaves)) & 1, leaves))
    place = np.empty(len(order), dtype=np.int32)
    place[order] = np.arange(len(order))
    first = np.concatenate(([0], np.cumsum(np.bincount(leaves)))).astype(np.int32)
    to, arc = leads[order].astype(np.int32), (order >> 1).astype(np.int32)
    return first, to, place[order ^ 1], arc, place[0::2].copy(), place[1::2].copy()
