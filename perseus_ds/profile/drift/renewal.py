"""A profile with what was measured again in it: some points anew, and the rest of their curves with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import IncompleteProfileError
from perseus_ds.profile.record import Computation, Point, Profile

_CERTAIN = 2.0  # standard errors
_LEAST = 0.01


@dataclass(frozen=True, slots=True)
class Ratio:
    """A computation as measured again, in parts of what the profile had; means over the clocks in common."""

    time: float
    energy: float
    certain: bool


def renewed(
    profile: Profile,
    again: Mapping[Computation, Sequence[Point]],
    *,
    predicted: Profile | None = None,
) -> tuple[Profile, Mapping[Computation, Ratio]]:
    """Replace curves by what was measured of them again.

    A point that was measured again stands as measured. The others of its curve move as their neighbours did.
    Their ratio is linear in the clock between two measured ones and constant beyond; its error is added to
    theirs. Clocks that the profile has not measured are compared with what was ``predicted``.

    Raises:
        IncompleteProfileError: nothing of a computation was measured at a clock that the profile has.
    """
    points, ratios, known = dict(profile.points), {}, predicted or profile
    for key, seen in again.items():
        old = {point.clock_mhz: point for curves in (known, profile) for point in curves.of(*key)}
        both = sorted((new for new in seen if new.clock_mhz in old), key=lambda new: new.clock_mhz)
        if not both:
            raise IncompleteProfileError(
                f"nothing of stage {key[0]} {key[1].words} was measured again at a clock of the profile"
            )
        points[key], ratios[key] = _renewed_curve(profile.points[key], both, old)
    return replace(profile, points=points), ratios


def _renewed_curve(
    curve: Sequence[Point], both: Sequence[Point], old: Mapping[int, Point]
) -> tuple[tuple[Point, ...], Ratio]:
    """Join a curve with ``both``, its points that were measured again; clocks new to it come last."""
    times, energies = _Ratios.of(both, old, "time"), _Ratios.of(both, old, "energy")
    own = {point.clock_mhz for point in curve}
    measured = {new.clock_mhz: new for new in both}
    moved = tuple(measured.get(point.clock_mhz) or _moved(point, times, energies) for point in curve)
    added = tuple(measured[mhz] for mhz in sorted(measured) if mhz not in own)
    return moved + added, Ratio(times.mean, energies.mean, certain=times.certain or energies.certain)


@dataclass(frozen=True, slots=True)
class _Ratios:
    """Ratios of new to old by clock, lowest clock first, with their errors.

    Shape: all [clocks measured again].
    """

    clock_mhz: NDArray[np.float64]
    ratio: NDArray[np.float64]
    error: NDArray[np.float64]

    @classmethod
    def of(cls, both: Sequence[Point], old: Mapping[int, Point], what: str) -> _Ratios:
        unit = {"time": "time_s", "energy": "energy_j"}[what]
        error = {"time": "time_se_s", "energy": "energy_se_j"}[what]
        ratios, errors = [], []
        for new in both:
            before = old[new.clock_mhz]
            value, known = getattr(new, unit), getattr(before, unit)
            ratios.append(value / known)
            errors.append(math.hypot(getattr(new, error) / value, getattr(before, error) / known))
        return cls(np.array([float(new.clock_mhz) for new in both]), np.array(ratios), np.array(errors))

    @property
    def mean(self) -> float:
        return float(self.ratio.mean())

    @property
    def certain(self) -> bool:
        """Whether the mean is off 1 by more than a hundredth, and by more than chance."""
        error = float(np.sqrt((self.error**2).sum())) / len(self.error)
        return abs(self.mean - 1.0) > max(_LEAST, _CERTAIN * error)

    def at(self, clock_mhz: int) -> tuple[float, float]:
        ratio, error = (float(np.interp(clock_mhz, self.clock_mhz, one)) for one in (self.ratio, self.error))
        return ratio, error


def _moved(point: Point, times: _Ratios, energies: _Ratios) -> Point:
    (longer, time_error), (more, energy_error) = times.at(point.clock_mhz), energies.at(point.clock_mhz)
    return replace(
        point,
        time_s=longer * point.time_s,
        time_se_s=longer * math.hypot(point.time_se_s, time_error * point.time_s),
        time_sd_s=None if point.time_sd_s is None else longer * point.time_sd_s,
        energy_j=more * point.energy_j,
        energy_se_j=more * math.hypot(point.energy_se_j, energy_error * point.energy_j),
    )
