"""Run a plan on simulated GPUs in one process: the runtime's own sequencer and requests, and no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perseus_ds.device import ClockChange, SimulatedGpu, SimulatedSettings
from perseus_ds.device.simulated import VirtualTime
from perseus_ds.plan import FrequencyPlan, PlanSet
from perseus_ds.runtime.control.clock_requests import ClockRequests
from perseus_ds.runtime.control.clock_schedules import ClockSchedules
from perseus_ds.runtime.control.clock_sequencer import ClockPolicy, ClockSequencer, FixedClock
from perseus_ds.runtime.emulation import StageWork
from perseus_ds.schedule import dag_of

SETTLING = 40


class Player:
    """One pipeline rank: a GPU with a time of its own, and who asks for its clocks."""

    def __init__(self, settings: SimulatedSettings, index: int) -> None:
        self.clock = VirtualTime()
        self.gpu = SimulatedGpu(settings, index, time=self.clock)
        requests = ClockRequests(self.gpu, self.clock)
        self.sequencer = ClockSequencer(requests, self.gpu.now_s, moment=lambda: None)


def policies_of(plan: FrequencyPlan, change: ClockChange) -> list[ClockPolicy]:
    """What every rank asks for."""
    return [
        ClockSchedules(plan.of, pipeline_rank=rank, change=change).of(plan.index)
        for rank in range(plan.of.schedule.ranks)
    ]


def default_clocks(plans: PlanSet) -> list[ClockPolicy]:
    """Every rank at the device's own clocks."""
    return [FixedClock(None)] * plans.schedule.ranks


def play(
    plans: PlanSet,
    policies: Sequence[ClockPolicy],
    works: Mapping[int, StageWork],
    settings: SimulatedSettings,
    *,
    iterations: int,
) -> tuple[float, float]:
    """Return mean time (s) and energy (J) of an iteration, without the first ones."""
    players = [Player(settings, rank) for rank in range(plans.schedule.ranks)]
    begin_s, spent = 0.0, []
    for _ in range(iterations):
        before_j = sum(player.gpu.true_now().energy_j for player in players)
        end_s = _iterate(plans, policies, works, players, begin_s)
        after_j = sum(player.gpu.true_now().energy_j for player in players)
        spent.append((end_s - begin_s, after_j - before_j))
        begin_s = end_s
    time_s, energy_j = np.array(spent[SETTLING:]).mean(axis=0)
    return float(time_s), float(energy_j)


def _iterate(
    plans: PlanSet,
    policies: Sequence[ClockPolicy],
    works: Mapping[int, StageWork],
    players: Sequence[Player],
    begin_s: float,
) -> float:
    """Run every node when those before it are over; return when the last is."""
    dag, home = dag_of(plans.schedule), plans.schedule.rank_of_stages()
    after = dag.followers(plans.fixed_s)
    ready_s, last_s = np.full(len(dag.nodes), begin_s), begin_s
    for player, policy in zip(players, policies, strict=True):
        player.sequencer.begin(policy)
    for place in dag.topological():
        node = dag.nodes[place]
        end_s = float(ready_s[place])
        if node.kind.is_computation:
            player = players[home[node.stage]]
            player.clock.pass_to(end_s)
            player.sequencer.before(node.kind)
            task = player.gpu.begin(works[node.stage].of(node.kind))
            player.gpu.release(task)
            player.gpu.wait(task)
            player.sequencer.after(node.kind)
            end_s = player.clock.now_s()
        else:
            end_s += plans.fixed_s[node.stage, node.kind]
        for follower, delay_s in after[place]:
            ready_s[follower] = max(ready_s[follower], end_s + delay_s)
        last_s = max(last_s, end_s)
    for player in players:
        player.clock.pass_to(last_s)
    return last_s
