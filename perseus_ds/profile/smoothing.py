"""Points on smooth curves: what is behind a profile, with the errors of single clocks averaged out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.profile.record import Computation, Point, Profile

_BENDS = np.geomspace(1e-5, 10.0, 25)
"""How far curves may bend (standard deviation): from lines to no curve at all."""
_ROUNDING = 1e-7  # of a value: what is known better is taken as known so well

Floats = NDArray[np.float64]


class _Curve(NamedTuple):
    """Values over ``x``, the highest clock over each, in parts of the value there; with standard errors."""

    x: Floats
    value: Floats
    error: Floats


def smoothed(profile: Profile) -> Profile:
    """Take every point as what is most likely behind it: a plan prefers points that are too good by chance.

    Durations and mean powers lie on curves over the clock that bend as far as the profile's own points show
    beyond their standard errors. A point keeps what its error and its neighbours leave of it: where
    errors are small, or curves have kinks, that is all of it. Errors become those that are left.
    The same profile where points state no errors, or are few.

    Source: smoothing splines as posterior means (Wahba 1978), the bend by restricted maximum likelihood.
    Cost: a few small matrices for each computation.
    """
    keys = [key for key, own in profile.points.items() if _is_known(own)]
    if not keys:
        return profile
    points = {key: profile.of(*key) for key in keys}
    times = _fitted({key: _times(own) for key, own in points.items()})
    powers = _fitted({key: _powers(own) for key, own in points.items()})
    found = {key: _joined(own, times[key], powers[key]) for key, own in points.items()}
    return replace(profile, points={**profile.points, **found})


def _is_known(points: Sequence[Point]) -> bool:
    """Whether its points state errors; a single execution states none."""
    return any(one.time_se_s > 0.0 for one in points)


def _times(points: Sequence[Point]) -> _Curve:
    """Durations: what few executions state of their scatter is little, all clocks together state it."""
    own = np.array([one.time_se_s / one.time_s for one in points])
    samples = np.array([one.samples for one in points])
    alike = np.sqrt(np.mean((own**2 * samples)[own > 0.0]) / samples)
    share = np.where(own > 0.0, np.maximum(own, alike), 0.0)
    return _curve(points, [one.time_s for one in points], share)


def _powers(points: Sequence[Point]) -> _Curve:
    """Mean powers; their errors are what those of the durations leave of those of the energies."""
    share = np.array(
        [(one.energy_se_j / one.energy_j) ** 2 - (one.time_se_s / one.time_s) ** 2 for one in points]
    )
    error = np.full(len(points), np.sqrt(max(0.0, float(share.mean()))))
    return _curve(points, [one.energy_j / one.time_s for one in points], error)


def _curve(points: Sequence[Point], values: Sequence[float], share: Floats) -> _Curve:
    value, clock = np.array(values), np.array([one.clock_mhz for one in points], np.float64)
    return _Curve(clock[0] / clock, value / value[0], np.maximum(share, _ROUNDING) * value / value[0])


def _fitted(curves: Mapping[Computation, _Curve]) -> dict[Computation, tuple[Floats, Floats]]:
    """Values and standard errors of all curves, which bend alike: by what is most likely.

    In parts of the value as it was measured.
    """
    likely = [sum(_likelihood(one, bend) for one in curves.values()) for bend in _BENDS]
    bend = float(_BENDS[int(np.argmax(likely))])
    return {key: _posterior(one, bend) for key, one in curves.items()}


def _parts(curve: _Curve, bend: float) -> tuple[Floats, Floats]:
    """What a line is made of, and how values vary around it: bends, which neighbours share, and errors.

    Shape: [points, 2]; [points, points].
    """
    near, far = np.minimum.outer(curve.x - 1.0, curve.x - 1.0), np.maximum.outer(curve.x - 1.0, curve.x - 1.0)
    bends = bend**2 * near**2 * (3.0 * far - near) / 6.0
    return np.column_stack([np.ones(len(curve.x)), curve.x - 1.0]), bends


def _likelihood(curve: _Curve, bend: float) -> float:
    """Logarithm of how likely values are, whatever the line."""
    if len(curve.x) == 1:
        return 0.0
    line, bends = _parts(curve, bend)
    whole = bends + np.diag(curve.error**2)
    known = np.linalg.inv(whole)
    of_line = line.T @ known @ line
    rest = curve.value - line @ np.linalg.solve(of_line, line.T @ known @ curve.value)
    return -0.5 * float(np.linalg.slogdet(whole)[1] + np.linalg.slogdet(of_line)[1] + rest @ known @ rest)


def _posterior(curve: _Curve, bend: float) -> tuple[Floats, Floats]:
    """What values really are, over what was measured, and the standard errors of that."""
    if len(curve.x) == 1:
        return np.ones(1), curve.error
    line, bends = _parts(curve, bend)
    known = np.linalg.inv(bends + np.diag(curve.error**2))
    of_line = np.linalg.inv(line.T @ known @ line)
    outside = known - known @ line @ of_line @ line.T @ known
    noise = curve.error**2
    value = curve.value - noise * (outside @ curve.value)
    error = np.sqrt(np.clip(noise - noise**2 * np.diag(outside), 0.0, None))
    return value / curve.value, error / curve.value


def _joined(
    points: Sequence[Point], times: tuple[Floats, Floats], powers: tuple[Floats, Floats]
) -> tuple[Point, ...]:
    rows = zip(points, *times, *powers, strict=True)
    return tuple(
        replace(
            one,
            time_s=one.time_s * time,
            energy_j=one.energy_j * time * power,
            time_se_s=one.time_s * time_error,
            energy_se_j=one.energy_j * float(np.hypot(time_error, power_error)),
        )
        for one, time, time_error, power, power_error in rows
    )
