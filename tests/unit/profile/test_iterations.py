"""Times of ranks from the lengths of whole iterations, against iterations whose durations are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from perseus_ds.profile.iterations import IterationModel
from perseus_ds.schedule import Kind, Schedule, dag_of, textbook

SLOWER = 1.8
KINDS = {Kind.FORWARD: 1.0, Kind.BACKWARD: 2.0, Kind.FORWARD_BACKWARD: 3.0}
UNEVEN = [1.0, 0.9, 0.8, 1.1]


def iteration_s(schedule: Schedule, rank_s: list[float], backward: float = 2.0) -> float:
    """Play the schedule; a rank's forward lasts as stated, a backward ``backward`` times as long."""
    dag, ranks = dag_of(schedule), len(schedule.orders)
    rank_of = {one: rank for rank, order in enumerate(schedule.orders) for one in order}
    kinds = KINDS | {Kind.BACKWARD: backward}
    lasts = [rank_s[rank_of[node] % ranks] * kinds.get(node.kind, 0.0) for node in dag.nodes]
    return max(start + own for start, own in zip(dag.earliest_starts(lasts), lasts, strict=True))


def fitted(schedule: Schedule, rank_s: list[float], backward: float = 2.0) -> tuple[IterationModel, float]:
    model = IterationModel(schedule, {})
    slower = 1.0 + (SLOWER - 1.0) * np.eye(len(rank_s))
    slowed_s = [iteration_s(schedule, (own * rank_s).tolist(), backward) for own in slower]
    return model, model.fit(iteration_s(schedule, rank_s, backward), slowed_s, SLOWER)


@pytest.mark.parametrize("microbatches", [4, 8, 32])
@pytest.mark.parametrize("rank_s", [[1.0] * 4, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("interleaved", 2), ("interleaved-fb", 2)])
def test_times_of_ranks_are_found(name: str, chunks: int, rank_s: list[float], microbatches: int) -> None:
    schedule = textbook(name, stages=4 * chunks, microbatches=microbatches, chunks=chunks)
    model, misfit = fitted(schedule, rank_s)
    assert model.rank_s / model.rank_s[0] == pytest.approx(np.array(rank_s) / rank_s[0], rel=1e-3)
    assert misfit < 1e-3


@pytest.mark.parametrize("backward", [1.6, 2.4])
def test_the_share_of_a_forward_hardly_matters(backward: float) -> None:
    model, misfit = fitted(textbook("1f1b", stages=4, microbatches=32), UNEVEN, backward)
    assert model.rank_s / model.rank_s[3] == pytest.approx(np.array(UNEVEN) / UNEVEN[3], rel=0.01)
    assert misfit < 0.005


def test_iterations_that_no_schedule_explains_are_told() -> None:
    model = IterationModel(textbook("1f1b", stages=4, microbatches=8), {})
    assert model.fit(1.0, [0.5, 3.0, 1.0, 1.2], SLOWER) > 0.02


def test_intervals_fill_the_iteration_that_was_seen() -> None:
    schedule = textbook("1f1b", stages=4, microbatches=8)
    model, _ = fitted(schedule, UNEVEN)
    seen = [model.intervals(rank, 100.0, 10.0) for rank in range(4)]
    assert max(one.end_s for own in seen for one in own) == pytest.approx(110.0)
    assert seen[0][0].start_s == pytest.approx(100.0)
    for rank, own in enumerate(seen):
        assert [one.instruction for one in own] == list(schedule.orders[rank])
        assert all(one.end_s <= other.start_s + 1e-9 for one, other in pairwise(own))
    busy = [sum(one.duration_s for one in own) / 10.0 for own in seen]
    assert busy == pytest.approx(model.busy())
