"""How slow a replica is, iteration by iteration: hiccups are dropped, changes confirmed, drifts led."""

import numpy as np
import pytest

from perseus_ds.straggler.estimate.flap_damping import FlapDamping
from perseus_ds.straggler.estimate.slowdown_estimate import SlowdownEstimate

NOBODY = np.array([False, False])
SECOND = np.array([False, True])
BOTH = np.array([0, 1])


def feed(
    estimate: SlowdownEstimate, *ratios: float, impatient: np.ndarray = NOBODY, every: int = 16
) -> list[bool]:
    """The first replica keeps its promises; the second takes these ratios, one an iteration."""
    return [
        estimate.observe(np.array([1.0, ratio]), impatient=impatient, review_every=every) for ratio in ratios
    ]


def test_before_anything_is_known_one_percent_is_assumed() -> None:
    estimate = SlowdownEstimate(2)
    assert np.isnan(estimate.level).all()
    assert estimate.count.tolist() == [0, 0]
    assert estimate.scatter.tolist() == [0.01, 0.01]
    assert estimate.error.tolist() == pytest.approx([0.0125, 0.0125])


def test_a_level_rests_on_sixteen_iterations_and_is_sure_from_eight() -> None:
    estimate = SlowdownEstimate(2)
    for number in range(1, 21):
        assert feed(estimate, 1.0)[0] or number > 16
        if number <= 16:
            assert estimate.count.tolist() == [number, number]
            assert estimate.sure.tolist() == [number >= 8] * 2
    assert estimate.count.tolist() == [16, 16]
    assert estimate.level.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("every", [4, 5, 16])
def test_full_windows_are_reviewed_as_often_as_asked(every: int) -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[1.0] * 17)
    assert feed(estimate, *[1.0] * (3 * every), every=every).count(True) == 3


def test_a_hiccup_is_dropped() -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[1.0] * 17)
    assert feed(estimate, 1.3, 1.0, 0.7, 1.0) == [False] * 4
    feed(estimate, *[1.0] * 16)
    assert estimate.level.tolist() == [1.0, 1.0]


def test_two_alike_are_a_new_level_and_both_count() -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[1.0] * 17)
    assert feed(estimate, 1.3, 1.32) == [False, True]
    assert estimate.level.tolist() == [1.0, 1.3], "the lower of two"
    assert estimate.count.tolist() == [16, 2]


def test_an_unknown_iteration_in_between_neither_confirms_nor_forgives() -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[1.0] * 17)
    assert feed(estimate, 1.3, np.nan, 0.0, np.inf, 1.32)[-1]
    assert estimate.level[1] == 1.3


def test_of_one_whom_others_wait_for_a_single_faster_iteration_is_enough() -> None:
    for impatient, at_once in ((SECOND, True), (NOBODY, False)):
        estimate = SlowdownEstimate(2)
        feed(estimate, *[1.3] * 17)
        assert feed(estimate, 1.0, impatient=impatient) == [at_once]
        assert estimate.level[1] == (1.0 if at_once else 1.3)


def test_of_one_whom_others_wait_for_four_on_the_same_side_are_a_review() -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[1.0] * 17)
    assert feed(estimate, *[1.01] * 3, impatient=SECOND) == [False] * 3
    assert feed(estimate, 1.01, impatient=SECOND) == [True]


def test_one_that_becomes_faster_is_led_by_where_it_will_be() -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[1.018] * 8, *[1.0] * 8)
    drift = 1.0 / 1.018 - 1.0
    assert estimate.sinking(BOTH).tolist() == pytest.approx([0.0, 1.25 * drift])


def test_one_that_becomes_slower_is_not_led() -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[1.0] * 8, *[1.018] * 8)
    assert estimate.sinking(BOTH).tolist() == [0.0, 0.0]


def test_scatter_is_that_of_the_middle_half_but_not_below_what_is_usual() -> None:
    estimate = SlowdownEstimate(2)
    feed(estimate, *[0.99, 1.01] * 12)
    spread = 0.02 / (1.349 * 0.99)
    assert estimate.scatter[1] == pytest.approx(spread)
    assert 0.01 < estimate.scatter[0] < spread, "learned, a quarter at a time"
    assert estimate.error[1] == pytest.approx(1.25 * spread / 4.0)


def test_each_short_spell_makes_the_next_one_four_times_as_hard_to_believe() -> None:
    damping = FlapDamping(2)
    asked = []
    for _ in range(5):
        damping.remember(SECOND, NOBODY)
        for _ in range(11):
            damping.tick()
        damping.remember(NOBODY, SECOND)
        asked.append(damping.confirmations().tolist())
    assert asked == [[2, 2], [2, 8], [2, 32], [2, 32], [2, 32]]


@pytest.mark.parametrize(("lasts", "short"), [(11, True), (12, False)])
def test_a_spell_of_twelve_was_worth_its_answer(lasts: int, *, short: bool) -> None:
    damping = FlapDamping(2)
    for _ in range(2):
        damping.remember(SECOND, NOBODY)
        for _ in range(lasts):
            damping.tick()
        damping.remember(NOBODY, SECOND)
    assert damping.confirmations().tolist() == [2, 8 if short else 2]


@pytest.mark.parametrize(("calm", "forgiven"), [(244, False), (245, True)])
def test_after_256_iterations_all_is_forgiven(calm: int, *, forgiven: bool) -> None:
    """Counted from when the spell began, 11 iterations before its end."""
    damping = FlapDamping(2)
    for _ in range(3):
        damping.remember(SECOND, NOBODY)
        for _ in range(11):
            damping.tick()
        damping.remember(NOBODY, SECOND)
    for _ in range(calm):
        damping.tick()
    damping.remember(SECOND, NOBODY)
    assert damping.confirmations().tolist() == [2, 2 if forgiven else 32]
