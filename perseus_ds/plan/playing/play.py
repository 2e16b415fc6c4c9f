"""When every instruction of a plan runs if nothing waits longer than it must: the plan run on paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from perseus_ds.plan.record import FrequencyPlan, PlanSet
from perseus_ds.plan.splits import Portion
from perseus_ds.schedule import Instruction, dag_of


class Part(NamedTuple):
    """What a computation does at one clock; ``memory_mhz`` None is the device's own memory clock."""

    clock_mhz: int
    duration_s: float
    energy_j: float
    memory_mhz: int | None = None

    @property
    def clocks(self) -> tuple[int, int | None]:
        """Core and memory clock."""
        return self.clock_mhz, self.memory_mhz


@dataclass(frozen=True, slots=True)
class Played:
    """One instruction at its place in the iteration, as planned.

    ``parts`` are its clocks in the order of time, each with its duration and energy (of a timeline's energy
    as its share of the time). There is one part unless the clock changes while it runs, and none for what no
    clock changes. With ``kernels`` the parts are different kernels, so that each clock has its own.
    ``energy_j`` is what the work itself uses (waiting is counted apart, at blocking power), 0 where it was
    not measured.
    """

    instruction: Instruction
    start_s: float
    duration_s: float
    energy_j: float
    parts: tuple[Part, ...] = ()
    kernels: bool = False

    @property
    def clock_mhz(self) -> int | None:
        """The clock of its longest part; None for what no clock changes."""
        return max(self.parts, key=lambda part: part.duration_s).clock_mhz if self.parts else None

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.start_s + self.duration_s


def play(plan: FrequencyPlan) -> list[Played]:
    """Start each instruction at the end of the longest path to it.

    A transfer appears once, under its sender. The last end is ``plan.iteration_time_s``, less its
    reserve.

    Shape: rank after rank, each in running order.
    Cost: linear in the nodes and edges of the schedule's graph.
    """
    return _played(plan.of, plan.portions())


def play_baseline(plans: PlanSet) -> list[Played]:
    """Run the same schedule with every computation at its highest clock."""
    return _played(plans, dict.fromkeys(plans.computations(), (Portion(0, 1.0),)))


def _played(plans: PlanSet, portions: dict[Instruction, tuple[Portion, ...]]) -> list[Played]:
    dag = dag_of(plans.schedule)
    still = {node: _unplaced(plans, node, portions.get(node, ())) for node in dag.nodes}
    starts = dag.earliest_starts([still[node].duration_s for node in dag.nodes], plans.fixed_s)
    placed = {
        node: replace(still[node], start_s=start_s) for node, start_s in zip(dag.nodes, starts, strict=True)
    }
    return [placed[i] for order in plans.schedule.orders for i in order if i in placed]


def _unplaced(plans: PlanSet, node: Instruction, portions: tuple[Portion, ...]) -> Played:
    key = (node.stage, node.kind)
    if not portions:
        return Played(node, 0.0, plans.fixed_s[key], 0.0)
    options = plans.options[key]
    parts = tuple(
        Part(
            segment.clock_mhz,
            share * segment.duration_s,
            share * segment.duration_s * float(options.energy_j[option] / options.time_s[option]),
            segment.memory_mhz,
        )
        for option, share in portions
        for segment in options.segments(option)
    )
    duration_s, energy_j = sum(part.duration_s for part in parts), sum(part.energy_j for part in parts)
    kernels = any(option >= len(options.clock_mhz) for option, _ in portions)
    return Played(node, 0.0, duration_s, energy_j, parts, kernels)
