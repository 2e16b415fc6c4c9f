"""What is behind a profile: points drawn to their curves by their errors, with what is left of these.

A plan prefers points that are too good by chance. Drawn to a curve by their own errors they no longer are,
while a true departure from the curve survives. Used by whoever plans; profile files keep what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perseus_ds.profile.curves.monotone import monotone
from perseus_ds.profile.curves.offered import UNKNOWN, place_mhz, with_offered
from perseus_ds.profile.curves.physics import Fitted, fitted, power_ways, time_ways
from perseus_ds.profile.curves.regression import Floats, MeasuredCurve, Normal, Ways
from perseus_ds.profile.curves.scatter import scatters
from perseus_ds.profile.record import Computation, CurveErrors, Point, Profile

FEWEST_POINTS = 4
"""Clocks that a curve needs for its points to be drawn to it."""
HARMLESS = 0.0003
"""Errors of time that small, as a share, cost no time: points stay what they are."""
SCATTER_HARMLESS = 0.001
"""The same where a profile states no errors: what scatters so little may as well be true."""

_Columns = Mapping[Computation, Floats]


def smoothed(profile: Profile, *, scatter: bool = False) -> Profile:
    """Draw a profile's points to their curves; one that is exact, or drawn already, stays what it is.

    Errors are the profile's own. With ``scatter`` those of a profile that states none are how far its points
    scatter around smooth curves, alike for all. Curves also predict points at clocks of ``grid_mhz``
    that were not measured, with the errors that these have.

    Cost: about a second of CPU for 16 computations at 81 clocks.
    """
    curves = {key: profile.of(*key) for key, own in profile.points.items() if len(own) >= FEWEST_POINTS}
    if profile.errors or not curves:
        return profile
    told = _states_errors(curves)
    shares = _told_shares(curves) if told else _scatter_shares(profile, curves) if scatter else None
    if shares is None and not profile.grid_mhz:
        return profile
    return _drawn(profile, curves, shares, known_errors=told or shares is None)


def _drawn(
    profile: Profile,
    curves: Mapping[Computation, Sequence[Point]],
    shares: tuple[_Columns, _Columns] | None,
    *,
    known_errors: bool,
) -> Profile:
    nothing = {key: np.zeros(len(own)) for key, own in curves.items()}
    offered = {key: with_offered(own, profile.grid_mhz) for key, own in curves.items()}
    time, energy = (
        {key: offered[key].spread(own) for key, own in one.items()} for one in shares or (nothing, nothing)
    )
    whole = {key: one.points for key, one in offered.items()}
    drawn, errors = _Curves(whole, max(profile.clocks_mhz), known_errors=known_errors).drawn(time, energy)
    return replace(profile, points={**profile.points, **drawn}, errors=errors)


def _states_errors(curves: Mapping[Computation, Sequence[Point]]) -> bool:
    return any(p.time_se_s > 0.0 or p.energy_se_j > 0.0 for own in curves.values() for p in own)


def _told_shares(curves: Mapping[Computation, Sequence[Point]]) -> tuple[_Columns, _Columns] | None:
    """Standard errors of times and of energies as shares; None where they are too small to matter.

    Few executions state little of their scatter: all clocks together state it.
    """
    time, energy = {}, {}
    for key, points in curves.items():
        own = _column(points, "time_se_s") / _column(points, "time_s")
        samples, known = _column(points, "samples"), own > 0.0
        alike = np.sqrt(np.mean((own**2 * samples)[known]) / samples) if known.any() else own
        time[key] = np.where(known, np.maximum(own, alike), 0.0)
        energy[key] = _column(points, "energy_se_j") / _column(points, "energy_j")
    rms = float(np.sqrt(np.mean(np.concatenate(list(time.values())) ** 2)))
    return (time, energy) if rms >= HARMLESS else None


def _scatter_shares(
    profile: Profile, curves: Mapping[Computation, Sequence[Point]]
) -> tuple[_Columns, _Columns] | None:
    found = scatters(profile)
    if found is None or found[0] < SCATTER_HARMLESS:
        return None
    time, energy = ({key: np.full(len(own), share) for key, own in curves.items()} for share in found)
    return time, energy


class _Curves:
    """The points of all curves, and where they were measured, in parts of the highest clock."""

    def __init__(
        self, points: Mapping[Computation, Sequence[Point]], highest_mhz: int, *, known_errors: bool
    ) -> None:
        self._points, self._known_errors = points, known_errors
        self._places = {
            key: np.array([place_mhz(one) for one in own]) / highest_mhz for key, own in points.items()
        }
        self._time_s = {key: _column(own, "time_s") for key, own in points.items()}
        self._energy_j = {key: _column(own, "energy_j") for key, own in points.items()}

    def drawn(
        self, time_shares: _Columns, energy_shares: _Columns
    ) -> tuple[dict[Computation, tuple[Point, ...]], dict[Computation, CurveErrors]]:
        """Return the points on their curves, and what is left unknown of these."""
        cycles = {key: self._time_s[key] * place for key, place in self._places.items()}
        times = self._fit(cycles, time_shares, time_ways)
        lasts_s = {key: _lasts_s(times.curves[key], place) for key, place in self._places.items()}
        powers, with_time = self._powers(lasts_s, time_shares, energy_shares)
        errors, drawn = {}, {}
        for key, own in self._points.items():
            of_time, of_power = _shares(times.curves[key]), _shares(powers[key])
            errors[key] = CurveErrors(_factor(of_time), _factor(of_power + with_time * of_time))
            drawn[key] = _moved(own, lasts_s[key], powers[key].mean * lasts_s[key], errors[key])
        return drawn, errors

    def _powers(
        self, lasts_s: _Columns, time_shares: _Columns, energy_shares: _Columns
    ) -> tuple[dict[Computation, Normal], float]:
        """Fit mean powers, and find whether energies carry the errors of the durations that are left.

        A job measures powers and multiplies them by durations: both are off alike. Others measure energies
        by themselves. What makes the powers likelier is taken.
        """
        over_fitted = {key: own / lasts_s[key] for key, own in self._energy_j.items()}
        apart = self._fit(over_fitted, energy_shares, power_ways)
        known = {key: own < UNKNOWN for key, own in energy_shares.items()}
        rest = {key: (energy_shares[key] ** 2 - time_shares[key] ** 2)[known[key]] for key in energy_shares}
        if not self._known_errors or min(float(own.mean()) for own in rest.values()) < 0.0:
            return apart.curves, 0.0
        over_measured = {key: own / self._time_s[key] for key, own in self._energy_j.items()}
        alike = {key: np.where(known[key], np.sqrt(own.mean()), UNKNOWN) for key, own in rest.items()}
        together = self._fit(over_measured, alike, power_ways)
        if together.log_evidence > apart.log_evidence:
            return together.curves, 1.0
        return apart.curves, 0.0

    def _fit(self, values: _Columns, shares: _Columns, ways: Callable[[Floats], Ways]) -> Fitted:
        """Fit one quantity of all computations, in the units of ``values``; errors are ``shares``."""
        return fitted(
            {
                key: MeasuredCurve(place, values[key], shares[key] * values[key])
                for key, place in self._places.items()
            },
            ways,
            known_errors=self._known_errors,
        )


def _moved(
    points: Sequence[Point], time_s: Floats, energy_j: Floats, errors: CurveErrors
) -> tuple[Point, ...]:
    of_time, of_energy = errors.shares()
    columns = (time_s, energy_j, of_time * time_s, of_energy * energy_j)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(
        replace(point, time_s=row[0], energy_j=row[1], time_se_s=row[2], energy_se_j=row[3])
        for point, row in zip(points, rows, strict=True)
    )


def _lasts_s(cycles: Normal, place: Floats) -> Floats:
    """Durations of a curve whose cycles are known. Shape: ``place`` and the result [points]."""
    return monotone(cycles.mean / place, np.sqrt(np.diag(cycles.covariance)) / place)


def _column(points: Sequence[Point], name: str) -> Floats:
    return np.array([getattr(point, name) for point in points], np.float64)


def _shares(known: Normal) -> Floats:
    """Covariance as shares of the mean. Shape: [points, points]."""
    share: Floats = known.covariance / np.outer(known.mean, known.mean)
    return share


def _factor(covariance: Floats) -> Floats:
    """What standard normal numbers are multiplied by to be off as the covariance states."""
    values, vectors = np.linalg.eigh(covariance)
    factor: Floats = vectors * np.sqrt(np.clip(values, 0.0, None))
    return factor
