"""Report when a straggler appears, what is done about it, and when it is gone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict

from perseus_ds.plan import PlanSet
from perseus_ds.runtime.job import GpuAddress
from perseus_ds.runtime.observe.event_log import EventLog
from perseus_ds.straggler.controller import Straggler, StragglerDecision

_MOST_GPUS = 4


class StragglerReporter:
    """One line when the stragglers that others wait for are other ones than before; the rest is journal.

    Shape: ``frontiers``, ``gpus``, ``names`` [replicas]; no ``gpus`` where nobody knows them, no ``names``
    where replicas are called by their numbers. ``awaited`` are the stragglers that others wait for just now,
    each with its devices.
    """

    def __init__(
        self,
        log: EventLog,
        frontiers: Sequence[PlanSet],
        gpus: Sequence[Sequence[GpuAddress]] = (),
        names: Sequence[str] = (),
    ) -> None:
        self._log = log
        self._frontiers = frontiers
        self._gpus = gpus
        self._names = names or [f"replica {number}" for number in range(len(frontiers))]
        self._known: tuple[int, ...] = ()
        self._chosen: tuple[int, ...] = ()
        self._ended = False
        self.awaited: tuple[tuple[Straggler, Sequence[GpuAddress]], ...] = ()

    def report(self, decision: StragglerDecision, plans: Sequence[int]) -> None:
        """Log what is new in a decision; ``plans`` is what every replica runs from now on."""
        for replica in decision.unconfirmed:
            name = self._names[replica]
            self._log.line_once(f"{name} was announced as slow and measures as fast as the others")
        answered = decision.sync_time_s is not None or decision.ended
        awaited = [one for one in decision.stragglers if answered or one.replica in self._known]
        replicas = tuple(sorted(one.replica for one in awaited))
        self.awaited = tuple((one, self._gpus_of(one)) for one in awaited)
        if replicas == self._known:
            self._note_aims(decision, plans)
        elif replicas:
            self._appears(decision, awaited, plans)
        else:
            names = ", ".join(self._names[replica] for replica in self._known)
            self._log.event(
                "straggler_gone",
                f"{names} keeps up again: everyone is back at the objective's plan",
                replicas=list(self._known),
            )
        if decision.ended and not self._ended:
            self._log.event(
                "answers_ended",
                "answers to stragglers have cost as much time as straggler.max_cost_pct allows in the last "
                "1,000 iterations: nobody is slowed for a straggler until it is less than half of that",
            )
        self._known, self._chosen, self._ended = replicas, tuple(plans), decision.ended

    def _appears(
        self, decision: StragglerDecision, awaited: Sequence[Straggler], plans: Sequence[int]
    ) -> None:
        slow = "; ".join(
            f"{self._names[one.replica]}{self._where(one)} is {one.slowdown:.2f} times slower than its peers "
            f"({one.cause.text}{_sureness(one)})"
            for one in awaited
        )
        if decision.sync_time_s is None:
            self._log.event(
                "straggler", f"straggler: {slow}; nobody is slowed", **self._facts(decision, plans)
            )
            return
        waiting = decision.waiting[0]
        saving_pct = self._saving_pct(waiting, plans[waiting], decision.sync_time_s)
        self._log.event(
            "straggler",
            f"straggler: {slow}; the others meet it at {decision.sync_time_s:.4g} s with plan "
            f"{plans[waiting]} of {len(self._frontiers[waiting])}: {saving_pct:.1f} % energy saved on "
            "each of them as planned",
            **self._facts(decision, plans),
            predicted_saving_pct=saving_pct,
        )

    def _note_aims(self, decision: StragglerDecision, plans: Sequence[int]) -> None:
        if tuple(plans) != self._chosen and decision.sync_time_s is not None:
            self._log.event("straggler", None, **self._facts(decision, plans))

    def _saving_pct(self, replica: int, plan: int, sync_time_s: float) -> float:
        """Against default clocks beside the same straggler: both wait until all meet."""
        frontier = self._frontiers[replica]
        waiting_j = frontier.blocking_total_w * sync_time_s
        baseline = frontier.baseline
        extra_s = sync_time_s - baseline.iteration_time_s
        default_j = baseline.energy_j + baseline.blocking_power_w * frontier.schedule.ranks * extra_s
        return 100.0 * (1.0 - (float(frontier.effective_energy_j[plan]) + waiting_j) / default_j)

    def _facts(self, decision: StragglerDecision, plans: Sequence[int]) -> dict[str, object]:
        return {
            "sync_time_s": decision.sync_time_s,
            "stragglers": [
                {
                    "replica": one.replica,
                    "slowdown": one.slowdown,
                    "cause": one.cause.value,
                    "doubt": one.doubt,
                    "gpus": [asdict(gpu) for gpu in self._gpus_of(one)],
                }
                for one in decision.stragglers
            ],
            "waiting": list(decision.waiting),
            "plans": list(plans),
        }

    def _where(self, straggler: Straggler) -> str:
        """On which hosts, and on which GPUs where they are few."""
        hosts: dict[str, list[str]] = {}
        gpus = self._gpus_of(straggler)
        for one in gpus:
            hosts.setdefault(one.host, []).append(one.gpu)
        few = len(gpus) <= _MOST_GPUS
        told = [f"{host}: {', '.join(each)}" if few else host for host, each in hosts.items()]
        return f" ({'; '.join(told)})" if told else ""

    def _gpus_of(self, straggler: Straggler) -> Sequence[GpuAddress]:
        return self._gpus[straggler.replica] if straggler.replica < len(self._gpus) else ()


def _sureness(straggler: Straggler) -> str:
    """How sure the measurement is, rounded down; nothing where none is concluded from."""
    sure_pct = math.floor(1e4 * (1.0 - straggler.doubt)) / 100.0
    return f", {min(sure_pct, 99.99):g} % sure" if straggler.doubt else ""
