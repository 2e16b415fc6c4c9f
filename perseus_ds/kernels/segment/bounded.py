"""The runs of least energy within a time: a search for the price of time, and one splice to use the rest."""

from __future__ import annotations

import numpy as np

from perseus_ds.errors import InfeasibleError
from perseus_ds.kernels.choose.choose import least_energy
from perseus_ds.kernels.segment.dynamic import cheapest_runs
from perseus_ds.kernels.segment.runs import Runs, Sequence
from perseus_ds.solver.problem import Floats, Ints

_MOST_PRICES = 40


def runs_at(sequence: Sequence, price_w: float) -> Runs:
    """Cut so that energy plus price of time is least, changes and all.

    Units: watts.
    """
    costs, change = sequence.costs, sequence.change
    finite_s = np.where(np.isfinite(costs.time_s), costs.time_s, 0.0)
    starts, option = cheapest_runs(
        sequence.kernels,
        costs.energy_j + price_w * finite_s,
        costs.time_s,
        change.change.stall_s * (change.stall_w + price_w),
        change.shortest_run_s,
    )
    return sequence.runs(starts, option)


def runs_within(sequence: Sequence, budget_s: float) -> Runs:
    """Cut so that energy is least and the whole takes ``budget_s`` at most.

    Never worse than the best single pair, nor, where changes allow it, than a pair for each class. The
    bound is the best Lagrangian one.

    Raises:
        InfeasibleError: no single pair fits.
    Cost: about ten passes over the sequence.
    """
    budget_s *= 1.0 + len(sequence.kernels) * float(np.finfo(float).eps)
    best = fast = _best_single(sequence, budget_s)
    slow = runs_at(sequence, 0.0)
    if slow.time_s <= budget_s:
        return sequence.runs(slow.starts, slow.option, slow.energy_j)
    bound_j = slow.energy_j
    for _ in range(_MOST_PRICES):
        price_w = (fast.energy_j - slow.energy_j) / (slow.time_s - fast.time_s)
        found = runs_at(sequence, price_w)
        value_j = found.energy_j + price_w * found.time_s
        bound_j = max(bound_j, value_j - price_w * budget_s)
        if value_j >= (fast.energy_j + price_w * fast.time_s) * (1.0 - 1e-12):
            break
        if found.time_s <= budget_s:
            fast = found
            best = min(best, found, key=_energy)
        else:
            slow = found
    others = [_by_class(sequence, budget_s), *_spliced(sequence, fast, slow, budget_s)]
    best = min([best, *(one for one in others if _fits(sequence, one, budget_s))], key=_energy)
    return sequence.runs(best.starts, best.option, min(bound_j, best.energy_j))


def _energy(runs: Runs) -> float:
    return runs.energy_j


def _fits(sequence: Sequence, runs: Runs, budget_s: float) -> bool:
    return runs.time_s <= budget_s and sequence.lasts(runs)


def _best_single(sequence: Sequence, budget_s: float) -> Runs:
    zero = np.zeros(1, dtype=np.int64)
    every = [sequence.runs(zero, np.array([pair])) for pair in range(len(sequence.costs.pairs))]
    fitting = [one for one in every if one.time_s <= budget_s]
    if not fitting:
        least_s = min(one.time_s for one in every)
        raise InfeasibleError(f"at one pair of clocks it takes {least_s:g} s, more than {budget_s:g} s")
    return min(fitting, key=_energy)


def _by_class(sequence: Sequence, budget_s: float) -> Runs:
    """The knapsack's choice, one pair for each class, launched as it is."""
    kernels, counts = np.unique(sequence.kernels, return_counts=True)
    time_s, energy_j = (
        values[kernels] * counts[:, None] for values in (sequence.costs.time_s, sequence.costs.energy_j)
    )
    option = np.zeros(len(sequence.costs.time_s), dtype=np.int64)
    option[kernels], _ = least_energy(time_s, energy_j, budget_s)
    return sequence.runs_of(option[sequence.kernels])


def _spliced(sequence: Sequence, fast: Runs, slow: Runs, budget_s: float) -> list[Runs]:
    """One beginning and the other's end: cut where energy is least within the time."""
    launches = len(sequence.kernels)
    first, second = fast.per_launch(launches), slow.per_launch(launches)
    return [
        one
        for head, tail in ((first, second), (second, first))
        for one in _cuts(sequence, head, tail, budget_s)
    ]


_CUTS_TRIED = 64


def _cuts(sequence: Sequence, head: Ints, tail: Ints, budget_s: float) -> list[Runs]:
    """The most promising cuts; stalls and short runs are checked by whoever takes one."""
    costs, kernels = sequence.costs, sequence.kernels
    time_s, energy_j = (
        _sum_to(values[kernels, head]) + _sum_from(values[kernels, tail])
        for values in (costs.time_s, costs.energy_j)
    )
    order = np.argsort(np.where(time_s <= budget_s, energy_j, np.inf), kind="stable")[:_CUTS_TRIED]
    fitting = order[time_s[order] <= budget_s]
    return [sequence.runs_of(np.append(head[:cut], tail[cut:])) for cut in fitting.tolist()]


def _sum_to(values: Floats) -> Floats:
    return np.append(0.0, np.cumsum(values))


def _sum_from(values: Floats) -> Floats:
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
