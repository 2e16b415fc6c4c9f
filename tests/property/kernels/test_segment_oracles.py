"""Cutting a launch sequence: against every cut there is, and between its two ends."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perseus_ds.device.clock_change import DEFAULT_PAIR, ClockPair
from perseus_ds.kernels.choose import ChosenPairs, CostTable, Goal, choose
from perseus_ds.kernels.segment import Launches, segments_at, segments_within, timelines

eighths = st.integers(1, 40).map(lambda number: number / 8)


def costs_of(time_s: np.ndarray, energy_j: np.ndarray) -> CostTable:
    pairs = (DEFAULT_PAIR, *(ClockPair(9, 1 + mhz) for mhz in range(time_s.shape[1] - 1)))
    return CostTable(tuple(map(str, range(len(time_s)))), pairs, time_s, energy_j)


@st.composite
def sequences(draw: st.DrawFn) -> Launches:
    classes, pairs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    table = st.lists(st.lists(eighths, min_size=pairs, max_size=pairs), min_size=classes, max_size=classes)
    time_s, energy_j = np.array(draw(table)), np.array(draw(table))
    for row, column in draw(st.sets(st.tuples(st.integers(0, classes - 1), st.integers(1, 2)), max_size=1)):
        if column < pairs:
            time_s[row, column] = energy_j[row, column] = np.inf
    kernels = np.array(draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=6)))
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
    """46 kernels from compute- to memory-bound, launched in turn 20 times; 12 pairs."""
    random, classes = np.random.default_rng(0), 46
    seconds = 1e-3 * random.lognormal(0.0, 1.0, classes)[:, None]
    clock, memory = np.linspace(1.0, 0.3, 12), random.random(classes)[:, None]
    stretch = (1.0 - memory) / clock + memory
    power_w = 60.0 + 200.0 * clock**2.5 * (1.0 - 0.5 * memory)
    costs = costs_of(seconds * stretch, seconds * stretch * power_w)
    return Launches(np.tile(random.permutation(classes), 20), costs, latency_s)


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
