"""A data-parallel job in virtual time: all replicas meet at the end of every iteration, and are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.select import plan_numbered
from perseus_ds.schedule import dag_of, textbook
from perseus_ds.simulation.emulator import Answers
from perseus_ds.straggler.controller import ReplicaStatus, StragglerDecision
from perseus_ds.straggler.frontier_index import FrontierIndex

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
        self._computed = frozenset(plans.computations())
        self._portions = lru_cache(maxsize=32)(lambda plan: plan_numbered(plans, plan).portions())
        self._block = lru_cache(maxsize=32)(self._compute)

    def own_s(
        self,
        plan: float,
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

    def throttles(self, plan: float, cap_mhz: int | None) -> bool:
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
        self, plan: float, block: int, slow_stages: tuple[float, ...] | None, cap_mhz: int | None
    ) -> NDArray[np.float64]:
        draw = np.random.default_rng((self._seed, block)).standard_normal((len(self._dag.nodes), BLOCK))
        slow = slow_stages or (1.0,) * self.plans.schedule.stages

        def lasts_s(node: int) -> NDArray[np.float64]:
            slower = self._duration_s(node, plan, cap_mhz) * slow[self._dag.nodes[node].stage]
            return slower * (1.0 + self._noise * draw[node])

        every_s = np.array([lasts_s(node) for node in range(len(self._dag.nodes))])
        return self._dag.longest(every_s, self.plans.fixed_s)

    def _duration_s(self, node: int, plan: float, cap_mhz: int | None) -> float:
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
    plan: NDArray[np.float64]
    free_s: NDArray[np.float64]
    decisions: tuple[StragglerDecision, ...]

    @property
    def job_s(self) -> NDArray[np.float64]:
        longest: NDArray[np.float64] = self.own_s.max(axis=1)
        return longest

    def switches(self) -> int:
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
        trouble: Callable[[int, int], Trouble] = lambda replica, iteration: NO_TROUBLE,
        *,
        answered: bool = True,
    ) -> Played:
        """Play iterations 0 to ``iterations - 1``; ``trouble`` is asked for every replica and iteration.

        ``answered`` False plays the objective's plans throughout, for comparison.
        """
        count = len(self._replicas)
        index = self._replicas[0].frontier_index
        answers = Answers(index, len(self._replicas), lag=self._lag, answered=answered)
        own_s, free_s = np.zeros((iterations, count)), np.zeros((iterations, count))
        plan = np.zeros((iterations, count))
        for n in range(iterations):
            plan[n] = answers.plans
            beset = [trouble(replica, n) for replica in range(count)]
            for replica, one in enumerate(beset):
                own_s[n, replica] = self._own_s(replica, float(plan[n, replica]), n, one)
                free_s[n, replica] = self._own_s(replica, index.objective, n, one)
            answers.observe(
                ReplicaStatus(
                    own_s=np.where([one.unknown for one in beset], np.nan, own_s[n]),
                    capped=np.array(list(map(self._capped, range(count), plan[n].tolist(), beset))),
                    announced=np.array([one.announced for one in beset]),
                )
            )
        return Played(own_s, plan, free_s, tuple(answers.decisions))

    def _own_s(self, replica: int, plan: float, n: int, trouble: Trouble) -> float:
        return trouble.slowdown * self._replicas[replica].own_s(
            plan, n, slow_stages=trouble.slow_stages, cap_mhz=trouble.cap_mhz
        )

    def _capped(self, replica: int, plan: float, trouble: Trouble) -> bool:
        return self._replicas[replica].throttles(plan, trouble.cap_mhz)


# A virtual job of four stages and eight microbatches, and what its waiting replicas use against the best.

BLOCKING_W = 70.0
STAGES = (1.0, 1.1, 0.95, 1.2)
NOISE = 0.02
Troubles = Callable[[int, int], Trouble]


@cache
def planned(weights: tuple[float, ...] = STAGES, variation: float | None = NOISE) -> PlanSet:
    schedule = textbook("1f1b", stages=len(weights), microbatches=8)
    profile = textbook_profile(weights, variation=variation)
    return build(profile, schedule, blocking_power_w=BLOCKING_W, reserve_pct=1.0)


@cache
def index() -> FrontierIndex:
    return FrontierIndex.of(planned(), Objective())


def play(
    iterations: int, trouble: Troubles, *, replicas: int = 4, noise: float = NOISE, seed: int = 0
) -> Played:
    pipelines = [Pipeline(planned(), noise=noise, seed=1000 * seed + place) for place in range(replicas)]
    return Cluster(pipelines).play(iterations, trouble)


def slow_between(first: int, last: int, *, replica: int = 1, slowdown: float = 1.2) -> Troubles:
    def trouble(one: int, iteration: int) -> Trouble:
        return Trouble(slowdown if one == replica and first <= iteration < last else 1.0)

    return trouble


def excess_pct(played: Played, when: slice) -> float:
    """How much longer the job takes than its slowest replica would at full speed."""
    return float(100.0 * (played.job_s[when].mean() / played.free_s[when].max(axis=1).mean() - 1.0))


def energy_above_best_pct(played: Played, when: slice, replica: int, plans: PlanSet | None = None) -> float:
    """Energy of a waiting replica above that of the best frontier point for the true T'."""
    plans = plans or planned()
    sync_time_s = float(played.free_s[when].max(axis=1).mean())
    energy_j = plans.effective_energy_j + plans.blocking_total_w * sync_time_s
    best = Pipeline(plans).frontier_index.within(sync_time_s)
    numbers = np.arange(len(plans))
    spent_j = np.interp(played.plan[when, replica], numbers, energy_j).mean()
    return float(100.0 * (spent_j / np.interp(best, numbers, energy_j) - 1.0))


def slowed(played: Played) -> np.ndarray:
    """Iterations in which some replica plays another plan than at the start."""
    return np.flatnonzero((played.plan != played.plan[0]).any(axis=1))
