"""Learn how long every computation should last by how late it begins: descent along drawn iterations."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from perseus_ds.plan.feedback.course import FEATURES, Floats, HullCurves, LearningGraph
from perseus_ds.plan.feedback.kernel import Gradient, Seen, Weights, drawn, learned

_ROUNDS = 2
_ITERATIONS, _LEAST_ITERATIONS = 400, 150
_BATCH, _LEAST_BATCH = 40, 8
_MOST_VISITS = 12_000_000  # nodes x draws x iterations of a round: about three CPU seconds
_STEP, _WEIGHT_STEP = 0.08, 0.02  # of how much durations vary, of a weight
_PRICE = 30.0  # of all waiting: where the price of time begins
_FIRST_WEIGHT = 0.5
_FORGETS, _FORGETS_SQUARES = 0.9, 0.98
_PRICE_STEP = 0.03
_FAR = 50.0  # times the first price: no work is worth as much, and 130 steps in a row raise it so far


class Lesson(NamedTuple):
    """What a policy is learned from: draws by row, what each lasts at the fastest clocks, and the limits.

    ``waiting_w`` is what all ranks take together while they wait, ``slower_pct`` by how much longer
    iterations may last on average than at the fastest clocks.

    Shape: ``factor`` [draws, nodes]; ``fastest_s`` [draws].
    """

    course: LearningGraph
    curves: HullCurves
    factor: Floats
    fastest_s: Floats
    latency_s: float
    waiting_w: float
    slower_pct: float


class Judged(NamedTuple):
    """What fixed clocks or a policy take on average, with all waiting, and by how much longer they last.

    ``slower_se_pct`` is the standard error of ``slower_pct``: draws are few.

    Shape: ``most_late_s`` [nodes]: how late or early each began at most; empty for fixed clocks.
    """

    energy_j: float
    slower_pct: float
    slower_se_pct: float
    most_late_s: Floats = np.zeros(0)


class _Adam:
    """Steps of about one size in every direction, the mean gradient over its scatter.

    Source: Kingma and Ba 2015, algorithm 1.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._mean, self._square, self._times = np.zeros(shape), np.zeros(shape), 0

    def step(self, gradient: Floats) -> Floats:
        """Return the direction to go, about 1 in each component."""
        self._times += 1
        self._mean += (1.0 - _FORGETS) * (gradient - self._mean)
        self._square += (1.0 - _FORGETS_SQUARES) * (gradient**2 - self._square)
        mean = self._mean / (1.0 - _FORGETS**self._times)
        square = self._square / (1.0 - _FORGETS_SQUARES**self._times)
        return np.asarray(mean / (np.sqrt(square) + 1e-12))


def learn(lesson: Lesson, begin_s: Floats, lasts_s: Floats) -> Weights:
    """Find durations and weights of least mean effective energy within the time allowed.

    Lateness is counted from when computations begin on average, so that what is asked for ahead is right on
    average. A first round finds out when that is, and the next learns from there.

    Along many equal stages lateness may make lateness. Iterations then last ever longer, at any price of
    time. So all is learned anew: a rank that is late all along goes no slower for it.

    Shape: ``begin_s``, ``lasts_s`` [nodes], of a plan to begin at.
    """
    weight = np.zeros((len(lesson.curves.first) - 1, FEATURES))
    weight[:, 0] = _FIRST_WEIGHT
    start = Weights(begin_s, lasts_s, weight)
    try:
        return _learned(lesson, start, steady=False)
    except _RanAwayError:
        return _learned(lesson, start, steady=True)


class _RanAwayError(Exception):
    """Iterations last far longer than they may, though the price of time rises and rises."""


def _learned(lesson: Lesson, found: Weights, *, steady: bool) -> Weights:
    for _ in range(_ROUNDS):
        found = _centred(lesson, _descended(lesson, found, steady=steady))
    return found


