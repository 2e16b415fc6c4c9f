"""Whether clocks are ours just now: control that is lost and comes back, on one rank and for all to learn."""

from __future__ import annotations

import math

from perseus_ds.device.gpu import ConflictKind, Gpu

CONTROL = (ConflictKind.CONTROL_LOST, ConflictKind.CONTROL_BACK)


class ControlWatch:
    """Look once per iteration; report each loss and each return in turns, however soon one follows the other.

    ``controlled``: clocks were ours from the look before to the last one. ``uncontrolled_s`` is when they
    were last seen not to be (device time).
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._in_control, self._lost_now = True, False
        self._losses = self._told_losses = self._late = 0
        self._told_lost = False
        self._without: set[int] = set()
        self.controlled = True
        self.uncontrolled_s = -math.inf

    def look(self) -> None:
        """See what is new."""
        in_control = self._gpu.in_control()
        counts = {sighting.kind: sighting.count for sighting in self._gpu.conflicts()}
        losses, returns = (counts.get(kind, 0) for kind in CONTROL)
        late = counts.get(ConflictKind.NOT_STORED, 0)
        self.controlled = in_control and self._in_control and (losses, late) == (self._losses, self._late)
        if not self.controlled:
            self.uncontrolled_s = self._gpu.now_s()
        self._in_control, self._losses, self._lost_now = in_control, losses, losses > returns
        self._late = late

    def unpublished(self) -> ConflictKind | None:
        """What this rank has to report next."""
        if self._told_lost:
            return None if self._lost_now else ConflictKind.CONTROL_BACK
        return ConflictKind.CONTROL_LOST if self._losses > self._told_losses else None

    def learn(self, kind: ConflictKind, rank: int, *, own: bool) -> bool:
        """Take in a rank's report; return whether it is the first to lose control or the last to return."""
        lost = kind is ConflictKind.CONTROL_LOST
        if own:
            self._told_lost, self._told_losses = lost, self._losses - (self._lost_now and not lost)
        before = bool(self._without)
        (self._without.add if lost else self._without.discard)(rank)
        return before != bool(self._without)
