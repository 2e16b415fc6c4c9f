"""Say when a straggler appears, what is done about it, and when it is gone."""

from __future__ import annotations

from collections.abc import Sequence

from perseus_ds.plan import PlanSet
from perseus_ds.runtime.observe.event_log import Voice
from perseus_ds.straggler import Straggler, Verdict


class Herald:
    """One line when the stragglers that others wait for are other ones than before; the rest is journal."""

    def __init__(self, voice: Voice, frontiers: Sequence[PlanSet]) -> None:
        self._voice = voice
        self._frontiers = frontiers
        self._known: tuple[int, ...] = ()
        self._aims: tuple[int, ...] = ()

    def tell(self, verdict: Verdict, plans: Sequence[int]) -> None:
        """Say what is new in a verdict; ``plans`` is what every replica plays from now on."""
        for replica in verdict.unfounded:
            self._voice.say_once(
                f"replica {replica} was announced as slow and measures as fast as the others"
            )
        awaited = verdict.stragglers if verdict.meeting_s is not None else ()
        replicas = tuple(sorted(one.replica for one in awaited))
        if replicas == self._known:
            self._note_aims(verdict, plans)
        elif replicas:
            self._appears(verdict, awaited, plans)
        else:
            names = ", ".join(map(str, self._known))
            self._voice.event(
                "straggler_gone",
                f"replica {names} keeps up again: everyone is back at the objective's plan",
                replicas=list(self._known),
            )
        self._known, self._aims = replicas, tuple(plans)

    def _appears(self, verdict: Verdict, awaited: Sequence[Straggler], plans: Sequence[int]) -> None:
        assert verdict.meeting_s is not None
        slow = "; ".join(
            f"replica {one.replica} is {one.slowdown:.2f} times slower than its peers ({one.cause.text})"
            for one in awaited
        )
        waiting = verdict.waiting[0]
        saving_pct = self._saving_pct(waiting, plans[waiting], verdict.meeting_s)
        self._voice.event(
            "straggler",
            f"straggler: {slow}; the others meet it at {verdict.meeting_s:.4g} s with plan "
            f"{plans[waiting]} of {len(self._frontiers[waiting])}: {saving_pct:.1f} % energy saved on "
            "each of them as planned",
            **_facts(verdict, plans),
            predicted_saving_pct=saving_pct,
        )

    def _note_aims(self, verdict: Verdict, plans: Sequence[int]) -> None:
        if tuple(plans) != self._aims and verdict.meeting_s is not None:
            self._voice.event("straggler", None, **_facts(verdict, plans))

    def _saving_pct(self, replica: int, plan: int, meeting_s: float) -> float:
        """Against default clocks beside the same straggler: both wait until all meet."""
        frontier = self._frontiers[replica]
        waiting_j = frontier.blocking_total_w * meeting_s
        baseline = frontier.baseline
        default_j = baseline.energy_j - frontier.blocking_total_w * baseline.iteration_time_s + waiting_j
        return 100.0 * (1.0 - (float(frontier.effective_energy_j[plan]) + waiting_j) / default_j)


def _facts(verdict: Verdict, plans: Sequence[int]) -> dict[str, object]:
    return {
        "meeting_s": verdict.meeting_s,
        "stragglers": [
            {"replica": one.replica, "slowdown": one.slowdown, "cause": one.cause.value}
            for one in verdict.stragglers
        ],
        "waiting": list(verdict.waiting),
        "plans": list(plans),
    }
