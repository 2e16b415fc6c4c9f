"""The order of a training loop: read off the first iteration, because the loop is the user's own code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby, pairwise

from perseus_ds.errors import UnsupportedEngineError
from perseus_ds.runtime.adapter import Batch
from perseus_ds.schedule import Instruction, Kind, Load, Order

_SKIPPED = (Kind.FORWARD, Kind.FORWARD)


class FirstIteration:
    """A listener that notes one iteration and states when it is over."""

    def __init__(self) -> None:
        self.kinds: list[Kind] = []
        self.ended = False

    def iteration_begins(self, batch: Batch) -> bool:
        """Begin to note."""
        del batch
        self.kinds.clear()
        return True

    def before(self, kind: Kind, load: Load | None = None) -> None:
        """Note it."""
        del load
        self.kinds.append(kind)

    def after(self, kind: Kind) -> None:
        """Nothing: what began is what counts."""

    def iteration_ends(self) -> None:
        """Be done."""
        self.ended = True

    def other_schedule_begins(self) -> None:
        """Nothing: an evaluation is no iteration."""

    def iteration_broke(self) -> None:
        """Nothing: the next one is noted anew."""

    def fail(self, error: Exception) -> bool:
        """Leave the line to the caller: there is nothing to restore."""
        raise error


def order_of(kinds: Iterable[Kind]) -> Order:
    """Number what ran: the n-th of a kind is that of microbatch n, on the one model stage that there is.

    A forward that the next one follows is a microbatch that was skipped (its loss was not finite, memory ran
    out), where others of the loop have their backwards.

    Raises:
        UnsupportedEngineError: a loop in which not every forward has its backward.
    """
    ran = list(kinds)
    if 1 in {len(list(alike)) for kind, alike in groupby(ran) if kind is Kind.FORWARD}:
        ran = [kind for kind, after in pairwise([*ran, None]) if kind and (kind, after) != _SKIPPED]
    turns: Counter[Kind] = Counter()
    order = []
    for kind in ran:
        order.append(Instruction(0, kind, turns[kind]))
        turns[kind] += 1
    if turns[Kind.FORWARD] != turns[Kind.BACKWARD] or not turns[Kind.FORWARD]:
        raise UnsupportedEngineError(
            f"the training loop runs {turns[Kind.FORWARD]} forwards and {turns[Kind.BACKWARD]} backwards of "
            "the engine in one iteration, which cannot be distinguished",
            hint="one backward for each forward of the engine",
        )
    return tuple(order)


def resized(order: Order, microbatches: int) -> Order:
    """Return the same loop over another number of microbatches.

    Raises:
        UnsupportedEngineError: a loop whose microbatches but the last are not run alike.
    """
    kinds = [one.kind for one in order]
    begins = [place for place, kind in enumerate(kinds) if kind is Kind.FORWARD]
    if len(begins) == microbatches:
        return order
    *others, last = (kinds[a:b] for a, b in pairwise([*begins, len(kinds)]))
    if begins[0] != 0 or len({tuple(one) for one in others}) != 1:
        raise UnsupportedEngineError(
            f"how this loop runs {microbatches} microbatches does not follow from how it ran {len(begins)}"
        )
    return order_of([*others[0] * (microbatches - 1), *last])
