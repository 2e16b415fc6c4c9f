"""What planning has to know of clock changes: what one costs, and how many are wanted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perseus_ds.device import ClockChange
from perseus_ds.errors import PlanError
from perseus_ds.plan.budget import ChangeBudget
from perseus_ds.profile import Profile

Split = Literal["automatic", "never"]
Wait = Literal["automatic", "never"]


@dataclass(frozen=True, slots=True)
class Switching:
    """How clocks change, and what a plan may do with it.

    ``split`` "automatic" lets a computation change its clock while it runs, "never" keeps one clock for each.
    No part of one is shorter than a call takes. ``waits`` "automatic" lowers the
    clock in waits that are long enough, where the power of waiting is known by clock. ``budget`` states how
    often a clock may change.
    """

    change: ClockChange = field(default_factory=ClockChange)
    split: Split = "automatic"
    waits: Wait = "never"
    budget: ChangeBudget = field(default_factory=ChangeBudget)

    @classmethod
    def of(cls, profile: Profile) -> Switching:
        """Take the change as the profile's GPUs were calibrated; a change that was not measured is free."""
        found = profile.calibration
        if found is None or found.call_s is None or found.up_s is None or found.down_s is None:
            return cls()
        call_s = found.call_s
        change = ClockChange(call_s, max(0.0, found.up_s - call_s), max(0.0, found.down_s - call_s))
        return cls(change)

    def __post_init__(self) -> None:
        if self.split not in {"automatic", "never"}:
            raise PlanError(f"split is {self.split!r}", hint="automatic or never")
        if self.waits not in {"automatic", "never"}:
            raise PlanError(f"waits is {self.waits!r}", hint="automatic or never")

    @property
    def least_part_s(self) -> float:
        """The shortest part of a split computation."""
        return self.change.call_s + self.change.stall_s


FREE = Switching()
"""Changes that cost nothing."""
