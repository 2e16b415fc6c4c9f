"""The emulator beside the real engine in virtual time: the same jobs, their times, energies and decisions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import events
from ranks import PipelineEngine, run_ranks
from replicas import CLOCKS_MHZ, SETTINGS, Book, Spells, planned_job, straggle

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.device.simulated.models import model_named
from perseus_ds.device.simulated.physics import Work
from perseus_ds.plan import PlanSet, read_plans
from perseus_ds.profile import Point, Profile
from perseus_ds.schedule import Kind
from perseus_ds.simulation.emulator import ClusterShape, Emulated, Emulator, Straggler

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ITERATIONS, REPLICAS = 40, 2
MODEL = model_named(SETTINGS.gpu)


@dataclass(frozen=True)
class Case:
    """A job: its stages, when replica 1 (or one stage of it) is slow, how long a change of clock takes."""

    forward_s: tuple[float, ...]
    slow: tuple[int, int, float] | None = None
    slow_stage: int | None = None
    latency_s: float = 0.0


@dataclass(frozen=True)
class Rank:
    """Accounts of a rank of the engine, and its GPU's temperature as each iteration began."""

    book: Book
    temperature_c: list[float]

    def energy_j(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Energy of every iteration but the last as it would be at the reference temperature.

        The emulator has no temperature: leakage above the reference is taken out here. Its integral follows
        from the law of heat, ``tau dT/dt = T_amb + R P - T``, integrated over the iteration.
        """
        took_s = np.diff([0.0, *self.book.end_s])[:-1]
        spent_j, warmed_c = np.array(self.book.energy_j[:-1]), np.diff(self.temperature_c)
        warm_k_s = (
            MODEL.thermal_k_per_w * spent_j
            + (MODEL.ambient_c - MODEL.reference_c) * took_s
            - MODEL.thermal_s * warmed_c
        )
        energy_j: np.ndarray[Any, np.dtype[np.float64]] = spent_j - MODEL.leakage_w_per_k * warm_k_s
        return energy_j


CASES = {
    "calm": Case((0.4, 0.5)),
    "a straggler": Case((0.4, 0.5), slow=(8, 30, 1.2)),
    "a slow spell": Case((0.45, 0.4), slow=(6, 14, 1.3)),
    "one slow stage": Case((0.4, 0.45), slow=(8, 30, 1.25), slow_stage=1),
    "clocks that take 40 ms to change": Case((0.3, 0.45), slow=(10, 40, 1.15), latency_s=0.04),
}


@pytest.mark.parametrize("name", CASES)
def test_time_energy_and_decisions_agree(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    ranks, plans = _engine(case, tmp_path)
    found = _emulated(case, plans, _reckoned(tmp_path / "run"))
    book = ranks[0].book
    assert found.plan.tolist() == book.plans
    time_pct = 100.0 * np.abs(found.job_s[1:] / np.diff(book.end_s) - 1.0)
    engine_j = np.sum([rank.energy_j() for rank in ranks], axis=0)[1:]
    energy_pct = 100.0 * np.abs(found.energy_j.sum(axis=1)[1:-1] / engine_j - 1.0)
    sys.stdout.write(
        f"\n{name}: time off by {time_pct.max():.3f} %, energy by {energy_pct.max():.3f} % at most"
    )
    assert time_pct.max() <= 0.2
    assert energy_pct.max() <= 0.3


def _engine(case: Case, folder: Path) -> tuple[list[Rank], PlanSet]:
    """Run the job; what the host does between iterations counts next to nothing: the emulator has no host."""
    simulated = {
        "forward_s": list(case.forward_s),
        "switch_latency_s": case.latency_s,
        "transfer_s": 0.0,
        "noise": 0.0,
        "counter_noise": 0.0,
        "time_scale": 5000.0,
    }
    ranks = REPLICAS * len(case.forward_s)
    perseus = {"simulated": simulated}
    content = planned_job(folder, ranks=ranks, forward_s=case.forward_s, perseus=perseus)
    spells = {} if case.slow is None else {1: [case.slow]}
    said = run_ranks(ranks, _train, content, len(case.forward_s), spells, case.slow_stage)
    return [one.value for one in said], read_plans(folder / "run" / "plan.json")


def _train(
    rank: int, content: Mapping[str, Any], stages: int, spells: Spells, slow_stage: int | None
) -> Rank:
    temperatures_c: list[float] = []

    def note(_: PipelineEngine, iteration: int) -> None:
        del temperatures_c[iteration:]
        temperatures_c.extend(gpu.true_now().temperature_c for gpu in opened_gpus()[-1:])

    book = straggle(rank, content, stages, spells, ITERATIONS, act=note, slow_stage=slow_stage)
    return Rank(book, temperatures_c)


def _reckoned(run_dir: Path) -> ClockChange:
    (found,) = [event for event in events(run_dir) if event["event"] == "calibrated"]
    settle_s = found["together_s"] - found["call_s"]
    return ClockChange(found["call_s"], settle_s, settle_s)


def _emulated(case: Case, plans: PlanSet, reckoned: ClockChange) -> Emulated:
    troubles = []
    if case.slow is not None:
        first, last, factor = case.slow
        troubles = [
            Straggler(kind="slow", pipeline=1, factor=factor, rank=case.slow_stage, first=first, last=last)
        ]
    cluster = ClusterShape(
        REPLICAS,
        gpus_per_node=1,
        change=ClockChange.of_latency(case.latency_s),
        reckoned=reckoned,
        waiting_w={int(mhz): watts for mhz, watts in MODEL.blocking_w},
    )
    return Emulator(plans, _profile(case), cluster).play(ITERATIONS, troubles)


def _profile(case: Case) -> Profile:
    points = {}
    for stage, seconds in enumerate(case.forward_s):
        for kind, factor in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, SETTINGS.backward_over_forward)):
            work = Work(seconds * factor, SETTINGS.memory_bound, SETTINGS.intensity)
            points[stage, kind] = tuple(
                Point(mhz, physics.duration_s(MODEL, mhz, work), physics.energy_j(MODEL, mhz, work))
                for mhz in CLOCKS_MHZ
            )
    return Profile(points)
