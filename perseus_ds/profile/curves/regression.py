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
_NOTHING = 30.0
"""Error, in the largest value, from which on a point was not measured: it explains nothing."""
_NEGLIGIBLE = 1e-9
"""Share of a way that does not count."""
_WIDTH = 0.12
"""Over what share of the highest clock the misfit of the terms stays alike."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """By how much a curve departs from its terms, smoothly and at single points: shares of it."""

    smooth: float
    single: float = 0.0


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

    @property
    def measured(self) -> NDArray[np.intp]:
        """Numbers of the points whose values state anything. Shape: [measured]."""
        return np.flatnonzero(self.errors < _NOTHING * np.abs(self.values).max())

    def over(self, unit: float) -> MeasuredCurve:
        """The same in another unit."""
        return MeasuredCurve(self.place, self.values / unit, self.errors / unit)


def log_evidence(ways: Ways, misfits: Sequence[Misfit], seen: MeasuredCurve) -> Floats:
    """How likely each misfit makes the measured values, on average over the ways (logarithm).

    Shape: the answer [misfits].
    """
    return _log_mean(_Explanation.of(ways, misfits, seen).logs)


def after(groups: Sequence[Explained], seen: MeasuredCurve) -> Normal:
    """What is known after the measurement: every way counts as far as it makes that likely.

    Misfits keep the weights that they have within their group.

    Cost: a factor of [points, points] per misfit, and products of [points, terms] per way.
    """
    found = [_Explanation.of(one.ways, [*one.misfits], seen) for one in groups]
    shares = [np.array([*one.misfits.values()]) for one in groups]
    logs = [_log_mean(_log_mean(one.logs), share) for one, share in zip(found, shares, strict=True)]
    means, weights, covariance = [], [], np.zeros((len(seen.place), len(seen.place)))
    for of_group, share, one in zip(_softmax(np.array(logs)), shares, found, strict=True):
        weight = of_group * share[:, None] * _softmax(one.logs)
        mean, within = one.known(weight)
        means.append(mean.reshape(-1, len(seen.place)))
        weights.append(weight.ravel())
        covariance += within
    every, weight = np.concatenate(means), np.concatenate(weights)
    mean = weight @ every
    between = (every - mean).T @ ((every - mean) * weight[:, None])
    return Normal(mean, covariance + between)


def _covariances(misfits: Sequence[Misfit], place: Floats) -> Floats:
    """Covariance of what each misfit leaves at every place. Shape: [misfits, points, points]."""
    apart = np.sqrt(5.0) * np.abs(place[:, None] - place[None, :]) / _WIDTH
    alike = (1.0 + apart + apart**2 / 3.0) * np.exp(-apart)
    smooth, single = (np.array([getattr(one, name) for one in misfits]) for name in ("smooth", "single"))
    return np.asarray(
        smooth[:, None, None] ** 2 * alike + single[:, None, None] ** 2 * np.eye(len(place)), np.float64
    )


def _softmax(logs: Floats) -> Floats:
    """Shares in proportion to what these are the logarithms of. Shape: [..., some]; they add up to 1."""
    weight: Floats = np.exp(logs - logs.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    return weight


def _log_mean(logs: Floats, shares: Floats | None = None) -> Floats:
    """Logarithm of the mean of what these are the logarithms of. Shape: [..., some]; the answer [...]."""
    most = logs.max(axis=-1, keepdims=True)
    mean = np.average(np.exp(logs - most), axis=-1, weights=shares)
    return np.asarray(most[..., 0] + np.log(mean), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Explanation:
    """Ways after the measurement, by misfit: how likely each made it, its weights, and what they leave.

    All in units of the error of measurement and misfit together, whose factor is ``lower``. Few terms make
    this a problem of their number, not of that of points. Points that were not measured have no part but in
    ``known``. All misfits are solved together: one by one most of the time would go into calls.

    Shape: all [misfits, ways, ...], but for ``lower`` [misfits, measured, measured], ``around`` [misfits,
    points, points] and ``spread`` [ways, points, terms]. ``seen`` goes on with [measured, terms], ``gram``
    with [terms, terms], ``weights`` with [terms], ``left`` with [measured], ``logs`` with nothing;
    ``measured`` [measured] numbers points.
    """

    ways: Ways
    measured: NDArray[np.intp]
    around: Floats
    lower: Floats
    spread: Floats
    seen: Floats
    gram: Floats
    weights: Floats
    left: Floats
    logs: Floats

    @classmethod
    def of(cls, ways: Ways, misfits: Sequence[Misfit], curve: MeasuredCurve) -> _Explanation:
        measured = curve.measured
        count, points, terms = len(ways.columns), len(measured), ways.columns.shape[2]
        around = _covariances(misfits, curve.place) + ways.around
        of_errors = np.diag(np.maximum(curve.errors[measured], LEAST_ERROR) ** 2)
        known = around[:, measured[:, None], measured]
        lower = np.asarray(np.linalg.cholesky(known + of_errors), np.float64)
        spread = ways.columns * ways.scale[:, None, :]
        off = (curve.values - np.einsum("wpt,wt->wp", ways.columns, ways.centre))[:, measured]
        stacked = np.column_stack([spread[:, measured].transpose(1, 0, 2).reshape(points, -1), off.T])
        solved = np.linalg.solve(lower, stacked)
        seen = solved[..., :-count].reshape(-1, points, count, terms).transpose(0, 2, 1, 3)
        whole = solved[..., -count:].transpose(0, 2, 1)
        turned = seen.transpose(0, 1, 3, 2)
        gram = np.eye(terms) + turned @ seen
        weights = np.linalg.solve(gram, turned @ whole[..., None])[..., 0]
        left = whole - (seen @ weights[..., None])[..., 0]
        logs = -0.5 * ((left**2).sum(axis=2) + (weights**2).sum(axis=2) + np.linalg.slogdet(gram)[1])
        scale = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        logs = np.asarray(logs - scale[:, None], np.float64)
        return cls(ways, measured, around, lower, spread, seen, gram, weights, left, logs)

    def known(self, share: Floats) -> tuple[Floats, Floats]:
        """Mean of every way, and the sum of their covariances by these shares.

        Shape: ``share`` [misfits, ways]; [misfits, ways, points], [points, points].
        """
        explained = np.linalg.solve(self.lower, self.around[:, self.measured])
        turned = explained.transpose(0, 2, 1)
        mean = np.einsum("wpt,wt->wp", self.ways.columns, self.ways.centre)
        mean = mean + (self.spread @ self.weights[..., None])[..., 0] + self.left @ explained
        misfit, way = np.nonzero(share > _NEGLIGIBLE)
        open_ = self.spread[way] - turned[misfit] @ self.seen[misfit, way]
        by_weights = np.linalg.solve(self.gram[misfit, way], open_.transpose(0, 2, 1))
        by_weights *= share[misfit, way, None, None]
        covariance = np.tensordot(share.sum(axis=1), self.around - turned @ explained, 1)
        return mean, covariance + (open_ @ by_weights).sum(axis=0)
