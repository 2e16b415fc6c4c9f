"""Exact frontiers and plans of profiles and schedules, and of graphs that are no pipelines.

A case is a digest and the sum of every array. The profiles are made here, of numbers drawn with a seed; the
published one is read where ``PERSEUS_SHARED_DATA`` has it.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from textbook_gpu import textbook_profile

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.plan import Switching, build
from perseus_ds.profile import Point, Profile, read_profile
from perseus_ds.schedule import Kind, Schedule, dag_of, textbook
from perseus_ds.simulation.gpt3 import gpt3_profile
from perseus_ds.solver.frontier import plan_times, solve_frontier
from perseus_ds.solver.problem import OptionTable, Problem
from perseus_ds.solver.splits import split

Arrays = Mapping[str, NDArray[np.generic]]
PUBLISHED = "gpt3-175b_a100-sxm_profile.csv"
BLOCKING_W = 83.64
LOW_W = {1410: BLOCKING_W, 300: 56.4}
CHANGE = ClockChange(0.004, 0.006, 0.006)
KINDS = {"free": Switching(), "parts": Switching(CHANGE), "waits": Switching(CHANGE, waits="automatic")}


def cases(data: Path) -> dict[str, Callable[[Path], Any]]:
    """Every case by its name; those of the published profile only where it is."""
    found = dict(_plans(data)) | dict(_graphs())
    return {
        name: lambda _, make=make: _digests(make())
        for name, make in found.items()
        if name.split()[0] != "published" or data.is_dir()
    }


def _digests(arrays: Arrays) -> dict[str, list[Any]]:
    found = {}
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array + 0 if array.dtype.kind == "f" else array)  # -0.0 is 0.0
        digest = hashlib.sha256(plain.tobytes()).hexdigest()[:16]
        found[name] = [list(plain.shape), digest, float(plain.sum())]
    return found


def _plans(data: Path) -> Iterator[tuple[str, Callable[[], Arrays]]]:
    def case(
        name: str, profile: Callable[[], Profile], order: str, sizes: str, kind: str, **more: object
    ) -> tuple[str, Callable[[], Arrays]]:
        own = partial(_planned, profile, order, sizes, KINDS[kind], **more)
        return f"{name} {order} {sizes} {kind}", own

    published = partial(_published, data / PUBLISHED)
    for order, sizes, kind in (
        ("1f1b", "8x12", "free"),
        ("1f1b", "8x24", "parts"),
        ("1f1b", "8x12", "waits"),
        ("gpipe", "8x8", "parts"),
    ):
        yield case("published", published, order, sizes, kind)
    for order, sizes, kind in (
        ("1f1b", "8x12", "parts"),
        ("1f1b", "8x20", "waits"),
        ("zb-h1", "8x12", "parts"),
        ("interleaved", "8/2x16", "parts"),
        ("interleaved-zb", "8/2x8", "free"),
        ("zbv", "8/2x8", "waits"),
        ("dualpipe-v", "8/2x8", "parts"),
    ):
        yield case("gpt3", _gpt3, order, sizes, kind)
    yield case("gpt3", _gpt3, "1f1b", "8x8", "parts", reserve_pct=1.5)
    for seed, order, sizes, kind in (
        (1, "1f1b", "3x5", "free"),
        (2, "1f1b", "4x16", "parts"),
        (3, "1f1b", "5x10", "waits"),
        (10, "gpipe", "4x6", "waits"),
        (11, "gpipe-fifo", "4x6", "parts"),
        (14, "zbv", "8/2x8", "free"),
        (15, "dualpipe-v-whole", "8/2x8", "waits"),
        (16, "1f1b", "1x8", "parts"),
        (18, "1f1b", "6x30", "parts"),
        (19, "1f1b", "16x32", "parts"),
    ):
        stages, clocks = int(sizes.split("x")[0].split("/")[0]), (4, 9, 20, 38)[seed % 4]
        more = {"reserve_pct": "automatic"} if seed % 5 == 3 else {}
        yield case(f"drawn {seed}", partial(_drawn, seed, stages, clocks), order, sizes, kind, **more)
    for seed, kind in ((30, "waits"), (31, "parts"), (32, "waits")):
        yield case(f"uneven {seed}", partial(_uneven, seed, 6), "1f1b", "6x12", kind)


def _graphs() -> Iterator[tuple[str, Callable[[], Arrays]]]:
    """Frontiers and plans of graphs that are no pipelines, and of curves that are all different."""
    for seed in range(6):
        yield f"graph {seed}", partial(_solved, seed)
    yield "own curves 1f1b 4x12", _own_curves


def _planned(
    profile: Callable[[], Profile], order: str, sizes: str, switching: Switching, **more: object
) -> Arrays:
    """Plan with every check on."""
    schedule, known = _schedule(order, sizes), profile()
    points = {key: own for key, own in known.points.items() if key[0] < schedule.stages}
    plans = build(
        replace(known, points=points),
        schedule,
        blocking_power_w=BLOCKING_W,
        switching=switching,
        verify=True,
        **more,  # type: ignore[arg-type]
    )
    return {
        "time_s": plans.iteration_time_s,
        "energy_j": plans.energy_j,
        "effective_j": plans.effective_energy_j,
        "bound_j": plans.lower_bound_j,
        "effective_bound_j": plans.effective_bound_j,
        "saving_pct": np.array([plans.plan(index).saving_pct for index in range(len(plans))]),
        "choice": plans.choice.astype(np.int64),
        **{f"split_{name}": getattr(plans.splits, name) for name in ("plan", "column", "option", "share")},
        **{f"wait_{name}": getattr(plans.waits, name) for name in ("plan", "column", "low_s")},
        "baseline": np.array([plans.baseline.iteration_time_s, plans.baseline.energy_j]),
        "ends_s": np.array([plans.t_min_s, plans.t_star_s]),
        "reserve": np.array([plans.reserve_pct, plans.variation_slowdown_pct or 0.0]),
    }


def _schedule(order: str, sizes: str) -> Schedule:
    stages, microbatches = sizes.split("x")
    stages, _, chunks = stages.partition("/")
    more = {"chunks": int(chunks)} if chunks else {}
    return textbook(order, stages=int(stages), microbatches=int(microbatches), **more)


def _solved(seed: int) -> Arrays:
    """A random graph with delays and fixed activities; small decimals, so that many paths tie."""
    draw, count = np.random.default_rng(seed), 12 + 9 * seed
    tables = []
    for _ in range(count // 2):
        size = int(draw.integers(1, 6))
        tables.append(OptionTable(draw.integers(0, 12, size) / 10.0, draw.integers(-20, 20, size) / 4.0))
    pairs = np.array([(i, j) for j in range(count) for i in range(j) if draw.random() < 3.0 / count])
    before, after = pairs.T
    delay_s = draw.choice([0.0, 0.0, 0.0, 0.3], len(pairs))
    return _frontier(Problem(tuple(tables), draw.integers(0, len(tables), count), before, after, delay_s))


def _own_curves() -> Arrays:
    """A curve of its own for every computation: no two paths tie."""
    draw, dag = np.random.default_rng(5), dag_of(textbook("1f1b", stages=4, microbatches=12))
    tables = tuple(
        OptionTable(*_curve(draw, 0.05 if node.kind is Kind.FORWARD else 0.1, 12)) for node in dag.nodes
    )
    before, after = np.array(dag.edges).T
    return _frontier(Problem(tables, np.arange(len(tables)), before, after, np.zeros(len(before))))


def _frontier(problem: Problem) -> Arrays:
    frontier = solve_frontier(problem)
    found = {
        name: getattr(frontier, name) for name in ("time_s", "cost_j", "price_w", "kept", "event", "flow")
    }
    times_s = plan_times(frontier)[::10]
    for kind, plans in (
        ("split", split(frontier, times_s)),
        ("parts", split(frontier, times_s, least_part_s=0.02)),
    ):
        for name in ("time_s", "cost_j", "bound_j", "choice", "other", "share"):
            found[f"{kind}_{name}"] = getattr(plans, name)
    return found


@cache
def _published(file: Path) -> Profile:
    return _halved(replace(read_profile(file), blocking_w=LOW_W))


@cache
def _gpt3() -> Profile:
    """The simulated GPU's profile; its transfers take time, and its durations vary."""
    known = gpt3_profile()
    points = {
        key: tuple(replace(point, time_sd_s=0.003 * point.time_s) for point in own)
        for key, own in known.points.items()
    }
    return _halved(replace(known, points=points, blocking_w=LOW_W))


