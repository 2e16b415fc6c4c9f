"""Curves behind a profile: points drawn to them by their errors, with the errors that remain.

A plan prefers points that are too good by chance. Drawn to a curve by their own errors they no longer are,
while a true departure from the curve survives. Used by whoever plans; profile files keep what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device.gpu import is_held
from perseus_ds.profile.records import Computation, CurveErrors, Point, Profile

# Gaussian regression of one curve: the weights of its terms, what these leave (the discrepancy, smooth or of
# single points) and the errors of measurement are all normal. So the curve after the measurement is known in
# closed form, with its covariance.
#
# Source: Rasmussen and Williams 2006, sections 2.2 and 2.7; Efron and Morris 1973 for shrinkage to a curve.

Floats = NDArray[np.float64]

LEAST_ERROR = 1e-5
"""Of a measured value, as a share of it: less is rounding, and no matrix could be inverted."""
_NOTHING = 30.0
"""Error, in the largest value, from which on a point was not measured: it explains nothing."""
_NEGLIGIBLE = 1e-9
"""Share of a way that does not count."""
_WIDTH = 0.12
"""Over what share of the highest clock the discrepancy of the terms stays alike."""


Discrepancies = Mapping[tuple[float, float], float]
"""Weights, which add up to 1, of standard deviations of a curve from its terms: smooth and at single points,
as shares of it."""


@dataclass(frozen=True, slots=True, eq=False)
class GaussianPosterior:
    """Mean and covariance of a curve's points after the measurement.

    Shape: ``mean`` [points]; ``covariance`` [points, points].
    """

    mean: Floats
    covariance: Floats

    def times(self, factor: float) -> GaussianPosterior:
        """The same in another unit."""
        return GaussianPosterior(factor * self.mean, factor**2 * self.covariance)


@dataclass(frozen=True, slots=True, eq=False)
class BasisFamily:
    """Ways to explain a curve before the measurement: each a sum of terms whose weights lie around a centre.

    ``scale`` are standard deviations of the weights; ``prior_covariance`` is what is not known of all alike.

    Shape: ``columns`` [ways, points, terms]; ``centre``, ``scale`` [ways, terms]; ``prior_covariance``
    [points, points].
    """

    columns: Floats
    centre: Floats
    scale: Floats
    prior_covariance: Floats

    @classmethod
    def of_terms(cls, ways: Sequence[Sequence[Floats]]) -> BasisFamily:
        """Weights of which nothing is known but that they are of the size of the values, which is 1."""
        terms, points = max(map(len, ways)), len(ways[0][0])
        nothing = [np.zeros(points)]
        columns = np.array([np.column_stack([*way, *nothing * (terms - len(way))]) for way in ways])
        every = (len(ways), terms)
        return cls(columns, np.zeros(every), np.ones(every), np.zeros((points, points)))


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredCurve:
    """A curve as measured: places (parts of the highest clock), values, their standard errors.

    Shape: all [points].
    """

    relative_clock: Floats
    values: Floats
    errors: Floats

    @property
    def measured(self) -> NDArray[np.intp]:
        """Numbers of the points whose values state anything. Shape: [measured]."""
        return np.flatnonzero(self.errors < _NOTHING * np.abs(self.values).max())


def posterior(groups: Sequence[tuple[BasisFamily, Discrepancies]], seen: MeasuredCurve) -> GaussianPosterior:
    """Return the curve after the measurement: every way counts as far as it makes that likely.

    Discrepancies keep the weights that they have within their group.

    Cost: a factor of [points, points] per discrepancy, and products of [points, terms] per way.
    """
    found = [_Regression(ways, [*discrepancies], seen) for ways, discrepancies in groups]
    shares = [np.array([*discrepancies.values()]) for _, discrepancies in groups]
    logs = [_log_mean(_log_mean(one.logs), share) for one, share in zip(found, shares, strict=True)]
    means, weights, covariance = [], [], np.zeros((len(seen.relative_clock), len(seen.relative_clock)))
    for of_group, share, one in zip(_softmax(np.array(logs)), shares, found, strict=True):
        weight = of_group * share[:, None] * _softmax(one.logs)
        mean, within = one.estimate(weight)
        means.append(mean.reshape(-1, len(seen.relative_clock)))
        weights.append(weight.ravel())
        covariance += within
    every, weight = np.concatenate(means), np.concatenate(weights)
    mean = weight @ every
    between = (every - mean).T @ ((every - mean) * weight[:, None])
    return GaussianPosterior(mean, covariance + between)


def _covariances(discrepancies: Sequence[tuple[float, float]], clock: Floats) -> Floats:
    """Return the covariance of each discrepancy. Shape: [discrepancies, points, points]."""
    apart = np.sqrt(5.0) * np.abs(clock[:, None] - clock[None, :]) / _WIDTH
    alike = (1.0 + apart + apart**2 / 3.0) * np.exp(-apart)
    smooth, single = np.array(discrepancies).T[:, :, None, None] ** 2
    return np.asarray(smooth * alike + single * np.eye(len(clock)), np.float64)


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


class _Regression:
    """A family after the measurement, by discrepancy: how likely each way is, and what it leaves.

    All in units of the error of measurement and discrepancy together, whose factor is ``lower``. Few terms
    make this a problem of their number, not of that of points. Points that were not measured have no part but
    in ``known``. All discrepancies are solved together: one by one most of the time would go into calls.

    Shape: ``lower`` [discrepancies, measured, measured], ``prior_covariance`` [discrepancies, points,
    points], ``spread`` [ways, points, terms]; all others [discrepancies, ways, ...]: ``seen`` goes on with
    [measured, terms], ``gram`` with [terms, terms], ``weights`` with [terms], ``left`` with [measured],
    ``logs`` with nothing.
    """

    def __init__(
        self, ways: BasisFamily, discrepancies: Sequence[tuple[float, float]], curve: MeasuredCurve
    ) -> None:
        self.ways, self.measured = ways, curve.measured
        measured, (count, _, terms), points = curve.measured, ways.columns.shape, len(curve.measured)
        self.prior_covariance = _covariances(discrepancies, curve.relative_clock) + ways.prior_covariance
        of_errors = np.diag(np.maximum(curve.errors[measured], LEAST_ERROR) ** 2)
        known = self.prior_covariance[:, measured[:, None], measured]
        self.lower = np.asarray(np.linalg.cholesky(known + of_errors), np.float64)
        self.spread = ways.columns * ways.scale[:, None, :]
        off = (curve.values - np.einsum("wpt,wt->wp", ways.columns, ways.centre))[:, measured]
        stacked = np.column_stack([self.spread[:, measured].transpose(1, 0, 2).reshape(points, -1), off.T])
        solved = np.linalg.solve(self.lower, stacked[None])  # numpy 1 takes two dimensions for vectors
        self.seen = solved[..., :-count].reshape(-1, points, count, terms).transpose(0, 2, 1, 3)
        whole = solved[..., -count:].transpose(0, 2, 1)
        turned = self.seen.transpose(0, 1, 3, 2)
        self.gram = np.eye(terms) + turned @ self.seen
        self.weights = np.linalg.solve(self.gram, turned @ whole[..., None])[..., 0]
        self.left = whole - (self.seen @ self.weights[..., None])[..., 0]
        squares = (self.left**2).sum(axis=2) + (self.weights**2).sum(axis=2)
        logs = -0.5 * (squares + np.linalg.slogdet(self.gram)[1])
        scale = np.log(np.diagonal(self.lower, axis1=1, axis2=2)).sum(axis=1)
        self.logs = np.asarray(logs - scale[:, None], np.float64)

    def estimate(self, share: Floats) -> tuple[Floats, Floats]:
        """Mean of every way, and the sum of their covariances by these shares.

        Shape: ``share`` [discrepancies, ways]; [discrepancies, ways, points], [points, points].
        """
        explained = np.linalg.solve(self.lower, self.prior_covariance[:, self.measured])
        turned = explained.transpose(0, 2, 1)
        mean = np.einsum("wpt,wt->wp", self.ways.columns, self.ways.centre)
        mean = mean + (self.spread @ self.weights[..., None])[..., 0] + self.left @ explained
        discrepancy, way = np.nonzero(share > _NEGLIGIBLE)
        open_ = self.spread[way] - turned[discrepancy] @ self.seen[discrepancy, way]
        by_weights = np.linalg.solve(self.gram[discrepancy, way], open_.transpose(0, 2, 1))
        by_weights *= share[discrepancy, way, None, None]
        covariance = np.tensordot(share.sum(axis=1), self.prior_covariance - turned @ explained, 1)
        return mean, covariance + (open_ @ by_weights).sum(axis=0)


# The terms: time is ``a + b / f`` with a kink where memory or a power cap bounds it; power is
# ``P_s + c f v(f)^2``, v flat below a knee. Where the kinks lie is averaged over.
#
# Source: Schoonhoven et al., PMBS 2022 (arXiv 2211.07260), for power; the roofline for time.

SMOOTH = (0.0, 0.001, 0.003, 0.01, 0.03)
"""Candidates for the smooth discrepancy; the measured curves decide, all of one quantity together."""
SINGLE = (0.0, 0.001, 0.003, 0.01)
"""The same for single points, where their errors are known: without these it is taken for error."""
_TIME_KINKS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.93)
_TIME_HELD = tuple(0.5 + 0.03 * at for at in range(17))
_POWER_HELD = tuple(0.5 + 0.04 * at for at in range(13))
_KNEES = (0.0, 0.15, 0.3, 0.45, 0.6)
_CAPS = (0.65, 0.8, 0.9)
_LEVELS = (0.001, 0.004, 0.015)
_TILTS = (0.001, 0.01)
_DECIDE = 6
"""Number of curves that decide on the discrepancy: more agree and cost time."""
_UNLIKELY = 0.1
"""Of the likeliest discrepancy: what is less likely is left out."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, of normal values."""


