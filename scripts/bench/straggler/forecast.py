"""CPU time of foretelling one iteration by its loads, on the training thread of a replica's first rank."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from perseus_ds.plan import PlanSet, build
from perseus_ds.plan.record import Splits
from perseus_ds.plan.waits import Waits
from perseus_ds.profile import LoadFit, Profile
from perseus_ds.schedule import Load, textbook
from perseus_ds.simulation import textbook_profile
from perseus_ds.straggler.pacing import Forecast

ROUNDS = 200
SHAPES = (4, 16), (8, 12), (8, 96), (16, 256)


def profiled(stages: int) -> Profile:
    """Durations that follow tokens and squares."""
    plain = textbook_profile(tuple(np.linspace(1.0, 1.3, stages)), variation=0.3)
    mean = Load(1000.0, 1e6)
    fit = LoadFit(mean, base=0.1, tokens=0.7, squares=0.2, scatter=0.01, r2=0.99, samples=100)
    return replace(plain, loads=dict.fromkeys(plain.points, fit), size_variation=0.3)


def planned(profile: Profile, microbatches: int) -> PlanSet:
    """All at the highest clock: a forecast costs the same whatever the plan."""
    small = build(profile, textbook("1f1b", stages=profile.stages, microbatches=2), blocking_power_w=70.0)
    first = slice(0, 1)
    return replace(
        small,
        schedule=textbook("1f1b", stages=profile.stages, microbatches=microbatches),
        choice=np.zeros((1, 2 * profile.stages * microbatches), small.choice.dtype),
        splits=Splits.none(),
        waits=Waits.none(),
        iteration_time_s=small.iteration_time_s[first],
        effective_energy_j=small.effective_energy_j[first],
        lower_bound_j=small.lower_bound_j[first],
        effective_bound_j=small.effective_bound_j[first],
    )


def took_ms(forecast: Forecast, loads: list[Load]) -> float:
    """Median thread CPU time of one forecast."""
    taken = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        forecast.of(loads)
        taken.append(time.thread_time() - begun)
    return 1e3 * float(np.median(taken))


def main() -> None:
    """Print one row for each shape."""
    print("| stages x microbatches | a forecast |\n|---|---|")
    for stages, microbatches in SHAPES:
        profile = profiled(stages)
        sizes = np.random.default_rng(0).lognormal(0.0, 0.5, microbatches)
        loads = [Load(1000.0 * size, 1e6 * size**2) for size in sizes.tolist()]
        took = took_ms(Forecast(planned(profile, microbatches), 0, profile), loads)
        print(f"| {stages} x {microbatches} | {took:.2f} ms |")


if __name__ == "__main__":
    main()
