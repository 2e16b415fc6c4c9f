"""Marks become iterations when the device has passed them, never before and never more than one late."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from perseus_ds.profile import Interval
from perseus_ds.runtime.recorder import Arrivals, Iteration, Mark, Recorder, Stopwatch, loads_of
from perseus_ds.schedule import Instruction, Kind, Load

FORWARD, STEP = Instruction(0, Kind.FORWARD, 0), Instruction(0, Kind.STEP, 0)


class LaggingStopwatch(Stopwatch):
    """The host's time runs; the device has passed what the test says, and being waited for passes a mark."""

    def __init__(self, passed_s: float = 100.0) -> None:
        self.now_s = 0.0
        self.passed_s = passed_s
        self.waits = 0

    def mark(self) -> Mark:
        return self.host_s()

    def host_s(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def moment(self) -> None:
        return None

    def has_passed(self, mark: Mark) -> bool:
        return mark <= self.passed_s

    def wait(self, mark: Mark) -> None:
        if not self.has_passed(mark):
            self.waits += 1
            self.passed_s = mark

    def seconds(self, marks: Sequence[Mark]) -> list[float]:
        assert all(self.has_passed(mark) for mark in marks), "read before the device was there"
        return list(marks)


@pytest.fixture
def stopwatch() -> LaggingStopwatch:
    return LaggingStopwatch()


def run(recorder: Recorder, *kinds: Kind) -> int:
    recorder.begin()
    for kind in kinds:
        recorder.mark_start(kind)
        recorder.mark_end()
    return recorder.finish()


def test_an_iteration_is_from_its_first_instruction_to_its_last(stopwatch: LaggingStopwatch) -> None:
    recorder = Recorder(stopwatch)
    assert run(recorder, Kind.FORWARD) == 0
    recorder.ours_s = recorder.host_s()
    stopwatch.now_s += 40.0
    assert run(recorder, Kind.FORWARD, Kind.BACKWARD) == 1
    first, second = recorder.take_passed()
    assert (first.start_s, first.end_s, first.duration_s, first.outside_s) == (1.0, 4.0, 3.0, None)
    assert (second.start_s, second.end_s, second.own_s, second.outside_s) == (46.0, 51.0, 1.0, 41.0)
    assert second.duration_s == 6.0, "with the one second that we took after the first"
    assert (first.resumed, second.resumed) == (True, False)
    assert second.intervals == (
        Interval(Instruction(0, Kind.FORWARD, 0), 47.0, 48.0),
        Interval(Instruction(0, Kind.BACKWARD, 0), 49.0, 50.0),
    )
    assert recorder.take_passed() == []


def test_more_than_one_behind_is_waited_for() -> None:
    recorder = Recorder(stopwatch := LaggingStopwatch(-1.0))
    for index in range(4):
        run(recorder, Kind.FORWARD)
        assert [iteration.index for iteration in recorder.take_passed()] == ([index - 1] if index else [])
    assert stopwatch.waits == 3


def test_what_follows_an_interruption_is_resumed(stopwatch: LaggingStopwatch) -> None:
    """An iteration that was not listened to has no instructions."""
    recorder = Recorder(stopwatch)
    run(recorder, Kind.FORWARD)
    recorder.interrupt()
    run(recorder, Kind.FORWARD)
    run(recorder, Kind.FORWARD)
    recorder.interrupt()
    recorder.finish()
    passed = recorder.take_passed()
    assert [one.resumed for one in passed] == [True, True, False, True]
    assert [len(one.intervals) for one in passed] == [1, 1, 1, 0]


def test_iterations_after_something_else_count_where_all_are_so(stopwatch: LaggingStopwatch) -> None:
    recorder = Recorder(stopwatch, (FORWARD, STEP))
    for _ in range(4):
        recorder.interrupt()
        stopwatch.now_s += 10.0
        run(recorder, Kind.FORWARD)
        recorder.ours_s = recorder.host_s()
    passed = recorder.take_passed()
    assert [one.resumed for one in passed] == [True, True, False, False]
    assert {interval.kind for one in passed for interval in one.intervals} == {Kind.FORWARD}


def test_what_begins_before_clocks_have_settled_tells_nothing_of_them(stopwatch: LaggingStopwatch) -> None:
    recorder = Recorder(stopwatch)
    recorder.begin(settling_s=2.5)
    for _ in range(3):
        recorder.mark_start(Kind.FORWARD)
        recorder.mark_end()
    recorder.finish()
    assert [interval.waits for interval in recorder.take_passed()[0].intervals] == [True, False, False]


def test_an_instruction_that_broke_off_does_not_reach_the_next_iteration(stopwatch: LaggingStopwatch) -> None:
    recorder = Recorder(stopwatch)
    recorder.begin()
    recorder.mark_start(Kind.FORWARD)
    recorder.interrupt()
    run(recorder, Kind.BACKWARD)
    (iteration,) = recorder.take_passed()
    assert [interval.kind for interval in iteration.intervals] == [Kind.BACKWARD]


def test_what_was_heard_gets_its_name_from_the_order(stopwatch: LaggingStopwatch) -> None:
    order = tuple(map(Instruction.parse, ("0F0", "3F0", "3I0", "0I0", "3W0", "0W0")))
    recorder = Recorder(stopwatch, order)
    run(recorder, *(instruction.kind for instruction in order), Kind.STEP)
    (iteration,) = recorder.take_passed()
    assert [str(interval.instruction) for interval in iteration.intervals] == [*map(str, order), "0OS0"]


def test_a_step_that_nobody_marks_lies_between_two_iterations(stopwatch: LaggingStopwatch) -> None:
    recorder = Recorder(stopwatch, (FORWARD, STEP))
    run(recorder, Kind.FORWARD)
    recorder.ours_s = recorder.host_s()
    stopwatch.now_s += 10.0
    run(recorder, Kind.FORWARD)
    first, second = recorder.take_passed()
    assert [interval.kind for interval in first.intervals] == [Kind.FORWARD]
    assert second.intervals[0] == Interval(STEP, 4.0, 16.0)
    assert second.start_s == 4.0


def test_a_step_that_is_marked_is_counted_once(stopwatch: LaggingStopwatch) -> None:
    recorder = Recorder(stopwatch, (FORWARD, STEP))
    for _ in range(2):
        run(recorder, Kind.FORWARD, Kind.STEP)
    assert [interval.kind for interval in recorder.take_passed()[1].intervals] == [Kind.FORWARD, Kind.STEP]


def test_an_iteration_says_that_its_step_was_skipped(stopwatch: LaggingStopwatch) -> None:
    skipped = [3]
    recorder = Recorder(stopwatch, skipped_steps=lambda: skipped[0])
    for more in (0, 1, 0, 2):
        recorder.begin()
        recorder.mark_start(Kind.STEP)
        skipped[0] += more
        recorder.mark_end()
        recorder.finish()
    assert [one.skipped for one in recorder.take_passed()] == [False, True, False, True]


def test_what_is_done_to_a_microbatch_has_one_load() -> None:
    kinds = (Kind.FORWARD, Kind.FORWARD, Kind.LOAD, Kind.BACKWARD, Kind.BACKWARD)
    names = [Instruction(0, kind, place % 2) for place, kind in enumerate(kinds)]
    first, second, batch = Load(30), Load(50), [Load(1), Load(2)]
    assert loads_of(names, [first, second, None, None, None]) == [first, second, None, second, first]
    assert loads_of(names, [None] * 5) == [None] * 5
    assert loads_of(names, [first, None, None, None, None], batch) == [*batch, None, batch[1], batch[0]]


# From an iteration's marks to its own time: all but the wait for other replicas.

ORDER = tuple(map(Instruction.parse, ("0F0", "0B0", "0AR0", "0OS0")))


def iteration(index: int, *, reducing_s: float, tied_s: float = 0.0, resumed: bool = False) -> Iteration:
    """Eight seconds of work; then first and last stage meet, then the replicas."""
    rows, end_s = list[Interval](), 0.0
    spans = {Kind.BACKWARD: 8.0, Kind.REDUCE_TIED: tied_s, Kind.REDUCE_GRADS: reducing_s, Kind.STEP: 0.5}
    for kind, duration_s in spans.items():
        rows.append(Interval(Instruction(0, kind, 0), end_s, end_s + duration_s))
        end_s += duration_s
    return Iteration(index, 0.0, end_s, tuple(rows), resumed=resumed)


def arrivals(reduction_s: float = 0.25) -> Arrivals:
    found = Arrivals(ORDER, pipeline_rank=0, behind=0)
    found.expect({(0, Kind.REDUCE_GRADS): reduction_s, (1, Kind.REDUCE_GRADS): 9.0})
    return found


@pytest.mark.parametrize(
    ("one", "own_s"),
    [
        (iteration(0, reducing_s=0.25), 8.75),
        (iteration(0, reducing_s=5.25), 8.75),
        (iteration(0, reducing_s=0.125), 8.625),
        (iteration(0, reducing_s=0.25, tied_s=1.0), 9.75),
        (iteration(0, reducing_s=0.25, resumed=True), None),
        (replace(iteration(0, reducing_s=0.25), skipped=True), None),
    ],
    ids=["no wait", "a wait", "quicker than ever", "tied weights", "resumed", "its step was skipped"],
)
def test_the_wait_at_the_reduction_is_not_a_replicas_own(one: Iteration, own_s: float | None) -> None:
    assert arrivals().own_s(0, [one]) == (None if own_s is None else pytest.approx(own_s))


def test_each_iteration_is_told_once_and_older_ones_never() -> None:
    here = arrivals()
    assert here.own_s(1, [iteration(index, reducing_s=0.25) for index in range(3)]) is not None
    assert [here.own_s(index, []) is None for index in (1, 0, 2)] == [True, True, False]


@pytest.mark.parametrize(("pipeline_rank", "own_s"), [(0, 8.5), (3, -math.inf)])
def test_without_a_plan_the_whole_reduction_is_waiting(pipeline_rank: int, own_s: float) -> None:
    here = Arrivals(ORDER, pipeline_rank=pipeline_rank, behind=0)
    assert here.own_s(0, [iteration(0, reducing_s=5.0)]) == pytest.approx(own_s)
