"""Which plan every replica plays: the objective's, or what a straggler leaves room for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.runtime.comm.status import Replicas
from perseus_ds.straggler import Menu, Round, Verdict, Vigil

_KEPT = 8  # iterations until the numbers of one have come, with room to spare


class Vigilance:
    """Keep the book of who plays which plan at which iteration, and ask the vigil.

    Every rank keeps the whole book, because what a replica did is judged by what its plan predicted; all
    are fed alike and so come to the same verdict at the same iteration, all stages of a replica together.

    Shape: ``menus`` one for each replica; replicas with the same GPUs share theirs.
    """

    def __init__(self, menus: Sequence[Menu]) -> None:
        self._menus = menus
        self._vigil = Vigil(
            np.array([menu.objective_s for menu in menus]), np.array([menu.fastest_s for menu in menus])
        )
        self._unknown = np.full(len(menus), np.nan)
        self._played_s: dict[int, NDArray[np.float64]] = {}
        self.plans = [menu.objective for menu in menus]
        self._planned_s = self._predicted_s()
        self.verdict: Verdict | None = None
        self.heard: Replicas | None = None

    def hear(self, about: int, heard: Replicas) -> bool:
        """Judge iteration ``about``; return whether some replica plays another plan from now on.

        Cost: see scripts/bench/straggler; linear in replicas.
        """
        planned_s = self._played_s.pop(about, self._unknown)
        verdict = self._vigil.hear(Round(heard.own_s, planned_s, heard.told, heard.capped))
        self.verdict, self.heard = verdict, heard
        if not verdict.changed:
            return False
        before = self.plans
        self.plans = [menu.choose(verdict.aim(replica)) for replica, menu in enumerate(self._menus)]
        self._planned_s = self._predicted_s()
        return self.plans != before

    def will_play(self, index: int) -> None:
        """Note that iteration ``index`` is played by the present plans; of others nothing is known."""
        self._played_s.pop(index - _KEPT, None)
        self._played_s[index] = self._planned_s

    @property
    def meeting_s(self) -> float | None:
        """The iteration time at which all meet; None while nobody waits."""
        return None if self.verdict is None else self.verdict.meeting_s

    def _predicted_s(self) -> NDArray[np.float64]:
        return np.array([menu.expected_s[plan] for menu, plan in zip(self._menus, self.plans, strict=True)])
