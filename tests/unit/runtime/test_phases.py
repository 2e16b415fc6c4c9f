"""The lifecycle of a job as a table: iteration by iteration, what is played and what it counts for."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from schedules import index_at, two_plans

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.profile import Interval, Point
from perseus_ds.profile.sweep import SweepPace, WindowLength
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.clocks import ClockSchedules
from perseus_ds.runtime.phases import ActivePlan, BaselineOnly, Opened, Phase, Running, WarmUp
from perseus_ds.runtime.pooling import MeasuredSweep, Pooled
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.runtime.status import JobStatus
from perseus_ds.runtime.sweep import Profiling
from perseus_ds.schedule import Instruction, Kind

PLANS = two_plans()
GOOD = 1.0
STATUS = JobStatus(failed=False, plans_ready=0, iteration_s=GOOD)
TWO = WindowLength(GOOD, 2.0, least=2)
LETTERS = {Mode.BASELINE: "B", Mode.PERSEUS: "P", Mode.NEITHER: "-"}


def iteration(index: int, *, whole: bool = True) -> Iteration:
    row = (Interval(Instruction(0, Kind.FORWARD, 0), 0.0, 1.0),)
    return Iteration(index, float(index), index + 1.0, row, resumed=not whole)


def run_by(phase: Phase) -> str:
    clock_mhz = phase.settings.clocks.opening[0].clock_mhz
    return "plan" if phase.settings.plan is not None else "default" if clock_mhz is None else str(clock_mhz)


def walk(
    phase: Phase, iterations: int, *, lag: int = 0, broken: Sequence[int] = (), follows: float = 0.0
) -> list[str]:
    """Run some iterations; ``lag`` is how many the device is behind.

    The time of the iteration before grows by the share ``follows`` of what its clock is lower.
    """
    rows = []
    waiting: list[Iteration] = []
    for index in range(iterations):
        rows.append(f"{run_by(phase)} {LETTERS[phase.settings.mode]}")
        waiting.append(iteration(index, whole=index not in broken))
        done = max(0, len(waiting) - lag)
        passed, waiting = waiting[:done], waiting[done:]
        lasts_s = lasted_s(rows[max(0, index - 1)], follows) if follows else GOOD
        phase = phase.next(index, passed, replace(STATUS, iteration_s=lasts_s))
    return rows


def lasted_s(row: str, follows: float) -> float:
    """Duration of an iteration at its clock; 1 at 1000 MHz and at default clocks."""
    clock = row.split(maxsplit=1)[0]
    return 1.0 if clock == "default" else 1.0 + follows * (1000.0 / int(clock) - 1.0)


@pytest.mark.parametrize("times_s", [[None, GOOD], [None, None, None, GOOD]])
def test_warm_up_lasts_until_all_ranks_know_a_time(times_s: list[float | None]) -> None:
    config = SimpleNamespace(profile=SimpleNamespace(warmup_iterations=2), trace_kernels=0)
    phase: Phase = WarmUp(SimpleNamespace(config=config), None)
    for index, iteration_s in enumerate(times_s):
        assert isinstance(phase, WarmUp)
        assert run_by(phase) == "default"
        phase = phase.next(index, [], replace(STATUS, iteration_s=iteration_s))
    assert phase == Opened(GOOD)


class Windows(Profiling):
    """Notes the windows, the first ``short`` of which are found too short.

    Before iterations ``elsewhere`` another rank evaluated by itself.
    """

    def __init__(
        self,
        *clocks_mhz: int,
        length: WindowLength = TWO,
        short: int = 0,
        elsewhere: Sequence[int] = (),
        **more: object,
    ) -> None:
        self.sweep = MeasuredSweep(clocks_mhz)
        ranks = SimpleNamespace(undisturbed=lambda ran: [one for one in ran if one.index not in elsewhere])
        super().__init__(ranks, self.sweep, length, **more)
        self.windows: list[tuple[int, list[int]]] = []
        self.short = short

    def take_window(self, clock_mhz: int, window: Sequence[Iteration]) -> bool:
        self.windows.append((clock_mhz, [one.index for one in window]))
        if len(self.windows) <= self.short:
            return False
        point = Point(clock_mhz, 1000.0 / clock_mhz, 1000.0 - len(self.windows))
        self.sweep.record(Pooled({(0, Kind.FORWARD): point}, {}, 0.0))
        return True

    def next_phase(self) -> Phase:
        return BaselineOnly()


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_profiling_measures_at_every_clock_and_runs_default_clocks_until_it_knows(lag: int) -> None:
    """A device that is far behind is waited for at default clocks."""
    profiling, waited = Windows(1000, 900), max(0, lag - 1)
    rows = walk(profiling, 8 + 2 * waited, lag=lag)
    waits = ["default -"] * (1 + waited)
    assert rows == ["default -", "1000 -", "1000 -", *waits, "900 -", "900 -", *waits, "default B"]
    assert profiling.windows == [(1000, [1, 2]), (900, [4 + waited, 5 + waited])]


@pytest.mark.parametrize(("follows", "most"), [(1.0, 32), (0.5, 26)])
def test_training_is_never_slower_than_allowed_after_any_window(follows: float, most: int) -> None:
    """Computations follow their clock; where iterations do so less, the sweep is shorter for it."""
    profiling = Windows(1000, 800, 500, settling=3, pace=SweepPace(10.0))
    rows = walk(profiling, 80, follows=follows)
    rows, took = rows[: rows.index("default B")], 0.0
    for count, row in enumerate(rows, start=1):
        took += lasted_s(row, follows)
        if row.startswith("default") and count > 1 and not rows[count - 2].startswith("default"):
            assert took <= 1.1 * count + 0.11
    assert [clock_mhz for clock_mhz, _ in profiling.windows] == [1000, 800, 500]
    assert len(rows) < most, "and no longer than that takes"


def test_a_window_lasts_as_long_at_every_clock_so_that_lower_ones_take_fewer_iterations() -> None:
    length, pace = WindowLength(GOOD, 6.0, least=2), SweepPace(100.0)
    profiling = Windows(1000, 800, 500, 250, length=length, settling=4, pace=pace)
    walk(profiling, 60, follows=1.0)
    counts = [(clock_mhz, len(ran)) for clock_mhz, ran in profiling.windows]
    assert counts == [(1000, 6), (800, 6), (500, 3), (250, 2)]


def test_evaluations_after_every_second_iteration_do_not_hold_up_the_profile() -> None:
    walk(Windows(1000, 900, pace=(pace := SweepPace(100.0))), 13, broken=[2])
    assert pace.broken == 1
    evaluating = Windows(1000, 900)
    walk(evaluating, 20, broken=range(0, 20, 2))
    assert [clock_mhz for clock_mhz, _ in evaluating.windows] == [1000, 900]


def active_plan(index: int = 1) -> ActivePlan:
    schedules = ClockSchedules(PLANS, pipeline_rank=0, change=ClockChange(0.0, 0.02, 0.02))
    return ActivePlan(schedules, index_at(PLANS, index))


@pytest.mark.parametrize(("every", "ahead"), [(1, False), (2, True)], ids=["its own", "other batches'"])
def test_lower_clocks_come_later_where_iterations_of_the_plan_last_longer(every: int, *, ahead: bool) -> None:
    """What is exchanged is the time of the iteration before, whose batch may have been another."""
    plans = replace(PLANS, choice=np.array([[0, 0, 0, 0], [0, 0, 0, 1]]))  # its backward follows at once
    schedules = ClockSchedules(plans, pipeline_rank=1, change=ClockChange(0.0, 0.1, 0.1))
    plan, longer_s = ActivePlan(schedules, index_at(plans, 1)), 1.2 * plans.plan(1).iteration_time_s
    for index in range(0, 20 * every, every):
        schedule = plan.begin(index, None, settled=True)
        plan.observe(index, JobStatus(failed=False, plans_ready=0, iteration_s=longer_s))
    assert schedule == schedules.of(1, on_pace=ahead)
    assert schedule != schedules.of(1, on_pace=not ahead)


def running(
    audits: list[int] | None = None, *, every: int = 5, settling: int = 1, others: int = 0
) -> Running:
    """Return a running plan, which notes its audits; the first ``others`` audits bring another one."""
    audits = [] if audits is None else audits

    def audited() -> ActivePlan | None:
        audits.append(1)
        return active_plan(0) if len(audits) <= others else None

    return Running(active_plan(), audited, every_iterations=every, audit_iterations=2, settling=settling)


def test_running_has_an_early_audit_and_then_one_every_so_often() -> None:
    assert letters(walk(running(), 24)) == "-PPPP-bb--PPPPPP-bb--PPP"


def letters(rows: Sequence[str]) -> str:
    return "".join(row[-1] if row.startswith("plan") else row[-1].lower() for row in rows)


def test_after_a_change_of_sides_iterations_count_when_the_temperature_has_settled() -> None:
    """Settling takes at most a fifth of the distance of audits."""
    rows = letters(walk(running(every=20, settling=4), 24))
    assert rows.startswith("----PP")
    assert rows.replace("-", " ").split()[:3] == ["PPPP", "bb", "PPPPPP"]
    assert rows.count("----") == 3
    assert letters(walk(running(every=20, settling=1000), 6)) == "----PP"
    assert letters(walk(running(every=4, settling=1000), 3)) == "-PP"


@pytest.mark.parametrize(
    ("profiling", "broken", "windows"),
    [
        (Windows(1000, 900, settling=4), [], [(1000, [4, 5]), (900, [7, 8])]),
        (Windows(1000, short=1), [], [(1000, [1, 2]), (1000, [4, 5, 6, 7])]),
        (Windows(1000, 900, pace=SweepPace(100.0)), [2], [(1000, [1, 4]), (900, [7, 8])]),
        (Windows(1000, 900, pace=SweepPace(100.0), elsewhere=[2]), [], [(1000, [1, 4]), (900, [7, 8])]),
    ],
    ids=[
        *("the GPU warms up first", "a window that tells nothing is measured again twice as long"),
        *("a window that was broken into is filled up", "one of another rank as well"),
    ],
)
def test_windows_of_a_sweep(
    profiling: Windows, broken: list[int], windows: list[tuple[int, list[int]]]
) -> None:
    walk(profiling, 13, broken=broken)
    assert profiling.windows == windows


@pytest.mark.parametrize(
    ("every", "others", "iterations", "count"),
    [(5, 0, 10, 1), (5, 0, 24, 2), (1000, 0, 24, 1), (1000, 1, 24, 2), (0, 0, 50, 0)],
    ids=["the early one", "and the next", "one alone", "another plan has its own early one", "none"],
)
def test_every_audit_is_told_once(every: int, others: int, iterations: int, count: int) -> None:
    audits: list[int] = []
    rows = walk(running(audits, every=every, others=others), iterations)
    assert len(audits) == count
    assert every or rows == ["plan -"] + ["plan P"] * (iterations - 1), "without audits the plan runs on"


def test_an_audit_may_bring_another_plan_which_counts_from_its_second_iteration() -> None:
    phase = running(every=6, others=1)
    rows = []
    for index in range(24):
        rows.append((phase.active_plan.plan, LETTERS[phase.settings.mode]))
        phase.next(index, [iteration(index)], STATUS)
    first = [plan for plan, _ in rows].index(0)
    assert rows[first] == (0, "-")
    assert rows[first + 1] == (0, "P")
    assert {plan for plan, _ in rows[first:]} == {0}
