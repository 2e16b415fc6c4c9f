"""From a profile to a frontier of plans, to the one that a job runs at.

``plan.check`` is imported by those who prove bounds: it brings scipy.
"""

from perseus_ds.plan.clock_requests import OPENING, ClockRequest, clock_requests, opening_clocks
from perseus_ds.plan.expected import expected
from perseus_ds.plan.file import PlanRequest, dumps, loads, read_plans, write_plans, write_request
from perseus_ds.plan.frontier import build
from perseus_ds.plan.problem import Switching
from perseus_ds.plan.record import ChangeBudget, Expected, FrequencyPlan, Options, PlanSet, Portion
from perseus_ds.plan.reserve import doubt, too_little_reserve
from perseus_ds.plan.select import gap_in_words, select
from perseus_ds.plan.verify import verify

__all__ = [
    "OPENING",
    "ChangeBudget",
    "ClockRequest",
    "Expected",
    "FrequencyPlan",
    "Options",
    "PlanRequest",
    "PlanSet",
    "Portion",
    "Switching",
    "build",
    "clock_requests",
    "doubt",
    "dumps",
    "expected",
    "gap_in_words",
    "loads",
    "opening_clocks",
    "read_plans",
    "select",
    "too_little_reserve",
    "verify",
    "write_plans",
    "write_request",
]
