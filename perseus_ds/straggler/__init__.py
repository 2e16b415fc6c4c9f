"""Which replica is slow, and how slowly the others can wait: one decision, alike on every rank."""

from perseus_ds.straggler.announcement.notices import Heard, Notices
from perseus_ds.straggler.ceiling.held_ceiling import CapNumbers, HeldCeiling
from perseus_ds.straggler.ceiling.power_cap import PowerCap
from perseus_ds.straggler.ceiling.power_caps import PowerCaps, Standing
from perseus_ds.straggler.controller import StragglerController
from perseus_ds.straggler.decision import Cause, Straggler, StragglerDecision, TimeBudget
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.observation import ReplicaObservation, ReplicaStatus
from perseus_ds.straggler.pacing import Forecast, Foretold, Outlook, ProgressMarks
from perseus_ds.straggler.replica_plans import Pace, ReplicaPlans

__all__ = [
    "CapNumbers",
    "Cause",
    "Forecast",
    "Foretold",
    "FrontierIndex",
    "Heard",
    "HeldCeiling",
    "Notices",
    "Outlook",
    "Pace",
    "PowerCap",
    "PowerCaps",
    "ProgressMarks",
    "ReplicaObservation",
    "ReplicaPlans",
    "ReplicaStatus",
    "Standing",
    "Straggler",
    "StragglerController",
    "StragglerDecision",
    "TimeBudget",
]
