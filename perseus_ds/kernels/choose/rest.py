"""What the rows that are still to come must cost at least: their relaxed problem, as a curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import allocating, inner
from perseus_ds.solver.problem import Floats, Ints


class HullSteps(NamedTuple):
    """The steps along the rows' hulls in one direction (slower or faster), cheapest second first.

    Shape: [steps]; ``layer`` is the row's place in the order in which rows are decided.
    """

    layer: Ints
    length_s: Floats
    price_w: Floats


class Curve(NamedTuple):
    """The least cost of ``length_s`` more time (or less), piecewise linear and convex.

    Shape: [steps + 1].
    """

    length_s: Floats
    cost_j: Floats


@allocating
def steps_of(spans: Ints, longer_s: Floats, reduced_j: Floats, sign: float) -> HullSteps:
    """Find the hull of each row's options on one side of its base, which costs and takes nothing."""
    layer = np.empty(len(longer_s), dtype=np.int64)
    length, price = np.empty(len(longer_s)), np.empty(len(longer_s))
    hull = np.empty(len(longer_s), dtype=np.int64)
    count = 0
    for row in range(len(spans)):
        size = _hull_of(hull, spans[row, 0], spans[row, 1], longer_s, reduced_j, sign)
        from_s = from_j = 0.0
        for place in range(size):
            one = hull[place]
            length[count] = sign * longer_s[one] - from_s
            layer[count] = row
            price[count] = (reduced_j[one] - from_j) / length[count]
            from_s, from_j = sign * longer_s[one], reduced_j[one]
            count += 1
    order = np.argsort(price[:count])
    return HullSteps(layer[order], length[order], price[order])


@allocating
def _hull_of(hull: Ints, low: int, high: int, longer_s: Floats, reduced_j: Floats, sign: float) -> int:  # noqa: PLR0917  # compiled
    """Write one row's options on the hull, the least time first; return how many."""
    size = 0
    for place in np.argsort(sign * longer_s[low:high]):
        one = low + place
        if sign * longer_s[one] <= 0.0:
            continue
        while size > 0:
            last = hull[size - 1]
            from_s = sign * longer_s[hull[size - 2]] if size > 1 else 0.0
            from_j = reduced_j[hull[size - 2]] if size > 1 else 0.0
            last_s = sign * longer_s[last]
            if sign * longer_s[one] == last_s and reduced_j[one] >= reduced_j[last]:
                break
            rise = (reduced_j[last] - from_j) * (sign * longer_s[one] - last_s)
            if rise < (reduced_j[one] - reduced_j[last]) * (last_s - from_s):
                break
            size -= 1
        if size == 0 or longer_s[hull[size - 1]] != longer_s[one]:
            hull[size] = one
            size += 1
    return size


@allocating
def curve_from(steps: HullSteps, layer: int, highest_w: float) -> Curve:
    """Take the steps of the rows from ``layer`` on, up to a price."""
    length, cost = np.zeros(len(steps.layer) + 1), np.zeros(len(steps.layer) + 1)
    size = 1
    for step in range(len(steps.layer)):
        if steps.price_w[step] >= highest_w:
            break
        if steps.layer[step] >= layer:
            length[size] = length[size - 1] + steps.length_s[step]
            cost[size] = cost[size - 1] + steps.length_s[step] * steps.price_w[step]
            size += 1
    return Curve(length[:size], cost[:size])


@inner
def cost_of(curve: Curve, length_s: float, beyond_w: float) -> float:
    """Read the curve; past its end every second costs ``beyond_w``."""
    at = int(np.searchsorted(curve.length_s, length_s))
    if at == len(curve.length_s):
        over_s = length_s - curve.length_s[-1]
        return float(curve.cost_j[-1] + (over_s * beyond_w if over_s > 0.0 else 0.0))
    if at == 0:
        return 0.0
    share = (length_s - curve.length_s[at - 1]) / (curve.length_s[at] - curve.length_s[at - 1])
    return float(curve.cost_j[at - 1] + share * (curve.cost_j[at] - curve.cost_j[at - 1]))
