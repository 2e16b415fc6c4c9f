"""From an iteration's marks to its own time: all but the wait for other replicas."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from perseus_ds.profile import Interval
from perseus_ds.runtime.recorder import Arrivals, Iteration
from perseus_ds.schedule import Instruction, Kind

ORDER = tuple(map(Instruction.parse, ("0F0", "0B0", "0AR0", "0OS0")))


def iteration(index: int, *, reducing_s: float, tied_s: float = 0.0, whole: bool = True) -> Iteration:
    """Eight seconds of work; then first and last stage meet, then the replicas."""
    rows = [Interval(Instruction(0, Kind.BACKWARD, 0), 0.0, 8.0)]
    for kind, duration_s in ((Kind.REDUCE_TIED, tied_s), (Kind.REDUCE_GRADS, reducing_s)):
        rows.append(Interval(Instruction(0, kind, 0), rows[-1].end_s, rows[-1].end_s + duration_s))
    rows.append(Interval(Instruction(0, Kind.STEP, 0), rows[-1].end_s, rows[-1].end_s + 0.5))
    return Iteration(index, 0.0, rows[-1].end_s, tuple(rows), resumed=not whole)


def arrivals(reduction_s: float = 0.25) -> Arrivals:
    found = Arrivals(ORDER, pipeline_rank=0, behind=0)
    found.expect({(0, Kind.REDUCE_GRADS): reduction_s, (1, Kind.REDUCE_GRADS): 9.0})
    return found


def own_s(one: Iteration) -> float | None:
    here = arrivals()
    here.note([one])
    return here.own_s(one.index)


def test_the_wait_at_the_reduction_is_not_a_replicas_own() -> None:
    assert own_s(iteration(0, reducing_s=0.25)) == pytest.approx(8.75)
    assert own_s(iteration(0, reducing_s=5.25)) == pytest.approx(8.75)


def test_a_reduction_quicker_than_ever_is_no_negative_wait() -> None:
    assert own_s(iteration(0, reducing_s=0.125)) == pytest.approx(8.625)


def test_the_meeting_of_tied_weights_is_a_replicas_own() -> None:
    assert own_s(iteration(0, reducing_s=0.25, tied_s=1.0)) == pytest.approx(9.75)


def test_what_is_resumed_is_unknown() -> None:
    assert own_s(iteration(0, reducing_s=0.25, whole=False)) is None


def test_one_whose_step_was_skipped_is_unknown() -> None:
    assert own_s(replace(iteration(0, reducing_s=0.25), skipped=True)) is None


def test_each_iteration_is_told_once_and_older_ones_never() -> None:
    here = arrivals()
    here.note([iteration(index, reducing_s=0.25) for index in range(3)])
    assert here.own_s(1) is not None
    assert here.own_s(1) is None
    assert here.own_s(0) is None
    assert here.own_s(2) is not None


def test_without_a_plan_the_whole_reduction_counts_as_waiting() -> None:
    here = Arrivals(ORDER, pipeline_rank=0, behind=0)
    here.note([iteration(0, reducing_s=5.0)])
    assert here.own_s(0) == pytest.approx(8.5)


def test_the_first_stage_speaks_for_its_replica() -> None:
    last = Arrivals(ORDER, pipeline_rank=3, behind=0)
    last.note([iteration(0, reducing_s=5.0)])
    assert last.own_s(0) == -math.inf
