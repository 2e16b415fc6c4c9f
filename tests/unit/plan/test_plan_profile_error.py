"""Errors of a profile: seen in its standard errors, else in the scatter of its points; what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from perseus_ds.plan import build
from perseus_ds.plan.profile_error import EntryError, profile_error
from perseus_ds.profile import Point, Profile, smoothed
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


def error_of(profile: Profile) -> EntryError | None:
    """As `perseus-ds plan` finds it: points are drawn to their curves first."""
    known = smoothed(profile, scatter=True)
    return profile_error(known, build(known, SCHEDULE, blocking_power_w=BLOCKING_POWER_W))


@pytest.mark.thorough
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(("share", "most_pct"), [(0.005, 0.1), (0.02, 0.3)])
def test_errors_are_seen_and_what_they_still_cost(share: float, most_pct: float, *, told: bool) -> None:
    """Averaged out over neighbouring clocks, and with a margin, they cost little; more errors cost more."""
    found = error_of(off_by(share, told=told))
    assert found is not None
    assert found.measured
    assert 0.1 < found.time_pct / (100.0 * share) < 0.6
    assert found.slowdown_pct is not None
    assert 0.2 * most_pct < found.slowdown_pct < 1.3 * most_pct


def test_a_profile_without_errors_has_none_that_matter() -> None:
    found = error_of(gpt3_profile())
    assert found is not None
    assert found.time_pct < 0.02
    assert found.slowdown_pct is None
    assert not found.matters


def test_three_points_say_nothing_of_their_scatter() -> None:
    known = gpt3_profile()
    few = replace(known, points={key: own[:3] for key, own in known.points.items()})
    assert error_of(few) is None
