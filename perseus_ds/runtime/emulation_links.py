"""Carry virtual time from rank to rank: where one waits for another, it learns until when.

Ranks that meet within computations are each as late as the last of them.
"""

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
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.channel import control_group
from perseus_ds.runtime.reach import Reach
from perseus_ds.schedule import Instruction, Kind, Load, Order, Schedule, dag_of

# Whom each instruction of one rank waits for and whom it releases, read off the schedule's own graph.

_SENDER = {Kind.RECV_ACTIVATION: (Kind.SEND_ACTIVATION, -1), Kind.RECV_GRAD: (Kind.SEND_GRAD, +1)}

REDUCTION, NORM, COUPLED, LOADS = 0, 1, 2, 3
"""Tags under which replicas meet, a pipeline's ranks for the norm, peers within computations, and loads."""

_FIRST = 4
"""What stands in the graph is numbered from here on."""


@dataclass(frozen=True, slots=True)
class PeerRank:
    """Another pipeline rank, and the number of what both have in common: alike on both."""

    rank: int
    tag: int


@dataclass(frozen=True, slots=True)
class Buffered:
    """A transfer through a buffer: from whom, and whether it is an activation or a gradient."""

    peer: PeerRank
    kind: Kind


@dataclass(frozen=True, slots=True)
class Route:
    """Exchanges of one instruction: ``meets`` at once both ways, ``waits_for`` before, ``releases`` after.

    ``lasts`` is how many transfers it carries out.
    """

    instruction: Instruction
    meets: tuple[PeerRank, ...] = ()
    waits_for: tuple[Buffered, ...] = ()
    releases: tuple[PeerRank, ...] = ()
    lasts: int = 0


def routes_of(schedule: Schedule, rank: int) -> list[Route]:
    """Follow every edge of the graph that leaves this rank; one route for every instruction of its order."""
    graph = dag_of(schedule)
    home = schedule.rank_of_stages()
    meeting = _meetings(schedule)
    releases: dict[Instruction, list[PeerRank]] = defaultdict(list)
    waits_for: dict[Instruction, list[Buffered]] = defaultdict(list)
    for tag, ((before, after), (_, kind)) in enumerate(sorted(graph.buffered.items()), _FIRST + len(meeting)):
        giver, taker = graph.nodes[before], graph.nodes[after]
        if home[giver.stage] == rank:
            releases[giver].append(PeerRank(home[taker.stage], tag))
        if home[taker.stage] == rank:
            waits_for[taker].append(Buffered(PeerRank(home[giver.stage], tag), kind))
    return [
        Route(i, tuple(met), tuple(waits_for[i]), tuple(releases[i]), lasts)
        for i, met, lasts in _meetings_of_order(schedule.orders[rank], rank, meeting)
    ]


def _meetings_of_order(
    order: Order, rank: int, meeting: Mapping[Instruction, tuple[int, list[int]]]
) -> Iterator[tuple[Instruction, list[PeerRank], int]]:
    """List whom each instruction meets; transfers queued for a commit meet there, all of them."""
    queues = any(i.kind is Kind.COMMIT for i in order)
    queued: list[PeerRank] = []
    for instruction in order:
        tag, ranks = meeting.get(_node(instruction), (0, []))
        met = [PeerRank(other, tag) for other in ranks if other != rank]
        if queues and instruction.kind.is_transfer:
            queued += met
            yield instruction, [], 0
        elif instruction.kind is Kind.COMMIT:
            yield instruction, queued, min(1, len(queued))
            queued = []
        else:
            yield instruction, met, min(1, len(met)) if instruction.kind.is_transfer else 0


def _meetings(schedule: Schedule) -> Mapping[Instruction, tuple[int, list[int]]]:
    """Number what stands on several ranks, with those ranks."""
    ranks: dict[Instruction, list[int]] = defaultdict(list)
    for rank, order in enumerate(schedule.orders):
        for instruction in order:
            if rank not in ranks[_node(instruction)]:
                ranks[_node(instruction)].append(rank)
    shared = {node: found for node, found in ranks.items() if len(found) > 1}
    return {node: (tag, found) for tag, (node, found) in enumerate(shared.items(), _FIRST)}


