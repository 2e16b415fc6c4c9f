"""Solved plans in running order, the parts of split computations in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perseus_ds.plan.options import Options
from perseus_ds.plan.solving.problem import PlanProblem
from perseus_ds.plan.splits import Splits
from perseus_ds.solver import Plans

Matrix = NDArray[np.int64]


class Ordered(NamedTuple):
    """The options of every computation in running order, what it begins with in ``choice``.

    Shape: ``choice`` [plans, computations].
    """

    choice: NDArray[np.uint8] | NDArray[np.uint16]
    splits: Splits


def in_order(problem: PlanProblem, plans: Plans, *, ordered: bool) -> Ordered:
    """Reorder the solver's columns (nodes) into running order, computations only.

    ``ordered``: what ``choice`` names comes before ``other`` in time already. Else clocks change least often;
    but where loads vary the slower part comes first: what a long microbatch has more is done at the faster
    clock then.
    """
    columns = problem.columns
    first, rest, share = plans.choice[:, columns], plans.other[:, columns], plans.share[:, columns]
    if not ordered:
        turned = share < 1.0
        if not problem.load_variation:
            fast_mhz, slow_mhz = (clocks_mhz(problem, options) for options in (first, rest))
            turned &= slow_first(problem.ranks, fast_mhz, slow_mhz)
        first, rest, share = (
            np.where(turned, rest, first),
            np.where(turned, first, rest),
            np.where(turned, 1.0 - share, share),
        )
    choice, after = narrow(first), narrow(rest)
    return Ordered(choice, Splits.of(choice, after, share))


def clocks_mhz(problem: PlanProblem, options: NDArray[np.int32]) -> Matrix:
    """Clocks of options of all computations.

    Shape: [plans, computations], both.
    """
    nodes = problem.dag.nodes
    begins = {key: _begins_mhz(own) for key, own in problem.options.items()}
    own = [begins[nodes[c].stage, nodes[c].kind] for c in problem.columns]
    return np.column_stack([clock[options[:, column]] for column, clock in enumerate(own)])


def slow_first(ranks: Sequence[Sequence[int]], fast_mhz: Matrix, slow_mhz: Matrix) -> NDArray[np.bool_]:
    """Return where the slower part should come first, so that clocks change least often.

    Elsewhere the order makes no difference or is the other. Each rank's computations are passed once, both
    orders of each kept with the fewest changes up to it.

    Shape: ``ranks`` columns of each rank in running order; the others [plans, computations], also returned.
    Cost: linear in plans times computations.
    """
    turned = np.zeros(fast_mhz.shape, dtype=np.bool_)
    for columns in ranks:
        _order_rank(columns, fast_mhz, slow_mhz, turned)
    return turned


def _order_rank(columns: Sequence[int], fast: Matrix, slow: Matrix, turned: NDArray[np.bool_]) -> None:
    """Two ways through every computation: 0 begins fast and ends slow, 1 the other way round."""
    plans = np.arange(len(fast))
    changes = np.zeros((2, len(fast)), np.int64)
    came: list[NDArray[np.int64]] = []
    for place, column in enumerate(columns):
        begins = np.array([fast[:, column], slow[:, column]])
        if place:
            before = columns[place - 1]
            ended = np.array([slow[:, before], fast[:, before]])
            paths = changes[None] + (begins[:, None] != ended[None])
            came.append(paths.argmin(axis=1))
            changes = paths.min(axis=1)
        else:
            came.append(np.zeros_like(changes))
    way = changes.argmin(axis=0)
    for place in range(len(columns) - 1, -1, -1):
        turned[:, columns[place]] = way == 1
        way = came[place][way, plans]


def _begins_mhz(options: Options) -> NDArray[np.int64]:
    """The clock that each option begins with.

    Shape: [options].
    """
    return np.array([options.segments(option)[0].clock_mhz for option in range(len(options.time_s))])


def narrow(options: NDArray[np.int32] | NDArray[np.int64]) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Positions of options in the smallest type that holds them."""
    if options.max(initial=0) <= np.iinfo(np.uint8).max:
        return options.astype(np.uint8)
    return options.astype(np.uint16)
