"""From a window of measurements to time, power and energy of each computation at one clock."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import ndtri

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile.loads import LoadSums, NormalizedDurations, normalized_to_load, spread, variation
from perseus_ds.profile.records import Computation, Interval, Point, Window
from perseus_ds.profile.temperature import Thermal
from perseus_ds.schedule import Kind

# The part of its period in which an energy counter looks at the power, found from the window itself.

_WIDTHS = (1.0, 0.5, 0.25)
_COARSE, _FINE = 0.1, 0.02
_LAGS = 5
_PARAMETERS = 2


@dataclass(frozen=True, slots=True)
class Sampling:
    """A counter that looks during ``width`` of its period, until ``lag`` of it before its step is seen.

    Data-centre GPUs look during a quarter of it and take that for the whole: a step states what ran then, not
    what ran on average. Its date is off by up to a quarter of a period, because readers look now and then.

    Source: arXiv 2312.02741 (25 of every 100 ms on A100 and H100).
    """

    width: float = 1.0
    lag: float = 0.0

    def busy_s(self, intervals: Sequence[Interval], ticks_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of every step that intervals account for, as far as the counter could see them.

        Shape: ``ticks_s`` [steps + 1]; the answer [steps].
        """
        if not intervals:
            return np.zeros(len(ticks_s) - 1)
        starts = np.array([i.start_s for i in intervals])
        ends = np.array([i.end_s for i in intervals])
        edges = np.column_stack([starts, ends]).ravel()
        done = np.column_stack([np.zeros(len(starts)), ends - starts]).ravel().cumsum()
        periods_s = np.diff(ticks_s)
        until_s = ticks_s[1:] - self.lag * periods_s
        seen_s = np.interp(until_s, edges, done) - np.interp(until_s - self.width * periods_s, edges, done)
        busy_s: NDArray[np.float64] = seen_s / self.width
        return busy_s


WHOLE = Sampling()


def best_sampling(residual: Callable[[Sampling], float], *, steps: int) -> Sampling:
    """Choose what explains the steps best; a part of the period only where that is no chance.

    ``residual`` is the sum of squares that a sampling leaves unexplained. Two more parameters must pay for
    themselves (Akaike's criterion).

    Cost: about 40 calls.
    """
    lags = range(-_LAGS + 1, _LAGS)
    best = min((Sampling(width, _COARSE * lag) for width in _WIDTHS for lag in lags), key=residual)
    best = min((best, *(Sampling(best.width, best.lag + _FINE * lag) for lag in lags)), key=residual)
    plain_j2, best_j2 = residual(WHOLE), residual(best)
    if plain_j2 <= 0.0:
        return WHOLE
    gain = steps * math.log(plain_j2 / max(best_j2, plain_j2 * np.finfo(np.float64).eps))
    return best if gain > 2 * _PARAMETERS else WHOLE


