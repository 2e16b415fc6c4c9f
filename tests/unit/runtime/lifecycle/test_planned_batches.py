"""Batches of several sizes as a table: what each runs, what it counts for, when its plan comes."""

from __future__ import annotations

from typing import cast

from perseus_ds.runtime.comm.status import JobStatus
from perseus_ds.runtime.control.clock_sequencer import FixedClock
from perseus_ds.runtime.lifecycle.batches.batch_plans import BatchPlans
from perseus_ds.runtime.lifecycle.batches.planned_batches import PlannedBatches
from perseus_ds.runtime.lifecycle.phases import Phase, Planning
from perseus_ds.runtime.measure.accounting import Mode


class At(Phase):
    """Run at one clock, and count the iterations that this phase was told of."""

    def __init__(self, clock_mhz: int) -> None:
        self.clock_policy = FixedClock(clock_mhz)
        self.mode = Mode.PERSEUS
        self.iterations = 0

    def following(self, *_: object) -> Phase:
        self.iterations += 1
        return self


class Plans:
    """Makes the plan of a size when it is told to."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.made: dict[int, Phase] = {}
        self.taken = 0

    def phase_for(self, microbatches: int) -> Phase:
        self.asked.append(microbatches)
        return Planning()

    def arrived(self, plans_ready: int) -> tuple[int, Phase] | None:
        if plans_ready <= self.taken:
            return None
        self.taken += 1
        size = self.asked[self.taken - 1]
        self.made[size] = At(100 * size)
        return size, self.made[size]


def walk(phase: PlannedBatches, sizes: str, ready: str) -> str:
    """One letter an iteration: what its clock is in hundreds, small where it counts for neither side."""
    row, before = [], None
    for index, (size, plans_ready) in enumerate(zip(sizes, ready, strict=True)):
        phase.begins(index, int(size))
        clock = cast("FixedClock", phase.clock_policy).clock_mhz
        letter = "d" if clock is None else "abcdefghi"[clock // 100]
        row.append(letter.upper() if phase.mode is Mode.PERSEUS else letter)
        status = JobStatus(failed=False, plans_ready=int(plans_ready), iteration_s=1.0, microbatches=before)
        phase.following(index, [], status)
        before = int(size)
    return "".join(row)


def test_each_size_runs_its_own_plan_and_the_change_counts_for_neither() -> None:
    plans = Plans()
    phase = PlannedBatches(cast("BatchPlans", plans), 4, At(400))
    assert walk(phase, "44488888844", "00000011111") == "EEEddddIIeE"
    assert plans.asked == [8]


def test_a_size_moves_on_with_its_own_iterations_alone() -> None:
    plans, four = Plans(), At(400)
    walk(PlannedBatches(cast("BatchPlans", plans), 4, four), "4488884", "0000000")
    assert four.iterations == 3


def test_sizes_are_asked_for_once_and_taken_in_turn() -> None:
    plans = Plans()
    phase = PlannedBatches(cast("BatchPlans", plans), 4, At(400))
    walk(phase, "2266224466", "0000112222")
    assert plans.asked == [2, 6]
    assert set(plans.made) == {2, 6}
