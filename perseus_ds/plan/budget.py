"""How often clocks may change: by GPU and by node, and what a plan makes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.errors import PlanError

GPUS_PER_NODE = 8
"""Ranks of a pipeline that share a driver, where nobody states how many."""


@dataclass(frozen=True, slots=True)
class ChangeBudget:
    """At most so many changes of clock per second; None is without limit.

    The calls of a node's GPUs queue in one driver: ``per_node_per_s`` is for ``gpus_per_node`` ranks of a
    pipeline together, in their order.

    Raises:
        PlanError: a value that is not a number, or is negative.
    """

    per_gpu_per_s: float | None = None
    per_node_per_s: float | None = None
    gpus_per_node: int = GPUS_PER_NODE

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if value is not None and not (math.isfinite(value) and value >= 0.0):
                raise PlanError(
                    f"budget of changes: {part.name} is {value!r}", hint="expected a finite number, 0 or more"
                )
        if self.gpus_per_node < 1:
            raise PlanError(f"budget of changes: {self.gpus_per_node} GPUs per node", hint="at least 1")

    def __str__(self) -> str:
        """What it forbids, as fingerprints state it; empty where that is nothing."""
        said = ""
        if self.per_gpu_per_s is not None:
            said += f", {self.per_gpu_per_s:g} changes per second and GPU"
        if self.per_node_per_s is not None:
            said += f", {self.per_node_per_s:g} per node of {self.gpus_per_node}"
        return said

    @property
    def limits(self) -> bool:
        """Whether it forbids anything."""
        return (self.per_gpu_per_s, self.per_node_per_s) != (None, None)

    def less(self, changes: int, time_s: float) -> ChangeBudget | None:
        """Leave so many changes of every GPU in an iteration to others; None where too few are left."""
        per_s = changes / time_s
        gpu = None if self.per_gpu_per_s is None else self.per_gpu_per_s - per_s
        node = None if self.per_node_per_s is None else self.per_node_per_s - self.gpus_per_node * per_s
        left = [limit for limit in (gpu, node) if limit is not None]
        if not left or min(left) * time_s < 1.0:
            return None
        return replace(self, per_gpu_per_s=gpu, per_node_per_s=node)

    def node_of(self, ranks: int) -> NDArray[np.int32]:
        """The node of every rank of a pipeline."""
        return (np.arange(ranks) // self.gpus_per_node).astype(np.int32)

    def left(self, changes: NDArray[np.int64], time_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """How many changes each GPU may still make; negative where it makes too many.

        What is left of a node's is what each of its GPUs could take alone.

        Shape: ``changes`` [ranks, plans], ``time_s`` [plans]; returns [ranks, plans].
        """
        left = np.full(changes.shape, MANY)
        if self.per_gpu_per_s is not None:
            left = allowed(self.per_gpu_per_s, time_s) - changes
        if self.per_node_per_s is not None:
            node = self.node_of(len(changes))
            together = np.zeros((int(node.max()) + 1, changes.shape[1]), np.int64)
            np.add.at(together, node, changes)
            left = np.minimum(left, (allowed(self.per_node_per_s, time_s) - together)[node])
        return left


MANY = np.int64(2**62)


def allowed(per_s: float, time_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole changes in an iteration of that length."""
    return np.floor(per_s * time_s * (1.0 + 1e-12)).astype(np.int64)


def changes_of(
    ranks: Sequence[Sequence[int]], first_mhz: NDArray[np.int64], last_mhz: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How often each rank's clock changes in an iteration, the way back to its first clock included.

    Shape: ``ranks`` columns of each in running order; clocks that computations begin and end at
    [plans, computations]; returns [ranks, plans].
    """
    changes = np.zeros((len(ranks), len(first_mhz)), np.int64)
    for rank, columns in enumerate(ranks):
        begin, end = first_mhz[:, columns], last_mhz[:, columns]
        changes[rank] = (begin != end).sum(axis=1) + (begin != np.roll(end, 1, axis=1)).sum(axis=1)
    return changes
