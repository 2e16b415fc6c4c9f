"""One pipeline in virtual time: how long its iterations take at a plan, with noise, slow stages and caps."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet
from perseus_ds.schedule import dag_of
from perseus_ds.straggler import FrontierIndex

BLOCK = 256


class Pipeline:
    """Every computation varies by itself around what its plan says, alike whatever the plan.

    ``noise`` is the relative standard deviation of one computation. Iterations are computed in blocks of
    256 at once and remembered.
    """

    def __init__(
        self, plans: PlanSet, *, noise: float = 0.0, seed: int = 0, objective: Objective | None = None
    ) -> None:
        self.plans = plans
        self.frontier_index = FrontierIndex.of(plans, objective or Objective())
        self._noise = noise
        self._seed = seed
        self._dag = dag_of(plans.schedule)
        self._order = self._dag.topological()
        self._after = self._dag.followers(plans.fixed_s)
        self._computed = frozenset(plans.computations())
        self._portions = lru_cache(maxsize=32)(lambda plan: plans.plan(plan).portions())
        self._block = lru_cache(maxsize=32)(self._compute)

    def own_s(
        self,
        plan: int,
        iteration: int,
        *,
        slow_stages: tuple[float, ...] | None = None,
        cap_mhz: int | None = None,
    ) -> float:
        """How long one iteration takes without waiting for other replicas.

        ``slow_stages`` multiplies the durations of each stage; no clock above ``cap_mhz`` is reached.
        """
        block, place = divmod(iteration, BLOCK)
        return float(self._block(plan, block, slow_stages, cap_mhz)[place])

    def throttles(self, plan: int, cap_mhz: int | None) -> bool:
        """Whether the plan asks for a clock that the cap does not allow."""
        if cap_mhz is None:
            return False
        return any(
            segment.clock_mhz > cap_mhz
            for i, portions in self._portions(plan).items()
            for option, _ in portions
            for segment in self.plans.options[i.stage, i.kind].segments(option)
        )

    def _compute(
        self, plan: int, block: int, slow_stages: tuple[float, ...] | None, cap_mhz: int | None
    ) -> NDArray[np.float64]:
        draw = np.random.default_rng((self._seed, block)).standard_normal((len(self._order), BLOCK))
        starts_s: dict[int, NDArray[np.float64]] = {}
        longest_s = np.zeros(BLOCK)
        for node in self._order:
            instruction = self._dag.nodes[node]
            duration_s = self._duration_s(node, plan, cap_mhz)
            slow = 1.0 if slow_stages is None else slow_stages[instruction.stage]
            end_s = starts_s.pop(node, np.zeros(BLOCK)) + duration_s * slow * (1.0 + self._noise * draw[node])
            for follower, delay_s in self._after[node]:
                starts_s[follower] = np.maximum(starts_s.get(follower, 0.0), end_s + delay_s)
            longest_s = np.maximum(longest_s, end_s)
        return longest_s

    def _duration_s(self, node: int, plan: int, cap_mhz: int | None) -> float:
        instruction = self._dag.nodes[node]
        key = (instruction.stage, instruction.kind)
        if instruction not in self._computed:
            return self.plans.fixed_s[key]
        options = self.plans.options[key]
        portions = self._portions(plan)[instruction]
        times_s = options.time_s
        if cap_mhz is not None:  # nothing is faster than the highest clock that is left
            times_s = np.maximum(times_s, times_s[int(np.argmax(options.clock_mhz <= cap_mhz))])
        return sum(share * float(times_s[option]) for option, share in portions)
