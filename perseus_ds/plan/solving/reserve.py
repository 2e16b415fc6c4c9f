"""How much slack a plan leaves unused, because durations vary: given, or as much as their variation asks for.

A plan that fills all slack has many paths that are just critical; of many that vary one is always longer
than planned, although none is on average.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.solving.solve import solve
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.solving.translation import Translation, translate
from perseus_ds.profile import Computation, Profile
from perseus_ds.schedule import Schedule
from perseus_ds.solver import Plans, blended

Reserve = float | Literal["auto"]
"""Percent by which stretched computations are planned longer than they last on average."""

ALLOWED_PCT = 0.1
"""How much longer the fastest plan's iterations may last, on average, for durations vary."""
CANDIDATES_PCT = 0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0
UNKNOWN_PCT = 1.0
"""Reserve where a profile does not say how durations vary: enough for one percent."""

_MOST_DRAWS = 200
_LEAST_DRAWS = 20
_MOST_NUMBERS = 4_000_000  # nodes times draws: 32 MB in each array
_LEAST_FACTOR = 0.5

Floats = NDArray[np.float64]


def reserve_in_words(reserve: Reserve) -> str:
    """As fingerprints name it: without the unit."""
    return reserve if reserve == "auto" else f"{reserve:g}"


def variation_of(profile: Profile) -> Mapping[Computation, float] | None:
    """By what share of its duration each computation varies; None where the profile does not say it of all.

    All clocks together, and the whole of it: also what is alike in all computations of an iteration, which
    would need less.
    """
    shares: dict[Computation, list[float]] = defaultdict(list)
    for key, points in profile.points.items():
        for point in points:
            if point.time_sd_s is None:
                return None
            shares[key].append(point.time_sd_s / point.time_s)
    return {key: float(np.sqrt(np.mean(np.square(own)))) for key, own in shares.items()}


def least_reserve_pct(
    profile: Profile, schedule: Schedule, blocking_power_w: float, switching: Switching
) -> float:
    """Find the least reserve with which the fastest plan loses no time to what varied in the profile.

    The largest candidate where none is enough. Cost: five frontiers at most, with one plan for each.

    Raises:
        PlanError, SolverError: there is no such plan.
    """
    draws = Draws.of(profile, translate(profile, schedule, blocking_power_w, 0.0))
    if draws is None:
        return UNKNOWN_PCT

    def is_enough(reserve_pct: float) -> bool:
        reserved = translate(profile, schedule, blocking_power_w, reserve_pct)
        base_power_w = blocking_power_w * schedule.ranks
        plans = solve(reserved, switching, base_power_w=base_power_w, fastest_only=True).plans
        return draws.slowdown_pct(plans) <= ALLOWED_PCT

    if is_enough(CANDIDATES_PCT[0]):
        return CANDIDATES_PCT[0]
    found = bisect_left(CANDIDATES_PCT, True, lo=1, hi=len(CANDIDATES_PCT) - 1, key=is_enough)
    return CANDIDATES_PCT[found]


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Iterations as they might turn out: what every node's duration is multiplied by, the same for all plans.

    ``translation`` is without reserve: what computations really last on average.

    Shape: ``factor`` [nodes, draws]; ``fastest_s`` [nodes].
    """

    translation: Translation
    factor: Floats
    fastest_s: Floats

    @classmethod
    def of(cls, profile: Profile, translation: Translation) -> Draws | None:
        """Draw every computation by itself; what no clock changes lasts as long as on average.

        None where the profile does not say how durations vary.
        """
        variation = variation_of(profile)
        if variation is None:
            return None
        nodes = translation.dag.nodes
        share = np.array([variation.get((node.stage, node.kind), 0.0) for node in nodes])
        draws = int(np.clip(_MOST_NUMBERS // len(nodes), _LEAST_DRAWS, _MOST_DRAWS))
        normal = np.random.default_rng(0).standard_normal((len(nodes), draws))
        fastest_s = np.array([table.duration_s.min() for table in translation.problem.tables])
        return cls(
            translation,
            np.maximum(1.0 + share[:, None] * normal, _LEAST_FACTOR),
            fastest_s[translation.problem.table_of],
        )

    def slowdown_pct(self, plans: Plans) -> float:
        """How much longer iterations last on average at the fastest plan than at the fastest clocks."""
        first = plans.at(np.zeros(1, np.int32))
        duration_s, _ = blended(self.translation.problem, first.choice, first.other, first.share)
        return 100.0 * (self._mean_s(duration_s[0]) / self._mean_s(self.fastest_s) - 1.0)

    def _mean_s(self, duration_s: Floats) -> float:
        """Mean time of an iteration."""
        dag, drawn_s = self.translation.dag, duration_s[:, None] * self.factor
        start_s = dag.starts_of_many(drawn_s, self.translation.fixed_s)
        return float((start_s + drawn_s).max(axis=0).mean())
