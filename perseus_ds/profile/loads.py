"""Durations of a computation as a function of its load: a small regression with its errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from perseus_ds.files import MOST
from perseus_ds.schedule import Load

_Numbers = NDArray[np.float64]
NotNegative = Annotated[float, Field(ge=0.0, le=MOST)]

_TERMS = 3  # 1, tokens, squares
_FEWEST = 8
_ALIKE_WITHIN = 0.02
_ROUNDS = 3
_LEAST_SHARE = 0.05  # of the mean duration: what takes less weighs no more
_FAR = 8.0  # median deviations: over five standard deviations
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class LoadFit:
    """Relative duration = ``base`` + ``tokens`` t + ``squares`` q of one (stage, kind); 1 at ``mean``.

    t and q are a load's tokens and squares, each over those of the ``mean`` load that was seen. No
    coefficient is negative: more work never takes less time. ``scatter`` is the standard deviation of what
    the load leaves unexplained, in parts of the duration at that load. ``r2`` is the share of the variance
    that it explains, ``covariance`` that of the three coefficients.

    Shape: ``covariance`` [6], the upper triangle by rows.
    """

    mean: Load
    base: NotNegative
    tokens: NotNegative
    squares: NotNegative
    scatter: NotNegative
    r2: Annotated[float, Field(ge=0.0, le=1.0)]
    samples: Annotated[int, Field(ge=1)]
    covariance: tuple[float, float, float, float, float, float] = (0.0,) * 6

    def factor(self, load: Load, *, mean: Load | None = None) -> float:
        """Return the relative duration; ``mean`` is the mean load where another stage counted it."""
        one = mean or self.mean
        return (
            self.base
            + self.tokens * _share(load.tokens, one.tokens)
            + self.squares * _share(load.squares, one.squares)
        )

    def terms(self, mean: Load | None = None) -> tuple[float, float, float]:
        """Return what 1, a token and a square add to `factor`."""
        one = mean or self.mean
        return self.base, _share(self.tokens, one.tokens), _share(self.squares, one.squares)


@dataclass(frozen=True, slots=True, eq=False)
class LoadSums:
    """Sums over executions: as small for a million as for ten, and joined by adding.

    ``products`` are sums of the products of (1, tokens, squares, seconds). Each execution is weighted by one
    over its squared relative duration, since what takes longer scatters by more. ``plain`` are the sums of
    the four themselves. Hiccups of the host have no weight.

    Shape: ``products`` [4, 4], ``plain`` [4].
    """

    products: _Numbers
    plain: _Numbers

    @classmethod
    def of(cls, loads: Sequence[Load], seconds: Iterable[float]) -> LoadSums:
        """Take the executions of one window, all at one clock."""
        tokens, squares = (np.array([getattr(one, name) for one in loads]) for name in ("tokens", "squares"))
        rows = np.stack([np.ones(len(loads)), tokens, squares, np.array(list(seconds), np.float64)])
        weights = np.ones(len(loads))
        for _ in range(_ROUNDS if len(loads) >= _FEWEST else 0):
            weights = _weights(rows, weights)
        return cls((weights * rows) @ rows.T, rows.sum(axis=1))

    def __add__(self, other: LoadSums) -> LoadSums:
        return LoadSums(self.products + other.products, self.plain + other.plain)

    @property
    def samples(self) -> int:
        """Number of executions."""
        return round(float(self.plain[0]))

    @property
    def mean(self) -> Load:
        """The mean load."""
        count = max(1.0, float(self.plain[0]))
        return Load(float(self.plain[1]) / count, float(self.plain[2]) / count)

    @property
    def mean_s(self) -> float:
        """The mean duration."""
        return float(self.plain[3]) / max(1.0, float(self.plain[0]))

    def in_units_of(self, seconds: float) -> LoadSums:
        """Return the same with durations in another unit: windows at several clocks are joined that way."""
        unit = np.array([1.0, 1.0, 1.0, 1.0 / seconds])
        return LoadSums(self.products * np.outer(unit, unit), self.plain * unit)


@dataclass(frozen=True, slots=True, eq=False)
class NormalizedDurations:
    """Executions of one computation at one clock, brought to one load.

    ``factor`` are their durations as the load explains them, in parts of that at the load; ``sums`` are in
    units of the duration there. ``kept`` are the executions that were taken.

    Shape: ``seconds``, ``factor``, ``kept`` [executions taken].
    """

    seconds: _Numbers
    factor: _Numbers
    kept: NDArray[np.intp]
    sums: LoadSums | None


def normalized_to_load(
    seconds: _Numbers, loads: Sequence[Load | None], wanted: Load | None
) -> NormalizedDurations:
    """Bring durations to the load that is ``wanted``, by what they themselves show of it.

    Where they are too few or too alike for a fit, work is taken to be in proportion to its tokens. Executions
    whose load nobody counted are left out; where that is all of them they stand as they are.
    """
    known = [load for load in loads if load is not None]
    if wanted is None or not known or wanted.tokens <= 0.0:
        return NormalizedDurations(seconds, np.ones(len(seconds)), np.arange(len(seconds)), None)
    kept = np.flatnonzero([load is not None for load in loads])
    seconds = seconds[kept]
    sums = LoadSums.of(known, seconds)
    fit = fit_of(sums)
    if fit is None:
        tokens = np.array([load.tokens for load in known])
        factor = np.where(tokens > 0.0, tokens / wanted.tokens, 1.0)
    else:
        at = max(fit.factor(wanted), _LEAST_SHARE)
        factor = np.maximum([fit.factor(load) / at for load in known], _LEAST_SHARE)
    brought: _Numbers = seconds / factor
    unit_s = float(np.median(brought))
    return NormalizedDurations(brought, factor, kept, sums.in_units_of(unit_s) if unit_s > 0.0 else None)


def fit_of(sums: LoadSums) -> LoadFit | None:
    """Fit relative durations by non-negative least squares; None where loads are few or all alike.

    Three coefficients have seven sets that can be positive: each is solved, and the best that has no
    negative one is the answer.

    Cost: seven systems of at most three equations.
    """
    if sums.samples < _FEWEST or sums.mean_s <= 0.0 or not _differ(sums):
        return None
    mean = sums.mean
    scale = 1.0 / np.array([1.0, mean.tokens or 1.0, mean.squares or 1.0, sums.mean_s])
    products = sums.products * np.outer(scale, scale)
    unexplained, active, values = _best(products)
    coefficients = np.zeros(_TERMS)
    coefficients[active] = values
    level = float(coefficients.sum())
    variance = max(0.0, unexplained) / max(1, sums.samples - len(active)) / level**2
    covariance = np.zeros((_TERMS, _TERMS))
    covariance[np.ix_(active, active)] = variance * np.linalg.pinv(products[np.ix_(active, active)])
    base, tokens, squares = (coefficients / level).tolist()
    total = float(products[3, 3] - products[0, 3] ** 2 / products[0, 0])
    return LoadFit(
        mean=mean,
        base=base,
        tokens=tokens,
        squares=squares,
        scatter=float(np.sqrt(variance)),
        r2=float(np.clip(1.0 - unexplained / total, 0.0, 1.0)) if total > 0.0 else 0.0,
        samples=sums.samples,
        covariance=tuple(covariance[np.triu_indices(_TERMS)].tolist()),
    )


def _weights(rows: _Numbers, weights: _Numbers) -> _Numbers:
    """Weigh executions by a fit of them all; what lies far from it, as others do not, counts for nothing."""
    scale = 1.0 / np.maximum(rows.mean(axis=1), np.finfo(np.float64).tiny)
    scaled = rows * scale[:, None]
    _, active, values = _best((weights * scaled) @ scaled.T)
    fitted = np.maximum(values @ scaled[active], _LEAST_SHARE)
    off = np.abs(scaled[3] / fitted - np.median(scaled[3] / fitted))
    kept = off <= max(_FAR * float(np.median(off)), _ROUNDING)
    found: _Numbers = kept / fitted**2
    return found


def _best(products: _Numbers) -> tuple[float, list[int], _Numbers]:
    """Solve every set of coefficients without a negative one.

    Return what the best leaves unexplained, which coefficients it has, and their values.
    """
    found: list[tuple[float, list[int], _Numbers]] = []
    usable = [term for term in range(_TERMS) if products[term, term] > 0.0]
    for size in range(1, len(usable) + 1):
        for active in map(list, combinations(usable, size)):
            inner, right = products[np.ix_(active, active)], products[active, 3]
            values = np.linalg.lstsq(inner, right, rcond=None)[0].astype(np.float64)
            if (values >= 0.0).all():
                left = float(products[3, 3] - 2.0 * values @ right + values @ inner @ values)
                found.append((left, active, values))
    return min(found, key=lambda one: one[0])


def _differ(sums: LoadSums) -> bool:
    _, *means = (sums.products[0, :_TERMS] / sums.products[0, 0]).tolist()
    squares = np.diag(sums.products)[1:_TERMS] / sums.products[0, 0]
    return any(
        mean > 0.0 and square - mean**2 > (_ALIKE_WITHIN * mean) ** 2
        for mean, square in zip(means, squares.tolist(), strict=True)
    )


def _share(value: float, of: float) -> float:
    return value / of if of > 0.0 else 0.0


# Variation of sizes and durations: whether batches differ, and by how much.


def differ(sizes: _Numbers) -> bool:
    """Return whether samples are of more than one size; one that is not reported (0) states nothing."""
    return bool(len(sizes) > 1 and sizes.min() > 0 and sizes.max() > (1.0 + _ALIKE_WITHIN) * sizes.min())


def variation(sizes: _Numbers, microbatches: _Numbers) -> float:
    """Return the relative standard deviation of neighbouring sizes; 0 where they are unknown.

    Neighbours are of one iteration: there the number of the microbatch rises. What is alike for a whole
    iteration stretches all of it, and is not counted.
    """
    apart = np.diff(sizes)[np.diff(microbatches) > 0]
    if not differ(sizes) or not len(apart):
        return 0.0
    return float(np.sqrt((apart**2).mean() / 2.0) / sizes.mean())


def spread(values: _Numbers) -> float:
    """Return the width of the middle four fifths of some values, in parts of their median."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return float((high - low) / middle) if middle > 0 else 0.0


def log_normal(share: _Numbers | float, normal: _Numbers) -> _Numbers:
    """Turn standard normal draws into positive factors of mean 1 with a relative standard deviation."""
    width = np.sqrt(np.log1p(np.square(share)))
    drawn: _Numbers = np.exp(width * normal - width**2 / 2.0)
    return drawn
