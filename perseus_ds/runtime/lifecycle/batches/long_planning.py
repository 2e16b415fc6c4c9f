"""When to tell that a plan takes long: a host whose processors are all busy leaves little to low priority."""

from __future__ import annotations

LONG_S = 60.0
"""Planning takes seconds; who has waited this long wonders."""


class LongPlanning:
    """Due after a minute, then each time that planning has taken twice as long as when it was told last."""

    def __init__(self) -> None:
        self._next_s = LONG_S

    def is_due(self, lasted_s: float) -> bool:
        """Whether it is to be told now that planning has lasted so long; asked once, answered once."""
        if lasted_s < self._next_s:
            return False
        self._next_s = 2 * lasted_s
        return True
