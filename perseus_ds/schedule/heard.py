"""Which instructions of its order a rank was observed to run, from their kinds alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count

from perseus_ds.errors import ScheduleMismatchError
from perseus_ds.schedule.instruction import Instruction, Kind
from perseus_ds.schedule.schedule import Order


def heard(order: Order, kinds: Sequence[Kind]) -> tuple[Instruction, ...]:
    """Name what was observed: the n-th of a kind is the n-th of that kind in the order.

    What the order has not (and what comes more often than there) bears the rank's lowest stage. What has no
    place to be observed, such as a transfer within a call, may stand in the order all the same.

    Raises:
        ScheduleMismatchError: computations in another order, so that no name would be right.
    """
    computed = [kind for kind in kinds if kind.is_computation]
    expected = [instruction.kind for instruction in order if instruction.kind.is_computation]
    if expected and computed != expected:
        raise ScheduleMismatchError(
            f"a rank ran {_start(computed, expected)}; its order has {_start(expected, computed)}"
        )
    home = min((instruction.stage for instruction in order), default=0)
    waiting: defaultdict[Kind, count[int]] = defaultdict(count)
    named = {(instruction.kind, next(waiting[instruction.kind])): instruction for instruction in order}
    waiting.clear()
    places = [(kind, next(waiting[kind])) for kind in kinds]
    return tuple(named.get((kind, place), Instruction(home, kind, place)) for kind, place in places)


def _start(kinds: Sequence[Kind], others: Sequence[Kind]) -> str:
    """Write kinds up to a little after the first that differs from the others."""
    same = next((n for n, (a, b) in enumerate(zip(kinds, others, strict=False)) if a != b), len(others))
    shown = " ".join(kind.value for kind in kinds[max(0, same - 3) : same + 3])
    return f"{len(kinds)} computations, from number {max(0, same - 3)} on {shown or 'none'}"
