"""From a profile to a frontier of plans, to the one that a job runs at."""

from perseus_ds.plan.build import build
from perseus_ds.plan.record import Baseline, FrequencyPlan, Options, PlanSet
from perseus_ds.plan.request import PlanRequest, read_request, write_request
from perseus_ds.plan.select import select, select_for
from perseus_ds.plan.store import dumps, loads, read_plans, write_plans

__all__ = [
    "Baseline",
    "FrequencyPlan",
    "Options",
    "PlanRequest",
    "PlanSet",
    "build",
    "dumps",
    "loads",
    "read_plans",
    "read_request",
    "select",
    "select_for",
    "write_plans",
    "write_request",
]
