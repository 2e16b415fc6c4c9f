"""What a launch sequence really takes when its changes of clocks are late: run launch by launch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perseus_ds.device.clock_change import ChangeQueue, ClockChange
from perseus_ds.device.gpu import ClockPair
from perseus_ds.kernels.segment.runs import Runs, Sequence
from perseus_ds.solver.problem import Floats


@dataclass(frozen=True, slots=True)
class Replayed:
    """Time and energy with every change in force when it really is.

    ``late_s`` was spent at other pairs than planned.
    """

    time_s: float
    energy_j: float
    late_s: float


def play(sequence: Sequence, runs: Runs, *, ahead: bool = True) -> Replayed:
    """Run the runs on a GPU whose clocks follow later than they are asked for.

    Requests go out as the sequence proceeds, ``ahead`` by their latency as planned. Otherwise they go out
    only at the run's own beginning, as a plan that is applied literally does. Until a change is in force the
    old pair runs on. The sequence begins at its first pair.

    Cost: linear in launches and changes.
    """
    costs, kernels = sequence.costs, sequence.kernels
    wanted = runs.per_launch(len(kernels))
    planned_s = np.append(0.0, np.cumsum(costs.time_s[kernels, wanted]))
    begin_s = planned_s[runs.starts]
    asked = _asked_at(sequence, runs, begin_s) if ahead else begin_s
    state = _DevicePlay(sequence, int(runs.option[0]))
    coming = 1
    for launch in range(len(kernels)):
        state.launch, state.wanted = int(kernels[launch]), int(wanted[launch])
        at_s, length_s = planned_s[launch], planned_s[launch + 1] - planned_s[launch]
        done = 0.0
        while coming < len(asked) and asked[coming] < planned_s[launch + 1]:
            share = max(done, min(1.0, (asked[coming] - at_s) / length_s))
            state.work(share - done)
            done = share
            state.ask(int(runs.option[coming]))
            coming += 1
        state.work(1.0 - done)
    return Replayed(state.now_s, state.energy_j, state.late_s)


def _asked_at(sequence: Sequence, runs: Runs, begin_s: Floats) -> Floats:
    """When each change is asked for, in planned time: never before the one before it.

    Shape: [runs].
    """
    change, pairs = sequence.change.change, sequence.costs.pairs
    lead_s = [0.0] + [
        change.latency_s(*_ranks(pairs[before], pairs[after]))
        for before, after in zip(runs.option[:-1], runs.option[1:], strict=True)
    ]
    return np.maximum.accumulate(np.maximum(0.0, begin_s - np.array(lead_s)))


def _ranks(before: ClockPair, after: ClockPair) -> tuple[float, float]:
    """The two as one direction: the core clock informs it, or the memory clock where the core's stays."""
    (memory_0, core_0), (memory_1, core_1) = before.rank, after.rank
    return (core_0, core_1) if core_0 != core_1 else (memory_0, memory_1)


class _DevicePlay:
    """The device while a sequence is run: time, energy, the pair in force and those on their way."""

    def __init__(self, sequence: Sequence, option: int) -> None:
        self.now_s = self.energy_j = self.late_s = 0.0
        self.launch = self.wanted = 0
        self._costs, self._stall = sequence.costs, sequence.change
        self._change: ClockChange = sequence.change.change
        self._queue = ChangeQueue(self._change)
        self._option = self._last_asked = option
        self._coming: list[tuple[float, int]] = []

    def ask(self, option: int) -> None:
        """Ask for a pair now."""
        pairs = self._costs.pairs
        before, after = _ranks(pairs[self._last_asked], pairs[option])
        in_force_s = self._queue.ask(0, self.now_s, from_mhz=before, to_mhz=after)
        self._coming.append((in_force_s, option))
        self._last_asked = option
        self._apply()

    def work(self, share: float) -> None:
        """Do a share of the present launch, at whatever pairs are in force meanwhile."""
        while share > 0.0:
            time_s, energy_j = self._cost()
            until_s = self._coming[0][0] if self._coming else np.inf
            part = min(share, (until_s - self.now_s) / time_s)
            self.now_s += part * time_s
            self.energy_j += part * energy_j
            self.late_s += 0.0 if self._option == self.wanted else part * time_s
            share -= part
            if share > 0.0:
                self.now_s = max(self.now_s, until_s)
            self._apply()

    def _cost(self) -> tuple[float, float]:
        """The launch at the pair in force; at the default pair where it was not measured at that."""
        option = self._option if np.isfinite(self._costs.time_s[self.launch, self._option]) else 0
        return float(self._costs.time_s[self.launch, option]), float(
            self._costs.energy_j[self.launch, option]
        )

    def _apply(self) -> None:
        while self._coming and self._coming[0][0] <= self.now_s:
            self._option = self._coming.pop(0)[1]
            self.now_s += self._change.stall_s
            self.energy_j += self._change.stall_s * self._stall.stall_w