def time_basis(clock: Floats) -> BasisFamily:
    """Ways to explain time multiplied by the clock: a line, one that rises faster above a kink, or a cap.

    Under a power cap all clocks above the one that is held take as long as that.

    Shape: ``clock`` [points], clocks in parts of the highest.
    """
    low, span = clock.min(), np.ptp(clock)
    line = [np.ones_like(clock), clock - clock.max()]
    kinks = [[*line, np.maximum(clock - (low + at * span), 0.0)] for at in _TIME_KINKS]
    held = [low + at * span for at in _TIME_HELD]
    capped = [[np.maximum(clock / at, 1.0), np.minimum(clock - at, 0.0)] for at in held]
    return BasisFamily.of_terms([line, *kinks, *capped])


def power_basis(clock: Floats) -> BasisFamily:
    """Ways to explain power: static, in proportion to the clock, more above a knee, less above a cap.

    Shape: ``clock`` [points], clocks in parts of the highest.
    """
    low, span = clock.min(), np.ptp(clock)

    def terms(at: Floats, knee: float) -> list[Floats]:
        above = np.maximum(at - (low + knee * span), 0.0) / span
        return [np.ones_like(at), at - at.max(), at * above, at * above**2]

    bent = [
        [*terms(clock, knee), np.maximum(clock - (low + cap * span), 0.0)]
        for knee, cap in product(_KNEES, _CAPS)
    ]
    held = [terms(np.minimum(clock, low + at * span), knee) for knee, at in product(_KNEES, _POWER_HELD)]
    return BasisFamily.of_terms([*(terms(clock, knee) for knee in _KNEES), *bent, *held])


