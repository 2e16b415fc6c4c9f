"""The graph of a schedule: its instructions, their dependencies, and their earliest starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import ScheduleError
from perseus_ds.schedule.schedule import Instruction, Kind, Order, Schedule

if TYPE_CHECKING:
    import networkx as nx

# A graph packed row after row: an order in which all can run, and the longest paths to every node.

Indices = NDArray[np.int32]
Seconds = NDArray[np.float64]


class Graph(NamedTuple):
    """Nodes in topological order, with their predecessors and successors packed row after row.

    Row ``i`` of ``before`` is ``before[first_before[i]:first_before[i + 1]]``; ``before_arc`` names the
    edge it came from. Likewise for what comes after. Nodes of a cycle are missing in ``order``.

    Shape: ``order`` [nodes]; ``first_before``, ``first_after`` [nodes + 1]; the others [edges].
    """

    order: Indices
    first_before: Indices
    before: Indices
    before_arc: Indices
    first_after: Indices
    after: Indices
    after_arc: Indices


def pack(nodes: int, before: Indices, after: Indices) -> Graph:
    """Pack the edges ``before[e] -> after[e]`` and order the nodes.

    Cost: linear, after sorting the edges.
    """
    first_before, before_arc = _rows(after, nodes)
    first_after, after_arc = _rows(before, nodes)
    followers = after[after_arc]
    order = _topological(first_before, first_after, followers)
    return Graph(order, first_before, before[before_arc], before_arc, first_after, followers, after_arc)


def _rows(key: Indices, count: int) -> tuple[Indices, Indices]:
    edges = np.argsort(key, kind="stable").astype(np.int32)
    first = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(key, minlength=count), out=first[1:])
    return first, edges


def _topological(first_before: Indices, first_after: Indices, after: Indices) -> Indices:
    """Order the nodes so that each comes after all it waits for; those of a cycle are left out.

    Source: Kahn 1962. In Python, since it runs once per graph and compiling it takes as long as a million
    steps.
    """
    waits, first, followers = np.diff(first_before).tolist(), first_after.tolist(), after.tolist()
    order = [node for node, count in enumerate(waits) if count == 0]
    for node in order:
        for follower in followers[first[node] : first[node + 1]]:
            waits[follower] -= 1
            if waits[follower] == 0:
                order.append(follower)
    return np.array(order, dtype=np.int32)


def cycle(graph: Graph) -> list[int]:
    """Nodes of which each must end before the next starts, the lowest first and last; empty if none."""
    if len(graph.order) == len(graph.first_before) - 1:
        return []
    import networkx as nx  # noqa: PLC0415  # heavy, and a graph seldom has a cycle

    nodes = np.repeat(np.arange(len(graph.first_before) - 1), np.diff(graph.first_before))
    found = nx.find_cycle(nx.DiGraph(zip(graph.before.tolist(), nodes.tolist(), strict=True)))
    circle = [node for node, _ in found]
    lowest = circle.index(min(circle))
    return [*circle[lowest:], *circle[: lowest + 1]]


def spans(graph: Graph, delay: Sequence[float], lasts: Seconds) -> tuple[Seconds, Seconds]:
    """Return when each node starts and ends if nothing waits longer than it must.

    Shape: ``delay`` [edges]; ``lasts`` [nodes, sets], as both that are returned.
    Cost: linear in nodes and edges, in vectors of all sets.
    """
    first, before, arc = graph.first_before.tolist(), graph.before.tolist(), graph.before_arc.tolist()
    start, end = np.zeros(lasts.shape), np.empty(lasts.shape)
    for node in graph.order.tolist():
        for row in range(first[node], first[node + 1]):
            np.maximum(start[node], end[before[row]] + delay[arc[row]], out=start[node])
        np.add(start[node], lasts[node], out=end[node])
    return start, end


_BEGIN = 0  # the place of what all wait for


class LongestPaths:
    """Earliest ends of all nodes, for one set of durations after another.

    What does not change from one pass to the next is prepared. Nodes that wait for more than two others get
    places between that last for no time, so that a pass looks at two places for each.

    Shape: ``delay`` [edges], as in `spans`.
    Cost: a pass takes about 0.1 us for each node, a fifth of `Dag.earliest_starts`.
    """

    def __init__(self, graph: Graph, delay: Sequence[float]) -> None:
        self._graph, self._delays = graph, np.asarray(delay)[graph.before_arc]
        self._place = np.zeros(len(graph.first_before) - 1, dtype=np.intp)
        self._first: list[int] = []
        self._second: list[int] = []
        self._delay: list[float] = []
        begin, before, edges = graph.first_before.tolist(), graph.before.tolist(), graph.before_arc.tolist()
        for node in graph.order.tolist():
            rows = range(begin[node], begin[node + 1])
            waits_for = sorted((delay[edges[row]], int(self._place[before[row]])) for row in rows)
            here = waits_for.pop(0)[1] if waits_for and waits_for[0][0] == 0.0 else _BEGIN
            while len(waits_for) > 1:
                here = self._put(here, *waits_for.pop(0))
            self._place[node] = self._put(here, *(waits_for or [(0.0, here)])[0])
        followed = np.diff(graph.first_after) > 0
        self._ends = self._place[~followed].tolist()
        self._lasts = np.zeros(len(self._first))

    def _put(self, first: int, delay: float, second: int) -> int:
        """Add a place that waits for two, for the second of them with a delay."""
        self._first.append(first)
        self._second.append(second)
        self._delay.append(delay)
        return len(self._first)

    def of_nodes(self, ends: Sequence[float]) -> Seconds:
        """Return the nodes' own of all ``ends``.

        Shape: [nodes].
        """
        return np.array(ends)[self._place]

    def ends(self, lasts: Seconds) -> list[float]:
        """Return the ends of all places.

        Shape: ``lasts`` [nodes]; returns [places + 1], the first of them the begin.
        """
        self._lasts[self._place - 1] = lasts
        ends = [0.0]
        add = ends.append
        for first, second, late, own in zip(
            self._first, self._second, self._delay, self._lasts.tolist(), strict=True
        ):
            one, other = ends[first], ends[second] + late
            add((one if one > other else other) + own)  # noqa: FURB136  # a call costs as much as the rest
        return ends

    def over(self, ends: Sequence[float]) -> float:
        return max((ends[place] for place in self._ends), default=0.0)

    def longest(self, ends: Sequence[float]) -> list[int]:
        """Return the nodes of the longest path, the last one first."""
        graph, own = self._graph, self.of_nodes(ends)
        path = [int(own.argmax())]
        while True:
            rows = slice(graph.first_before[path[-1]], graph.first_before[path[-1] + 1])
            before = graph.before[rows]
            if not len(before):
                return path
            path.append(int(before[(own[before] + self._delays[rows]).argmax()]))


Edge = tuple[int, int]


@dataclass(frozen=True)
class Dag:
    """Instructions and the pairs (before, after) of their positions.

    ``buffered`` are the edges along which data travels from rank to rank while both go on. What follows
    starts a transfer's duration after the end of what precedes. Each is named after its send, (sending stage,
    ``SA`` or ``SG``), the key under which profiles and plans keep the duration.
    """

    nodes: tuple[Instruction, ...]
    edges: tuple[Edge, ...]
    buffered: Mapping[Edge, tuple[int, Kind]] = field(default_factory=dict)

    def delays_s(self, fixed_s: Mapping[tuple[int, Kind], float]) -> list[float]:
        """Return the delay of each edge, from the end of its first node to the start of its second.

        Units: those of ``fixed_s``, one per edge.
        """
        return [fixed_s.get(self.buffered[e], 0.0) if e in self.buffered else 0.0 for e in self.edges]

    @cached_property
    def graph(self) -> Graph:
        edges = np.array(self.edges, dtype=np.int32).reshape(-1, 2)
        return pack(len(self.nodes), *np.ascontiguousarray(edges.T))

    def topological(self) -> list[int]:
        """Node positions, each after all that it waits for.

        Raises:
            ScheduleError: some instructions wait for each other.
        Cost: linear in nodes and edges.
        """
        if len(self.graph.order) < len(self.nodes):
            chain = " waits for ".join(map(str, self.cycle()))
            raise ScheduleError(f"the schedule never ends: {chain}")
        order: list[int] = self.graph.order.tolist()
        return order

    def cycle(self) -> list[Instruction]:
        """Instructions of which each waits for the next, the first again at the end; empty if all can run."""
        return [self.nodes[node] for node in reversed(cycle(self.graph))]

    def to_networkx(self) -> nx.DiGraph:
        """Return the graph for other tools: nodes are names of instructions (``0F0``).

        A node has its ``stage``, ``kind`` and ``microbatch``, an edge along which data travels meanwhile
        the ``transfer`` that its duration is known by (``0SA``).
        """
        import networkx as nx  # noqa: PLC0415  # heavy, and seldom asked for

        graph, names = nx.DiGraph(), [str(node) for node in self.nodes]
        for name, node in zip(names, self.nodes, strict=True):
            graph.add_node(name, stage=node.stage, kind=node.kind.value, microbatch=node.microbatch)
        for edge in self.edges:
            stage, kind = self.buffered.get(edge, (None, None))
            named = {} if kind is None else {"transfer": f"{stage}{kind.value}"}
            graph.add_edge(names[edge[0]], names[edge[1]], **named)
        return graph

    def spans(self, durations: Seconds, fixed_s: Mapping[tuple[int, Kind], float]) -> tuple[Seconds, Seconds]:
        """Return when each node starts and ends, for many sets of durations at once.

        Shape: ``durations`` [nodes, sets], as both that are returned.
        """
        self.topological()
        return spans(self.graph, self.delays_s(fixed_s), durations)

    def longest(self, durations: Seconds, fixed_s: Mapping[tuple[int, Kind], float]) -> Seconds:
        """Return when all is over.

        Shape: ``durations`` [nodes, sets]; returns [sets].
        """
        return np.asarray(self.spans(durations, fixed_s)[1].max(axis=0))

    def earliest_starts(
        self, durations: Sequence[float], fixed_s: Mapping[tuple[int, Kind], float] | None = None
    ) -> list[float]:
        """Return when each node starts if nothing waits longer than it must.

        Units: those of ``durations``, one per node, and of ``fixed_s``, the durations of buffered transfers.
        """
        follows: list[list[tuple[int, float]]] = [[] for _ in self.nodes]
        for (before, after), delay_s in zip(self.edges, self.delays_s(fixed_s or {}), strict=True):
            follows[before].append((after, delay_s))
        start = [0.0] * len(self.nodes)
        for node in self.topological():
            end = start[node] + durations[node]
            for follower, delay_s in follows[node]:
                start[follower] = max(start[follower], end + delay_s)
        return start


# Joining the orders of all ranks into one graph: running order, transfers, and the data between stages.

Pair = tuple[Instruction, Instruction]
BACKWARDS = frozenset({Kind.BACKWARD, Kind.BACKWARD_INPUT})
CHANNELS = (
    (Kind.SEND_ACTIVATION, Kind.RECV_ACTIVATION, +1, frozenset({Kind.FORWARD})),
    (Kind.SEND_GRAD, Kind.RECV_GRAD, -1, BACKWARDS),
)
"""Send, receive, how many stages further the receiver is, and what makes and takes what is sent."""
ENDS = {kind: (send, receive) for send, receive, _, kinds in CHANNELS for kind in kinds}
_SENDER = {receive: (send, -step) for send, receive, step, _ in CHANNELS}


@lru_cache(maxsize=4)
def dag_of(schedule: Schedule) -> Dag:
    """Join the orders of all ranks into one graph; the last few are kept, as one is asked for many times.

    A transfer that stands in the orders is one node, named after its sender. Both ends wait for each other
    (gloo always, NCCL for all but small messages). So what follows it on either rank follows what came before
    it on both. Transfers queued for a ``COMMIT`` are posted by it together and each waits for its own other
    end. In orders without transfers the data of neighbouring stages is handed over through
    buffers: nobody waits to send. A tied reduction is one node for all stages that take part.

    Raises:
        ScheduleError: an instruction without its other end, its input or a rank of its own.
    """
    node_of = _nodes(schedule)
    nodes = tuple(dict.fromkeys(node_of.values()))
    position = {node: index for index, node in enumerate(nodes)}
    in_order = [(node_of[a], node_of[b]) for order in schedule.orders for a, b in _running(order)]
    direct, buffered = handovers(schedule)
    edges = dict.fromkeys((position[a], position[b]) for a, b in [*in_order, *direct, *buffered])
    delayed = {(position[a], position[b]): send for (a, b), send in buffered.items()}
    return Dag(nodes, tuple(edges), delayed)


def _running(order: Order) -> Iterator[Pair]:
    """Yield pairs that follow each other on a rank; transfers only follow what they were queued behind."""
    if not any(i.kind is Kind.COMMIT for i in order):
        yield from pairwise(order)
        return
    last: list[Instruction] = []
    queued: list[Instruction] = []
    for instruction in order:
        if instruction.kind.is_transfer:
            queued.append(instruction)
            continue
        yield from ((before, instruction) for before in last)
        if instruction.kind is Kind.COMMIT:
            yield from ((before, transfer) for before in last for transfer in queued)
            yield from ((transfer, instruction) for transfer in queued)
            queued = []
        last = [instruction]
    for transfer in queued:
        raise ScheduleError(f"{transfer} is queued, and no commit follows it")


def _nodes(schedule: Schedule) -> Mapping[Instruction, Instruction]:
    """Pair every instruction with the node that stands for it in the graph; no transfer lacks an end."""
    nodes = {i: _sender(i) for order in schedule.orders for i in order}
    received = {node for instruction, node in nodes.items() if instruction is not node}
    for instruction, node in nodes.items():
        if node not in nodes:
            raise ScheduleError(f"{instruction} waits for {node}, which no stage runs")
        if instruction.kind.is_transfer and instruction == node and node not in received:
            raise ScheduleError(f"{instruction} waits for ever: no stage receives it")
    reductions = [i for i in nodes if i.kind is Kind.REDUCE_TIED]
    tied = min((i.stage for i in reductions), default=0)
    return nodes | {i: Instruction(tied, i.kind, i.microbatch) for i in reductions}


def _sender(instruction: Instruction) -> Instruction:
    """Return the send that a receive waits for; any other instruction stands for itself."""
    if instruction.kind not in _SENDER:
        return instruction
    kind, step = _SENDER[instruction.kind]
    return Instruction(instruction.stage + step, kind, instruction.microbatch)


# Data flow between computations: in place, by a transfer, or through a buffer.


def handovers(schedule: Schedule) -> tuple[list[Pair], Mapping[Pair, tuple[int, Kind]]]:
    """Return pairs (giver, taker) that order each other directly, and those with a buffer between them.

    An ``FB`` gives and takes what its forward and its backward do. Where both lead to the same ``FB``, the
    gradient's transfer stands for both, which are as large. Where ranks differ and transfers stand in the
    orders, those order giver and taker: nothing is returned.

    Raises:
        ScheduleError: a result that nobody brings over.
    """
    ranks, runs = schedule.rank_of_stages(), schedule.parts()
    ready = [_ready(order) for order in schedule.orders]
    streams = any(i.kind.is_transfer for i in chain(*schedule.orders))
    direct: list[Pair] = []
    buffered: dict[Pair, tuple[int, Kind]] = {}
    for giver, taker in data_flow(schedule):
        here, there = ranks[giver.stage], ranks[taker.stage]
        if here == there:
            direct.append((runs[giver], runs[taker]))
        elif streams:
            _check_brought(giver, taker, ready[here], ready[there])
        else:
            buffered[runs[giver], runs[taker]] = giver.stage, ENDS[giver.kind][0]
    return direct, buffered


def data_flow(schedule: Schedule) -> list[Pair]:
    """Pair every computation that has an input with the one that makes it, in a schedule that is complete.

    ``F(s) -> F(s + 1)``, the last stage's ``F`` to its backward, ``B`` or ``I`` of a stage to that of the
    stage before, ``I(s) -> W(s)``.
    """
    last, parts = schedule.stages - 1, schedule.parts()
    backward_of = {(part.stage, part.microbatch): part for part in parts if part.kind in BACKWARDS}
    inputs = ((_input_of(taker, last, backward_of), taker) for taker in parts)
    return [(maker, taker) for maker, taker in inputs if maker is not None]


def _input_of(
    taker: Instruction, last: int, backward_of: Mapping[tuple[int, int], Instruction]
) -> Instruction | None:
    stage, microbatch = taker.stage, taker.microbatch
    if taker.kind is Kind.FORWARD and stage > 0:
        return Instruction(stage - 1, Kind.FORWARD, microbatch)
    if taker.kind in BACKWARDS and stage == last:
        return Instruction(stage, Kind.FORWARD, microbatch)
    if taker.kind in BACKWARDS:
        return backward_of[stage + 1, microbatch]
    if taker.kind is Kind.BACKWARD_WEIGHT:
        return Instruction(stage, Kind.BACKWARD_INPUT, microbatch)
    return None


def _ready(order: Order) -> Mapping[Instruction, int]:
    """Return where in the order each instruction is over: a queued transfer at the next commit."""
    over = {part: place for place, instruction in enumerate(order) for part in instruction.parts}
    commits = [place for place, i in enumerate(order) if i.kind is Kind.COMMIT]
    for instruction, place in over.items() if commits else ():
        if instruction.kind.is_transfer:
            over[instruction] = next((commit for commit in commits if commit > place), len(order))
    return over


def _check_brought(
    giver: Instruction, taker: Instruction, here: Mapping[Instruction, int], there: Mapping[Instruction, int]
) -> None:
    """See that a transfer leaves after the giver and arrives before the taker."""
    send_kind, receive_kind = ENDS[giver.kind]
    send = Instruction(giver.stage, send_kind, giver.microbatch)
    receive = Instruction(taker.stage, receive_kind, taker.microbatch)
    if send not in here or here[send] < here[giver]:
        raise ScheduleError(f"{taker} waits for what {giver} makes, and no {send} after it sends it")
    if receive not in there or there[receive] > there[taker]:
        raise ScheduleError(f"{taker} waits for what {giver} makes, and no {receive} before it brings it")
