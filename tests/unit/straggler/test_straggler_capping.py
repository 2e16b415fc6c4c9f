"""A capped replica, iteration by iteration: locked, tried after 16, then every 32, and let go."""

import numpy as np
import pytest

from perseus_ds.straggler.capping import Capping, promise_band
from perseus_ds.straggler.observation import ReplicaObservation

FASTEST_S = np.array([1.0, 1.0])
BAND = np.array([1.05, 1.05])
YES, NO = np.array([True, True]), np.array([False, False])
SECOND = np.array([False, True])


def iteration(
    capping: Capping,
    ratio: float,
    *,
    at_full_speed: bool = True,
    capped: np.ndarray = SECOND,
    slow: np.ndarray = SECOND,
    settled: np.ndarray = YES,
) -> list[float]:
    """One iteration in which the second replica takes ``ratio`` times what its plan says."""
    planned_s = np.array([1.0, 1.0 if at_full_speed else 1.3])
    ratios = np.array([1.0, ratio])
    observed = ReplicaObservation(
        own_s=ratios * planned_s, planned_s=planned_s, announced=np.ones(2), capped=capped
    )
    return capping.observe(
        observed, ratios, fastest_s=FASTEST_S, slow=slow, settled=settled, band=BAND
    ).tolist()


@pytest.fixture
def capping() -> Capping:
    """One that has just found the second replica capped."""
    capping = Capping()
    assert iteration(capping, 1.3) == [1.0, 1.3]
    return capping


def test_a_capped_straggler_is_locked_and_that_is_a_turn(capping: Capping) -> None:
    assert (capping.turned, capping.busy, capping.locked()) == (True, True, [1])
    assert [capping.capped(replica) for replica in (0, 1)] == [False, True]
    iteration(capping, 1.3)
    assert not capping.turned, "once"


@pytest.mark.parametrize("wrong", [{"capped": NO}, {"slow": NO}, {"settled": NO}])
def test_only_who_is_slow_for_sure_and_says_so_is_capped(wrong: dict[str, np.ndarray]) -> None:
    capping = Capping()
    iteration(capping, 1.3, **wrong)
    assert (capping.turned, capping.busy) == (False, False)


def test_what_is_measured_at_the_locked_plan_says_nothing_of_full_speed(capping: Capping) -> None:
    assert np.isnan(iteration(capping, 1.0, at_full_speed=False)[1])
    assert iteration(capping, 1.3) == [1.0, 1.3]


def tries(capping: Capping, iterations: int) -> list[int]:
    """The iterations after which full speed is tried; the replica keeps its promises throughout."""
    turned = []
    for number in range(1, iterations + 1):
        iteration(capping, 1.0, at_full_speed=not capping.locked())
        if capping.turned and not capping.locked():
            turned.append(number)
    return turned


def test_full_speed_is_tried_for_two_iterations_after_16_and_then_every_32(capping: Capping) -> None:
    assert tries(capping, 100) == [15, 49, 83]
    assert capping.busy


def test_a_try_lasts_two_iterations_at_full_speed(capping: Capping) -> None:
    for _ in range(15):
        iteration(capping, 1.0, at_full_speed=False)
    assert capping.locked() == []
    iteration(capping, 1.3, at_full_speed=False)  # the plan of before is still on its way
    iteration(capping, 1.3)
    assert capping.locked() == []
    iteration(capping, 1.3)
    assert (capping.locked(), capping.turned) == ([1], True)


def test_two_broken_promises_in_a_row_are_a_try_at_once(capping: Capping) -> None:
    iteration(capping, 1.06, at_full_speed=False)
    iteration(capping, 1.04, at_full_speed=False)
    iteration(capping, 1.06, at_full_speed=False)
    assert capping.locked() == [1]
    iteration(capping, 1.06, at_full_speed=False)
    assert (capping.locked(), capping.turned) == ([], True)


def test_who_is_slow_no_more_is_let_go(capping: Capping) -> None:
    iteration(capping, 1.0, slow=NO)
    assert (capping.turned, capping.busy, capping.capped(1)) == (True, False, False)
    iteration(capping, 1.0, slow=NO)
    assert not capping.turned


def test_an_iteration_that_is_not_known_does_not_count(capping: Capping) -> None:
    for _ in range(50):
        iteration(capping, float("nan"), at_full_speed=False)
    assert capping.locked() == [1]


def test_the_band_of_a_promise() -> None:
    assert promise_band(2.0, np.array([0.0, 0.01])).tolist() == pytest.approx([2.0 * 1.02, 2.0 * 1.05])
