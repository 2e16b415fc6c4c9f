"""Who can wait how slowly: limits by hand, and limits that stay where little has moved."""

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest

from perseus_ds.straggler.controller import EXCESS, ReplicaDemand, limits_s, margin

MARGIN = 0.001
"""What is kept below T' where nothing varies."""
NOBODY = np.full(3, np.nan)


def demand(unconstrained_s: list[float], *, least_s: float = 10.0, error: float = 0.0) -> ReplicaDemand:
    """Three replicas of one plan of 10 s; the last is the one that needs longest."""
    free = np.array(unconstrained_s)
    return ReplicaDemand(
        unconstrained_s=free,
        error=np.full(3, error),
        scatter=np.zeros(3),
        least_s=np.full(3, least_s),
        pace=free / least_s,
        known=np.ones(3, dtype=bool),
        last=int(free.argmax()),
    )


def test_who_is_done_early_may_take_as_long_as_the_last_less_the_margin() -> None:
    found = limits_s(demand([10.0, 11.0, 12.0]), NOBODY)
    assert found[0] == pytest.approx(12.0 * (1 - MARGIN))
    assert found[1] == pytest.approx(12.0 * (1 - MARGIN) / 1.1), "in seconds of its own plan"
    assert np.isnan(found[2])


def test_the_last_never_waits_for_itself() -> None:
    """Even where it needs less by now than its pace says: it becomes faster, all meet where it will be."""
    late = demand([10.0, 10.0, 12.0])
    sooner = dataclasses.replace(late, pace=np.array([1.0, 1.0, 1.0]))
    assert np.isnan(limits_s(sooner, NOBODY)[2])
    assert np.isnan(limits_s(sooner, np.array([np.nan, np.nan, 11.0]))[2]), "held or not"


def test_who_is_not_known_yet_is_not_slowed_down_and_goes_on_if_it_is() -> None:
    new = dataclasses.replace(demand([10.0, 10.0, 12.0]), known=np.array([False, False, True]))
    assert np.isnan(limits_s(new, NOBODY)).all()
    held_s = np.array([11.0, np.nan, np.nan])
    assert np.isfinite(limits_s(new, held_s)).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("last_s", "begins", "goes_on"),
    [(10.0, False, False), (10.05, False, False), (10.09, False, True), (10.2, True, True)],
)
def test_slack_has_to_be_worth_it_and_half_as_much_keeps_it(
    last_s: float, *, begins: bool, goes_on: bool
) -> None:
    """1 % to begin with, 0.5 % to go on, after the margin."""
    now = demand([10.0, 10.0, last_s])
    assert np.isfinite(limits_s(now, NOBODY)[0]) == begins
    assert np.isfinite(limits_s(now, np.array([10.1, np.nan, np.nan]))[0]) == goes_on


@pytest.mark.parametrize("error", [0.004, 0.01])
def test_noise_asks_for_more_slack(error: float) -> None:
    """Five standard errors of both to begin with, two to go on."""
    both = math.hypot(error, error)
    kept = margin(demand([10.0] * 3, error=error))[0]
    for factor, begins, goes_on in (
        (1.9, False, False),
        (2.1, False, True),
        (4.9, False, True),
        (5.1, True, True),
    ):
        last_s = 10.0 * (1.0 + factor * both) / (1.0 - kept)
        now = demand([10.0, 10.0, last_s], error=error)
        assert np.isfinite(limits_s(now, NOBODY)[0]) == begins
        assert np.isfinite(limits_s(now, np.array([10.0, np.nan, np.nan]))[0]) == goes_on


@pytest.mark.parametrize(("moved", "error", "stays"), [(0.0019, 0.0, True), (0.0021, 0.0, False)])
@pytest.mark.parametrize("way", [1.0, -1.0])
def test_a_limit_is_moved_when_it_has_moved_by_more_than_the_noise(
    moved: float, error: float, way: float, *, stays: bool
) -> None:
    now = demand([10.0, 10.0, 12.0], error=error)
    new_s = 12.0 * (1.0 - margin(now)[0])
    held_s = new_s / (1.0 + way * moved)
    found = limits_s(now, np.array([held_s, np.nan, np.nan]))[0]
    assert found == pytest.approx(held_s if stays else new_s, rel=1e-12)


def late_on_average(sigmas: float) -> float:
    """Mean of what a standard normal number is above ``sigmas``."""
    return NormalDist().pdf(sigmas) - sigmas * NormalDist().cdf(-sigmas)


def test_the_margin_keeps_what_all_who_vary_may_be_late() -> None:
    calm = demand([10.0, 10.0, 12.0])
    assert margin(calm) == pytest.approx(MARGIN)
    noisy = dataclasses.replace(calm, scatter=np.array([0.02, 0.01, 0.03]), error=np.array([0.0, 0.0, 0.015]))
    apart = np.sqrt(noisy.scatter**2 + 0.03**2 + 0.015**2)
    for kept, sigma in zip(margin(noisy), apart, strict=True):
        assert 2 * sigma * late_on_average(kept / sigma) == pytest.approx(EXCESS, rel=0.01)


def test_nobody_is_slowed_where_it_is_not_known_how_much_iterations_vary() -> None:
    unknown = dataclasses.replace(
        demand([10.0, 10.0, 12.0]), scatter=np.full(3, np.inf), error=np.full(3, np.inf)
    )
    assert np.isnan(limits_s(unknown, NOBODY)).all()


def test_no_limit_goes_beyond_what_answers_may_cost_held_or_not() -> None:
    now = demand([10.0, 10.0, 12.0])
    assert limits_s(now, NOBODY, max_s=11.0)[0] == pytest.approx(11.0)
    assert limits_s(now, np.full(3, 11.9), max_s=11.0)[0] == pytest.approx(11.0)
    assert np.isnan(limits_s(now, np.full(3, 11.9), max_s=10.0)).all()
