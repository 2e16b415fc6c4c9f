"""The instances that the frontier is measured on: a measured profile and invented, noisy ones."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import numpy as np

from perseus_ds.profile import read_profile
from perseus_ds.schedule import dag_of, textbook
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
    nodes = [(s, *step) for s in range(stages) for step in _order(s, stages, microbatches)]
    number = {node: index for index, node in enumerate(nodes)}
    edges = {(number[a], number[b]) for a, b in pairwise(nodes) if a[0] == b[0]}
    for m in range(microbatches):
        edges.add((number[stages - 1, "F", m], number[stages - 1, "B", m]))
        for s in range(stages - 1):
            edges.add((number[s, "F", m], number[s + 1, "F", m]))
            edges.add((number[s + 1, "B", m], number[s, "B", m]))
    keys = list(tables)
    table_of = np.array([keys.index((s, k)) for s, k, _ in nodes], dtype=np.int32)
    before, after = np.array(sorted(edges), dtype=np.int32).T
    return Problem(tuple(tables.values()), table_of, before, after, np.zeros(len(edges)))


def interleaved(tables: Tables, *, stages: int, chunks: int, microbatches: int) -> Problem:
    """An iteration of Megatron's interleaved 1F1B; microbatches are a multiple of stages.

    Every stage holds ``chunks`` parts of the model; microbatches pass it in groups of ``stages``.
    Source: Narayanan et al. 2021, arXiv 2104.04473, section 2.2.
    """
    nodes = [
        (s, *step) for s in range(stages) for step in _interleaved_order(s, stages, chunks, microbatches)
    ]
    number = {node: index for index, node in enumerate(nodes)}
    edges = {(number[a], number[b]) for a, b in pairwise(nodes) if a[0] == b[0]}
    for m in range(microbatches):
        for place in range(stages * chunks):
            chunk, stage = divmod(place, stages)
            forward, backward = number[stage, "F", m, chunk], number[stage, "B", m, chunk]
            if place + 1 == stages * chunks:
                edges.add((forward, backward))
                continue
            chunk, stage = divmod(place + 1, stages)
            edges.add((forward, number[stage, "F", m, chunk]))
            edges.add((number[stage, "B", m, chunk], backward))
    keys = {key: index for index, key in enumerate(tables)}
    table_of = np.array([keys[node[0], node[1]] for node in nodes], dtype=np.int32)
    before, after = np.array(sorted(edges), dtype=np.int32).T
    return Problem(tuple(tables.values()), table_of, before, after, np.zeros(len(edges)))


def split_interleaved(tables: Tables, *, ranks: int, chunks: int, microbatches: int) -> Problem:
    """An iteration of the interleaved zero-bubble schedule: both halves of a backward have their own clock.

    ``tables`` are those of the model stages; transfers are buffered and take no time.
    """
    schedule = textbook("interleaved-zb", stages=ranks * chunks, microbatches=microbatches, chunks=chunks)
    halves = {
        (s, k): _share(table, 1.0 if k == "F" else 0.5)
        for s in range(ranks * chunks)
        for k, table in (("F", tables[s, "F"]), ("I", tables[s, "B"]), ("W", tables[s, "B"]))
    }
    dag = dag_of(schedule)
    number = {key: index for index, key in enumerate(halves)}
    before, after = np.array(dag.edges, dtype=np.int32).T
    table_of = np.array([number[node.stage, node.kind.value] for node in dag.nodes], dtype=np.int32)
    return Problem(tuple(halves.values()), table_of, before, after, np.zeros(len(dag.edges)))


def _share(table: OptionTable, share: float) -> OptionTable:
    return OptionTable(share * table.duration_s, share * table.cost_j)


def own_curves(problem: Problem, *, points: int = 20, seed: int = 0) -> Problem:
    """Give every single activity a noisy curve of its own: no two paths tie."""
    rng = np.random.default_rng(seed)
    scale_s = [float(problem.tables[table].duration_s.min()) for table in problem.table_of]
    tables = tuple(noisy_table(rng, scale, points) for scale in scale_s)
    return Problem(tables, np.arange(len(problem)), problem.before, problem.after, problem.delay_s)


def _order(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    warm_up = min(stages - stage - 1, microbatches)
    steady = [step for m in range(microbatches - warm_up) for step in (("F", warm_up + m), ("B", m))]
    drain = [("B", m) for m in range(microbatches - warm_up, microbatches)]
    return [("F", m) for m in range(warm_up)] + steady + drain


def _interleaved_order(stage: int, stages: int, chunks: int, microbatches: int) -> list[tuple[str, int, int]]:
    """Kind, microbatch and chunk of all that one stage does, in order."""
    count = microbatches * chunks
    forwards = [_in_groups(step, stages, chunks) for step in range(count)]
    backwards = [(m, chunks - 1 - chunk) for m, chunk in forwards]
    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, count)
    order: list[tuple[str, int, int]] = [("F", *step) for step in forwards[:warm_up]]
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += [("F", *forward), ("B", *backward)]
    return order + [("B", *step) for step in backwards[count - warm_up :]]


def _in_groups(step: int, stages: int, chunks: int) -> tuple[int, int]:
    """Microbatch and chunk of a stage's n-th forward."""
    group, within = divmod(step, stages * chunks)
    return group * stages + within % stages, within // stages
