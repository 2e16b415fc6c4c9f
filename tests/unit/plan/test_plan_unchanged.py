"""Plans stay what they were, to the last digit, while the solver gets faster: figures of an earlier version.

A change that makes better plans may change them; then it says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.problem import Switching
from perseus_ds.profile import Profile
from perseus_ds.schedule import textbook
from perseus_ds.simulation.gpt3 import BLOCKING_POWER_W, gpt3_profile
from perseus_ds.simulation.textbook_gpu import textbook_profile

WAITING = {1410: BLOCKING_POWER_W, 300: 56.4}


class Case(NamedTuple):
    """What is planned: a profile by name, a schedule, the latency of a change, and what else is asked."""

    profile: str
    schedule: str
    microbatches: int
    latency_s: float
    split: str = "automatic"
    waits: str = "never"
    reserve_pct: float = 0.0


class Figures(NamedTuple):
    """Plans, sums of their times (s) and energies (J), and a digest of options, splits and low waits."""

    plans: int
    time_s: float
    energy_j: float
    bound_j: float
    choices: str


def noisy(stages: int, share: float) -> Profile:
    """A textbook GPU whose durations and energies are off by that share, each point by itself."""
    known, draw = textbook_profile(np.linspace(1.0, 1.2, stages).tolist()), np.random.default_rng(7)
    points = {
        key: tuple(
            replace(
                point,
                time_s=point.time_s * (1.0 + share * float(draw.standard_normal())),
                energy_j=point.energy_j * (1.0 + share * float(draw.standard_normal())),
            )
            for point in own
        )
        for key, own in known.points.items()
    }
    return replace(known, points=points)


PROFILES = {
    "gpt3": replace(gpt3_profile(), blocking_w=WAITING),
    "noisy": noisy(4, 0.01),
    "uneven": textbook_profile([1.0, 1.6, 0.7, 1.1, 1.3]),
}


def planned(case: Case) -> PlanSet:
    profile, latency_s = PROFILES[case.profile], case.latency_s
    schedule = textbook(case.schedule, stages=profile.stages, microbatches=case.microbatches)
    switching = Switching(ClockChange(latency_s / 2, latency_s / 2, latency_s / 2), case.split, case.waits)  # type: ignore[arg-type]
    return build(
        profile,
        schedule,
        blocking_power_w=BLOCKING_POWER_W,
        reserve_pct=case.reserve_pct,
        switching=switching,
    )


def figures(plans: PlanSet) -> Figures:
    said = hashlib.sha256()
    for part in (plans.choice.astype(np.int64), *_split(plans), plans.waits.plan, plans.waits.column):
        said.update(np.ascontiguousarray(part).tobytes())
    return Figures(
        len(plans),
        float(plans.iteration_time_s.sum()),
        float(plans.effective_energy_j.sum()),
        float(plans.lower_bound_j.sum()),
        said.hexdigest()[:16],
    )


def _split(plans: PlanSet) -> tuple[np.ndarray, ...]:
    grains = np.rint(plans.splits.share * 2**20).astype(np.int64)
    return plans.splits.plan, plans.splits.column, plans.splits.option, grains


CASES = (
    Case("gpt3", "1f1b", 12, 0.0),
    Case("gpt3", "1f1b", 12, 0.01),
    Case("gpt3", "1f1b", 12, 0.04),
    Case("gpt3", "1f1b", 12, 0.01, waits="automatic", reserve_pct=0.5),
    Case("gpt3", "gpipe", 6, 0.02),
    Case("noisy", "1f1b", 8, 0.01),
    Case("noisy", "1f1b", 20, 0.03),
    Case("noisy", "1f1b", 5, 0.0, split="never"),
    Case("uneven", "1f1b", 9, 0.02, reserve_pct=2.0),
    Case("uneven", "1f1b", 9, 0.2),
)
FOUND = (
    Figures(203, 646.4470801851469, 594209.7905975869, 1023074.0888185217, "ea67e60bab1f019a"),
    Figures(203, 646.4470801810096, 594214.9954713134, 1023074.0888221611, "075784f063f0b08d"),
    Figures(203, 646.4470801733255, 594294.4264354313, 1023074.0888269008, "d50e6af0fc2da36d"),
    Figures(184, 576.9533578116583, 642683.1574701972, 895418.9047254599, "e5e06ac071e6da84"),
    Figures(295, 636.4528639171147, 485146.2609992888, 907506.6350121102, "ea4219e3749355df"),
    Figures(236, 504.2481399018336, 178671.82013655457, 346433.04707260645, "848a88b23b8230d7"),
    Figures(264, 1199.4615827712132, 503062.2040223769, 901870.7562887693, "9d0273415da8a4d8"),
    Figures(289, 447.1307053022192, 135819.3398123476, 283991.20224037254, "2cb69ae579fbe448"),
    Figures(183, 525.0047024378684, 199737.970203403, 417702.0190304214, "525cca94ec97dee3"),
    Figures(175, 497.34131972347933, 189619.331286113, 396001.50969417644, "2db26c4a9333860d"),
)


@pytest.mark.thorough
@pytest.mark.parametrize(("case", "before"), list(zip(CASES, FOUND, strict=True)))
def test_plans_are_those_of_before(case: Case, before: Figures) -> None:
    found = figures(planned(case))
    assert (found.plans, found.choices) == (before.plans, before.choices)
    assert found[1:4] == pytest.approx(before[1:4], rel=1e-12)
