"""What is wrong with the counters of other ranks, in the log of rank 0: each trouble once, with its ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from perseus_ds.runtime.observe.event_log import EventLog


def log_troubles(log: EventLog, by_rank: Mapping[int, Sequence[str]]) -> None:
    """Report what is new; rank 0 reports its own troubles itself, as they come."""
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, troubles in by_rank.items():
        for trouble in troubles if rank else ():
            ranks_of[trouble].append(rank)
    for trouble, ranks in ranks_of.items():
        log.event_once("not_measured", f"{whose(ranks)}: {trouble}", ranks=ranks)


def whose(ranks: Sequence[int]) -> str:
    """Name the first of some ranks, and how many more there are."""
    return f"rank {ranks[0]}" + (f" and {len(ranks) - 1} more" if len(ranks) > 1 else "")
