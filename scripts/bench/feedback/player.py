"""An independent player of plans with feedback: plain Python over the orders, no kernel, no emulator.

Each rank has a clock in force and requests under way, each in force a latency after it was asked for. A
computation's work goes on at whatever clock is in force. Waiting takes one power.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from perseus_ds.plan import OPENING, PlanSet, clock_requests, opening_clocks
from perseus_ds.plan.feedback.policy import tables_of
from perseus_ds.profile import Profile
from perseus_ds.schedule import dag_of


class Rank:
    """One GPU: the clock in force, what is asked for and when that comes into force."""

    def __init__(self, plans: PlanSet, index: int, rank: int) -> None:
        plan = plans.plan(index)
        self.tables = tables_of(plans, rank, index)
        requests = clock_requests(plan, rank, plans.change, tables=self.tables)
        self.asks = defaultdict(list)
        for one in requests:
            self.asks[one.position, one.over].append(one)
        self.mhz = self.asked_mhz = opening_clocks(plan, rank, requests, self.tables)[0]
        self.latency_s = plans.change.longest_s
        self.due: list[tuple[float, int]] = []
        self.coming: list[tuple[float, int]] = []

    def ask(self, at_s: float, mhz: int) -> None:
        """Ask at a moment; a request that was due later is dropped."""
        self.due = [one for one in self.due if one[0] <= at_s]
        self.due.append((at_s, mhz))

    def next_s(self) -> float:
        """When something changes next."""
        return min([at_s for at_s, _ in self.due[:1]] + [at_s for at_s, _ in self.coming[:1]], default=np.inf)

    def pass_to(self, at_s: float) -> None:
        """Have all that is due by then asked for, and all that has come in force."""
        while self.next_s() <= at_s:
            if self.due and (not self.coming or self.due[0][0] <= self.coming[0][0]):
                when_s, mhz = self.due.pop(0)
                if mhz != self.asked_mhz:
                    self.asked_mhz = mhz
                    self.coming.append((when_s + self.latency_s, mhz))
            else:
                self.mhz = self.coming.pop(0)[1]

    def correct(self, position: int, start_s: float, begun_s: float, before_s: float) -> tuple[float, float]:
        """Ask for what the lateness decides; return the lateness, and by how much later the end is."""
        if self.tables is None:
            return 0.0, 0.0
        table = self.tables[position]
        late_s = start_s - begun_s - table.begin_s
        answer = table.decide(late_s, before_s)
        if answer.after_s > 0.0:
            self.ask(start_s, answer.first_mhz)
        self.ask(start_s + answer.after_s, answer.then_mhz)
        return late_s, answer.later_s

    def work(
        self, now_s: float, factor: float, own: dict[int, tuple[float, float]], waiting_w: float
    ) -> tuple[float, float]:
        """Do a computation's work; return its end and what it takes beyond waiting."""
        spent_j, left = 0.0, 1.0
        while left > 0.0:
            self.pass_to(now_s)
            time_s, energy_j = own[self.mhz]
            share = min(left, (self.next_s() - now_s) / (factor * time_s))
            spent_j += share * factor * (energy_j - waiting_w * time_s)
            done = share == left
            now_s = now_s + share * factor * time_s if done else self.next_s()
            left = 0.0 if done else left - share
        return now_s, spent_j


def play(
    plans: PlanSet, profile: Profile, index: int, *, noise: float, iterations: int, seed: int
) -> tuple[float, float]:
    """Saving and slowdown in percent against the highest clocks under the same draws."""
    dag, random = dag_of(plans.schedule), np.random.default_rng(seed)
    waiting_w, ranks = plans.baseline.blocking_power_w, plans.schedule.ranks
    gpus = [Rank(plans, index, rank) for rank in range(ranks)]
    where = {i: (rank, n) for rank in range(ranks) for n, (_, i) in enumerate(plans.computations_of(rank))}
    before, delays_s = defaultdict(list), dag.delays_s(plans.fixed_s)
    for (first, then), delay_s in zip(dag.edges, delays_s, strict=True):
        before[then].append((first, delay_s))
    points = {
        key: {one.clock_mhz: (one.time_s, one.energy_j) for one in profile.of(*key)} for key in plans.options
    }
    begun_s, spent_j, default_j, default_s = 0.0, 0.0, 0.0, 0.0
    for iteration in range(iterations + 1):
        factor = 1.0 + noise * random.standard_normal(len(dag.nodes))
        end_s, top_s, late_s = {}, {}, dict.fromkeys(range(ranks), 0.0)
        if iteration == 1:
            first_s, spent_j, default_j, default_s = begun_s, 0.0, 0.0, 0.0
        for gpu in gpus:
            gpu.ask(begun_s, opening_of(gpu))
            for one in gpu.asks[OPENING, False]:
                gpu.ask(begun_s + one.offset_s, one.clock_mhz)
        for node in dag.topological():
            instruction = dag.nodes[node]
            start_s = max((end_s[one] + delay_s for one, delay_s in before[node]), default=begun_s)
            start_top_s = max((top_s[one] + delay_s for one, delay_s in before[node]), default=0.0)
            if instruction not in where:
                fixed_s = plans.fixed_s[instruction.stage, instruction.kind]
                end_s[node], top_s[node] = start_s + fixed_s, start_top_s + fixed_s
                continue
            (rank, position), own = where[instruction], points[instruction.stage, instruction.kind]
            gpu, (time_s, energy_j) = gpus[rank], own[max(own)]
            top_s[node] = start_top_s + factor[node] * time_s
            default_j += factor[node] * (energy_j - waiting_w * time_s)
            gpu.pass_to(start_s)
            late_s[rank], later_s = gpu.correct(position, start_s, begun_s, late_s[rank])
            for one in gpu.asks[position, False]:
                gpu.ask(start_s + max(0.0, one.offset_s + later_s), one.clock_mhz)
            now_s, energy_j = gpu.work(start_s, factor[node], own, waiting_w)
            spent_j += energy_j
            end_s[node] = now_s
            for one in gpu.asks[position, True]:
                gpu.ask(now_s + one.offset_s, one.clock_mhz)
        begun_s = max(end_s.values())
        default_s += max(top_s.values())
    took_s = begun_s - first_s
    spent_j, default_j = spent_j + waiting_w * ranks * took_s, default_j + waiting_w * ranks * default_s
    return 100.0 * (1.0 - spent_j / default_j), 100.0 * (took_s / default_s - 1.0)


def opening_of(gpu: Rank) -> int:
    """The clock that an iteration opens with: what is asked for last in the one before."""
    last = max((key for key in gpu.asks if gpu.asks[key]), default=None)
    return gpu.asked_mhz if last is None else gpu.asks[last][-1].clock_mhz