_Columns = Mapping[Computation, Floats]
_Curves = dict[Computation, GaussianPosterior]


def fit_curves(
    clock: _Columns,
    values: _Columns,
    shares: _Columns,
    basis: Callable[[Floats], BasisFamily],
    *,
    known_errors: bool,
) -> tuple[_Curves, float]:
    """Fit curves of one quantity: each by its terms, or by others of its kind at the same clocks.

    ``clock`` are parts of the highest clock, ``shares`` the errors of ``values`` as shares of them. Return
    also the logarithm of the evidence.
    """
    levels = {key: float(own.mean()) for key, own in values.items()}
    scaled = {
        key: MeasuredCurve(at, values[key] / levels[key], shares[key] * values[key] / levels[key])
        for key, at in clock.items()
    }
    own = {key: basis(at) for key, at in clock.items()}
    discrepancies, log = _likely_discrepancies(
        [(own[key], one) for key, one in scaled.items()], known_errors=known_errors
    )
    alone = {key: posterior([(own[key], discrepancies)], one) for key, one in scaled.items()}
    others = {
        key: [at for at in clock if at != key and at[1] is key[1] and np.array_equal(clock[at], clock[key])]
        for key in clock
    }
    means = {key: _mean_curve([scaled[at] for at in ats]) for key, ats in others.items() if ats}
    of_means, _ = _likely_discrepancies(
        [(own[key], one) for key, one in means.items()], known_errors=known_errors
    )
    alike = {
        key: _hierarchical_prior(
            posterior([(own[key], of_means)], one),
            [alone[at].times(levels[at] / levels[key]) for at in others[key]],
            one.relative_clock,
        )
        for key, one in means.items()
    }
    left, _ = _likely_discrepancies(
        [(one, scaled[key]) for key, one in alike.items()], known_errors=known_errors
    )
    curves = {}
    for key, one in scaled.items():
        groups = [(own[key], discrepancies), *([(alike[key], left)] if key in alike else [])]
        curves[key] = posterior(groups, one).times(levels[key])
    return curves, log