_LEAST_STEPS = 5
_OUTSIDE_SHARE = 0.01
_EQUAL_WITHIN = 0.1
_ROUNDING = 1e-9  # of a step: where nobody waits, what rounding leaves would be given any power
_PURE_QUANTILE = 0.1
_DECILES = 0.1, 0.9  # the outer two
_SKIPPED_SHARE = 0.5
_FEW = 10
"""Fewer values than this have no outer deciles of their own."""
_Classes = dict[Computation, list[Interval]]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimates from one window: a point per computation, the power of waiting, and fixed durations.

    ``fixed_s`` are durations without waiting. ``transfers_s`` are those of every transfer, in order and with
    the waiting for its other end, which only both ends together can take out. ``spread`` is how far durations
    of one computation lie apart, in parts of their median, once they are brought to one load. ``larger`` is
    by how much more work it was here on average than at that load. ``size_variation`` is by what share loads
    make neighbouring microbatches vary. ``loads`` are what executions and their loads add up to. ``thermal``
    is how the temperature has followed the power so far, ``steady_state_c`` where it would end at this
    window's; None: not known.
    """

    clock_mhz: int
    points: Mapping[Computation, Point]
    blocking_power_w: float
    fixed_s: Mapping[Computation, float]
    transfers_s: Mapping[Computation, tuple[float, ...]]
    spread: float = 0.0
    larger: Mapping[Computation, float] = field(default_factory=dict)
    size_variation: float = 0.0
    loads: Mapping[Computation, LoadSums] = field(default_factory=dict)
    thermal: Thermal | None = None
    steady_state_c: float | None = None


def estimate(window: Window) -> Estimate:
    """Split the energy of a window among its computations and the waiting between them.

    Every step of the counter is one equation: energy = sum over classes of power x time in that class. The
    non-negative least-squares solution gives each class its mean power; energy of an instruction is power x
    mean time. Where forward and backward are always mixed alike (instructions shorter than the counter's
    period) the steps state little of the split. The expectation that the computations' powers agree within
    about a tenth decides what they leave open.

    What contains a wait (`Interval.waits`) is left out: its duration does not count, nor do the steps in
    which it ran. Where that would be most steps, they are a class of their own. A computation of which
    nothing else ran keeps them.

    Raises:
        IncompleteProfileError: too few instructions or counter steps to show anything.
    """
    ran = [interval for interval in window.intervals if interval.kind.is_computation]
    clean = {one.computation for one in ran if not one.waits}
    computed = _group(one for one in ran if not one.waits or one.computation not in clean)
    if not computed:
        raise IncompleteProfileError(f"no forward or backward ran in the window at {window.clock_mhz} MHz")
    left_out = [one for one in ran if one.waits and one.computation in clean]
    powers_w, errors_w = _powers(window, list(computed.values()), left_out)
    brought = {
        key: normalized_to_load(
            _durations_s(runs), [one.load for one in runs], window.loads.get(runs[0].instruction.stage)
        )
        for key, runs in computed.items()
    }
    points = {
        key: _point(window, brought[key].seconds, power_w=powers_w[index], error_w=errors_w[index])
        for index, key in enumerate(computed)
    }
    others = _group(one for one in window.intervals if not one.kind.is_computation)
    return Estimate(
        clock_mhz=window.clock_mhz,
        points=points,
        blocking_power_w=float(powers_w[-1]),
        fixed_s={key: _pure_s(key[1], runs) for key, runs in others.items() if not key[1].is_transfer},
        transfers_s={
            key: tuple(_durations_s(runs).tolist()) for key, runs in others.items() if key[1].is_transfer
        },
        spread=max(spread(one.seconds) for one in brought.values()),
        larger={key: float(one.factor.mean()) for key, one in brought.items()},
        size_variation=max(_variation(one, computed[key]) for key, one in brought.items()),
        loads={key: one.sums for key, one in brought.items() if one.sums is not None},
    )


def _group(intervals: Iterable[Interval]) -> _Classes:
    """Put together what is measured as one; the same kind of neighbouring stages side by side."""
    classes: _Classes = defaultdict(list)
    for interval in intervals:
        classes[interval.computation].append(interval)
    return dict(sorted(classes.items(), key=lambda item: (item[0][1].value, item[0][0])))


def _powers(
    window: Window, computed: Sequence[Sequence[Interval]], left_out: Sequence[Interval]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean power of each computation and, last, of waiting; with standard errors.

    Units: watts.
    """
    inside = (window.counter.time_s >= window.start_s) & (window.counter.time_s <= window.end_s)
    ticks_s, energy_j = window.counter.time_s[inside], window.counter.energy_j[inside]
    if len(ticks_s) <= _LEAST_STEPS:
        raise IncompleteProfileError(
            f"the energy counter moved {len(ticks_s)} times in {window.end_s - window.start_s:.3g} s",
            hint="raise perseus.profile.min_window_s",
        )
    runs, steps_j = (*computed, left_out), np.diff(energy_j)

    def equations(sampling: Sampling) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        busy_s = [sampling.busy_s(one, ticks_s) for one in runs]
        waiting_s = np.clip(np.diff(ticks_s) - np.sum(busy_s, axis=0), 0.0, None)
        waiting_s[waiting_s < _ROUNDING * np.diff(ticks_s)] = 0.0
        time_s, spent_j = np.column_stack([*busy_s, waiting_s])[kept], steps_j[kept]
        clean = time_s[:, -2] <= 0.0
        if 2 * clean.sum() > len(clean):  # without the steps in which something left out ran
            return np.delete(time_s[clean], -2, axis=1), spent_j[clean]
        return time_s, spent_j

    def residual(sampling: Sampling) -> float:
        return float(nnls(*equations(sampling))[1]) ** 2

    kept = _inside(window, ticks_s)
    time_s, spent_j = equations(best_sampling(residual, steps=int(kept.sum())))
    pull = _pull_to_equal(time_s, spent_j, len(computed))
    powers_w, _ = nnls(np.vstack([time_s, pull]), np.concatenate([spent_j, np.zeros(len(pull))]))
    return powers_w, _standard_errors(time_s, spent_j, powers_w)


