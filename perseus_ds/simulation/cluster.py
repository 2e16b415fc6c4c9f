"""A data-parallel job in virtual time: all replicas meet at the end of every iteration, and are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perseus_ds.simulation.answers import Answers
from perseus_ds.simulation.pipeline import Pipeline
from perseus_ds.straggler import ReplicaStatus, StragglerDecision


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
    objective's plan (its fastest, for a straggler the same here); ``decisions`` are those in hand
    as each iteration ends.
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
        indexes = [one.frontier_index for one in self._replicas]
        answers = Answers(indexes, lag=self._lag, answered=answered)
        own_s, free_s = np.zeros((iterations, count)), np.zeros((iterations, count))
        plan = np.zeros((iterations, count), dtype=np.int64)
        for n in range(iterations):
            plan[n] = answers.plans
            beset = [trouble(replica, n) for replica in range(count)]
            for replica, one in enumerate(beset):
                own_s[n, replica] = self._own_s(replica, int(plan[n, replica]), n, one)
                free_s[n, replica] = self._own_s(replica, indexes[replica].objective, n, one)
            answers.observe(
                ReplicaStatus(
                    own_s=np.where([one.unknown for one in beset], np.nan, own_s[n]),
                    capped=np.array(list(map(self._capped, range(count), plan[n].tolist(), beset))),
                    announced=np.array([one.announced for one in beset]),
                )
            )
        return Played(own_s, plan, free_s, tuple(answers.decisions))

    def _own_s(self, replica: int, plan: int, n: int, trouble: Trouble) -> float:
        return trouble.slowdown * self._replicas[replica].own_s(
            plan, n, slow_stages=trouble.slow_stages, cap_mhz=trouble.cap_mhz
        )

    def _capped(self, replica: int, plan: int, trouble: Trouble) -> bool:
        return self._replicas[replica].throttles(plan, trouble.cap_mhz)
