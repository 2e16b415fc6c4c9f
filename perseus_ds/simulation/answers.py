"""The product's own answer to stragglers in virtual time: observed in one iteration, played some later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from perseus_ds.straggler import Menu, Round, Verdict, Vigil


class Answers:
    """Which plan every replica plays; what is observed of iteration n holds from n + ``lag`` on.

    The engine collects the numbers of an iteration at the end of the next one: its lag is 2. ``answered``
    False plays the objective's plans throughout, for comparison; decisions are made all the same.
    """

    def __init__(self, menus: Sequence[Menu], *, lag: int = 2, answered: bool = True) -> None:
        self._menus = menus
        self._answered = answered
        self._objective = [menu.objective for menu in menus]
        self._coming = [list(self._objective) for _ in range(lag)]
        self._vigil = Vigil(
            np.array([menu.objective_s for menu in menus]), np.array([menu.fastest_s for menu in menus])
        )
        self.decisions: list[Verdict] = []

    def next_plans(self) -> list[int]:
        """Return what the next iteration is played at, a plan per replica."""
        return self._coming.pop(0)

    def observe(
        self,
        own_s: NDArray[np.float64],
        plans: Sequence[int],
        *,
        announced: NDArray[np.float64],
        capped: NDArray[np.bool_],
    ) -> Verdict:
        """Hand over one iteration as the ranks exchange it; NaN is unknown.

        Shape: vectors [replicas].
        """
        planned_s = np.array([menu.expected_s[plan] for menu, plan in zip(self._menus, plans, strict=True)])
        decision = self._vigil.hear(Round(own_s, planned_s, announced, capped))
        self.decisions.append(decision)
        chosen = [menu.choose(decision.aim(replica)) for replica, menu in enumerate(self._menus)]
        self._coming.append(chosen if self._answered else list(self._objective))
        return decision
