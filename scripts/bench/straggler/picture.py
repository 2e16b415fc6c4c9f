"""A virtual job beside stragglers, iteration by iteration: own times, T', and plans of those that wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np

from perseus_ds.plan import PlanSet, build
from perseus_ds.schedule import textbook
from perseus_ds.simulation.emulator import ClusterShape, Conditions, Emulated, Emulator
from perseus_ds.simulation.scenario import Straggler
from perseus_ds.simulation.textbook_gpu import textbook_profile

mpl.use("Agg")
from matplotlib import pyplot as plt  # the backend is chosen first

WEIGHTS = (1.0, 1.1, 0.95, 1.2)
ITERATIONS = 300
REPLICAS = 4
STRAGGLER, WAITING = "#c4442f", "#2f6fb0"


@dataclass(frozen=True, slots=True)
class Spell:
    """One replica is slow between two iterations, all the time or every other five iterations."""

    replica: int
    slowdown: float
    first: int
    last: int
    flaps: bool = False

    def at(self, n: int) -> float:
        """How much slower."""
        inside = self.first <= n < self.last and not (self.flaps and n // 5 % 2)
        return self.slowdown if inside else 1.0


SPELLS = (
    Spell(3, 1.5, 15, 16),
    Spell(1, 1.2, 40, 90),
    Spell(2, 1.3, 60, 75),
    Spell(2, 1.15, 120, 180, flaps=True),
    *(Spell(1, 1.1 - 0.002 * abs(n - 240), n, n + 1) for n in range(190, 290)),
)


def stragglers() -> Iterator[Straggler]:
    """Give a hiccup, a straggler, a second one beside it, flapping, and a slow drift their turn."""
    for n in range(ITERATIONS):
        for replica in range(1, REPLICAS):
            slow = max(spell.at(n) for spell in SPELLS if spell.replica == replica)
            if slow > 1.0:
                yield Straggler(kind="slow", pipeline=replica, factor=slow, first=n, last=n + 1)


def played() -> tuple[PlanSet, Emulated, Emulated]:
    """Plan four stages and eight microbatches; run four replicas with 2 % noise, answered and not."""
    schedule, profile = textbook("1f1b", stages=len(WEIGHTS), microbatches=8), textbook_profile(WEIGHTS)
    plans = build(profile, schedule, blocking_power_w=70.0, reserve_pct=1.0)
    job = Emulator(plans, profile, ClusterShape(pipelines=REPLICAS), conditions=Conditions(noise=0.02))
    return plans, *(job.play(ITERATIONS, stragglers(), answered=answered) for answered in (True, False))


def draw(path: Path) -> None:
    """Write the picture."""
    plans, job, unanswered = played()
    sync_time_s = [np.nan if v.sync_time_s is None else v.sync_time_s for v in job.decisions]
    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 6), sharex=True, height_ratios=(3, 2))
    for replica in range(REPLICAS):
        colour = STRAGGLER if replica in {1, 2} else WAITING
        above.plot(job.own_s[:, replica], ".", ms=3, color=colour, alpha=0.6)
    above.plot([], [], ".", color=STRAGGLER, label="own time of replicas 1 and 2, which are slow at times")
    above.plot([], [], ".", color=WAITING, label="own time of replicas 0 and 3, which wait")
    above.plot(sync_time_s, color="black", lw=1.2, label="T' as decided")
    above.set_ylabel("seconds per iteration")
    above.legend(loc="upper right", fontsize=8, framealpha=0.9)
    above.set_title("Simulated: hiccup, straggler, a second one, flapping (answered twice), slow drift")
    energy_j = (
        np.interp(job.plan[:, 0], range(len(plans)), plans.effective_energy_j)
        + plans.blocking_total_w * job.job_s
    )
    fast_j = plans.effective_energy_j[int(job.plan[0, 0])] + plans.blocking_total_w * unanswered.job_s
    below.plot(100 * (1 - energy_j / fast_j), color=WAITING, lw=1.2)
    below.axhline(0, color="grey", lw=0.5)
    below.set_ylabel("% energy saved, replica 0\nagainst waiting at full speed")
    below.set_xlabel("iteration")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
