"""A launch sequence cut into runs of one pair, what it costs, and what a change of pair costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.errors import ConfigError
from perseus_ds.kernels.choose.table import LaunchCosts
from perseus_ds.solver.problem import Floats, Ints


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """What the planner must know of a change.

    A change is asked for ahead by its latency, so that it is in force at the boundary. While one is on its
    way no other is asked for. So a run lasts as long as the slowest change, or ``dwell_s`` if that is longer.
    ``stall_w`` is drawn while a change stalls the GPU.
    """

    change: ClockChange
    dwell_s: float = 0.0
    stall_w: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("dwell_s", self.dwell_s), ("stall_w", self.stall_w)):
            if not 0.0 <= value <= math.inf:
                raise ConfigError(f"change of clocks: {name} is {value}", hint="expected 0 or more")

    @property
    def shortest_run_s(self) -> float:
        """How long every run must last."""
        return max(self.dwell_s, self.change.longest_s)


FREE = ChangeCost(ClockChange())


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """A launch sequence with what each class costs at each pair.

    Shape: ``kernels`` [launches], rows of ``costs``.
    """

    kernels: Ints
    costs: LaunchCosts
    change: ChangeCost = FREE

    @property
    def default_s(self) -> float:
        """Time at the default pair."""
        return float(self.costs.time_s[self.kernels, 0].sum())

    @property
    def default_j(self) -> float:
        """Energy at the default pair."""
        return float(self.costs.energy_j[self.kernels, 0].sum())

    def runs(self, starts: Ints, option: Ints, bound_j: float = 0.0) -> Runs:
        """Cost the given runs."""
        per_launch = np.repeat(option, np.diff(np.append(starts, len(self.kernels))))
        stalled_s = (len(starts) - 1) * self.change.change.stall_s
        return Runs(
            starts,
            option,
            float(self.costs.time_s[self.kernels, per_launch].sum()) + stalled_s,
            float(self.costs.energy_j[self.kernels, per_launch].sum()) + stalled_s * self.change.stall_w,
            bound_j,
        )

    def runs_of(self, per_launch: Ints) -> Runs:
        """Join launches of one pair that follow each other.

        Shape: [launches].
        """
        starts = np.flatnonzero(np.append(True, np.diff(per_launch) != 0))
        return self.runs(starts, per_launch[starts])

    def lasts(self, runs: Runs) -> bool:
        """Whether every run lasts long enough, or is the only one."""
        return len(runs.starts) == 1 or bool(self.durations_s(runs).min() >= self.change.shortest_run_s)

    def durations_s(self, runs: Runs) -> Floats:
        """How long each run lasts.

        Shape: [runs].
        """
        per_launch = runs.per_launch(len(self.kernels))
        return np.add.reduceat(self.costs.time_s[self.kernels, per_launch], runs.starts)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Where each run starts (a launch), and its pair (a column of the costs).

    No runs within the same time use less than ``bound_j`` (0: not known).
    """

    starts: Ints
    option: Ints
    time_s: float
    energy_j: float
    bound_j: float = 0.0

    @property
    def changes(self) -> int:
        """Changes of pair inside the sequence."""
        return len(self.starts) - 1

    def per_launch(self, launches: int) -> Ints:
        """The pair of every launch.

        Shape: [launches].
        """
        per_launch: Ints = np.repeat(self.option, np.diff(np.append(self.starts, launches)))
        return per_launch
