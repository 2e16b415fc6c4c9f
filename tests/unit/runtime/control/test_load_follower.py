"""Plans of single iterations on their way to the clocks: in time, late, none, and given up."""

from __future__ import annotations

import time

import numpy as np
import pytest
from load_plans import FREE, drawn, planned, problem, profile
from numpy.typing import NDArray

from perseus_ds.plan.following import AnswerFrame, QuestionFrame, Setup
from perseus_ds.runtime.comm.replica_broadcast import ReplicaBroadcast
from perseus_ds.runtime.control.iteration_planner import IterationPlanner
from perseus_ds.runtime.control.load_follower import LoadFollower

MARKS = (-1, 2, 5)
RANK = 1
Floats = NDArray[np.float64]


class Planner(IterationPlanner):
    """One that answers when the test has it do so."""

    def __init__(self) -> None:
        self.asked: list[QuestionFrame] = []
        self.made: dict[int, Floats] = {}
        self.error, self.closed = None, False

    def ask(self, question: QuestionFrame) -> bool:
        self.asked.append(question)
        return True

    def answer(self, number: int, *, patience_s: float = 0.0) -> Floats | None:
        return self.made.pop(number, None)

    def make(self) -> None:
        one, question = problem(), self.asked[-1]
        factor = one.factors(question.loads)
        limit_s = question.stretch * one.lasts_s(one.at_objective_s(factor))
        followed = one.within(one.solve(factor), limit_s)
        self.made[question.number] = AnswerFrame(planned(), MARKS).packed(question.number, followed)

    def close(self) -> None:
        self.closed = True


class Recorded(ReplicaBroadcast):
    """What was brought, in order; what comes is what another one has brought."""

    def __init__(self, source: list[Floats] | None = None) -> None:
        self.brought: list[Floats] = [] if source is None else source
        self.expected = 0

    def begin(self) -> None:
        self.expected = 0

    def bring(self, numbers: Floats) -> None:
        self.brought.append(numbers)

    def expect(self) -> None:
        self.expected += 1

    def come(self, place: int, *, waits: bool) -> Floats | None:
        return self.brought[place] if place < len(self.brought) else None

    def close(self) -> None:
        pass


def follower(planner: Planner | None, broadcast: Recorded, said: list[str] | None = None) -> LoadFollower:
    return LoadFollower(
        broadcast,
        AnswerFrame(planned(), MARKS),
        planner,
        rank=RANK,
        waits=False,
        complain=(said if said is not None else []).append,
        late_s=0.0,
    )


def begun(seed: int = 0) -> tuple[Planner, Recorded, LoadFollower]:
    planner, broadcast = Planner(), Recorded()
    one = follower(planner, broadcast)
    one.meet(drawn(seed))
    one.begins()
    one.ask(1.0, on_pace=True)
    return planner, broadcast, one


def test_a_plan_is_followed_from_when_it_is_there() -> None:
    planner, broadcast, one = begun()
    assert not one.look(0.0)
    assert one.schedule is None
    planner.make()
    assert one.look(0.1)
    assert one.schedule is not None
    assert not one.look(0.2), "once"
    assert len(broadcast.brought) == 1
    assert one.left_s is not None
    assert (np.diff(one.left_s) < 0.0).all()


def test_all_ranks_follow_the_same_plan() -> None:
    planner, broadcast, one = begun()
    other = follower(None, Recorded(broadcast.brought))
    other.begins()
    other.ask(1.0, on_pace=True)
    assert not other.look(0.0)
    planner.make()
    one.look(0.1)
    assert other.look(0.1)
    assert other.schedule == one.schedule
    assert not other.knows_loads


def test_the_same_stretch_is_not_asked_for_again() -> None:
    planner, _, one = begun()
    one.ask(1.0, on_pace=True)
    assert len(planner.asked) == 1
    one.ask(1.1, on_pace=True)
    assert len(planner.asked) == 2


def test_what_is_decided_later_in_the_iteration_is_not_followed_before() -> None:
    planner, _, one = begun()
    planner.make()
    one.look(0.0)
    first = one.schedule
    one.ask(1.2, on_pace=True, due_s=5.0)
    planner.make()
    assert not one.look(4.9)
    assert one.schedule is first
    assert one.look(5.0)
    assert one.schedule not in (first, None)


def test_an_answer_that_is_late_leaves_what_was_decided() -> None:
    planner, _, one = begun()
    planner.make()
    one.look(0.0)
    one.ask(1.2, on_pace=True, due_s=5.0)
    assert one.look(5.0)
    assert one.schedule is None, "the plan of before would take another time than was decided"
    planner.make()
    assert one.look(5.1)


def test_without_loads_nothing_is_planned_and_all_know() -> None:
    planner, broadcast = Planner(), Recorded()
    one = follower(planner, broadcast)
    one.meet(drawn(0)[:-1])
    assert not one.knows_loads
    one.begins()
    one.ask(1.0, on_pace=True)
    assert not planner.asked
    one.look(0.0)
    assert len(broadcast.brought) == 1
    assert one.schedule is None


def test_who_expects_a_plan_gets_none_when_the_iteration_ends_without() -> None:
    planner, broadcast, one = begun()
    one.ends()
    assert len(broadcast.brought) == 1
    assert AnswerFrame(planned(), MARKS).time_s(broadcast.brought[0]) is None
    assert one.account == {"load_iterations": 1, "followed_iterations": 0}
    assert not planner.closed


def test_plans_that_are_always_late_are_given_up_and_one_line_says_so() -> None:
    planner, broadcast, said = Planner(), Recorded(), list[str]()
    one = follower(planner, broadcast, said)
    for _ in range(30):
        one.meet(drawn(0))
        one.begins()
        one.ask(1.0, on_pace=True)
        one.look(0.0)
        one.ends()
    assert len(said) == 1
    assert "20" in said[0]
    assert planner.closed
    assert len(planner.asked) == 20
    assert len(broadcast.brought) == 30, "the others never wait"


def test_a_process_answers_what_it_is_asked() -> None:
    planner = IterationPlanner(Setup(planned(), profile(), 0, FREE, MARKS))
    planner.wait_until_ready(120.0)
    for number in (1, 2):
        assert planner.ask(QuestionFrame(number, 1.0 + 0.1 * number, True, drawn(number)))
    answer = planner.answer(2, patience_s=120.0)
    planner.close()
    assert answer is not None
    assert int(answer[0]) == 2
    assert AnswerFrame(planned(), MARKS).time_s(answer) is not None
    assert not planner.ask(QuestionFrame(3, 1.0, True, drawn(3)))


@pytest.mark.thorough
def test_a_planner_that_fails_says_why_and_training_goes_on() -> None:
    broken = Setup(planned(), profile(), len(planned()), FREE, MARKS)
    planner, said = IterationPlanner(broken), list[str]()
    one = LoadFollower(
        Recorded(),
        AnswerFrame(planned(), MARKS),
        planner,
        rank=0,
        waits=False,
        complain=said.append,
    )
    one.meet(drawn(0))
    until_s = time.monotonic() + 120.0
    while not said and time.monotonic() < until_s:
        one.begins()
        one.ask(1.0, on_pace=True)
        time.sleep(0.05)
        one.look(0.0)
        one.ends()
    assert len(said) == 1
    assert "index" in said[0]
    assert one.schedule is None
