"""The physics of one computation on one GPU against its clock: time and power as sums of a few terms.

Time is ``a + b / f`` with a kink where memory or a power cap bounds it; power is ``P_s + c f v(f)^2``, v flat
below a knee. What the terms leave is for ``profile.regression``; where the kinks lie is averaged over.

Source: Schoonhoven et al., PMBS 2022 (arXiv 2211.07260), for power; the roofline for time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from perseus_ds.profile.curves.regression import Floats, MeasuredCurve, Misfit, Normal, after, log_evidence
from perseus_ds.profile.record import Computation

SMOOTH = (0.0, 0.001, 0.003, 0.01, 0.03)
"""Candidates for the smooth misfit; the measured curves decide, all of one quantity together."""
SINGLE = (0.0, 0.001, 0.003, 0.01)
"""The same for single points, where their errors are known: without these a misfit is taken for error."""
_TIME_KINKS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.93)
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


def time_ways(place: Floats) -> list[Normal]:
    """Ways to explain time multiplied by the clock: a line, or one that rises faster above a kink.

    Shape: ``place`` [points], clocks in parts of the highest.
    """
    low, span = place.min(), np.ptp(place)
    line = [np.ones_like(place), place - place.max()]
    kinks = [[np.maximum(place - (low + at * span), 0.0)] for at in _TIME_KINKS]
    return [_wide([*line, *kink]) for kink in [[], *kinks]]


def power_ways(place: Floats) -> list[Normal]:
    """Ways to explain power: static, in proportion to the clock, more above a knee, less above a cap.

    Shape: ``place`` [points], clocks in parts of the highest.
    """
    low, span = place.min(), np.ptp(place)
    ways = []
    for knee, cap in product(_KNEES, [None, *_CAPS]):
        above = np.maximum(place - (low + knee * span), 0.0) / span
        terms = [np.ones_like(place), place - place.max(), place * above, place * above**2]
        if cap is not None:
            terms.append(np.maximum(place - (low + cap * span), 0.0))
        ways.append(_wide(terms))
    return ways


def _wide(terms: Sequence[Floats]) -> Normal:
    """Weights of which nothing is known but that they are of the size of the values, which is 1."""
    return Normal.of_terms(np.column_stack(terms), [0.0] * len(terms), [1.0] * len(terms))


@dataclass(frozen=True, slots=True)
class Fitted:
    """Curves of one quantity after the measurement, and how likely their terms made what was measured."""

    curves: dict[Computation, Normal]
    log_evidence: float


def fitted(
    seen: Mapping[Computation, MeasuredCurve], ways: Callable[[Floats], list[Normal]], *, known_errors: bool
) -> Fitted:
    """Fit curves of one quantity: each by its terms, then by others of its kind at the same clocks."""
    levels = {key: float(one.values.mean()) for key, one in seen.items()}
    scaled = {key: one.over(levels[key]) for key, one in seen.items()}
    own = {key: ways(one.place) for key, one in scaled.items()}
    misfits, log = _likely_misfits(
        [(own[key], one) for key, one in scaled.items()], known_errors=known_errors
    )
    alone = {key: after(own[key], misfits, one) for key, one in scaled.items()}
    curves = {}
    for key, one in scaled.items():
        others = [
            other
            for other in seen
            if other != key and other[1] is key[1] and np.array_equal(seen[other].place, one.place)
        ]
        more = _like_others([alone[at].times(levels[at] / levels[key]) for at in others], one.place)
        curves[key] = after([*own[key], *more], misfits, one).times(levels[key])
    return Fitted(curves, log)


def _likely_misfits(
    curves: Sequence[tuple[Sequence[Normal], MeasuredCurve]], *, known_errors: bool
) -> tuple[dict[Misfit, float], float]:
    """By how much curves may depart from their terms, with weights, and the logarithm of the evidence."""
    some = [curves[round(at)] for at in np.linspace(0, len(curves) - 1, min(_DECIDE, len(curves)))]
    candidates = [Misfit(*both) for both in product(SMOOTH, SINGLE if known_errors else SINGLE[:1])]
    logs = np.array([sum(log_evidence(ways, one, seen) for ways, seen in some) for one in candidates])
    weights = np.exp(logs - logs.max())
    kept = {one: float(w) for one, w in zip(candidates, weights, strict=True) if w >= _UNLIKELY}
    return {one: weight / sum(kept.values()) for one, weight in kept.items()}, float(logs.max())


def _like_others(others: Sequence[Normal], place: Floats) -> Iterator[Normal]:
    """Ways to explain a curve by those of the other stages: their shape alone, or their level as well.

    Transformer layers are alike, so most stages are. A stage with more to do departs from the median level
    and is likelier under the shape alone, or under its own terms.
    """
    if not others:
        return
    heights = [float(one.mean.mean()) for one in others]
    usual = float(np.median(heights))
    shape = np.mean([one.mean / height for one, height in zip(others, heights, strict=True)], axis=0)
    covariance = np.mean(
        [one.times(1.0 / h).covariance for one, h in zip(others, heights, strict=True)], axis=0
    )
    centring = np.eye(len(place)) - 1.0 / len(place)
    of_shape = usual**2 * centring @ covariance @ centring / len(others)
    unsure = _MEDIAN * float(np.sqrt(covariance.mean() / len(others)))
    columns = usual * np.column_stack([shape, shape * (place - place.mean()) / np.ptp(place)])
    for tilt, apart in product(_TILTS, [1.0, *_LEVELS]):
        way = Normal.of_terms(columns, [1.0, 0.0], [float(np.hypot(apart, unsure)), tilt])
        yield Normal(way.mean, way.covariance + of_shape)
