"""The machines of an emulated job: how many pipelines, GPUs per rank and per node, and how clocks change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perseus_ds.device import ClockChange
from perseus_ds.errors import ConfigError
from perseus_ds.simulation.emulator.records import CAUSES, PENDING, Gpus


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Pipelines of ``tensor`` GPUs per rank, numbered pipeline by pipeline, rank by rank, node after node.

    ``change`` is how clocks really change, ``reckoned`` what the job believes of it and asks ahead by (None:
    the truth). ``waiting_w`` is the power of a waiting GPU, a number or by clock; None: as the plans were
    made with.

    Raises:
        ConfigError: no pipelines, no GPUs.
    """

    pipelines: int = 1
    tensor: int = 1
    gpus_per_node: int = 8
    change: ClockChange = field(default_factory=ClockChange)
    reckoned: ClockChange | None = None
    waiting_w: Mapping[int, float] | float | None = None

    def __post_init__(self) -> None:
        for name in ("pipelines", "tensor", "gpus_per_node"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}", hint="expected 1 or more")

    def gpus(self, ranks: int) -> int:
        """Return how many GPUs the job has."""
        return self.pipelines * ranks * self.tensor

    def islands(self, ranks: int) -> list[tuple[int, int]]:
        """Split the pipelines into ranges that share nodes with no others."""
        step = 1
        while step < self.pipelines and (step * ranks * self.tensor) % self.gpus_per_node:
            step += 1
        return [(first, min(first + step, self.pipelines)) for first in range(0, self.pipelines, step)]


def idle_gpus(count: int, *, per_node: int, clock: int) -> Gpus:
    """Return GPUs that wait at a clock and have used nothing yet."""
    return Gpus(
        clock=np.full(count, clock, dtype=np.int64),
        wanted=np.full(count, clock, dtype=np.int64),
        row=np.full(count, -1, dtype=np.int64),
        cause=np.ones(count, dtype=np.int64),
        left=np.zeros(count),
        since_s=np.zeros(count),
        done_s=np.zeros(count),
        paused_s=np.full(count, -np.inf),
        free_s=np.full(count, -np.inf),
        force_s=np.full(count, -np.inf),
        pending_s=np.zeros((count, PENDING)),
        pending=np.full((count, PENDING), -1, dtype=np.int64),
        energy_j=np.zeros((count, len(CAUSES))),
        changes=np.zeros(count, dtype=np.int64),
        driver_s=np.full(-(-count // per_node), -np.inf),
    )
