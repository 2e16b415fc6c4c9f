"""Jobs that share the power of their nodes: who gives up how much, the most power per lost time first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_Numbers = NDArray[np.float64]
_ROUNDED = 1.0 + 1e-9
_ROUNDS, _HALVINGS = 12, 30
_HIGHEST_PRICE = 1.0  # GPUs' whole time for a watt


@dataclass(frozen=True, slots=True, eq=False)
class JobCurve:
    """What a job takes on every node at each of its points, the fastest first.

    ``time_s`` ascends, and no point takes more power in all than a faster one. ``total_w`` is what it takes
    everywhere, on nodes that are not limited as well. ``gpus`` is what its lost time counts.

    Shape: ``time_s`` and ``total_w`` [points], ``power_w`` [points, nodes].
    """

    time_s: _Numbers
    power_w: _Numbers
    total_w: _Numbers
    gpus: int

    @property
    def slowdown(self) -> _Numbers:
        """Lost time of every point, as a share of the fastest point's.

        Shape: [points].
        """
        return np.asarray(self.time_s / self.time_s[0] - 1.0)


def split(jobs: Sequence[JobCurve], caps_w: _Numbers) -> list[int]:
    """Return the point of each job at which no node takes more than its ceiling, at little lost GPU time.

    The job moves next whose step gives most power on nodes that take too much, for each second that its GPUs
    lose. Power is convex in time, so that with one node no other split loses less, but for a part of one
    step. Jobs on several nodes begin also where prices of the nodes' power put them; the better split counts.
    Then jobs take back what is left. Where ceilings cannot be held all jobs on that node run their slowest
    point.

    Shape: ``caps_w`` [nodes]; returns [jobs].
    Cost: linear in points, times the jobs.
    """
    corners = [_corners(job) for job in jobs]
    starts = [[0] * len(jobs), _priced(jobs, corners, caps_w)]
    found = [_stepped(jobs, corners, at, caps_w) for at in starts]

    def worth(points: Sequence[int]) -> tuple[float, float]:
        over_w = float(np.maximum(taken_w(jobs, points) - caps_w * _ROUNDED, 0.0).sum())
        return over_w, sum(job.gpus * float(job.slowdown[at]) for job, at in zip(jobs, points, strict=True))

    return min(found, key=worth)


def _priced(jobs: Sequence[JobCurve], corners: Sequence[Sequence[int]], caps_w: _Numbers) -> list[int]:
    """Where each job is best off when its power on every node has a price, and no node takes too much.

    Prices are found node by node, again and again: the dual of the linear program, by coordinates.
    """
    lost = [job.gpus * job.slowdown[own] for job, own in zip(jobs, corners, strict=True)]
    power_w = [job.power_w[own] for job, own in zip(jobs, corners, strict=True)]
    prices = np.zeros(len(caps_w))

    def chosen() -> list[int]:
        return [int(np.argmin(own + watts @ prices)) for own, watts in zip(lost, power_w, strict=True)]

    for node in list(range(len(caps_w))) * _ROUNDS:
        low, high = 0.0, _HIGHEST_PRICE
        for _ in range(_HALVINGS):
            prices[node] = (low + high) / 2.0
            here_w = sum(watts[at, node] for watts, at in zip(power_w, chosen(), strict=True))
            low, high = (prices[node], high) if here_w > caps_w[node] else (low, prices[node])
        prices[node] = high
    return chosen()


def _stepped(
    jobs: Sequence[JobCurve], corners: Sequence[Sequence[int]], at: list[int], caps_w: _Numbers
) -> list[int]:
    """Slow jobs down until no node takes too much, then let them take back what is left."""
    while (excess_w := taken_w(jobs, _points(corners, at)) - caps_w * _ROUNDED).max() > 0.0:
        gains = [_gain(job, own, place, excess_w) for job, own, place in zip(jobs, corners, at, strict=True)]
        best = int(np.argmax(gains))
        if gains[best] <= 0.0:
            break
        at[best] += 1
    return _taken_back(jobs, _points(corners, at), caps_w)


def taken_w(jobs: Sequence[JobCurve], points: Sequence[int]) -> _Numbers:
    """Return what every node takes.

    Shape: [nodes].
    """
    return np.asarray(np.sum([job.power_w[point] for job, point in zip(jobs, points, strict=True)], axis=0))


def _points(corners: Sequence[Sequence[int]], at: Sequence[int]) -> list[int]:
    return [own[place] for own, place in zip(corners, at, strict=True)]


def _corners(job: JobCurve) -> list[int]:
    """Points of the lower convex hull of power against time, the fastest first."""
    time_s, power_w = job.time_s, job.power_w.sum(axis=1)
    hull: list[int] = []
    for point in range(len(time_s)):
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            before = (power_w[b] - power_w[a]) * (time_s[point] - time_s[b])
            after = (power_w[point] - power_w[b]) * (time_s[b] - time_s[a])
            if before < after:
                break
            hull.pop()
        hull.append(point)
    return hull


def _gain(job: JobCurve, corners: Sequence[int], place: int, excess_w: _Numbers) -> float:
    """Watts that a job's next step gives where they are needed, for the share of GPU time that it costs."""
    if place + 1 >= len(corners):
        return -np.inf
    here, there = corners[place], corners[place + 1]
    spared_w = np.minimum(job.power_w[here] - job.power_w[there], np.maximum(excess_w, 0.0)).sum()
    lost = job.gpus * (job.slowdown[there] - job.slowdown[here])
    return float(spared_w / lost)


def _taken_back(jobs: Sequence[JobCurve], points: list[int], caps_w: _Numbers) -> list[int]:
    """Let jobs run faster points as long as every node stays below its ceiling, the costliest first."""
    if (taken_w(jobs, points) > caps_w * _ROUNDED).any():
        return points
    order = sorted(range(len(jobs)), key=lambda job: -jobs[job].gpus * jobs[job].slowdown[points[job]])
    for job in order:
        others_w = taken_w(jobs, points) - jobs[job].power_w[points[job]]
        fits = (jobs[job].power_w + others_w <= caps_w * _ROUNDED).all(axis=1)
        points[job] = int(np.argmax(fits))
    return points


def curve_of(
    time_s: _Numbers, rank_power_w: _Numbers, gpus: Sequence[Mapping[str, int]], nodes: Sequence[str]
) -> JobCurve:
    """Put a job's curve together from a pipeline's plans and where its GPUs are.

    Points that take no less power than a faster one are left out.

    Shape: ``time_s`` [plans], ``rank_power_w`` [ranks, plans]; ``gpus`` [ranks], how many of each rank's
    GPUs are on a node.
    """
    counts = np.array([[on.get(node, 0) for node in nodes] for on in gpus], dtype=np.float64)
    everywhere = np.array([sum(on.values()) for on in gpus], dtype=np.float64)
    total_w = everywhere @ rank_power_w
    least = np.minimum.accumulate(np.r_[np.inf, total_w[:-1]])
    kept = np.flatnonzero(total_w < least)
    return JobCurve(time_s[kept], (rank_power_w.T @ counts)[kept], total_w[kept], int(everywhere.sum()))
