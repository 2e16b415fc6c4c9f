"""The start decision, plans of each batch size, and the planner beside the training."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from lone_job import events_of
from schedules import two_plans

from perseus_ds.config import Objective, PerseusConfig, ProfileSettings
from perseus_ds.device.clock_change import Calibration, ClockPair
from perseus_ds.device.gpu import Capabilities
from perseus_ds.device.simulated.gpu import SimulatedGpu, VirtualTime
from perseus_ds.device.simulated.settings import SimulatedSettings
from perseus_ds.errors import PlanError
from perseus_ds.plan import read_plans, write_plans
from perseus_ds.plan.file import PlanRequest, loads
from perseus_ds.plan.record import ClockSegments, InstructionTimelines, TimelineStep
from perseus_ds.profile import Point, Profile, read_profile, write_profile
from perseus_ds.run_directory.paths import RunDirectory
from perseus_ds.runtime import plans
from perseus_ds.runtime.adapter import Place
from perseus_ds.runtime.context import budget_of, playable
from perseus_ds.runtime.event_log import EventLog
from perseus_ds.runtime.job import Job, differences, schedule_traits
from perseus_ds.runtime.plans import StartAction, StartDecision, decide, file_for, find_plan
from perseus_ds.schedule import Kind, Schedule, textbook

JOB = Job(0, 2, 0, 0, textbook("1f1b", stages=2, microbatches=1), two_plans().fingerprint)
LARGER = replace(JOB, fingerprint={**JOB.fingerprint, "microbatches": "2"})
SHRUNK = replace(JOB, fingerprint={**JOB.fingerprint, "replicas": "1"})
OTHER = replace(JOB, fingerprint={**JOB.fingerprint, "gpu": "H100"})


def leave_plan(directory: RunDirectory) -> None:
    write_plans(two_plans(), directory.plan)


def leave_profile(directory: RunDirectory) -> None:
    keys = [(stage, kind) for stage in (0, 1) for kind in (Kind.FORWARD, Kind.BACKWARD)]
    points = dict.fromkeys(keys, (Point(1400, 1.0, 300.0),))
    write_profile(Profile(points, fingerprint=dict(JOB.profile_fingerprint)), directory.profile)


def opened(
    directory: RunDirectory, job: Job = JOB, *, can_lock: bool = True, **settings: object
) -> StartDecision:
    config = replace(PerseusConfig(enabled=True), **settings)
    return decide(config, job, directory, can_lock=can_lock, why_not="" if can_lock else "no rights")


@pytest.mark.parametrize(
    ("mode", "job", "move"),
    [
        ("automatic", JOB, StartAction.RUN),
        ("automatic", LARGER, StartAction.PLAN),
        ("automatic", SHRUNK, StartAction.RUN),
        ("automatic", OTHER, StartAction.PROFILE),
        ("run", JOB, StartAction.RUN),
        ("profile", JOB, StartAction.PROFILE),
        ("observe", JOB, StartAction.OBSERVE),
        ("observe", OTHER, StartAction.OBSERVE),
    ],
)
def test_with_plan_and_profile(directory: RunDirectory, mode: str, job: Job, move: StartAction) -> None:
    leave_plan(directory)
    leave_profile(directory)
    start = opened(directory, job, mode=mode)
    assert start.action is move
    assert bool(start.plans) == (move is StartAction.RUN or (mode == "observe" and job is JOB))


@pytest.mark.parametrize(
    ("mode", "move"),
    [("automatic", StartAction.PROFILE), ("profile", StartAction.PROFILE), ("observe", StartAction.OBSERVE)],
)
def test_with_nothing_and_with_a_profile_alone(directory: RunDirectory, mode: str, move: StartAction) -> None:
    assert opened(directory, mode=mode).action is move
    leave_profile(directory)
    assert opened(directory).action is StartAction.PLAN
    assert opened(directory, profile=ProfileSettings(reuse=False)).action is StartAction.PROFILE


def test_a_device_that_locks_nothing_is_observed(directory: RunDirectory) -> None:
    leave_plan(directory)
    start = opened(directory, can_lock=False, mode="run")
    assert start.action is StartAction.OBSERVE
    assert "no rights" in start.reason
    assert loads(start.plans).fingerprint == two_plans().fingerprint


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\x80\xff" * 9, b'{"format": "other"}'])
def test_a_damaged_file_is_made_again_or_refused(directory: RunDirectory, damage: bytes) -> None:
    directory.plan.write_bytes(damage)
    start = opened(directory)
    assert start.action is StartAction.PROFILE
    assert str(directory.plan) in start.reason
    with pytest.raises(PlanError, match=r"plan\.json"):
        opened(directory, mode="run")
    directory.profile.write_bytes(damage)
    assert opened(directory).action is StartAction.PROFILE


def test_a_shared_directory_is_used_and_a_link_followed(directory: RunDirectory, tmp_path: Path) -> None:
    leave_plan(directory)
    directory.path.chmod(0o777)
    directory.plan.chmod(0o666)
    assert opened(directory).action is StartAction.RUN
    directory.plan.rename(tmp_path / "elsewhere.json")
    directory.plan.symlink_to(tmp_path / "elsewhere.json")
    assert opened(directory).action is StartAction.RUN


def test_run_without_a_plan_of_the_job_says_what_to_do(directory: RunDirectory) -> None:
    with pytest.raises(PlanError, match=r"perseus\.mode is 'run'") as refused:
        opened(directory, mode="run")
    assert "automatic" in str(refused.value.hint)
    leave_plan(directory)
    with pytest.raises(PlanError, match=r"gpu .*A100.*H100"):
        opened(directory, OTHER, mode="run")


def test_differences_name_every_key() -> None:
    ours = {"gpu": "A100", "stages": "2", "driver": "1"}
    assert differences(ours, ours) == ""
    gpu, driver = differences(ours, {"gpu": "H100", "stages": "2"}).split("; ")
    assert "H100" in gpu.partition("A100")[0]
    assert driver.startswith("driver ")


def test_a_setting_of_power_differs_only_from_another_one() -> None:
    ours = {"gpu": "A100", "power_limit": "300 W"}
    assert differences(ours, {"gpu": "A100"}) == "", "older files and some drivers do not state it"
    told = differences(ours, {"gpu": "A100", "power_limit": "400 W"})
    assert told.startswith("power_limit ")
    assert "400 W" in told.partition("300 W")[0]


# Plans for batches of several sizes lie beside each other, and each is found again.


def job(microbatches: int, gpu: str = "A100") -> Job:
    schedule = textbook("1f1b", stages=2, microbatches=microbatches)
    return Job(0, 2, 0, 0, schedule, {"gpu": gpu, "replicas": "1", **schedule_traits(schedule)})


def leave(one: Job, file: Path) -> None:
    write_plans(replace(two_plans(), fingerprint=dict(one.fingerprint)), file)


def test_the_first_size_has_the_plan_and_others_lie_beside_it(directory: RunDirectory) -> None:
    assert file_for(job(4), directory) == directory.plan
    leave(job(4), directory.plan)
    assert file_for(job(4), directory) == directory.plan
    beside = file_for(job(8), directory)
    assert beside.name == "plan.m8.json"
    leave(job(8), beside)
    for size in (4, 8):
        file, text = find_plan(job(size), directory)
        assert file == (beside if size == 8 else directory.plan)
        assert loads(text).fingerprint["microbatches"] == str(size)


def test_a_plan_of_a_table_is_refused_in_a_few_words(directory: RunDirectory) -> None:
    write_plans(replace(two_plans(), fingerprint={}), directory.plan)
    assert "table" in find_plan(job(4), directory).message


def test_a_plan_of_another_job_or_that_cannot_be_read_is_replaced(directory: RunDirectory) -> None:
    leave(job(4, gpu="H100"), directory.plan)
    assert file_for(job(8), directory) == directory.plan
    directory.plan.write_text("torn")
    assert file_for(job(8), directory) == directory.plan


@pytest.mark.parametrize("beside", [False, True])
def test_where_no_plan_fits_the_file_of_this_size_says_why(directory: RunDirectory, *, beside: bool) -> None:
    leave(job(4), directory.plan)
    if beside:
        leave(job(8, gpu="H100"), directory.plan_of(8))
    why = find_plan(job(8), directory)
    assert isinstance(why, PlanError)
    assert ("plan.m8.json" if beside else "plan.json") in why.message
    assert ("H100" if beside else "4 microbatches") in why.message
    assert "automatic" not in why.message, "where the mode is automatic already"


# Batches of several sizes: each joined once; beyond the fourth, default clocks and one line.


def test_four_sizes_are_served_and_others_run_at_default_clocks(log: EventLog, tmp_path: Path) -> None:
    met: list[int] = []

    def place() -> Place:
        met.append(size)
        return Place(0, 0, (), {0: 1}, {0: 1.0}, "float32")

    def schedule(_: object) -> Schedule:
        return textbook("1f1b", stages=1, microbatches=size)

    first = Job(0, 1, 0, 0, textbook("1f1b", stages=1, microbatches=1), {})
    context = SimpleNamespace(job=first, channel=SimpleNamespace(gather=lambda mine: [mine]), log=log)
    adapter = SimpleNamespace(place=place, schedule=schedule)
    batches = plans.BatchPlans(context, adapter, MagicMock(), None, waits=False)
    served = []
    for size in (1, 2, 4, 8, 16, 32, 16, 8):
        batches.meet(size)
        joined = batches.join(size)
        served.append(joined and joined.schedule.microbatches)
    assert served == [1, 2, 4, 8, None, None, None, 8]
    assert met == [2, 4, 8]
    [refused] = events_of(tmp_path, "batch_size_refused")
    assert str(plans.MOST) in refused["line"]


# Timelines that a job is given: those that its GPU cannot run are left out, counted, with a reason.

Timelines = tuple[ClockSegments, ...]


def line(*pairs: ClockPair) -> ClockSegments:
    steps = tuple(TimelineStep(place, 0.1 * place, pair) for place, pair in enumerate(pairs))
    return ClockSegments(1.0, 100.0, steps)


WHOLE, LOW = line(ClockPair()), line(ClockPair(), ClockPair(None, 900))
LINES = WHOLE, LOW, line(ClockPair(5001, 900))  # the last one lowers the memory's clock
UNKNOWN, UNKNOWN_MEMORY = (line(ClockPair(), pair) for pair in (ClockPair(None, 901), ClockPair(5002, 900)))


@pytest.mark.parametrize(
    ("lines", "gpu", "memory", "stage", "kept", "reason"),
    [
        (LINES, "rtx-3080-ti", True, 0, LINES, None),
        (LINES, "a100-sxm4-80gb", True, 0, (WHOLE, LOW), "1593 MHz"),
        (LINES, "rtx-3080-ti", False, 0, (WHOLE, LOW), "simulated"),
        ((UNKNOWN,), "rtx-3080-ti", True, 0, (), "901 MHz"),
        ((UNKNOWN_MEMORY,), "rtx-3080-ti", True, 0, (), "5002 MHz"),
        ((WHOLE,), "rtx-3080-ti", True, 2, (), "stage 2"),
    ],
)
def test_what_the_gpu_can_run_is_kept_and_the_rest_named(
    lines: Timelines, gpu: str, stage: int, kept: Timelines, reason: str | None, *, memory: bool
) -> None:
    able = SimulatedGpu(SimulatedSettings(gpu=gpu), time=VirtualTime()).capabilities()
    given = InstructionTimelines(stage, Kind.FORWARD, lines)
    found, left_out = playable([given], able, memory=memory, stages=2)
    assert found == ([replace(given, timelines=kept)] if kept else [])
    assert [reason in one for one in left_out] == ([True] if reason else [])


# The number of changes asked of a node's driver that serves one GPU after the other.

ABLE = Capabilities((1410, 1200), (1593,), True, None, 0.1, 0.037, 0.01)


def calibrated(together_s: float) -> Calibration:
    return Calibration(0.01, 0.037, 0.03, together_s, 0.1, 0)


@pytest.mark.parametrize(
    ("asked", "found", "per_node_per_s"),
    [
        (Objective(), calibrated(0.037 + 7 * 0.01), 50.0),
        (Objective(), calibrated(0.037), None),
        (Objective(), calibrated(0.040), None),
        (Objective(), None, None),
        (Objective(node_changes_per_s=7.0), calibrated(0.2), 7.0),
    ],
    ids=["half of the driver's lock", "nobody waits", "hardly anybody waits", "not measured", "asked for"],
)
def test_the_nodes_budget(asked: Objective, found: Calibration | None, per_node_per_s: float | None) -> None:
    """Eight GPUs that change at once wait for seven calls of 10 ms: there are 100 changes a second."""
    budget = budget_of(asked, found, ABLE, ranks=8)
    assert budget.per_node_per_s == (per_node_per_s and pytest.approx(per_node_per_s))
    assert budget.per_gpu_per_s is None


# The planner's own process: what it says goes into a file of ours, whatever lies there.

PROFILE = Path(__file__).parents[3] / "docs" / "examples" / "profile.csv"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "run").mkdir()
    return RunDirectory(tmp_path / "run")


def planned(run: RunDirectory, profile: Profile | None = None) -> plans.BackgroundPlanner:
    """Return a planner that has ended."""
    stages, fingerprint = (2, {}) if profile is None else (profile.stages, profile.fingerprint)
    request = PlanRequest(textbook("1f1b", stages=stages, microbatches=2), fingerprint, 70.0, 0.0)
    planner = plans.BackgroundPlanner(run, request, run.plan)
    planner.wait()
    return planner


def test_its_log_follows_no_link_and_its_last_line_is_said(run: RunDirectory, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (run.path / "planner.log").symlink_to(precious)
    with pytest.raises(PlanError, match=r"profile\.json"):
        planned(run).ready()
    assert precious.read_text() == "mine"
    assert not (run.path / "planner.log").is_symlink()


@pytest.mark.thorough
def test_modules_of_the_job_s_folder_are_not_taken_for_ours(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('no module of theirs is ours')")
    monkeypatch.chdir(tmp_path)
    profile = read_profile(PROFILE)
    write_profile(profile, run.profile)
    assert planned(run, profile).ready()
    assert len(read_plans(run.plan)) > 1


def test_a_planner_that_hangs_for_a_day_is_told_eleven_times() -> None:
    batches = plans.BatchPlans(context := MagicMock(), *[MagicMock()] * 3, waits=False)
    batches._wanted = [context.job]
    for second in range(24 * 3600):
        batches.planner = SimpleNamespace(lasted_s=second, ready=lambda: False)
        batches.ready()
    told = [call.kwargs["lasted_s"] for call in context.log.event.call_args_list]
    assert told == [plans.LONG_S * 2**doubling for doubling in range(11)]


# Processes of ours that are to end, whatever they are about.

DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
)


def test_one_that_hears_nothing_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        plans.end_in_time(process, patience_s=0.05)
        assert process.wait(60.0) != 0


class Stuck(subprocess.Popen[bytes]):
    """A process that the kernel keeps, as a hung file system does: no signal ends it in time."""

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "waited for without a limit"
        raise subprocess.TimeoutExpired("stuck", timeout)


def test_one_that_nothing_ends_is_left_to_the_operating_system() -> None:
    process = Stuck([sys.executable, "-c", ""])
    plans.end_in_time(process, patience_s=0.01)
    assert subprocess.Popen.wait(process, 60.0) is not None
