"""From a profile to a frontier of plans, to the one that a job runs at."""

from perseus_ds.plan.build import build
from perseus_ds.plan.doubt import doubt
from perseus_ds.plan.record import Baseline, FrequencyPlan, Options, PlanSet
from perseus_ds.plan.request import PlanRequest, read_request, write_request
from perseus_ds.plan.select import select, select_for, unslowed_s
from perseus_ds.plan.store import dumps, loads, read_plans, write_plans
from perseus_ds.plan.verify import verify
from perseus_ds.plan.wording import certified

__all__ = [
    "Baseline",
    "FrequencyPlan",
    "Options",
    "PlanRequest",
    "PlanSet",
    "build",
    "certified",
    "doubt",
    "dumps",
    "loads",
    "read_plans",
    "read_request",
    "select",
    "select_for",
    "unslowed_s",
    "verify",
    "write_plans",
    "write_request",
]
