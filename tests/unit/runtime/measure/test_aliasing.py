"""How many measurements share an error: by hand, and by a counter that looks for a quarter of its period."""

from collections import deque

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from perseus_ds.runtime.accounting import Sample, Side, Total, alike, robust_mean

PERIOD_S, LOOK_S = 0.1, 0.025
Numbers = NDArray[np.float64]
BLOCKS_OF_FOUR = np.array([True, False, False, False] * 2)


@pytest.mark.parametrize(
    ("lasts_s", "shared"),
    [
        (4.0, 4.0),  # 40 periods: all four of a block begin at one moment
        (4.05, 1.0),  # every other one at the opposite moment: 1 - 0.5 + 1 - 0.5
        (4.025, 1.0),  # at four moments, which cancel: a quarter, and no more than chance is counted on
    ],
)
def test_those_that_begin_at_one_moment_of_the_period_count_as_one(lasts_s: float, shared: float) -> None:
    assert alike(np.full(8, lasts_s), BLOCKS_OF_FOUR, PERIOD_S) == pytest.approx(shared)


def test_a_little_later_each_time_is_less_alike() -> None:
    """Two, 0.1 periods apart: 1 - 0.6 + 0.06 = 0.46 of the error is shared."""
    assert alike(np.full(2, 4.01), np.array([True, False]), PERIOD_S) == pytest.approx(1.46)


def test_a_counter_without_a_period_looks_always() -> None:
    assert alike(np.full(8, 4.0), BLOCKS_OF_FOUR, None) == 1.0
    assert alike(np.zeros(0), np.zeros(0, np.bool_), PERIOD_S) == 1.0


def total(energies_j: list[float], lasts_s: float) -> Total:
    """Two audits of four iterations each."""
    firsts = [10, 11, 12, 13, 70, 71, 72, 73]
    samples = (Sample(first, 1, lasts_s, one) for first, one in zip(firsts, energies_j, strict=True))
    return Total(8, deque(samples))


def test_two_audits_that_are_wrong_alike_are_two_measurements() -> None:
    """9 and 11 J: 10 +- 1 J, as of two values; of eight that were by chance it would be +- 0.38."""
    energies_j = [9.0] * 4 + [11.0] * 4
    found = {}
    for lasts_s in (4.0, 4.05):
        side = Side.of([total(energies_j, lasts_s)], [PERIOD_S])
        assert side is not None
        found[lasts_s] = side.measured()
    assert found[4.0].energy_se_j == pytest.approx(1.0)
    assert found[4.0].freedom == pytest.approx(1.0)
    assert found[4.0].time_freedom == pytest.approx(3.0)  # of time the middle half is kept: no counter's
    assert found[4.05].energy_se_j == pytest.approx((8 / (4 * 3)) ** 0.5)


def test_one_audit_that_may_be_wrong_as_a_whole_states_no_error() -> None:
    samples = deque(Sample(first, 1, 4.0, 9.0) for first in range(4))
    side = Side.of([Total(4, samples)], [PERIOD_S])
    assert side is not None
    assert side.measured().energy_se_j is None


BEFORE, AUDITED = 50, 8


def audited(lasts_s: float, draw: np.random.Generator) -> tuple[Numbers, Numbers, float]:
    """Energies and times of two audits as two GPUs' counters say, and the energy that is true on average.

    An iteration is eight times work at 300 W, which varies by half a percent, then a wait at 60 W.
    """
    iterations = 2 * (BEFORE + AUDITED)
    work_s = 0.7 * lasts_s / 8 * (1.0 + 0.005 * draw.standard_normal((iterations, 8)))
    parts_s = np.stack([work_s, np.full_like(work_s, 0.3 * lasts_s / 8)], axis=-1)
    edges_s = np.append(0.0, parts_s.ravel().cumsum())
    spent_j = np.append(0.0, (parts_s * [300.0, 60.0]).ravel().cumsum())
    ends_s = np.append(0.0, parts_s.sum(axis=(1, 2)).cumsum())
    seen_j = np.zeros(iterations)
    for _ in range(2):
        ticks_s = np.arange(PERIOD_S * draw.random(), ends_s[-1], PERIOD_S)
        looked_j = np.interp(ticks_s, edges_s, spent_j) - np.interp(ticks_s - LOOK_S, edges_s, spent_j)
        counter_j = (looked_j * PERIOD_S / LOOK_S).cumsum()
        seen_j += np.diff(np.interp(ends_s, ticks_s, counter_j))
    audits = np.arange(iterations) % (BEFORE + AUDITED) >= BEFORE
    return seen_j[audits], np.diff(ends_s)[audits], 2.0 * float(spent_j[-1]) / iterations


@pytest.mark.parametrize(("lasts_s", "by_chance"), [(4.0, 0.7), (4.003, 0.7), (4.033, 1.0)])
def test_the_error_covers_the_truth_also_near_a_multiple_of_the_period(
    lasts_s: float, by_chance: float
) -> None:
    """As if all were by chance, the error would hold in half of the cases."""
    draw, held = np.random.default_rng(1), {"alike": 0, "by chance": 0}
    begins = np.arange(2 * AUDITED) % AUDITED == 0
    for _ in range(200):
        energies_j, times_s, true_j = audited(lasts_s, draw)
        for name, counts in (("alike", alike(times_s, begins, PERIOD_S)), ("by chance", 1.0)):
            found = robust_mean(list(energies_j), alike=counts)
            within_j = stdtrit(max(1.0, found.freedom), 0.975) * found.se if found.freedom else np.inf
            held[name] += abs(found.mean - true_j) <= within_j
    assert held["alike"] >= 0.87 * 200
    assert held["by chance"] <= by_chance * 200