def _node(instruction: Instruction) -> Instruction:
    """The same for all ends of one thing: a transfer is named after its sender."""
    if instruction.kind is Kind.REDUCE_TIED:
        return Instruction(0, instruction.kind, instruction.microbatch)
    if instruction.kind not in _SENDER:
        return instruction
    kind, step = _SENDER[instruction.kind]
    return Instruction(instruction.stage + step, kind, instruction.microbatch)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Ranks of the job: by pipeline rank those of this pipeline, and all that do the same as this one.

    ``others`` are those of the pipeline without this one.
    """

    pipeline: Sequence[int]
    alike: Sequence[int]
    others: Sequence[int] = ()


class CarriedTime(PassingListener):
    """A listener in front of `EmulatedWork`: each rank's time passes as its GPU works, and travels along.

    Moments are sent before the host's own call and awaited after it, where the host itself has just waited
    for the same ranks. So nothing can hang that does not hang without us. In the step, or at the end of an
    iteration without one, the ranks of a pipeline meet for the norm of the gradients. Frameworks clip
    gradients by it. What the host does between two iterations passes by its own clock, over ``time_scale``,
    in steps of ``host_step_s``. What is shorter is this host's pace and no part of the job. Our own work
    there takes no time.
    """

    def __init__(
        self,
        listener: InstructionListener,
        clock: VirtualTime,
        *,
        microbatches: int,
        routes: Sequence[Route],
        neighbours: Neighbours,
        messages: TimeMessages,
        settings: SimulatedSettings,
    ) -> None:
        super().__init__(listener)
        self._clock = clock
        self._known_routes = {microbatches: routes}
        self._routes = routes
        self._neighbours = neighbours
        self._others = neighbours.others
        self._messages = messages
        self._settings = settings
        self._route: Route | None = None
        self._position = 0
        self._known = False
        self._met = False

    def iteration_begins(self, batch: Batch) -> bool:
        """Let pass what the host did since the last iteration."""
        if self._clock.left_at is not None:
            self._clock.pass_s(self._outside_s(time.monotonic() - self._clock.left_at))
            self._clock.left_at = None
        self._known, self._position = batch.microbatches in self._known_routes, 0
        self._routes = self._known_routes.get(batch.microbatches, ())
        self._met = self._clipped = False
        self._messages.iteration_begins()
        return self._listener.iteration_begins(batch)

    def learn(self, routes: Sequence[Route], *, microbatches: int) -> None:
        """Know what batches of another size exchange; alike on all ranks, between two iterations."""
        self._known_routes[microbatches] = routes

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Wait for what comes through buffers, and inform those whom this instruction meets."""
        self._route = self._next(kind)
        if self._route is not None:
            self._clock.pass_to(self._arrival_s(self._route))
        self._listener.before(kind, load)
        if self._route is not None:
            self._tell(self._route.meets)
        if kind is Kind.REDUCE_GRADS:
            self._tell_alike()
        if kind is Kind.STEP:
            self._tell_pipeline()

    def after(self, kind: Kind) -> None:
        """Be as late as the latest of all that meet here, and release those who wait for it."""
        route = self._route
        if route is not None and route.meets:
            self._clock.pass_to(self._latest_s(route))
            self._clock.pass_s(route.lasts * self._settings.transfer_s)
        if kind is Kind.REDUCE_GRADS:
            self._meet_alike()
            self._clock.pass_s(self._settings.reduce_grads_s)
        if kind is Kind.STEP:
            self._meet_pipeline()
            self._clock.pass_s(self._settings.step_s)
        self._listener.after(kind)
        if route is not None:
            self._tell(route.releases)

    def iteration_ends(self) -> None:
        """Meet here whom no instruction lets us meet; then the host's own time begins."""
        if self._known:
            self._pass_unheard(len(self._routes))
        if not self._met:
            self._tell_alike()
            self._meet_alike()
        if not self._clipped:
            self._tell_pipeline()
            self._meet_pipeline()
        self._listener.iteration_ends()
        self._clock.left_at = time.monotonic()

    def other_schedule_begins(self) -> None:
        """Pass it on: how long it takes is known when it is over."""
        self._listener.other_schedule_begins()

    def iteration_broke(self) -> None:
        """Nobody knows any more where this rank stands."""
        self._messages.close()
        self._listener.iteration_broke()

    def _outside_s(self, host_s: float) -> float:
        step_s = self._settings.host_step_s
        return host_s // step_s * step_s / self._settings.time_scale

    def _next(self, kind: Kind) -> Route | None:
        """The route of the instruction that was announced; transfers that are not announced are passed."""
        if not self._known:
            return None
        ahead = range(self._position, len(self._routes))
        found = next((at for at in ahead if self._routes[at].instruction.kind is kind), None)
        if found is None:
            return None
        self._pass_unheard(found)
        self._position = found + 1
        return self._routes[found]

    def _pass_unheard(self, until: int) -> None:
        """Carry out the transfers that stand before an instruction and were not announced."""
        for route in self._routes[self._position : until]:
            if route.meets:
                self._tell(route.meets)
                self._clock.pass_to(self._latest_s(route))
                self._clock.pass_s(route.lasts * self._settings.transfer_s)
        self._position = until

    def _tell_pipeline(self) -> None:
        for rank in self._others:
            self._messages.send(rank, NORM, self._clock.now_s())

    def _meet_pipeline(self) -> None:
        """Be as late as the last rank of the pipeline."""
        self._clock.pass_to(max((self._messages.receive(rank, NORM) for rank in self._others), default=0.0))
        self._clipped = True

    def _arrival_s(self, route: Route) -> float:
        ranks = self._neighbours.pipeline
        moments = [self._messages.receive(ranks[one.peer.rank], one.peer.tag) for one in route.waits_for]
        return max((moment + self._settings.transfer_s for moment in moments), default=0.0)

    def _latest_s(self, route: Route) -> float:
        ranks = self._neighbours.pipeline
        return max(self._messages.receive(ranks[peer.rank], peer.tag) for peer in route.meets)

    def _tell(self, peers: Iterable[PeerRank]) -> None:
        for peer in peers:
            self._messages.send(self._neighbours.pipeline[peer.rank], peer.tag, self._clock.now_s())

    def _tell_alike(self) -> None:
        for rank in self._neighbours.alike:
            self._messages.send(rank, REDUCTION, self._clock.now_s())

    def _meet_alike(self) -> None:
        moments = [self._messages.receive(rank, REDUCTION) for rank in self._neighbours.alike]
        self._clock.pass_to(max(moments, default=0.0))
        self._met = True


