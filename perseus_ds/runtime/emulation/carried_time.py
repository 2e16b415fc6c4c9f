"""Carry virtual time from rank to rank: where one waits for another, it learns until when.

Ranks that meet within computations are each as late as the last of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from perseus_ds.device.simulated.gpu import VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.emulation.routes import COUPLED, NORM, REDUCTION, PeerRank, Route
from perseus_ds.schedule import Kind, Load


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Ranks of the job: by pipeline rank those of this pipeline, and all that do the same as this one.

    ``others`` are those of the pipeline without this one.
    """

    pipeline: Sequence[int]
    alike: Sequence[int]
    others: Sequence[int] = ()


class Messages(Protocol):
    """What brings moments from rank to rank."""

    def iteration_begins(self) -> None:
        """Let go of what is over."""

    def send(self, to: int, tag: int, moment_s: float) -> None:
        """Send a moment on its way."""

    def receive(self, source: int, tag: int) -> float:
        """Wait for a moment; minus infinity from who is gone."""

    def close(self) -> None:
        """Inform all that nothing more comes."""


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
        messages: Messages,
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
        messages: Messages,
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
