"""Plans from the physics of the simulated GPU: what a perfect profile would say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from perseus_ds.adapters.deepspeed import order_of
from perseus_ds.device.simulated import physics
from perseus_ds.device.simulated.models import GpuModel, model_named
from perseus_ds.device.simulated.physics import Work
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.plan import build, write_plans
from perseus_ds.plan.problem import Switching
from perseus_ds.profile import Point, Profile, write_profile
from perseus_ds.runtime.job import PLAN_ONLY
from perseus_ds.schedule import Kind, Schedule

CLOCKS_MHZ = tuple(range(1410, 600, -45))
SETTINGS = SimulatedSettings()
FIXED_S = {Kind.REDUCE_GRADS: SETTINGS.reduce_grads_s, Kind.STEP: SETTINGS.step_s}


def candidate_clocks(grid_mhz: Sequence[int], count: int) -> tuple[int, ...]:
    """Spread clocks evenly from the highest to half of it, on clocks that the device has."""
    grid = sorted(set(grid_mhz), reverse=True)
    useful = [clock for clock in grid if clock >= 0.5 * grid[0]]
    count = min(count, len(useful))
    if count == 1:
        return (useful[0],)
    span = len(useful) - 1
    return tuple(useful[round(index * span / (count - 1))] for index in range(count))


def deepspeed_schedule(*, microbatches: int, stages: int) -> Schedule:
    """The schedule of a pipeline without tied weights, as its ranks would say it."""
    from deepspeed.runtime.pipe.schedule import TrainSchedule

    orders = [
        order_of(TrainSchedule(microbatches, stages, stage), stage, without={Kind.REDUCE_TIED})
        for stage in range(stages)
    ]
    return Schedule("deepspeed.TrainSchedule", microbatches, tuple(orders))


def write_plan(
    path: Path,
    schedule: Schedule,
    forward_s: Sequence[float],
    fingerprint: Mapping[str, str],
    *,
    gpu: str | None = None,
    profile_path: Path | None = None,
) -> None:
    """Plan from the physics of one kind of GPU; also write the profile where a path is given."""
    settings = SimulatedSettings()
    model = model_named(gpu or settings.gpu)
    clocks_mhz = candidate_clocks(model.clocks_mhz, len(CLOCKS_MHZ)) if gpu else CLOCKS_MHZ
    points = {}
    for stage, seconds in enumerate(forward_s):
        for kind, factor in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, settings.backward_over_forward)):
            work = Work(seconds * factor, settings.memory_bound, settings.intensity)
            points[stage, kind] = tuple(_point(model, mhz, work, settings.noise) for mhz in clocks_mhz)
    blocking_w = physics.work_power_w(model, model.max_clock_mhz, 0.0)
    profile = Profile(
        points=points,
        blocking_power_w=blocking_w,
        fixed_s={(s, kind): t for s in range(len(forward_s)) for kind, t in FIXED_S.items()},
    )
    if profile_path is not None:
        waiting_w = {mhz: physics.work_power_w(model, mhz, 0.0) for mhz in clocks_mhz}
        own = {key: value for key, value in fingerprint.items() if key not in PLAN_ONLY}
        write_profile(replace(profile, blocking_w=waiting_w, fingerprint=own), profile_path)
    plans = build(
        profile,
        schedule,
        blocking_power_w=blocking_w,
        reserve_pct=1.0,
        switching=Switching(split="never"),
        fingerprint=fingerprint,
        verify=True,
    )
    write_plans(plans, path)


def _point(model: GpuModel, clock_mhz: int, work: Work, noise: float) -> Point:
    time_s = physics.duration_s(model, clock_mhz, work)
    return Point(clock_mhz, time_s, physics.energy_j(model, clock_mhz, work), time_sd_s=noise * time_s)


def perseus_block(run_dir: Path, forward_s: Sequence[float], **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A perseus block of a job in virtual time that plays a plan which is there."""
    return {
        "enabled": True,
        "run_dir": str(run_dir),
        "device": "simulated",
        "mode": "run",
        "profile": {"warmup_iterations": 2},
        "audit": {"every_iterations": 0},
        "simulated": {"forward_s": list(forward_s), "switch_latency_s": 0.0, "transfer_s": 0.0},
        **changes,
    }
