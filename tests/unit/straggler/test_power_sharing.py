"""Nodes that jobs share: the split against an LP, and the ceilings that are written for jobs."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_made_plan import hand_made
from scipy.optimize import linprog

from perseus_ds.errors import PerseusError
from perseus_ds.plan import write_plans
from perseus_ds.plan.power import power_w
from perseus_ds.run_directory import RankPlace, RunDirectory, append_event, read_places, write_places
from perseus_ds.straggler import PowerCap
from perseus_ds.straggler.ceiling.node_ceilings import share_power
from perseus_ds.straggler.ceiling.sharing import JobCurve, split, taken_w

FAST_W, SLOW_W = power_w(hand_made()).tolist()
LIKE = PowerCap(None)


def curve(random: np.random.Generator, gpus: tuple[int, int], points: int = 120) -> JobCurve:
    """Power that falls ever more slowly with time, as frontiers are."""
    along = np.linspace(0.0, 1.0, points)
    falls = 0.55 + 0.45 * np.exp(-random.uniform(1.5, 4.0) * along)
    total_w = random.uniform(150.0, 250.0) * sum(gpus) * falls
    share = np.array(gpus) / sum(gpus) * (1.0 + 0.02 * along[:, None] * np.array([1.0, -1.0]))
    power = total_w[:, None] * share
    time_s = random.uniform(0.5, 1.0) * (1.0 + random.uniform(0.3, 0.8) * along)
    return JobCurve(time_s, power, power.sum(axis=1), sum(gpus))


@pytest.mark.parametrize("seed", range(20))
def test_no_node_takes_more_and_little_more_time_is_lost_than_by_an_lp(seed: int) -> None:
    random = np.random.default_rng(seed)
    jobs = [curve(random, gpus) for gpus in ((4, 0), (0, 4), (2, 2), (3, 1))]
    most_w, least_w = taken_w(jobs, [0] * 4), taken_w(jobs, [119] * 4)
    caps_w = least_w + (most_w - least_w) * random.uniform(0.05, 1.0, 2)
    points = split(jobs, caps_w)
    assert (taken_w(jobs, points) <= caps_w * (1.0 + 1e-6)).all()
    lost = sum(job.gpus * job.slowdown[point] for job, point in zip(jobs, points, strict=True)) / 16.0
    best = linprog(
        np.concatenate([job.gpus * job.slowdown / 16.0 for job in jobs]),
        A_ub=np.concatenate([job.power_w for job in jobs]).T,
        b_ub=caps_w,
        A_eq=np.kron(np.eye(4), np.ones(120)),
        b_eq=np.ones(4),
    )
    assert (1.0 + lost) / (1.0 + best.fun) <= 1.01


def test_what_cannot_be_held_runs_the_slowest_points() -> None:
    jobs = [curve(np.random.default_rng(0), (4, 0)), curve(np.random.default_rng(1), (0, 4))]
    assert split(jobs, np.array([1.0, 1e9])) == [119, 0]


def job(path: Path, hosts: tuple[str, str], **facts: object) -> RunDirectory:
    """A job of two stages that runs, one GPU each."""
    directory = RunDirectory(path)
    here = {"replicas": 1, "host": socket.gethostname(), "pid": os.getpid()}
    append_event(directory.events, "attached", here | facts)
    write_plans(replace(hand_made(), fingerprint={"gpu": "A100"}), directory.plan)
    write_places(
        [RankPlace(0, rank, host, f"gpu-{rank}") for rank, host in enumerate(hosts)], directory.places
    )
    return directory


def written(directory: RunDirectory) -> PowerCap:
    return PowerCap.parse((directory.notices / "power_cap.json").read_bytes())


def test_places_come_back(tmp_path: Path) -> None:
    directory = job(tmp_path, ("n0", "n1"))
    assert read_places(directory.places)[1] == RankPlace(0, 1, "n1", "gpu-1")
    directory.places.write_text('{"ranks": [{"pipeline": -1, "pipeline_rank": 0, "host": "a", "gpu": "b"}]}')
    with pytest.raises(PerseusError, match=r"ranks\[0\].pipeline is -1"):
        read_places(directory.places)


def test_those_who_give_begin_first(tmp_path: Path) -> None:
    one, other = job(tmp_path / "one", ("n0", "n0")), job(tmp_path / "other", ("n0", "n1"))
    now_s = time.time()
    shared = share_power([one.path, other.path], {"n0": 10.0 * FAST_W}, LIKE, now_s=now_s)
    assert [part.slowdown_pct for part in shared.jobs] == [0.0, 0.0]
    assert written(one).power_cap_w == pytest.approx(FAST_W, rel=1e-5)
    shared = share_power([one.path, other.path], {"n0": SLOW_W + 0.6 * SLOW_W}, LIKE, now_s=now_s)
    assert shared.over == ()
    assert shared.node_w["n0"] <= 1.6 * SLOW_W
    assert written(one).power_cap_w == pytest.approx(SLOW_W, rel=1e-5)
    assert (written(one).start_s, written(one).per) == (None, "job")
    held = share_power([one.path, other.path], {"n0": 1.0}, LIKE, now_s=now_s)
    assert held.over == ("n0",)
    assert written(other).power_cap_w == pytest.approx(SLOW_W, rel=1e-5)
    swapped = share_power([one.path, other.path], {"n0": 10.0 * FAST_W}, LIKE, now_s=now_s)
    assert [part.start_s for part in swapped.jobs] == [None, None]  # nobody has to give: at once


def test_who_may_take_more_waits_for_who_gives(tmp_path: Path) -> None:
    one, other = job(tmp_path / "one", ("n0", "n0")), job(tmp_path / "other", ("n1", "n1"))
    share_power([one.path, other.path], {"n0": SLOW_W, "n1": 2 * FAST_W}, LIKE, now_s=100.0)
    like = replace(LIKE, ramp_w_per_s=10.0)
    shared = share_power([one.path, other.path], {"n0": 2 * FAST_W, "n1": SLOW_W}, like, now_s=200.0)
    assert shared.jobs[1].start_s is None
    assert shared.jobs[0].start_s == pytest.approx(200.0 + 3 * 8.0 + 1.0 + (FAST_W - SLOW_W) / 10.0, abs=0.01)


def test_what_is_refused(tmp_path: Path) -> None:
    one = job(tmp_path / "one", ("n0", "n0"))
    with pytest.raises(PerseusError, match="none of these jobs has a GPU on node 'n7'"):
        share_power([one.path], {"n7": 100.0}, LIKE)
    with pytest.raises(PerseusError, match="a ceiling of nan W"):
        share_power([one.path], {"n0": float("nan")}, LIKE)
    mixed = job(tmp_path / "mixed", ("n0", "n0"), hardware_groups=[])
    with pytest.raises(PerseusError, match="different GPUs"):
        share_power([mixed.path], {"n0": 100.0}, LIKE)
    write_places([RankPlace(0, 5, "n0", "gpu")], one.places)
    with pytest.raises(PerseusError, match="is of another job than"):
        share_power([one.path], {"n0": 100.0}, LIKE)
    one.places.unlink()
    with pytest.raises(PerseusError, match=r"places\.json"):
        share_power([one.path], {"n0": 100.0}, LIKE)
