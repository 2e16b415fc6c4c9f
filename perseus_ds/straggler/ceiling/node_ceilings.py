"""A ceiling on each node, held by the jobs that run there: each gets a ceiling of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np

from perseus_ds.config import Objective
from perseus_ds.errors import PerseusError
from perseus_ds.files import read_bounded
from perseus_ds.plan import read_plans, select
from perseus_ds.plan.power import rank_power_w
from perseus_ds.run_directory import RunDirectory, read_places
from perseus_ds.straggler.announcement.announcing import leave, running_job
from perseus_ds.straggler.ceiling.power_cap import PowerCap
from perseus_ds.straggler.ceiling.power_caps import CAP_FILE
from perseus_ds.straggler.ceiling.setting import check_cap
from perseus_ds.straggler.ceiling.sharing import JobCurve, curve_of, split, taken_w

_ITERATIONS = 3  # after which a job that has to take less does: two, and one that has only just begun
_LOOK_S = 1.0
_MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SharedCap:
    """One job's part: the ceiling that was written for it, what that costs, and when it begins to hold."""

    run_dir: Path
    power_cap_w: float
    slowdown_pct: float
    start_s: float | None


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What the jobs got, what every node takes by their plans, and the nodes that cannot be held."""

    jobs: tuple[SharedCap, ...]
    node_w: Mapping[str, float]
    over: tuple[str, ...]


def share_power(
    run_dirs: Sequence[str | Path], caps_w: Mapping[str, float], like: PowerCap, *, now_s: float | None = None
) -> NodeShare:
    """Split the ceilings of nodes among the jobs that run there, at little lost GPU time.

    ``like`` is what all parts have in common: end, ramp, reason. A job that may take more than before begins
    when those that have to take less do so. So the node is not above its ceiling meanwhile. Nodes that are
    not in ``caps_w`` are not limited.

    Raises:
        OSError: a ceiling cannot be written; no job then takes more than before.
        PerseusError: a bad number, a node without GPUs of these jobs, a job that does not run, has no plan or
            several kinds of GPUs.
    """
    now_s = time.time() if now_s is None else now_s
    directories = [RunDirectory(Path(run_dir)) for run_dir in run_dirs]
    for watts in caps_w.values():
        check_cap(replace(like, power_cap_w=watts), now_s)
    nodes = sorted(caps_w)
    curves = [_curve(directory, nodes) for directory in directories]
    limits_w = np.array([caps_w[node] for node in nodes])
    _refuse_unknown(nodes, curves)
    points = split(curves, limits_w)
    parts = [_part(curve, point) for curve, point in zip(curves, points, strict=True)]
    before_w = [_present_w(directory) for directory in directories]
    wait_s = _wait_s(curves, parts, before_w, like.ramp_w_per_s)
    grows = [part > was_w for part, was_w in zip(parts, before_w, strict=True)]
    start_s = now_s + wait_s if wait_s else None
    shared = tuple(
        SharedCap(one.path, part, 100.0 * float(curve.slowdown[point]), start_s if more else None)
        for one, part, curve, point, more in zip(directories, parts, curves, points, grows, strict=True)
    )
    _leave(directories, shared, grows, like)
    node_w = taken_w(curves, points)
    over = node_w > limits_w * (1.0 + 1e-6)
    return NodeShare(shared, dict(zip(nodes, node_w.tolist(), strict=True)), tuple(compress(nodes, over)))


def _refuse_unknown(nodes: Sequence[str], curves: Sequence[JobCurve]) -> None:
    fastest_w = taken_w(curves, [0] * len(curves))
    if unknown := [node for node, watts in zip(nodes, fastest_w, strict=True) if watts <= 0.0]:
        raise PerseusError(f"none of these jobs has a GPU on node {unknown[0]!r:.80}", hint="see places.json")


def _leave(
    directories: Sequence[RunDirectory], shared: Sequence[SharedCap], grows: Sequence[bool], like: PowerCap
) -> None:
    """Write every job's ceiling, those first that have to take less."""
    for at in sorted(range(len(shared)), key=grows.__getitem__):
        one = shared[at]
        cap = replace(like, power_cap_w=one.power_cap_w, per="job", start_s=one.start_s)
        leave(directories[at], CAP_FILE, cap.to_json())


def _curve(directory: RunDirectory, nodes: Sequence[str]) -> JobCurve:
    """Put together what a job takes on every node, from its plan and its places."""
    attached = running_job(directory)
    if attached.get("start") == "observe":
        raise PerseusError(f"{directory.path}: its job only observes, a ceiling would change nothing")
    if "hardware_groups" in attached:
        raise PerseusError(
            f"{directory.path}: its pipelines have different GPUs, so that their share is not known",
            hint="give that job a ceiling of its own, with --power-cap",
        )
    plans, places = read_plans(directory.plan), read_places(directory.places)
    gpus: list[dict[str, int]] = [{} for _ in range(plans.schedule.ranks)]
    for place in places:
        if place.pipeline_rank >= len(gpus):
            raise PerseusError(f"{directory.places} is of another job than {directory.plan}")
        here = gpus[place.pipeline_rank]
        here[place.host] = here.get(place.host, 0) + 1
    first = select(plans, Objective()).index
    power_w = rank_power_w(plans)[:, first:]
    return curve_of(plans.iteration_time_s[first:], power_w, gpus, nodes)


def _part(curve: JobCurve, point: int) -> float:
    """A job's own ceiling: what it takes everywhere at its point."""
    return float(curve.total_w[point]) * (1.0 + 1e-6)


def _present_w(directory: RunDirectory) -> float:
    """The ceiling that was written for a job before; infinite without a readable one."""
    try:
        cap = PowerCap.parse(read_bounded(directory.notices / CAP_FILE, most_bytes=_MOST_BYTES))
    except (OSError, PerseusError):
        return math.inf
    return math.inf if cap.power_cap_w is None else cap.power_cap_w


def _wait_s(
    curves: Sequence[JobCurve], parts: Sequence[float], before_w: Sequence[float], ramp_w_per_s: float
) -> float:
    """How long those who may take more wait for those who have to take less; 0 where none has to."""
    waits_s = [0.0]
    for curve, part, before in zip(curves, parts, before_w, strict=True):
        if part < min(before, float(curve.total_w[0])):
            fall_w = min(before, float(curve.total_w[0])) - part
            ramp_s = fall_w / ramp_w_per_s if ramp_w_per_s else 0.0
            waits_s.append(_ITERATIONS * float(curve.time_s[-1]) + _LOOK_S + ramp_s)
    return max(waits_s)
