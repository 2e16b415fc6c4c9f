"""The instances that the frontier is measured on: a measured profile and invented, noisy ones."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from perseus_ds.profile import read_profile
from perseus_ds.schedule import Schedule, dag_of, textbook
from perseus_ds.simulation.gpt3 import gpt3_profile
from perseus_ds.solver.problem import OptionTable, Problem

BLOCKING_W = 83.64
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
Tables = dict[tuple[int, str], OptionTable]


PROFILE = "PERSEUS_BENCH_PROFILE"
"""Names the profile for the processes that solve one instance each."""


def source() -> str:
    """Which profile the instances called gpt3 are made of: a file, else the simulated GPU's."""
    place = Path(os.environ.get("PERSEUS_SHARED_DATA", SHARED)) / "gpt3-175b_a100-sxm_profile.csv"
    return os.environ.get(PROFILE) or (str(place) if place.exists() else "simulated A100")


def measured(stages: int) -> Tables:
    """GPT-3 175B on A100: stages 0 to 6 are alike, the last is heavier."""
    profile = gpt3_profile() if source() == "simulated A100" else read_profile(Path(source()))
    columns = {
        (stage, kind.value): np.array([(point.time_s, point.energy_j) for point in points]).T
        for (stage, kind), points in profile.points.items()
    }
    tables = {key: OptionTable(t_s, e_j - BLOCKING_W * t_s) for key, (t_s, e_j) in columns.items()}
    return {(s, k): tables[7 if s == stages - 1 else 0, k] for s in range(stages) for k in "FB"}


def noisy(stages: int, *, points: int = 20, seed: int = 0) -> Tables:
    """A noisy curve of its own for every stage and kind."""
    rng = np.random.default_rng(seed)
    return {(s, k): noisy_table(rng, scale_s, points) for s in range(stages) for k, scale_s in KINDS}


KINDS = (("F", 0.05), ("B", 0.1))


def noisy_table(rng: np.random.Generator, scale_s: float, points: int) -> OptionTable:
    """Points along an exponential fall, durations and costs with noise."""
    base_s = scale_s * (1.0 + 0.1 * rng.random())
    stretch = np.linspace(0.0, 0.6, points)
    duration_s = base_s * (1.0 + stretch) * (1.0 + 0.003 * rng.standard_normal(points))
    cost_j = 100.0 * base_s * (1.0 + 1.5 * np.exp(-5.0 * stretch))
    return OptionTable(duration_s, cost_j * (1.0 + 0.0015 * rng.standard_normal(points)))


def pipeline(tables: Tables, *, stages: int, microbatches: int) -> Problem:
    """A 1F1B iteration."""
    return _problem(tables, textbook("1f1b", stages=stages, microbatches=microbatches))


def interleaved(tables: Tables, *, stages: int, chunks: int, microbatches: int) -> Problem:
    """An iteration of Megatron's interleaved 1F1B: chunks of a rank have the tables of its first stage."""
    every = {(s, k): tables[s % stages, k] for s in range(stages * chunks) for k in "FB"}
    schedule = textbook("interleaved", stages=stages * chunks, microbatches=microbatches, chunks=chunks)
    return _problem(every, schedule)


def split_interleaved(tables: Tables, *, ranks: int, chunks: int, microbatches: int) -> Problem:
    """An iteration of the interleaved zero-bubble schedule: both halves of a backward have their own clock.

    ``tables`` are those of the model stages.
    """
    schedule = textbook("interleaved-zb", stages=ranks * chunks, microbatches=microbatches, chunks=chunks)
    halves = {
        (s, k): _share(table, 1.0 if k == "F" else 0.5)
        for s in range(ranks * chunks)
        for k, table in (("F", tables[s, "F"]), ("I", tables[s, "B"]), ("W", tables[s, "B"]))
    }
    return _problem(halves, schedule)


def _problem(tables: Tables, schedule: Schedule) -> Problem:
    """An activity for each computation; transfers are buffered and take no time."""
    dag = dag_of(schedule)
    number = {key: index for index, key in enumerate(tables)}
    before, after = np.array(dag.edges, dtype=np.int32).T
    table_of = np.array([number[node.stage, node.kind.value] for node in dag.nodes], dtype=np.int32)
    return Problem(tuple(tables.values()), table_of, before, after, np.zeros(len(dag.edges)))


def _share(table: OptionTable, share: float) -> OptionTable:
    return OptionTable(share * table.duration_s, share * table.cost_j)


def own_curves(problem: Problem, *, points: int = 20, seed: int = 0) -> Problem:
    """Give every single activity a noisy curve of its own: no two paths tie."""
    rng = np.random.default_rng(seed)
    scale_s = [float(problem.tables[table].duration_s.min()) for table in problem.table_of]
    tables = tuple(noisy_table(rng, scale, points) for scale in scale_s)
    return Problem(tables, np.arange(len(problem)), problem.before, problem.after, problem.delay_s)
