"""A step is found in time, nothing is found where there is none; many seeds."""

import math
import random
from statistics import median

import pytest

from perseus_ds.profile.drift.cusum import LEARNING, CusumLevel, TwoSidedCusum

STEP, NOISE = 0.03, 0.02
FROM, MICROBATCHES = 400, 4


def delay(seed: int, *, step: float = STEP, series: int = 2, noise: float = NOISE) -> int:
    """Iterations until one of a stage's series is found to have left its level; -1: too early."""
    drawn, levels, at_most = random.Random(seed), [CusumLevel() for _ in range(series)], 200
    for index in range(FROM + at_most):
        now = 1.0 + (step if index >= FROM else 0.0)
        found = [level.observe(now * drawn.gauss(1.0, noise)) for level in levels]
        if any(found):
            return index - FROM + 1 if index >= FROM else -1
    return at_most + 1


@pytest.mark.thorough
def test_a_step_of_3_percent_is_found_within_20_iterations_at_2_percent_noise_of_computations() -> None:
    delays = [delay(seed, noise=NOISE / math.sqrt(2 * MICROBATCHES)) for seed in range(200)]
    assert min(delays) > 0
    assert max(delays) <= 20


@pytest.mark.thorough
def test_it_is_at_2_percent_noise_of_whole_iterations_in_time_and_energy() -> None:
    delays = [delay(seed) for seed in range(200)]
    assert min(delays) > 0
    assert median(delays) <= 12
    assert sum(one <= 20 for one in delays) >= 0.97 * len(delays)


@pytest.mark.thorough
def test_so_is_one_that_shows_in_one_series_alone_or_downwards() -> None:
    for step in (STEP, -STEP):
        delays = [delay(seed, step=step, series=1) for seed in range(200)]
        assert min(delays) > 0
        assert median(delays) <= 14
        assert sum(one <= 20 for one in delays) >= 0.87 * len(delays)
        assert max(delays) <= 45


@pytest.mark.thorough
def test_nothing_is_found_in_5000_iterations_where_nothing_changes() -> None:
    for seed in range(60):
        drawn, level = random.Random(seed), CusumLevel()
        assert not any(level.observe(drawn.gauss(3.0, 3.0 * NOISE)) for _ in range(5000)), seed


@pytest.mark.thorough
def test_numbers_of_three_iterations_find_a_step_as_soon_and_nothing_else() -> None:
    """Energy is known for 3 s at once: 50 iterations of 1.2 s it took where each number counted as one."""
    delays, noise = [], 0.01 / math.sqrt(3.0)
    for seed in range(100):
        drawn, level = random.Random(seed), CusumLevel(per=3)
        assert not any(level.observe(drawn.gauss(1.0, noise)) for _ in range(FROM)), seed
        found = (level.observe(1.03 * drawn.gauss(1.0, noise)) for _ in range(40))
        delays.append(3 * (1 + list(found).index(True)))
    assert median(delays) <= 15
    assert max(delays) <= 24
    for seed in range(10):
        drawn, level = random.Random(seed), CusumLevel(per=3)
        assert not any(level.observe(drawn.gauss(1.0, NOISE / math.sqrt(3.0))) for _ in range(5000)), seed


def test_noise_that_is_wider_widens_what_is_taken_for_a_drift() -> None:
    for seed in range(20):
        drawn, level = random.Random(seed), CusumLevel()
        assert not any(level.observe(drawn.gauss(1.0, 0.15)) for _ in range(3000)), seed
        assert 0.12 < level.noise < 0.18


def test_two_hiccups_are_no_drift() -> None:
    level = CusumLevel()
    for index in range(500):
        assert not level.observe(3.0 if index in {100, 101, 300} else 1.0)
    level = CusumLevel(per=15)
    for index in range(500):
        assert not level.observe(3.0 if index in {100, 101, 300} else 1.0)


def test_a_quiet_gpu_that_warms_up_by_1_percent_has_not_drifted() -> None:
    level = CusumLevel()
    assert not any(level.observe(1.0 + 0.01 * min(1.0, index / 300)) for index in range(5000))


def test_a_series_that_creeps_on_is_found_in_the_end() -> None:
    level = CusumLevel()
    assert any(level.observe(1.0 + 0.05 * index / 2000) for index in range(2000))


def test_nothing_is_judged_while_the_level_is_learned() -> None:
    level = CusumLevel()
    assert not any(level.observe(1.0 + 0.1 * (index % 2)) for index in range(LEARNING))


def test_a_sum_says_for_how_long_it_has_grown() -> None:
    sums = TwoSidedCusum()
    proofs = [sums.observe(one) for one in (-1.0, 0.0, 0.0, *[2.0] * 8)]
    assert proofs == [False] * 10 + [True]
    assert sums.lasted == 8
