"""What a job of known lengths saves where each iteration follows its loads and replicas are paced by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from perseus_ds.config import Objective
from perseus_ds.plan import Expected, PlanSet, select
from perseus_ds.plan.following import why_not
from perseus_ds.profile import Profile
from perseus_ds.profile.loads.load_fit import LoadFit
from perseus_ds.schedule import dag_of
from perseus_ds.simulation.emulator import ClusterShape, Conditions, EmulatedLoads
from perseus_ds.simulation.emulator.world import as_planned_w
from perseus_ds.straggler.pacing.on_paper import FEWEST_SEEN, expected_by_loads


def saved_by_loads(
    plans: PlanSet, profile: Profile, cluster: ClusterShape, conditions: Conditions, *, iterations: int
) -> Expected | str:
    """Run iterations as a job with ``"pacing": "loads"`` states them beforehand; or the reason why it cannot.

    The loads of ``conditions`` are known before each iteration, its noise is what they leave open.

    Cost: some 10 CPU s, but for the fewest iterations.
    """
    loads = conditions.loads
    assert loads is not None
    if iterations < FEWEST_SEEN:
        return f"at least {FEWEST_SEEN} iterations are compared"
    microbatches, nodes = plans.schedule.microbatches, dag_of(plans.schedule).nodes
    seen = [loads.of(n, pipelines=cluster.pipelines, microbatches=microbatches) for n in range(iterations)]
    waiting_w = as_planned_w(plans) if cluster.waiting_w is None else cluster.waiting_w
    told = replace(
        profile,
        loads={key: _held_against(loads, profile.loads.get(key), conditions.noise) for key in plans.options},
        seen_loads=tuple(tuple(map(tuple, one)) for one in seen),
        size_variation=loads.variation(profile, nodes),
        blocking_w=waiting_w if isinstance(waiting_w, Mapping) else {max(profile.clocks_mhz): waiting_w},
    )
    reason = why_not(plans, told, splits=True)
    if reason is not None:
        return reason
    plan = select(plans, Objective())
    found = expected_by_loads(plan, told, Objective(), cluster.change, replicas=cluster.pipelines)
    assert found is not None
    return found[1]


def _held_against(loads: EmulatedLoads, fit: LoadFit | None, noise: float) -> LoadFit:
    """Take the profile's fit at the mean of these loads; without one, time in proportion to the length."""
    if fit is None:
        return LoadFit(loads.mean, base=0.0, tokens=1.0, squares=0.0, scatter=noise, r2=1.0, samples=1)
    return replace(fit, mean=loads.mean, scatter=noise)
