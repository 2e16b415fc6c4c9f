"""Name the ranks that refuse: a job is served on all of its ranks or on none, and all give one reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perseus_ds.errors import PerseusError

_NAMED = 8  # ranks in a line: the others are counted


def joint_refusal(refusals: Mapping[int, PerseusError], *, ranks: int) -> PerseusError:
    """Return the refusal of the lowest rank, naming all that gave the same one, unless all ``ranks`` did."""
    first = refusals[min(refusals)]
    alike = sorted(rank for rank, one in refusals.items() if str(one) == str(first))
    if len(alike) == ranks:
        return first
    return type(first)(f"{in_words(alike)}: {first.message}", hint=first.hint)


def in_words(ranks: Sequence[int]) -> str:
    """Name ranks, and count those beyond the first few."""
    beyond = len(ranks) - _NAMED
    named = ", ".join(map(str, ranks[:_NAMED]))
    return f"rank {named}" if beyond <= 0 else f"rank {named} and {beyond} more"
