"""When every instruction of a plan runs if nothing waits longer than it must: the plan played on paper."""

from __future__ import annotations

from dataclasses import dataclass

from perseus_ds.plan.record import FrequencyPlan, PlanSet
from perseus_ds.schedule import Instruction, dag_of


@dataclass(frozen=True, slots=True)
class Played:
    """One instruction at its place in the iteration, as planned.

    ``clock_mhz`` is None for what no clock changes; ``energy_j`` is what the work itself uses (waiting
    is counted apart, at blocking power), 0 where it was not measured.
    """

    instruction: Instruction
    clock_mhz: int | None
    start_s: float
    duration_s: float
    energy_j: float

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.start_s + self.duration_s


def play(plan: FrequencyPlan) -> list[Played]:
    """Start each instruction at the end of the longest path to it.

    A transfer appears once, under its sender. The last end is ``plan.iteration_time_s``.

    Shape: rank after rank, each in running order.
    Cost: linear in the nodes and edges of the schedule's graph.
    """
    return _played(plan.of, plan.choices())


def play_baseline(plans: PlanSet) -> list[Played]:
    """Play the same schedule with every computation at its highest clock."""
    return _played(plans, dict.fromkeys(plans.computations(), 0))


def _played(plans: PlanSet, choices: dict[Instruction, int]) -> list[Played]:
    dag = dag_of(plans.schedule)
    still = {node: _unplaced(plans, node, choices.get(node)) for node in dag.nodes}
    starts = dag.earliest_starts([still[node].duration_s for node in dag.nodes], plans.fixed_s)
    placed = {node: _at(still[node], start_s) for node, start_s in zip(dag.nodes, starts, strict=True)}
    return [placed[i] for order in plans.schedule.orders for i in order if i in placed]


def _unplaced(plans: PlanSet, node: Instruction, choice: int | None) -> Played:
    key = (node.stage, node.kind)
    if choice is None:
        return Played(node, None, 0.0, plans.fixed_s[key], 0.0)
    options = plans.options[key]
    return Played(
        node,
        int(options.clock_mhz[choice]),
        0.0,
        float(options.time_s[choice]),
        float(options.energy_j[choice]),
    )


def _at(played: Played, start_s: float) -> Played:
    return Played(played.instruction, played.clock_mhz, start_s, played.duration_s, played.energy_j)
