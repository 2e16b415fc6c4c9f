"""The one writer of a GPU's clocks, and how it is never survived by a lock."""

from perseus_ds.device.guard.claim.left_behind import is_held, left_behind
from perseus_ds.device.guard.claim.repair import Outcome, Repair, repair, reset
from perseus_ds.device.guard.client.guard_client import GuardClient
from perseus_ds.device.guard.client.guarded_gpu import GuardedGpu, guarded
from perseus_ds.device.guard.service.policy import Policy, Rule
from perseus_ds.device.guard.service.rules_file import DEFAULT_RULES, read_rules, rule_of
from perseus_ds.device.guard.service.service import Service, ServiceSettings, run_service

__all__ = [
    "DEFAULT_RULES",
    "GuardClient",
    "GuardedGpu",
    "Outcome",
    "Policy",
    "Repair",
    "Rule",
    "Service",
    "ServiceSettings",
    "guarded",
    "is_held",
    "left_behind",
    "read_rules",
    "repair",
    "reset",
    "rule_of",
    "run_service",
]
