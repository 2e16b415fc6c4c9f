"""What a plan takes when its clocks change as clocks do: late, and in force while a GPU waits too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perseus_ds.device import ClockChange
from perseus_ds.plan.options import Options
from perseus_ds.plan.playing.clock_requests import OPENING, ClockRequest, requests_of
from perseus_ds.plan.playing.play import Played, play
from perseus_ds.plan.record import FrequencyPlan

_ITERATIONS = 2  # the first brings every clock to where an iteration leaves it; the last counts


def expected_saving_pct(plan: FrequencyPlan, change: ClockChange, waiting_w: Mapping[int, float]) -> float:
    """The saving to expect of a plan on GPUs that change their clocks so.

    The plan itself counts every wait at one power and every computation at its own clock. Really a lower
    clock comes into force when the computation that it is for has begun, and a GPU waits at the clock of
    what follows. The reserve is what nothing takes while durations are as profiled: an iteration ends when
    its last instruction does. ``waiting_w`` is the power of a waiting GPU by clock, as profiled;
    behind a timeline it waits at the memory clock that it was left at.

    Cost: a pass over the schedule's graph, and two over its computations.
    """
    played = {one.instruction: one for one in play(plan)}
    lasts_s = max(one.end_s for one in played.values())
    spared_w = {mhz: watts for one in plan.of.options.values() for mhz, watts in one.spared_w.items()}
    energy_j = 0.0
    for rank in range(plan.of.schedule.ranks):
        columns = plan.of.computations_of(rank)
        own = [played[instruction] for _, instruction in columns]
        requests = requests_of(own, lasts_s, change, low=plan.low_waits(rank), wait_clock=plan.of.wait_clock)
        energy_j += _rank_j(
            plan, own, requests, lasts_s, _Gpu(own[0].parts[0].clocks, change, waiting_w, spared_w)
        )
    return 100.0 * (1.0 - energy_j / plan.of.baseline.energy_j)


def _rank_j(
    plan: FrequencyPlan, own: Sequence[Played], requests: Sequence[ClockRequest], lasts_s: float, gpu: _Gpu
) -> float:
    asked: dict[tuple[int, bool], list[ClockRequest]] = defaultdict(list)
    for request in requests:
        asked[request.position, request.over].append(request)
    options = plan.of.options
    whole = {
        i: portions[-1].option < len(options[i.stage, i.kind].clock_mhz)
        for i, portions in plan.portions().items()
    }
    counted_j = 0.0
    for iteration in range(_ITERATIONS):
        begin_s, before_j = iteration * lasts_s, gpu.energy_j
        gpu.ask(asked[OPENING, False])
        for position, one in enumerate(own):
            gpu.wait_until(begin_s + one.start_s)
            gpu.ask(asked[position, False])
            if whole[one.instruction]:
                gpu.compute(options[one.instruction.stage, one.instruction.kind])
            else:
                gpu.follow(one, options[one.instruction.stage, one.instruction.kind])
            gpu.ask(asked[position, True])
        gpu.wait_until(begin_s + lasts_s)
        counted_j = gpu.energy_j - before_j
    return counted_j


@dataclass(slots=True)
class _Gpu:
    """One GPU on paper: core and memory clock in force, and those that are on their way."""

    clocks: tuple[int, int | None]
    change: ClockChange
    waiting_w: Mapping[int, float]
    spared_w: Mapping[int, float]
    now_s: float = 0.0
    energy_j: float = 0.0
    _coming: list[tuple[float, tuple[int, int | None]]] = field(default_factory=list)

    def ask(self, requests: Sequence[ClockRequest]) -> None:
        """Have clocks in force some time after now."""
        for request in requests:
            last_mhz, _ = self._coming[-1][1] if self._coming else self.clocks
            latency_s = self.change.latency_s(last_mhz, request.clock_mhz)
            wanted = request.clock_mhz, request.memory_mhz
            self._coming.append((self.now_s + request.offset_s + latency_s, wanted))

    def wait_until(self, moment_s: float) -> None:
        """Wait at whatever clocks are in force; a moment that is over changes nothing."""
        while self.now_s < moment_s:
            until_s = min(moment_s, self._next_s())
            self.energy_j += (until_s - self.now_s) * self._waiting_w()
            self._pass_to(until_s)

    def compute(self, options: Options) -> None:
        """Do a computation's work, each share of it at the clock that is in force then."""
        left = 1.0
        while left > 0.0:
            left = self._until_next(options, left)

    def follow(self, one: Played, options: Options) -> None:
        """Run a timeline of kernels as it is planned, from when its first clocks are in force.

        What its kernels take at clocks of others is not known. Before that the work goes on as it does at
        the whole clock that is in force.
        """
        left = 1.0
        while left > 0.0 and self._coming and self.clocks != one.parts[0].clocks:
            left = self._until_next(options, left)
        self.energy_j += left * one.energy_j
        self._pass_to(self.now_s + left * one.duration_s)

    def _until_next(self, options: Options, left: float) -> float:
        """Work at the clock in force until another is, or all is done; return the share that is left."""
        at = int(abs(options.clock_mhz - self.clocks[0]).argmin())
        time_s, energy_j = float(options.time_s[at]), float(options.energy_j[at])
        share = min(left, max(0.0, self._next_s() - self.now_s) / time_s)
        done = share == left
        self.energy_j += share * energy_j
        self._pass_to(self.now_s + share * time_s if done else self._next_s())
        return 0.0 if done else left - share

    def _next_s(self) -> float:
        return self._coming[0][0] if self._coming else float("inf")

    def _pass_to(self, moment_s: float) -> None:
        self.now_s = max(self.now_s, moment_s)
        while self._coming and self._coming[0][0] <= self.now_s:
            self.clocks = self._coming.pop(0)[1]

    def _waiting_w(self) -> float:
        clock_mhz, memory_mhz = self.clocks
        nearest = min(self.waiting_w, key=lambda known_mhz: abs(known_mhz - clock_mhz))
        return self.waiting_w[nearest] - self.spared_w.get(memory_mhz or 0, 0.0)
