"""How slow a replica is, iteration by iteration: hiccups are dropped, changes confirmed, drifts led."""

import numpy as np
import pytest

from perseus_ds.straggler.estimate import SlowdownEstimate


def watch(estimate: SlowdownEstimate, ratio: np.ndarray) -> bool:
    """Tell one iteration's ratios of all replicas; nobody is waited for."""
    return estimate.observe(ratio, awaited=np.zeros(len(ratio), bool), review_every=16)


def feed(estimate: SlowdownEstimate, *ratios: float) -> list[bool]:
    """The first replica keeps its promises; the second takes these ratios, one an iteration."""
    return [watch(estimate, np.array([1.0, ratio])) for ratio in ratios]


def test_a_silent_profile_leaves_all_open_for_half_a_window_which_is_the_baseline_from_then_on() -> None:
    estimate = SlowdownEstimate(2, float("nan"))
    feed(estimate, 1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0)
    assert np.isinf(estimate.error).all()
    feed(estimate, 1.01)
    assert np.isfinite(estimate.error).all()
    feed(estimate, 1.3, 1.3)
    assert estimate.alarm.tolist() == [False, True]


def test_an_unknown_iteration_in_between_neither_confirms_nor_forgives() -> None:
    estimate = SlowdownEstimate(2, 0.01)
    feed(estimate, *[1.0] * 17)
    assert feed(estimate, 1.3, np.nan, 0.0, np.inf, 1.32)[-1]
    assert estimate.level[1] == 1.3
    assert estimate.alarm.tolist() == [False, True]


@pytest.mark.parametrize(("before", "after", "drift"), [(1.018, 1.0, 1.0 / 1.018 - 1.0), (1.0, 1.018, 0.0)])
def test_one_that_becomes_faster_is_led_a_slower_one_not(before: float, after: float, drift: float) -> None:
    estimate = SlowdownEstimate(2, 0.01)
    feed(estimate, *[before] * 8, *[after] * 8)
    assert estimate.recovery_trend(np.array([0, 1])).tolist() == pytest.approx([0.0, 1.25 * drift])


def test_who_is_much_noisier_than_all_has_a_scatter_of_its_own() -> None:
    estimate = SlowdownEstimate(2, 0.001)
    feed(estimate, *[0.95, 1.05] * 7, 0.95)
    assert estimate.scatter[1] == pytest.approx(0.1 / (0.9539 * 0.95)), "of neighbours, for a window"
    for _ in range(5):
        feed(estimate, 1.05, 0.95)
        assert estimate.scatter[1] == pytest.approx(0.1 / (1.349 * 0.95)), "of its middle half from then on"
    assert estimate.scatter[0] < estimate.scatter[1] / 1.5


def test_before_a_baseline_half_of_the_steps_from_one_iteration_to_the_next_show_the_noise() -> None:
    """Two levels in a window are one large step, and no scatter."""
    estimate = SlowdownEstimate(2, 0.001)
    feed(estimate, 1.0, 1.04, 1.10, 1.02, 1.12, 1.42, 1.12)  # steps of 4, 6, 8 and 10 %, then of 30 %
    for ratio, level in ((1.42, 1.10), (1.12, 1.12)):
        feed(estimate, ratio)
        assert estimate.scatter[1] == pytest.approx(0.1 / (0.9539 * level))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("replicas", "iterations", "seed"),
    [(32, 2000, 0), *((16, 150, seed) for seed in (143, 185, 318))],
    ids=["the maximum of many"] + ["a mean of few iterations"] * 3,
)
def test_noise_of_12_percent_proves_nothing(replicas: int, iterations: int, seed: int) -> None:
    """One of 32 takes 1.3 times as long every few iterations; of 400 quiet jobs of 16 three named one."""
    rng, estimate = np.random.default_rng(seed), SlowdownEstimate(replicas, 0.12)
    for _ in range(iterations):
        watch(estimate, 1.0 + 0.12 * rng.standard_normal(replicas))
        assert not estimate.alarm.any()


def alarms(seed: int, noise: float, replicas: int, slow_from: int, iterations: int) -> list[int]:
    """Return who is named in a job whose second replica takes a fifth more from some iteration on."""
    rng, estimate = np.random.default_rng(seed), SlowdownEstimate(replicas, noise)
    for n in range(iterations):
        ratio = 1.0 + noise * rng.standard_normal(replicas)
        ratio[1] *= 1.2 if n >= slow_from else 1.0
        watch(estimate, ratio)
    return np.flatnonzero(estimate.alarm).tolist()


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "within"), [(0.005, 2), (0.02, 3), (0.05, 6), (0.12, 25)])
def test_a_fifth_more_is_proved_as_soon_as_the_noise_allows(noise: float, within: int) -> None:
    """The profile tells the noise of whole iterations; in 95 of 100 jobs at least."""
    jobs = 100 if noise > 0.1 else 20
    found = [alarms(seed, noise, 4, 80, 80 + within) for seed in range(jobs)]
    assert found.count([1]) >= 0.95 * jobs


@pytest.mark.thorough
def test_replicas_that_vary_alike_lend_each_other_their_means() -> None:
    """After 40 noisy iterations an own mean is off by 2 %: a fifth more was proved in 68 of 100."""
    assert sum(1 in alarms(seed, 0.12, 16, 40, 65) for seed in range(60)) >= 0.9 * 60


@pytest.mark.thorough
def test_noisy_replicas_that_are_apart_keep_their_own_means() -> None:
    """Means are drawn together only where noise explains how far they are apart: here it does not."""
    apart, rng, estimate = np.linspace(0.9, 1.2, 8), np.random.default_rng(3), SlowdownEstimate(8, 0.08)
    for _ in range(1000):
        watch(estimate, apart * (1.0 + 0.08 * rng.standard_normal(8)))
        assert not estimate.alarm.any()


def spell(estimate: SlowdownEstimate, *, lasts: int = 0) -> int:
    """Be slow until that is proved, for so many iterations from then on, and fast again."""
    asked = 0
    while not estimate.alarm[1]:
        feed(estimate, 1.3)
        asked += 1
        assert asked < 64
    feed(estimate, *[1.3] * lasts)
    while estimate.alarm[1]:
        feed(estimate, 1.0)
    return asked


def test_each_short_spell_makes_the_next_one_four_times_as_hard_to_believe() -> None:
    estimate = SlowdownEstimate(2, 0.01)
    asked = []
    for _ in range(5):
        feed(estimate, *[1.0] * 17)
        asked.append(spell(estimate))
    assert asked == [2, 2, 8, 32, 32]


@pytest.mark.parametrize(("lasts", "calm", "asked"), [(9, 17, 8), (10, 17, 2), (9, 245, 2)])
def test_a_spell_of_twelve_is_worth_an_answer_and_calm_forgives(lasts: int, calm: int, asked: int) -> None:
    """Its end is proved by two fast iterations; calm is counted from when the spell began."""
    estimate = SlowdownEstimate(2, 0.01)
    for _ in range(2):
        feed(estimate, *[1.0] * 17)
        spell(estimate, lasts=lasts)
    feed(estimate, *[1.0] * calm)
    if calm > 200:  # the first spell after a calm is hard to believe still; it forgives
        assert spell(estimate) == 8
        feed(estimate, *[1.0] * 17)
    assert spell(estimate) == asked