def _mean_curve(curves: Sequence[MeasuredCurve]) -> MeasuredCurve:
    """The mean of curves at the same clocks: what they have in common is known better than of one."""
    values, errors = (np.array([getattr(one, name) for one in curves]) for name in ("values", "errors"))
    return MeasuredCurve(
        curves[0].relative_clock, values.mean(axis=0), np.sqrt((errors**2).sum(axis=0)) / len(curves)
    )


def _likely_discrepancies(
    curves: Sequence[tuple[BasisFamily, MeasuredCurve]], *, known_errors: bool
) -> tuple[Discrepancies, float]:
    """Weigh the discrepancies of curves from their ways; return also the logarithm of the evidence."""
    if not curves:
        return {}, 0.0
    some = [curves[round(at)] for at in np.linspace(0, len(curves) - 1, min(_DECIDE, len(curves)))]
    candidates = [*product(SMOOTH, SINGLE if known_errors else SINGLE[:1])]
    logs = np.sum([_log_mean(_Regression(ways, candidates, seen).logs) for ways, seen in some], axis=0)
    weights = np.exp(logs - logs.max())
    kept = {one: float(w) for one, w in zip(candidates, weights, strict=True) if w >= _UNLIKELY}
    return {one: weight / sum(kept.values()) for one, weight in kept.items()}, float(logs.max())


def _hierarchical_prior(
    mean: GaussianPosterior, others: Sequence[GaussianPosterior], clock: Floats
) -> BasisFamily:
    """Ways to explain a curve by those of the other stages: their shape alone, or their level as well.

    Transformer layers are alike, so most stages are. A stage with more to do departs from the median level
    and is likelier under the shape alone, or under its own terms.

    ``mean`` is the others' mean curve, fitted in any unit; ``others`` is each by itself.
    """
    heights = [float(one.mean.mean()) for one in others]
    usual, height = float(np.median(heights)), float(mean.mean.mean())
    shape = mean.mean / height
    centring = np.eye(len(clock)) - 1.0 / len(clock)
    of_shape = (usual / height) ** 2 * centring @ mean.covariance @ centring
    covariance = np.mean([one.covariance.mean() / h**2 for one, h in zip(others, heights, strict=True)])
    unsure = _MEDIAN * float(np.sqrt(covariance / len(others)))
    columns = usual * np.column_stack([shape, shape * (clock - clock.mean()) / np.ptp(clock)])
    scales = [(float(np.hypot(apart, unsure)), tilt) for tilt, apart in product(_TILTS, [1.0, *_LEVELS])]
    return BasisFamily(
        np.broadcast_to(columns, (len(scales), *columns.shape)),
        np.tile([1.0, 0.0], (len(scales), 1)),
        np.array(scales),
        of_shape,
    )