def _descended(lesson: Lesson, start: Weights, *, steady: bool) -> Weights:
    """Descend along the gradients of drawn iterations.

    The price of time rises while iterations last too long, else it falls: policy and price are found at once.

    Raises:
        _RanAwayError: where weights are not kept ``steady``.
    """
    weights = Weights(start.begin_s.copy(), start.lasts_s.copy(), start.weight.copy())
    nodes, tables = len(start.begin_s), len(start.weight)
    batch, iterations = _sizes(nodes, len(lesson.factor))
    computed, (least_s, most_s) = lesson.course.table >= 0, _ends(lesson)
    table = lesson.course.table[computed]
    step_s = _STEP * float(lesson.factor[:, computed].std()) * least_s[computed]
    of_lasts, of_table, of_weight = _Adam((nodes,)), _Adam((tables,)), _Adam((tables, FEATURES))
    mean = Weights(start.begin_s, np.zeros(nodes), np.zeros((tables, FEATURES)))
    price_w, averaged = _PRICE * lesson.waiting_w, iterations // 3
    for iteration in range(iterations):
        rows = (np.arange(batch) + iteration * batch) % len(lesson.factor)
        gradient = Gradient(np.zeros(nodes), np.zeros((tables, FEATURES)))
        _, time_s = learned(
            lesson.course,
            lesson.curves,
            weights,
            lesson.factor[rows],
            lesson.latency_s,
            lesson.waiting_w + price_w,
            gradient,
        )
        beyond = 100.0 * (time_s / float(lesson.fastest_s[rows].mean()) - 1.0) / lesson.slower_pct - 1.0
        price_w *= float(np.exp(_PRICE_STEP * np.clip(beyond, -1.0, 1.0)))
        rest = 1.0 - 0.9 * iteration / iterations
        own, shared = of_lasts.step(gradient.lasts_s)[computed], np.zeros(tables)
        np.add.at(shared, table, gradient.lasts_s[computed])
        weights.lasts_s[computed] -= rest * step_s * (own + of_table.step(shared)[table])
        weights.lasts_s[:] = np.clip(weights.lasts_s, 0.95 * least_s, 1.02 * most_s)
        weights.weight[:] -= _WEIGHT_STEP * rest * of_weight.step(gradient.weight)
        if steady:
            weights.weight[:] -= np.minimum(weights.weight.mean(axis=1, keepdims=True), 0.0)
        elif price_w > _FAR * _PRICE * lesson.waiting_w:
            raise _RanAwayError
        if iteration >= iterations - averaged:
            mean.lasts_s[:] += weights.lasts_s / averaged
            mean.weight[:] += weights.weight / averaged
    return mean


def judge(lesson: Lesson, weights: Weights, changes: int = 1) -> Judged:
    """Run a policy over all draws of a lesson, with so many changes of clock in a computation."""
    nodes = len(weights.begin_s)
    seen = Seen(np.zeros(len(lesson.factor)), np.zeros(nodes), np.zeros(nodes))
    cost_j = drawn(lesson.course, lesson.curves, weights, lesson.factor, lesson.latency_s, changes, seen)
    return judged(lesson, cost_j, seen.time_s)._replace(most_late_s=seen.most_late_s)


def judged(lesson: Lesson, cost_j: float, time_s: Floats) -> Judged:
    """Hold what iterations cost and last against the fastest clocks under the same draws.

    Shape: ``time_s`` [draws].
    """
    fastest_s = float(lesson.fastest_s.mean())
    longer_pct = 100.0 * (time_s - lesson.fastest_s) / fastest_s
    error_pct = float(longer_pct.std(ddof=1)) / math.sqrt(len(longer_pct))
    return Judged(cost_j + lesson.waiting_w * float(time_s.mean()), float(longer_pct.mean()), error_pct)


def _centred(lesson: Lesson, weights: Weights) -> Weights:
    """The same policy, lateness counted from when computations begin on average under it."""
    nodes, (course, weight) = len(weights.begin_s), (lesson.course, weights.weight)
    seen = Seen(np.zeros(len(lesson.factor)), np.zeros(nodes), np.zeros(nodes))
    drawn(course, lesson.curves, weights, lesson.factor, lesson.latency_s, 0, seen)
    late_s, own = seen.mean_late_s, course.table >= 0
    before_s = np.where(course.previous >= 0, late_s[course.previous], 0.0)
    lasts_s = weights.lasts_s.copy()
    table = course.table[own]
    lasts_s[own] -= weight[table, 0] * late_s[own] + weight[table, 1] * before_s[own]
    return Weights(weights.begin_s + late_s, lasts_s, weight)


def _sizes(nodes: int, draws: int) -> tuple[int, int]:
    """Draws of a step, and steps of a round: fewer for larger graphs."""
    batch = int(np.clip(_MOST_VISITS // (nodes * _ITERATIONS), _LEAST_BATCH, min(_BATCH, draws)))
    return batch, int(np.clip(_MOST_VISITS // (nodes * batch), _LEAST_ITERATIONS, _ITERATIONS))


def _ends(lesson: Lesson) -> tuple[Floats, Floats]:
    """The shortest and the longest duration on each node's hull.

    Shape: [nodes], 1 where no clock changes anything.
    """
    table, curves = lesson.course.table, lesson.curves
    known = table >= 0
    least_s, most_s = np.ones(len(table)), np.ones(len(table))
    least_s[known] = curves.duration_s[curves.first[table[known]]]
    most_s[known] = curves.duration_s[curves.first[table[known] + 1] - 1]
    return least_s, most_s
