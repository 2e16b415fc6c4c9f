"""How sure a plan's saving is: held against profiles drawn with the same errors."""

from __future__ import annotations

import numpy as np
import pytest

from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.physics import Work, duration_s, energy_j
from perseus_ds.plan import PlanSet, build, dumps, loads
from perseus_ds.plan.select import with_plan_at
from perseus_ds.profile import Point, Profile, smoothed
from perseus_ds.schedule import Kind, textbook

CLOCKS_MHZ = (1410, 1260, 1110, 960, 810)
DRAWS = 2000


def profile_of(share: float) -> Profile:
    """Two stages of a simulated A100 whose times and energies are known to so much."""
    gpu = model_named("a100-sxm4-80gb")
    return Profile(
        {
            (stage, kind): tuple(
                Point(mhz, time_s, own_j, time_se_s=share * time_s, energy_se_j=share * own_j)
                for mhz in CLOCKS_MHZ
                for time_s, own_j in [(duration_s(gpu, mhz, work), energy_j(gpu, mhz, work))]
            )
            for stage, weight in enumerate((1.0, 1.15))
            for kind, mean in ((Kind.FORWARD, Work(0.03, 0.2, 0.85)), (Kind.BACKWARD, Work(0.06, 0.2, 0.9)))
            for work in [mean.times(weight)]
        },
        blocking_power_w=70.0,
    )


def plans_of(profile: Profile) -> PlanSet:
    return build(profile, textbook("1f1b", stages=2, microbatches=4), blocking_power_w=70.0)


@pytest.fixture(scope="module")
def known() -> Profile:
    return smoothed(profile_of(0.01))


@pytest.fixture(scope="module")
def plans(known: Profile) -> PlanSet:
    return plans_of(known)


def within_by_draws_pct(plans: PlanSet, index: int, known: Profile) -> float:
    """Price one plan and its baseline with energies drawn as the curves' errors state."""
    draw, portions = np.random.default_rng(0), plans.plan(index).portions()
    off_j = {
        key: (errors.energy @ draw.standard_normal((len(known.of(*key)), DRAWS)))
        * np.array([[point.energy_j] for point in known.of(*key)])
        for key, errors in known.errors.items()
    }
    before_j, after_j = np.full(DRAWS, plans.baseline.energy_j), np.full(DRAWS, plans.energy_j[index])
    for instruction, parts in portions.items():
        own_j = off_j[instruction.stage, instruction.kind]
        before_j += own_j[0]
        after_j += sum(share * own_j[option] for option, share in parts)
    return float(196.0 * (1.0 - after_j / before_j).std())


def test_as_wide_as_drawn_profiles_scatter(plans: PlanSet, known: Profile) -> None:
    within_pct = plans.saving_within_pct
    assert within_pct is not None
    for index in (0, len(plans) // 2, len(plans) - 1):
        assert within_pct[index] == pytest.approx(within_by_draws_pct(plans, index, known), rel=0.08)
    assert plans_of(profile_of(0.0)).saving_within_pct is None


def test_is_kept_where_plans_are_added_and_written(plans: PlanSet) -> None:
    at = len(plans) // 2
    more = with_plan_at(plans, float(plans.iteration_time_s[at : at + 2].mean()))
    kept, before = loads(dumps(more)).saving_within_pct, plans.saving_within_pct
    assert kept is not None
    assert before is not None
    assert np.delete(kept, at + 1).tolist() == before.tolist()
    assert min(kept[at], kept[at + 2]) <= kept[at + 1] <= max(kept[at], kept[at + 2])
