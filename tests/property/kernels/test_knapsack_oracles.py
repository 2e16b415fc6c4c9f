"""The kernel choice against brute force and a mixed-integer program."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import InfeasibleError
from perseus_ds.kernels.choose import EDP, GAP, CostTable, Goal, Scope, choose, least_energy
from perseus_ds.solver.problem import Floats

# Sixteenths add up without rounding, so that ties and exact fits are what they look like.
sixteenths = st.integers(1, 400).map(lambda number: number / 16)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, Floats]:
    rows, options = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    values = st.lists(
        st.lists(sixteenths, min_size=options, max_size=options), min_size=rows, max_size=rows
    ).map(np.array)
    time_s, energy_j = draw(values), draw(values)
    missing = draw(st.sets(st.tuples(st.integers(0, rows - 1), st.integers(0, options - 1)), max_size=4))
    for row, option in missing:
        if option:
            time_s[row, option] = energy_j[row, option] = np.inf
    return time_s, energy_j


def sums(time_s: Floats, energy_j: Floats) -> list[tuple[float, float]]:
    """Time and energy of every choice there is."""
    rows, options = time_s.shape
    each = np.arange(rows)[:, None], np.indices((options,) * rows).reshape(rows, -1)
    return list(zip(time_s[each].sum(axis=0).tolist(), energy_j[each].sum(axis=0).tolist(), strict=True))


@pytest.mark.slow
@given(table=tables(), share=st.integers(0, 16))
def test_no_choice_of_all_is_better(table: tuple[Floats, Floats], share: int) -> None:
    time_s, energy_j = table
    fastest = time_s.min(axis=1).sum()
    slowest = np.where(np.isfinite(time_s), time_s, 0).max(axis=1).sum()
    budget_s = fastest + share / 16 * (slowest - fastest)
    option, bound_j = least_energy(time_s, energy_j, budget_s)
    rows = np.arange(len(time_s))
    least_j = min(e for t, e in sums(time_s, energy_j) if t <= budget_s)
    assert time_s[rows, option].sum() <= budget_s
    assert bound_j * (1 - 1e-9) <= least_j <= energy_j[rows, option].sum() <= least_j * (1 + GAP)


def costs_of(time_s: Floats, energy_j: Floats) -> CostTable:
    pairs = (DEFAULT_PAIR, *(ClockPair(1, mhz + 1) for mhz in range(time_s.shape[1] - 1)))
    return CostTable(("",) * len(time_s), pairs, time_s, energy_j)


@given(table=tables())
def test_the_product_is_the_least_of_all(table: tuple[Floats, Floats]) -> None:
    chosen = choose(costs_of(*table), EDP)
    assert chosen.time_s * chosen.energy_j == min(t * e for t, e in sums(*table))


@given(table=tables(), tau=st.integers(0, 8))
def test_a_local_choice_keeps_the_bound_in_every_row_and_a_global_one_is_no_worse(
    table: tuple[Floats, Floats], tau: int
) -> None:
    costs, goal = costs_of(*table), Goal(tau / 8)
    local, overall = choose(costs, goal, Scope.LOCAL), choose(costs, goal)
    rows = np.arange(len(local.option))
    assert (costs.time_s[rows, local.option] <= (1 + tau / 8) * costs.time_s[:, 0]).all()
    assert overall.energy_j <= local.energy_j
    assert overall.time_s <= (1 + tau / 8) * costs.time_s[:, 0].sum()


def kernel_like(rows: int, options: int, seed: int) -> tuple[Floats, Floats]:
    """Kernels from compute- to memory-bound over clocks, launches of very different length, 1 % noise."""
    random = np.random.default_rng(seed)
    seconds = random.lognormal(0.0, 1.5, rows)[:, None]
    clock, memory = np.linspace(1.0, 0.1, options), random.random(rows)[:, None]
    stretch = (1.0 - memory) / clock + memory
    noise = 1.0 + 0.01 * random.standard_normal((2, rows, options))
    power_w = 60.0 + 140.0 * clock**2.5 * (1.0 - 0.5 * memory)
    return seconds * stretch * noise[0], seconds * stretch * power_w * noise[1]


def by_milp(time_s: Floats, energy_j: Floats, budget_s: float) -> float:
    rows, options = time_s.shape
    columns = np.arange(rows * options)
    one_each = csr_matrix((np.ones(rows * options), (np.repeat(np.arange(rows), options), columns)))
    solved = milp(
        energy_j.ravel(),
        integrality=np.ones(rows * options),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(one_each, 1, 1),
            LinearConstraint(csr_matrix(time_s.ravel()[None]), -np.inf, budget_s),
        ],
        options={"mip_rel_gap": 1e-6},
    )
    assert solved.status == 0
    return float(solved.fun)


@pytest.mark.parametrize(("rows", "seed"), [(46, 0), (46, 1), (46, 2), (120, 3)])
@pytest.mark.parametrize("tau", [0.0, 0.1])
def test_as_good_as_a_mixed_integer_program(rows: int, seed: int, tau: float) -> None:
    time_s, energy_j = kernel_like(rows, 40, seed)
    budget_s = (1.0 + tau) * time_s[:, 0].sum()
    option, bound_j = least_energy(time_s, energy_j, budget_s)
    best_j, found_j = by_milp(time_s, energy_j, budget_s), energy_j[np.arange(rows), option].sum()
    assert bound_j * (1 - 1e-9) <= best_j
    assert found_j <= best_j * (1 + GAP)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InfeasibleError, match=r"2 s,.*1 s"):
        least_energy(np.array([[2.0, 3.0]]), np.array([[1.0, 0.5]]), 1.0)
