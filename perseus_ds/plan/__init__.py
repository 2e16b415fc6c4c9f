"""From a profile to a frontier of plans, to the one that a job runs at.

``plan.check`` is imported by those who prove bounds: it brings scipy.
"""

from perseus_ds.plan.file import read_plans, write_plans
from perseus_ds.plan.frontier import build
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget, FrequencyPlan, PlanSet
from perseus_ds.plan.select import select

__all__ = ["ChangeBudget", "FrequencyPlan", "PlanSet", "Switching"]
__all__ += ["build", "read_plans", "select", "write_plans"]
