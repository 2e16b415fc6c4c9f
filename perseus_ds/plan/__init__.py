"""From a profile to a frontier of plans, to the one that a job runs at."""

from perseus_ds.plan.bound_by_lp import check_bounds_by_lp
from perseus_ds.plan.build import build
from perseus_ds.plan.clock_requests import ClockRequest, clock_requests, first_clock_mhz
from perseus_ds.plan.doubt import doubt
from perseus_ds.plan.record import Baseline, FrequencyPlan, Options, PlanSet
from perseus_ds.plan.request import PlanRequest, read_request, write_request
from perseus_ds.plan.select import select, select_for, unslowed_s
from perseus_ds.plan.splits import Portion, Splits
from perseus_ds.plan.store import dumps, loads, read_plans, write_plans
from perseus_ds.plan.verify import verify
from perseus_ds.plan.wording import certified

__all__ = [
    "Baseline",
    "ClockRequest",
    "FrequencyPlan",
    "Options",
    "PlanRequest",
    "PlanSet",
    "Portion",
    "Splits",
    "build",
    "certified",
    "check_bounds_by_lp",
    "clock_requests",
    "doubt",
    "dumps",
    "first_clock_mhz",
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
