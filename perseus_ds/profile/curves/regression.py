"""Gaussian regression of one curve: a few physical terms, what they leave, and the error of each point.

``profile.curves`` states the terms. Their weights, the misfit, smooth or of single points, and the errors of
measurement are all normal. So the curve after the measurement is known in closed form, with its covariance.

Source: Rasmussen and Williams 2006, sections 2.2 and 2.7; Efron and Morris 1973 for shrinkage to a curve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_ERROR = 1e-5
"""Of a measured value, as a share of it: less is rounding, and no matrix could be inverted."""
_WIDTH = 0.12
"""Over what share of the highest clock the misfit of the terms stays alike."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """By how much a curve departs from its terms, smoothly and at single points: shares of it."""

    smooth: float
    single: float = 0.0

    def covariance(self, place: Floats) -> Floats:
        """Shape: ``place`` [points], in parts of the highest clock; the answer [points, points]."""
        apart = np.sqrt(5.0) * np.abs(place[:, None] - place[None, :]) / _WIDTH
        alike = (1.0 + apart + apart**2 / 3.0) * np.exp(-apart)
        return np.asarray(self.smooth**2 * alike + self.single**2 * np.eye(len(place)))


@dataclass(frozen=True, slots=True, eq=False)
class Normal:
    """What is known of a curve's points, before the measurement or after it.

    Shape: ``mean`` [points]; ``covariance`` [points, points].
    """

    mean: Floats
    covariance: Floats

    def times(self, factor: float) -> Normal:
        """The same in another unit."""
        return Normal(factor * self.mean, factor**2 * self.covariance)

    @classmethod
    def of_terms(cls, columns: Floats, centre: Sequence[float], scale: Sequence[float]) -> Normal:
        """A sum of terms whose weights lie around ``centre``, ``scale`` being their standard deviations.

        Shape: ``columns`` [points, terms]; ``centre``, ``scale`` [terms].
        """
        spread = columns * np.array(scale)
        return cls(columns @ np.array(centre), spread @ spread.T)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCurve:
    """A curve as measured: places (parts of the highest clock), values, their standard errors.

    Shape: all [points].
    """

    place: Floats
    values: Floats
    errors: Floats

    def over(self, unit: float) -> MeasuredCurve:
        """The same in another unit."""
        return MeasuredCurve(self.place, self.values / unit, self.errors / unit)


def log_evidence(ways: Sequence[Normal], misfit: Misfit, seen: MeasuredCurve) -> float:
    """How likely the measured values are, on average over the ways (logarithm)."""
    logs = _solved(ways, misfit, seen)[0]
    return float(logs.max() + np.log(np.exp(logs - logs.max()).mean()))


def after(ways: Sequence[Normal], misfits: Mapping[Misfit, float], seen: MeasuredCurve) -> Normal:
    """What is known after the measurement: every way counts as far as it makes that likely.

    ``misfits`` have weights of their own, which add up to 1.

    Cost: a Cholesky factor of [points, points] per way and misfit.
    """
    solved = [_solved(ways, misfit, seen) for misfit in misfits]
    weights = [share * _shares(logs) for share, (logs, _, _) in zip(misfits.values(), solved, strict=True)]
    weight = np.concatenate(weights)
    means, covariances = (np.concatenate([one[part] for one in solved]) for part in (1, 2))
    mean = weight @ means
    between = (means - mean).T @ ((means - mean) * weight[:, None])
    return Normal(mean, np.tensordot(weight, covariances, 1) + between)


def _shares(logs: Floats) -> Floats:
    weight: Floats = np.exp(logs - logs.max())
    weight /= weight.sum()
    return weight


def _solved(ways: Sequence[Normal], misfit: Misfit, seen: MeasuredCurve) -> tuple[Floats, Floats, Floats]:
    """Logarithm of the evidence, mean and covariance of each way after the measurement.

    Shape: [ways], [ways, points], [ways, points, points].
    """
    means = np.array([one.mean for one in ways])
    known = np.array([one.covariance for one in ways]) + misfit.covariance(seen.place)
    lower = np.linalg.cholesky(known + np.diag(np.maximum(seen.errors, LEAST_ERROR) ** 2))
    solved = np.linalg.solve(lower, np.concatenate([(seen.values - means)[:, :, None], known], axis=2))
    off, explained = solved[:, :, 0], solved[:, :, 1:]
    turned = explained.transpose(0, 2, 1)
    logs = -0.5 * (off**2).sum(axis=1) - np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
    return logs, means + (turned @ off[:, :, None])[:, :, 0], known - turned @ explained
