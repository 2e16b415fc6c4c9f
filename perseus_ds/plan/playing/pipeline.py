"""One pipeline that runs plans on paper, with GPUs whose clocks change as they do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perseus_ds.device import ClockChange
from perseus_ds.plan.playing.clock_requests import (
    OPENING,
    ClockRequest,
    RankClocks,
    guarding_j,
    opening_clocks,
    requests_of,
    varies,
)
from perseus_ds.plan.playing.paper_gpu import PaperGpu
from perseus_ds.plan.playing.play import Played, play
from perseus_ds.plan.record import FrequencyPlan
from perseus_ds.profile import Profile
from perseus_ds.schedule import Dag, Instruction

Floats = NDArray[np.float64]


class Asked:
    """What one rank asks for in an iteration, by the computation that it is asked in."""

    def __init__(self, clocks: RankClocks) -> None:
        self.first = clocks.opening
        self.of: dict[tuple[int, bool], list[ClockRequest]] = defaultdict(list)
        for request in clocks.requests:
            self.of[request.position, request.over].append(request)
        self.position = 0

    @classmethod
    def of_plan(
        cls, plan: FrequencyPlan, rank: int, change: ClockChange, played: Mapping[Instruction, Played]
    ) -> Asked:
        """What a plan has it ask for in every iteration."""
        own = [played[instruction] for _, instruction in plan.of.computations_of(rank)]
        low, total_s = plan.low_waits(rank), plan.iteration_time_s
        wait_clock, on_pace = plan.of.wait_clock, not varies(plan.of)
        requests = requests_of(
            own,
            total_s,
            change,
            low=low,
            wait_clock=wait_clock,
            on_pace=on_pace,
        )
        return cls(RankClocks(opening_clocks(plan, rank, requests), requests))

    def begins(self, gpu: PaperGpu) -> None:
        """Ask for what an iteration begins with."""
        self.position = 0
        gpu.request(self.first, gpu.now_s)
        gpu.ask(self.of[OPENING, False])


class PaperPipeline:
    """One pipeline that runs a plan on paper: when each computation really begins, and at what clocks."""

    def __init__(self, plan: FrequencyPlan, profile: Profile, change: ClockChange, dag: Dag) -> None:
        plans, ranks = plan.of, range(plan.of.schedule.ranks)
        self._options, self._fixed_s, self._dag = plans.options, plans.fixed_s, dag
        spared_w = {mhz: watts for one in plans.options.values() for mhz, watts in one.spared_w.items()}
        self._played = {one.instruction: self._guarded(one, spared_w) for one in play(plan)}
        self._order = dag.topological()
        self._before: list[list[tuple[int, float]]] = [[] for _ in dag.nodes]
        for (first, then), delay_s in zip(dag.edges, dag.delays_s(plans.fixed_s), strict=True):
            self._before[then].append((first, delay_s))
        rank_of = plans.schedule.rank_of_stages()
        self._rank = [rank_of[node.stage] for node in dag.nodes]
        self._asked = [Asked.of_plan(plan, rank, change, self._played) for rank in ranks]
        self.gpus = [PaperGpu(asked.first, change, profile.blocking_w, spared_w) for asked in self._asked]
        self.now_s = 0.0

    @property
    def energy_j(self) -> Floats:
        """What every GPU has taken so far."""
        return np.array([gpu.energy_j for gpu in self.gpus])

    def iterate(self, factor: Floats) -> None:
        """Run one iteration; all ranks end it together.

        Shape: ``factor`` [nodes].
        """
        for gpu, asked in zip(self.gpus, self._asked, strict=True):
            asked.begins(gpu)
        ends_s = np.zeros(len(self._order))
        for row in self._order:
            node = self._dag.nodes[row]
            start_s = max((ends_s[one] + delay_s for one, delay_s in self._before[row]), default=self.now_s)
            if node.kind.is_computation:
                ends_s[row] = self._compute(row, max(start_s, self.now_s), float(factor[row]))
            else:
                ends_s[row] = max(start_s, self.now_s) + self._fixed_s[node.stage, node.kind]
        self.wait_until(float(ends_s.max()))

    def wait_until(self, moment_s: float) -> None:
        """Have all ranks wait, for other pipelines as well."""
        self.now_s = max(self.now_s, moment_s)
        for gpu in self.gpus:
            gpu.wait_until(self.now_s)

    def _guarded(self, one: Played, spared_w: Mapping[int, float]) -> Played:
        """Count what a timeline's guard against varying durations takes."""
        if not one.kernels:
            return one
        options = self._options[one.instruction.stage, one.instruction.kind]
        return replace(one, energy_j=one.energy_j + guarding_j(one, options, spared_w))

    def _compute(self, row: int, start_s: float, factor: float) -> float:
        instruction, rank = self._dag.nodes[row], self._rank[row]
        gpu, options = self.gpus[rank], self._options[instruction.stage, instruction.kind]
        one, asked = self._played[instruction], self._asked[rank]
        gpu.wait_until(start_s)
        gpu.ask(asked.of[asked.position, False])
        if one.kernels:
            gpu.follow(one, options, factor)
        else:
            gpu.compute(options, factor)
        gpu.ask(asked.of[asked.position, True])
        asked.position += 1
        return gpu.now_s
