"""A data-parallel job in virtual time: all replicas meet at the end of every iteration, and are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.simulation.pipeline import Pipeline
from perseus_ds.straggler import ReplicaObservation, StragglerController, StragglerDecision


@dataclass(frozen=True, slots=True)
class Trouble:
    """What besets one replica in one iteration.

    ``slowdown`` multiplies the whole iteration, ``slow_stages`` the durations of single stages; no clock
    above ``cap_mhz`` is reached; ``announced`` comes from outside; ``unknown``: its numbers are lost.
    """

    slowdown: float = 1.0
    slow_stages: tuple[float, ...] | None = None
    cap_mhz: int | None = None
    announced: float = 1.0
    unknown: bool = False


NO_TROUBLE = Trouble()


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """What happened, iteration by iteration.

    Shape: ``own_s``, ``plan`` [iterations, replicas]; ``free_s`` is what each would have taken at its
    objective's plan (its fastest, for a straggler the same here); ``decisions`` are those reached with the
    numbers of each iteration.
    """

    own_s: NDArray[np.float64]
    plan: NDArray[np.int64]
    free_s: NDArray[np.float64]
    decisions: tuple[StragglerDecision, ...]

    @property
    def job_s(self) -> NDArray[np.float64]:
        """Iteration time of the job: all wait for the slowest."""
        longest: NDArray[np.float64] = self.own_s.max(axis=1)
        return longest

    def switches(self) -> int:
        """How often the aims changed."""
        return sum(decision.changed for decision in self.decisions)


class Cluster:
    """Replicas whose numbers of iteration n decide what is played from iteration n + ``lag`` on.

    The engine collects the numbers of an iteration at the end of the next one: its lag is 2.
    """

    def __init__(self, replicas: Sequence[Pipeline], *, lag: int = 2) -> None:
        self._replicas = replicas
        self._lag = lag
        indexes = [one.frontier_index for one in replicas]
        self._controller = StragglerController(
            np.array([frontier_index.objective_s for frontier_index in indexes]),
            np.array([frontier_index.fastest_s for frontier_index in indexes]),
        )

    def play(
        self,
        iterations: int,
        trouble: Callable[[int, int], Trouble] = lambda replica, iteration: NO_TROUBLE,  # noqa: ARG005
        *,
        answered: bool = True,
    ) -> Played:
        """Play iterations 0 to ``iterations - 1``; ``trouble`` is asked for every replica and iteration.

        ``answered`` False plays the objective's plans throughout, for comparison.
        """
        count = len(self._replicas)
        objective = [one.frontier_index.objective for one in self._replicas]
        coming = [list(objective) for _ in range(self._lag)]
        own_s, free_s = np.zeros((iterations, count)), np.zeros((iterations, count))
        plan = np.zeros((iterations, count), dtype=np.int64)
        decisions = []
        for n in range(iterations):
            plan[n] = coming.pop(0)
            beset = [trouble(replica, n) for replica in range(count)]
            for replica, one in enumerate(beset):
                own_s[n, replica] = self._own_s(replica, int(plan[n, replica]), n, one)
                free_s[n, replica] = self._own_s(replica, objective[replica], n, one)
            decision = self._controller.observe(self._round(own_s[n], plan[n], beset))
            decisions.append(decision)
            chosen = [one.frontier_index.choose(decision.budget(r)) for r, one in enumerate(self._replicas)]
            coming.append(chosen if answered else list(objective))
        return Played(own_s, plan, free_s, tuple(decisions))

    def _own_s(self, replica: int, plan: int, n: int, trouble: Trouble) -> float:
        return trouble.slowdown * self._replicas[replica].own_s(
            plan, n, slow_stages=trouble.slow_stages, cap_mhz=trouble.cap_mhz
        )

    def _round(
        self, own_s: NDArray[np.float64], plan: NDArray[np.int64], beset: Sequence[Trouble]
    ) -> ReplicaObservation:
        unknown = np.array([one.unknown for one in beset])
        pairs = list(zip(self._replicas, plan, beset, strict=True))
        return ReplicaObservation(
            own_s=np.where(unknown, np.nan, own_s),
            planned_s=np.array([one.frontier_index.expected_s[index] for one, index, _ in pairs]),
            announced=np.array([one.announced for one in beset]),
            capped=np.array([one.throttles(int(index), where.cap_mhz) for one, index, where in pairs]),
        )
