"""The physics of one computation on one GPU against its clock: time and power as sums of a few terms.

Time is ``a + b / f`` with a kink where memory or a power cap bounds it; power is ``P_s + c f v(f)^2``, v flat
below a knee. What the terms leave is for ``profile.regression``; where the kinks lie is averaged over.

Source: Schoonhoven et al., PMBS 2022 (arXiv 2211.07260), for power; the roofline for time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from perseus_ds.profile.curves.regression import (
    Explained,
    Floats,
    MeasuredCurve,
    Misfit,
    Normal,
    Ways,
    after,
    log_evidence,
)
from perseus_ds.profile.record import Computation

SMOOTH = (0.0, 0.001, 0.003, 0.01, 0.03)
"""Candidates for the smooth misfit; the measured curves decide, all of one quantity together."""
SINGLE = (0.0, 0.001, 0.003, 0.01)
"""The same for single points, where their errors are known: without these a misfit is taken for error."""
_TIME_KINKS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.93)
_TIME_HELD = tuple(0.5 + 0.03 * at for at in range(17))
_POWER_HELD = tuple(0.5 + 0.04 * at for at in range(13))
_KNEES = (0.0, 0.15, 0.3, 0.45, 0.6)
_CAPS = (0.65, 0.8, 0.9)
_LEVELS = (0.001, 0.004, 0.015)
_TILTS = (0.001, 0.01)
_DECIDE = 6
"""So many curves decide on the misfit: more agree and cost time."""
_UNLIKELY = 0.1
"""Of the likeliest misfit: what is less likely is left out."""
_MEDIAN = 1.2533
"""Standard error of a median over that of a mean, of normal values."""


def time_ways(place: Floats) -> Ways:
    """Ways to explain time multiplied by the clock: a line, one that rises faster above a kink, or a cap.

    Under a power cap all clocks above the one that is held take as long as that.

    Shape: ``place`` [points], clocks in parts of the highest.
    """
    low, span = place.min(), np.ptp(place)
    line = [np.ones_like(place), place - place.max()]
    kinks = [[*line, np.maximum(place - (low + at * span), 0.0)] for at in _TIME_KINKS]
    held = [low + at * span for at in _TIME_HELD]
    capped = [[np.maximum(place / at, 1.0), np.minimum(place - at, 0.0)] for at in held]
    return Ways.of_terms([line, *kinks, *capped])


def power_ways(place: Floats) -> Ways:
    """Ways to explain power: static, in proportion to the clock, more above a knee, less or none above a cap.

    Shape: ``place`` [points], clocks in parts of the highest.
    """
    low, span = place.min(), np.ptp(place)

    def terms(at: Floats, knee: float) -> list[Floats]:
        above = np.maximum(at - (low + knee * span), 0.0) / span
        return [np.ones_like(at), at - at.max(), at * above, at * above**2]

    bent = [
        [*terms(place, knee), np.maximum(place - (low + cap * span), 0.0)]
        for knee, cap in product(_KNEES, _CAPS)
    ]
    held = [terms(np.minimum(place, low + at * span), knee) for knee, at in product(_KNEES, _POWER_HELD)]
    return Ways.of_terms([*(terms(place, knee) for knee in _KNEES), *bent, *held])


@dataclass(frozen=True, slots=True)
class Fitted:
    """Curves of one quantity after the measurement, and how likely their terms made what was measured."""

    curves: dict[Computation, Normal]
    log_evidence: float


def fitted(
    seen: Mapping[Computation, MeasuredCurve], ways: Callable[[Floats], Ways], *, known_errors: bool
) -> Fitted:
    """Fit curves of one quantity: each by its terms, or by others of its kind at the same clocks."""
    levels = {key: float(one.values.mean()) for key, one in seen.items()}
    scaled = {key: one.over(levels[key]) for key, one in seen.items()}
    own = {key: ways(one.place) for key, one in scaled.items()}
    misfits, log = _likely_misfits(
        [(own[key], one) for key, one in scaled.items()], known_errors=known_errors
    )
    alone = {key: after([Explained(own[key], misfits)], one) for key, one in scaled.items()}
    others = {key: [at for at in seen if _is_other(at, key, seen)] for key in seen}
    means = {key: _mean_curve([scaled[at] for at in own]) for key, own in others.items() if own}
    of_means, _ = _likely_misfits([(own[key], one) for key, one in means.items()], known_errors=known_errors)
    alike = {
        key: _like_others(
            after([Explained(own[key], of_means)], one),
            [alone[at].times(levels[at] / levels[key]) for at in others[key]],
            one.place,
        )
        for key, one in means.items()
    }
    left, _ = _likely_misfits([(one, scaled[key]) for key, one in alike.items()], known_errors=known_errors)
    curves = {}
    for key, one in scaled.items():
        groups = [Explained(own[key], misfits)]
        groups += [Explained(alike[key], left)] if key in alike else []
        curves[key] = after(groups, one).times(levels[key])
    return Fitted(curves, log)


def _is_other(one: Computation, key: Computation, seen: Mapping[Computation, MeasuredCurve]) -> bool:
    """Whether one is of the same kind, at the same clocks."""
    return one != key and one[1] is key[1] and np.array_equal(seen[one].place, seen[key].place)


def _mean_curve(curves: Sequence[MeasuredCurve]) -> MeasuredCurve:
    """The mean of curves at the same clocks: what they have in common is known better than of one."""
    values, errors = (np.array([getattr(one, name) for one in curves]) for name in ("values", "errors"))
    return MeasuredCurve(curves[0].place, values.mean(axis=0), np.sqrt((errors**2).sum(axis=0)) / len(curves))


def _likely_misfits(
    curves: Sequence[tuple[Ways, MeasuredCurve]], *, known_errors: bool
) -> tuple[dict[Misfit, float], float]:
    """By how much curves may depart from their ways, with weights, and the logarithm of the evidence."""
    if not curves:
        return {}, 0.0
    some = [curves[round(at)] for at in np.linspace(0, len(curves) - 1, min(_DECIDE, len(curves)))]
    candidates = [Misfit(*both) for both in product(SMOOTH, SINGLE if known_errors else SINGLE[:1])]
    logs = np.sum([log_evidence(ways, candidates, seen) for ways, seen in some], axis=0)
    weights = np.exp(logs - logs.max())
    kept = {one: float(w) for one, w in zip(candidates, weights, strict=True) if w >= _UNLIKELY}
    return {one: weight / sum(kept.values()) for one, weight in kept.items()}, float(logs.max())


def _like_others(mean: Normal, others: Sequence[Normal], place: Floats) -> Ways:
    """Ways to explain a curve by those of the other stages: their shape alone, or their level as well.

    Transformer layers are alike, so most stages are. A stage with more to do departs from the median level
    and is likelier under the shape alone, or under its own terms.

    ``mean`` is the others' mean curve, fitted in any unit; ``others`` is each by itself.
    """
    heights = [float(one.mean.mean()) for one in others]
    usual, height = float(np.median(heights)), float(mean.mean.mean())
    shape = mean.mean / height
    centring = np.eye(len(place)) - 1.0 / len(place)
    of_shape = (usual / height) ** 2 * centring @ mean.covariance @ centring
    covariance = np.mean([one.covariance.mean() / h**2 for one, h in zip(others, heights, strict=True)])
    unsure = _MEDIAN * float(np.sqrt(covariance / len(others)))
    columns = usual * np.column_stack([shape, shape * (place - place.mean()) / np.ptp(place)])
    scales = [(float(np.hypot(apart, unsure)), tilt) for tilt, apart in product(_TILTS, [1.0, *_LEVELS])]
    return Ways(
        np.broadcast_to(columns, (len(scales), *columns.shape)),
        np.tile([1.0, 0.0], (len(scales), 1)),
        np.array(scales),
        of_shape,
    )