class CoupledTime(PassingListener):
    """A listener behind `EmulatedWork`: a GPU that has done its part waits for its slowest peer.

    Tensor-, context- and expert-parallel ranks meet in every layer. Each computation is as long as that of
    the slowest, and the others spend the difference waiting, inside their marks, as they would around
    kernels. The first peer gathers the moments and answers with the latest: what the host itself has just
    waited for.

    Shape: ``peers`` with this rank among them, ascending.
    """

    def __init__(
        self,
        listener: InstructionListener,
        clock: VirtualTime,
        messages: TimeMessages,
        *,
        rank: int,
        peers: Sequence[int],
    ) -> None:
        super().__init__(listener)
        self._clock = clock
        self._messages = messages
        self._rank = rank
        self._first = peers[0]
        self._others = [peer for peer in peers if peer != rank]
        self._wanted = False

    def iteration_begins(self, batch: Batch) -> bool:
        """Want every instruction: peers meet whether the session listens or not."""
        self._wanted = super().iteration_begins(batch)
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Pass it on."""
        if self._wanted:
            super().before(kind, load)

    def after(self, kind: Kind) -> None:
        """Wait for the slowest peer, then pass it on."""
        if kind.is_computation:
            self._meet()
        if self._wanted:
            super().after(kind)

    def _meet(self) -> None:
        if self._rank != self._first:
            self._messages.send(self._first, COUPLED, self._clock.now_s())
            self._clock.pass_to(self._messages.receive(self._first, COUPLED))
            return
        for peer in self._others:
            self._clock.pass_to(self._messages.receive(peer, COUPLED))
        for peer in self._others:
            self._messages.send(peer, COUPLED, self._clock.now_s())


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
        """Let go of what was sent two iterations ago."""
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
