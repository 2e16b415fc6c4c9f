"""Jobs of four stages and eight microbatches beside stragglers, as the emulator plays them."""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray
from textbook_gpu import textbook_profile

from perseus_ds.config import Objective
from perseus_ds.plan import PlanSet, build
from perseus_ds.profile import Profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator import ClusterShape, Conditions, Emulated, Emulator
from perseus_ds.simulation.scenario import Straggler
from perseus_ds.straggler.controller import StragglerDecision
from perseus_ds.straggler.frontier_index import FrontierIndex

BLOCKING_W = 70.0
STAGES = (1.0, 1.1, 0.95, 1.2)
NOISE = 0.02


@cache
def profile() -> Profile:
    return textbook_profile(STAGES, variation=NOISE)


@cache
def planned() -> PlanSet:
    schedule = textbook("1f1b", stages=len(STAGES), microbatches=8)
    return build(profile(), schedule, blocking_power_w=BLOCKING_W, reserve_pct=1.0)


@cache
def index() -> FrontierIndex:
    return FrontierIndex.of(planned(), Objective())


@dataclass(frozen=True)
class Played:
    """A job whose stragglers are answered, and the same with all at the objective's plan (``free``).

    The numbers of iteration n decide what is played from iteration n + 2 on. Shape: ``plan`` [iterations,
    replicas]; ``job_s`` [iterations].
    """

    found: Emulated
    job: Emulator
    stragglers: tuple[Straggler, ...]

    @property
    def plan(self) -> NDArray[np.float64]:
        return self.found.plan

    @property
    def job_s(self) -> NDArray[np.float64]:
        return self.found.job_s

    @property
    def decisions(self) -> tuple[StragglerDecision, ...]:
        return self.found.decisions

    @cached_property
    def free(self) -> Emulated:
        return self.job.play(len(self.job_s), self.stragglers, answered=False)

    def switches(self) -> int:
        """How often the aims changed."""
        return sum(decision.changed for decision in self.decisions)

    def slowed(self) -> NDArray[np.intp]:
        """Iterations in which some replica plays another plan than at the start."""
        return np.flatnonzero((self.plan != self.plan[0]).any(axis=1))

    def excess_pct(self, when: slice) -> float:
        """Return by how much, in percent, the job takes longer than its slowest replica at full speed."""
        return float(100.0 * (self.job_s[when].mean() / self.free.job_s[when].mean() - 1.0))

    def energy_above_best_pct(self, when: slice, replica: int) -> float:
        """Energy of a waiting replica above that of the best frontier point for the true T'."""
        sync_time_s = float(self.free.job_s[when].mean())
        energy_j = planned().effective_energy_j + planned().blocking_total_w * sync_time_s
        numbers = np.arange(len(planned()))
        spent_j = np.interp(self.plan[when, replica], numbers, energy_j).mean()
        return float(100.0 * (spent_j / np.interp(index().within(sync_time_s), numbers, energy_j) - 1.0))


def play(iterations: int, *stragglers: Straggler, replicas: int = 4, seed: int = 0) -> Played:
    conditions = Conditions(noise=NOISE, seed=seed)
    job = Emulator(planned(), profile(), ClusterShape(pipelines=replicas), conditions=conditions)
    return Played(job.play(iterations, stragglers), job, stragglers)


def slow(
    first: int, last: int | None = None, *, factor: float = 1.2, replica: int = 1, rank: int | None = None
) -> Straggler:
    """One replica is slow in iterations ``first`` to ``last - 1``."""
    return Straggler(kind="slow", pipeline=replica, factor=factor, rank=rank, first=first, last=last)
