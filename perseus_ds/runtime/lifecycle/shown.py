"""What a running plan shows in the framework's monitors."""

from __future__ import annotations

from perseus_ds.run_directory import Summary
from perseus_ds.runtime.control.active_plan import ActivePlan
from perseus_ds.runtime.measure.accounting import EnergyAccount


def shown(active_plan: ActivePlan, account: EnergyAccount, summary: Summary | None) -> dict[str, float]:
    """Gather what a running plan shows.

    ``rank0_*`` is what rank 0's GPU took in the iterations settled last, the rest is of the whole job, as
    the audits measured it.
    """
    scalars: dict[str, float] = {
        "plan": active_plan.plan,
        "straggler_time_s": active_plan.awaited_s,
        "slack_s": active_plan.slack_s,
    }
    if account.latest is not None:
        scalars["rank0_energy_per_iteration_j"], scalars["rank0_power_w"] = account.latest
    if summary is not None:
        energy_j, time_s = summary.perseus.energy_j, summary.perseus.iteration_time_s
        scalars |= {
            "energy_per_iteration_j": energy_j,
            "power_w": energy_j / time_s,
            "saving_pct": summary.saving_pct,
            "slowdown_pct": summary.slowdown_pct,
        }
    return scalars
