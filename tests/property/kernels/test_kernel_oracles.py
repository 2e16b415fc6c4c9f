"""Choices per kernel and cuts of launch sequences: against all there are, and a mixed-integer program."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.errors import InfeasibleError
from perseus_ds.kernels.choose import EDP, GAP, ChosenPairs, CostTable, Goal, Scope, choose, least_energy
from perseus_ds.kernels.segment import Launches, segments_at, segments_within, timelines
from perseus_ds.solver.problem import Floats

# Sixteenths add up without rounding, so that ties and exact fits are what they look like.
sixteenths = st.integers(1, 80).map(lambda number: number / 16)


@st.composite
def tables(draw: st.DrawFn, most: int = 5) -> tuple[Floats, Floats]:
    """Time and energy of at most so many rows at as many pairs; not every row runs at each."""
    rows, options = draw(st.integers(1, most)), draw(st.integers(1, most))
    values = st.lists(
        st.lists(sixteenths, min_size=options, max_size=options), min_size=rows, max_size=rows
    ).map(np.array)
    time_s, energy_j = draw(values), draw(values)
    missing = draw(st.sets(st.tuples(st.integers(0, rows - 1), st.integers(0, options - 1)), max_size=4))
    for row, option in missing:
        if option:
            time_s[row, option] = energy_j[row, option] = np.inf
    return time_s, energy_j


def costs_of(time_s: Floats, energy_j: Floats) -> CostTable:
    pairs = (DEFAULT_PAIR, *(ClockPair(9, 1 + mhz) for mhz in range(time_s.shape[1] - 1)))
    return CostTable(tuple(map(str, range(len(time_s)))), pairs, time_s, energy_j)


def kernel_like(rows: int, options: int, seed: int, noise: float = 0.01) -> tuple[Floats, Floats]:
    """Kernels from compute- to memory-bound over clocks, launches of very different length."""
    random = np.random.default_rng(seed)
    seconds = random.lognormal(0.0, 1.5, rows)[:, None]
    clock, memory = np.linspace(1.0, 0.1, options), random.random(rows)[:, None]
    stretch = (1.0 - memory) / clock + memory
    off = 1.0 + noise * random.standard_normal((2, rows, options))
    power_w = 60.0 + 140.0 * clock**2.5 * (1.0 - 0.5 * memory)
    return seconds * stretch * off[0], seconds * stretch * power_w * off[1]


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


def by_milp(time_s: Floats, energy_j: Floats, budget_s: float) -> float:
    rows, options = time_s.shape
    one_each = LinearConstraint(np.kron(np.eye(rows), np.ones(options)), 1, 1)
    solved = milp(
        energy_j.ravel(),
        integrality=np.ones(rows * options),
        bounds=Bounds(0, 1),
        constraints=[one_each, LinearConstraint(time_s.ravel(), -np.inf, budget_s)],
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


# Launch sequences, cut where a change of clocks is worth its latency.


@st.composite
def sequences(draw: st.DrawFn) -> Launches:
    time_s, energy_j = draw(tables(3))
    kernels = np.array(draw(st.lists(st.integers(0, len(time_s) - 1), min_size=1, max_size=6)))
    return Launches(kernels, costs_of(time_s, energy_j), draw(st.sampled_from([0.0, 2.0, 3.0, 6.0])))


def every_cut(sequence: Launches) -> list[tuple[float, float]]:
    """Time and energy of every allowed way, by brute force."""
    found = []
    for option in product(range(len(sequence.costs.pairs)), repeat=len(sequence.kernels)):
        segments = sequence.segments(np.array(option))
        if np.isfinite(segments.time_s) and sequence.are_held(segments):
            found.append((segments.time_s, segments.energy_j))
    return found


@given(sequence=sequences(), price_w=st.integers(0, 32).map(lambda number: number / 8))
def test_no_cut_of_all_is_cheaper_at_a_price(sequence: Launches, price_w: float) -> None:
    segments = segments_at(sequence, price_w)
    assert sequence.are_held(segments)
    assert segments.energy_j + price_w * segments.time_s == min(
        e + price_w * t for t, e in every_cut(sequence)
    )


@pytest.mark.slow
@given(sequence=sequences(), tau=st.integers(0, 8))
def test_within_a_time_the_bound_holds_and_no_single_pair_is_better(sequence: Launches, tau: int) -> None:
    budget_s = (1 + tau / 8) * sequence.at_default.time_s
    segments = segments_within(sequence, budget_s)
    fitting = [energy for time, energy in every_cut(sequence) if time <= budget_s]
    assert sequence.are_held(segments)
    assert segments.time_s <= budget_s
    assert segments.bound_j <= min(fitting) + 1e-9
    assert min(fitting) <= segments.energy_j
    single = [
        (sequence.costs.time_s[sequence.kernels, p].sum(), sequence.costs.energy_j[sequence.kernels, p].sum())
        for p in range(len(sequence.costs.pairs))
    ]
    assert segments.energy_j <= min(energy for time, energy in single if time <= budget_s)


@given(sequence=sequences())
def test_timelines_fall_and_each_is_on_the_lower_hull_of_all_cuts(sequence: Launches) -> None:
    found = timelines(sequence)
    assert all(a.time_s < b.time_s and a.energy_j > b.energy_j for a, b in pairwise(found))
    cuts = every_cut(sequence)
    assert found[-1].energy_j == min(energy for _, energy in cuts)
    assert found[0].time_s == min(time for time, _ in cuts)
    for one in found:
        assert (one.time_s, one.energy_j) in cuts
        assert one.steps[0].offset_s == 0.0


def launched(latency_s: float = 0.0) -> Launches:
    """46 kernels of some milliseconds, launched in turn 20 times; 12 pairs."""
    time_s, energy_j = kernel_like(46, 12, 0, noise=0.0)
    turn = np.random.default_rng(0).permutation(46)
    return Launches(np.tile(turn, 20), costs_of(1e-3 * time_s, 1e-3 * energy_j), latency_s)


def test_free_changes_give_the_choice_per_kernel() -> None:
    sequence = launched()
    counts = np.bincount(sequence.kernels)[:, None]
    table = CostTable(
        tuple(map(str, range(46))),
        sequence.costs.pairs,
        counts * sequence.costs.time_s,
        counts * sequence.costs.energy_j,
    )
    for price_w in (0.0, 50.0, 200.0):
        cheapest = np.argmin(table.energy_j + price_w * table.time_s, axis=1)
        per_kernel, segments = ChosenPairs(table, cheapest, 0.0), segments_at(sequence, price_w)
        assert segments.energy_j == pytest.approx(per_kernel.energy_j, rel=1e-12)
        assert segments.time_s == pytest.approx(per_kernel.time_s, rel=1e-12)
    chosen, segments = choose(table, Goal()), segments_within(sequence, sequence.at_default.time_s)
    assert segments.bound_j <= segments.energy_j
    assert segments.energy_j == pytest.approx(chosen.energy_j, rel=1e-4)


def test_dear_changes_give_the_best_single_pair_and_those_between_lie_between() -> None:
    sequence = launched()
    budget_s = 1.05 * sequence.at_default.time_s
    energy = [
        segments_within(launched(latency_s), budget_s).energy_j
        for latency_s in (0.0, 1e-3, 4e-3, 16e-3, 64e-3, 1e3)
    ]
    assert all(before <= after * (1 + 1e-6) for before, after in pairwise(energy))
    time_s = sequence.costs.time_s[sequence.kernels].sum(axis=0)
    energy_j = sequence.costs.energy_j[sequence.kernels].sum(axis=0)
    assert energy[-1] == pytest.approx(energy_j[time_s <= budget_s].min(), rel=1e-12)
    assert energy[0] < energy[2] < energy[-1]


@pytest.mark.parametrize("latency_s", [0.0, 2e-3, 10e-3, 40e-3])
def test_a_request_that_goes_out_ahead_is_in_force_when_its_segment_begins(latency_s: float) -> None:
    """Each segment lasts longer than a request takes, so that none goes out before the segment before it."""
    sequence = launched(latency_s)
    segments = segments_within(sequence, 1.02 * sequence.at_default.time_s)
    chosen = sequence.kernels, segments.per_launch
    lasts_s = sequence.costs.time_s[chosen]
    assert segments.time_s == pytest.approx(lasts_s.sum(), rel=1e-9)
    assert segments.energy_j == pytest.approx(sequence.costs.energy_j[chosen].sum(), rel=1e-9)
    ends_s = np.cumsum(lasts_s)[np.append(segments.starts[1:] - 1, -1)]
    assert np.diff(ends_s, prepend=0.0).min() >= latency_s * (1 - 1e-9)


def test_a_class_that_only_runs_at_the_default_pair_is_never_in_another_run() -> None:
    sequence = launched()
    sequence.costs.time_s[7, 1:] = np.inf
    segments = segments_within(sequence, 1.1 * sequence.at_default.time_s)
    assert set(segments.per_launch[sequence.kernels == 7].tolist()) == {0}
