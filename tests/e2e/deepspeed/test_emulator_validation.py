"""The emulator beside the real engine in virtual time: the same jobs, their times, energies and decisions."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import events
from ranks import PipelineEngine, run_ranks
from replicas import SETTINGS, Book, planned_job, points_of, straggle

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.simulated.gpu import opened_gpus
from perseus_ds.device.simulated.models import model_named
from perseus_ds.plan import read_plans
from perseus_ds.profile import Profile
from perseus_ds.simulation.emulator import ClusterShape, Emulator
from perseus_ds.simulation.scenario import Straggler

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ITERATIONS, REPLICAS = 40, 2
MODEL = model_named(SETTINGS.gpu)


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
        return spent_j - MODEL.leakage_w_per_k * warm_k_s


def slow(first: int, last: int, factor: float, stage: int | None = None) -> Straggler:
    """Replica 1, or one stage of it, is slow for some iterations."""
    return Straggler(kind="slow", pipeline=1, factor=factor, rank=stage, first=first, last=last)


CASES = {
    "calm": ((0.4, 0.5), None, 0.0),
    "a straggler": ((0.4, 0.5), slow(8, 30, 1.2), 0.0),
    "a slow spell": ((0.45, 0.4), slow(6, 14, 1.3), 0.0),
    "one slow stage": ((0.4, 0.45), slow(8, 30, 1.25, stage=1), 0.0),
    "clocks that take 40 ms to change": ((0.3, 0.45), slow(10, 40, 1.15), 0.04),
}
"""Seconds of a forward on each stage, who is slow when, and how long a change of clock takes."""


def train(rank: int, content: Mapping[str, Any], stages: int, straggler: Straggler | None) -> Rank:
    temperatures_c: list[float] = []

    def note(_: PipelineEngine, iteration: int) -> None:
        del temperatures_c[iteration:]
        temperatures_c.extend(gpu.true_now().temperature_c for gpu in opened_gpus()[-1:])

    spells, stage = {}, None
    if straggler is not None:
        spells, stage = {1: [(straggler.first, straggler.last, straggler.factor)]}, straggler.rank
    book = straggle(rank, content, stages, spells, ITERATIONS, act=note, slow_stage=stage)
    return Rank(book, temperatures_c)


@pytest.mark.parametrize(("forward_s", "straggler", "latency_s"), CASES.values(), ids=CASES)
def test_time_energy_and_decisions_agree(
    forward_s: tuple[float, ...], straggler: Straggler | None, latency_s: float, tmp_path: Path
) -> None:
    """Time of the host between iterations counts next to nothing: the emulator has no host."""
    simulated = dict.fromkeys(("transfer_s", "noise", "counter_noise"), 0.0) | {
        "forward_s": list(forward_s),
        "switch_latency_s": latency_s,
        "time_scale": 5000.0,
    }
    count = REPLICAS * len(forward_s)
    content = planned_job(tmp_path, ranks=count, forward_s=forward_s, perseus={"simulated": simulated})
    ranks = [one.value for one in run_ranks(count, train, content, len(forward_s), straggler)]
    (told,) = events(tmp_path / "run", "calibrated")
    settle_s = told["together_s"] - told["call_s"]
    cluster = ClusterShape(
        REPLICAS,
        gpus_per_node=1,
        change=ClockChange(0.0, latency_s, latency_s),
        reckoned=ClockChange(told["call_s"], settle_s, settle_s),
        waiting_w={int(mhz): watts for mhz, watts in MODEL.blocking_w},
    )
    emulator = Emulator(read_plans(tmp_path / "run" / "plan.json"), Profile(points_of(forward_s)), cluster)
    found = emulator.play(ITERATIONS, [] if straggler is None else [straggler])
    book = ranks[0].book
    assert found.plan.tolist() == book.plans
    engine_j = np.sum([rank.energy_j() for rank in ranks], axis=0)[1:]
    assert found.job_s[1:] == pytest.approx(np.diff(book.end_s), rel=0.002)
    assert found.energy_j.sum(axis=1)[1:-1] == pytest.approx(engine_j, rel=0.003)
