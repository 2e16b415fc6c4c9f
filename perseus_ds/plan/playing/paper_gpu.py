"""One GPU on paper: what it takes while clocks change as they do, asked ahead, late, or not at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perseus_ds.device import ClockChange
from perseus_ds.plan.options import Options
from perseus_ds.plan.playing.clock_requests import ClockRequest, Clocks
from perseus_ds.plan.playing.play import Played


@dataclass(slots=True)
class PaperGpu:
    """Core and memory clock in force, those that were asked for and those that are still to be asked.

    ``waiting_w`` is the power of a waiting GPU by clock, ``spared_w`` what it spares by its memory clock. A
    request that is not due yet is superseded by a later one that is due before it, as in the job.
    """

    clocks: Clocks
    change: ClockChange
    waiting_w: Mapping[int, float]
    spared_w: Mapping[int, float]
    now_s: float = 0.0
    energy_j: float = 0.0
    _due: list[tuple[float, Clocks]] = field(default_factory=list)
    _coming: list[tuple[float, Clocks]] = field(default_factory=list)
    _free_s: float = -math.inf

    def ask(self, requests: Iterable[ClockRequest]) -> None:
        """Ask for clocks some time after now."""
        for request in requests:
            self.request((request.clock_mhz, request.memory_mhz), self.now_s + request.offset_s)

    def request(self, clocks: Clocks, due_s: float) -> None:
        """Ask for clocks at a moment from now on."""
        self._due = [one for one in self._due if one[0] <= due_s]
        self._due.append((due_s, clocks))
        self._call()

    def wait_until(self, moment_s: float) -> None:
        """Wait at whatever clocks are in force; a moment that is over changes nothing."""
        while self.now_s < moment_s:
            until_s = min(moment_s, self._next_s())
            self.energy_j += (until_s - self.now_s) * self.waiting_power_w
            self._pass_to(until_s)

    def compute(self, options: Options, times: float = 1.0) -> None:
        """Do a computation's work, each share of it at the clock that is in force then.

        ``times`` is how much more work there is than on average.
        """
        left = 1.0
        while left > 0.0:
            left = self._until_next(options, left, times)

    def follow(self, one: Played, options: Options, times: float = 1.0) -> None:
        """Run a timeline of kernels as it is planned, from when its first clocks are in force.

        What its kernels take at clocks of others is not known. Before that the work goes on as it does at
        the whole clock that is in force.
        """
        left = 1.0
        while left > 0.0 and (self._due or self._coming) and self.clocks != one.parts[0].clocks:
            left = self._until_next(options, left, times)
        self.energy_j += left * times * one.energy_j
        self._pass_to(self.now_s + left * times * one.duration_s)

    def _until_next(self, options: Options, left: float, times: float) -> float:
        """Work at the clock in force until another is, or all is done; return the share that is left."""
        at = int(abs(options.clock_mhz - self.clocks[0]).argmin())
        time_s, energy_j = times * float(options.time_s[at]), times * float(options.energy_j[at])
        share = min(left, max(0.0, self._next_s() - self.now_s) / time_s)
        done = share == left
        self.energy_j += share * energy_j
        self._pass_to(self.now_s + share * time_s if done else self._next_s())
        return 0.0 if done else left - share

    def _next_s(self) -> float:
        """When something happens next: a request is due, or a clock comes into force."""
        return min(
            self._due[0][0] if self._due else math.inf, self._coming[0][0] if self._coming else math.inf
        )

    def _pass_to(self, moment_s: float) -> None:
        self.now_s = max(self.now_s, moment_s)
        self._call()

    def _call(self) -> None:
        """Make every call that is due, and have every clock in force that has come."""
        while self._due and self._due[0][0] <= self.now_s:
            due_s, clocks = self._due.pop(0)
            last, (comes_s, _) = (
                (self._coming[-1][1], self._coming[-1]) if self._coming else (self.clocks, (-math.inf, None))
            )
            if clocks == last:
                continue
            begins_s = max(due_s, self._free_s)
            self._free_s = begins_s + self.change.call_s
            in_force_s = begins_s + self.change.latency_s(last[0], clocks[0])
            self._coming.append((max(in_force_s, comes_s), clocks))
        while self._coming and self._coming[0][0] <= self.now_s:
            self.clocks = self._coming.pop(0)[1]

    @property
    def waiting_power_w(self) -> float:
        """What it takes now while it waits."""
        clock_mhz, memory_mhz = self.clocks
        nearest = min(self.waiting_w, key=lambda known_mhz: abs(known_mhz - clock_mhz))
        return self.waiting_w[nearest] - self.spared_w.get(memory_mhz or 0, 0.0)