# Clocks that were not measured, put between those that were: their points are left to the curves.

MOST_POINTS = 32
"""Of a curve: between so many clocks a plan splits computations at no loss, and more cost time."""
UNKNOWN = 1e3
"""Error of a point that was not measured, as a share of it: any value is as likely."""


def _with_unmeasured_clocks(points: Sequence[Point], grid_mhz: Sequence[int]) -> tuple[Point, ...]:
    """Put clocks of a grid between measured ones: no lower one, and none above what the highest reached.

    They are put on straight lines between measured points, whose scatter is theirs.
    """
    reached = [effective_clock_mhz(point) for point in points]
    taken = {*reached, *(point.clock_mhz for point in points)}
    inside = [mhz for mhz in grid_mhz if min(reached) < mhz < reached[0] and mhz not in taken]
    count = max(0, min(len(inside), MOST_POINTS - len(points)))
    chosen = {inside[round(at)] for at in np.linspace(0, len(inside) - 1, count)}
    shares = [point.time_sd_s / point.time_s for point in points if point.time_sd_s is not None]
    share = float(np.sqrt(np.mean(np.square(shares)))) if len(shares) == len(points) else None

    def made_up(clock_mhz: int) -> Point:
        time_s, energy_j = (
            float(np.interp(clock_mhz, reached[::-1], _column(points, name)[::-1]))
            for name in ("time_s", "energy_j")
        )
        return Point(clock_mhz, time_s, energy_j, time_sd_s=None if share is None else time_s * share)

    return tuple(sorted([*points, *map(made_up, chosen)], key=lambda point: -point.clock_mhz))


def effective_clock_mhz(point: Point) -> int:
    """Return the clock that a point is of: the one reached, where the one asked for did not hold."""
    reached = point.achieved_mhz
    return point.clock_mhz if reached is None or is_held(point.clock_mhz, reached) else reached


# Durations that never fall with the clock, in a curve and in every draw of its errors.
#
# Above a power cap all clocks last alike. Of many that are off one seems faster than the highest, and a plan
# would fill the time that this seems to gain.

SURE = 3.0
"""Standard errors that make it no chance that a higher clock is slower."""


def isotonic_fit(values: Floats, weights: Floats) -> Floats:
    """Return the nearest values of which none is less than one before it: weighted least squares.

    Shape: ``values`` [points] or [points, draws]; ``weights`` [points]; as ``values``.
    Source: the max-min formula of isotonic regression, Robertson, Wright, Dykstra 1988, theorem 1.4.4.
    """
    weights = weights.reshape(-1, *[1] * (values.ndim - 1))
    found = np.full_like(values, -np.inf)
    for first in range(len(values)):
        means = np.cumsum((weights * values)[first:], axis=0) / np.cumsum(weights[first:], axis=0)
        found[first:] = np.maximum(found[first:], np.minimum.accumulate(means[::-1], axis=0)[::-1])
    return found


def monotone(times_s: Floats, errors_s: Floats) -> Floats:
    """Durations of a curve, highest clock first, without what seems faster at a lower clock by chance.

    A curve that surely is slower at a higher clock stays what it is.

    Shape: all [points].
    """
    found = isotonic_fit(times_s, errors_s**-2.0)
    return times_s if np.any(np.abs(found - times_s) > SURE * errors_s) else found


# Scatter of a profile's points around smooth curves, where it states no errors of its own.

FEWEST_POINTS = 4
"""Clocks that a curve needs for its points' scatter to be reported from its shape."""
ENOUGH_POINTS = 8
"""Clocks from which on a true kink of a curve no longer counts as scatter."""
NORMAL = 0.6745
"""The median of the size of a standard normal number."""


