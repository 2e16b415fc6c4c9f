"""A straggler that recovers within an iteration, as the marks of its progress tell, without any loads."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from straggler_cluster import index

from perseus_ds.straggler import Outlook, ProgressMarks, ReplicaPlans, ReplicaStatus

MARKS = ProgressMarks((-1, 3, 7, 11), (0.0, 0.25, 0.5, 0.75), (0.1, 0.35, 0.6, 0.85))
REPLICAS = 4
SCATTER = 0.004
Slow = Callable[[int], float]


@dataclass
class Progress:
    """Times of iterations, and at the objective's plan throughout, in parts of what that predicts."""

    job: list[float] = field(default_factory=list)
    free: list[float] = field(default_factory=list)
    plans: list[list[int]] = field(default_factory=list)

    def lost(self, first: int = 0, last: int | None = None) -> float:
        """Iterations lost."""
        when = slice(first, last)
        return float(np.sum(np.array(self.job[when]) / np.array(self.free[when]) - 1.0))


def play(
    slow: Slow, rounds: int, *, marks: ProgressMarks | None = MARKS, noise: float = SCATTER, seed: int = 0
) -> Progress:
    """Replica 1 is slow; numbers of iteration n are answered from n + 2 on, marks once all have reported."""
    random, whole_s = np.random.default_rng(seed), index().objective_s
    plans, played = ReplicaPlans([index()] * REPLICAS, marks=marks), Progress()
    waiting = ReplicaStatus.unknown(REPLICAS)
    edges = np.append(MARKS.share, 1.0)
    for n in range(rounds):
        plans.will_run(n)
        played.plans.append(list(plans.plans))
        pace = np.ones(REPLICAS)
        pace[1] = slow(n)
        drawn = 1.0 + noise * 2.0 * random.standard_normal((REPLICAS, 4))
        elapsed_s, free_s = np.zeros(REPLICAS), np.zeros(REPLICAS)
        for mark in range(4):
            if marks is not None and plans.waits:
                told_s = elapsed_s.copy()
                late_s = told_s.max() - told_s  # all learn of it when the last has told
                before = stretch(plans)
                plans.told(n, outlook(told_s, mark))
                passed = np.minimum(1.0, late_s / (whole_s * pace * before * 0.25))
            else:
                before, passed = stretch(plans), np.zeros(REPLICAS)
            part_s = (edges[mark + 1] - edges[mark]) * whole_s * pace * drawn[:, mark]
            elapsed_s += part_s * (passed * before + (1.0 - passed) * stretch(plans))
            free_s += part_s
        played.job.append(float(elapsed_s.max() / whole_s))
        played.free.append(float(free_s.max() / whole_s))
        plans.observe(n - 1, waiting)
        waiting = ReplicaStatus(elapsed_s, np.zeros(REPLICAS, np.bool_), np.ones(REPLICAS))
    return played


def stretch(plans: ReplicaPlans) -> NDArray[np.float64]:
    return index().expected_s[list(plans.plans)] / index().objective_s


def outlook(elapsed_s: NDArray[np.float64], mark: int) -> Outlook:
    left = 1.0 - MARKS.share[mark]
    return Outlook(
        elapsed_s,
        np.full(REPLICAS, left * index().objective_s),
        np.full(REPLICAS, SCATTER / np.sqrt(left)),
        np.zeros(REPLICAS, np.bool_),
    )


def spell(first: int, last: int) -> Slow:
    return lambda n: 1.2 if first <= n < last else 1.0


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(4))
def test_a_recovery_costs_at_most_12_percent_of_one_iteration(seed: int) -> None:
    """Without marks it costs two iterations that are a fifth too long."""
    slow = spell(40, 80)
    assert play(slow, 100, seed=seed, marks=None).lost(80, 84) > 0.3
    assert play(slow, 100, seed=seed).lost(80, 84) <= 0.12


def test_the_next_iteration_begins_as_fast_as_the_recovery_was_seen_to_be() -> None:
    played = play(spell(40, 80), 100)
    objective = index().objective
    assert played.plans[80][0] != objective, "nobody could know"
    assert played.plans[81] == [objective] * REPLICAS


@pytest.mark.thorough
def test_one_that_stays_slow_is_waited_for_as_slowly_as_without_marks() -> None:
    with_marks, without = play(spell(40, 200), 200), play(spell(40, 200), 200, marks=None)
    slowed = [np.mean([row[0] for row in one.plans[60:]]) for one in (with_marks, without)]
    assert slowed[0] == pytest.approx(slowed[1], rel=0.02)
    assert with_marks.lost(60) / 140 <= 0.003


@pytest.mark.thorough
def test_one_that_flaps_costs_no_more_than_the_bound() -> None:
    """Spells of 14, again and again."""
    played = play(lambda n: 1.2 if n % 28 >= 14 else 1.0, 1000)
    assert played.lost() / 1000 <= 0.002
