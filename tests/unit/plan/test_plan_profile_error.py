"""Errors of a profile: seen in its standard errors, else in the scatter of its points; what they may cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.plan.profile_error import profile_error
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W, gpt3_profile

SCHEDULE = textbook("1f1b", stages=8, microbatches=12)


def off_by(share: float, *, told: bool = False) -> Profile:
    """The simulated A100's profile with errors of that size in each of its 38 x 16 times and energies."""
    known, draw = gpt3_profile(), np.random.default_rng(11)

    def wrong(point: Point) -> Point:
        time, energy = 1.0 + share * draw.standard_normal(2)
        errors = (share * point.time_s, share * point.energy_j) if told else (0.0, 0.0)
        return replace(
            point,
            time_s=point.time_s * time,
            energy_j=point.energy_j * energy,
            time_se_s=errors[0],
            energy_se_j=errors[1],
        )

    return replace(known, points={key: tuple(map(wrong, own)) for key, own in known.points.items()})


@pytest.mark.parametrize(
    ("share", "told", "slower_pct"),
    [(0.005, False, 0.5), (0.01, False, 1.2), (0.005, True, 0.16), (0.01, True, 0.22)],
)
def test_errors_are_seen_and_what_they_cost(share: float, *, told: bool, slower_pct: float) -> None:
    """Stated errors are averaged out over neighbouring clocks before anything is planned."""
    found = profile_error(off_by(share, told=told), SCHEDULE, BLOCKING_POWER_W)
    assert found is not None
    assert found.measured is told
    assert found.time_pct == pytest.approx(100.0 * share, rel=0.15)
    assert found.energy_pct == pytest.approx(100.0 * share, rel=0.15)
    assert found.slowdown_pct == pytest.approx(slower_pct, rel=0.4)
    assert found.matters


def test_a_profile_without_errors_has_none_that_matter() -> None:
    found = profile_error(gpt3_profile(), SCHEDULE, BLOCKING_POWER_W)
    assert found is not None
    assert found.time_pct < 0.02
    assert found.slowdown_pct is None  # not planned again: so little costs nothing
    assert not found.matters


def test_of_a_large_schedule_one_draw_says_about_as_much() -> None:
    """8 x 32 has 512 computations; the mean of ten draws is 1.66 %."""
    large = textbook("1f1b", stages=8, microbatches=32)
    found = profile_error(off_by(0.01), large, BLOCKING_POWER_W)
    assert found is not None
    assert found.slowdown_pct == pytest.approx(1.66, rel=0.4)


def test_three_points_say_nothing_of_their_scatter() -> None:
    known = gpt3_profile()
    few = replace(known, points={key: own[:3] for key, own in known.points.items()})
    assert profile_error(few, SCHEDULE, BLOCKING_POWER_W) is None
