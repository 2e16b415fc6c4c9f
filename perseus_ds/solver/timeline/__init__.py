"""Plans that count changes: activities take turns at machines, whose levels change at a price."""

from __future__ import annotations

from perseus_ds.solver.timeline.allowance import Allowance
from perseus_ds.solver.timeline.lanes import Lanes
from perseus_ds.solver.timeline.timelines import timelines

__all__ = ["Allowance", "Lanes", "timelines"]
