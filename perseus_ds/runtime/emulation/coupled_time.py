"""Ranks that meet within computations: each is as late as the last of them, on simulated GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.device.simulated import VirtualTime
from perseus_ds.runtime.adapter import Batch, InstructionListener, PassingListener
from perseus_ds.runtime.emulation.carried_time import Messages
from perseus_ds.runtime.emulation.routes import COUPLED
from perseus_ds.schedule import Kind, Load


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