def _drawn(seed: int, stages: int, clocks: int) -> Profile:
    """Every curve drawn by itself; halves of backwards, transfers, and how durations vary, with some."""
    draw = np.random.default_rng(seed)
    clock_mhz = np.linspace(1410, 705, clocks).round().astype(int).tolist()
    points = {}
    for stage in range(stages):
        for kind, scale_s in ((Kind.FORWARD, 0.05), (Kind.BACKWARD, 0.1)):
            time_s, energy_j = _curve(draw, scale_s * draw.uniform(0.8, 1.2), clocks)
            deviation_s = 0.005 * time_s if seed % 2 else np.full(clocks, np.nan)
            points[stage, kind] = tuple(
                Point(mhz, float(t), float(e + BLOCKING_W * t), time_sd_s=None if np.isnan(sd) else float(sd))
                for mhz, t, e, sd in zip(clock_mhz, time_s, energy_j, deviation_s, strict=True)
            )
    fixed_s = {(stage, Kind.SEND_ACTIVATION): 0.001 for stage in range(stages - 1)} if seed % 3 == 0 else {}
    return _halved(Profile(points, blocking_power_w=BLOCKING_W, blocking_w=LOW_W, fixed_s=fixed_s))


def _halved(profile: Profile) -> Profile:
    """Add both halves of every backward, the second a little longer."""
    points = dict(profile.points)
    for (stage, kind), own in profile.points.items():
        if kind is Kind.BACKWARD:
            for half, share in ((Kind.BACKWARD_INPUT, 0.48), (Kind.BACKWARD_WEIGHT, 0.52)):
                points[stage, half] = tuple(
                    replace(point, time_s=share * point.time_s, energy_j=share * point.energy_j)
                    for point in own
                )
    return replace(profile, points=points)


def _curve(draw: np.random.Generator, scale_s: float, points: int) -> tuple[NDArray[np.float64], ...]:
    """Effective energy against time, off by a percent; some of its points are dominated."""
    stretch = np.linspace(0.0, draw.uniform(0.4, 0.7), points) + 0.002 * draw.random(points)
    cost_j = 200.0 * scale_s * (1.0 + 1.5 * np.exp(-5.0 * stretch)) * draw.normal(1.0, 0.01, points)
    return scale_s * (1.0 + stretch), cost_j


def _uneven(seed: int, stages: int) -> Profile:
    """A textbook GPU with stages of different work."""
    weights = np.random.default_rng(seed).uniform(0.6, 1.6, stages).tolist()
    return replace(textbook_profile(weights, variation=0.004), blocking_w={1410: 70.0, 300: 50.0})