def _pull_to_equal(
    time_s: NDArray[np.float64], spent_j: NDArray[np.float64], computed: int
) -> NDArray[np.float64]:
    """Rows that state that neighbouring computations use the same power, weighted as the counter's noise is.

    The weight makes a difference of a tenth as unlikely as a counter step that is one standard deviation off.
    Both are judged from a fit in which all computations share one power.
    """
    pooled_s = np.column_stack([time_s[:, :computed].sum(axis=1), time_s[:, computed:]])
    pooled_w, residual_j = nnls(pooled_s, spent_j)
    noise_j = residual_j / np.sqrt(max(1, len(spent_j) - pooled_s.shape[1]))
    weight = noise_j / (_EQUAL_WITHIN * max(float(pooled_w[0]), np.finfo(np.float64).tiny))
    rows = np.zeros((computed - 1, time_s.shape[1]))
    for row in range(computed - 1):
        rows[row, row : row + 2] = weight, -weight
    return rows


def _inside(window: Window, ticks_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Find the steps of the counter that hold nothing of the host between iterations, beyond a hundredth.

    All of them where too few would be left.
    """
    outside_s = np.zeros(len(ticks_s) - 1)
    for start_s, end_s in window.outside:
        overlap_s = np.minimum(ticks_s[1:], end_s) - np.maximum(ticks_s[:-1], start_s)
        outside_s += np.clip(overlap_s, 0.0, None)
    inside: NDArray[np.bool_] = outside_s <= _OUTSIDE_SHARE * np.diff(ticks_s)
    return inside if inside.sum() > _LEAST_STEPS else np.ones_like(inside)


def _standard_errors(
    time_s: NDArray[np.float64], spent_j: NDArray[np.float64], powers_w: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Ordinary least-squares errors of the powers."""
    freedom = max(1, len(spent_j) - len(powers_w))
    variance = float(((time_s @ powers_w - spent_j) ** 2).sum()) / freedom
    covariance = variance * np.linalg.pinv(time_s.T @ time_s)
    errors: NDArray[np.float64] = np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    return errors


def _point(window: Window, durations_s: NDArray[np.float64], *, power_w: float, error_w: float) -> Point:
    mean_s = _robust_mean(durations_s)
    error_s = float(durations_s.std(ddof=len(durations_s) > 1) / np.sqrt(len(durations_s)))
    return Point(
        clock_mhz=window.clock_mhz,
        time_s=mean_s,
        energy_j=power_w * mean_s,
        time_se_s=error_s,
        energy_se_j=float(np.hypot(error_w * mean_s, power_w * error_s)),
        samples=len(durations_s),
        achieved_mhz=window.achieved_mhz,
        event_reasons=window.event_reasons,
        time_sd_s=_robust_deviation(durations_s),
        temperature_c=window.temperature_c,
    )


def _variation(brought: NormalizedDurations, runs: Sequence[Interval]) -> float:
    numbers = np.array([float(one.instruction.microbatch) for one in runs])
    return variation(brought.factor, numbers[brought.kept])


def _robust_mean(values: NDArray[np.float64]) -> float:
    """Mean of the middle four fifths: one hiccup of the host does not move it.

    Nothing lies between the quantiles of two values: theirs is the plain mean.
    """
    low, high = np.quantile(values, _DECILES)
    middle = values[(values >= low) & (values <= high)]
    return float((middle if len(middle) else values).mean())


def _robust_deviation(values: NDArray[np.float64]) -> float:
    """Standard deviation by the middle four fifths: as that of a normal distribution of the same width.

    As many values of a normal distribution have their outer deciles nearer to each other the fewer they are.
    Of few values it is the plain one.

    Source: Blom 1958, scores of normal order statistics.
    """
    count = len(values)
    if count < _FEW:
        return float(values.std(ddof=count > 1))
    scores = ndtri((np.arange(count) + 0.625) / (count + 0.25))
    return float(np.ptp(np.quantile(values, _DECILES)) / np.ptp(np.quantile(scores, _DECILES)))


def _durations_s(runs: Sequence[Interval]) -> NDArray[np.float64]:
    return np.array([interval.duration_s for interval in runs])


def _pure_s(kind: Kind, runs: Sequence[Interval]) -> float:
    """Duration without the waiting for others that most of these instructions contain.

    Optimizer steps that were skipped, as overflows make them, are much shorter than most and left out.
    """
    durations_s = _durations_s(runs)
    if kind is Kind.STEP:
        durations_s = durations_s[durations_s >= _SKIPPED_SHARE * np.median(durations_s)]
    return float(np.quantile(durations_s, _PURE_QUANTILE))
