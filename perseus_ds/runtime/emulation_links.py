"""Virtual time of CPU jobs, carried from rank to rank: where one waits for another, it learns until when."""

from __future__ import annotations

import ctypes
import math
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.runtime.channel import control_group
from perseus_ds.runtime.reach import Reach
from perseus_ds.schedule import Instruction, Kind, Order, Schedule, dag_of

# Ranks that each instruction of one rank waits for and releases, read off the schedule's own graph.

_SENDER = {Kind.RECV_ACTIVATION: (Kind.SEND_ACTIVATION, -1), Kind.RECV_GRAD: (Kind.SEND_GRAD, +1)}

REDUCTION, NORM, COUPLED, LOADS = 0, 1, 2, 3
"""Tags: moments of replicas, of a pipeline's ranks for the norm, of peers within computations; loads."""

_FIRST = 4
"""Tag of the first edge of the graph."""


Peer = tuple[int, int]
"""Another pipeline rank, and the tag of what both exchange."""


@dataclass(frozen=True, slots=True)
class Route:
    """Exchanges of one instruction: with ``peers`` both ways, ``waits_for`` before it, ``releases`` after it.

    ``transfers`` is how many transfers it carries out.
    """

    kind: Kind
    peers: tuple[Peer, ...] = ()
    waits_for: tuple[Peer, ...] = ()
    releases: tuple[Peer, ...] = ()
    transfers: int = 0


def routes_of(schedule: Schedule, rank: int) -> list[Route]:
    """Follow every edge of the graph that leaves this rank; one route for every instruction of its order."""
    graph = dag_of(schedule)
    home = schedule.rank_of_stages()
    shared = _shared_nodes(schedule)
    releases: dict[Instruction, list[Peer]] = defaultdict(list)
    waits_for: dict[Instruction, list[Peer]] = defaultdict(list)
    for tag, (before, after) in enumerate(sorted(graph.buffered), _FIRST + len(shared)):
        sender, receiver = graph.nodes[before], graph.nodes[after]
        if home[sender.stage] == rank:
            releases[sender].append((home[receiver.stage], tag))
        if home[receiver.stage] == rank:
            waits_for[receiver].append((home[sender.stage], tag))
    return [
        Route(i.kind, tuple(peers), tuple(waits_for[i]), tuple(releases[i]), transfers)
        for i, peers, transfers in _exchanges(schedule.orders[rank], rank, shared)
    ]


def _exchanges(
    order: Order, rank: int, shared: Mapping[Instruction, tuple[int, list[int]]]
) -> Iterator[tuple[Instruction, list[Peer], int]]:
    """List the peers of each instruction; those of transfers queued for a commit are the commit's."""
    queues = any(i.kind is Kind.COMMIT for i in order)
    queued: list[Peer] = []
    for instruction in order:
        tag, ranks = shared.get(_node(instruction), (0, []))
        peers = [(other, tag) for other in ranks if other != rank]
        if queues and instruction.kind.is_transfer:
            queued += peers
            yield instruction, [], 0
        elif instruction.kind is Kind.COMMIT:
            yield instruction, queued, min(1, len(queued))
            queued = []
        else:
            yield instruction, peers, min(1, len(peers)) if instruction.kind.is_transfer else 0


def _shared_nodes(schedule: Schedule) -> Mapping[Instruction, tuple[int, list[int]]]:
    """Return the nodes that several ranks share, each with its tag and those ranks."""
    ranks: dict[Instruction, list[int]] = defaultdict(list)
    for rank, order in enumerate(schedule.orders):
        for node in dict.fromkeys(map(_node, order)):
            ranks[node].append(rank)
    shared = {node: found for node, found in ranks.items() if len(found) > 1}
    return {node: (tag, found) for tag, (node, found) in enumerate(shared.items(), _FIRST)}


