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
_NEGLIGIBLE = 1e-9
"""Share of a way that does not count."""
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
    """What is known of a curve's points after the measurement.

    Shape: ``mean`` [points]; ``covariance`` [points, points].
    """

    mean: Floats
    covariance: Floats

    def times(self, factor: float) -> Normal:
        """The same in another unit."""
        return Normal(factor * self.mean, factor**2 * self.covariance)


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """Ways to explain a curve before the measurement: each a sum of terms whose weights lie around a centre.

    ``scale`` are standard deviations of the weights; ``around`` is what is not known of all ways alike.

    Shape: ``columns`` [ways, points, terms]; ``centre``, ``scale`` [ways, terms]; ``around`` [points,
    points].
    """

    columns: Floats
    centre: Floats
    scale: Floats
    around: Floats

    @classmethod
    def of_terms(cls, ways: Sequence[Sequence[Floats]]) -> Ways:
        """Weights of which nothing is known but that they are of the size of the values, which is 1."""
        terms, points = max(map(len, ways)), len(ways[0][0])
        nothing = [np.zeros(points)]
        columns = np.array([np.column_stack([*way, *nothing * (terms - len(way))]) for way in ways])
        every = (len(ways), terms)
        return cls(columns, np.zeros(every), np.ones(every), np.zeros((points, points)))


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """Ways to explain a curve, and by how much it may depart from them, with weights that add up to 1."""

    ways: Ways
    misfits: Mapping[Misfit, float]


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


def log_evidence(ways: Ways, misfit: Misfit, seen: MeasuredCurve) -> float:
    """How likely the measured values are, on average over the ways (logarithm)."""
    return _log_mean(_Explanation.of(ways, misfit, seen).logs)


def after(groups: Sequence[Explained], seen: MeasuredCurve) -> Normal:
    """What is known after the measurement: every way counts as far as it makes that likely.

    Misfits keep the weights that they have within their group.

    Cost: a factor of [points, points] per misfit, and products of [points, terms] per way.
    """
    found, logs, weights = [], [], []
    for group in groups:
        solved = [_Explanation.of(group.ways, misfit, seen) for misfit in group.misfits]
        shares = np.array([*group.misfits.values()])
        logs.append(_log_mean(np.array([_log_mean(one.logs) for one in solved]), shares))
        weights.append([share * _shares(one.logs) for share, one in zip(shares, solved, strict=True)])
        found.append(solved)
    means, covariances, counted = [], np.zeros((len(seen.place), len(seen.place))), []
    for of_group, group_weights, solved in zip(_shares(np.array(logs)), weights, found, strict=True):
        for weight, one in zip(group_weights, solved, strict=True):
            mean, covariance = one.known(of_group * weight)
            means.append(mean)
            counted.append(of_group * weight)
            covariances += covariance
    every, weight = np.concatenate(means), np.concatenate(counted)
    mean = weight @ every
    between = (every - mean).T @ ((every - mean) * weight[:, None])
    return Normal(mean, covariances + between)


def _shares(logs: Floats) -> Floats:
    weight: Floats = np.exp(logs - logs.max())
    weight /= weight.sum()
    return weight


def _log_mean(logs: Floats, shares: Floats | None = None) -> float:
    """Logarithm of the mean of what these are the logarithms of."""
    return float(logs.max() + np.log(np.average(np.exp(logs - logs.max()), weights=shares)))


@dataclass(frozen=True, slots=True, eq=False)
class _Explanation:
    """Ways after the measurement: how likely each made it (logarithm), its weights, and what they leave.

    All in units of the error of measurement and misfit together, whose factor is ``lower``. Few terms make
    this a problem of their number, not of that of points.

    Shape: ``logs`` [ways]; ``lower`` [points, points]; ``spread``, ``seen`` [ways, points, terms]; ``gram``
    [ways, terms, terms]; ``weights`` [ways, terms]; ``left`` [ways, points].
    """

    ways: Ways
    around: Floats
    lower: Floats
    spread: Floats
    seen: Floats
    gram: Floats
    weights: Floats
    left: Floats
    logs: Floats

    @classmethod
    def of(cls, ways: Ways, misfit: Misfit, curve: MeasuredCurve) -> _Explanation:
        count, points, terms = ways.columns.shape
        around = misfit.covariance(curve.place) + ways.around
        of_errors = np.diag(np.maximum(curve.errors, LEAST_ERROR) ** 2)
        lower = np.asarray(np.linalg.cholesky(around + of_errors), np.float64)
        spread = ways.columns * ways.scale[:, None, :]
        off = curve.values - np.einsum("wpt,wt->wp", ways.columns, ways.centre)
        stacked = np.column_stack([spread.transpose(1, 0, 2).reshape(points, -1), off.T])
        solved = np.linalg.solve(lower, stacked)
        seen = solved[:, :-count].reshape(points, count, terms).transpose(1, 0, 2)
        whole = solved[:, -count:].T
        turned = seen.transpose(0, 2, 1)
        gram = np.eye(terms) + turned @ seen
        weights = np.linalg.solve(gram, turned @ whole[:, :, None])[:, :, 0]
        left = whole - (seen @ weights[:, :, None])[:, :, 0]
        logs = -0.5 * ((left**2).sum(axis=1) + (weights**2).sum(axis=1) + np.linalg.slogdet(gram)[1])
        logs = np.asarray(logs - np.log(np.diagonal(lower)).sum(), np.float64)
        return cls(ways, around, lower, spread, seen, gram, weights, left, logs)

    def known(self, share: Floats) -> tuple[Floats, Floats]:
        """Mean of every way, and the sum of their covariances by these shares.

        Shape: ``share`` [ways]; [ways, points], [points, points].
        """
        explained = np.linalg.solve(self.lower, self.around)
        mean = np.einsum("wpt,wt->wp", self.ways.columns, self.ways.centre)
        mean = mean + (self.spread @ self.weights[:, :, None])[:, :, 0] + self.left @ explained
        some = share > _NEGLIGIBLE
        open_ = self.spread[some] - explained.T @ self.seen[some]
        by_weights = np.linalg.solve(self.gram[some], open_.transpose(0, 2, 1)) * share[some, None, None]
        covariance = share.sum() * (self.around - explained.T @ explained)
        return mean, covariance + (open_ @ by_weights).sum(axis=0)
