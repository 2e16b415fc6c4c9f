"""Which replica is slow, and how slowly the others can wait: one decision, alike on every rank."""

from perseus_ds.straggler.controller import StragglerController
from perseus_ds.straggler.decision import Cause, Straggler, StragglerDecision, TimeBudget
from perseus_ds.straggler.forecast import Forecast
from perseus_ds.straggler.frontier_index import FrontierIndex
from perseus_ds.straggler.notices import Announced, Notices
from perseus_ds.straggler.observation import ReplicaObservation, ReplicaStatus
from perseus_ds.straggler.replica_plans import Pace, ReplicaPlans

__all__ = [
    "Announced",
    "Cause",
    "Forecast",
    "FrontierIndex",
    "Notices",
    "Pace",
    "ReplicaObservation",
    "ReplicaPlans",
    "ReplicaStatus",
    "Straggler",
    "StragglerController",
    "StragglerDecision",
    "TimeBudget",
]