def _node(instruction: Instruction) -> Instruction:
    """Return the node of an instruction, the same on all its ranks: a transfer has its sender's name."""
    if instruction.kind is Kind.REDUCE_TIED:
        return Instruction(0, instruction.kind, instruction.microbatch)
    if instruction.kind not in _SENDER:
        return instruction
    kind, step = _SENDER[instruction.kind]
    return Instruction(instruction.stage + step, kind, instruction.microbatch)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Ranks of the job: by pipeline rank those of this pipeline, and all others at this pipeline rank.

    ``others`` are those of the pipeline without this one.
    """

    pipeline: Sequence[int]
    alike: Sequence[int]
    others: Sequence[int] = ()


class Links:
    """A rank's virtual time on its way to and from other ranks.

    Moments are sent before the host's own call and awaited after it, where the host itself has just waited
    for the same ranks. So nothing can hang that does not hang without us. In the step, or at the end of an
    iteration without one, the ranks of a pipeline wait for the norm of the gradients, which frameworks clip
    by. What the host does between two iterations passes by its own clock, over ``time_scale``, in steps of
    ``host_step_s``. What is shorter is this host's pace and no part of the job. Our own work there takes no
    time.

    ``coupled`` are the ranks that wait for each other in every layer, this one among them, ascending (tensor,
    context and expert parallelism): each computation is as long as that of the slowest. The others spend the
    difference waiting, inside their marks, as they would around kernels.
    """

    def __init__(
        self,
        clock: VirtualTime,
        messages: TimeMessages,
        neighbours: Neighbours,
        settings: SimulatedSettings,
        *,
        rank: int = 0,
        coupled: Sequence[int] = (),
    ) -> None:
        self.clock, self.messages = clock, messages
        self._neighbours, self._settings = neighbours, settings
        self._first = coupled[0] if coupled else rank
        self._is_first = rank == self._first
        self._others = [peer for peer in coupled if peer != rank]
        self._routes: Sequence[Route] = ()
        self._route: Route | None = None
        self._position = 0
        self._reduced = self._clipped = False

    def begin(self, routes: Sequence[Route]) -> None:
        """Begin an iteration of these exchanges; pass the time that the host took since the last one."""
        if self.clock.left_at is not None:
            step_s, host_s = self._settings.host_step_s, time.monotonic() - self.clock.left_at
            self.clock.pass_s(host_s // step_s * step_s / self._settings.time_scale)
            self.clock.left_at = None
        self._routes, self._position = routes, 0
        self._reduced = self._clipped = False
        self.messages.iteration_begins()

    def wait_for_buffers(self, kind: Kind) -> None:
        """Before an instruction: wait for what comes through buffers, after those that were not announced."""
        ahead = range(self._position, len(self._routes))
        found = next((at for at in ahead if self._routes[at].kind is kind), None)
        route = self._route = None if found is None else self._routes[found]
        if found is not None:
            self._skip_to(found)
            self._position = found + 1
        if route is not None and route.waits_for:
            self.clock.pass_to(self._latest_s(route.waits_for) + self._settings.transfer_s)

    def send_begin(self, kind: Kind) -> None:
        """Send this moment to the peers of the instruction that begins."""
        if self._route is not None:
            self._send_to(self._route.peers)
        if kind is Kind.REDUCE_GRADS:
            self._send(self._neighbours.alike, REDUCTION)
        if kind is Kind.STEP:
            self._send(self._neighbours.others, NORM)

    def wait_for_others(self, kind: Kind) -> None:
        """Be as late as the latest of the instruction's peers."""
        if self._route is not None:
            self._wait_for_peers(self._route)
        if kind is Kind.REDUCE_GRADS:
            self._wait_for_replicas()
            self.clock.pass_s(self._settings.reduce_grads_s)
        if kind is Kind.STEP:
            self._wait_for_norm()
            self.clock.pass_s(self._settings.step_s)

    def wait_for_coupled(self) -> None:
        """Be as late as the slowest; the first gathers the moments and answers with the latest."""
        if self._is_first:
            self._wait(self._others, COUPLED)
            self._send(self._others, COUPLED)
        else:
            self._send([self._first], COUPLED)
            self._wait([self._first], COUPLED)

    def send_end(self) -> None:
        if self._route is not None:
            self._send_to(self._route.releases)

    def end(self) -> None:
        """Wait for the replicas and the pipeline if no instruction did."""
        self._skip_to(len(self._routes))
        if not self._reduced:
            self._send(self._neighbours.alike, REDUCTION)
            self._wait_for_replicas()
        if not self._clipped:
            self._send(self._neighbours.others, NORM)
            self._wait_for_norm()

    def _skip_to(self, position: int) -> None:
        """Carry out the transfers that stand before an instruction and were not announced."""
        for route in self._routes[self._position : position]:
            self._send_to(route.peers)
            self._wait_for_peers(route)
        self._position = position

    def _wait_for_peers(self, route: Route) -> None:
        if route.peers:
            self.clock.pass_to(self._latest_s(route.peers))
            self.clock.pass_s(route.transfers * self._settings.transfer_s)

    def _wait_for_replicas(self) -> None:
        self._wait(self._neighbours.alike, REDUCTION)
        self._reduced = True

    def _wait_for_norm(self) -> None:
        self._wait(self._neighbours.others, NORM)
        self._clipped = True

    def _latest_s(self, peers: Iterable[Peer]) -> float:
        pipeline = self._neighbours.pipeline
        return max([self.messages.receive(pipeline[rank], tag) for rank, tag in peers])

    def _send_to(self, peers: Iterable[Peer]) -> None:
        for rank, tag in peers:
            self._send([self._neighbours.pipeline[rank]], tag)

    def _send(self, ranks: Iterable[int], tag: int) -> None:
        for rank in ranks:
            self.messages.send(rank, tag, self.clock.now_s())

    def _wait(self, ranks: Iterable[int], tag: int) -> None:
        self.clock.pass_to(max([self.messages.receive(rank, tag) for rank in ranks], default=0.0))


