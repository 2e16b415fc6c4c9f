"""A session among stand-ins: what batches of each size run, what they count for, who leaves, and how."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from lone_job import events_of
from schedules import index_at, two_plans

from perseus_ds.device.clock_change import ClockChange
from perseus_ds.device.gpu import Capabilities
from perseus_ds.errors import DeviceLostError, EngineError, PerseusError, SilentRankError
from perseus_ds.run_directory.events import read_events
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime.accounting import Mode
from perseus_ds.runtime.adapter import Batch
from perseus_ds.runtime.clocks import ClockSchedules, fixed_clock
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.phases import ActivePlan, IterationSettings, Phase, Planning, Running, WarmUp
from perseus_ds.runtime.plans import StartAction, StartDecision
from perseus_ds.runtime.recorder import Iteration
from perseus_ds.runtime.session import Session
from perseus_ds.runtime.status import JobStatus
from perseus_ds.schedule import Kind

GOOD = JobStatus(failed=False, plans_ready=0, iteration_s=1.0)
SILENCE = SilentRankError("a rank fell silent")
PLAN_MHZ = 1600


class At(Phase):
    """Run at one clock, and count the iterations that reach this phase."""

    def __init__(self, clock_mhz: int) -> None:
        self.settings = IterationSettings(fixed_clock(clock_mhz), Mode.PERSEUS, rests=True)
        self.iterations = 0

    def next(self, index: int, passed: Sequence[Iteration], job: JobStatus | None) -> Phase:
        assert (job.iteration_s, passed) == (1.0, [])
        self.iterations += 1
        return self


def running() -> Running:
    plans = two_plans()
    schedules = ClockSchedules(plans, pipeline_rank=0, change=ClockChange(0.0, 0.02, 0.02))
    active_plan = ActivePlan(schedules, index_at(plans, 1))
    return Running(active_plan, lambda: None, every_iterations=3, audit_iterations=2)


class Plans:
    """Has the plan of the first size, and makes that of another when it is told to."""

    def __init__(self, first: Phase) -> None:
        self.first, self.opened = first, False
        self.asked: list[int] = []
        self.made: dict[int, Phase] = {}
        self.jobs, self.loads_known, self.meet, self.join = (MagicMock() for _ in range(4))
        self.planner = None

    def run_plan(self, *_: object) -> Phase:
        self.opened = True
        return self.first

    @property
    def taken(self) -> int:
        return len(self.made)

    def phase_for(self, microbatches: int) -> Phase:
        self.asked.append(microbatches)
        return Planning()

    def take_next(self) -> tuple[int, Phase]:
        size = self.asked[len(self.made)]
        self.made[size] = At(100 * size)
        return size, self.made[size]


class Job:
    def __init__(
        self,
        first: Phase | None = None,
        *,
        on_error: str = "warn",
        log: EventLog | None = None,
        opens: bool = True,
    ) -> None:
        context, self.plans, self.given_back = MagicMock(), Plans(first or At(400)), list[str]()
        context.job.schedule.microbatches = 4
        context.config.profile.warmup_iterations, context.config.trace_kernels = 1, 0
        context.config.on_error = on_error
        context.channel.size, context.channel.rank = 1, 0
        context.channel.broadcast = lambda mine: mine
        context.capabilities = Capabilities((1400,), (), True, None, None, 0.02)
        self.log = context.log = log or MagicMock()
        self.channel, self.status_exchange = context.channel, MagicMock()
        self.status_exchange.someone_failed.return_value = False
        self.requests, self.sequencer = MagicMock(error=None), MagicMock(latency_s=0.0)
        self.recorder, self.books = MagicMock(index=0), MagicMock()
        self.recorder.take_passed.return_value, self.recorder.trouble.return_value = [], ""
        self.books.watch = MagicMock(error=None, trouble=lambda: "")
        self.conflicts = MagicMock(check=lambda: None, controlled=True)
        self.undo = [partial(self.given_back.append, name) for name in ("device", "threads")]
        self.session = Session(
            context,
            StartDecision(StartAction.RUN, "a plan fits"),
            WarmUp(context, MagicMock()),
            device=MagicMock(take=MagicMock(return_value=False)),
            requests=self.requests,
            sequencer=self.sequencer,
            recorder=self.recorder,
            books=self.books,
            conflict_monitor=self.conflicts,
            status_exchange=self.status_exchange,
            plans=self.plans,
            undo=self.undo,
        )
        while opens and not self.plans.opened:
            self.iteration(4)

    @property
    def has_left(self) -> bool:
        return self.given_back == ["threads", "device"]

    def iteration(self, size: int, status: JobStatus | Exception | None = GOOD) -> str:
        """A letter: the clock in hundreds, small where the iteration counts for neither side."""
        self.status_exchange.turn.side_effect = [status]
        self.recorder.finish.return_value = self.recorder.index
        if not self.session.iteration_begins(Batch(size)):
            return "."
        settings = self.session.settings
        self.session.iteration_ends()
        self.recorder.index += 1
        clock = settings.clocks.opening[0].clock_mhz if settings.plan is None else PLAN_MHZ
        letter = "d" if clock is None else "abcdefghijklmnopq"[clock // 100]
        return letter.upper() if settings.mode is Mode.PERSEUS else letter

    def walk(self, sizes: str, ready: str) -> str:
        row, before = [], None
        for size, plans_ready in zip(map(int, sizes), map(int, ready), strict=True):
            row.append(self.iteration(size, replace(GOOD, plans_ready=plans_ready, microbatches=before)))
            before = size
        return "".join(row)

    @property
    def events(self) -> list[str]:
        return [call.args[0] for call in self.log.event.call_args_list]


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Job:
    """A job whose lines go to standard error, from now on."""
    job = Job(log=EventLog(0))
    capsys.readouterr()
    return job


def lost(*_: object) -> None:
    raise DeviceLostError("the device is gone")


# What runs next.


def test_each_size_runs_its_own_plan_and_the_change_counts_for_neither() -> None:
    job = Job()
    assert job.walk("44488888844", "00000011111") == "EEEddddIIeE"
    assert job.plans.asked == [8]


def test_a_size_moves_on_with_its_own_iterations_alone() -> None:
    four = At(400)
    Job(four).walk("4488884", "0000000")
    assert four.iterations == 3


def test_sizes_are_asked_for_once_and_taken_in_turn() -> None:
    job = Job()
    job.walk("2266224466", "0000112222")
    assert job.plans.asked == [2, 6]
    assert set(job.plans.made) == {2, 6}


def test_where_nobody_answers_the_plan_runs_on_without_audits() -> None:
    job = Job(running())
    rows = [job.iteration(4, status) for status in (SILENCE, *[None] * 20)]
    assert "".join(rows) == "q" + 20 * "Q"
    assert job.events.count("alone") == 1
    job.session.fail(ZeroDivisionError("ours"))
    job.status_exchange.fail.assert_not_called()


def test_where_nobody_answers_a_job_without_a_plan_stays_at_default_clocks() -> None:
    job = Job(Planning())
    statuses = (SILENCE, *[replace(GOOD, microbatches=8, plans_ready=1)] * 3)
    assert "".join(job.iteration(4, status) for status in statuses) == "dddd"
    assert job.plans.asked == [], "nothing is exchanged, nothing is planned"
    assert job.events.count("alone") == 1


def test_what_is_no_silence_ends_it() -> None:
    job = Job(Planning())
    job.iteration(4, EngineError("different batches"))
    assert job.session.left
    job.status_exchange.fail.assert_called_once_with()


def test_a_calibration_that_lost_a_rank_is_stopped() -> None:
    job = Job(opens=False)
    while not job.requests.run.called:
        job.iteration(4)
    job.channel.broadcast = MagicMock(side_effect=SILENCE)
    while "alone" not in job.events:
        job.iteration(4)
    job.requests.stop.assert_called_once_with(job.requests.run.call_args.args[0])
    assert [job.iteration(4) for _ in range(3)] == ["d"] * 3
    assert not job.plans.opened


def test_a_power_cap_is_held_by_the_plans_of_all_sizes_and_logged_once() -> None:
    job = Job(first := running())
    hold = first.active_plan.hold = MagicMock()
    first.active_plan.observe = MagicMock()
    for _ in range(3):
        job.iteration(8, replace(GOOD, power_w=500.0, microbatches=8))
    assert [call.args[1] for call in hold.call_args_list] == [500.0] * 3
    assert job.events.count("power_cap") == 1


def test_a_batch_of_a_size_that_nobody_knows_yet_is_not_listened_to() -> None:
    job = Job()
    job.plans.jobs = {4: MagicMock()}
    assert [job.session.iteration_begins(Batch(size)) for size in (6, 4)] == [False, True]


def test_an_iteration_without_control_counts_for_neither_side() -> None:
    job = Job()
    job.books.enter.reset_mock()
    for controlled in (True, False, True):
        job.conflicts.controlled = controlled
        job.iteration(4)
    assert [call.kwargs["known"] for call in job.books.enter.call_args_list] == [True, False, True]


# The end: each thing is given back whatever becomes of the others, and the host goes on.


@pytest.mark.parametrize("error", [None, ZeroDivisionError("ours")])
def test_all_is_given_back_once_before_a_word_is_written(error: Exception | None, tmp_path: Path) -> None:
    """In reverse order, however often it leaves."""
    log = EventLog(0)
    job = Job(log=log)
    log.writes_to(RunDirectory(tmp_path / "run"))
    journal = tmp_path / "run" / "events.jsonl"
    job.undo.append(lambda: job.given_back.append(f"journal: {journal.exists()}"))
    job.sequencer.before.side_effect = error
    job.session.before(Kind.FORWARD)
    for _ in range(2):
        job.session.leave()
    assert job.given_back == ["journal: False", "threads", "device"]
    (event,) = read_events(journal)
    assert event["event"] == ("ended" if error is None else "disabled")


def test_a_log_or_a_part_that_fails_keeps_nothing_from_its_turn(
    logged: Job, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(EventLog, "event", lost)
    logged.undo.append(lost)
    logged.session.leave()
    assert logged.has_left
    assert capsys.readouterr().err.count("gone") == 2


@pytest.mark.parametrize("error", [DeviceLostError("gone"), ZeroDivisionError("ours")])
@pytest.mark.parametrize("call", ["before", "after"])
def test_an_error_within_an_instruction_never_reaches_the_host(
    logged: Job, error: Exception, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    getattr(logged.sequencer, call).side_effect = error
    getattr(logged.session, call)(Kind.FORWARD)
    assert logged.has_left
    logged.status_exchange.fail.assert_called_once_with()
    [said] = capsys.readouterr().err.splitlines()
    assert "off" in said
    assert str(error) in said


def test_it_leaves_even_where_everybody_else_is_gone(logged: Job) -> None:
    logged.conflicts.note_failure.side_effect = lost
    logged.status_exchange.fail.side_effect = EngineError("a rank fell silent")
    assert not logged.session.fail(DeviceLostError("gone"))
    assert logged.has_left


def test_an_error_is_raised_where_the_user_wants_that() -> None:
    job = Job(on_error="raise")
    job.sequencer.before.side_effect = lost
    with pytest.raises(PerseusError, match="gone"):
        job.session.before(Kind.FORWARD)
    assert job.has_left


@pytest.mark.parametrize(
    ("status", "words", "lines"),
    [(replace(GOOD, sizes=(4, 6)), "6 microbatches", 1), (replace(GOOD, failed=True), "another rank", 0)],
    ids=["parted", "followed"],
)
@pytest.mark.parametrize("raises", [False, True])
def test_all_leave_where_one_failed_or_trains_batches_of_another_size(
    log: EventLog,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    status: JobStatus,
    words: str,
    lines: int,
    raises: bool,
) -> None:
    """The rank that failed has said why; where batches differ all know it, and rank 0 says it."""
    job = Job(on_error="raise" if raises else "warn", log=log)
    capsys.readouterr()
    with pytest.raises(EngineError, match=words) if raises else nullcontext():
        job.iteration(4, status)
    assert job.has_left
    assert not job.session.iteration_begins(Batch(4))
    job.status_exchange.fail.assert_not_called()
    assert len(capsys.readouterr().err.splitlines()) == lines
    last = events_of(tmp_path)[-1]
    assert last["event"] == "disabled"
    assert words in str(last["reason"])