def scatters(profile: Profile) -> tuple[float, float] | None:
    """Return the scatter of time and of energy around smooth curves; None where no curve has the points.

    A file that states neither errors nor how often it measured is judged by few points as well: those of so
    few clocks that are too good by chance would otherwise make the plan that loses no time lose some.
    """
    single = all(point.samples <= 1 for own in profile.points.values() for point in own)
    fewest = FEWEST_POINTS if single else ENOUGH_POINTS
    curves = [profile.of(*key) for key, own in profile.points.items() if len(own) >= fewest]
    if not curves:
        return None
    clocks = [np.array([p.clock_mhz for p in curve], np.float64) for curve in curves]
    times = [np.array([p.time_s for p in curve]) for curve in curves]
    energies = [np.array([p.energy_j for p in curve]) for curve in curves]
    return _scatter(clocks, times), _scatter(clocks, energies)


def _scatter(clocks_mhz: list[Floats], values: list[Floats]) -> float:
    """Standard deviation of a point, as a share of it, around the parabola of its neighbours.

    Four points beside each other have one combination that is zero on every parabola in 1/clock. Its
    median size is that of noise: a kink in the curve (a power cap) does not count.
    """
    found = [
        abs(float(_contrast(*clock[at : at + 4].tolist()) @ (value[at : at + 4] / value[at : at + 4].mean())))
        for clock, value in zip(clocks_mhz, values, strict=True)
        for at in range(len(clock) - 3)
    ]
    return float(np.median(found)) / NORMAL


@cache
def _contrast(*clocks_mhz: float) -> Floats:
    """Weights of length one that are orthogonal to all parabolas in 1/clock over four clocks."""
    places = 1.0 / np.array(clocks_mhz)
    centred = (places - places.mean()) / np.ptp(places)
    return np.asarray(np.linalg.svd(np.vander(centred, 3).T)[2][-1])


HARMLESS = 0.0003
"""Errors of time that small, as a share, cost no time: points stay what they are."""
SCATTER_HARMLESS = 0.001
"""The same where a profile states no errors: what scatters so little may as well be true."""


