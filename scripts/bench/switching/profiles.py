"""Eight stages of a simulated GPU: a perfect profile of it."""

from __future__ import annotations

from dataclasses import replace

from perseus_ds.device.simulated import SimulatedSettings, Work, model_named, physics
from perseus_ds.profile import Point, Profile, candidate_clocks
from perseus_ds.schedule import Kind

WEIGHTS = (0.96, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.08)  # embedding and head, as in a GPT
FORWARD_S = 0.06
CLOCKS = 24


def varying(profile: Profile, share: float) -> Profile:
    """The same profile, of a machine on which durations vary by that share."""
    points = {
        key: tuple(replace(point, time_sd_s=share * point.time_s) for point in own)
        for key, own in profile.points.items()
    }
    return replace(profile, points=points)


def eight_stages(gpu: str) -> Profile:
    """Forwards of about 60 ms, backwards in proportion."""
    model, settings = model_named(gpu), SimulatedSettings()
    clocks_mhz = candidate_clocks(model.clocks_mhz, CLOCKS)
    points = {}
    for stage, weight in enumerate(WEIGHTS):
        for kind, factor in ((Kind.FORWARD, 1.0), (Kind.BACKWARD, settings.backward_over_forward)):
            work = Work(FORWARD_S * weight * factor, settings.memory_bound, settings.intensity)
            points[stage, kind] = tuple(
                Point(mhz, physics.duration_s(model, mhz, work), physics.energy_j(model, mhz, work))
                for mhz in clocks_mhz
            )
    waiting_w = {mhz: physics.power_w(model, mhz, 0.0) for mhz in (clocks_mhz[0], clocks_mhz[-1])}
    return Profile(points=points, blocking_power_w=waiting_w[clocks_mhz[0]], blocking_w=waiting_w)
