"""Which clocks a GPU held under a job's load, and whether somebody else set them: from what was read back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from perseus_ds.device.gpu import Achieved, ConflictKind, conflicts, is_at, is_held
from perseus_ds.errors import UnmeasurableError
from perseus_ds.runtime.pooling import Pooled


def held_clocks(clocks_mhz: Sequence[int], windows: Sequence[Pooled]) -> frozenset[int]:
    """The clocks that every GPU held under load, and the highest, which stands for its own choice.

    What was measured at a clock that does not hold is of another one: whatever power or heat allowed just
    then. A clock that nobody read counts as held.
    """
    held = {
        clock
        for clock, window in zip(clocks_mhz, windows, strict=False)
        if all(one.achieved_mhz is None or is_held(clock, one.achieved_mhz) for one in window.points.values())
    }
    return frozenset({clocks_mhz[0]} | held)


def held_alone(clock_mhz: int, looks: Sequence[Achieved], *, held_mhz: int) -> int:
    """Return the highest clock that this GPU has held in a sweep; ``held_mhz`` was it before these looks.

    Raises:
        UnmeasurableError: somebody else sets this GPU's clock, by the guard's own rule and in every look.
    """
    if not clock_mhz or not looks:
        return held_mhz
    reasons = reduce(or_, (one.event_reasons for one in looks))
    seen = [Achieved(edge(one.clock_mhz for one in looks), 0, reasons) for edge in (max, min)]
    foreign = [
        one
        for edge in seen
        for one in conflicts(clock_mhz, edge, held_mhz=held_mhz)
        if one.kind is ConflictKind.FOREIGN_CLOCK
    ]
    if len(foreign) == len(seen):
        raise UnmeasurableError(foreign[0].line)
    return max(held_mhz, clock_mhz) if all(is_at(clock_mhz, edge) for edge in seen) else held_mhz


def same_clock(warm: Pooled, cool: Pooled) -> bool:
    """Whether two windows at one clock reached the same one; one that nobody read counts as reached."""
    both = [
        (warm.points[key].achieved_mhz, cool.points[key].achieved_mhz)
        for key in warm.points.keys() & cool.points
    ]
    return all(
        one is None or other is None or (is_held(one, other) and is_held(other, one)) for one, other in both
    )
