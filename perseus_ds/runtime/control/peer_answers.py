"""Slower clocks for ranks whose peers compute longer than they: decided by all, for each GPU its own."""

from __future__ import annotations

import math
from collections.abc import Hashable

from perseus_ds.plan import PlanSet
from perseus_ds.runtime.job import GpuAddress, Job
from perseus_ds.runtime.measure.own_lateness import OwnLateness
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.straggler.peers import Claims, PeerStraggler, PeerWatch


class PeerAnswers:
    """Whom every group of peers waits for, and what room that leaves to this rank.

    Peers meet in every layer, so that they are as late as the slowest of them whatever they do. The others
    may take as long as that one. All ranks are fed alike and know every group; each slows its own GPU, where
    that is wanted (``answers``).
    """

    def __init__(self, job: Job, own_lateness: OwnLateness, log: EventLog, *, answers: bool) -> None:
        self._job = job
        self._answers = answers
        self._own = own_lateness
        self._log = log
        self._watch: PeerWatch | None = None
        self._known: dict[int, PeerStraggler] = {}

    @property
    def room(self) -> float:
        """How much longer, relatively, this rank's computations may take: its peers wait for another."""
        group = self._job.peer_group if self._answers else None
        found = None if group is None else self._known.get(group)
        return found.room if found is not None and found.rank != self._job.rank else 0.0

    @property
    def anyone_waits(self) -> bool:
        """Whether some group waits for one of its GPUs."""
        return bool(self._known)

    def suspect(self, group: int) -> int | None:
        """Whom a group's claims named last (`PeerRows`)."""
        return None if self._watch is None else self._watch.suspect(group)

    def expect(self, plans: PlanSet) -> None:
        """Begin anew with plans that come to be run: their power of waiting, how much computations vary."""
        self._own.expect(plans.blocking_power_w)
        varies = 0.0 if plans.scatter_pct is None else plans.scatter_pct / 100.0
        one = varies * math.sqrt(plans.schedule.microbatches)  # all of a microbatch vary alike there
        self._watch, self._known = PeerWatch([one] * len(self._job.peer_groups)), {}

    def will_run(self, index: int, key: Hashable) -> None:
        """Note the clocks that iteration ``index`` is run by: those that are compared have to be the same."""
        self._own.will_run(index, key)

    def observe(self, claims: Claims) -> bool:
        """Take in one iteration; return whether some group has changed, alike on all ranks."""
        if self._watch is None:
            return False
        changed = self._watch.observe(claims)
        for group in changed:
            found = self._watch.found(group)
            if found is None:
                self._tell_gone(group, self._known.pop(group))
            else:
                self._known[group] = found
                self._tell(group, found)
        return bool(changed)

    def _tell(self, group: int, found: PeerStraggler) -> None:
        peers = len(self._job.peer_groups[group]) - 1
        answer = "too little for an answer"
        if found.room:
            longer = f"clocks at which they take up to {100.0 * found.room:.1f} % longer"
            answer = (
                f"they run at {longer}"
                if self._answers
                else f'straggler.peers "answer" has them run at {longer}'
            )
        self._log.event(
            "peer_straggler",
            f"straggler: {self._named(found)} computes {1.0 + found.late:.3f} times as long as before, in "
            f"{found.proofs} iterations in a row, and {peers} {'rank waits' if peers == 1 else 'ranks wait'} "
            f"for it in every layer: {answer}",
            **self._facts(found),
            late=found.late,
            room=found.room,
            peers=list(self._job.peer_groups[group]),
        )

    def _tell_gone(self, group: int, gone: PeerStraggler) -> None:
        self._log.event(
            "peer_straggler_gone",
            f"{self._named(gone)} keeps up with its peers again, or is silent: all run the plan's clocks",
            **self._facts(gone),
            peers=list(self._job.peer_groups[group]),
        )

    def _named(self, found: PeerStraggler) -> str:
        where = self._address(found)
        return f"rank {found.rank}" if where is None else f"rank {found.rank} ({where.host}: {where.gpu})"

    def _facts(self, found: PeerStraggler) -> dict[str, object]:
        where = self._address(found)
        known = {} if where is None else {"host": where.host, "gpu": where.gpu}
        return {"peer": found.rank, **known}

    def _address(self, found: PeerStraggler) -> GpuAddress | None:
        return self._job.addresses[found.rank] if found.rank < len(self._job.addresses) else None