# Moments of virtual time from rank to rank, over a gloo group of our own.

_PATIENCE_S = 600.0
_GONE = math.nan


class TimeMessages:
    """Send without waiting, receive with it; a rank that leaves reports it once, and is not waited for again.

    ``lost`` are the ranks whose time is not known any more. A message stays alive until its receiver must
    have had it: ranks are never more than an iteration apart.
    """

    def __init__(self, name: str, reach: Reach) -> None:
        patience = timedelta(seconds=_PATIENCE_S)
        self._group = control_group(f"{name}/time", reach, patience=patience, at_once=True)
        self._mine = torch.zeros(1, dtype=torch.float64)
        self._sent: deque[list[tuple[dist.Work | None, torch.Tensor]]] = deque([[]], maxlen=3)
        self._sent_to: set[tuple[int, int]] = set()
        self.lost: set[int] = set()

    def iteration_begins(self) -> None:
        self._sent.append([])

    def send(self, to: int, tag: int, moment_s: float) -> None:
        """Send a moment on its way; who is gone gets nothing."""
        if to in self.lost:
            return
        self._sent_to.add((to, tag))
        message = torch.tensor([moment_s], dtype=torch.float64)
        try:
            self._sent[-1].append((self._group.send([message], to, tag), message))
        except (RuntimeError, ValueError):
            self.lost.add(to)

    def receive(self, source: int, tag: int) -> float:
        """Wait for a moment; minus infinity from who is gone."""
        if source in self.lost:
            return -math.inf
        try:
            self._group.recv([self._mine], source, tag).wait()
        except (RuntimeError, ValueError):
            self.lost.add(source)
            return -math.inf
        moment_s = float(self._mine)
        if math.isnan(moment_s):
            self.lost.add(source)
            return -math.inf
        return moment_s

    def close(self) -> None:
        """Inform all that may wait for us that nothing more comes; they train on, and so do we.

        What is still under way is never destroyed: gloo would wait for it.
        """
        if self._sent_to and dist.is_initialized():
            for to, tag in sorted(self._sent_to):
                self.send(to, tag, _GONE)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        self._sent_to.clear()
