"""The one writer of a GPU's clocks, and how it is never survived by a lock."""

from perseus_ds.device.guard.guarded_gpu import GuardedGpu, guarded
from perseus_ds.device.guard.link import GuardLink
from perseus_ds.device.guard.repair import Outcome, Repair, repair, reset

__all__ = ["GuardLink", "GuardedGpu", "Outcome", "Repair", "guarded", "repair", "reset"]
