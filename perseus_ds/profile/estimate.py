"""From a window of measurements to time, power and energy of each computation at one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile.record import Point
from perseus_ds.profile.window import Interval, Window
from perseus_ds.schedule import Kind

_LEAST_STEPS = 5
_EQUAL_WITHIN = 0.1
_PURE_QUANTILE = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one window tells: a point per computation, the power of waiting, and what no clock changes.

    ``fixed_s`` are durations without waiting; ``transfers_s`` those of every transfer, in order and with
    the waiting for its other end, which only both ends together can take out.
    """

    clock_mhz: int
    points: Mapping[Kind, Point]
    blocking_power_w: float
    fixed_s: Mapping[Kind, float]
    transfers_s: Mapping[Kind, tuple[float, ...]]


def estimate(window: Window) -> Estimate:
    """Split the energy of a window among its computations and the waiting between them.

    Every step of the counter is one equation: energy = sum over classes of power x time in that class.
    The non-negative least-squares solution gives each class its mean power; energy of an instruction is
    power x mean time. Where forward and backward are always mixed alike (instructions shorter than the
    counter's period) the steps say little of the split; what they leave open is decided by the expectation
    that the computations' powers agree within about a tenth.

    Raises:
        IncompleteProfileError: too few instructions or counter steps to tell anything.
    """
    computed = sorted({i.kind for i in window.intervals if i.kind.is_computation}, key=lambda k: k.value)
    if not computed:
        raise IncompleteProfileError(f"no forward or backward ran in the window at {window.clock_mhz} MHz")
    powers_w, errors_w = _powers(window, computed)
    points = {
        kind: _point(window, kind, power_w=powers_w[index], error_w=errors_w[index])
        for index, kind in enumerate(computed)
    }
    others = {i.kind for i in window.intervals if not i.kind.is_computation}
    return Estimate(
        clock_mhz=window.clock_mhz,
        points=points,
        blocking_power_w=float(powers_w[-1]),
        fixed_s={kind: _pure_s(_durations_s(window, kind)) for kind in others if not kind.is_transfer},
        transfers_s={kind: tuple(_durations_s(window, kind)) for kind in others if kind.is_transfer},
    )


def _powers(window: Window, computed: Sequence[Kind]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
    busy_s = [_busy_s(window.intervals, kind, ticks_s) for kind in computed]
    waiting_s = np.clip(np.diff(ticks_s) - np.sum(busy_s, axis=0), 0.0, None)
    time_s = np.column_stack([*busy_s, waiting_s])
    spent_j = np.diff(energy_j)
    pull = _pull_to_equal(time_s, spent_j, len(computed))
    powers_w, _ = nnls(np.vstack([time_s, pull]), np.concatenate([spent_j, np.zeros(len(pull))]))
    return powers_w, _standard_errors(time_s, spent_j, powers_w)


def _busy_s(intervals: Sequence[Interval], kind: Kind, ticks_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Seconds spent in ``kind`` between every two ticks."""
    starts = np.array([i.start_s for i in intervals if i.kind is kind])
    ends = np.array([i.end_s for i in intervals if i.kind is kind])
    edges = np.column_stack([starts, ends]).ravel()
    done = np.column_stack([np.zeros(len(starts)), ends - starts]).ravel().cumsum()
    so_far: NDArray[np.float64] = np.interp(ticks_s, edges, done)
    return np.diff(so_far)


def _pull_to_equal(
    time_s: NDArray[np.float64], spent_j: NDArray[np.float64], computed: int
) -> NDArray[np.float64]:
    """Rows that say that neighbouring computations use the same power, weighted as the counter's noise is.

    The weight makes a difference of a tenth as unlikely as a counter step that is one standard deviation
    off, with both judged from a fit in which all computations share one power.
    """
    pooled_s = np.column_stack([time_s[:, :computed].sum(axis=1), time_s[:, computed:]])
    pooled_w, residual_j = nnls(pooled_s, spent_j)
    noise_j = residual_j / np.sqrt(max(1, len(spent_j) - pooled_s.shape[1]))
    weight = noise_j / (_EQUAL_WITHIN * max(float(pooled_w[0]), np.finfo(np.float64).tiny))
    rows = np.zeros((computed - 1, time_s.shape[1]))
    for row in range(computed - 1):
        rows[row, row : row + 2] = weight, -weight
    return rows


def _standard_errors(
    time_s: NDArray[np.float64], spent_j: NDArray[np.float64], powers_w: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Ordinary least-squares errors of the powers."""
    freedom = max(1, len(spent_j) - len(powers_w))
    variance = float(((time_s @ powers_w - spent_j) ** 2).sum()) / freedom
    covariance = variance * np.linalg.pinv(time_s.T @ time_s)
    errors: NDArray[np.float64] = np.sqrt(np.clip(np.diag(covariance), 0.0, None))
    return errors


def _point(window: Window, kind: Kind, *, power_w: float, error_w: float) -> Point:
    durations_s = np.array(_durations_s(window, kind))
    mean_s = _robust_mean(durations_s)
    error_s = float(durations_s.std() / np.sqrt(len(durations_s)))
    return Point(
        clock_mhz=window.clock_mhz,
        time_s=mean_s,
        energy_j=power_w * mean_s,
        time_se_s=error_s,
        energy_se_j=float(np.hypot(error_w * mean_s, power_w * error_s)),
        samples=len(durations_s),
        achieved_mhz=window.achieved_mhz,
        event_reasons=window.event_reasons,
    )


def _robust_mean(values: NDArray[np.float64]) -> float:
    """Mean of the middle four fifths: one hiccup of the host does not move it."""
    low, high = np.quantile(values, [0.1, 0.9])
    middle = values[(values >= low) & (values <= high)]
    return float(middle.mean())


def _durations_s(window: Window, kind: Kind) -> list[float]:
    return [interval.duration_s for interval in window.intervals if interval.kind is kind]


def _pure_s(durations_s: Sequence[float]) -> float:
    """Duration without the waiting for others that most of these instructions contain."""
    return float(np.quantile(durations_s, _PURE_QUANTILE))
