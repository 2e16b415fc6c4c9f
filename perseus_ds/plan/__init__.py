"""From a profile to a frontier of plans, to the one that a job runs at.

``plan.checking.by_another_road`` is imported by those who prove bounds: it brings scipy.
"""

from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.plan.build import build
from perseus_ds.plan.checking.doubt import doubt
from perseus_ds.plan.checking.verify import verify
from perseus_ds.plan.checking.wording import certified, worth
from perseus_ds.plan.options import Options, Segment
from perseus_ds.plan.plan_file.store import dumps, loads, read_plans, write_plans
from perseus_ds.plan.playing.clock_requests import OPENING, ClockRequest, clock_requests, opening_clocks
from perseus_ds.plan.playing.expected import expected
from perseus_ds.plan.record import Baseline, Expected, FrequencyPlan, PlanSet
from perseus_ds.plan.request import PlanRequest, read_request, write_request
from perseus_ds.plan.select import select, select_for, unslowed_s
from perseus_ds.plan.solving.reserve import too_little_reserve
from perseus_ds.plan.solving.switching import Switching
from perseus_ds.plan.splits import Portion, Splits

__all__ = [
    "OPENING",
    "Baseline",
    "ChangeBudget",
    "ClockRequest",
    "Expected",
    "FrequencyPlan",
    "Options",
    "PlanRequest",
    "PlanSet",
    "Portion",
    "Segment",
    "Splits",
    "Switching",
    "build",
    "certified",
    "clock_requests",
    "doubt",
    "dumps",
    "expected",
    "loads",
    "opening_clocks",
    "read_plans",
    "read_request",
    "select",
    "select_for",
    "too_little_reserve",
    "unslowed_s",
    "verify",
    "worth",
    "write_plans",
    "write_request",
]
