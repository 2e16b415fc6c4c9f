"""Every rank's estimates at one clock become one point per (stage, kind)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from perseus_ds.profile import Computation, Estimate, Point


@dataclass(frozen=True, slots=True)
class Measured:
    """One rank's word on one clock."""

    stage: int
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class Pooled:
    """All ranks' words on one clock."""

    points: Mapping[Computation, Point]
    fixed_s: Mapping[Computation, float]
    blocking_power_w: float


def pool(measured: Iterable[Measured]) -> Pooled:
    """Average over the ranks of each stage (replicas, tensor-parallel peers: one GPU stands for all).

    A fixed duration is the shortest that any rank of the stage saw: the rest was waiting.
    """
    points: dict[Computation, list[Point]] = defaultdict(list)
    fixed: dict[Computation, list[float]] = defaultdict(list)
    blocking: list[float] = []
    for one in measured:
        for kind, point in one.estimate.points.items():
            points[one.stage, kind].append(point)
        for kind, duration_s in one.estimate.fixed_s.items():
            fixed[one.stage, kind].append(duration_s)
        blocking.append(one.estimate.blocking_power_w)
    return Pooled(
        points={key: _mean(group) for key, group in sorted(points.items(), key=_place)},
        fixed_s={key: min(group) for key, group in sorted(fixed.items(), key=_place)},
        blocking_power_w=fmean(blocking),
    )


def _place(item: tuple[Computation, object]) -> tuple[int, str]:
    (stage, kind), _ = item
    return stage, kind.value


def _mean(group: list[Point]) -> Point:
    count = len(group)
    reasons = 0
    for point in group:
        reasons |= point.event_reasons
    achieved = [point.achieved_mhz for point in group if point.achieved_mhz is not None]
    return replace(
        group[0],
        time_s=fmean(p.time_s for p in group),
        energy_j=fmean(p.energy_j for p in group),
        time_se_s=sum(p.time_se_s**2 for p in group) ** 0.5 / count,
        energy_se_j=sum(p.energy_se_j**2 for p in group) ** 0.5 / count,
        samples=sum(p.samples for p in group),
        achieved_mhz=min(achieved, default=None),
        event_reasons=reasons,
    )
