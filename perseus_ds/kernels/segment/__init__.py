"""A launch sequence cut into runs of one pair of clocks, as long as changes take and cost something."""

from perseus_ds.kernels.segment.bounded import runs_at, runs_within
from perseus_ds.kernels.segment.runs import ChangeCost, Runs, Sequence
from perseus_ds.kernels.segment.timelines import timelines, timelines_of

__all__ = [
    "ChangeCost",
    "Runs",
    "Sequence",
    "runs_at",
    "runs_within",
    "timelines",
    "timelines_of",
]