def smooth(profile: Profile, *, scatter: bool = False) -> Profile:
    """Draw a profile's points to their curves; one that is exact, or smoothed already, stays what it is.

    Errors are the profile's own. With ``scatter`` those of a profile that states none are how far its points
    scatter around smooth curves, alike for all. Curves also predict points at clocks of ``grid_mhz``
    that were not measured, with the errors that these have.

    Cost: about a second of CPU for 16 computations at 81 clocks.
    """
    curves = {key: profile.of(*key) for key, own in profile.points.items() if len(own) >= FEWEST_POINTS}
    if profile.errors or not curves:
        return profile
    stated = any(p.time_se_s > 0.0 or p.energy_se_j > 0.0 for own in curves.values() for p in own)
    shares = _stated_errors(curves) if stated else _scatter_shares(profile, curves) if scatter else None
    if shares is None and not profile.grid_mhz:
        return profile
    exact = {key: np.zeros(len(own)) for key, own in curves.items()}
    points = {key: _with_unmeasured_clocks(own, profile.grid_mhz) for key, own in curves.items()}
    known = {key: np.array([point in curves[key] for point in own]) for key, own in points.items()}

    def spread(measured: _Columns) -> dict[Computation, Floats]:
        """Return the errors of all points from those of the measured ones."""
        found = {key: np.full(len(own), UNKNOWN) for key, own in points.items()}
        for key, own in measured.items():
            found[key][known[key]] = own
        return found

    time_shares, energy_shares = map(spread, shares or (exact, exact))
    highest_mhz = max(profile.clocks_mhz)
    clock = {
        key: np.array([effective_clock_mhz(one) for one in own]) / highest_mhz for key, own in points.items()
    }
    time_s, energy_j = (
        {key: _column(own, name) for key, own in points.items()} for name in ("time_s", "energy_j")
    )
    fit = partial(fit_curves, clock, known_errors=stated or shares is None)
    cycles, _ = fit({key: own * clock[key] for key, own in time_s.items()}, time_shares, time_basis)
    smooth_s = {
        key: monotone(own.mean / clock[key], np.sqrt(np.diag(own.covariance)) / clock[key])
        for key, own in cycles.items()
    }
    # A job measures powers and multiplies them by durations: both are off alike. Others measure energies by
    # themselves. What makes the powers likelier is taken.
    powers, log = fit({key: own / smooth_s[key] for key, own in energy_j.items()}, energy_shares, power_basis)
    with_time = 0.0
    rest = {key: (energy_shares[key] ** 2 - time_shares[key] ** 2)[known[key]] for key in points}
    if fit.keywords["known_errors"] and min(float(own.mean()) for own in rest.values()) >= 0.0:
        alike = {key: np.where(known[key], np.sqrt(own.mean()), UNKNOWN) for key, own in rest.items()}
        both, log_both = fit({key: own / time_s[key] for key, own in energy_j.items()}, alike, power_basis)
        if log_both > log:
            powers, with_time = both, 1.0
    errors, moved = {}, {}
    for key, own in points.items():
        of_time, of_power = (
            one[key].covariance / np.outer(one[key].mean, one[key].mean) for one in (cycles, powers)
        )
        errors[key] = CurveErrors(_factor(of_time), _factor(of_power + with_time * of_time))
        smooth_j = powers[key].mean * smooth_s[key]
        se_s, se_j = (
            share * mean for share, mean in zip(errors[key].shares(), (smooth_s[key], smooth_j), strict=True)
        )
        rows = zip(own, *(column.tolist() for column in (smooth_s[key], smooth_j, se_s, se_j)), strict=True)
        moved[key] = tuple(
            replace(point, time_s=t, energy_j=e, time_se_s=t_se, energy_se_j=e_se)
            for point, t, e, t_se, e_se in rows
        )
    return replace(profile, points={**profile.points, **moved}, errors=errors)


def _stated_errors(curves: Mapping[Computation, Sequence[Point]]) -> tuple[_Columns, _Columns] | None:
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


def _column(points: Sequence[Point], name: str) -> Floats:
    return np.array([getattr(point, name) for point in points], np.float64)


def _factor(covariance: Floats) -> Floats:
    """Factor a covariance: standard normal numbers times the factor have it."""
    values, vectors = np.linalg.eigh(covariance)
    factor: Floats = vectors * np.sqrt(np.clip(values, 0.0, None))
    return factor


# Durations as they may really be, drawn by the errors of a profile: a point is off alike wherever it is run,
# and the points of one curve are off together.

LEAST_SHARE = 0.1
"""A drawn duration keeps at least that share."""


def time_factor(known: Profile, key: Computation, variation: float = 0.0) -> Floats:
    """Return the factor of the covariance of a computation's times, as shares of them.

    Points that were drawn to a curve are off together; others each by itself. Those that state no error are
    off as executions vary by ``variation``.

    Shape: [points, points], highest clock first.
    """
    if key in known.errors:
        return known.errors[key].time
    return np.diag([_error(point, variation) for point in known.of(*key)])


def sampled_ratios(time_s: Floats, factor: Floats, normal: Floats) -> Floats:
    """Return the ratios of drawn durations; those that never fall with the clock stay so.

    Shape: ``time_s`` [points], highest clock first; ``factor`` [points, points]; ``normal`` and the result
    [points, draws].
    """
    off = np.maximum(1.0 + factor @ normal, LEAST_SHARE)
    errors_s = time_s * np.sqrt((factor**2).sum(axis=1))
    if np.any(np.diff(time_s) < 0.0) or not errors_s.all():
        return off
    return isotonic_fit(time_s[:, None] * off, errors_s**-2.0) / time_s[:, None]


def _error(point: Point, variation: float) -> float:
    return point.time_se_s / point.time_s or variation / float(np.sqrt(point.samples))
