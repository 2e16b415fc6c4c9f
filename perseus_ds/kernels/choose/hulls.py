"""The options that some price of time makes best: the lower-left hull of every row of a cost table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perseus_ds.solver.compiling.compiled import compiled
from perseus_ds.solver.problem import Floats, Ints


class Hulls(NamedTuple):
    """The steps along all rows' hulls, cheapest second first.

    Stretching ``row`` from option ``slower[i - 1]`` of its hull to the next saves ``price[i]`` joules per
    second. That is strictly less than the step before it in the same row.

    Shape: ``fastest`` [rows]; the others [steps].
    Units: watts.
    """

    fastest: Ints
    row: Ints
    slower: Ints
    price: Floats


def hulls_of(time_s: Floats, energy_j: Floats) -> Hulls:
    """Find the hull of every row; an option that does not exist takes for ever.

    Shape: [rows, options].
    Cost: O(options log options) for each row, and sorting all steps.
    Source: Andrew 1979, the monotone chain.
    """
    fastest, row, slower, price = _steps(time_s, energy_j)
    order = np.argsort(-price, kind="stable")
    return Hulls(fastest, row[order], slower[order], price[order])


@compiled
def _steps(time_s: Floats, energy_j: Floats) -> tuple[Ints, Ints, Ints, Floats]:
    rows, options = time_s.shape
    fastest = np.empty(rows, dtype=np.int64)
    row = np.empty(rows * options, dtype=np.int64)
    slower = np.empty(rows * options, dtype=np.int64)
    price = np.empty(rows * options)
    hull = np.empty(options, dtype=np.int64)
    steps = 0
    for item in range(rows):
        time, energy = time_s[item], energy_j[item]
        size = 0
        for option in np.argsort(time):
            if not np.isfinite(time[option]):
                break
            if size and energy[option] >= energy[hull[size - 1]]:
                continue
            if size and time[option] == time[hull[size - 1]]:
                size -= 1
            while size > 1:
                last, before = hull[size - 1], hull[size - 2]
                rise = (energy[before] - energy[last]) * (time[option] - time[last])
                if rise > (energy[last] - energy[option]) * (time[last] - time[before]):
                    break
                size -= 1
            hull[size] = option
            size += 1
        fastest[item] = hull[0]
        for place in range(1, size):
            last, option = hull[place - 1], hull[place]
            row[steps], slower[steps] = item, option
            price[steps] = (energy[last] - energy[option]) / (time[option] - time[last])
            steps += 1
    return fastest, row[:steps], slower[:steps], price[:steps]
